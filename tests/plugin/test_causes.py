"""A case that builds on a failed case is not judged: one cause is one red line."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

SUITE = """\
import os

import pytest
from storagetest.errors import HostError

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(section="X 1", level="MUST", builds_on=("BASE",)),
]

BROKEN = set(os.environ.get("BROKEN", "disk").split())


@pytest.mark.case("BASE")
def test_base(variant):
    assert variant.id not in BROKEN, "it does not open"


@pytest.mark.case("NEXT")
def test_next(variant):
    assert variant.id not in BROKEN


@pytest.mark.case("THIRD", builds_on=("NEXT",))
def test_third(variant):
    assert variant.id not in BROKEN


@pytest.mark.case("ALONE", builds_on=())
def test_alone(variant):
    pass
"""


@pytest.fixture
def outcomes(run_pytest, pytester):
    """Return a function that runs a suite and returns the exit status and the outcomes by target and case."""

    def run(
        *arguments: str, suite: str = SUITE, **more: str
    ) -> tuple[pytest.RunResult, dict[str, dict[str, str]]]:
        (pytester.path / "cases.jsonl").unlink(missing_ok=True)
        result = run_pytest(*arguments, suite=suite, **more)
        found: dict[str, dict[str, str]] = {}
        for record in read_all(pytester.path):
            found.setdefault(record["target"], {})[record["id"]] = record["outcome"]
        return result, found

    return run


def read_all(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (path / "cases.jsonl").read_text().splitlines()]


SOUND = {"BASE": "passed", "NEXT": "passed", "THIRD": "passed", "ALONE": "passed"}


def test_the_cause_is_red_and_what_builds_on_it_is_not_judged(outcomes, pytester):
    result, found = outcomes()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert found["disk"] == {"BASE": "failed", "NEXT": "skipped", "THIRD": "skipped", "ALONE": "passed"}
    assert found["other"] == SOUND
    records = {record["id"]: record for record in read_all(pytester.path) if record["target"] == "disk"}
    assert [records[name]["because"] for name in ("BASE", "NEXT", "THIRD", "ALONE")] == [
        "",
        "BASE",
        "BASE",
        "",
    ]
    message = "not judged because of BASE, which failed on disk before: it does not open"
    assert message in records["THIRD"]["message"]
    result.stdout.fnmatch_lines([
        "BASE on disk failed: 2 that build on it were not judged",
        "failed: 1; not judged because of 1 of these: 2",
        "=* 1 failed, 5 passed, 2 not judged in *",
    ])  # fmt: skip


def test_a_base_that_was_not_run_is_no_cause(outcomes):
    _, found = outcomes("-k", "next")
    assert found["disk"] == {"NEXT": "failed"}


def test_every_case_is_judged_on_request(outcomes):
    result, found = outcomes("--st-judge-all")
    assert found["disk"] == {"BASE": "failed", "NEXT": "failed", "THIRD": "failed", "ALONE": "passed"}
    assert "not judged" not in result.stdout.str()


def test_the_workers_of_xdist_know_the_causes(outcomes):
    result, found = outcomes("-n", "2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert found["disk"] == {"BASE": "failed", "NEXT": "skipped", "THIRD": "skipped", "ALONE": "passed"}
    assert found["other"] == SOUND


@pytest.mark.parametrize(
    ("body", "outcome", "is_cause"),
    [
        ("assert False, 'no'", "failed", True),
        ("raise HostError('the client is lost')", "error", True),
        ("pytest.skip('not here')", "skipped", False),
        ("from storagetest.plugin.outcomes import Invalid; raise Invalid('too few')", "invalid", False),
    ],
)
def test_only_a_red_case_is_a_cause(outcomes, body: str, outcome: str, is_cause: bool):
    suite = SUITE.replace('assert variant.id not in BROKEN, "it does not open"', body)
    _, found = outcomes("--st-target", "disk", suite=suite)
    assert found["disk"]["BASE"] == outcome
    assert found["disk"]["NEXT"] == ("skipped" if is_cause else "failed")


def test_a_should_that_is_violated_is_a_cause_if_it_is_red(outcomes):
    suite = SUITE.replace('case("BASE")', 'case("BASE", level="SHOULD")')
    _, found = outcomes("--st-target", "disk", suite=suite)
    assert (found["disk"]["BASE"], found["disk"]["NEXT"]) == ("warned", "failed")
    _, found = outcomes("--st-target", "disk", "--st-strict", suite=suite)
    assert (found["disk"]["BASE"], found["disk"]["NEXT"]) == ("failed", "skipped")


NAMED = """\
version: 1
clients:
  here: {transport: local}
targets:
  disk: {protocol: local, path: DIRECTORY/disk, clients: [here], implementation: {name: box, version: v1}}
"""
NEXT_YEAR = str(datetime.now().astimezone().date() + timedelta(days=300))
KNOWN = """\
known_issues:
  - cases: [BASE]
    implementation: box
    versions: "<2"
    message: ["it does not open*"]
    reason: it does not open
    reference: X 1
    owner: me
    expires: {expires}
    strict: {strict}
"""


@pytest.mark.parametrize(
    ("broken", "expires", "strict", "base", "following"),
    [
        ("disk", NEXT_YEAR, "true", "known", "failed"),
        ("disk", NEXT_YEAR, "false", "known", "failed"),
        ("disk", "2020-01-01", "true", "failed", "skipped"),
        ("", NEXT_YEAR, "false", "passed", "passed"),
        ("", NEXT_YEAR, "true", "failed", "passed"),
        ("", "2020-01-01", "true", "failed", "passed"),
    ],
)
def test_a_known_issue_is_no_cause_and_neither_is_an_outdated_entry(
    outcomes, monkeypatch, broken: str, expires: str, strict: str, base: str, following: str
):
    monkeypatch.setenv("BROKEN", broken)
    _, found = outcomes(
        "--st-target", "disk", targets=NAMED, more=KNOWN.format(expires=expires, strict=strict)
    )
    assert (found["disk"]["BASE"], found["disk"]["NEXT"]) == (base, following)


TWICE = """
RUNS = []

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    from _pytest.runner import runtestprotocol
    if "test_base" in item.name:  # as a plugin does that runs failed tests again
        runtestprotocol(item, log=False, nextitem=item.parent)
        item._initrequest()
"""


def test_a_cause_that_passes_when_it_runs_again_is_none_any_more(outcomes, pytester):
    pytester.makeconftest(f"import pytest\n{TWICE}")
    suite = SUITE.replace(
        'assert variant.id not in BROKEN, "it does not open"',
        'BROKEN.discard("disk") if "first" in BROKEN else (BROKEN.add("first"), pytest.fail("once"))',
    )
    _, found = outcomes("--st-target", "disk", suite=suite)
    assert found["disk"] == SOUND


def test_a_mark_with_something_else_is_a_usage_error(run_pytest):
    result = run_pytest(suite=SUITE.replace('builds_on=("NEXT",)', 'builds_on="NEXT"'))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_third*: builds_on: expected a tuple of case ids, not 'NEXT'*"])
