"""A client that falls silent: its locks are its own while its lease lasts, and somebody else's afterwards.

A process that dies is closed for by its kernel (test_locks.py). Here nobody says anything to the server any
more: the client is cut off (``controls`` of the target), as one is that has lost its power, and the server
has to find out by itself.

Sources: RFC 7530 9.5 ("The purpose of a lease is to allow a server to remove stale locks that are held by a
client that has crashed or is otherwise unreachable"), 9.6.1 ("Conflicting locks from another client may only
be granted after this lease expiration"), 9.6.3.1 (a lock that is kept beyond that as a courtesy: the server
"MUST free the courtesy lock and grant the new request"), 10.4.6 (delegations); MS-SMB2 3.3.7.1 (a connection
that is lost takes its opens with it, and their locks, but for those that are kept for who comes back: a
durable open whose lease caches the handle), 3.3.2.2 (how long they are), 3.3.6.1 (a break that is not
acknowledged);
fcntl(2), "Lost locks". The Network Lock Manager of NFS version 3 has no leases: known_issues.toml.
"""

from __future__ import annotations

import time
from fcntl import F_WRLCK, LOCK_EX
from os import O_RDWR

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("filesystem", "shared", "two_clients", "isolation"),
    pytest.mark.case(section="RFC 7530 9.6; MS-SMB2 3.3.7.1", level="MUST", kills=()),
]

NOT_HERE = "nobody is cut off where one machine stands for both clients"
LEASES, MORE = 3, 30.0
"""A silent client is forgotten after so many leases and so many seconds: a server looks only now and then."""
KEPT = 60.0
"""Seconds for which an open is kept for who comes back where nothing says it: as long as Samba does."""


@pytest.fixture
def forgotten(a, crossed_wire, visibility_timeout):
    """Return the seconds after which a client that says nothing must have been given up."""
    lease = crossed_wire.lease(a)
    return visibility_timeout + KEPT if lease is None else LEASES * lease + MORE


def granted(ask, seconds: float) -> float | None:
    """Ask for a lock once a second; return after how many seconds it was granted, None: not within these."""
    began = time.monotonic()
    while not ask():
        if time.monotonic() - began > seconds:
            return None
        time.sleep(1.0)
    return time.monotonic() - began


@pytest.mark.case("SHR-SILENT-01", section="RFC 7530 9.6.1, 9.6.3.1", no_mutant_reason=NOT_HERE)
def test_its_lock_is_its_own_for_a_lease_and_anothers_afterwards(
    a, b, fds, crossed_wire, network_cut, forgotten, observe
):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    with network_cut(a):
        with crossed_wire(b, "lock"):
            assert not b.try_lock(fds[1], F_WRLCK, 0, 10), "given away though its holder has just been heard"
        took = granted(lambda: b.try_lock(fds[1], F_WRLCK, 0, 10), forgotten)
        assert took is not None, f"a client that was silent for {forgotten:g} s keeps its lock"
    observe(f"a silent client's lock is given away within {30 * (1 + int(took / 30))} s")


@pytest.mark.case("SHR-SILENT-02", section="RFC 7530 9.6.3.1; flock(2)", no_mutant_reason=NOT_HERE)
def test_so_is_a_lock_of_the_whole_file(a, b, fds, crossed_wire, network_cut, forgotten):
    with crossed_wire(a, "lock"):
        a.flock(fds[0], LOCK_EX)
    with network_cut(a):
        assert not b.try_flock(fds[1], LOCK_EX)
        with crossed_wire(b, "lock"):
            took = granted(lambda: b.try_flock(fds[1], LOCK_EX), forgotten)
        assert took is not None, f"a client that was silent for {forgotten:g} s keeps its lock"


@pytest.mark.case("SHR-SILENT-03", section="RFC 7530 9.4, 9.6.3.1", no_mutant_reason=NOT_HERE)
def test_who_waits_for_its_lock_is_granted_it(a, b, fds, crossed_wire, network_cut, forgotten):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    with network_cut(a):
        waiting = b.wait_for_lock(fds[1], F_WRLCK, 0, 10, deadline=2 * forgotten)
        assert waiting.done(within=forgotten), f"not granted within {forgotten:g} s of silence"
        waiting.result()


@pytest.mark.case("SHR-SILENT-04", section="RFC 7530 9.6.3; fcntl(2), Lost locks", no_mutant_reason=NOT_HERE)
def test_who_comes_back_does_not_write_by_a_lock_that_is_anothers(
    a, b, fds, crossed_wire, network_cut, forgotten
):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    with network_cut(a):
        took = granted(lambda: b.try_lock(fds[1], F_WRLCK, 0, 10), forgotten)
        assert took is not None, f"a client that was silent for {forgotten:g} s keeps its lock"
        b.pwrite(fds[1], b"b's", 0)
        b.fsync(fds[1])
    tried = a.each([("pwrite", fds[0], b"a's", 0), ("fsync", fds[0])], deadline=60)
    refused = [answer for answer in tried if isinstance(answer, OSError)]
    assert refused, "written as if the lock had never been lost"
    b.forget(fds[1])
    assert b.pread(fds[1], 3) == b"b's"


@pytest.mark.case("SHR-SILENT-05", section="RFC 7530 10.4.6; MS-SMB2 3.3.6.1", no_mutant_reason=NOT_HERE)
def test_who_had_a_file_to_itself_does_not_keep_others_out(
    a, b, crossed_wire, network_cut, forgotten, at_once, observe
):
    a.write_file("f", b"first")
    for _ in range(3):
        assert a.read_file("f") == b"first"
    a.open("f")
    with network_cut(a), crossed_wire(b, "ask"):
        began = time.monotonic()
        fd = b.start(("open", "f", O_RDWR), deadline=forgotten).result()
        took = time.monotonic() - began
        b.pwrite(fd, b"later", 0)
        b.fsync(fd)
    observe(
        "an open waits until the silent client is given up" if took > 2 else "an open does not wait for it"
    )
    at_once(lambda: a.read_file("f") == b"later", "what the other client wrote meanwhile")
