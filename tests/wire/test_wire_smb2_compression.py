"""SMB2's compression: the examples of MS-XCA, both ways, every fault, fuzzed."""

import contextlib
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storagetest.errors import LocalProtocolError, RemoteProtocolError
from storagetest.wire.smb2 import compression as z
from storagetest.wire.smb2.codes import Compression, SmbCommand
from storagetest.wire.smb2.message import request
from storagetest.wire.smb2.stream import Receiver, frame

ALPHABET = bytes(range(97, 123))
SONG = (
    b"F# F# G A A G F# E D D E F# F# E E F# F# G A A G F# E D D E F# E D D E E F# D E F# G F# D E F# G "
    b"F# E D E A F# F# G A A G F# E D D E F# E D D\0"
)
SONG_LZNT1 = bytes.fromhex(
    "38b08846232000204720410010a24701a0452044000845015079 00c045200524138805b4024a44ef0358028c0916"
    "01484500be009e000401189000"
)
"""The example of MS-XCA 3.3."""
MESSAGE = request(SmbCommand.WRITE, b"abcdefgh" * 600, file_id=b"\1" * 16).data
EVERY = (Compression.LZNT1, Compression.LZ77, Compression.PATTERN_V1)
ALL = {"algorithms": EVERY, "chained": True, "largest": 1 << 20}
CODECS = {
    Compression.LZ77: (z.lz77_compress, z.lz77_decompress),
    Compression.LZNT1: (z.lznt1_compress, z.lznt1_decompress),
}


@pytest.mark.parametrize(
    ("data", "compressed"),
    [
        (ALPHABET, "3f000000" + ALPHABET.hex()),
        (b"abc" * 100, "ffffff1f6162631700 0fff2601"),
    ],
)
def test_lz77_is_that_of_the_examples(data, compressed):
    assert z.lz77_compress(data) == bytes.fromhex(compressed)
    assert z.lz77_decompress(bytes.fromhex(compressed), len(data)) == data


def test_lznt1_reads_the_example():
    assert len(SONG) == 142
    assert z.lznt1_decompress(SONG_LZNT1, 142) == SONG


def texts() -> list[bytes]:
    """Texts with short, long, far and no repetitions, across chunks of LZNT1."""
    draw = random.Random(5)
    noise = draw.randbytes(9000)
    return [
        b"x",
        b"ab" * 3,
        b"\0" * 70_000,
        b"\0" * 90,
        noise,
        noise[:5000] + noise[:5000],
        b"".join(noise[n : n + 9] * (n % 40) for n in range(0, 3000, 7)),
        bytes(range(256)) * 64,
    ]


@pytest.mark.parametrize("algorithm", CODECS)
@pytest.mark.parametrize("number", range(8))
def test_what_is_compressed_is_decompressed(algorithm, number):
    data, (compress, decompress) = texts()[number], CODECS[algorithm]
    assert decompress(compress(data), len(data)) == data


@given(st.sampled_from(sorted(CODECS)), st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=8))
def test_any_text_is_compressed_and_decompressed(algorithm, pieces):
    data, (compress, decompress) = b"".join(pieces + pieces[::-1]), CODECS[algorithm]
    assert decompress(compress(data), len(data)) == data


@given(st.sampled_from(sorted(CODECS)), st.binary(max_size=80), st.integers(0, 5000))
def test_any_bytes_decompress_to_the_stated_size_or_are_the_peers_fault(algorithm, data, size):
    with contextlib.suppress(RemoteProtocolError):
        assert len(CODECS[algorithm][1](data, size)) == size


@pytest.mark.parametrize("algorithm", CODECS)
def test_the_stated_size_is_never_exceeded(algorithm):
    compress, decompress = CODECS[algorithm]
    packed = compress(b"\0" * 60_000)
    for size in (0, 1, 59_999, 60_001):
        with pytest.raises(RemoteProtocolError, match=r"not \d+ bytes of"):
            decompress(packed, size)


UNCHAINED = [(algorithm, offset) for algorithm in CODECS for offset in (0, 64, len(MESSAGE) - 1)]


@pytest.mark.parametrize(("algorithm", "offset"), UNCHAINED)
def test_an_unchained_message(algorithm, offset):
    made = z.compress(MESSAGE, algorithm, offset=offset)
    assert made[:4] == b"\xfcSMB"
    assert struct.unpack_from("<IHHI", made, 4) == (len(MESSAGE) - offset, algorithm, 0, offset)
    assert z.decompress(made, EVERY, chained=False, largest=1 << 20) == MESSAGE


def test_a_chained_message_is_these_bytes():
    made = z.compress_chained([(Compression.NONE, b"head"), (Compression.PATTERN_V1, b"\7" * 9)])
    wanted = "fc534d42 0d000000 0000 0100 04000000 68656164 0400 0000 08000000 07 00 0000 09000000"
    assert made == bytes.fromhex(wanted)


def test_a_chained_message_of_every_algorithm():
    parts = [(Compression.NONE, MESSAGE[:100]), (Compression.LZ77, MESSAGE[100:2000])]
    parts += [(Compression.LZNT1, MESSAGE[2000:]), (Compression.PATTERN_V1, b"z" * 50)]
    assert z.decompress(z.compress_chained(parts), **ALL) == MESSAGE + b"z" * 50


def test_there_is_no_codec_for_the_others():
    with pytest.raises(LocalProtocolError, match="LZ77_HUFFMAN"):
        z.compress(MESSAGE, Compression.LZ77_HUFFMAN)


def put(data: bytes, at: int, layout: str, value: int) -> bytes:
    piece = struct.pack(layout, value)
    return data[:at] + piece + data[at + len(piece) :]


PLAIN = z.compress(MESSAGE, Compression.LZ77)
CHAIN = z.compress_chained([(Compression.NONE, MESSAGE), (Compression.PATTERN_V1, b"z" * 50)])
FAULTS = [
    (PLAIN[:15], "no header"),
    (put(PLAIN, 4, "<I", 1 << 21), "more than the largest"),
    (put(PLAIN, 4, "<I", len(MESSAGE) + 1), "bytes of LZ77"),
    (put(PLAIN, 8, "<H", 3), "not negotiated"),
    (put(PLAIN, 8, "<H", 4), "not negotiated"),
    (put(PLAIN, 10, "<H", 2), "not negotiated"),
    (put(PLAIN, 12, "<I", 1 << 30), "bytes of LZ77"),
    (put(CHAIN, 8, "<H", 5), "a payload of"),
    (put(CHAIN, 12, "<I", 1 << 30), "a payload of"),
    (put(CHAIN, 4, "<I", 3), "3 bytes at most"),
    (put(CHAIN, len(CHAIN) - 4, "<I", 1 << 31), "50 bytes at most"),
    (put(CHAIN, len(CHAIN) - 4, "<I", 49), "in a message of"),
    (CHAIN + b"\0\0\0", "3 bytes of a payload"),
]


@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_a_fault_is_the_peers(number):
    data, message = FAULTS[number]
    with pytest.raises(RemoteProtocolError, match=message):
        z.decompress(data, **ALL)


def test_a_chain_is_refused_if_it_was_not_negotiated():
    with pytest.raises(RemoteProtocolError, match="not negotiated"):
        z.decompress(CHAIN, EVERY, chained=False, largest=1 << 20)


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_a_message_or_the_peers_fault(data, is_chained):
    head = b"\xfcSMB" + struct.pack("<I", 300) + (b"\0\0\1\0" if is_chained else b"\2\0\0\0")
    with contextlib.suppress(RemoteProtocolError):
        assert len(z.decompress(head + data, **ALL)) >= 300


@pytest.mark.parametrize("made", [PLAIN, z.compress_chained([(Compression.LZ77, MESSAGE)])])
def test_the_stream_decompresses(made):
    receiver = Receiver(expand=lambda data: z.decompress(data, **ALL))
    receiver.receive_data(frame(made))
    event = receiver.next_event()
    assert event is not None
    assert (event.message.raw, event.compressed) == (MESSAGE, True)


def test_a_stream_without_compression_refuses_it():
    receiver = Receiver()
    receiver.receive_data(frame(PLAIN))
    with pytest.raises(RemoteProtocolError, match="compressed, but no compression was negotiated"):
        receiver.next_event()
