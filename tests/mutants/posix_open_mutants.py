"""Opening and making files: O_EXCL, O_TRUNC, O_APPEND, mode and mask."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

from fuse_passthrough import PassThrough
from fuse_protocol import Call, Created, Opened
from posix_rules import asked_by, makes, mutant, opens_with, overriding, size_of


@mutant("exclusive-not | open(3p) O_EXCL [EEXIST] | O_CREAT with O_EXCL opens a file that exists")
class ExclusiveNot(PassThrough):
    """The kernel would return EEXIST itself: so the name is kept from an open with O_EXCL."""

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if opens_with(call, os.O_EXCL) and call.name_at(call.waits_in()[1][1]) == name:
            raise FileNotFoundError(errno.ENOENT, "to be created")
        return super().lookup(call, parent, name)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        return super().create(call, parent, name, flags & ~os.O_EXCL, mode, umask)


@mutant("mkdir-exists-accepted | mkdir(3p) [EEXIST] | mkdir of an existing directory succeeds")
class MkdirExistsAccepted(PassThrough):
    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if asked_by(call, "mkdir") and makes(call, name):
            raise FileNotFoundError(errno.ENOENT, "to be made")
        return super().lookup(call, parent, name)

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        try:
            return super().mkdir(call, parent, name, mode, umask)
        except FileExistsError:
            return self.node_at(self.fd(parent), name)


def _removed(files: PassThrough, call: Call, parent: int, name: bytes, *arguments: Any) -> tuple[Any, ...]:
    try:
        mode = os.stat(name, dir_fd=files.fd(parent), follow_symlinks=False).st_mode
        (os.rmdir if stat.S_ISDIR(mode) else os.unlink)(name, dir_fd=files.fd(parent))
    except FileNotFoundError:
        pass
    return call, parent, name, *arguments


@mutant(
    "made-over-what-exists | mkdir(3p), symlink(3p), link(3p) [EEXIST] | "
    "an existing file is replaced by the new one"
)
@overriding(_removed, "mkdir", "mknod", "symlink")
class MadeOverWhatExists(PassThrough):
    """The kernel would return EEXIST itself: so the last name is kept from a call that makes one."""

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        if makes(call, name):
            raise FileNotFoundError(errno.ENOENT, "to be made")
        return super().lookup(call, parent, name)

    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        _removed(self, call, parent, name)
        return super().link(call, old, parent, name)


@mutant("open-trunc-ignored | open(3p) O_TRUNC | O_TRUNC does not change the file")
class OpenTruncIgnored(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        return super().open(call, node, flags & ~os.O_TRUNC)


@mutant("open-truncates | open(3p) | open for writing truncates the file")
class OpenTruncates(PassThrough):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        return super().open(call, node, flags | (os.O_TRUNC if flags & os.O_ACCMODE else 0))


class _Appending(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.ends: dict[int, int] = {}

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags & ~os.O_APPEND)
        if flags & os.O_APPEND:
            self.ends[opened.handle] = self.start(opened.handle)
        return opened

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags & ~os.O_APPEND, mode, umask)
        if flags & os.O_APPEND:
            self.ends[opened.handle] = 0
        return node, opened

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if handle in self.ends and not call.from_cache:
            offset = self.ends[handle]
            self.ends[handle] += len(data)
        return super().write(call, node, handle, offset, data)

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.ends.pop(handle, None)
        super().release(call, node, handle, owner, flock=flock)

    def start(self, handle: int) -> int:
        raise NotImplementedError


@mutant("append-lost | open(3p) O_APPEND | O_APPEND writes at the end of the writer's own data")
class AppendLost(_Appending):
    def start(self, handle: int) -> int:
        return size_of(handle)


@mutant("append-ignored | open(3p) O_APPEND | O_APPEND writes at the beginning of the file")
class AppendIgnored(_Appending):
    def start(self, handle: int) -> int:
        return 0


@mutant("mask-ignored | umask(3p) | umask is ignored for a new file")
class MaskIgnored(PassThrough):
    def as_caller(self, call: Call, umask: int = 0) -> None:
        super().as_caller(call, 0)


@mutant("create-mode-ignored | open(3p) O_CREAT | a new file's mode is always 0600")
class CreateModeIgnored(PassThrough):
    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        return super().create(call, parent, name, flags, 0o600, umask)


@mutant("mkdir-mode-ignored | mkdir(3p) | a new directory's mode is always 0755")
class MkdirModeIgnored(PassThrough):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        return super().mkdir(call, parent, name, 0o755, 0)


@mutant("owner-not-caller | open(3p) O_CREAT | a new file belongs to root instead of its creator")
class OwnerNotCaller(PassThrough):
    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        self.reset_ids()
        os.chown(opened.handle, 0, 0)
        return node, opened


@mutant(
    "setgid-group-not-inherited | mkdir(2) S_ISGID | files in a set-group-ID directory do not get its group"
)
class SetgidGroupNotInherited(PassThrough):
    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        self.reset_ids()
        os.chown(opened.handle, -1, call.gid)
        return node, opened

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        node = super().mkdir(call, parent, name, mode, umask)
        self.reset_ids()
        os.chown(self.nodes[node].path, -1, call.gid)
        return node


@mutant(
    "setgid-bit-not-inherited | mkdir(2) S_ISGID | a new directory in a set-group-ID directory lacks the bit",
)
class SetgidBitNotInherited(PassThrough):
    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        node = super().mkdir(call, parent, name, mode, umask)
        self.reset_ids()
        os.chmod(self.nodes[node].path, stat.S_IMODE(os.stat(self.nodes[node].path).st_mode) & ~stat.S_ISGID)
        return node


@mutant("rmdir-full | rmdir(3p) [ENOTEMPTY] | rmdir removes a directory that is not empty")
class RmdirFull(PassThrough):
    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        target = Path(f"/proc/self/fd/{self.fd(parent)}/{os.fsdecode(name)}")
        for one in target.iterdir():
            if one.is_dir() and not one.is_symlink():
                one.rmdir()
            else:
                one.unlink()
        super().rmdir(call, parent, name)


@mutant(
    "rmdir-full-wrong-errno | rmdir(3p) [ENOTEMPTY] | rmdir of a directory that is not empty returns EPERM"
)
class RmdirFullWrongErrno(PassThrough):
    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        try:
            super().rmdir(call, parent, name)
        except OSError as error:
            raise OSError(errno.EPERM if error.errno == errno.ENOTEMPTY else error.errno, "rmdir") from None


@mutant("tmpfile-not-linkable | open(2) O_TMPFILE | an O_TMPFILE file cannot be linked")
class TmpfileNotLinkable(PassThrough):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        if os.fstat(self.fd(old)).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "no name")
        return super().link(call, old, parent, name)
