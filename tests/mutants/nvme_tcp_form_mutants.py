"""Broken rules of numbers that 16 or 32 bits do not hold, of NSID FFFFFFFFh, and of data in each form.

The rules, before any case (NVM Express Base 2.3, NVM Command Set 1.2, NVMe/TCP 1.0):

- NVM 3.1: an LBA has 64 bits, in a range of Dataset Management and of Copy, too (MUST); NLB FFFFh is 65,536
  blocks (MUST).
- Base 3.2.1.5: a command of blocks is of one namespace, so NSID FFFFFFFFh is refused (MUST).
- Base 5.2.12.1.2, 5.2.12.3.3: LBA of an error entry has 64 bits; NUMREC counts the entries (MUST).
- NVMe/TCP 3.3.2: data of each command are in the capsule or asked for by R2T (MUST).
- NVMe/TCP 3.5: a data digest that is wrong fails the command, whichever it is (MUST).
- Base 4.3.2: a command whose SGL is too short fails (MUST).
- NVMe/TCP 2: PDUs are a stream of bytes, whose segments have no meaning (MUST).
- Base 5.2.12.1.3: the SMART log counts commands and data of the host (SHOULD; when, is left open).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import (
    MUTANTS,
    add,
    commands,
    drops_command,
    fabrics,
    host,
    log,
    on_admin,
    on_io,
    patch,
    response,
    shared,
    target,
)

from storagetest.wire.nvme.codes import Admin, Fctype, Io, LogPage, Property, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, DecodedPdu, H2CData

LOW = 0xFFFFFFFF
NLB = 0xFFFF
EVERY = 0xFFFFFFFF
BLOCK = 512
"""Bytes of a block of the controller of these runs."""

SMART_DWORDS = 128
"""Dwords of the SMART log page (5.2.12.1.3)."""

BY_RANGES = (Io.COPY, Io.DATASET_MANAGEMENT)
RESERVING = (Io.RESERVATION_REGISTER, Io.RESERVATION_ACQUIRE, Io.RESERVATION_RELEASE)
OTHERS = (*BY_RANGES, *RESERVING)
"""I/O commands with data of the host that are not of blocks."""


# High bits


def _entries(form: str, lba: int) -> Callable[[CapsuleCmd, Command], CapsuleCmd]:
    """Cut the LBA, the field number ``lba``, of each entry of the data."""

    def change(capsule: CapsuleCmd, asked: Command) -> CapsuleCmd:
        data = bytearray(capsule.data)
        for at in range(0, len(data), struct.calcsize(form)):
            fields = list(struct.unpack_from(form, data, at))
            fields[lba] &= LOW
            struct.pack_into(form, data, at, *fields)
        return replace(capsule, data=bytes(data))

    return change


def _cut(capsule: CapsuleCmd, asked: Command) -> CapsuleCmd:
    return replace(capsule, sqe=replace(asked, cdw11=0).encode())


host(
    "dsm-high-dword-ignored | NVM 3.3.3 | the upper dword of the LBA of a range is ignored",
    commands(_entries("<IIQ", 2), when=on_io(Io.DATASET_MANAGEMENT)),
)
host(
    "copy-source-high-dword-ignored | NVM 3.3.2 | the upper dword of the LBA of a source range is ignored",
    commands(_entries("<QQQQ", 1), when=on_io(Io.COPY)),
)
host(
    "copy-to-high-dword-ignored | NVM 3.3.2 | the upper dword of SDLBA of a Copy is ignored",
    commands(_cut, when=on_io(Io.COPY)),
)
host(
    "mark-high-dword-ignored | NVM 3.3.7 | the upper dword of SLBA of Write Uncorrectable is ignored",
    commands(_cut, when=on_io(Io.WRITE_UNCORRECTABLE)),
)


def _lba_dword(raw: bytes) -> bytes:
    entries = bytearray(raw)
    for at in range(20, len(entries) - 3, 64):
        entries[at : at + 4] = bytes(4)
    return bytes(entries)


target(
    "error-log-lba-dword | Base 5.2.12.1.2 | LBA of an entry of the error log has 32 bits",
    patch(_lba_dword, when=log(LogPage.ERROR)),
)


def large(row: str, rule: Rule) -> None:
    """Add a mutant of the controller with a large namespace."""
    add(row, lambda: ProxyConnection(of_host=rule))
    name = row.split("|", 1)[0].strip()
    MUTANTS[name] = replace(MUTANTS[name], kind="large")


def _first_256(row: str, opcode: Io) -> None:
    """A mutant that carries ``opcode`` out on 256 blocks at most."""
    host(
        row,
        commands(
            lambda capsule, c: replace(capsule, sqe=replace(c, cdw12=c.cdw12 & ~0xFFFF | 0xFF).encode()),
            when=lambda t, c: on_io(opcode)(t, c) and c.cdw12 & 0xFFFF > 0xFF,
        ),
    )


_first_256("verify-first-256 | NVM 3.3.5 | Verify is of 256 blocks at most", Io.VERIFY)
_first_256(
    "mark-first-256 | NVM 3.3.7 | Write Uncorrectable is of 256 blocks at most", Io.WRITE_UNCORRECTABLE
)


large(
    "lba-16-bits | NVM 3.3.4 | reads and writes look at 16 bits of an LBA",
    commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, cdw10=c.cdw10 & 0xFFFF).encode()),
        when=on_io(Io.READ, Io.WRITE),
    ),
)
target(
    "log-first-4-kib | Base 5.2.12 | a log page has zeroes after 4 KiB",
    patch(lambda raw: raw[:4096].ljust(len(raw), b"\0"), when=log(LogPage.ERROR)),
)
MUTANTS["log-first-4-kib"] = replace(MUTANTS["log-first-4-kib"], kind="large")


large(
    "most-blocks-are-none | NVM 3.3 | commands without data whose NLB is FFFFh do nothing, and succeed",
    drops_command(
        lambda t, c: (
            on_io(Io.WRITE_ZEROES, Io.VERIFY, Io.WRITE_UNCORRECTABLE)(t, c) and c.cdw12 & 0xFFFF == NLB
        )
    ),
)


large(
    "zeroes-15-bits | NVM 3.3.8 | Write Zeroes takes 15 bits of NLB",
    commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, cdw12=c.cdw12 & ~0x8000).encode()),
        when=on_io(Io.WRITE_ZEROES),
    ),
)


# All namespaces, all entries


host(
    "broadcast-is-first | Base 3.2.1.5 | a command of NSID FFFFFFFFh is of namespace 1",
    commands(
        lambda capsule, asked: replace(capsule, sqe=replace(asked, nsid=1).encode()),
        when=lambda t, c: on_io()(t, c) and c.nsid == EVERY,
    ),
)
target(
    "discovery-numrec-over | Base 5.2.12.3.3 | NUMREC counts one entry more than there are",
    patch(
        lambda raw: raw[:8] + struct.pack("<Q", struct.unpack_from("<Q", raw, 8)[0] + 1) + raw[16:],
        when=lambda t, c: log(LogPage.DISCOVERY)(t, c) and not c.cdw12 and c.cdw10 >> 16 >= 3,
    ),
)


# Data by R2T


def _asked(through: ProxyConnection, asked: Command) -> bool:
    return on_io(*OTHERS)(through, asked) and asked.dptr[15] == 0x5A


host(
    "asked-others-refused | NVMe/TCP 3.3.2 | ranges and keys that are in no capsule are refused",
    drops_command(_asked, status=StatusCode.SGL_TYPE_INVALID),
)


def _zeroes(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    asked = through.command_of(got)
    if not isinstance(got.pdu, H2CData) or asked is None or not _asked(through, asked):
        return None
    return [replace(got.pdu, data=bytes(len(got.pdu.data)))]


host("asked-others-zero | NVMe/TCP 3.3.2 | ranges and keys that are asked for by R2T are lost", _zeroes)


# Damaged data


def _checks_blocks(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    asked = Command.decode(got.pdu.sqe) if isinstance(got.pdu, CapsuleCmd) else through.command_of(got)
    if got.data_digest_ok is not False or asked is None or asked.opcode in (Io.WRITE, Io.COMPARE):
        return None
    return [got.pdu]


host(
    "ddgst-of-blocks-alone | NVMe/TCP 3.5 | a wrong data digest is found in Write and Compare alone",
    _checks_blocks,
)


# Short SGLs


def _needed(through: ProxyConnection, asked: Command) -> int:
    """Return the bytes that a command transfers; 0: it is left alone."""
    if on_admin(Admin.IDENTIFY)(through, asked):
        return 4096
    if on_admin(Admin.GET_LOG_PAGE)(through, asked):
        return ((asked.cdw10 >> 16) + 1) * 4
    if on_io(Io.WRITE, Io.COMPARE)(through, asked):
        return ((asked.cdw12 & 0xFFFF) + 1) * BLOCK
    if on_io(Io.RESERVATION_REPORT)(through, asked):
        return (asked.cdw10 + 1) * 4
    if on_io(Io.DATASET_MANAGEMENT)(through, asked):
        return ((asked.cdw10 & 0xFF) + 1) * 16
    if on_io(Io.COPY)(through, asked):
        return ((asked.cdw12 & 0xFF) + 1) * 32
    if on_io(Io.RESERVATION_RELEASE)(through, asked):
        return 8
    return 16 if on_io(Io.RESERVATION_REGISTER, Io.RESERVATION_ACQUIRE)(through, asked) else 0


def _takes_short() -> ProxyConnection:
    """Return a connection on which an SGL is as long as its command needs it."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        asked = Command.decode(got.pdu.sqe)
        length, needed = int.from_bytes(asked.dptr[8:12], "little"), _needed(through, asked)
        if not length or length >= needed:
            return None
        through.memory.setdefault("short", {})[asked.cid] = length
        dptr = asked.dptr[:8] + needed.to_bytes(4, "little") + asked.dptr[12:]
        data = got.pdu.data.ljust(needed, b"\0") if got.pdu.data else b""
        return [CapsuleCmd(replace(asked, dptr=dptr).encode(), data)]

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, C2HData) or got.pdu.cccid not in through.memory.get("short", {}):
            return None
        return [replace(got.pdu, data=got.pdu.data[: through.memory["short"][got.pdu.cccid]])]

    return ProxyConnection(of_host=of_host, of_target=of_target)


add("sgl-short-taken | Base 4.3.2 | of a command whose SGL is too short, a part is done", _takes_short)


# PDUs in parts


def _lost(kind: type) -> Rule:
    """The data of a PDU that has come in several segments are lost."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, kind) or not through.qid or through.arrived.parts < 2:
            return None
        pdu = got.pdu
        assert isinstance(pdu, CapsuleCmd | H2CData)
        return [replace(pdu, data=bytes(len(pdu.data)))]

    return rule


def _damages(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if got.data_digest_ok is None or through.arrived.parts < 2:
        return None
    return [got.raw[:-1] + bytes([got.raw[-1] ^ 0xFF])]


def _loses_next(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    late = through.arrived.parts > 1 and through.arrived.joined
    return [] if isinstance(got.pdu, CapsuleCmd) and through.qid and late else None


host(
    "split-capsule-lost | NVMe/TCP 2 | data in a capsule that comes in two segments are lost",
    _lost(CapsuleCmd),
)
host("split-data-lost | NVMe/TCP 2 | H2CData that come in two segments are lost", _lost(H2CData))
host("split-digests | NVMe/TCP 2 | the DDGST of a PDU that comes in two segments is held wrong", _damages)
host("split-next-lost | NVMe/TCP 2 | a command that begins in the segment of another is lost", _loses_next)


# What SMART counts


def _stuck(row: str, *offsets: int) -> None:
    """A mutant whose counters at ``offsets`` of the SMART log page stay 7."""
    target(
        row,
        patch(
            lambda raw: b"".join(
                (7).to_bytes(16, "little") if at in offsets else raw[at : at + 16]
                for at in range(0, len(raw), 16)
            ),
            when=lambda t, c: log(LogPage.SMART)(t, c) and c.cdw10 >> 16 == SMART_DWORDS - 1,
        ),
    )


_stuck("smart-units-stuck | Base 5.2.12.1.3 | Data Units Read and Data Units Written stay the same", 32, 48)
_stuck("smart-reads-stuck | Base 5.2.12.1.3 | Host Read Commands stays the same", 64)
_stuck("smart-writes-stuck | Base 5.2.12.1.3 | Host Write Commands stays the same", 80)


target(
    "smart-units-of-512 | Base 5.2.12.1.3 | Data Units Read and Data Units Written count units of 512 bytes",
    patch(
        lambda raw: b"".join(
            (1000 * int.from_bytes(raw[at : at + 16], "little")).to_bytes(16, "little")
            if at in (32, 48)
            else raw[at : at + 16]
            for at in range(0, len(raw), 16)
        ),
        when=log(LogPage.SMART),
    ),
)


def _reset_counts(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    command = Command.decode(got.pdu.sqe) if isinstance(got.pdu, CapsuleCmd) else None
    if command is not None and fabrics(Fctype.PROPERTY_SET, cdw11=Property.CC)(through, command):
        through.memory["reset"] = through.memory.get("reset") or not command.cdw12 & 1
    return None


_COUNTS_OF_ZERO = patch(
    lambda raw: raw[:32] + bytes(64) + raw[96:],
    when=lambda t, c: log(LogPage.SMART)(t, c) and bool(t.memory.get("reset")),
)
add("smart-reset | Base 5.2.12.1.3 | a controller reset sets the counts of SMART to 0",
    lambda: ProxyConnection(of_host=_reset_counts, of_target=_COUNTS_OF_ZERO))  # fmt: skip

ADMITTED = 16
"""Controllers whose numbers are right."""


def _repeats(known: set[object]) -> ProxyConnection:
    def change(through: ProxyConnection, command: Command | None, cqe: Cqe) -> Cqe | None:
        connect = command is not None and fabrics(Fctype.CONNECT)(through, command) and not through.qid
        if not connect or not cqe.ok:
            return None
        known.add(cqe.result & 0xFFFF)
        first = min(int(str(one)) for one in known)
        return None if len(known) <= ADMITTED else replace(cqe, result=first)

    return ProxyConnection(of_target=response(change))


shared("cntlid-repeats | Base 6.3 | the 17th controller has the CNTLID of another one", _repeats)
