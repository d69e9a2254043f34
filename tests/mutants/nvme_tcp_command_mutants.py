"""Broken rules of the commands: fabrics, admin, I/O (NVM Express Base 2.3; NVM Command Set 1.2)."""

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
    shared,
    target,
)

from storagetest.wire.nvme.codes import (
    FABRICS,
    Admin,
    Cns,
    Fctype,
    Feature,
    Io,
    LogPage,
    Property,
    StatusCode,
)
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme.io import dsm_ranges
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, CapsuleResp, DecodedPdu

# Connect, properties, Disconnect (Base 6, 3.1.4)

target(
    "connect-cntlid | Base 6.3 | CNTLID of Connect is not Identify's",
    results(lambda t, c, old: old + 1, when=fabrics(Fctype.CONNECT, cdw10=0)),
)
target(
    "connect-cntlid-shared | Base 6.3 | every host gets CNTLID 7",
    results(lambda t, c, old: 7, when=fabrics(Fctype.CONNECT, cdw10=0)),
)
target(
    "connect-wrong-status | Base 6.3 | a refused Connect ends with Invalid Field",
    response(
        lambda t, c, cqe: (
            replace(cqe, status=StatusCode.INVALID_FIELD)
            if c and fabrics(Fctype.CONNECT)(t, c) and cqe.status >> 8 == 1
            else None
        )
    ),
)
target(
    "connect-ipo | Base 6.3 | a refused Connect does not report the invalid field",
    response(
        lambda t, c, cqe: (
            replace(cqe, result=0) if c and fabrics(Fctype.CONNECT)(t, c) and not cqe.ok else None
        )
    ),
)
target(
    "connect-sequence | Base 3.3.2.3 | Connect out of order is Invalid Opcode",
    response(
        lambda t, c, cqe: (
            replace(cqe, status=StatusCode.INVALID_OPCODE)
            if c and fabrics(Fctype.CONNECT)(t, c) and cqe.status == StatusCode.COMMAND_SEQUENCE_ERROR
            else None
        )
    ),
)
target(
    "connect-first | Base 3.3.2.2 | commands before Connect are executed",
    accepts(StatusCode.COMMAND_SEQUENCE_ERROR, when=lambda t, c: not fabrics(Fctype.CONNECT)(t, c)),
)
target(
    "connect-two-refused | Base 3.3.3.1 | an I/O queue of two entries is refused",
    refuses(
        StatusCode.CONNECT_INVALID_PARAMETERS,
        when=lambda t, c: fabrics(Fctype.CONNECT)(t, c) and bool(c.cdw10 >> 16) and c.cdw11 & 0xFFFF == 1,
    ),
)
target(
    "connect-sqhd-unasked | Base 6.3 | SQ flow control is disabled without a request",
    response(lambda t, c, cqe: replace(cqe, sqhd=0xFFFF) if c and fabrics(Fctype.CONNECT)(t, c) else None),
)
target(
    "psdt-zero-refused | Base 4.1.2 | fabrics commands whose PSDT is not 01b are refused",
    refuses(StatusCode.INVALID_FIELD, when=lambda t, c: c.opcode == FABRICS and c.flags >> 6 != 1),
)


def refused_qids(seen: set[object], through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """A queue whose Connect was refused is taken for connected."""
    command = through.command_of(got)
    if (
        not isinstance(got.pdu, CapsuleResp)
        or command is None
        or not fabrics(Fctype.CONNECT)(through, command)
    ):
        return None
    cqe, qid = Cqe.decode(got.pdu.cqe), command.cdw10 >> 16
    if not qid:
        return None
    if cqe.ok and qid in seen:
        return [CapsuleResp(replace(cqe, status=StatusCode.COMMAND_SEQUENCE_ERROR).encode())]
    if not cqe.ok:
        seen.add(qid)
    return None


def hosts_met(seen: set[object], through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """A host is admitted once: its Connect is passed on with another subsystem's name the next time."""
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    command = Command.decode(got.pdu.sqe)
    if not fabrics(Fctype.CONNECT)(through, command) or command.cdw10 >> 16:
        return None
    host_identifier = got.pdu.data[:16]
    if host_identifier in seen:
        return [replace(got.pdu, data=got.pdu.data[:256] + b"nqn.met".ljust(256, b"\0") + got.pdu.data[512:])]
    seen.add(host_identifier)
    return None


shared(
    "connect-refused-keeps-qid | Base 6.3 | a refused Connect keeps its Queue ID",
    lambda seen: ProxyConnection(of_target=lambda t, got: refused_qids(seen, t, got)),
)
shared(
    "host-only-once | Base 6.3 | a host that was connected cannot connect again",
    lambda seen: ProxyConnection(of_host=lambda t, got: hosts_met(seen, t, got)),
)
target(
    "cc-en-ignored | Base 3.3.2.3 | admin commands do not wait for CC.EN",
    accepts(StatusCode.COMMAND_SEQUENCE_ERROR, when=on_admin(Admin.IDENTIFY)),
)
target(
    "cap-cqr | Base 3.1.4.1 | CAP.CQR is 0",
    results(lambda t, c, old: old & ~0x10000, when=fabrics(Fctype.PROPERTY_GET, cdw11=Property.CAP)),
)
target(
    "vs-zero | Base 3.1.4.2 | VS is 0",
    results(lambda t, c, old: 0, when=fabrics(Fctype.PROPERTY_GET, cdw11=Property.VS)),
)
target(
    "cc-forgotten | Base 3.1.4.5 | CC reads as 0",
    results(lambda t, c, old: 0, when=fabrics(Fctype.PROPERTY_GET, cdw11=Property.CC)),
)
target(
    "csts-stuck | Base 3.1.4.6 | CSTS is always 1",
    results(lambda t, c, old: 1, when=fabrics(Fctype.PROPERTY_GET, cdw11=Property.CSTS)),
)
target(
    "property-unknown | Base 3.1.4 | reserved properties read as FFFFFFFFh",
    response(
        lambda t, c, cqe: (
            replace(cqe, status=0, result=0xFFFFFFFF)
            if c and fabrics(Fctype.PROPERTY_GET)(t, c) and c.cdw11 not in set(Property)
            else None
        )
    ),
)


def notes_sets(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    command = Command.decode(got.pdu.sqe) if isinstance(got.pdu, CapsuleCmd) else None
    if command and fabrics(Fctype.PROPERTY_SET)(through, command) and command.cdw11 != Property.CC:
        through.memory.setdefault("set", {})[command.cdw11] = command.cdw12
    return None


add(
    "property-read-only | Base 3.1.4 | read-only properties can be set",
    lambda: ProxyConnection(
        of_host=notes_sets,
        of_target=results(
            lambda t, c, old: t.memory.get("set", {}).get(c.cdw11, old), when=fabrics(Fctype.PROPERTY_GET)
        ),
    ),
)
target(
    "property-on-io | Base 6 | properties may be read on an I/O queue",
    accepts(StatusCode.INVALID_FIELD, when=lambda t, c: bool(t.qid) and fabrics(Fctype.PROPERTY_GET)(t, c)),
)


def no_reset(through: ProxyConnection, c: Command) -> bool:
    off = fabrics(Fctype.PROPERTY_SET, cdw11=Property.CC)(through, c) and not c.cdw12 & 1
    through.memory["off"] = through.memory.get("off") or off
    return off


add(
    "reset-ignored | Base 3.7.2 | a controller reset does not delete the I/O queues",
    lambda: ProxyConnection(
        of_host=drops_command(no_reset),
        of_target=results(
            lambda t, c, old: old & ~1 if t.memory.get("off") else old,
            when=fabrics(Fctype.PROPERTY_GET, cdw11=Property.CSTS),
        ),
    ),
)
host(
    "disconnect-ignored | Base 6.4 | Disconnect succeeds and has no effect",
    drops_command(lambda t, c: bool(t.qid) and fabrics(Fctype.DISCONNECT)(t, c)),
)
target(
    "disconnect-refused | Base 6.4 | Disconnect is refused although OFCS reports support",
    refuses(StatusCode.INVALID_OPCODE, when=fabrics(Fctype.DISCONNECT)),
)
target(
    "disconnect-admin | Base 6.4 | the admin queue may be disconnected",
    accepts(StatusCode.DISCONNECT_INVALID_QUEUE_TYPE),
)
target(
    "fctype-accepted | Base 4.1.2 | reserved fabrics commands succeed",
    accepts(
        StatusCode.INVALID_FIELD, when=lambda t, c: c.opcode == FABRICS and c.nsid & 0xFF not in set(Fctype)
    ),
)
target(
    "discovery-type | Base 3.1.3.3 | the discovery controller reports the type I/O controller",
    patch(put(111, b"\1"), when=identify(Cns.CONTROLLER)),
)
target(
    "discovery-io | Base 3.1.3.3 | a discovery controller accepts an I/O queue",
    accepts(
        StatusCode.CONNECT_INVALID_PARAMETERS,
        when=lambda t, c: fabrics(Fctype.CONNECT)(t, c) and c.cdw10 >> 16 != 0,
    ),
)
target(
    "discovery-empty | Base 5.2.12.3.3 | the discovery log is empty",
    patch(lambda raw: bytes(len(raw)), when=log(LogPage.DISCOVERY)),
)

# Identify (Base 5.2.13)

CONTROLLER = identify(Cns.CONTROLLER)
target(
    "identify-short | Base 5.2.13.1 | Identify returns 4,092 bytes",
    patch(lambda raw: raw[:-4], when=CONTROLLER),
)
target("identify-sizes | Base 5.2.13.2.1 | SQES is 77h", patch(put(512, b"\x77"), when=CONTROLLER))
target("identify-ioccsz | Base 5.2.13.2.1 | IOCCSZ is 3", patch(put(1792, b"\3\0\0\0"), when=CONTROLLER))
target("identify-sgls | Base 3.3.2.1.3 | SGLS is 0", patch(put(536, bytes(4)), when=CONTROLLER))
target("identify-icdoff | NVMe/TCP 3.3.1 | ICDOFF is 4", patch(put(1800, b"\4\0"), when=CONTROLLER))
target("identify-kas | NVMe/TCP 3.4 | KAS is 0", patch(put(320, bytes(2)), when=CONTROLLER))
target(
    "identify-subnqn | Base 5.2.13.2.1 | SUBNQN is that of another subsystem",
    patch(put(768, b"nqn.1999-01"), when=CONTROLLER),
)
target("identify-maxcmd | Base 5.2.13.2.1 | MAXCMD is 0", patch(put(514, bytes(2)), when=CONTROLLER))
target("identify-ascii | Base 1.4.2 | SN is not ASCII", patch(put(4, b"\x01"), when=CONTROLLER))
target(
    "identify-flbas | NVM 4.1.5.1 | FLBAS is not a valid format",
    patch(put(26, b"\x0f"), when=identify(Cns.NAMESPACE)),
)
target(
    "identify-same | Base 4.7.1.4 | two namespaces have one identifier",
    patch(put(4, b"\x77" * 16), when=identify(Cns.DESCRIPTORS)),
)
ACTIVE = identify(Cns.ACTIVE_NAMESPACES)
target(
    "identify-list-order | Base 5.2.13.2.2 | the active list is not in order",
    patch(lambda raw: raw[4:8] + raw[:4] + raw[8:] if any(raw[4:8]) else raw, when=ACTIVE),
)
target(
    "identify-list-from | Base 5.2.13.2.2 | the active list does not start after NSID",
    patch(put(0, struct.pack("<II", 1, 2)), when=ACTIVE),
)
target(
    "identify-ns-sizes | NVM 4.1.5.1 | NCAP is more than NSZE",
    patch(put(8, b"\xff" * 8), when=identify(Cns.NAMESPACE)),
)
target(
    "identify-inactive | NVM 4.1.5.1 | the data of an inactive namespace is not all zero",
    patch(lambda raw: raw if any(raw) else b"\1" + raw[1:], when=identify(Cns.NAMESPACE)),
)
target(
    "identify-descriptors | Base 5.2.13.2.3 | a namespace has no identifier",
    patch(lambda raw: bytes(4096), when=identify(Cns.DESCRIPTORS)),
)
target("nsid-not-checked | Base 3.2.1.5 | any NSID is accepted", accepts(StatusCode.INVALID_NAMESPACE))
target(
    "cns-accepted | Base 5.2.13.1 | any CNS is accepted",
    accepts(StatusCode.INVALID_FIELD, when=on_admin(Admin.IDENTIFY)),
)

# Log pages and features (Base 5.2.11, 5.2.12, 5.2.26)

target(
    "log-page-lost | Base 3.1.3.5 | mandatory log pages are missing",
    refuses(StatusCode.INVALID_LOG_PAGE, when=log(1, 2, 3, 4)),
)
target(
    "log-length | Base 5.2.12 | a short read of a log page does not return its beginning",
    patch(lambda raw: raw if len(raw) > 64 else raw[::-1], when=log(LogPage.FIRMWARE_SLOT)),
)
host(
    "log-offset | Base 5.2.12 | LPO is ignored",
    commands(lambda capsule, c: CapsuleCmd(replace(c, cdw12=0).encode()), when=log()),
)
target(
    "log-offset-unchecked | Base 5.2.12 | LPO past the end is accepted",
    accepts(StatusCode.INVALID_FIELD, when=log()),
)
target("log-page-accepted | Base 5.2.12 | any log page is accepted", accepts(StatusCode.INVALID_LOG_PAGE))
target(
    "log-effects | Base 5.2.12.1.6 | the effects log is empty",
    patch(lambda raw: bytes(len(raw)), when=log(LogPage.EFFECTS)),
)
target(
    "queues-granted | Base 5.2.26.2.1 | Get Features returns another number of queues than was granted",
    results(lambda t, c, old: old + 1, when=feature(Admin.GET_FEATURES, Feature.NUMBER_OF_QUEUES)),
)
target(
    "queues-ffff | Base 5.2.26.2.1 | a request for 65,536 queues is accepted",
    accepts(StatusCode.INVALID_FIELD, when=feature(Admin.SET_FEATURES, Feature.NUMBER_OF_QUEUES)),
)
target(
    "feature-forgotten | Base 5.2.26 | features read as 0",
    results(lambda t, c, old: 0, when=feature(Admin.GET_FEATURES)),
)
target(
    "feature-accepted | Base 4.2.3.1 | any feature is accepted",
    accepts(
        StatusCode.INVALID_FIELD,
        when=lambda t, c: feature(Admin.GET_FEATURES, 0x60)(t, c) or feature(Admin.SET_FEATURES, 0x60)(t, c),
    ),
)
target(
    "kato-zero-taken | Base 3.9.1 | the Keep Alive Timer may be disabled",
    accepts(StatusCode.KEEP_ALIVE_INVALID, when=feature(Admin.SET_FEATURES, Feature.KATO)),
)
target(
    "hostid-wrong | Base 5.2.26.1.32 | the Host Identifier is wrong",
    patch(lambda raw: raw[::-1], when=feature(Admin.GET_FEATURES, Feature.HOST_IDENTIFIER)),
)
target(
    "hostid-short | Base 5.2.26.1.32 | a Host Identifier of 64 bits may be read",
    accepts(StatusCode.INVALID_FIELD, when=feature(Admin.GET_FEATURES, Feature.HOST_IDENTIFIER)),
)
target(
    "hostid-set | Base 5.2.26.1.32 | the Host Identifier may be set again",
    accepts(StatusCode.COMMAND_SEQUENCE_ERROR, when=feature(Admin.SET_FEATURES, Feature.HOST_IDENTIFIER)),
)

# Opcodes, events, Abort, Keep Alive (Base 5.2)

target("opcode-accepted | Base 4.2.3.1 | unknown opcodes succeed", accepts(StatusCode.INVALID_OPCODE))
host(
    "aer-at-once | Base 5.2.2 | an event request is completed immediately",
    drops_command(on_admin(Admin.ASYNCHRONOUS_EVENT_REQUEST)),
)
target("aer-limit | Base 5.2.2.1 | event requests are not limited", accepts(StatusCode.AER_LIMIT_EXCEEDED))
target(
    "abort-unknown | Base 5.2.1.2 | Abort reports the abort of a command that does not exist",
    results(lambda t, c, old: 0, when=on_admin(Admin.ABORT)),
)


def no_aborted(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    aborted = (
        isinstance(got.pdu, CapsuleResp) and Cqe.decode(got.pdu.cqe).status == StatusCode.ABORTED_BY_REQUEST
    )
    return [CapsuleResp(replace(Cqe.decode(got.pdu.cqe), status=0).encode())] if aborted else None


target("abort-silent | Base 5.2.1.2 | an aborted command is completed as a success", no_aborted)
target(
    "keep-alive-refused | Base 5.2.14 | Keep Alive is refused",
    refuses(StatusCode.INVALID_OPCODE, when=on_admin(Admin.KEEP_ALIVE)),
)
host(
    "keep-alive-deaf | Base 3.9.3.1 | Keep Alive does not restart the timer",
    drops_command(on_admin(Admin.KEEP_ALIVE)),
)
host(
    "keep-alive-never | Base 3.9.5 | the Keep Alive Timer is one day, for any KATO",
    commands(
        lambda capsule, c: CapsuleCmd(replace(c, cdw12=86_400_000).encode(), capsule.data),
        when=fabrics(Fctype.CONNECT),
    ),
)

host(
    "timer-of-a-third | Base 3.9.5 | the Keep Alive Timer expires after a third of KATO",
    commands(
        lambda capsule, c: CapsuleCmd(replace(c, cdw12=c.cdw12 // 3).encode(), capsule.data),
        when=fabrics(Fctype.CONNECT),
    ),
)

# I/O commands (NVM 3.3)

host("write-lost | NVM 3.3.6 | writes succeed and are lost", drops_command(on_io(Io.WRITE)))
target(
    "read-flipped | NVM 3.3.4 | one bit of a read is flipped",
    patch(lambda raw: raw[:100] + bytes([raw[100] ^ 1]) + raw[101:], when=on_io(Io.READ)),
)
target(
    "fua-refused | NVM 3.3.6 | FUA is refused",
    refuses(StatusCode.INVALID_FIELD, when=lambda t, c: on_io(Io.WRITE)(t, c) and c.cdw12 >> 30 & 1 == 1),
)
host(
    "write-spills | NVM 3.3.6 | a write of one block also changes the next one",
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


target("lba-not-checked | NVM 3.3 | LBAs past the end are accepted", accepts(StatusCode.LBA_OUT_OF_RANGE))
target(
    "last-block-refused | NVM 3.3.4 | the last block is out of range",
    refuses(StatusCode.LBA_OUT_OF_RANGE, when=lambda t, c: on_io(Io.READ)(t, c) and c.cdw10 == 2047),
)
target(
    "mdts-ignored | Base 5.2.13.2.1 | MDTS is not checked",
    accepts(StatusCode.INVALID_FIELD, when=on_io(Io.READ)),
)
target(
    "fuse-ignored | Base 3.4.2 | FUSE is not checked",
    accepts(StatusCode.INVALID_FIELD, when=lambda t, c: bool(c.flags & 3)),
)
target(
    "flush-refused | Base 7.2 | Flush is refused", refuses(StatusCode.INVALID_OPCODE, when=on_io(Io.FLUSH))
)
target("compare-always | NVM 3.3.1 | Compare always succeeds", accepts(StatusCode.COMPARE_FAILURE))
target(
    "compare-never | NVM 3.3.1 | Compare always fails",
    refuses(StatusCode.COMPARE_FAILURE, when=on_io(Io.COMPARE)),
)
host("zeroes-ignored | NVM 3.3.8 | Write Zeroes does nothing", drops_command(on_io(Io.WRITE_ZEROES)))


def one_block_more(capsule: CapsuleCmd, command: Command) -> CapsuleCmd:
    """Add a block to each range of a Dataset Management command."""
    ranges = struct.iter_unpack("<IIQ", capsule.data)
    return CapsuleCmd(capsule.sqe, dsm_ranges((lba, blocks + 1) for _, blocks, lba in ranges))


host(
    "dsm-spills | NVM 3.3.3 | deallocation takes one block too many",
    commands(one_block_more, when=on_io(Io.DATASET_MANAGEMENT)),
)
target(
    "dsm-end-internal-error | NVM 3.3.3 | a range past the end is an internal error",
    response(
        lambda t, c, cqe: (
            replace(cqe, status=StatusCode.INTERNAL_ERROR)
            if c and on_io(Io.DATASET_MANAGEMENT)(t, c) and cqe.status == StatusCode.LBA_OUT_OF_RANGE
            else None
        )
    ),
)
target(
    "dsm-half | NVM 3.3.3.2.1 | blocks that are reported to read as zeroes read as garbage",
    patch(lambda raw: raw if any(raw) else b"\x5a" * len(raw), when=on_io(Io.READ)),
)
target(
    "verify-refused | NVM 3.3.5 | Verify fails",
    refuses(StatusCode.UNRECOVERED_READ_ERROR, when=on_io(Io.VERIFY)),
)
host("copy-ignored | NVM 3.3.2 | Copy does nothing", drops_command(on_io(Io.COPY)))
target("copy-limits | NVM 3.3.2 | Copy has no limits", accepts(StatusCode.COMMAND_SIZE_LIMIT_EXCEEDED))

target(
    "ana-lost | Base 5.2.12.1.13 | the ANA log is missing",
    refuses(StatusCode.INVALID_LOG_PAGE, when=log(LogPage.ANA)),
)
