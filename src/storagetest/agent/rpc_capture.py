"""Which remote procedure calls leave this machine: a capture, for what no counter counts (NFSv3's locks).

A packet socket (packet(7)) keeps what is sent from :meth:`Tap.__init__` on; :meth:`Tap.close` looks through
it. Calls are recognised by their header (RFC 5531 section 9: xid, CALL, RPC version 2, program, version,
procedure), over TCP behind a record mark (section 11) where a segment begins with one, as small calls do.
"""

from __future__ import annotations

import socket
import struct

__all__ = ["RpcCapture", "rpc_calls_in"]

_EVERYTHING = 0x0003  # ETH_P_ALL of <linux/if_ether.h>
_BUFFER = 8 << 20
_LONGEST = 1 << 16
_HEADER = struct.Struct("!6I")
_TCP, _UDP = 6, 17


class RpcCapture:
    """A capture under way. Raises OSError where packets may not be looked at (it wants root)."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_EVERYTHING))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._socket.setblocking(False)

    def close(self) -> dict[str, int]:
        """End the capture, and return the calls: ``program.procedure`` → how many."""
        found: dict[str, int] = {}
        try:
            while True:
                data, address = self._socket.recvfrom(_LONGEST)
                if address[2] == socket.PACKET_OUTGOING:
                    for name in rpc_calls_in(data):
                        found[name] = found.get(name, 0) + 1
        except BlockingIOError:
            return found
        finally:
            self._socket.close()


def rpc_calls_in(packet: bytes) -> list[str]:
    """Return the calls, as ``program.procedure``, that begin in an IP packet."""
    kind, payload = _payload(packet)
    if kind == _UDP:
        return _call(payload[8:])
    if kind != _TCP or len(payload) < 20:
        return []
    records = payload[(payload[12] >> 4) * 4 :]
    found: list[str] = []
    while len(records) >= 4 + _HEADER.size:
        (mark,) = struct.unpack_from("!I", records)
        found += _call(records[4:])
        records = records[4 + (mark & 0x7FFFFFFF) :]
    return found


def _payload(packet: bytes) -> tuple[int, bytes]:
    """Return protocol and payload of an IP packet; of IPv6 one without extension headers."""
    if len(packet) < 20:
        return 0, b""
    if packet[0] >> 4 == 4:
        return packet[9], packet[(packet[0] & 15) * 4 :]
    return (packet[6], packet[40:]) if packet[0] >> 4 == 6 else (0, b"")


def _call(data: bytes) -> list[str]:
    if len(data) < _HEADER.size:
        return []
    _, direction, version, program, _, procedure = _HEADER.unpack_from(data)
    return [f"{program}.{procedure}"] if direction == 0 and version == 2 else []
