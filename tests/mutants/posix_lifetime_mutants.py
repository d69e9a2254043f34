"""Mutants of locks that a name or another process's close takes away."""

from __future__ import annotations

import os

from fuse_locks import Held, Locking
from fuse_protocol import Call
from posix_rules import mutant


class _Losing(Locking):
    """``lose`` gives up all locks of a file."""

    def lose(self, directory: int, name: bytes) -> None:
        one = os.stat(name, dir_fd=self.fd(directory), follow_symlinks=False)
        node = next((node for node in self.nodes.values() if node.key == (one.st_dev, one.st_ino)), None)
        if node is not None:
            self.held = [held for held in self.held if held.node != node.id]
            self.grant()


@mutant("rename-loses-locks | rename(3p) | a rename to another name releases the locks of the file")
class RenameLosesLocks(_Losing):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        self.lose(where, new)


@mutant("unlink-loses-locks | unlink(3p) | unlink of one of two names releases the locks of the file")
class UnlinkLosesLocks(_Losing):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        self.lose(parent, name)
        super().unlink(call, parent, name)


@mutant("child-close-unlocks | fcntl(3p) F_SETLK | a close by a child releases the locks of its parent")
class ChildCloseUnlocks(Locking):
    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        for one in [one for one in self.held if one.node == node and not one.whole]:
            if one.owner in self.through.get(handle, ()):
                self.give_up(node, one.owner, whole=False)
        super().flush(call, node, handle, owner)


@mutant(
    "ofd-wait-for-own-process-deadlocks | fcntl(2) F_OFD_SETLKW | a wait for another description's lock "
    "of the same process is EDEADLK"
)
class OfdWaitForOwnProcessDeadlocks(Locking):
    def would_wait_for_itself(self, asked: Held, seen: frozenset[int] = frozenset()) -> bool:
        own = any(one.pid == asked.pid and one.owner != asked.owner and one.meets(asked) for one in self.held)
        return own or super().would_wait_for_itself(asked, seen)
