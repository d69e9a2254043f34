"""wire/nfs4: attributes, COMPOUNDs, sessions, owners, callbacks; against NFS-Ganesha where it matters."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from ganesha import EXPORT, Ganesha, ganesha

from storagetest.errors import LocalProtocolError, RemoteProtocolError
from storagetest.hosts.run_directories import new_name
from storagetest.polling import wait_until
from storagetest.wire.nfs4.attributes import (
    ATTRIBUTES,
    REQUIRED_41,
    bitmap,
    decode_attributes,
    encode_attributes,
    numbers_of,
)
from storagetest.wire.nfs4.callbacks import CallbackListener, Callbacks, lying
from storagetest.wire.nfs4.client import Done, Nfs4Client, ok, refused
from storagetest.wire.nfs4.harness import (
    Nfs4Endpoint,
    Nfs4Harness,
    SharedArranger,
    clean_up,
    entries,
    look,
    values,
)
from storagetest.wire.nfs4.operations import (
    CURRENT,
    GETFH,
    PUTROOTFH,
    RESTOREFH,
    SAVEFH,
    close,
    create,
    getattr_,
    lookup,
    op,
    putfh,
    read,
    setattr_,
    unchecked,
    write,
)
from storagetest.wire.nfs4.resumption import left
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_MODE,
    NFS_CB,
    CB_COMPOUND4args,
    CB_RECALL4args,
    CB_SEQUENCE4args,
    DESTROY_SESSION4args,
    SETATTR4res,
    fattr4,
    nfs_argop4,
    nfs_cb_argop4,
    nfs_cb_opnum4,
    nfs_lock_type4,
    nfs_opnum4,
    nfs_resop4,
    nfsstat4,
    stateid4,
)
from storagetest.wire.rpc import RpcConnection
from storagetest.wire.tcp import RecordedConnection, ResponseTimeout
from storagetest.wire.xdr import Packer, Unpacker


@pytest.mark.parametrize("numbers", [(), (0,), (31,), (32,), (0, 33, 82)])
def test_a_bitmap_is_its_numbers(numbers: tuple[int, ...]) -> None:
    assert numbers_of(bitmap(*numbers)) == numbers


def test_every_attribute_has_a_codec_and_an_access() -> None:
    assert {*range(83)} - set(ATTRIBUTES) == set()
    assert {one.access for one in ATTRIBUTES.values()} == {"R", "W", "R W"}
    assert set(REQUIRED_41) <= set(ATTRIBUTES)
    for one in ATTRIBUTES.values():
        assert callable(one.codec.pack)
        assert callable(one.codec.unpack)


def test_values_are_encoded_in_the_order_of_their_numbers() -> None:
    made = encode_attributes({33: 0o644, 4: 7})
    assert made == fattr4((16, 2), (7).to_bytes(8, "big") + (0o644).to_bytes(4, "big"))
    assert decode_attributes(made) == {4: 7, 33: 0o644}


def test_unknown_and_left_over_attributes_are_errors() -> None:
    with pytest.raises(LocalProtocolError, match="no attribute has the number 99"):
        encode_attributes({99: 1})
    with pytest.raises(RemoteProtocolError, match="attribute 99"):
        decode_attributes(fattr4(bitmap(99), b""))
    with pytest.raises(RemoteProtocolError):
        decode_attributes(fattr4(bitmap(4), bytes(12)))


def test_every_codec_reads_what_it_writes() -> None:
    for number, value in {81: (0o644, 0o22), 82: True}.items():
        codec = ATTRIBUTES[number].codec
        given = codec(*value) if isinstance(value, tuple) else value  # type: ignore[operator]
        out = Packer()
        codec.pack(given, out)
        assert codec.unpack(Unpacker(out.finish().data)) == given


# Against a real server


@pytest.fixture(scope="module")
def server() -> Iterator[Ganesha]:
    with ganesha() as made:
        yield made


@pytest.fixture
def bench(server: Ganesha) -> Iterator[Nfs4Harness]:
    with Nfs4Harness(Nfs4Endpoint("127.0.0.1", server.nfs, EXPORT, 10)) as made:
        yield made


def export(nfs: Nfs4Client) -> bytes:
    found: bytes = ok(nfs.compound(PUTROOTFH, *map(lookup, EXPORT.encode().split(b"/")[1:]), GETFH))[
        "GETFH"
    ].object
    return found


@pytest.mark.parametrize("minor", [0, 1, 2])
def test_a_file_is_opened_written_locked_and_closed(bench: Nfs4Harness, minor: int) -> None:
    nfs = bench.client(minor)
    owner, locker = StateOwner(nfs), StateOwner(nfs)
    file = owner.open(export(nfs), b"file-%d" % minor, how=unchecked({33: 0o644}))
    assert ok(file.on(write(file.stateid, 0, b"data")))["WRITE"].count == 4
    assert ok(file.on(read(file.stateid, 0, 100)))["READ"].data == b"data"
    ok(file.lock(locker, nfs_lock_type4.WRITE_LT, 0, 10))
    ok(file.lock(locker, nfs_lock_type4.WRITE_LT, 20, 10))
    other = bench.client(minor)
    assert file.test(StateOwner(nfs)).status == nfsstat4.NFS4ERR_DENIED
    assert other.clientid != nfs.clientid
    ok(file.unlock(locker))
    again = owner.open(export(nfs), b"file-%d" % minor, access=1)
    file.stateid = again.stateid
    ok(file.downgrade(1, 0))
    file.close()
    assert values(ok(file.on(getattr_(4))))[4] == 4


@pytest.mark.parametrize("minor", [1, 2])
def test_a_session_counts_its_slots(bench: Nfs4Harness, minor: int) -> None:
    nfs = bench.client(minor)
    assert nfs.session is not None
    for slot in (0, 0, 1):
        ok(nfs.compound(PUTROOTFH, slot=slot))
    assert nfs.session.next == {0: 3, 1: 2}
    StateOwner(nfs).try_open(export(nfs), b"absent")
    assert nfs.session.next == {0: 6, 1: 2}, "RECLAIM_COMPLETE, OPEN and the look at the export"
    StateOwner(nfs).try_open(export(nfs), b"absent")
    assert nfs.session.next == {0: 8, 1: 2}, "RECLAIM_COMPLETE is sent once"


def test_a_field_of_a_compound_is_overridden(bench: Nfs4Harness) -> None:
    nfs = bench.client(1)
    call = nfs.encode(PUTROOTFH).override("argarray[0].value.sa_slotid", 5000)
    assert nfs.execute(call).result.status == nfsstat4.NFS4ERR_BADSLOT
    ok(nfs.compound(PUTROOTFH))


def test_a_look_finds_minor_versions_and_leaves_nothing(bench: Nfs4Harness) -> None:
    facts = look(bench.endpoint, new_name())
    assert facts.minors == (0, 1, 2)
    assert facts.implementation == "nfs-ganesha"
    assert set(REQUIRED_41) <= set(facts.supported[1])
    nfs = bench.client(2)
    assert facts.name in [one.name for one in entries(nfs, facts.root)]
    StateOwner(nfs).open(facts.directory, b"left", how=unchecked()).close()
    clean_up(facts)
    assert facts.name not in [one.name for one in entries(nfs, facts.root)]


@pytest.mark.parametrize("minor", [0, 2])
def test_trees_are_removed_also_wide_and_deep_ones_and_those_without_modes(
    bench: Nfs4Harness, minor: int
) -> None:
    facts = replace(look(bench.endpoint, new_name()), minors=(minor,))
    nfs = bench.client(minor)

    def make(parent: bytes, name: bytes, mode: int = 0o755) -> bytes:
        made = nfs.compound(putfh(parent), create(name, values={FATTR4_MODE: mode}), GETFH)
        handle: bytes = ok(made)["GETFH"].object
        return handle

    deep = facts.directory
    for depth in range(5):
        deep = make(deep, b"deep-%d" % depth)
    wide = make(facts.directory, b"wide")
    for number in range(90):  # more than one page of a READDIR
        make(wide, b"%03d" % number + b"-" * 60)
    make(make(facts.directory, b"without"), b"within")
    ok(nfs.compound(putfh(facts.directory), lookup(b"without"), setattr_({FATTR4_MODE: 0})))
    StateOwner(nfs).open(deep, b"file", how=unchecked()).close()
    clean_up(facts)
    assert facts.name not in [one.name for one in entries(nfs, facts.root)]


def test_a_shared_arranger_is_one_client_until_it_fails(bench: Nfs4Harness) -> None:
    noted: list[RecordedConnection] = []
    with SharedArranger() as shared:
        with Nfs4Harness(bench.endpoint, lambda link, *_: noted.append(link)) as first:
            one, done = shared.execute(first, 2, lambda: [PUTROOTFH])
            ok(done)
            assert noted == [one.rpc.link]
        assert one.rpc.link.is_open, "it outlives the harness of a case"
        with Nfs4Harness(bench.endpoint) as second:
            same, done = shared.execute(second, 2, lambda: [PUTROOTFH, lookup(b"absent")])
            assert same is one
            refused(done, nfsstat4.NFS4ERR_NOENT)
            assert len(one.rpc.link.transcript) == 2, "each case has its own transcript"
            ok(one.raw(op("DESTROY_SESSION", DESTROY_SESSION4args(one.session.id))))
            another, done = shared.execute(second, 2, lambda: [PUTROOTFH])
            assert another is not one
            ok(done)
            another.rpc.link.abort()
            ok(shared.execute(second, 2, lambda: [PUTROOTFH])[1])


@pytest.mark.parametrize("minor", [0, 1])
def test_a_delayed_compound_is_resumed(bench: Nfs4Harness, monkeypatch, minor: int) -> None:
    """Nothing is executed twice: the name that CREATE made is taken when SETATTR is repeated."""
    client, sent = bench.client(minor), list[list[str]]()
    answered, name = client._once, new_name()

    def without_last(ops: tuple[nfs_argop4, ...], *rest: Any) -> Done:
        sent.append([one.argop.name.removeprefix("OP_") for one in ops])
        if len(sent) > 2:
            return answered(ops, *rest)
        done = answered(ops[:-1], *rest)  # the server executes all but the last, which it delays
        last = nfs_resop4(nfs_opnum4.OP_SETATTR, SETATTR4res(nfsstat4.NFS4ERR_DELAY, ()))
        results = (*done.result.resarray, last)
        return replace(done, result=replace(done.result, status=last.value.status, resarray=results))

    monkeypatch.setattr(client, "_once", without_last)
    way = [lookup(part.encode()) for part in EXPORT.split("/") if part]
    done = ok(client.compound(PUTROOTFH, *way, create(name), setattr_({FATTR4_MODE: 0o700})))
    assert [one.resop.name for one in done.results[-2:]] == ["OP_CREATE", "OP_SETATTR"]
    assert [ops[-2:] for ops in sent] == [["CREATE", "SETATTR"], ["LOOKUP", "SETATTR"], ["LOOKUP", "SETATTR"]]


def test_a_resumed_compound_names_the_stateid_that_was_current(bench: Nfs4Harness) -> None:
    """The server has forgotten it; after RESTOREFH it is the one that was saved (RFC 8881 16.2.3.1.2)."""
    client = bench.client(1)
    opening = StateOwner(client).open_op(b"current", how=unchecked())
    way = [lookup(part.encode()) for part in EXPORT.split("/") if part]
    ops = [PUTROOTFH, *way, opening, SAVEFH, PUTROOTFH, RESTOREFH, close(CURRENT)]
    for executed in range(len(way) + 2, len(ops)):
        done = ok(client.compound(*ops[:executed]))
        remaining = left(ops, done.results)
        assert len(remaining) == len(ops) - executed
        stateid = remaining[-1].value.open_stateid
        assert stateid == done["OPEN"].stateid
        ok(client.compound(PUTROOTFH, *way, lookup(b"current"), close(stateid)))
    assert left(ops, []) == tuple(ops), "the server knows a stateid that it gives in the same COMPOUND"


def test_refusals_name_the_operations(bench: Nfs4Harness) -> None:
    done = bench.client(0).compound(PUTROOTFH, lookup(b"absent"))
    refused(done, nfsstat4.NFS4ERR_NOENT)
    with pytest.raises(AssertionError, match="PUTROOTFH NFS4_OK, LOOKUP NFS4ERR_NOENT, not NFS4_OK"):
        ok(done)
    with pytest.raises(AssertionError, match="no result of GETFH"):
        done.of("GETFH")


# Callbacks, called by a client of ours


def called(listener: CallbackListener, deadline: float = 5) -> RpcConnection:
    return RpcConnection(
        RecordedConnection.connect("127.0.0.1", listener.port, deadline=5), NFS_CB, deadline=deadline
    )


RECALL = nfs_cb_argop4(nfs_cb_opnum4.OP_CB_RECALL, CB_RECALL4args(stateid4(1, bytes(12)), False, b"fh"))
SEQUENCE = nfs_cb_argop4(nfs_cb_opnum4.OP_CB_SEQUENCE, CB_SEQUENCE4args(bytes(16), 7, 0, 0, False, ()))


def test_callbacks_are_kept_and_answered() -> None:
    callbacks = Callbacks()
    with CallbackListener(callbacks) as listener, called(listener).link as link:
        rpc = RpcConnection(link, NFS_CB, deadline=5)
        rpc.call("CB_NULL")
        done = rpc.call("CB_COMPOUND", CB_COMPOUND4args(b"tag", 1, 0, (SEQUENCE, RECALL)))
        assert (done.status, done.tag, len(done.resarray)) == (nfsstat4.NFS4_OK, b"tag", 2)
        assert done.resarray[0].value.value.csr_sequenceid == 7
        assert (callbacks.nulls, len(callbacks.seen)) == (1, 1)
        assert listener.netaddr.na_r_addr == b"127.0.0.1.%d.%d" % divmod(listener.port, 256)


def test_callbacks_fail_or_lie_or_stay_silent() -> None:
    callbacks = Callbacks({nfs_cb_opnum4.OP_CB_RECALL: nfsstat4.NFS4ERR_BAD_STATEID})
    with CallbackListener(callbacks) as listener, called(listener, 0.3).link as link:
        rpc = RpcConnection(link, NFS_CB, deadline=0.3)
        given = CB_COMPOUND4args(b"", 1, 0, (SEQUENCE, RECALL, RECALL))
        done = rpc.call("CB_COMPOUND", given)
        assert (done.status, len(done.resarray)) == (nfsstat4.NFS4ERR_BAD_STATEID, 2)
        callbacks.answer = lying(callbacks, csr_slotid=9)
        assert rpc.call("CB_COMPOUND", given).resarray[0].value.value.csr_slotid == 9
        callbacks.silent = True
        with pytest.raises(ResponseTimeout):
            rpc.call("CB_COMPOUND", given)
        wait_until(lambda: len(callbacks.seen) == 3, 5, "the third callback")


def test_a_listener_leaves_no_thread() -> None:
    with CallbackListener(Callbacks()) as listener:
        started = time.monotonic()
    assert time.monotonic() - started < 5
    assert not listener._thread.is_alive()
