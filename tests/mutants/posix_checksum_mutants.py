"""Mutants that find names by a checksum of them: of files, of attributes."""

import errno
import os
import zlib
from collections.abc import Iterable

from fuse_passthrough import Entries, PassThrough
from fuse_protocol import Call
from posix_rules import mutant

MASK = 0xFFFF_FFFF


def java(name: bytes) -> int:
    found = 0
    for byte in name:
        found = found * 31 + byte & MASK
    return found


def rotated_by_seven(name: bytes) -> int:
    found = 0
    for byte in name:
        found = (found << 7 | found >> 25) & MASK ^ byte
    return found


class ByChecksum(PassThrough):
    """Honest; knows the name in a directory that has the same checksum as another."""

    checksum = staticmethod(zlib.crc32)

    def like(self, name: bytes, others: Iterable[bytes]) -> bytes | None:
        wanted = self.checksum(name)
        return next((one for one in others if one != name and self.checksum(one) == wanted), None)

    def entries(self, directory: int) -> list[bytes]:
        self.reset_ids()
        return sorted(map(os.fsencode, os.listdir(self.nodes[directory].path)))

    def attributes_of(self, node: int) -> list[bytes]:
        self.reset_ids()
        return [os.fsencode(one) for one in os.listxattr(self.nodes[node].path)]


@mutant("rename-to-like-checksum-refused | rename(3p) | EOVERFLOW if a name of the same CRC-32 is there")
class RenameToLikeChecksumRefused(ByChecksum):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if self.like(new, self.entries(where)) not in (None, old):
            raise OSError(errno.EOVERFLOW, "rename")
        super().rename(call, parent, old, where, new, flags)


@mutant("lookup-by-checksum | XBD 4.16 Pathname Resolution | a name finds one of the same hashCode()")
class LookupByChecksum(ByChecksum):
    checksum = staticmethod(java)

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        try:
            return super().lookup(call, parent, name)
        except FileNotFoundError:
            like = self.like(name, self.entries(parent))
            if like is None:
                raise
            return super().lookup(call, parent, like)


@mutant("like-checksum-not-listed | readdir(3p) | of names of one checksum (XFS's) the first is listed")
class LikeChecksumNotListed(ByChecksum):
    checksum = staticmethod(rotated_by_seven)

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        names = self.entries(node)
        return [one for one in found if (self.like(one[3], names) or one[3]) >= one[3]]


@mutant("unlink-by-checksum | unlink(3p) | the first name of the same Adler-32 is removed")
class UnlinkByChecksum(ByChecksum):
    checksum = staticmethod(zlib.adler32)

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(call, parent, min(name, self.like(name, self.entries(parent)) or name))


@mutant("xattr-like-checksum-not-listed | listxattr(2) | of names of one CRC-32 the first is listed")
class XattrLikeChecksumNotListed(ByChecksum):
    def listxattr(self, call: Call, node: int) -> list[bytes]:
        found = super().listxattr(call, node)
        return [name for number, name in enumerate(found) if self.like(name, found[:number]) is None]


@mutant("xattr-by-checksum | setxattr(2) | an attribute replaces that of the same hashCode()")
class XattrByChecksum(ByChecksum):
    checksum = staticmethod(java)

    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        like = self.like(name, self.attributes_of(node))
        super().setxattr(call, node, name, value, flags)
        if like is not None:
            super().removexattr(call, node, like)
