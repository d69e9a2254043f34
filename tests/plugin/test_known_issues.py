"""Known issues of a targets file: expected of versions until they expire; an unknown case id is an error."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta

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


TODAY = datetime.now().astimezone().date()
NEXT_YEAR, LATER = str(TODAY + timedelta(days=300)), str(TODAY + timedelta(days=310))
SOFTWARE = 'implementation: box, versions: "<2"'
FAILS = f'{SOFTWARE}, message: ["the data *"]'


def known(cases: str, *, expires: str = NEXT_YEAR, more: str = "", is_about: str = FAILS) -> str:
    entry = f"cases: {cases}, {is_about}, reason: it is broken, owner: ann, expires: {expires}"
    return f"known_issues:\n  - {{{entry}{', ' + more if more else ''}}}\n"


def entries(section: str) -> str:
    """Return the entries of a section."""
    return section.removeprefix("known_issues:\n")


TARGETS = """\
version: 1
clients:
  here: {transport: local}
targets:
  disk: {protocol: local, path: DIRECTORY/disk, clients: [here], implementation: {name: box, version: 1.5-b}}
  other: {protocol: local, path: DIRECTORY/other, clients: [here], implementation: {name: box, version: v1}}
"""


@pytest.fixture
def run_on_disk(run_pytest, pytester):
    """Return a function that runs the suite on the target ``disk``: result of pytest, outcomes of cases."""

    def run(
        *arguments: str, suite: str = SUITE, targets: str = TARGETS, **more: str
    ) -> tuple[pytest.RunResult, dict[str, str]]:
        result = run_pytest("--st-target", "disk", *arguments, suite=suite, targets=targets, **more)
        return result, case_outcomes(pytester.path)

    return run


def test_a_known_issue_applies_to_its_variants(run_pytest, pytester):
    result = run_pytest(suite=SUITE, targets=TARGETS, more=known("[A-BROKEN]", more="variants: [disk]"))
    assert case_outcomes(pytester.path, "disk")["A-BROKEN"] == "known"
    assert case_outcomes(pytester.path, "other")["A-BROKEN"] == "passed"
    result.assert_outcomes(passed=3, xfailed=1, skipped=2, errors=2)
    result.stdout.fnmatch_lines([f"known until {NEXT_YEAR}: it is broken (ann; *targets.yaml:10:5): 1 case"])


def test_the_record_of_a_known_issue_explains_it(run_on_disk, pytester):
    run_on_disk(more=known("[A-BROKEN]", more="reference: the text of X 1"))
    lines = (pytester.path / "cases.jsonl").read_text().splitlines()
    records = {record["id"]: record for record in map(json.loads, lines)}
    shown = ("required", "reason", "reference")
    assert [records["A-BROKEN"][name] for name in shown] == ["broken", "it is broken", "the text of X 1"]
    assert records["A-BROKEN"]["message"].startswith("the data differs")
    assert [records["A-KEPT"][name] for name in shown] == ["kept", "", ""]


SHOW_FAILURES = """\
def pytest_runtest_logreport(report):
    if hasattr(report, "wasxfail"):
        print(f"\\nshown: {report.longreprtext.strip()!r}")
"""


def test_a_known_failure_is_shown_without_its_traceback_unless_asked_for(run_on_disk, pytester):
    pytester.makeconftest(SHOW_FAILURES)
    result, _ = run_on_disk("-s", more=known("[A-BROKEN]"))
    result.stdout.fnmatch_lines(['shown: "AssertionError: the data differs*'])
    result, _ = run_on_disk("-s", "--xfail-tb", more=known("[A-BROKEN]"))
    result.stdout.fnmatch_lines(["shown: *def test_broken(variant)*"])
    result.stdout.fnmatch_lines([">   def test_broken(variant)*"])
    result, _ = run_on_disk(more=known("[A-BROKEN]", is_about=FAILS.replace("the data", "another")))
    result.stdout.fnmatch_lines([">   def test_broken(variant)*"])


def test_an_unexpected_pass_is_a_failure(run_on_disk):
    result, outcomes = run_on_disk(more=known('["A-K*"]'))
    assert outcomes["A-KEPT"] == "failed"
    result.stdout.fnmatch_lines(
        [
            f"the case passes: remove the entry (known until {NEXT_YEAR}: it is broken (ann; *:10:5))",
            f"PASSES until {NEXT_YEAR}: *: 1 case",
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
{about}
cases = ["A-[BK]*"]
reason = "it is broken"
reference = "X 1"
expires = {}
"""
ABOUT = 'implementation = "acme"\nversions = "<10"\nmessage = ["the data *"]'
IDENTIFIED = """\
import pytest
from storagetest.config.implementations import Implementation
from storagetest.plugin.conformance.known_issues import apply_identified

@pytest.fixture(autouse=True)
def known_issue(request):
    apply_identified(request.node, Implementation("acme", "9.1.2"))
"""
UNNAMED = re.sub(r", implementation: {.*?}", "", TARGETS)
ACME = 'implementation: acme, versions: "<10", message: ["the data *"]'


@pytest.mark.parametrize(
    ("until", "more", "broken", "kept"),
    [
        (NEXT_YEAR, "", "known", "failed"),
        ("2020-02-29", "", "failed", "failed"),
        ("2020-02-29", known("[A-BROKEN]", is_about=ACME), "known", "failed"),
        (LATER, known("[A-BROKEN]", expires="2020-02-29", is_about=ACME), "known", "failed"),
        (NEXT_YEAR, known("[A-KEPT]", expires=LATER, is_about=ACME, more="strict: false"), "known", "passed"),
        (NEXT_YEAR, known("[A-BROKEN]"), "known", "failed"),
        (f'{NEXT_YEAR}\noutcome = "skip"', "", "skipped", "skipped"),
        ('2020-02-29\noutcome = "skip"', "", "failed", "failed"),
    ],
)
def test_a_suite_that_identifies_the_target_has_a_table(
    run_on_disk, pytester, until: str, more: str, broken: str, kept: str
):
    """Of an entry of the table and one of the targets file, the later expiry applies."""
    about = ABOUT.partition("\nmessage")[0] if "skip" in until else ABOUT
    (pytester.path / "known_issues.toml").write_text(TABLE.format(until, about=about), encoding="utf-8")
    pytester.makeconftest(IDENTIFIED)
    _, outcomes = run_on_disk(more=more, targets=UNNAMED)
    assert (outcomes["A-BROKEN"], outcomes["A-KEPT"]) == (broken, kept)


@pytest.mark.parametrize(
    ("claimed", "versions", "outcome"),
    [
        ("acme", "==9.1.2", "known"),
        ("acme", ">=9.2", "failed"),
        ("{name: acme, version: 9.1.77}", "==9.1.77", "known"),
        ("{name: acme, version: '9.2'}", "==9.2", "error"),
        ("{name: other, version: 9.1.2}", "==9.1.2", "error"),
    ],
)
def test_what_the_file_claims_and_what_the_target_reports_must_agree(
    run_on_disk, pytester, claimed: str, versions: str, outcome: str
):
    """The file's version is used; a name or the first two numbers that differ are an error of the file."""
    pytester.makeconftest(IDENTIFIED)
    about = ACME.replace("<10", versions)
    targets = UNNAMED.replace("clients: [here]", f"clients: [here], implementation: {claimed}")
    result, outcomes = run_on_disk(more=known("[A-BROKEN]", is_about=about), targets=targets)
    assert outcomes["A-BROKEN"] == outcome
    if outcome == "error":
        result.stdout.fnmatch_lines(
            ["*targets.yaml:5:3: targets.disk.implementation: *, and not *. Correct it*"]
        )


def test_without_a_version_an_entry_does_not_apply_and_the_summary_names_that(run_on_disk):
    targets = TARGETS.replace("{name: box, version: 1.5-b}", "box")
    result, outcomes = run_on_disk(more=known("[A-BROKEN, A-KEPT]"), targets=targets)
    assert (outcomes["A-BROKEN"], outcomes["A-KEPT"]) == ("failed", "passed")
    line = (
        "*disk: known issues of box do not apply, because its version is not known: write `implementation: *"
    )
    result.stdout.fnmatch_lines([line, f"NOT APPLIED {line} (2 cases)"])


LEVELS = """\
import pytest

pytestmark = pytest.mark.needs("filesystem")

@pytest.mark.case("A-BROKEN", section="X 1", level={level!r})
def test_case(variant): {body}
"""


@pytest.mark.parametrize("level", ["MUST", "SHOULD", "MAY"])
@pytest.mark.parametrize(
    ("body", "expires", "line"),
    [
        ("pass", NEXT_YEAR, "the case passes: remove the entry (known until *"),
        ("pass", "2020-02-29", "*the case passes: remove the entry (known issue, expired after *"),
        (
            "assert False, 'the time differs'",
            NEXT_YEAR,
            "the failure does not match the entry (the data [*]): *",
        ),
    ],
    ids=["passes", "passes after the last day", "fails in another way"],
)
def test_a_wrong_entry_is_red_at_every_level(run_on_disk, level: str, body: str, expires: str, line: str):
    suite = LEVELS.format(level=level, body=body)
    result, outcomes = run_on_disk(suite=suite, more=known("[A-BROKEN]", expires=expires))
    assert (outcomes["A-BROKEN"], result.ret) == ("failed", pytest.ExitCode.TESTS_FAILED)
    result.stdout.fnmatch_lines([line])


ENTRIES = {
    FAILS: "known",
    f'{SOFTWARE}, message: ["a size *", "*differs*"]': "known",
    f'{SOFTWARE}, message: ["a size *"]': "failed",
    f'{SOFTWARE}, message: ["a size *"], strict: false': "failed",
    f'{SOFTWARE}, message: ["a size *"], outcome: allow': "failed",
    f'{SOFTWARE}, message: ["the data *"], outcome: allow': "observed",
    'message: ["the data *"], outcome: allow': "observed",
    "outcome: skip": "skipped",
    f"{SOFTWARE}, outcome: skip": "skipped",
    f"{FAILS}, where: {{protocol: local}}": "known",
    f"{FAILS}, where: {{protocol: nfs}}": "failed",
    FAILS.replace("<2", ">=1.5,<1.6"): "known",
    FAILS.replace("<2", ">1.5"): "failed",
    FAILS.replace("box", "other"): "failed",
}
ALL_BROKEN = f"""\
import pytest

pytestmark = [pytest.mark.case(section="X 1", level="MUST"), pytest.mark.needs("filesystem")]
IDS = [f"B-{{number}}" for number in range({len(ENTRIES)})]

@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.case(name)) for name in IDS])
def test_broken(variant, name): pytest.fail("the data differs")
"""


def test_an_entry_may_have_message_outcome_and_variants(run_on_disk):
    text = "".join(entries(known(f"[B-{number}]", is_about=about)) for number, about in enumerate(ENTRIES))
    result, outcomes = run_on_disk(suite=ALL_BROKEN, more=f"known_issues:\n{text}")
    assert {about: outcomes[f"B-{number}"] for number, about in enumerate(ENTRIES)} == ENTRIES
    result.stdout.fnmatch_lines(["the failure does not match the entry (a size [*]): it is broken (ann; *"])


def test_with_workers_the_outcomes_are_the_same(run_pytest, pytester):
    result = run_pytest(
        "-n", "2", suite=SUITE, targets=TARGETS, more=known("[A-BROKEN, A-KEPT]", more="variants: [disk]")
    )
    outcomes = case_outcomes(pytester.path, "disk")
    assert (outcomes["A-BROKEN"], outcomes["A-KEPT"]) == ("known", "failed")
    result.stdout.fnmatch_lines([f"PASSES until {NEXT_YEAR}: *: 1 case", "known until *: 1 case"])


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


MISSPELT = """\
owner = "ann"
expires = 2027-01-31

[[known_issues]]
where = { protocol = "local" }
cases = ["A-BROKEN", "A-BROKN"]
outcome = "skip"
reason = "r"
reference = "s"
""".replace("2027-01-31", f"{NEXT_YEAR}")


@pytest.mark.parametrize("argument", [".", "suite", "suite/.."])
def test_an_unknown_case_of_a_suites_table_is_an_error_with_its_line(collect, pytester, argument: str):
    directory = pytester.mkdir("suite")
    directory.joinpath("known_issues.toml").write_text(MISSPELT)
    text = f"{directory}/known_issues.toml:6:22: known_issues: 'A-BROKN' matches no case of suite\n"
    assert_usage_error(collect("", argument, directory="suite"), text)


def test_a_case_that_no_target_can_run_is_known(collect, pytester):
    directory = pytester.mkdir("suite")
    directory.joinpath("known_issues.toml").write_text(MISSPELT.replace("A-BROKN", "W-CASE"))
    wire = '@pytest.mark.needs("iscsi-wire")\n@pytest.mark.case("W-CASE", section="s", level="MUST")\n'
    directory.joinpath("test_wire.py").write_text(f"import pytest\n\n{wire}def test_wire(variant): pass\n")
    result = collect("", "suite", directory="suite")
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*::test_wire*")


def test_a_suite_that_is_collected_in_part_is_not_checked(collect, pytester):
    pytester.mkdir("suite").joinpath("known_issues.toml").write_text(MISSPELT)
    assert collect("", "suite/test_cases.py", directory="suite").ret == 0
    assert collect("", "suite", "--ignore=suite/none", directory="suite").ret == 0
