"""A host's association with one controller (NVM Express Base 2.3, sections 3.3 and 6.3): its queues.

:meth:`ControllerSession.connect` initializes a controller as an initiator does: ICReq, Connect, CC.EN,
CSTS.RDY, Identify, Set Features (Number of Queues). Closing shuts the controller down (CC.SHN) and closes
every connection, so that no state is left on the target.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, fabrics
from storagetest.wire.nvme.codes import Cns, Feature, Property, StatusCode, status_name
from storagetest.wire.nvme.limits import Limits
from storagetest.wire.nvme.structures import (
    CC_ENABLE,
    Cap,
    ControllerData,
    NamespaceData,
    NvmCommandLimits,
    active_namespaces,
    whole_list,
)
from storagetest.wire.nvme_tcp.pdu import ICReq
from storagetest.wire.nvme_tcp.queue import CommandResult, Queue
from storagetest.wire.tcp import Connector, PeerClosed, RecordedConnection, ResponseTimeout

CC_SHUTDOWN_NORMAL = 0x4000
KATO = 120_000
"""Default Keep Alive Timeout, in ms: the default of TCP (Base 5.2.26.1.8).

0 would disable the timer, which this transport requires (NVMe/TCP 3.4, Base 3.9.1).
"""
CSTS_READY, CSTS_FATAL, CSTS_SHUTDOWN_DONE = 0x01, 0x02, 0x08


@dataclass(frozen=True, slots=True)
class Identity:
    """A host's identity (Base 6.3): an NQN and a Host Identifier of 16 bytes."""

    nqn: str
    hostid: bytes

    @classmethod
    def fresh(cls) -> Identity:
        """Return a new random identity; each case uses its own."""
        name = uuid.uuid4()
        return cls(f"nqn.2014-08.org.nvmexpress:uuid:{name}", name.bytes)


@dataclass(frozen=True, slots=True)
class SubsystemEndpoint:
    """Address of a subsystem, and timeouts in seconds.

    ``deadline`` is for connecting and for every response, ``close_timeout`` for the end of a connection.
    ``any_controller`` is the CNTLID that requests any controller: FFFFh in the dynamic model, FFFEh in the
    static one (Base 3.1.2, 6.3). ``namespace`` is the NSID that the user has named, or 0;
    ``host`` the host that the subsystem lets in, if that is not any.
    """

    address: str
    port: int
    subnqn: str
    deadline: float = 10.0
    close_timeout: float = 10.0
    connector: Connector | None = None
    any_controller: int = fabrics.ANY_CONTROLLER
    namespace: int = 0
    host: Identity | None = None


ConnectionCallback = Callable[[RecordedConnection, str], None]
"""``note(connection, name)`` is called with each new connection."""


def _ignore(link: RecordedConnection, name: str) -> None:
    """Record nothing."""


def open_queue(
    endpoint: SubsystemEndpoint,
    icreq: ICReq | None = None,
    *,
    name: str = "queue",
    note: ConnectionCallback = _ignore,
) -> Queue:
    """Connect to ``endpoint`` and exchange ICReq and ICResp; no Connect command yet."""
    link = RecordedConnection.connect(
        endpoint.address, endpoint.port, deadline=endpoint.deadline, connector=endpoint.connector
    )
    note(link, name)
    try:
        queue = Queue.open(link, icreq, deadline=endpoint.deadline)
    except BaseException:
        link.close()
        raise
    queue.close_timeout = endpoint.close_timeout
    return queue


def connect_queue(
    queue: Queue,
    *,
    subnqn: str | bytes,
    identity: Identity,
    qid: int = 0,
    sqsize: int = 31,
    cntlid: int = fabrics.ANY_CONTROLLER,
    kato: int = KATO,
    cattr: int = 0,
    recfmt: int = 0,
) -> CommandResult:
    """Send a Connect command (Base 6.3) and return its result, whatever the status.

    ``kato`` applies to the admin queue only; for an I/O queue the field is reserved.
    """
    data = fabrics.ConnectData(identity.hostid, cntlid, subnqn, identity.nqn).encode()
    command = fabrics.connect(qid=qid, sqsize=sqsize, kato=0 if qid else kato, cattr=cattr, recfmt=recfmt)
    result = queue.run(command, data=data, inside=True)
    if result.ok:
        queue.qid = qid
        queue.sqsize = sqsize
        queue.sq_flow_control = result.cqe.sqhd != 0xFFFF
    return result


class ConnectRefused(RemoteProtocolError):
    """A Connect of an admin queue ended with ``status``."""

    def __init__(self, subnqn: str, result: CommandResult) -> None:
        name = status_name(result.status)
        super().__init__(f"Connect to {subnqn} was refused: {name}{_wrong_parameter(result)}")
        self.status = result.status


@dataclass
class ControllerSession:
    """A host's association with one controller: its admin queue and I/O queues. A context manager."""

    endpoint: SubsystemEndpoint
    identity: Identity
    admin: Queue
    cntlid: int
    note: ConnectionCallback = _ignore
    icreq: ICReq = field(default_factory=ICReq)
    io_queues: list[Queue] = field(default_factory=list)
    io_queues_granted: int = 1
    _cc: int | None = None
    _identified: ControllerData | None = None
    _closed: bool = False

    @classmethod
    def connect(
        cls,
        endpoint: SubsystemEndpoint,
        *,
        identity: Identity | None = None,
        icreq: ICReq | None = None,
        kato: int = KATO,
        enable: bool = True,
        note: ConnectionCallback = _ignore,
        name: str = "admin queue",
    ) -> ControllerSession:
        """Connect to a controller and enable it. Raises :class:`RemoteProtocolError` if it refuses.

        If a subsystem refuses the dynamic controller model, the session is one of the static model.
        """
        identity = identity or endpoint.host or Identity.fresh()
        queue = open_queue(endpoint, icreq, name=name, note=note)
        try:
            try:
                result = connect_queue(
                    queue,
                    subnqn=endpoint.subnqn,
                    identity=identity,
                    kato=kato,
                    cntlid=endpoint.any_controller,
                )
            except (ResponseTimeout, PeerClosed) as error:
                raise type(error)(f"Connect to {endpoint.subnqn}: {error}") from error
            if endpoint.any_controller == fabrics.ANY_CONTROLLER and _names(result, CNTLID):
                queue.close()  # a connection has one Connect (3.3.2.2)
                static = replace(endpoint, any_controller=fabrics.ANY_STATIC_CONTROLLER)
                return cls.connect(
                    static, identity=identity, icreq=icreq, kato=kato, enable=enable, note=note, name=name
                )
            _require_connected(result, endpoint.subnqn)
            session = cls(endpoint, identity, queue, result.cqe.dw0 & 0xFFFF, note, icreq or ICReq())
            if enable:
                session.enable()
        except BaseException:
            queue.close()
            raise
        return session

    @property
    def queues(self) -> list[Queue]:
        """The admin queue and every I/O queue, also those that are closed."""
        return [self.admin, *self.io_queues]

    # Properties (Base 3.1.4, 6.5, 6.6)

    def get_property(self, offset: int, *, size: int | None = None) -> int:
        """Return a controller property."""
        result = _require_success(
            self.admin.run(fabrics.property_get(offset, size=size)), f"Property Get {offset:#x}"
        )
        return result.cqe.result

    def set_property(self, offset: int, value: int) -> None:
        """Set a controller property."""
        _require_success(self.admin.run(fabrics.property_set(offset, value)), f"Property Set {offset:#x}")

    @property
    def cap(self) -> Cap:
        """Controller Capabilities."""
        return Cap(self.get_property(Property.CAP))

    @property
    def cc_enable(self) -> int:
        """CC of an enabled controller: :data:`CC_ENABLE`, with MPS of the least page that CAP allows."""
        if self._cc is None:
            self._cc = self.cap.cc_enable
        return self._cc

    def enable(self) -> None:
        """Set CC.EN and wait for CSTS.RDY, for as long as CAP.TO allows (Base 3.5.2)."""
        cap = self.cap
        self._cc = cap.cc_enable
        self.set_property(Property.CC, self._cc)
        self.wait_status(CSTS_READY, within=max(cap.timeout, 1.0), expected="CSTS.RDY")

    def disable(self) -> None:
        """Clear CC.EN (a controller reset, Base 3.7.2) and wait until CSTS.RDY is clear."""
        self.set_property(Property.CC, self.cc_enable & ~1)
        self.wait_status(
            CSTS_READY, within=max(self.cap.timeout, 1.0), expected="clear CSTS.RDY", cleared=True
        )

    def shut_down(self) -> None:
        """Request a normal shutdown (CC.SHN, Base 3.6.2) and wait until it is complete."""
        self.set_property(Property.CC, self.cc_enable | CC_SHUTDOWN_NORMAL)
        self.wait_status(CSTS_SHUTDOWN_DONE, within=self.endpoint.deadline, expected="CSTS.SHST 10b")

    def wait_status(self, bits: int, *, within: float, expected: str, cleared: bool = False) -> int:
        """Read CSTS until ``bits`` are set (or ``cleared``), for at most ``within`` seconds."""
        until = time.monotonic() + within
        while True:
            csts = self.get_property(Property.CSTS)
            if bool(csts & bits) != cleared:
                return csts
            if csts & CSTS_FATAL:
                raise RemoteProtocolError(f"{self.admin.link.peer}: CSTS.CFS is set; expected: {expected}")
            if time.monotonic() > until:
                raise RemoteProtocolError(
                    f"{self.admin.link.peer}: no {expected} within {within:g} s; CSTS {csts:#x}"
                )

    # Identify

    def identify(self, cns: int, *, nsid: int = 0, csi: int = 0) -> bytes:
        """Return the 4096 bytes of an Identify command."""
        command = admin.identify(cns, nsid=nsid, csi=csi)
        return _require_success(self.admin.run(command, reads=4096), f"Identify CNS {cns:02x}h").data

    @property
    def controller(self) -> ControllerData:
        """The Identify Controller data, read once."""
        if self._identified is None:
            self._identified = ControllerData.decode(self.identify(Cns.CONTROLLER))
        return self._identified

    def namespaces(self) -> list[int]:
        """Return the active NSIDs."""
        return whole_list(lambda above: active_namespaces(self.identify(Cns.ACTIVE_NAMESPACES, nsid=above)))

    def own_namespace(self) -> int:
        """Return the NSID that the user has named; the first active one if that is not active.

        Another namespace may be out of reach: by ANA (Base 8.1.1), or reserved by another host (8.1.24).
        """
        active = self.namespaces()
        return self.endpoint.namespace if self.endpoint.namespace in active else active[0]

    def namespace(self, nsid: int) -> NamespaceData:
        """Return Identify Namespace."""
        return NamespaceData.decode(self.identify(Cns.NAMESPACE, nsid=nsid))

    def limits(self, nsid: int) -> Limits:
        """Return the limits that the controller and namespace ``nsid`` announce.

        Identify Controller of the NVM Command Set is optional: if it is refused, it sets no limit.
        """
        done = self.admin.run(admin.identify(Cns.CSI_CONTROLLER), reads=4096)
        commands = NvmCommandLimits.decode(done.data) if done.ok else NvmCommandLimits()
        return Limits.of(self.cap, self.controller, self.namespace(nsid), commands)

    def log_page(self, page: int, length: int, *, nsid: int = 0) -> bytes:
        """Return ``length`` bytes of a log page, read in parts within MDTS."""
        mdts = self.controller["mdts"]
        step = self.cap.page_size << mdts if mdts else length
        data = b""
        for at in range(0, length, step):
            size = min(step, length - at)
            command = admin.get_log_page(page, size, nsid=nsid, offset=at)
            data += _require_success(self.admin.run(command, reads=size), f"Get Log Page {page:02x}h").data
        return data

    # I/O queues

    def io_queue(
        self, *, qid: int | None = None, sqsize: int = 31, icreq: ICReq | None = None, cattr: int = 0
    ) -> Queue:
        """Connect an I/O queue; it closes with the session."""
        if not self.io_queues:
            done = self.admin.run(admin.set_features(Feature.NUMBER_OF_QUEUES, 0x00030003))
            if done.ok:  # NSQA and NCQA, zero's based (Base 5.2.26.2.1)
                self.io_queues_granted = min(done.cqe.dw0 & 0xFFFF, done.cqe.dw0 >> 16) + 1
        qid = qid or len(self.io_queues) + 1
        queue = open_queue(
            self.endpoint, self.icreq if icreq is None else icreq, name=f"I/O queue {qid}", note=self.note
        )
        self.io_queues.append(queue)
        result = connect_queue(
            queue,
            subnqn=self.endpoint.subnqn,
            identity=self.identity,
            qid=qid,
            sqsize=min(sqsize, self.cap.mqes),
            cntlid=self.cntlid,
            cattr=cattr,
        )
        _require_success(result, f"Connect of I/O queue {qid}")
        queue.in_capsule_limit = self.controller.in_capsule_limit
        return queue

    def close(self) -> None:
        """Shut the controller down, if it is still connected, and close every connection."""
        if self._closed:
            return
        self._closed = True
        for queue in self.io_queues:
            queue.close()
        with contextlib.suppress(RemoteProtocolError):
            if self.admin.link.is_open:
                self.admin.deadline = min(self.admin.deadline, 2.0)
                value = (CC_ENABLE if self._cc is None else self._cc) | CC_SHUTDOWN_NORMAL
                self.admin.run(fabrics.property_set(Property.CC, value))
        self.admin.close()

    def __enter__(self) -> ControllerSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


SUBNQN, CNTLID = 1 << 16 | 256, 1 << 16 | 16
"""IATTR and IPO of a refused Connect: the parameter is SUBNQN, or CNTLID, in its data (Base 6.3)."""


def _names(result: CommandResult, parameter: int) -> bool:
    """Whether a Connect was refused for ``parameter``."""
    return result.status == StatusCode.CONNECT_INVALID_PARAMETERS and result.cqe.dw0 & 0x1FFFF == parameter


def _require_connected(result: CommandResult, subnqn: str) -> None:
    if not result.ok:
        raise ConnectRefused(subnqn, result)


def _wrong_parameter(result: CommandResult) -> str:
    """Return what to do about a refused Connect, if its result names SUBNQN; else ""."""
    if not _names(result, SUBNQN):
        return ""
    return "; it names SUBNQN: no such subsystem is here. Check `nqn` and `port` in the targets file"


def _require_success(result: CommandResult, command: str) -> CommandResult:
    if not result.ok:
        raise RemoteProtocolError(f"{command} was refused: {status_name(result.status)}")
    return result
