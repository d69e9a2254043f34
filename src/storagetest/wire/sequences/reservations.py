"""Model of persistent reservations as SPC-4 and NVM Express Base 2.3 (8.1.24) have them in common.

Participants (I_T nexuses, hosts) have numbers. The model knows which are registered with which key, who holds
a reservation of which type, what each participant may do, and of what it is notified.
"""

from __future__ import annotations

from enum import Enum
from typing import Generic, Protocol, TypeVar


class ReservationType(Protocol):
    """A type of reservation."""

    @property
    def registrants(self) -> bool:
        """Whether every registrant has access, not only the holder."""

    @property
    def reads_too(self) -> bool:
        """Whether others may not even read (exclusive access)."""

    @property
    def all_hold(self) -> bool:
        """Whether every registrant is a holder."""


class Notice(Enum):
    """What a participant is notified of."""

    REGISTRATION_PREEMPTED = "registration preempted"
    RESERVATION_RELEASED = "reservation released"
    RESERVATION_PREEMPTED = "reservation preempted"


T = TypeVar("T", bound=ReservationType)


class ReservationModel(Generic[T]):
    """Registrations, reservation and notices. Each method is a command that succeeded."""

    def __init__(self) -> None:
        self.keys: dict[int, int] = {}
        self.type: T | None = None
        self.holder = -1
        self._notices: dict[int, set[Notice]] = {}

    def register(self, number: int, key: int) -> None:
        """Register ``number``, or replace its key."""
        self.keys[number] = key

    def unregister(self, number: int) -> None:
        """End a registration; the reservation ends with that of its (last) holder."""
        held = self.holds(number)
        del self.keys[number]
        if held and self.type is not None and (not self.type.all_hold or not self.keys):
            self._end_reservation()

    def may_reserve(self, number: int, kind: T) -> bool:
        """Whether a registrant may reserve: there is no reservation, or it holds one of that type."""
        return self.type is None or (self.holds(number) and kind is self.type)

    def reserve(self, number: int, kind: T) -> None:
        """Make the reservation, where there is none."""
        if self.type is None:
            self.type, self.holder = kind, number

    def release(self, number: int) -> None:
        """End the reservation that ``number`` holds; of another registrant it changes nothing."""
        if self.holds(number):
            self._end_reservation(but=number)

    def preempt(self, number: int, victim: int, kind: T) -> None:
        """Remove the registrations of the key ``victim``, and take the reservation of its holder.

        0 is the key of all others, where every registrant holds the reservation.
        """
        whole = self.type is not None and self.type.all_hold and victim == 0
        takes = whole or (
            self.type is not None and not self.type.all_hold and self.keys[self.holder] == victim
        )
        for other in [one for one, key in self.keys.items() if one != number and (whole or key == victim)]:
            del self.keys[other]
            self._notify(other, Notice.REGISTRATION_PREEMPTED)
        if takes:
            if kind is not self.type:
                for other in self.keys.keys() - {number}:
                    self._notify(other, Notice.RESERVATION_RELEASED)
            self.type, self.holder = kind, number

    def clear(self, number: int) -> None:
        """End the reservation and all registrations."""
        for other in self.keys.keys() - {number}:
            self._notify(other, Notice.RESERVATION_PREEMPTED)
        self.keys, self.type = {}, None

    def holds(self, number: int) -> bool:
        """Whether ``number`` holds the reservation."""
        if self.type is None or number not in self.keys:
            return False
        return self.type.all_hold or number == self.holder

    def holder_key(self) -> int:
        """Return the key of the only holder; 0 without a reservation, or if all registrants hold it."""
        return 0 if self.type is None or self.type.all_hold else self.keys[self.holder]

    def may_write(self, number: int) -> bool:
        """Whether ``number`` may write."""
        return self.type is None or self.holds(number) or (self.type.registrants and number in self.keys)

    def may_read(self, number: int) -> bool:
        """Whether ``number`` may read."""
        return self.may_write(number) or (self.type is not None and not self.type.reads_too)

    def take_notices(self, number: int) -> set[Notice]:
        """Return what ``number`` was notified of since the last call."""
        return self._notices.pop(number, set())

    def _end_reservation(self, *, but: int = -1) -> None:
        """The reservation ends; the other registrants of a type for registrants are notified."""
        assert self.type is not None
        if self.type.registrants:
            for other in self.keys.keys() - {but}:
                self._notify(other, Notice.RESERVATION_RELEASED)
        self.type = None

    def _notify(self, number: int, notice: Notice) -> None:
        self._notices.setdefault(number, set()).add(notice)
