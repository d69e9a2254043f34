"""Sequences of byte-range locks of several owners, with models of who has which bytes.

NFSv4 and NLM lock as POSIX does (RFC 8881 9.3, 18.10 to 18.12, RFC 1813 6.3): the locks of one owner are
joined, a later one replaces what it covers, and an unlock frees any part. Those of SMB2 (MS-FSA 2.1.5.8) are
kept as they were requested, exclude another one of the same open, too, and are freed by their exact range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

from storagetest.wire.sequences.dealer import Dealer
from storagetest.wire.sequences.history import History

END = 1 << 63
"""One more than the last byte of the model: a range that ends there is one to the end of the file."""

OWNERS = 3

Verb = Literal["lock", "unlock", "test", "close"]
Range = tuple[int, int]
"""First byte, and one more than the last byte."""


@dataclass(frozen=True, slots=True)
class Held:
    """A lock."""

    owner: int
    start: int
    end: int
    exclusive: bool

    def meets(self, start: int, end: int) -> bool:
        """Whether it has a byte of a range."""
        return self.start < end and start < self.end


@dataclass(frozen=True, slots=True)
class LockStep:
    """One operation of ``owner``; ``holders`` are the locks that refuse it, none if it is granted.

    ``others`` are all locks of other owners: a server may state one together with what touches it.
    """

    verb: Verb
    owner: int
    start: int = 0
    end: int = END
    exclusive: bool = True
    holders: tuple[Held, ...] = ()
    granted: bool = True
    others: tuple[Held, ...] = ()

    @property
    def length(self) -> int | None:
        """The number of bytes; None: to the end of the file."""
        return None if self.end == END else self.end - self.start

    @property
    def objects(self) -> tuple[str, ...]:
        """What it concerns: the one file that is locked."""
        return ("locks",)

    def __str__(self) -> str:
        if self.verb == "close":
            return f"owner {self.owner} closes the file"
        kind = "exclusive" if self.exclusive else "shared"
        last = "the end" if self.end == END else str(self.end - 1)
        shown = f"{self.verb} ({kind})" if self.verb != "unlock" else "unlock"
        wanted = "" if self.granted else " (which has to be denied)"
        return f"{shown} of bytes {self.start} to {last} by owner {self.owner}{wanted}"


@dataclass(frozen=True, slots=True)
class Denial:
    """What a server states of the lock in the way; ``owner`` is None for one that is unknown."""

    owner: int | None
    start: int
    end: int
    exclusive: bool


class LockDriver(Protocol):
    """The operations in a protocol."""

    def lock(self, step: LockStep) -> Denial | bool:
        """Lock without waiting; return whether it was granted, or a denial that names a holder."""

    def unlock(self, step: LockStep) -> bool:
        """Unlock; return whether the server did."""

    def test(self, step: LockStep) -> Denial | bool:
        """Test; return True if a lock would be granted."""

    def close(self, step: LockStep) -> None:
        """Close the owner's open, and open the file again."""


@dataclass
class PosixLocks:
    """The locks of all owners, of which no two of one owner meet."""

    held: list[Held] = field(default_factory=list)

    def holders(self, owner: int, start: int, end: int, *, exclusive: bool) -> tuple[Held, ...]:
        """Return the locks of others that refuse a lock."""
        return tuple(
            one
            for one in self.held
            if one.owner != owner and one.meets(start, end) and (exclusive or one.exclusive)
        )

    def lock(self, owner: int, start: int, end: int, *, exclusive: bool) -> None:
        """Lock: what the owner has there is replaced, and what touches it and is of the same kind joined."""
        self.unlock(owner, start, end)
        for one in [one for one in self.held if (one.owner, one.exclusive) == (owner, exclusive)]:
            if one.end == start or one.start == end:
                self.held.remove(one)
                start, end = min(start, one.start), max(end, one.end)
        self.held.append(Held(owner, start, end, exclusive))

    def mixes(self, owner: int, start: int, end: int, *, exclusive: bool) -> bool:
        """Whether a lock replaces a part of one of the other kind, and one of them goes to the end."""
        return any(
            one.owner == owner
            and one.exclusive != exclusive
            and one.meets(start, end)
            and END in (end, one.end)
            for one in self.held
        )

    def unlock(self, owner: int, start: int, end: int) -> None:
        """Free a range of an owner."""
        kept: list[Held] = []
        for one in self.held:
            if one.owner != owner or not one.meets(start, end):
                kept.append(one)
                continue
            if one.start < start:
                kept.append(Held(owner, one.start, start, one.exclusive))
            if end < one.end:
                kept.append(Held(owner, end, one.end, one.exclusive))
        self.held = kept


@dataclass
class SmbLocks:
    """The locks of all opens as they were requested."""

    held: list[Held] = field(default_factory=list)

    def holders(self, owner: int, start: int, end: int, *, exclusive: bool) -> tuple[Held, ...]:
        """Return the locks that refuse a lock: another one of the same open, too (MS-FSA 2.1.4.10)."""
        del owner
        return tuple(one for one in self.held if one.meets(start, end) and (exclusive or one.exclusive))

    def lock(self, owner: int, start: int, end: int, *, exclusive: bool) -> None:
        """Lock."""
        self.held.append(Held(owner, start, end, exclusive))

    def unlock(self, owner: int, start: int, end: int) -> bool:
        """Free one lock of exactly this range; return whether there was one."""
        for one in self.held:
            if (one.owner, one.start, one.end) == (owner, start, end):
                self.held.remove(one)
                return True
        return False


PLACES = (0, 1, 7, 10, 50, 63, 64, 100, 101, 127, 4096, (1 << 31) - 1, (1 << 32) - 1, 1 << 32, (1 << 32) + 5)
LENGTHS = (1, 1, 2, 3, 10, 50, 54, 64, 1000, 1 << 31, 1 << 32)
RELATIONS = (
    "place", "place", "touches", "touches before", "inside", "inside", "around", "overlaps", "same", "same",
    "edge", "last byte", "to the end", "low 32 bits", "low 32 bits",
)  # fmt: skip
"""How a range is to one that was used before (chosen)."""


class _Plan:
    def __init__(self, seed: int, locks: PosixLocks | SmbLocks) -> None:
        self.dealer, self.locks = Dealer(seed), locks
        self.used: list[Range] = [(0, 10)]

    def range(self, owner: int) -> Range:
        """Return a range: at a place, or in some relation to one that was used or is locked."""
        relation = self.dealer.deal("relation", RELATIONS)
        own = [one for one in self.locks.held if one.owner == owner and relation.startswith("touches")]
        known = [(one.start, one.end) for one in own or self.locks.held] or self.used[-3:]
        start, end = self.dealer.random.choice(known)
        length = self.dealer.deal("length", LENGTHS)
        middle = start + max(1, min(end - start, 1 << 33) // 3)
        found = {
            "place": (place := self.dealer.deal("place", PLACES), place + length),
            "touches": (end, end + length),
            "touches before": (max(0, start - length), start),
            "inside": (middle, max(middle + 1, min(end, middle + length) - 1)),
            "around": (max(0, start - 1), min(END, end + 1)),
            "overlaps": (middle, min(END, end + length)),
            "same": (start, end),
            "edge": (start, start + 1),
            "last byte": (min(end, 1 << 40) - 1, min(end, 1 << 40)),
            "to the end": (middle, END),
            "low 32 bits": (aliased := start ^ (1 << 32), aliased + min(end - start, 1000)),
        }[relation]
        if not 0 <= found[0] < found[1] <= END or found[0] >= 1 << 62:
            found = (self.dealer.deal("place", PLACES), END)
        self.used.append(found)
        return found

    def probes(self, start: int, end: int) -> Iterator[LockStep]:
        """Yield tests by several owners at the borders of a range, and of what is held elsewhere."""
        places = {start - 1, start, end - 1, end} if end < END else {start - 1, start, start + (1 << 33)}
        for number, place in enumerate(sorted(places)):
            if place < 0:
                continue
            owner = (number + self.dealer.random.randrange(OWNERS)) % OWNERS
            for each in (owner, (owner + 1) % OWNERS):
                yield self.asked("test", each, place, place + 1, exclusive=bool(number % 2))
        for one in self.dealer.random.sample(self.locks.held, min(3, len(self.locks.held))):
            place = (one.start, min(one.end, one.start + (1 << 33)) - 1)[self.dealer.deal("edge", (0, 1))]
            yield self.asked("test", (one.owner + 1) % OWNERS, place, place + 1, exclusive=True)

    def asked(self, verb: Verb, owner: int, start: int, end: int, *, exclusive: bool) -> LockStep:
        """Return a lock or a test, and how it ends."""
        holders = self.locks.holders(owner, start, end, exclusive=exclusive)
        others = tuple(one for one in self.locks.held if one.owner != owner)
        return LockStep(verb, owner, start, end, exclusive, holders, not holders, others)


VERBS: tuple[Verb, ...] = ("lock",) * 9 + ("unlock",) * 5 + ("test",) * 2 + ("close",)


def _touching(plan: _Plan, locks: PosixLocks) -> Iterator[LockStep]:
    """Yield three locks of one owner that touch, the unlock of one of them, and tests around it."""
    owner = plan.dealer.deal("owner", range(OWNERS))
    freed = plan.dealer.random.randrange(3)
    for start in (200, 210, 220):
        yield LockStep("lock", owner, start, start + 10)
        locks.lock(owner, start, start + 10, exclusive=True)
    start = 200 + 10 * freed
    yield LockStep("unlock", owner, start, start + 10)
    locks.unlock(owner, start, start + 10)
    for place in (200, 209, 210, 219, 220, 229):
        yield plan.asked("test", (owner + 1) % OWNERS, place, place + 1, exclusive=True)


def posix_lock_steps(seed: int, operations: int) -> list[LockStep]:
    """Return a sequence of locks as POSIX has them, with tests at the borders of each range."""
    locks = PosixLocks()
    plan = _Plan(seed, locks)
    steps = list(_touching(plan, locks))
    granted: list[tuple[int, Range]] = []
    for _ in range(operations):
        verb: Verb = plan.dealer.deal("verb", VERBS)
        owner = plan.dealer.deal("owner", range(OWNERS))
        if verb == "close":
            locks.unlock(owner, 0, END)
            steps.append(LockStep("close", owner))
            steps += plan.probes(*plan.used[-1])
            continue
        start, end = plan.range(owner)
        if verb == "unlock":
            asked = [each for of, each in granted if of == owner]
            if plan.dealer.deal("unlock as it was locked", (True, True, False)) and asked:
                start, end = plan.dealer.random.choice(asked[-3:])
            locks.unlock(owner, start, end)
            steps.append(LockStep("unlock", owner, start, end))
        else:
            exclusive = plan.dealer.deal("exclusive", (True, False, False, True, True))
            if verb == "lock" and locks.mixes(owner, start, end, exclusive=exclusive):
                verb = "test"
            steps.append(plan.asked(verb, owner, start, end, exclusive=exclusive))
            if verb == "lock" and steps[-1].granted:
                locks.lock(owner, start, end, exclusive=exclusive)
                granted.append((owner, (start, end)))
        steps += plan.probes(start, end)
    return steps


def smb_lock_steps(seed: int, operations: int) -> list[LockStep]:
    """Return a sequence of locks of SMB2."""
    locks = SmbLocks()
    plan, steps = _Plan(seed, locks), []
    for _ in range(operations):
        verb: Verb = plan.dealer.deal("verb", VERBS)
        owner = plan.dealer.deal("owner", range(OWNERS))
        start, end = plan.range(owner)
        if end == END:
            end = start + (1 << 33)
        if verb == "close":
            locks.held = [one for one in locks.held if one.owner != owner]
            steps.append(LockStep("close", owner))
            continue
        if verb in ("unlock", "test"):
            if plan.dealer.deal("held", (True, True, False)) and locks.held:
                one = plan.dealer.random.choice(locks.held)
                owner, start, end = one.owner, one.start, one.end
            granted = locks.unlock(owner, start, end)
            steps.append(LockStep("unlock", owner, start, end, granted=granted))
            continue
        exclusive = plan.dealer.deal("exclusive", (True, False, False, True))
        own = [one for one in locks.held if one.owner == owner and one.exclusive]
        exclusive |= any(one.meets(start, end) for one in own)  # a shared one on it: granted by some servers
        steps.append(plan.asked("lock", owner, start, end, exclusive=exclusive))
        if steps[-1].granted:
            locks.lock(owner, start, end, exclusive=exclusive)
    return steps


def run_locks(driver: LockDriver, steps: list[LockStep], seed: int) -> None:
    """Make the steps, and compare grants and denials with the model."""
    history = History(seed, len(steps))
    for step in steps:
        with history.step(str(step), *(step.objects if step.verb != "test" else ("test",))):
            _make(driver, step)


def _make(driver: LockDriver, step: LockStep) -> None:
    if step.verb == "close":
        driver.close(step)
        return
    if step.verb == "unlock":
        done = driver.unlock(step)
        assert done == step.granted, f"it {'succeeds' if done else 'is refused'}"
        return
    found = driver.lock(step) if step.verb == "lock" else driver.test(step)
    if step.granted:
        assert found is True, f"it is denied ({found}), and no lock is in the way"
        return
    assert found is not True, f"it succeeds, and {_shown(step.holders[0])} is in the way"
    if isinstance(found, Denial):
        assert any(_is(found, one, step.others) for one in step.holders), (
            f"{found} is stated as the lock in the way, which is {_shown(step.holders[0])}"
        )


def _is(denial: Denial, one: Held, others: tuple[Held, ...]) -> bool:
    """Whether a denial may be of this lock: its owner and kind, no bytes that its owner has not locked."""
    if denial.owner not in (None, one.owner) or denial.exclusive != one.exclusive:
        return False
    at = denial.start
    for held in sorted((each for each in others if each.owner == one.owner), key=lambda each: each.start):
        if held.start <= at < held.end:
            at = held.end
    return at >= denial.end and one.meets(denial.start, denial.end)


def _shown(one: Held) -> str:
    kind = "an exclusive" if one.exclusive else "a shared"
    return f"{kind} lock of bytes {one.start} to {one.end - 1} by owner {one.owner}"
