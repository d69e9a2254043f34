"""System-call cases under a pytest of their own, over a local directory: batches, outcomes, known issues."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

TARGETS = """\
version: 1
clients:
  here: {{transport: local}}
targets:
  disk: {{protocol: local, path: {disk}, clients: [here], implementation: made-up}}
  other: {{protocol: local, path: {disk}, clients: [here]}}
"""

SUITE = """\
import errno
import os

import pytest

from storagetest.agent.testlib import skip, record_observation, assert_errno

pytestmark = [pytest.mark.needs("filesystem"), pytest.mark.case(level="MUST", section="X 1")]

@pytest.mark.case("C-1")
def test_good(client_dir):
    assert type(client_dir).__name__ == "PosixPath"
    assert os.listdir(client_dir) == []
    record_observation(f"process {os.getppid()}")

@pytest.mark.case("C-2")
def test_bad(client_dir):
    number = 4
    assert number == 5

@pytest.mark.case("C-3")
def test_lacks(client_dir):
    skip("not on this one")

@pytest.mark.case("C-4", level="SHOULD")
def test_should(client_dir):
    assert_errno(errno.EEXIST, os.mkdir, client_dir / "d")

@pytest.mark.case("C-5", level="MAY")
def test_may(client_dir):
    os.rmdir(client_dir / "absent")

@pytest.mark.case("C-6")
def test_dies(client_dir):
    print("last words")
    os._exit(1)

@pytest.mark.parametrize("word", [
    pytest.param(word, id=word, marks=pytest.mark.case(f"P-{word}")) for word in ("one", "two")
])
def test_each(client_dir, word):
    record_observation(f"process {os.getppid()}")
    assert word in ("one", "two")
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    def go(*arguments: str, suite: str = SUITE, targets: str = TARGETS, **tables: str) -> pytest.RunResult:
        (pytester.path / "disk").mkdir(exist_ok=True)
        (pytester.path / "targets.yaml").write_text(targets.format(disk=pytester.path / "disk"))
        for name, text in tables.items():
            (pytester.path / f"{name}.toml").write_text(text)
        pytester.makepyfile(test_suite=suite)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rs", *arguments)

    return go


def records(pytester: pytest.Pytester, target: str = "disk") -> dict[str, dict[str, Any]]:
    lines = (pytester.path / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    return {one["id"]: one for one in map(json.loads, lines) if one["target"] == target}


def outcomes(pytester: pytest.Pytester, target: str = "disk") -> dict[str, str]:
    return {name: one["outcome"] for name, one in records(pytester, target).items()}


def test_each_item_reports_its_own_answer(run, pytester: pytest.Pytester) -> None:
    result = run("--st-target", "disk")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert outcomes(pytester) == {
        "C-1": "passed",
        "C-2": "failed",
        "C-3": "skipped",
        "C-4": "warned",
        "C-5": "observed",
        "C-6": "error",
        "P-one": "passed",
        "P-two": "passed",
    }
    seen = records(pytester)
    agents = {seen[name]["observed"][0] for name in ("C-1", "P-one", "P-two")}
    assert len(agents) == 1, "all of them are one round trip"
    assert all(0 < one["seconds"] < 20 for name, one in seen.items() if name != "C-3")
    assert list((pytester.path / "disk").iterdir()) == []
    result.stdout.fnmatch_lines(
        ["4 == 5", "test_suite.py:*:", "  def test_bad(client_dir):", ">     assert number == 5"]
    )
    assert "last words" in result.stdout.str()
    assert "on_client.py" not in result.stdout.str(), "no traceback of the plugin's"


def test_one_case_can_be_chosen(run, pytester: pytest.Pytester) -> None:
    result = run("-k", "each and two and disk")
    result.assert_outcomes(passed=1, deselected=15)
    assert outcomes(pytester) == {"P-two": "passed"}


def test_workers_share_the_targets(run, pytester: pytest.Pytester) -> None:
    run("-n", "2")
    assert len(outcomes(pytester)) == len(outcomes(pytester, "other")) == 8
    for target in ("disk", "other"):
        seen = records(pytester, target)
        assert seen["C-1"]["observed"] == seen["P-one"]["observed"] == seen["P-two"]["observed"]


PROMISES = """\
[[known_issues]]
cases = ["C-2"]
where = { protocol = "local" }
outcome = "allow"
message = ["4 == *"]
reason = "four is as good"
reference = "the book, page 4"

[[known_issues]]
cases = ["P-*"]
where = { protocol = ["local", "nfs"], target = "disk" }
outcome = "skip"
reason = "words are not kept"
reference = "the book, page 5"
"""


def test_a_case_that_a_protocol_does_not_promise_is_skipped_or_recorded(
    run, pytester: pytest.Pytester
) -> None:
    result = run("-k", "bad or each", known_issues=PROMISES)
    assert result.ret == pytest.ExitCode.OK
    assert outcomes(pytester) == {"C-2": "observed", "P-one": "skipped", "P-two": "skipped"}
    assert outcomes(pytester, "other") == {"C-2": "observed", "P-one": "passed", "P-two": "passed"}
    seen = records(pytester)["C-2"]
    place = f"{pytester.path.name}/known_issues.toml: entry"
    assert (seen["level"], seen["message"].splitlines()[:2]) == (
        "MAY",
        [f"four is as good (the book, page 4; {place} 1)", "observed: 4 == 5"],
    )
    result.stdout.fnmatch_lines([f"*disk: words are not kept (the book, page 5; {place} 2)"])


def test_a_failure_with_another_message_is_not_allowed(run, pytester: pytest.Pytester) -> None:
    run("-k", "bad and disk", known_issues=PROMISES.replace("4 == *", "3 == *"))
    assert outcomes(pytester) == {"C-2": "failed"}


def test_an_expired_entry_allows_nothing_and_runs_nothing(run, pytester: pytest.Pytester) -> None:
    expired = PROMISES.replace("reason", "expires = 2020-02-29\nreason")
    result = run("-k", "(bad or each or good) and disk", known_issues=expired.replace('"C-2"', '"C-[12]"'))
    assert outcomes(pytester) == {"C-1": "failed", "C-2": "failed", "P-one": "failed", "P-two": "failed"}
    assert "process" not in str(records(pytester)["P-one"]["observed"])
    result.stdout.fnmatch_lines(
        [
            "not run; known issue, expired after 2020-02-29: words are not kept *",
            "EXPIRED 2020-02-29: four is as good (*: entry 1): 2 cases",
            "EXPIRED 2020-02-29: words are not kept (*: entry 2): 2 cases",
        ]
    )


KNOWN = """\
owner = "ann"
expires = 2999-12-31

[[known_issues]]
implementation = "made-up"
cases = ["{}"]
reason = "it says four"
reference = "the book, page 4: five"
"""


def test_a_known_issue_is_expected_of_that_implementation(run, pytester: pytest.Pytester) -> None:
    result = run("-rx", "-k", "bad", known_issues=KNOWN.format("C-2"))
    assert outcomes(pytester) == {"C-2": "known"}
    assert outcomes(pytester, "other") == {"C-2": "failed"}
    words = "known until 2999-12-31: it says four (ann, the book, page 4: five; */known_issues.toml: entry 1)"
    result.stdout.fnmatch_lines([f"*{words}"])


def test_a_known_issue_whose_day_is_over_excuses_nothing(run, pytester: pytest.Pytester) -> None:
    expired = KNOWN.format("C-[12]") + "expires = 2020-02-29\n"
    result = run("-k", "(good or bad) and disk", known_issues=expired)
    assert outcomes(pytester) == {"C-1": "failed", "C-2": "failed"}
    result.stdout.fnmatch_lines(
        [
            "the case passes: remove the entry (known issue, expired after 2020-02-29: it says four *",
            "EXPIRED 2020-02-29: it says four (ann, *known_issues.toml: entry 1): 2 cases",
        ]
    )


def test_a_known_issue_that_is_gone_is_a_failure(run, pytester: pytest.Pytester) -> None:
    result = run("-k", "good and disk", known_issues=KNOWN.format("C-1"))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "the case passes: remove the entry" in result.stdout.str()


def test_but_not_of_one_that_a_race_decides(run, pytester: pytest.Pytester) -> None:
    races = KNOWN.format("C-[12]") + "strict = false\n"
    result = run("-k", "(good or bad) and disk", known_issues=races)
    assert result.ret == pytest.ExitCode.OK
    assert outcomes(pytester) == {"C-1": "passed", "C-2": "known"}


def test_a_table_that_is_wrong_ends_the_run_before_it_starts(run, pytester: pytest.Pytester) -> None:
    result = run(known_issues=KNOWN.replace("reference", "refrence"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "known_issues.toml: entry 1: known_issues.refrence: no such key" in result.stderr.str()
    assert not (pytester.path / "cases.jsonl").exists()


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("def test_odd(client_dir, tmp_path): pass", "this test takes tmp_path"),
        (
            "@pytest.mark.parametrize('x', [b'1'])\ndef test_odd(client_dir, x): pass",
            "cannot be sent to a client",
        ),
        ("class TestOdd:\n    def test_odd(self, client_dir): pass", "this test is in a class"),
    ],
)
def test_a_body_that_cannot_be_sent_ends_the_run_before_it_starts(run, head: str, words: str) -> None:
    result = run("--st-target", "disk", suite=f"import pytest\n{head}\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert words in result.stderr.str() + result.stdout.str()


def test_a_fixture_of_the_users_own_called_here_is_left_alone(run) -> None:
    suite = (
        "import pytest\n@pytest.fixture\ndef client_dir(): return 3\n"
        "def test_mine(client_dir): assert client_dir == 3\n"
    )
    run(suite=suite).assert_outcomes(passed=1)


SECOND = """\
import os
import pytest
from storagetest.agent.testlib import record_observation
pytestmark = [pytest.mark.needs("filesystem"), pytest.mark.case(section="X", level="MUST")]

@pytest.mark.case("S-1")
def test_second(client_dir):
    record_observation(f"process {os.getppid()}")
"""


def agents(pytester: pytest.Pytester, *names: str) -> set[str]:
    seen = records(pytester)
    return {seen[name]["observed"][0] for name in names}


def test_modules_that_follow_each_other_are_one_round_trip(run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_suite_2=SECOND)
    run("--st-target", "disk", "-k", "test_good or test_second").assert_outcomes(passed=2)
    assert len(agents(pytester, "C-1", "S-1")) == 1


def test_what_is_no_such_case_ends_a_round_trip(run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_suite_1="def test_here(attachment): pass\n", test_suite_2=SECOND)
    run("--st-target", "disk", "-k", "test_good or test_second or test_here").assert_outcomes(passed=3)
    assert len(agents(pytester, "C-1", "S-1")) == 2


def test_a_machine_is_not_let_go_of_within_a_round_trip(run, pytester: pytest.Pytester) -> None:
    """Each case says which locks the process that runs pytest holds while the case's own hooks run."""
    pytester.makeconftest(
        """
        import fcntl, os, pytest

        def held():
            names = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                     if os.path.exists(f"/proc/self/fd/{fd}")]
            return sum("/storagetest-" in name and name.split("/")[-1].startswith("client") for name in names)

        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_protocol(item, nextitem):
            before = held()
            yield
            print(f"{item.name}: {before} before, {held()} after")
            return True
        """
    )
    result = run("--st-target", "disk", "-k", "each", "-s")
    result.stdout.fnmatch_lines(
        ["*test_each[[]disk-one]: 0 before, 1 after*", "*test_each[[]disk-two]: 1 before, 0 after*"]
    )


def test_a_module_may_be_broken(run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_broken="""
        import sys
        import pytest
        pytestmark = [pytest.mark.case(section="X", level="MUST")]
        if "storagetest.plugin.hooks" not in sys.modules:
            import no_such_module
        @pytest.mark.case("B-1")
        def test_b(client_dir): pass
        """
    )
    result = run("--st-target", "disk", "-k", "test_good or test_broken")
    assert outcomes(pytester) == {"C-1": "passed", "B-1": "error"}
    assert "cannot be imported here" in result.stdout.str()
