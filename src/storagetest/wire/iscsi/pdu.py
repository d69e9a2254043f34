"""Every iSCSI PDU as a value: opcode, fields by table, additional headers, a data segment (RFC 7143 11).

Rules:

1. A PDU class is its opcode and its ``LAYOUT``; encoding, decoding, lying and the text for a person all come
   from that table (:mod:`~storagetest.wire.iscsi.encoding`).
2. Decoding is total. What has a known opcode becomes that PDU, whatever stands in its fields; an unknown
   opcode is a :class:`~storagetest.errors.RemoteProtocolError` that shows the header.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from storagetest.errors import RemoteProtocolError
from storagetest.wire.bitfields import bitfield, flag, get, octets, reserved_bits, uint, unpack
from storagetest.wire.hexdump import hex_short
from storagetest.wire.iscsi.codes import NO_TAG, Opcode
from storagetest.wire.iscsi.encoding import BHS_SIZE, COMMON, Ahs, Pdu

__all__ = [
    "PDUS",
    "R2T",
    "AsyncMessage",
    "DataIn",
    "DataOut",
    "LoginRequest",
    "LoginResponse",
    "LogoutRequest",
    "LogoutResponse",
    "NopIn",
    "NopOut",
    "Reject",
    "ScsiCommand",
    "ScsiResponse",
    "SnackRequest",
    "TaskRequest",
    "TaskResponse",
    "TextRequest",
    "TextResponse",
    "decode",
    "set_reserved_bits",
]

_FINAL = flag("final", 1, 7)
_LUN = uint("lun", 8, 8)
_TTT = uint("ttt", 20, 4)
_CMD_SN = uint("cmd_sn", 24, 4)
_EXP_STAT_SN = uint("exp_stat_sn", 28, 4)
_STAT_SN = uint("stat_sn", 24, 4)
_WINDOW = (uint("exp_cmd_sn", 28, 4), uint("max_cmd_sn", 32, 4))
_DATA_SN = uint("data_sn", 36, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScsiCommand(Pdu):
    """SCSI Command (RFC 7143 11.3). A CDB over 16 bytes goes on in an AHS (11.2.2.3)."""

    OPCODE = Opcode.SCSI_COMMAND
    LAYOUT = (
        _FINAL,
        flag("read", 1, 6),
        flag("write", 1, 5),
        bitfield("attribute", 1, 0, 3),
        _LUN,
        uint("expected_length", 20, 4),
        _CMD_SN,
        _EXP_STAT_SN,
        octets("cdb", 32, 16),
    )
    immediate: bool = False
    final: bool = True
    read: bool = False
    write: bool = False
    attribute: int = 1
    lun: int = 0
    expected_length: int = 0
    cmd_sn: int = 0
    exp_stat_sn: int = 0
    cdb: bytes = bytes(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScsiResponse(Pdu):
    """SCSI Response (RFC 7143 11.4)."""

    OPCODE = Opcode.SCSI_RESPONSE
    LAYOUT = (
        _FINAL,
        flag("bidi_overflow", 1, 4),
        flag("bidi_underflow", 1, 3),
        flag("overflow", 1, 2),
        flag("underflow", 1, 1),
        uint("response", 2, 1),
        uint("status", 3, 1),
        uint("snack_tag", 20, 4),
        _STAT_SN,
        *_WINDOW,
        uint("exp_data_sn", 36, 4),
        uint("bidi_residual", 40, 4),
        uint("residual", 44, 4),
    )
    final: bool = True
    bidi_overflow: bool = False
    bidi_underflow: bool = False
    overflow: bool = False
    underflow: bool = False
    response: int = 0
    status: int = 0
    snack_tag: int = 0
    stat_sn: int = 0
    exp_cmd_sn: int = 0
    max_cmd_sn: int = 0
    exp_data_sn: int = 0
    bidi_residual: int = 0
    residual: int = 0

    @property
    def sense(self) -> bytes:
        """The sense data (RFC 7143 11.4.7.2); empty where SenseLength says none or more than there is."""
        length = int.from_bytes(self.data[:2], "big")
        return self.data[2 : 2 + length] if 2 + length <= len(self.data) else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest(Pdu):
    """Task Management Function Request (RFC 7143 11.5)."""

    OPCODE = Opcode.TASK_REQUEST
    LAYOUT = (
        _FINAL,
        bitfield("function", 1, 0, 7),
        _LUN,
        uint("referenced_itt", 20, 4),
        _CMD_SN,
        _EXP_STAT_SN,
        uint("ref_cmd_sn", 32, 4),
        uint("exp_data_sn", 36, 4),
    )
    immediate: bool = True
    final: bool = True
    function: int = 0
    lun: int = 0
    referenced_itt: int = NO_TAG
    cmd_sn: int = 0
    exp_stat_sn: int = 0
    ref_cmd_sn: int = 0
    exp_data_sn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResponse(Pdu):
    """Task Management Function Response (RFC 7143 11.6)."""

    OPCODE = Opcode.TASK_RESPONSE
    LAYOUT = (_FINAL, uint("response", 2, 1), _STAT_SN, *_WINDOW)
    final: bool = True
    response: int = 0
    stat_sn: int = 0
    exp_cmd_sn: int = 0
    max_cmd_sn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOut(Pdu):
    """SCSI Data-Out (RFC 7143 11.7)."""

    OPCODE = Opcode.DATA_OUT
    LAYOUT = (_FINAL, _LUN, _TTT, _EXP_STAT_SN, _DATA_SN, uint("buffer_offset", 40, 4))
    final: bool = True
    lun: int = 0
    ttt: int = NO_TAG
    exp_stat_sn: int = 0
    data_sn: int = 0
    buffer_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DataIn(Pdu):
    """SCSI Data-In (RFC 7143 11.7); ``status`` counts only where ``has_status`` is set."""

    OPCODE = Opcode.DATA_IN
    LAYOUT = (
        _FINAL,
        flag("acknowledge", 1, 6),
        flag("overflow", 1, 2),
        flag("underflow", 1, 1),
        flag("has_status", 1, 0),
        uint("status", 3, 1),
        _LUN,
        _TTT,
        _STAT_SN,
        *_WINDOW,
        _DATA_SN,
        uint("buffer_offset", 40, 4),
        uint("residual", 44, 4),
    )
    final: bool = True
    acknowledge: bool = False
    overflow: bool = False
    underflow: bool = False
    has_status: bool = False
    status: int = 0
    lun: int = 0
    ttt: int = NO_TAG
    stat_sn: int = 0
    exp_cmd_sn: int = 0
    max_cmd_sn: int = 0
    data_sn: int = 0
    buffer_offset: int = 0
    residual: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class R2T(Pdu):
    """Ready To Transfer (RFC 7143 11.8)."""

    OPCODE = Opcode.R2T
    LAYOUT = (
        _FINAL,
        _LUN,
        _TTT,
        _STAT_SN,
        *_WINDOW,
        uint("r2t_sn", 36, 4),
        uint("buffer_offset", 40, 4),
        uint("desired_length", 44, 4),
    )
    final: bool = True
    lun: int = 0
    ttt: int = 0
    stat_sn: int = 0
    exp_cmd_sn: int = 0
    max_cmd_sn: int = 0
    r2t_sn: int = 0
    buffer_offset: int = 0
    desired_length: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncMessage(Pdu):
    """Asynchronous Message (RFC 7143 11.9)."""

    OPCODE = Opcode.ASYNC
    LAYOUT = (
        _FINAL,
        _LUN,
        _STAT_SN,
        *_WINDOW,
        uint("event", 36, 1),
        uint("vendor_code", 37, 1),
        uint("parameter1", 38, 2),
        uint("parameter2", 40, 2),
        uint("parameter3", 42, 2),
    )
    final: bool = True
    lun: int = 0
    stat_sn: int = 0
    exp_cmd_sn: int = 0
    max_cmd_sn: int = 0
    event: int = 0
    vendor_code: int = 0
    parameter1: int = 0
    parameter2: int = 0
    parameter3: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRequest(Pdu):
    """Text Request (RFC 7143 11.10)."""

    OPCODE = Opcode.TEXT_REQUEST
    LAYOUT = (_FINAL, flag("continues", 1, 6), _LUN, _TTT, _CMD_SN, _EXP_STAT_SN)
    immediate: bool = False
    final: bool = True
    continues: bool = False
    lun: int = 0
    ttt: int = NO_TAG
    cmd_sn: int = 0
    exp_stat_sn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextResponse(Pdu):
    """Text Response (RFC 7143 11.11)."""

    OPCODE = Opcode.TEXT_RESPONSE
    LAYOUT = (_FINAL, flag("continues", 1, 6), _LUN, _TTT, _STAT_SN, *_WINDOW)
    final: bool = True
    continues: bool = False
    lun: int = 0
    ttt: int = NO_TAG
    stat_sn: int = 0
    exp_cmd_sn: int = 0
    max_cmd_sn: int = 0


_STAGES = (flag("transit", 1, 7), flag("continues", 1, 6), bitfield("csg", 1, 2, 2), bitfield("nsg", 1, 0, 2))
_SESSION_ID = (octets("isid", 8, 6), uint("tsih", 14, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginRequest(Pdu):
    """Login Request (RFC 7143 11.12); it is always immediate."""

    OPCODE = Opcode.LOGIN_REQUEST
    LAYOUT = (
        *_STAGES,
        uint("version_max", 2, 1),
        uint("version_min", 3, 1),
        *_SESSION_ID,
        uint("cid", 20, 2),
        _CMD_SN,
        _EXP_STAT_SN,
    )
    immediate: bool = True
    transit: bool = True
    continues: bool = False
    csg: int = 1
    nsg: int = 3
    version_max: int = 0
    version_min: int = 0
    isid: bytes = bytes(6)
    tsih: int = 0
    cid: int = 0
    cmd_sn: int = 0
    exp_stat_sn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginResponse(Pdu):
    """Login Response (RFC 7143 11.13); ``status`` is class and detail as one number."""

    OPCODE = Opcode.LOGIN_RESPONSE
    LAYOUT = (
        *_STAGES,
        uint("version_max", 2, 1),
        uint("version_active", 3, 1),
        *_SESSION_ID,
        _STAT_SN,
        *_WINDOW,
        uint("status", 36, 2),
    )
    transit: bool = False
    continues: bool = False
    csg: int = 0
    nsg: int = 0
    version_max: int = 0
    version_active: int = 0
    isid: bytes = bytes(6)
    tsih: int = 0
    stat_sn: int = 0
    exp_cmd_sn: int = 0
    max_cmd_sn: int = 0
    status: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutRequest(Pdu):
    """Logout Request (RFC 7143 11.14)."""

    OPCODE = Opcode.LOGOUT_REQUEST
    LAYOUT = (_FINAL, bitfield("reason", 1, 0, 7), uint("cid", 20, 2), _CMD_SN, _EXP_STAT_SN)
    immediate: bool = True
    final: bool = True
    reason: int = 0
    cid: int = 0
    cmd_sn: int = 0
    exp_stat_sn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutResponse(Pdu):
    """Logout Response (RFC 7143 11.15)."""

    OPCODE = Opcode.LOGOUT_RESPONSE
    LAYOUT = (
        _FINAL,
        uint("response", 2, 1),
        _STAT_SN,
        *_WINDOW,
        uint("time2wait", 40, 2),
        uint("time2retain", 42, 2),
    )
    final: bool = True
    response: int = 0
    stat_sn: int = 0
    exp_cmd_sn: int = 0
    max_cmd_sn: int = 0
    time2wait: int = 0
    time2retain: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnackRequest(Pdu):
    """SNACK Request (RFC 7143 11.16)."""

    OPCODE = Opcode.SNACK
    LAYOUT = (
        _FINAL,
        bitfield("kind", 1, 0, 4),
        _LUN,
        uint("ttt", 20, 4),
        _EXP_STAT_SN,
        uint("beg_run", 40, 4),
        uint("run_length", 44, 4),
    )
    final: bool = True
    kind: int = 0
    lun: int = 0
    ttt: int = NO_TAG
    exp_stat_sn: int = 0
    beg_run: int = 0
    run_length: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject(Pdu):
    """Reject (RFC 7143 11.17); ``data`` is the header of the PDU that was rejected."""

    OPCODE = Opcode.REJECT
    LAYOUT = (_FINAL, uint("reason", 2, 1), _STAT_SN, *_WINDOW, _DATA_SN)
    final: bool = True
    reason: int = 0
    stat_sn: int = 0
    exp_cmd_sn: int = 0
    max_cmd_sn: int = 0
    data_sn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NopOut(Pdu):
    """NOP-Out (RFC 7143 11.18)."""

    OPCODE = Opcode.NOP_OUT
    LAYOUT = (_FINAL, _LUN, _TTT, _CMD_SN, _EXP_STAT_SN)
    immediate: bool = False
    final: bool = True
    lun: int = 0
    ttt: int = NO_TAG
    cmd_sn: int = 0
    exp_stat_sn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NopIn(Pdu):
    """NOP-In (RFC 7143 11.19)."""

    OPCODE = Opcode.NOP_IN
    LAYOUT = (_FINAL, _LUN, _TTT, _STAT_SN, *_WINDOW)
    final: bool = True
    lun: int = 0
    ttt: int = NO_TAG
    stat_sn: int = 0
    exp_cmd_sn: int = 0
    max_cmd_sn: int = 0


PDUS: dict[int, type[Pdu]] = {
    kind.OPCODE: kind
    for kind in (
        ScsiCommand, ScsiResponse, TaskRequest, TaskResponse, DataOut, DataIn, R2T, AsyncMessage, TextRequest,
        TextResponse, LoginRequest, LoginResponse, LogoutRequest, LogoutResponse, SnackRequest, Reject,
        NopOut, NopIn,
    )
}  # fmt: skip
"""Every PDU by its opcode."""


def decode(bhs: bytes, ahs: bytes = b"", data: bytes = b"") -> Pdu:
    """Return the PDU of a header, its additional headers and its unpadded data; see rule 3."""
    opcode = get(bhs, COMMON[1])
    kind = PDUS.get(int(opcode)) if not isinstance(opcode, bytes) else None
    if kind is None or len(bhs) != BHS_SIZE:
        raise RemoteProtocolError(f"iSCSI: no PDU has opcode {opcode!r}: {hex_short(bhs)}")
    values: dict[str, Any] = dict(unpack(bhs, kind.LAYOUT))
    values["itt"] = get(bhs, COMMON[-1])
    if any(field.name == "immediate" for field in fields(kind)):
        values["immediate"] = get(bhs, COMMON[0])
    return kind(data=data, ahs=Ahs.decode_all(ahs), **values)


def set_reserved_bits(bhs: bytes) -> bytes:
    """Return the header with every bit cleared that RFC 7143 11 defines for its opcode; all zero is right."""
    opcode = bhs[0] & 0x3F
    common = COMMON if opcode < Opcode.NOP_IN else COMMON[1:]  # the I bit is the initiator's
    return reserved_bits(bhs, (*common, *PDUS[opcode].LAYOUT))
