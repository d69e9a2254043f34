"""A server that restarts: grace and reclaims of NLM (RFC 1813 6.1.4), the write verifier (4.8), stable data.

Each case restarts the server by the target's control ``restart``, and waits for the end of its grace period.
So all of them are `slow`, and no other case runs on the server at that time.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.suites.conformance.nfs_restart import RestartableServer, Run, wait_for_end_of_grace
from storagetest.wire.nfs3.client import ok
from storagetest.wire.nfs3.harness import ARRANGES, Nfs3Export, Nfs3Harness
from storagetest.wire.nfs3.locks import LockOwner
from storagetest.wire.nfs3.nlm import NLM4_VERS, nlm4_stats
from storagetest.wire.nfs3.types import nfs_fh3, stable_how
from storagetest.wire.rpc import RpcConnection, auth_sys

pytestmark = [
    pytest.mark.needs("nfs3-wire", "restart"),
    pytest.mark.case(level="MUST", section="RFC 1813 6.1.4"),
    pytest.mark.slow,
    pytest.mark.exclusive,
]

GRANTED, DENIED = nlm4_stats.NLM4_GRANTED, nlm4_stats.NLM4_DENIED
GRACE = nlm4_stats.NLM4_DENIED_GRACE_PERIOD
STABLE = "RFC 1813 3.3.7"
VERIFIER = "RFC 1813 4.8"
SHORTEST = 5.0
"""Seconds from the start of a restart for which a server is expected to be in grace (chosen)."""

Owners = Callable[[int], LockOwner]


class Server(RestartableServer):
    """The server of a case, which can restart it. ``file`` is one that only the server's observer locks."""

    def __init__(self, export: Nfs3Export, file: nfs_fh3, run: Run) -> None:
        super().__init__(run)
        self._export, self._file = export, file

    def connections(self, stack: ExitStack) -> Sequence[RpcConnection]:
        """Return a new connection to NFS, and one to the lock manager."""
        bench, observer = stack.enter_context(Nfs3Harness(self._export.endpoint)), auth_sys(machine=ARRANGES)
        return [bench.rpc(cred=observer), bench.rpc(NLM4_VERS, cred=observer)]

    def ask(self) -> None:
        """Ask NFS for its root, and the lock manager for nothing."""
        with Nfs3Harness(self._export.endpoint) as bench:
            bench.arranger().attributes(self._export.root)
            bench.rpc(NLM4_VERS).call("NULL")

    def renew(self) -> None:
        """Renew nothing: the locks of NLM have no lease."""

    def after_grace(self) -> None:
        """Wait until a new LOCK does not end with NLM4_DENIED_GRACE_PERIOD, or raise AssertionError."""
        wait_for_end_of_grace(self._locks)

    def _locks(self) -> bool:
        with Nfs3Harness(self._export.endpoint) as bench:
            rpc = bench.rpc(NLM4_VERS, cred=auth_sys(machine=ARRANGES))
            observer = LockOwner(rpc, b"storagetest-observer", 1)
            if observer.lock(self._file) == GRACE:
                return False
            observer.release()
        return True

    def early(self, status: nlm4_stats, *wanted: nlm4_stats) -> None:
        """Claim one of ``wanted`` within :data:`SHORTEST` seconds; skip if another status came later."""
        took = self.took
        if status not in wanted and took > SHORTEST:
            pytest.skip(f"{status.name} came {took:.1f} s after the restart, perhaps after the grace period")
        assert status in wanted, f"{status.name}, not {' or '.join(one.name for one in wanted)}"


@pytest.fixture
def server(about, here, manager: RpcConnection, restart_target) -> Iterator[Server]:
    """Yield the server, which is in no grace period before the case and after it."""
    manager.call("NULL")
    made = Server(about.get(), here.file(b"observed"), restart_target)
    made.after_grace()
    yield made
    if made.was_restarted:
        made.after_grace()


@pytest.fixture
def file(here) -> nfs_fh3:
    """Return a file with data that are stable."""
    made: nfs_fh3 = here.file(data=b"data")
    return made


@pytest.fixture
def owners(bench: Nfs3Harness) -> Iterator[Owners]:
    """Return a factory of processes on one host, each on a new connection; their locks are released."""
    made: list[LockOwner] = []
    caller = b"storagetest-" + secrets.token_hex(4).encode()

    def make(process: int) -> LockOwner:
        made.append(LockOwner(bench.rpc(NLM4_VERS), caller, process))
        return made[-1]

    yield make
    for owner in made:
        with contextlib.suppress(RemoteProtocolError, AssertionError):  # that connection has ended
            owner.release()


HOLDER, OTHER = 1, 2


@pytest.fixture
def held(server: Server, owners: Owners, file: nfs_fh3) -> nfs_fh3:
    """Return the file, of which HOLDER has locked bytes 10 to 19."""
    assert not server.was_restarted
    status = owners(HOLDER).lock(file, 10, 10)
    if status == nlm4_stats.NLM4_DENIED_NOLOCKS:
        pytest.skip("the server's lock manager has no resources for a lock (NLM4_DENIED_NOLOCKS)")
    assert status == GRANTED, status.name
    return file


@pytest.mark.case("NLM-GRACE-LOCK", kills=("nlm-grace-granted", "nlm-grace-denied"))
def test_a_new_lock_waits_for_the_end_of_grace(server: Server, owners: Owners, held: nfs_fh3) -> None:
    server.restart()
    server.early(owners(OTHER).lock(held, 100, 10), GRACE)


@pytest.mark.case("NLM-GRACE-CONFLICT", kills=("nlm-grace-granted",))
def test_a_lock_that_is_not_yet_reclaimed_is_not_given_away(
    server: Server, owners: Owners, held: nfs_fh3
) -> None:
    server.restart()
    server.early(owners(OTHER).lock(held, 10, 10), GRACE, DENIED)
    server.early(owners(HOLDER).lock(held, 10, 10, reclaim=True), GRANTED)


@pytest.mark.case("NLM-GRACE-RECLAIM", kills=("nlm-reclaim-grace", "nlm-reclaim-lost"))
def test_a_reclaimed_lock_is_in_the_way_of_others(server: Server, owners: Owners, held: nfs_fh3) -> None:
    server.restart()
    server.early(owners(HOLDER).lock(held, 10, 10, reclaim=True), GRANTED)
    server.after_grace()
    status = owners(OTHER).lock(held, 10, 10)
    assert status == DENIED, f"{status.name}, not NLM4_DENIED"


@pytest.mark.case("NLM-GRACE-END", kills=("nlm-grace-endless",))
def test_a_lock_that_was_not_reclaimed_is_free_after_grace(
    server: Server, owners: Owners, held: nfs_fh3
) -> None:
    server.restart()
    owners(OTHER).lock(held, 10, 10)
    server.after_grace()
    status = owners(OTHER).lock(held, 10, 10)
    assert status == GRANTED, f"{status.name}, not NLM4_GRANTED"


@pytest.mark.case("NLM-RECLAIM-LATE", level="SHOULD", kills=("nlm-reclaim-late",))
def test_a_lock_is_not_reclaimed_after_grace(server: Server, owners: Owners, held: nfs_fh3, observe) -> None:
    server.restart()
    server.after_grace()
    status = owners(HOLDER).lock(held, 10, 10, reclaim=True)
    observe(status.name)
    assert status != GRANTED, "the grace period is over"


@pytest.mark.case("NF3-RESTART-DATA", section=STABLE, kills=("restart-data",))
def test_stable_data_survive_a_restart(server: Server, bench: Nfs3Harness, file: nfs_fh3) -> None:
    server.restart()
    assert ok(bench.client().read(file, 0, 4)).data == b"data"


@pytest.mark.case("NF3-RESTART-WRITE", section=VERIFIER, kills=("restart-write-verifier",))
def test_the_verifier_of_write_changes(server: Server, bench: Nfs3Harness, file: nfs_fh3) -> None:
    before, (written, _) = verifiers(server, bench, file)
    assert written != before, "the verifier of WRITE is that of before the restart"


@pytest.mark.case(
    "NF3-RESTART-COMMIT", section=VERIFIER, kills=("restart-write-verifier", "restart-commit-verifier")
)
def test_the_verifier_of_commit_changes(server: Server, bench: Nfs3Harness, file: nfs_fh3) -> None:
    before, (_, committed) = verifiers(server, bench, file)
    assert committed != before, "the verifier of COMMIT is that of WRITE before the restart"


def verifiers(server: Server, bench: Nfs3Harness, file: nfs_fh3) -> tuple[bytes, tuple[bytes, bytes]]:
    """Return the verifier of an UNSTABLE WRITE before a restart, and those of WRITE and COMMIT after it."""

    def write_and_commit() -> tuple[bytes, bytes]:
        nfs = bench.client()
        written = ok(nfs.write(file, 0, b"again", stable=stable_how.UNSTABLE))
        return written.verf, ok(nfs.commit(file)).verf

    before, _ = write_and_commit()
    server.restart()
    server.after_grace()
    return before, write_and_commit()
