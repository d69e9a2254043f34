"""What is done a second time, or while something else is under way.

The rules, before any case (POSIX.1-2024 and Linux's manual pages):

- fcntl() F_SETLKW: a process waits until its request can be satisfied, whatever of it is free before.
- fcntl() F_SETLKW: a process that ended while it waited has no lock.
- close(): the locks that are removed are those on the file that is closed.
- pwrite(): a write changes its bytes, in whatever order and in however many pieces a file is written.
- readdir(): each entry is returned once, also if few fit into a buffer.
"""

import errno
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path

from fuse_locks import FREE, Held, Locking
from fuse_passthrough import Entries, PassThrough
from fuse_protocol import Call
from posix_rules import Keeping, mutant, size_of

PIECES = 300
LONG = 200
""""Long" is a name of more bytes."""


@mutant("lock-waits-for-one | fcntl(3p) F_SETLKW | of several processes in the way, a waiter waits for one")
class LockWaitsForOne(Locking):
    def put(self, asked: Held) -> None:
        if asked.kind == FREE and not asked.whole:
            for unique, one in list(self.waiting):
                before = self.conflict(one)
                if before is not None and before.owner == asked.owner and before.meets(asked):
                    self.waiting.remove((unique, one))
                    self.held.append(one)
                    self.answer(unique, 0)
        super().put(asked)


@mutant("close-unlocks-other-file | close(3p) | the close of a file removes the process's locks of another")
class CloseUnlocksOtherFile(Locking):
    def give_up(self, node: int, owner: int, *, whole: bool) -> None:
        if not whole:
            for other in {one.node for one in self.held if one.owner == owner and not one.whole}:
                super().give_up(other, owner, whole=False)
        super().give_up(node, owner, whole=whole)


@mutant(
    "lock-granted-to-killed | fcntl(3p) F_SETLKW | a process that was killed in its wait is granted the lock"
)
class LockGrantedToKilled(Locking):
    def interrupt(self, unique: int) -> None:
        asked = next((one for number, one in self.waiting if number == unique), None)
        if asked is not None and _is_killed(asked.pid):
            # The request waits on, under an owner that no later process gets.
            self.waiting[self.waiting.index((unique, asked))] = (unique, replace(asked, owner=-unique))
            self.answer(unique, errno.EINTR)
        else:
            super().interrupt(unique)


def _is_killed(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
    pending = [line.split()[1] for line in text.splitlines() if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(int(mask, 16) >> 8 & 1 for mask in pending)


@mutant("piece-300-lost | pwrite(3p) | of more than 300 pieces with gaps between them the last are zeroes")
class Piece300Lost(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.pieces: dict[Hashable, set[int]] = {}

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        pieces = self.pieces.setdefault(self.nodes[node].key, set())
        if offset > size_of(handle):
            pieces.add(offset)
        is_lost = len(pieces) > PIECES and offset in pieces
        return super().write(call, node, handle, offset, bytes(len(data)) if is_lost else data)


@mutant("write-before-clobbers | pwrite(3p) | a write that ends where another began clears a byte of that")
class WriteBeforeClobbers(Keeping):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.starts: dict[Hashable, set[int]] = {}

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        starts = self.starts.setdefault(self.nodes[node].key, set())
        end = offset + len(data)
        if end in starts and offset not in starts and end < size_of(handle):
            super().write(call, node, handle, end, b"\0")
        starts.add(offset)
        return super().write(call, node, handle, offset, data)


@mutant(
    "long-name-at-buffer-end-lost | readdir(3p) | the last but one of long names in a buffer is not returned"
)
class LongNameAtBufferEndLost(PassThrough):
    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        is_full = found and super().readdir(call, node, handle, found[-1][1], size)
        if is_full and len(found) > 2 and len(found[-2][3]) > LONG:
            del found[-2]
        return found
