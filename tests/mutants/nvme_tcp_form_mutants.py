"""Broken rules of numbers that 16 or 32 bits do not hold, of NSID FFFFFFFFh, and of data in each form.

The rules, before any case (NVM Express Base 2.3, NVM Command Set 1.2, NVMe/TCP 1.0):

- NVM 3.1: an LBA has 64 bits, in a range of Dataset Management and of Copy, too (MUST); NLB FFFFh is 65,536
  blocks (MUST).
- Base 3.2.1.5: a command of blocks is of one namespace, so NSID FFFFFFFFh is refused (MUST).
- Base 5.2.12.1.2, 5.2.12.3.3: LBA of an error entry has 64 bits; NUMREC counts the entries (MUST).
- NVMe/TCP 3.3.2: data of each command are in the capsule or asked for by R2T (MUST).
- NVMe/TCP 3.5: a data digest that is wrong fails the command, whichever it is (MUST).
- Base 4.3.2: a command whose SGL is too short fails (MUST).
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
    host,
    log,
    on_admin,
    on_io,
    patch,
    target,
)

from storagetest.wire.nvme.codes import Admin, Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, DecodedPdu, H2CData

LOW = 0xFFFFFFFF
NLB = 0xFFFF
EVERY = 0xFFFFFFFF
BLOCK = 512
"""Bytes of a block of the controller of these runs."""

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


large(
    "most-blocks-are-none | NVM 3.3 | commands without data whose NLB is FFFFh do nothing, and succeed",
    drops_command(
        lambda t, c: (
            on_io(Io.WRITE_ZEROES, Io.VERIFY, Io.WRITE_UNCORRECTABLE)(t, c) and c.cdw12 & 0xFFFF == NLB
        )
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
    return 16 if on_io(Io.RESERVATION_REGISTER)(through, asked) else 0


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
