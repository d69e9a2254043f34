"""Faults that an administrator makes by the target's ``controls``: an OST without new objects, no space, a
metadata server that restarts.

They concern everyone who uses the file system, so a case runs only if the targets file has its controls.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from fcntl import F_WRLCK
from itertools import count
from os import O_CREAT, O_RDWR

import pytest

from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until

pytestmark = [
    pytest.mark.exclusive,
    pytest.mark.needs("filesystem", "layouts", "shared", "two_clients"),
    pytest.mark.case(level="MUST"),
]
inactive = "Lustre Operations Manual: Lustre Maintenance, Removing and Restoring MDTs and OSTs"
full = "POSIX.1-2024 write(): ERRORS, ENOSPC"
replay = "Lustre Operations Manual: Lustre File System Recovery, Metadata Replay"
MIB = 1 << 20
NAMES = 20


@pytest.fixture
def osts_of_new_file(a, lfs, parts_of):
    """Return a function that creates a file over all OSTs and returns the OSTs of its layout."""

    def create(name):
        lfs(a, "setstripe", "-c", -1, "-S", "64K", name)
        return set(parts_of(a, name)[0].osts)

    return create


@pytest.mark.needs("ost_deactivation")
@pytest.mark.case(
    "LUS-INACTIVE-01", section=inactive, kills=("inactive-has-new-objects", "inactive-takes-another")
)
def test_new_file_has_no_object_on_an_inactive_ost(osts_of_new_file, server_control):
    """While an OST is inactive on the MDS, a file over all OSTs has objects on the others only."""
    before = osts_of_new_file("before")
    with server_control("ost_deactivation"):
        during = osts_of_new_file("during")
        assert during < before
        assert len(during) == len(before) - 1


@pytest.mark.needs("ost_deactivation")
@pytest.mark.case("LUS-INACTIVE-02", section=inactive, kills=("inactive-not-read", "inactive-write-lost"))
def test_data_on_an_inactive_ost_are_read_and_written(a, b, osts_of_new_file, server_control):
    """An OST that is inactive on the MDS only continues to serve its objects to clients."""
    osts_of_new_file("f")
    a.write_file("f", b"a" * 256 * 1024)
    with server_control("ost_deactivation"):
        assert b.read_file("f") == b"a" * 256 * 1024
        b.write_file("f", b"b" * 256 * 1024)
        assert a.read_file("f") == b"b" * 256 * 1024


@pytest.mark.needs("ost_deactivation")
@pytest.mark.case(
    "LUS-INACTIVE-03", section=inactive, kills=("inactive-unlink-refused", "inactive-name-stays")
)
def test_file_on_an_inactive_ost_is_removed(a, b, osts_of_new_file, server_control):
    """A file that has an object on an inactive OST can be removed."""
    osts_of_new_file("f")
    with server_control("ost_deactivation"):
        a.unlink("f")
        assert not b.exists("f")


@pytest.mark.needs("ost_deactivation")
@pytest.mark.case(
    "LUS-INACTIVE-04", section=inactive, kills=("active-again-unused", "active-again-loses-data")
)
def test_activated_ost_has_new_objects_again(a, b, osts_of_new_file, server_control, recovery_timeout):
    """After the OST is active again, a file over all OSTs has an object on each."""
    before = osts_of_new_file("before")
    with server_control("ost_deactivation"):
        osts_of_new_file("during")
    new = (f"after{number}" for number in count())
    over_all = (name if osts_of_new_file(name) == before else None for name in new)
    try:
        name = wait_until(lambda: next(over_all), recovery_timeout, "objects on all OSTs")
    except DeadlineExceeded:
        raise AssertionError(
            f"no object on the OST within {recovery_timeout:g} s of its activation"
        ) from None
    a.write_file(name, b"x" * 256 * 1024)
    assert b.read_file(name) == b"x" * 256 * 1024


@pytest.fixture
def write_more(recovery_timeout):
    """Return a function that writes and flushes 64 MiB behind the first MiB of a file, by dd.

    It returns dd's exit status and messages.
    """
    seconds = recovery_timeout

    def write(session, name):
        argv = ["dd", "if=/dev/zero", f"of={name}", "bs=1M", "seek=1", "count=64", "conv=notrunc,fsync"]
        status, output, errors = session.call("run_program", argv, seconds, deadline=seconds + 10)
        return status, output + errors

    return write


@pytest.mark.needs("space_exhaustion")
@pytest.mark.case("LUS-FULL-01", section=full, kills=("full-accepts", "full-eio", "full-destroys"))
def test_write_without_space_is_reported(a, b, server_control, write_more):
    """[ENOSPC] write() or fsync() reports it, and what was in the file before stays."""
    a.write_file("f", b"kept" * (MIB // 4))
    a.call("sync", deadline=60)
    with server_control("space_exhaustion"):
        status, messages = write_more(a, "f")
        assert status != 0, f"64 MiB were written without space: {messages}"
        assert "No space left on device" in messages
        assert b.pread(b.open("f"), MIB, 0) == b"kept" * (MIB // 4)


@pytest.mark.needs("space_exhaustion")
@pytest.mark.case(
    "LUS-FULL-02",
    section=full,
    kills=("full-forever", "freed-loses-data", "freed-overwrites"),
    builds_on=("LUS-FULL-01",),
)
def test_write_after_space_is_free_again(a, b, server_control, write_more):
    """The write that was refused succeeds after space is free, from the same client."""
    a.write_file("f", b"kept" * (MIB // 4))
    a.call("sync", deadline=60)
    with server_control("space_exhaustion"):
        write_more(a, "f")
    status, messages = write_more(a, "f")
    assert status == 0, messages
    assert b.stat("f").size == 65 * MIB
    assert b.pread(b.open("f"), 4, MIB - 2) == b"pt" + bytes(2)


@pytest.mark.needs("space_exhaustion")
@pytest.mark.case(
    "LUS-FULL-03",
    section="Lustre Operations Manual: Managing Free Space, Handling Full OSTs",
    kills=(
        "full-not-read",
        "full-not-truncated",
        "full-truncate-ignored",
        "full-not-removed",
        "full-name-stays",
    ),
)
def test_file_is_removed_without_space(a, b, server_control):
    """Files can be read, truncated and removed when there is no space, so that there is some again."""
    for name in ("f", "g"):
        a.write_file(name, b"x" * MIB)
    a.call("sync", deadline=60)
    with server_control("space_exhaustion"):
        assert b.read_file("f") == b"x" * MIB
        b.truncate("f", 10)
        assert a.stat("f").size == 10
        b.unlink("g")
        assert not a.exists("g")


@pytest.fixture
def mds_restarted(a, b, server_control, recovery_timeout):
    """Return a context manager: the metadata server is stopped in its body, and recovered after it."""

    @contextmanager
    def restarted():
        with server_control("mds_restart"):
            yield
        for session in (a, b):
            name = f"none-{secrets.token_hex(8)}"
            pending = session.start(("stat", name), deadline=2 * recovery_timeout)
            assert pending.done(within=recovery_timeout), f"{session.name}: no response after the restart"
            (found,) = pending.results()
            assert isinstance(found, FileNotFoundError), f"{session.name}: {found}"

    return restarted


@pytest.mark.needs("mds_restart")
@pytest.mark.case(
    "LUS-RECOVERY-01",
    section=replay,
    kills=("restart-closes-files", "restart-ends-writes", "restart-never-recovers", "restart-empties-files"),
)
def test_open_file_survives_the_restart(a, b, mds_restarted):
    """A descriptor that was open before the restart reads and writes its file after it."""
    a.write_file("f", b"before")
    fd = a.open("f", O_RDWR)
    with mds_restarted():
        pass
    assert a.pread(fd, 10) == b"before"
    a.pwrite(fd, b"after!")
    assert b.read_file("f") == b"after!"


@pytest.mark.needs("mds_restart")
@pytest.mark.case(
    "LUS-RECOVERY-02",
    section=replay,
    kills=("restart-destroys-orphans", "restart-orphans-end-writes", "restart-loses-removals"),
)
def test_unlinked_open_file_survives_the_restart(a, b, mds_restarted):
    """A file that was unlinked while it was open is read and written after the restart."""
    a.write_file("f", b"before")
    fd, theirs = a.open("f", O_RDWR), b.open("f")
    b.unlink("f")
    with mds_restarted():
        pass
    assert a.pread(fd, 10) == b.pread(theirs, 10) == b"before"
    a.pwrite(fd, b"after!")
    assert a.pread(fd, 10) == b.pread(theirs, 10) == b"after!"
    assert not b.exists("f")


@pytest.mark.needs("mds_restart")
@pytest.mark.case(
    "LUS-RECOVERY-03",
    section=replay,
    kills=(
        "restart-loses-creates",
        "restart-loses-renames",
        "restart-loses-removals",
        "restart-empties-files",
    ),
)
def test_changes_before_the_restart_are_replayed(a, b, mds_restarted):
    """Names that were created, renamed and removed just before the restart are so after it."""
    for session in (a, b):
        calls = [("write_file", f"{session.name}-{number}", b"data") for number in range(NAMES)]
        calls += [
            ("rename", f"{session.name}-{number}", f"{session.name}-new{number}") for number in range(5)
        ]
        calls += [("unlink", f"{session.name}-{number}") for number in range(5, 10)]
        done = session.each(calls, deadline=60)
        assert not [result for result in done if isinstance(result, OSError)]
    expected = sorted(
        f"{session.name}-{name}"
        for session in (a, b)
        for name in [*(f"new{number}" for number in range(5)), *map(str, range(10, NAMES))]
    )
    with mds_restarted():
        pass
    assert a.listdir() == b.listdir() == expected
    assert {b.read_file(name) for name in expected} == {b"data"}


@pytest.mark.needs("mds_restart", "locks")
@pytest.mark.case(
    "LUS-RECOVERY-04",
    section=replay,
    kills=("restart-forgets-locks", "restart-widens-locks", "restart-keeps-locks"),
)
def test_lock_survives_the_restart(a, b, mds_restarted):
    """A record lock that was held before the restart is held after it, and can be released."""
    a.write_file("f", bytes(100))
    mine, theirs = a.open("f", O_RDWR), b.open("f", O_RDWR)
    a.lock(mine, F_WRLCK, 0, 10)
    with mds_restarted():
        pass
    assert not b.try_lock(theirs, F_WRLCK, 0, 10), "two clients have one lock after the restart"
    assert b.try_lock(theirs, F_WRLCK, 50, 10)
    a.close(mine)
    assert b.try_lock(theirs, F_WRLCK, 0, 10)


@pytest.mark.needs("mds_restart")
@pytest.mark.case(
    "LUS-RECOVERY-05",
    section=replay,
    kills=("stopped-refuses", "stopped-goes-on", "restart-ends-calls", "restart-forgets-calls"),
)
def test_call_during_the_restart_waits_and_succeeds(a, b, server_control, recovery_timeout):
    """A call that needs the metadata server while it is stopped ends after the restart, without an error."""
    with server_control("mds_restart"):
        pending = a.start(("open", "g", O_RDWR | O_CREAT), deadline=2 * recovery_timeout)
        assert not pending.done(within=2.0), "a file was created without a metadata server"
    assert pending.done(within=recovery_timeout), "the call did not end after the restart"
    fd = pending.result()
    a.pwrite(fd, b"later")
    assert b.read_file("g") == b"later"


@pytest.mark.needs("mds_restart")
@pytest.mark.case(
    "LUS-RECOVERY-06",
    section="Lustre Operations Manual: Lustre File System Recovery",
    kills=("stopped-stops-writes", "stopped-reads-zeros", "restart-undoes-writes"),
)
def test_data_are_written_while_the_metadata_server_is_stopped(a, b, mds_restarted):
    """A descriptor that is open reads and writes its objects on the OSTs without the metadata server."""
    a.write_file("f", b"before")
    fd = a.open("f", O_RDWR)
    with mds_restarted():
        a.pwrite(fd, b"during")
        assert a.pread(fd, 10) == b"during"
    assert b.read_file("f") == b"during"
