"""RPC: records whole, byte by byte and with trailing data; messages; a client against NFS-Ganesha."""

import socket
import threading
from collections.abc import Iterator

import pytest
from ganesha import EXPORT, Ganesha, ganesha
from hypothesis import given
from hypothesis import strategies as st

from storagetest.errors import RemoteProtocolError
from storagetest.wire.ladder import ladder
from storagetest.wire.nfs3.mount import MOUNT_V3, mountstat3
from storagetest.wire.nfs3.types import NFS_V3, GETATTR3args, ftype3, nfs_fh3
from storagetest.wire.nfs4.types import NFS_V4, COMPOUND4args, nfs_argop4, nfs_opnum4, nfsstat4
from storagetest.wire.rpc import RecordReceiver, RpcConnection, RpcError, RpcRecord, auth_sys, fragment, frame
from storagetest.wire.rpc.describe import make_decoder
from storagetest.wire.rpc.message import decode_reply, encode_call, encode_reply, encode_status
from storagetest.wire.rpc.types import (
    accept_stat,
    accepted_data,
    auth_stat,
    mismatch_info,
    reject_stat,
    rejected_reply,
)
from storagetest.wire.tcp import PeerClosed, RecordedConnection, ResponseTimeout
from storagetest.wire.xdr import Program


@pytest.mark.parametrize("sizes", [(), (4,), (0, 3, 0), (1,) * 5])
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_record_is_the_same_however_it_comes(sizes: tuple[int, ...], step: int) -> None:
    stream = frame(b"a record", *sizes) + frame(b"") + fragment(b"half", last=False)
    receiver, records = RecordReceiver(), []
    for at in range(0, len(stream), step):
        receiver.receive_data(stream[at : at + step])
        while isinstance(record := receiver.next_event(), RpcRecord):
            records.append(record)
    assert records == [RpcRecord(b"a record", (*sizes, 8 - sum(sizes))), RpcRecord(b"", (0,))]
    assert receiver.pending == b"half"


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_any_bytes_are_records_or_the_peers_fault(chunks: list[bytes]) -> None:
    receiver = RecordReceiver(limit=64)
    for chunk in chunks:
        receiver.receive_data(chunk)
        try:
            while isinstance(record := receiver.next_event(), RpcRecord):
                assert len(record.data) == sum(record.fragments) <= 64
        except RemoteProtocolError:
            return


def test_a_record_over_the_limit_is_the_peers_fault() -> None:
    receiver = RecordReceiver(limit=64)
    receiver.receive_data(fragment(bytes(40), last=False) + fragment(bytes(40)))
    with pytest.raises(RemoteProtocolError, match="more than 64 bytes is announced"):
        receiver.next_event()


GETATTR = NFS_V3.procedure("GETATTR")


def test_every_field_of_a_call_can_be_overridden() -> None:
    call = encode_call(NFS_V3, GETATTR, GETATTR3args(nfs_fh3(b"x")), xid=7, cred=auth_sys(1, 2, (3, 4)))
    changed = call.override("body.value.rpcvers", 3).override("object.data.length", 1 << 31)
    assert changed.data[:12] == bytes.fromhex("00000007 00000000 00000003")
    assert changed.data[-8:] == bytes.fromhex("80000000 78000000")
    assert {"xid", "body.mtype", "body.value.cred.flavor", "body.value.verf.body.length"} <= set(call.spans)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (accepted_data(accept_stat.PROG_MISMATCH, mismatch_info(3, 4)), "PROG_MISMATCH"),
        (accepted_data(accept_stat.GARBAGE_ARGS), "GARBAGE_ARGS"),
        (rejected_reply(reject_stat.RPC_MISMATCH, mismatch_info(2, 2)), "RPC_MISMATCH"),
        (rejected_reply(reject_stat.AUTH_ERROR, auth_stat.AUTH_TOOWEAK), "AUTH_ERROR AUTH_TOOWEAK"),
    ],
)
def test_a_reply_has_a_status(data: accepted_data | rejected_reply, status: str) -> None:
    reply = decode_reply(encode_status(9, data).data, GETATTR)
    assert (reply.xid, reply.status, reply.result) == (9, status, None)
    assert (reply.mismatch is not None) == ("MISMATCH" in status)


class Pair:
    """A connection whose other end sends what a test gives it."""

    def __init__(self) -> None:
        near, self.far = socket.socketpair()
        self.link = RecordedConnection(near)
        self.client = RpcConnection(self.link, NFS_V3, deadline=0.3)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.link.close()
    made.far.close()


def test_replies_out_of_order_belong_to_their_calls(pair: Pair) -> None:
    null = NFS_V3.procedure("NULL")
    first, second = (pair.client.send(null, pair.client.encode("NULL")) for _ in range(2))
    pair.far.sendall(
        frame(encode_reply(second, null, None).data) + frame(encode_reply(first, null, None).data, 5)
    )
    assert pair.client.receive(first).xid == first
    assert pair.client.receive().xid == second


def test_a_reply_to_no_call_is_the_servers_fault(pair: Pair) -> None:
    xid = pair.client.send(NFS_V3.procedure("NULL"), pair.client.encode("NULL"))
    pair.far.sendall(frame(encode_reply(xid + 1, NFS_V3.procedure("NULL"), None).data))
    with pytest.raises(RemoteProtocolError, match="which no open call has"):
        pair.client.receive(xid)


def test_silence_and_a_close_are_different_errors(pair: Pair) -> None:
    xid = pair.client.send(NFS_V3.procedure("NULL"), pair.client.encode("NULL"))
    with pytest.raises(ResponseTimeout):
        pair.client.receive(xid)
    pair.far.close()
    with pytest.raises(PeerClosed):
        pair.client.receive(xid)


def test_a_call_of_the_server_is_answered(pair: Pair) -> None:
    seen = []

    def on_call(xid: int, body: object, argument: bytes) -> bytes:
        seen.append((xid, argument))
        return encode_reply(xid, NFS_V3.procedure("NULL"), None).data

    null = NFS_V3.procedure("NULL")
    pair.client.on_call = on_call
    xid = pair.client.send(null, pair.client.encode("NULL"))
    pair.far.sendall(
        frame(encode_call(NFS_V3, null, xid=99).data) + frame(encode_reply(xid, null, None).data)
    )
    assert pair.client.receive(xid).status == "SUCCESS"
    assert seen == [(99, b"")]


# Against a real server


@pytest.fixture(scope="module")
def server() -> Iterator[Ganesha]:
    with ganesha() as made:
        yield made


def connect(port: int, program: Program) -> RpcConnection:
    link = RecordedConnection.connect("127.0.0.1", port, deadline=10)
    return RpcConnection(link, program, cred=auth_sys())


def test_a_file_system_is_mounted_and_its_root_read(server: Ganesha) -> None:
    mount, nfs = connect(server.mount, MOUNT_V3), connect(server.nfs, NFS_V3)
    with mount.link, nfs.link:
        mount.call("NULL")
        mounted = mount.call("MNT", EXPORT.encode())
        assert mounted.fhs_status == mountstat3.MNT3_OK
        root = nfs.call("GETATTR", GETATTR3args(nfs_fh3(mounted.value.fhandle)))
        assert root.value.obj_attributes.type == ftype3.NF3DIR
        text = ladder(nfs.link.transcript, make_decoder())
        assert "NFS_V3 GETATTR" in text
        assert "type=NF3DIR" in text
        assert not [*mount.faults, *nfs.faults]


def test_an_nfsv4_compound_is_executed(server: Ganesha) -> None:
    nfs = connect(server.nfs, NFS_V4)
    with nfs.link:
        done = nfs.call("COMPOUND", COMPOUND4args(b"tag", 0, (nfs_argop4(nfs_opnum4.OP_PUTROOTFH),)))
        assert done.status == nfsstat4.NFS4_OK
        assert done.tag == b"tag"
        assert [one.resop for one in done.resarray] == [nfs_opnum4.OP_PUTROOTFH]


def test_a_version_that_the_server_lacks_is_an_error(server: Ganesha) -> None:
    nfs = connect(server.nfs, Program(NFS_V3.number, 9, "NFS_V9", NFS_V3.procedures))
    with nfs.link, pytest.raises(RpcError, match="NFS_V9 NULL ended with PROG_MISMATCH") as caught:
        nfs.call("NULL")
    assert caught.value.reply.mismatch == mismatch_info(3, 4)


def test_two_threads_use_a_connection_of_their_own(server: Ganesha) -> None:
    def ask() -> None:
        nfs = connect(server.nfs, NFS_V3)
        with nfs.link:
            for _ in range(50):
                nfs.call("NULL")
        done.append(1)

    done: list[int] = []
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(done) == 2
