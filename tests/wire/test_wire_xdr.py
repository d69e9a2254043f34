"""XDR and the generated types: every type survives a round trip, and any bytes are a value or an error."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storagetest.errors import LocalProtocolError, RemoteProtocolError
from storagetest.wire.nfs3.types import (
    NFS_V3,
    GETATTR3args,
    LOOKUP3args,
    dirlist3,
    diropargs3,
    entry3,
    nfs_fh3,
    nfsstat3,
    set_mode3,
)
from storagetest.wire.rpc.describe import PROGRAMS, make_decoder
from storagetest.wire.rpc.record import frame
from storagetest.wire.rpc.types import opaque_auth, rpc_msg
from storagetest.wire.xdr import codecs, decode, encode

ROOT = Path(__file__).parents[2]
TYPES = {
    f"{program.name} {procedure.name} {name}": codec
    for program in PROGRAMS.values()
    for procedure in program.procedures.values()
    for name, codec in (("argument", procedure.argument), ("result", procedure.result))
} | {"rpc_msg": rpc_msg}
LONGEST = 3
"""Bytes of opaque data, and elements of arrays."""


def values(codec: Any) -> st.SearchStrategy[Any]:  # noqa: C901  # one case for each codec
    """Return a strategy for the values of a codec."""
    match codec:
        case codecs.Integer(size, signed, _):
            bits = 8 * size
            return (
                st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
                if signed
                else st.integers(0, (1 << bits) - 1)
            )
        case codecs.Enumeration(kind):
            return st.sampled_from(list(kind))
        case codecs.Opaque(size):
            return st.binary(min_size=size, max_size=size)
        case codecs.VarOpaque(limit):
            return st.binary(max_size=LONGEST if limit is None else min(limit, LONGEST))
        case codecs.Array(element, size):
            return st.tuples(*[values(element)] * size)
        case codecs.VarArray(element, limit):
            longest = LONGEST if limit is None else min(limit, LONGEST)
            return st.lists(values(element), max_size=longest).map(tuple)
        case codecs.LinkedList(element):
            return st.lists(values(element), max_size=LONGEST).map(tuple)
        case codecs.Optional(element):
            return st.none() | values(element)
    simple = {codecs.BOOL: st.booleans(), codecs.VOID: st.none()}.get(codec)
    if simple is not None:
        return simple
    if issubclass(codec, codecs.Struct):
        return st.builds(
            codec, **{name: st.deferred(lambda one=one: values(one)) for name, one in codec.FIELDS}
        )
    return union_values(codec)


def union_values(codec: Any) -> st.SearchStrategy[Any]:
    arms = [
        st.tuples(st.just(chosen), st.deferred(lambda arm=arm: values(arm)))
        for chosen, arm in codec.ARMS.items()
    ]
    if codec.DEFAULT is not None:
        others = values(codec.DISCRIMINANT[1]).filter(lambda chosen: chosen not in codec.ARMS)
        arms.append(st.tuples(others, values(codec.DEFAULT)))
    return st.one_of(arms).map(lambda pair: codec(*pair))


@pytest.mark.parametrize("name", TYPES)
def test_every_type_survives_a_round_trip_and_no_truncation(name: str) -> None:
    codec = TYPES[name]

    @settings(max_examples=25)
    @given(values(codec), st.data())
    def check(value: Any, data: st.DataObject) -> None:
        wire = encode(codec, value).data
        assert len(wire) % 4 == 0
        assert decode(codec, wire) == value
        if wire:
            with pytest.raises(RemoteProtocolError):
                decode(codec, wire[: data.draw(st.integers(0, len(wire) - 1))])
        with pytest.raises(RemoteProtocolError, match="follow"):
            decode(codec, wire + b"\0\0\0\0")

    check()


@given(st.sampled_from(sorted(TYPES)), st.binary(max_size=200))
def test_any_bytes_are_a_value_or_the_peers_fault(name: str, data: bytes) -> None:
    try:
        decode(TYPES[name], data)
    except RemoteProtocolError:
        return


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=120)), max_size=5))
def test_a_ladder_of_any_bytes_is_lines(chunks: list[tuple[bool, bytes]]) -> None:
    decoder = make_decoder()
    for outgoing, data in chunks:
        for summary, details in decoder(outgoing, frame(data)):
            assert isinstance(summary, str)
            assert all(isinstance(line, str) for line in details)


def test_the_spans_of_fields_are_their_bytes() -> None:
    call = LOOKUP3args(diropargs3(nfs_fh3(b"handle"), b"name!")).encode()
    assert call.data == bytes.fromhex("00000006 68616e646c65 0000 00000005 6e616d6521 000000")
    assert call.override("what.dir.data.length", 7).data[:4] == bytes.fromhex("00000007")
    assert call.override("what.name", b"").data == call.data[:12]
    assert call.override("what.name.padding", b"\1\2\3").data[-3:] == b"\1\2\3"
    assert call.cut("what.name").data == call.data[:12]
    longer = call.override("what.dir.data.padding", b"more").override("what.name.length", 9)
    assert longer.data == bytes.fromhex("00000006 68616e646c65 6d6f7265 00000009 6e616d6521 000000")
    with pytest.raises(LocalProtocolError, match=r"no field 'what\.nothing'"):
        call.override("what.nothing", 1)


def test_lists_and_options_are_tuples_and_none() -> None:
    listed = dirlist3((entry3(1, b".", 1), entry3(2, b"..", 2)), eof=True)
    assert decode(dirlist3, listed.encode().data) == listed
    assert encode(set_mode3, None).data == bytes(4)
    assert decode(set_mode3, bytes.fromhex("00000001 000001ff")) == 0o777


@pytest.mark.parametrize(
    ("codec", "wire", "words"),
    [
        (GETATTR3args, "00000041" + "00" * 68, "65 bytes of opaque data, over the limit of 64"),
        (GETATTR3args, "ffffffff", "over the limit"),
        (codecs.VarOpaque(), "ffffffff", "4294967295 bytes are announced, 0 remain"),
        (codecs.VarArray(codecs.UINT), "ffffffff00000001", "4294967295 elements"),
        (codecs.BOOL, "00000002", "a boolean is 0 or 1"),
        (codecs.Enumeration(nfsstat3), "00003039", "12345 is no nfsstat3"),
        (opaque_auth, "00000001" + "00000191" + "00" * 404, "over the limit of 400"),
    ],
)
def test_what_is_not_xdr_is_the_peers_fault(codec: Any, wire: str, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        decode(codec, bytes.fromhex(wire))


def test_padding_that_is_not_zero_is_a_fault() -> None:
    source = codecs.Unpacker(bytes.fromhex("00000001 61 000100"))
    assert codecs.VarOpaque().unpack(source) == b"a"
    assert source.faults == ["RFC 4506 4.10: the padding of opaque data is 000100, not zero"]


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (codecs.UINT, -1),
        (codecs.UINT, 1 << 32),
        (codecs.UINT, b"1"),
        (codecs.Opaque(8), b"seven.."),
        (codecs.Array(codecs.UINT, 2), (1,)),
        (codecs.VOID, 1),
        (GETATTR3args, nfs_fh3(b"")),
    ],
)
def test_a_wrong_value_is_our_own_fault(codec: Any, value: Any) -> None:
    with pytest.raises(LocalProtocolError):
        encode(codec, value)


def test_procedures_have_names() -> None:
    assert NFS_V3.procedure("COMMIT").number == 21
    assert len(NFS_V3.procedures) == 22


def test_the_generated_modules_are_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "script/xdr.py", "--check"], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
