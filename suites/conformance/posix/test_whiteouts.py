"""RENAME_WHITEOUT: a rename that leaves a whiteout at the old name (rename(2))."""

from __future__ import annotations

import os
import stat

import pytest

from storagetest.agent.testlib import record_observation, skip
from storagetest.agent.testlib.libc import RENAME_WHITEOUT, renameat2
from storagetest.agent.testlib.outcomes import CannotRun
from storagetest.agent.testlib.tmpfiles import make_file

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST",
        builds_on=("PSX-DATA-NEW-FILE", "PSX-RENAME-REPLACE"),
        section="rename(2): RENAME_WHITEOUT",
    ),
]


def make_directory(path):
    path.mkdir()
    make_file(path / "inside", b"inside")


def need_whiteouts(directory):
    """Rename a file so; skip the case if the file system or the process cannot."""
    make_file(directory / "probe")
    try:
        renameat2(directory / "probe", directory / "probed", RENAME_WHITEOUT)
    except PermissionError:
        skip("RENAME_WHITEOUT requires CAP_MKNOD, or a mount that permits device files (rename(2))")
    for name in os.listdir(directory):
        os.unlink(directory / name)


@pytest.mark.case(
    "PSX-RENAME-WHITEOUT", kills=("rename-whiteout-leaves-nothing", "rename-whiteout-keeps-the-file")
)
def test_whiteout_is_left_at_the_old_name(client_dir):
    """The rename is done, and a whiteout is at the old name: of a file and of a directory.

    To a new name and over a file or an empty directory, in one directory and to another. The whiteout can be
    removed, and its name be used again.
    """
    need_whiteouts(client_dir)
    for name in ("one", "two"):
        (client_dir / name).mkdir()
    kinds = set()
    for kind, make, replaced in (
        ("file", lambda path: make_file(path, b"content"), make_file),
        ("directory", make_directory, os.mkdir),
    ):
        for place in ("one", "two"):
            for text, before in (("a new name", None), ("one that is replaced", replaced)):
                old, new = client_dir / "one" / "old", client_dir / place / "new"
                make(old)
                number = os.lstat(old).st_ino
                if before is not None:
                    before(new)
                what = f"RENAME_WHITEOUT of a {kind} to {text}"
                try:
                    renameat2(old, new, RENAME_WHITEOUT)
                except CannotRun:
                    raise AssertionError(f"{what} is EINVAL, and that of another file was done") from None
                assert os.lstat(new).st_ino == number, f"{what}: the new name is another file"
                found = new / "inside" if kind == "directory" else new
                assert found.read_bytes() == (b"inside" if kind == "directory" else b"content"), what
                assert old.name in os.listdir(old.parent), (
                    f"{what} leaves nothing at the old name in the listing; required: a whiteout"
                )
                assert os.path.lexists(old), f"{what} leaves nothing at the old name; required: a whiteout"
                left = os.lstat(old)
                assert left.st_ino != number, f"{what}: the old name is the renamed {kind} still"
                kinds.add((stat.S_ISCHR(left.st_mode), left.st_rdev))
                os.unlink(old)
                assert not os.path.lexists(old), f"{what}: the whiteout was removed, and its name is there"
                os.close(os.open(old, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                os.unlink(old)
                if kind == "directory":
                    os.unlink(found)
                    os.rmdir(new)
                else:
                    os.unlink(new)
    record_observation(
        "a whiteout is a character device of number 0"
        if kinds == {(True, 0)}
        else "a whiteout is another file"
    )
