"""iSCSI initiator over a :class:`~storagetest.wire.tcp.RecordedConnection`: log in, run commands, log out.

It follows RFC 7143 unless a case overrides something: :meth:`Initiator.send` numbers a PDU and takes
overrides for any field, digest or padding. If the target closes before a response that is due, or sends
another PDU, the method raises :class:`~storagetest.errors.RemoteProtocolError`. Behaviour that the target may
choose is returned (:class:`ProbeOutcome`).

A target may send a NOP-In (RFC 7143 11.19) and an Asynchronous Message (11.9) of its own at any time.
:meth:`Initiator.receive` handles both as 11.9.1 and 11.18 require and does not return them; the messages are
in :attr:`Initiator.async_messages`. After one that announces the end of the connection, a close is no fault
of the target (:class:`AnnouncedClose`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from storagetest.errors import RemoteProtocolError
from storagetest.wire.bitfields import Value
from storagetest.wire.hexdump import hex_short
from storagetest.wire.iscsi.codes import NO_TAG, AsyncEvent, TaskFunction
from storagetest.wire.iscsi.connection import CLOSED, NEED_DATA, PduReceiver, ReceivedPdu
from storagetest.wire.iscsi.encoding import EncodedPdu, Pdu, flat_lun
from storagetest.wire.iscsi.errors import AnnouncedClose, LoginRefused, ResponseOverdue
from storagetest.wire.iscsi.keys import Pairs, format_text, numeric, parse_text
from storagetest.wire.iscsi.login import DEFAULT_OFFER, Credentials, LoginNegotiation, whole_text
from storagetest.wire.iscsi.outcomes import ProbeOutcome, ScsiCompletion, completion, not_offered
from storagetest.wire.iscsi.pdu import (
    AsyncMessage,
    DataIn,
    DataOut,
    LoginRequest,
    LoginResponse,
    LogoutRequest,
    LogoutResponse,
    NopIn,
    NopOut,
    ReadyToTransfer,
    Reject,
    Request,
    ScsiCommand,
    ScsiResponse,
    TaskRequest,
    TaskResponse,
    TextRequest,
    TextResponse,
)
from storagetest.wire.iscsi.validator import (
    ConnectionPhase,
    Parameters,
    SequenceNumbers,
    SessionValidator,
    before,
)
from storagetest.wire.scsi.codes import ScsiStatus
from storagetest.wire.tcp import PeerClosed, RecordedConnection, ResponseTimeout

P = TypeVar("P", bound=Pdu)
DEADLINE = 10.0
"""Default timeout of one response, in seconds (chosen)."""
_TRANSFER = 6.0
"""Timeout of a whole transfer, as a multiple of the deadline of one response (chosen)."""
LOGOUT = 2.0
"""Timeout in seconds of the logout at the end, of which no case claims anything (chosen)."""
OVERTAKEN_TIMEOUT = 0.5
"""Seconds that :meth:`Initiator.probe_alive` waits for a command that a ping has overtaken, and for the ping
after a Reject that decides the case (chosen)."""
RETRIES = 3
"""Repetitions of a command that ends in BUSY or TASK SET FULL (chosen)."""
RETRY_AFTER = 0.05
"""Seconds before such a repetition (chosen)."""
NOT_EXECUTED = (ScsiStatus.BUSY, ScsiStatus.TASK_SET_FULL)
"""Status codes of a command that a target did not execute; the initiator sends it again (SAM-5 5.3)."""


ENDING = (AsyncEvent.LOGOUT_REQUEST, AsyncEvent.DROP_CONNECTION, AsyncEvent.DROP_ALL_CONNECTIONS)
"""Events after which the target closes: on its own, or because no Logout followed in time (11.9.1)."""


class Initiator:
    """One session with one connection. A context manager that logs out, if it can, and closes."""

    def __init__(
        self, link: RecordedConnection, *, name: str, lun: int = 0, deadline: float = DEADLINE
    ) -> None:
        self.link = link
        self.name = name
        self.lun = flat_lun(lun)
        self.deadline = deadline
        self.stream = PduReceiver()
        self.numbers = SequenceNumbers()
        self.validator = SessionValidator(self.numbers)
        self.parameters = Parameters()
        self.negotiated: dict[str, str] = {}
        self.replied: Pairs = ()
        self.isid = b""
        self.tsih = 0
        self.logged_in = False
        self.frames: list[ReceivedPdu] = []
        self.async_messages: list[AsyncMessage] = []
        """The target's Asynchronous Messages so far."""
        self._early: deque[Pdu] = deque()  # came while a request waited for the command window
        self._waits = True  # False: the command window once stayed closed
        self._negotiating: int | None = None  # the task tag of the Text Request that event 4 requires

    @property
    def window(self) -> int:
        """The number of commands that the target takes now (RFC 7143 4.2.2.1)."""
        return (self.numbers.max_cmd_sn - self.numbers.cmd_sn + 1) % 2**32

    # Sending

    def assign_numbers(self, pdu: P) -> P:
        """Return ``pdu`` with its sequence numbers, and with a task tag if it needs one and has none."""
        if pdu.itt == NO_TAG and not isinstance(pdu, (DataOut, NopOut)):
            pdu = replace(pdu, itt=self.numbers.itt())
        return self.numbers.number(pdu)  # type: ignore[return-value]  # a PDU of the same class

    def send(
        self,
        pdu: P,
        *,
        overrides: Mapping[str, Value] | None = None,
        number: bool = True,
        header_digest_xor: int = 0,
        data_digest_xor: int = 0,
        padding: bytes | None = None,
    ) -> P:
        """Send ``pdu`` and return it without the ``overrides``, which change header fields last.

        A request that takes its turn waits until the command window is open (4.2.2.1).
        """
        if number and isinstance(pdu, Request) and not pdu.immediate and "cmd_sn" not in (overrides or {}):
            self._await_window()
        pdu = self.assign_numbers(pdu) if number else pdu
        self.validator.sent(pdu)
        if overrides or not number or header_digest_xor or data_digest_xor:
            self.validator.sent_invalid()
        parts = pdu.parts().override_fields(**(overrides or {}))
        wire = parts.wire(
            header_digest=self.parameters.header_digest,
            data_digest=self.parameters.data_digest,
            header_digest_xor=header_digest_xor,
            data_digest_xor=data_digest_xor,
            padding=padding,
        )
        self.link.send(wire, deadline=self.deadline)
        return pdu

    def _await_window(self) -> None:
        """Wait until the target takes a further command; :meth:`receive` returns later what comes until then.

        A target ignores a request beyond MaxCmdSN, and may open the window by a NOP-In (4.2.2.1, 11.19). One
        that keeps it closed until the deadline is sent the request all the same, and is not waited for again.
        """
        end = time.monotonic() + self.deadline
        in_phase = self.validator.phase is ConnectionPhase.FULL_FEATURE
        while in_phase and self._waits and before(self.numbers.max_cmd_sn, self.numbers.cmd_sn):
            try:
                pdu = self._next(end)
            except ResponseTimeout:
                pdu = None
            if pdu is None:
                self._waits = False
            elif not self._handle_unsolicited(pdu):
                self._early.append(pdu)

    def send_parts(self, parts: EncodedPdu) -> None:
        """Send an encoded PDU with the negotiated digests; the validator does not record it."""
        digests = self.parameters
        self.send_raw(parts.wire(header_digest=digests.header_digest, data_digest=digests.data_digest))

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are; the validator does not record them."""
        self.validator.sent_invalid()
        self.link.send(data, deadline=self.deadline)

    # Receiving

    def receive(
        self, *, deadline: float | None = None, expected: str = "anything that was asked for"
    ) -> Pdu | None:
        """Return the next PDU that the target did not send of its own accord, or None if it has closed."""
        if self._early:
            return self._early.popleft()
        end = time.monotonic() + (self.deadline if deadline is None else deadline)
        while (pdu := self._next(end)) is not None and self._handle_unsolicited(pdu):
            if time.monotonic() > end:
                raise self._overdue_error(expected)
        return pdu

    def _next(self, end: float) -> Pdu | None:
        """Return the next PDU, or None if the target has closed. Raises ResponseTimeout at ``end``."""
        while True:
            event = self.stream.next_event()
            if isinstance(event, ReceivedPdu):
                self._record(event)
                return event.pdu
            if event is CLOSED:
                return None
            if event is NEED_DATA:
                data = self.link.receive(deadline=end - time.monotonic())
                if data:
                    self.stream.receive_data(data)
                elif self.link.closed_how == "rst":
                    return None
                else:
                    self.stream.receive_eof()

    def responses(self, expected: str, *, times: float = 1.0) -> Iterator[Pdu | None]:
        """Yield received PDUs (None: a close) for ``times`` the deadline of one response.

        After it, raise :class:`RemoteProtocolError`: ``expected`` did not come, however many PDUs did.
        """
        end = time.monotonic() + times * self.deadline
        while (left := end - time.monotonic()) > 0:
            yield self.receive(deadline=min(left, self.deadline), expected=expected)
        raise self._overdue_error(expected)

    def _overdue_error(self, expected: str) -> ResponseOverdue:
        last = hex_short(self.link.last(outgoing=False))
        failure = f"{expected} did not come, among {len(self.frames)} PDUs so far"
        return ResponseOverdue(f"{self.link.peer}: {failure}; last received: {last}")

    def expect(self, kind: type[P], *, deadline: float | None = None) -> P:
        """Return the next PDU. Raises :class:`RemoteProtocolError` if it is not a ``kind``."""
        pdu = self.receive(deadline=deadline)
        if not isinstance(pdu, kind):
            raise self._unexpected_error(kind.__name__, pdu)
        return pdu

    def _unexpected_error(self, due: str, pdu: Pdu | None) -> RemoteProtocolError:
        if pdu is not None:
            return RemoteProtocolError(
                f"{self.link.peer}: expected a {due}, received {self._describe_last(pdu)}"
            )
        return self._closed_error(f"the {due} that was due")

    def _closed_error(self, due: str) -> PeerClosed:
        """Return the error for a close before ``due``: it names the message that announced it, if one did."""
        last = hex_short(self.link.last(outgoing=True))
        text = f"{self.link.peer}: closed before {due}; last sent: {last}"
        for message in self.async_messages:
            if message.event in ENDING:
                return AnnouncedClose(f"{text}; announced by AsyncEvent {message.event} (RFC 7143 11.9.1)")
        return PeerClosed(text)

    def _describe_last(self, pdu: Pdu) -> str:
        """Return the summary of ``pdu``, which was received last, and the bytes of its header."""
        return f"{pdu.summary()} ({hex_short(self.frames[-1].frame.raw[:48])})"

    def _record(self, event: ReceivedPdu) -> None:
        if event.frame.header_digest_wrong or event.frame.data_digest_wrong:
            raise RemoteProtocolError(
                f"{self.link.peer}: a digest from the target is wrong: {hex_short(event.frame.raw)}"
            )
        self.frames.append(event)
        self.validator.received(event)

    def _handle_unsolicited(self, pdu: Pdu) -> bool:
        """Handle ``pdu`` and return True if the target sent it of its own accord."""
        if isinstance(pdu, NopIn) and pdu.itt == NO_TAG:
            if pdu.ttt != NO_TAG and not self._leaving:  # 11.19: it asks for a NOP-Out
                self.send(NopOut(immediate=True, ttt=pdu.ttt, lun=pdu.lun))
            return True
        if isinstance(pdu, AsyncMessage):
            self.async_messages.append(pdu)
            if not self._leaving:
                self._honour(pdu)
            return True
        if isinstance(pdu, TextResponse) and pdu.itt == self._negotiating:
            self._negotiating = None
            return True
        return False

    @property
    def _leaving(self) -> bool:
        """Whether a Logout was sent: no new request follows on this connection (11.14)."""
        return self.validator.phase in (ConnectionPhase.LOGOUT, ConnectionPhase.CLOSED)

    def _honour(self, message: AsyncMessage) -> None:
        """Send what 11.9.1 requires at once. The Logout for event 1 is sent at the end of the case."""
        if message.event == AsyncEvent.RENEGOTIATE:  # "by issuing a Text Request (that can be empty)"
            if self._negotiating is None:  # 7.10: one text negotiation at a time
                self._negotiating = self.send(TextRequest(immediate=True)).itt
        elif (
            message.event == AsyncEvent.TASK_TERMINATION
        ):  # acknowledges its StatSN by a NOP-Out with its LUN
            self.send(NopOut(immediate=True, lun=message.lun))

    # Login and logout

    def login(
        self,
        *,
        target: str | None,
        offer: Mapping[str, str] | None = None,
        base: Mapping[str, str] = DEFAULT_OFFER,
        credentials: Credentials | None = None,
        isid: bytes | None = None,
        tsih: int = 0,
        cid: int = 0,
    ) -> None:
        """Log in to ``target`` (None: a discovery session). Raises :class:`LoginRefused` on a bad status.

        The keys of ``offer`` are added to those of ``base``, or replace them.
        """
        offered = {**base, **(offer or {})}
        identity = {"InitiatorName": self.name, "SessionType": "Normal" if target else "Discovery"}
        if target:
            identity["TargetName"] = target
        negotiation = LoginNegotiation(
            identity, offer=offered, credentials=credentials, isid=isid, tsih=tsih, cid=cid
        )
        request: LoginRequest | None = negotiation.first()
        while request is not None:
            request = negotiation.next(self.send_login(request))
        if negotiation.status:
            raise LoginRefused(negotiation.status, self.link.peer, negotiation.moved_to)
        self.enter_full_feature(
            negotiation.negotiated, max_recv=numeric(offered.get("MaxRecvDataSegmentLength", "8192")) or 0
        )
        self.replied, self.isid, self.tsih = negotiation.replied, negotiation.isid, negotiation.tsih

    def send_login(
        self, request: LoginRequest, *, overrides: Mapping[str, Value] | None = None
    ) -> LoginResponse:
        """Send one login request as it is (only numbered); return the response, with its whole text (C)."""
        self.send(request, overrides=overrides)
        return whole_text(request, self.expect(LoginResponse), self.send_piece)

    def send_piece(self, request: LoginRequest) -> LoginResponse:
        """Send one login request and return the response, whose text may go on (RFC 7143 11.13.7)."""
        self.send(request)
        return self.expect(LoginResponse)

    def enter_full_feature(self, negotiated: Mapping[str, str], *, max_recv: int) -> None:
        """Enter the full feature phase with the ``negotiated`` keys; digests start here."""
        self.negotiated = dict(negotiated)
        self.parameters = self.validator.parameters = Parameters.of(negotiated, max_recv=max_recv)
        self.stream.header_digest = self.parameters.header_digest
        self.stream.data_digest = self.parameters.data_digest
        self.validator.full_feature()
        self.logged_in = True

    def logout(self, *, reason: int = 0, cid: int = 0, immediate: bool = True) -> LogoutResponse:
        """Log out and return the response; other PDUs before it are dropped."""
        self.send(LogoutRequest(reason=reason, cid=cid, immediate=immediate))
        for pdu in self.responses("the Logout Response"):
            if isinstance(pdu, LogoutResponse):
                self.logged_in = False
                return pdu
            if pdu is None:
                break
        raise self._closed_error("the Logout Response")

    # Requests in the full feature phase

    def ping(self, data: bytes = b"", *, immediate: bool = True) -> NopIn:
        """Send a NOP-Out and return its NOP-In."""
        sent = self.send(NopOut(immediate=immediate, itt=self.numbers.itt(), lun=self.lun, data=data))
        response = self.expect(NopIn)
        if response.itt != sent.itt:
            raise RemoteProtocolError(f"{self.link.peer}: a NOP-In of another tag: {response.summary()}")
        return response

    def probe_alive(self, *, reject_decides: bool = False) -> ProbeOutcome:
        """Ping, and return the PDUs that came before its response: no response costs only one round trip.

        A ping can overtake a command that is being executed. If no other PDU has come and a task is
        outstanding, its response gets :data:`OVERTAKEN_TIMEOUT` more seconds. The response to the ping has 3
        seconds, or the deadline if that is less. After a close or a timeout, :meth:`close` does not log out.

        ``reject_decides``: a Reject decides the case, so the response to the ping has only
        :data:`OVERTAKEN_TIMEOUT` seconds after it. A slow target may then count as ``unresponsive``: neither
        judge that nor use the connection afterwards.
        """
        tag = self.numbers.itt()
        self.send(NopOut(immediate=True, itt=tag))
        received: list[Pdu] = []
        ping = "the response to a ping"
        answered, end = False, time.monotonic() + min(3.0, self.deadline)
        try:
            while (pdu := self.receive(deadline=end - time.monotonic(), expected=ping)) is not None:
                if not isinstance(pdu, NopIn) or pdu.itt != tag:
                    received.append(pdu)
                else:
                    answered, end = True, time.monotonic() + OVERTAKEN_TIMEOUT
                if reject_decides and isinstance(pdu, Reject):
                    end = min(end, time.monotonic() + OVERTAKEN_TIMEOUT)
                if answered and (received or not self.validator.has_outstanding_tasks):
                    return ProbeOutcome(tuple(received), closed=False)
                if time.monotonic() > end:
                    raise self._overdue_error(ping)
        except ResponseTimeout:
            self.logged_in = self.logged_in and answered
            if not answered:
                self.validator.forget(tag)  # its response may come when a write has its data
            return ProbeOutcome(tuple(received), closed=False, unresponsive=not answered)
        except ResponseOverdue:  # NOP-Ins of the target fill the time after the response to the ping
            if not answered:
                raise
            return ProbeOutcome(tuple(received), closed=False)
        self.logged_in = False
        return ProbeOutcome(tuple(received), closed=True)

    def text(self, *pairs: tuple[str, str]) -> Pairs:
        """Send a Text Request and return the keys of the whole response (RFC 7143 11.10, 11.11)."""
        sent = self.send(TextRequest(data=format_text(pairs)))
        data = b""
        for response in self.responses("the end of a text response"):
            if not isinstance(response, TextResponse):
                raise self._unexpected_error("TextResponse", response)
            data += response.data
            if response.final:
                return parse_text(data)
            self.ask_for_more(sent.itt, response.ttt)
        raise AssertionError  # responses() does not end

    def ask_for_more(self, itt: int, ttt: int) -> TextRequest:
        """Send the request for the rest of a text, as immediate if the command window is closed (4.2.2.1)."""
        return self.send(TextRequest(immediate=not self.window, itt=itt, ttt=ttt))

    def task(self, function: TaskFunction | int, **fields: Any) -> TaskResponse:  # noqa: ANN401  # TaskRequest's
        """Send a task management request and return its response; other PDUs before it are dropped."""
        sent = self.send(TaskRequest(function=int(function), lun=fields.pop("lun", self.lun), **fields))
        for pdu in self.responses("the Task Management Response"):
            if isinstance(pdu, TaskResponse) and pdu.itt == sent.itt:
                return pdu
            if pdu is None:
                break
        raise self._closed_error("the Task Management Response")

    def start(
        self,
        cdb: bytes,
        *,
        read: int = 0,
        write: int | None = None,
        data: bytes = b"",
        **fields: Any,  # noqa: ANN401  # ScsiCommand's
    ) -> ScsiCommand:
        """Send a SCSI command only, with ``data`` as immediate data; ``write`` is its expected length."""
        length = len(data) if write is None else write
        return self.send(
            ScsiCommand(
                cdb=cdb.ljust(16, b"\0"),
                read=bool(read),
                write=bool(length),
                expected_length=read or length,
                lun=fields.pop("lun", self.lun),
                data=data,
                **fields,
            )
        )

    def start_write(self, cdb: bytes, length: int) -> tuple[ScsiCommand, ReadyToTransfer]:
        """Send a write without immediate data; return it with its first R2T, or raise CommandNotOffered.

        A write that the target did not execute (:data:`NOT_EXECUTED`) is sent again, :data:`RETRIES` times.
        """
        for attempt in range(RETRIES + 1):
            time.sleep(RETRY_AFTER if attempt else 0)
            command = self.start(cdb, write=length)
            pdu = next(
                one
                for one in self.responses("an R2T")
                if one is None or not self.validator.is_forgotten(one.itt)
            )
            if not isinstance(pdu, ScsiResponse) or pdu.status not in NOT_EXECUTED:
                break
        if not isinstance(pdu, ReadyToTransfer):
            raise not_offered(command, pdu) or self._unexpected_error(ReadyToTransfer.__name__, pdu)
        return command, pdu

    def command(
        self,
        cdb: bytes,
        *,
        read: int = 0,
        data: bytes = b"",
        expected: int | None = None,
        immediate_length: int | None = None,
        **fields: Any,  # noqa: ANN401  # ScsiCommand's
    ) -> ScsiCompletion:
        """Run a command to its end: immediate and unsolicited data as negotiated, the rest by R2T.

        ``read`` is the expected length of data-in; ``data`` is sent, with ``expected`` as its stated length.
        With ``immediate_length``, so many bytes are immediate data, and no Data-Out is unsolicited.
        A command that the target did not execute (:data:`NOT_EXECUTED`) is sent again, :data:`RETRIES` times.
        """
        return self.until_executed(
            lambda: self._run(
                cdb, read=read, data=data, expected=expected, immediate_length=immediate_length, **fields
            )
        )

    def until_executed(self, run: Callable[[], ScsiCompletion]) -> ScsiCompletion:
        """Return what ``run`` returns, which sends a command and finishes it.

        It runs :data:`RETRIES` times more if the target did not execute the command (:data:`NOT_EXECUTED`).
        """
        for attempt in range(RETRIES + 1):
            time.sleep(RETRY_AFTER if attempt else 0)
            done = run()
            if done.status not in NOT_EXECUTED:
                break
        return done

    def _run(
        self,
        cdb: bytes,
        *,
        read: int,
        data: bytes,
        expected: int | None,
        immediate_length: int | None,
        **fields: Any,  # noqa: ANN401  # ScsiCommand's
    ) -> ScsiCompletion:
        length = len(data) if expected is None else expected
        first = min(len(data), self.parameters.first_burst, length)
        immediate = min(first, self.parameters.max_send) if self.parameters.immediate_data else 0
        unsolicited = not self.parameters.initial_r2t and first > immediate
        if immediate_length is not None:
            immediate, unsolicited = immediate_length, False
        command = self.start(
            cdb, read=read, write=length, data=data[:immediate], final=int(not unsolicited), **fields
        )
        if unsolicited:
            self.send_data(command, data, start=immediate, end=first)
        return self.finish(command, data)

    def send_data(
        self, command: ScsiCommand, data: bytes, *, start: int, end: int, ttt: int = NO_TAG
    ) -> None:
        """Send Data-Out for ``data[start:end]`` as one sequence."""
        sequence = 0
        while start < end:
            stop = min(end, start + self.parameters.max_send)
            self.send(
                DataOut(
                    itt=command.itt,
                    ttt=ttt,
                    lun=command.lun if ttt != NO_TAG else 0,
                    final=stop == end,
                    data_sn=sequence,
                    buffer_offset=start,
                    data=data[start:stop],
                )
            )
            sequence, start = sequence + 1, stop

    def finish(self, command: ScsiCommand, data: bytes = b"") -> ScsiCompletion:
        """Receive until ``command`` has its status; send ``data`` as R2Ts request it."""
        received: list[Pdu] = []
        for pdu in self.responses(f"the end of {command.summary()}", times=_TRANSFER):
            if pdu is None:
                raise self._closed_error(f"the end of {command.summary()}")
            if self.validator.is_forgotten(pdu.itt):
                continue  # the cases of task management report it
            if pdu.itt != command.itt:
                raise RemoteProtocolError(
                    f"{self.link.peer}: expected a response to {command.summary()}, "
                    f"received {self._describe_last(pdu)}"
                )
            received.append(pdu)
            if isinstance(pdu, ReadyToTransfer):
                end = min(len(data), pdu.buffer_offset + pdu.desired_length)
                self.send_data(command, data, start=pdu.buffer_offset, end=end, ttt=pdu.ttt)
            elif isinstance(pdu, ScsiResponse) or (isinstance(pdu, DataIn) and pdu.has_status):
                return completion(pdu, received)
            elif not isinstance(pdu, DataIn):
                raise RemoteProtocolError(
                    f"{self.link.peer}: {command.summary()} ended in {self._describe_last(pdu)}"
                )
        raise AssertionError  # responses() does not end

    def close(self) -> None:
        """Log out if logged in, ignoring errors, and close the connection.

        A target that does not respond within :data:`LOGOUT` seconds is left without a logout.
        """
        self.deadline = min(self.deadline, LOGOUT)
        try:
            if self.logged_in and self.link.closed_how is None:
                self.logout()
        except RemoteProtocolError:
            pass  # the case has already reported its own error
        finally:
            self.link.close()

    def __enter__(self) -> Initiator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
