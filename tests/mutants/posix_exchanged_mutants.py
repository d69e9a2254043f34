"""Mutants of RENAME_EXCHANGE: what is listed of the exchanged files, their types and their attributes."""

from __future__ import annotations

import errno
import os
import stat

from fuse_passthrough import Entries
from fuse_protocol import Call
from posix_rules import Keeping, mutant

EXCHANGE = 2


class _Exchanging(Keeping):
    """``exchanged`` is called after an exchange, with directory, name and former file of both sides."""

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        sides = (parent, old), (where, new)
        before = [self.look(*side) for side in sides] if flags == EXCHANGE else []
        super().rename(call, parent, old, where, new, flags)
        for (directory, name), was in zip(sides, before, strict=False):
            self.exchanged(directory, name, was)

    def look(self, directory: int, name: bytes) -> os.stat_result:
        return os.stat(name, dir_fd=self.fd(directory), follow_symlinks=False)

    def exchanged(self, directory: int, name: bytes, was: os.stat_result) -> None:
        """``was`` is what had the name before."""


@mutant(
    "exchange-types-by-name | renameat2(2), readdir(3) | d_type of an exchanged name is the former file's"
)
class ExchangeTypesByName(_Exchanging):
    def exchanged(self, directory: int, name: bytes, was: os.stat_result) -> None:
        self.__dict__.setdefault("types", {})[directory, name] = stat.S_IFMT(was.st_mode) >> 12

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        types = self.__dict__.setdefault("types", {})
        return [
            (inode, cookie, types.get((node, name), kind), name)
            for inode, cookie, kind, name in super().readdir(call, node, handle, offset, size)
        ]


@mutant(
    "exchange-of-link-refused | renameat2(2) RENAME_EXCHANGE | a symbolic link with another type is EINVAL"
)
class ExchangeOfLinkRefused(_Exchanging):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if flags == EXCHANGE:
            modes = self.look(parent, old).st_mode, self.look(where, new).st_mode
            if stat.S_ISLNK(modes[0]) != stat.S_ISLNK(modes[1]):
                raise OSError(errno.EINVAL, "exchange")
        super().rename(call, parent, old, where, new, flags)


@mutant("exchange-attributes-stay | renameat2(2), xattr(7) | user attributes stay with the exchanged names")
class ExchangeAttributesStay(_Exchanging):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        if flags != EXCHANGE:
            return
        self.reset_ids()
        paths = [
            f"/proc/self/fd/{self.fd(at)}/{os.fsdecode(name)}" for at, name in ((parent, old), (where, new))
        ]
        if not all(stat.S_ISREG(os.lstat(path).st_mode) for path in paths):
            return
        found = [{name: os.getxattr(path, name) for name in os.listxattr(path)} for path in paths]
        for path, own, others in (paths[0], found[0], found[1]), (paths[1], found[1], found[0]):
            for name in own:
                os.removexattr(path, name)
            for name, value in others.items():
                os.setxattr(path, name, value)


@mutant(
    "exchanged-directory-old-parent | readdir(3p) d_ino | dot-dot of an exchanged directory is its old parent"
)
class ExchangedDirectoryOldParent(_Exchanging):
    def exchanged(self, directory: int, name: bytes, was: os.stat_result) -> None:
        parents = self.__dict__.setdefault("parents", {})
        parents[was.st_dev, was.st_ino] = os.fstat(self.fd(directory)).st_ino

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        old = self.__dict__.setdefault("parents", {}).get(self.nodes[node].key)
        if old is None:
            return found
        return [(old if one[3] == b".." else one[0], *one[1:]) for one in found]
