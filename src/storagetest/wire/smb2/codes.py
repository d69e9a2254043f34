"""Numbers of SMB 2 and 3. Sections are those of MS-SMB2, if no other document is named."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class SmbCommand(IntEnum):
    """Commands (2.2.1.2)."""

    NEGOTIATE = 0
    SESSION_SETUP = 1
    LOGOFF = 2
    TREE_CONNECT = 3
    TREE_DISCONNECT = 4
    CREATE = 5
    CLOSE = 6
    FLUSH = 7
    READ = 8
    WRITE = 9
    LOCK = 10
    IOCTL = 11
    CANCEL = 12
    ECHO = 13
    QUERY_DIRECTORY = 14
    CHANGE_NOTIFY = 15
    QUERY_INFO = 16
    SET_INFO = 17
    OPLOCK_BREAK = 18


class Flags(IntFlag):
    """Flags of the header (2.2.1.2)."""

    RESPONSE = 0x1
    ASYNC = 0x2
    RELATED = 0x4
    SIGNED = 0x8
    PRIORITY = 0x70
    DFS = 0x10000000
    REPLAY = 0x20000000


class Dialect(IntEnum):
    """Dialect revisions (2.2.3)."""

    SMB_2_0_2 = 0x0202
    SMB_2_1 = 0x0210
    SMB_3_0 = 0x0300
    SMB_3_0_2 = 0x0302
    SMB_3_1_1 = 0x0311
    WILDCARD = 0x02FF


class Capability(IntFlag):
    """Capabilities of client or server (2.2.3, 2.2.4)."""

    DFS = 0x01
    LEASING = 0x02
    LARGE_MTU = 0x04
    MULTI_CHANNEL = 0x08
    PERSISTENT_HANDLES = 0x10
    DIRECTORY_LEASING = 0x20
    ENCRYPTION = 0x40
    NOTIFICATIONS = 0x80


SIGNING_ENABLED, SIGNING_REQUIRED = 1, 2
"""Bits of SecurityMode (2.2.3, 2.2.5)."""

SESSION_BINDING = 1
"""Flag of SESSION_SETUP: bind the connection to the session (2.2.5)."""

SESSION_IS_ANONYMOUS_OR_DEFAULT, SESSION_ENCRYPT_DATA = 3, 4
"""SessionFlags of the SESSION_SETUP response: IS_GUEST and IS_NULL, and ENCRYPT_DATA (2.2.6)."""

SHARE_ENCRYPT_DATA = 0x8000
"""ShareFlags of the TREE_CONNECT response: the server requires encryption (2.2.10)."""

SHARE_CONTINUOUS_AVAILABILITY = 0x10
"""Capability of a share: it has persistent handles (2.2.10)."""


class ContextType(IntEnum):
    """Negotiate contexts (2.2.3.1); POSIX is that of Samba's and Linux's extensions."""

    PREAUTH_INTEGRITY = 1
    ENCRYPTION = 2
    COMPRESSION = 3
    NETNAME = 5
    TRANSPORT = 6
    RDMA_TRANSFORM = 7
    SIGNING = 8
    POSIX = 0x100


SHA_512 = 1
"""The hash of pre-authentication integrity (2.2.3.1.1)."""


class Cipher(IntEnum):
    """Ciphers of encryption (2.2.3.1.2)."""

    AES_128_CCM = 1
    AES_128_GCM = 2
    AES_256_CCM = 3
    AES_256_GCM = 4


class Compression(IntEnum):
    """Compression algorithms (2.2.3.1.3)."""

    NONE = 0
    LZNT1 = 1
    LZ77 = 2
    LZ77_HUFFMAN = 3
    PATTERN_V1 = 4
    LZ4 = 5


COMPRESSED_READ = 2
"""Flag of READ: the response is to be compressed (2.2.19)."""


class Signing(IntEnum):
    """Signing algorithms (2.2.3.1.7)."""

    HMAC_SHA256 = 0
    AES_CMAC = 1
    AES_GMAC = 2


class SmbStatus(IntEnum):
    """NTSTATUS values (MS-ERREF 2.3.1)."""

    SUCCESS = 0x00000000
    PENDING = 0x00000103
    NOTIFY_CLEANUP = 0x0000010B
    NOTIFY_ENUM_DIR = 0x0000010C
    BUFFER_OVERFLOW = 0x80000005
    NO_MORE_FILES = 0x80000006
    INVALID_EA_NAME = 0x80000013
    STOPPED_ON_SYMLINK = 0x8000002D
    UNSUCCESSFUL = 0xC0000001
    NOT_IMPLEMENTED = 0xC0000002
    INVALID_INFO_CLASS = 0xC0000003
    INFO_LENGTH_MISMATCH = 0xC0000004
    INVALID_HANDLE = 0xC0000008
    INVALID_PARAMETER = 0xC000000D
    NO_SUCH_FILE = 0xC000000F
    INVALID_DEVICE_REQUEST = 0xC0000010
    END_OF_FILE = 0xC0000011
    MORE_PROCESSING_REQUIRED = 0xC0000016
    INVALID_VIEW_SIZE = 0xC000001F
    ACCESS_DENIED = 0xC0000022
    BUFFER_TOO_SMALL = 0xC0000023
    OBJECT_NAME_INVALID = 0xC0000033
    OBJECT_NAME_NOT_FOUND = 0xC0000034
    OBJECT_NAME_COLLISION = 0xC0000035
    OBJECT_PATH_NOT_FOUND = 0xC000003A
    OBJECT_PATH_SYNTAX_BAD = 0xC000003B
    SHARING_VIOLATION = 0xC0000043
    EAS_NOT_SUPPORTED = 0xC000004F
    NO_EAS_ON_FILE = 0xC0000052
    FILE_LOCK_CONFLICT = 0xC0000054
    LOCK_NOT_GRANTED = 0xC0000055
    DELETE_PENDING = 0xC0000056
    PRIVILEGE_NOT_HELD = 0xC0000061
    LOGON_FAILURE = 0xC000006D
    RANGE_NOT_LOCKED = 0xC000007E
    DISK_FULL = 0xC000007F
    INSUFFICIENT_RESOURCES = 0xC000009A
    BAD_IMPERSONATION_LEVEL = 0xC00000A5
    PIPE_DISCONNECTED = 0xC00000B0
    FILE_IS_A_DIRECTORY = 0xC00000BA
    NOT_SUPPORTED = 0xC00000BB
    NETWORK_NAME_DELETED = 0xC00000C9
    BAD_NETWORK_NAME = 0xC00000CC
    FILE_FORCED_CLOSED = 0xC00000B6
    REQUEST_NOT_ACCEPTED = 0xC00000D0
    INVALID_OPLOCK_PROTOCOL = 0xC00000E3
    DIRECTORY_NOT_EMPTY = 0xC0000101
    NOT_A_DIRECTORY = 0xC0000103
    CANCELLED = 0xC0000120
    CANNOT_DELETE = 0xC0000121
    FILE_CLOSED = 0xC0000128
    INVALID_DEVICE_STATE = 0xC0000184
    FS_DRIVER_REQUIRED = 0xC000019C
    INVALID_LOCK_RANGE = 0xC00001A1
    USER_SESSION_DELETED = 0xC0000203
    INSUFF_SERVER_RESOURCES = 0xC0000205
    NOT_FOUND = 0xC0000225
    VOLUME_NOT_UPGRADED = 0xC000029C
    NOT_A_REPARSE_POINT = 0xC0000275
    DUPLICATE_OBJECTID = 0xC000022A
    PATH_NOT_COVERED = 0xC0000257
    NETWORK_SESSION_EXPIRED = 0xC000035C
    REQUEST_OUT_OF_SEQUENCE = 0xC000042A
    FILE_NOT_AVAILABLE = 0xC0000467
    INVALID_SIGNATURE = 0xC000A000
    HASH_NOT_SUPPORTED = 0xC000A100
    NO_PREAUTH_INTEGRITY_HASH_OVERLAP = 0xC05D0000

    @staticmethod
    def name_of(status: int) -> str:
        """Return ``STATUS_NAME``, or the number if it has no name here."""
        try:
            return f"STATUS_{SmbStatus(status).name}"
        except ValueError:
            return f"status {status:#010x}"


class Access(IntFlag):
    """Access masks (2.2.13.1)."""

    READ_DATA = 0x1
    WRITE_DATA = 0x2
    APPEND_DATA = 0x4
    READ_EA = 0x8
    WRITE_EA = 0x10
    EXECUTE = 0x20
    DELETE_CHILD = 0x40
    READ_ATTRIBUTES = 0x80
    WRITE_ATTRIBUTES = 0x100
    DELETE = 0x10000
    READ_CONTROL = 0x20000
    WRITE_DAC = 0x40000
    WRITE_OWNER = 0x80000
    SYNCHRONIZE = 0x100000
    ACCESS_SYSTEM_SECURITY = 0x1000000
    MAXIMUM_ALLOWED = 0x2000000
    GENERIC_ALL = 0x10000000
    GENERIC_EXECUTE = 0x20000000
    GENERIC_WRITE = 0x40000000
    GENERIC_READ = 0x80000000


RESERVED_ACCESS = 0x0CE0FE00
"""Bits of DesiredAccess that are not defined (2.2.13.1.1)."""


class SmbShare(IntFlag):
    """Share access (2.2.13)."""

    NONE = 0
    READ = 1
    WRITE = 2
    DELETE = 4
    ALL = 7


class Disposition(IntEnum):
    """CreateDisposition (2.2.13)."""

    SUPERSEDE = 0
    OPEN = 1
    CREATE = 2
    OPEN_IF = 3
    OVERWRITE = 4
    OVERWRITE_IF = 5


class Action(IntEnum):
    """CreateAction (2.2.14)."""

    SUPERSEDED = 0
    OPENED = 1
    CREATED = 2
    OVERWRITTEN = 3


class Options(IntFlag):
    """CreateOptions (2.2.13)."""

    DIRECTORY_FILE = 0x1
    WRITE_THROUGH = 0x2
    NON_DIRECTORY_FILE = 0x40
    DELETE_ON_CLOSE = 0x1000
    OPEN_BY_FILE_ID = 0x2000
    OPEN_REPARSE_POINT = 0x200000


class SmbAttribute(IntFlag):
    """File attributes (MS-FSCC 2.6)."""

    READONLY = 0x1
    HIDDEN = 0x2
    SYSTEM = 0x4
    DIRECTORY = 0x10
    ARCHIVE = 0x20
    NORMAL = 0x80
    TEMPORARY = 0x100
    SPARSE_FILE = 0x200
    REPARSE_POINT = 0x400


class Oplock(IntEnum):
    """Oplock levels (2.2.13)."""

    NONE = 0
    LEVEL_II = 1
    EXCLUSIVE = 8
    BATCH = 9
    LEASE = 0xFF


class Lease(IntFlag):
    """Lease states (2.2.13.2.8)."""

    NONE = 0
    READ = 1
    HANDLE = 2
    WRITE = 4


LEASE_BREAK_IN_PROGRESS, LEASE_PARENT_KEY_SET = 2, 4
"""Lease flags (2.2.13.2.10)."""

BREAK_ACK_REQUIRED = 1
"""Flag of a lease break notification (2.2.23.2)."""


class Lock(IntFlag):
    """Flags of a lock element (2.2.26.1)."""

    SHARED = 1
    EXCLUSIVE = 2
    UNLOCK = 4
    FAIL_IMMEDIATELY = 0x10


class InfoType(IntEnum):
    """InfoType (2.2.37)."""

    FILE = 1
    FILESYSTEM = 2
    SECURITY = 3
    QUOTA = 4


class FileInfo(IntEnum):
    """File information classes (MS-FSCC 2.4); POSIX is that of the POSIX extensions."""

    DIRECTORY = 1
    FULL_DIRECTORY = 2
    BOTH_DIRECTORY = 3
    BASIC = 4
    STANDARD = 5
    INTERNAL = 6
    EA = 7
    ACCESS = 8
    RENAME = 10
    LINK = 11
    NAMES = 12
    DISPOSITION = 13
    POSITION = 14
    FULL_EA = 15
    MODE = 16
    ALIGNMENT = 17
    ALL = 18
    ALLOCATION = 19
    END_OF_FILE = 20
    STREAM = 22
    COMPRESSION = 28
    NETWORK_OPEN = 34
    ATTRIBUTE_TAG = 35
    ID_BOTH_DIRECTORY = 37
    ID_FULL_DIRECTORY = 38
    VALID_DATA_LENGTH = 39
    NORMALIZED_NAME = 48
    POSIX = 100


class FsInfo(IntEnum):
    """File system information classes (MS-FSCC 2.5); POSIX is that of the POSIX extensions."""

    VOLUME = 1
    SIZE = 3
    DEVICE = 4
    ATTRIBUTE = 5
    CONTROL = 6
    FULL_SIZE = 7
    SECTOR_SIZE = 11
    POSIX = 100


class Fsctl(IntEnum):
    """Control codes (2.2.31, MS-FSCC 2.3)."""

    DFS_GET_REFERRALS = 0x00060194
    PIPE_TRANSCEIVE = 0x0011C017
    SRV_ENUMERATE_SNAPSHOTS = 0x00144064
    SRV_REQUEST_RESUME_KEY = 0x00140078
    SRV_COPYCHUNK = 0x001440F2
    SRV_COPYCHUNK_WRITE = 0x001480F2
    LMR_REQUEST_RESILIENCY = 0x001401D4
    QUERY_NETWORK_INTERFACE_INFO = 0x001401FC
    SET_REPARSE_POINT = 0x000900A4
    GET_REPARSE_POINT = 0x000900A8
    SET_SPARSE = 0x000900C4
    SET_ZERO_DATA = 0x000980C8
    QUERY_ALLOCATED_RANGES = 0x000940CF
    CREATE_OR_GET_OBJECT_ID = 0x000900C0
    VALIDATE_NEGOTIATE_INFO = 0x00140204


class SmbNotify(IntFlag):
    """CompletionFilter (2.2.35)."""

    FILE_NAME = 0x1
    DIR_NAME = 0x2
    ATTRIBUTES = 0x4
    SIZE = 0x8
    LAST_WRITE = 0x10
    LAST_ACCESS = 0x20
    CREATION = 0x40
    EA = 0x80
    SECURITY = 0x100
    STREAM_NAME = 0x200


class NotifyAction(IntEnum):
    """Actions of a change (MS-FSCC 2.7.1)."""

    ADDED = 1
    REMOVED = 2
    MODIFIED = 3
    RENAMED_OLD_NAME = 4
    RENAMED_NEW_NAME = 5


WATCH_TREE = 1
"""Flag of CHANGE_NOTIFY: changes below the directory count as well (2.2.35)."""

OWNER_SECURITY, GROUP_SECURITY, DACL_SECURITY, SACL_SECURITY = 1, 2, 4, 8
"""AdditionalInformation of security queries: which parts of the descriptor (2.2.37)."""


RESTART_SCANS, RETURN_SINGLE_ENTRY, INDEX_SPECIFIED, REOPEN = 1, 2, 4, 0x10
"""Flags of QUERY_DIRECTORY (2.2.33)."""

NO_FILE = b"\xff" * 16
"""The FileId of a related request, which uses that of the request before it (3.3.5.2.7.2)."""
