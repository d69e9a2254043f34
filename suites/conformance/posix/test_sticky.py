"""Renames in directories with the sticky bit: of another user, of one's own, and from one to another."""

from __future__ import annotations

import errno
import os

import pytest

from storagetest.agent.testlib import assert_errno, run_as_user
from storagetest.agent.testlib.tmpfiles import make_file, symbolic_link

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

USER = 1001
OWNERS = {"root": 0, "caller": USER}
OWNER = "sticky-owner-renames-own-only"
STICKY = [
    # kind, owners of the old directory, of the new one, of the old file and the new one; does it succeed
    ("IN-OWN", "file", "caller", "same", "root", "none", True, (OWNER,)),
    ("OVER-IN-OWN", "file", "caller", "same", "root", "root", True, (OWNER,)),
    ("OUT-OF-OWN", "file", "caller", "root", "root", "none", True, (OWNER,)),
    ("OVER-INTO-OWN", "file", "root", "caller", "caller", "root", True, ("sticky-owner-replaces-own-only",)),
    ("OUT-NOT-OWN", "file", "root", "caller", "root", "none", False, ("sticky-move-checks-target",)),
    ("INTO-NOT-OWN", "file", "caller", "root", "caller", "root", False, ("sticky-move-checks-source",)),
    ("DIRECTORY-IN-OWN", "directory", "caller", "same", "root", "none", True, (OWNER,)),
    ("DIRECTORY-NOT-OWN", "directory", "root", "same", "root", "none", False, ("sticky-not-of-directories",)),
    ("DIRECTORY-OVER", "directory", "root", "same", "caller", "root", False, ("sticky-not-of-directories",)),
    ("LINK-NOT-OWN", "link", "root", "same", "root", "none", False, ("sticky-not-of-links",)),
    ("LINK-OVER", "link", "root", "same", "caller", "root", False, ("sticky-not-of-links",)),
]


def make(path, kind, owner):
    """Make a file of a kind for a user."""
    if kind == "file":
        make_file(path, mode=0o666)
    elif kind == "directory":
        path.mkdir()
    else:
        symbolic_link("x", path)
    os.lchown(path, OWNERS[owner], 0)


@pytest.mark.parametrize(
    ("kind", "source", "target", "old", "new", "permitted"),
    [
        pytest.param(*rest, id=name.lower(), marks=pytest.mark.case(f"PSX-RENAME-STICKY-{name}", kills=kills))
        for name, *rest, kills in STICKY
    ],
)
@pytest.mark.case(section="POSIX.1-2024 rename(): ERRORS [S_ISVTX]")
def test_rename_in_directories_with_the_sticky_bit(client_dir, kind, source, target, old, new, permitted):
    """[EPERM] or [EACCES] The process owns neither the file whose name goes nor its sticky directory."""
    places = [client_dir / "from", client_dir / "from" if target == "same" else client_dir / "to"]
    for place, owner in zip(places, (source, target), strict=True):
        if owner != "same":
            place.mkdir()
    for place, name, owner in ((places[0], "old", old), (places[1], "new", new)):
        if owner != "none":
            make(place / name, kind, owner)
    for place, owner in zip(places, (source, target), strict=True):
        if owner != "same":
            os.chown(place, OWNERS[owner], 0)
            os.chmod(place, 0o1777)
    before = os.lstat(places[0] / "old").st_ino
    with run_as_user(USER, USER):
        if permitted:
            os.rename(places[0] / "old", places[1] / "new")
        else:
            assert_errno((errno.EPERM, errno.EACCES), os.rename, places[0] / "old", places[1] / "new")
    left = os.path.lexists(places[0] / "old")
    assert left is not permitted, f"the old name is {'still there' if left else 'gone'}"
    if permitted:
        assert os.lstat(places[1] / "new").st_ino == before, "the new name is another file's"
