"""Mutants of file handles: of a number that is used again, and of a second name.

The rules:

- open_by_handle_at(): [ESTALE] if the file of the handle has been deleted.
- link(): the new name is of the same file.
"""

import os
import stat
from collections.abc import Hashable
from pathlib import Path

from fuse_passthrough import ROOT, PassThrough
from fuse_protocol import Attributes, Call
from posix_rules import Keeping, mutant


@mutant("node-number-used-again | open_by_handle_at(2) [ESTALE] | a new file has the number of an old one")
class NodeNumberUsedAgain(PassThrough):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.free: list[int] = []

    def forget(self, node: int, times: int) -> None:
        super().forget(node, times)
        if node not in self.nodes and node != ROOT:
            self.free.append(node)

    def node_of(self, fd: int) -> int:
        if not self.free:
            return super().node_of(fd)
        last, number = self._next, self.free.pop()
        self._next = number - 1
        found = super().node_of(fd)
        self._next = last
        if found != number:  # the file has a node
            self.free.append(number)
        return found


@mutant("linked-name-is-a-copy | link(3p) | link() makes another file with the same data")
class LinkedNameIsACopy(PassThrough):
    def link(self, call: Call, old: int, parent: int, name: bytes) -> int:
        self.as_caller(call)
        data = Path(self.nodes[old].path).read_bytes()
        made = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, dir_fd=self.fd(parent))
        try:
            os.write(made, data)
        finally:
            os.close(made)
        return self.node_at(self.fd(parent), name)


@mutant("moved-file-has-another-number | rename(3p) | a file that moved has another serial number")
class MovedFileHasAnotherNumber(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.moved: set[Hashable] = set()

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        found = os.stat(new, dir_fd=self.fd(where), follow_symlinks=False)
        if stat.S_ISREG(found.st_mode) and parent != where:
            self.moved.add((found.st_dev, found.st_ino))

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        found = super().getattr(call, node, handle)
        found.ino += 1 << 40 if self.nodes[node].key in self.moved else 0
        return found
