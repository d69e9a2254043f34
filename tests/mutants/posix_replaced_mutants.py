"""Mutants of rename() over a file of another kind.

The rules, before any case (POSIX.1-2024 rename()):

- new names a file that is no directory: it is removed, of whichever kind both are; a link is replaced itself.
- new names a directory: old is one, and new is empty.
"""

import errno
import os
import stat

from fuse_passthrough import PassThrough
from fuse_protocol import Call
from posix_rules import mutant


class _Kinds(PassThrough):
    def kind(self, parent: int, name: bytes) -> int:
        """Return the type of a name, 0 if it does not exist."""
        self.reset_ids()
        try:
            return stat.S_IFMT(os.stat(name, dir_fd=self.fd(parent), follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return 0


@mutant("rename-over-fifo-refused | rename(3p) | a file of another kind does not replace a FIFO: EEXIST")
class RenameOverFifoRefused(_Kinds):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if not flags and self.kind(where, new) == stat.S_IFIFO != self.kind(parent, old) != stat.S_IFDIR:
            raise FileExistsError(errno.EEXIST, "rename")
        super().rename(call, parent, old, where, new, flags)


@mutant("rename-over-link-to-directory-refused | rename(3p) | a link to a directory is not replaced: EISDIR")
class RenameOverLinkToDirectoryRefused(_Kinds):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        link = self.kind(where, new) == stat.S_IFLNK
        if link and self.kind(parent, old) != stat.S_IFDIR:
            try:
                one = os.stat(new, dir_fd=self.fd(where))
            except OSError:
                one = None
            if one is not None and stat.S_ISDIR(one.st_mode):
                raise IsADirectoryError(errno.EISDIR, "rename")
        super().rename(call, parent, old, where, new, flags)


@mutant(
    "rename-over-full-directory | rename(3p) [ENOTEMPTY] | in another directory, one with an entry is "
    "replaced"
)
class RenameOverFullDirectory(_Kinds):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if parent != where and self.kind(parent, old) == self.kind(where, new) == stat.S_IFDIR:
            path = f"{self.nodes[where].path}/{os.fsdecode(new)}"
            for name in os.listdir(path):
                os.unlink(f"{path}/{name}")
        super().rename(call, parent, old, where, new, flags)


@mutant("rename-of-link-follows | rename(3p) | a link to a file that replaces another one becomes that file")
class RenameOfLinkFollows(_Kinds):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        links = self.kind(parent, old) == stat.S_IFLNK and self.kind(where, new) not in (0, stat.S_IFDIR)
        if links and not flags:
            try:
                os.unlink(new, dir_fd=self.fd(where))
                os.link(f"{self.nodes[parent].path}/{os.fsdecode(old)}", new, dst_dir_fd=self.fd(where))
                os.unlink(old, dir_fd=self.fd(parent))
            except OSError:
                super().rename(call, parent, old, where, new, flags)
            return
        super().rename(call, parent, old, where, new, flags)


@mutant(
    "rename-special-over-file-ignored | rename(3p) | a FIFO or socket that is renamed over a file "
    "does nothing"
)
class RenameSpecialOverFileIgnored(_Kinds):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        special = self.kind(parent, old) in (stat.S_IFIFO, stat.S_IFSOCK)
        if special and self.kind(where, new) == stat.S_IFREG:
            return
        super().rename(call, parent, old, where, new, flags)
