"""Mutants that keep locks and let them go at the wrong moment, or compare their ranges wrong."""

from dataclasses import replace

from fuse_locks import FREE, LAST, WRITE, Held, Locking
from fuse_protocol import Call
from posix_rules import asked_by, mutant

MASK = (1 << 32) - 1


@mutant(
    "lock-32-bit | fcntl() | of the first and last byte of a lock that is not the whole file 32 bits count"
)
class Lock32Bit(Locking):
    def conflict(self, asked: Held) -> Held | None:
        return super().conflict(self._cut(asked))

    def put(self, asked: Held) -> None:
        super().put(self._cut(asked))

    @staticmethod
    def _cut(one: Held) -> Held:
        if one.end == LAST:
            return one
        return replace(one, start=one.start & MASK, end=max(one.start & MASK, one.end & MASK))


@mutant(
    "lock-convert-drops-right | fcntl() | a lock that is converted in its middle loses what is right of it"
)
class LockConvertDropsRight(Locking):
    def put(self, asked: Held) -> None:
        if asked.kind != FREE and not asked.whole:
            self.held = [
                replace(one, end=asked.end)
                if one.owner == asked.owner and one.meets(asked) and one.end > asked.end
                else one
                for one in self.held
            ]
        super().put(asked)


@mutant("lock-lost-at-rename | fcntl() | locks of a file are gone when it is renamed")
class LockLostAtRename(Locking):
    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        node = self.node_at(self.fd(where), new)
        self.held = [one for one in self.held if one.node != node]


@mutant(
    "ofd-lost-at-other-close | fcntl(2), F_OFD_SETLK | a close of any descriptor of the process lets it go"
)
class OfdLostAtOtherClose(Locking):
    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        super().flush(call, node, handle, owner)
        self.held = [
            one for one in self.held if one.node != node or one.whole or one.pid not in (call.pid, 0, -1)
        ]
        self.grant()


@mutant("flock-lost-at-dup-close | flock(2) | the close of a duplicate of the descriptor lets the lock go")
class FlockLostAtDupClose(Locking):
    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        super().flush(call, node, handle, owner)
        for one in self.through.get(handle, ()):
            self.give_up(node, one, whole=True)


@mutant("lock-kept-of-killed | fcntl() | locks of a process that is killed by a signal are kept")
class LockKeptOfKilled(Locking):
    def flush(self, call: Call, node: int, handle: int, owner: int) -> None:
        number, _ = call.waits_in()
        if number == -1 or asked_by(call, "exit_group", "close"):
            super().flush(call, node, handle, owner)

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.through.pop(handle, None)
        super().release(call, node, handle, owner, flock=flock)


@mutant("waiters-shared-one-woken | fcntl(), F_SETLKW | of several who wait for a shared lock one is woken")
class WaitersSharedOneWoken(Locking):
    def grant(self) -> None:
        for unique, asked in list(self.waiting):
            if (unique, asked) in self.waiting and self.conflict(asked) is None:
                self.waiting.remove((unique, asked))
                self.held.append(asked)
                self.answer(unique, 0)
                if asked.kind != WRITE:
                    return

    def give_up(self, node: int, owner: int, *, whole: bool) -> None:
        if any((one.node, one.owner, one.whole) == (node, owner, whole) for one in self.held):
            super().give_up(node, owner, whole=whole)  # a close without locks wakes no process
