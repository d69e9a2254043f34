"""Numbers of NVM Express Base 2.3 and the NVM Command Set 1.2, each with its section."""

from __future__ import annotations

from enum import IntEnum

FABRICS = 0x7F
"""The opcode of every fabrics command (Base 6)."""


class Fctype(IntEnum):
    """Fabrics Command Type (Base 6)."""

    PROPERTY_SET = 0x00  # 6.6
    CONNECT = 0x01  # 6.3
    PROPERTY_GET = 0x04  # 6.5
    AUTHENTICATION_SEND = 0x05  # 6.2
    AUTHENTICATION_RECEIVE = 0x06  # 6.1
    DISCONNECT = 0x08  # 6.4


class Admin(IntEnum):
    """Opcodes of admin commands (Base 5)."""

    DELETE_IO_SQ = 0x00
    CREATE_IO_SQ = 0x01
    GET_LOG_PAGE = 0x02  # 5.2.12
    DELETE_IO_CQ = 0x04
    CREATE_IO_CQ = 0x05
    IDENTIFY = 0x06  # 5.2.13
    ABORT = 0x08  # 5.2.1
    SET_FEATURES = 0x09  # 5.2.26
    GET_FEATURES = 0x0A  # 5.2.11
    ASYNCHRONOUS_EVENT_REQUEST = 0x0C  # 5.2.2
    KEEP_ALIVE = 0x18  # 5.2.14


class Io(IntEnum):
    """Opcodes of I/O commands (Base 7, NVM 3.3)."""

    FLUSH = 0x00  # Base 7.2
    WRITE = 0x01  # NVM 3.3.6
    READ = 0x02  # NVM 3.3.4
    WRITE_UNCORRECTABLE = 0x04  # NVM 3.3.7
    COMPARE = 0x05  # NVM 3.3.1
    WRITE_ZEROES = 0x08  # NVM 3.3.8
    DATASET_MANAGEMENT = 0x09  # NVM 3.3.3
    VERIFY = 0x0C  # NVM 3.3.5
    RESERVATION_REGISTER = 0x0D  # Base 7.6
    RESERVATION_REPORT = 0x0E  # Base 7.8
    RESERVATION_ACQUIRE = 0x11  # Base 7.5
    RESERVATION_RELEASE = 0x15  # Base 7.7
    COPY = 0x19  # NVM 3.3.2


ONCS_BITS = {
    Io.COMPARE: 0,
    Io.WRITE_UNCORRECTABLE: 1,
    Io.DATASET_MANAGEMENT: 2,
    Io.WRITE_ZEROES: 3,
    Io.VERIFY: 7,
    Io.COPY: 8,
}
"""The bit of ONCS that announces an optional command (Base 5.2.13.2.1)."""


class Property(IntEnum):
    """Offsets of controller properties (Base 3.1.4)."""

    CAP = 0x00  # 3.1.4.1
    VS = 0x08  # 3.1.4.2
    CC = 0x14  # 3.1.4.5
    CSTS = 0x1C  # 3.1.4.6
    NSSR = 0x20  # 3.1.4.7
    CRTO = 0x68  # 3.1.4.21


PROPERTY_SIZE: dict[int, int] = {Property.CAP: 8}
"""Size in bytes of the properties that do not have four."""


class Cns(IntEnum):
    """Controller or Namespace Structure of Identify (Base 5.2.13)."""

    NAMESPACE = 0x00  # NVM 4.1.5.1
    CONTROLLER = 0x01  # 5.2.13.2.1
    ACTIVE_NAMESPACES = 0x02  # 5.2.13.2.2
    DESCRIPTORS = 0x03  # 5.2.13.2.3
    CSI_NAMESPACE = 0x05  # 5.2.13.2.5
    CSI_CONTROLLER = 0x06  # 5.2.13.2.6
    CSI_ACTIVE_NAMESPACES = 0x07  # 5.2.13.2.7
    CSI_INDEPENDENT = 0x08  # 5.2.13.2.8
    CSI_VECTORS = 0x1C  # 5.2.13.2.21


class LogPage(IntEnum):
    """Log Page Identifier (Base 5.2.12)."""

    SUPPORTED = 0x00  # 5.2.12.1.1
    ERROR = 0x01  # 5.2.12.1.2
    SMART = 0x02  # 5.2.12.1.3
    FIRMWARE_SLOT = 0x03  # 5.2.12.1.4
    CHANGED_NAMESPACES = 0x04  # 5.2.12.1.5
    EFFECTS = 0x05  # 5.2.12.1.6
    ANA = 0x0C  # 5.2.12.1.13
    FEATURES = 0x12  # 5.2.12.1.18
    DISCOVERY = 0x70  # 5.2.12.3.3
    RESERVATION_NOTIFICATION = 0x80  # 5.2.12.1.35


class Feature(IntEnum):
    """Feature Identifier (Base 5.2.26)."""

    ARBITRATION = 0x01  # 5.2.26.1.1
    POWER_MANAGEMENT = 0x02  # 5.2.26.1.2
    TEMPERATURE_THRESHOLD = 0x04  # 5.2.26.1.3
    ERROR_RECOVERY = 0x05  # NVM 4.1.3.2
    VOLATILE_WRITE_CACHE = 0x06  # 5.2.26.1.4
    NUMBER_OF_QUEUES = 0x07  # 5.2.26.2.1
    WRITE_ATOMICITY = 0x0A  # Write Atomicity Normal, NVM 4.1.3.4
    ASYNC_EVENT = 0x0B  # 5.2.26.1.5
    KATO = 0x0F  # 5.2.26.1.8
    HOST_BEHAVIOR = 0x16  # Host Behavior Support, 5.2.26.1.14
    HOST_IDENTIFIER = 0x81  # 5.2.26.1.32
    RESERVATION_NOTIFICATION_MASK = 0x82  # 5.2.26.1.33
    RESERVATION_PERSISTENCE = 0x83  # 5.2.26.1.34
    WRITE_PROTECT = 0x84  # Namespace Write Protection Config, 5.2.26.1.35


class Rtype(IntEnum):
    """Reservation Type (Base 7.5; what each allows: 8.1.24.1)."""

    WRITE_EXCLUSIVE = 1
    EXCLUSIVE_ACCESS = 2
    WRITE_EXCLUSIVE_REGISTRANTS_ONLY = 3
    EXCLUSIVE_ACCESS_REGISTRANTS_ONLY = 4
    WRITE_EXCLUSIVE_ALL_REGISTRANTS = 5
    EXCLUSIVE_ACCESS_ALL_REGISTRANTS = 6

    @property
    def registrants(self) -> bool:
        """Whether every registrant has access, not only the holder."""
        return self >= Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY

    @property
    def reads_too(self) -> bool:
        """Whether others may not even read (exclusive access)."""
        return self in (
            Rtype.EXCLUSIVE_ACCESS,
            Rtype.EXCLUSIVE_ACCESS_REGISTRANTS_ONLY,
            Rtype.EXCLUSIVE_ACCESS_ALL_REGISTRANTS,
        )

    @property
    def all_hold(self) -> bool:
        """Whether every registrant is a holder."""
        return self >= Rtype.WRITE_EXCLUSIVE_ALL_REGISTRANTS


class StatusCode(IntEnum):
    """Status Code Type << 8 | Status Code (Base 4.2.3)."""

    SUCCESS = 0x000  # 4.2.3.1, to the next comment
    INVALID_OPCODE = 0x001
    INVALID_FIELD = 0x002
    COMMAND_ID_CONFLICT = 0x003
    DATA_TRANSFER_ERROR = 0x004
    INTERNAL_ERROR = 0x006
    ABORTED_BY_REQUEST = 0x007
    ABORTED_SQ_DELETION = 0x008
    ABORTED_FAILED_FUSED = 0x009
    ABORTED_MISSING_FUSED = 0x00A
    INVALID_NAMESPACE = 0x00B
    COMMAND_SEQUENCE_ERROR = 0x00C
    INVALID_SGL_SEGMENT = 0x00D
    INVALID_NUMBER_OF_SGL = 0x00E
    DATA_SGL_LENGTH_INVALID = 0x00F
    METADATA_SGL_LENGTH_INVALID = 0x010
    SGL_TYPE_INVALID = 0x011
    PRP_OFFSET_INVALID = 0x013
    ATOMIC_WRITE_UNIT_EXCEEDED = 0x014
    SGL_OFFSET_INVALID = 0x016
    HOST_IDENTIFIER_INCONSISTENT = 0x018
    KEEP_ALIVE_EXPIRED = 0x019
    KEEP_ALIVE_INVALID = 0x01A
    SGL_BLOCK_GRANULARITY_INVALID = 0x01E
    NAMESPACE_WRITE_PROTECTED = 0x020
    TRANSIENT_TRANSPORT_ERROR = 0x022
    LBA_OUT_OF_RANGE = 0x080  # NVM 3.1
    CAPACITY_EXCEEDED = 0x081
    NAMESPACE_NOT_READY = 0x082
    RESERVATION_CONFLICT = 0x083
    INVALID_QUEUE_IDENTIFIER = 0x101  # 4.2.3.2 (command specific), to the next comment
    INVALID_QUEUE_SIZE = 0x102
    ABORT_LIMIT_EXCEEDED = 0x103
    AER_LIMIT_EXCEEDED = 0x105
    INVALID_LOG_PAGE = 0x109
    FEATURE_NOT_SAVEABLE = 0x10D
    FEATURE_NOT_CHANGEABLE = 0x10E
    FEATURE_NOT_NAMESPACE_SPECIFIC = 0x10F
    INVALID_CONTROLLER_IDENTIFIER = 0x11F
    INVALID_IO_COMMAND_SET = 0x12C
    COMMAND_SIZE_LIMIT_EXCEEDED = 0x183  # NVM 3.1, as the next one
    CONFLICTING_ATTRIBUTES = 0x180
    CONNECT_INCOMPATIBLE_FORMAT = 0x180  # 4.2.3.2 (of fabrics commands), to the next comment
    CONNECT_CONTROLLER_BUSY = 0x181
    CONNECT_INVALID_PARAMETERS = 0x182
    CONNECT_RESTART_DISCOVERY = 0x183
    CONNECT_INVALID_HOST = 0x184
    DISCONNECT_INVALID_QUEUE_TYPE = 0x185
    DISCOVER_RESTART = 0x190
    AUTHENTICATION_REQUIRED = 0x191
    WRITE_FAULT = 0x280  # 4.2.3.3 (media and data integrity), to the next comment
    UNRECOVERED_READ_ERROR = 0x281
    COMPARE_FAILURE = 0x285
    INTERNAL_PATH_ERROR = 0x300  # 4.2.3.4 (path related)
    ANA_PERSISTENT_LOSS = 0x301
    ANA_INACCESSIBLE = 0x302
    ANA_TRANSITION = 0x303


def status_name(code: int) -> str:
    """Return a status by name and numbers: ``LBA_OUT_OF_RANGE (0h/80h)``."""
    try:
        name = StatusCode(code).name
    except ValueError:
        name = "status"
    return f"{name} ({code >> 8:x}h/{code & 0xFF:02x}h)"
