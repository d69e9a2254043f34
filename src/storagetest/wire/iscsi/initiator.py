"""An initiator over a :class:`~storagetest.wire.tcp.Link`: log in, send, receive, run a command, log out.

It does what RFC 7143 asks of an initiator unless a case asks for something else: :meth:`Initiator.send`
numbers a PDU and takes overrides for any field, digest or padding. It answers a target's ping. Where an
answer is due and the target closes, or sends something else, that is a
:class:`~storagetest.errors.RemoteProtocolError`; what the target may freely choose is returned
(:class:`Aftermath`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from storagetest.errors import RemoteProtocolError
from storagetest.wire.bitfields import Value
from storagetest.wire.hexdump import hex_short
from storagetest.wire.iscsi.codes import NO_TAG, LoginStatus, TaskFunction
from storagetest.wire.iscsi.connection import CLOSED, NEED_DATA, Connection, Received
from storagetest.wire.iscsi.encoding import EncodedPdu, Pdu, flat_lun
from storagetest.wire.iscsi.keys import Pairs, format_text, parse_text
from storagetest.wire.iscsi.login import DEFAULT_OFFER, Credentials, LoginNegotiation
from storagetest.wire.iscsi.pdu import (
    R2T,
    DataIn,
    DataOut,
    LoginRequest,
    LoginResponse,
    LogoutRequest,
    LogoutResponse,
    NopIn,
    NopOut,
    Reject,
    ScsiCommand,
    ScsiResponse,
    TaskRequest,
    TaskResponse,
    TextRequest,
    TextResponse,
)
from storagetest.wire.iscsi.validator import Parameters, SequenceNumbers, SessionValidator
from storagetest.wire.tcp import PeerClosed, RecordedConnection, ResponseTimeout

__all__ = ["Completion", "Initiator", "LoginRefused", "ProbeOutcome"]

P = TypeVar("P", bound=Pdu)
DEADLINE = 10.0
"""Seconds for one answer, where the caller says nothing else."""
_TRANSFER = 6.0
"""How many times the deadline of one answer a whole transfer may take."""
SETTLE = 0.5
"""Seconds that :meth:`Initiator.aftermath` gives a command which a ping has overtaken."""
LARGEST = 64 * 1024 * 1024
"""Bytes that a command may return."""


class LoginRefused(RemoteProtocolError):  # what happened, in the case's words
    """The target answered a login with a status that is not Success; ``status`` is class and detail."""

    def __init__(self, status: int, who: str) -> None:
        names = {int(one): one.name for one in LoginStatus}
        super().__init__(f"{who}: login refused: status {status:04x} ({names.get(status, 'unknown')})")
        self.status = status


@dataclass(frozen=True, slots=True)
class Completion:
    """How a SCSI command ended: status, sense, data, residual, and the PDUs that the target sent for it."""

    status: int
    sense: bytes
    data: bytes
    overflow: bool
    underflow: bool
    residual: int
    response: int
    pdus: tuple[Pdu, ...]

    @property
    def data_ins(self) -> tuple[DataIn, ...]:
        """The Data-In PDUs."""
        return tuple(pdu for pdu in self.pdus if isinstance(pdu, DataIn))

    @property
    def r2ts(self) -> tuple[R2T, ...]:
        """The R2T PDUs."""
        return tuple(pdu for pdu in self.pdus if isinstance(pdu, R2T))


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """What came of a provocation: the PDUs up to the answer to a ping, or to the close, or to silence."""

    pdus: tuple[Pdu, ...]
    closed: bool
    silent: bool = False

    @property
    def reject(self) -> Reject | None:
        """The first Reject."""
        return next((pdu for pdu in self.pdus if isinstance(pdu, Reject)), None)

    def __str__(self) -> str:
        said = [pdu.summary() for pdu in self.pdus] or ["nothing"]
        end = "closed" if self.closed else "no answer to a ping" if self.silent else "the connection lives"
        return "; ".join([*said, end])


class Initiator:
    """One connection of one session. A context manager; it closes, and logs out where it can."""

    def __init__(
        self, link: RecordedConnection, *, name: str, lun: int = 0, deadline: float = DEADLINE
    ) -> None:
        self.link = link
        self.name = name
        self.lun = flat_lun(lun)
        self.deadline = deadline
        self.stream = Connection()
        self.numbers = SequenceNumbers()
        self.watch = SessionValidator(self.numbers)
        self.parameters = Parameters()
        self.held: dict[str, str] = {}
        self.replied: Pairs = ()
        self.isid = b""
        self.tsih = 0
        self.logged_in = False
        self.frames: list[Received] = []

    # Sending

    def numbered(self, pdu: P) -> P:
        """Number ``pdu`` and give it a task tag where it wants one."""
        if pdu.itt == NO_TAG and not isinstance(pdu, (DataOut, NopOut)):
            pdu = replace(pdu, itt=self.numbers.itt())
        return self.numbers.stamp(pdu)  # type: ignore[return-value]  # a PDU of the same class

    def send(
        self,
        pdu: P,
        *,
        lie: Mapping[str, Value] | None = None,
        stamp: bool = True,
        spoil_header_digest: int = 0,
        spoil_data_digest: int = 0,
        padding: bytes | None = None,
    ) -> P:
        """Send ``pdu`` and return it as it was meant. ``lie`` overrides header fields after all else."""
        meant = self.numbered(pdu) if stamp else pdu
        self.watch.sent(meant)
        parts = meant.parts().override_fields(**(lie or {}))
        wire = parts.wire(
            header_digest=self.parameters.header_digest,
            data_digest=self.parameters.data_digest,
            spoil_header_digest=spoil_header_digest,
            spoil_data_digest=spoil_data_digest,
            padding=padding,
        )
        self.send_raw(wire)
        return meant

    def send_parts(self, parts: EncodedPdu) -> None:
        """Send an encoded PDU, digests put on as negotiated, unknown to the watch."""
        digests = self.parameters
        self.send_raw(parts.wire(header_digest=digests.header_digest, data_digest=digests.data_digest))

    def send_raw(self, data: bytes) -> None:
        """Send bytes."""
        self.link.send(data, deadline=self.deadline)

    # Receiving

    def receive(self, *, deadline: float | None = None) -> Pdu | None:
        """Return the next PDU, or None when the target has closed; a ping is answered on the way."""
        end = time.monotonic() + (self.deadline if deadline is None else deadline)
        while True:
            event = self.stream.next_event()
            if isinstance(event, Received):
                self._took(event)
                if not self._was_ping(event.pdu):
                    return event.pdu
                if time.monotonic() > end:
                    raise self._talks_on("anything but pings")
            elif event is CLOSED:
                return None
            elif event is NEED_DATA:
                data = self.link.receive(deadline=end - time.monotonic())
                if data:
                    self.stream.receive_data(data)
                elif self.link.closed_how == "rst":
                    return None
                else:
                    self.stream.receive_eof()

    def answers(self, what: str, *, times: float = 1.0) -> Iterator[Pdu | None]:
        """Yield what comes (None: a close) until ``what`` is overdue: ``times`` the deadline of one answer.

        So a target that talks on and on, each PDU in time, ends in :class:`RemoteProtocolError` too.
        """
        end = time.monotonic() + times * self.deadline
        while (left := end - time.monotonic()) > 0:
            yield self.receive(deadline=min(left, self.deadline))
        raise self._talks_on(what)

    def _talks_on(self, what: str) -> RemoteProtocolError:
        last = hex_short(self.link.last(outgoing=False))
        said = f"{what} did not come, among {len(self.frames)} PDUs so far"
        return RemoteProtocolError(f"{self.link.peer}: {said}; last received: {last}")

    def expect(self, kind: type[P], *, deadline: float | None = None) -> P:
        """Return the next PDU, which must be a ``kind``."""
        pdu = self.receive(deadline=deadline)
        if not isinstance(pdu, kind):
            raise self._odd(kind.__name__, pdu)
        return pdu

    def _odd(self, due: str, pdu: Pdu | None) -> RemoteProtocolError:
        if pdu is not None:
            return RemoteProtocolError(f"{self.link.peer}: a {due} was due, and came {self._seen(pdu)}")
        last = hex_short(self.link.last(outgoing=True))
        return PeerClosed(f"{self.link.peer}: closed where a {due} was due; last sent: {last}")

    def _seen(self, pdu: Pdu) -> str:
        """Say what the PDU that was received last is, and its header in bytes."""
        return f"{pdu.summary()} ({hex_short(self.frames[-1].frame.raw[:48])})"

    def _took(self, event: Received) -> None:
        if event.frame.header_digest_wrong or event.frame.data_digest_wrong:
            raise RemoteProtocolError(
                f"{self.link.peer}: a digest of the target's is wrong: {hex_short(event.frame.raw)}"
            )
        self.frames.append(event)
        self.watch.received(event)

    def _was_ping(self, pdu: Pdu) -> bool:
        if not isinstance(pdu, NopIn) or pdu.itt != NO_TAG or pdu.ttt == NO_TAG:
            return False
        self.send(NopOut(immediate=True, ttt=pdu.ttt, lun=pdu.lun))
        return True

    # Login and logout

    def login(
        self,
        *,
        target: str | None,
        offer: Mapping[str, str] | None = None,
        credentials: Credentials | None = None,
        isid: bytes | None = None,
        tsih: int = 0,
        cid: int = 0,
    ) -> None:
        """Log in to ``target`` (None: a discovery session). :class:`LoginRefused` where it says no."""
        offered = {**DEFAULT_OFFER, **(offer or {})}
        identity = {"InitiatorName": self.name, "SessionType": "Normal" if target else "Discovery"}
        if target:
            identity["TargetName"] = target
        dialogue = LoginNegotiation(
            identity, offer=offered, credentials=credentials, isid=isid, tsih=tsih, cid=cid
        )
        request: LoginRequest | None = dialogue.first()
        while request is not None:
            request = dialogue.next(self.send_login(request))
        if dialogue.status:
            raise LoginRefused(dialogue.status, self.link.peer)
        self.enter_full_feature(dialogue.held, max_recv=int(offered.get("MaxRecvDataSegmentLength", "8192")))
        self.replied, self.isid, self.tsih = dialogue.replied, dialogue.isid, dialogue.tsih

    def send_login(self, request: LoginRequest, *, lie: Mapping[str, Value] | None = None) -> LoginResponse:
        """Send one login request as it is (only numbered) and return the response."""
        self.send(request, lie=lie)
        return self.expect(LoginResponse)

    def enter_full_feature(self, held: Mapping[str, str], *, max_recv: int) -> None:
        """Enter the full feature phase with what was negotiated; digests start here."""
        self.held = dict(held)
        self.parameters = self.watch.parameters = Parameters.of(held, max_recv=max_recv)
        self.stream.header_digest = self.parameters.header_digest
        self.stream.data_digest = self.parameters.data_digest
        self.watch.full_feature()
        self.logged_in = True

    def logout(self, *, reason: int = 0, cid: int = 0, immediate: bool = True) -> LogoutResponse:
        """Log out and return the response; what comes before it is dropped."""
        self.send(LogoutRequest(reason=reason, cid=cid, immediate=immediate))
        for pdu in self.answers("the Logout Response"):
            if isinstance(pdu, LogoutResponse):
                self.logged_in = False
                return pdu
            if pdu is None:
                break
        raise PeerClosed(f"{self.link.peer}: closed where a Logout Response was due")

    # What a session is for

    def ping(self, data: bytes = b"", *, immediate: bool = True) -> NopIn:
        """Send a NOP-Out and return its NOP-In."""
        sent = self.send(NopOut(immediate=immediate, itt=self.numbers.itt(), lun=self.lun, data=data))
        answer = self.expect(NopIn)
        if answer.itt != sent.itt:
            raise RemoteProtocolError(f"{self.link.peer}: a NOP-In of another tag: {answer.summary()}")
        return answer

    def probe_alive(self) -> ProbeOutcome:
        """Ping, and return what came before the answer; so silence costs one round trip and little waiting.

        A ping overtakes a command that is being executed: where nothing has come and a task is outstanding,
        its answer gets :data:`SETTLE` more. A target that does not even answer the ping gets 3 seconds, or
        the deadline if that is less. After a close or such a silence there is nothing left to log out from.
        """
        tag = self.numbers.itt()
        self.send(NopOut(immediate=True, itt=tag))
        came: list[Pdu] = []
        answered, end = False, time.monotonic() + min(3.0, self.deadline)
        try:
            while (pdu := self.receive(deadline=end - time.monotonic())) is not None:
                if not isinstance(pdu, NopIn) or pdu.itt != tag:
                    came.append(pdu)
                else:
                    answered, end = True, time.monotonic() + SETTLE
                if answered and (came or not self.watch.waiting):
                    return ProbeOutcome(tuple(came), closed=False)
                if time.monotonic() > end:
                    raise self._talks_on("the answer to a ping")
        except ResponseTimeout:
            self.logged_in = self.logged_in and answered
            return ProbeOutcome(tuple(came), closed=False, silent=not answered)
        self.logged_in = False
        return ProbeOutcome(tuple(came), closed=True)

    def text(self, *pairs: tuple[str, str]) -> Pairs:
        """Send a Text Request and return the keys of the whole answer (RFC 7143 11.10, 11.11)."""
        sent = self.send(TextRequest(data=format_text(pairs)))
        data = b""
        for answer in self.answers("the end of a text answer"):
            if not isinstance(answer, TextResponse):
                raise self._odd("TextResponse", answer)
            data += answer.data
            if answer.final:
                return parse_text(data)
            self.send(TextRequest(itt=sent.itt, ttt=answer.ttt))
        raise AssertionError  # answers() does not end

    def task(self, function: TaskFunction | int, **fields: Any) -> TaskResponse:  # noqa: ANN401  # TaskRequest's
        """Send a task management request and return its response; other PDUs before it are dropped."""
        sent = self.send(TaskRequest(function=int(function), lun=fields.pop("lun", self.lun), **fields))
        for pdu in self.answers("the Task Management Response"):
            if isinstance(pdu, TaskResponse) and pdu.itt == sent.itt:
                return pdu
            if pdu is None:
                break
        raise PeerClosed(f"{self.link.peer}: closed where a Task Management Response was due")

    def start(
        self,
        cdb: bytes,
        *,
        read: int = 0,
        write: int | None = None,
        data: bytes = b"",
        **fields: Any,  # noqa: ANN401  # ScsiCommand's
    ) -> ScsiCommand:
        """Send a SCSI command and no more, ``data`` as immediate data; ``write`` is its expected length."""
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

    def command(
        self,
        cdb: bytes,
        *,
        read: int = 0,
        data: bytes = b"",
        expected: int | None = None,
        **fields: Any,  # noqa: ANN401  # ScsiCommand's
    ) -> Completion:
        """Run a command to its end: immediate and unsolicited data as negotiated, the rest as asked for.

        ``read`` bytes are expected in; ``data`` goes out, with ``expected`` as its stated length.
        """
        length = len(data) if expected is None else expected
        first = min(len(data), self.parameters.first_burst, length)
        immediate = min(first, self.parameters.max_send) if self.parameters.immediate_data else 0
        unsolicited = not self.parameters.initial_r2t and first > immediate
        command = self.start(
            cdb,
            read=read,
            write=length,
            data=data[:immediate],
            final=int(not unsolicited),
            **fields,
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

    def finish(self, command: ScsiCommand, data: bytes = b"") -> Completion:
        """Receive until ``command`` has its status, answering R2Ts from ``data``."""
        came: list[Pdu] = []
        for pdu in self.answers(f"the end of {command.summary()}", times=_TRANSFER):
            if pdu is None:
                raise PeerClosed(f"{self.link.peer}: closed where the answer to {command.summary()} was due")
            if pdu.itt != command.itt:
                raise RemoteProtocolError(
                    f"{self.link.peer}: the answer to {command.summary()} was due, and came {self._seen(pdu)}"
                )
            came.append(pdu)
            if isinstance(pdu, R2T):
                end = min(len(data), pdu.buffer_offset + pdu.desired_length)
                self.send_data(command, data, start=pdu.buffer_offset, end=end, ttt=pdu.ttt)
            elif isinstance(pdu, ScsiResponse) or (isinstance(pdu, DataIn) and pdu.has_status):
                return completion(pdu, came)
            elif not isinstance(pdu, DataIn):
                raise RemoteProtocolError(
                    f"{self.link.peer}: {command.summary()} was met with {self._seen(pdu)}"
                )
        raise AssertionError  # answers() does not end

    def close(self) -> None:
        """Log out where logged in, as far as the target lets us, and close."""
        try:
            if self.logged_in and self.link.closed_how is None:
                self.logout()
        except RemoteProtocolError:
            pass  # the case has already said what was wrong with it
        finally:
            self.link.close()

    def __enter__(self) -> Initiator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def completion(last: ScsiResponse | DataIn, came: list[Pdu]) -> Completion:
    """Put a command's PDUs together; data go where their offsets say."""
    parts = [pdu for pdu in came if isinstance(pdu, DataIn)]
    size = max((pdu.buffer_offset + len(pdu.data) for pdu in parts), default=0)
    if size > LARGEST:
        raise RemoteProtocolError(f"iSCSI: Data-In reaches to byte {size}: {parts[-1].summary()}")
    data = bytearray(size)
    for pdu in parts:
        data[pdu.buffer_offset : pdu.buffer_offset + len(pdu.data)] = pdu.data
    return Completion(
        status=last.status,
        sense=last.sense if isinstance(last, ScsiResponse) else b"",
        data=bytes(data),
        overflow=last.overflow,
        underflow=last.underflow,
        residual=last.residual,
        response=last.response if isinstance(last, ScsiResponse) else 0,
        pdus=tuple(came),
    )
