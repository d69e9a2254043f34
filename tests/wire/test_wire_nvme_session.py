"""The NVMe/TCP host against the small controller of tests/controllers, and against peers that misbehave."""

import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storagetest.errors import RemoteProtocolError, TargetDead
from storagetest.wire.ladder import ladder
from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme.fabrics import ANY_STATIC_CONTROLLER, DISCOVERY_NQN
from storagetest.wire.nvme.structures import (
    ControllerData,
    active_namespaces,
    ana_groups,
    descriptors,
    discovery_entries,
    reservation_status,
)
from storagetest.wire.nvme_tcp import (
    ControllerSession,
    Queue,
    SubsystemEndpoint,
    decoder,
    encode,
    override_field,
)
from storagetest.wire.nvme_tcp.harness import Harness, wwids
from storagetest.wire.nvme_tcp.pdu import (
    R2T,
    C2HData,
    C2HTermReq,
    CapsuleCmd,
    CapsuleResp,
    ICReq,
    ICResp,
    decode,
)
from storagetest.wire.nvme_tcp.queue import Terminated
from storagetest.wire.tcp import PeerClosed, RecordedConnection, ResponseTimeout

sys.path.insert(0, str(Path(__file__).parents[1] / "controllers"))
from nvme_namespace import ControllerConfig
from nvme_tcp_server import NQN, Server

PERSONALITIES = {
    "plain": ControllerConfig(),
    "aligned": ControllerConfig(cpda=7),
    "small": ControllerConfig(maxh2cdata=4096, in_capsule=0, read_piece=512, r2t_piece=512),
    "responses": ControllerConfig(success_flag=False, disable_flow_control=False),
}


def endpoint(port: int, *, deadline: float = 5.0) -> SubsystemEndpoint:
    return SubsystemEndpoint("127.0.0.1", port, NQN, deadline, deadline)


@pytest.mark.parametrize("digests", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("traits", PERSONALITIES.values(), ids=PERSONALITIES)
def test_a_session_writes_and_reads(traits: ControllerConfig, digests: tuple[bool, bool]) -> None:
    icreq = ICReq(hpda=3, header_digest=digests[0], data_digest=digests[1])
    with Server(personality=traits) as server:
        with ControllerSession.connect(endpoint(server.port), icreq=icreq) as session:
            assert session.namespaces() == [1, 2]
            queue = session.io_queue(cattr=4)
            data = bytes(range(256)) * 200
            assert queue.run(io.write(1, 5, 100), data=data).ok
            assert queue.run(io.read(1, 5, 100), reads=len(data)).data == data
            assert queue.run(io.write(1, 5, 1), data=data[:512]).ok
        assert server.subsystem.controllers == {} or not settle(server), "nothing stays"


def settle(server: Server) -> dict[int, object]:
    """What is left of the controllers once their connections are seen to be closed."""
    until = time.monotonic() + 5
    while server.subsystem.controllers and time.monotonic() < until:
        time.sleep(0.01)
    return dict(server.subsystem.controllers)


def test_a_refused_connect_raises_with_its_status() -> None:
    with Server() as server:
        where = SubsystemEndpoint("127.0.0.1", server.port, "nqn.2024-01.example:no", 5)
        with pytest.raises(RemoteProtocolError, match=r"Connect to nqn.* was refused: .* \(1h/82h\)"):
            ControllerSession.connect(where)


def test_a_static_subsystem_is_asked_for_any_static_controller() -> None:
    """It refuses CNTLID FFFFh (Base 6.3); its discovery controller is dynamic (3.1.2)."""
    with Server(personality=ControllerConfig(static=True)) as server:
        with ControllerSession.connect(endpoint(server.port)) as session:
            assert session.namespaces() == [1, 2]
            static = session.endpoint
        assert static.any_controller == ANY_STATIC_CONTROLLER
        with Harness(static, lambda link, what: None) as bench:
            assert bench.session().io_queue()
            assert bench.session(subnqn=DISCOVERY_NQN).controller.raw


def test_a_harness_closes_all_connections() -> None:
    links: list[RecordedConnection] = []
    with Server() as server:
        with Harness(endpoint(server.port), lambda link, what: links.append(link)) as bench:
            bench.session().io_queue()
            bench.queue()
            bench.link()
        assert len(links) == 4
        assert not any(link.is_open for link in links)
        assert not settle(server)


def test_a_ladder_has_every_pdu_of_a_session() -> None:
    links: list[RecordedConnection] = []
    with Server() as server, Harness(endpoint(server.port), lambda link, what: links.append(link)) as bench:
        assert bench.session().controller.raw
        queue = bench.queue()
        queue.send_raw(b"\x08" + bytes(23))
        queue.wait_for_close()
    text = ladder(links[0].transcript, decoder())
    for words in (
        "──▶ ICReq PFV 0",
        "◀── ICResp",
        "Connect NSID",
        "Property Set",
        "C2HData CID 4 0 + 4096 LAST_PDU",
    ):
        assert words in text or words.replace("CID 4", "CID 5") in text
    broken = ladder(links[1].transcript, decoder())
    assert "not decoded" in broken
    assert "C2HTermReq FES 01h (INVALID_HEADER_FIELD) FEI 0x" in broken


# Faults: each ends within its deadline, with the bytes


@contextmanager
def peer(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serve every connection on loopback by ``behave``."""
    done = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    threads = []

    def one(sock: socket.socket) -> None:
        with sock:
            try:
                behave(sock)
                done.wait(5)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=one, args=(sock,), daemon=True))
            threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield listener.getsockname()[1]
    finally:
        done.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join(5)
        for thread in threads:
            thread.join(5)


def answers(*out: bytes) -> Callable[[socket.socket], None]:
    """Receive an ICReq, then send ``out``."""

    def behave(sock: socket.socket) -> None:
        sock.recv(4096)
        for data in out:
            sock.sendall(data)

    return behave


def flood(sock: socket.socket) -> None:
    sock.recv(4096)
    while True:
        sock.sendall(encode(ICResp()) * 100)


def garbage(sock: socket.socket) -> None:
    sock.recv(4096)
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


BAD_LUCK = {
    "closes at once": (lambda sock: sock.close(), PeerClosed, r"closed \((fin|rst)\) before a response"),
    "resets": (
        lambda sock: (
            sock.recv(1),  # a reset before that may meet the connect itself
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)),
            sock.close(),
        ),
        PeerClosed,
        r"closed \(rst\)",
    ),
    "hangs": (lambda sock: None, ResponseTimeout, r"neither responded nor closed within 0\.\d+ s; last sent"),
    "half a PDU": (answers(encode(ICResp())[:60]), ResponseTimeout, "last received: 0{3}"),
    "half a PDU and the end": (
        lambda sock: (answers(encode(ICResp())[:60])(sock), sock.close()),
        PeerClosed,
        "unfinished: 0100",
    ),
    "garbage": (garbage, RemoteProtocolError, r"PDU type 48h is reserved .*48545450"),
    "floods": (flood, RemoteProtocolError, "is not allowed in a connection that is READY"),
    "4 GiB": (
        answers(override_field(encode(ICResp()), "PLEN", 0xFFFFFFFF)),
        RemoteProtocolError,
        "PLEN is 4294967295: 01008000 ffffffff",
    ),
    "PLEN 0": (answers(bytes([1, 0, 128, 0, 0, 0, 0, 0])), RemoteProtocolError, "PLEN is 0"),
    "a TermReq": (
        answers(encode(C2HTermReq(6, 8, encode(ICReq())))),
        RemoteProtocolError,
        "C2HTermReq FES 06h FEI 0x8 instead of a response",
    ),
    "a response": (
        answers(encode(CapsuleResp(bytes(16)))),
        RemoteProtocolError,
        "is not allowed in a connection that is NEW",
    ),
}


@pytest.mark.parametrize(("behave", "error", "words"), BAD_LUCK.values(), ids=BAD_LUCK)
def test_a_faulty_peer_ends_within_the_deadline(
    behave: Callable[[socket.socket], None], error: type[Exception], words: str
) -> None:
    began = time.monotonic()
    with (
        peer(behave) as port,
        RecordedConnection.connect("127.0.0.1", port, deadline=2, limit=1 << 20) as link,
        pytest.raises(error, match=words),
    ):
        Queue.open(link, deadline=0.4).receive(deadline=0.4)
    assert time.monotonic() - began < 5


def test_connect_to_a_closed_port_raises_target_dead() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(TargetDead, match="Connection refused"):
        ControllerSession.connect(endpoint(port))


@pytest.fixture
def pair() -> Iterator[tuple[Queue, socket.socket]]:
    """A queue after its ICResp, and the other end of its connection, to be played by the test."""
    ours, theirs = socket.socketpair()
    theirs.sendall(encode(ICResp(maxh2cdata=4096)))
    queue = Queue.open(RecordedConnection(ours), deadline=2)
    theirs.recv(128)
    yield queue, theirs
    queue.close()
    theirs.close()


def resp(cid: int, status: int = 0) -> bytes:
    return encode(CapsuleResp(Cqe(cid, status).encode()))


BROKEN_RULES = {
    "unknown CID": ([resp(77)], "CapsuleResp of command 77, which is not outstanding"),
    "data gap": ([encode(C2HData(1, 4, b"abcd"))], "C2HData at 4, but the last one ended at 0"),
    "too much data": ([encode(C2HData(1, 0, bytes(1028)))], "C2HData up to 1028 of a transfer of 1024 bytes"),
    "data after LAST": (
        [encode(C2HData(1, 0, bytes(512))), encode(C2HData(1, 512, bytes(512)))],
        "after the one with LAST_PDU",
    ),
    "no LAST": ([encode(C2HData(1, 0, bytes(1024), last=False)), resp(1)], "no C2HData had LAST_PDU"),
    "SUCCESS without LAST": (
        [encode(C2HData(1, 0, bytes(512), last=False, success=True))],
        "SUCCESS but without LAST_PDU",
    ),
    "R2T for a read": ([encode(R2T(1, 0, 0, 512))], "R2T for 512 bytes up to 512 of 0"),
    "TermReq": ([encode(C2HTermReq(1, 4, b"abc"))], "C2HTermReq FES 01h FEI 0x4"),
}


@pytest.mark.parametrize(("wire", "words"), BROKEN_RULES.values(), ids=BROKEN_RULES)
def test_a_rule_broken_by_the_controller_raises(
    pair: tuple[Queue, socket.socket], wire: list[bytes], words: str
) -> None:
    queue, theirs = pair
    cid = queue.submit(io.read(1, 0, 2), reads=1024)
    assert cid == 1
    theirs.sendall(b"".join(wire))
    with pytest.raises(RemoteProtocolError, match=words):
        queue.wait(cid)


def test_an_r2t_outside_the_transfer_raises(pair: tuple[Queue, socket.socket]) -> None:
    queue, theirs = pair
    cid = queue.submit(io.write(1, 0, 32), data=bytes(16384), inside=False)
    theirs.sendall(encode(R2T(cid, 5, 0, 8192)) + encode(R2T(cid, 6, 4096, 8192)))
    with pytest.raises(RemoteProtocolError, match="R2T at 4096, but the last one ended at 8192"):
        queue.wait(cid)


def test_a_termreq_raises_terminated(pair: tuple[Queue, socket.socket]) -> None:
    queue, theirs = pair
    cid = queue.submit(admin.keep_alive())
    theirs.sendall(encode(C2HTermReq(3, 0xABCD)))
    with pytest.raises(Terminated) as caught:
        queue.wait(cid)
    assert caught.value.pdu == C2HTermReq(3, 0xABCD)


def test_h2cdata_pdus_are_within_maxh2cdata(pair: tuple[Queue, socket.socket]) -> None:
    queue, theirs = pair
    cid = queue.submit(io.write(1, 0, 32), data=bytes(range(256)) * 64, inside=False)
    theirs.sendall(encode(R2T(cid, 5, 0, 10000)) + encode(R2T(cid, 6, 10000, 6384)) + resp(cid))
    assert queue.wait(cid).ok
    theirs.settimeout(2)
    raw, seen = b"", []
    while len(seen) < 6:
        raw += theirs.recv(65536)
        while len(raw) >= 8 and len(raw) >= int.from_bytes(raw[4:8], "little"):
            length = int.from_bytes(raw[4:8], "little")
            seen.append(decode(raw[:length]).pdu)
            raw = raw[length:]
    assert isinstance(seen[0], CapsuleCmd)
    assert Command.decode(seen[0].sqe).dptr[15] == 0x5A
    assert [(one.ttag, one.offset, len(one.data), one.last) for one in seen[1:]] == [
        (5, 0, 4096, False), (5, 4096, 4096, False), (5, 8192, 1808, True),
        (6, 10000, 4096, False), (6, 14096, 2288, True),
    ]  # fmt: skip


# Structures are total, too


def test_short_structures_are_protocol_errors() -> None:
    for read in (ControllerData.decode, active_namespaces, ana_groups, discovery_entries, reservation_status):
        with pytest.raises(RemoteProtocolError):
            read(b"\1")  # type: ignore[operator]
    assert descriptors(bytes(16)) == []
    with pytest.raises(RemoteProtocolError):
        descriptors(b"\3\x10\0\0\1\2")
    with pytest.raises(RemoteProtocolError):
        ana_groups(struct.pack("<QH6x", 1, 1) + struct.pack("<II", 1, 1000).ljust(32, b"\0"))


def test_wwids_are_the_kernels_names() -> None:
    with Server() as server, ControllerSession.connect(endpoint(server.port)) as session:
        assert "uuid.22222222-2222-4222-8222-222222222201" in wwids(session, 1)


def test_a_status_has_a_name() -> None:
    assert str(Cqe(3, StatusCode.LBA_OUT_OF_RANGE, dnr=True)) == "CID 3 LBA_OUT_OF_RANGE (0h/80h) DNR"
