"""Foreign suites on a mount: what they are started with, and what their words mean (real ones, cut)."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from storagetest.external.base import ClientSuite, ItemOutcome, suites
from storagetest.external.cthon04 import Cthon04
from storagetest.external.fsstress import Fsstress
from storagetest.external.fsx import Fsx
from storagetest.external.pjdfstest import Pjdfstest

ON_A_MOUNT = [kind for kind in suites.all().values() if issubclass(kind, ClientSuite)]


@pytest.mark.parametrize("kind", ON_A_MOUNT, ids=lambda kind: kind.name)
def test_each_keeps_the_same_contract(kind: type[ClientSuite]):
    suite = kind()
    assert kind.__doc__
    assert kind.tests
    assert kind.package
    assert suite.presence("/opt/program")[-1] == "/opt/program"
    for test in kind.tests:
        run = suite.invocation(test, program="/opt/program", place="/mnt/place", scratch="/tmp/scratch")
        assert "/opt/program" in run.argv
        assert any(word.startswith("/mnt/place") for word in run.argv)
        assert run.deadline > 0
        for name, text in suite.files(test).items():
            assert f"/tmp/scratch/{name}" in run.argv
            assert tomllib.loads(text)
        nothing = suite.verdict(test, status=0, stdout="", stderr="")
        assert nothing.ended in {ItemOutcome.PASSED, ItemOutcome.BROKEN}
        assert suite.verdict(test, status=-9, stdout="", stderr="").ended in {
            ItemOutcome.BROKEN,
            ItemOutcome.FAILED,
        }


MISCOMPARE = """\
\x1b[31m[ERROR fsx]\x1b[0m miscompare: offset= 0xd2df, size = 0x5fea
[ERROR fsx] OFFSET  GOOD  BAD  RANGE
[ERROR fsx]  0xd2df 0x79 0x00   0xbb7
[ERROR fsx] Using seed 1
"""
PANIC = """\
thread 'main' (29890) panicked at src/main.rs:1395:30:
called `Result::unwrap()` on an `Err` value: Os { code: %d, kind: InvalidInput, message: "Invalid argument" }
"""


@pytest.mark.parametrize(
    ("test", "status", "stderr", "ended", "reason"),
    [
        ("all", 0, "", ItemOutcome.PASSED, ""),
        ("all", 1, MISCOMPARE, ItemOutcome.FAILED, "miscompare: offset= 0xd2df, size = 0x5fea"),
        ("all", 101, PANIC % 22, ItemOutcome.FAILED, "a call that must succeed failed: Invalid argument"),
        ("all", 101, PANIC % 95, ItemOutcome.FAILED, "a call that must succeed failed: Invalid argument"),
        ("allocated", 101, PANIC % 95, ItemOutcome.SKIPPED, "posix_fallocate: Invalid argument"),
        (
            "all",
            1,
            "Error reading config file: No such file or directory (os error 2)",
            ItemOutcome.BROKEN,
            None,
        ),
        ("all", 2, "error: unexpected argument '-N' found", ItemOutcome.BROKEN, "all: exit status 2"),
    ],
)
def test_fsx(test: str, status: int, stderr: str, ended: ItemOutcome, reason: str | None):
    result = Fsx().verdict(test, status=status, stdout="", stderr=stderr)
    assert result.ended is ended
    assert reason is None or result.reason == reason


def test_each_mix_of_fsx_has_a_seed_of_its_own():
    runs = [Fsx().invocation(test, program="fsx", place="/p", scratch="/s").argv for test in Fsx.tests]
    assert len({argv[argv.index("-S") + 1] for argv in runs}) == len(runs)


CHMOD = """\
chmod::enoent_symlink                                                         ok
chmod::change_perm::char                                                  FAILED
\tassertion `left == right` failed
  left: 420
 right: 73
Backtrace:
   0: pjdfstest::main::{{closure}}
             at ./csu/../csu/libc-start.c:360:3

fchmod::other                                                             FAILED
chmod::erofs_named                                                       skipped
\tRemounts (allow_remount) are not allowed in the configuration file

Summary: 2 failed, 1 skipped, 1 passed, 0 expected failures, 4 total
"""


def test_pjdfstest_counts_the_tests_of_its_call():
    result = Pjdfstest().verdict("chmod", status=1, stdout=CHMOD, stderr="Error: Some tests have failed")
    assert result.ended is ItemOutcome.FAILED
    assert result.reason == "1 of 3 fail: chmod::change_perm::char"
    assert "assertion" in result.details
    assert "libc-start" not in result.details
    assert Pjdfstest().verdict("fchmod", status=1, stdout=CHMOD, stderr="").ended is ItemOutcome.FAILED
    good = CHMOD.replace("FAILED", "    ok")
    assert Pjdfstest().verdict("chmod", status=0, stdout=good, stderr="").ended is ItemOutcome.PASSED
    nothing = Pjdfstest().verdict("mkdir", status=0, stdout=good, stderr="")
    assert (nothing.ended, nothing.reason) == (ItemOutcome.SKIPPED, "the program skips all 0 tests of mkdir")
    assert (
        Pjdfstest().verdict("chmod", status=101, stdout="chmod::x ok\n", stderr="boom").ended
        is ItemOutcome.BROKEN
    )


def test_cthon04_has_come_to_its_end_or_it_has_not():
    def verdict(status: int, output: str) -> ItemOutcome:
        return Cthon04().verdict("basic", status=status, stdout=output, stderr="").ended

    assert (
        verdict(0, "...\nCongratulations, you passed the basic tests!\nAll tests completed\n")
        is ItemOutcome.PASSED
    )
    assert verdict(1, "test4: can't create x: I/O error\nbasic tests failed\n") is ItemOutcome.FAILED
    assert verdict(0, "") is ItemOutcome.BROKEN
    assert verdict(127, "sh: 1: ./runtests: not found\n") is ItemOutcome.BROKEN


def test_fsstress_passes_with_what_is_done_afterwards():
    def verdict(status: int, stderr: str) -> tuple[ItemOutcome, str]:
        result = Fsstress().verdict("one-process", status=status, stdout="seed = 1\n", stderr=stderr)
        return result.ended, result.reason

    assert verdict(0, "") == (ItemOutcome.PASSED, "")
    assert verdict(1, "rm: cannot remove 'd0': Directory not empty\n") == (
        ItemOutcome.FAILED,
        "rm: cannot remove 'd0': Directory not empty",
    )
    assert verdict(127, "")[0] is ItemOutcome.BROKEN
    assert verdict(1, "Usage: fsstress -d dir\n")[0] is ItemOutcome.BROKEN


def test_pjdfstest_runs_below_a_name_that_leaves_space_for_a_socket(tmp_path: Path):
    """sun_path holds 107 bytes (unix(7)); the tests' own part of a name is 55 bytes long."""
    place = tmp_path / ("x" * 120)
    place.mkdir()
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "$4" "$6"; cd "$4" && touch made\n')
    program.chmod(0o755)
    scratch = subprocess.check_output(["mktemp", "-d", "/tmp/storagetest-external-XXXXXX"], text=True).strip()
    try:
        run = Pjdfstest().invocation("chmod", program=str(program), place=str(place), scratch=scratch)
        path, pattern = subprocess.check_output(run.argv, text=True).split()
        assert Path(scratch).stat().st_mode & 0o005 == 0o005, "the tests' users cannot reach it"
    finally:
        shutil.rmtree(scratch)
    assert len(path) + 55 <= 107
    assert pattern == "chmod::"
    assert (place / "made").exists()
