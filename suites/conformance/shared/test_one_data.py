"""The same files by two protocols: a client of one protocol sees the changes of a client of the other.

``same_data`` of the target names the other target, which the second client attaches. Each case runs in both
directions: ``a`` uses the first protocol, or the other.

Sources: for the guarantees of each protocol to its own clients, test_close_to_open.py, test_attributes.py,
test_rename.py and test_locks.py; RFC 7530 10.4 and RFC 8881 10.4 (a delegation is recalled for "operations
by … other clients", and local ones at the server); MS-SMB2 3.3.5.9 (opens of the underlying object store);
smb.conf(5), "kernel oplocks" and "posix locking", for a server that has two of them on one file system.
"""

from __future__ import annotations

from fcntl import F_RDLCK, F_UNLCK, F_WRLCK
from os import O_APPEND, O_CREAT, O_EXCL, O_RDWR, O_WRONLY

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients", "same_data"),
    pytest.mark.case(section="RFC 7530 10.3.1, 10.4; MS-SMB2 3.3.5.9", level="MUST"),
]


@pytest.fixture
def client_sides(client_sides_same_data):
    """Return the sides of both clients; the second has the files by another protocol."""
    return client_sides_same_data


def both_directions(*numbers):
    """Run a case with ``a`` on the first protocol, and with ``a`` on the other: one case id each."""
    ids = ("first-to-other", "other-to-first")
    return pytest.mark.parametrize("swapped", [
        pytest.param(swapped, marks=pytest.mark.case(f"SHR-DATA-{number:02}"), id=name)
        for swapped, number, name in zip((False, True), numbers, ids, strict=True)
    ])  # fmt: skip


@pytest.fixture
def a(client_sessions, swapped):
    """Return the session that changes the files."""
    return client_sessions[1] if swapped else client_sessions[0]


@pytest.fixture
def b(client_sessions, swapped):
    """Return the session that observes the changes."""
    return client_sessions[0] if swapped else client_sessions[1]


@both_directions(1, 2)
@pytest.mark.case(kills=("close-keeps-data-back",))
def test_open_reads_data_of_an_earlier_close(a, b, crossed_wire):
    data = bytes(range(256)) * 500
    with crossed_wire(a, "write"):
        a.write_file("f", data)
    with crossed_wire(b, "read"):
        assert b.read_file("f") == data


@both_directions(3, 4)
@pytest.mark.case(kills=("open-finds-old-data",))
def test_open_revalidates_cached_data(a, b, crossed_wire):
    """A client that has cached the file reads the new data of the same length after its next open."""
    a.write_file("f", b"first" * 100)
    assert b.read_file("f") == b"first" * 100
    for generation in (b"other", b"third"):
        with crossed_wire(a, "write"):
            a.write_file("f", generation * 100, O_CREAT)
        with crossed_wire(b, "query"):
            assert b.read_file("f") == generation * 100


@both_directions(5, 6)
@pytest.mark.case(kills=("open-finds-old-data",))
def test_cached_data_of_a_reader_are_recalled(a, b, crossed_wire):
    """A client with an open cached file reads the new data after its next open."""
    a.write_file("f", b"first")
    for _ in range(3):
        assert a.read_file("f") == b"first"
    fd = a.open("f")
    assert a.pread(fd, 10) == b"first"
    with crossed_wire(b, "write"):
        b.write_file("f", b"later", O_CREAT)
    a.close(fd)
    assert a.read_file("f") == b"later"


@both_directions(7, 8)
@pytest.mark.case(kills=("attributes-never-expire",), section="RFC 7530 10.6; nfs(5); mount.cifs(8), actimeo")
def test_new_size_and_time_are_seen(a, b, crossed_wire, eventually):
    a.write_file("f", b"x" * 10)
    assert b.stat("f").size == 10
    with crossed_wire(a, "write"):
        a.write_file("f", b"x" * 3000)
    a.utime("f", 10**18, 10**18)
    with crossed_wire(b, "query"):
        eventually(
            lambda: b.stat("f").size == 3000, "the size that the other protocol's client gave the file"
        )
        eventually(lambda: b.stat("f").mtime_ns == 10**18, "the time that it set")


@both_directions(9, 10)
@pytest.mark.case(kills=("open-finds-old-size",))
def test_truncation_and_append_are_seen(a, b, crossed_wire):
    a.write_file("f", b"x" * 5000)
    assert len(b.read_file("f")) == 5000
    with crossed_wire(a, "change"):
        a.truncate("f", 3)
    assert b.read_file("f") == b"xxx"
    with crossed_wire(a, "write"):
        a.write_file("f", b"more", O_APPEND)
    assert b.read_file("f") == b"xxxmore"


@both_directions(11, 12)
@pytest.mark.case(kills=("open-finds-the-old-file",), section="RFC 7530 16.27; MS-FSA 2.1.5.15.11")
def test_rename_is_seen(a, b, crossed_wire, at_once):
    a.write_file("old", b"the file")
    assert b.read_file("old") == b"the file"
    with crossed_wire(a, "change"):
        a.rename("old", "new")
    with crossed_wire(b, "query"):
        assert b.read_file("new") == b"the file"
        at_once(lambda: not b.can_open("old"), "that the other protocol's client renamed it")


@both_directions(13, 14)
@pytest.mark.case(kills=("unlink-not-done",), section="RFC 7530 16.25; MS-FSA 2.1.5.5")
def test_removal_is_seen(a, b, crossed_wire, at_once, eventually):
    a.write_file("f", b"x")
    assert b.read_file("f") == b"x"
    with crossed_wire(a, "change"):
        a.unlink("f")
    at_once(lambda: not b.can_open("f"), "that the other protocol's client removed it")
    with crossed_wire(b, "list"):
        eventually(lambda: b.listdir() == [], "the directory without the file")


@both_directions(15, 16)
@pytest.mark.case(kills=("exclusive-not",), section="RFC 7530 16.16; MS-SMB2 3.3.5.9 (FILE_CREATE)")
def test_exclusive_creation_succeeds_once(a, b, crossed_wire):
    """The second O_EXCL fails with EEXIST."""
    assert not b.exists("f")
    with crossed_wire(a, "change"):
        a.close(a.open("f", O_CREAT | O_EXCL | O_WRONLY))
    with crossed_wire(b, "change"), pytest.raises(FileExistsError):
        b.open("f", O_CREAT | O_EXCL | O_WRONLY)


@both_directions(17, 18)
@pytest.mark.case(kills=("names-appear-late",), section="RFC 7530 10.8")
def test_created_tree_is_accessible(a, b, crossed_wire):
    with crossed_wire(a, "change"):
        a.mkdir("d")
        a.mkdir("d/e")
        a.write_file("d/e/f", b"deep")
    with crossed_wire(b, "query"):
        assert b.read_file("d/e/f") == b"deep"
    with crossed_wire(b, "list"):
        assert b.listdir("d") == ["e"]


@both_directions(19, 20)
@pytest.mark.case(kills=("lock-ignored",), section="RFC 7530 16.10; MS-SMB2 3.3.5.14")
def test_lock_excludes_the_other_protocols_clients(a, b, crossed_wire):
    """Overlapping ranges conflict across the protocols, other ranges do not."""
    a.write_file("f", bytes(100))
    fd_a, fd_b = a.open("f", O_RDWR), b.open("f", O_RDWR)
    with crossed_wire(a, "lock"):
        a.lock(fd_a, F_WRLCK, 0, 10)
    assert not b.try_lock(fd_b, F_WRLCK, 5, 10)
    assert not b.try_lock(fd_b, F_RDLCK, 5, 10)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fd_b, F_WRLCK, 50, 10)


@both_directions(21, 22)
@pytest.mark.case(kills=("unlock-ignored",), section="RFC 7530 16.12; MS-SMB2 3.3.5.14.1")
def test_unlocked_range_can_be_locked(a, b, crossed_wire):
    a.write_file("f", bytes(100))
    fd_a, fd_b = a.open("f", O_RDWR), b.open("f", O_RDWR)
    a.lock(fd_a, F_WRLCK, 0, 10)
    assert not b.try_lock(fd_b, F_WRLCK, 0, 10)
    with crossed_wire(a, "lock"):
        a.lock(fd_a, F_UNLCK, 0, 10)
    with crossed_wire(b, "lock"):
        assert b.try_lock(fd_b, F_WRLCK, 0, 10)


@both_directions(23, 24)
@pytest.mark.case(kills=("lock-kept-over-close",), section="fcntl(2)")
def test_exit_of_the_holder_releases_its_lock(a, b, crossed_wire):
    a.write_file("f", bytes(100))
    fd_a, fd_b = a.open("f", O_RDWR), b.open("f", O_RDWR)
    with crossed_wire(a, "lock"):
        a.lock(fd_a, F_WRLCK, 0, 10)
    assert not b.try_lock(fd_b, F_WRLCK, 0, 10)
    a.kill_worker()
    with crossed_wire(b, "lock"):
        assert b.try_lock(fd_b, F_WRLCK, 0, 10)


@both_directions(25, 26)
@pytest.mark.case(level="MAY", section="RFC 7530 9.1; MS-SMB2 3.3.5.12, 3.3.5.13", kills=())
def test_locks_may_be_mandatory(a, b, crossed_wire, observe):
    """A write without a lock of a range locked for writing may fail."""
    a.write_file("f", bytes(100))
    fd_a, fd_b = a.open("f", O_RDWR), b.open("f", O_RDWR)
    with crossed_wire(a, "lock"):
        a.lock(fd_a, F_WRLCK, 0, 10)
    try:
        b.pwrite(fd_b, b"x", 5)
        b.fsync(fd_b)
    except OSError:
        observe("mandatory: a range locked by the other protocol's client cannot be written")
    else:
        observe("advisory: a client without a lock may write")


@both_directions(27, 28)
@pytest.mark.case(level="MAY", section="RFC 8881 18.16.3; MS-FSA 2.1.5.5", kills=())
def test_open_file_of_the_other_client_may_be_removed(a, b, crossed_wire, observe):
    a.write_file("f", b"still here")
    fd = a.open("f", O_RDWR)
    try:
        with crossed_wire(b, "change"):
            b.unlink("f")
    except OSError:
        observe("a file that the other protocol's client has open cannot be removed")
        assert a.read_file("f") == b"still here"
        return
    a.evict(fd)
    try:
        data = a.pread(fd, 100)
    except OSError:
        observe("an open file that the other protocol's client removed is lost")
    else:
        assert data == b"still here"
        observe("an open file that the other protocol's client removed can still be read")
