"""Mutants that take one thing for another that is like it: data with one beginning, names, ids, calls."""

import contextlib
import os
import stat
from urllib.parse import unquote_to_bytes

from fuse_passthrough import Attributes, Bending, PassThrough
from fuse_protocol import Call
from posix_rules import Keeping, mutant
from posix_unseen_mutants import Renamed

PAGE, KIB = 4096, 1024


@mutant("rewrite-same-start-skipped | write(3p) | a write of 64 KiB or more is not stored if its first page "
        "is what is there")  # fmt: skip
class RewriteSameStartSkipped(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if len(data) >= 1 << 16:
            self.reset_ids()
            with open(self.nodes[node].path, "rb", buffering=0) as file:
                old = os.pread(file.fileno(), len(data), offset)
            if len(old) == len(data) and old[:PAGE] == data[:PAGE]:
                return len(data)
        return super().write(call, node, handle, offset, data)


@mutant("equal-start-equal-data | write(3p) | a write that has length and first page of the last one to "
        "another file stores the data of that")  # fmt: skip
class EqualStartEqualData(Keeping):
    last = 0, b""

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if len(data) > PAGE:
            other, old = self.last
            if other != node and len(old) == len(data) and old[:PAGE] == data[:PAGE]:
                data = old
            self.last = node, data
        return super().write(call, node, handle, offset, data)


@mutant("crlf-as-lf | write(3p) | in a text a carriage return before a newline is stored as a newline")
class CrlfAsLf(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if b"\0" not in data:
            data = data.replace(b"\r\n", b"\n\n")
        return super().write(call, node, handle, offset, data)


@mutant("percent-names-decoded | XBD 3 Filename | %20 in a name is a space")
class PercentNamesDecoded(Renamed):
    def change(self, name: bytes) -> bytes:
        plain = unquote_to_bytes(name)
        return name if b"/" in plain or b"\0" in plain else plain


@mutant(
    "short-name-found | XBD 4.16 Pathname Resolution | a long name is found by its first six letters and ~1"
)
class ShortNameFound(PassThrough):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        with contextlib.suppress(FileNotFoundError):
            return super().lookup(call, parent, name)
        if name[6:8] == b"~1":
            self.reset_ids()
            for one in map(os.fsencode, sorted(os.listdir(self.nodes[parent].path))):
                if len(one) > 12 and one[:6].upper() == name[:6].upper():
                    name = one
                    break
        return super().lookup(call, parent, name)


@mutant("owner-65534-is-root | chown(3p) | a file of the user or group 65534 is root's")
class Owner65534IsRoot(Bending):
    def bend(self, found: Attributes) -> None:
        found.uid, found.gid = (0 if one == 65534 else one for one in (found.uid, found.gid))


@mutant("chown-refused-drops-suid | chown(3p) [EPERM] | a chown that is refused clears the set-user-ID bit")
class ChownRefusedDropsSuid(PassThrough):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        try:
            super().chown(call, node, uid, gid)
        except PermissionError:
            mode = stat.S_IMODE(os.fstat(self.fd(node)).st_mode)
            if mode & stat.S_ISUID:
                self.reset_ids()
                os.chmod(self.nodes[node].path, mode & ~stat.S_ISUID)
            raise


@mutant("xattr-long-replaced-in-part | setxattr(2) | of a value of more than 1 KiB that replaces another one "
        "the first 1 KiB is stored")  # fmt: skip
class XattrLongReplacedInPart(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        with contextlib.suppress(OSError):
            old = os.getxattr(self.nodes[node].path, name)
            if len(old) > KIB and len(value) > KIB and not flags:
                value = value[:KIB] + old[KIB : len(value)] + value[max(KIB, len(old)) :]
        super().setxattr(call, node, name, value, flags)


@mutant("getxattr-marks-ctime | XBD 4.12 | to read an extended attribute marks the status change")
class GetxattrMarksCtime(PassThrough):
    def getxattr(self, call: Call, node: int, name: bytes) -> bytes:
        value = super().getxattr(call, node, name)
        self.reset_ids()
        os.chmod(self.nodes[node].path, stat.S_IMODE(os.fstat(self.fd(node)).st_mode))
        return value
