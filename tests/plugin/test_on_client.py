"""Client cases on a local directory: batches, outcomes, known issues."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from output_files import case_outcomes, read_cases
from pytest_results import assert_usage_error

TARGETS = """\
version: 1
clients:
  here: {transport: local}
targets:
  disk: {protocol: local, path: DIRECTORY/disk, clients: [here], implementation: {name: example, version: v2}}
  other: {protocol: local, path: DIRECTORY/disk, clients: [here]}
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
    skip("not supported")

@pytest.mark.case("C-4", level="SHOULD")
def test_should(client_dir):
    assert_errno(errno.EEXIST, os.mkdir, client_dir / "d")

@pytest.mark.case("C-5", level="MAY")
def test_may(client_dir):
    os.rmdir(client_dir / "absent")

@pytest.mark.case("C-6")
def test_dies(client_dir):
    print("last output")
    os._exit(1)

@pytest.mark.parametrize("word", [
    pytest.param(word, id=word, marks=pytest.mark.case(f"P-{word}")) for word in ("one", "two")
])
def test_each(client_dir, word):
    record_observation(f"process {os.getppid()}")
    assert word in ("one", "two")
"""


@pytest.fixture
def run(run_pytest, pytester) -> Callable[..., pytest.RunResult]:
    def run_cases(*arguments: str, suite: str = SUITE, **tables: str) -> pytest.RunResult:
        for name, text in tables.items():
            (pytester.path / f"{name}.toml").write_text(text)
        return run_pytest("-rs", *arguments, suite=suite, targets=TARGETS)

    return run_cases


def test_each_item_reports_its_own_result(run, pytester):
    result = run("--st-target", "disk")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert case_outcomes(pytester.path, "disk") == {
        "C-1": "passed",
        "C-2": "failed",
        "C-3": "skipped",
        "C-4": "warned",
        "C-5": "observed",
        "C-6": "error",
        "P-one": "passed",
        "P-two": "passed",
    }
    assert len(agents(pytester, "C-1", "P-one", "P-two")) == 1, "all cases are one batch"
    records = read_cases(pytester.path, "disk")
    assert all(0 < record["seconds"] < 20 for name, record in records.items() if name != "C-3")
    assert list((pytester.path / "disk").iterdir()) == []
    result.stdout.fnmatch_lines(
        ["4 == 5", "test_suite.py:*:", "  def test_bad(client_dir):", ">     assert number == 5"]
    )
    assert "last output" in result.stdout.str()
    assert "on_client.py" not in result.stdout.str(), "no traceback of the plugin"


def test_one_case_can_be_selected(run, pytester):
    result = run("-k", "each and two and disk")
    result.assert_outcomes(passed=1, deselected=15)
    assert case_outcomes(pytester.path, "disk") == {"P-two": "passed"}


def test_each_worker_runs_the_batch_of_a_target(run, pytester):
    run("-n", "2")
    assert len(case_outcomes(pytester.path, "disk")) == len(case_outcomes(pytester.path, "other")) == 8
    for target in ("disk", "other"):
        assert len(agents(pytester, "C-1", "P-one", "P-two", target=target)) == 1


LAST_DAY = datetime.now().astimezone().date() + timedelta(days=300)
TABLE = f"""\
expires = {LAST_DAY}

[[known_issues]]
cases = ["C-2"]
where = {{ protocol = "local" }}
outcome = "allow"
message = ["4 == *"]
reason = "four is allowed"
reference = "the book, page 4"

[[known_issues]]
cases = ["P-*"]
where = {{ protocol = ["local", "nfs"], target = "disk" }}
outcome = "skip"
reason = "words are not kept"
reference = "the book, page 5"
"""


def test_a_table_may_skip_a_case_or_allow_a_message(run, pytester):
    result = run("-k", "bad or each", known_issues=TABLE)
    assert result.ret == pytest.ExitCode.OK
    assert case_outcomes(pytester.path, "disk") == {"C-2": "observed", "P-one": "skipped", "P-two": "skipped"}
    assert case_outcomes(pytester.path, "other") == {"C-2": "observed", "P-one": "passed", "P-two": "passed"}
    record = read_cases(pytester.path, "disk")["C-2"]
    table = f"{pytester.path}/known_issues.toml"
    message = f"four is allowed (the book, page 4; {table}:3:1)\nobserved: 4 == 5\n"
    assert record["level"] == "MAY"
    assert record["message"].startswith(message)
    result.stdout.fnmatch_lines([f"*disk: words are not kept (the book, page 5; {table}:11:1)"])


def test_a_failure_with_another_message_is_not_allowed(run, pytester):
    run("-k", "bad and disk", known_issues=TABLE.replace("4 == *", "3 == *"))
    assert case_outcomes(pytester.path, "disk") == {"C-2": "failed"}
    message = read_cases(pytester.path, "disk")["C-2"]["message"]
    assert message.startswith("`number` is 4; it has to be 5; required: bad (")


def test_an_expired_entry_has_no_effect_and_a_skipped_case_does_not_run(run, pytester):
    expired = TABLE.replace("reason", "expires = 2020-02-29\nreason")
    result = run("-k", "(bad or each or good) and disk", known_issues=expired.replace('"C-2"', '"C-[12]"'))
    assert case_outcomes(pytester.path, "disk") == dict.fromkeys(("C-1", "C-2", "P-one", "P-two"), "failed")
    assert "process" not in str(read_cases(pytester.path, "disk")["P-one"]["observed"])
    result.stdout.fnmatch_lines(
        [
            "not run; known issue, expired after 2020-02-29: words are not kept *",
            "EXPIRED 2020-02-29: four is allowed (*.toml:3:1): 2 cases",
            "EXPIRED 2020-02-29: words are not kept (*.toml:12:1): 2 cases",
        ]
    )


KNOWN = f"""\
owner = "ann"
expires = {LAST_DAY}

[[known_issues]]
implementation = "example"
versions = ">=2,<3"
cases = ["{{}}"]
message = ["4 == *"]
reason = "returns four"
reference = "the book, page 4: five"
"""


def test_a_known_issue_is_expected_of_its_implementation(run, pytester):
    result = run("-rx", "-k", "bad", known_issues=KNOWN.format("C-2"))
    assert case_outcomes(pytester.path, "disk") == {"C-2": "known"}
    assert case_outcomes(pytester.path, "other") == {"C-2": "failed"}
    reason = f"known until {LAST_DAY}: returns four (ann, the book, page 4: five; */known_issues.toml:4:1)"
    result.stdout.fnmatch_lines([f"*{reason}"])


def test_an_expired_known_issue_has_no_effect(run, pytester):
    expired = KNOWN.format("C-[12]") + "expires = 2020-02-29\n"
    result = run("-k", "(good or bad) and disk", known_issues=expired)
    assert case_outcomes(pytester.path, "disk") == {"C-1": "failed", "C-2": "failed"}
    result.stdout.fnmatch_lines(
        [
            "the case passes: remove the entry (known issue, expired after 2020-02-29: returns four *",
            "EXPIRED 2020-02-29: returns four (ann, *known_issues.toml:4:1): 2 cases",
        ]
    )


def test_an_unexpected_pass_is_a_failure(run, pytester):
    result = run("-k", "good and disk", known_issues=KNOWN.format("C-1"))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "the case passes: remove the entry" in result.stdout.str()


def test_with_strict_false_a_case_may_pass(run, pytester):
    table = KNOWN.format("C-[12]") + "strict = false\n"
    result = run("-k", "(good or bad) and disk", known_issues=table)
    assert result.ret == pytest.ExitCode.OK
    assert case_outcomes(pytester.path, "disk") == {"C-1": "passed", "C-2": "known"}


def test_an_invalid_table_is_a_usage_error(run, pytester):
    result = run(known_issues=KNOWN.replace("reference", "refrence"))
    assert_usage_error(result, "known_issues.toml:10:1: known_issues.refrence: no such key")
    assert not (pytester.path / "cases.jsonl").exists()


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("def test_odd(client_dir, tmp_path): pass", "this test takes tmp_path"),
        (
            "@pytest.mark.parametrize('x', [b'1'])\ndef test_odd(client_dir, x): pass",
            "cannot be sent to a client",
        ),
        ("class TestOdd:\n    def test_odd(self, client_dir): pass", "this test is in a class"),
    ],
)
def test_a_body_that_cannot_be_sent_is_a_usage_error(run, case: str, message: str):
    assert_usage_error(run("--st-target", "disk", suite=f"import pytest\n{case}\n"), message)


def test_another_fixture_named_client_dir_is_not_affected(run):
    suite = (
        "import pytest\n@pytest.fixture\ndef client_dir(): return 3\n"
        "def test_own(client_dir): assert client_dir == 3\n"
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


def agents(pytester, *names: str, target: str = "disk") -> set[str]:
    """Return the processes that ran the cases ``names``: one for each batch."""
    records = read_cases(pytester.path, target)
    return {records[name]["observed"][0] for name in names}


def test_consecutive_modules_are_one_batch(run, pytester):
    pytester.makepyfile(test_suite_2=SECOND)
    run("--st-target", "disk", "-k", "test_good or test_second").assert_outcomes(passed=2)
    assert len(agents(pytester, "C-1", "S-1")) == 1


def test_another_kind_of_case_ends_a_batch(run, pytester):
    pytester.makepyfile(test_suite_1="def test_here(attachment): pass\n", test_suite_2=SECOND)
    run("--st-target", "disk", "-k", "test_good or test_second or test_here").assert_outcomes(passed=3)
    assert len(agents(pytester, "C-1", "S-1")) == 2


def test_the_client_stays_locked_during_a_batch(run, pytester):
    """Each case prints the number of locks on clients that this process holds before and after it."""
    pytester.makeconftest(
        """
        import fcntl, os, pytest

        def held():
            names = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                     if os.path.exists(f"/proc/self/fd/{fd}")]
            return sum("/locks" in name and name.split("/")[-1].startswith("client") for name in names)

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


def test_a_module_that_cannot_be_imported_is_an_error(run, pytester):
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
    assert case_outcomes(pytester.path, "disk") == {"C-1": "passed", "B-1": "error"}
    assert "cannot be imported here" in result.stdout.str()


INODES = """\
import pytest

pytestmark = [pytest.mark.needs("filesystem"), pytest.mark.case(level="MUST", section="X 1")]

@pytest.mark.server_inodes
@pytest.mark.case("I-1")
def test_number(client_dir):
    assert (1, 2) == (1, 3)

@pytest.mark.server_inodes("serial number *")
@pytest.mark.case("I-2")
def test_number_among_others(client_dir):
    assert 1 == 2, "serial number of the file"

@pytest.mark.server_inodes("serial number *")
@pytest.mark.case("I-3")
def test_other_than_number(client_dir):
    assert 1 == 2, "mode of the file"

@pytest.mark.case("I-4")
def test_without_mark(client_dir):
    assert 1 == 2, "serial number of the file"
"""

OWN_NUMBERS = """\
from storagetest.protocols.local import Local

Local.has_server_inodes = lambda self, options: False
"""


def test_inode_numbers_of_the_client_are_not_judged(run, pytester):
    run("--st-target", "disk", suite=INODES)
    assert set(case_outcomes(pytester.path, "disk").values()) == {"failed"}
    (pytester.path / "cases.jsonl").unlink()
    pytester.makeconftest(OWN_NUMBERS)
    result = run("--st-target", "disk", suite=INODES)
    assert case_outcomes(pytester.path, "disk") == {
        "I-1": "skipped",
        "I-2": "skipped",
        "I-3": "failed",
        "I-4": "failed",
    }
    result.stdout.fnmatch_lines(["*the client's mount reports numbers of its own*"])
