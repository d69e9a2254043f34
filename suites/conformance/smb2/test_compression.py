"""Compression: its negotiation, compressed requests and responses, faults (MS-SMB2 2.2.42, 3.3.5.2.1.2)."""

from __future__ import annotations

import struct

import pytest

from storagetest.suites.conformance.smb2.support import case
from storagetest.wire.smb2 import compression
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.codes import (
    COMPRESSED_READ,
    SIGNING_REQUIRED,
    Compression,
    ContextType,
    Dialect,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.connection import default_contexts
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.message import request

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.2.1.2", level="MUST")]

NONE, LZNT1, LZ77, PATTERN = (
    Compression.NONE,
    Compression.LZNT1,
    Compression.LZ77,
    Compression.PATTERN_V1,
)
KINDS = (LZNT1, LZ77, PATTERN)
SPOILED, SIZES = ("compressed-spoiled",), ("compressed-size-other", "compressed-cut")
TEXT = b"".join(b"line %d of the same text, again and again\n" % (number % 7) for number in range(300))
HEAD = 64 + 48
"""Bytes of a WRITE request before its data (2.2.21)."""


def negotiate(bench, *algorithms, chained=False, contexts=None):
    """Negotiate 3.1.1 with ``algorithms``; return the connection."""
    connection = bench.connect()
    mine = [c.compression(algorithms, chained=chained)] if contexts is None else contexts
    connection.negotiate([Dialect.SMB_3_1_1], contexts=[*default_contexts(), *mine])
    return connection


def compressing(bench, *algorithms, chained=False, **more):
    """Return a tree on a connection with exactly this compression; skip if the server does not have it."""
    connection = negotiate(bench, *algorithms, chained=chained)
    settled = connection.settled
    if not set(algorithms) <= set(settled.algorithms) or settled.chained != chained:
        pytest.skip("the server does not have this compression")
    mode = {"mode": SIGNING_REQUIRED} if more.get("signs") else {}
    return bench.unauthenticated(connection).setup(**mode, **more).tree(bench.endpoint.share)


# Negotiation

NEGOTIATION = pytest.mark.case(section="MS-SMB2 2.2.4.1.3, 3.3.5.4")


@NEGOTIATION
@pytest.mark.parametrize(
    "algorithm",
    [
        case("SMB-COMPRESS-NEG-LZNT1", LZNT1, kills=("compression-other",)),
        case("SMB-COMPRESS-NEG-LZ77", LZ77, kills=("compression-other",)),
        case("SMB-COMPRESS-NEG-PATTERN", PATTERN, kills=("compression-other",)),
        case("SMB-COMPRESS-NEG-UNKNOWN", 0x77, kills=("compression-other",)),
    ],
)
def test_the_chosen_algorithms_were_offered(bench, algorithm):
    settled = negotiate(bench, algorithm, chained=True).settled
    assert set(settled.algorithms) <= {algorithm} & set(KINDS)


@NEGOTIATION
@pytest.mark.case("SMB-COMPRESS-NEG-CHAINED", kills=("compression-chained-always",))
def test_chained_compression_is_not_chosen_if_it_was_not_offered(bench):
    assert not negotiate(bench, LZNT1, LZ77).settled.chained


@NEGOTIATION
@pytest.mark.case("SMB-COMPRESS-NEG-UNASKED", kills=("compression-unasked",))
def test_a_client_without_compression_gets_no_compression_context(bench):
    assert ContextType.COMPRESSION not in negotiate(bench, contexts=[]).settled.contexts


@NEGOTIATION
@pytest.mark.parametrize(
    "contexts",
    [
        case("SMB-COMPRESS-NEG-EMPTY", [c.compression([])], kills=("kit-accepts-negotiate",)),
        case(
            "SMB-COMPRESS-NEG-TWO",
            [c.compression([LZNT1]), c.compression([LZNT1])],
            kills=("kit-accepts-negotiate",),
        ),
    ],
)
def test_a_compression_context_that_is_empty_or_twice_is_an_invalid_parameter(bench, contexts):
    if not negotiate(bench, *KINDS, chained=True).settled.algorithms:
        pytest.skip("the server has no compression")
    connection = bench.connect()
    asked = connection.negotiate_request([Dialect.SMB_3_1_1], contexts=[*default_contexts(), *contexts])
    expect(connection.call(asked), SmbStatus.INVALID_PARAMETER)


# Requests


def whole(algorithm):
    return lambda message: compression.compress(message, algorithm)


def behind_the_head(message):
    return compression.compress(message, LZ77, offset=HEAD)


def chain(algorithm):
    """Compress in two payloads: the head as it is, the data by ``algorithm``."""
    return lambda message: compression.compress_chained([(NONE, message[:HEAD]), (algorithm, message[HEAD:])])


def whole_chain(message):
    return compression.compress_chained([(LZ77, message)])


@pytest.mark.parametrize(
    ("algorithms", "chained", "compress", "data"),
    [
        case("SMB-COMPRESS-WRITE-LZNT1", (LZNT1,), False, whole(LZNT1), TEXT, kills=SPOILED),
        case("SMB-COMPRESS-WRITE-LZ77", (LZ77,), False, whole(LZ77), TEXT, kills=SPOILED),
        case("SMB-COMPRESS-WRITE-OFFSET", (LZ77,), False, behind_the_head, TEXT, kills=SPOILED),
        case("SMB-COMPRESS-WRITE-CHAIN", (LZ77,), True, whole_chain, TEXT, kills=SPOILED),
        case("SMB-COMPRESS-WRITE-CHAIN-LZNT1", (LZNT1,), True, chain(LZNT1), TEXT, kills=SPOILED),
        case("SMB-COMPRESS-WRITE-CHAIN-NONE", (LZ77,), True, chain(NONE), TEXT, kills=SPOILED),
        case(
            "SMB-COMPRESS-WRITE-CHAIN-PATTERN",
            (PATTERN, LZ77),
            True,
            chain(PATTERN),
            b"\x5a" * 9000,
            kills=SPOILED,
        ),
    ],
)  # fmt: skip
def test_a_compressed_write_is_executed(bench, path, algorithms, chained, compress, data):
    tree = compressing(bench, *algorithms, chained=chained)
    file = tree.open(path)
    expect(file.write(data, compress=compress))
    assert expect(file.read(len(data))).buffer == data


@pytest.mark.case("SMB-COMPRESS-SIGNED", section="MS-SMB2 3.1.4.4", kills=SPOILED)
def test_a_signed_message_is_compressed_with_its_signature(bench, path):
    file = compressing(bench, LZ77, signs=True).open(path)
    expect(file.write(TEXT, compress=whole(LZ77)))
    assert expect(file.read(len(TEXT))).buffer == TEXT


@pytest.mark.case("SMB-COMPRESS-ENCRYPTED", section="MS-SMB2 3.1.4.4", kills=("kit-encryption-spoiled",))
def test_a_message_is_compressed_before_it_is_encrypted(bench, path):
    file = compressing(bench, LZ77, encrypts=True).open(path)
    expect(file.write(TEXT, compress=whole(LZ77)))
    assert expect(file.read(len(TEXT))).buffer == TEXT


# Responses

READS = pytest.mark.case(section="MS-SMB2 3.1.4.4, 3.3.5.12")


@READS
@pytest.mark.parametrize(
    ("algorithms", "chained", "data"),
    [
        case("SMB-COMPRESS-READ-LZNT1", (LZNT1,), False, TEXT, kills=SIZES),
        case("SMB-COMPRESS-READ-LZ77", (LZ77,), False, TEXT, kills=SIZES),
        case("SMB-COMPRESS-READ-CHAIN", (LZ77,), True, TEXT, kills=SIZES),
        case(
            "SMB-COMPRESS-READ-PATTERN",
            (PATTERN, LZ77),
            True,
            b"\x5a" * 9000,
            kills=("compressed-size-other", "compressed-cut", "compressed-pattern-other"),
        ),
    ],
)  # fmt: skip
def test_a_read_that_asks_for_compression_returns_the_data(bench, path, algorithms, chained, data):
    file = compressing(bench, *algorithms, chained=chained).open(path)
    expect(file.write(data))
    assert expect(file.read(len(data), flags=COMPRESSED_READ)).buffer == data


@READS
@pytest.mark.case("SMB-COMPRESS-READ-DONE", level="SHOULD", kills=("compressed-never",))
def test_a_read_that_asks_for_compression_is_answered_compressed(bench, path):
    file = compressing(bench, LZ77).open(path)
    expect(file.write(bytes(65536)))
    message = expect(file.read(65536, flags=COMPRESSED_READ))
    assert file.tree.session.connection.is_compressed(int(message["message_id"]))


# Faults


def put(data, at, layout, *values):
    piece = struct.pack(layout, *values)
    return data[:at] + piece + data[at + len(piece) :]


def no_smb(message):
    """Compress what is no SMB2 message."""
    return compression.compress(b"\xffSMB" + message[4:], LZ77)


FAULTS = {
    "SHORT": (False, lambda message: compression.compress(message, LZ77)[:15]),
    "ALGORITHM": (False, lambda message: put(compression.compress(message, LZ77), 8, "<H", 5)),
    "LARGEST": (False, lambda message: put(compression.compress(message, LZ77), 4, "<I", 0x7FFFFFFF)),
    "DATA": (False, lambda message: compression.compress(message, LZ77)[:16] + b"\xff" * 40),
    "SIZE": (False, lambda message: put(compression.compress(message, LZ77), 4, "<I", len(message) + 1)),
    "ID": (False, no_smb),
    "FLAGS": (False, lambda message: compression.compress_chained([(LZ77, message)])),
    "CHAIN-ALGORITHM": (
        True,
        lambda message: put(compression.compress_chained([(LZ77, message)]), 8, "<H", 5),
    ),
    "CHAIN-LENGTH": (
        True,
        lambda message: put(compression.compress_chained([(NONE, message)]), 12, "<I", 9999),
    ),
    "CHAIN-LARGER": (
        True,
        lambda message: put(compression.compress_chained([(NONE, message)]), 4, "<I", len(message) - 1),
    ),
    "CHAIN-SMALLER": (
        True,
        lambda message: put(compression.compress_chained([(LZ77, message)]), 4, "<I", len(message) + 1),
    ),
}
"""Whether compression is chained, and how the message is made, by the name of the case."""


@pytest.mark.parametrize(
    ("chained", "fault"),
    [case(f"SMB-COMPRESS-FAULT-{name}", *one, kills=("kit-close-hidden",)) for name, one in FAULTS.items()],
)
def test_a_compressed_message_that_is_not_valid_ends_the_connection(bench, chained, fault):
    tree = compressing(bench, LZ77, chained=chained)
    tree.send(request(SmbCommand.ECHO), compress=fault)
    assert tree.session.connection.closed(), "the connection is still open"


@pytest.mark.case("SMB-COMPRESS-FAULT-NONE", section="MS-SMB2 3.3.5.2.1", kills=("close-hidden",))
def test_a_compressed_message_without_negotiated_compression_ends_the_connection(tree):
    tree.send(request(SmbCommand.ECHO), compress=whole(LZ77))
    assert tree.session.connection.closed(), "the connection is still open"
