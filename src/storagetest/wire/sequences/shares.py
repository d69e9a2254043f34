"""Sequences of opens with share modes, and of reads and writes through them, with a model of who may what.

An open conflicts with another one if one of them wants an access that the other denies (RFC 8881 9.7, MS-FSA
2.1.5.1.2.2). Accesses and denials are bits: reading, writing, and (SMB2) deleting. In NFSv4 an owner that
opens a file again has the union, and gives a part of it back with OPEN_DOWNGRADE (RFC 8881 18.18).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from storagetest.wire.sequences.dealer import Dealer
from storagetest.wire.sequences.history import History

READ, WRITE, DELETE = 1, 2, 4
OWNERS = 3
ROUND = 5
"""Operations after which all is closed (chosen)."""

Verb = Literal["open", "again", "downgrade", "close", "read", "write"]


@dataclass(frozen=True, slots=True)
class ShareStep:
    """One operation of ``owner``; ``allowed`` is how it ends."""

    verb: Verb
    owner: int
    access: int = 0
    deny: int = 0
    allowed: bool = True

    @property
    def objects(self) -> tuple[str, ...]:
        """What it concerns: the one file that is opened."""
        return ("opens",)

    def __str__(self) -> str:
        wanted = "" if self.allowed else " (which has to be refused)"
        if self.verb in ("read", "write", "close"):
            return f"{self.verb} by owner {self.owner}{wanted}"
        return (
            f"{self.verb} by owner {self.owner}: access {_bits(self.access)}, deny {_bits(self.deny)}{wanted}"
        )


def _bits(value: int) -> str:
    names = {READ: "read", WRITE: "write", DELETE: "delete"}
    return "+".join(name for bit, name in names.items() if value & bit) or "none"


class ShareDriver(Protocol):
    """The operations in a protocol. Each returns whether the server did what it was asked for."""

    def open(self, step: ShareStep) -> bool:
        """Open the file; False if the share modes conflict."""

    def again(self, step: ShareStep) -> bool:
        """Open the file again by the same owner."""

    def downgrade(self, step: ShareStep) -> bool:
        """Give accesses and denials back, all but those of the step."""

    def close(self, step: ShareStep) -> bool:
        """Close what the owner has open."""

    def read(self, step: ShareStep) -> bool:
        """Read through the owner's open; False if it has not the access."""

    def write(self, step: ShareStep) -> bool:
        """Write through the owner's open; False if it has not the access."""


@dataclass
class ShareModel:
    """The opens of each owner: (access, deny) of each OPEN that counts."""

    opens: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def of(self, owner: int) -> tuple[int, int]:
        """Return the union of an owner's accesses and denials."""
        access = deny = 0
        for one, other in self.opens.get(owner, []):
            access, deny = access | one, deny | other
        return access, deny

    def allows(self, owner: int, access: int, deny: int) -> bool:
        """Whether an open conflicts with no open of another owner."""
        for other in self.opens:
            has, denies = self.of(other)
            if other != owner and (access & denies or deny & has):
                return False
        return True


class _Plan:
    def __init__(self, seed: int, accesses: Sequence[int], denials: Sequence[int], *, joins: bool) -> None:
        self.dealer, self.model, self.joins = Dealer(seed), ShareModel(), joins
        self.modes = [(access, deny) for access in accesses for deny in denials]
        self.downgraded: set[int] = set()
        """Owners whose access is less than it was: whether it is refused is another case."""

    def step(self) -> ShareStep:
        """Return the next operation, done in the model."""
        owner = self.dealer.deal("owner", range(OWNERS))
        held = self.model.opens.get(owner)
        if not held:
            access, deny = self.dealer.deal("mode" if self.model.opens else "first mode", self.modes)
            allowed = self.model.allows(owner, access, deny)
            if allowed:
                self.model.opens[owner] = [(access, deny)]
                self.downgraded.discard(owner)
            return ShareStep("open", owner, access, deny, allowed)
        verb = self.dealer.deal(
            "verb", ("close", "close", "again", "downgrade") if self.joins else ("close",)
        )
        if verb == "again":
            return self._again(owner, held)
        if verb == "downgrade" and len(held) > 1:
            kept = held[: self.dealer.random.randrange(1, len(held))]
            self.model.opens[owner] = kept
            self.downgraded.add(owner)
            access, deny = self.model.of(owner)
            return ShareStep("downgrade", owner, access, deny)
        del self.model.opens[owner]
        return ShareStep("close", owner)

    def _again(self, owner: int, held: list[tuple[int, int]]) -> ShareStep:
        """Open again, where nothing is denied: whether an owner's own opens conflict is another case."""
        access = self.dealer.deal("access", (READ, WRITE, READ | WRITE))
        if self.model.of(owner)[1]:
            del self.model.opens[owner]
            return ShareStep("close", owner)
        allowed = self.model.allows(owner, access, 0)
        if allowed:
            held.append((access, 0))
        return ShareStep("again", owner, access, 0, allowed)

    def joined(self) -> Iterator[ShareStep]:
        """Yield two opens of one owner, whose accesses are joined, and their uses."""
        for first, second in ((READ, WRITE), (WRITE, READ)):
            self.model.opens[0] = [(first, 0)]
            yield ShareStep("open", 0, first)
            self.model.opens[0].append((second, 0))
            yield ShareStep("again", 0, second)
            yield from self.uses()
            yield from self.closes()

    def closes(self) -> list[ShareStep]:
        """Close all: the next open is the first one, and is allowed whatever it denies."""
        steps = [ShareStep("close", owner) for owner in sorted(self.model.opens)]
        self.model.opens.clear()
        return steps

    def uses(self) -> Iterator[ShareStep]:
        """Yield a read or a write by each owner that has the file open."""
        for owner in sorted(self.model.opens):
            access = self.model.of(owner)[0]
            if access & READ:
                yield ShareStep("read", owner)
            if access & WRITE or owner not in self.downgraded:
                yield ShareStep("write", owner, allowed=bool(access & WRITE))


def share_steps(
    seed: int, count: int, accesses: Sequence[int], denials: Sequence[int], *, joins: bool
) -> list[ShareStep]:
    """Return ``count`` opens and closes, with uses after each. ``joins``: an owner may open again (NFSv4)."""
    plan = _Plan(seed, accesses, denials, joins=joins)
    steps = list(plan.joined()) if joins else []
    for number in range(count):
        steps += [plan.step(), *plan.uses()]
        if number % ROUND == ROUND - 1:
            steps += plan.closes()
    return [*steps, *plan.closes()]


def run_shares(driver: ShareDriver, steps: list[ShareStep], seed: int) -> None:
    """Make the steps, and compare what is allowed with the model."""
    history = History(seed, len(steps))
    for step in steps:
        with history.step(str(step), *step.objects):
            done: bool = getattr(driver, step.verb)(step)
            assert done == step.allowed, f"it {'succeeds' if done else 'is refused'}"
