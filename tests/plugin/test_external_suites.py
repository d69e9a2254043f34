"""External suites as pytest items. The suite in this test runs Python, on a local directory."""

import sys
from datetime import datetime, timedelta

import pytest
from pytest_results import assert_result

from storagetest.hosts import _output

SUITE = '''
import sys
from pathlib import Path
from typing import Any, ClassVar

from storagetest.errors import RemoteProtocolError, TargetDead
from storagetest.external.base import ControllerSuite, Invocation, ItemOutcome, ItemResult, TargetInfo
from storagetest.external.base import register

LOG = Path(__file__).with_name("probes")


@register
class Fake(ControllerSuite):
    """A suite whose tests print their names."""

    name: ClassVar[str] = "fake"
    needs: ClassVar[frozenset[str]] = frozenset({"filesystem"})
    program: ClassVar[str] = "python3"
    package: ClassVar[str] = "python3 (Debian)"

    def listing(self) -> Invocation:
        return Invocation((sys.executable, "-c", "print('passes skips fails crashes')"))

    def tests(self, stdout: str) -> tuple[str, ...]:
        return tuple(stdout.split())

    def invocation(self, test: str, options: Any, info: TargetInfo) -> Invocation:
        return Invocation((sys.executable, "-c", f"print('{test}: sense 05/24/00, erase {info.may_erase}')"))

    def verdict(self, test: str, *, status: int, stdout: str, stderr: str) -> ItemResult:
        known = {"passes": ItemOutcome.PASSED, "skips": ItemOutcome.SKIPPED, "fails": ItemOutcome.FAILED}
        return ItemResult(known.get(test, ItemOutcome.BROKEN), f"{test} as intended", stdout)

    def look(self, options: Any) -> TargetInfo:
        with LOG.open("a") as file:
            file.write("probe\\n")
        if DEAD:
            raise TargetDead("disk: no answer to a TCP connect within 1 s; is it up?")
        return TargetInfo("fake", "1.0", may_erase=True)
'''

FILE = 'suite = "fake"\n'


@pytest.fixture
def run_suite(run_pytest, pytester):
    """Return a function that runs pytest on ``file``, which names the suite."""

    def run(*arguments: str, file: str = FILE, dead: bool = False, suite: str = SUITE) -> pytest.RunResult:
        pytester.makeconftest(suite + f"\n\nDEAD = {dead}\n")
        pytester.path.joinpath("fake.external.toml").write_text(file)
        return run_pytest("-rA", "--st-target", "disk", *arguments, suite="")

    return run


def probe_count(pytester) -> int:
    path = pytester.path / "probes"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_each_test_is_an_item_with_its_outcome(run_suite, pytester):
    result = run_suite()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, skipped=1, failed=1, errors=1)
    result.stdout.fnmatch_lines_random(
        [
            "*fails: sense 05/24/00, erase True*",
            "SKIPPED*skips as intended",
            "*WorkloadError: crashes as intended*",
        ]
    )
    assert probe_count(pytester) == 2, "once before the first test, and once after an error"


def test_collection_probes_no_target(run_suite, pytester):
    result = run_suite("--collect-only", "-q")
    result.stdout.fnmatch_lines(["*::passes[[]disk]", "*4 tests collected*"])
    assert probe_count(pytester) == 0


def test_a_dead_target_is_one_error_and_its_other_tests_are_skipped(run_suite, pytester):
    result = run_suite(dead=True)
    result.assert_outcomes(skipped=3, errors=1)
    result.stdout.fnmatch_lines_random(
        ["*TargetDead: disk: no answer*", "SKIPPED*disk is dead: disk: no answer*"]
    )
    assert probe_count(pytester) == 1


def test_a_target_whose_data_are_at_risk_is_one_error_and_no_test_runs(run_suite, pytester):
    suite = SUITE.replace("may_erase=True)", 'at_risk="it holds a thesis")')
    result = run_suite(suite=suite)
    result.assert_outcomes(skipped=3, errors=1)
    result.stdout.fnmatch_lines_random(
        ["*DataAtRisk: disk: it holds a thesis", "SKIPPED*disk: it holds a thesis"]
    )
    result.stdout.no_fnmatch_line("*as intended*")
    assert probe_count(pytester) == 1


def test_a_program_may_run_in_its_own_directory(run_suite, pytester):
    program = pytester.path / "bin" / "program"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nimport os\nprint('passes', os.getcwd())\n")
    program.chmod(0o755)
    suite = SUITE.replace(
        "class Fake(ControllerSuite):", "class Fake(ControllerSuite):\n    beside_program = True\n"
    )
    result = run_suite("-k", "passes", suite=suite, file=f'suite = "fake"\nprogram = "{program}"\n')
    assert_result(result, f"passes {program.parent}", passed=1, deselected=1)


STREAMED = SUITE.replace(
    "    def look(",
    """    def reader(self):
        done = ItemResult(ItemOutcome.FAILED, "as intended")
        return lambda line: (line.split()[1], done) if line.startswith("ended ") else None

    def look(""",
).replace(
    """f"print('{test}: sense 05/24/00, erase {info.may_erase}')\"""",
    """"print('ended first', flush=True)\\nwhile True: print('x' * 999, end='')\"""",
)
"""The program ends one test and then prints without end, until the host kills it."""


def test_what_ended_before_the_program_failed_is_kept(run_suite, monkeypatch):
    monkeypatch.setattr(_output, "OUTPUT_LIMIT", 1 << 16)
    result = run_suite("-k", "passes", suite=STREAMED)
    result.assert_outcomes(errors=1, deselected=3)
    result.stdout.fnmatch_lines(["ended first", "*Captured results*", "first: failed: as intended"])


def test_a_sample_keeps_two_tests(run_suite):
    run_suite("--st-sample").assert_outcomes(passed=1, skipped=1, deselected=2)


def test_with_two_workers_one_runs_all_tests_of_a_target(run_suite, pytester):
    run_suite("-n", "2").assert_outcomes(passed=1, skipped=1, failed=1, errors=1)
    assert probe_count(pytester) == 2


LAST_DAY = datetime.now().astimezone().date() + timedelta(days=300)
KNOWN = """\
suite = "fake"
owner = "ann"
expires = @LAST@

[[known_issues]]
implementation = "fake"
versions = "==1"
tests = [{tests}]
reason = "known defect"
""".replace("@LAST@", str(LAST_DAY))
EXPECTED = KNOWN + 'message = ["fails as *"]\n'


def test_a_known_issue_is_expected(run_suite):
    result = run_suite("-k", "fails", file=EXPECTED.format(tests='"fail*"'))
    reason = f"XFAIL*known until {LAST_DAY}: known defect (ann; *fake.external.toml:5:1)*"
    assert_result(result, reason, xfailed=1, deselected=3)


def test_another_failure_is_a_failure_and_a_crash_an_error(run_suite):
    file = KNOWN.format(tests='"*"') + 'message = ["{}"]\n'
    for message, outcome in (("passes as *", "failed"), ("fails as *", "xfailed")):
        result = run_suite("-k", "fails or crashes", file=file.format(message))
        result.assert_outcomes(errors=1, deselected=2, **{outcome: 1})


def test_a_target_that_cannot_be_identified_is_an_error(run_suite):
    suite = SUITE.replace("TargetDead", "RemoteProtocolError")
    file = EXPECTED.format(tests='"*"')
    run_suite("-k", "fails", suite=suite, dead=True, file=file).assert_outcomes(errors=1, deselected=3)


def test_a_test_with_outcome_skip_is_not_run(run_suite):
    result = run_suite("-k", "passes", file=KNOWN.format(tests='"pass*"') + 'outcome = "skip"\n')
    reason = "SKIPPED*disk: known defect (*fake.external.toml:5:1)"
    assert_result(result, reason, skipped=1, deselected=3)


def test_an_unexpected_pass_is_a_failure(run_suite):
    file = EXPECTED.format(tests='"passes"')
    message = f"*the case passes: remove the entry (known until {LAST_DAY}: known defect *"
    assert_result(run_suite("-k", "passes", file=file), message, failed=1, deselected=3)
    run_suite("-k", "passes", file=file + "strict = false\n").assert_outcomes(xpassed=1, deselected=3)


def test_an_expired_entry_has_no_effect(run_suite):
    file = EXPECTED.replace(str(LAST_DAY), "2020-02-29").format(tests='"*s"')
    result = run_suite("-k", "fails or passes", file=file)
    assert_result(result, "EXPIRED 2020-02-29: known defect *: 2 cases", failed=2, deselected=2)


@pytest.mark.parametrize(("old", "new"), [('"fake"\nversions', '"other"\nversions'), ("==1", ">1")])
def test_an_entry_for_another_implementation_or_version_has_no_effect(run_suite, old: str, new: str):
    file = EXPECTED.format(tests='"fails"').replace(old, new)
    run_suite("-k", "fails", file=file).assert_outcomes(failed=1, deselected=3)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"python3"', '"absent"', "SKIPPED*absent is not installed on the controller: python3 (Debian)"),
        ('{"filesystem"}', '{"iscsi-wire"}', "SKIPPED*no target has iscsi-wire"),
    ],
    ids=["program", "capability"],
)
def test_a_missing_program_or_capability_is_one_skip(run_suite, old: str, new: str, reason: str):
    assert_result(run_suite(suite=SUITE.replace(old, new)), reason, skipped=1)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ('suite = "none"\n', "fake.external.toml:1:9: suite: unknown 'none'; known: *fake*"),
        ("", "fake.external.toml:1:1: suite: this is missing: The suite's name"),
        (FILE + "a = [", "fake.external.toml:2:6: not TOML: Invalid value"),
        (
            FILE + 'includes = ["x"]\n',
            "fake.external.toml:2:1: includes: no such key; did you mean 'include'?",
        ),
        (FILE + 'include = "x"\n', "fake.external.toml:2:11: include: expected a list, not text*"),
        (FILE + 'include = ["no-such"]\n', "*include and exclude select no test of fake*"),
        (
            KNOWN.format(tests=""),
            "fake.external.toml:8:9: known_issues.cases: expected a list of at least 1*",
        ),
        (
            EXPECTED.format(tests='"x"') + "run = false\n",
            "fake.external.toml:11:1: known_issues.run: no such*",
        ),
        (
            KNOWN.format(tests='"x"').replace("known_issues", "known"),
            "fake.external.toml:*:1: known: no such key; did you mean 'owner'?",
        ),
        (
            EXPECTED.format(tests='"x"').replace("expires", "#"),
            "*an expected failure requires `owner` and `expires`*",
        ),
        (
            KNOWN.format(tests='"x"').replace("tests", "faults"),
            "*`faults` is not possible here: no reply of an external suite is judged*",
        ),
    ],
)
def test_an_error_in_the_file_is_reported(run_suite, pytester, file: str, message: str):
    result = run_suite("-W", "default", file=file)
    assert result.ret != 0
    result.stdout.fnmatch_lines([f"{pytester.path}/{message}" if "fake.external" in message else message])
    assert "Error" not in result.stdout.str()  # the message, and no traceback


UNKNOWN = EXPECTED.format(tests='"fails", "fials"')


def test_a_known_issue_of_no_test_of_the_installed_program_is_a_warning(run_suite):
    result = run_suite("-W", "default", file=UNKNOWN)
    result.stdout.fnmatch_lines(
        ["*fake.external.toml:8:19: known_issues: 'fials' matches no test of fake as*"]
    )
    assert_result(result, passed=1, skipped=1, xfailed=1, errors=1)


CONSTANT = """
from typing import Any, ClassVar

from storagetest.external.base import ClientSuite, Invocation, ItemOutcome, ItemResult, register


@register
class Fake(ClientSuite):
    name: ClassVar[str] = "fake"
    program: ClassVar[str] = "true"
    package: ClassVar[str] = "coreutils"
    tests: ClassVar[tuple[str, ...]] = ("fails",)

    def invocation(self, test: str, *, program: str, place: str, scratch: str) -> Invocation:
        return Invocation((program,))

    def verdict(self, test: str, *, status: int, stdout: str, stderr: str) -> ItemResult:
        return ItemResult(ItemOutcome.PASSED)
"""


def test_a_known_issue_of_no_test_is_an_error_where_the_tests_are_constant(run_suite, pytester):
    result = run_suite(file=UNKNOWN, suite=CONSTANT)
    assert result.ret != 0
    result.stdout.fnmatch_lines(
        [f"{pytester.path}/fake.external.toml:8:19: known_issues: 'fials' matches no test of fake"]
    )
