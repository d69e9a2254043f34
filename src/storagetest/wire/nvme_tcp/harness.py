"""Test harness of one conformance case: it opens connections, queues and sessions, and closes all of them.

It closes them at the end of the case, whatever the outcome, so that nothing stays connected.
"""

from __future__ import annotations

import random
import secrets
from contextlib import ExitStack
from dataclasses import dataclass, replace

from storagetest.errors import DataAtRisk, NotOffered, RemoteProtocolError
from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Cns, Feature, StatusCode, status_name
from storagetest.wire.nvme.fabrics import ANY_CONTROLLER, DISCOVERY_NQN
from storagetest.wire.nvme.limits import Limits
from storagetest.wire.nvme.structures import ControllerData, NamespaceData, descriptors
from storagetest.wire.nvme_tcp.pdu import ICReq
from storagetest.wire.nvme_tcp.queue import CommandResult, Queue
from storagetest.wire.nvme_tcp.session import (
    KATO,
    ConnectionCallback,
    ConnectRefused,
    ControllerSession,
    Identity,
    SubsystemEndpoint,
    open_queue,
)
from storagetest.wire.signatures import find_signature
from storagetest.wire.tcp import RecordedConnection

DESCRIPTORS_SINCE = 0x00010300
"""The first version (VER) of which the Namespace Identification Descriptor list is part: NVMe 1.3."""


_SALT = secrets.randbits(64)


def block_data(size: int, seed: int = 1) -> bytes:
    """Return ``size`` bytes without any period; other bytes for each seed, and in each process.

    So no block is mistaken for another, nor for what an earlier run has left on the target.
    """
    return random.Random(_SALT + seed).randbytes(size)  # noqa: S311  # data, no secret


def refused(done: CommandResult, *wanted: StatusCode) -> None:
    """Raise :class:`AssertionError` unless the command ended with one of the statuses ``wanted``."""
    if done.status not in wanted:
        names = " or ".join(status_name(one) for one in wanted)
        raise AssertionError(f"the command ended with {status_name(done.status)}; required: {names}")


NAMESPACE_NOTICES = 1 << 8
"""Namespace Attribute Notices: a bit of OAES, and of the configured events (Base 5.2.13.2.1, 5.2.26.1.5)."""

EVENT_TYPES = 8
"""Asynchronous Event Types (Base 5.2.2.1); one that was reported is masked until the host clears it."""


def run_behind(session: ControllerSession) -> None:
    """Run commands behind the ones that were submitted: what ends at once has ended then.

    Two of them, because commands that are outstanding together complete in any order.
    """
    for _ in range(2):
        done = session.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES))
        assert done.ok, f"Base 5.2.11: Get Features is not {status_name(done.status)}"


def request_event(session: ControllerSession, *, cid: int = 0) -> int:
    """Submit an Asynchronous Event Request, and return its CID once it waits for an event (Base 5.2.2).

    A controller may have events to report already: each completes a request that comes first.
    """
    for _ in range(EVENT_TYPES):
        submitted = session.admin.submit(replace(admin.async_event(), cid=cid))
        run_behind(session)
        if session.admin.status_of(submitted) is None:
            return submitted
        done = session.admin.wait(submitted)
        assert done.ok, f"Base 5.2.2: an Asynchronous Event Request ended with {status_name(done.status)}"
    raise AssertionError(
        f"Base 5.2.2: {EVENT_TYPES} Asynchronous Event Requests were completed at once, and no event cleared"
    )


@dataclass(frozen=True, slots=True)
class Scratch:
    """Blocks that a case may write: ``blocks`` from ``lba`` of namespace ``nsid``.

    ``end`` is the namespace's size in blocks; ``limits`` plans the transfers; ``rescap`` is RESCAP of the
    namespace (NVM 4.1.5.1).
    """

    nsid: int
    lba: int
    blocks: int
    end: int
    limits: Limits
    rescap: int = 0

    @property
    def block_size(self) -> int:
        """Bytes of a block."""
        return self.limits.block_size

    def blocks_of(self, size: int) -> int:
        """Return the blocks of one transfer of about ``size`` bytes, within the limits and these blocks."""
        return self.limits.blocks_of(size, most=self.blocks)

    def fit(self, blocks: int) -> int:
        """Return ``blocks``, or as many of them as one transfer may have."""
        return self.blocks_of(blocks * self.block_size)


def write_blocks(queue: Queue, scratch: Scratch, blocks: int, seed: int, *, at: int = 0) -> bytes:
    """Write data of ``seed`` from the ``at``-th block of ``scratch`` on, within MDTS, and return them."""
    size, data = scratch.block_size, block_data(blocks * scratch.block_size, seed)
    for first, count in scratch.limits.pieces(0, blocks):
        piece = data[first * size : (first + count) * size]
        done = queue.run(io.write(scratch.nsid, scratch.lba + at + first, count), data=piece)
        assert done.ok, f"a write ended with {status_name(done.status)}"
    return data


def read_blocks(queue: Queue, scratch: Scratch, blocks: int, *, at: int = 0) -> bytes:
    """Return blocks from the ``at``-th of ``scratch`` on, read by commands within MDTS."""
    data = b""
    for lba, count in scratch.limits.pieces(scratch.lba + at, blocks):
        done = queue.run(io.read(scratch.nsid, lba, count), reads=count * scratch.block_size)
        assert done.ok, f"a read ended with {status_name(done.status)}"
        data += done.data
    return data


MEDIA, PATH = 2, 3
"""Status Code Types: media and data integrity errors, path related status (Base 4.2.3)."""


def out_of_reach(status: int) -> bool:
    """Whether a read may end so through a sound controller, on a namespace that the user has not named.

    The path is none by ANA (Base 8.1.1), another host has reserved the namespace, it is not ready, or the
    block is lost.
    """
    return status >> 8 in (MEDIA, PATH) or status in (
        StatusCode.RESERVATION_CONFLICT,
        StatusCode.NAMESPACE_NOT_READY,
    )


def is_within_reach(session: ControllerSession, queue: Queue, nsid: int, lba: int) -> bool:
    """Whether cases may read block ``lba`` of a namespace that the user has not named.

    Blocks whose metadata is apart from the data are not read (NVM 4.1.5.1, FLBAS bit 4).
    """
    data = session.namespace(nsid)
    if data.metadata and not data.is_extended:
        return False
    return not out_of_reach(queue.run(io.read(nsid, lba, 1), reads=data.block_size).status)


class Harness:
    """Opens connections to one endpoint. A context manager; calls ``note`` with every connection."""

    def __init__(self, endpoint: SubsystemEndpoint, note: ConnectionCallback) -> None:
        self.endpoint = endpoint
        self._note = note
        self._stack = ExitStack()
        self._queues: list[Queue] = []
        self._sessions: list[ControllerSession] = []

    @property
    def faults(self) -> list[str]:
        """A sentence for each reserved field that was set, in any PDU on any connection."""
        queues = [*self._queues, *(one for session in self._sessions for one in session.queues)]
        return [fault for queue in queues for fault in queue.faults]

    def link(self, name: str = "link") -> RecordedConnection:
        """Return a TCP connection on which nothing was sent."""
        endpoint = self.endpoint
        link = self._stack.enter_context(
            RecordedConnection.connect(
                endpoint.address, endpoint.port, deadline=endpoint.deadline, connector=endpoint.connector
            )
        )
        self._note(link, name)
        return link

    def new_queue(self, icreq: ICReq | None = None, *, name: str = "queue") -> Queue:
        """Return a connection on which nothing was sent, not even an ICReq."""
        queue = Queue(self.link(name), icreq or ICReq(), deadline=self.endpoint.deadline)
        queue.close_timeout = self.endpoint.close_timeout
        self._queues.append(queue)
        return queue

    def queue(self, icreq: ICReq | None = None, *, name: str = "queue") -> Queue:
        """Return a connection after ICReq and ICResp, before Connect."""
        queue = open_queue(self.endpoint, icreq, name=name, note=self._note)
        self._stack.callback(queue.close)
        self._queues.append(queue)
        return queue

    def any_host(self) -> Identity:
        """Return a host that is let in: a new one, unless the targets file names one."""
        return self.endpoint.host or Identity.fresh()

    def _free_host(self) -> Identity:
        """Return a host that no open session has."""
        host = self.any_host()
        return Identity.fresh() if host in [one.identity for one in self._open_sessions()] else host

    def _open_sessions(self) -> list[ControllerSession]:
        return [one for one in self._sessions if one.admin.link.is_open]

    def _may_lack(self, error: ConnectRefused, identity: Identity) -> str:
        """Return why a sound subsystem may refuse one more session (Base 6.3), or ""."""
        others, host = len(self._open_sessions()), self.endpoint.host
        if error.status == StatusCode.CONNECT_CONTROLLER_BUSY and others:
            return f"no controller is left, with {others} in use: {error}"
        if error.status == StatusCode.CONNECT_INVALID_HOST and host and identity.nqn != host.nqn:
            return f"the case needs a host that is not `host_nqn` of the targets file: {error}"
        return ""

    def session(
        self,
        *,
        identity: Identity | None = None,
        icreq: ICReq | None = None,
        kato: int = KATO,
        enable: bool = True,
        subnqn: str | None = None,
        name: str = "admin queue",
    ) -> ControllerSession:
        """Return a session with a ready controller (unless ``enable`` is false), as another host by default.

        Raises :class:`NotOffered` if the subsystem may refuse one more session, or another host.
        """
        endpoint, identity = self.endpoint, identity or self._free_host()
        if subnqn is not None:
            endpoint = replace(endpoint, subnqn=subnqn)
        if subnqn == DISCOVERY_NQN:  # its controllers are dynamic (Base 3.1.2)
            endpoint = replace(endpoint, any_controller=ANY_CONTROLLER)
        try:
            session = ControllerSession.connect(
                endpoint, identity=identity, icreq=icreq, kato=kato, enable=enable, note=self._note, name=name
            )
        except ConnectRefused as error:
            reason = self._may_lack(error, identity)
            if not reason:
                raise
            raise NotOffered(reason) from error
        self._sessions.append(self._stack.enter_context(session))
        return session

    def close(self) -> None:
        """Close all connections and sessions."""
        self._stack.close()

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def data_signature(session: ControllerSession, nsid: int) -> str | None:
    """Return the name of the data on the namespace, or None if it has none.

    Raises :class:`RemoteProtocolError` if that cannot be proved, and :class:`DataAtRisk` if another host has
    reserved the namespace. Reads obey MDTS (Base 5.2.13.2.1).
    """
    limits, queue = session.limits(nsid), session.io_queue()
    size = limits.block_size

    def read(lba: int, blocks: int) -> bytes:
        done = queue.run(io.read(nsid, lba, blocks), reads=blocks * size)
        if done.ok:
            return done.data
        what = f"a read of {blocks} blocks from block {lba} of namespace {nsid}: {status_name(done.status)}"
        if done.status == StatusCode.RESERVATION_CONFLICT:
            raise DataAtRisk(f"{what}: another host has reserved the namespace. Release the reservation")
        raise RemoteProtocolError(what)

    end = session.namespace(nsid)["nsze"]
    return find_signature(read, block_size=size, blocks=end, largest=limits.transfer * size)


def wwids(session: ControllerSession, nsid: int) -> set[str]:
    """Return the names that the initiator's kernel gives the namespace: ``uuid.…``, ``eui.…``.

    Raises :class:`RemoteProtocolError` if they cannot be read.
    """
    names = set()
    listed = []
    if session.controller["ver"] >= DESCRIPTORS_SINCE:
        listed = descriptors(session.identify(Cns.DESCRIPTORS, nsid=nsid))
    data: NamespaceData = session.namespace(nsid)
    listed += [(2, data.nguid), (1, data.eui64)]
    for kind, raw in listed:
        if not any(raw):
            continue
        text = raw.hex()
        if kind == 3:
            text = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
            names.add(f"uuid.{text}")
        elif kind in (1, 2):
            names.add(f"eui.{text}")
    return names


def implementation(data: ControllerData) -> tuple[str, str]:
    """Return name and version of the implementation, from its Identify data; empty if they are unknown.

    The model number of ``spdk`` begins with "SPDK", unless its user has chosen another. ``nvmet``, Linux's
    target, has no PCI vendor. The firmware revision (8 characters) is SPDK's release or the kernel's.
    """
    revision = data.text("fr")
    if data.text("mn").startswith("SPDK"):
        return "spdk", revision
    linux = data["vid"] == 0 and revision[:1].isdigit() and "." in revision
    return ("nvmet", revision) if linux else ("", "")
