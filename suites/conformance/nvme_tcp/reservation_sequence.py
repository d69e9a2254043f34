"""A seeded sequence of reservation commands of three hosts, compared with a model (Base 2.3, 8.1.24).

After each command the report (registrants with their keys, who holds, the type, GEN), the notifications of
each host, and what each host may read and write are compared with those of the model. All commands have the
key that their host registered: what another key leads to is tested by cases of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import LogPage, Rtype, StatusCode, status_name
from storagetest.wire.nvme_tcp.queue import CommandResult
from storagetest.wire.nvme_tcp.reservation_harness import (
    CLEAR,
    PREEMPT,
    PREEMPT_ABORT,
    REPLACE,
    UNREGISTER,
    ReservingHost,
)
from storagetest.wire.sequences.dealer import Dealer
from storagetest.wire.sequences.reservations import Notice, ReservationModel

KEYS = (0xA1A2A3A4A5A6A7A8, 0xA1A2A3A4A5A6A7A9, 0x00000000000000C1, 0xD100000000000000)
"""Reservation keys (chosen), some of which differ in one byte. Two hosts may have one key."""
NOTICES = {
    1: Notice.REGISTRATION_PREEMPTED,
    2: Notice.RESERVATION_RELEASED,
    3: Notice.RESERVATION_PREEMPTED,
}
"""Types of the Reservation Notification log page (5.2.12.1.35)."""
MOST_NOTICES = 20
"""Unread pages that a host may have after one command, at most (chosen)."""
LAST = 6
"""Commands of a sequence that a message names (chosen)."""


class ReservationSequence(Dealer):
    """A namespace through several hosts, none of which is registered, and the model of its reservations."""

    def __init__(self, hosts: Sequence[ReservingHost], seed: int) -> None:
        super().__init__(seed)
        self.hosts = list(hosts)
        self.model: ReservationModel[Rtype] = ReservationModel()
        self.generation = hosts[0].report().generation
        self.size = hosts[0].scratch.block_size
        self.block = bytes(self.size)
        self.unsure: set[Notice] = set()
        """Notices of the last command that a host may have or not."""
        self.log: list[str] = []
        for host in hosts:
            self._notices(host)

    def run(self, count: int) -> None:
        """Send ``count`` commands, and compare after each."""
        operations: list[Callable[[], None]] = [
            *[self.register] * 4, *[self.acquire] * 4, *[self.release] * 2, *[self.preempt] * 3,
            self.unregister, self.clear,
        ]  # fmt: skip
        self._expect(self.hosts[0].write(), allowed=True, what="Write")
        for _ in range(count):
            self.deal("command", operations)()
            self.compare()

    def end(self) -> None:
        """Unregister every host."""
        for number, key in self.model.keys.items():
            self.hosts[number].register(UNREGISTER, current=key)

    # Commands

    def register(self) -> None:
        """Register a host, or replace its key, by its current one or unseen."""
        number, new = self._host("register"), self.deal("new key", KEYS)
        old = self.model.keys.get(number)
        if old == new:
            return  # NVR-REG-AGAIN
        host = self.hosts[number]
        if old is None:
            self._good(number, f"Register of {new:#x}", host.register(new=new))
        else:
            ignores = self.deal("way to replace", (False, True))
            name = f"Replace by {new:#x}{' with IEKEY' if ignores else ''}"
            self._good(number, name, host.register(REPLACE, current=old, new=new, ignore=ignores))
        self.model.register(number, new)
        self._count()

    def unregister(self) -> None:
        """End the registration of a host."""
        number = self._registrant("unregister")
        if number is None:
            return
        done = self.hosts[number].register(UNREGISTER, current=self.model.keys[number])
        self._good(number, "Unregister", done)
        self.model.unregister(number)
        self._count()

    def acquire(self) -> None:
        """Acquire: a holder may repeat it, and anything else is a conflict while there is a reservation."""
        number, kind = self._registrant("acquire"), self.deal("type", self.hosts[0].types)
        if number is None:
            return
        if self.model.type is not None and self.deal("type again", (True, False)):
            kind = self.model.type
        self._note(number, f"Acquire of {kind.name}")
        done = self.hosts[number].acquire(kind, key=self.model.keys[number])
        granted = self.model.may_reserve(number, kind)
        self._expect(done, allowed=granted, what="Acquire")
        if granted:
            self.model.reserve(number, kind)

    def release(self) -> None:
        """Release: of a registrant that does not hold the reservation it succeeds and changes nothing."""
        number, kind = self._registrant("release"), self.model.type
        if number is None or kind is None:
            return
        done = self.hosts[number].release(kind, key=self.model.keys[number])
        self._good(number, f"Release of {kind.name}", done)
        self.model.release(number)

    def preempt(self) -> None:
        """Preempt the registrations of a key, and the reservation if its holder has that key."""
        number, kind = self._registrant("preempt"), self.deal("preempting type", self.hosts[0].types)
        victims = sorted({key for other, key in self.model.keys.items() if other != number})
        if number is None or not victims:
            return
        held, key = self.model.type, self.model.keys[number]
        whole = held is not None and held.all_hold and self.deal("all registrants", (True, False))
        victim = 0 if whole else self.random.choice(victims)
        if victim == key:
            return  # its own key: what becomes of its own registration depends on the reservation
        action = self.deal("action", (PREEMPT, PREEMPT_ABORT))
        name = f"Preempt{' and Abort' if action == PREEMPT_ABORT else ''} of {victim:#x} with {kind.name}"
        self._good(number, name, self.hosts[number].acquire(kind, action, key=key, victim=victim))
        self.model.preempt(number, victim, kind)
        if self.model.type is not held:
            self.unsure = {Notice.RESERVATION_RELEASED}  # of another type than the one that was preempted
        self._count()

    def clear(self) -> None:
        """End the reservation and all registrations."""
        number = self._registrant("clear")
        if number is None:
            return
        kind = self.model.type or Rtype.WRITE_EXCLUSIVE
        self._good(number, "Clear", self.hosts[number].release(kind, CLEAR, key=self.model.keys[number]))
        self.model.clear(number)
        self._count()

    # What is compared

    def compare(self) -> None:
        """Claim that the namespace is as the model."""
        for number, host in enumerate(self.hosts):
            found = self._notices(host) - self.unsure
            wanted = self.model.take_notices(number) - self.unsure
            assert found == wanted, (
                f"host {number} is notified of {_names(found)}; required: {_names(wanted)}, {self.history()}"
            )
        self.unsure = set()
        looks = self.hosts[self._host("look")].report()
        identities = [host.session.identity.hostid for host in self.hosts]
        registered = sorted((one.hostid, one.key, one.holds) for one in looks.registrants)
        wanted_now = sorted(
            (identities[number], key, self.model.holds(number)) for number, key in self.model.keys.items()
        )
        assert registered == wanted_now, (
            f"the registrants (key, holds) are {_shown(registered)}; required: {_shown(wanted_now)}, "
            f"{self.history()}"
        )
        assert looks.rtype == (self.model.type or 0), (
            f"RTYPE is {looks.rtype}; required: {int(self.model.type or 0)}, {self.history()}"
        )
        assert looks.generation == self.generation, (
            f"GEN is {looks.generation}; required: {self.generation}, {self.history()}"
        )
        self._access()

    def _access(self) -> None:
        for number, host in enumerate(self.hosts):
            writes, reads = self.model.may_write(number), self.model.may_read(number)
            block = self.random.randbytes(self.size)
            done = host.queue.run(io.write(host.nsid, host.scratch.lba, 1), data=block)
            self._expect(done, allowed=writes, what=f"Write of host {number}")
            self.block = block if writes else self.block
            done = host.read()
            self._expect(done, allowed=reads, what=f"Read of host {number}")
            assert not reads or done.data == self.block, (
                f"host {number} reads other data than were written last, {self.history()}"
            )

    def _notices(self, host: ReservingHost) -> set[Notice]:
        """Read the log pages of a host until there is none."""
        found: set[Notice] = set()
        for _ in range(MOST_NOTICES):
            command = admin.get_log_page(LogPage.RESERVATION_NOTIFICATION, 64)
            done = host.session.admin.run(command, reads=64)
            assert done.ok, f"the Reservation Notification log page ended with {status_name(done.status)}"
            kind, nsid = done.data[8], int.from_bytes(done.data[12:16], "little")
            if not kind:
                return found
            assert kind in NOTICES, f"the log page has type {kind}h, {self.history()}"
            assert nsid == host.nsid, (
                f"the log page is of namespace {nsid}; required: {host.nsid}, {self.history()}"
            )
            found.add(NOTICES[kind])
        raise AssertionError(f"{MOST_NOTICES} log pages were read and there are more, {self.history()}")

    def history(self) -> str:
        """Return the last commands, for a message."""
        return f"after {'; '.join(self.log[-LAST:]) or 'no command'}"

    def _count(self) -> None:
        self.generation = (self.generation + 1) % 2**32

    def _host(self, purpose: str) -> int:
        return self.deal(f"host of a {purpose}", range(len(self.hosts)))

    def _registrant(self, purpose: str) -> int | None:
        number, known = self._host(purpose), sorted(self.model.keys)
        return number if number in known else known[0] if known else None

    def _note(self, number: int, text: str) -> None:
        self.log.append(f"{text} by host {number}")

    def _good(self, number: int, text: str, done: CommandResult) -> None:
        self._note(number, text)
        self._expect(done, allowed=True, what=text)

    def _expect(self, done: CommandResult, *, allowed: bool, what: str) -> None:
        wanted = StatusCode.SUCCESS if allowed else StatusCode.RESERVATION_CONFLICT
        assert done.status == wanted, (
            f"{what} ended with {status_name(done.status)}; required: {status_name(wanted)}, {self.history()}"
        )


def _names(notices: set[Notice]) -> str:
    return ", ".join(sorted(notice.value for notice in notices)) or "nothing"


def _shown(registrants: Sequence[tuple[bytes, int, bool]]) -> list[tuple[str, bool]]:
    return [(hex(key), holds) for _, key, holds in registrants]
