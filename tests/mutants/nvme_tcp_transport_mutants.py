"""Broken rules of the transport: setting up, fatal errors, digests, transfers (NVMe/TCP 3.1 to 3.6)."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import Bad, accepts_bad, add, data, fabrics, field, hang_up, host, target
from proxy import Hangup

from storagetest.wire.crc import crc32c
from storagetest.wire.nvme.codes import Fctype
from storagetest.wire.nvme.command import Cqe
from storagetest.wire.nvme_tcp.pdu import (
    R2T,
    C2HData,
    C2HTermReq,
    CapsuleCmd,
    CapsuleResp,
    DecodedPdu,
    Fes,
    H2CData,
    H2CTermReq,
    ICReq,
    ICResp,
    PduError,
    encode,
    override_field,
)

# ICReq and ICResp (3.1, 3.6.2.2, 3.6.2.3)

target(
    "icresp-twice | NVMe/TCP 3.1 | ICResp is sent twice",
    lambda t, got: [got.raw, got.raw] if isinstance(got.pdu, ICResp) else None,
)
target("icresp-pfv | NVMe/TCP 3.6.2.3 | PFV is 1", field(ICResp, "PFV", 1))
target("icresp-maxh2cdata-small | NVMe/TCP 3.6.2.3 | MAXH2CDATA is 2048", field(ICResp, "MAXH2CDATA", 2048))
target(
    "icresp-maxh2cdata-odd | NVMe/TCP 3.6.2.3 | MAXH2CDATA is not a multiple of 4",
    field(ICResp, "MAXH2CDATA", 8190),
)
target("icresp-cpda | NVMe/TCP 3.6.2.3 | CPDA is 32", field(ICResp, "CPDA", 32))
target(
    "icresp-reserved | NVMe/TCP 3.6.2.3 | reserved bytes are set",
    field(ICResp, "RSVD", b"\x01" + bytes(111)),
)
target("icresp-flags | NVMe/TCP 3.6.2.3 | FLAGS is 80h", field(ICResp, "FLAGS", 0x80))
target("icresp-pdo | NVMe/TCP 3.6.2.3 | PDO is 128", field(ICResp, "PDO", 128))
target("icresp-hlen | NVMe/TCP 3.6.2.3 | HLEN is 127", field(ICResp, "HLEN", 127))
target(
    "icresp-digest-unasked | NVMe/TCP 3.3.1.1 | digests are enabled that were not requested",
    field(ICResp, "DGST", 3),
)


class Deaf(ProxyConnection):
    """Passes no close on."""

    def passes_close(self, *, from_target: bool) -> bool:
        self.acted = True  # a host that has closed its half may still listen
        return False


add("half-close-ignored | Base 3.3.2.4 | a connection that the host has closed stays open", Deaf)


host(
    "hpda-refused | NVMe/TCP 3.1 | any HPDA but 0 ends the connection",
    lambda t, got: hang_up() if isinstance(got.pdu, ICReq) and got.pdu.hpda else None,
)
host(
    "icreq-values-ignored | NVMe/TCP 3.1 | PFV and HPDA of ICReq are not checked",
    lambda t, got: (
        [replace(got.pdu, pfv=0, hpda=0)]
        if isinstance(got.pdu, ICReq) and (got.pdu.pfv or got.pdu.hpda > 31)
        else None
    ),
)
host(
    "maxr2t-refused | NVMe/TCP 3.1 | any MAXR2T but 0 ends the connection",
    lambda t, got: hang_up() if isinstance(got.pdu, ICReq) and got.pdu.maxr2t else None,
)
target(
    "icresp-with-digest | NVMe/TCP 3.3.1.1 | ICResp has a header digest",
    lambda t, got: [override_field(got.raw, "PLEN", 132) + bytes(4)] if isinstance(got.pdu, ICResp) else None,
)


class Contagious(ProxyConnection):
    """When its host closes, every connection is closed."""

    def passes_close(self, *, from_target: bool) -> bool:
        for other in () if from_target or self.qid else ALL_CONNECTIONS:
            other.memory["doomed"] = True
        return True


def _contagious() -> ProxyConnection:
    ALL_CONNECTIONS.append(Contagious(of_host=doomed))
    return ALL_CONNECTIONS[-1]


add("loss-takes-all | Base 3.3.2.4 | one host's lost connection ends the others'", _contagious)

# Fatal errors (3.5)


def drops(through: ProxyConnection, raw: bytes, error: PduError) -> Iterable[bytes]:
    return []


def drops_if(wanted: Callable[[bytes, PduError], bool]) -> Bad:
    return lambda t, raw, error: [] if wanted(raw, error) else [raw]


def term(change: Callable[[C2HTermReq], Item | None]) -> Rule:
    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, C2HTermReq):
            return None
        new = change(got.pdu)
        return [] if new is None else [new]

    return rule


def too_long(pdu: C2HTermReq) -> bytes:
    return override_field(encode(replace(pdu, data=pdu.data.ljust(128, b"\0"))) + bytes(8), "PLEN", 160)


accepts_bad("fatal-ignored | NVMe/TCP 3.5 | a PDU in error is dropped and the connection stays open", drops)
accepts_bad(
    "icreq-again | NVMe/TCP 3.1 | a second ICReq is answered by ICResp",
    lambda t, raw, error: (
        _answer(t, encode(t.icresp)) if raw[0] == 0 and error.fes == Fes.SEQUENCE_ERROR else [raw]
    ),
)
accepts_bad(
    "reserved-type-ignored | NVMe/TCP 3.3 | PDUs of a reserved type are skipped",
    drops_if(lambda raw, error: raw[0] in {8, 0xC, 0xFF}),
)
accepts_bad(
    "wrong-way-ignored | NVMe/TCP 3.3 | PDUs that only a controller sends are skipped",
    drops_if(lambda raw, error: raw[0] in {5, 7, 9}),
)
accepts_bad(
    "hlen-ignored | NVMe/TCP 3.6.2.6 | HLEN is not checked",
    lambda t, raw, error: [override_field(raw, "HLEN", 72)] if raw[0] == 4 and error.fei == 2 else [raw],
)
accepts_bad(
    "hdgstf-not-checked | NVMe/TCP 3.3.1.1 | a missing header digest is added",
    lambda t, raw, error: [t.encode(CapsuleCmd(raw[8:72]))] if raw[0] == 4 and error.fei == 1 else [raw],
)
accepts_bad(
    "hdgst-not-checked | NVMe/TCP 3.5 | a wrong header digest is corrected",
    lambda t, raw, error: [_right_hdgst(raw)] if error.fes == Fes.HEADER_DIGEST_ERROR else [raw],
)
target("term-swallowed | NVMe/TCP 3.5 | no C2HTermReq is sent", term(lambda pdu: None))
target("term-fes | NVMe/TCP 3.6.2.5 | FES is wrong", term(lambda pdu: replace(pdu, fes=7)))
target(
    "term-fei | NVMe/TCP 3.6.2.5 | FEI is off by one",
    term(lambda pdu: replace(pdu, fei=(pdu.fei + 1) & 0xFFFFFFFF)),
)
target(
    "term-no-header | NVMe/TCP 3.6.2.5 | the header in error is missing",
    term(lambda pdu: replace(pdu, data=b"")),
)
target(
    "term-other-header | NVMe/TCP 3.6.2.5 | the header is not the one in error",
    term(lambda pdu: replace(pdu, data=bytes(8) + b"\xee" * 8)),
)
target("term-long | NVMe/TCP 3.5 | PLEN of C2HTermReq is 160", term(too_long))
host(
    "h2cterm-ignored | NVMe/TCP 3.5 | H2CTermReq is ignored",
    lambda t, got: [] if isinstance(got.pdu, H2CTermReq) else None,
)
host(
    "h2cterm-answered | NVMe/TCP 3.5 | H2CTermReq is answered by C2HTermReq",
    lambda t, got: (
        _answer(t, encode(C2HTermReq(2, 0, got.raw[:24]))) if isinstance(got.pdu, H2CTermReq) else None
    ),
)


def _answer(through: ProxyConnection, raw: bytes) -> list[bytes]:
    through.send_to_host(raw)
    return []


def _right_hdgst(raw: bytes) -> bytes:
    hlen = 72 if raw[0] == 4 else 24
    return raw[:hlen] + crc32c(raw[:hlen]).to_bytes(4, "little") + raw[hlen + 4 :]


def processes_after(through: ProxyConnection, raw: bytes, error: PduError) -> Iterable[bytes]:
    """Skip the bad PDU; after the next command is answered, hang up."""
    through.memory["errs"] = True
    return []


def hangs_up_late(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if through.memory.get("errs") and isinstance(got.pdu, CapsuleResp):
        through.send_to_host(got.raw)
        raise Hangup
    return None


add(
    "processes-after-fatal | NVMe/TCP 3.5 | a command after a PDU in error is executed",
    lambda: ProxyConnection(bad=processes_after, of_target=hangs_up_late),
)

ALL_CONNECTIONS: list[ProxyConnection] = []


def takes_all(through: ProxyConnection, raw: bytes, error: PduError) -> Iterable[bytes]:
    for other in ALL_CONNECTIONS:
        other.memory["doomed"] = True
    return [raw]


def doomed(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if through.memory.get("doomed"):
        raise Hangup
    return None


def _one_of_all() -> ProxyConnection:
    ALL_CONNECTIONS.append(ProxyConnection(bad=takes_all, of_host=doomed))
    return ALL_CONNECTIONS[-1]


add("fatal-takes-all | NVMe/TCP 3.5 | a fatal error ends every host's connection", _one_of_all)

# Digests (3.3.1.1, 3.5)


def right_ddgst(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    return [got.pdu] if got.data_digest_ok is False else None


def fatal_ddgst(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if got.data_digest_ok is False:
        raise Hangup
    return None


host("ddgst-not-checked | NVMe/TCP 3.5 | a wrong data digest is corrected", right_ddgst)
host("ddgst-fatal | NVMe/TCP 3.5 | a wrong data digest ends the connection", fatal_ddgst)
target(
    "hdgst-wrong | NVMe/TCP 3.3.1.1 | HDGST of responses is wrong",
    lambda t, got: (
        [override_field(got.raw, "HDGST", 1)]
        if got.header_digest_ok and isinstance(got.pdu, CapsuleResp)
        else None
    ),
)
target(
    "ddgst-wrong | NVMe/TCP 3.3.1.1 | DDGST of C2HData is wrong",
    lambda t, got: [override_field(got.raw, "DDGST", 1)] if got.data_digest_ok else None,
)
target(
    "digest-flags-lost | NVMe/TCP 3.3.1.1 | PDUs have no digests although they were negotiated",
    lambda t, got: (
        [encode(got.pdu, alignment=t.icreq.hpda)] if isinstance(got.pdu, (CapsuleResp, C2HData)) else None
    ),
)

target(
    "digest-unwanted | NVMe/TCP 3.3.1.1 | PDUs have a header digest that was not negotiated",
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


def success_with_flow(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    match got.pdu:
        case C2HData(last=True) as pdu if not pdu.success:
            through.memory["done"] = pdu.cccid
            return [replace(pdu, success=True)]
        case CapsuleResp(raw) if Cqe.decode(raw).cid == through.memory.get("done"):
            return []
    return None


def success_without_disabling(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if _connects(through, got) and (cqe := Cqe.decode(got.pdu.cqe)).sqhd == 0xFFFF:
        return [CapsuleResp(replace(cqe, sqhd=1).encode())]
    return success_with_flow(through, got)


def _connects(through: ProxyConnection, got: DecodedPdu) -> bool:
    command = through.command_of(got) if isinstance(got.pdu, CapsuleResp) else None
    return command is not None and fabrics(Fctype.CONNECT)(through, command)


def success_and_response(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    match got.pdu:
        case C2HData(success=True) as pdu:
            return [pdu, CapsuleResp(Cqe(pdu.cccid, sqhd=0xFFFF).encode())]
    return None


def one_dword_on(raw: bytes) -> bytes:
    """Move the data one dword on: PDO and PLEN agree, but not with HPDA."""
    pdo, plen = raw[3], int.from_bytes(raw[4:8], "little")
    moved = override_field(raw[:pdo] + bytes(4) + raw[pdo:], "PLEN", plen + 4)
    return override_field(moved, "PDO", pdo + 4)


target(
    "c2h-gap | NVMe/TCP 3.3.2.1 | DATAO has a gap",
    data(lambda t, pdu: [replace(pdu, offset=pdu.offset + 4)]),
)
target(
    "c2h-swapped | NVMe/TCP 3.3.2.1 | the second half comes first",
    data(lambda t, pdu: reversed(halves(pdu))),
)
target(
    "c2h-short | NVMe/TCP 3.3.2.1 | the last 4 bytes are missing",
    data(lambda t, pdu: [replace(pdu, data=pdu.data[:-4]) if pdu.last else pdu]),
)
target(
    "c2h-overrun | NVMe/TCP 3.3.2.1 | 4 bytes too many are sent",
    data(lambda t, pdu: [replace(pdu, data=pdu.data + bytes(4)) if pdu.last else pdu]),
)
target(
    "c2h-last-missing | NVMe/TCP 3.6.2.9 | LAST_PDU is missing",
    data(lambda t, pdu: [replace(pdu, last=False, success=False)]),
)
target(
    "c2h-last-early | NVMe/TCP 3.6.2.9 | LAST_PDU is set in every PDU",
    data(lambda t, pdu: [replace(half, last=True) for half in halves(pdu)]),
)
target(
    "success-without-disabling | NVMe/TCP 3.3.2.1 | SUCCESS is used, but SQ flow control cannot be disabled",
    success_without_disabling,
)
target(
    "success-with-flow | NVMe/TCP 3.3.2.1 | SUCCESS is used while SQ flow control is on", success_with_flow
)
target("c2h-success-and-response | NVMe/TCP 3.3.2.1 | a CapsuleResp follows SUCCESS", success_and_response)
target(
    "c2h-misaligned | NVMe/TCP 3.3 | data starts one dword late, for any HPDA",
    lambda t, got: [one_dword_on(got.raw)] if isinstance(got.pdu, C2HData) else None,
)
target("c2h-reserved | NVMe/TCP 3.6.2.9 | reserved bytes are set", field(C2HData, "RSVD", 1))
target(
    "c2h-wrong-cid | NVMe/TCP 3.3.2.1 | CCCID is wrong",
    data(lambda t, pdu: [replace(pdu, cccid=pdu.cccid ^ 3)]),
)

# R2T and H2CData (3.3.2.2, 3.6.2.10)


def one_too_many(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    match got.pdu:
        case R2T(cid, ttag, offset, length):
            through.memory["split"] = (ttag, offset + length)
            extra = through.icreq.maxr2t + 1  # one more than is allowed
            first = [R2T(cid, ttag, offset + 512 * at, 512) for at in range(extra)]
            return [*first, R2T(cid, ttag, offset + 512 * extra, length - 512 * extra)]
    return None


def joined(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    ttag, end = through.memory.get("split", (None, 0))
    match got.pdu:
        case H2CData() as pdu if pdu.ttag == ttag and pdu.last and pdu.offset + len(pdu.data) != end:
            return [replace(pdu, last=False)]
    return None


add(
    "r2t-over-limit | NVMe/TCP 3.3.2.2 | one R2T more than MAXR2T is outstanding",
    lambda: ProxyConnection(of_target=one_too_many, of_host=joined),
)


def one_too_many_of_large(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    command = through.commands.get(got.pdu.cccid) if isinstance(got.pdu, R2T) else None
    large = command is not None and (command.cdw12 & 0xFFFF) + 1 > 65536 // 512
    return one_too_many(through, got) if large else None


add(
    "r2t-over-limit-of-large | NVMe/TCP 3.3.2.2 | of a write over 64 KiB an R2T too many is outstanding",
    lambda: ProxyConnection(of_target=one_too_many_of_large, of_host=joined),
)


def r2t(change: Callable[[R2T], Iterable[Item]]) -> Rule:
    return lambda t, got: list(change(got.pdu)) if isinstance(got.pdu, R2T) else None


target(
    "r2t-gap | NVMe/TCP 3.3.2.2 | R2TO has a gap", r2t(lambda pdu: [replace(pdu, offset=pdu.offset + 512)])
)
target(
    "r2t-overrun | NVMe/TCP 3.3.2.2 | R2TL extends past the data",
    r2t(lambda pdu: [replace(pdu, length=1 << 20)]),
)
target("r2t-zero | NVMe/TCP 3.3.2.2 | R2TL is 0", r2t(lambda pdu: [replace(pdu, length=0)]))
target("r2t-reserved | NVMe/TCP 3.6.2.10 | reserved bytes are set", field(R2T, "RSVD", 1))
target(
    "r2t-wrong-cid | NVMe/TCP 3.3.2.2 | CCCID is wrong",
    r2t(lambda pdu: [replace(pdu, cccid=pdu.cccid ^ 1)]),
)
target(
    "r2t-small-never | NVMe/TCP 3.3.2 | no R2T is sent for small writes",
    lambda t, got: (
        [] if isinstance(got.pdu, R2T) and got.pdu.length <= 4096 and got.pdu.offset == 0 else None
    ),
)


def data_rule(wrong: Callable[[ProxyConnection, H2CData], bool]) -> Rule:
    """H2CData that is wrong is dropped."""
    return lambda t, got: [] if isinstance(got.pdu, H2CData) and wrong(t, got.pdu) else None


def repaired_cccid(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    asked = through.r2ts.get(got.pdu.ttag) if isinstance(got.pdu, H2CData) else None
    asked = asked or through.memory.get("asked")
    if isinstance(got.pdu, H2CData) and asked and asked.cccid != got.pdu.cccid:
        return [replace(got.pdu, cccid=asked.cccid, last=False)]
    return None


def remember(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if isinstance(got.pdu, R2T):
        through.memory.setdefault("asked", got.pdu)
        through.memory["latest"] = got.pdu
    return None


def watching(row: str, rule: Rule) -> None:
    add(row, lambda: ProxyConnection(of_target=remember, of_host=rule))


watching(
    "unsolicited-data-ignored | NVMe/TCP 3.3.2.2 | H2CData that was not requested is skipped",
    data_rule(lambda t, pdu: "asked" not in t.memory),
)
watching(
    "ttag-not-checked | NVMe/TCP 3.3.2.2 | H2CData of an unknown TTAG is skipped",
    data_rule(lambda t, pdu: "asked" in t.memory and pdu.ttag != t.memory["asked"].ttag),
)
watching("cccid-not-checked | NVMe/TCP 3.6.2.8 | CCCID of H2CData is not checked", repaired_cccid)
watching(
    "data-gap-ignored | NVMe/TCP 3.3.2.2 | H2CData after a gap is skipped",
    data_rule(lambda t, pdu: "asked" in t.memory and pdu.offset == t.memory["asked"].offset + 512),
)


watching(
    "data-range-ignored | NVMe/TCP 3.3.2.2 | H2CData past the end of its R2T is skipped",
    data_rule(
        lambda t, pdu: (
            "asked" in t.memory and pdu.offset >= t.memory["asked"].offset + t.memory["asked"].length
        )
    ),
)


def in_pieces(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
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


host("maxh2cdata-not-checked | NVMe/TCP 3.3.2.2 | H2CData over MAXH2CDATA is accepted", in_pieces)


def seen_last(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    match got.pdu:
        case H2CData(last=last, offset=offset):
            if through.memory.get("over") and offset == 0:
                return []
            through.memory["over"] = through.memory.get("over") or last
    return None


host("data-after-last-ignored | NVMe/TCP 3.3.2.2 | H2CData after LAST_PDU is skipped", seen_last)
