"""NLM version 4 (RFC 1813 6, X/Open XNFS 10): an owner of locks, and the service that a server calls back.

A server calls back at the address of its client: it asks port 111 there for the port of NLM. So
:class:`LockCallbacks` serves both programs on port 111, which needs the privilege.
"""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nfs3.nlm import (
    NLM4_VERS,
    fsh4_access,
    fsh4_mode,
    nlm4_cancargs,
    nlm4_lock,
    nlm4_lockargs,
    nlm4_notify,
    nlm4_res,
    nlm4_share,
    nlm4_shareargs,
    nlm4_stat,
    nlm4_stats,
    nlm4_testargs,
    nlm4_testrply,
    nlm4_unlockargs,
)
from storagetest.wire.nfs3.types import nfs_fh3
from storagetest.wire.rpc import RpcConnection
from storagetest.wire.rpc.rpcbind import PMAP_PORT, PMAP_VERS, RPCBVERS
from storagetest.wire.rpc.server import RpcServer
from storagetest.wire.tcp import listen

END = 0
"""The length of a range that ends where the file ends, however long it is (RFC 1813 6.1.4, l_len)."""

_cookies = itertools.count(1)


@dataclass(frozen=True, slots=True)
class LockOwner:
    """A process ``svid`` on the host ``caller`` that locks on ``rpc``, a connection to NLM4_VERS."""

    rpc: RpcConnection
    caller: bytes
    svid: int
    used: list[nfs_fh3] = field(default_factory=list)
    """The files on which it called LOCK."""
    shared: list[tuple[nfs_fh3, fsh4_mode, fsh4_access]] = field(default_factory=list)
    """The arguments of its calls of SHARE."""

    @property
    def handle(self) -> bytes:
        """The opaque name of the owner (RFC 1813 6.1.4, oh)."""
        return b"%d@%s" % (self.svid, self.caller)

    def lock(
        self,
        file: nfs_fh3,
        offset: int = 0,
        length: int = END,
        *,
        exclusive: bool = True,
        block: bool = False,
        reclaim: bool = False,
        procedure: str = "LOCK",
    ) -> nlm4_stats:
        """Return the status of LOCK, or of NM_LOCK."""
        self.used.append(file)
        region = self.region(file, offset, length)
        argument = nlm4_lockargs(_cookie(), block, exclusive, region, reclaim, 1)
        return self._status(procedure, argument)

    def test(
        self, file: nfs_fh3, offset: int = 0, length: int = END, *, exclusive: bool = True
    ) -> nlm4_testrply:
        """Return the result of TEST: its status, and the holder of a lock in the way."""
        argument = nlm4_testargs(_cookie(), exclusive, self.region(file, offset, length))
        result = self.rpc.call("TEST", argument)
        assert result.cookie == argument.cookie, "the cookie of TEST's result is not that of the call"
        found: nlm4_testrply = result.stat
        return found

    def unlock(self, file: nfs_fh3, offset: int = 0, length: int = END) -> nlm4_stats:
        """Return the status of UNLOCK."""
        return self._status("UNLOCK", nlm4_unlockargs(_cookie(), self.region(file, offset, length)))

    def cancel(
        self, file: nfs_fh3, offset: int = 0, length: int = END, *, exclusive: bool = True
    ) -> nlm4_stats:
        """Return the status of CANCEL, of a LOCK that waits."""
        region = self.region(file, offset, length)
        return self._status("CANCEL", nlm4_cancargs(_cookie(), block=True, exclusive=exclusive, alock=region))

    def share(self, file: nfs_fh3, deny: fsh4_mode, access: fsh4_access) -> nlm4_stats:
        """Return the status of SHARE."""
        self.shared.append((file, deny, access))
        return self._share("SHARE", file, deny, access)

    def unshare(self, file: nfs_fh3, deny: fsh4_mode, access: fsh4_access) -> nlm4_stats:
        """Return the status of UNSHARE."""
        return self._share("UNSHARE", file, deny, access)

    def free_all(self) -> None:
        """FREE_ALL: the host of this owner has forgotten all its locks."""
        self.rpc.call("FREE_ALL", nlm4_notify(self.caller, 1))

    def region(self, file: nfs_fh3, offset: int, length: int) -> nlm4_lock:
        """Return a range of ``file`` that this owner names."""
        return nlm4_lock(self.caller, file.data, self.handle, self.svid, offset, length)

    def release(self) -> None:
        """Release what the owner may have. Raises AssertionError if UNLOCK is refused."""
        for file in {file.data: file for file in self.used}.values():
            self.cancel(file)
            status = self.unlock(file)
            assert status == nlm4_stats.NLM4_GRANTED, f"UNLOCK of a whole file ended with {status.name}"
        for file, deny, access in self.shared:
            self.unshare(file, deny, access)
        self.used.clear()
        self.shared.clear()

    def confirm(self, granted: Granted) -> None:
        """Accept a lock whose GRANTED_MSG waits for a GRANTED_RES."""
        if granted.procedure == "GRANTED_MSG":
            result = nlm4_res(granted.argument.cookie, nlm4_stat(nlm4_stats.NLM4_GRANTED))
            self.rpc.call("GRANTED_RES", result)

    def _status(self, procedure: str, argument: Any) -> nlm4_stats:  # noqa: ANN401  # the procedure's argument
        result: nlm4_res = self.rpc.call(procedure, argument)
        assert result.cookie == argument.cookie, f"the cookie of {procedure}'s result is not that of the call"
        return result.stat.stat

    def _share(self, procedure: str, file: nfs_fh3, deny: fsh4_mode, access: fsh4_access) -> nlm4_stats:
        share = nlm4_share(self.caller, file.data, self.handle, deny, access)
        argument = nlm4_shareargs(_cookie(), share, reclaim=False)
        result = self.rpc.call(procedure, argument)
        assert result.cookie == argument.cookie, f"the cookie of {procedure}'s result is not that of the call"
        status: nlm4_stats = result.stat
        return status


@dataclass(frozen=True, slots=True)
class Granted:
    """A callback: ``procedure`` is GRANTED, or GRANTED_MSG, which waits for a GRANTED_RES."""

    procedure: str
    argument: nlm4_testargs


class LockCallbacks:
    """Serves the port mapper and NLM on port 111 of ``address``; raises OSError if that is not possible.

    A context manager. Every GRANTED is accepted.
    """

    def __init__(self, address: str) -> None:
        self._calls: queue.Queue[Granted] = queue.Queue()
        self._address = f"{address}.{PMAP_PORT >> 8}.{PMAP_PORT & 255}".encode()
        services: dict[Any, Callable[[str, Any], Any]] = {
            PMAP_VERS: self._map,
            RPCBVERS: self._map,
            NLM4_VERS: self._serve,
        }
        self._server = RpcServer(listen(address, PMAP_PORT), services)

    def wait(self, *owners: LockOwner, deadline: float) -> Granted:
        """Return the next lock that is granted to one of ``owners``.

        Raises RemoteProtocolError if there is none within ``deadline`` seconds.
        """
        until = time.monotonic() + deadline
        while True:
            try:
                granted = self._calls.get(timeout=max(until - time.monotonic(), 0.001))
            except queue.Empty:
                raise RemoteProtocolError(
                    f"RFC 1813 6.1.4: no GRANTED within {deadline:g} s after the lock in the way was released"
                ) from None
            if granted.argument.alock.oh in {owner.handle for owner in owners}:
                return granted

    def __enter__(self) -> LockCallbacks:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _map(self, procedure: str, argument: Any) -> Any:  # noqa: ANN401  # those of the procedure
        if procedure == "GETPORT":
            return PMAP_PORT if argument.prog == NLM4_VERS.number else 0
        if procedure == "GETADDR":
            return self._address if argument.r_prog == NLM4_VERS.number else b""
        raise LookupError(procedure)

    def _serve(self, procedure: str, argument: Any) -> Any:  # noqa: ANN401  # likewise
        if procedure not in ("GRANTED", "GRANTED_MSG"):
            raise LookupError(procedure)
        self._calls.put(Granted(procedure, argument))
        if procedure == "GRANTED_MSG":
            return None
        return nlm4_res(argument.cookie, nlm4_stat(nlm4_stats.NLM4_GRANTED))


def _cookie() -> bytes:
    return next(_cookies).to_bytes(4, "big")
