"""JSON of values with bytes; the RPC calls that a capture counts, and the packets that it lost."""

import json
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storagetest.agent.json_bytes import decode_bytes, encode_bytes
from storagetest.agent.rpc_capture import RpcCapture, rpc_calls_in

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text().filter(lambda key: key != "bytes"), inner),
)


@given(values)
def test_a_decoded_value_equals_the_encoded_one(value):
    assert decode_bytes(json.loads(json.dumps(encode_bytes(value)))) == value


@pytest.mark.parametrize("bad", ["!", "AAAA", 7, None])
def test_invalid_bytes_are_refused(bad):
    with pytest.raises(ValueError):
        decode_bytes({"bytes": bad})


def rpc(program: int, procedure: int, *, direction: int = 0, version: int = 2) -> bytes:
    return struct.pack("!6I", 0x1234, direction, version, program, 4, procedure) + bytes(16)


def record(body: bytes) -> bytes:
    return struct.pack("!I", 0x80000000 | len(body)) + body


def tcp(payload: bytes, *, options: bytes = b"") -> bytes:
    return (
        struct.pack("!HHIIBBHHH", 1, 2, 3, 4, (20 + len(options)) // 4 << 4, 0, 0, 0, 0) + options + payload
    )


def ip4(payload: bytes, protocol: int) -> bytes:
    return struct.pack("!BBHHHBBHII", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0, 1, 2) + payload


def ip6(payload: bytes, protocol: int) -> bytes:
    return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + bytes(32) + payload


CALL = record(rpc(100021, 2))


def ip6_extended(payload: bytes, protocol: int) -> bytes:
    """Hop-by-Hop Options of 16 bytes before the payload."""
    return ip6(bytes((protocol, 1)) + bytes(14) + payload, 0)


def ip6_fragment(payload: bytes, protocol: int, *, offset: int = 0) -> bytes:
    return ip6(struct.pack("!BBHI", protocol, 0, offset << 3 | 1, 7) + payload, 44)


@pytest.mark.parametrize("ip", [ip4, ip6, ip6_extended, ip6_fragment])
def test_calls_are_found_over_tcp_and_udp(ip):
    both = CALL + record(rpc(100003, 1))
    assert rpc_calls_in(ip(tcp(both, options=bytes(12)), 6)) == (["100021.2", "100003.1"], False)
    assert rpc_calls_in(ip(struct.pack("!4H", 1, 2, 8, 0) + rpc(100021, 4), 17)) == (["100021.4"], False)


@pytest.mark.parametrize(
    "packet",
    [
        ip4(tcp(record(rpc(100021, 2, direction=1))), 6),
        ip4(tcp(record(rpc(100021, 2, version=3))), 6),
        ip4(b"ping", 1),
        ip4(tcp(CALL), 6)[:6] + b"\0\1" + ip4(tcp(CALL), 6)[8:],
        ip6_fragment(tcp(CALL), 6, offset=1),
    ],
    ids=["reply", "RPC version 3", "ICMP", "later fragment", "later fragment of IPv6"],
)
def test_other_packets_contain_no_calls(packet):
    assert rpc_calls_in(packet) == ([], False)


def test_a_packet_that_may_contain_an_unread_call_is_reported():
    assert rpc_calls_in(ip4(tcp(CALL + CALL[:20]), 6)) == (["100021.2"], True)
    assert rpc_calls_in(ip4(tcp(CALL), 50)) == ([], True)


class FakeSocket:
    """A packet socket with ``packets``; the kernel has counted ``counted`` of them and ``drops`` more."""

    def __init__(self, packets, *, drops=0, counted=None):
        self._packets = iter(packets)
        self._statistics = (drops + (len(packets) if counted is None else counted), drops)
        self.closed = False

    def setsockopt(self, *_):
        pass

    def setblocking(self, _):
        pass

    def getsockopt(self, level, option, size):
        assert (level, option, size) == (263, 6, 8)  # SOL_PACKET, PACKET_STATISTICS, struct tpacket_stats
        return struct.pack("=II", *self._statistics)

    def recvmsg(self, _):
        packet = next(self._packets, None)
        if packet is None:
            raise BlockingIOError
        data, flags, direction = packet
        return data, [], flags, ("eth0", 0x0800, direction, 1, b"")

    def close(self):
        self.closed = True


def captured(monkeypatch, packets, **counters):
    fake = FakeSocket(packets, **counters)
    monkeypatch.setattr(socket, "socket", lambda *_: fake)
    result = RpcCapture().close()
    assert fake.closed
    return result


SENT = (ip4(tcp(CALL), 6), 0, socket.PACKET_OUTGOING)


def test_a_capture_counts_the_calls_that_were_sent(monkeypatch):
    received = (SENT[0], 0, socket.PACKET_HOST)
    assert captured(monkeypatch, [SENT, received, SENT]) == ({"100021.2": 2}, 0)


@pytest.mark.parametrize(
    ("packets", "counters", "lost"),
    [
        ([SENT], {"drops": 3}, 3),
        ([SENT], {"counted": 5}, 4),
        ([SENT, (SENT[0][:60], socket.MSG_TRUNC, socket.PACKET_OUTGOING)], {}, 1),
        ([SENT, (ip4(b"", 50), 0, socket.PACKET_OUTGOING)], {}, 1),
    ],
    ids=["dropped by the kernel", "not readable", "cut short", "encrypted"],
)
def test_a_capture_counts_lost_packets(monkeypatch, packets, counters, lost):
    assert captured(monkeypatch, packets, **counters)[1] == lost


def test_packets_that_arrive_while_the_capture_is_read_are_ignored(monkeypatch):
    assert captured(monkeypatch, [SENT] * 9, counted=2) == ({"100021.2": 2}, 0)


def test_the_kernel_counts_packets_that_do_not_fit_into_the_buffer():
    try:
        capture = RpcCapture()
    except PermissionError as error:
        pytest.skip(f"a packet socket needs CAP_NET_RAW: {error}")
    capture._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("127.0.0.1", 0))
        for _ in range(200):
            sender.sendto(rpc(100021, 2), sender.getsockname())
    calls, lost = capture.close()
    assert lost > 0
    assert calls.get("100021.2", 0) < 200


@given(st.binary(max_size=120))
def test_any_packet_is_parsed_without_an_error(data):
    rpc_calls_in(data)
    rpc_calls_in(ip4(tcp(data), 6))
    rpc_calls_in(ip4(data, 6))
    rpc_calls_in(ip4(data, 17))
