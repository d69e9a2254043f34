"""Mutants of inode flags: not kept, not obeyed by one of the calls, or another file's.

The rules, before any case (ioctl_iflags(2) and the ERRORS of the calls):

- FS_IOC_SETFLAGS, FS_IOC_GETFLAGS: the flags that were set are returned, until they are cleared.
- FS_APPEND_FL: the file is opened with O_APPEND only, and neither cut nor removed, moved, linked.
- FS_IMMUTABLE_FL: nothing changes, neither contents nor metadata.

A call that a mutant lets through clears the flags of the file below and sets them again.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuse_passthrough import GETFLAGS, SETFLAGS, PassThrough
from fuse_protocol import Call, Created, Opened
from posix_rules import Keeping, mutant

APPEND, IMMUTABLE, NODUMP = 0x20, 0x10, 0x40
BOTH = APPEND | IMMUTABLE


def flags_of(descriptor: int) -> int:
    return int.from_bytes(fcntl.ioctl(descriptor, GETFLAGS, bytes(8))[:4], "little")


def set_flags(descriptor: int, flags: int) -> None:
    fcntl.ioctl(descriptor, SETFLAGS, flags.to_bytes(8, "little"))


class _Lifting(PassThrough):
    """``lifted`` takes flags away from a file or directory for a while."""

    @contextmanager
    def lifted(self, path: str, which: int = BOTH) -> Iterator[None]:
        self.reset_ids()
        if not (Path(path).is_file() or Path(path).is_dir()):
            yield
            return
        descriptor = os.open(path, os.O_RDONLY)
        try:
            before = flags_of(descriptor)
            if before & which:
                set_flags(descriptor, before & ~which)
            try:
                yield
            finally:
                self.reset_ids()
                if before & which:
                    set_flags(descriptor, before)
        finally:
            os.close(descriptor)

    def below(self, parent: int, name: bytes) -> str:
        return f"{self.nodes[parent].path}/{os.fsdecode(name)}"


@mutant("iflags-not-stored | ioctl_iflags(2) | FS_IOC_SETFLAGS succeeds and sets nothing")
class IflagsNotStored(PassThrough):
    def ioctl(self, call: Call, node: int, handle: int, request: int, number: int) -> int | None:
        return None if request == SETFLAGS else super().ioctl(call, node, handle, request, number)


@mutant("iflags-others-set | ioctl_iflags(2) | with FS_APPEND_FL or FS_IMMUTABLE_FL, FS_NODUMP_FL is set")
class IflagsOthersSet(PassThrough):
    def ioctl(self, call: Call, node: int, handle: int, request: int, number: int) -> int | None:
        if request == SETFLAGS and number & BOTH:
            number |= NODUMP
        return super().ioctl(call, node, handle, request, number)


class _Losing(Keeping):
    """``lose`` clears the flags that are reported of a file."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.lost: set[int] = set()

    def lose(self, node: int) -> None:
        self.lost.add(node)

    def ioctl(self, call: Call, node: int, handle: int, request: int, number: int) -> int | None:
        found = super().ioctl(call, node, handle, request, number)
        if request == SETFLAGS:
            self.lost.discard(node)
        return found & ~(NODUMP | BOTH) if found and request == GETFLAGS and node in self.lost else found


@mutant("iflags-lost-by-rename | ioctl_iflags(2) | a file that is renamed has no flags")
class IflagsLostByRename(_Losing):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        self.lose(self.node_at(self.fd(where), new))


@mutant("iflags-lost-by-write | ioctl_iflags(2) | a file that is written has no flags")
class IflagsLostByWrite(_Losing):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.lose(node)
        return super().write(call, node, handle, offset, data)


@mutant("append-only-written | ioctl_iflags(2) FS_APPEND_FL | the file is opened without O_APPEND")
class AppendOnlyWritten(_Lifting):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        if flags & os.O_TRUNC:
            return super().open(call, node, flags)
        with self.lifted(self.nodes[node].path, APPEND):
            return super().open(call, node, flags)


@mutant("append-only-emptied | ioctl_iflags(2) FS_APPEND_FL | O_TRUNC with O_APPEND empties the file")
class AppendOnlyEmptied(_Lifting):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        if not flags & os.O_APPEND:
            return super().open(call, node, flags)
        with self.lifted(self.nodes[node].path, APPEND):
            return super().open(call, node, flags)


@mutant("append-only-cut | ioctl_iflags(2) FS_APPEND_FL | ftruncate() cuts the file")
class AppendOnlyCut(_Lifting):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        if handle is None:
            super().truncate(call, node, handle, size)
            return
        with self.lifted(self.nodes[node].path, APPEND):
            super().truncate(call, node, handle, size)


@mutant("append-only-punched | fallocate(2) [EPERM] | a hole is punched into an append-only file")
class AppendOnlyPunched(_Lifting):
    def fallocate(self, call: Call, node: int, handle: int, offset: int, length: int, mode: int) -> None:
        with self.lifted(self.nodes[node].path, APPEND):
            super().fallocate(call, node, handle, offset, length, mode)


@mutant("immutable-appended | ioctl_iflags(2) FS_IMMUTABLE_FL | the file is opened with O_APPEND")
class ImmutableAppended(_Lifting):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        if not flags & os.O_APPEND:
            return super().open(call, node, flags)
        with self.lifted(self.nodes[node].path, IMMUTABLE):
            return super().open(call, node, flags)


@mutant("immutable-cut | ioctl_iflags(2) FS_IMMUTABLE_FL | truncate() sets the size")
class ImmutableCut(_Lifting):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        with self.lifted(self.nodes[node].path, IMMUTABLE):
            super().truncate(call, node, handle, size)


@mutant("immutable-times-now | ioctl_iflags(2) FS_IMMUTABLE_FL | the times are set to now")
class ImmutableTimesNow(_Lifting):
    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if atime != "now":
            super().utimens(call, node, atime, mtime)
            return
        with self.lifted(self.nodes[node].path, IMMUTABLE):
            super().utimens(call, node, atime, mtime)


@mutant("flagged-file-chmod | chmod(2) [EPERM] | the mode of a file with a flag is changed")
class FlaggedFileChmod(_Lifting):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        with self.lifted(self.nodes[node].path):
            super().chmod(call, node, mode)


@mutant("flagged-file-unlinked | unlink(2) [EPERM] | a file with a flag is removed")
class FlaggedFileUnlinked(_Lifting):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        with self.lifted(self.below(parent, name)):
            super().unlink(call, parent, name)


@mutant("flagged-file-renamed | ioctl_iflags(2), rename(2) | a file with a flag gets another directory")
class FlaggedFileRenamed(_Lifting):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if parent == where:
            super().rename(call, parent, old, where, new, flags)
            return
        with self.lifted(self.below(parent, old)):
            super().rename(call, parent, old, where, new, flags)


@mutant("flagged-file-linked | link(2) [EPERM] | a file with a flag gets a second name")
class FlaggedFileLinked(_Lifting):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        with self.lifted(self.nodes[old].path):
            return super().link(call, old, parent, name)


@mutant(
    "immutable-directory-gets-files | ioctl_iflags(2) FS_IMMUTABLE_FL | a new file is made in the directory"
)
class ImmutableDirectoryGetsFiles(_Lifting):
    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        with self.lifted(self.nodes[parent].path, IMMUTABLE):
            return super().create(call, parent, name, flags, mode, umask)


@mutant(
    "immutable-directory-loses-names | ioctl_iflags(2) FS_IMMUTABLE_FL | a name moves out of the directory"
)
class ImmutableDirectoryLosesNames(_Lifting):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        with self.lifted(self.nodes[parent].path, IMMUTABLE):
            super().rename(call, parent, old, where, new, flags)


@mutant(
    "append-only-directory-loses-names | ioctl_iflags(2) FS_APPEND_FL | a name is removed from the directory"
)
class AppendOnlyDirectoryLosesNames(_Lifting):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        with self.lifted(self.nodes[parent].path, APPEND):
            super().unlink(call, parent, name)


@mutant("iflags-of-users-ignored | ioctl_iflags(2) | what an owner without privilege sets is not stored")
class IflagsOfUsersIgnored(PassThrough):
    def ioctl(self, call: Call, node: int, handle: int, request: int, number: int) -> int | None:
        if request == SETFLAGS and call.uid:
            return None
        return super().ioctl(call, node, handle, request, number)


@mutant("iflags-of-removed-file | ioctl_iflags(2) | a new file has the flags of the last one of its name")
class IflagsOfRemovedFile(PassThrough):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        path = f"{self.nodes[parent].path}/{os.fsdecode(name)}"
        if Path(path).is_file():
            self.reset_ids()
            with open(path, "rb") as file:
                self.__dict__.setdefault("kept", {})[parent, name] = flags_of(file.fileno()) & NODUMP
        super().unlink(call, parent, name)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        kept = self.__dict__.setdefault("kept", {}).get((parent, name), 0)
        if kept:
            self.reset_ids()
            with open(self.nodes[node].path, "rb") as file:
                set_flags(file.fileno(), flags_of(file.fileno()) | kept)
        return node, opened
