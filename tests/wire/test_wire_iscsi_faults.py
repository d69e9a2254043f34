"""The iSCSI driver against peers that close, hang, flood, talk noise or announce too much: on loopback."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.iscsi.codes import NO_TAG, AsyncEvent, TaskFunction
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.errors import AnnouncedClose
from storagetest.wire.iscsi.initiator import OVERTAKEN_TIMEOUT, RETRIES, Initiator
from storagetest.wire.iscsi.pdu import (
    AsyncMessage,
    DataIn,
    LoginResponse,
    LogoutResponse,
    NopIn,
    NopOut,
    ReadyToTransfer,
    Reject,
    ScsiResponse,
    TextRequest,
    TextResponse,
    decode,
)
from storagetest.wire.scsi.codes import ScsiStatus
from storagetest.wire.tcp import PeerClosed, RecordedConnection

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


@pytest.mark.parametrize("left", [0, 1], ids=["closed", "open"])
def test_the_rest_of_a_text_is_asked_for_within_the_command_window(left: int) -> None:
    """RFC 7143 4.2.2.1: the request is immediate if its CmdSN would be over MaxCmdSN."""
    requests: list[bytes] = []

    def behave(sock: socket.socket) -> None:
        part = TextResponse(itt=1, ttt=9, final=False, data=b"A=1\0", exp_cmd_sn=2, max_cmd_sn=1 + left)
        sock.sendall(part.encode())
        requests.append(sock.recv(4096))
        rest = TextResponse(itt=1, stat_sn=1, data=b"B=2\0", exp_cmd_sn=2 + left, max_cmd_sn=64)
        sock.sendall(rest.encode())

    with target(behave, deadline=5) as made:
        made.numbers.cmd_sn = 1
        assert made.text(("A", "?")) == (("A", "1"), ("B", "2"))
    assert [bool(request[0] & 0x40) for request in requests] == [not left]


def test_a_request_waits_until_the_command_window_is_open() -> None:
    """RFC 7143 4.2.2.1, 11.19: a NOP-In opens it; what comes before that is returned later."""
    early: list[bytes] = []

    def behave(sock: socket.socket) -> None:
        sock.sendall(NopIn(itt=7, exp_cmd_sn=1, max_cmd_sn=0).encode())
        sock.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            early.append(sock.recv(48))
        sock.settimeout(5)
        sock.sendall(ScsiResponse(itt=8, stat_sn=1, exp_cmd_sn=1, max_cmd_sn=0).encode())
        sock.sendall(NopIn(stat_sn=2, exp_cmd_sn=1, max_cmd_sn=1).encode())
        sock.recv(48)
        sock.sendall(ScsiResponse(itt=9, stat_sn=2, exp_cmd_sn=2, max_cmd_sn=64).encode())

    with target(behave, deadline=5) as made:
        made.send_raw(bytes(48))
        assert made.expect(NopIn).itt == 7
        made.start(bytes(16), itt=9)
        assert [made.expect(ScsiResponse).itt for _ in range(2)] == [8, 9]
    assert not early


def test_a_window_that_stays_closed_is_waited_for_once() -> None:
    with target(lambda sock: sock.sendall(NopIn(itt=7, exp_cmd_sn=1, max_cmd_sn=0).encode())) as made:
        made.send_raw(bytes(48))
        assert made.expect(NopIn).itt == 7
        begun = time.monotonic()
        for _ in range(10):
            made.start(bytes(16))
        assert made.deadline <= time.monotonic() - begun < 5 * made.deadline


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


def test_pings_of_the_target_after_the_response_to_ours_end_the_probe() -> None:
    def behave(sock: socket.socket) -> None:
        sock.sendall(NopIn(itt=1, exp_cmd_sn=2, max_cmd_sn=64).encode())
        floods(NOP)(sock)

    with target(behave) as made:
        made.start(bytes(6), itt=2)
        after = made.probe_alive()
    assert not after.closed
    assert not after.unresponsive


def test_a_ping_has_little_time_after_a_reject_that_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines: list[float] = []
    receive = Initiator.receive

    def recorded(self: Initiator, *, deadline: float, expected: str) -> Pdu | None:
        deadlines.append(deadline)
        return receive(self, deadline=deadline, expected=expected)

    monkeypatch.setattr(Initiator, "receive", recorded)
    reject = Reject(reason=5, exp_cmd_sn=1, max_cmd_sn=64).encode()
    with target(lambda sock: sock.sendall(reject), deadline=60) as made:
        after = made.probe_alive(reject_decides=True)
    assert after.reject
    assert after.unresponsive
    assert all(each <= OVERTAKEN_TIMEOUT for each in deadlines[1:])


def test_data_at_4_gib_raise_without_allocation() -> None:
    far = DataIn(
        itt=7, has_status=True, buffer_offset=0xFFFFFE00, data=bytes(512), exp_cmd_sn=1, max_cmd_sn=64
    )
    refused = pytest.raises(RemoteProtocolError, match="reaches to byte 4294967296")
    with target(lambda sock: sock.sendall(far.encode())) as made, refused:
        made.finish(made.start(bytes(16), read=512, itt=7))


# What a target may send of its own accord (RFC 7143 11.9, 11.19), at the worst moment: before a response


WINDOW = {"exp_cmd_sn": 1, "max_cmd_sn": 64}

LEGAL = {
    "a NOP-In that wants no response": NopIn(stat_sn=0, **WINDOW),
    "a NOP-In that wants one": NopIn(stat_sn=0, ttt=5, **WINDOW),
    **{f"AsyncEvent {event.name}": AsyncMessage(event=event, stat_sn=0, **WINDOW) for event in AsyncEvent},
}


def answers(first: Pdu) -> Behave:
    """Send ``first``, and then the response that is due."""
    stat_sn = 1 if isinstance(first, AsyncMessage) else 0
    answer = replace(ScsiResponse(itt=1, exp_cmd_sn=2, max_cmd_sn=64), stat_sn=stat_sn)
    return lambda sock: sock.sendall(first.encode() + answer.encode())


@pytest.mark.parametrize("pdu", LEGAL.values(), ids=LEGAL)
def test_what_a_target_sends_of_its_own_accord_ends_no_command(pdu: Pdu) -> None:
    with target(answers(pdu), deadline=5) as initiator:
        assert initiator.command(bytes(16)).status == 0
        assert not initiator.validator.violations, initiator.validator.violations_of()
        assert initiator.async_messages == ([pdu] if isinstance(pdu, AsyncMessage) else [])


@pytest.mark.parametrize("pdu", LEGAL.values(), ids=LEGAL)
def test_a_probe_does_not_count_it_as_a_response(pdu: Pdu) -> None:
    def behave(sock: socket.socket) -> None:
        stat_sn = 1 if isinstance(pdu, AsyncMessage) else 0
        sock.sendall(pdu.encode() + NopIn(itt=1, stat_sn=stat_sn, **WINDOW).encode())

    with target(behave, deadline=5) as initiator:
        after = initiator.probe_alive()
    assert (after.pdus, after.closed, after.unresponsive) == ((), False, False)


@pytest.mark.parametrize("event", [AsyncEvent.RENEGOTIATE, AsyncEvent.TASK_TERMINATION])
def test_the_initiator_does_what_the_event_requires(event: AsyncEvent) -> None:
    """11.9.1: a Text Request for 4, a NOP-Out that acknowledges the message for 5."""
    seen: list[Pdu] = []

    def behave(sock: socket.socket) -> None:
        sock.sendall(AsyncMessage(event=event, lun=3, stat_sn=0, **WINDOW).encode())
        raw = sock.recv(48, socket.MSG_WAITALL)
        seen.append(decode(raw))
        if isinstance(seen[0], TextRequest):
            sock.sendall(TextResponse(itt=seen[0].itt, stat_sn=1, **WINDOW).encode())
        stat_sn = 1 + isinstance(seen[0], TextRequest)
        sock.sendall(ScsiResponse(itt=1, stat_sn=stat_sn, exp_cmd_sn=2, max_cmd_sn=64).encode())

    with target(behave, deadline=5) as initiator:
        assert initiator.command(bytes(16)).status == 0
        assert not initiator.validator.violations, initiator.validator.violations_of()
    kind = TextRequest if event is AsyncEvent.RENEGOTIATE else NopOut
    assert isinstance(seen[0], kind)
    assert seen[0].exp_stat_sn == 1, "it acknowledges the message"
    if isinstance(seen[0], NopOut):
        assert (seen[0].itt, seen[0].lun) == (NO_TAG, 3)


@pytest.mark.parametrize("event", AsyncEvent)
def test_a_close_is_announced_by_events_1_to_3_alone(event: AsyncEvent) -> None:
    def behave(sock: socket.socket) -> None:
        sock.sendall(AsyncMessage(event=event, stat_sn=0, **WINDOW).encode())
        sock.shutdown(socket.SHUT_WR)

    with target(behave, deadline=5) as initiator, pytest.raises(PeerClosed, match="closed before") as closed:
        initiator.command(bytes(16))
    assert isinstance(closed.value, AnnouncedClose) == (1 <= event <= 3)


def test_a_ping_after_the_logout_is_not_answered() -> None:
    """11.14: after the Logout Request an initiator sends no new request on this connection."""
    seen = []

    def behave(sock: socket.socket) -> None:
        sock.sendall(PING + LogoutResponse(itt=1, stat_sn=0, **WINDOW).encode())
        sock.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            seen.append(sock.recv(48))

    with target(behave, deadline=5) as initiator:
        assert initiator.logout().response == 0
    assert not any(seen)


# BUSY (SAM-5 5.3.1)


@pytest.mark.parametrize("last", [ReadyToTransfer, ScsiResponse])
def test_a_write_that_is_busy_is_sent_again(last: type[Pdu]) -> None:
    """Until its R2T comes; then, or if it stays BUSY, the caller has the outcome."""

    def behave(sock: socket.socket) -> None:
        for tag in range(1, RETRIES + 2):
            busy = ScsiResponse(itt=tag, status=ScsiStatus.BUSY, stat_sn=tag - 1)
            answer = ReadyToTransfer(itt=tag, ttt=9, stat_sn=tag - 1, desired_length=512)
            sock.sendall(replace(answer if tag == 3 and last is ReadyToTransfer else busy, **WINDOW).encode())
            sock.recv(48, socket.MSG_WAITALL)

    with target(behave, deadline=5) as made:
        if last is ReadyToTransfer:
            command, r2t = made.start_write(bytes(16), 512)
            assert (command.itt, r2t.itt, r2t.ttt) == (3, 3, 9)
            return
        with pytest.raises(RemoteProtocolError, match="expected a ReadyToTransfer, received ScsiResponse"):
            made.start_write(bytes(16), 512)
