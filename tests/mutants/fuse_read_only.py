"""A file system that changes nothing any more once a file of a certain name was made."""

import errno

from fuse_passthrough import Created, PassThrough
from fuse_protocol import Call


class ReadOnlyLater(PassThrough):
    """Once a file ``last`` was made, nothing is made or removed: EROFS, as a kernel does after an error."""

    last = False

    def _check(self) -> None:
        if self.last:
            raise OSError(errno.EROFS, "read-only")

    def mkdir(self, call: Call, parent: int, name: bytes, mode: int, umask: int) -> int:
        self._check()
        return super().mkdir(call, parent, name, mode, umask)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        self._check()
        made = super().create(call, parent, name, flags, mode, umask)
        self.last = name == b"last"
        return made

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        self._check()
        super().unlink(call, parent, name)

    def rmdir(self, call: Call, parent: int, name: bytes) -> None:
        self._check()
        super().rmdir(call, parent, name)
