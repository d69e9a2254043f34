"""Replaced files: a name leads to the file that has it now, a descriptor to the file that it was opened on.

Sources: POSIX.1-2024 4.16 (pathname resolution), chmod(), truncate(), unlink(), rename() ("a directory entry
named new shall exist throughout the operation", of directories as well); RFC 7530 10.8 (names), 10.3.1 (an
open revalidates data and attributes); RFC 8881 8.4.3 (a filehandle is of one file).
"""

from __future__ import annotations

from errno import EACCES, EBUSY, EPERM, ETXTBSY
from os import O_CREAT, O_EXCL, O_RDWR, O_WRONLY
from stat import S_IMODE

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="RFC 7530 10.8; POSIX.1-2024 4.16", level="MUST"),
]

IN_USE = {EACCES, EBUSY, EPERM, ETXTBSY}
"""Errors by which a protocol with share modes (SMB) refuses to replace or remove an open file."""
TURNS = 3
RENAMES = 60


def _replace(session, name: str, data: bytes, mode: int = 0o644) -> None:
    session.write_file("new", data)
    session.chmod("new", mode)
    session.rename("new", name)


def _skip_without_modes(a, b) -> None:
    a.write_file("probe", b"")
    a.chmod("probe", 0o444)
    mode = S_IMODE(b.stat("probe").mode)
    a.chmod("probe", 0o644)
    a.unlink("probe")
    if mode & 0o222:
        pytest.skip(f"modes are not kept here: 444 is {mode:o} for the other client (SHR-CTO-11)")


@pytest.mark.case("SHR-KNOWN-13", section="POSIX.1-2024 truncate()", kills=("two-truncate-of-the-former",))
def test_truncate_cuts_the_file_that_has_the_name_now(a, b, crossed_wire):
    """The client knows the name as the file that had it before."""
    for turn in range(TURNS):
        _replace(a, "f", b"%d of the name" % turn)
        with crossed_wire(b, "change"):
            b.truncate("f", 2 + turn)
        found = a.read_file("f")
        assert found == (b"%d of the name" % turn)[: 2 + turn], f"{found!r} after truncate() to {2 + turn}"


@pytest.mark.case("SHR-KNOWN-14", section="POSIX.1-2024 chmod()", kills=("two-chmod-of-the-former",))
def test_chmod_sets_the_mode_of_the_file_that_has_the_name_now(a, b, crossed_wire):
    _skip_without_modes(a, b)
    for turn in range(TURNS):
        _replace(a, "f", b"%d of the name" % turn)
        with crossed_wire(b, "change"):
            b.chmod("f", 0o444)
        a.read_file("f")
        mode = S_IMODE(a.stat("f").mode)
        assert not mode & 0o222, f"mode {mode:o} in turn {turn}, after the other client's chmod() to 444"


@pytest.mark.case("SHR-UNLINK-11", section="POSIX.1-2024 unlink()", kills=("two-unlink-replaced-stale",))
def test_unlink_removes_a_file_that_has_taken_a_known_name(a, b, crossed_wire):
    """It succeeds, though the client has only seen the file that had the name before."""
    for name in ("f", "g", "h"):  # a name that the client removed may be known as absent for a while
        a.write_file(name, b"known")
        assert b.read_file(name) == b"known"
        with crossed_wire(a, "change"):
            _replace(a, name, b"of the name")
        with crossed_wire(b, "change"):
            b.unlink(name)
        assert a.listdir() == [], "the name is still there after the other client's unlink()"


@pytest.mark.case(
    "SHR-UNLINK-12", section="POSIX.1-2024 rename(), read()", kills=("two-first-replaced-is-second",)
)
def test_each_of_several_replaced_files_is_read_by_its_own_descriptor(a, b, crossed_wire):
    """A client keeps open each file that the other replaces by the next one."""
    a.write_file("f", b"file 0")
    fds = [b.open("f")]
    for turn in range(1, 4):
        try:
            with crossed_wire(a, "change"):
                _replace(a, "f", b"file %d" % turn)
        except OSError as error:
            if error.errno not in IN_USE:
                raise
            pytest.skip(f"an open file cannot be replaced here: {error}")
        if b.read_file("f") != b"file %d" % turn:
            pytest.skip("the client opens by this name the file that it has open (nfs(5), lookupcache)")
        fds.append(b.open("f"))
    try:
        found = [b.pread(fd, 20) for fd in fds]
    except OSError as error:
        if "tale" not in str(error):
            raise
        pytest.skip(f"a file replaced by the other client is lost to its reader here (RFC 1813 2.6): {error}")
    wanted = [b"file %d" % turn for turn in range(4)]
    assert found == wanted, f"the descriptors read {found}"


@pytest.mark.case("SHR-ATTR-21", section="RFC 7530 10.3.1, 10.6", kills=("two-made-again-old-mode",))
def test_file_made_again_has_its_own_attributes(a, b, crossed_wire):
    """A file of a removed one's name, and perhaps inode number, has mode, size and links of its own."""
    _skip_without_modes(a, b)
    for turn in range(2 * TURNS):
        fd = a.open("f", O_CREAT | O_EXCL | O_RDWR)
        a.pwrite(fd, bytes(10 + turn))
        a.close(fd)
        a.chmod("f", 0o444 if turn % 2 else 0o644)
        with crossed_wire(b, "query"):
            assert b.read_file("f") == bytes(10 + turn)
        one, other = b.stat("f"), a.stat("f")
        assert (S_IMODE(one.mode), one.size, one.nlink) == (S_IMODE(other.mode), other.size, other.nlink)
        a.chmod("f", 0o644)
        with crossed_wire(a, "change"):
            a.unlink("f")


@pytest.mark.case("SHR-RENAME-12", section="POSIX.1-2024 rename()", kills=("rename-gap-of-directories",))
def test_name_of_a_directory_exists_throughout_the_rename(a, b, race, crossed_wire):
    """A directory is renamed over an empty one, again and again: stat() never fails with ENOENT."""
    a.mkdir("d")
    a.mkdir("new")
    try:
        a.rename("new", "d")
    except OSError as error:
        pytest.skip(f"a directory does not replace an empty one here: {error}")
    renames = [call for _ in range(RENAMES) for call in (("mkdir", "new", 0o755), ("rename", "new", "d"))]
    with crossed_wire(b, "query"):
        renamed, found = race(renames, [("stat", "d")] * 2 * RENAMES)
    assert not [one for one in renamed if isinstance(one, OSError)]
    absent = [one for one in found if isinstance(one, FileNotFoundError)]
    assert not absent, f"{len(absent)} of {len(found)} lookups found no such directory"
    b.close(b.open("d/f", O_CREAT | O_EXCL | O_WRONLY))
    assert a.listdir("d") == ["f"]
