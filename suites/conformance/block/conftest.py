"""What a case of two initiators starts from: ``both``, the same device on two clients, reserved by nobody.

Each writes and reads through a hand (:mod:`storagetest.runner.hands`), past its page cache, in a place that
is no other case's meanwhile: cases of one target run one at a time.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from storagetest.agent.casekit import reservations, stamps
from storagetest.agent.casekit.blocks import EDGE, RANGE
from storagetest.agent.casekit.reservations import Request
from storagetest.config import Variant
from storagetest.plugin.two_clients import HandKeeper
from storagetest.protocols.base import Attachment
from storagetest.runner.hands import Hand

SIZE = 4096
"""Bytes that are written at a time: whole blocks of any device."""


ATTENTIONS = 8
"""How many unit attentions may be waiting for an initiator."""


@dataclass
class Initiator:
    """The device as one client has it. ``key`` is what it registers."""

    hand: Hand
    path: str
    key: int
    seed: int
    fd: int = -1

    def open(self) -> None:
        """Open the device with a fresh process."""
        self.hand.renew()
        self.hand.enter("")
        self.fd = self.hand.open(self.path, os.O_RDWR | os.O_DIRECT)

    def ask(self, request: Request) -> int:
        """Make an ioctl; return 0 or the status of the refusal; skip where there are no reservations.

        A unit attention, by which a target tells once what others did, makes the kernel give a command up
        before it was begun: it is asked again, as often as there may be such news.
        """
        try:
            for _ in range(ATTENTIONS):
                returned = int(self.hand.call("ioctl", self.fd, *request)[0])
                if returned & 0xFF != reservations.CHECK_CONDITION:
                    break
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY):
                pytest.skip(f"{self.hand.name}: neither kernel nor target has reservations here: {error}")
            raise
        if reservations.unknown(returned):
            pytest.skip(f"{self.hand.name}: the target knows no reservations (status {returned:x}h)")
        return returned

    def done(self, request: Request) -> None:
        """Make an ioctl that is to succeed."""
        returned = self.ask(request)
        assert returned == 0, f"{self.hand.name}: refused by status {returned:x}h"

    def refused(self, request: Request) -> None:
        """Make an ioctl that another's reservation, or the want of a key, is to keep out."""
        returned = self.ask(request)
        assert reservations.conflicts(returned), f"{self.hand.name}: status {returned:x}h is no conflict"

    def join(self) -> None:
        """Register the key, whatever was registered."""
        self.done(reservations.register(self.key, ignore=True))

    def write(self, generation: int) -> None:
        """Write a generation."""
        data = stamps.run_of(EDGE // 512, SIZE // 512, generation, self.seed, 512)
        assert self.hand.call("write_direct", self.fd, data, EDGE) == len(data)

    def generation(self) -> int:
        """Read; return which generation is there: 0 where it is none of this case's."""
        data = bytes(self.hand.call("read_direct", self.fd, SIZE, EDGE))
        found = stamps.parse(data[:512])
        if found is None or found.seed != self.seed:
            return 0
        wrong = stamps.faults(data, EDGE // 512, found.generation, self.seed, 512)
        assert not wrong, wrong
        return found.generation

    def may_write(self, generation: int) -> bool:
        """Whether a write of that generation is taken, or refused as a reservation refuses."""
        return self._may(lambda: self.write(generation))

    def may_read(self) -> bool:
        """Whether a read is taken."""
        return self._may(self.generation)

    def _may(self, call: object) -> bool:
        try:
            call()  # type: ignore[operator]  # one of the two above
        except OSError as error:
            assert error.errno == errno.EBADE, f"refused by {error}, and not by {reservations.CONFLICT}"
            return False
        return True


@pytest.fixture
def both(
    variant: Variant, attachment: Attachment, second_attachment: Attachment, hand_keeper: HandKeeper
) -> Iterator[tuple[Initiator, Initiator]]:
    """Yield the device on both clients; nobody is registered with it, before and after."""
    if getattr(variant.options, "more_paths", ()):
        pytest.skip(
            f"{variant.id}: each path may be an initiator of its own; this takes clients that are one"
        )
    assert attachment.size >= EDGE + RANGE
    hands = [hand_keeper.hand(each.client) for each in (attachment, second_attachment)]
    if hands[0].boot == hands[1].boot:
        pytest.skip(f"{hands[0].name} and {hands[1].name} are two names for one machine: one initiator")
    seed = secrets.randbits(48)
    pair = (
        Initiator(hands[0], attachment.path, 0xA0A0A0A0, seed),
        Initiator(hands[1], second_attachment.path, 0xB0B0B0B0, seed),
    )
    for each in pair:
        each.open()
    try:
        free(pair)
        yield pair
    finally:
        for each in pair:
            if each.hand.usable:
                each.open()
        free(pair)
        for each in pair:
            each.hand.renew()


def free(pair: tuple[Initiator, Initiator]) -> None:
    """Remove every registration and reservation, whoever's they are."""
    pair[0].join()
    pair[0].done(reservations.clear(pair[0].key))
