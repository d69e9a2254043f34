"""What a conformance case works with: a target, and every link, queue and session that the case opens on it.

The bench closes all of them at the case's end, so nothing stays connected whatever became of the case.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme.codes import Cns
from storagetest.wire.nvme.structures import ControllerData, NamespaceData, descriptors
from storagetest.wire.nvme_tcp.pdu import ICReq, encode
from storagetest.wire.nvme_tcp.queue import ConnectionEnd, Lie, Queue
from storagetest.wire.nvme_tcp.session import KATO, Endpoint, Identity, Note, Session, open_queue
from storagetest.wire.tcp import RecordedConnection

__all__ = ["Harness", "Scratch", "implementation", "signature", "wwids"]

SIGNATURES = (
    (0x438, b"\x53\xef", "ext2, ext3 or ext4"),
    (0, b"XFSB", "XFS"),
    (0x10040, b"_BHRfS_M", "btrfs"),
    (0x200, b"LABELONE", "an LVM physical volume"),
    (0, b"LUKS\xba\xbe", "LUKS"),
    (0x1FE, b"\x55\xaa", "a boot sector or a partition table"),
    (0x200, b"EFI PART", "a GUID partition table"),
    (0xFF6, b"SWAPSPACE2", "swap"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "a member of a RAID array"),
)
SIGNATURE_SPAN = 0x10080


@dataclass(frozen=True, slots=True)
class Scratch:
    """What a case may overwrite: ``blocks`` of ``block_size`` bytes from ``lba`` of namespace ``nsid``.

    ``end`` is the namespace's size in blocks.
    """

    nsid: int
    block_size: int
    lba: int
    blocks: int
    end: int


class Harness:
    """A context manager; ``note`` is told of every link."""

    def __init__(self, endpoint: Endpoint, note: Note) -> None:
        self.endpoint = endpoint
        self._note = note
        self._stack = ExitStack()

    def link(self, what: str = "link") -> RecordedConnection:
        """Return a TCP connection on which nothing was sent."""
        where = self.endpoint
        link = self._stack.enter_context(
            RecordedConnection.connect(where.address, where.port, deadline=where.deadline, dial=where.dial)
        )
        self._note(link, what)
        return link

    def new_queue(self, icreq: ICReq | None = None, *, what: str = "queue") -> Queue:
        """Return a connection on which nothing was sent, not even an ICReq."""
        queue = Queue(self.link(what), icreq or ICReq(), deadline=self.endpoint.deadline)
        queue.patience = self.endpoint.patience
        return queue

    def queue(self, icreq: ICReq | None = None, *, what: str = "queue") -> Queue:
        """Return a connection after ICReq and ICResp, before Connect."""
        queue = open_queue(self.endpoint, icreq, what=what, note=self._note)
        self._stack.callback(queue.close)
        return queue

    def session(
        self,
        *,
        identity: Identity | None = None,
        icreq: ICReq | None = None,
        kato: int = KATO,
        enable: bool = True,
        subnqn: str | None = None,
        what: str = "admin queue",
    ) -> Session:
        """Return a controller that is ready (unless ``enable`` is false), of a host that is new."""
        where = self.endpoint
        if subnqn is not None:
            where = replace(where, subnqn=subnqn)
        return self._stack.enter_context(
            Session.connect(
                where, identity=identity, icreq=icreq, kato=kato, enable=enable, note=self._note, what=what
            )
        )

    def ending_of_icreq(self, lie: Lie, icreq: ICReq | None = None) -> ConnectionEnd:
        """Send an ICReq with a lie in it and wait for what becomes of the connection."""
        queue = self.new_queue(icreq)
        queue.send_raw(lie(encode(queue.icreq)))
        return queue.ending()

    def close(self) -> None:
        """Close everything."""
        self._stack.close()

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def signature(head: bytes) -> str | None:
    """Return what somebody keeps on a device, from its first bytes (:data:`SIGNATURE_SPAN`), or None."""
    for offset, magic, what in SIGNATURES:
        if head[offset : offset + len(magic)] == magic:
            return what
    return None


def wwids(session: Session, nsid: int) -> set[str]:
    """Return the names that an initiator's kernel gives the namespace: ``uuid.…``, ``eui.…``."""
    found = set()
    try:
        listed = descriptors(session.identify(Cns.DESCRIPTORS, nsid=nsid))
    except RemoteProtocolError:
        listed = []
    data: NamespaceData = session.namespace(nsid)
    listed += [(2, data.nguid), (1, data.eui64)]
    for kind, raw in listed:
        if not any(raw):
            continue
        text = raw.hex()
        if kind == 3:
            text = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
            found.add(f"uuid.{text}")
        elif kind in (1, 2):
            found.add(f"eui.{text}")
    return found


def implementation(data: ControllerData) -> str:
    """Return which known implementation this is by what it says of itself, or "".

    ``linux-nvmet`` has no PCI vendor, and its firmware revision is the kernel's version.
    """
    revision = data.text("fr")
    linux = data["vid"] == 0 and revision[:1].isdigit() and "." in revision
    return "linux-nvmet" if linux else ""
