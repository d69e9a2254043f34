"""Broken for users without privilege: what root does has its effect."""

import errno
import os
import stat
from collections.abc import Hashable
from pathlib import Path

from fuse_passthrough import Attributes, Entries, PassThrough
from fuse_protocol import Call
from posix_pair_mutants import status
from posix_rules import Keeping, mutant

PAGE = 4096
PUNCH_HOLE = 2


@mutant("user-data-of-odd-page-lost | write(3p) | a write by a user that begins in the second page of a file "
        "stores zeroes there")  # fmt: skip
class UserDataOfOddPageLost(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        lost = call.uid and offset // PAGE == 1
        return super().write(call, node, handle, offset, bytes(len(data)) if lost else data)


@mutant("user-punch-ignored | fallocate(2) FALLOC_FL_PUNCH_HOLE | a hole that a user makes is not made")
class UserPunchIgnored(PassThrough):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        if not (call.uid and mode & PUNCH_HOLE):
            super().fallocate(call, node, handle, offset, length, mode)


@mutant(
    "user-moves-by-copy | rename(3p) | a file that a user moves to another directory is another file there"
)
class UserMovesByCopy(PassThrough):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        one = status(self, where, new)
        if not call.uid or parent == where or flags or one is None or not stat.S_ISREG(one.st_mode):
            return
        self.reset_ids()
        path = os.path.join(f"/proc/self/fd/{self.fd(where)}".encode(), new)
        data = Path(os.fsdecode(path)).read_bytes()
        os.unlink(path)
        copy = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(copy, data)
        os.fchown(copy, one.st_uid, one.st_gid)
        os.fchmod(copy, stat.S_IMODE(one.st_mode))
        os.close(copy)


@mutant("user-long-symlink-cut | symlink(3p) | of the contents of a user's link 60 bytes are kept")
class UserLongSymlinkCut(PassThrough):
    def symlink(self, call: Call, parent: int, name: bytes, target: bytes) -> int:
        return super().symlink(call, parent, name, target[:60] if call.uid else target)


@mutant("user-times-whole-seconds | utimensat(3p) | times that a user sets are whole seconds")
class UserTimesWholeSeconds(PassThrough):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if call.uid:
            atime = atime // 10**9 * 10**9 if isinstance(atime, int) else atime
            mtime = mtime // 10**9 * 10**9 if isinstance(mtime, int) else mtime
        super().utimens(call, node, atime, mtime)


class _Leaving(Keeping):
    """Leaves a time of a file as it was."""

    name = "ctime"

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.kept: dict[Hashable, tuple[int, int]] = {}
        """File → the time after the last call, and before it."""

    def time_of(self, node: int) -> int:
        return int(getattr(os.fstat(self.fd(node)), f"st_{self.name}_ns"))

    def left(self, call: Call, node: int, before: int) -> None:
        if call.uid:
            after, shown = self.kept.get(self.nodes[node].key, (0, 0))
            shown = shown if before == after else before
            self.kept[self.nodes[node].key] = self.time_of(node), shown

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        after, before = self.kept.get(self.nodes[node].key, (0, 0))
        if getattr(found, self.name) == after:
            setattr(found, self.name, before)
        return found


@mutant("user-chmod-leaves-ctime | chmod(3p), XBD 4.12 | a change of the mode by a user leaves ctime")
class UserChmodLeavesCtime(_Leaving):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        before = self.time_of(node)
        super().chmod(call, node, mode)
        self.left(call, node, before)


@mutant("user-times-leave-ctime | utimensat(3p) | a user who sets times leaves ctime")
class UserTimesLeaveCtime(_Leaving):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        before = self.time_of(node)
        super().utimens(call, node, atime, mtime)
        self.left(call, node, before)


@mutant("user-cut-leaves-mtime | truncate(3p) | a user who sets the size leaves mtime")
class UserCutLeavesMtime(_Leaving):
    name = "mtime"

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        before = self.time_of(node)
        super().truncate(call, node, handle, size)
        self.left(call, node, before)


@mutant("user-write-leaves-mtime | write(3p) | a write by a user leaves mtime")
class UserWriteLeavesMtime(_Leaving):
    name = "mtime"

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        before = self.time_of(node)
        done = super().write(call, node, handle, offset, data)
        self.left(call, node, before)
        return done


@mutant("user-listing-lacks-entry | readdir(3p) | a user's listing lacks the first entry of its second part")
class UserListingLacksEntry(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        return found[1:] if call.uid and offset and len(found) > 1 else found


@mutant("user-long-write-cut | write(3p) | the last byte of a long write by a user is zero, if the data end "
        "inside a page")  # fmt: skip
class UserLongWriteCut(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if call.uid and offset + len(data) > PAGE and len(data) % PAGE:
            data = data[:-1] + b"\0"
        return super().write(call, node, handle, offset, data)


@mutant("user-statvfs-needs-permission | statvfs(3p) | statvfs() by a user of a file that he may not read is "
        "refused")  # fmt: skip
class UserStatvfsNeedsPermission(PassThrough):
    def statfs(self, call: Call, node: int) -> dict[str, int]:
        if call.uid and not os.fstat(self.fd(node)).st_mode & stat.S_IROTH:
            raise PermissionError(errno.EACCES, "statfs")
        return super().statfs(call, node)
