"""Sequence numbers of one session with one connection: the initiator's numbering, and checks of the target's.

:class:`SequenceNumbers` fills in the initiator's numbers (CmdSN, ExpStatSN, task tags; RFC 7143 4.2.2).
:class:`SessionValidator` reads the target's PDUs and records each broken rule as a :class:`Violation`. It
never ends the session, so that a violation of another rule does not end a case. Serial numbers compare by
RFC 1982 (4.2.2.1).

Rules by name:

- ``stat-sn``: every response carries the next StatSN; R2T and an unsolicited NOP-In carry it without using it
  (4.2.2.2, 11.8.3, 11.19.2)
- ``exp-cmd-sn``: never backwards, never beyond what was sent (4.2.2.1)
- ``max-cmd-sn``: never below ExpCmdSN - 1 (4.2.2.1)
- ``data-sn``, ``r2t-sn``: from 0, by one, for each command (4.2.2.4)
- ``data-order``, ``data-length``, ``data-burst``, ``data-status``: Data-In (11.7, 13.12, 13.13, 13.18, 13.19)
- ``data-final``: the last Data-In of a command that ends in GOOD has F (11.7.1)
- ``ttt``: the answer to a ping and a final Text response have the reserved transfer tag (11.19.3, 11.11.3)
- ``r2t-order``, ``r2t-length``, ``r2t-lun``, ``r2t-outstanding``: R2T (11.8, 13.13, 13.17, 13.19)
- ``exp-data-sn``: a response counts the Data-In of its command (11.4.8; RFC 3720 also counted the R2Ts)
- ``residual``: not O and U together; after GOOD, data and residual make up the expected length (11.4.5)
- ``residual-over``: with any status, a residual is of bytes that were expected and did not come (11.4.5.1)
- ``response-code``: not a reserved one (11.4.3); ``fixed-bit``: bit 0 of byte 1 is 1 (11.4, 11.6, 11.8, …)
- ``itt``: a response is to a task that is outstanding (11.2.1.8); ``reserved``: undefined bits are zero (11),
  and ``reserved-reject``: those of a Reject (11.17)
- ``phase``: a PDU that may be sent in this phase (4.2.4, 8.1.1)
- ``codes``, ``flags``, ``tags``, ``reserved-lun``, ``reserved-nsg``, ``data-segment``, ``reject-header``,
  ``sense-length``: one PDU
  (:mod:`storagetest.wire.iscsi.single_pdu`)
- ``sense``, ``parameter-data``: the sense data of each CHECK CONDITION, and the data of any command
  (:func:`~storagetest.wire.scsi.sense.sense_faults`,
  :func:`~storagetest.wire.scsi.parameter_data.parameter_faults`)

Some of these need what the initiator has sent (:data:`IF_VALID`). If a case sends what no initiator sends,
with fields overridden or as raw bytes (:meth:`SessionValidator.sent_invalid`), only :data:`ALWAYS` is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from storagetest.wire.iscsi.codes import NO_TAG
from storagetest.wire.iscsi.connection import ReceivedPdu
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import numeric
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
    Response,
    ScsiCommand,
    ScsiResponse,
    SnackRequest,
    TaskRequest,
    TaskResponse,
    TextRequest,
    TextResponse,
    set_reserved_bits,
)
from storagetest.wire.iscsi.single_pdu import findings
from storagetest.wire.scsi.cdb import describe
from storagetest.wire.scsi.codes import ScsiStatus
from storagetest.wire.scsi.parameter_data import command_of, parameter_faults
from storagetest.wire.scsi.sense import sense_faults

_WRAP = 2**32
_MOST_KEPT = 1 << 20
"""Bytes of parameter data that are kept until their command ends (chosen)."""
_VENDOR_RESPONSE = 0x80
"""The first response code that is a vendor's own (RFC 7143 11.4.3)."""
_FIXED_BIT = (AsyncMessage, LogoutResponse, NopIn, ReadyToTransfer, Reject, ScsiResponse, TaskResponse)
"""PDUs whose bit 0 of byte 1 is fixed to 1 (RFC 7143 11.4, 11.6, 11.8, 11.9, 11.15, 11.17, 11.19)."""


def plus(number: int, step: int) -> int:
    """Add to a 32-bit serial number."""
    return (number + step) % _WRAP


def before(first: int, second: int) -> bool:
    """Return whether ``first`` is less than ``second`` (RFC 1982, SERIAL_BITS 32)."""
    return 0 < (second - first) % _WRAP < _WRAP // 2


ALWAYS: Mapping[str, str] = {
    "reserved": "a reserved bit is set in a PDU of the target (RFC 7143 11)",
    "reserved-reject": "a reserved bit is set in a Reject of the target (RFC 7143 11.17)",
    "fixed-bit": "the bit that is fixed to 1 is 0 in a PDU of the target (RFC 7143 11.4 to 11.19)",
    "response-code": "the response code of a SCSI Response is reserved (RFC 7143 11.4.3)",
    "stat-sn": "the StatSN of a PDU is not the next one (RFC 7143 4.2.2.2)",
    "max-cmd-sn": "MaxCmdSN is below ExpCmdSN - 1 (RFC 7143 4.2.2.1)",
    "data-sn": "DataSN does not count the Data-In PDUs of its command from 0 (RFC 7143 4.2.2.4)",
    "data-final": "the last Data-In of a command lacks F (RFC 7143 11.7.1)",
    "ttt": "a PDU that asks for nothing has a Target Transfer Tag (RFC 7143 11.11.3, 11.19.3)",
    "codes": "a PDU of the target has a code that is not defined (RFC 7143 11.4 to 11.17)",
    "flags": "a PDU of the target has flags that exclude each other (RFC 7143 11.4 to 11.13)",
    "reserved-nsg": "a Login Response without T has a next stage, which is reserved then (RFC 7143 11.12.3)",
    "tags": "a tag is in a PDU of the target, or lacks, against the rule (RFC 7143 11.8 to 11.17)",
    "reserved-lun": "a Data-In or NOP-In without a Target Transfer Tag has a LUN (RFC 7143 11.7.4, 11.19)",
    "data-segment": "a PDU that has no data segment came with one (RFC 7143 11.6, 11.8, 11.15)",
    "reject-header": "a Reject lacks the header of the PDU that was rejected (RFC 7143 11.17)",
    "sense-length": "SenseLength goes past the data segment (RFC 7143 11.4.7)",
    "sense": "sense data have a form, or a key, that the standard excludes (SPC-4, sense data)",
}
"""Rules that hold whatever the initiator sends, each as a sentence without values."""
IF_VALID: Mapping[str, str] = {
    "exp-cmd-sn": "ExpCmdSN goes back, or is beyond what was sent (RFC 7143 4.2.2.1)",
    "data-order": "Data-In PDUs are out of order (RFC 7143 13.18)",
    "data-length": "Data-In is longer than agreed or expected (RFC 7143 11.7.6, 13.12)",
    "data-status": "a Data-In has a status that needs a SCSI Response (RFC 7143 11.7.3)",
    "residual": "data and residual of a read do not make up the expected length (RFC 7143 11.4.5.1)",
    "residual-over": "a residual is of more bytes than were missing (RFC 7143 11.4.5.1)",
    "exp-data-sn": "ExpDataSN does not count the PDUs of its command (RFC 7143 11.4.8)",
    "r2t-sn": "R2TSN does not count the R2Ts of its command from 0 (RFC 7143 4.2.2.4)",
    "r2t-length": "an R2T is for no data, too many, or those past the expected length (RFC 7143 11.8.4)",
    "r2t-lun": "an R2T has another LUN than its command (RFC 7143 11.8.5)",
    "parameter-data": "the data of a command are not what their table states (SPC-4, SBC-3)",
}
"""Rules that hold if the initiator sent what an initiator may send, as :data:`ALWAYS`.

A SHOULD (``data-burst``) is not among them, nor what depends on the data that a case chose to send for an R2T
(``r2t-order``, ``r2t-outstanding``): these have cases of their own.
"""


class ConnectionPhase(Enum):
    """State of a connection as an initiator sees it (RFC 7143 8.1.1, abridged)."""

    LOGIN = "login"
    FULL_FEATURE = "full feature phase"
    LOGOUT = "logout requested"
    CLOSED = "logged out"


_RESPONSES = (ScsiResponse, TaskResponse, DataIn, ReadyToTransfer, AsyncMessage, TextResponse, Reject, NopIn)
TRANSITIONS: Mapping[tuple[ConnectionPhase, type[Pdu]], ConnectionPhase] = {
    (ConnectionPhase.LOGIN, LoginResponse): ConnectionPhase.LOGIN,
    **{(ConnectionPhase.FULL_FEATURE, kind): ConnectionPhase.FULL_FEATURE for kind in _RESPONSES},
    **{(ConnectionPhase.LOGOUT, kind): ConnectionPhase.LOGOUT for kind in _RESPONSES},
    (ConnectionPhase.LOGOUT, LogoutResponse): ConnectionPhase.CLOSED,
}
"""(phase, PDU of the target) → next phase. A pair that is not in the table breaks the rule ``phase``."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Negotiated parameters (RFC 7143 13): ``max_recv`` limits Data-In, ``max_send`` Data-Out PDUs."""

    max_recv: int = 8192
    max_send: int = 8192
    max_burst: int = 262144
    first_burst: int = 65536
    initial_r2t: bool = True
    immediate_data: bool = True
    max_outstanding_r2t: int = 1
    data_pdu_in_order: bool = True
    data_sequence_in_order: bool = True
    header_digest: bool = False
    data_digest: bool = False
    error_recovery_level: int = 0
    protocol_level: int = 1

    @classmethod
    def of(cls, keys: Mapping[str, str], *, max_recv: int) -> Parameters:
        """Read the outcome of a negotiation (:func:`storagetest.wire.iscsi.keys.outcome`)."""

        def count(name: str) -> int:
            return numeric(keys.get(name, "")) or 0

        return cls(
            max_recv=max_recv,
            max_send=count("MaxRecvDataSegmentLength"),
            max_burst=count("MaxBurstLength"),
            first_burst=count("FirstBurstLength"),
            initial_r2t=keys.get("InitialR2T") == "Yes",
            immediate_data=keys.get("ImmediateData") == "Yes",
            max_outstanding_r2t=count("MaxOutstandingR2T"),
            data_pdu_in_order=keys.get("DataPDUInOrder") == "Yes",
            data_sequence_in_order=keys.get("DataSequenceInOrder") == "Yes",
            header_digest=keys.get("HeaderDigest") == "CRC32C",
            data_digest=keys.get("DataDigest") == "CRC32C",
            error_recovery_level=count("ErrorRecoveryLevel"),
            protocol_level=count("iSCSIProtocolLevel"),
        )


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that the target broke, and its section."""

    rule: str
    section: str
    text: str

    def __str__(self) -> str:
        return f"{self.text} (RFC 7143 {self.section})"


@dataclass(slots=True)
class SequenceNumbers:
    """The initiator's numbers. ``cmd_sn`` is the next to use, ``exp_stat_sn`` the next expected."""

    cmd_sn: int = 1
    exp_stat_sn: int = 0
    max_cmd_sn: int = 1
    next_itt: int = 1

    def itt(self) -> int:
        """Return a task tag that is not in use; never the reserved one."""
        tag, self.next_itt = self.next_itt, self.next_itt % 0x7FFFFFFF + 1
        return tag

    def number(self, pdu: Pdu) -> Pdu:
        """Return ``pdu`` with CmdSN and ExpStatSN. A PDU that is not immediate uses up its CmdSN."""
        if isinstance(pdu, (DataOut, SnackRequest)):
            return replace(pdu, exp_stat_sn=self.exp_stat_sn)
        if not isinstance(pdu, Request):
            return pdu
        numbered = replace(pdu, cmd_sn=self.cmd_sn, exp_stat_sn=self.exp_stat_sn)
        if not pdu.immediate:
            self.cmd_sn = plus(self.cmd_sn, 1)
        return numbered


@dataclass(slots=True)
class _Task:
    """The progress of one command."""

    read: int = 0
    write: int = 0
    received: int = 0
    unsolicited: int = 0
    next_data_sn: int = 0
    next_r2t_sn: int = 0
    next_offset: int = 0
    burst: int = 0
    r2t_offset: int | None = None
    outstanding: dict[int, int] = field(default_factory=dict)
    lun: int = 0
    cdb: bytes = bytes(16)
    data: bytearray = field(default_factory=bytearray)

    @property
    def keeps_data(self) -> bool:
        """Whether the data of this command are judged, and are few."""
        return self.read <= _MOST_KEPT and command_of(self.cdb) is not None

    def keep(self, pdu: DataIn) -> None:
        """Keep the data of a Data-In, if they are judged."""
        end = pdu.buffer_offset + len(pdu.data)
        if self.keeps_data and end <= _MOST_KEPT:
            self.data.extend(bytes(max(0, end - len(self.data))))
            self.data[pdu.buffer_offset : end] = pdu.data


class SessionValidator:
    """Checks the PDUs of both directions; :attr:`violations` has the rules that the target broke so far."""

    def __init__(self, numbers: SequenceNumbers) -> None:
        self.parameters = Parameters()
        self.phase = ConnectionPhase.LOGIN
        self.violations: list[Violation] = []
        self._numbers = numbers
        self._tasks: dict[int, _Task] = {}
        self._forgotten: set[int] = set()
        self._sent_snack = False
        self._sent_invalid = False
        self._started = False
        self._exp_cmd_sn: int | None = None

    def violations_of(self, *rules: str) -> list[str]:
        """Return the violations of ``rules``, or all violations without arguments."""
        return [str(violation) for violation in self.violations if not rules or violation.rule in rules]

    def violations_but(self, *rules: str) -> list[str]:
        """Return the violations of all rules but ``rules``, as texts."""
        return [str(violation) for violation in self.violations if violation.rule not in rules]

    def faults(self) -> dict[str, str]:
        """Return a sentence for each rule of :data:`ALWAYS` that the target broke, with its first violation.

        A SNACK has PDUs sent again, with the numbers that they had (11.16): then numbers are not judged.
        """
        broken = {violation.rule: str(violation) for violation in reversed(self.violations)}
        if self._sent_snack:
            for rule in ("stat-sn", "data-sn", "data-final"):
                broken.pop(rule, None)
        rules = ALWAYS if self._sent_invalid or self._sent_snack else {**ALWAYS, **IF_VALID}
        return {sentence: broken[rule] for rule, sentence in rules.items() if rule in broken}

    def sent_invalid(self) -> None:
        """Record that the initiator sent something that :meth:`sent` does not know as it was sent."""
        self._sent_invalid = True

    @property
    def has_outstanding_tasks(self) -> bool:
        """Whether a response to any task is still due."""
        return bool(self._tasks)

    def full_feature(self) -> None:
        """Record that the login has succeeded."""
        self.phase = ConnectionPhase.FULL_FEATURE
        self._tasks.clear()

    def sent(self, pdu: Pdu) -> None:
        """Record a request that was sent as a valid one."""
        self._sent_snack = self._sent_snack or isinstance(pdu, SnackRequest)
        match pdu:
            case ScsiCommand():
                if pdu.read and pdu.write:
                    self.sent_invalid()  # its length of data-in is in an additional segment
                size = pdu.expected_length
                self._tasks[pdu.itt] = _Task(
                    read=size if pdu.read else 0,
                    write=size if pdu.write else 0,
                    unsolicited=len(pdu.data),
                    lun=pdu.lun,
                    cdb=pdu.cdb,
                )
            case TaskRequest() | TextRequest() | LoginRequest():
                self._tasks[pdu.itt] = _Task()
            case NopOut() if pdu.itt != NO_TAG:
                self._tasks[pdu.itt] = _Task()
            case LogoutRequest():
                self._tasks[pdu.itt] = _Task()
                self.phase = ConnectionPhase.LOGOUT
            case DataOut() if pdu.itt in self._tasks:
                if pdu.ttt == NO_TAG:
                    self._tasks[pdu.itt].unsolicited = pdu.buffer_offset + len(pdu.data)
                elif pdu.final:
                    self._tasks[pdu.itt].outstanding.pop(pdu.ttt, None)

    def forget(self, itt: int) -> None:
        """Expect no more responses to this task (it was aborted)."""
        self._tasks.pop(itt, None)
        self._forgotten.add(itt)

    def is_forgotten(self, itt: int) -> bool:
        """Return whether this is the tag of a task that was aborted."""
        return itt in self._forgotten

    def received(self, event: ReceivedPdu) -> None:
        """Check one PDU of the target."""
        pdu = event.pdu
        after = TRANSITIONS.get((self.phase, type(pdu)))
        if after is None:
            self._note("phase", "4.2.4", f"{pdu.summary()} in the phase: {self.phase.value}")
        else:
            self.phase = after
        if any(set_reserved_bits(event.frame.bhs)):
            self._note(
                "reserved-reject" if isinstance(pdu, Reject) else "reserved",
                "11",
                f"{type(pdu).__name__} sets reserved bits: {set_reserved_bits(event.frame.bhs).hex()}",
            )
        if isinstance(pdu, _FIXED_BIT) and not pdu.final:
            self._note("fixed-bit", "11", f"{type(pdu).__name__}: bit 0 of byte 1 is 0; it is fixed to 1")
        if isinstance(pdu, TextResponse) and pdu.final and pdu.ttt != NO_TAG:
            self._note("ttt", "11.11.3", f"a final TextResponse has the Target Transfer Tag {pdu.ttt:#x}")
        if isinstance(pdu, NopIn) and NO_TAG not in (pdu.itt, pdu.ttt):
            self._note("ttt", "11.19.3", f"the answer to a ping has the Target Transfer Tag {pdu.ttt:#x}")
        for finding in findings(pdu):
            self._note(*finding)
        self._stat_sn(pdu)
        self._window(pdu)
        if isinstance(pdu, DataIn):
            self._data_in(pdu)
        elif isinstance(pdu, ReadyToTransfer):
            self._r2t(pdu)
        elif isinstance(pdu, (ScsiResponse, TaskResponse, TextResponse, LoginResponse, LogoutResponse)) or (
            isinstance(pdu, NopIn) and pdu.itt != NO_TAG
        ):
            self._response(pdu)

    def _note(self, rule: str, section: str, text: str) -> None:
        self.violations.append(Violation(rule, section, text))

    def _stat_sn(self, pdu: Pdu) -> None:
        if not isinstance(pdu, Response) or (isinstance(pdu, DataIn) and not pdu.has_status):
            return
        if isinstance(pdu, LoginResponse) and pdu.status:
            return  # 11.13.4: not valid if the login failed
        number = pdu.stat_sn
        uses = not (isinstance(pdu, ReadyToTransfer) or (isinstance(pdu, NopIn) and pdu.itt == NO_TAG))
        if self._started and number != self._numbers.exp_stat_sn:
            expected = self._numbers.exp_stat_sn
            self._note("stat-sn", "4.2.2.2", f"{type(pdu).__name__}: StatSN {number:#x}, not {expected:#x}")
        self._started = True
        if uses:
            self._numbers.exp_stat_sn = plus(number, 1)

    def _window(self, pdu: Pdu) -> None:
        if not isinstance(pdu, Response) or (isinstance(pdu, LoginResponse) and pdu.status):
            return  # 11.13.4: not meaningful if the login failed
        expected, highest, name = pdu.exp_cmd_sn, pdu.max_cmd_sn, type(pdu).__name__
        if before(highest, plus(expected, -1)):
            self._note(
                "max-cmd-sn", "4.2.2.1", f"{name}: MaxCmdSN {highest:#x} is below ExpCmdSN {expected:#x} - 1"
            )
            return
        if self._exp_cmd_sn is not None and before(expected, self._exp_cmd_sn):
            self._note(
                "exp-cmd-sn",
                "4.2.2.1",
                f"{name}: ExpCmdSN went back from {self._exp_cmd_sn:#x} to {expected:#x}",
            )
        if before(self._numbers.cmd_sn, expected):
            self._note(
                "exp-cmd-sn",
                "4.2.2.1",
                f"{name}: ExpCmdSN {expected:#x} is beyond the next CmdSN {self._numbers.cmd_sn:#x}",
            )
        self._exp_cmd_sn, self._numbers.max_cmd_sn = expected, highest

    def _response(self, pdu: Pdu) -> None:
        task = self._tasks.pop(pdu.itt, None)
        if task is None:
            self._note("itt", "11.2.1.8", f"{pdu.summary()}: no task with this tag is outstanding")
        elif isinstance(pdu, ScsiResponse) and 1 < pdu.response < _VENDOR_RESPONSE:
            self._note("response-code", "11.4.3", f"the response {pdu.response:#04x} is reserved")
        elif isinstance(pdu, ScsiResponse) and pdu.response == 0:
            self._residual(pdu, task)
            self._scsi(pdu, task)
            if task.burst and pdu.status == 0:
                self._note("data-final", "11.7.1", "the last Data-In of a command that ended in GOOD lacks F")
            count = task.next_data_sn + task.next_r2t_sn
            if pdu.exp_data_sn not in ({count, 0} if task.write and not task.read else {count}):
                self._note(
                    "exp-data-sn",
                    "11.4.8",
                    f"ExpDataSN is {pdu.exp_data_sn} after {count} Data-In and R2T PDUs",
                )

    def _residual(self, pdu: ScsiResponse | DataIn, task: _Task) -> None:
        """Check a residual by the Data-In that came, or by the expected length."""
        if pdu.overflow and pdu.underflow:
            self._note("residual", "11.4.5", f"{type(pdu).__name__}: O and U are both set")
        elif pdu.status == 0 and task.read and not task.write and not pdu.overflow:
            missing = task.read - task.received
            stated = pdu.residual if pdu.underflow else 0
            if missing != stated:
                self._note(
                    "residual",
                    "11.4.5.1",
                    f"{task.received} of {task.read} bytes came, and the residual is {stated}",
                )
        elif pdu.underflow:
            missing = max(task.read - task.received, task.write)
            if pdu.residual > missing:
                self._note(
                    "residual-over",
                    "11.4.5.1",
                    f"{describe(task.cdb)}: a residual of {pdu.residual}, and {missing} bytes can be missing",
                )

    def _scsi(self, pdu: ScsiResponse | DataIn, task: _Task) -> None:
        """Check the sense data, or the data, of a command that has its status."""
        sense = pdu.sense if isinstance(pdu, ScsiResponse) else b""
        if pdu.status == ScsiStatus.CHECK_CONDITION and sense:
            for fault in sense_faults(sense):
                self._note("sense", "11.4.7.2", f"the sense data of {describe(task.cdb)}: {fault}")
        elif pdu.status == ScsiStatus.GOOD and task.keeps_data:
            for fault in parameter_faults(task.cdb, bytes(task.data), task.read):
                self._note("parameter-data", "11.7", f"the data of {fault}")

    def _data_in(self, pdu: DataIn) -> None:
        task = self._tasks.get(pdu.itt)
        if task is None:
            self._note("itt", "11.2.1.8", f"{pdu.summary()}: no task with this tag is outstanding")
            return
        if pdu.data_sn != task.next_data_sn:
            self._note("data-sn", "4.2.2.4", f"DataSN is {pdu.data_sn}, not {task.next_data_sn}")
        in_sequence = task.burst > 0 or self.parameters.data_sequence_in_order
        if self.parameters.data_pdu_in_order and in_sequence and pdu.buffer_offset != task.next_offset:
            self._note("data-order", "13.18", f"Data-In at {pdu.buffer_offset}, not {task.next_offset}")
        if len(pdu.data) > self.parameters.max_recv:
            self._note(
                "data-length", "13.12", f"Data-In of {len(pdu.data)} bytes, over {self.parameters.max_recv}"
            )
        if pdu.buffer_offset + len(pdu.data) > task.read:
            self._note("data-length", "11.7.6", f"Data-In beyond the expected {task.read} bytes")
        task.burst += len(pdu.data)
        if task.burst > self.parameters.max_burst:
            self._note(
                "data-burst", "13.13", f"a sequence of {task.burst} bytes, over {self.parameters.max_burst}"
            )
        if pdu.has_status and not pdu.final:
            self._note("data-status", "11.7.3", "S is set and F is not")
        if pdu.has_status and pdu.status not in (0, 4, 16, 20):
            self._note(
                "data-status", "11.7.3", f"a Data-In carries status {pdu.status:#04x}, which needs a response"
            )
        task.burst = 0 if pdu.final else task.burst
        task.received += len(pdu.data)
        task.next_data_sn, task.next_offset = pdu.data_sn + 1, pdu.buffer_offset + len(pdu.data)
        task.keep(pdu)
        if pdu.has_status:
            self._residual(pdu, task)
            self._scsi(pdu, task)
            del self._tasks[pdu.itt]

    def _r2t(self, pdu: ReadyToTransfer) -> None:
        task = self._tasks.get(pdu.itt)
        if task is None:
            self._note("itt", "11.2.1.8", f"{pdu.summary()}: no task with this tag is outstanding")
            return
        limit = self.parameters.max_burst
        if pdu.r2t_sn != task.next_r2t_sn:
            self._note("r2t-sn", "4.2.2.4", f"R2TSN is {pdu.r2t_sn}, not {task.next_r2t_sn}")
        if not 0 < pdu.desired_length <= limit:
            self._note(
                "r2t-length", "11.8.4", f"an R2T for {pdu.desired_length} bytes; MaxBurstLength is {limit}"
            )
        if pdu.buffer_offset + pdu.desired_length > task.write:
            self._note("r2t-length", "11.8.4", f"an R2T beyond the expected {task.write} bytes")
        due = task.unsolicited if task.r2t_offset is None else task.r2t_offset
        if self.parameters.data_sequence_in_order and pdu.buffer_offset != due:
            self._note("r2t-order", "13.19", f"an R2T at offset {pdu.buffer_offset}, not {due}")
        if pdu.ttt == NO_TAG:
            self._note("r2t-length", "11.8.5", "an R2T with the reserved Target Transfer Tag")
        if pdu.lun != task.lun:
            self._note("r2t-lun", "11.8.5", f"an R2T has the LUN {pdu.lun:#x}; its command has {task.lun:#x}")
        task.outstanding[pdu.ttt] = pdu.desired_length
        if len(task.outstanding) > self.parameters.max_outstanding_r2t:
            allowed = self.parameters.max_outstanding_r2t
            self._note(
                "r2t-outstanding", "13.17", f"{len(task.outstanding)} R2Ts outstanding, over {allowed}"
            )
        task.next_r2t_sn, task.r2t_offset = pdu.r2t_sn + 1, pdu.buffer_offset + pdu.desired_length
