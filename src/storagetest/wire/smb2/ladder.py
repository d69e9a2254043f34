"""SMB2 decoder for :func:`storagetest.wire.ladder.ladder`: messages, and what is encrypted."""

from __future__ import annotations

from storagetest.errors import RemoteProtocolError
from storagetest.wire.hexdump import hex_short
from storagetest.wire.ladder import Decoder, Rung
from storagetest.wire.smb2 import crypto
from storagetest.wire.smb2.message import decode, split_compound
from storagetest.wire.smb2.stream import Frames

PORT = 445
"""The TCP port of SMB, which selects Wireshark's dissector (2.1)."""


def make_decoder() -> Decoder:
    """Return a decoder for one connection."""
    streams = {True: Frames(), False: Frames()}

    def decoder(outgoing: bool, data: bytes) -> list[Rung]:
        stream = streams[outgoing]
        stream.receive_data(data)
        rungs: list[Rung] = []
        while (found := stream.next_frame()) is not None:
            rungs += _rungs(found)
        return rungs

    return decoder


def _rungs(data: bytes) -> list[Rung]:
    if data[:4] == crypto.TRANSFORM_ID:
        return [(f"encrypted, {len(data)} bytes", [hex_short(data[:52])])]
    try:
        return [(decode(part).summary(), [hex_short(part)]) for part in split_compound(data)]
    except RemoteProtocolError as error:
        return [(f"not decoded: {error}", [])]
