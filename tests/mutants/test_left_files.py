"""What a case has left is looked at: each rule is seen to be broken, and kept by sound file systems."""

import tempfile
from pathlib import Path

import fuse_mount
import left_mutants
import pytest
from fuse_mount import mounted
from posix_mutation_run import HONEST

from storagetest.agent.testlib import consistency
from storagetest.hosts.local import LocalHost
from storagetest.runner.client_cases import ClientCase, ClientCaseStatus, run_cases

NOT_HERE = fuse_mount.why_not()
pytestmark = pytest.mark.skipif(NOT_HERE is not None, reason=str(NOT_HERE))

CASES = Path(__file__).with_name("left_cases.py")
BROKEN = {
    "ListedTwice": consistency.TWICE,
    "ListedOnce": consistency.AGAIN,
    "GhostListed": consistency.LOST,
    "FilesListedAsLinks": consistency.KIND,
    "FifosListedAsFiles": consistency.KIND,
    "NameNotCounted": consistency.LINKS,
    "OpenedOtherwise": consistency.STATUS,
    "LastByteUnread": consistency.SIZE,
    "DataInAHole": consistency.HOLE,
    "OtherWhenReadAgain": consistency.STORED,
    "TextWithoutASize": consistency.TEXT,
    "LinkWithoutAText": consistency.NO_TEXT,
    "RemovedAttributeListed": consistency.VALUE,
    "UnreadableAgain": consistency.UNREADABLE.format("EIO"),
    "NoDirectoryMade": consistency.NOT_MADE,
    "NothingRemoved": consistency.NOT_REMOVED,
}
"""Class of :mod:`left_mutants` → the rule that it breaks."""


def faults(files: str) -> dict[str, str]:
    """Run the case on a file system, ``module:class``; return the rules that what it left breaks."""
    with tempfile.TemporaryDirectory(prefix="storagetest-left-") as place:
        below, at = Path(place, "below"), Path(place, "at")
        below.mkdir(mode=0o755)
        at.mkdir()
        with mounted(files, below, at), LocalHost("here") as here:
            (result,) = run_cases(here, [ClientCase("one", CASES, "test_files_are_made")], path=str(at))
        without_directory = consistency.NOT_MADE in result.faults
        assert result.status is (
            ClientCaseStatus.SKIPPED if without_directory else ClientCaseStatus.PASSED
        ), result
        return dict(result.faults)


@pytest.mark.parametrize("files", HONEST)
def test_a_sound_file_system_breaks_no_rule(files: str) -> None:
    assert faults(files) == {}


def test_a_refused_fsync_is_not_what_a_case_has_left() -> None:
    """The cases of fsync() are about it."""
    assert faults("posix_refused_mutants:FsyncReadOnlyRefused") == {}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_found(name: str) -> None:
    found = faults(f"left_mutants:{name}")
    assert list(found) == [BROKEN[name]]


def test_every_broken_file_system_is_tried() -> None:
    own = {
        name for name, made in vars(left_mutants).items() if getattr(made, "__module__", "") == "left_mutants"
    }
    assert own == set(BROKEN)
