"""Foreign suites as items, with a suite of our own: its program is Python, its target a local directory."""

from __future__ import annotations

import json

import pytest

SUITE = '''
import sys
from pathlib import Path
from typing import Any, ClassVar

from storagetest.errors import TargetDead
from storagetest.external.base import Ended, HereSuite, Invocation, Look, Verdict, register

LOG = Path(__file__).with_name("looks")


@register
class Fake(HereSuite):
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

    def verdict(self, test: str, *, status: int, stdout: str, stderr: str) -> Verdict:
        known = {"passes": Ended.PASSED, "skips": Ended.SKIPPED, "fails": Ended.FAILED}
        return Verdict(known.get(test, Ended.BROKEN), f"{test} as it should", stdout)

    def look(self, options: Any) -> Look:
        with LOG.open("a") as file:
            file.write("looked\\n")
        if DEAD:
            raise TargetDead("disk: no answer to a TCP connect within 1 s; is it up?")
        return Look("FAKE 1", may_erase=True)
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


KNOWN = WANTED + '[[known]]\non = "FAKE 1"\ntests = [{tests}]\nreason = "it is so"\n'


def test_what_is_known_to_fail_is_expected_to(line) -> None:
    result = line("-k", "fails", wanted=KNOWN.format(tests='"fail*"'))
    result.assert_outcomes(xfailed=1, deselected=3)
    result.stdout.fnmatch_lines(["XFAIL*FAKE 1: it is so*"])


def test_what_does_harm_is_not_run(line) -> None:
    result = line("-k", "passes", wanted=KNOWN.format(tests='"pass*"') + "run = false\n")
    result.assert_outcomes(skipped=1, deselected=3)
    result.stdout.fnmatch_lines(["SKIPPED*not run on FAKE 1: it is so"])


def test_what_is_known_to_fail_and_passes_is_a_failure(line) -> None:
    result = line("-k", "passes", wanted=KNOWN.format(tests='"passes"'))
    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines_random(["*it passes: take it out of fake.external.toml (it is so)*"])


def test_an_implementation_that_is_not_named_is_not_excused(line) -> None:
    wanted = KNOWN.format(tests='"fails"').replace("FAKE 1", "FAKE 2")
    line("-k", "fails", wanted=wanted).assert_outcomes(failed=1, deselected=3)


def test_a_program_that_is_not_there_is_one_skip(line) -> None:
    result = line(suite=SUITE.replace('"python3"', '"no-such-program"'))
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*no-such-program is not installed here: python3 (Debian)"])


def test_where_no_target_has_what_is_needed_there_is_one_skip(line) -> None:
    result = line(suite=SUITE.replace('{"filesystem"}', '{"iscsi-wire"}'))
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*no target has iscsi-wire"])


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ('suite = "none"\n', "*suite = NAME is wanted, one of*fake*"),
        (WANTED + 'includes = ["x"]\n', "*includes: a table has suite, program, include, exclude*"),
        (WANTED + 'include = "x"\n', "*include is a list of globs, not 'x'*"),
        (WANTED + 'include = ["no-such"]\n', "*lists no test that is wanted*"),
        (WANTED + '[[known]]\non = "x"\n', "*reason, tests: a table has on, tests, reason, strict*"),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence(line, wanted: str, said: str) -> None:
    result = line(wanted=wanted)
    assert result.ret != 0
    assert any(word in result.stdout.str() + result.stderr.str() for word in [said.strip("*").split("*")[0]])
