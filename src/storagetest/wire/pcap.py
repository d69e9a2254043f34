"""Write transcripts as a capture file: synthetic Ethernet, IPv4 and TCP around the recorded payload.

The addresses, the handshake and the acknowledgements are synthetic; the payload, its order and its times are
those of the transcript. The format is nanosecond pcap (libpcap, magic 0xa1b23c4d, LINKTYPE_ETHERNET).
``server_port`` is the port that selects Wireshark's dissector (4420, 3260), not the port that was used.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from storagetest.wire.tcp import Chunk

_MAGIC, _SNAP, _ETHERNET = 0xA1B23C4D, 262144, 1
_CLIENT_IP, _SERVER_IP = bytes((192, 0, 2, 1)), bytes((192, 0, 2, 2))  # TEST-NET-1, RFC 5737
_CLIENT_MAC, _SERVER_MAC = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
_FIN, _SYN, _PSH, _ACK = 0x01, 0x02, 0x08, 0x10
_FIRST_PORT = 49152
_SEGMENT = 16 * 1024
_HEADER = struct.Struct("<IHHiIII")
_RECORD = struct.Struct("<IIII")


def pcap_of(transcripts: Sequence[Sequence[Chunk]], *, server_port: int) -> bytes:
    """Return a capture of several connections to one server, in order of time."""
    packets: list[tuple[float, bytes]] = []
    for number, transcript in enumerate(transcripts):
        packets += _TcpFlow(_FIRST_PORT + number % 16384, server_port).packets(transcript)
    packets.sort(key=lambda packet: packet[0])
    out = [_HEADER.pack(_MAGIC, 2, 4, 0, 0, _SNAP, _ETHERNET)]
    for time, frame in packets:
        seconds, rest = divmod(round(time * 1_000_000_000), 1_000_000_000)
        out.append(_RECORD.pack(seconds, rest, len(frame), len(frame)) + frame)
    return b"".join(out)


@dataclass
class _TcpFlow:
    """Sequence numbers of one TCP connection, by direction (True: from the client)."""

    client_port: int
    server_port: int
    next_seq: dict[bool, int] = field(default_factory=lambda: {True: 1000, False: 2000})

    def packets(self, transcript: Sequence[Chunk]) -> list[tuple[float, bytes]]:
        if not transcript:
            return []
        first, last = transcript[0].time, transcript[-1].time
        packets = [
            (first, self._segment(outgoing=True, flags=_SYN)),
            (first, self._segment(outgoing=False, flags=_SYN | _ACK)),
            (first, self._segment(outgoing=True, flags=_ACK)),
        ]
        for chunk in transcript:
            for at in range(0, len(chunk.data), _SEGMENT):
                piece = chunk.data[at : at + _SEGMENT]
                packets.append(
                    (chunk.time, self._segment(outgoing=chunk.outgoing, flags=_PSH | _ACK, data=piece))
                )
            packets.append((chunk.time, self._segment(outgoing=not chunk.outgoing, flags=_ACK)))
        packets += [
            (last, self._segment(outgoing=True, flags=_FIN | _ACK)),
            (last, self._segment(outgoing=False, flags=_FIN | _ACK)),
            (last, self._segment(outgoing=True, flags=_ACK)),
        ]
        return packets

    def _segment(self, *, outgoing: bool, flags: int, data: bytes = b"") -> bytes:
        source, target = (_CLIENT_IP, _SERVER_IP) if outgoing else (_SERVER_IP, _CLIENT_IP)
        ports = (self.client_port, self.server_port) if outgoing else (self.server_port, self.client_port)
        acknowledged = self.next_seq[not outgoing] if flags & _ACK else 0
        header = struct.pack(
            "!HHIIBBHHH", *ports, self.next_seq[outgoing], acknowledged, 5 << 4, flags, 65535, 0, 0
        )
        self.next_seq[outgoing] = (self.next_seq[outgoing] + len(data) + bool(flags & (_SYN | _FIN))) % 2**32
        pseudo = source + target + struct.pack("!BBH", 0, 6, len(header) + len(data))
        header = header[:16] + struct.pack("!H", _checksum(pseudo + header + data)) + header[18:]
        ip = struct.pack(
            "!BBHHHBBH4s4s", 0x45, 0, 20 + len(header) + len(data), 0, 0x4000, 64, 6, 0, source, target
        )
        ip = ip[:10] + struct.pack("!H", _checksum(ip)) + ip[12:]
        macs = _SERVER_MAC + _CLIENT_MAC if outgoing else _CLIENT_MAC + _SERVER_MAC
        return macs + b"\x08\x00" + ip + header + data


def _checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
