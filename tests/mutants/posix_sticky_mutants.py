"""The sticky bit, which counts too much or too little in a rename."""

import errno
import os
import stat

from fuse_passthrough import PassThrough
from fuse_protocol import Call
from posix_pair_mutants import status
from posix_rules import mutant


class _Renames(PassThrough):
    """Refuses some renames, and makes some that have to be refused."""

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if call.uid and self.refuses(call, parent, old, where, new):
            raise OSError(errno.EPERM, "rename")
        try:
            super().rename(call, parent, old, where, new, flags)
        except PermissionError:
            if not self.permits(call, parent, old, where, new):
                raise
            self.reset_ids()
            os.rename(old, new, src_dir_fd=self.fd(parent), dst_dir_fd=self.fd(where))

    def refuses(self, call: Call, parent: int, old: bytes, where: int, new: bytes) -> bool:
        return False

    def permits(self, call: Call, parent: int, old: bytes, where: int, new: bytes) -> bool:
        return False

    def others_in(self, call: Call, directory: int, name: bytes, *, own_directory: bool = False) -> bool:
        """Whether a name in a sticky directory is of another user's file."""
        place, one = os.fstat(self.fd(directory)), status(self, directory, name)
        sticky = bool(place.st_mode & stat.S_ISVTX) and (own_directory or place.st_uid != call.uid)
        return sticky and one is not None and one.st_uid != call.uid


@mutant("sticky-owner-renames-own-only | rename(3p), XBD 4.5 | the owner of a sticky directory cannot rename "
        "the files of others in it")  # fmt: skip
class StickyOwnerRenamesOwnOnly(_Renames):
    def refuses(self, call: Call, parent: int, old: bytes, where: int, new: bytes) -> bool:
        return self.others_in(call, parent, old, own_directory=True)


@mutant("sticky-owner-replaces-own-only | rename(3p), XBD 4.5 | the owner of a sticky directory cannot "
        "replace the files of others in it")  # fmt: skip
class StickyOwnerReplacesOwnOnly(_Renames):
    def refuses(self, call: Call, parent: int, old: bytes, where: int, new: bytes) -> bool:
        return self.others_in(call, where, new, own_directory=True)


@mutant("sticky-move-checks-target | rename(3p) [S_ISVTX] | a file of another user is moved out of a sticky "
        "directory")  # fmt: skip
class StickyMoveChecksTarget(_Renames):
    def permits(self, call: Call, parent: int, old: bytes, where: int, new: bytes) -> bool:
        return parent != where and not self.others_in(call, where, new)


@mutant("sticky-move-checks-source | rename(3p) [S_ISVTX] | a file from another directory replaces one of "
        "another user in a sticky directory")  # fmt: skip
class StickyMoveChecksSource(_Renames):
    def permits(self, call: Call, parent: int, old: bytes, where: int, new: bytes) -> bool:
        return parent != where and not self.others_in(call, parent, old)


class _NotOf(_Renames):
    """The sticky bit does not count for files of one kind."""

    kind = 0

    def permits(self, call: Call, parent: int, old: bytes, where: int, new: bytes) -> bool:
        one = status(self, parent, old)
        return one is not None and stat.S_IFMT(one.st_mode) == self.kind


@mutant("sticky-not-of-directories | rename(3p) [S_ISVTX] | any user renames the directories of others in a "
        "sticky directory, and replaces them")  # fmt: skip
class StickyNotOfDirectories(_NotOf):
    kind = stat.S_IFDIR


@mutant("sticky-not-of-links | rename(3p) [S_ISVTX] | any user renames the symbolic links of others in a "
        "sticky directory, and replaces them")  # fmt: skip
class StickyNotOfLinks(_NotOf):
    kind = stat.S_IFLNK
