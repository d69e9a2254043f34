"""Hosts of the reservation cases, with the four commands (NVM Express Base 2.3, 7.5 to 7.8)."""

# ruff: noqa: D102  # a method of ReservingHost is the command of that name

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from storagetest.errors import NotOffered, RemoteProtocolError
from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Feature, LogPage, Rtype, status_name
from storagetest.wire.nvme.structures import ReservationStatus, reservation_status
from storagetest.wire.nvme_tcp.harness import Scratch
from storagetest.wire.nvme_tcp.queue import CommandResult, Queue
from storagetest.wire.nvme_tcp.session import ControllerSession

HOLDING = ("NVR-REG-07", "NVR-ACQ-07")
"""The premises of a case in which a host registers and acquires a reservation."""

REGISTER, UNREGISTER, REPLACE = 0, 1, 2
ACQUIRE, PREEMPT, PREEMPT_ABORT = 0, 1, 2
RELEASE, CLEAR = 0, 1
PERSIST_OFF, PERSIST_ON = 2, 3
"""CPTPL of Register: reservations and registrations are lost with the power, or persist (7.6)."""


def offered_types(scratch: Scratch) -> tuple[Rtype, ...]:
    """Return the reservation types that RESCAP announces: bits 1 to 6 are the types 1 to 6 (NVM 4.1.5.1)."""
    return tuple(rtype for rtype in Rtype if scratch.rescap >> rtype & 1)


def require_type(scratch: Scratch, rtype: int) -> None:
    """Raise :class:`NotOffered` if ``rtype`` is a reservation type that RESCAP does not announce."""
    if rtype in set(Rtype) - set(offered_types(scratch)):
        raise NotOffered(
            f"RESCAP is {scratch.rescap:#04x}: reservations of type {int(rtype)} are not supported"
        )


@dataclass
class ReservingHost:
    """One host with its queue, and the key that it registers; a method for each command it sends."""

    session: ControllerSession
    queue: Queue
    scratch: Scratch
    key: int

    @property
    def nsid(self) -> int:
        return self.scratch.nsid

    @property
    def types(self) -> tuple[Rtype, ...]:
        """The reservation types of the namespace."""
        return offered_types(self.scratch)

    def register(
        self,
        action: int = REGISTER,
        *,
        current: int = 0,
        new: int | None = None,
        ignore: bool = False,
        persist: int = 0,
    ) -> CommandResult:
        command = io.register(self.nsid, action, ignore=ignore, persist=persist)
        return self.queue.run(command, data=io.keys(current, self.key if new is None else new))

    def acquire(
        self, rtype: int, action: int = ACQUIRE, *, key: int | None = None, victim: int = 0
    ) -> CommandResult:
        require_type(self.scratch, rtype)
        keys = io.keys(self.key if key is None else key, victim)
        return self.queue.run(io.acquire(self.nsid, action, rtype), data=keys)

    def release(self, rtype: int, action: int = RELEASE, *, key: int | None = None) -> CommandResult:
        keys = io.keys(self.key if key is None else key)[:8]
        return self.queue.run(io.release(self.nsid, action, rtype), data=keys)

    def report(self, nsid: int | None = None) -> ReservationStatus:
        """Return the report of its namespace, or of ``nsid``."""
        done = self.queue.run(io.report(nsid or self.nsid, 1024), reads=1024)
        assert done.ok, f"Reservation Report is not {status_name(done.status)} (Base 7.8)"
        return reservation_status(done.data)

    def read(self) -> CommandResult:
        return self.queue.run(io.read(self.nsid, self.scratch.lba, 1), reads=self.scratch.block_size)

    def write(self) -> CommandResult:
        return self.queue.run(io.write(self.nsid, self.scratch.lba, 1), data=bytes(self.scratch.block_size))


def allowed(done: CommandResult) -> None:
    """The claim that a command succeeded."""
    assert done.ok, f"{status_name(done.status)}; success was expected"


def read_notice(host: ReservingHost) -> tuple[int, int]:
    """Read the notification log page, which removes its first notification; return its type and namespace.

    The type is 0 if there is none (5.2.12.1.35).
    """
    done = host.session.admin.run(admin.get_log_page(LogPage.RESERVATION_NOTIFICATION, 64), reads=64)
    allowed(done)
    return done.data[8], int.from_bytes(done.data[12:16], "little")


def hold(host: ReservingHost, rtype: int) -> None:
    """Register and acquire."""
    require_type(host.scratch, rtype)
    allowed(host.register())
    allowed(host.acquire(rtype))


def mask_of(session: ControllerSession, nsid: int) -> int:
    """Return the Reservation Notification Mask of a namespace (5.2.26.1.33)."""
    done = session.admin.run(admin.get_features(Feature.RESERVATION_NOTIFICATION_MASK, nsid=nsid))
    assert done.ok, f"5.2.26.1.33: the mask of namespace {nsid:#x} is not {status_name(done.status)}"
    return done.cqe.dw0


def set_mask(session: ControllerSession, nsid: int, mask: int) -> CommandResult:
    """Set the Reservation Notification Mask of a namespace, or of all (5.2.26.1.33)."""
    return session.admin.run(admin.set_features(Feature.RESERVATION_NOTIFICATION_MASK, mask, nsid=nsid))


@contextmanager
def kept_masks(session: ControllerSession, *nsids: int) -> Iterator[None]:
    """Set the masks of some namespaces at the end to what they were.

    A mask may be the namespace's, for all controllers: one that is left would silence other cases.
    """
    before = {nsid: mask_of(session, nsid) for nsid in nsids}

    def restore() -> None:
        for nsid, mask in before.items():
            done = set_mask(session, nsid, mask)
            assert done.ok, f"the mask of namespace {nsid:#x} is not restored: {status_name(done.status)}"

    try:
        yield
    except BaseException:
        with suppress(AssertionError, RemoteProtocolError):  # what the case found is reported
            restore()
        raise
    restore()
