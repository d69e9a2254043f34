"""Disks whose reads are no proof: refused, changed from one to the next, or refused where a signature is.

They are served as those of :mod:`block_files` are. Each of them has a file system's signature.
"""

import errno
import os

from block_files import Disk

__all__ = ["Changing", "Refusing", "RefusingStart"]

EXT4 = (0x438, b"\x53\xef")


class Refusing(Disk):
    def get(self, offset: int, size: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


class RefusingStart(Disk):
    def get(self, offset: int, size: int) -> bytes:
        if offset < 0x1000:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().get(offset, size)


class Changing(Disk):
    """Every read of the start has another byte in it."""

    def get(self, offset: int, size: int) -> bytes:
        data = super().get(offset, size)
        self.turn += 1
        return bytes([self.turn % 256]) + data[1:] if offset == 0 else data
