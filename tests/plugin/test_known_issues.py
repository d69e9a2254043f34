"""Known issues of a targets file: expected until they expire; an unknown case id is an error."""

from __future__ import annotations

import pytest
from output_files import case_outcomes
from pytest_results import assert_usage_error

SUITE = """\
import pytest
from storagetest.errors import HostError

pytestmark = [pytest.mark.case(section="X 1", level="MUST"), pytest.mark.needs("filesystem")]

@pytest.mark.case("A-BROKEN")
def test_broken(variant): assert variant.id == "other", "the data differs"

@pytest.mark.case("A-KEPT")
def test_kept(variant): pass

@pytest.mark.case("A-ERROR")
def test_error(variant): raise HostError("connection lost")

@pytest.mark.case("A-SKIPPED")
def test_skipped(variant): pytest.skip("not supported")
"""


def known(cases: str, *, expires: str = "2999-12-31", more: str = "") -> str:
    entry = f"cases: {cases}, reason: it is broken, owner: ann, expires: {expires}"
    return f"known_issues:\n  - {{{entry}{', ' + more if more else ''}}}\n"


def entries(section: str) -> str:
    """Return the entries of a section."""
    return section.removeprefix("known_issues:\n")


@pytest.fixture
def run_on_disk(run_pytest, pytester):
    """Return a function that runs the suite on the target ``disk``: result of pytest, outcomes of cases."""

    def run(*arguments: str, suite: str = SUITE, **more: str) -> tuple[pytest.RunResult, dict[str, str]]:
        result = run_pytest("--st-target", "disk", *arguments, suite=suite, **more)
        return result, case_outcomes(pytester.path)

    return run


def test_a_known_issue_applies_to_its_variants(run_pytest, pytester):
    result = run_pytest(suite=SUITE, more=known("[A-BROKEN]", more="variants: [disk]"))
    assert case_outcomes(pytester.path, "disk")["A-BROKEN"] == "known"
    assert case_outcomes(pytester.path, "other")["A-BROKEN"] == "passed"
    result.assert_outcomes(passed=3, xfailed=1, skipped=2, errors=2)
    result.stdout.fnmatch_lines(["known until 2999-12-31: it is broken (ann; *targets.yaml:10:5): 1 case"])


def test_an_unexpected_pass_is_a_failure(run_on_disk):
    result, outcomes = run_on_disk(more=known('["A-K*"]'))
    assert outcomes["A-KEPT"] == "failed"
    result.stdout.fnmatch_lines(
        [
            "the case passes: remove the entry (known until 2999-12-31: it is broken (ann; *:10:5))",
            "PASSES until 2999-12-31: *: 1 case",
        ]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED


BROKEN_EXPIRED_AND_NOT = known("[A-BROKEN]", expires="2020-02-29") + entries(known("[A-BROKEN]"))


@pytest.mark.parametrize(
    ("more", "case", "outcome"),
    [
        (known('["A-K*"]', more="strict: false"), "A-KEPT", "passed"),
        (known("[A-ERROR]"), "A-ERROR", "error"),
        (BROKEN_EXPIRED_AND_NOT, "A-BROKEN", "known"),
        ("known_issues: nas.yaml\n", "A-BROKEN", "known"),
    ],
    ids=["not strict", "infrastructure error", "the later expiry applies", "another file"],
)
def test_the_outcome_of_a_case_with_an_entry(run_on_disk, pytester, more: str, case: str, outcome: str):
    (pytester.path / "nas.yaml").write_text(entries(known("[A-BROKEN]")).replace("  - ", "- "))
    _, outcomes = run_on_disk(more=more)
    assert outcomes[case] == outcome


def test_an_expired_entry_is_a_failure(run_on_disk):
    result, outcomes = run_on_disk(more=known('["A-*"]', expires="2020-02-29"))
    assert outcomes == {"A-BROKEN": "failed", "A-KEPT": "failed", "A-ERROR": "error", "A-SKIPPED": "skipped"}
    result.stdout.fnmatch_lines(
        [
            "*the data differs*",
            "known issue, expired after 2020-02-29: it is broken (ann; *targets.yaml:10:5)",
            "correct the target, or agree on a new date",
            "the case passes: remove the entry (known issue, expired after 2020-02-29: *",
            "EXPIRED 2020-02-29: it is broken (ann; *targets.yaml:10:5): 4 cases",
        ]
    )


TABLE = """\
owner = "ann"

[[known_issues]]
vendor = "ACME"
cases = ["A-[BK]*"]
reason = "it is broken"
reference = "X 1"
expires = {}
"""
REPORTED = """\
import pytest
from storagetest.plugin.conformance.known_issues import apply_reported

@pytest.fixture(autouse=True)
def known_issue(request):
    apply_reported(request.node, vendor="ACME")
"""


@pytest.mark.parametrize(
    ("until", "more", "broken", "kept"),
    [
        ("2999-12-31", "", "known", "failed"),
        ("2020-02-29", "", "failed", "failed"),
        ("2020-02-29", known("[A-BROKEN]"), "known", "failed"),
        ("2999-12-31", known("[A-BROKEN]", expires="2020-02-29"), "known", "failed"),
        ("2998-12-31", known("[A-KEPT]", more="strict: false"), "known", "passed"),
        ("2020-02-29", known("[A-BROKEN]", more="vendor: ACME"), "known", "failed"),
        ("2999-12-31", known("[A-BROKEN]", more="vendor: OTHER"), "known", "failed"),
        ('2999-12-31\noutcome = "skip"', "", "skipped", "skipped"),
        ('2020-02-29\noutcome = "skip"', "", "failed", "failed"),
    ],
)
def test_a_suite_that_identifies_the_target_has_a_table(
    run_on_disk, pytester, until: str, more: str, broken: str, kept: str
):
    """Of an entry of the table and one of the targets file, the later expiry applies."""
    (pytester.path / "known_issues.toml").write_text(TABLE.format(until), encoding="utf-8")
    pytester.makeconftest(REPORTED)
    _, outcomes = run_on_disk(more=more)
    assert (outcomes["A-BROKEN"], outcomes["A-KEPT"]) == (broken, kept)


ENTRIES = {
    'message: ["the data *"]': "known",
    'message: ["a size *", "*differs*"]': "known",
    'message: ["a size *"]': "failed",
    'message: ["a size *"], strict: false': "failed",
    'message: ["a size *"], outcome: allow': "failed",
    'message: ["the data *"], outcome: allow': "observed",
    "outcome: skip": "skipped",
    "where: {protocol: local}": "known",
    "where: {protocol: nfs}": "failed",
    "implementation: other": "failed",
    "vendor: ACME": "failed",
}
ALL_BROKEN = f"""\
import pytest

pytestmark = [pytest.mark.case(section="X 1", level="MUST"), pytest.mark.needs("filesystem")]
IDS = [f"B-{{number}}" for number in range({len(ENTRIES)})]

@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.case(name)) for name in IDS])
def test_broken(variant, name): pytest.fail("the data differs")
"""


def test_an_entry_may_have_message_outcome_and_variants(run_on_disk):
    text = "".join(entries(known(f"[B-{number}]", more=more)) for number, more in enumerate(ENTRIES))
    result, outcomes = run_on_disk(suite=ALL_BROKEN, more=f"known_issues:\n{text}")
    assert {more: outcomes[f"B-{number}"] for number, more in enumerate(ENTRIES)} == ENTRIES
    result.stdout.fnmatch_lines(["the failure does not match the entry (a size [*]): it is broken (ann; *"])


def test_with_workers_the_outcomes_are_the_same(run_pytest, pytester):
    result = run_pytest("-n", "2", suite=SUITE, more=known("[A-BROKEN, A-KEPT]", more="variants: [disk]"))
    outcomes = case_outcomes(pytester.path, "disk")
    assert (outcomes["A-BROKEN"], outcomes["A-KEPT"]) == ("known", "failed")
    result.stdout.fnmatch_lines(["PASSES until 2999-12-31: *: 1 case", "known until *: 1 case"])


@pytest.fixture
def collect(run_pytest, pytester):
    """Return a function that writes the suite to ``directory`` and collects it."""

    def run(more: str, *arguments: str, directory: str = ".") -> pytest.RunResult:
        path = pytester.path / directory / "test_cases.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SUITE, encoding="utf-8")
        return run_pytest("--collect-only", *arguments, suite="", more=more)

    return run


def test_an_unknown_case_is_an_error_with_its_line(collect):
    assert_usage_error(
        collect(known('[A-BROKEN, A-BROKN, "A-Q*"]')),
        "targets.yaml:10:24: known_issues: 'A-BROKN' matches no case\n",
        "targets.yaml:10:33: known_issues: 'A-Q*' matches no case\n",
    )


@pytest.mark.parametrize(
    "arguments", [("test_cases.py",), (".", "--ignore=nothing"), ("test_cases.py::test_kept",)]
)
def test_a_partial_collection_reports_no_unknown_case(collect, arguments: tuple[str, ...]):
    assert collect(known("[A-BROKN]"), *arguments).ret == pytest.ExitCode.OK


def test_deselected_cases_are_known(collect):
    assert collect(known("[A-BROKEN]"), "-k", "kept").ret == pytest.ExitCode.OK
    assert collect(known("[A-BROKN]"), "-k", "kept").ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    ("directory", "status"), [("suites", 4), ("suites/conformance", 4), ("suites/conformance/a", 0)]
)
def test_a_case_of_another_suite_is_unknown_if_all_suites_are_collected(collect, directory: str, status: int):
    result = collect(known("[Z-BROKEN]"), directory, directory="suites/conformance/a")
    assert result.ret == status


def test_without_a_targets_file_no_case_is_known(pytester):
    pytester.makepyfile(test_one="def test_one(): pass")
    assert pytester.runpytest_inprocess("-p", "no:cacheprovider").ret == pytest.ExitCode.OK
