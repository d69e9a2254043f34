"""Named constants of RFC 7143 and RFC 7144; each enumeration cites its section."""

from __future__ import annotations

from enum import IntEnum

NO_TAG = 0xFFFFFFFF
"""The reserved Initiator Task Tag and Target Transfer Tag (RFC 7143 11.2.1.8, 11.7.4)."""


class Opcode(IntEnum):
    """BHS opcodes (RFC 7143 11.2.1.2); from 0x20 they are the target's."""

    NOP_OUT = 0x00
    SCSI_COMMAND = 0x01
    TASK_REQUEST = 0x02
    LOGIN_REQUEST = 0x03
    TEXT_REQUEST = 0x04
    DATA_OUT = 0x05
    LOGOUT_REQUEST = 0x06
    SNACK = 0x10
    NOP_IN = 0x20
    SCSI_RESPONSE = 0x21
    TASK_RESPONSE = 0x22
    LOGIN_RESPONSE = 0x23
    TEXT_RESPONSE = 0x24
    DATA_IN = 0x25
    LOGOUT_RESPONSE = 0x26
    R2T = 0x31
    ASYNC = 0x32
    REJECT = 0x3F


class Attribute(IntEnum):
    """Task attributes of a SCSI command (RFC 7143 11.3.1)."""

    UNTAGGED = 0
    SIMPLE = 1
    ORDERED = 2
    HEAD_OF_QUEUE = 3
    ACA = 4


class ServiceResponse(IntEnum):
    """The iSCSI service response of a SCSI response (RFC 7143 11.4.3)."""

    COMPLETED = 0x00
    TARGET_FAILURE = 0x01


class Stage(IntEnum):
    """Login stages, CSG and NSG (RFC 7143 11.12.3)."""

    SECURITY = 0
    OPERATIONAL = 1
    RESERVED = 2
    FULL_FEATURE = 3


class LoginStatus(IntEnum):
    """Status-Class and Status-Detail as one number (RFC 7143 11.13.5)."""

    SUCCESS = 0x0000
    MOVED_TEMPORARILY = 0x0101
    MOVED_PERMANENTLY = 0x0102
    INITIATOR_ERROR = 0x0200
    AUTHENTICATION_FAILED = 0x0201
    AUTHORIZATION_FAILED = 0x0202
    NOT_FOUND = 0x0203
    TARGET_REMOVED = 0x0204
    UNSUPPORTED_VERSION = 0x0205
    TOO_MANY_CONNECTIONS = 0x0206
    MISSING_PARAMETER = 0x0207
    CANNOT_INCLUDE = 0x0208
    SESSION_TYPE = 0x0209
    NO_SESSION = 0x020A
    INVALID_DURING_LOGIN = 0x020B
    TARGET_ERROR = 0x0300
    SERVICE_UNAVAILABLE = 0x0301
    OUT_OF_RESOURCES = 0x0302


class TaskFunction(IntEnum):
    """Task management functions (RFC 7143 11.5.1; 9 to 12 are RFC 7144 6.3)."""

    ABORT_TASK = 1
    ABORT_TASK_SET = 2
    CLEAR_ACA = 3
    CLEAR_TASK_SET = 4
    LOGICAL_UNIT_RESET = 5
    TARGET_WARM_RESET = 6
    TARGET_COLD_RESET = 7
    TASK_REASSIGN = 8
    QUERY_TASK = 9
    QUERY_TASK_SET = 10
    I_T_NEXUS_RESET = 11
    QUERY_ASYNC_EVENT = 12


class TaskResult(IntEnum):
    """Task management responses (RFC 7143 11.6.1; 7 is RFC 7144 6.4)."""

    COMPLETE = 0
    TASK_DOES_NOT_EXIST = 1
    LUN_DOES_NOT_EXIST = 2
    TASK_STILL_ALLEGIANT = 3
    REASSIGNMENT_NOT_SUPPORTED = 4
    NOT_SUPPORTED = 5
    AUTHORIZATION_FAILED = 6
    SUCCEEDED = 7
    REJECTED = 255


class LogoutReason(IntEnum):
    """Reason codes of a Logout Request (RFC 7143 11.14.1)."""

    CLOSE_SESSION = 0
    CLOSE_CONNECTION = 1
    RECOVERY = 2


class LogoutResult(IntEnum):
    """Responses to a logout (RFC 7143 11.15.1)."""

    SUCCESS = 0
    CID_NOT_FOUND = 1
    RECOVERY_NOT_SUPPORTED = 2
    CLEANUP_FAILED = 3


class SnackType(IntEnum):
    """Types of a SNACK Request (RFC 7143 11.16.1)."""

    DATA_OR_R2T = 0
    STATUS = 1
    DATA_ACK = 2
    R_DATA = 3


class RejectReason(IntEnum):
    """Reason codes of a Reject (RFC 7143 11.17.1)."""

    RESERVED = 0x01
    DATA_DIGEST_ERROR = 0x02
    SNACK_REJECT = 0x03
    PROTOCOL_ERROR = 0x04
    COMMAND_NOT_SUPPORTED = 0x05
    TOO_MANY_IMMEDIATE = 0x06
    TASK_IN_PROGRESS = 0x07
    INVALID_DATA_ACK = 0x08
    INVALID_PDU_FIELD = 0x09
    LONG_OPERATION = 0x0A
    NEGOTIATION_RESET = 0x0B
    WAITING_FOR_LOGOUT = 0x0C


class AsyncEvent(IntEnum):
    """Asynchronous events (RFC 7143 11.9.1)."""

    SCSI = 0
    LOGOUT_REQUEST = 1
    DROP_CONNECTION = 2
    DROP_ALL_CONNECTIONS = 3
    RENEGOTIATE = 4
    TASK_TERMINATION = 5
    VENDOR = 255
