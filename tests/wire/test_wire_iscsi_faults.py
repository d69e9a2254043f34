"""The iSCSI driver against peers that close, hang, flood, talk noise or announce too much: on loopback."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.iscsi.codes import TaskFunction
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import DataIn, LoginResponse, NopIn, ScsiResponse
from storagetest.wire.tcp import RecordedConnection

NOP = NopIn(exp_cmd_sn=1, max_cmd_sn=64).encode()
PING = NopIn(ttt=5, exp_cmd_sn=1, max_cmd_sn=64).encode()
DATA = DataIn(itt=0, final=False, data=bytes(512), exp_cmd_sn=1, max_cmd_sn=64).encode()

Behave = Callable[[socket.socket], None]


def floods(with_what: bytes) -> Behave:
    def behave(sock: socket.socket) -> None:
        while True:
            sock.sendall(with_what * 256)

    return behave


@contextlib.contextmanager
def target(behave: Behave, *, deadline: float = 0.3) -> Iterator[Initiator]:
    """Yield an initiator in full feature phase whose target runs ``behave`` on its first data."""
    over = threading.Event()

    def serve() -> None:
        sock, _ = listener.accept()
        with sock, contextlib.suppress(OSError):
            sock.recv(4096)
            behave(sock)
            over.wait(10)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        link = RecordedConnection.connect("127.0.0.1", listener.getsockname()[1], deadline=5)
        made = Initiator(link, name="iqn.2024-01.org.storagetest:t", deadline=deadline)
        made.enter_full_feature({"HeaderDigest": "None", "DataDigest": "None"}, max_recv=8192)
        try:
            yield made
        finally:
            over.set()
            link.close()
            thread.join(10)


ASKS: list[Callable[[Initiator], object]] = [
    lambda it: it.logout(),
    lambda it: it.ping(),
    lambda it: it.command(bytes(16)),
    lambda it: it.task(TaskFunction.ABORT_TASK),
    lambda it: it.text(("SendTargets", "All")),
    lambda it: it.expect(ScsiResponse),
]
NAMES = ["logout", "ping", "command", "task", "text", "expect"]

BAD_LUCK: dict[str, Behave] = {
    "closes": lambda sock: sock.close(),
    "hangs": lambda sock: None,
    "nops": floods(NOP),
    "pings": floods(PING),
    "noise": lambda sock: sock.sendall(bytes(range(1, 256)) * 16),
    "16 MiB - 1": lambda sock: sock.sendall(NopIn().parts().override_fields(data_length=0xFFFFFF).bhs),
    "a login": lambda sock: sock.sendall(LoginResponse(itt=0).encode()),
}


@pytest.mark.parametrize("ask", ASKS, ids=NAMES)
@pytest.mark.parametrize("behave", BAD_LUCK.values(), ids=BAD_LUCK)
def test_every_request_ends_and_names_the_peer(behave: Behave, ask: Callable[[Initiator], object]) -> None:
    with target(behave) as made:
        made.send_raw(bytes(48))
        with pytest.raises(RemoteProtocolError, match=r"127\.0\.0\.1:\d+|iSCSI"):
            ask(made)


def test_an_endless_response_to_a_command_raises() -> None:
    with target(floods(DATA), deadline=0.1) as made:
        command = made.start(bytes(16), read=512, itt=0)
        with pytest.raises(
            RemoteProtocolError, match=r"the end of ScsiCommand.*did not come, among \d+ PDUs"
        ):
            made.finish(command)


def test_probe_alive_raises_on_a_flood() -> None:
    with target(floods(NOP)) as made:
        made.send_raw(bytes(48))
        with pytest.raises(RemoteProtocolError, match=r"the response to a ping did not come, among \d+ PDUs"):
            made.probe_alive()


def test_data_at_4_gib_raise_without_allocation() -> None:
    far = DataIn(
        itt=7, has_status=True, buffer_offset=0xFFFFFE00, data=bytes(512), exp_cmd_sn=1, max_cmd_sn=64
    )
    refused = pytest.raises(RemoteProtocolError, match="reaches to byte 4294967296")
    with target(lambda sock: sock.sendall(far.encode())) as made, refused:
        made.finish(made.start(bytes(16), read=512, itt=7))
