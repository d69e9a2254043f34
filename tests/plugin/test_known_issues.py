"""Known issues of a targets file: expected for a while, strictly; refused where they name nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

SUITE = """\
import pytest
from storagetest.errors import HostError

pytestmark = [pytest.mark.case(section="X 1", level="MUST"), pytest.mark.needs("filesystem")]

@pytest.mark.case("A-BROKEN")
def test_broken(variant): assert variant.id == "other", "the promise is broken"

@pytest.mark.case("A-KEPT")
def test_kept(variant): pass

@pytest.mark.case("A-ERROR")
def test_error(variant): raise HostError("our own trouble")

@pytest.mark.case("A-SKIPPED")
def test_skipped(variant): pytest.skip("not here")
"""

Line = Callable[..., pytest.RunResult]


def known(cases: str, *, expires: str = "2999-12-31", more: str = "") -> str:
    said = f"cases: {cases}, reason: it is broken, owner: ann, expires: {expires}"
    return f"known_issues:\n  - {{{said}{', ' + more if more else ''}}}\n"


def outcomes(pytester: pytest.Pytester) -> dict[tuple[str, str], str]:
    lines = (pytester.path / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    return {(one["id"], one["target"]): one["outcome"] for one in map(json.loads, lines)}


def test_a_known_issue_is_known_where_its_variants_are(line: Line, pytester: pytest.Pytester):
    result = line(suite=SUITE, more=known("[A-BROKEN]", more="variants: [disk]"))
    seen = outcomes(pytester)
    assert seen["A-BROKEN", "disk"] == "known"
    assert seen["A-BROKEN", "other"] == "passed"
    result.assert_outcomes(passed=3, xfailed=1, skipped=2, errors=2)
    result.stdout.fnmatch_lines(["known until 2999-12-31: it is broken (ann; *targets.yaml:16:5): 1 case"])


def test_what_passes_all_at_once_fails_until_the_entry_goes(line: Line, pytester: pytest.Pytester):
    result = line("--st-target", "disk", suite=SUITE, more=known('["A-K*"]'))
    assert outcomes(pytester)["A-KEPT", "disk"] == "failed"
    result.stdout.fnmatch_lines(
        [
            "the case passes: remove the entry (known until 2999-12-31: it is broken (ann; *:16:5))",
            "PASSES until 2999-12-31: *: 1 case",
        ]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_one_that_does_not_always_fail_may_pass(line: Line, pytester: pytest.Pytester):
    line("--st-target", "disk", suite=SUITE, more=known('["A-K*"]', more="strict: false"))
    assert outcomes(pytester)["A-KEPT", "disk"] == "passed"


def test_our_own_trouble_is_no_known_issue(line: Line, pytester: pytest.Pytester):
    line("--st-target", "disk", suite=SUITE, more=known("[A-ERROR]"))
    assert outcomes(pytester)["A-ERROR", "disk"] == "error"


def test_an_expired_entry_fails_whatever_comes_of_its_cases(line: Line, pytester: pytest.Pytester):
    result = line("--st-target", "disk", suite=SUITE, more=known('["A-*"]', expires="2020-02-29"))
    assert outcomes(pytester) == {
        ("A-BROKEN", "disk"): "failed",
        ("A-KEPT", "disk"): "failed",
        ("A-ERROR", "disk"): "error",
        ("A-SKIPPED", "disk"): "skipped",
    }
    result.stdout.fnmatch_lines(
        [
            "*the promise is broken*",
            "known issue, expired after 2020-02-29: it is broken (ann; *targets.yaml:16:5)",
            "correct the target, or agree on a new date",
            "the case passes: remove the entry (known issue, expired after 2020-02-29: *",
            "EXPIRED 2020-02-29: it is broken (ann; *targets.yaml:16:5): 4 cases",
        ]
    )


def test_of_two_entries_the_one_that_lasts_longer_counts(line: Line, pytester: pytest.Pytester):
    first, second = known("[A-BROKEN]", expires="2020-02-29"), known("[A-BROKEN]")
    line("--st-target", "disk", suite=SUITE, more=first + second.removeprefix("known_issues:\n"))
    assert outcomes(pytester)["A-BROKEN", "disk"] == "known"


TABLE = """\
owner = "ann"

[[known_issues]]
vendor = "ACME"
cases = ["A-[BK]*"]
reason = "it is broken"
reference = "X 1: it is not"
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
def test_a_suite_that_asks_the_target_what_it_is_has_a_table_too(
    line: Line, pytester: pytest.Pytester, until: str, more: str, broken: str, kept: str
):
    """And of a table's entry and the targets file's the one that lasts longer counts."""
    Path(pytester.path, "known_issues.toml").write_text(TABLE.format(until), encoding="utf-8")
    pytester.makeconftest(REPORTED)
    line("--st-target", "disk", suite=SUITE, more=more)
    seen = outcomes(pytester)
    assert (seen["A-BROKEN", "disk"], seen["A-KEPT", "disk"]) == (broken, kept)


ENTRIES = {
    'message: ["the promise is *"]': "known",
    'message: ["a promise is *", "*broken*"]': "known",
    'message: ["a promise is *"]': "failed",
    'message: ["a promise is *"], strict: false': "failed",
    'message: ["a promise is *"], outcome: allow': "failed",
    'message: ["the promise is *"], outcome: allow': "observed",
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
def test_broken(variant, name): pytest.fail("the promise is broken")
"""


def test_an_entry_names_message_outcome_and_variants(line: Line, pytester: pytest.Pytester):
    entries = [known(f"[B-{number}]", more=more) for number, more in enumerate(ENTRIES)]
    text = "".join(entry.removeprefix("known_issues:\n") for entry in entries)
    result = line("--st-target", "disk", suite=ALL_BROKEN, more=f"known_issues:\n{text}")
    seen = outcomes(pytester)
    assert {more: seen[f"B-{number}", "disk"] for number, more in enumerate(ENTRIES)} == ENTRIES
    result.stdout.fnmatch_lines(
        ["the failure does not match the entry (a promise is [*]): it is broken (ann; *"]
    )


def test_workers_say_the_same(line: Line, pytester: pytest.Pytester):
    result = line("-n", "2", suite=SUITE, more=known("[A-BROKEN, A-KEPT]", more="variants: [disk]"))
    seen = outcomes(pytester)
    assert (seen["A-BROKEN", "disk"], seen["A-KEPT", "disk"]) == ("known", "failed")
    result.stdout.fnmatch_lines(["PASSES until 2999-12-31: *: 1 case", "known until *: 1 case"])


def collected(
    pytester: pytest.Pytester, line: Line, more: str, *arguments: str, where: str = "."
) -> pytest.RunResult:
    """Collect the suite from ``where``, a directory that it is put into."""
    place = pytester.path / where
    place.mkdir(parents=True, exist_ok=True)
    (place / "test_cases.py").write_text(SUITE, encoding="utf-8")
    return line("--collect-only", *arguments, suite="", more=more)


def test_a_case_that_there_is_not_is_refused_with_its_place(line: Line, pytester: pytest.Pytester):
    result = collected(pytester, line, known('[A-BROKEN, A-BROKN, "A-Q*"]'))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "*targets.yaml:16:24: known_issues: 'A-BROKN' matches no case",
            "*targets.yaml:16:33: known_issues: 'A-Q[*]' matches no case",
        ]
    )


@pytest.mark.parametrize(
    "arguments", [("test_cases.py",), (".", "--ignore=nothing"), ("test_cases.py::test_kept",)]
)
def test_what_was_not_collected_cannot_be_missed(
    line: Line, pytester: pytest.Pytester, arguments: tuple[str, ...]
):
    assert collected(pytester, line, known("[A-BROKN]"), *arguments).ret == pytest.ExitCode.OK


def test_deselecting_is_not_collecting_less(line: Line, pytester: pytest.Pytester):
    result = collected(pytester, line, known("[A-BROKEN]"), "-k", "kept")
    assert result.ret == pytest.ExitCode.OK
    assert collected(pytester, line, known("[A-BROKN]"), "-k", "kept").ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    ("asked", "status"), [("suites", 4), ("suites/conformance", 4), ("suites/conformance/a", 0)]
)
def test_another_familys_case_is_missed_where_all_suites_are(
    line: Line, pytester: pytest.Pytester, asked: str, status: int
):
    where = "suites/conformance/a"
    assert collected(pytester, line, known("[Z-BROKEN]"), asked, where=where).ret == status


def test_without_a_targets_file_there_are_none(pytester: pytest.Pytester):
    pytester.makepyfile(test_one="def test_one(): pass")
    assert pytester.runpytest_subprocess("-p", "no:cacheprovider").ret == pytest.ExitCode.OK


def test_a_file_of_known_issues_is_named(line: Line, pytester: pytest.Pytester):
    Path(pytester.path, "nas.yaml").write_text(
        known("[A-BROKEN]").removeprefix("known_issues:\n").replace("  - ", "- "), encoding="utf-8"
    )
    line("--st-target", "disk", suite=SUITE, more="known_issues: nas.yaml\n")
    assert outcomes(pytester)["A-BROKEN", "disk"] == "known"
