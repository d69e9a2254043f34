"""SCSI commands of one logical unit: ``unit.write(5, data)``, ``unit.reserve(WRITE_EXCLUSIVE, key)``.

Each method sends one command through a :class:`CommandRunner` (an iSCSI session) and returns a
:class:`ScsiResult`. No status raises an exception.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from storagetest.errors import DeadlineExceeded, NotOffered, RemoteProtocolError
from storagetest.polling import wait_until
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import CommandFormat, cdb
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, PrType, ScsiStatus, SenseKey
from storagetest.wire.scsi.data import unmap_list
from storagetest.wire.scsi.reservations import (
    Keys,
    Reservation,
    decode_capabilities,
    decode_keys,
    decode_reservation,
    out_list,
)
from storagetest.wire.scsi.sense import Sense, decode_sense

USUAL_TYPES = frozenset({PrType.WRITE_EXCLUSIVE, PrType.EXCLUSIVE_ACCESS})
"""Types that a unit with persistent reservations has if it has no TYPE MASK (chosen)."""

FEW_REGISTRANTS = 2
"""Registrants that a unit with persistent reservations has to take (chosen)."""

READY_TIMEOUT = 3.0
"""Seconds that a unit may take to become ready (chosen)."""

ALLOCATION = 4096


class CommandCompletion(Protocol):
    """Completion of a command on any transport."""

    @property
    def status(self) -> int: ...  # noqa: D102
    @property
    def sense(self) -> bytes: ...  # noqa: D102
    @property
    def data(self) -> bytes: ...  # noqa: D102


class CommandRunner(Protocol):
    """Runs a command: ``read`` is the expected length of data-in, ``data`` is sent."""

    def command(self, cdb: bytes, *, read: int = 0, data: bytes = b"") -> CommandCompletion: ...  # noqa: D102


@dataclass(frozen=True, slots=True, repr=False)
class ScsiResult:
    """Result of a command: its description, status, sense and data."""

    command: str
    status: int
    sense: Sense | None
    data: bytes

    @property
    def good(self) -> bool:
        """Whether the status is GOOD."""
        return self.status == ScsiStatus.GOOD

    def good_data(self) -> bytes:
        """Return the data. Raises :class:`RemoteProtocolError` if the status is not GOOD."""
        if not self.good:
            raise RemoteProtocolError(str(self))
        return self.data

    @property
    def conflict(self) -> bool:
        """Whether the status is RESERVATION CONFLICT."""
        return self.status == ScsiStatus.RESERVATION_CONFLICT

    def check(self, key: SenseKey, *codes: Asc) -> bool:
        """Return whether it ended in CHECK CONDITION with sense key ``key`` (and one of ``codes``)."""
        sense = self.sense
        return (
            self.status == ScsiStatus.CHECK_CONDITION
            and sense is not None
            and sense.key == key
            and (not codes or sense.asc in codes)
        )

    @property
    def unsupported(self) -> bool:
        """Whether the device server has no such command (SPC-4: INVALID COMMAND OPERATION CODE)."""
        return self.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_COMMAND_OPERATION_CODE)

    def __str__(self) -> str:
        names = {int(known): known.name.replace("_", " ") for known in ScsiStatus}
        text = f"{self.command}: {names.get(self.status, f'status {self.status:#04x}')}"
        return text if self.sense is None else f"{text}, {self.sense}"

    __repr__ = __str__


class NoSenseData(RemoteProtocolError):
    """CHECK CONDITION came without sense data (SAM-5 5.13)."""


class TypeNotSupported(NotOffered):
    """The unit does not have a type of persistent reservation: it need not have each (SPC-4, TYPE MASK)."""


class TooManyRegistrants(NotOffered):
    """The unit has registrants, and no resources for a further one (SPC-4, registering)."""


class LogicalUnit:
    """One logical unit through one I_T nexus. Commands that transfer blocks use ``block_size``.

    ``largest`` is the number of blocks that one command may transfer, or 0 if it is not known.
    """

    def __init__(self, runner: CommandRunner, *, block_size: int = 512, largest: int = 0) -> None:
        self.runner = runner
        self.block_size = block_size
        self.largest = largest

    def run(self, command: CommandFormat, *, read: int = 0, data: bytes = b"", **fields: Any) -> ScsiResult:  # noqa: ANN401  # Value
        """Run any command."""
        block = cdb(command, **fields)
        return self.result(self.runner.command(block, read=read, data=data), c.describe(block, command))

    @staticmethod
    def result(done: CommandCompletion, asked: str) -> ScsiResult:
        """Read a completion; CHECK CONDITION without sense data is the target's fault (SAM-5 5.13)."""
        if done.status == ScsiStatus.CHECK_CONDITION and not done.sense:
            raise NoSenseData(f"{asked}: CHECK CONDITION without sense data")
        sense = decode_sense(done.sense) if done.sense else None
        return ScsiResult(asked, done.status, sense, done.data)

    def test_unit_ready(self) -> ScsiResult:
        """TEST UNIT READY."""
        return self.run(c.TEST_UNIT_READY)

    def clear_attentions(self, *, most: int = 16) -> list[Sense]:
        """Send TEST UNIT READY until no unit attention is left, and return the unit attentions.

        A unit that is becoming ready, as it may be after a reset, has :data:`READY_TIMEOUT` to be so (SPC-4).
        """
        attentions: list[Sense] = []

        def settled() -> bool:
            while (found := self.test_unit_ready()).check(SenseKey.UNIT_ATTENTION) and len(attentions) < most:
                assert found.sense is not None
                attentions.append(found.sense)
            return not found.check(SenseKey.NOT_READY, Asc.BECOMING_READY)

        with suppress(DeadlineExceeded):
            wait_until(settled, READY_TIMEOUT, "a unit that is ready", interval=0.05)
        return attentions

    def inquiry(self, page: int | None = None, *, allocation: int = 255) -> ScsiResult:
        """INQUIRY: standard data, or a VPD page."""
        evpd = page is not None
        return self.run(c.INQUIRY, read=allocation, evpd=evpd, page=page or 0, allocation=allocation)

    def capacity16(self, *, allocation: int = 32) -> ScsiResult:
        """READ CAPACITY(16)."""
        return self.run(c.READ_CAPACITY_16, read=allocation, allocation=allocation)

    def luns(self, *, select: int = 0, allocation: int = ALLOCATION) -> ScsiResult:
        """REPORT LUNS."""
        return self.run(c.REPORT_LUNS, read=allocation, select=select, allocation=allocation)

    def read(
        self,
        lba: int,
        blocks: int = 1,
        *,
        command: CommandFormat = c.READ_16,
        **fields: Any,  # noqa: ANN401  # Value
    ) -> ScsiResult:
        """READ, by READ(16) or by ``command``."""
        return self.run(command, read=blocks * self.block_size, lba=lba, blocks=blocks, **fields)

    def write(
        self,
        lba: int,
        data: bytes,
        *,
        command: CommandFormat = c.WRITE_16,
        **fields: Any,  # noqa: ANN401  # Value
    ) -> ScsiResult:
        """WRITE whole blocks, by WRITE(16) or by ``command``."""
        return self.run(command, data=data, lba=lba, blocks=len(data) // self.block_size, **fields)

    def unmap(self, *ranges: tuple[int, int]) -> ScsiResult:
        """UNMAP."""
        data = unmap_list(*ranges)
        return self.run(c.UNMAP, data=data, allocation=len(data))

    def compare_and_write(self, lba: int, compare: bytes, write: bytes) -> ScsiResult:
        """COMPARE AND WRITE."""
        blocks = len(compare) // self.block_size
        return self.run(c.COMPARE_AND_WRITE, data=compare + write, lba=lba, blocks=blocks)

    def reserve_in(self, action: PrIn, *, allocation: int = ALLOCATION) -> ScsiResult:
        """PERSISTENT RESERVE IN."""
        return self.run(
            c.PERSISTENT_RESERVE_IN, read=allocation, service_action=int(action), allocation=allocation
        )

    def reserve_out(
        self,
        action: PrOut,
        *,
        key: int = 0,
        action_key: int = 0,
        type: int = 0,  # noqa: A002  # the standard's word
        scope: int = 0,
        aptpl: bool = False,
    ) -> ScsiResult:
        """PERSISTENT RESERVE OUT with the basic parameter list."""
        data = out_list(key, action_key, aptpl=aptpl)
        return self.run(
            c.PERSISTENT_RESERVE_OUT,
            data=data,
            service_action=int(action),
            type=int(type),
            scope=scope,
            allocation=len(data),
        )

    def register(self, new: int, *, key: int = 0, aptpl: bool = False) -> ScsiResult:
        """REGISTER: replace ``key`` by ``new``; ``new`` 0 unregisters.

        Raises :class:`TooManyRegistrants` if the unit is out of resources, and has two registrants or more.
        """
        answer = self.reserve_out(PrOut.REGISTER, key=key, action_key=new, aptpl=aptpl)
        if answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INSUFFICIENT_REGISTRATION_RESOURCES):
            there = len(self.keys().keys)
            if there >= FEW_REGISTRANTS:
                raise TooManyRegistrants(f"{there} nexuses are registered, and no further one is: {answer}")
        return answer

    def reserve(self, kind: PrType | int, key: int) -> ScsiResult:
        """RESERVE. Raises :class:`TypeNotSupported` if the unit refuses a type that it does not have."""
        return self._of_type(kind, self.reserve_out(PrOut.RESERVE, key=key, type=kind))

    def release(self, kind: PrType | int, key: int) -> ScsiResult:
        """RELEASE. Raises :class:`TypeNotSupported` if the unit refuses a type that it does not have."""
        return self._of_type(kind, self.reserve_out(PrOut.RELEASE, key=key, type=kind))

    def preempt(self, kind: PrType | int, key: int, victim: int, *, abort: bool = False) -> ScsiResult:
        """PREEMPT, or PREEMPT AND ABORT, the registrations of ``victim``.

        Raises :class:`TypeNotSupported` if the unit refuses a type that it does not have.
        """
        action = PrOut.PREEMPT_AND_ABORT if abort else PrOut.PREEMPT
        return self._of_type(kind, self.reserve_out(action, key=key, action_key=victim, type=kind))

    def reservation_types(self) -> frozenset[int] | None:
        """Return the types of the TYPE MASK of REPORT CAPABILITIES, or None if it is not valid (TMV 0)."""
        answer = self.reserve_in(PrIn.REPORT_CAPABILITIES)
        return decode_capabilities(answer.data).types if answer.good else None

    def _of_type(self, kind: PrType | int, answer: ScsiResult) -> ScsiResult:
        """Return ``answer``, which a request with the type ``kind`` got.

        Without a TYPE MASK, INVALID FIELD IN CDB is what states that the unit does not have the type. That it
        has :data:`USUAL_TYPES` is taken for granted then.
        """
        if kind in set(PrType) and answer.check(SenseKey.ILLEGAL_REQUEST):
            types = self.reservation_types()
            refused = answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)
            unknown = types is None and refused and kind not in USUAL_TYPES
            if unknown or (types is not None and kind not in types):
                raise TypeNotSupported(
                    f"{answer}: the unit does not support reservations of type {PrType(kind).name} "
                    f"(TYPE MASK of REPORT CAPABILITIES: {'not valid' if types is None else sorted(types)})"
                )
        return answer

    def keys(self) -> Keys:
        """READ KEYS, decoded. Raises :class:`RemoteProtocolError` if it fails."""
        return decode_keys(self.reserve_in(PrIn.READ_KEYS).good_data())

    def reservation(self) -> Reservation:
        """READ RESERVATION, decoded. Raises :class:`RemoteProtocolError` if it fails."""
        return decode_reservation(self.reserve_in(PrIn.READ_RESERVATION).good_data())
