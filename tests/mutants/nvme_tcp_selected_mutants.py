"""Broken rules of log entries, selectors, NSIDs, flags, and of digests next to other parameters.

The rules, from the text, before any case:

- Base 5.2.12.1.2: the entries are ordered by time, the most recent first, and each has a count of its own.
- Base 5.2.12: a host that asks for more than a log page has gets the log page.
- Base 1.4.1.6: a reserved value of a field of a command is reported as an error (MUST).
- Base 5.2.26.1.2: a power state that is not supported is refused (MUST); 5.2.26.1.3: each temperature sensor
  has an over and an under temperature threshold.
- Base 3.2.1.5: an invalid NSID is refused, whatever the structure (MUST).
- NVM 3.3: FUA and LR are fields of Compare, Verify and Write Zeroes; NR names up to 256 ranges; after Write
  Zeroes reads of the blocks return zeroes (MUST).
- NVMe/TCP 3.3, 3.3.1.1: HPDA is of each PDU with data, and padding is in no digest; every PDU has a header
  digest if it is enabled; 3.3.1: a capsule has data up to IOCCSZ; 3.3.2.2: R2Ts of a command are sequential
  (MUST).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from nvme_tcp_later_mutants import with_command
from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import (
    When,
    add,
    commands,
    feature,
    host,
    identify,
    log,
    on_io,
    patch,
    refuses,
    target,
)

from storagetest.wire.crc import crc32c
from storagetest.wire.nvme.codes import Admin, Cns, Feature, Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import R2T, C2HData, CapsuleCmd, DecodedPdu, H2CData, encode

ENTRY = 64
HEADER = 24
"""Bytes of an entry of the error log (Base 5.2.12.1.2), and of the header of C2HData (NVMe/TCP 3.6.2.9)."""

INACTIVE = range(1, 5)
"""NSIDs that the controller of these runs takes for valid."""

# Log pages and features


def _entries(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[bytes], bytes]:
    """Change the entries of the error log that are in use."""

    def changed(raw: bytes) -> bytes:
        each = [raw[at : at + ENTRY] for at in range(0, len(raw), ENTRY)]
        return b"".join(change([one for one in each if any(one[:8])])).ljust(len(raw), b"\0")

    return changed


target(
    "error-log-oldest-first | Base 5.2.12.1.2 | the oldest entry of the error log is the first",
    patch(_entries(lambda each: each[::-1]), when=log(LogPage.ERROR)),
)
target(
    "error-log-count-same | Base 5.2.12.1.2 | each entry of the error log has the count 1",
    patch(_entries(lambda each: [b"\1" + bytes(7) + one[8:] for one in each]), when=log(LogPage.ERROR)),
)


def _asks_for_more(through: ProxyConnection, command: Command) -> bool:
    dwords = (command.cdw10 >> 16 | (command.cdw11 & 0xFFFF) << 16) + 1
    return log(LogPage.SMART, LogPage.FIRMWARE_SLOT)(through, command) and dwords > 128


def _refused(when: When) -> Rule:
    """Refuse commands without carrying them out."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        command = Command.decode(got.pdu.sqe)
        if not when(through, command):
            return None
        through.reply(Cqe(command.cid, StatusCode.INVALID_FIELD, sqhd=1))
        return []

    return rule


host(
    "log-longer-refused | Base 5.2.12 | NUMD over the length of a log page is refused",
    _refused(_asks_for_more),
)
host(
    "select-reserved | Base 1.4.1.6 | a reserved SEL of Get Features returns the current value",
    commands(
        lambda pdu, command: with_command(pdu, command, cdw10=command.cdw10 & ~0x700),
        when=lambda t, c: feature(Admin.GET_FEATURES)(t, c) and c.cdw10 >> 8 & 7 > 3,
    ),
)
host(
    "power-state-any | Base 5.2.26.1.2 | a power state that is not there is accepted",
    commands(
        lambda pdu, command: with_command(pdu, command, cdw11=0),
        when=feature(Admin.SET_FEATURES, Feature.POWER_MANAGEMENT),
    ),
)
target(
    "power-state-refused | Base 5.2.26.1.2 | the power state that is there cannot be set",
    refuses(StatusCode.INVALID_FIELD, when=feature(Admin.SET_FEATURES, Feature.POWER_MANAGEMENT)),
)
host(
    "threshold-under-is-over | Base 5.2.26.1.3 | both temperature thresholds are one value",
    commands(
        lambda pdu, command: with_command(pdu, command, cdw11=command.cdw11 & 0xFFFF),
        when=lambda t, c: (
            feature(Admin.GET_FEATURES, Feature.TEMPERATURE_THRESHOLD)(t, c)
            or feature(Admin.SET_FEATURES, Feature.TEMPERATURE_THRESHOLD)(t, c)
        ),
    ),
)

# Namespaces and I/O commands


def _any_nsid(cns: Cns) -> Rule:
    """Return zeroes in place of a refusal."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        command = Command.decode(got.pdu.sqe)
        if not identify(cns)(through, command) or command.nsid in INACTIVE:
            return None
        data = C2HData(command.cid, 0, bytes(4096), last=True)
        through.send_to_host(through.encode(data, through.icreq.hpda))
        through.reply(Cqe(command.cid, 0, sqhd=1))
        return []

    return rule


host(
    "identify-05h-any-nsid | Base 3.2.1.5 | CNS 05h of an invalid NSID succeeds", _any_nsid(Cns.CSI_NAMESPACE)
)
host(
    "identify-08h-any-nsid | Base 3.2.1.5 | CNS 08h of an invalid NSID succeeds",
    _any_nsid(Cns.CSI_INDEPENDENT),
)
host(
    "compare-of-first-namespace | Base 3.2.1 | Compare of any namespace is of the first",
    commands(
        lambda pdu, command: with_command(pdu, command, nsid=1),
        when=lambda t, c: on_io(Io.COMPARE)(t, c) and c.nsid == 2,
    ),
)
target(
    "flags-refused | NVM 3.3 | FUA or LR of Compare, Verify and Write Zeroes is refused",
    refuses(
        StatusCode.INVALID_FIELD,
        when=lambda t, c: on_io(Io.COMPARE, Io.VERIFY, Io.WRITE_ZEROES)(t, c) and bool(c.cdw12 >> 30),
    ),
)
target(
    "dsm-many-refused | NVM 3.3.3 | more than 64 ranges of Dataset Management are refused",
    refuses(
        StatusCode.INVALID_FIELD, when=lambda t, c: on_io(Io.DATASET_MANAGEMENT)(t, c) and c.cdw10 & 0xFF > 63
    ),
)


def _keeps_mark(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Complete a Write Zeroes of the blocks that were marked last without carrying it out."""
    if not isinstance(got.pdu, CapsuleCmd) or not through.qid:
        return None
    command = Command.decode(got.pdu.sqe)
    lba = command.cdw10 | command.cdw11 << 32
    if command.opcode == Io.WRITE_UNCORRECTABLE:
        through.memory["marked"] = lba
    elif command.opcode == Io.WRITE_ZEROES and through.memory.get("marked") == lba:
        through.reply(Cqe(command.cid, 0, sqhd=1))
        return []
    return None


host("zeroes-leave-mark | NVM 3.3.8 | a marked block cannot be read after Write Zeroes", _keeps_mark)

# PDUs


def _unaligned(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, C2HData) or not through.qid or not through.icreq.hpda:
        return None
    return [
        encode(got.pdu, header_digest=through.digests.header, data_digest=through.digests.data, alignment=0)
    ]


def _over_padding(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, C2HData) or not through.icreq.hpda or not through.digests.data:
        return None
    raw = through.encode(got.pdu, through.icreq.hpda)
    begin = HEADER + 4 * through.digests.header
    return [raw[:-4] + crc32c(raw[begin:-4]).to_bytes(4, "little")]


def _cut(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleCmd) or not through.qid or not through.digests.data:
        return None
    return [replace(got.pdu, data=got.pdu.data[:-4] + bytes(4))] if len(got.pdu.data) > 2048 else None


target("hpda-io-ignored | NVMe/TCP 3.3 | HPDA is obeyed on the admin queue alone", _unaligned)
target("ddgst-over-pad | NVMe/TCP 3.3 | DDGST is of the padding and the data", _over_padding)
target(
    "r2t-without-digest | NVMe/TCP 3.3.1.1 | R2Ts have no header digest",
    lambda t, got: [encode(got.pdu)] if isinstance(got.pdu, R2T) and t.digests.header else None,
)
host("capsule-large-cut | NVMe/TCP 3.3.1 | with a data digest, the end of a large capsule is lost", _cut)


def _swapped_r2ts(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Ask for the second half of an R2T first, if the host takes two."""
    r2t = got.pdu
    if not isinstance(r2t, R2T) or not through.icreq.maxr2t or r2t.length < 8192:
        return None
    half = r2t.length // 8 * 4
    through.memory["halves", r2t.cccid] = (r2t.offset + half, [])
    first = replace(r2t, length=half)
    return [replace(r2t, offset=r2t.offset + half, length=r2t.length - half), first]


def _ordered_data(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Hold the data of the second half back until those of the first have come."""
    data = got.pdu
    if not isinstance(data, H2CData) or ("halves", data.cccid) not in through.memory:
        return None
    middle, held = through.memory["halves", data.cccid]
    if data.offset >= middle:
        held.append(data)
        return []
    if not data.last:
        return None
    del through.memory["halves", data.cccid]
    return [replace(data, last=False), *held]


add(
    "r2t-swapped | NVMe/TCP 3.3.2.2 | of two R2Ts of a command, the first asks for the second half",
    lambda: ProxyConnection(of_target=_swapped_r2ts, of_host=_ordered_data),
)
