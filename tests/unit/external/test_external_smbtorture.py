"""smbtorture: its list, command line and output, and the look at the share; with smbd and the program."""

import shutil
import subprocess

import pytest
import smbd

from storagetest.config.base import SecretText
from storagetest.errors import AttachError
from storagetest.external.base import ItemOutcome, TargetInfo
from storagetest.external.smbtorture import Smbtorture
from storagetest.protocols.smb import Smb

SUITE = Smbtorture()
OPTIONS = {
    "address": "nas.example.net",
    "share": "empty",
    "username": "alice",
    "password": SecretText("wonderland"),
}
START = "smbtorture 4.17.12-Debian\nUsing seed 1\ntime: 2026-01-01 00:00:00.000001\ntest: lock\n"
FAILURE = """failure: lock [
../../source4/torture/smb2/lock.c:2316: status was NT_STATUS_OK, expected NT_STATUS_LOCK_NOT_GRANTED: twice
second line
]
"""


def test_the_list_has_each_test_of_smb2_once():
    listed = (
        "base.lock.lock smb2.lock.rw.rw smb2.lock.rw.rw smb2.compound_find.compound_find.related "
        "smb2.scan.a.a smb2.scan.a "
    )
    assert SUITE.tests(listed.replace(" ", "\n")) == (
        "smb2.lock.rw",
        "smb2.compound_find.compound_find.related",
        "smb2.scan.a.a",
        "smb2.scan.a",
    )


def test_the_command_line_has_no_secret():
    run = SUITE.invocation("smb2.lock.rw", Smb.Options(**OPTIONS, domain="CORP"), TargetInfo())
    assert run.argv == (
        "smbtorture", "//nas.example.net/empty", "--smb-ports=445", "--format=subunit", "--seed=1",
        "--user=alice", "--workgroup=CORP", "smb2.lock.rw",
    )  # fmt: skip
    assert run.env == {"PASSWD": "wonderland"}


def test_a_test_with_thousands_of_files_has_a_longer_deadline():
    made = {
        test: SUITE.invocation(test, Smb.Options(**OPTIONS), TargetInfo()).deadline
        for test in ("smb2.lock.rw", "smb2.maxfid")
    }
    assert made == {"smb2.lock.rw": 120.0, "smb2.maxfid": 900.0}


@pytest.mark.parametrize(
    ("status", "output", "outcome", "reason"),
    [
        (0, START + "success: lock\n", ItemOutcome.PASSED, ""),
        (1, START + FAILURE, ItemOutcome.FAILED,
         "lock.c:2316: status was NT_STATUS_OK, expected NT_STATUS_LOCK_NOT_GRANTED: twice"),
        (1, START + "error: lock [\nlock.c:1: no open\n]\n", ItemOutcome.FAILED, "lock.c:1: no open"),
        (0, START + "skip: lock [\nno leases\n]\n", ItemOutcome.SKIPPED, "no leases"),
        (1, START + "failure: lock\n", ItemOutcome.FAILED, "failure without a reason"),
        (1, START + "success: lock\n", ItemOutcome.BROKEN, "smb2.lock.rw: success, but exit status 1"),
        (-11, START, ItemOutcome.BROKEN, "smb2.lock.rw: exit status -11 and no result"),
        (1, "Failed to connect\n", ItemOutcome.BROKEN, "smb2.lock.rw: exit status 1 and no result"),
        (-11, START + FAILURE + "test: rest\n", ItemOutcome.BROKEN,
         "smb2.lock.rw: exit status -11 and no result of rest"),
        (0, "", ItemOutcome.BROKEN, "smb2.lock.rw: exit status 0 and no result"),
    ],
)  # fmt: skip
def test_the_verdict(status, output, outcome, reason):
    result = SUITE.verdict("smb2.lock.rw", status=status, stdout=output, stderr="a note\n")
    assert (result.ended, result.reason) == (outcome, reason)


def test_a_result_is_known_at_its_last_line():
    read = SUITE.reader()
    output = START + FAILURE + "test: rest\nsuccess: rest\ntest: last\n"
    ended = [(line, one[0], one[1].ended) for line in output.splitlines() if (one := read(line)) is not None]
    assert ended == [
        ("]", "lock", ItemOutcome.FAILED),
        ("success: rest", "rest", ItemOutcome.PASSED),
    ]


def test_the_details_of_a_failure_are_kept():
    result = SUITE.verdict("smb2.lock.rw", status=1, stdout=START + FAILURE, stderr="a note\n")
    assert result.details == "second line\na note"


@pytest.mark.skipif(not smbd.is_installed(), reason="smbd is not installed")
class TestOnSamba:
    def options(self, server):
        target = server.target()
        target.pop("protocol")
        return Smb.Options(**{**target, "password": SecretText(server.password)})

    def test_only_an_empty_share_is_used(self):
        with smbd.smbd() as server:
            assert SUITE.look(self.options(server)) == TargetInfo(may_erase=True)
            for name in ("thesis.tex", "photos.zip"):
                server.path.joinpath(name).touch()
            info = SUITE.look(self.options(server))
        assert not info.may_erase
        assert "share files contains " in info.at_risk
        assert "thesis.tex" in info.at_risk

    def test_a_listing_that_does_not_end_as_it_has_to_proves_nothing(self, monkeypatch):
        monkeypatch.setattr("storagetest.external.smbtorture.entries", lambda _root: iter(()))
        with smbd.smbd() as server, pytest.raises(AttachError, match="not known whether the share is empty"):
            SUITE.look(self.options(server))

    @pytest.mark.skipif(shutil.which("smbtorture") is None, reason="smbtorture is not installed")
    def test_one_test_of_the_program(self):
        with smbd.smbd() as server:
            run = SUITE.invocation("smb2.lock.valid-request", self.options(server), TargetInfo())
            done = subprocess.run(
                run.argv, env=run.env, capture_output=True, text=True, timeout=run.deadline, check=False
            )
        result = SUITE.verdict(
            "smb2.lock.valid-request", status=done.returncode, stdout=done.stdout, stderr=done.stderr
        )
        assert result.ended is ItemOutcome.PASSED, result
