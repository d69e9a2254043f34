"""One table of (PDU, bytes) drives the NVMe/TCP codec both ways: in pieces, with more behind, fuzzed."""

import contextlib
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storagetest.errors import LocalProtocolError, RemoteProtocolError
from storagetest.wire.crc import crc32c
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.describe import decoder
from storagetest.wire.nvme_tcp.pdu import (
    FIELDS,
    KINDS,
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
    KdReq,
    KdResp,
    Pdu,
    PduError,
    PduType,
    decode,
    encode,
    override_field,
)
from storagetest.wire.nvme_tcp.stream import (
    NEED_DATA,
    Digests,
    EndOfStream,
    Stream,
    StreamRole,
    StreamState,
    make_splitter,
)

SQE = bytes(range(64))
CQE = bytes(range(16))


def hexed(text: str) -> bytes:
    return bytes.fromhex(text)


TABLE: list[tuple[Pdu, bytes]] = [
    (ICReq(), hexed("00008000 80000000 0000 00 00 00000000") + bytes(112)),
    (ICReq(0, 3, True, True, 15), hexed("00008000 80000000 0000 03 03 0f000000") + bytes(112)),
    (ICResp(0, 1, False, True, 0x2000), hexed("01008000 80000000 0000 01 02 00200000") + bytes(112)),
    (H2CTermReq(2), hexed("02001800 18000000 0200 00000000") + bytes(10)),
    (H2CTermReq(1, 4, b"\x04\x00"), hexed("02001800 1a000000 0100 04000000") + bytes(10) + b"\x04\x00"),
    (C2HTermReq(6, 8, SQE), hexed("03001800 58000000 0600 08000000") + bytes(10) + SQE),
    (CapsuleCmd(SQE), hexed("04004800 48000000") + SQE),
    (CapsuleCmd(SQE, b"data"), hexed("04004848 4c000000") + SQE + b"data"),
    (CapsuleResp(CQE), hexed("05001800 18000000") + CQE),
    (H2CData(1, 2, 3, b"abcd"), hexed("06041818 1c000000 0100 0200 03000000 04000000 00000000") + b"abcd"),
    (
        H2CData(1, 2, 3, b"abcd", last=False),
        hexed("06001818 1c000000 0100 0200 03000000 04000000 00000000") + b"abcd",
    ),
    (C2HData(1, 512, b"abcd"), hexed("07041818 1c000000 0100 0000 00020000 04000000 00000000") + b"abcd"),
    (
        C2HData(1, 0, b"ab", True, True),
        hexed("070c1818 1a000000 0100 0000 00000000 02000000 00000000") + b"ab",
    ),
    (R2T(7, 9, 16, 32), hexed("09001800 18000000 0700 0900 10000000 20000000 00000000")),
    (KdReq(b"12"), hexed("0a000a00 0a000000") + b"12"),
    (KdResp(b""), hexed("0b000800 08000000")),
]

BOTH = ((False, False), (True, False), (False, True), (True, True))


@pytest.mark.parametrize(("pdu", "raw"), TABLE, ids=lambda one: type(one).__name__)
def test_each_pdu_round_trips(pdu: Pdu, raw: bytes) -> None:
    assert encode(pdu) == raw
    assert decode(raw).pdu == pdu


@pytest.mark.parametrize("alignment", [0, 1, 7, 31])
@pytest.mark.parametrize(("header", "data"), BOTH)
@pytest.mark.parametrize(("pdu", "raw"), TABLE, ids=lambda one: type(one).__name__)
def test_with_digests_and_alignment(pdu: Pdu, raw: bytes, header: bool, data: bool, alignment: int) -> None:
    wire = encode(pdu, header_digest=header, data_digest=data, alignment=alignment)
    got = decode(wire)
    assert got.pdu == pdu
    assert got.pdo % ((alignment + 1) * 4) == 0 or isinstance(pdu, (KdReq, KdResp))
    assert got.header_digest_ok is (True if header and 1 & KINDS[got.type].flags else None)
    assert got.data_digest_ok in (None, True)


def test_the_digests_are_at_their_offsets() -> None:
    wire = encode(H2CData(1, 2, 0, b"abcd"), header_digest=True, data_digest=True, alignment=15)
    assert wire[3] == 64
    assert wire[24:28] == crc32c(wire[:24]).to_bytes(4, "little")
    assert wire[28:64] == bytes(36)
    assert wire[64:] == b"abcd" + crc32c(b"abcd").to_bytes(4, "little")
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720 B.4


def sides() -> Iterator[tuple[StreamRole, list[bytes]]]:
    """An exchange of PDUs as each side receives it."""
    yield (
        StreamRole.CONTROLLER,
        [
            encode(one)
            for one in (ICReq(), CapsuleCmd(SQE, b"data"), H2CData(1, 2, 3, b"abcd"), H2CTermReq(2))
        ],
    )
    yield (
        StreamRole.HOST,
        [
            encode(one)
            for one in (ICResp(), R2T(7, 9, 16, 32), C2HData(1, 0, b"abcd"), CapsuleResp(CQE), C2HTermReq(1))
        ],
    )


@pytest.mark.parametrize(("role", "wire"), list(sides()), ids=["controller", "host"])
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_stream_is_decoded_from_pieces_of_any_size(role: StreamRole, wire: list[bytes], step: int) -> None:
    stream, seen = Stream(role), []
    whole = b"".join(wire)
    for at in range(0, len(whole), step):
        stream.receive_data(whole[at : at + step])
        while (event := stream.next_event()) is not NEED_DATA:
            assert isinstance(event, DecodedPdu)
            seen.append(event.raw)
    assert seen == wire
    assert stream.state is StreamState.TERMINATED
    stream.receive_data(b"")
    assert stream.next_event() == EndOfStream(b"")


def test_an_end_within_a_pdu_is_an_end_of_stream_with_leftover() -> None:
    stream = Stream(StreamRole.HOST)
    stream.receive_data(encode(ICResp())[:100])
    stream.receive_data(b"")
    event = stream.next_event()
    assert isinstance(event, EndOfStream)
    assert len(event.leftover) == 100


ALIGNED = encode(H2CData(1, 2, 3, b"abcd"), alignment=3)

WRONG = {
    # (state, bytes) → (FES, FEI)
    "reserved type": (StreamState.NEW, hexed("08001800 18000000") + bytes(16), Fes.INVALID_HEADER_FIELD, 0),
    "the other way": (StreamState.READY, encode(CapsuleResp(CQE)), Fes.INVALID_HEADER_FIELD, 0),
    "command first": (StreamState.NEW, encode(CapsuleCmd(SQE)), Fes.SEQUENCE_ERROR, 0),
    "ICReq again": (StreamState.READY, encode(ICReq()), Fes.SEQUENCE_ERROR, 0),
    "HLEN": (
        StreamState.READY,
        override_field(encode(CapsuleCmd(SQE)), "HLEN", 71),
        Fes.INVALID_HEADER_FIELD,
        2,
    ),
    "PDO": (
        StreamState.READY,
        override_field(encode(CapsuleCmd(SQE, b"data")), "PDO", 70),
        Fes.INVALID_HEADER_FIELD,
        3,
    ),
    "PDO alignment": (StreamState.READY, encode(CapsuleCmd(SQE, b"data")), Fes.INVALID_HEADER_FIELD, 3),
    "PLEN 0": (
        StreamState.READY,
        override_field(encode(CapsuleCmd(SQE)), "PLEN", 0),
        Fes.INVALID_HEADER_FIELD,
        4,
    ),
    "PLEN 4 GiB": (
        StreamState.READY,
        override_field(encode(CapsuleCmd(SQE)), "PLEN", 0xFFFFFFFF),
        Fes.INVALID_HEADER_FIELD,
        4,
    ),
    "DATAL": (StreamState.READY, override_field(ALIGNED, "DATAL", 5), Fes.INVALID_HEADER_FIELD, 4),
}


@pytest.mark.parametrize(("state", "raw", "fes", "fei"), WRONG.values(), ids=WRONG)
def test_an_invalid_pdu_raises_with_fes_and_fei(state: StreamState, raw: bytes, fes: Fes, fei: int) -> None:
    stream = Stream(StreamRole.CONTROLLER)
    stream.state = state
    stream.alignment = 3 if state is StreamState.READY else 0
    stream.receive_data(raw)
    for _ in range(2):  # once lost, for ever lost
        with pytest.raises(PduError) as caught:
            stream.next_event()
        assert (caught.value.fes, caught.value.fei) == (fes, fei)
        assert raw[:4].hex() in str(caught.value)


@pytest.mark.parametrize("bit", range(8 * 76))
def test_one_flipped_bit_under_a_header_digest_raises(bit: int) -> None:
    raw = bytearray(encode(CapsuleCmd(SQE), header_digest=True))
    raw[bit // 8] ^= 1 << bit % 8
    stream = Stream(StreamRole.CONTROLLER)
    stream.state, stream.digests = StreamState.READY, Digests(header=True)
    stream.receive_data(bytes(raw))
    try:
        event = stream.next_event()
    except PduError:
        return
    assert event is NEED_DATA  # PLEN grew: the rest never comes


def test_a_wrong_header_digest_carries_what_was_received() -> None:
    stream = Stream(StreamRole.CONTROLLER)
    stream.state, stream.digests = StreamState.READY, Digests(header=True)
    stream.receive_data(override_field(encode(CapsuleCmd(SQE), header_digest=True), "HDGST", 0xCAFEF00D))
    with pytest.raises(PduError) as caught:
        stream.next_event()
    assert (caught.value.fes, caught.value.fei) == (Fes.HEADER_DIGEST_ERROR, 0xCAFEF00D)


def test_a_wrong_data_digest_is_an_event() -> None:
    stream = Stream(StreamRole.CONTROLLER)
    stream.state, stream.digests = StreamState.READY, Digests(data=True)
    stream.receive_data(override_field(encode(CapsuleCmd(SQE, b"data"), data_digest=True), "DDGST", 1))
    event = stream.next_event()
    assert isinstance(event, DecodedPdu)
    assert event.data_digest_ok is False


@pytest.mark.parametrize(("header", "data"), BOTH)
def test_digests_that_were_not_negotiated_are_refused(header: bool, data: bool) -> None:
    stream = Stream(StreamRole.CONTROLLER)
    stream.state, stream.digests = StreamState.READY, Digests(not header, not data)
    stream.receive_data(encode(CapsuleCmd(SQE, b"data"), header_digest=header, data_digest=data))
    with pytest.raises(PduError) as caught:
        stream.next_event()
    assert caught.value.fei == 1


@pytest.mark.parametrize("kind", list(FIELDS), ids=lambda kind: kind.name)
def test_every_field_can_be_overridden(kind: PduType) -> None:
    pdu = next(pdu for pdu, raw in TABLE if raw[0] == kind)
    raw = encode(pdu, header_digest=True)
    for name, where in FIELDS[kind].items():
        if where.offset + where.size > len(raw):
            continue
        new = bytes(byte ^ 0xFF for byte in raw[where.offset : where.offset + where.size])
        lied = override_field(raw, name, new)
        assert lied[where.offset : where.offset + where.size] == new
        if raw[1] & 1 and name not in ("TYPE", "FLAGS", "HLEN"):
            hlen = raw[2]
            assert lied[hlen : hlen + 4] == crc32c(lied[:hlen]).to_bytes(4, "little"), "the only lie"
    with pytest.raises(LocalProtocolError):
        override_field(raw, "PLEN", b"\0")


def test_a_value_that_does_not_fit_raises_local_protocol_error() -> None:
    for pdu in (CapsuleCmd(b"short"), R2T(1 << 16, 0, 0, 0), ICReq(maxr2t=-1)):
        with pytest.raises(LocalProtocolError, match="cannot be encoded"):
            encode(pdu)


# Total: any bytes


def fed(role: StreamRole, data: bytes, state: StreamState) -> None:
    stream = Stream(role)
    stream.state = state
    stream.receive_data(data)
    stream.receive_data(b"")
    for _ in range(200):
        try:
            event = stream.next_event()
        except RemoteProtocolError:
            return
        if isinstance(event, EndOfStream) or event is NEED_DATA:
            return
        assert isinstance(event, DecodedPdu)
        rungs(event.raw)
    raise AssertionError("200 events of so few bytes")


def rungs(raw: bytes) -> list[str]:
    return [summary for summary, _ in decoder()(True, raw)]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(list(StreamRole)), st.sampled_from(list(StreamState)))
def test_any_bytes_are_an_event_or_a_protocol_error(
    data: bytes, role: StreamRole, state: StreamState
) -> None:
    fed(role, data, state)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([raw for _, raw in TABLE]),
    st.lists(st.tuples(st.integers(0, 127), st.integers(0, 255)), max_size=6),
    st.sampled_from(list(StreamRole)),
)
def test_almost_right_bytes_give_an_event_or_a_protocol_error(
    raw: bytes, changes: list[tuple[int, int]], role: StreamRole
) -> None:
    data = bytearray(raw)
    for at, value in changes:
        data[at % len(data)] = value
    fed(role, bytes(data), StreamState.READY)
    with contextlib.suppress(RemoteProtocolError):
        decode(bytes(data))


def test_flipped_bits_of_a_recorded_session() -> None:
    spread = random.Random(4420)
    for role, wire in sides():
        whole = b"".join(wire)
        for bit in spread.sample(range(8 * len(whole)), 400):
            data = bytearray(whole)
            data[bit // 8] ^= 1 << bit % 8
            fed(role, bytes(data), StreamState.NEW)


def test_a_splitter_keeps_trailing_data_and_raises_on_an_impossible_plen() -> None:
    cut = make_splitter()
    raw = encode(ICReq())
    assert cut(raw + raw[:50]) == [raw]
    assert cut(raw[50:] + raw) == [raw, raw]
    with pytest.raises(ValueError, match="PLEN is 0"):
        cut(bytes(8))


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=64, max_size=64), st.binary(min_size=16, max_size=16))
def test_queue_entries_survive_a_round_trip(sqe: bytes, cqe: bytes) -> None:
    assert Command.decode(sqe).encode() == sqe
    assert Cqe.decode(cqe).encode()[:14] == cqe[:14]
    assert Cqe.decode(Cqe.decode(cqe).encode()) == Cqe.decode(cqe)


@pytest.mark.parametrize("pdu", [pdu for pdu, _ in TABLE], ids=lambda pdu: type(pdu).__name__)
def test_every_pdu_has_a_summary(pdu: Pdu) -> None:
    [line] = rungs(encode(pdu))
    assert line.startswith(type(pdu).__name__)
