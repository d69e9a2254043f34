"""Reactions of a controller to a host that breaks the transport's rules (NVMe/TCP 3.5).

Every row of :data:`VIOLATIONS` is two cases: ``…-END``, the controller stops processing and ends the
connection, and ``…-TERM``, it sends a C2HTermReq with the right Fatal Error Status and Information.

A row is a MUST if the standard states that receiving such a PDU "is treated as a fatal transport error". It
is a SHOULD if the standard defines a field or an order, and a Fatal Error Status for it, but does not require
that a controller detects the error: 3.6.2.5 lists the errors, 3.5 the reaction to a detected one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import fabrics, io
from storagetest.wire.nvme.codes import Property
from storagetest.wire.nvme.command import in_capsule
from storagetest.wire.nvme_tcp import ConnectionEnd, ControllerSession, Queue, encode, override_field
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data
from storagetest.wire.nvme_tcp.pdu import (
    KINDS,
    R2T,
    C2HTermReq,
    CapsuleCmd,
    CapsuleResp,
    DecodedPdu,
    Fes,
    H2CData,
    H2CTermReq,
    ICReq,
    PduType,
)
from storagetest.wire.tcp import PeerClosed

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST")]

NO_R2T = R2T(0, 0, 0, 0)
PLAIN, DIGESTS = ICReq(), ICReq(header_digest=True, data_digest=True)
ANY = None
"""An FEI that the standard leaves open."""


@dataclass(frozen=True)
class Stage:
    """Where a rule is broken: on which queue, and (in a transfer) which R2T is unanswered there."""

    queue: Queue
    r2t: R2T = NO_R2T


Breaks = Callable[[Stage], bytes]


@dataclass(frozen=True)
class Violation:
    """One broken rule: the bytes that break it on a queue, and the fields of the TermReq for it."""

    name: str
    breaks: Breaks
    fes: set[Fes]
    fei: int | Callable[[bytes], int] | None = ANY
    icreq: ICReq = PLAIN
    kills: str = ""
    stage: Literal["new", "ready", "connected", "transfer"] = "new"
    """When it is sent: before ICReq, after ICResp, after Connect, after an R2T."""
    section: str = "3.5"
    level: str = "MUST"
    no_mutant_reason: str = ""


def command(at: Stage) -> bytes:
    """A valid command: Property Get of VS."""
    return at.queue.encode(CapsuleCmd(fabrics.property_get(Property.VS).encode()))


def of_type(number: int) -> Breaks:
    """A PDU of this type; a reserved type gets the header length of a TermReq, 24 bytes."""
    hlen = KINDS[PduType(number)].hlen if number in {*PduType} else 24
    return lambda _: bytes([number, 0, hlen, 0]) + hlen.to_bytes(4, "little") + bytes(hlen - 8)


def unsolicited(at: Stage) -> bytes:
    """H2CData without an R2T."""
    return at.queue.encode(H2CData(1, 1, 0, bytes(512)))


def icreq(_at: Stage) -> bytes:
    """A valid ICReq."""
    return encode(ICReq())


def data(at: Stage, **changes: int | bytes) -> bytes:
    """The first H2CData for the R2T, with fields changed."""
    pdu = H2CData(at.r2t.cccid, at.r2t.ttag, at.r2t.offset, bytes(512), last=False)
    return at.queue.encode(replace(pdu, **changes))  # type: ignore[arg-type]


def with_field(pdu: Breaks, name: str, value: int, *, cut: int | None = None, pad: int = 0) -> Breaks:
    """The PDU with one header field overridden, cut to ``cut`` bytes or followed by ``pad`` zeroes."""
    return lambda at: override_field(pdu(at), name, value)[:cut] + bytes(pad)


def command_with_data(at: Stage) -> bytes:
    return at.queue.encode(CapsuleCmd(command(at)[8:72], bytes(64)))


def without_digests(at: Stage) -> bytes:
    return encode(CapsuleCmd(command(at)[8:72]))


def with_flipped_bit(at: Stage) -> bytes:
    return command(at)[:30] + bytes([command(at)[30] ^ 1]) + command(at)[31:]


def data_past_the_end(at: Stage) -> bytes:
    return data(at, offset=at.r2t.offset + at.r2t.length)


SILENCE = 0.1
"""Seconds in which no PDU may follow a C2HTermReq (chosen)."""

UNCUT = "behind a PLEN of 4 GiB the proxy finds no PDU that it could answer"
"""Why no mutant ignores such a PLEN."""

INVALID, SEQUENCE, RANGE = Fes.INVALID_HEADER_FIELD, Fes.SEQUENCE_ERROR, Fes.OUT_OF_RANGE
DIGEST, PARAMETER = Fes.HEADER_DIGEST_ERROR, Fes.UNSUPPORTED_PARAMETER

icreq_field = partial(Violation, section="3.1", stage="new")  # an invalid field, or an unsupported parameter
pdu_order = partial(Violation, section="3.1", stage="new", fes={SEQUENCE}, level="SHOULD")
pdu_type = partial(Violation, section="3.3", stage="ready", fes={INVALID, SEQUENCE}, fei=0)
command_field = partial(Violation, section="3.6.2.6", stage="connected", level="SHOULD")
digest = partial(
    Violation, section="3.5", stage="connected", fes={DIGEST}, icreq=DIGESTS, kills="hdgst-not-checked"
)
data_order = partial(Violation, section="3.3.2.2", stage="transfer")
data_field = partial(Violation, section="3.6.2.8", stage="transfer", level="SHOULD")

VIOLATIONS = [
    icreq_field(
        "ICREQ-PFV", with_field(icreq, "PFV", 1), {INVALID, PARAMETER}, 8, kills="icreq-values-ignored"
    ),
    icreq_field("ICREQ-HLEN", with_field(icreq, "HLEN", 120), {INVALID}, 2),
    icreq_field("ICREQ-PLEN-LONG", with_field(icreq, "PLEN", 136, pad=8), {INVALID}, 4),
    icreq_field("ICREQ-PLEN-SHORT", with_field(icreq, "PLEN", 64, cut=64), {INVALID}, 4),
    icreq_field(
        "ICREQ-HPDA", with_field(icreq, "HPDA", 32), {INVALID, PARAMETER}, 10, kills="icreq-values-ignored"
    ),
    pdu_order("ORDER-CMD-FIRST", command),
    pdu_order("ORDER-DATA-FIRST", unsolicited),
    pdu_order("ORDER-ICREQ-AGAIN", icreq, kills="icreq-again", stage="ready"),
    # Types that a host may not send: those of the controller are fatal, the others reserved
    *(
        pdu_type(f"TYPE-{number:02X}", of_type(number), kills=kills)
        for number, kills in (
            (PduType.ICRESP, ""),
            (PduType.C2H_TERM_REQ, ""),
            (PduType.CAPSULE_RESP, "wrong-way-ignored"),
            (PduType.C2H_DATA, "wrong-way-ignored"),
            (PduType.R2T, "wrong-way-ignored"),
        )
    ),
    *(
        pdu_type(f"TYPE-{number:02X}", of_type(number), kills="reserved-type-ignored", level="SHOULD")
        for number in (0x08, 0x0C, 0xFF)
    ),
    command_field("CMD-HLEN", with_field(command, "HLEN", 64), {INVALID}, 2, kills="hlen-ignored"),
    command_field("CMD-PLEN-SHORT", with_field(command, "PLEN", 64, cut=64), {INVALID}, 4),
    command_field(
        "CMD-PLEN-4GIB", with_field(command, "PLEN", 0xFFFFFFFF), {INVALID}, 4, no_mutant_reason=UNCUT
    ),
    command_field("CMD-PLEN-8", with_field(command, "PLEN", 8, cut=8), {INVALID}, 4),
    command_field("CMD-PLEN-71", with_field(command, "PLEN", 71, cut=71), {INVALID}, 4),
    command_field("CMD-PDO", with_field(command_with_data, "PDO", 8), {INVALID}, 3),
    command_field("CMD-PDO-FAR", with_field(command_with_data, "PDO", 252), {INVALID}, 3),
    digest("CMD-HDGST", with_field(command, "HDGST", 0xBADBAD00), fei=0xBADBAD00),
    digest("CMD-HEADER-BIT", with_flipped_bit, fei=lambda raw: int.from_bytes(raw[72:76], "little")),
    command_field(
        "CMD-HDGSTF", without_digests, {INVALID}, 1, DIGESTS, "hdgstf-not-checked", section="3.3.1.1"
    ),
    data_order(
        "DATA-UNSOLICITED",
        unsolicited,
        {INVALID, SEQUENCE, RANGE},
        kills="unsolicited-data-ignored",
        stage="connected",
    ),
    # A TTAG of no R2T: an invalid field, or data that no R2T asks for, as in DATA-UNSOLICITED
    data_order(
        "DATA-TTAG",
        lambda at: data(at, ttag=at.r2t.ttag ^ 0x5A5A),
        {INVALID, SEQUENCE},
        10,
        kills="ttag-not-checked",
    ),
    data_field(
        "DATA-CCCID",
        lambda at: data(at, cccid=at.r2t.cccid ^ 0x5A5A),
        {INVALID},
        8,
        kills="cccid-not-checked",
    ),
    data_order("DATA-GAP", lambda at: data(at, offset=512), {SEQUENCE, RANGE}, kills="data-gap-ignored"),
    data_order("DATA-RANGE", data_past_the_end, {RANGE, SEQUENCE}, kills="data-range-ignored"),
    data_order(
        "DATA-OFFSET-HUGE",
        lambda at: data(at, offset=0xFFFFFE00),
        {RANGE, SEQUENCE},
        kills="data-range-ignored",
    ),
    data_field("DATA-DATAL", with_field(data, "DATAL", 1024), {INVALID, RANGE}),
    data_field("DATA-HLEN", with_field(data, "HLEN", 32), {INVALID}, 2),
    data_field("DATA-PLEN-16", with_field(data, "PLEN", 16, cut=16), {INVALID}, 4),
    data_field("DATA-PLEN-23", with_field(data, "PLEN", 23, cut=23), {INVALID}, 4),
    data_field("DATA-PDO", with_field(data, "PDO", 8), {INVALID}, 3),
    data_field("DATA-PLEN-4GIB", with_field(data, "PLEN", 0xFFFFFFFF), {INVALID}, 4, no_mutant_reason=UNCUT),
    digest("DATA-HDGST", with_field(data, "HDGST", 0x0BADF00D), fei=0x0BADF00D, stage="transfer"),
]


@pytest.fixture
def prepared(bench: Harness, broken: Violation, request: pytest.FixtureRequest) -> Stage:
    """Set up the connection as the violation requires it."""
    if broken.stage == "new":
        return Stage(bench.new_queue(broken.icreq))
    if broken.stage == "ready":
        return Stage(bench.queue(broken.icreq))
    session = bench.session(icreq=broken.icreq)
    if broken.icreq.header_digest and not session.admin.digests.header:
        pytest.skip("the controller does not enable the header digest, as it may (3.6.2.3)")
    if broken.stage == "connected":
        return Stage(session.admin)
    blocks: Scratch = request.getfixturevalue("scratch")
    queue = session.io_queue()
    count = blocks.blocks_of(queue.in_capsule_limit + 16384)  # so much that it cannot be in the capsule
    data = bytes(count * blocks.block_size)
    queue.submit(io.write(blocks.nsid, blocks.lba, count), data=data, inside=False)
    r2t = queue.receive().pdu
    assert isinstance(r2t, R2T), f"3.3.2.2: a write without in-capsule data requires an R2T, not {r2t}"
    return Stage(queue, r2t)


def table(kind: str, kills: Callable[[Violation], tuple[str, ...]]) -> list[object]:
    """Return one test parameter for each violation, with case id and section."""
    parameters = []
    for violation in VIOLATIONS:
        mutants = kills(violation)
        case = pytest.mark.case(
            f"NVT-{violation.name}-{kind}",
            section=f"NVMe/TCP {violation.section}",
            level=violation.level,
            kills=mutants,
            no_mutant_reason="" if mutants else violation.no_mutant_reason,
        )
        parameters.append(pytest.param(violation, id=violation.name, marks=case))
    return parameters


def ends(broken: Violation) -> tuple[str, ...]:
    """Return the mutants that ignore this error, or the mutant that ignores all fatal errors."""
    return () if broken.no_mutant_reason else (broken.kills or "fatal-ignored",)


def term_req_mutants(broken: Violation) -> tuple[str, ...]:
    """Return the mutants of the C2HTermReq's fields; those of its data only for one error of each stage."""
    names = ["term-swallowed", "term-fes"]
    if broken.fei is not ANY and broken.fes - {SEQUENCE}:
        names.append("term-fei")
    if broken.name in ("ICREQ-PFV", "TYPE-08", "CMD-HLEN", "DATA-TTAG"):
        names += ["term-no-header", "term-other-header", "term-long"]
        names += ["term-then-response", "term-then-bytes", "term-twice", "term-reserved"]
    return tuple(names)


def break_rule(prepared: Stage, broken: Violation) -> tuple[bytes, ConnectionEnd]:
    """Send the violation; return its bytes and how the connection ended."""
    raw = broken.breaks(prepared)
    prepared.queue.send_raw(raw)
    return raw, prepared.queue.wait_for_close()


def responses(ending: ConnectionEnd) -> list[DecodedPdu]:
    """Return the CapsuleResp that the controller sent before the end."""
    return [received for received in ending.before if isinstance(received.pdu, CapsuleResp)]


def is_header_of(raw: bytes, header: bytes) -> bool:
    """Return whether ``header`` is the start of the PDU ``raw``.

    If fewer bytes came than HLEN counts, the rest of the header may be zeroes: no byte of it was received.
    """
    received, padding = header[: len(raw)], header[len(raw) :]
    return raw.startswith(received) and len(header) <= max(raw[2], len(raw)) and not any(padding)


@pytest.mark.parametrize("broken", table("END", ends))
def test_a_fatal_error_ends_the_connection(prepared: Stage, broken: Violation) -> None:
    raw, ending = break_rule(prepared, broken)
    assert ending.ended, f"3.5: after {raw[:32].hex()}… the connection is still open ({ending})"
    assert not responses(ending), f"3.5: processing stops at a fatal error; but: {ending}"


@pytest.mark.parametrize("broken", table("TERM", term_req_mutants))
def test_a_fatal_error_causes_a_c2htermreq(prepared: Stage, broken: Violation) -> None:
    raw, ending = break_rule(prepared, broken)
    request = ending.request
    assert request is not None, f"{ending}; 3.5: a fatal error requires a C2HTermReq"
    expected = " or ".join(f"{fes:02x}h" for fes in sorted(broken.fes))
    assert request.fes in broken.fes, f"FES is {request.fes:02x}h; {broken.section}, 3.6.2.5: {expected}"
    fei = broken.fei(raw) if callable(broken.fei) else broken.fei
    if fei is not ANY and request.fes != Fes.SEQUENCE_ERROR:
        assert request.fei == fei, f"FEI is {request.fei:#x}; 3.6.2.5: {fei:#x}, the field in error"
    assert request.data, "the C2HTermReq has no data; 3.6.2.5: it carries the header of the PDU in error"
    assert is_header_of(raw, request.data), (
        f"the C2HTermReq carries {request.data.hex()}, but {raw[:128].hex()} was sent; "
        "3.6.2.5: its data are the header of the PDU in error"
    )
    assert ending.term is not None
    assert len(ending.term.raw) <= 152, f"PLEN is {len(ending.term.raw)}; 3.6.2.5: 152 at most"
    after = prepared.queue.what_follows(deadline=SILENCE)
    assert not after, f"after the C2HTermReq came {after}; 3.5: it is the last PDU"


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
        observe("the admin queue still works")


# H2CTermReq (3.5, 3.6.2.4)


GRACE = 6
"""Timeout for a close that the host requested, as a multiple of the usual one: 30 s for 5 s (3.5)."""


@pytest.mark.case("NVT-H2CTERM-01", section="NVMe/TCP 3.5", kills=("h2cterm-ignored",))
def test_a_controller_closes_on_h2ctermreq(queue: Queue) -> None:
    queue.send(H2CTermReq(Fes.SEQUENCE_ERROR, 0, encode(ICReq())))
    ending = queue.wait_for_close(deadline=GRACE * queue.close_timeout)
    assert ending.closed, f"3.5: a controller terminates the connection at an H2CTermReq; but: {ending}"


@pytest.mark.case("NVT-H2CTERM-02", section="NVMe/TCP 3.5", level="SHOULD", kills=("h2cterm-answered",))
def test_h2ctermreq_is_not_answered(queue: Queue) -> None:
    queue.send(H2CTermReq(Fes.SEQUENCE_ERROR, 0, encode(ICReq())))
    ending = queue.wait_for_close()
    assert ending.request is None, "3.5: the response to a TermReq is the connection's end, not a TermReq"


@pytest.mark.case("NVT-H2CTERM-03", section="NVMe/TCP 3.5", kills=("h2cterm-ignored",))
def test_h2ctermreq_before_icreq_ends_the_connection(bench: Harness) -> None:
    queue = bench.new_queue()
    queue.send_raw(encode(H2CTermReq(Fes.INVALID_HEADER_FIELD)))
    assert queue.wait_for_close(deadline=GRACE * queue.close_timeout).ended, "3.5: the connection is over"


@pytest.mark.case(section="NVMe/TCP 3.5")
@pytest.mark.parametrize(
    "plen",
    [
        pytest.param(16, marks=pytest.mark.case("NVT-H2CTERM-PLEN-16", kills=("fatal-ignored",))),
        pytest.param(160, marks=pytest.mark.case("NVT-H2CTERM-PLEN-160", kills=("fatal-ignored",))),
    ],
)
def test_h2ctermreq_of_unsuitable_length_is_not_answered(queue: Queue, plen: int) -> None:
    raw = encode(H2CTermReq(Fes.SEQUENCE_ERROR, 0, bytes(max(plen - 24, 0))))
    queue.send_raw(override_field(raw, "PLEN", plen)[:plen])
    ending = queue.wait_for_close()
    assert ending.ended, f"3.5: the connection is terminated; but: {ending}"
    assert not any(isinstance(received.pdu, C2HTermReq) for received in ending.before)


@pytest.mark.case("NVT-H2CTERM-FES", section="NVMe/TCP 3.5", kills=("h2cterm-ignored",))
def test_h2ctermreq_of_an_unknown_status_ends_the_connection(queue: Queue) -> None:
    """FES is a value that is reserved."""
    queue.send_raw(override_field(encode(H2CTermReq(Fes.SEQUENCE_ERROR, 0, encode(ICReq()))), "FES", 0x55))
    ending = queue.wait_for_close(deadline=GRACE * queue.close_timeout)
    assert ending.ended, f"3.5: a controller terminates the connection at an H2CTermReq; but: {ending}"


# After the end


@pytest.mark.case("NVT-AFTER-END-01", section="NVMe/TCP 3.5", kills=("processes-after-fatal",))
def test_nothing_is_processed_after_a_fatal_error(session: ControllerSession) -> None:
    queue = session.admin
    good = command(Stage(queue))
    queue.send_raw(of_type(0x08)(Stage(queue)) + good)
    ending = queue.wait_for_close()
    assert not responses(ending), f"3.5: PDUs after the one in error are not processed; but: {ending}"


@pytest.mark.case("NVT-AFTER-END-02", section="NVMe/TCP 3.5", kills=("writes-after-fatal",))
def test_a_write_after_a_fatal_error_is_not_carried_out(
    bench: Harness, session: ControllerSession, scratch: Scratch
) -> None:
    queue, size = session.io_queue(), scratch.block_size
    before = queue.run(io.read(scratch.nsid, scratch.lba, 1), reads=size).data
    if queue.in_capsule_limit < size:
        pytest.skip(f"IOCCSZ allows {queue.in_capsule_limit} bytes of in-capsule data: less than a block")
    write = replace(io.write(scratch.nsid, scratch.lba, 1), cid=900, dptr=in_capsule(size))
    data = block_data(size, 40)
    queue.send_raw(of_type(0x08)(Stage(queue)) + queue.encode(CapsuleCmd(write.encode(), data)))
    queue.wait_for_close()
    again = bench.session().io_queue()
    seen = again.run(io.read(scratch.nsid, scratch.lba, 1), reads=size).data
    assert seen == before, "3.5: a write after the PDU in error was carried out"


@pytest.mark.slow
@pytest.mark.case("NVT-TERM-CLOSES", section="NVMe/TCP 3.5", level="SHOULD", kills=("term-never-closes",))
def test_a_controller_closes_if_the_host_does_not(bench: Harness) -> None:
    queue = bench.queue()
    queue.send_raw(of_type(0x07)(Stage(queue)))
    ending = queue.wait_for_close(deadline=GRACE * queue.close_timeout)
    if ending.request is not None:
        with pytest.raises(PeerClosed):
            queue.receive(deadline=(GRACE + 1) * queue.close_timeout)
    else:
        assert ending.closed, f"3.5: the connection is terminated within 30 s; but: {ending}"
