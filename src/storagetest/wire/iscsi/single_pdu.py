"""Rules of one PDU of a target that need no other PDU: codes that exist, fields that exclude each other.

Reserved bits are :func:`~storagetest.wire.iscsi.pdu.set_reserved_bits`. What is compared with a request or
with an earlier PDU is in :mod:`storagetest.wire.iscsi.validator`.
"""

from __future__ import annotations

from collections.abc import Iterator

from storagetest.wire.iscsi.codes import (
    NO_TAG,
    AsyncEvent,
    LoginStatus,
    LogoutResult,
    RejectReason,
    ServiceResponse,
    TaskResult,
)
from storagetest.wire.iscsi.encoding import BHS_SIZE, Pdu
from storagetest.wire.iscsi.pdu import (
    AsyncMessage,
    DataIn,
    LoginResponse,
    LogoutResponse,
    NopIn,
    ReadyToTransfer,
    Reject,
    ScsiResponse,
    TaskResponse,
    TextResponse,
)
from storagetest.wire.scsi.codes import ScsiStatus

_OBSOLETE_STATUS = (0x10, 0x14, 0x22)
"""INTERMEDIATE, INTERMEDIATE-CONDITION MET and COMMAND TERMINATED, which earlier standards had."""
_STATUSES = frozenset({*(int(status) for status in ScsiStatus), *_OBSOLETE_STATUS})
_WITHOUT_DATA = (ReadyToTransfer, TaskResponse, LogoutResponse)
"""PDUs that have no data segment (RFC 7143 11.6, 11.8, 11.15)."""
Finding = tuple[str, str, str]
"""Name of a rule, its section of RFC 7143, and what is wrong."""


def findings(pdu: Pdu) -> Iterator[Finding]:
    """Yield what is wrong with one PDU of a target."""
    yield from _codes(pdu)
    yield from _flags(pdu)
    yield from _tags(pdu)
    name = type(pdu).__name__
    if isinstance(pdu, _WITHOUT_DATA) and pdu.data:
        yield "data-segment", "11.6, 11.8, 11.15", f"{name} has a data segment of {len(pdu.data)} bytes"
    if isinstance(pdu, Reject) and len(pdu.data) < BHS_SIZE:
        yield "reject-header", "11.17", f"a Reject has {len(pdu.data)} bytes of the PDU that was rejected"
    if isinstance(pdu, ScsiResponse) and pdu.data:
        length = int.from_bytes(pdu.data[:2], "big")
        if len(pdu.data) < 2 or 2 + length > len(pdu.data):
            yield "sense-length", "11.4.7", f"SenseLength is {length}, of {len(pdu.data) - 2} bytes"


def _codes(pdu: Pdu) -> Iterator[Finding]:
    match pdu:
        case TaskResponse() if pdu.response not in set(TaskResult):
            yield "codes", "11.6.1", f"the response {pdu.response} of task management is not defined"
        case LogoutResponse() if pdu.response not in set(LogoutResult):
            yield "codes", "11.15.1", f"the response {pdu.response} to a logout is not defined"
        case Reject() if pdu.reason not in set(RejectReason) - {RejectReason.RESERVED}:
            yield "codes", "11.17.1", f"the reason {pdu.reason:#04x} of a Reject is not defined"
        case AsyncMessage() if pdu.event not in set(AsyncEvent):
            yield "codes", "11.9.1", f"the event {pdu.event} of an Asynchronous Message is not defined"
        case LoginResponse() if pdu.status not in set(LoginStatus):
            yield "codes", "11.13.5", f"the status {pdu.status:#06x} of a login is not defined"
        case ScsiResponse() if pdu.response == ServiceResponse.COMPLETED and pdu.status not in _STATUSES:
            yield "codes", "11.4.2", f"the SCSI status {pdu.status:#04x} is not defined"


def _flags(pdu: Pdu) -> Iterator[Finding]:
    match pdu:
        case TextResponse() if pdu.continues and pdu.final:
            yield "flags", "11.11.2", "a Text Response has C and F"
        case LoginResponse() if pdu.continues and pdu.transit:
            yield "flags", "11.13.2", "a Login Response has C and T"
        case LoginResponse() if not pdu.status and not pdu.transit and pdu.nsg:
            yield (
                "reserved-nsg",
                "11.12.3",
                f"a Login Response without T has NSG {pdu.nsg}, which is reserved then",
            )
        case LoginResponse() if not pdu.status and pdu.version_active:
            yield "flags", "11.13.1", f"Version-active is {pdu.version_active}, of a login from 0 to 0"
        case ScsiResponse() | DataIn() if pdu.overflow and pdu.underflow:
            yield "flags", "11.4.1", f"{type(pdu).__name__}: O and U are both set"
        case ScsiResponse() if pdu.bidi_overflow and pdu.bidi_underflow:
            yield "flags", "11.4.1", "a SCSI Response has both o and u"
        case DataIn() if pdu.has_status and not pdu.final:
            yield "flags", "11.7.3", "a Data-In has S without F"


def _tags(pdu: Pdu) -> Iterator[Finding]:
    match pdu:
        case Reject() | AsyncMessage() if pdu.itt != NO_TAG:
            name = type(pdu).__name__
            yield "tags", "11.9, 11.17", f"{name}: bytes 16 to 19 are {pdu.itt:#x}, not ffffffff"
        case ReadyToTransfer() if pdu.ttt == NO_TAG:
            yield "tags", "11.8.5", "an R2T with the reserved Target Transfer Tag"
        case TextResponse() if not pdu.final and pdu.ttt == NO_TAG:
            yield "tags", "11.11.3", "a Text Response without F has the reserved Target Transfer Tag"
        case NopIn() if pdu.ttt == NO_TAG and pdu.lun:
            yield "reserved-lun", "11.19", f"a NOP-In without a Target Transfer Tag has the LUN {pdu.lun:#x}"
        case DataIn() if not pdu.acknowledge and pdu.ttt == NO_TAG and pdu.lun:
            yield (
                "reserved-lun",
                "11.7.4",
                f"a Data-In without a Target Transfer Tag has the LUN {pdu.lun:#x}",
            )
