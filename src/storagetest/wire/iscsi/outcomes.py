"""What a SCSI command or a probe of the target ended in (RFC 7143 11.4, 11.7)."""

from __future__ import annotations

from dataclasses import dataclass

from storagetest.errors import NotOffered, RemoteProtocolError
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, ReadyToTransfer, Reject, ScsiCommand, ScsiResponse
from storagetest.wire.scsi.codes import Asc
from storagetest.wire.scsi.sense import decode_sense

MAX_DATA_IN = 64 * 1024 * 1024
"""The most bytes that a command may return (chosen)."""


@dataclass(frozen=True, slots=True)
class ScsiCompletion:
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
    def is_whole(self) -> bool:
        """Whether the Data-In PDUs have each byte of ``data`` once; a gap is zeroes in ``data``."""
        end = 0
        for offset, length in sorted((pdu.buffer_offset, len(pdu.data)) for pdu in self.data_ins):
            if offset != end:
                return False
            end += length
        return end == len(self.data)

    @property
    def r2ts(self) -> tuple[ReadyToTransfer, ...]:
        """The R2T PDUs."""
        return tuple(pdu for pdu in self.pdus if isinstance(pdu, ReadyToTransfer))


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """The target's reaction: the PDUs up to the response to a ping, or to a close, or to a timeout."""

    pdus: tuple[Pdu, ...]
    closed: bool
    unresponsive: bool = False

    @property
    def reject(self) -> Reject | None:
        """The first Reject."""
        return next((pdu for pdu in self.pdus if isinstance(pdu, Reject)), None)

    def __str__(self) -> str:
        received = [pdu.summary() for pdu in self.pdus] or ["nothing"]
        end = "no response to a ping" if self.unresponsive else "the connection is open"
        return "; ".join([*received, "closed" if self.closed else end])


class CommandNotOffered(NotOffered):
    """The unit refuses ``command`` as one that it does not have, and need not have (SBC-3)."""

    def __init__(self, command: ScsiCommand, answer: str) -> None:
        super().__init__(f"{command.summary()}: {answer}")
        self.command = command


def not_offered(command: ScsiCommand, pdu: Pdu | None) -> CommandNotOffered | None:
    """Return an error if ``pdu`` states that the unit has no such command."""
    sense = decode_sense(pdu.sense) if isinstance(pdu, ScsiResponse) and pdu.sense else None
    if sense is None or sense.asc != Asc.INVALID_COMMAND_OPERATION_CODE:
        return None
    return CommandNotOffered(command, str(sense))


def completion(last: ScsiResponse | DataIn, received: list[Pdu]) -> ScsiCompletion:
    """Combine a command's PDUs; data are placed by their buffer offsets."""
    parts = [pdu for pdu in received if isinstance(pdu, DataIn)]
    size = max((pdu.buffer_offset + len(pdu.data) for pdu in parts), default=0)
    if size > MAX_DATA_IN:
        raise RemoteProtocolError(f"iSCSI: Data-In reaches to byte {size}: {parts[-1].summary()}")
    data = bytearray(size)
    for pdu in parts:
        data[pdu.buffer_offset : pdu.buffer_offset + len(pdu.data)] = pdu.data
    return ScsiCompletion(
        status=last.status,
        sense=last.sense if isinstance(last, ScsiResponse) else b"",
        data=bytes(data),
        overflow=last.overflow,
        underflow=last.underflow,
        residual=last.residual,
        response=last.response if isinstance(last, ScsiResponse) else 0,
        pdus=tuple(received),
    )
