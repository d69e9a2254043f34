"""SMB2's messages, contexts, framing and cryptography: by hand, whole, byte by byte, and fuzzed."""

import contextlib
import struct
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storagetest.errors import LocalProtocolError, RemoteProtocolError
from storagetest.wire.smb2 import contexts, crypto
from storagetest.wire.smb2.client import create_request, ioctl_request
from storagetest.wire.smb2.codes import (
    Cipher,
    ContextType,
    Dialect,
    Flags,
    Lease,
    Signing,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.connection import SmbConnection
from storagetest.wire.smb2.information import (
    attribute_list,
    attribute_names,
    attributes_of,
    decode_symlink_error,
    symlink,
)
from storagetest.wire.smb2.ladder import make_decoder
from storagetest.wire.smb2.layout import REQUESTS, RESPONSES
from storagetest.wire.smb2.message import decode, request, response, split_compound
from storagetest.wire.smb2.stream import Received, Receiver, frame
from storagetest.wire.tcp import RecordedConnection

HEADER = "fe534d42 4000 0000 00000000 {command} 0000 {flags} 00000000" + " 00" * 8 + " 00" * 8 + " 00" * 24

SIZES = {
    SmbCommand.NEGOTIATE: (36, 65),
    SmbCommand.SESSION_SETUP: (25, 9),
    SmbCommand.LOGOFF: (4, 4),
    SmbCommand.TREE_CONNECT: (9, 16),
    SmbCommand.TREE_DISCONNECT: (4, 4),
    SmbCommand.CREATE: (57, 89),
    SmbCommand.CLOSE: (24, 60),
    SmbCommand.FLUSH: (24, 4),
    SmbCommand.READ: (49, 17),
    SmbCommand.WRITE: (49, 17),
    SmbCommand.LOCK: (48, 4),
    SmbCommand.IOCTL: (57, 49),
    SmbCommand.CANCEL: (4, None),
    SmbCommand.ECHO: (4, 4),
    SmbCommand.QUERY_DIRECTORY: (33, 9),
    SmbCommand.CHANGE_NOTIFY: (32, 9),
    SmbCommand.QUERY_INFO: (41, 9),
    SmbCommand.SET_INFO: (33, 2),
    SmbCommand.OPLOCK_BREAK: (24, 24),
}
"""StructureSize of request and response, from the figures of MS-SMB2 2.2.3 to 2.2.40."""


@pytest.mark.parametrize("command", SmbCommand)
def test_structure_sizes_are_those_of_the_document(command):
    wanted_request, wanted_response = SIZES[command]
    sent = request(command, bytes(24) if command is SmbCommand.LOCK else b"")
    assert int.from_bytes(sent.data[64:66], "little") == wanted_request
    assert (RESPONSES[command].structure_size if command in RESPONSES else None) == wanted_response


@pytest.mark.parametrize(
    ("made", "flags", "body"),
    [
        (request(SmbCommand.ECHO), "00000000", "0400 0000"),
        (response(SmbCommand.ECHO), "01000000", "0400 0000"),
        (response(SmbCommand.CLOSE, status=SmbStatus.FILE_CLOSED), "01000000", "0900 00 00 00000000 00"),
        (
            request(SmbCommand.CLOSE, flags=1, file_id=b"\1" * 16),
            "00000000",
            "1800 0100 00000000" + "01" * 16,
        ),
        (
            request(SmbCommand.READ, length=0x11223344, offset=5, file_id=b"\2" * 16, padding=80),
            "00000000",
            "3100 50 00 44332211 0500000000000000" + "02" * 16 + "00" * 17,
        ),
        (
            request(SmbCommand.WRITE, b"abc", offset=7, file_id=b"\3" * 16),
            "00000000",
            "3100 7000 03000000 0700000000000000" + "03" * 16 + "00" * 16 + "616263",
        ),
        (request(SmbCommand.TREE_CONNECT, b"x\0"), "00000000", "0900 0000 4800 0200 7800"),
    ],
)
def test_messages_are_these_bytes(made, flags, body):
    assert made.data[64:] == bytes.fromhex(body)
    assert made.data[16:20] == bytes.fromhex(flags)
    assert made.data[:4] == b"\xfeSMB"
    assert made.data[4:6] == b"\x40\0"
    decoded = decode(made.data)
    assert decoded.raw == made.data


def test_fields_are_overridden_after_encoding():
    made = create_request("name").override(buffer_length=0xFFFF, message_id=9, header_flags=Flags.SIGNED)
    assert made.data[24:32] == (9).to_bytes(8, "little")
    assert made.data[16] == 8
    with pytest.raises(LocalProtocolError, match="no field 'colour'"):
        made.override(colour=1)
    with pytest.raises(LocalProtocolError, match="no number of 2 bytes"):
        made.override(buffer_length=1 << 16)
    with pytest.raises(LocalProtocolError, match="3 bytes in a field of 8"):
        made.override(message_id=b"abc")
    with pytest.raises(RemoteProtocolError, match="65535 bytes at offset 120"):
        decode(made.data)


def test_a_create_with_contexts_has_them_at_a_multiple_of_eight():
    made = create_request("abc", contexts=[(b"MxAc", b""), contexts.lease_v2(b"k" * 16, Lease.READ, epoch=3)])
    decoded = decode(made.data)
    assert decoded["context_offset"] % 8 == 0
    found = contexts.decode_create(decoded.second)
    assert list(found) == [b"MxAc", b"RqLs"]
    assert contexts.decode_lease(found[b"RqLs"]) == contexts.LeaseGrant(b"k" * 16, Lease.READ, 0, 3)


def test_negotiate_contexts_both_ways():
    made = [contexts.preauth(b"s" * 5), contexts.numbers(ContextType.ENCRYPTION, [2])]
    data = bytes(8) + contexts.encode_negotiate(made)
    found = contexts.decode_negotiate(data, 8, 2)
    assert contexts.chosen(found, ContextType.ENCRYPTION) == Cipher.AES_128_GCM
    assert contexts.chosen(found, ContextType.PREAUTH_INTEGRITY) == 1
    assert contexts.chosen(found, ContextType.SIGNING) is None
    with pytest.raises(RemoteProtocolError, match="two negotiate contexts"):
        contexts.decode_negotiate(contexts.encode_negotiate([made[1], made[1]]), 0, 2)
    with pytest.raises(RemoteProtocolError, match="past the end"):
        contexts.decode_negotiate(data[:-1], 8, 2)


COMPOUND = request(SmbCommand.ECHO).data + bytes(4), request(SmbCommand.CLOSE, file_id=b"\1" * 16).data


def compound() -> bytes:
    first = request(SmbCommand.ECHO).override(next_command=72).data + bytes(4)
    return first + COMPOUND[1]


def events(receiver: Receiver, data: bytes) -> list[Received]:
    receiver.receive_data(data)
    found = []
    while (event := receiver.next_event()) is not None:
        found.append(event)
    return found


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_frames_are_cut_from_any_pieces(size):
    stream = (frame(compound()) + frame(response(SmbCommand.ECHO).data)) * 2
    receiver = Receiver()
    found = [e for at in range(0, len(stream), size) for e in events(receiver, stream[at : at + size])]
    shown = [(event.message.command, event.position, event.count) for event in found]
    assert shown == [(13, 0, 2), (6, 1, 2), (13, 0, 1)] * 2


@pytest.mark.parametrize("step", [4, 65, 8000])
def test_a_compound_that_leads_nowhere_is_the_servers_fault(step):
    with pytest.raises(RemoteProtocolError, match="NextCommand"):
        split_compound(request(SmbCommand.ECHO).override(next_command=step).data + bytes(200))


def test_an_error_status_needs_the_error_response():
    with pytest.raises(RemoteProtocolError, match="without the error response"):
        decode(response(SmbCommand.CLOSE).override(status=SmbStatus.FILE_CLOSED).data)


@given(st.binary(max_size=300))
def test_any_bytes_are_messages_or_the_peers_fault(data):
    for raw in (data, b"\xfeSMB\x40\0" + data):
        try:
            for part in split_compound(raw):
                decode(part).summary()
        except RemoteProtocolError:
            pass


@given(st.sampled_from([*REQUESTS, *RESPONSES]), st.data())
def test_any_changed_message_is_one_or_the_peers_fault(command, data):
    base = request(command, b"tail" * 8).data if data.draw(st.booleans()) else frame(b"")
    if command in RESPONSES and data.draw(st.booleans()):
        base = response(command, b"tail" * 8).data
    raw = bytearray(base)
    for _ in range(data.draw(st.integers(1, 4))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    receiver = Receiver()
    try:
        for event in events(receiver, frame(bytes(raw))):
            message = event.message
            contexts.decode_create(message.second)
            contexts.decode_negotiate(message.raw, 64, 3)
    except RemoteProtocolError:
        pass
    assert make_decoder()(False, frame(bytes(raw))) or not raw


@given(st.binary(max_size=120))
def test_any_contexts_are_contexts_or_the_peers_fault(data):
    for read in (
        contexts.decode_create,
        contexts.decode_lease,
        lambda raw: contexts.decode_negotiate(raw, 0, 4),
    ):
        with contextlib.suppress(RemoteProtocolError):
            read(data)


@pytest.mark.parametrize("cipher", Cipher)
def test_what_is_encrypted_is_decrypted_and_nothing_else(cipher):
    key = bytes(range(32 if cipher in (Cipher.AES_256_CCM, Cipher.AES_256_GCM) else 16))
    message = request(SmbCommand.ECHO).data
    sealed = crypto.encrypt(message, key, cipher, 77, b"n" * crypto.nonce_size(cipher))
    assert crypto.transform_session(sealed) == 77
    assert crypto.decrypt(sealed, key, cipher) == message
    found = events(Receiver(lambda session: (key, cipher) if session == 77 else None), frame(sealed))
    assert [event.encrypted for event in found] == [77]
    for at in (4, 20, 44, 60):
        spoiled = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        with pytest.raises(RemoteProtocolError):
            crypto.decrypt(spoiled, key, cipher)
    with pytest.raises(RemoteProtocolError, match="which has none"):
        events(Receiver(), frame(sealed))


@pytest.mark.parametrize("algorithm", Signing)
def test_a_signature_covers_every_byte(algorithm):
    signed = crypto.sign(request(SmbCommand.ECHO).data, b"k" * 16, algorithm)
    assert signed[16] & Flags.SIGNED
    assert crypto.is_signed_right(signed, b"k" * 16, algorithm)
    for at in (24, 50, 66):
        assert not crypto.is_signed_right(signed[:at] + b"\x55" + signed[at + 1 :], b"k" * 16, algorithm)


def test_keys_of_3_0_do_not_depend_on_the_hash_and_those_of_3_1_1_do():
    key = bytes(range(16))
    old = [crypto.session_keys(key, Dialect.SMB_3_0, bytes([n]) * 64, Cipher.AES_128_CCM) for n in (1, 2)]
    new = [crypto.session_keys(key, Dialect.SMB_3_1_1, bytes([n]) * 64, Cipher.AES_128_GCM) for n in (1, 2)]
    assert old[0] == old[1]
    assert new[0] != new[1]
    assert len(crypto.session_keys(key * 2, Dialect.SMB_3_1_1, bytes(64), Cipher.AES_256_GCM).encrypt) == 32


def test_an_ioctl_states_where_its_input_is():
    decoded = decode(ioctl_request(b"\1" * 16, 0x140078, b"abcd").data)
    assert (decoded["buffer_offset"], decoded.buffer, decoded["flags"]) == (120, b"abcd", 1)


def test_a_dialect_that_was_not_offered_is_the_servers_fault():
    connection = SmbConnection(cast("RecordedConnection", None), 60)
    connection.negotiate_request([Dialect.SMB_3_0])
    answer = decode(response(SmbCommand.NEGOTIATE, b"token", dialect=0x0202).data)
    with pytest.raises(RemoteProtocolError, match="chose dialect 0x0202, which was not offered"):
        connection.settle(answer)


LINK = symlink("where\\it is")
LINK_ERROR = struct.pack("<IIIHH", len(LINK) + 8, 0x4C4D5953, 0xA000000C, len(LINK) - 8, 6) + LINK[8:]


def stopped(data: bytes, contexts: int):
    made = response(SmbCommand.CREATE, data, status=SmbStatus.STOPPED_ON_SYMLINK)
    return decode(made.override(context_count=contexts).data)


def test_the_error_of_a_link_is_in_a_context_in_dialect_3_1_1_only():
    within = struct.pack("<II", len(LINK_ERROR), 0) + LINK_ERROR
    for message, dialect in ((stopped(LINK_ERROR, 0), 0x0302), (stopped(within, 1), 0x0311)):
        found = decode_symlink_error(message, dialect)
        assert (found.substitute, found.unparsed, found.relative) == ("where\\it is", 6, True)
    for message, dialect in ((stopped(LINK_ERROR, 1), 0x0302), (stopped(LINK_ERROR, 0), 0x0311)):
        with pytest.raises(RemoteProtocolError, match="error context"):
            decode_symlink_error(message, dialect)
    for size in range(28):
        with pytest.raises(RemoteProtocolError, match="of a symbolic link"):
            decode_symlink_error(stopped(LINK_ERROR[:size], 0), 0x0302)


def test_extended_attributes_both_ways():
    made = attribute_list([("ONE", b"first"), ("TWO", b"\0\1")])
    assert made[:4] == (20).to_bytes(4, "little")
    assert attributes_of(made) == {"ONE": b"first", "TWO": b"\0\1"}
    assert attribute_names(["ONE", "FOUR"]) == bytes.fromhex(
        "0c000000 03 4f4e4500 000000 00000000 04 464f555200"
    )
    for wrong in (made[:-1], made[:6], b"\3" + made[1:], b"\xff" + made[1:]):
        with pytest.raises(RemoteProtocolError, match="extended attribute"):
            attributes_of(wrong)


@given(st.binary(max_size=80))
def test_any_bytes_are_extended_attributes_or_the_peers_fault(data):
    with contextlib.suppress(RemoteProtocolError):
        attributes_of(data)


@given(st.binary(min_size=1, max_size=80), st.sampled_from([0x0302, 0x0311]), st.integers(0, 2))
def test_any_bytes_are_the_error_of_a_link_or_the_peers_fault(data, dialect, contexts):
    with contextlib.suppress(RemoteProtocolError):
        decode_symlink_error(stopped(data, contexts), dialect)


def test_a_compression_context_both_ways():
    kind, data = contexts.compression([1, 2], chained=True)
    assert (kind, contexts.decode_compression(data)) == (ContextType.COMPRESSION, ((1, 2), True))
    assert contexts.decode_compression(contexts.compression([0])[1]) == ((), False)
    with pytest.raises(RemoteProtocolError, match="is not whole"):
        contexts.decode_compression(data[:-1])
