"""Capture the RPC calls that leave this machine: for calls that no counter counts (NFSv3's locks).

A packet socket (packet(7)) keeps what is sent from :meth:`RpcCapture.__init__` on;
:meth:`RpcCapture.close` reads it. Calls are recognised by their header (RFC 5531 section 9: xid, CALL, RPC
version 2, program, version, procedure), over TCP behind a record mark (section 11) if a segment begins with
one, as small calls do.

A capture that may have missed a call reports it: :meth:`RpcCapture.close` counts packets that the kernel
dropped because the socket's buffer was full, packets that were cut short, and packets whose calls cannot be
read.
"""

from __future__ import annotations

import socket
import struct

_EVERYTHING = 0x0003  # ETH_P_ALL of <linux/if_ether.h>
_SO_RCVBUFFORCE = 33  # <asm-generic/socket.h>; not limited by net.core.rmem_max
_SOL_PACKET, _PACKET_STATISTICS = 263, 6  # <linux/socket.h>, <linux/if_packet.h>
_STATISTICS = struct.Struct("=II")  # struct tpacket_stats: tp_packets (dropped ones included), tp_drops
_BUFFER = 8 << 20
_LONGEST = 1 << 16
_HEADER = struct.Struct("!6I")
_TCP, _UDP = 6, 17
_HOP_BY_HOP, _ROUTING, _FRAGMENT, _DESTINATION = 0, 43, 44, 60  # IPv6 extension headers, RFC 8200 section 4
_ENCRYPTED = (50, 51)  # ESP and AH, RFC 4303 and RFC 4302: the calls inside cannot be read


class RpcCapture:
    """A running capture. Raises OSError if packets cannot be captured (it needs CAP_NET_RAW)."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_EVERYTHING))
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        except OSError:  # it needs CAP_NET_ADMIN
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._socket.setblocking(False)

    def close(self) -> tuple[dict[str, int], int]:
        """End the capture. Return the calls, ``program.procedure`` → count, and the number of lost packets.

        A lost packet was dropped, truncated or unreadable: it may contain any call.
        """
        counts: dict[str, int] = {}
        try:
            statistics = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
            packets, lost = _STATISTICS.unpack(statistics)
            for unread in range(packets - lost, 0, -1):  # packets that arrive from now on do not count
                try:
                    data, _, flags, address = self._socket.recvmsg(_LONGEST)
                except OSError:
                    return counts, lost + unread
                if address[2] == socket.PACKET_OUTGOING:
                    names, incomplete = rpc_calls_in(data)
                    lost += incomplete or bool(flags & socket.MSG_TRUNC)
                    for name in names:
                        counts[name] = counts.get(name, 0) + 1
            return counts, lost
        finally:
            self._socket.close()


def rpc_calls_in(packet: bytes) -> tuple[list[str], bool]:
    """Return the calls (``program.procedure``) that begin in an IP packet, and whether it may have others.

    It may have others if it is encrypted, or if the header of a later call continues in the next segment.
    """
    protocol, payload = _payload(packet)
    if protocol == _UDP:
        return _call(payload[8:]), False
    if protocol != _TCP or len(payload) < 20:
        return [], protocol in _ENCRYPTED
    records = payload[(payload[12] >> 4) * 4 :]
    calls: list[str] = []
    while len(records) >= 4 + _HEADER.size:
        (mark,) = struct.unpack_from("!I", records)
        calls += _call(records[4:])
        records = records[4 + (mark & 0x7FFFFFFF) :]
    return calls, bool(calls and records)


def _payload(packet: bytes) -> tuple[int, bytes]:
    """Return protocol and payload of an IP packet; (0, b"") for a fragment that is not the first."""
    version = packet[0] >> 4 if packet else 0
    if version == 4 and len(packet) >= 20:
        later = struct.unpack_from("!H", packet, 6)[0] & 0x1FFF  # fragment offset, RFC 791 section 3.1
        return (0, b"") if later else (packet[9], packet[(packet[0] & 15) * 4 :])
    if version != 6 or len(packet) < 40:
        return 0, b""
    next_header, rest = packet[6], packet[40:]
    while next_header in (_HOP_BY_HOP, _ROUTING, _FRAGMENT, _DESTINATION) and len(rest) >= 8:
        if next_header == _FRAGMENT and struct.unpack_from("!H", rest, 2)[0] >> 3:
            return 0, b""
        next_header, rest = rest[0], rest[8 if next_header == _FRAGMENT else (rest[1] + 1) * 8 :]
    return next_header, rest


def _call(data: bytes) -> list[str]:
    if len(data) < _HEADER.size:
        return []
    _, direction, version, program, _, procedure = _HEADER.unpack_from(data)
    return [f"{program}.{procedure}"] if direction == 0 and version == 2 else []
