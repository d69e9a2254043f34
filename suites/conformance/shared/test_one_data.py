"""The same files by two protocols: what a client of one does, a client of the other sees.

``same_data`` of the target names the other one, which the second client attaches. Each case is tried both
ways round: ``a`` has the first protocol, or the other.

Sources: for what each protocol promises its own clients test_close_to_open.py, test_attributes.py,
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
    """Return both clients' sides; the second has the files by another protocol."""
    return client_sides_same_data


def each_way(*numbers):
    """Try a case with ``a`` on the first protocol, and with ``a`` on the other: a case id for each."""
    ids = ("first-to-other", "other-to-first")
    return pytest.mark.parametrize("turned", [
        pytest.param(turned, marks=pytest.mark.case(f"SHR-DATA-{number:02}"), id=name)
        for turned, number, name in zip((False, True), numbers, ids, strict=True)
    ])  # fmt: skip


@pytest.fixture
def a(client_sessions, turned):
    """Return the hand that acts."""
    return client_sessions[1] if turned else client_sessions[0]


@pytest.fixture
def b(client_sessions, turned):
    """Return the hand that looks."""
    return client_sessions[0] if turned else client_sessions[1]


@each_way(1, 2)
@pytest.mark.case(kills=("close-keeps-data-back",))
def test_what_was_written_before_the_close_is_read_after_the_open(a, b, crossed_wire):
    data = bytes(range(256)) * 500
    with crossed_wire(a, "write"):
        a.write_file("f", data)
    with crossed_wire(b, "read"):
        assert b.read_file("f") == data


@each_way(3, 4)
@pytest.mark.case(kills=("open-finds-old-data",))
def test_what_was_read_once_is_read_anew(a, b, crossed_wire):
    a.write_file("f", b"first" * 100)
    assert b.read_file("f") == b"first" * 100
    for generation in (b"other", b"third"):
        with crossed_wire(a, "write"):
            a.write_file("f", generation * 100, O_CREAT)
        with crossed_wire(b, "ask"):
            assert b.read_file("f") == generation * 100


@each_way(5, 6)
@pytest.mark.case(kills=("open-finds-old-data",))
def test_who_trusts_its_cache_gives_it_back(a, b, crossed_wire):
    a.write_file("f", b"first")
    for _ in range(3):
        assert a.read_file("f") == b"first"
    kept = a.open("f")
    assert a.pread(kept, 10) == b"first"
    with crossed_wire(b, "write"):
        b.write_file("f", b"later", O_CREAT)
    a.close(kept)
    assert a.read_file("f") == b"later"


@each_way(7, 8)
@pytest.mark.case(kills=("attributes-never-expire",), section="RFC 7530 10.6; nfs(5); mount.cifs(8), actimeo")
def test_a_new_size_and_time_are_seen(a, b, crossed_wire, eventually):
    a.write_file("f", b"x" * 10)
    assert b.stat("f").size == 10
    with crossed_wire(a, "write"):
        a.write_file("f", b"x" * 3000)
    a.utime("f", 10**18, 10**18)
    with crossed_wire(b, "ask"):
        eventually(
            lambda: b.stat("f").size == 3000, "the size that the other protocol's client gave the file"
        )
        eventually(lambda: b.stat("f").mtime_ns == 10**18, "the time that it set")


@each_way(9, 10)
@pytest.mark.case(kills=("open-finds-old-size",))
def test_what_was_cut_off_and_appended_is_seen(a, b, crossed_wire):
    a.write_file("f", b"x" * 5000)
    assert len(b.read_file("f")) == 5000
    with crossed_wire(a, "change"):
        a.truncate("f", 3)
    assert b.read_file("f") == b"xxx"
    with crossed_wire(a, "write"):
        a.write_file("f", b"more", O_APPEND)
    assert b.read_file("f") == b"xxxmore"


@each_way(11, 12)
@pytest.mark.case(kills=("open-finds-the-old-file",), section="RFC 7530 16.27; MS-FSA 2.1.5.15.11")
def test_a_rename_is_seen(a, b, crossed_wire, at_once):
    a.write_file("old", b"the file")
    assert b.read_file("old") == b"the file"
    with crossed_wire(a, "change"):
        a.rename("old", "new")
    with crossed_wire(b, "ask"):
        assert b.read_file("new") == b"the file"
        at_once(lambda: not b.can_open("old"), "that the other protocol's client renamed it")


@each_way(13, 14)
@pytest.mark.case(kills=("unlink-not-done",), section="RFC 7530 16.25; MS-FSA 2.1.5.5")
def test_a_removal_is_seen(a, b, crossed_wire, at_once, eventually):
    a.write_file("f", b"x")
    assert b.read_file("f") == b"x"
    with crossed_wire(a, "change"):
        a.unlink("f")
    at_once(lambda: not b.can_open("f"), "that the other protocol's client removed it")
    with crossed_wire(b, "list"):
        eventually(lambda: b.listdir() == [], "the directory without the file")


@each_way(15, 16)
@pytest.mark.case(kills=("exclusive-not",), section="RFC 7530 16.16; MS-SMB2 3.3.5.9 (FILE_CREATE)")
def test_a_name_is_made_once(a, b, crossed_wire):
    assert not b.exists("f")
    with crossed_wire(a, "change"):
        a.close(a.open("f", O_CREAT | O_EXCL | O_WRONLY))
    with crossed_wire(b, "change"), pytest.raises(FileExistsError):
        b.open("f", O_CREAT | O_EXCL | O_WRONLY)


@each_way(17, 18)
@pytest.mark.case(kills=("names-appear-late",), section="RFC 7530 10.8")
def test_a_tree_is_walked(a, b, crossed_wire):
    with crossed_wire(a, "change"):
        a.mkdir("d")
        a.mkdir("d/e")
        a.write_file("d/e/f", b"deep")
    with crossed_wire(b, "ask"):
        assert b.read_file("d/e/f") == b"deep"
    with crossed_wire(b, "list"):
        assert b.listdir("d") == ["e"]


@each_way(19, 20)
@pytest.mark.case(kills=("lock-ignored",), section="RFC 7530 16.10; MS-SMB2 3.3.5.14")
def test_a_lock_keeps_the_other_protocols_clients_out(a, b, crossed_wire):
    a.write_file("f", bytes(100))
    mine, yours = a.open("f", O_RDWR), b.open("f", O_RDWR)
    with crossed_wire(a, "lock"):
        a.lock(mine, F_WRLCK, 0, 10)
    assert not b.try_lock(yours, F_WRLCK, 5, 10)
    assert not b.try_lock(yours, F_RDLCK, 5, 10)
    with crossed_wire(b, "lock"):
        assert b.try_lock(yours, F_WRLCK, 50, 10)


@each_way(21, 22)
@pytest.mark.case(kills=("unlock-ignored",), section="RFC 7530 16.12; MS-SMB2 3.3.5.14.1")
def test_what_is_unlocked_may_be_locked(a, b, crossed_wire):
    a.write_file("f", bytes(100))
    mine, yours = a.open("f", O_RDWR), b.open("f", O_RDWR)
    a.lock(mine, F_WRLCK, 0, 10)
    assert not b.try_lock(yours, F_WRLCK, 0, 10)
    with crossed_wire(a, "lock"):
        a.lock(mine, F_UNLCK, 0, 10)
    with crossed_wire(b, "lock"):
        assert b.try_lock(yours, F_WRLCK, 0, 10)


@each_way(23, 24)
@pytest.mark.case(kills=("lock-kept-over-close",), section="fcntl(2)")
def test_the_death_of_the_holder_releases_its_lock(a, b, crossed_wire):
    a.write_file("f", bytes(100))
    mine, yours = a.open("f", O_RDWR), b.open("f", O_RDWR)
    with crossed_wire(a, "lock"):
        a.lock(mine, F_WRLCK, 0, 10)
    assert not b.try_lock(yours, F_WRLCK, 0, 10)
    a.kill_worker()
    with crossed_wire(b, "lock"):
        assert b.try_lock(yours, F_WRLCK, 0, 10)


@each_way(25, 26)
@pytest.mark.case(level="MAY", section="RFC 7530 9.1; MS-SMB2 3.3.5.12, 3.3.5.13", kills=())
def test_a_lock_may_bind_those_who_do_not_ask(a, b, crossed_wire, observe):
    a.write_file("f", bytes(100))
    mine, yours = a.open("f", O_RDWR), b.open("f", O_RDWR)
    with crossed_wire(a, "lock"):
        a.lock(mine, F_WRLCK, 0, 10)
    try:
        b.pwrite(yours, b"x", 5)
        b.fsync(yours)
    except OSError:
        observe("mandatory: nobody writes what the other protocol's client has locked")
    else:
        observe("advisory: who does not ask for a lock writes")


@each_way(27, 28)
@pytest.mark.case(level="MAY", section="RFC 8881 18.16.3; MS-FSA 2.1.5.5", kills=())
def test_what_another_has_open_may_be_removed(a, b, crossed_wire, observe):
    a.write_file("f", b"still here")
    fd = a.open("f", O_RDWR)
    try:
        with crossed_wire(b, "change"):
            b.unlink("f")
    except OSError:
        observe("what the other protocol's client has open cannot be removed")
        assert a.read_file("f") == b"still here"
        return
    a.evict(fd)
    try:
        found = a.pread(fd, 100)
    except OSError:
        observe("an open file that the other protocol's client removed is lost")
    else:
        assert found == b"still here"
        observe("an open file that the other protocol's client removed can still be read")
