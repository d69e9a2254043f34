"""What travels between controller and hand, and what the tap makes of packets."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storagetest.agent.json_bytes import decode_bytes, encode_bytes
from storagetest.agent.rpc_capture import rpc_calls_in

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text().filter(lambda key: key != "bytes"), inner),
)


@given(values)
def test_a_value_comes_back_as_it_went(value):
    assert decode_bytes(json.loads(json.dumps(encode_bytes(value)))) == value


@pytest.mark.parametrize("bad", ["!", "AAAA", 7, None])
def test_bytes_that_are_none_are_refused(bad):
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


@pytest.mark.parametrize("ip", [ip4, ip6])
def test_calls_are_found_over_tcp_and_udp(ip):
    both = record(rpc(100021, 2)) + record(rpc(100003, 1))
    assert rpc_calls_in(ip(tcp(both, options=bytes(12)), 6)) == ["100021.2", "100003.1"]
    assert rpc_calls_in(ip(struct.pack("!4H", 1, 2, 8, 0) + rpc(100021, 4), 17)) == ["100021.4"]


def test_answers_and_other_things_are_no_calls():
    assert rpc_calls_in(ip4(tcp(record(rpc(100021, 2, direction=1))), 6)) == []
    assert rpc_calls_in(ip4(tcp(record(rpc(100021, 2, version=3))), 6)) == []
    assert rpc_calls_in(ip4(b"ping", 1)) == []


@given(st.binary(max_size=120))
def test_any_packet_is_looked_at_without_harm(data):
    rpc_calls_in(data)
    rpc_calls_in(ip4(tcp(data), 6))
    rpc_calls_in(ip4(data, 6))
    rpc_calls_in(ip4(data, 17))
