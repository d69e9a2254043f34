"""What cases that are not of one client alone start from.

``both`` is the same device on two clients, reserved by nobody; ``disk`` a device that its server can make
larger.

Each writes and reads through a hand (:mod:`storagetest.runner.syscall_session`), past its page cache, in a place that
is no other case's meanwhile: cases of one target run one at a time.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import posixpath
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from storagetest.agent.testlib import block_patterns, pr_ioctl
from storagetest.agent.testlib.block_range import EDGE, RANGE
from storagetest.agent.testlib.pr_ioctl import Request
from storagetest.config import Variant
from storagetest.errors import DeadlineExceeded, HostError
from storagetest.hosts import Host
from storagetest.plugin.fixtures.two_clients import SyscallSessionPool
from storagetest.plugin.run_state import RunState
from storagetest.polling import wait_until
from storagetest.protocols.base import Attachment
from storagetest.runner.syscall_session import SyscallSession

SIZE = 4096
"""Bytes that are written at a time: whole blocks of any device."""


RESERVATIONS = 5
"""The bit of ONCS, Optional NVM Command Support, for the Reservation commands."""
ATTENTIONS = 8
"""How many unit attentions may be waiting for an initiator."""
SEEN = 20.0
"""Seconds within which a client must have seen a new size after it was told to look."""
TOLD = 10.0
"""Seconds within which a target tells of it by itself, if it does."""
SERVER = 60.0
"""Seconds that a control may take."""
RESCAN = """
disk=$(basename "$(readlink -f "$1")")
for file in /sys/block/$disk/device/rescan /sys/block/$disk/device/rescan_controller \
    /sys/block/$disk/device/nvme*/rescan_controller; do
    [ ! -e "$file" ] || echo 1 >"$file"
done
"""


@dataclass
class Initiator:
    """The device as one client has it. ``key`` is what it registers.

    ``promised`` is where the target says that it has reservations; "" where it says nothing.
    """

    hand: SyscallSession
    path: str
    key: int
    seed: int
    promised: str
    fd: int = -1

    def open(self) -> None:
        """Open the device with a fresh process."""
        self.hand.restart_worker()
        self.hand.chdir("")
        self.fd = self.hand.open(self.path, os.O_RDWR | os.O_DIRECT)

    def ask(self, request: Request) -> int:
        """Make an ioctl; return 0 or the status of the refusal; skip where there are no reservations.

        A unit attention, by which a target tells once what others did, makes the kernel give a command up
        before it was begun: it is asked again, as often as there may be such news.
        """
        try:
            for _ in range(ATTENTIONS):
                returned = int(self.hand.call("ioctl", self.fd, *request)[0])
                if returned & 0xFF != pr_ioctl.CHECK_CONDITION:
                    break
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY):
                pytest.skip(f"{self.hand.name}: neither kernel nor target has reservations here: {error}")
            raise
        if pr_ioctl.unknown(returned):
            assert not self.promised, (
                f"{self.promised}, and yet the command is unknown (status {returned:x}h)"
            )
            pytest.skip(f"{self.hand.name}: the target knows no reservations (status {returned:x}h)")
        return returned

    def done(self, request: Request) -> None:
        """Make an ioctl that is to succeed."""
        returned = self.ask(request)
        assert returned == 0, f"{self.hand.name}: refused by status {returned:x}h"

    def refused(self, request: Request) -> None:
        """Make an ioctl that another's reservation, or the want of a key, is to keep out."""
        returned = self.ask(request)
        assert pr_ioctl.conflicts(returned), f"{self.hand.name}: status {returned:x}h is no conflict"

    def join(self) -> None:
        """Register the key, whatever was registered."""
        self.done(pr_ioctl.register(self.key, ignore=True))

    def write(self, generation: int) -> None:
        """Write a generation."""
        data = block_patterns.make_blocks(EDGE // 512, SIZE // 512, generation, self.seed, 512)
        assert self.hand.call("write_direct", self.fd, data, EDGE) == len(data)

    def generation(self) -> int:
        """Read; return which generation is there: 0 where it is none of this case's."""
        data = bytes(self.hand.call("read_direct", self.fd, SIZE, EDGE))
        found = block_patterns.parse(data[:512])
        if found is None or found.seed != self.seed:
            return 0
        wrong = block_patterns.describe_mismatches(data, EDGE // 512, found.generation, self.seed, 512)
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
            assert error.errno == errno.EBADE, f"refused by {error}, and not by {pr_ioctl.CONFLICT}"
            return False
        return True


@pytest.fixture(scope="session")
def identify(attachment: Attachment) -> Callable[[str], int | None]:
    """Return what looks up a number of Identify Controller (nvme-id-ctrl(1)); None where no controller is."""

    def number(name: str) -> int | None:
        if not posixpath.basename(attachment.path).startswith("nvme"):
            return None
        argv = ["nvme", "id-ctrl", "--output-format=json", attachment.path]
        return int(json.loads(attachment.client.run(argv, deadline=30).stdout)[name])

    return number


@pytest.fixture(scope="session")
def promised(identify: Callable[[str], int | None], attachment: Attachment) -> str:
    """Return where the target says that it has reservations, "" where it says nothing; skip where it says no.

    A controller of NVMe says so by bit 5 of ONCS (Base 5.2.13.2.1, Identify Controller). A SCSI device may
    have reservations that do not outlive a loss of its power (SPC-4, REPORT CAPABILITIES, PTPL_C); the kernel
    asks for such as do, always (sd_pr_register(), APTPL), so that it can register with none of these.
    """
    optional = identify("oncs")
    if optional is None:
        if _forgets(attachment):
            pytest.skip(
                "the device keeps no registration over a loss of its power (PTPL_C is 0), and the client's "
                "kernel asks for nothing less"
            )
        return ""
    if not optional >> RESERVATIONS & 1:
        pytest.skip(
            f"the controller has no reservations: bit {RESERVATIONS} of its ONCS ({optional:x}h) is 0"
        )
    return f"bit {RESERVATIONS} of ONCS ({optional:x}h) says that the controller has reservations"


def _forgets(attachment: Attachment) -> bool:
    """Whether a SCSI device says so; one that cannot be asked, by want of sg_persist(8) too, says nothing."""
    argv = ["sg_persist", "--no-inquiry", "--in", "--report-capabilities", attachment.path]
    with contextlib.suppress(HostError):
        said = attachment.client.run(argv, deadline=30, check=False).stdout
        return re.search(r"\(PTPL_C\): 0$", said, re.MULTILINE) is not None
    return False


@pytest.fixture
def both(
    variant: Variant,
    attachment: Attachment,
    second_attachment: Attachment,
    session_pool: SyscallSessionPool,
    promised: str,
) -> Iterator[tuple[Initiator, Initiator]]:
    """Yield the device on both clients; nobody is registered with it, before and after."""
    if getattr(variant.options, "more_paths", ()):
        pytest.skip(
            f"{variant.id}: each path may be an initiator of its own; this takes clients that are one"
        )
    assert attachment.size >= EDGE + RANGE
    hands = [session_pool.hand(each.client) for each in (attachment, second_attachment)]
    if hands[0].boot == hands[1].boot:
        pytest.skip(f"{hands[0].name} and {hands[1].name} are two names for one machine: one initiator")
    seed = secrets.randbits(48)
    pair = (
        Initiator(hands[0], attachment.path, 0xA0A0A0A0, seed, promised),
        Initiator(hands[1], second_attachment.path, 0xB0B0B0B0, seed, promised),
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
            each.hand.restart_worker()


def free(pair: tuple[Initiator, Initiator]) -> None:
    """Remove every registration and reservation, whoever's they are."""
    pair[0].join()
    pair[0].done(pr_ioctl.clear(pair[0].key))


@dataclass
class Disk:
    """The device as the client has it, and its server, which can change its size."""

    hand: SyscallSession
    path: str
    client: Host
    server: Host
    variant: Variant
    seed: int
    logical: int = 512
    chunk: int = 64 << 10

    def open(self) -> int:
        """Open the device, past the page cache."""
        return self.hand.open(self.path, os.O_RDWR | os.O_DIRECT)

    def size(self) -> int:
        """Return the bytes that the client's kernel takes the device to have."""
        fd = self.open()
        found = int(self.hand.call("seek", fd, 0, os.SEEK_END))
        self.hand.close(fd)
        return found

    def grow(self) -> None:
        """Have the server make it larger."""
        assert self.variant.controls.grow is not None
        self.server.run(self.variant.controls.grow, deadline=SERVER)

    def shrink(self) -> None:
        """Have the server make it as it was."""
        assert self.variant.controls.shrink is not None
        self.server.run(self.variant.controls.shrink, deadline=SERVER)

    def rescan(self) -> None:
        """Have the client look at its device anew."""
        self.client.run(["sh", "-c", RESCAN, "rescan", self.path], deadline=30)

    def comes_to(self, holds: Callable[[int], bool], what: str) -> int:
        """Wait until the size is as ``holds`` says, and return it; fail where it does not come to that."""
        assert self.hears(holds, SEEN), f"not within {SEEN:g} s: {what}; it is {self.size()} bytes"
        return self.size()

    def hears(self, holds: Callable[[int], bool], within: float = TOLD) -> bool:
        """Wait until the size is as ``holds`` says; return whether it came to that."""
        try:
            wait_until(lambda: holds(self.size()), within, "another size", interval=0.2)
        except DeadlineExceeded:
            return False
        return True

    def kernel_log(self) -> str:
        """Return what the client's kernel has said."""
        return self.client.run(["dmesg"], deadline=30).stdout

    def write(self, place: int, generation: int) -> None:
        """Write a generation of self-describing blocks at byte ``place``."""
        data = self.data(place, generation)
        fd = self.open()
        assert self.hand.call("write_direct", fd, data, place) == self.chunk
        self.hand.close(fd)

    def expect(self, place: int, generation: int, size: int = 0) -> None:
        """Claim that they are there, ``size`` bytes of them or a chunk."""
        fd = self.open()
        data = bytes(self.hand.call("read_direct", fd, size or self.chunk, place))
        self.hand.close(fd)
        wrong = block_patterns.describe_mismatches(
            data, place // self.logical, generation, self.seed, self.logical
        )
        assert not wrong, wrong

    def data(self, place: int, generation: int, size: int = 0) -> bytes:
        """Return what a generation of blocks at byte ``place`` consists of, a chunk or ``size`` bytes."""
        count = (size or self.chunk) // self.logical
        return block_patterns.make_blocks(place // self.logical, count, generation, self.seed, self.logical)


@pytest.fixture
def disk(
    variant: Variant, attachment: Attachment, session_pool: SyscallSessionPool, st: RunState
) -> Iterator[Disk]:
    """Yield the device; its size is as it was before and after."""
    assert variant.server is not None, "controls of a server are refused without one"
    assert attachment.size >= EDGE + RANGE
    hand = session_pool.hand(attachment.client)
    hand.restart_worker()
    hand.chdir("")
    server = st.host(variant.server)
    found = Disk(hand, attachment.path, attachment.client, server, variant, secrets.randbits(48))
    was = found.size()
    try:
        yield found
    finally:
        if hand.usable:
            hand.restart_worker()
        found.shrink()
        found.rescan()
        hand = session_pool.hand(attachment.client)
        hand.chdir("")
        found.hand = hand
        found.comes_to(lambda size: size == was, f"{was} bytes as before the case")
