"""Broken rules of the commands: fabrics, admin, I/O, reservations (NVM Express Base 2.2; NVM Command Set)."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterable
from dataclasses import replace

from nvme_tcp_rules import (
    accepts,
    action,
    add,
    fabrics,
    feature,
    host,
    identify,
    log,
    on_admin,
    on_io,
    patch,
    put,
    refuses,
    response,
    results,
    swallows,
    target,
)
from nvme_tcp_through import Item, Rule, Through

from storagetest.wire.nvme.codes import FABRICS, Admin, Cns, Fctype, Feature, Io, LogPage, Property, Status
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import (
    CapsuleCmd,
    CapsuleResp,
    Received,
)

# Connect, properties, Disconnect (Base 6, 3.1.4)

IDS = itertools.count(1)

target(
    "connect-cntlid",
    "Base 6.3",
    "CNTLID of Connect is not Identify's",
    results(lambda t, c, old: old + 1, when=fabrics(Fctype.CONNECT, cdw10=0)),
)
target(
    "connect-cntlid-shared",
    "Base 6.3",
    "every host gets CNTLID 7",
    results(lambda t, c, old: 7, when=fabrics(Fctype.CONNECT, cdw10=0)),
)
target(
    "connect-wrong-status",
    "Base 6.3",
    "a refused Connect says Invalid Field",
    response(
        lambda t, c, cqe: (
            replace(cqe, status=Status.INVALID_FIELD)
            if c and fabrics(Fctype.CONNECT)(t, c) and cqe.status >> 8 == 1
            else None
        )
    ),
)
target(
    "connect-ipo",
    "Base 6.3",
    "a refused Connect does not say where",
    response(
        lambda t, c, cqe: (
            replace(cqe, result=0) if c and fabrics(Fctype.CONNECT)(t, c) and not cqe.ok else None
        )
    ),
)
target(
    "connect-sequence",
    "Base 6.3",
    "Connect out of order is Invalid Opcode",
    response(
        lambda t, c, cqe: (
            replace(cqe, status=Status.INVALID_OPCODE)
            if c and fabrics(Fctype.CONNECT)(t, c) and cqe.status == Status.COMMAND_SEQUENCE_ERROR
            else None
        )
    ),
)
target(
    "connect-first",
    "Base 6.3",
    "commands before Connect are carried out",
    accepts(Status.COMMAND_SEQUENCE_ERROR, when=lambda t, c: not fabrics(Fctype.CONNECT)(t, c)),
)
target(
    "cc-en-ignored",
    "Base 3.5.1",
    "admin commands do not wait for CC.EN",
    accepts(Status.COMMAND_SEQUENCE_ERROR, when=on_admin(Admin.IDENTIFY)),
)
target(
    "cap-cqr",
    "Base 3.1.4.1",
    "CAP.CQR is 0",
    results(lambda t, c, old: old & ~0x10000, when=fabrics(Fctype.PROPERTY_GET, cdw11=Property.CAP)),
)
target(
    "vs-zero",
    "Base 3.1.4.2",
    "VS is 0",
    results(lambda t, c, old: 0, when=fabrics(Fctype.PROPERTY_GET, cdw11=Property.VS)),
)
target(
    "cc-forgotten",
    "Base 3.1.4.5",
    "CC reads as 0",
    results(lambda t, c, old: 0, when=fabrics(Fctype.PROPERTY_GET, cdw11=Property.CC)),
)
target(
    "csts-stuck",
    "Base 3.1.4.6",
    "CSTS is always 1",
    results(lambda t, c, old: 1, when=fabrics(Fctype.PROPERTY_GET, cdw11=Property.CSTS)),
)
target(
    "property-size-ignored",
    "Base 6.5",
    "properties of the wrong size are read",
    accepts(
        Status.INVALID_FIELD,
        when=lambda t, c: fabrics(Fctype.PROPERTY_GET)(t, c) and c.cdw11 in set(Property),
    ),
)
target(
    "property-unknown",
    "Base 6.5",
    "reserved properties read as FFFFFFFFh",
    response(
        lambda t, c, cqe: (
            replace(cqe, status=0, result=0xFFFFFFFF)
            if c and fabrics(Fctype.PROPERTY_GET)(t, c) and c.cdw11 not in set(Property)
            else None
        )
    ),
)
target(
    "property-read-only",
    "Base 6.6",
    "read-only properties seem to be set",
    accepts(Status.INVALID_FIELD, when=fabrics(Fctype.PROPERTY_SET)),
)
target(
    "property-on-io",
    "Base 6.5",
    "properties may be read on an I/O queue",
    accepts(Status.INVALID_FIELD, when=lambda t, c: bool(t.qid) and fabrics(Fctype.PROPERTY_GET)(t, c)),
)


def no_reset(through: Through, c: Command) -> bool:
    off = fabrics(Fctype.PROPERTY_SET, cdw11=Property.CC)(through, c) and not c.cdw12 & 1
    through.memory["off"] = through.memory.get("off") or off
    return off


add(
    "reset-ignored",
    "Base 3.7.2",
    "a controller reset leaves the I/O queues",
    lambda: Through(
        of_host=swallows(no_reset),
        of_target=results(
            lambda t, c, old: old & ~1 if t.memory.get("off") else old,
            when=fabrics(Fctype.PROPERTY_GET, cdw11=Property.CSTS),
        ),
    ),
)
host(
    "disconnect-ignored",
    "Base 6.4",
    "Disconnect succeeds and ends nothing",
    swallows(lambda t, c: bool(t.qid) and fabrics(Fctype.DISCONNECT)(t, c)),
)
target(
    "disconnect-admin",
    "Base 6.4",
    "the admin queue may be disconnected",
    accepts(Status.DISCONNECT_INVALID_QUEUE_TYPE),
)
target(
    "fctype-accepted",
    "Base 6",
    "unknown fabrics commands succeed",
    accepts(Status.INVALID_OPCODE, when=lambda t, c: c.opcode == FABRICS),
)
target(
    "discovery-type",
    "Base 3.1.3.3",
    "the discovery controller says that it is an I/O controller",
    patch(put(111, b"\1"), when=identify(Cns.CONTROLLER)),
)
target(
    "discovery-io",
    "Base 3.1.3.3",
    "a discovery controller takes an I/O queue",
    accepts(
        Status.CONNECT_INVALID_PARAMETERS,
        when=lambda t, c: fabrics(Fctype.CONNECT)(t, c) and c.cdw10 >> 16 != 0,
    ),
)
target(
    "discovery-empty",
    "Base 5.1.12.3.1",
    "the discovery log is empty",
    patch(lambda raw: bytes(len(raw)), when=log(LogPage.DISCOVERY)),
)

# Identify (Base 5.1.13)

CONTROLLER = identify(Cns.CONTROLLER)
target(
    "identify-short",
    "Base 5.1.13",
    "Identify returns 4,092 bytes",
    patch(lambda raw: raw[:-4], when=CONTROLLER),
)
target("identify-sizes", "Base 5.1.13.2.1", "SQES is 77h", patch(put(512, b"\x77"), when=CONTROLLER))
target("identify-ioccsz", "Base 5.1.13.2.1", "IOCCSZ is 3", patch(put(1792, b"\3\0\0\0"), when=CONTROLLER))
target("identify-sgls", "Base 5.1.13.2.1", "SGLS is 0", patch(put(536, bytes(4)), when=CONTROLLER))
target("identify-icdoff", "NVMe/TCP 3.3.2", "ICDOFF is 4", patch(put(1800, b"\4\0"), when=CONTROLLER))
target("identify-kas", "Base 5.1.13.2.1", "KAS is 0", patch(put(320, bytes(2)), when=CONTROLLER))
target(
    "identify-subnqn",
    "Base 5.1.13.2.1",
    "SUBNQN is another's",
    patch(put(768, b"nqn.1999-01"), when=CONTROLLER),
)
target("identify-maxcmd", "Base 5.1.13.2.1", "MAXCMD is 0", patch(put(514, bytes(2)), when=CONTROLLER))
target("identify-ascii", "Base 5.1.13.2.1", "SN is not ASCII", patch(put(4, b"\x01"), when=CONTROLLER))
LOOKS = itertools.count(1)
target(
    "identify-changing",
    "Base 5.1.13.2.1",
    "each look is another",
    patch(lambda raw: raw[:4090] + next(LOOKS).to_bytes(2, "little") + raw[4092:], when=CONTROLLER),
)
target(
    "identify-flbas",
    "NVM 4.1.5.1",
    "FLBAS names no format",
    patch(put(26, b"\x0f"), when=identify(Cns.NAMESPACE)),
)
target(
    "identify-same",
    "Base 5.1.13.2.3",
    "two namespaces have one identifier",
    patch(put(4, b"\x77" * 16), when=identify(Cns.DESCRIPTORS)),
)
ACTIVE = identify(Cns.ACTIVE_NAMESPACES)
target(
    "identify-list-order",
    "Base 5.1.13.2.2",
    "the active list is not in order",
    patch(lambda raw: raw[4:8] + raw[:4] + raw[8:] if any(raw[4:8]) else raw, when=ACTIVE),
)
target(
    "identify-list-from",
    "Base 5.1.13.2.2",
    "the active list does not begin after NSID",
    patch(put(0, struct.pack("<II", 1, 2)), when=ACTIVE),
)
target(
    "identify-ns-sizes",
    "NVM 4.1.5.1",
    "NCAP is more than NSZE",
    patch(put(8, b"\xff" * 8), when=identify(Cns.NAMESPACE)),
)
target(
    "identify-inactive",
    "NVM 4.1.5.1",
    "an inactive namespace is not all zero",
    patch(lambda raw: raw if any(raw) else b"\1" + raw[1:], when=identify(Cns.NAMESPACE)),
)
target(
    "identify-descriptors",
    "Base 5.1.13.2.3",
    "a namespace has no identifier",
    patch(lambda raw: bytes(4096), when=identify(Cns.DESCRIPTORS)),
)
target("nsid-not-checked", "Base 3.2.1", "any NSID is taken", accepts(Status.INVALID_NAMESPACE))
target(
    "cns-accepted",
    "Base 5.1.13",
    "any CNS is taken",
    accepts(Status.INVALID_FIELD, when=on_admin(Admin.IDENTIFY)),
)

# Log pages and features (Base 5.1.11, 5.1.12, 5.1.25)

target(
    "log-page-lost",
    "Base 5.1.12",
    "mandatory log pages are not there",
    refuses(Status.INVALID_LOG_PAGE, when=log(1, 2, 3, 4)),
)
target(
    "log-length",
    "Base 5.1.12",
    "a short read of a log page is not its beginning",
    patch(lambda raw: raw if len(raw) > 64 else raw[::-1], when=log(LogPage.FIRMWARE_SLOT)),
)
host(
    "log-offset",
    "Base 5.1.12",
    "LPO is ignored",
    lambda t, got: (
        [CapsuleCmd(replace(Command.decode(got.pdu.sqe), cdw12=0).encode())]
        if isinstance(got.pdu, CapsuleCmd) and log()(t, Command.decode(got.pdu.sqe))
        else None
    ),
)
target(
    "log-offset-unchecked",
    "Base 5.1.12",
    "LPO past the end is taken",
    accepts(Status.INVALID_FIELD, when=log()),
)
target("log-page-accepted", "Base 5.1.12", "any log page is there", accepts(Status.INVALID_LOG_PAGE))
target(
    "log-effects",
    "Base 5.1.12.1.6",
    "the effects log lists nothing",
    patch(lambda raw: bytes(len(raw)), when=log(LogPage.EFFECTS)),
)
target(
    "queues-granted",
    "Base 5.1.25.2.1",
    "Get Features returns other queues than were granted",
    results(lambda t, c, old: old + 1, when=feature(Admin.GET_FEATURES, Feature.NUMBER_OF_QUEUES)),
)
target(
    "queues-ffff",
    "Base 5.1.25.2.1",
    "65,536 queues may be asked for",
    accepts(Status.INVALID_FIELD, when=feature(Admin.SET_FEATURES, Feature.NUMBER_OF_QUEUES)),
)
target(
    "feature-forgotten",
    "Base 5.1.25",
    "features read as 0",
    results(lambda t, c, old: 0, when=feature(Admin.GET_FEATURES)),
)
target(
    "feature-accepted",
    "Base 5.1.25",
    "any feature is there",
    accepts(
        Status.INVALID_FIELD,
        when=lambda t, c: feature(Admin.GET_FEATURES, 0x7F)(t, c) or feature(Admin.SET_FEATURES, 0x7F)(t, c),
    ),
)
target(
    "hostid-wrong",
    "Base 5.1.25.1.28",
    "the Host Identifier is another",
    patch(lambda raw: raw[::-1], when=feature(Admin.GET_FEATURES, Feature.HOST_IDENTIFIER)),
)
target(
    "hostid-short",
    "Base 5.1.25.1.28",
    "a Host Identifier of 64 bits may be read",
    accepts(Status.INVALID_FIELD, when=feature(Admin.GET_FEATURES, Feature.HOST_IDENTIFIER)),
)
target(
    "hostid-set",
    "Base 5.1.25.1.28",
    "the Host Identifier may be set again",
    accepts(Status.COMMAND_SEQUENCE_ERROR, when=feature(Admin.SET_FEATURES, Feature.HOST_IDENTIFIER)),
)

# Opcodes, events, Abort, Keep Alive (Base 5.1)

target("opcode-accepted", "Base 5", "unknown opcodes succeed", accepts(Status.INVALID_OPCODE))
host(
    "aer-at-once",
    "Base 5.1.2",
    "an event request is completed at once",
    swallows(on_admin(Admin.ASYNCHRONOUS_EVENT_REQUEST)),
)
target("aer-limit", "Base 5.1.2", "there is no limit to event requests", accepts(Status.AER_LIMIT_EXCEEDED))
target(
    "abort-unknown",
    "Base 5.1.1",
    "Abort says that it aborted what is not there",
    results(lambda t, c, old: 0, when=on_admin(Admin.ABORT)),
)


def no_aborted(through: Through, got: Received) -> Iterable[Item] | None:
    aborted = isinstance(got.pdu, CapsuleResp) and Cqe.decode(got.pdu.cqe).status == Status.ABORTED_BY_REQUEST
    return [CapsuleResp(replace(Cqe.decode(got.pdu.cqe), status=0).encode())] if aborted else None


target("abort-silent", "Base 5.1.1", "an aborted command is completed as a success", no_aborted)
target(
    "keep-alive-refused",
    "Base 5.1.14",
    "Keep Alive is refused",
    refuses(Status.INVALID_OPCODE, when=on_admin(Admin.KEEP_ALIVE)),
)
host(
    "keep-alive-deaf",
    "Base 3.9",
    "Keep Alive does not start the timer again",
    swallows(on_admin(Admin.KEEP_ALIVE)),
)
host(
    "keep-alive-never",
    "Base 3.9",
    "the Keep Alive Timer is never started",
    lambda t, got: (
        [CapsuleCmd(replace(Command.decode(got.pdu.sqe), cdw12=0).encode(), got.pdu.data)]
        if isinstance(got.pdu, CapsuleCmd) and fabrics(Fctype.CONNECT)(t, Command.decode(got.pdu.sqe))
        else None
    ),
)

# I/O commands (NVM 3.3)

host("write-lost", "NVM 3.3.6", "writes succeed and are lost", swallows(on_io(Io.WRITE)))
target(
    "read-flipped",
    "NVM 3.3.4",
    "one bit of a read is flipped",
    patch(lambda raw: raw[:100] + bytes([raw[100] ^ 1]) + raw[101:], when=on_io(Io.READ)),
)
target(
    "fua-refused",
    "NVM 3.3.6",
    "FUA is refused",
    refuses(Status.INVALID_FIELD, when=lambda t, c: on_io(Io.WRITE)(t, c) and c.cdw12 >> 30 & 1 == 1),
)
host(
    "write-spills",
    "NVM 3.3.6",
    "a write of one block goes to the next one too",
    lambda t, got: (
        [_wider(got.pdu)]
        if isinstance(got.pdu, CapsuleCmd)
        and got.pdu.data
        and on_io(Io.WRITE)(t, Command.decode(got.pdu.sqe))
        and not Command.decode(got.pdu.sqe).cdw12 & 0xFFFF
        else None
    ),
)


def _wider(capsule: CapsuleCmd) -> CapsuleCmd:
    one = Command.decode(capsule.sqe)
    data = capsule.data * 2
    dptr = one.dptr[:8] + len(data).to_bytes(4, "little") + one.dptr[12:]
    return CapsuleCmd(replace(one, cdw12=one.cdw12 + 1, dptr=dptr).encode(), data)


target("lba-not-checked", "NVM 3.3", "LBAs past the end are taken", accepts(Status.LBA_OUT_OF_RANGE))
target(
    "last-block-refused",
    "NVM 3.3.4",
    "the last block is out of range",
    refuses(Status.LBA_OUT_OF_RANGE, when=lambda t, c: on_io(Io.READ)(t, c) and c.cdw10 == 2047),
)
target(
    "mdts-ignored",
    "Base 5.1.13.2.1",
    "MDTS is not looked at",
    accepts(Status.INVALID_FIELD, when=on_io(Io.READ)),
)
target(
    "fuse-ignored",
    "Base 3.4.2",
    "FUSE is not looked at",
    accepts(Status.INVALID_FIELD, when=lambda t, c: bool(c.flags & 3)),
)
target("flush-refused", "Base 7.2", "Flush is refused", refuses(Status.INVALID_OPCODE, when=on_io(Io.FLUSH)))
target("compare-always", "NVM 3.3.1", "Compare always succeeds", accepts(Status.COMPARE_FAILURE))
target(
    "compare-never",
    "NVM 3.3.1",
    "Compare always fails",
    refuses(Status.COMPARE_FAILURE, when=on_io(Io.COMPARE)),
)
host("zeroes-ignored", "NVM 3.3.8", "Write Zeroes does nothing", swallows(on_io(Io.WRITE_ZEROES)))


def dsm(change: Callable[[bytes], bytes]) -> Rule:
    return lambda t, got: (
        [CapsuleCmd(got.pdu.sqe, change(got.pdu.data))]
        if isinstance(got.pdu, CapsuleCmd) and on_io(Io.DATASET_MANAGEMENT)(t, Command.decode(got.pdu.sqe))
        else None
    )


host(
    "dsm-spills",
    "NVM 3.3.3",
    "deallocation takes one block too many",
    dsm(
        lambda raw: b"".join(
            raw[at : at + 4] + struct.pack("<I", raw[at + 4] + 1) + raw[at + 8 : at + 16]
            for at in range(0, len(raw), 16)
        )
    ),
)
target(
    "dsm-half",
    "NVM 3.3.3",
    "blocks that read as zeroes read as garbage",
    patch(lambda raw: raw if any(raw) else b"\x5a" * len(raw), when=on_io(Io.READ)),
)
target(
    "verify-refused",
    "NVM 3.3.5",
    "Verify fails",
    refuses(Status.UNRECOVERED_READ_ERROR, when=on_io(Io.VERIFY)),
)
host("copy-ignored", "NVM 3.3.2", "Copy does nothing", swallows(on_io(Io.COPY)))
target("copy-limits", "NVM 3.3.2", "Copy has no limits", accepts(Status.COMMAND_SIZE_LIMIT_EXCEEDED))

# Reservations (Base 7.5 to 7.8, 8.1.22)

REPORT = on_io(Io.RESERVATION_REPORT)
target(
    "reservation-not-enforced",
    "Base 8.1.22",
    "a reservation binds nobody",
    accepts(Status.RESERVATION_CONFLICT),
)
target(
    "reservation-too-strict",
    "Base 8.1.22",
    "a reservation binds everybody",
    refuses(Status.RESERVATION_CONFLICT, when=on_io(Io.READ, Io.WRITE)),
)
target(
    "reservation-key-unchecked",
    "Base 7.6",
    "keys are not compared",
    accepts(
        Status.RESERVATION_CONFLICT,
        when=on_io(Io.RESERVATION_REGISTER, Io.RESERVATION_ACQUIRE, Io.RESERVATION_RELEASE),
    ),
)
target(
    "reservation-stolen",
    "Base 7.5",
    "a held reservation may be acquired",
    accepts(Status.RESERVATION_CONFLICT, when=action(Io.RESERVATION_ACQUIRE, 0)),
)
host(
    "reservation-outlives",
    "Base 7.6",
    "unregistering does nothing",
    swallows(action(Io.RESERVATION_REGISTER, 1)),
)
target(
    "rtype-unchecked",
    "Base 7.5",
    "any type is taken",
    accepts(Status.INVALID_FIELD, when=action(Io.RESERVATION_ACQUIRE)),
)
target("report-empty", "Base 7.8", "the report lists nobody", patch(put(5, bytes(2)), when=REPORT))
target(
    "report-holder-lost",
    "Base 7.8",
    "the report names no holder",
    patch(
        lambda raw: b"".join(
            [raw[:64], *(raw[at : at + 2] + b"\0" + raw[at + 3 : at + 64] for at in range(64, len(raw), 64))]
        ),
        when=REPORT,
    ),
)
target("generation-stuck", "Base 7.8", "GEN is always 5", patch(put(0, b"\5\0\0\0"), when=REPORT))
GENERATION = itertools.count(1)
target(
    "generation-runs",
    "Base 7.8",
    "GEN counts reports too",
    patch(lambda raw: next(GENERATION).to_bytes(4, "little") + raw[4:], when=REPORT),
)
host("release-ignored", "Base 7.7", "Release does nothing", swallows(action(Io.RESERVATION_RELEASE, 0)))
target(
    "release-type",
    "Base 7.7",
    "Release does not look at the type",
    accepts(Status.INVALID_FIELD, when=action(Io.RESERVATION_RELEASE)),
)
host("clear-ignored", "Base 7.7", "Clear does nothing", swallows(action(Io.RESERVATION_RELEASE, 1)))
host("preempt-ignored", "Base 7.5", "Preempt does nothing", swallows(action(Io.RESERVATION_ACQUIRE, 1, 2)))
target(
    "preempt-unknown",
    "Base 7.5",
    "Preempt of an unknown key succeeds",
    accepts(Status.RESERVATION_CONFLICT, when=action(Io.RESERVATION_ACQUIRE, 1)),
)
target("release-by-anybody", "Base 7.7", "a release by anybody releases", patch(put(4, b"\0"), when=REPORT))
target(
    "preempt-takes",
    "Base 7.5",
    "the report counts preempted registrants still",
    patch(lambda raw: raw[:5] + b"\2\0" + raw[7:] if raw[4] and raw[5] == 1 else raw, when=REPORT),
)
target(
    "notice-lost",
    "Base 5.1.12.1.32",
    "a preempted host is told of another event",
    results(lambda t, c, old: 0x020002, when=on_admin(Admin.ASYNCHRONOUS_EVENT_REQUEST)),
)
target(
    "registration-lost",
    "Base 8.1.22",
    "a registration ends with the association",
    accepts(Status.RESERVATION_CONFLICT, when=on_io(Io.READ)),
)
host(
    "iekey-ignored",
    "Base 7.6",
    "Ignore Existing Key is ignored",
    swallows(
        lambda t, c: action(Io.RESERVATION_REGISTER, 2)(t, c) and c.cdw10 >> 3 & 1 == 1,
        status=Status.RESERVATION_CONFLICT,
    ),
)


def second_acquire(through: Through, c: Command) -> bool:
    if not action(Io.RESERVATION_ACQUIRE, 0)(through, c):
        return False
    through.memory["acquired"] = through.memory.get("acquired", 0) + 1
    return bool(through.memory["acquired"] == 2)


host(
    "acquire-again-refused",
    "Base 7.5",
    "the holder may not acquire again",
    swallows(second_acquire, status=Status.RESERVATION_CONFLICT),
)
target(
    "ana-lost",
    "Base 8.1.1",
    "the ANA log is not there",
    refuses(Status.INVALID_LOG_PAGE, when=log(LogPage.ANA)),
)
