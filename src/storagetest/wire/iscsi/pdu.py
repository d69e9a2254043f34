"""iSCSI PDUs as dataclasses: opcode, fields, additional headers, a data segment (RFC 7143 11).

Rules:

1. A PDU class states its opcode and, for each field, its type, its bits in the header and its default.
   Encoding, overriding, decoding, reserved bits and summaries derive from that
   (:func:`~storagetest.wire.bitfields.layout_of`, :mod:`~storagetest.wire.iscsi.encoding`).
2. Decoding is total. A known opcode becomes that PDU, whatever its fields contain; an unknown opcode is a
   :class:`~storagetest.errors.RemoteProtocolError` that shows the header.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from storagetest.errors import RemoteProtocolError
from storagetest.wire.bitfields import bitfield, flag, layout_of, octets, reserved_bits, uint, unpack
from storagetest.wire.hexdump import hex_short
from storagetest.wire.iscsi.codes import NO_TAG, Opcode
from storagetest.wire.iscsi.encoding import BHS_SIZE, Ahs, Pdu, header_layout

# Positions without a name: a field has the name of the attribute that it annotates.
_uint, _bits, _flag, _octets = (
    partial(uint, ""),
    partial(bitfield, ""),
    partial(flag, ""),
    partial(octets, ""),
)

# Fields that several PDUs have at the same offset.
_Immediate = Annotated[bool, _flag(0, 6)]  # RFC 7143 11.2.1.1
_Final = Annotated[bool, _flag(1, 7)]  # 11.2.1.3
_Continues = Annotated[bool, _flag(1, 6)]  # 11.10.2, 11.12.2
_Overflow = Annotated[bool, _flag(1, 2)]  # 11.4.1, 11.7.2
_Underflow = Annotated[bool, _flag(1, 1)]  # 11.4.1, 11.7.2
_ResponseCode = Annotated[int, _uint(2, 1)]  # 11.4.3, 11.6.1, 11.15.1
_Status = Annotated[int, _uint(3, 1)]  # 11.4.2, 11.7.2
_Lun = Annotated[int, _uint(8, 8)]  # 11.2.1.7
_Ttt = Annotated[int, _uint(20, 4)]  # 11.7.4
_Cid = Annotated[int, _uint(20, 2)]  # 11.12.7, 11.14.3
_ExpStatSn = Annotated[int, _uint(28, 4)]  # 4.2.2.2
_DataSn = Annotated[int, _uint(36, 4)]  # 11.7.5
_ExpDataSn = Annotated[int, _uint(36, 4)]  # 11.4.8, 11.5.6
_BufferOffset = Annotated[int, _uint(40, 4)]  # 11.7.6, 11.8.4
_Residual = Annotated[int, _uint(44, 4)]  # 11.4.5.1

# Fields of both login PDUs.
_Transit = Annotated[bool, _flag(1, 7)]  # 11.12.1
_Csg = Annotated[int, _bits(1, 2, 2)]  # 11.12.3
_Nsg = Annotated[int, _bits(1, 0, 2)]  # 11.12.3
_VersionMax = Annotated[int, _uint(2, 1)]  # 11.12.4.1
_Isid = Annotated[bytes, _octets(8, 6)]  # 11.12.5
_Tsih = Annotated[int, _uint(14, 2)]  # 11.12.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Pdu):
    """Base of the PDUs that an initiator numbers (RFC 7143 4.2.2.1)."""

    immediate: _Immediate = False
    cmd_sn: Annotated[int, _uint(24, 4)] = 0
    exp_stat_sn: _ExpStatSn = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Response(Pdu):
    """Base of all PDUs of a target: StatSN (RFC 7143 4.2.2.2) and the command window (4.2.2.1)."""

    stat_sn: Annotated[int, _uint(24, 4)] = 0
    exp_cmd_sn: Annotated[int, _uint(28, 4)] = 0
    max_cmd_sn: Annotated[int, _uint(32, 4)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScsiCommand(Request):
    """SCSI Command (RFC 7143 11.3). A CDB over 16 bytes continues in an AHS (11.2.2.3)."""

    OPCODE = Opcode.SCSI_COMMAND
    final: _Final = True
    read: Annotated[bool, _flag(1, 6)] = False
    write: Annotated[bool, _flag(1, 5)] = False
    attribute: Annotated[int, _bits(1, 0, 3)] = 1
    lun: _Lun = 0
    expected_length: Annotated[int, _uint(20, 4)] = 0
    cdb: Annotated[bytes, _octets(32, 16)] = bytes(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScsiResponse(Response):
    """SCSI Response (RFC 7143 11.4)."""

    OPCODE = Opcode.SCSI_RESPONSE
    final: _Final = True
    bidi_overflow: Annotated[bool, _flag(1, 4)] = False
    bidi_underflow: Annotated[bool, _flag(1, 3)] = False
    overflow: _Overflow = False
    underflow: _Underflow = False
    response: _ResponseCode = 0
    status: _Status = 0
    snack_tag: Annotated[int, _uint(20, 4)] = 0
    exp_data_sn: _ExpDataSn = 0
    bidi_residual: Annotated[int, _uint(40, 4)] = 0
    residual: _Residual = 0

    @property
    def sense(self) -> bytes:
        """The sense data (RFC 7143 11.4.7.2); empty if SenseLength is zero or past the end."""
        length = int.from_bytes(self.data[:2], "big")
        return self.data[2 : 2 + length] if 2 + length <= len(self.data) else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest(Request):
    """Task Management Function Request (RFC 7143 11.5)."""

    OPCODE = Opcode.TASK_REQUEST
    immediate: _Immediate = True
    final: _Final = True
    function: Annotated[int, _bits(1, 0, 7)] = 0
    lun: _Lun = 0
    referenced_itt: Annotated[int, _uint(20, 4)] = NO_TAG
    ref_cmd_sn: Annotated[int, _uint(32, 4)] = 0
    exp_data_sn: _ExpDataSn = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResponse(Response):
    """Task Management Function Response (RFC 7143 11.6)."""

    OPCODE = Opcode.TASK_RESPONSE
    final: _Final = True
    response: _ResponseCode = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOut(Pdu):
    """SCSI Data-Out (RFC 7143 11.7)."""

    OPCODE = Opcode.DATA_OUT
    final: _Final = True
    lun: _Lun = 0
    ttt: _Ttt = NO_TAG
    exp_stat_sn: _ExpStatSn = 0
    data_sn: _DataSn = 0
    buffer_offset: _BufferOffset = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DataIn(Response):
    """SCSI Data-In (RFC 7143 11.7); ``status`` is valid only if ``has_status`` is set."""

    OPCODE = Opcode.DATA_IN
    final: _Final = True
    acknowledge: Annotated[bool, _flag(1, 6)] = False
    overflow: _Overflow = False
    underflow: _Underflow = False
    has_status: Annotated[bool, _flag(1, 0)] = False
    status: _Status = 0
    lun: _Lun = 0
    ttt: _Ttt = NO_TAG
    data_sn: _DataSn = 0
    buffer_offset: _BufferOffset = 0
    residual: _Residual = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyToTransfer(Response):
    """Ready To Transfer (RFC 7143 11.8)."""

    OPCODE = Opcode.R2T
    final: _Final = True
    lun: _Lun = 0
    ttt: _Ttt = 0
    r2t_sn: Annotated[int, _uint(36, 4)] = 0
    buffer_offset: _BufferOffset = 0
    desired_length: Annotated[int, _uint(44, 4)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncMessage(Response):
    """Asynchronous Message (RFC 7143 11.9)."""

    OPCODE = Opcode.ASYNC
    final: _Final = True
    lun: _Lun = 0
    event: Annotated[int, _uint(36, 1)] = 0
    vendor_code: Annotated[int, _uint(37, 1)] = 0
    parameter1: Annotated[int, _uint(38, 2)] = 0
    parameter2: Annotated[int, _uint(40, 2)] = 0
    parameter3: Annotated[int, _uint(42, 2)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRequest(Request):
    """Text Request (RFC 7143 11.10)."""

    OPCODE = Opcode.TEXT_REQUEST
    final: _Final = True
    continues: _Continues = False
    lun: _Lun = 0
    ttt: _Ttt = NO_TAG


@dataclass(frozen=True, slots=True, kw_only=True)
class TextResponse(Response):
    """Text Response (RFC 7143 11.11)."""

    OPCODE = Opcode.TEXT_RESPONSE
    final: _Final = True
    continues: _Continues = False
    lun: _Lun = 0
    ttt: _Ttt = NO_TAG


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginRequest(Request):
    """Login Request (RFC 7143 11.12); it is always immediate."""

    OPCODE = Opcode.LOGIN_REQUEST
    immediate: _Immediate = True
    transit: _Transit = True
    continues: _Continues = False
    csg: _Csg = 1
    nsg: _Nsg = 3
    version_max: _VersionMax = 0
    version_min: Annotated[int, _uint(3, 1)] = 0
    isid: _Isid = bytes(6)
    tsih: _Tsih = 0
    cid: _Cid = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginResponse(Response):
    """Login Response (RFC 7143 11.13); ``status`` is class and detail as one number."""

    OPCODE = Opcode.LOGIN_RESPONSE
    transit: _Transit = False
    continues: _Continues = False
    csg: _Csg = 0
    nsg: _Nsg = 0
    version_max: _VersionMax = 0
    version_active: Annotated[int, _uint(3, 1)] = 0
    isid: _Isid = bytes(6)
    tsih: _Tsih = 0
    status: Annotated[int, _uint(36, 2)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutRequest(Request):
    """Logout Request (RFC 7143 11.14)."""

    OPCODE = Opcode.LOGOUT_REQUEST
    immediate: _Immediate = True
    final: _Final = True
    reason: Annotated[int, _bits(1, 0, 7)] = 0
    cid: _Cid = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogoutResponse(Response):
    """Logout Response (RFC 7143 11.15)."""

    OPCODE = Opcode.LOGOUT_RESPONSE
    final: _Final = True
    response: _ResponseCode = 0
    time2wait: Annotated[int, _uint(40, 2)] = 0
    time2retain: Annotated[int, _uint(42, 2)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnackRequest(Pdu):
    """SNACK Request (RFC 7143 11.16)."""

    OPCODE = Opcode.SNACK
    final: _Final = True
    kind: Annotated[int, _bits(1, 0, 4)] = 0
    lun: _Lun = 0
    ttt: _Ttt = NO_TAG
    exp_stat_sn: _ExpStatSn = 0
    beg_run: Annotated[int, _uint(40, 4)] = 0
    run_length: Annotated[int, _uint(44, 4)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject(Response):
    """Reject (RFC 7143 11.17); ``data`` is the header of the PDU that was rejected."""

    OPCODE = Opcode.REJECT
    final: _Final = True
    reason: Annotated[int, _uint(2, 1)] = 0
    data_sn: _DataSn = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NopOut(Request):
    """NOP-Out (RFC 7143 11.18)."""

    OPCODE = Opcode.NOP_OUT
    final: _Final = True
    lun: _Lun = 0
    ttt: _Ttt = NO_TAG


@dataclass(frozen=True, slots=True, kw_only=True)
class NopIn(Response):
    """NOP-In (RFC 7143 11.19)."""

    OPCODE = Opcode.NOP_IN
    final: _Final = True
    lun: _Lun = 0
    ttt: _Ttt = NO_TAG


PDUS: dict[int, type[Pdu]] = {
    kind.OPCODE: kind
    for kind in (
        ScsiCommand, ScsiResponse, TaskRequest, TaskResponse, DataOut, DataIn, ReadyToTransfer, AsyncMessage,
        TextRequest, TextResponse, LoginRequest, LoginResponse, LogoutRequest, LogoutResponse,
        SnackRequest, Reject, NopOut, NopIn,
    )
}  # fmt: skip
"""Every PDU by its opcode."""


def decode(bhs: bytes, ahs: bytes = b"", data: bytes = b"") -> Pdu:
    """Return the PDU of a header, its additional headers and its unpadded data; see rule 2."""
    kind = PDUS.get(bhs[0] & 0x3F) if len(bhs) == BHS_SIZE else None
    if kind is None:
        raise RemoteProtocolError(f"iSCSI: no PDU has this opcode and length: {hex_short(bhs)}")
    values: dict[str, Any] = dict(unpack(bhs, layout_of(kind)))
    return kind(data=data, ahs=Ahs.decode_all(ahs), **values)


def set_reserved_bits(bhs: bytes) -> bytes:
    """Return the header's reserved bits: every bit that RFC 7143 11 defines for its opcode is cleared."""
    return reserved_bits(bhs, header_layout(PDUS[bhs[0] & 0x3F]))
