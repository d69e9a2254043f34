"""Mutants that leave ctime in one form of a call that changes the status."""

import os
import stat

from fuse_protocol import Call
from posix_attribute_mutants import _OldCtime
from posix_rules import mutant


class _OldByUtimens(_OldCtime):
    """utimensat() leaves ctime if ``leaves`` these times."""

    def utimens(self, call: Call, node: int, atime: int | str | None, mtime: int | str | None) -> None:
        if self.leaves(atime, mtime):
            self.hold(node)
        super().utimens(call, node, atime, mtime)

    def leaves(self, atime: int | str | None, mtime: int | str | None) -> bool:
        raise NotImplementedError


@mutant("utimens-atime-alone-keeps-ctime | utimensat(3p) | atime is set alone and ctime is not marked")
class UtimensAtimeAloneKeepsCtime(_OldByUtimens):
    def leaves(self, atime: int | str | None, mtime: int | str | None) -> bool:
        return mtime is None


@mutant("utimens-mtime-alone-keeps-ctime | utimensat(3p) | mtime is set alone and ctime is not marked")
class UtimensMtimeAloneKeepsCtime(_OldByUtimens):
    def leaves(self, atime: int | str | None, mtime: int | str | None) -> bool:
        return atime is None


@mutant("utimens-now-keeps-ctime | utimensat(3p) | both are set to the current time and ctime is not marked")
class UtimensNowKeepsCtime(_OldByUtimens):
    def leaves(self, atime: int | str | None, mtime: int | str | None) -> bool:
        return atime == mtime == "now"


class _OldByChown(_OldCtime):
    def chown(self, call: Call, node: int, uid: int, gid: int) -> None:
        if self.leaves(uid, gid):
            self.hold(node)
        super().chown(call, node, uid, gid)

    def leaves(self, uid: int, gid: int) -> bool:
        raise NotImplementedError


@mutant("chgrp-alone-keeps-ctime | chown(3p) | the group alone is changed and ctime is not marked")
class ChgrpAloneKeepsCtime(_OldByChown):
    def leaves(self, uid: int, gid: int) -> bool:
        return uid == -1


@mutant("chown-of-user-alone-keeps-ctime | chown(3p) | the user alone is changed and ctime is not marked")
class ChownOfUserAloneKeepsCtime(_OldByChown):
    def leaves(self, uid: int, gid: int) -> bool:
        return gid == -1


@mutant("chmod-of-fifo-keeps-ctime | chmod(3p) | the mode of a FIFO is changed and ctime is not marked")
class ChmodOfFifoKeepsCtime(_OldCtime):
    def chmod(self, call: Call, node: int, mode: int) -> None:
        if stat.S_ISFIFO(os.fstat(self.fd(node)).st_mode):
            self.hold(node)
        super().chmod(call, node, mode)
