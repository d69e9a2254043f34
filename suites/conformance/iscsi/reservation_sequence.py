"""A seeded sequence of reservation commands of three I_T nexuses, compared with a model (SPC-4).

After each command the registered keys, the reservation, PRGENERATION, the unit attentions of each nexus, and
what each nexus may read and write are compared with those of the model. All commands name the registered key
of their nexus: what another key leads to is tested by cases of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storagetest.wire.scsi.codes import Asc, PrOut, PrType, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.sequences.dealer import Dealer
from storagetest.wire.sequences.reservations import Notice, ReservationModel

KEYS = (0xA1A2A3A4A5A6A7A8, 0xA1A2A3A4A5A6A7A9, 0x00000000000000C1, 0xD100000000000000)
"""Reservation keys (chosen), some of which differ in one byte. Two nexuses may have one key."""
ATTENTIONS = {
    Notice.RESERVATION_PREEMPTED: Asc.RESERVATIONS_PREEMPTED,
    Notice.RESERVATION_RELEASED: Asc.RESERVATIONS_RELEASED,
    Notice.REGISTRATION_PREEMPTED: Asc.REGISTRATIONS_PREEMPTED,
}
"""Unit attentions of reservations."""
LAST = 6
"""Commands of a sequence that a message names (chosen)."""


class ReservationSequence(Dealer):
    """The unit through several nexuses, none of which is registered, and the model of its reservations.

    ``silent``: whether the unit reports no RELEASE (NUAR of the Control mode page).
    """

    def __init__(self, nexuses: Sequence[LogicalUnit], lba: int, seed: int, *, silent: bool) -> None:
        super().__init__(seed)
        self.nexuses, self.lba, self.silent = list(nexuses), lba, silent
        self.model: ReservationModel[PrType] = ReservationModel()
        self.generation: int | None = nexuses[0].keys().generation
        types = nexuses[0].reservation_types()
        self.types = tuple(kind for kind in PrType if not types or kind in types)
        self.block = bytes(nexuses[0].block_size)
        self.log: list[str] = []
        asked = nexuses[0].reserve_out(
            PrOut.PREEMPT_AND_ABORT, key=KEYS[0], action_key=KEYS[1], type=self.types[0]
        )
        actions = (PrOut.PREEMPT, PrOut.PREEMPT_AND_ABORT)
        self.preempting = actions if asked.conflict else actions[:1]  # a unit need not have the second

    def run(self, count: int) -> None:
        """Send ``count`` commands, and compare after each."""
        operations: list[Callable[[], None]] = [
            *[self.register] * 4, *[self.reserve] * 4, *[self.release] * 2, *[self.preempt] * 3,
            self.unregister, self.clear,
        ]  # fmt: skip
        for _ in range(count):
            self.deal("command", operations)()
            self.compare()

    # Commands

    def register(self) -> None:
        """Register a nexus, or change its key."""
        nexus, new = self._nexus("register"), self.deal("new key", KEYS)
        ignores = self.deal("way to register", (False, True))
        old = 0 if ignores else self.model.keys.get(nexus, 0)
        action = PrOut.REGISTER_AND_IGNORE_EXISTING_KEY if ignores else PrOut.REGISTER
        self._good(nexus, f"{action.name} of {new:#x}", action, key=old, action_key=new)
        self.model.register(nexus, new)
        self._count()

    def unregister(self) -> None:
        """End the registration of a nexus."""
        nexus = self._registered("unregister")
        if nexus is None:
            return
        self._good(nexus, "REGISTER of 0", PrOut.REGISTER, key=self.model.keys[nexus])
        self.model.unregister(nexus)
        self.generation = None  # whether it counts is tested by SCS-PR-EVENT-UNREGISTER-OTHER

    def reserve(self) -> None:
        """Reserve: a holder may repeat it, and anything else is a conflict while there is a reservation."""
        nexus, kind = self._registered("reserve"), self.deal("type", self.types)
        if nexus is None:
            return
        if self.model.type is not None and self.deal("type again", (True, False)):
            kind = self.model.type
        text, key = f"RESERVE of {kind.name}", self.model.keys[nexus]
        answer = self._send(nexus, text, PrOut.RESERVE, key=key, type=kind)
        if self.model.may_reserve(nexus, kind):
            self._claim_good(answer)
            self.model.reserve(nexus, kind)
        else:
            assert answer.conflict, f"{answer}; required: RESERVATION CONFLICT, {self.history()}"

    def release(self) -> None:
        """Release: of a nexus that does not hold the reservation it is GOOD and changes nothing."""
        nexus = self._registered("release")
        kind = self.model.type
        if nexus is None or kind is None:
            return
        key = self.model.keys[nexus]
        self._good(nexus, f"RELEASE of {kind.name}", PrOut.RELEASE, key=key, type=kind)
        self.model.release(nexus)

    def preempt(self) -> None:
        """Preempt the registrations of a key, and the reservation if its holder has that key."""
        nexus, kind = self._registered("preempt"), self.deal("preempting type", self.types)
        victims = sorted({key for other, key in self.model.keys.items() if other != nexus})
        if nexus is None or not victims:
            return
        held = self.model.type
        whole = held is not None and held.all_hold and self.deal("all registrants", (True, False))
        victim = 0 if whole else self.random.choice(victims)
        key = self.model.keys[nexus]
        if victim == key:
            return  # its own key: what becomes of its own registration depends on the reservation
        action = self.deal("way to preempt", self.preempting)
        text = f"{action.name} of {victim:#x} with {kind.name}"
        self._good(nexus, text, action, key=key, action_key=victim, type=kind)
        self.model.preempt(nexus, victim, kind)
        self._count()

    def clear(self) -> None:
        """End the reservation and all registrations."""
        nexus = self._registered("clear")
        if nexus is None:
            return
        self._good(nexus, "CLEAR", PrOut.CLEAR, key=self.model.keys[nexus])
        self.model.clear(nexus)
        self._count()

    # What is compared

    def compare(self) -> None:
        """Claim that the unit is as the model."""
        looks = self._nexus("look")
        for number, nexus in enumerate(self.nexuses):
            found = {sense.asc for sense in nexus.clear_attentions()} & set(ATTENTIONS.values())
            wanted = {ATTENTIONS[notice] for notice in self.model.take_notices(number)}
            if self.silent:
                wanted, found = (codes - {Asc.RESERVATIONS_RELEASED} for codes in (wanted, found))
            assert found == wanted, (
                f"nexus {number} has the unit attentions {_names(found)}; required: {_names(wanted)}, "
                f"{self.history()}"
            )
        keys = self.nexuses[looks].keys()
        registered = self.model.keys.values()
        assert sorted(keys.keys) == sorted(registered), (
            f"READ KEYS returns {_hex(keys.keys)}; required: {_hex(registered)}, {self.history()}"
        )
        if self.generation is not None:
            assert keys.generation == self.generation, (
                f"PRGENERATION is {keys.generation}; required: {self.generation}, {self.history()}"
            )
        self.generation = keys.generation
        held = self.nexuses[looks].reservation()
        kind = self.model.type
        wanted_now = (kind is not None, kind or 0, self.model.holder_key())
        assert (held.held, held.type, held.key) == wanted_now, (
            f"READ RESERVATION returns {held}; required: held, type and key {wanted_now}, {self.history()}"
        )
        self._access()

    def _access(self) -> None:
        for number, nexus in enumerate(self.nexuses):
            mine = self.model.may_write(number)
            block = self.random.randbytes(len(self.block))
            answer = nexus.write(self.lba, block)
            self._allowed(answer, number, allowed=mine)
            self.block = block if mine else self.block
            answer = nexus.read(self.lba)
            reads = self.model.may_read(number)
            self._allowed(answer, number, allowed=reads)
            if reads:
                assert answer.data == self.block, (
                    f"nexus {number} reads other data than were written last, {self.history()}"
                )

    def _allowed(self, answer: ScsiResult, number: int, *, allowed: bool) -> None:
        wanted = "GOOD" if allowed else "RESERVATION CONFLICT"
        assert answer.good if allowed else answer.conflict, (
            f"{answer} of nexus {number}; required: {wanted}, {self.history()}"
        )

    def history(self) -> str:
        """Return the last commands, for a message."""
        return f"after {'; '.join(self.log[-LAST:])}"

    def _count(self) -> None:
        if self.generation is not None:
            self.generation = (self.generation + 1) % 2**32

    def _nexus(self, purpose: str) -> int:
        return self.deal(f"nexus of a {purpose}", range(len(self.nexuses)))

    def _registered(self, purpose: str) -> int | None:
        nexus = self._nexus(purpose)
        known = sorted(self.model.keys)
        return nexus if nexus in known else known[0] if known else None

    def _send(self, nexus: int, text: str, action: PrOut, **fields: int) -> ScsiResult:
        self.log.append(f"{text} by nexus {nexus}")
        return self.nexuses[nexus].reserve_out(action, **fields)

    def _good(self, nexus: int, text: str, action: PrOut, **fields: int) -> None:
        self._claim_good(self._send(nexus, text, action, **fields))

    def _claim_good(self, answer: ScsiResult) -> None:
        assert not answer.check(SenseKey.UNIT_ATTENTION), f"{answer}: cleared before, {self.history()}"
        assert answer.good, f"{answer}; required: GOOD, {self.history()}"


def _names(codes: set[Asc]) -> str:
    return ", ".join(sorted(Asc(code).name for code in codes)) or "none"


def _hex(keys: object) -> list[str]:
    return [hex(key) for key in sorted(keys)]  # type: ignore[call-overload]
