"""Extended attributes: flags, values, names."""

import errno
import os

from fuse_passthrough import PassThrough
from fuse_protocol import Call
from posix_rules import mutant

CREATE, REPLACE = os.XATTR_CREATE, os.XATTR_REPLACE


@mutant(
    "xattr-create-ignored | setxattr(2) XATTR_CREATE [EEXIST] | XATTR_CREATE replaces an existing attribute"
)
class XattrCreateIgnored(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        super().setxattr(call, node, name, value, flags & ~CREATE)


@mutant(
    "xattr-replace-ignored | setxattr(2) XATTR_REPLACE [ENODATA] | XATTR_REPLACE creates a missing attribute",
)
class XattrReplaceIgnored(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        super().setxattr(call, node, name, value, flags & ~REPLACE)


@mutant("xattr-absent-empty | getxattr(2) [ENODATA] | a missing attribute reads as empty")
class XattrAbsentEmpty(PassThrough):
    def getxattr(self, call: Call, node: int, name: bytes) -> bytes:
        try:
            return super().getxattr(call, node, name)
        except OSError as error:
            if error.errno == errno.ENODATA and name.startswith(b"user."):
                return b""
            raise


@mutant("xattr-absent-wrong-errno | getxattr(2) [ENODATA] | a missing attribute returns ENOENT")
class XattrAbsentWrongErrno(PassThrough):
    def getxattr(self, call: Call, node: int, name: bytes) -> bytes:
        try:
            return super().getxattr(call, node, name)
        except OSError as error:
            if error.errno == errno.ENODATA and name.startswith(b"user."):
                raise OSError(errno.ENOENT, "xattr") from None
            raise


@mutant("xattr-remove-absent-accepted | removexattr(2) [ENODATA] | removal of a missing attribute succeeds")
class XattrRemoveAbsentAccepted(PassThrough):
    def removexattr(self, call: Call, node: int, name: bytes) -> None:
        try:
            super().removexattr(call, node, name)
        except OSError as error:
            if error.errno != errno.ENODATA:
                raise


@mutant("xattr-remove-ignored | removexattr(2) | a removed attribute still exists")
class XattrRemoveIgnored(PassThrough):
    def removexattr(self, call: Call, node: int, name: bytes) -> None:
        super().getxattr(call, node, name)


@mutant("xattr-value-cut | setxattr(2) | a value is truncated after 100 bytes")
class XattrValueCut(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        super().setxattr(call, node, name, value[:100] if name.startswith(b"user.") else value, flags)


@mutant("xattr-value-is-text | setxattr(2) | a value ends at its first zero byte")
class XattrValueIsText(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        text = value.partition(b"\0")[0] if name.startswith(b"user.") else value
        super().setxattr(call, node, name, text, flags)


@mutant("xattr-empty-refused | setxattr(2) | an empty value is refused")
class XattrEmptyRefused(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        if not value:
            raise OSError(errno.EINVAL, "xattr")
        super().setxattr(call, node, name, value, flags)


@mutant("xattr-not-listed | listxattr(2) | the last name is not listed")
class XattrNotListed(PassThrough):
    def listxattr(self, call: Call, node: int) -> list[bytes]:
        return super().listxattr(call, node)[:-1]


@mutant("xattr-case-folded | xattr(7) | names are case-insensitive")
class XattrCaseFolded(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        super().setxattr(call, node, name.lower(), value, flags)

    def getxattr(self, call: Call, node: int, name: bytes) -> bytes:
        return super().getxattr(call, node, name.lower())


@mutant(
    "xattr-size-not-checked | getxattr(2) [ERANGE] | "
    "a value that does not fit is truncated instead of refused"
)
class XattrSizeNotChecked(PassThrough):
    def getxattr(self, call: Call, node: int, name: bytes) -> bytes:
        value = super().getxattr(call, node, name)
        sizes = call.waits_in()[1][3:4] or (0,)
        return value[: sizes[0]] if sizes[0] and name.startswith(b"user.") else value
