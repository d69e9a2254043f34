"""A port mapper and a status monitor (NSM) of ours, for a server that starts or locks only with them.

They speak RFC 1833 and XNFS 11 with the codecs of the suite. The port mapper accepts every registration, and
knows only the status monitor. The status monitor agrees to monitor every name. It notifies no one by itself,
and passes the SM_NOTIFY of a host on to the lock manager that monitors it.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storagetest.wire.nfs3.nsm import (
    SM_VERS,
    mon,
    mon_id,
    my_id,
    sm_res,
    sm_stat,
    sm_stat_res,
    sm_status,
    stat_chge,
)
from storagetest.wire.rpc import RpcConnection
from storagetest.wire.rpc.rpcbind import PMAP_PORT, PMAP_VERS, RPCBVERS
from storagetest.wire.rpc.server import RpcServer
from storagetest.wire.tcp import Listener, RecordedConnection, listen
from storagetest.wire.xdr.codecs import VOID, Procedure, Program

CALL_TIMEOUT = 60.0
"""Timeout in seconds of the call of a lock manager, a bound on a hang (chosen)."""
STATE = 1
"""State number of the status monitor: odd, the machine is up (XNFS 11.1)."""


@dataclass
class StatusMonitor:
    """The service of SM_VERS. ``monitored`` has the names that it was given and not relieved of.

    ``lock_port`` is the port of the lock manager on 127.0.0.1, which monitors them.
    """

    lock_port: int
    monitored: dict[bytes, mon] = field(default_factory=dict)

    def serve(self, procedure: str, argument: Any) -> Any:
        """Return the result of a procedure."""
        match argument:
            case mon():
                self.monitored[argument.monitored.mon_name] = argument
                return sm_stat_res(sm_res.STAT_SUCC, STATE)
            case mon_id():
                self.monitored.pop(argument.mon_name, None)
                return sm_stat(STATE)
            case my_id():
                self.monitored.clear()
                return sm_stat(STATE)
            case stat_chge(name, state):
                if name in self.monitored:
                    self._pass_on(self.monitored[name], state)
                return None
        raise LookupError(procedure)

    def _pass_on(self, entry: mon, state: int) -> None:
        """Call the procedure that ``entry`` names (XNFS 11.3, SM_MON)."""
        wanted = entry.monitored.id
        called = Procedure(wanted.my_proc, "SM_NOTIFY", sm_status, VOID)
        program = Program(wanted.my_prog, wanted.my_vers, "NLM", {wanted.my_proc: called})
        with RecordedConnection.connect("127.0.0.1", self.lock_port, deadline=CALL_TIMEOUT) as link:
            argument = sm_status(entry.monitored.mon_name, state, entry.priv)
            RpcConnection(link, program, deadline=CALL_TIMEOUT).call("SM_NOTIFY", argument)


@dataclass
class PortMapper:
    """The service of both versions; ``status`` is the port of the status monitor, ``address`` its address."""

    address: str = ""
    status: int = 0

    def serve(self, procedure: str, argument: Any) -> Any:
        """Return the result of a procedure."""
        known = self.status and getattr(argument, "prog", None) == SM_VERS.number
        match procedure:
            case "SET" | "UNSET":
                return True
            case "GETPORT":
                return self.status if known else 0
            case "GETADDR":
                wanted = self.status and argument.r_prog == SM_VERS.number
                return f"{self.address}.{self.status >> 8}.{self.status & 255}".encode() if wanted else b""
        raise LookupError(procedure)


@contextlib.contextmanager
def port_mapper(path: Path, lock_port: int) -> Iterator[PortMapper]:
    """Serve on the local socket ``path``, and on port 111 of a loopback address; yield the service.

    Its address is "" if port 111 cannot be bound: it needs root. Then there is no status monitor.
    """
    mapper, monitor = PortMapper(), StatusMonitor(lock_port)
    services = {PMAP_VERS: mapper.serve, RPCBVERS: mapper.serve}
    local = socket.socket(socket.AF_UNIX)
    local.bind(str(path))
    local.listen(16)
    with contextlib.ExitStack() as stack:
        stack.callback(path.unlink, missing_ok=True)
        stack.enter_context(RpcServer(Listener(local), services))
        reachable = _listen_at_111()
        if reachable is not None:
            mapper.address, listener = reachable
            status = stack.enter_context(RpcServer(listen(mapper.address), {SM_VERS: monitor.serve}))
            mapper.status = status.port
            stack.enter_context(RpcServer(listener, services))
        yield mapper


def _listen_at_111() -> tuple[str, Listener] | None:
    for _ in range(20):
        address = f"127.{random.randint(16, 250)}.{random.randint(1, 250)}.{random.randint(1, 250)}"
        with contextlib.suppress(OSError):
            return address, listen(address, PMAP_PORT)
    return None
