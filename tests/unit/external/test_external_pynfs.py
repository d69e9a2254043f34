"""pynfs: its list and its output."""

import pytest

from storagetest.external.base import ItemOutcome, suites
from storagetest.external.pynfs import Pynfs40

SUITE = Pynfs40()
LINE = "*" * 50 + "\n"
PASSED = LINE + (
    "INIT     st_setclientid.testValid                                 : PASS\n"
    "LOCK10   st_lock.testOther                                        : FAILURE\n"
    "           no other\n"
    "LOCK1    st_lock.testFile                                         : PASS\n"
) + LINE  # fmt: skip


def one(word: str, more: str = "") -> str:
    return f"{LINE}LOCK1    st_lock.testFile                                         : {word}\n{more}{LINE}"


def test_both_are_registered():
    assert {"pynfs-4.0", "pynfs-4.1"} <= set(suites.all())


def test_the_list_is_of_codes():
    assert SUITE.tests("Could not find gssapi module, proceeding without\nACC1a\nACC1b\nACC1a\n") == (
        "ACC1a",
        "ACC1b",
    )


@pytest.mark.parametrize(
    ("output", "outcome", "reason"),
    [
        (PASSED, ItemOutcome.PASSED, ""),
        (one("FAILURE", "           OP_LOCK should return NFS4_OK, instead got\n           NFS4ERR_DENIED\n"),
         ItemOutcome.FAILED, "FAILURE: OP_LOCK should return NFS4_OK, instead got NFS4ERR_DENIED"),
        (one("FAILURE"), ItemOutcome.FAILED, "FAILURE"),
        (one("WARNING", "           it is odd\n"), ItemOutcome.WARNED, "WARNING: it is odd"),
        (one("UNSUPPORTED", "           no locks\n"), ItemOutcome.SKIPPED, "UNSUPPORTED: no locks"),
        (one("OMIT", "           Dependency MKFILE st_open.testOpen had status OMIT.\n"),
         ItemOutcome.SKIPPED, "OMIT: Dependency MKFILE st_open.testOpen had status OMIT."),
        (one("SOMETHING NEW"), ItemOutcome.BROKEN, "SOMETHING NEW"),
        ("Unknown server 'nas'\n", ItemOutcome.BROKEN, "LOCK1: exit status 0 and no result"),
        ("", ItemOutcome.BROKEN, "LOCK1: exit status 0 and no result"),
    ],
)  # fmt: skip
def test_the_verdict_is_of_the_code_and_not_of_the_exit_status(output, outcome, reason):
    result = SUITE.verdict("LOCK1", status=0, stdout=output, stderr="")
    assert (result.ended, result.reason) == (outcome, reason)
