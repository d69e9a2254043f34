"""Broken rules of Identify, log pages, features and I/O commands, and of reservations on further commands."""

import struct
from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import (
    accepts,
    action,
    add,
    commands,
    drops_command,
    feature,
    host,
    identify,
    log,
    on_io,
    patch,
    put,
    refuses,
    results,
    target,
)

from storagetest.wire.nvme.codes import Admin, Cns, Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, DecodedPdu

# Identify (Base 5.2.13)

CONTROLLER = identify(Cns.CONTROLLER)
target(
    "identify-nn | Base 5.2.13.2.1 | NN is 1, and NSID 2 is active",
    patch(put(516, struct.pack("<I", 1)), when=CONTROLLER),
)
target(
    "identify-cntrltype | Base 5.2.13.2.1 | an I/O controller's CNTRLTYPE is 0",
    patch(put(111, b"\0"), when=CONTROLLER),
)
target(
    "identify-other-cntlid | Base 5.2.13.2.1 | CNTLID is another in each Identify",
    patch(
        lambda raw: raw[:78] + struct.pack("<H", int.from_bytes(raw[78:80], "little") ^ 0x100) + raw[80:],
        when=lambda t, c: CONTROLLER(t, c) and _again(t, "identified"),
    ),
)
target(
    "identify-nguid-same | Base 4.7.1.4 | NGUID is the same in all namespaces",
    patch(put(104, b"\x42" * 16), when=lambda t, c: identify(Cns.NAMESPACE)(t, c) and c.nsid <= 2),
)


def _again(through: ProxyConnection, what: str) -> bool:
    through.memory[what] = through.memory.get(what, 0) + 1
    return through.memory[what] > 1


target(
    "identify-nguid-changes | NVM 4.1.5.1 | NGUID is another in each Identify",
    patch(
        lambda raw: raw[:104] + bytes([raw[104] ^ 1]) + raw[105:],
        when=lambda t, c: identify(Cns.NAMESPACE)(t, c) and _again(t, "nguid"),
    ),
)

# Log pages (Base 5.2.12)

OTHER_PAGES = lambda t, c: log()(t, c) and c.cdw10 & 0xFF != LogPage.FIRMWARE_SLOT  # noqa: E731
host(
    "log-offset-other | Base 5.2.12 | LPO is ignored for all pages but Firmware Slot",
    commands(lambda capsule, c: CapsuleCmd(replace(c, cdw12=0).encode()), when=OTHER_PAGES),
)
target(
    "log-length-other | Base 5.2.12 | a short read of other log pages returns zeroes",
    patch(lambda raw: bytes(len(raw)) if len(raw) < 512 else raw, when=OTHER_PAGES),
)
target(
    "log-smart-range | Base 5.2.12.1.3 | Available Spare of the SMART log is 255 percent",
    patch(lambda raw: raw[:3] + b"\xff" + raw[4:] if len(raw) > 3 else raw, when=log(LogPage.SMART)),
)

target(
    "discovery-entry | Base 5.2.12.3.3 | TRSVCID of an entry is no port",
    patch(
        lambda raw: raw[:1056] + b"nvme" + raw[1060:] if len(raw) > 1056 else raw, when=log(LogPage.DISCOVERY)
    ),
)

# Features (Base 5.2.11, 5.2.26)

MANDATORY = (0x01, 0x02, 0x04, 0x05, 0x07, 0x0A, 0x0B, 0x0F)
target(
    "features-missing | Base 3.1.3.6 | mandatory features are not supported",
    refuses(StatusCode.INVALID_FIELD, when=feature(Admin.GET_FEATURES, *MANDATORY)),
)
host(
    "features-default | Base 5.2.11 | the default value is the current one",
    commands(
        lambda capsule, c: CapsuleCmd(replace(c, cdw10=c.cdw10 & ~0x700).encode()),
        when=lambda t, c: feature(Admin.GET_FEATURES)(t, c) and c.cdw10 >> 8 & 7 == 1,
    ),
)
target(
    "features-saved | Base 5.2.11 | the saved value of a feature that cannot be saved is not the default",
    results(
        lambda t, c, old: old ^ 1,
        when=lambda t, c: feature(Admin.GET_FEATURES)(t, c) and c.cdw10 >> 8 & 7 == 2,
    ),
)
target(
    "features-capabilities | Base 5.2.11 | a changeable feature is reported as unchangeable",
    results(
        lambda t, c, old: 0, when=lambda t, c: feature(Admin.GET_FEATURES)(t, c) and c.cdw10 >> 8 & 7 == 3
    ),
)
target(
    "features-saved-anyway | Base 5.2.26 | a feature that cannot be saved is saved",
    accepts(StatusCode.FEATURE_NOT_SAVEABLE),
)
# I/O commands (NVM 3.3)


def last_block(capsule: CapsuleCmd, command: Command) -> CapsuleCmd:
    """Compare the last block alone."""
    blocks = (command.cdw12 & 0xFFFF) + 1
    size = len(capsule.data) // blocks
    dptr = command.dptr[:8] + size.to_bytes(4, "little") + command.dptr[12:]
    one = replace(command, cdw10=command.cdw10 + blocks - 1, cdw12=command.cdw12 & ~0xFFFF, dptr=dptr)
    return CapsuleCmd(one.encode(), capsule.data[-size:])


host(
    "compare-last-only | NVM 3.3.1 | Compare looks at the last block alone",
    lambda t, got: (
        commands(last_block, when=on_io(Io.COMPARE))(t, got)
        if isinstance(got.pdu, CapsuleCmd) and got.pdu.data
        else None
    ),
)
host(
    "zeroes-64-blocks | NVM 3.3.8 | Write Zeroes writes 64 blocks at most",
    commands(
        lambda capsule, c: CapsuleCmd(
            replace(c, cdw12=c.cdw12 & ~0xFFFF | min(c.cdw12 & 0xFFFF, 63)).encode()
        ),
        when=on_io(Io.WRITE_ZEROES),
    ),
)
host(
    "deac-whole-units | NVM 3.3.8 | Write Zeroes with DEAC does nothing if it begins or ends within 8 blocks",
    drops_command(
        lambda t, c: on_io(Io.WRITE_ZEROES)(t, c) and bool(c.cdw12 >> 25 & 1 and (c.cdw10 | c.cdw12 + 1) & 7)
    ),
)
host(
    "dsm-without-ad | NVM 3.3.3 | Dataset Management deallocates although AD is 0",
    commands(
        lambda capsule, c: CapsuleCmd(replace(c, cdw11=c.cdw11 | 4).encode(), capsule.data),
        when=lambda t, c: on_io(Io.DATASET_MANAGEMENT)(t, c) and not c.cdw11 & 4,
    ),
)


def unsteady(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Read blocks that are zeroes as zeroes and as ones, in turn."""
    command = through.command_of(got)
    if not isinstance(got.pdu, C2HData) or not command or not on_io(Io.READ)(through, command):
        return None
    if any(got.pdu.data) or not _again(through, "zeroes") or through.memory["zeroes"] % 2:
        return None
    return [replace(got.pdu, data=b"\xff" * len(got.pdu.data))]


target("dsm-unsteady | NVM 3.3.3.2.1 | deallocated blocks read as zeroes and as ones in turn", unsteady)
target(
    "copy-to-past-end | NVM 3.3.2 | Copy to blocks past the end is accepted",
    accepts(StatusCode.LBA_OUT_OF_RANGE, when=lambda t, c: on_io(Io.COPY)(t, c) and c.cdw10 >= 2048 - 64),
)
target(
    "copy-later-past-end | NVM 3.3.2 | of the ranges of a Copy the first alone is checked against the size",
    accepts(StatusCode.LBA_OUT_OF_RANGE, when=lambda t, c: on_io(Io.COPY)(t, c) and bool(c.cdw12 & 0xFF)),
)
target(
    "copy-end-of-first | NVM 3.3.2 | a Copy of one range that ends past the namespace is accepted",
    accepts(StatusCode.LBA_OUT_OF_RANGE, when=lambda t, c: on_io(Io.COPY)(t, c) and not c.cdw12 & 0xFF),
)
target(
    "copy-any-format | NVM 3.3.2 | Copy of a descriptor format that does not exist is accepted",
    accepts(StatusCode.INVALID_FIELD, when=on_io(Io.COPY)),
)
target(
    "hints-refused | NVM 3.3.4 | Read and Write with dataset management hints are refused",
    refuses(
        StatusCode.INVALID_FIELD, when=lambda t, c: on_io(Io.READ, Io.WRITE)(t, c) and bool(c.cdw13 & 0xFF)
    ),
)
target(
    "limited-retry-refused | NVM 3.3.4 | Read and Write with LR are refused",
    refuses(
        StatusCode.INVALID_FIELD, when=lambda t, c: on_io(Io.READ, Io.WRITE)(t, c) and bool(c.cdw12 >> 31)
    ),
)
target(
    "compare-range | NVM 3.3.1 | Compare past the end is accepted",
    accepts(StatusCode.LBA_OUT_OF_RANGE, when=on_io(Io.COMPARE)),
)
target(
    "optional-nsid | Base 3.2.1.5 | Compare, Write Zeroes and Dataset Management of an invalid NSID succeed",
    accepts(StatusCode.INVALID_NAMESPACE, when=on_io(Io.DATASET_MANAGEMENT, Io.COMPARE, Io.WRITE_ZEROES)),
)
host(
    "read-odd-lba | NVM 3.3.4 | reads of several blocks from an odd LBA begin one block early",
    commands(
        lambda capsule, c: CapsuleCmd(replace(c, cdw10=c.cdw10 & ~1).encode()),
        when=lambda t, c: on_io(Io.READ)(t, c) and bool(c.cdw10 & 1) and c.cdw12 & 0xFFFF > 0,
    ),
)
host(
    "write-8-blocks | NVM 3.3.6 | a write of eight blocks or more begins at a multiple of eight",
    commands(
        lambda capsule, c: CapsuleCmd(replace(c, cdw10=c.cdw10 & ~7).encode(), capsule.data),
        when=lambda t, c: on_io(Io.WRITE)(t, c) and c.cdw12 & 0xFFFF >= 7 and bool(c.cdw10 & 7),
    ),
)
host(
    "uncorrectable-ignored | NVM 3.3.7 | Write Uncorrectable does nothing",
    drops_command(on_io(Io.WRITE_UNCORRECTABLE)),
)


def stays_uncorrectable(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Reads of blocks that were once marked fail for ever."""
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    command = Command.decode(got.pdu.sqe)
    if on_io(Io.WRITE_UNCORRECTABLE)(through, command):
        through.memory["marked"] = command.cdw10
    if on_io(Io.READ)(through, command) and command.cdw10 == through.memory.get("marked"):
        through.reply(Cqe(command.cid, StatusCode.UNRECOVERED_READ_ERROR, sqhd=1))
        return []
    return None


host(
    "uncorrectable-stays | NVM 3.3.7 | a block remains uncorrectable after it is written", stays_uncorrectable
)
target(
    "uncorrectable-data | NVM 3.3.7 | reads of uncorrectable blocks succeed",
    accepts(StatusCode.UNRECOVERED_READ_ERROR),
)

# Reservations on further commands (Base 8.1.24.1)

for _name, _opcode in (
    ("zeroes", Io.WRITE_ZEROES),
    ("dsm", Io.DATASET_MANAGEMENT),
    ("copy", Io.COPY),
    ("compare", Io.COMPARE),
    ("verify", Io.VERIFY),
    ("flush", Io.FLUSH),
    ("uncorrectable", Io.WRITE_UNCORRECTABLE),
):
    target(
        f"reservation-{_name} | Base 8.1.24.1 | {_opcode.name} is not excluded by a reservation",
        accepts(StatusCode.RESERVATION_CONFLICT, when=on_io(_opcode)),
    )
target(
    "register-any-action | Base 7.6 | a reserved RREGA is accepted",
    accepts(StatusCode.INVALID_FIELD, when=action(Io.RESERVATION_REGISTER)),
)
target(
    "release-any-action | Base 7.7 | a reserved RRELA is accepted",
    accepts(
        StatusCode.INVALID_FIELD, when=lambda t, c: on_io(Io.RESERVATION_RELEASE)(t, c) and c.cdw10 & 7 > 1
    ),
)
target(
    "acquire-any-action | Base 7.5 | a reserved RACQA is accepted",
    accepts(
        StatusCode.INVALID_FIELD, when=lambda t, c: on_io(Io.RESERVATION_ACQUIRE)(t, c) and c.cdw10 & 7 > 2
    ),
)
target(
    "report-one | Base 7.8 | the report lists one registrant at most",
    patch(lambda raw: raw[:5] + b"\1\0" + raw[7:] if raw[5] > 1 else raw, when=on_io(Io.RESERVATION_REPORT)),
)
target(
    "report-not-extended | Base 7.8 | a report without the extended structure is accepted",
    accepts(StatusCode.HOST_IDENTIFIER_INCONSISTENT),
)
target(
    "report-short | Base 7.8 | a report of fewer bytes than it has is all zeroes",
    patch(lambda raw: bytes(len(raw)) if len(raw) < 1024 else raw, when=on_io(Io.RESERVATION_REPORT)),
)


def acquired_once(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """A host acquires a reservation once; the next time it is a conflict."""
    command = Command.decode(got.pdu.sqe) if isinstance(got.pdu, CapsuleCmd) else None
    if command is None or not action(Io.RESERVATION_ACQUIRE, 0)(through, command):
        return None
    if through.memory.get("acquired"):
        through.reply(Cqe(command.cid, StatusCode.RESERVATION_CONFLICT, sqhd=1))
        return []
    through.memory["acquired"] = True
    return None


host(
    "reserve-once | Base 8.1.24.5 | a host that has released a reservation acquires none again", acquired_once
)


def counts_registrations(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Note how often this host has cleared."""
    command = Command.decode(got.pdu.sqe) if isinstance(got.pdu, CapsuleCmd) else None
    if command is not None and action(Io.RESERVATION_RELEASE, 1)(through, command):
        through.memory["cleared"] = through.memory.get("cleared", 0) + 1
    return None


add(
    "generation-of-clear | Base 7.8 | Clear does not increment the generation",
    lambda: ProxyConnection(
        of_host=counts_registrations,
        of_target=lambda t, got: patch(
            lambda raw: (
                struct.pack("<I", int.from_bytes(raw[:4], "little") - t.memory.get("cleared", 0)) + raw[4:]
            ),
            when=on_io(Io.RESERVATION_REPORT),
        )(t, got),
    ),
)
