"""Every broken rule that the NVMe/TCP cases claim to catch: name, section, what is broken, how.

A mutant is made of one rule on what the target sends (:func:`target`), what the host sends (:func:`host`), or
on host PDUs that break a rule and should have ended the connection (:func:`tolerant`). Most are an
*acceptance* (a refusal becomes success), a *refusal* (success becomes a refusal), a *patch* of returned data,
or a command *swallowed* (answered without being done).
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterable
from dataclasses import replace

from nvme_tcp_through import Item, Rule, Through
from proxy import Hangup, Mutant

from storagetest.wire.crc import crc32c
from storagetest.wire.nvme.codes import FABRICS, Admin, Cns, Fctype, Feature, Io, LogPage, Property, Status
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import (
    R2T,
    C2HData,
    C2HTermReq,
    CapsuleCmd,
    CapsuleResp,
    Fes,
    H2CData,
    H2CTermReq,
    ICReq,
    ICResp,
    PduError,
    Received,
    encode,
    mangle,
)

__all__ = ["MUTANTS"]

MUTANTS: dict[str, Mutant] = {}

When = Callable[[Through, Command], bool]
Bad = Callable[[Through, bytes, PduError], Iterable[bytes]]


def add(name: str, section: str, description: str, make: Callable[[], Through]) -> None:
    assert name not in MUTANTS, name
    MUTANTS[name] = Mutant(name, section, description, make)


def target(name: str, section: str, description: str, rule: Rule) -> None:
    add(name, section, description, lambda: Through(of_target=rule))


def host(name: str, section: str, description: str, rule: Rule) -> None:
    add(name, section, description, lambda: Through(of_host=rule))


def tolerant(name: str, section: str, description: str, bad: Bad) -> None:
    add(name, section, description, lambda: Through(bad=bad))


# What a mutant does


def field(kind: type, name: str, value: int | bytes) -> Rule:
    """Set a field of every PDU of one class."""
    return lambda _, got: [mangle(got.raw, name, value)] if isinstance(got.pdu, kind) else None


def response(change: Callable[[Through, Command | None, Cqe], Cqe | None]) -> Rule:
    """Change completion queue entries; None keeps them."""

    def rule(through: Through, got: Received) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleResp):
            return None
        cqe = change(through, through.command_of(got), Cqe.decode(got.pdu.cqe))
        return None if cqe is None else [CapsuleResp(cqe.encode())]

    return rule


def accepts(*statuses: int, when: When = lambda t, c: True) -> Rule:
    """A refusal by one of ``statuses`` becomes success."""
    return response(
        lambda t, command, cqe: (
            replace(cqe, status=0, dnr=False, result=0)
            if cqe.status in statuses and command and when(t, command)
            else None
        )
    )


def refuses(status: int, *, when: When) -> Rule:
    """Success becomes a refusal."""
    return response(
        lambda t, command, cqe: (
            replace(cqe, status=status) if cqe.ok and command and when(t, command) else None
        )
    )


def results(value: Callable[[Through, Command, int], int], *, when: When) -> Rule:
    """Change the result of commands that succeed."""
    return response(
        lambda t, command, cqe: (
            replace(cqe, result=value(t, command, cqe.result))
            if cqe.ok and command and when(t, command)
            else None
        )
    )


def data(change: Callable[[Through, C2HData], Iterable[Item]]) -> Rule:
    """Change C2HData."""
    return lambda t, got: list(change(t, got.pdu)) if isinstance(got.pdu, C2HData) else None


def patch(change: Callable[[bytes], bytes], *, when: When) -> Rule:
    """Change the data that a command returns (its first PDU)."""

    def rule(through: Through, got: Received) -> Iterable[Item] | None:
        command = through.command_of(got)
        if (
            not isinstance(got.pdu, C2HData)
            or got.pdu.offset
            or command is None
            or not when(through, command)
        ):
            return None
        new = change(got.pdu.data)
        return [replace(got.pdu, data=new)]

    return rule


def put(offset: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda raw: raw[:offset] + new + raw[offset + len(new) :]


def swallows(when: When, *, status: int = 0) -> Rule:
    """Answer a command without passing it on; data that belongs to it is asked for and dropped."""

    def rule(through: Through, got: Received) -> Iterable[Item] | None:
        match got.pdu:
            case CapsuleCmd(sqe):
                command = Command.decode(sqe)
                if not when(through, command):
                    return None
                length = int.from_bytes(command.dptr[8:12], "little")
                if command.dptr[15] == 0x5A and command.opcode & 3 == 1:
                    through.memory["dropped"] = command.cid
                    through.send_to_host(through.encode(R2T(command.cid, 0x7ABC, 0, length)))
                else:
                    through.reply(Cqe(command.cid, status, sqhd=1))
                return []
            case H2CData(cid, 0x7ABC, last=last):
                if last:
                    through.reply(Cqe(cid, status, sqhd=1))
                return []
        return None

    return rule


def command(opcode: int, *, io: bool | None = None, **words: int) -> When:
    """Match a command by its opcode (on an I/O queue or the admin queue) and some of its words."""
    return lambda t, c: (
        c.opcode == opcode
        and (io is None or io == bool(t.qid))
        and all(getattr(c, name) == value for name, value in words.items())
    )


def fabrics(fctype: int, **words: int) -> When:
    return lambda t, c: command(FABRICS, **words)(t, c) and c.nsid & 0xFF == fctype


def on_io(*opcodes: int) -> When:
    return lambda t, c: bool(t.qid) and (not opcodes or c.opcode in opcodes)


def on_admin(*opcodes: int) -> When:
    return lambda t, c: not t.qid and c.opcode in opcodes


def identify(cns: int) -> When:
    return lambda t, c: on_admin(Admin.IDENTIFY)(t, c) and c.cdw10 & 0xFF == cns


def log(*pages: int) -> When:
    return lambda t, c: on_admin(Admin.GET_LOG_PAGE)(t, c) and (not pages or c.cdw10 & 0xFF in pages)


def feature(opcode: int, *fids: int) -> When:
    return lambda t, c: on_admin(opcode)(t, c) and (not fids or c.cdw10 & 0xFF in fids)


def action(opcode: int, *actions: int) -> When:
    return lambda t, c: on_io(opcode)(t, c) and (not actions or c.cdw10 & 7 in actions)


# ICReq and ICResp (3.1, 3.6.2.2, 3.6.2.3)

target(
    "icresp-twice",
    "NVMe/TCP 3.1",
    "ICResp is sent twice",
    lambda t, got: [got.raw, got.raw] if isinstance(got.pdu, ICResp) else None,
)
target("icresp-pfv", "NVMe/TCP 3.6.2.3", "PFV is 1", field(ICResp, "PFV", 1))
target("icresp-maxh2cdata-small", "NVMe/TCP 3.6.2.3", "MAXH2CDATA is 2048", field(ICResp, "MAXH2CDATA", 2048))
target(
    "icresp-maxh2cdata-odd",
    "NVMe/TCP 3.6.2.3",
    "MAXH2CDATA is no number of dwords",
    field(ICResp, "MAXH2CDATA", 8190),
)
target("icresp-cpda", "NVMe/TCP 3.6.2.3", "CPDA is 32", field(ICResp, "CPDA", 32))
target(
    "icresp-reserved",
    "NVMe/TCP 3.6.2.3",
    "reserved bytes are set",
    field(ICResp, "RSVD", b"\x01" + bytes(111)),
)
target("icresp-flags", "NVMe/TCP 3.6.2.3", "FLAGS is 80h", field(ICResp, "FLAGS", 0x80))
target("icresp-pdo", "NVMe/TCP 3.6.2.3", "PDO is 128", field(ICResp, "PDO", 128))
target("icresp-hlen", "NVMe/TCP 3.6.2.3", "HLEN is 127", field(ICResp, "HLEN", 127))
target(
    "icresp-digest-unasked",
    "NVMe/TCP 3.3.1.1",
    "digests are enabled that nobody asked for",
    field(ICResp, "DGST", 3),
)
host(
    "icreq-reserved-refused",
    "NVMe/TCP 3.6.2.2",
    "reserved bytes of ICReq are looked at",
    lambda t, got: _hang_up() if isinstance(got.pdu, ICReq) and any(got.raw[16:]) else None,
)
add("half-close-ignored", "NVMe/TCP 3.5", "a host that closes is kept", lambda: Deaf())


class Deaf(Through):
    """Passes no close on."""

    def passes_close(self, *, from_target: bool) -> bool:
        return False


def _hang_up() -> Iterable[Item]:
    raise Hangup


host(
    "hpda-refused",
    "NVMe/TCP 3.6.2.2",
    "any HPDA but 0 ends the connection",
    lambda t, got: _hang_up() if isinstance(got.pdu, ICReq) and got.pdu.hpda else None,
)
host(
    "maxr2t-refused",
    "NVMe/TCP 3.6.2.2",
    "any MAXR2T but 0 ends the connection",
    lambda t, got: _hang_up() if isinstance(got.pdu, ICReq) and got.pdu.maxr2t else None,
)
target(
    "icresp-with-digest",
    "NVMe/TCP 3.3.1.1",
    "ICResp carries a header digest",
    lambda t, got: [mangle(got.raw, "PLEN", 132) + bytes(4)] if isinstance(got.pdu, ICResp) else None,
)


class Contagious(Through):
    """When its host closes, every connection is closed."""

    def passes_close(self, *, from_target: bool) -> bool:
        for other in () if from_target or self.qid else EVERYBODY:
            other.memory["doomed"] = True
        return True


def _contagious() -> Through:
    EVERYBODY.append(Contagious(of_host=doomed))
    return EVERYBODY[-1]


add("loss-takes-all", "Base 9.6", "one host's lost connection ends the others'", _contagious)

# Fatal errors (3.5)


def drops(through: Through, raw: bytes, error: PduError) -> Iterable[bytes]:
    return []


def drops_if(wanted: Callable[[bytes, PduError], bool]) -> Bad:
    return lambda t, raw, error: [] if wanted(raw, error) else [raw]


def term(change: Callable[[C2HTermReq], Item | None]) -> Rule:
    def rule(through: Through, got: Received) -> Iterable[Item] | None:
        if not isinstance(got.pdu, C2HTermReq):
            return None
        new = change(got.pdu)
        return [] if new is None else [new]

    return rule


def too_long(pdu: C2HTermReq) -> bytes:
    return mangle(encode(replace(pdu, data=pdu.data.ljust(128, b"\0"))) + bytes(8), "PLEN", 160)


tolerant("fatal-ignored", "NVMe/TCP 3.5", "a PDU in error is dropped and the connection lives on", drops)
tolerant(
    "icreq-again",
    "NVMe/TCP 3.1",
    "a second ICReq is answered by ICResp",
    lambda t, raw, error: (
        _answer(t, encode(t.icresp)) if raw[0] == 0 and error.fes == Fes.SEQUENCE_ERROR else [raw]
    ),
)
tolerant(
    "reserved-type-ignored",
    "NVMe/TCP 3.6.2.1",
    "PDUs of a reserved type are skipped",
    drops_if(lambda raw, error: raw[0] in {8, 0xC, 0xFF}),
)
tolerant(
    "wrong-way-ignored",
    "NVMe/TCP 3.6.2.1",
    "PDUs that only a controller sends are skipped",
    drops_if(lambda raw, error: raw[0] in {5, 7, 9}),
)
tolerant(
    "hlen-ignored",
    "NVMe/TCP 3.6.2.6",
    "HLEN is not looked at",
    lambda t, raw, error: [mangle(raw, "HLEN", 72)] if raw[0] == 4 and error.fei == 2 else [raw],
)
tolerant(
    "hdgstf-not-checked",
    "NVMe/TCP 3.3.1.1",
    "a missing header digest is made up for",
    lambda t, raw, error: [t.encode(CapsuleCmd(raw[8:72]))] if raw[0] == 4 and error.fei == 1 else [raw],
)
tolerant(
    "hdgst-not-checked",
    "NVMe/TCP 3.5",
    "a wrong header digest is put right",
    lambda t, raw, error: [_right_hdgst(raw)] if error.fes == Fes.HEADER_DIGEST_ERROR else [raw],
)
target("term-swallowed", "NVMe/TCP 3.5", "no C2HTermReq is sent", term(lambda pdu: None))
target("term-fes", "NVMe/TCP 3.6.2.5", "FES is another", term(lambda pdu: replace(pdu, fes=7)))
target(
    "term-fei",
    "NVMe/TCP 3.6.2.5",
    "FEI is off by one",
    term(lambda pdu: replace(pdu, fei=(pdu.fei + 1) & 0xFFFFFFFF)),
)
target(
    "term-no-header",
    "NVMe/TCP 3.6.2.5",
    "the header in error is left out",
    term(lambda pdu: replace(pdu, data=b"")),
)
target(
    "term-other-header",
    "NVMe/TCP 3.6.2.5",
    "the header is not the one in error",
    term(lambda pdu: replace(pdu, data=bytes(8) + b"\xee" * 8)),
)
target("term-long", "NVMe/TCP 3.5", "PLEN of C2HTermReq is 160", term(too_long))
host(
    "h2cterm-ignored",
    "NVMe/TCP 3.5",
    "H2CTermReq is ignored",
    lambda t, got: [] if isinstance(got.pdu, H2CTermReq) else None,
)
host(
    "h2cterm-answered",
    "NVMe/TCP 3.5",
    "H2CTermReq is answered by C2HTermReq",
    lambda t, got: (
        _answer(t, encode(C2HTermReq(2, 0, got.raw[:24]))) if isinstance(got.pdu, H2CTermReq) else None
    ),
)


def _answer(through: Through, raw: bytes) -> list[bytes]:
    through.send_to_host(raw)
    return []


def _right_hdgst(raw: bytes) -> bytes:
    hlen = 72 if raw[0] == 4 else 24
    return raw[:hlen] + crc32c(raw[:hlen]).to_bytes(4, "little") + raw[hlen + 4 :]


def processes_after(through: Through, raw: bytes, error: PduError) -> Iterable[bytes]:
    """Skip the bad PDU; after the next command is answered, hang up."""
    through.memory["errs"] = True
    return []


def hangs_up_late(through: Through, got: Received) -> Iterable[Item] | None:
    if through.memory.get("errs") and isinstance(got.pdu, CapsuleResp):
        through.send_to_host(got.raw)
        raise Hangup
    return None


add(
    "processes-after-fatal",
    "NVMe/TCP 3.5",
    "a command after a PDU in error is carried out",
    lambda: Through(bad=processes_after, of_target=hangs_up_late),
)

EVERYBODY: list[Through] = []


def takes_all(through: Through, raw: bytes, error: PduError) -> Iterable[bytes]:
    for other in EVERYBODY:
        other.memory["doomed"] = True
    return [raw]


def doomed(through: Through, got: Received) -> Iterable[Item] | None:
    if through.memory.get("doomed"):
        raise Hangup
    return None


def _one_of_all() -> Through:
    EVERYBODY.append(Through(bad=takes_all, of_host=doomed))
    return EVERYBODY[-1]


add("fatal-takes-all", "NVMe/TCP 3.5", "a fatal error ends every host's connection", _one_of_all)

# Digests (3.3.1.1, 3.5)


def right_ddgst(through: Through, got: Received) -> Iterable[Item] | None:
    return [got.pdu] if got.data_digest_ok is False else None


def fatal_ddgst(through: Through, got: Received) -> Iterable[Item] | None:
    if got.data_digest_ok is False:
        raise Hangup
    return None


host("ddgst-not-checked", "NVMe/TCP 3.5", "a wrong data digest is put right", right_ddgst)
host("ddgst-fatal", "NVMe/TCP 3.5", "a wrong data digest ends the connection", fatal_ddgst)
target(
    "hdgst-wrong",
    "NVMe/TCP 3.3.1.1",
    "HDGST of responses is wrong",
    lambda t, got: (
        [mangle(got.raw, "HDGST", 1)] if got.header_digest_ok and isinstance(got.pdu, CapsuleResp) else None
    ),
)
target(
    "ddgst-wrong",
    "NVMe/TCP 3.3.1.1",
    "DDGST of C2HData is wrong",
    lambda t, got: [mangle(got.raw, "DDGST", 1)] if got.data_digest_ok else None,
)
target(
    "digest-flags-lost",
    "NVMe/TCP 3.3.1.1",
    "PDUs have no digests although they were negotiated",
    lambda t, got: (
        [encode(got.pdu, alignment=t.icreq.hpda)] if isinstance(got.pdu, (CapsuleResp, C2HData)) else None
    ),
)

target(
    "digest-unwanted",
    "NVMe/TCP 3.3.1.1",
    "PDUs carry a header digest that was not negotiated",
    lambda t, got: (
        [encode(got.pdu, header_digest=True)]
        if isinstance(got.pdu, (CapsuleResp, C2HData)) and not t.digests.header
        else None
    ),
)

# C2HData (3.3.2.1, 3.6.2.9)


def halves(pdu: C2HData) -> tuple[C2HData, C2HData]:
    middle = len(pdu.data) // 8 * 4
    return (
        replace(pdu, data=pdu.data[:middle], last=False, success=False),
        replace(pdu, data=pdu.data[middle:], offset=pdu.offset + middle),
    )


def success_under_flow_control(through: Through, got: Received) -> Iterable[Item] | None:
    match got.pdu:
        case C2HData(last=True) as pdu if not pdu.success:
            through.memory["done"] = pdu.cccid
            return [replace(pdu, success=True)]
        case CapsuleResp(raw) if Cqe.decode(raw).cid == through.memory.get("done"):
            return []
    return None


def success_and_response(through: Through, got: Received) -> Iterable[Item] | None:
    match got.pdu:
        case C2HData(success=True) as pdu:
            return [pdu, CapsuleResp(Cqe(pdu.cccid, sqhd=0xFFFF).encode())]
    return None


def one_dword_on(raw: bytes) -> bytes:
    """Move the data one dword on: PDO and PLEN agree, but not with HPDA."""
    pdo, plen = raw[3], int.from_bytes(raw[4:8], "little")
    moved = mangle(raw[:pdo] + bytes(4) + raw[pdo:], "PLEN", plen + 4)
    return mangle(moved, "PDO", pdo + 4)


target(
    "c2h-gap", "NVMe/TCP 3.3.2.1", "DATAO jumps", data(lambda t, pdu: [replace(pdu, offset=pdu.offset + 4)])
)
target(
    "c2h-swapped",
    "NVMe/TCP 3.3.2.1",
    "the second half comes first",
    data(lambda t, pdu: reversed(halves(pdu))),
)
target(
    "c2h-short",
    "NVMe/TCP 3.3.2.1",
    "the last 4 bytes are left out",
    data(lambda t, pdu: [replace(pdu, data=pdu.data[:-4]) if pdu.last else pdu]),
)
target(
    "c2h-overrun",
    "NVMe/TCP 3.3.2.1",
    "4 bytes too many are sent",
    data(lambda t, pdu: [replace(pdu, data=pdu.data + bytes(4)) if pdu.last else pdu]),
)
target(
    "c2h-last-missing",
    "NVMe/TCP 3.6.2.9",
    "LAST_PDU is missing",
    data(lambda t, pdu: [replace(pdu, last=False, success=False)]),
)
target(
    "c2h-last-early",
    "NVMe/TCP 3.6.2.9",
    "LAST_PDU is on every PDU",
    data(lambda t, pdu: [replace(half, last=True) for half in halves(pdu)]),
)
target(
    "c2h-success-flow-control",
    "NVMe/TCP 3.3.2.1",
    "SUCCESS is used while SQ flow control is on",
    success_under_flow_control,
)
target("c2h-success-and-response", "NVMe/TCP 3.6.2.9", "a CapsuleResp follows SUCCESS", success_and_response)
target(
    "c2h-misaligned",
    "NVMe/TCP 3.3",
    "data begins one dword late, whatever HPDA says",
    lambda t, got: [one_dword_on(got.raw)] if isinstance(got.pdu, C2HData) else None,
)
target("c2h-reserved", "NVMe/TCP 3.6.2.9", "reserved bytes are set", field(C2HData, "RSVD", 1))
target(
    "c2h-wrong-cid",
    "NVMe/TCP 3.3.2.1",
    "CCCID is another",
    data(lambda t, pdu: [replace(pdu, cccid=pdu.cccid ^ 3)]),
)
target(
    "data-after-error",
    "NVMe/TCP 3.3.2.1",
    "a read that failed returns data",
    lambda t, got: (
        [C2HData(Cqe.decode(got.pdu.cqe).cid, 0, bytes(512)), got.pdu]
        if isinstance(got.pdu, CapsuleResp) and Cqe.decode(got.pdu.cqe).status == Status.LBA_OUT_OF_RANGE
        else None
    ),
)

# R2T and H2CData (3.3.2.2, 3.6.2.10)


def one_too_many(through: Through, got: Received) -> Iterable[Item] | None:
    match got.pdu:
        case R2T(cid, ttag, offset, length):
            through.memory["split"] = (ttag, offset + length)
            extra = through.icreq.maxr2t + 1  # one more than is allowed
            first = [R2T(cid, ttag, offset + 512 * at, 512) for at in range(extra)]
            return [*first, R2T(cid, ttag, offset + 512 * extra, length - 512 * extra)]
    return None


def joined(through: Through, got: Received) -> Iterable[Item] | None:
    ttag, end = through.memory.get("split", (None, 0))
    match got.pdu:
        case H2CData() as pdu if pdu.ttag == ttag and pdu.last and pdu.offset + len(pdu.data) != end:
            return [replace(pdu, last=False)]
    return None


add(
    "r2t-over-limit",
    "NVMe/TCP 3.3.2.2",
    "one R2T more is outstanding than MAXR2T allows",
    lambda: Through(of_target=one_too_many, of_host=joined),
)


def r2t(change: Callable[[R2T], Iterable[Item]]) -> Rule:
    return lambda t, got: list(change(got.pdu)) if isinstance(got.pdu, R2T) else None


target("r2t-gap", "NVMe/TCP 3.3.2.2", "R2TO jumps", r2t(lambda pdu: [replace(pdu, offset=pdu.offset + 512)]))
target(
    "r2t-overrun",
    "NVMe/TCP 3.3.2.2",
    "R2TL reaches past the data",
    r2t(lambda pdu: [replace(pdu, length=1 << 20)]),
)
target("r2t-zero", "NVMe/TCP 3.3.2.2", "R2TL is 0", r2t(lambda pdu: [replace(pdu, length=0)]))
target("r2t-reserved", "NVMe/TCP 3.6.2.10", "reserved bytes are set", field(R2T, "RSVD", 1))
target(
    "r2t-wrong-cid",
    "NVMe/TCP 3.3.2.2",
    "CCCID is another",
    r2t(lambda pdu: [replace(pdu, cccid=pdu.cccid ^ 1)]),
)
target(
    "r2t-small-never",
    "NVMe/TCP 3.3.2.2",
    "little data is never asked for",
    lambda t, got: (
        [] if isinstance(got.pdu, R2T) and got.pdu.length <= 4096 and got.pdu.offset == 0 else None
    ),
)


def data_rule(wrong: Callable[[Through, H2CData], bool]) -> Rule:
    """H2CData that is wrong is dropped."""
    return lambda t, got: [] if isinstance(got.pdu, H2CData) and wrong(t, got.pdu) else None


def repaired_cccid(through: Through, got: Received) -> Iterable[Item] | None:
    asked = through.r2ts.get(got.pdu.ttag) if isinstance(got.pdu, H2CData) else None
    asked = asked or through.memory.get("asked")
    if isinstance(got.pdu, H2CData) and asked and asked.cccid != got.pdu.cccid:
        return [replace(got.pdu, cccid=asked.cccid, last=False)]
    return None


def remember(through: Through, got: Received) -> Iterable[Item] | None:
    if isinstance(got.pdu, R2T):
        through.memory.setdefault("asked", got.pdu)
        through.memory["latest"] = got.pdu
    return None


def watching(name: str, section: str, description: str, rule: Rule) -> None:
    add(name, section, description, lambda: Through(of_target=remember, of_host=rule))


watching(
    "unsolicited-data-ignored",
    "NVMe/TCP 3.3.2.2",
    "H2CData that nobody asked for is skipped",
    data_rule(lambda t, pdu: "asked" not in t.memory),
)
watching(
    "ttag-not-checked",
    "NVMe/TCP 3.3.2.2",
    "H2CData of an unknown TTAG is skipped",
    data_rule(lambda t, pdu: "asked" in t.memory and pdu.ttag != t.memory["asked"].ttag),
)
watching("cccid-not-checked", "NVMe/TCP 3.3.2.2", "CCCID of H2CData is not looked at", repaired_cccid)
watching(
    "data-gap-ignored",
    "NVMe/TCP 3.3.2.2",
    "H2CData after a gap is skipped",
    data_rule(lambda t, pdu: "asked" in t.memory and pdu.offset == t.memory["asked"].offset + 512),
)


def in_pieces(through: Through, got: Received) -> Iterable[Item] | None:
    most = 4096
    match got.pdu:
        case H2CData() as pdu if len(pdu.data) > through.icresp.maxh2cdata:
            return [
                replace(
                    pdu,
                    offset=pdu.offset + at,
                    data=pdu.data[at : at + most],
                    last=pdu.last and at + most >= len(pdu.data),
                )
                for at in range(0, len(pdu.data), most)
            ]
    return None


host("maxh2cdata-not-checked", "NVMe/TCP 3.6.2.3", "H2CData over MAXH2CDATA is taken", in_pieces)


def seen_last(through: Through, got: Received) -> Iterable[Item] | None:
    match got.pdu:
        case H2CData(last=last, offset=offset):
            if through.memory.get("over") and offset == 0:
                return []
            through.memory["over"] = through.memory.get("over") or last
    return None


host("data-after-last-ignored", "NVMe/TCP 3.3.2.2", "H2CData after LAST_PDU is skipped", seen_last)

# SGLs and capsules (3.3.1, 3.3.2, 3.6.2.7)

target("sgl-not-checked", "NVMe/TCP 3.3.2", "any SGL type is taken", accepts(Status.SGL_TYPE_INVALID))
target(
    "sgl-length-ignored",
    "NVMe/TCP 3.3.2",
    "lengths and offsets of SGLs are not looked at",
    accepts(Status.DATA_SGL_LENGTH_INVALID, Status.SGL_OFFSET_INVALID, when=on_io()),
)
target(
    "sgl-length-ignored-connect",
    "Base 6.3",
    "Connect with too little data is taken",
    accepts(Status.DATA_SGL_LENGTH_INVALID, when=fabrics(Fctype.CONNECT)),
)
target(
    "psdt-ignored",
    "Base 4.1.1",
    "PSDT is not looked at",
    accepts(Status.INVALID_FIELD, when=lambda t, c: c.flags >> 6 != 1),
)
host(
    "admin-capsule-small",
    "NVMe/TCP 3.3.1",
    "8,192 bytes in an admin capsule are too many",
    lambda t, got: _hang_up() if isinstance(got.pdu, CapsuleCmd) and len(got.pdu.data) > 4096 else None,
)


def over_the_limit(through: Through, got: Received) -> Iterable[Item] | None:
    if isinstance(got.pdu, CapsuleCmd) and through.qid and len(got.pdu.data) > 4096:
        through.reply(Cqe(Command.decode(got.pdu.sqe).cid, sqhd=1))
        return []
    return None


host("capsule-over-taken", "NVMe/TCP 3.3.1", "in-capsule data over the limit is taken", over_the_limit)
target(
    "answer-lost",
    "NVMe/TCP 3.6.2.7",
    "one answer of many is lost",
    lambda t, got: [] if isinstance(got.pdu, CapsuleResp) and Cqe.decode(got.pdu.cqe).cid == 110 else None,
)
target(
    "resp-flags",
    "NVMe/TCP 3.6.2.7",
    "FLAGS of CapsuleResp is 10h",
    lambda t, got: (
        [mangle(got.raw, "FLAGS", got.raw[1] | 0x10)] if isinstance(got.pdu, CapsuleResp) else None
    ),
)
target("resp-pdo", "NVMe/TCP 3.6.2.7", "PDO of CapsuleResp is 24", field(CapsuleResp, "PDO", 24))
target(
    "resp-phase", "Base 4.2.2", "there is a phase tag", response(lambda t, c, cqe: replace(cqe, phase=True))
)
target("resp-sqid", "Base 4.2.2", "SQID is set", response(lambda t, c, cqe: replace(cqe, sqid=5)))
target("sqhd-stuck", "Base 4.2.1", "SQHD does not move", response(lambda t, c, cqe: replace(cqe, sqhd=3)))
target(
    "resp-wrong-cid",
    "NVMe/TCP 3.6.2.7",
    "CID of the answer is another",
    response(lambda t, c, cqe: replace(cqe, cid=cqe.cid ^ 0x40)),
)
target(
    "resp-twice",
    "NVMe/TCP 3.6.2.7",
    "every answer comes twice",
    lambda t, got: [got.raw, got.raw] if isinstance(got.pdu, CapsuleResp) else None,
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
    patch(lambda raw: put(4090, next(LOOKS).to_bytes(2, "little"))(raw), when=CONTROLLER),
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
