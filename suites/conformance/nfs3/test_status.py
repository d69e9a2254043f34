"""The status monitor of the server (NSM, XNFS 11): a host that has restarted has no locks (RFC 1813 6.2).

SM_NOTIFY releases all locks of the host that it names, also those of other programs on this machine. So the
cases need the control ``restart``, which is given only for servers that are used for tests alone.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator

import pytest

from storagetest.config import Variant
from storagetest.errors import DeadlineExceeded, TargetDead
from storagetest.polling import wait_until
from storagetest.wire.nfs3.harness import Nfs3Harness
from storagetest.wire.nfs3.locks import LockOwner
from storagetest.wire.nfs3.mount import MOUNT_V3
from storagetest.wire.nfs3.nlm import nlm4_stats
from storagetest.wire.nfs3.nsm import SM_VERS, stat_chge
from storagetest.wire.nfs3.types import nfs_fh3
from storagetest.wire.rpc import RpcConnection

pytestmark = [
    pytest.mark.needs("nfs3-wire", "locks", "restart"),
    pytest.mark.case(level="MUST", section="RFC 1813 6.2"),
    pytest.mark.exclusive,
]

GRANTED, DENIED = nlm4_stats.NLM4_GRANTED, nlm4_stats.NLM4_DENIED
RELEASED = 60.0
"""Seconds within which the locks are released (chosen)."""
STATE = 3
"""The state of a host that is up after a restart: odd, and another than before (XNFS 11.1)."""


@pytest.fixture
def monitor(variant: Variant, bench: Nfs3Harness) -> RpcConnection:
    """Return a connection to the server's status monitor; skip if none is found."""
    if variant.options.wire is not None and variant.options.wire_status is None:
        pytest.skip("the target has `wire`, and no `wire_status`: the status monitor is not known")
    try:
        rpc = bench.rpc(SM_VERS)
        rpc.call("NULL")
    except TargetDead as error:
        pytest.skip(f"no status monitor was found: {error}")
    return rpc


@pytest.fixture
def address(bench: Nfs3Harness, manager: RpcConnection) -> bytes:
    """Return the address by which the server knows this machine; skip if it is not certain."""
    own = manager.link.local_address.encode()
    mount = bench.rpc(MOUNT_V3)
    mount.call("MNT", bench.endpoint.export.encode())
    seen = {one.ml_hostname for one in mount.call("DUMP")}
    if own in seen or not seen:
        return own
    if len(seen) > 1:
        names = ", ".join(sorted(name.decode(errors="replace") for name in seen))
        pytest.skip(f"this machine is {own.decode()}, and the server knows it as one of {names}")
    return seen.pop()


@pytest.fixture
def held(manager: RpcConnection, here) -> Iterator[tuple[nfs_fh3, LockOwner, LockOwner]]:
    """Yield a file, the owner that has locked it, and another one."""
    file: nfs_fh3 = here.file(data=b"data")
    caller = b"storagetest-" + secrets.token_hex(4).encode()
    holder, other = LockOwner(manager, caller, 1), LockOwner(manager, caller, 2)

    def locks() -> bool:
        status = holder.lock(file, 10, 10)
        if status == nlm4_stats.NLM4_DENIED_NOLOCKS:
            pytest.skip("the server's lock manager has no resources for a lock (NLM4_DENIED_NOLOCKS)")
        return status == GRANTED

    wait_until(locks, RELEASED, "a lock, after the server's grace period")
    yield file, holder, other
    with contextlib.suppress(AssertionError):
        holder.release()
    other.release()


@pytest.mark.case("NSM-NOTIFY-FREES", level="SHOULD", kills=("nsm-notify-ignored",))
def test_a_host_that_has_restarted_has_no_locks(monitor: RpcConnection, address: bytes, held) -> None:
    file, holder, other = held
    assert other.lock(file, 10, 10) == DENIED
    for name in (holder.caller, address):
        monitor.call("NOTIFY", stat_chge(name, STATE))
    with contextlib.suppress(DeadlineExceeded):
        wait_until(lambda: other.lock(file, 10, 10) == GRANTED, RELEASED, "a lock of a host that restarted")
    status = other.lock(file, 10, 10)
    assert status == GRANTED, f"{status.name} {RELEASED:g} s after SM_NOTIFY of the holder's host"


@pytest.mark.case("NSM-NOTIFY-OTHER", kills=("nsm-notify-all",))
def test_the_restart_of_another_host_releases_nothing(monitor: RpcConnection, held) -> None:
    file, _, other = held
    monitor.call("NOTIFY", stat_chge(b"storagetest-stranger.invalid", STATE))
    monitor.call("NULL")
    status = other.lock(file, 10, 10)
    assert status == DENIED, f"{status.name}, not NLM4_DENIED"
