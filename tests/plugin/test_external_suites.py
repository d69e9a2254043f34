"""Foreign suites as items, with a suite of our own: its program is Python, its target a local directory."""

from __future__ import annotations

import json

import pytest

SUITE = '''
import sys
from pathlib import Path
from typing import Any, ClassVar

from storagetest.errors import RemoteProtocolError, TargetDead
from storagetest.external.base import ControllerSuite, Invocation, ItemOutcome, ItemResult, TargetInfo
from storagetest.external.base import register

LOG = Path(__file__).with_name("looks")


@register
class Fake(ControllerSuite):
    """A suite whose tests say what they are called."""

    name: ClassVar[str] = "fake"
    needs: ClassVar[frozenset[str]] = frozenset({"filesystem"})
    program: ClassVar[str] = "python3"
    package: ClassVar[str] = "python3 (Debian)"

    def listing(self) -> Invocation:
        return Invocation((sys.executable, "-c", "print('passes skips fails crashes')"))

    def tests(self, stdout: str) -> tuple[str, ...]:
        return tuple(stdout.split())

    def invocation(self, test: str, options: Any, *, may_erase: bool) -> Invocation:
        return Invocation((sys.executable, "-c", f"print('{test}: sense 05/24/00, erase {may_erase}')"))

    def verdict(self, test: str, *, status: int, stdout: str, stderr: str) -> ItemResult:
        known = {"passes": ItemOutcome.PASSED, "skips": ItemOutcome.SKIPPED, "fails": ItemOutcome.FAILED}
        return ItemResult(known.get(test, ItemOutcome.BROKEN), f"{test} as it should", stdout)

    def look(self, options: Any) -> TargetInfo:
        with LOG.open("a") as file:
            file.write("looked\\n")
        if DEAD:
            raise TargetDead("disk: no answer to a TCP connect within 1 s; is it up?")
        return TargetInfo("FAKE 1", may_erase=True)
'''

WANTED = 'suite = "fake"\n'


@pytest.fixture
def line(pytester: pytest.Pytester, tmp_path):
    """Return a function that runs a pytest of its own on a file of wanted tests."""

    def run(
        *arguments: str, wanted: str = WANTED, dead: bool = False, suite: str = SUITE
    ) -> pytest.RunResult:
        targets = {"disk": {"protocol": "local", "path": str(tmp_path), "clients": ["here"]}}
        document = {"version": 1, "clients": {"here": {"transport": "local"}}, "targets": targets}
        pytester.path.joinpath("targets.yaml").write_text(json.dumps(document))
        pytester.makeconftest(suite + f"\n\nDEAD = {dead}\n")
        pytester.path.joinpath("fake.external.toml").write_text(wanted)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rA", *arguments)

    return run


def looks(pytester: pytest.Pytester) -> int:
    path = pytester.path / "looks"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_each_test_is_an_item_with_its_own_outcome(line, pytester: pytest.Pytester) -> None:
    result = line()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, skipped=1, failed=1, errors=1)
    result.stdout.fnmatch_lines_random(
        [
            "*fails: sense 05/24/00, erase True*",
            "SKIPPED*skips as it should",
            "*WorkloadError: crashes as it should*",
        ]
    )
    assert looks(pytester) == 2, "once before the first test, and once when one broke"


def test_collecting_looks_at_no_target(line, pytester: pytest.Pytester) -> None:
    result = line("--collect-only", "-q")
    result.stdout.fnmatch_lines(["*::passes[[]disk]", "*4 tests collected*"])
    assert looks(pytester) == 0


def test_a_dead_target_is_found_once_and_its_other_tests_are_skipped(line, pytester) -> None:
    result = line(dead=True)
    result.assert_outcomes(skipped=3, errors=1)
    result.stdout.fnmatch_lines_random(
        ["*TargetDead: disk: no answer*", "SKIPPED*disk is dead: disk: no answer*"]
    )
    assert looks(pytester) == 1


def test_a_sample_keeps_two_tests(line) -> None:
    line("--st-sample").assert_outcomes(passed=1, skipped=1, deselected=2)


def test_on_two_workers_a_target_stays_on_one(line, pytester: pytest.Pytester) -> None:
    line("-n", "2").assert_outcomes(passed=1, skipped=1, failed=1, errors=1)
    assert looks(pytester) == 2


KNOWN = """\
suite = "fake"
owner = "ann"
expires = 2999-12-31

[[known_issues]]
vendor = "FAKE 1"
tests = [{tests}]
reason = "it is so"
"""


def test_what_is_known_to_fail_is_expected_to(line) -> None:
    result = line("-k", "fails", wanted=KNOWN.format(tests='"fail*"'))
    result.assert_outcomes(xfailed=1, deselected=3)
    result.stdout.fnmatch_lines(["XFAIL*known until 2999-12-31: it is so (ann; *toml: entry 1)*"])


def test_another_failure_stays_a_failure_and_a_crash_an_error(line) -> None:
    wanted = KNOWN.format(tests='"*"') + 'message = ["{}"]\n'
    result = line("-k", "fails or crashes", wanted=wanted.format("passes as *"))
    result.assert_outcomes(failed=1, errors=1, deselected=2)
    result = line("-k", "fails or crashes", wanted=wanted.format("fails as *"))
    result.assert_outcomes(xfailed=1, errors=1, deselected=2)


def test_a_target_that_cannot_be_identified_is_an_error_whatever_is_known(line) -> None:
    suite = SUITE.replace("TargetDead", "RemoteProtocolError")
    wanted = KNOWN.format(tests='"*"').replace("vendor", "implementation")
    line("-k", "fails", suite=suite, dead=True, wanted=wanted).assert_outcomes(errors=1, deselected=3)


def test_what_does_harm_is_not_run(line) -> None:
    result = line("-k", "passes", wanted=KNOWN.format(tests='"pass*"') + 'outcome = "skip"\n')
    result.assert_outcomes(skipped=1, deselected=3)
    result.stdout.fnmatch_lines(["SKIPPED*disk: it is so (*fake.external.toml: entry 1)"])


def test_what_is_known_to_fail_and_passes_is_a_failure(line) -> None:
    wanted = KNOWN.format(tests='"passes"')
    result = line("-k", "passes", wanted=wanted)
    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines_random(
        ["*the case passes: remove the entry (known until 2999-12-31: it is so *"]
    )
    line("-k", "passes", wanted=wanted + "strict = false\n").assert_outcomes(xpassed=1, deselected=3)


def test_an_expired_entry_excuses_nothing(line) -> None:
    wanted = KNOWN.replace("2999-12-31", "2020-02-29").format(tests='"*s"')
    result = line("-k", "fails or passes", wanted=wanted)
    result.assert_outcomes(failed=2, deselected=2)
    result.stdout.fnmatch_lines(["EXPIRED 2020-02-29: it is so *: 2 cases"])


def test_an_implementation_that_is_not_named_is_not_excused(line) -> None:
    wanted = KNOWN.format(tests='"fails"').replace("FAKE 1", "FAKE 2")
    line("-k", "fails", wanted=wanted).assert_outcomes(failed=1, deselected=3)


OLD = """\
suite = "fake"

[[known]]
on = "FAKE 1"
tests = ["fails"]
reason = "it is so"

[[known]]
on = "FAKE 1"
tests = ["passes"]
reason = "it does harm"
run = false
"""


def test_the_table_of_an_earlier_release_is_read_with_a_warning(line) -> None:
    result = line("-k", "fails or passes", wanted=OLD)
    result.assert_outcomes(xfailed=1, skipped=1, deselected=2, warnings=3)
    result.stdout.fnmatch_lines_random(
        [
            "*the table [[][[]known]] is deprecated *. Use [[][[]known_issues]].",
            "*the key on is deprecated and will be removed in the next release. Use vendor.",
            '*the key run is deprecated and will be removed in the next release. Use outcome = "skip".',
        ]
    )


def test_a_program_that_is_not_there_is_one_skip(line) -> None:
    result = line(suite=SUITE.replace('"python3"', '"no-such-program"'))
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        ["SKIPPED*no-such-program is not installed on the controller: python3 (Debian)"]
    )


def test_where_no_target_has_what_is_needed_there_is_one_skip(line) -> None:
    result = line(suite=SUITE.replace('{"filesystem"}', '{"iscsi-wire"}'))
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*no target has iscsi-wire"])


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ('suite = "none"\n', "*suite: expected one of*fake*"),
        (
            WANTED + 'includes = ["x"]\n',
            "*unknown: includes. Expected suite, program, include, exclude and known_issues*",
        ),
        (WANTED + 'include = "x"\n', "*include: expected a list of globs, not 'x'*"),
        (WANTED + 'include = ["no-such"]\n', "*include and exclude select no test of*"),
        (KNOWN.format(tests=""), "*entry 1: known_issues.cases: expected a list of at least 1*"),
        (KNOWN.format(tests='"x"') + "run = 1\n", "*entry 1: run: expected true or false*"),
        (
            KNOWN.format(tests='"x"').replace("expires", "#"),
            "*an expected failure requires `owner` and `expires`*",
        ),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence(line, wanted: str, said: str) -> None:
    result = line(wanted=wanted)
    assert result.ret != 0
    assert any(word in result.stdout.str() + result.stderr.str() for word in [said.strip("*").split("*")[0]])
