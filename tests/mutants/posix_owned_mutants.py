"""Mutants of what belongs to a file: capabilities, attributes of links, group and bits under a used name."""

import errno
import os
import stat

from fuse_passthrough import PassThrough
from fuse_protocol import Attributes, Call, Created
from posix_rules import asked_by, mutant

CAPABILITY = b"security.capability"


class KeepsCapabilities(PassThrough):
    """chown() leaves file capabilities: the kernel's request to remove them is ignored."""

    with_owner = True

    def removexattr(self, call: Call, node: int, name: bytes) -> None:
        if name != CAPABILITY or not asked_by(call, "chown"):
            super().removexattr(call, node, name)

    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        path = self.nodes[node].path
        self.reset_ids()
        kept = os.getxattr(path, CAPABILITY) if CAPABILITY.decode() in os.listxattr(path) else None
        super().chown(call, node, uid, gid)
        if kept is not None:
            self.reset_ids()
            if uid == -1 or self.with_owner:
                os.setxattr(path, CAPABILITY, kept)


@mutant("chown-keeps-capabilities | chown(2) | a change of the owner or group leaves file capabilities")
class ChownKeepsCapabilities(KeepsCapabilities):
    pass


@mutant("chgrp-keeps-capabilities | chown(2) | a change of the group alone leaves file capabilities")
class ChgrpKeepsCapabilities(KeepsCapabilities):
    with_owner = False


def _is_link_with_attribute(self: PassThrough, node: int) -> bool:
    self.reset_ids()
    return stat.S_ISLNK(os.fstat(self.fd(node)).st_mode) and any(
        name.startswith("trusted.") for name in os.listxattr(self.nodes[node].path)
    )


@mutant("link-with-attribute-unreadable | readlink(3p) | the contents of a link with an attribute are EIO")
class LinkWithAttributeUnreadable(PassThrough):
    def readlink(self, call: Call, node: int) -> bytes:
        if _is_link_with_attribute(self, node):
            raise OSError(errno.EIO, "readlink")
        return super().readlink(call, node)


@mutant(
    "link-contents-gone-with-attribute | readlink(3p) | with the last attribute of a link its contents go"
)
class LinkContentsGoneWithAttribute(PassThrough):
    def removexattr(self, call: Call, node: int, name: bytes) -> None:
        had = _is_link_with_attribute(self, node)
        super().removexattr(call, node, name)
        if had and not _is_link_with_attribute(self, node):
            self.__dict__.setdefault("gone", set()).add(node)

    def readlink(self, call: Call, node: int) -> bytes:
        if node in self.__dict__.get("gone", ()):
            raise OSError(errno.EUCLEAN, "readlink")
        return super().readlink(call, node)


@mutant("link-size-zero-with-attribute | lstat(3p) | st_size of a link with an attribute is 0")
class LinkSizeZeroWithAttribute(PassThrough):
    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        if stat.S_ISLNK(found.mode) and _is_link_with_attribute(self, node):
            found.size = 0
        return found


@mutant("xattr-name-with-slash-refused | xattr(7) | EINVAL for a name with a slash")
class XattrNameWithSlashRefused(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        if b"/" in name:
            raise OSError(errno.EINVAL, "setxattr")
        super().setxattr(call, node, name, value, flags)


@mutant("xattr-name-with-newline-cut | xattr(7) | a name ends at a newline")
class XattrNameWithNewlineCut(PassThrough):
    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        super().setxattr(call, node, name.partition(b"\n")[0], value, flags)


class UsedNames(PassThrough):
    """Knows which names were removed; bends what is made under one of them."""

    def used(self, parent: int, name: bytes) -> bool:
        return (self.nodes[parent].key, name) in self.__dict__.get("removed", ())

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(call, parent, name)
        self.__dict__.setdefault("removed", set()).add((self.nodes[parent].key, name))

    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        super().rmdir(call, parent, name)
        self.__dict__.setdefault("removed", set()).add((self.nodes[parent].key, name))

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        made = super().create(call, parent, name, flags, mode, umask)
        if self.used(parent, name):
            self.reset_ids()
            self.made_again(call, parent, made[0])
        return made

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        made = super().mkdir(call, parent, name, mode, umask)
        if self.used(parent, name):
            self.reset_ids()
            self.made_again(call, parent, made)
        return made

    def made_again(self, call: Call, parent: int, node: int) -> None:
        raise NotImplementedError


@mutant("name-again-ignores-setgid | inode(7) S_ISGID | what is made under a name that was removed has the "
        "group of the process")  # fmt: skip
class NameAgainIgnoresSetgid(UsedNames):
    def made_again(self, call: Call, parent: int, node: int) -> None:
        if os.fstat(self.fd(parent)).st_mode & stat.S_ISGID:
            os.chown(self.nodes[node].path, -1, call.gid)


@mutant("name-again-is-roots | open(3p), mkdir(3p) | what is made under a name that was removed is root's")
class NameAgainIsRoots(UsedNames):
    def made_again(self, call: Call, parent: int, node: int) -> None:
        os.chown(self.nodes[node].path, 0, -1)


@mutant("read-returns-more | mmap(3p) | a read of the last page has other bytes behind the end")
class ReadReturnsMore(PassThrough):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        found = super().read(call, node, handle, offset, size)
        behind = -len(found) % 4096
        return (found + b"\xa5" * behind)[:size] if found else found
