"""iSCSI's PDUs and framing: one table both ways, whole, byte by byte, with more behind it, and fuzzed."""

# ruff: noqa: E501, ISC004  # a header is read as one row of twelve words

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storagetest.errors import LocalProtocolError, RemoteProtocolError
from storagetest.wire.crc import crc32c
from storagetest.wire.iscsi import pdu as pdus
from storagetest.wire.iscsi.connection import CLOSED, NEED_DATA, PduReceiver, ReceivedPdu
from storagetest.wire.iscsi.encoding import (
    AHS_BIDIRECTIONAL,
    AHS_EXTENDED_CDB,
    Ahs,
    Pdu,
    flat_lun,
    header_layout,
)

LUN1 = flat_lun(1)

# Written out by hand from the figures of RFC 7143 11.3 to 11.19; spaces are between the header's words.
TABLE: list[tuple[Pdu, str]] = [
    (
        pdus.ScsiCommand(
            read=True, lun=LUN1, itt=7, expected_length=512, cmd_sn=3, exp_stat_sn=4,
            cdb=bytes.fromhex("28000000000100000100000000000000"),
        ),
        "01c10000 00000000 00010000 00000000 00000007 00000200 00000003 00000004 28000000 00010000 01000000 00000000",
    ),
    (
        pdus.ScsiCommand(final=False, write=True, immediate=True, attribute=2, itt=8, expected_length=8, data=b"abc"),
        "41220000 00000003 00000000 00000000 00000008 00000008 00000000 00000000 00000000 00000000 00000000 00000000"
        "61626300",
    ),
    (
        pdus.ScsiResponse(
            underflow=True, status=2, itt=7, stat_sn=9, exp_cmd_sn=4, max_cmd_sn=36, residual=5, data=b"\0\2\x70\0"
        ),
        "21820002 00000004 00000000 00000000 00000007 00000000 00000009 00000004 00000024 00000000 00000000 00000005"
        "00027000",
    ),
    (
        pdus.TaskRequest(function=1, lun=LUN1, itt=9, referenced_itt=7, cmd_sn=5, exp_stat_sn=6, ref_cmd_sn=3),
        "42810000 00000000 00010000 00000000 00000009 00000007 00000005 00000006 00000003 00000000 00000000 00000000",
    ),
    (
        pdus.TaskResponse(response=5, itt=9, stat_sn=1, exp_cmd_sn=2, max_cmd_sn=3),
        "22800500 00000000 00000000 00000000 00000009 00000000 00000001 00000002 00000003 00000000 00000000 00000000",
    ),
    (
        pdus.DataOut(itt=8, ttt=0x11, lun=LUN1, exp_stat_sn=2, data_sn=1, buffer_offset=512, data=b"wxyz"),
        "05800000 00000004 00010000 00000000 00000008 00000011 00000000 00000002 00000000 00000001 00000200 00000000"
        "7778797a",
    ),
    (
        pdus.DataIn(has_status=True, overflow=True, itt=7, stat_sn=9, exp_cmd_sn=4, max_cmd_sn=5, data_sn=2, residual=1),
        "25850000 00000000 00000000 00000000 00000007 ffffffff 00000009 00000004 00000005 00000002 00000000 00000001",
    ),
    (
        pdus.ReadyToTransfer(itt=8, ttt=0x11, lun=LUN1, stat_sn=9, exp_cmd_sn=4, max_cmd_sn=5, r2t_sn=1, buffer_offset=8, desired_length=16),
        "31800000 00000000 00010000 00000000 00000008 00000011 00000009 00000004 00000005 00000001 00000008 00000010",
    ),
    (
        pdus.AsyncMessage(event=1, stat_sn=9, exp_cmd_sn=4, max_cmd_sn=5, parameter3=3),
        "32800000 00000000 00000000 00000000 ffffffff 00000000 00000009 00000004 00000005 01000000 00000003 00000000",
    ),
    (
        pdus.TextRequest(itt=3, cmd_sn=1, exp_stat_sn=2, data=b"SendTargets=All\0"),
        "04800000 00000010 00000000 00000000 00000003 ffffffff 00000001 00000002 00000000 00000000 00000000 00000000"
        "53656e64546172676574733d416c6c00",
    ),
    (
        pdus.TextResponse(final=False, continues=True, itt=3, ttt=1, stat_sn=2, exp_cmd_sn=2, max_cmd_sn=9),
        "24400000 00000000 00000000 00000000 00000003 00000001 00000002 00000002 00000009 00000000 00000000 00000000",
    ),
    (
        pdus.LoginRequest(isid=b"\x80\1\2\3\4\5", itt=0, cid=1, cmd_sn=1, data=b"a=b\0"),
        "43870000 00000004 80010203 04050000 00000000 00010000 00000001 00000000 00000000 00000000 00000000 00000000"
        "613d6200",
    ),
    (
        pdus.LoginResponse(transit=True, csg=1, nsg=3, isid=b"\x80\1\2\3\4\5", tsih=9, itt=0, status=0x0201),
        "23870000 00000000 80010203 04050009 00000000 00000000 00000000 00000000 00000000 02010000 00000000 00000000",
    ),
    (
        pdus.LogoutRequest(reason=1, itt=4, cid=2, cmd_sn=3, exp_stat_sn=4),
        "46810000 00000000 00000000 00000000 00000004 00020000 00000003 00000004 00000000 00000000 00000000 00000000",
    ),
    (
        pdus.LogoutResponse(response=1, itt=4, stat_sn=1, exp_cmd_sn=2, max_cmd_sn=3, time2wait=2, time2retain=20),
        "26800100 00000000 00000000 00000000 00000004 00000000 00000001 00000002 00000003 00000000 00020014 00000000",
    ),
    (
        pdus.SnackRequest(kind=1, exp_stat_sn=3, beg_run=4, run_length=5),
        "10810000 00000000 00000000 00000000 ffffffff ffffffff 00000000 00000003 00000000 00000000 00000004 00000005",
    ),
    (
        pdus.Reject(reason=9, stat_sn=1, exp_cmd_sn=2, max_cmd_sn=3, data=bytes(48)),
        "3f800900 00000030 00000000 00000000 ffffffff 00000000 00000001 00000002 00000003 00000000 00000000 00000000"
        + "00" * 48,
    ),
    (
        pdus.NopOut(immediate=True, itt=5, cmd_sn=6, exp_stat_sn=7, data=b"hello"),
        "40800000 00000005 00000000 00000000 00000005 ffffffff 00000006 00000007 00000000 00000000 00000000 00000000"
        "68656c6c6f000000",
    ),
    (
        pdus.NopIn(itt=5, stat_sn=1, exp_cmd_sn=2, max_cmd_sn=3),
        "20800000 00000000 00000000 00000000 00000005 ffffffff 00000001 00000002 00000003 00000000 00000000 00000000",
    ),
]  # fmt: skip


def case_id(value: object) -> str:
    return type(value).__name__ if isinstance(value, Pdu) else ""


def read_all(stream: PduReceiver) -> list[Pdu]:
    found = []
    while isinstance(event := stream.next_event(), ReceivedPdu):
        found.append(event.pdu)
    return found


def test_the_table_has_every_pdu() -> None:
    assert {type(pdu) for pdu, _ in TABLE} == set(pdus.PDUS.values())


@pytest.mark.parametrize(("pdu", "text"), TABLE, ids=case_id)
def test_a_pdu_is_encoded_as_in_the_figure(pdu: Pdu, text: str) -> None:
    assert pdu.encode() == bytes.fromhex(text)
    assert type(pdu).__name__ in pdu.summary()
    assert not any(pdus.set_reserved_bits(pdu.encode()[:48]))


@pytest.mark.parametrize("kind", pdus.PDUS.values())
def test_fields_of_one_header_do_not_overlap(kind: type[Pdu]) -> None:
    bits = [
        field.offset * 8 + at
        for field in header_layout(kind)
        for at in range(field.size * 8)
        if field.mask >> (field.size * 8 - 1 - at) & 1
    ]
    assert len(bits) == len(set(bits))
    assert max(bits) < 48 * 8


@pytest.mark.parametrize(
    ("pdu", "reserved"),
    [(pdus.DataOut(), True), (pdus.NopIn(), True), (pdus.NopOut(), False), (pdus.LoginRequest(), False)],
    ids=case_id,
)
def test_the_immediate_bit_is_reserved_except_in_numbered_requests(pdu: Pdu, reserved: bool) -> None:
    bhs = pdu.encode()[:48]
    assert any(pdus.set_reserved_bits(bytes((bhs[0] | 0x40,)) + bhs[1:])) == reserved


@pytest.mark.parametrize(("pdu", "text"), TABLE, ids=case_id)
@pytest.mark.parametrize("digests", [False, True], ids=["plain", "digests"])
@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_pdu_in_pieces_with_trailing_data_is_decoded(pdu: Pdu, text: str, digests: bool, piece: int) -> None:
    stream = PduReceiver()
    stream.header_digest = stream.data_digest = digests
    wire = pdu.parts().wire(header_digest=digests, data_digest=digests)
    behind = pdus.NopIn(itt=99).parts().wire(header_digest=digests, data_digest=digests)
    found: list[Pdu] = []
    for at in range(0, len(wire), piece):
        stream.receive_data(wire[at : at + piece])
        found += read_all(stream)
    assert found == [pdu]
    stream.receive_data(behind[:-1])
    assert stream.next_event() is NEED_DATA
    stream.receive_data(behind[-1:])
    assert read_all(stream) == [pdus.NopIn(itt=99)]
    stream.receive_eof()
    assert stream.next_event() is CLOSED
    assert bytes.fromhex(text)[:48] == wire[:48]


def test_digests_cover_header_and_padded_data_and_can_be_made_wrong() -> None:
    parts = pdus.NopOut(itt=1, data=b"abc").parts()
    wire = parts.wire(header_digest=True, data_digest=True)
    assert wire[48:52] == crc32c(wire[:48]).to_bytes(4, "little")
    assert wire[56:] == crc32c(b"abc\0").to_bytes(4, "little")
    stream = PduReceiver()
    stream.header_digest = stream.data_digest = True
    for spoil in ({"header_digest_xor": 1}, {"data_digest_xor": 1}):
        stream.receive_data(parts.wire(header_digest=True, data_digest=True, **spoil))
        event = stream.next_event()
        assert isinstance(event, ReceivedPdu)
        assert event.frame.header_digest_wrong == ("header_digest_xor" in spoil)
        assert event.frame.data_digest_wrong == ("data_digest_xor" in spoil)


def test_crc32c_is_that_of_rfc_3720_appendix_b4() -> None:
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


def test_additional_headers_round_trip() -> None:
    ahs = (Ahs(AHS_EXTENDED_CDB, b"\0" + b"c" * 7), Ahs(AHS_BIDIRECTIONAL, b"\0" + (512).to_bytes(4, "big")))
    raw = pdus.ScsiCommand(itt=1, ahs=ahs).encode()
    assert raw[4] == 5  # words: 12 and 8 bytes
    assert raw[48:52] == b"\x00\x08\x01\x00"
    stream = PduReceiver()
    stream.receive_data(raw)
    event = stream.next_event()
    assert isinstance(event, ReceivedPdu)
    assert event.pdu.ahs == ahs


@pytest.mark.parametrize("bad", [b"\xff\xff\x01\x00", b"\x00\x05\x02\x00", b"\0\0\0"])
def test_an_additional_header_past_the_end_raises(bad: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="AHS"):
        Ahs.decode_all(bad)


def test_any_field_can_be_overridden() -> None:
    parts = pdus.ScsiCommand(itt=1, data=b"abcd").parts()
    for field in parts.layout:
        top = b"\xff" * field.size if not field.width else field.mask >> field.shift
        changed = parts.override_fields(**{field.name: top})
        assert changed.bhs != parts.bhs or changed == parts
        assert changed.data == b"abcd"
    assert parts.override_fields(data_length=0xFFFFFF).bhs[5:8] == b"\xff\xff\xff"
    assert parts.override_bytes(2, b"\xaa\xbb").bhs[2:4] == b"\xaa\xbb"
    assert parts.wire(padding=b"!")[-5:] == b"abcd!"
    with pytest.raises(LocalProtocolError, match="no field 'nonsense'"):
        parts.override_fields(nonsense=1)
    with pytest.raises(LocalProtocolError, match="does not fit"):
        pdus.ScsiCommand(itt=1 << 32).parts()


def test_a_pdu_over_the_limit_raises_again() -> None:
    stream = PduReceiver(limit=1024)
    stream.receive_data(pdus.NopIn(itt=1).parts().override_fields(data_length=0xFFFFFF).bhs)
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match="16777263 bytes, over 1024: 20800000"):
            stream.next_event()


def test_an_end_within_a_pdu_raises_with_its_bytes() -> None:
    stream = PduReceiver()
    stream.receive_data(pdus.NopIn(itt=1).encode()[:20])
    stream.receive_eof()
    with pytest.raises(RemoteProtocolError, match="ended within a PDU: 20800000"):
        stream.next_event()


def drain(data: bytes, *, digests: bool) -> None:
    """Read ``data``: events or RemoteProtocolError, and no other exception; summaries never fail."""
    stream = PduReceiver()
    stream.header_digest = stream.data_digest = digests
    stream.receive_data(data)
    stream.receive_eof()
    try:
        while (event := stream.next_event()) is not CLOSED:
            assert isinstance(event, ReceivedPdu)
            assert event.pdu.summary()
            assert event.pdu.encode()[:48] is not None
    except RemoteProtocolError as error:
        assert str(error)


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_give_events_or_a_protocol_error(data: bytes, digests: bool) -> None:
    drain(data, digests=digests)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(TABLE), st.integers(0, 47 * 8), st.integers(0, 255), st.booleans())
def test_flipped_bits_of_real_pdus_give_events_or_a_protocol_error(
    row: tuple[Pdu, str], at: int, more: int, digests: bool
) -> None:
    wire = bytearray(row[0].parts().wire(header_digest=digests, data_digest=digests))
    wire[at // 8] ^= 1 << at % 8
    wire[more % len(wire)] ^= 0x55
    drain(bytes(wire), digests=digests)


@settings(deadline=None)
@given(st.sampled_from(sorted(pdus.PDUS)), st.binary(min_size=48, max_size=48), st.binary(max_size=40))
def test_a_decoded_pdu_encodes_to_the_same_bytes_except_reserved_bits(
    opcode: int, header: bytes, data: bytes
) -> None:
    bhs = bytes((opcode,)) + header[1:4] + bytes(1) + len(data).to_bytes(3, "big") + header[8:]
    stream = PduReceiver()
    stream.receive_data(bhs + data + bytes(-len(data) % 4))
    event = stream.next_event()
    assert isinstance(event, ReceivedPdu)
    again = event.pdu.encode()
    undefined = pdus.set_reserved_bits(bhs)
    assert bytes(a | b for a, b in zip(again[:48], undefined, strict=True)) == bhs
    assert again[48 : 48 + len(data)] == data
