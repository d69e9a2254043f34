"""Broken rules that show late: in later PDUs, far into a transfer, on another queue, after a first use."""

from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import (
    accepts,
    add,
    commands,
    data,
    drops_command,
    fabrics,
    host,
    on_io,
    refuses,
    response,
    results,
    shared,
    target,
)

from storagetest.wire.crc import crc32c
from storagetest.wire.nvme.codes import Fctype, Io, Property, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme.fabrics import ConnectData
from storagetest.wire.nvme_tcp.pdu import (
    C2HData,
    C2HTermReq,
    CapsuleCmd,
    CapsuleResp,
    DecodedPdu,
    H2CData,
    PduError,
    encode,
    override_field,
)

FAR = 64 * 1024
"""Offset of what is far into a transfer (chosen: beyond all but the largest transfers)."""

# After a fatal error (NVMe/TCP 3.5)

target(
    "term-then-response | NVMe/TCP 3.5 | a CapsuleResp follows the C2HTermReq",
    lambda t, got: (
        [got.raw, t.encode(CapsuleResp(Cqe(1).encode()))] if isinstance(got.pdu, C2HTermReq) else None
    ),
)
target(
    "term-then-bytes | NVMe/TCP 3.5 | three bytes follow the C2HTermReq",
    lambda t, got: [got.raw, b"\5\0\x18"] if isinstance(got.pdu, C2HTermReq) else None,
)
target(
    "term-twice | NVMe/TCP 3.5 | the C2HTermReq is sent twice",
    lambda t, got: [got.raw, got.raw] if isinstance(got.pdu, C2HTermReq) else None,
)
target(
    "term-reserved | NVMe/TCP 3.6.2.5 | reserved bytes of C2HTermReq are set",
    lambda t, got: (
        [override_field(got.raw, "RSVD", b"\x01" * 10)] if isinstance(got.pdu, C2HTermReq) else None
    ),
)


class Unclosing(ProxyConnection):
    """Passes no close of the controller on after its C2HTermReq."""

    def passes_close(self, *, from_target: bool) -> bool:
        return not from_target


add("term-never-closes | NVMe/TCP 3.5 | the connection stays open after a C2HTermReq", Unclosing)


def skips_and_goes_on(through: ProxyConnection, raw: bytes, error: PduError) -> Iterable[bytes]:
    """Answer a PDU in error with a C2HTermReq, and go on."""
    through.memory["ended"] = True
    through.send_to_host(encode(C2HTermReq(error.fes, error.fei, raw[: raw[2]])))
    return []


add(
    "writes-after-fatal | NVMe/TCP 3.5 | a write after a PDU in error is carried out without a response",
    lambda: ProxyConnection(
        bad=skips_and_goes_on,
        of_target=lambda t, got: [] if t.memory.get("ended") else None,
    ),
)

# Padding (NVMe/TCP 3.3)


def unpadded(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Take the data from right after the header, wherever PDO points."""
    if not isinstance(got.pdu, CapsuleCmd | H2CData) or not got.pdu.data:
        return None
    start = got.raw[2] + 4 * through.digests.header
    if start == got.pdo:
        return None
    return [replace(got.pdu, data=got.raw[start : start + len(got.pdu.data)])]


host("pdo-ignored | NVMe/TCP 3.3 | data are taken from the end of the header, not from PDO", unpadded)

# Every completion (Base 4.2.1, 4.2.2)

target(
    "io-resp-phase | Base 4.2.2 | the phase tag is set in completions of I/O queues",
    response(lambda t, c, cqe: replace(cqe, phase=True) if t.qid else None),
)
target(
    "io-resp-sqid | Base 4.2.2 | SQID is that of the queue in completions of I/O queues",
    response(lambda t, c, cqe: replace(cqe, sqid=t.qid) if t.qid else None),
)
target(
    "error-resp-sqid | Base 4.2.2 | SQID is set in completions of I/O commands that fail",
    response(lambda t, c, cqe: replace(cqe, sqid=t.qid) if t.qid and not cqe.ok else None),
)


def flagged(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Set a reserved flag in completions of I/O queues, and correct the digest."""
    if not isinstance(got.pdu, CapsuleResp) or not through.qid:
        return None
    header = override_field(got.raw, "FLAGS", got.raw[1] | 4)[:24]
    return [header + crc32c(header).to_bytes(4, "little") * through.digests.header]


target(
    "io-resp-flags | NVMe/TCP 3.6.2.7 | a reserved flag is set in completions of I/O queues",
    flagged,
)
target(
    "error-resp-crd | Base 4.2.3 | CRD is set, which the host has not enabled",
    response(lambda t, c, cqe: replace(cqe, crd=1) if not cqe.ok else None),
)
target(
    "io-resp-result | Base 4.2.1 | dword 0 of a Flush is not 0",
    response(lambda t, c, cqe: replace(cqe, result=0x11) if c and on_io(Io.FLUSH)(t, c) and cqe.ok else None),
)


def unwrapped_head(through: ProxyConnection, command: Command | None, cqe: Cqe) -> Cqe | None:
    """SQHD counts commands, and never returns to 0."""
    if not through.qid or cqe.sqhd == 0xFFFF:
        return None
    through.memory["head"] = through.memory.get("head", 0) + 1
    return replace(cqe, sqhd=through.memory["head"])


target("sqhd-not-wrapped | Base 4.2.1 | SQHD exceeds the size of the queue", response(unwrapped_head))
target(
    "sqhd-skips-0 | Base 4.2.1 | SQHD is never 0",
    response(lambda t, c, cqe: replace(cqe, sqhd=1) if not cqe.sqhd else None),
)
target(
    "cid-high-cut | Base 4.2.1 | bit 15 of CID is lost in the completion",
    response(lambda t, c, cqe: replace(cqe, cid=cqe.cid & 0x7FFF) if cqe.cid & 0x8000 else None),
)


def loses_cid_0(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    lost = isinstance(got.pdu, CapsuleCmd) and not Command.decode(got.pdu.sqe).cid
    return [] if lost else None


host("cid-0-lost | Base 4.1.1 | a command whose CID is 0 gets no completion", loses_cid_0)


def refuses_used_cid(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleCmd) or not through.qid:
        return None
    cid = Command.decode(got.pdu.sqe).cid
    used = through.memory.setdefault("used", set())
    if cid in used:
        through.reply(Cqe(cid, StatusCode.COMMAND_ID_CONFLICT, sqhd=1))
        return []
    used.add(cid)
    return None


host("cid-reuse-refused | Base 4.1.1 | a CID of a command that is complete is a conflict", refuses_used_cid)

# Later PDUs of a transfer (NVMe/TCP 3.3.2.1, 3.3.2.2)

target(
    "c2h-reserved-later | NVMe/TCP 3.6.2.9 | reserved bytes are set in later C2HData",
    lambda t, got: (
        [override_field(got.raw, "RSVD", 1)] if isinstance(got.pdu, C2HData) and got.pdu.offset else None
    ),
)
target(
    "read-far-flipped | NVM 3.3.4 | one bit is flipped beyond 64 KiB of a read",
    data(
        lambda t, pdu: [
            replace(pdu, data=bytes([pdu.data[0] ^ 1]) + pdu.data[1:]) if pdu.offset >= FAR else pdu
        ]
    ),
)


def repeats_data(through: ProxyConnection, pdu: C2HData) -> Iterable[Item]:
    """Later C2HData carry the data of the first."""
    if not pdu.offset:
        through.memory["first"] = pdu.data
        return [pdu]
    return [replace(pdu, data=(through.memory["first"] * 2)[: len(pdu.data)])]


target("read-repeated | NVM 3.3.4 | later C2HData of a read repeat the first", data(repeats_data))
target(
    "read-far-short | NVMe/TCP 3.3.2.1 | the last 512 bytes of a read over 64 KiB are missing",
    data(lambda t, pdu: [replace(pdu, data=pdu.data[:-512]) if pdu.offset >= FAR and pdu.last else pdu]),
)


def swaps_pieces(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Exchange the data of the first two H2CData of a write."""
    if not isinstance(got.pdu, H2CData):
        return None
    kept = through.memory.pop("kept", None)
    if kept is None:
        if got.pdu.offset or got.pdu.last:
            return None
        through.memory["kept"] = got.pdu
        return []
    size = len(kept.data)
    if len(got.pdu.data) != size:
        return [kept, got.pdu]
    return [replace(kept, data=got.pdu.data), replace(got.pdu, data=kept.data)]


host("write-pieces-swapped | NVMe/TCP 3.3.2.2 | the first two H2CData of a write change places", swaps_pieces)


def mixes_writes(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Data that come between the data of another write are lost."""
    if not isinstance(got.pdu, H2CData):
        return None
    current = through.memory.get("current")
    through.memory["current"] = None if got.pdu.last else got.pdu.ttag
    if current in (None, got.pdu.ttag):
        return None
    return [replace(got.pdu, data=bytes(len(got.pdu.data)))]


host("two-writes-mixed | NVMe/TCP 3.3.2.2 | H2CData between those of another write are lost", mixes_writes)


def first_in_capsule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Take in-capsule data from the start, whatever the offset of the SGL."""
    if not isinstance(got.pdu, CapsuleCmd) or not got.pdu.data:
        return None
    command = Command.decode(got.pdu.sqe)
    if not on_io(Io.WRITE)(through, command) or command.dptr[15] != 1:
        return None
    return [replace(got.pdu, sqe=replace(command, dptr=bytes(8) + command.dptr[8:]).encode())]


host("sgl-offset-ignored | Base 3.3.2.1.3 | the offset of an in-capsule SGL is ignored", first_in_capsule)
host(
    "write-far-lost | NVM 3.3.6 | data beyond 64 KiB of a write are lost",
    lambda t, got: (
        [replace(got.pdu, data=bytes(len(got.pdu.data)))]
        if isinstance(got.pdu, H2CData) and got.pdu.offset >= FAR
        else None
    ),
)
host(
    "ddgst-later-unchecked | NVMe/TCP 3.5 | a wrong data digest of later H2CData is not detected",
    lambda t, got: (
        [got.pdu] if isinstance(got.pdu, H2CData) and got.pdu.offset and got.data_digest_ok is False else None
    ),
)
target(
    "ddgst-later-wrong | NVMe/TCP 3.3.1.1 | DDGST of later C2HData is wrong",
    lambda t, got: (
        [override_field(got.raw, "DDGST", 1)]
        if got.data_digest_ok and isinstance(got.pdu, C2HData) and got.pdu.offset
        else None
    ),
)


def corrects_and_remembers(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if isinstance(got.pdu, H2CData) and got.data_digest_ok is False:
        through.memory.setdefault("damaged", set()).add(got.pdu.cccid)
        return [got.pdu]
    return None


add(
    "ddgst-data-written | NVMe/TCP 3.5 | H2CData that fail their digest are reported, and written",
    lambda: ProxyConnection(
        of_host=corrects_and_remembers,
        of_target=response(
            lambda t, c, cqe: (
                replace(cqe, status=StatusCode.TRANSIENT_TRANSPORT_ERROR)
                if cqe.cid in t.memory.get("damaged", ())
                else None
            )
        ),
    ),
)

# Connect of I/O queues (Base 6.3): what is known of the controllers is shared by their connections

Seen = set[object]


def _connect(through: ProxyConnection, got: DecodedPdu) -> tuple[Command, ConnectData] | None:
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    command = Command.decode(got.pdu.sqe)
    if not fabrics(Fctype.CONNECT)(through, command) or len(got.pdu.data) != 1024:
        return None
    return command, ConnectData.decode(got.pdu.data)


def _host_of(seen: Seen, through: ProxyConnection, got: DecodedPdu) -> tuple[ConnectData, ConnectData] | None:
    """Return the data of an I/O queue's Connect and of its admin queue's, which are noted."""
    found = _connect(through, got)
    if found is None:
        return None
    command, connect = found
    if not command.cdw10 >> 16:
        seen.add(connect)
        return None
    admin = [
        one for one in seen if isinstance(one, ConnectData)
        and (one.hostid == connect.hostid or one.hostnqn == connect.hostnqn)
    ]  # fmt: skip
    return (connect, admin[-1]) if admin else None


def any_nqn(seen: Seen, through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    both = _host_of(seen, through, got)
    if both is None or both[0].hostid != both[1].hostid or both[0].hostnqn == both[1].hostnqn:
        return None
    return [replace(got.pdu, data=replace(both[0], hostnqn=both[1].hostnqn).encode())]


def any_subsystem(seen: Seen, through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    both = _host_of(seen, through, got)
    if both is None or both[0].subnqn == both[1].subnqn:
        return None
    return [replace(got.pdu, data=replace(both[0], subnqn=both[1].subnqn).encode())]


shared(
    "connect-io-nqn | Base 6.3 | Host NQN of an I/O queue is not compared",
    lambda seen: ProxyConnection(of_host=lambda t, got: any_nqn(seen, t, got)),
)
shared(
    "connect-io-subnqn | Base 6.3 | SUBNQN of an I/O queue is not compared",
    lambda seen: ProxyConnection(of_host=lambda t, got: any_subsystem(seen, t, got)),
)


def any_controller(seen: Seen, through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """An I/O queue of CNTLID FFFFh joins the newest controller."""
    found = _connect(through, got)
    if found is None or not found[0].cdw10 >> 16 or found[1].cntlid != 0xFFFF or not seen:
        return None
    newest = max(one for one in seen if isinstance(one, int))
    return [replace(got.pdu, data=replace(found[1], cntlid=newest).encode())]


def notes_controllers(seen: Seen, through: ProxyConnection, got: DecodedPdu) -> None:
    command = through.command_of(got) if isinstance(got.pdu, CapsuleResp) else None
    if command and fabrics(Fctype.CONNECT, cdw10=0)(through, command) and Cqe.decode(got.pdu.cqe).ok:
        seen.add(Cqe.decode(got.pdu.cqe).result & 0xFFFF)


shared(
    "connect-io-any-cntlid | Base 6.3 | an I/O queue of CNTLID FFFFh is accepted",
    lambda seen: ProxyConnection(
        of_host=lambda t, got: any_controller(seen, t, got),
        of_target=lambda t, got: notes_controllers(seen, t, got),
    ),
)
target(
    "connect-io-result | Base 6.3 | Connect of an I/O queue returns CNTLID 0",
    results(lambda t, c, old: 0, when=lambda t, c: fabrics(Fctype.CONNECT)(t, c) and c.cdw10 >> 16 != 0),
)

# Properties over time (Base 3.1.4.5, 3.1.4.6, 3.5.1, 3.6.2, 3.7.2)

CSTS = fabrics(Fctype.PROPERTY_GET, cdw11=Property.CSTS)
CC = fabrics(Fctype.PROPERTY_GET, cdw11=Property.CC)


def writes_cc(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Note the values that CC is set to."""
    command = Command.decode(got.pdu.sqe) if isinstance(got.pdu, CapsuleCmd) else None
    if command and fabrics(Fctype.PROPERTY_SET, cdw11=Property.CC)(through, command):
        through.memory.setdefault("cc", []).append(command.cdw12)
    return None


def _cc(through: ProxyConnection) -> list[int]:
    return through.memory.get("cc", [])


def _resets(through: ProxyConnection) -> int:
    """Return how often CC.EN was cleared after it was set."""
    return sum(1 for a, b in zip(_cc(through), _cc(through)[1:], strict=False) if a & 1 and not b & 1)


add(
    "csts-ready-early | Base 3.1.4.6 | CSTS.RDY is 1 before CC.EN is set",
    lambda: ProxyConnection(
        of_host=writes_cc, of_target=results(lambda t, c, old: old if _cc(t) else old | 1, when=CSTS)
    ),
)
target("csts-fatal | Base 3.1.4.6 | CSTS.CFS is always 1", results(lambda t, c, old: old | 2, when=CSTS))
target(
    "csts-shutdown-early | Base 3.1.4.6 | CSTS.SHST is 01b, and no shutdown was requested",
    results(lambda t, c, old: old if old & 0xC else old | 4, when=CSTS),
)
target(
    "csts-reserved | Base 3.1.4.6 | reserved bits of CSTS are set",
    results(lambda t, c, old: old | 1 << 20, when=CSTS),
)
target(
    "cc-shutdown-lost | Base 3.1.4.5 | CC.SHN reads as 00b after a shutdown",
    results(lambda t, c, old: old & ~0xC000, when=CC),
)
add(
    "csts-shutdown-stays | Base 3.6.2 | CSTS.SHST stays 10b after a shutdown, a reset and CC.EN",
    lambda: ProxyConnection(
        of_host=writes_cc,
        of_target=results(
            lambda t, c, old: old | 8 if any(one >> 14 & 3 for one in _cc(t)) and _resets(t) else old,
            when=CSTS,
        ),
    ),
)
add(
    "reset-second-ignored | Base 3.7.2 | CSTS.RDY stays 1 in the second reset",
    lambda: ProxyConnection(
        of_host=writes_cc, of_target=results(lambda t, c, old: old | 1 if _resets(t) > 1 else old, when=CSTS)
    ),
)


def connect_after_reset(seen: Seen, through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """An I/O queue's Connect is refused if any controller was reset before."""
    command = Command.decode(got.pdu.sqe) if isinstance(got.pdu, CapsuleCmd) else None
    if command is None:
        return None
    writes_cc(through, got)
    if _resets(through):
        seen.add("reset")
    if fabrics(Fctype.CONNECT)(through, command) and command.cdw10 >> 16 and "reset" in seen:
        through.reply(Cqe(command.cid, StatusCode.CONNECT_INVALID_PARAMETERS, sqhd=1))
        return []
    return None


shared(
    "reset-ends-io | Base 3.7.2 | after a reset and CC.EN an I/O queue is refused",
    lambda seen: ProxyConnection(of_host=lambda t, got: connect_after_reset(seen, t, got)),
)
target(
    "property-upper | Base 6.5 | the reserved upper dword of a property of four bytes is set",
    results(
        lambda t, c, old: old | 1 << 40,
        when=lambda t, c: fabrics(Fctype.PROPERTY_GET)(t, c) and not c.cdw10 & 7,
    ),
)

# Other queues and other namespaces

host(
    "second-queue-loses | NVM 3.3.6 | writes on the second I/O queue are lost",
    drops_command(lambda t, c: t.qid > 1 and on_io(Io.WRITE)(t, c)),
)
host(
    "namespace-alias | Base 3.2.1 | reads of another namespace return the data of the first",
    commands(
        lambda capsule, c: CapsuleCmd(replace(c, nsid=1).encode(), capsule.data),
        when=lambda t, c: on_io(Io.READ)(t, c) and c.nsid == 2,
    ),
)
target(
    "namespace-inactive-used | Base 3.2.1.5 | commands of an inactive namespace succeed",
    accepts(StatusCode.INVALID_FIELD, when=lambda t, c: on_io()(t, c) and c.nsid in (3, 4)),
)
target(
    "namespace-other-refused | Base 3.2.1 | commands of any namespace but the first are refused",
    refuses(StatusCode.INTERNAL_ERROR, when=lambda t, c: on_io(Io.READ)(t, c) and c.nsid == 2),
)
target(
    "namespace-invalid-field | Base 3.2.1.5 | an invalid NSID of an I/O command is an Invalid Field",
    response(
        lambda t, c, cqe: (
            replace(cqe, status=StatusCode.INVALID_FIELD)
            if t.qid and cqe.status == StatusCode.INVALID_NAMESPACE
            else None
        )
    ),
)
