"""The link to a target: TCP, and TLS with a pre-shared key by OpenSSL."""

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storagetest.errors import LocalProtocolError, RemoteProtocolError, TargetDead
from storagetest.wire.ladder import ladder
from storagetest.wire.openssl_psk import PskTls
from storagetest.wire.pcap import pcap_of
from storagetest.wire.tcp import Chunk, RecordedConnection, ResponseTimeout


@contextmanager
def server(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """A peer on loopback that does ``behave`` with its first connection."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                behave(sock)
                done.wait(5)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            done.set()
            thread.join(5)


def connect(port: int, **more: int) -> RecordedConnection:
    return RecordedConnection.connect("127.0.0.1", port, deadline=5, **more)


def test_the_transcript_has_both_directions() -> None:
    with server(lambda sock: sock.sendall(sock.recv(100).upper())) as port, connect(port) as link:
        link.send(b"ping")
        assert link.receive(deadline=5) == b"PING"
        assert [(chunk.outgoing, chunk.data) for chunk in link.transcript] == [
            (True, b"ping"),
            (False, b"PING"),
        ]


def test_a_timeout_shows_the_last_bytes() -> None:
    with server(lambda sock: None) as port, connect(port) as link:
        link.send(b"\x01\x02\x03\x04\x05")
        began = time.monotonic()
        with pytest.raises(
            ResponseTimeout, match=r"neither responded nor closed within 0\.05 s; last sent: 01020304 05"
        ):
            link.receive(deadline=0.05)
        assert time.monotonic() - began < 5


def test_closed_how_distinguishes_fin_and_reset() -> None:
    def reset(sock: socket.socket) -> None:
        sock.recv(1)  # not before the other side is connected
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()

    with server(lambda sock: sock.close()) as port, connect(port) as link:
        assert link.receive(deadline=5) == b""
        assert link.closed_how == "fin"
    with server(reset) as port, connect(port) as link:
        link.send(b"!")
        assert link.receive(deadline=5) == b""
        assert link.closed_how == "rst"
        link.send(b"closed")  # no error: the peer's last bytes are still received
        assert link.receive(deadline=5) == b""


def test_the_last_bytes_before_a_reset_are_received() -> None:
    def speak_and_go(sock: socket.socket) -> None:
        sock.sendall(b"last words")
        sock.close()  # with our bytes unread: a reset

    with server(speak_and_go) as port, connect(port) as link:
        link.send(b"unread")
        received = b""
        while data := link.receive(deadline=5):
            received += data
        assert received == b"last words"


def test_receiving_more_than_the_limit_raises() -> None:
    def flood(sock: socket.socket) -> None:
        try:
            while True:
                sock.sendall(b"\xee" * 65536)
        except OSError:
            return

    wanted = pytest.raises(RemoteProtocolError, match=r"sent more than 1048576 bytes.*\n?.*eeeeeeee")
    with server(flood) as port, connect(port, limit=1 << 20) as link, wanted:
        while link.receive(deadline=5):
            pass


def test_send_to_a_peer_that_reads_nothing_times_out() -> None:
    wanted = pytest.raises(ResponseTimeout, match="did not accept all of")
    with server(lambda sock: None) as port, connect(port) as link, wanted:
        link.send(bytes(64 << 20), deadline=0.2)


def test_a_closed_port_raises_target_dead() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(TargetDead, match=f"127.0.0.1:{port}: cannot connect: Connection refused"):
        connect(port)


def test_ladder_formats_each_pdu() -> None:
    def decoder(outgoing: bool, data: bytes) -> list[tuple[str, list[str]]]:
        if data == b"bad":
            raise RemoteProtocolError("no such word")
        return [(data.decode(), ["a detail"])]

    chunks = [Chunk(10.0, True, b"hello"), Chunk(10.0015, False, b"bad"), Chunk(10.002, False, b"more")]
    text = ladder(chunks, decoder, title="admin:")
    assert text.splitlines() == [
        "admin:",
        "     0.000  ──▶ hello",
        "                a detail",
        "     1.500  ◀── not decoded: no such word",
        "     1.500  ◀── 3 bytes",
        "                0000  626164",
        "     2.000  ◀── 4 bytes",
        "                0000  6d6f7265",
    ]


def test_a_capture_holds_every_byte_in_order() -> None:
    chunks = [Chunk(1.5, True, b"a" * 40000), Chunk(1.6, False, b"b" * 10)]
    other = [Chunk(1.55, True, b"c" * 5)]
    raw = pcap_of([chunks, other], server_port=4420)
    assert struct.unpack_from("<I", raw)[0] == 0xA1B23C4D
    at, sent, times = 24, {True: b"", False: b""}, []
    while at < len(raw):
        seconds, nano, length, _ = struct.unpack_from("<IIII", raw, at)
        frame = raw[at + 16 : at + 16 + length]
        ip_length, source = struct.unpack_from("!H", frame, 16)[0], struct.unpack_from("!H", frame, 34)[0]
        assert ip_length == length - 14
        sent[source != 4420] += frame[54:]
        times.append(seconds + nano / 1e9)
        at += 16 + length
    assert sent == {True: b"a" * 40000 + b"c" * 5, False: b"b" * 10}
    assert times == sorted(times)


TLS = PskTls("identity", bytes(32))
WHOLE = r"CONNECTION ESTABLISHED\nProtocol version: TLSv1.3\nCiphersuite: TLS_AES_128_GCM_SHA256\n"


@pytest.fixture
def fake_openssl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that installs a shell script as ``openssl``."""

    def install(script: str) -> None:
        program = tmp_path / "openssl"
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return install


def test_connect_returns_after_the_handshake_lines(fake_openssl) -> None:
    fake_openssl(f"printf '{WHOLE}' >&2; exec cat")
    with TLS.connect("127.0.0.1", 1, 30) as tunnel:
        tunnel.settimeout(30)
        tunnel.sendall(b"echo")
        assert tunnel.recv(4) == b"echo"


@pytest.mark.parametrize("length", range(0, len(WHOLE.replace(r"\n", "n")), 7))
def test_a_child_that_exits_within_a_line_fails_the_handshake(fake_openssl, length: int) -> None:
    text = WHOLE.replace(r"\n", "\n")[:length]
    fake_openssl(f"printf '%s' '{text}' >&2; exit 0")
    with pytest.raises(RemoteProtocolError, match="TLS: the handshake failed"):
        TLS.connect("127.0.0.1", 1, 30)


def test_another_cipher_suite_fails_the_handshake(fake_openssl) -> None:
    fake_openssl(f"printf '{WHOLE.replace('128', '256')}' >&2; exec cat")
    with pytest.raises(RemoteProtocolError, match="TLS: the handshake failed"):
        TLS.connect("127.0.0.1", 1, 30)


@pytest.mark.parametrize("script", ["exec cat", "exec yes >&2"], ids=["silent", "endless output"])
def test_a_child_that_does_not_end_is_killed_after_the_timeout(fake_openssl, script: str) -> None:
    fake_openssl(script)
    with pytest.raises(RemoteProtocolError, match="TLS: the handshake is not over in time"):
        TLS.connect("127.0.0.1", 1, 0.2)


def test_more_early_data_than_a_pipe_holds_is_refused(fake_openssl) -> None:
    fake_openssl("exit 0")
    with pytest.raises(LocalProtocolError, match="do not fit into a pipe"):
        TLS.send_early_data("127.0.0.1", 1, 30, bytes(1 << 20))
