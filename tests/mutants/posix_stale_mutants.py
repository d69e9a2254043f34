"""Mutants of what stays from before: a descriptor's map of holes, the attributes of a removed name."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from fuse_passthrough import PassThrough
from fuse_protocol import Call, Created
from posix_rules import mutant


@mutant("seek-map-of-first-look | lseek(3p) SEEK_DATA | a descriptor's positions are those of its first look")
class SeekMapOfFirstLook(PassThrough):
    def lseek(self, call: Call, node: int, handle: int, offset: int, whence: int) -> int:
        known: dict[tuple[int, ...], int | OSError] = self.__dict__.setdefault("known", {})
        key = handle, os.fstat(handle).st_size, offset, whence
        if key not in known:
            try:
                known[key] = super().lseek(call, node, handle, offset, whence)
            except OSError as error:
                known[key] = error
        found = known[key]
        if isinstance(found, OSError):
            raise OSError(found.errno, "lseek")
        return found

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        known = self.__dict__.setdefault("known", {})
        for key in [key for key in known if key[0] == handle]:
            del known[key]
        super().release(call, node, handle, owner, flock=flock)


@mutant("acl-not-inherited-by-fifo | acl(5) | a new FIFO has no entries of the default ACL")
class AclNotInheritedByFifo(PassThrough):
    def mknod(self, call: Call, parent: int, name: bytes, mode: int, device: int, umask: int) -> int:
        node = super().mknod(call, parent, name, mode, device, umask)
        self.reset_ids()
        with suppress(OSError):
            os.removexattr(self.nodes[node].path, "system.posix_acl_access")
        return node


class _NameAgain(PassThrough):
    """A new file gets something of the file that last lost its name."""

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        self._keep(parent, name)
        super().unlink(call, parent, name)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        self._keep(parent, old)
        super().rename(call, parent, old, where, new, flags)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        kept = self.__dict__.setdefault("kept", {}).pop((self.nodes[parent].key, name), None)
        if kept is not None:
            self.reset_ids()
            self.give(opened.handle, *kept)
        return node, opened

    def _keep(self, parent: int, name: bytes) -> None:
        self.reset_ids()
        with suppress(OSError):
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.fd(parent))
            values = {one: os.getxattr(fd, one) for one in os.listxattr(fd) if one.startswith("user.")}
            self.__dict__.setdefault("kept", {})[self.nodes[parent].key, name] = os.fstat(fd), values
            os.close(fd)

    def give(self, handle: int, one: os.stat_result, values: dict[str, bytes]) -> None:
        raise NotImplementedError


@mutant("name-again-has-old-mode | open(3p) O_CREAT | a new file has the mode of the last file of its name")
class NameAgainHasOldMode(_NameAgain):
    def give(self, handle: int, one: os.stat_result, values: dict[str, bytes]) -> None:
        os.fchmod(handle, one.st_mode & 0o7777)


@mutant("name-again-has-old-attributes | xattr(7) | a new file has the attributes of the last of its name")
class NameAgainHasOldAttributes(_NameAgain):
    def give(self, handle: int, one: os.stat_result, values: dict[str, bytes]) -> None:
        for name, value in values.items():
            os.setxattr(handle, name, value)


@mutant("name-again-has-old-times | open(3p) O_CREAT | a new file has the mtime of the last file of its name")
class NameAgainHasOldTimes(_NameAgain):
    def give(self, handle: int, one: os.stat_result, values: dict[str, bytes]) -> None:
        os.utime(handle, ns=(time.time_ns(), one.st_mtime_ns))
