"""Named constants of SCSI; each enumeration cites the standard that defines it."""

from __future__ import annotations

from enum import IntEnum


class ScsiStatus(IntEnum):
    """Status codes (SAM-5 5.3.1)."""

    GOOD = 0x00
    CHECK_CONDITION = 0x02
    CONDITION_MET = 0x04
    BUSY = 0x08
    RESERVATION_CONFLICT = 0x18
    TASK_SET_FULL = 0x28
    ACA_ACTIVE = 0x30
    TASK_ABORTED = 0x40


class SenseKey(IntEnum):
    """Sense keys (SPC-4, sense key descriptions)."""

    NO_SENSE = 0x0
    RECOVERED_ERROR = 0x1
    NOT_READY = 0x2
    MEDIUM_ERROR = 0x3
    HARDWARE_ERROR = 0x4
    ILLEGAL_REQUEST = 0x5
    UNIT_ATTENTION = 0x6
    DATA_PROTECT = 0x7
    BLANK_CHECK = 0x8
    VENDOR_SPECIFIC = 0x9
    COPY_ABORTED = 0xA
    ABORTED_COMMAND = 0xB
    VOLUME_OVERFLOW = 0xD
    MISCOMPARE = 0xE
    COMPLETED = 0xF


class Asc(IntEnum):
    """Additional sense code and qualifier as one number (SPC-4, ASC and ASCQ assignments)."""

    NONE = 0x0000
    INVALID_COMMAND_OPERATION_CODE = 0x2000
    LBA_OUT_OF_RANGE = 0x2100
    INVALID_FIELD_IN_CDB = 0x2400
    LOGICAL_UNIT_NOT_SUPPORTED = 0x2500
    INVALID_FIELD_IN_PARAMETER_LIST = 0x2600
    INVALID_RELEASE_OF_PERSISTENT_RESERVATION = 0x2604
    POWER_ON_OR_RESET = 0x2900
    RESET_BY_LU_OR_TMF = 0x2903
    I_T_NEXUS_LOSS = 0x2907
    MODE_PARAMETERS_CHANGED = 0x2A01
    RESERVATIONS_PREEMPTED = 0x2A03
    RESERVATIONS_RELEASED = 0x2A04
    REGISTRATIONS_PREEMPTED = 0x2A05
    CAPACITY_DATA_HAS_CHANGED = 0x2A09
    COMMANDS_CLEARED_BY_ANOTHER_INITIATOR = 0x2F00
    SAVING_PARAMETERS_NOT_SUPPORTED = 0x3900
    BECOMING_READY = 0x0401
    MEDIUM_NOT_PRESENT = 0x3A00
    MEDIUM_REMOVAL_PREVENTED = 0x5302
    PARAMETER_LIST_LENGTH_ERROR = 0x1A00
    MISCOMPARE_DURING_VERIFY = 0x1D00
    PROTOCOL_SERVICE_CRC_ERROR = 0x4705
    UNEXPECTED_UNSOLICITED_DATA = 0x0C0C
    NOT_ENOUGH_UNSOLICITED_DATA = 0x0C0D
    INSUFFICIENT_REGISTRATION_RESOURCES = 0x5504


class PrIn(IntEnum):
    """PERSISTENT RESERVE IN service actions (SPC-4)."""

    READ_KEYS = 0
    READ_RESERVATION = 1
    REPORT_CAPABILITIES = 2
    READ_FULL_STATUS = 3


class PrOut(IntEnum):
    """PERSISTENT RESERVE OUT service actions (SPC-4)."""

    REGISTER = 0
    RESERVE = 1
    RELEASE = 2
    CLEAR = 3
    PREEMPT = 4
    PREEMPT_AND_ABORT = 5
    REGISTER_AND_IGNORE_EXISTING_KEY = 6
    REGISTER_AND_MOVE = 7


class PrType(IntEnum):
    """Persistent reservation types (SPC-4)."""

    WRITE_EXCLUSIVE = 1
    EXCLUSIVE_ACCESS = 3
    WRITE_EXCLUSIVE_REGISTRANTS_ONLY = 5
    EXCLUSIVE_ACCESS_REGISTRANTS_ONLY = 6
    WRITE_EXCLUSIVE_ALL_REGISTRANTS = 7
    EXCLUSIVE_ACCESS_ALL_REGISTRANTS = 8

    @property
    def registrants(self) -> bool:
        """Whether every registered I_T nexus has access, not only the holder."""
        return self >= PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY

    @property
    def reads_too(self) -> bool:
        """Whether others may not even read (exclusive access)."""
        return self in (
            PrType.EXCLUSIVE_ACCESS,
            PrType.EXCLUSIVE_ACCESS_REGISTRANTS_ONLY,
            PrType.EXCLUSIVE_ACCESS_ALL_REGISTRANTS,
        )

    @property
    def all_hold(self) -> bool:
        """Whether every registrant is a holder."""
        return self >= PrType.WRITE_EXCLUSIVE_ALL_REGISTRANTS
