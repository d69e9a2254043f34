"""Mutants that fail at one length: of a name, of a link's contents, of an attribute, of a file.

The rules, before any case (POSIX.1-2024 and Linux's manual pages):

- readdir(), readlink(), getxattr(2), listxattr(2), read(): what is returned is what was given, of any length.
- getxattr(2) [ERANGE]: the size of the buffer is too small, and not merely exact.
"""

import errno
import os
import stat

from fuse_passthrough import Entries, PassThrough
from fuse_protocol import Call
from posix_rules import mutant, size_of

BORDERS = {1 << power for power in range(9, 12)}


@mutant("listed-name-of-64-cut | readdir(3p) | a name of 64 bytes is listed without its last one")
class ListedNameOf64Cut(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        return [
            (ino, cookie, kind, name[: 63 if len(name) == 64 else None]) for ino, cookie, kind, name in found
        ]


@mutant("name-of-128-not-found | XBD 4.16 Pathname Resolution | a name of 128 bytes is ENOENT when it exists")
class NameOf128NotFound(PassThrough):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if len(name) == 128:
            raise FileNotFoundError(errno.ENOENT, "lookup")
        return super().lookup(call, parent, name)


@mutant("symlink-of-60-cut | readlink(3p) | of contents of 60 bytes the last one is lost")
class SymlinkOf60Cut(PassThrough):
    def readlink(self, call: Call, node: int) -> bytes:
        found = super().readlink(call, node)
        return found[:59] if len(found) == 60 else found


@mutant("symlink-of-borders-cut | readlink(3p) | of contents of 512, 1024 or 2048 bytes the last one is lost")
class SymlinkOfBordersCut(PassThrough):
    def readlink(self, call: Call, node: int) -> bytes:
        found = super().readlink(call, node)
        return found[:-1] if len(found) in BORDERS else found


@mutant("xattr-of-256-cut | getxattr(2) | of a value of 256 bytes the last one is lost")
class XattrOf256Cut(PassThrough):
    def getxattr(self, call: Call, node: int, name: bytes) -> bytes:
        found = super().getxattr(call, node, name)
        return found[:255] if len(found) == 256 and name.startswith(b"user.") else found


@mutant("xattr-of-borders-cut | getxattr(2) | of a value of 512, 1024 or 2048 bytes the last one is lost")
class XattrOfBordersCut(PassThrough):
    def getxattr(self, call: Call, node: int, name: bytes) -> bytes:
        found = super().getxattr(call, node, name)
        return found[:-1] if len(found) in BORDERS and name.startswith(b"user.") else found


@mutant("xattr-name-of-128-cut | listxattr(2) | a name of 128 bytes is listed without its last one")
class XattrNameOf128Cut(PassThrough):
    def listxattr(self, call: Call, node: int) -> list[bytes]:
        return [name[: 127 if len(name) == 128 else None] for name in super().listxattr(call, node)]


@mutant(
    "xattr-exact-buffer-refused | getxattr(2), listxattr(2) [ERANGE] | a buffer of the exact size is "
    "too small"
)
class XattrExactBufferRefused(PassThrough):
    def fits(self, length: int, size: int) -> bool:
        return length < size


@mutant("inline-60-lost-when-grown | write(3p) | when a file grows beyond 60 bytes, the 60th is zero")
class Inline60LostWhenGrown(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        before = size_of(handle)
        done = super().write(call, node, handle, offset, data)
        if before == 60 < size_of(handle):
            self.reset_ids()
            descriptor = os.open(self.nodes[node].path, os.O_WRONLY)
            os.pwrite(descriptor, b"\0", 59)
            os.close(descriptor)
        return done


@mutant("cut-to-60-loses-more | truncate(3p) | of a file that is cut to 60 bytes the first 4 are zeroes")
class CutTo60LosesMore(PassThrough):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        super().truncate(call, node, handle, size)
        if size == 60:
            self.reset_ids()
            descriptor = os.open(self.nodes[node].path, os.O_WRONLY)
            os.pwrite(descriptor, bytes(4), 0)
            os.close(descriptor)


@mutant("file-of-63-read-short | read(3p) | of a file of 63 bytes the last one is read as zero")
class FileOf63ReadShort(PassThrough):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        found = super().read(call, node, handle, offset, size)
        if offset == 0 and len(found) == 63 and stat.S_ISREG(os.fstat(handle).st_mode):
            return found[:62] + b"\0"
        return found
