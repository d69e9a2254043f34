"""Cached attributes and names of a client expire within the limits of its attribute cache.

Sources: nfs(5), "DATA AND METADATA COHERENCE", "Attribute caching" and "Directory entry caching" (acregmin
3 s, acregmax 60 s, acdirmin 30 s, acdirmax 60 s); RFC 1813 4.11, RFC 7530 10.6, 10.8 ("an upper time
boundary is maintained"); mount.cifs(8), actimeo (1 s).
"""

from __future__ import annotations

from os import O_APPEND, O_RDWR, X_OK

import pytest

from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="RFC 7530 10.6; nfs(5)", level="MUST", kills=("attributes-never-expire",)),
]

OWNER = "1234:4321"
"""User and group that no process of a case has (chosen)."""


@pytest.mark.case("SHR-ATTR-01", kills=("attributes-never-expire", "two-listed-size-old"))
def test_new_size_is_seen(a, b, crossed_wire, eventually):
    """stat() of one client returns the size after a write of the other, within the timeout.

    The client has listed the directory: attributes that came with the listing are cached, too.
    """
    a.write_file("f", b"x" * 10)
    assert b.listdir() == ["f"]
    assert b.stat("f").size == 10
    with crossed_wire(a, "write"):
        a.write_file("f", b"x" * 2000)
    with crossed_wire(b, "query"):
        eventually(lambda: b.stat("f").size == 2000, "the size that the other client's write gave the file")


@pytest.mark.case("SHR-ATTR-02")
def test_new_time_is_seen(a, b, crossed_wire, eventually):
    a.write_file("f", b"x")
    b.stat("f")
    with crossed_wire(a, "change"):
        a.utime("f", 10**18, 10**18)
    with crossed_wire(b, "query"):
        eventually(lambda: b.stat("f").mtime_ns == 10**18, "the time that the other client set")


@pytest.mark.case("SHR-ATTR-03", kills=("attributes-never-expire", "two-links-old"))
def test_new_link_is_counted(a, b, crossed_wire, eventually):
    a.write_file("f", b"x")
    assert b.stat("f").nlink == 1
    with crossed_wire(a, "change"):
        a.link("f", "g")
    with crossed_wire(b, "query"):
        eventually(lambda: b.stat("f").nlink == 2, "the second link, which the other client made")


@pytest.mark.case("SHR-ATTR-04")
def test_new_size_and_data_are_seen_through_an_open_file(a, b, crossed_wire, eventually):
    a.write_file("f", b"one")
    fd = b.open("f")
    assert b.pread(fd, 100) == b"one"
    with crossed_wire(a, "write"):
        a.write_file("f", b"two, and longer")
    with crossed_wire(b, "query"):
        eventually(lambda: b.fstat(fd).size == 15, "the new size, through the open file")
        eventually(lambda: b.pread(fd, 100) == b"two, and longer", "the new data, through the open file")


@pytest.mark.case("SHR-ATTR-08", kills=("two-ctime-old",))
def test_new_change_time_is_seen(a, b, crossed_wire, eventually):
    a.write_file("f", b"x")
    before = b.stat("f").ctime_ns
    with crossed_wire(a, "change"):
        a.utime("f", 10**18, 10**18)
    try:
        wait_until(lambda: _changed(a, before), 2.0, "another time of change", interval=0.01)
    except DeadlineExceeded:
        pytest.skip("the client that changes a file sees no new time of change itself")
    with crossed_wire(b, "query"):
        eventually(lambda: b.stat("f").ctime_ns != before, "the time of the other client's change")


def _changed(session, before: int) -> bool:
    """Change the file again; return whether its time of change is another one than ``before``."""
    session.utime("f", 10**18, 10**18)
    return session.stat("f").ctime_ns != before


@pytest.mark.case("SHR-ATTR-09", kills=("two-owner-old",))
def test_new_owner_is_seen(a, b, crossed_wire, eventually):
    a.write_file("f", b"x")
    assert _owner(b) != OWNER
    status, *_ = a.call("run_program", ["chown", OWNER, "f"], 20)
    if status != 0 or _owner(a) != OWNER:
        pytest.skip("the owner cannot be changed here")
    with crossed_wire(b, "query"):
        eventually(lambda: _owner(b) == OWNER, "the owner that the other client gave the file")


@pytest.mark.case("SHR-ATTR-15", kills=("two-mode-old-to-stat",))
def test_new_mode_is_seen(a, b, crossed_wire, eventually):
    """stat() returns the mode that the other client gave the file, without an open() of it: each time."""
    a.write_file("f", b"x")
    for mode in (0o750, 0o700):
        before = b.stat("f").mode
        with crossed_wire(a, "change"):
            a.chmod("f", mode)
        after = a.stat("f").mode
        if after == before:
            pytest.skip("the mode of a file cannot be changed here")
        with crossed_wire(b, "query"):
            eventually(lambda: b.stat("f").mode == after, "the new mode of the file")  # noqa: B023


def _owner(session) -> str:
    """Return user and group of the file."""
    _, output, _ = session.call("run_program", ["stat", "-c", "%u:%g", "f"], 20)
    return output.strip()


@pytest.mark.slow
@pytest.mark.case("SHR-ATTR-05", section="RFC 7530 10.8; nfs(5)", kills=("names-never-expire",))
def test_cached_names_expire(a, b, crossed_wire, eventually):
    """Lookups agree with a removal, a rename and a creation by the other client."""
    a.write_file("removed", b"x")
    a.write_file("renamed", b"x")
    assert b.exists("removed")
    assert b.exists("renamed")
    assert not b.exists("made")
    with crossed_wire(a, "change"):
        a.unlink("removed")
        a.rename("renamed", "new")
        a.write_file("made", b"x")
    with crossed_wire(b, "query"):
        eventually(lambda: not b.exists("removed"), "that the other client removed a file")
        eventually(lambda: not b.exists("renamed"), "that the other client renamed a file")
        eventually(lambda: b.exists("made"), "the file that the other client made where there was none")


@pytest.mark.slow
@pytest.mark.case(
    "SHR-ATTR-06", section="RFC 7530 10.8; nfs(5)", kills=("names-never-expire", "two-symlink-old")
)
def test_cached_symbolic_link_expires(a, b, crossed_wire, eventually):
    a.symlink("one", "f")
    assert b.readlink("f") == "one"
    with crossed_wire(a, "change"):
        a.unlink("f")
        a.symlink("two", "f")
    with crossed_wire(b, "query"):
        eventually(lambda: b.readlink("f") == "two", "the symbolic link that the other client made anew")


@pytest.mark.slow
@pytest.mark.case(
    "SHR-ATTR-07",
    section="RFC 7530 10.8; nfs(5)",
    kills=("two-old-directory", "two-moved-directory-stays", "two-moved-in-absent"),
)
def test_cached_names_of_directories_expire(a, b, crossed_wire, eventually):
    """Paths agree with directories that the other client moved, replaced and moved a file into.

    The file is older than the look that did not find its name: only the name is new.
    """
    for directory in ("moved", "replaced", "new", "into"):
        a.mkdir(directory)
        a.write_file(f"{directory}/f", directory.encode())
    for directory in ("moved", "replaced"):
        assert b.exists(f"{directory}/f")
    assert not b.exists("into/g")
    with crossed_wire(a, "change"):
        a.rename("moved", "elsewhere")
        a.rename("replaced", "old")
        a.rename("new", "replaced")
        a.rename("into/f", "into/g")
    with crossed_wire(b, "query"):
        eventually(lambda: not b.exists("moved/f"), "that the other client moved a directory")
        eventually(lambda: b.can_open("into/g"), "the file that the other client moved to an absent name")
        eventually(lambda: b.read_file("replaced/f") == b"new", "the directory that took another's name")


@pytest.mark.case("SHR-ATTR-10", kills=("two-writer-own-mtime",))
def test_both_clients_have_the_same_attributes_after_the_close(a, b, crossed_wire, eventually, server_inodes):
    """Who wrote the file reports no size and no times of its own once the file is closed."""
    for data in (b"first", b"second, and longer"):
        with crossed_wire(a, "write"):
            a.write_file("f", data)
        eventually(
            lambda: _described(b, server_inodes()) == _described(a, server_inodes()),
            "the attributes that the other client reports",
        )


def _described(session, inode: bool) -> tuple[int, ...]:
    """Return what fstat() has of the file after an open, with or without its inode number."""
    found = _found_by_open(session)
    number = (found.ino,) if inode else ()
    return *number, found.mode, found.nlink, found.size, found.mtime_ns, found.ctime_ns


def _found_by_open(session):
    """Return what fstat() has of the file after an open."""
    fd = session.open("f")
    found = session.fstat(fd)
    session.close(fd)
    return found


@pytest.mark.case("SHR-ATTR-11", section="xattr(7); RFC 8276 8.4.3", kills=("two-xattr-names-old",))
def test_new_names_of_extended_attributes_are_listed(a, b, crossed_wire, eventually):
    """listxattr() shows the names that the other client has set and removed."""
    a.write_file("f", b"data")
    try:
        a.call("setxattr", "f", "user.first", b"1")
    except OSError as error:
        pytest.skip(f"files have no extended attributes here: {error}")
    assert _names(b) == {"user.first"}
    with crossed_wire(a, "change"):
        a.call("setxattr", "f", "user.second", b"2")
        a.call("removexattr", "f", "user.first")
    eventually(lambda: _names(b) == {"user.second"}, "the names that the other client set and removed")


def _names(session) -> set[str]:
    """Return the names of a file's user attributes after an open."""
    session.close(session.open("f"))
    return {name for name in session.call("listxattr", "f") if name.startswith("user.")}


@pytest.mark.case(
    "SHR-ATTR-12", section="POSIX.1-2024 ftruncate(); RFC 7530 10.3.1", kills=("two-known-size-not-set",)
)
def test_size_that_a_client_knew_can_be_set_again(a, b, crossed_wire):
    """ftruncate() to the size that the file had cuts what the other client has appended since."""
    a.write_file("f", b"x" * 100)
    assert b.stat("f").size == 100
    with crossed_wire(a, "write"):
        a.write_file("f", b"y" * 400, O_APPEND)
    fd = b.open("f", O_RDWR)
    with crossed_wire(b, "change"):
        b.ftruncate(fd, 100)
        b.close(fd)
    assert a.read_file("f") == b"x" * 100


@pytest.mark.case("SHR-ATTR-13", section="POSIX.1-2024 chmod()", kills=("two-known-mode-not-set",))
def test_mode_that_a_client_knew_can_be_set_again(a, b, crossed_wire, eventually):
    """chmod() to the mode that the file had is carried out after the other client gave it another."""
    a.write_file("f", b"x")
    a.chmod("f", 0o644)
    before = b.stat("f").mode
    a.write_file("g", b"x")
    a.chmod("g", 0o600)
    if a.stat("g").mode == before:
        pytest.skip("the mode of a file cannot be changed here")
    with crossed_wire(a, "change"):
        a.chmod("f", 0o600)
    with crossed_wire(b, "change"):
        b.chmod("f", 0o644)
    eventually(lambda: _found_by_open(a).mode == before, "the mode that the client set again")


@pytest.mark.case("SHR-ATTR-14", section="POSIX.1-2024 futimens()", kills=("two-known-times-not-set",))
def test_times_that_a_client_knew_can_be_set_again(a, b, crossed_wire, eventually):
    """utimensat() to the times that the file had is carried out after the other client set others."""
    a.write_file("f", b"x")
    a.utime("f", 10**18, 10**18)
    assert b.stat("f").mtime_ns == 10**18
    with crossed_wire(a, "change"):
        a.utime("f", 2 * 10**17, 2 * 10**17)
    with crossed_wire(b, "change"):
        b.utime("f", 10**18, 10**18)
    eventually(lambda: _found_by_open(a).mtime_ns == 10**18, "the time that the client set again")


@pytest.mark.slow
@pytest.mark.case("SHR-ATTR-16", section="RFC 7530 10.6; POSIX.1-2024 access()", kills=("two-access-old",))
def test_access_is_granted_by_the_mode_that_the_other_client_set(a, b, crossed_wire, eventually):
    """access() with X_OK is granted while the file may be executed by someone, and refused while by none."""
    a.write_file("f", b"x")
    a.chmod("f", 0o644)
    if b.call("access", "f", X_OK):
        pytest.skip("a file whose mode has no permission to execute it may be executed here")
    for mode in (0o755, 0o644, 0o755):
        with crossed_wire(a, "change"):
            a.chmod("f", mode)
        wanted = bool(mode & 0o111)
        if bool(a.stat("f").mode & 0o111) != wanted:
            pytest.skip("the mode of a file cannot be changed here")
        eventually(lambda: b.call("access", "f", X_OK) == wanted, f"access() to a file of mode {mode:o}")  # noqa: B023


@pytest.mark.slow
@pytest.mark.case("SHR-ATTR-17", kills=("two-third-size-unseen",))
def test_each_of_several_new_sizes_is_seen_through_an_open_file(a, b, crossed_wire, eventually):
    """fstat() returns each of the sizes that the other client gives a file that stays open here."""
    a.write_file("f", b"x" * 100)
    fd = b.open("f")
    for size in (5000, 300, 70_000, 10, 4096):
        with crossed_wire(a, "change"):
            a.truncate("f", size)
        eventually(lambda: b.fstat(fd).size == size, f"the size {size}")  # noqa: B023
    b.close(fd)


@pytest.mark.case(
    "SHR-ATTR-18", section="POSIX.1-2024 close(), chmod(): DESCRIPTION", kills=("two-close-sets-mode-back",)
)
def test_close_after_a_write_keeps_the_mode_that_the_other_client_set(a, b, crossed_wire, eventually):
    """Who has written a file gives it no mode by its close: it has the one that the other client set."""
    a.write_file("f", b"first")
    a.chmod("f", 0o644)
    fd = b.open("f", O_RDWR)
    b.pwrite(fd, b"later")
    a.write_file("g", b"x")
    a.chmod("g", 0o750)
    wanted = a.stat("g").mode
    if wanted & 0o7777 != 0o750:
        pytest.skip("the mode of a file cannot be changed here")
    with crossed_wire(a, "change"):
        a.chmod("f", 0o750)
    b.pwrite(fd, b"again")
    with crossed_wire(b, "write"):
        b.close(fd)
    for session in (a, b):
        eventually(lambda: _found_by_open(session).mode == wanted, "the mode that was set before the close")  # noqa: B023
    assert a.read_file("f") == b"again"
