"""Broken rules at the edges: the last block, high bits of an LBA, several controllers, many associations."""

import struct
from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import (
    accepts,
    add,
    commands,
    drops_command,
    fabrics,
    host,
    identify,
    log,
    on_io,
    patch,
    put,
    response,
    shared,
    target,
)
from proxy import Hangup

from storagetest.wire.nvme.codes import Cns, Fctype, Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe, in_capsule
from storagetest.wire.nvme_tcp.pdu import R2T, C2HData, CapsuleCmd, CapsuleResp, DecodedPdu, H2CData

END = 2048
"""Blocks of the namespaces of tests/controllers."""
BLOCK = 512
ASSOCIATIONS = 16
OWN_CID = 0x7ABD
"""CID of a command that the proxy sends itself."""


def _lba(command: Command) -> int:
    return command.cdw10 | command.cdw11 << 32


def _reach(command: Command) -> int:
    return _lba(command) + (command.cdw12 & 0xFFFF) + 1


host(
    "write-last-block-lost | NVM 3.3.6 | a write of the last block is completed and lost",
    drops_command(lambda t, c: on_io(Io.WRITE)(t, c) and _reach(c) == END),
)
host(
    "lba-high-dword-ignored | NVM 3.1 | the upper dword of SLBA is ignored",
    commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, cdw11=0).encode()),
        when=lambda t, c: (
            on_io(Io.READ, Io.WRITE, Io.COMPARE, Io.WRITE_ZEROES, Io.VERIFY)(t, c) and bool(c.cdw11)
        ),
    ),
)


def _begins(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Write the first block of a write across the end, which the target then refuses."""
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    command = Command.decode(got.pdu.sqe)
    if not on_io(Io.WRITE)(through, command) or not _lba(command) < END < _reach(command):
        return None
    piece = got.pdu.data[:BLOCK]
    first = replace(command, cid=OWN_CID, cdw12=0, dptr=in_capsule(len(piece)))
    return [CapsuleCmd(first.encode(), piece), got.raw]


def _hides_own(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    own = isinstance(got.pdu, CapsuleResp) and Cqe.decode(got.pdu.cqe).cid == OWN_CID
    return [] if own else None


shared(
    "write-across-end-begins | NVM 3.1 | a write across the end is refused after its first block is written",
    lambda _: ProxyConnection(of_host=_begins, of_target=_hides_own),
)


def _counted(through: ProxyConnection, raw: bytes) -> bytes:
    through.memory["reads"] = through.memory.get("reads", 1) + 1
    return struct.pack("<Q", through.memory["reads"]) + raw[8:]


def _counts_reads(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    return patch(lambda raw: _counted(through, raw), when=log(LogPage.DISCOVERY))(through, got)


target("discovery-genctr-moves | Base 5.2.12.3.3 | GENCTR counts reads of the log", _counts_reads)
target(
    "identify-serial-differs | Base 5.2.13.2.1 | every controller has a serial number of its own",
    patch(
        lambda raw: raw[:4] + b"SERIAL-%-13d" % int.from_bytes(raw[78:80], "little") + raw[24:],
        when=identify(Cns.CONTROLLER),
    ),
)


def _leaks(seen: set[object]) -> ProxyConnection:
    """Hang up at the Connect of each admin queue after the first sixteen."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        command = Command.decode(got.pdu.sqe)
        if fabrics(Fctype.CONNECT)(through, command) and not command.cdw10 >> 16:
            seen.add(len(seen))
            if len(seen) > ASSOCIATIONS:
                raise Hangup
        return None

    return ProxyConnection(of_host=rule)


shared(
    "associations-leak | Base 3.3.2 | an ended association keeps its controller, of which there are 16",
    _leaks,
)


# Identify and log pages


def _first_cntlid(seen: set[object]) -> ProxyConnection:
    def first(raw: bytes) -> bytes:
        if not seen:
            seen.add(raw[78:80])
        (cntlid,) = seen
        assert isinstance(cntlid, bytes)
        return raw[:78] + cntlid + raw[80:]

    return ProxyConnection(of_target=patch(first, when=identify(Cns.CONTROLLER)))


shared("identify-cntlid-first | Base 5.2.13.2.1 | CNTLID is the first controller's in all", _first_cntlid)
target(
    "descriptor-nguid-other | Base 5.2.13.2.3 | NGUID of the descriptors is not that of Identify Namespace",
    patch(
        lambda raw: raw.replace(b"\2\x10\0\0", b"\2\x10\0\0\x5a", 1)[: len(raw)],
        when=identify(Cns.DESCRIPTORS),
    ),
)
target(
    "oacs-ignored | Base 5.2.13.2.1 | optional admin commands succeed although OACS does not have them",
    accepts(StatusCode.INVALID_OPCODE, when=lambda t, c: not t.qid and c.opcode in (0x14, 0x1A)),
)
target(
    "log-effects-write | Base 5.2.12.1.6 | CSUPP of Write is 0",
    patch(put(1024 + 4 * Io.WRITE, b"\0"), when=log(LogPage.EFFECTS)),
)
target(
    "log-firmware-other | Base 5.2.12.1.4 | the active slot has another revision than FR",
    patch(put(8, b"other   "), when=log(LogPage.FIRMWARE_SLOT)),
)


def _falls(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    def fallen(raw: bytes) -> bytes:
        through.memory["hours"] = through.memory.get("hours", 1000) - 1
        return put(128, struct.pack("<Q", through.memory["hours"]))(raw)

    return patch(fallen, when=log(LogPage.SMART))(through, got)


target("log-smart-falls | Base 5.2.12.1.3 | Power On Hours fall with each read", _falls)

# Marks of Write Uncorrectable

host(
    "uncorrectable-one-only | NVM 3.3.7 | of several blocks, only the first is marked",
    commands(
        lambda capsule, c: CapsuleCmd(replace(c, cdw12=0).encode()),
        when=lambda t, c: on_io(Io.WRITE_UNCORRECTABLE)(t, c) and bool(c.cdw12),
    ),
)


def _notes_write(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if isinstance(got.pdu, CapsuleCmd):
        command = Command.decode(got.pdu.sqe)
        if on_io(Io.WRITE, Io.WRITE_UNCORRECTABLE)(through, command):
            through.memory["healed"] = command.opcode == Io.WRITE
    return None


def _reads_marked(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Return zeroes for a marked block once any block was written."""
    if not isinstance(got.pdu, CapsuleResp) or not through.memory.get("healed"):
        return None
    cqe, command = Cqe.decode(got.pdu.cqe), through.command_of(got)
    if cqe.status != StatusCode.UNRECOVERED_READ_ERROR or command is None or command.opcode != Io.READ:
        return None
    length = int.from_bytes(command.dptr[8:12], "little")
    done = replace(cqe, status=0, dnr=False)
    return [C2HData(cqe.cid, 0, bytes(length)), CapsuleResp(done.encode())]


add(
    "uncorrectable-all-healed | NVM 3.3.7 | a write of one block clears the marks of all",
    lambda: ProxyConnection(of_host=_notes_write, of_target=_reads_marked),
)

# Data transfers


def _notes_r2t(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if isinstance(got.pdu, R2T):
        through.memory.setdefault("ends", {})[got.pdu.ttag] = got.pdu.offset + got.pdu.length
    return None


def _cuts(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, H2CData):
        return None
    end = through.memory.get("ends", {}).get(got.pdu.ttag, 0)
    over = got.pdu.offset + len(got.pdu.data) - end
    return [replace(got.pdu, data=got.pdu.data[:-over])] if 0 < over < len(got.pdu.data) else None


add(
    "data-overlap-cut | NVMe/TCP 3.5 | what reaches past the range of the R2T is ignored",
    lambda: ProxyConnection(of_target=_notes_r2t, of_host=_cuts),
)


def _sticks(through: ProxyConnection, command: Command | None, cqe: Cqe) -> Cqe | None:
    if cqe.status == StatusCode.TRANSIENT_TRANSPORT_ERROR:
        through.memory["damaged"] = True
    elif through.memory.get("damaged") and command is not None and command.opcode == Io.WRITE:
        return replace(cqe, status=StatusCode.TRANSIENT_TRANSPORT_ERROR)
    return None


target(
    "ddgst-error-sticks | NVMe/TCP 3.5 | every write after a data digest error ends as it did",
    response(_sticks),
)
