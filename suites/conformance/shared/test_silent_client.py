"""An unreachable client keeps its locks until its lease expires; then other clients get them.

The kernel closes the files of a process that exits (test_locks.py). Here the client is isolated (``controls``
of the target), as after a power failure: the server gets no message and must detect it.

Sources: RFC 7530 9.5 ("The purpose of a lease is to allow a server to remove stale locks that are held by a
client that has crashed or is otherwise unreachable"), 9.6.1 ("Conflicting locks from another client may only
be granted after this lease expiration"), 9.6.3.1 (a courtesy lock, kept after that time: the server
"MUST free the courtesy lock and grant the new request"), 10.4.6 (delegations); MS-SMB2 3.3.7.1 (a lost
connection closes its opens and their locks, except durable opens whose lease caches the handle), 3.3.2.2 (the
timeout of these), 3.3.6.1 (a break that is not acknowledged);
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

NOT_HERE = "the mutation run has one machine for both clients and cannot isolate one"
LEASES, MORE = 3, 30.0
"""A server must release the locks within this many leases and seconds; chosen."""
DURABLE_TIMEOUT = 60.0
"""Timeout in seconds of a durable open if the server reports none (the value of Samba)."""


@pytest.fixture
def expiry(a, crossed_wire, visibility_timeout):
    """Return the seconds after which the server must have released the locks of an isolated client."""
    lease = crossed_wire.lease(a)
    return visibility_timeout + DURABLE_TIMEOUT if lease is None else LEASES * lease + MORE


def granted(request, seconds: float) -> float | None:
    """Request a lock once a second for ``seconds``; return the time until it was granted, or None."""
    start = time.monotonic()
    while not request():
        if time.monotonic() - start > seconds:
            return None
        time.sleep(1.0)
    return time.monotonic() - start


@pytest.mark.case("SHR-SILENT-01", section="RFC 7530 9.6.1, 9.6.3.1", no_mutant_reason=NOT_HERE)
def test_lock_is_kept_for_the_lease_and_then_released(a, b, fds, crossed_wire, network_cut, expiry, observe):
    """The other client is refused the lock at first, and gets it within the expiry."""
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    with network_cut(a):
        with crossed_wire(b, "lock"):
            assert not b.try_lock(fds[1], F_WRLCK, 0, 10), (
                "granted although the lease of its holder has not expired"
            )
        elapsed = granted(lambda: b.try_lock(fds[1], F_WRLCK, 0, 10), expiry)
        assert elapsed is not None, f"a client that was isolated for {expiry:g} s keeps its lock"
    observe(f"the lock of an isolated client is granted to another within {30 * (1 + int(elapsed / 30))} s")


@pytest.mark.case("SHR-SILENT-02", section="RFC 7530 9.6.3.1; flock(2)", no_mutant_reason=NOT_HERE)
def test_flock_is_kept_during_the_lease_and_released_afterwards(a, b, fds, crossed_wire, network_cut, expiry):
    with crossed_wire(a, "lock"):
        a.flock(fds[0], LOCK_EX)
    with network_cut(a):
        assert not b.try_flock(fds[1], LOCK_EX)
        with crossed_wire(b, "lock"):
            elapsed = granted(lambda: b.try_flock(fds[1], LOCK_EX), expiry)
        assert elapsed is not None, f"a client that was isolated for {expiry:g} s keeps its lock"


@pytest.mark.case("SHR-SILENT-03", section="RFC 7530 9.4, 9.6.3.1", no_mutant_reason=NOT_HERE)
def test_waiting_lock_is_granted_after_the_lease(a, b, fds, crossed_wire, network_cut, expiry):
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    with network_cut(a):
        waiting = b.wait_for_lock(fds[1], F_WRLCK, 0, 10, deadline=2 * expiry)
        assert waiting.done(within=expiry), f"not granted within {expiry:g} s of isolation"
        waiting.result()


@pytest.mark.case("SHR-SILENT-04", section="RFC 7530 9.6.3; fcntl(2), Lost locks", no_mutant_reason=NOT_HERE)
def test_reconnected_client_does_not_write_under_its_lost_lock(a, b, fds, crossed_wire, network_cut, expiry):
    """Its write or fsync fails, and the data of the new holder remains."""
    with crossed_wire(a, "lock"):
        a.lock(fds[0], F_WRLCK, 0, 10)
    with network_cut(a):
        elapsed = granted(lambda: b.try_lock(fds[1], F_WRLCK, 0, 10), expiry)
        assert elapsed is not None, f"a client that was isolated for {expiry:g} s keeps its lock"
        b.pwrite(fds[1], b"b's", 0)
        b.fsync(fds[1])
    results = a.each([("pwrite", fds[0], b"a's", 0), ("fsync", fds[0])], deadline=60)
    refused = [result for result in results if isinstance(result, OSError)]
    assert refused, "written as if the lock had never been lost"
    b.evict(fds[1])
    assert b.pread(fds[1], 3) == b"b's"


@pytest.mark.case("SHR-SILENT-05", section="RFC 7530 10.4.6; MS-SMB2 3.3.6.1", no_mutant_reason=NOT_HERE)
def test_delegation_of_an_isolated_client_does_not_block_others(
    a, b, crossed_wire, network_cut, expiry, at_once, observe
):
    """The open of the other client succeeds within the expiry."""
    a.write_file("f", b"first")
    for _ in range(3):
        assert a.read_file("f") == b"first"
    a.open("f")
    with network_cut(a), crossed_wire(b, "query"):
        start = time.monotonic()
        fd = b.start(("open", "f", O_RDWR), deadline=expiry).result()
        elapsed = time.monotonic() - start
        b.pwrite(fd, b"later", 0)
        b.fsync(fd)
    observe(
        "an open waits until the isolated client has expired"
        if elapsed > 2
        else "an open does not wait for the isolated client"
    )
    at_once(lambda: a.read_file("f") == b"later", "what the other client wrote meanwhile")
