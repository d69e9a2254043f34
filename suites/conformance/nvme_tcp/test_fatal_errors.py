"""Reactions of a controller to a host that breaks the transport's rules (NVMe/TCP 3.5).

Every row of :data:`VIOLATIONS` is two cases: ``…-END``, the controller stops processing and ends the
connection, and ``…-TERM``, it sends a C2HTermReq with the right Fatal Error Status and Information.

A row is a MUST if the standard states that receiving such a PDU "is treated as a fatal transport error". It
is a SHOULD if the standard defines a field or an order, and a Fatal Error Status for it, but does not require
that a controller detects the error: 3.6.2.5 lists the errors, 3.5 the reaction to a detected one.
"""

# ruff: noqa: ARG005  # a row of the table takes the stage, whether or not it needs it

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import fabrics, io
from storagetest.wire.nvme.codes import Property
from storagetest.wire.nvme_tcp import ConnectionEnd, ControllerSession, Queue, encode, override_field
from storagetest.wire.nvme_tcp.harness import Harness, Scratch
from storagetest.wire.nvme_tcp.pdu import (
    KINDS,
    R2T,
    C2HTermReq,
    CapsuleCmd,
    CapsuleResp,
    Fes,
    H2CData,
    H2CTermReq,
    ICReq,
    PduType,
)

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST")]

PLAIN, NOT_ASKED = ICReq(), R2T(0, 0, 0, 0)
DIGESTS = ICReq(header_digest=True, data_digest=True)
ANY = None
"""An FEI that the standard leaves open."""


@dataclass(frozen=True)
class Stage:
    """Where a rule is broken: on which queue, and (in a transfer) which R2T is unanswered there."""

    queue: Queue
    r2t: R2T = NOT_ASKED


@dataclass(frozen=True)
class Violation:
    """One broken rule: the bytes that break it on a queue, and the fields of the TermReq for it."""

    name: str
    section: str
    stage: (
        str  # "new": before ICReq; "ready": after ICResp; "connected": after Connect; "asked": after an R2T
    )
    breaks: Callable[[Stage], bytes]
    fes: frozenset[Fes]
    fei: int | Callable[[bytes], int] | None = ANY
    icreq: ICReq = PLAIN
    kills: tuple[str, ...] = ()
    level: str = "MUST"
    no_mutant_reason: str = ""


def violation(  # one row of a table
    name: str,
    section: str,
    stage: str,
    breaks: Callable[[Stage], bytes],
    fes: Iterable[Fes],
    fei: int | Callable[[bytes], int] | None = ANY,
    **more: object,
) -> Violation:
    return Violation(name, section, stage, breaks, frozenset(fes), fei, **more)  # type: ignore[arg-type]


def command(at: Stage) -> bytes:
    """A command that is all right: Property Get of VS."""
    return at.queue.encode(CapsuleCmd(fabrics.property_get(Property.VS).encode()))


def of_type(number: int) -> Callable[[Stage], bytes]:
    """A PDU of 24 bytes with that type: header and all else as a TermReq has them."""
    hlen = KINDS[PduType(number)].hlen if number in {*PduType} else 24
    return lambda at: bytes([number, 0, hlen, 0]) + hlen.to_bytes(4, "little") + bytes(hlen - 8)


def unsolicited(at: Stage) -> bytes:
    """H2CData that no R2T asks for."""
    return at.queue.encode(H2CData(1, 1, 0, bytes(512)))


def data(at: Stage, **changes: int | bytes) -> bytes:
    """The beginning of the answer to the R2T, with fields changed."""
    fields = {
        "cccid": at.r2t.cccid,
        "ttag": at.r2t.ttag,
        "offset": at.r2t.offset,
        "data": bytes(512),
        "last": False,
    } | changes
    return at.queue.encode(H2CData(**fields))  # type: ignore[arg-type]


UNCUT = "behind a PLEN of 4 GiB the proxy finds no PDU that it could answer"
"""Why no mutant ignores such a PLEN."""

INVALID, SEQUENCE, RANGE, LIMIT = (
    Fes.INVALID_HEADER_FIELD,
    Fes.SEQUENCE_ERROR,
    Fes.OUT_OF_RANGE,
    Fes.LIMIT_EXCEEDED,
)

VIOLATIONS = [
    # ICReq (3.1: an invalid field, or an unsupported parameter)
    violation(
        "ICREQ-PFV",
        "3.1",
        "new",
        lambda at: override_field(encode(ICReq()), "PFV", 1),
        [INVALID, Fes.UNSUPPORTED_PARAMETER],
        8,
        kills=("icreq-values-ignored",),
    ),
    violation(
        "ICREQ-HLEN", "3.1", "new", lambda at: override_field(encode(ICReq()), "HLEN", 120), [INVALID], 2
    ),
    violation(
        "ICREQ-PLEN-LONG",
        "3.1",
        "new",
        lambda at: override_field(encode(ICReq()), "PLEN", 136) + bytes(8),
        [INVALID],
        4,
    ),
    violation(
        "ICREQ-PLEN-SHORT",
        "3.1",
        "new",
        lambda at: override_field(encode(ICReq()), "PLEN", 64)[:64],
        [INVALID],
        4,
    ),
    violation(
        "ICREQ-HPDA",
        "3.1",
        "new",
        lambda at: override_field(encode(ICReq()), "HPDA", 32),
        [INVALID, Fes.UNSUPPORTED_PARAMETER],
        10,
        kills=("icreq-values-ignored",),
    ),
    # The order of PDUs (3.1)
    violation("ORDER-CMD-FIRST", "3.1", "new", command, [SEQUENCE], level="SHOULD"),
    violation("ORDER-DATA-FIRST", "3.1", "new", unsolicited, [SEQUENCE], level="SHOULD"),
    violation(
        "ORDER-ICREQ-AGAIN",
        "3.1",
        "ready",
        lambda at: encode(ICReq()),
        [SEQUENCE],
        kills=("icreq-again",),
        level="SHOULD",
    ),
    # Types that a host may not send (3.3): the other direction's are fatal, the others reserved
    *(
        violation(
            f"TYPE-{number:02X}",
            "3.3",
            "ready",
            of_type(number),
            [INVALID, SEQUENCE],
            0,
            kills=kills,
            level="MUST" if number in {*PduType} else "SHOULD",
        )
        for number, kills in (
            (PduType.ICRESP, ()),
            (PduType.C2H_TERM_REQ, ()),
            (PduType.CAPSULE_RESP, ("wrong-way-ignored",)),
            (PduType.C2H_DATA, ("wrong-way-ignored",)),
            (PduType.R2T, ("wrong-way-ignored",)),
            (0x08, ("reserved-type-ignored",)),
            (0x0C, ("reserved-type-ignored",)),
            (0xFF, ("reserved-type-ignored",)),
        )
    ),
    # CapsuleCmd (3.6.2.6)
    violation(
        "CMD-HLEN",
        "3.6.2.6",
        "connected",
        lambda at: override_field(command(at), "HLEN", 64),
        [INVALID],
        2,
        kills=("hlen-ignored",),
        level="SHOULD",
    ),
    violation(
        "CMD-PLEN-SHORT",
        "3.6.2.6",
        "connected",
        lambda at: override_field(command(at), "PLEN", 64)[:64],
        [INVALID],
        4,
        level="SHOULD",
    ),
    violation(
        "CMD-PLEN-4GIB",
        "3.6.2.6",
        "connected",
        lambda at: override_field(command(at), "PLEN", 0xFFFFFFFF),
        [INVALID],
        4,
        level="SHOULD",
        no_mutant_reason=UNCUT,
    ),
    violation(
        "CMD-PDO",
        "3.6.2.6",
        "connected",
        lambda at: override_field(at.queue.encode(CapsuleCmd(command(at)[8:72], bytes(64))), "PDO", 8),
        [INVALID],
        3,
        level="SHOULD",
    ),
    violation(
        "CMD-HDGST",
        "3.5",
        "connected",
        lambda at: override_field(command(at), "HDGST", 0xBADBAD00),
        [Fes.HEADER_DIGEST_ERROR],
        0xBADBAD00,
        icreq=DIGESTS,
        kills=("hdgst-not-checked",),
    ),
    violation(
        "CMD-HEADER-BIT",
        "3.5",
        "connected",
        lambda at: command(at)[:30] + bytes([command(at)[30] ^ 1]) + command(at)[31:],
        [Fes.HEADER_DIGEST_ERROR],
        lambda raw: int.from_bytes(raw[72:76], "little"),
        icreq=DIGESTS,
        kills=("hdgst-not-checked",),
    ),
    violation(
        "CMD-HDGSTF",
        "3.3.1.1",
        "connected",
        lambda at: encode(CapsuleCmd(command(at)[8:72])),
        [INVALID],
        1,
        icreq=DIGESTS,
        kills=("hdgstf-not-checked",),
        level="SHOULD",
    ),
    # H2CData (3.3.2.2, 3.6.2.8)
    violation(
        "DATA-UNSOLICITED",
        "3.3.2.2",
        "connected",
        unsolicited,
        [INVALID, SEQUENCE, RANGE],
        kills=("unsolicited-data-ignored",),
    ),
    violation(
        "DATA-TTAG",
        "3.3.2.2",
        "asked",
        lambda at: data(at, ttag=at.r2t.ttag ^ 0x5A5A),
        [INVALID],
        10,
        kills=("ttag-not-checked",),
    ),
    violation(
        "DATA-CCCID",
        "3.6.2.8",
        "asked",
        lambda at: data(at, cccid=at.r2t.cccid ^ 0x5A5A),
        [INVALID],
        8,
        kills=("cccid-not-checked",),
        level="SHOULD",
    ),
    violation(
        "DATA-GAP",
        "3.3.2.2",
        "asked",
        lambda at: data(at, offset=512),
        [SEQUENCE, RANGE],
        kills=("data-gap-ignored",),
    ),
    violation(
        "DATA-RANGE",
        "3.3.2.2",
        "asked",
        lambda at: data(at, offset=at.r2t.offset + at.r2t.length),
        [RANGE, SEQUENCE],
        kills=("data-range-ignored",),
    ),
    violation(
        "DATA-OFFSET-HUGE",
        "3.3.2.2",
        "asked",
        lambda at: data(at, offset=0xFFFFFE00),
        [RANGE, SEQUENCE],
        kills=("data-range-ignored",),
    ),
    violation(
        "DATA-DATAL",
        "3.6.2.8",
        "asked",
        lambda at: override_field(data(at), "DATAL", 1024),
        [INVALID, RANGE],
        ANY,
        level="SHOULD",
    ),
    violation(
        "DATA-HLEN",
        "3.6.2.8",
        "asked",
        lambda at: override_field(data(at), "HLEN", 32),
        [INVALID],
        2,
        level="SHOULD",
    ),
    violation(
        "DATA-PLEN-4GIB",
        "3.6.2.8",
        "asked",
        lambda at: override_field(data(at), "PLEN", 0xFFFFFFFF),
        [INVALID],
        4,
        level="SHOULD",
        no_mutant_reason=UNCUT,
    ),
    violation(
        "DATA-HDGST",
        "3.5",
        "asked",
        lambda at: override_field(data(at), "HDGST", 0x0BADF00D),
        [Fes.HEADER_DIGEST_ERROR],
        0x0BADF00D,
        icreq=DIGESTS,
        kills=("hdgst-not-checked",),
    ),
]


@pytest.fixture
def prepared(bench: Harness, broken: Violation, request: pytest.FixtureRequest) -> Stage:
    """Go as far as the rule that is broken."""
    if broken.stage == "new":
        return Stage(bench.new_queue(broken.icreq))
    if broken.stage == "ready":
        return Stage(bench.queue(broken.icreq))
    session = bench.session(icreq=broken.icreq)
    if broken.stage == "connected":
        return Stage(session.admin)
    blocks: Scratch = request.getfixturevalue("scratch")
    queue = session.io_queue()
    size = queue.in_capsule_limit + 16384  # so much that it cannot be in the capsule
    queue.submit(io.write(blocks.nsid, blocks.lba, size // blocks.block_size), data=bytes(size), inside=False)
    r2t = queue.receive().pdu
    assert isinstance(r2t, R2T), f"3.3.2.2: a write that is not in the capsule is asked for, not {r2t}"
    return Stage(queue, r2t)


def table(kind: str, kills: Callable[[Violation], tuple[str, ...]]) -> list[object]:
    """One parameter a violation, with an id and its section."""
    return [
        pytest.param(
            one,
            id=one.name,
            marks=pytest.mark.case(
                f"NVT-{one.name}-{kind}",
                section=f"NVMe/TCP {one.section}",
                level=one.level,
                kills=kills(one),
                no_mutant_reason=one.no_mutant_reason if not kills(one) else "",
            ),
        )
        for one in VIOLATIONS
    ]


def ends(broken: Violation) -> tuple[str, ...]:
    """Name the mutant that ignores this error alone, where there is one, or the one that ignores them all."""
    return () if broken.no_mutant_reason else broken.kills or ("fatal-ignored",)


def term_req_mutants(broken: Violation) -> tuple[str, ...]:
    """Return the mutants of the C2HTermReq's fields; for its data, one error of each stage is enough."""
    names = ["term-swallowed", "term-fes"]
    if broken.fei is not ANY and broken.fes - {SEQUENCE}:
        names.append("term-fei")
    if broken.name in ("ICREQ-PFV", "TYPE-08", "CMD-HLEN", "DATA-TTAG"):
        names += ["term-no-header", "term-other-header", "term-long"]
    return tuple(names)


def break_rule(prepared: Stage, broken: Violation) -> tuple[bytes, ConnectionEnd]:
    """Send the violation and wait for what becomes of the connection."""
    raw = broken.breaks(prepared)
    prepared.queue.send_raw(raw)
    return raw, prepared.queue.wait_for_close()


@pytest.mark.parametrize("broken", table("END", ends))
def test_a_fatal_error_ends_the_connection(prepared: Stage, broken: Violation) -> None:
    raw, ending = break_rule(prepared, broken)
    assert ending.ended, f"3.5: after {raw[:32].hex()}… the connection is still open ({ending})"
    answers = [one for one in ending.before if isinstance(one.pdu, CapsuleResp)]
    assert not answers, f"3.5: processing stops at a fatal error; but: {ending}"


@pytest.mark.parametrize("broken", table("TERM", term_req_mutants))
def test_a_fatal_error_causes_a_c2htermreq(prepared: Stage, broken: Violation) -> None:
    raw, ending = break_rule(prepared, broken)
    request = ending.request
    assert request is not None, f"3.5: a fatal error requires a C2HTermReq: {ending}"
    assert request.fes in broken.fes, (
        f"{broken.section}: FES is {request.fes:02x}h, not {' or '.join(f'{one:02x}h' for one in broken.fes)}"
    )
    fei = broken.fei(raw) if callable(broken.fei) else broken.fei
    if fei is not ANY and request.fes != Fes.SEQUENCE_ERROR:
        assert request.fei == fei, f"3.6.2.5: FEI is {request.fei:#x}, not {fei:#x}"
    assert request.data, "3.6.2.5: a C2HTermReq carries the header of the PDU in error"
    assert raw.startswith(request.data), f"3.6.2.5: not the header of the PDU in error: {request.data.hex()}"
    assert ending.term is not None
    assert len(ending.term.raw) <= 152, "3.6.2.5: PLEN of a TermReq is at most 152"


@pytest.mark.case("NVT-FATAL-ISOLATED", section="NVMe/TCP 3.2", kills=("fatal-takes-all",))
def test_a_fatal_error_ends_no_other_connection(bench: Harness, session: ControllerSession) -> None:
    other = bench.queue(name="terminated queue")
    other.send_raw(of_type(0x08)(Stage(other)))
    other.wait_for_close()
    assert session.admin.run(fabrics.property_get(Property.CSTS)).ok, "another host's queue still works"


@pytest.mark.case("NVT-FATAL-IO-QUEUE", section="NVMe/TCP 3.5", level="MAY")
def test_a_fatal_error_on_an_io_queue_and_its_admin_queue(
    session: ControllerSession, queue: Queue, observe: Callable[[str], None]
) -> None:
    queue.send_raw(of_type(0x08)(Stage(queue)))
    queue.wait_for_close()
    try:
        session.get_property(Property.CSTS)
    except RemoteProtocolError:
        observe("the association ends with its I/O queue")
    else:
        observe("the admin queue lives on")


# H2CTermReq (3.5, 3.6.2.4)


GRACE = 6
"""Timeout for a close that the host requested, as a multiple of the usual one: 30 s for 5 s (3.5)."""


@pytest.mark.case("NVT-H2CTERM-01", section="NVMe/TCP 3.5", kills=("h2cterm-ignored",))
def test_a_controller_closes_on_h2ctermreq(queue: Queue) -> None:
    queue.send(H2CTermReq(Fes.SEQUENCE_ERROR, 0, encode(ICReq())))
    ending = queue.wait_for_close(deadline=GRACE * queue.close_timeout)
    assert ending.closed, (
        f"3.5: a controller that gets an H2CTermReq terminates the connection; but: {ending}"
    )


@pytest.mark.case("NVT-H2CTERM-02", section="NVMe/TCP 3.5", level="SHOULD", kills=("h2cterm-answered",))
def test_h2ctermreq_is_not_answered(queue: Queue) -> None:
    queue.send(H2CTermReq(Fes.SEQUENCE_ERROR, 0, encode(ICReq())))
    ending = queue.wait_for_close()
    assert ending.request is None, "3.5: a TermReq is answered by the connection's end, not by a TermReq"


@pytest.mark.case("NVT-H2CTERM-03", section="NVMe/TCP 3.5", kills=("h2cterm-ignored",))
def test_h2ctermreq_before_icreq_ends_the_connection(bench: Harness) -> None:
    queue = bench.new_queue()
    queue.send_raw(encode(H2CTermReq(Fes.INVALID_HEADER_FIELD)))
    assert queue.wait_for_close(deadline=GRACE * queue.close_timeout).ended, "3.5: the connection is over"


@pytest.mark.case(section="NVMe/TCP 3.5")
@pytest.mark.parametrize(
    "unsuitable",
    [
        pytest.param(16, marks=pytest.mark.case("NVT-H2CTERM-PLEN-16", kills=("fatal-ignored",))),
        pytest.param(160, marks=pytest.mark.case("NVT-H2CTERM-PLEN-160", kills=("fatal-ignored",))),
    ],
)
def test_h2ctermreq_of_unsuitable_length_is_not_answered(queue: Queue, unsuitable: int) -> None:
    raw = override_field(
        encode(H2CTermReq(Fes.SEQUENCE_ERROR, 0, bytes(136)[: max(unsuitable - 24, 0)])), "PLEN", unsuitable
    )
    queue.send_raw(raw[:unsuitable])
    ending = queue.wait_for_close()
    assert ending.ended, f"3.5: the connection is terminated; but: {ending}"
    assert not any(isinstance(one.pdu, C2HTermReq) for one in ending.before)


# After the end


@pytest.mark.case("NVT-AFTER-END-01", section="NVMe/TCP 3.5", kills=("processes-after-fatal",))
def test_nothing_is_processed_after_a_fatal_error(session: ControllerSession) -> None:
    queue = session.admin
    good = command(Stage(queue))
    queue.send_raw(of_type(0x08)(Stage(queue)) + good)
    ending = queue.wait_for_close()
    assert not any(isinstance(one.pdu, CapsuleResp) for one in ending.before), (
        f"3.5: PDUs after the one in error are not processed; but: {ending}"
    )
