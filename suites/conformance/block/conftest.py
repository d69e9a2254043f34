"""Fixtures of cases that need two clients or the server.

``both`` is the same device on two clients, without reservations; ``disk`` is a device that its server can
enlarge.

Both read and write with O_DIRECT in syscall sessions (:mod:`storagetest.runner.syscall_session`). Cases
of one target run one at a time, so no other case uses their blocks.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import posixpath
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from storagetest.agent.testlib import block_patterns, pr_ioctl
from storagetest.agent.testlib.block_range import EDGE, RANGE
from storagetest.agent.testlib.pr_ioctl import Request
from storagetest.config import Variant
from storagetest.errors import DeadlineExceeded, HostError, StoragetestError
from storagetest.hosts import Host
from storagetest.plugin.conformance.leftovers import stop_run
from storagetest.plugin.fixtures.two_clients import SyscallSessionPool
from storagetest.plugin.run_state import RunState
from storagetest.polling import wait_until
from storagetest.protocols.base import Attachment
from storagetest.runner.syscall_session import SyscallSession, restart_workers

SIZE = 4096
"""Bytes per write: whole blocks of any device."""


RESERVATIONS = 5
"""The bit of ONCS, Optional NVM Command Support, for the Reservation commands."""
ATTENTIONS = 8
"""Unit attentions that may be pending for an initiator."""
RESCAN_TIMEOUT = 20.0
"""Seconds within which a client must see a new size after a rescan."""
NOTICE_TIMEOUT = 10.0
"""Seconds within which a target reports a new size without a rescan, if it does."""
CONTROL_TIMEOUT = 60.0
"""Timeout in seconds of a control of the target."""
RESCAN = """
disk=$(basename "$(readlink -f "$1")")
for file in /sys/block/$disk/device/rescan /sys/block/$disk/device/rescan_controller \
    /sys/block/$disk/device/nvme*/rescan_controller; do
    [ ! -e "$file" ] || echo 1 >"$file"
done
"""


@dataclass
class Initiator:
    """The device on one client. ``key`` is the key that it registers.

    ``promised`` states how the target reports its support of reservations, "" if it reports nothing.
    """

    session: SyscallSession
    path: str
    key: int
    seed: int
    promised: str
    fd: int = -1

    def open(self) -> None:
        """Open the device."""
        opening = ("open", self.path, os.O_RDWR | os.O_DIRECT)
        self.fd = int(self.session.call_all(("chdir", ""), opening)[1])

    def ioctl(self, request: Request) -> int:
        """Make an ioctl and return its status (0: success); skip the case if there are no reservations.

        A unit attention makes the kernel abort the command before it starts: the ioctl is repeated, once for
        each unit attention that may be pending.
        """
        try:
            for _ in range(ATTENTIONS):
                returned = int(self.session.call("ioctl", self.fd, *request)[0])
                if returned & 0xFF != pr_ioctl.CHECK_CONDITION:
                    break
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY):
                pytest.skip(
                    f"{self.session.name}: the kernel or the target does not support reservations: {error}"
                )
            raise
        if pr_ioctl.unknown(returned):
            assert not self.promised, f"{self.promised}, but the command is unknown (status {returned:x}h)"
            pytest.skip(
                f"{self.session.name}: the target does not support reservations (status {returned:x}h)"
            )
        return returned

    def assert_succeeds(self, request: Request) -> None:
        """Make an ioctl and assert that it succeeds."""
        returned = self.ioctl(request)
        assert returned == 0, f"{self.session.name}: refused by status {returned:x}h"

    def assert_conflict(self, request: Request) -> None:
        """Make an ioctl and assert that it ends in a reservation conflict."""
        returned = self.ioctl(request)
        assert pr_ioctl.conflicts(returned), f"{self.session.name}: status {returned:x}h is no conflict"

    def register_key(self) -> None:
        """Register the key, and replace any registered key."""
        self.assert_succeeds(pr_ioctl.register(self.key, ignore=True))

    def write(self, generation: int) -> None:
        """Write a generation."""
        data = block_patterns.make_blocks(EDGE // 512, SIZE // 512, generation, self.seed, 512)
        assert self.session.call("write_direct", self.fd, data, EDGE) == len(data)

    def generation(self) -> int:
        """Read and return the generation of the blocks: 0 if this case did not write them."""
        data = bytes(self.session.call("read_direct", self.fd, SIZE, EDGE))
        header = block_patterns.parse(data[:512])
        if header is None or header.seed != self.seed:
            return 0
        wrong = block_patterns.describe_mismatches(data, EDGE // 512, header.generation, self.seed, 512)
        assert not wrong, wrong
        return header.generation

    def may_write(self, generation: int) -> bool:
        """Whether a write of that generation succeeds; False if it ends in a reservation conflict."""
        return self._may(lambda: self.write(generation))

    def may_read(self) -> bool:
        """Whether a read succeeds."""
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
    """Return a function that reads a number of Identify Controller; it returns None without a controller."""

    def number(name: str) -> int | None:
        if not posixpath.basename(attachment.path).startswith("nvme"):
            return None
        argv = ["nvme", "id-ctrl", "--output-format=json", attachment.path]
        return int(json.loads(attachment.client.run(argv, deadline=30).stdout)[name])

    return number


@pytest.fixture(scope="session")
def promised(identify: Callable[[str], int | None], attachment: Attachment) -> str:
    """Return how the target reports its support of reservations, "" if it does not; skip if it has none.

    An NVMe controller reports it in bit 5 of ONCS (Base 5.2.13.2.1, Identify Controller). Reservations of a
    SCSI device may not persist through power loss (SPC-4, REPORT CAPABILITIES, PTPL_C). The kernel always
    requests persistence (sd_pr_register(), APTPL), so it cannot register with such a device.
    """
    optional = identify("oncs")
    if optional is None:
        if _loses_registrations(attachment):
            pytest.skip(
                "the device keeps no registration through power loss (PTPL_C is 0), and the client's kernel "
                "requires that"
            )
        return ""
    if not optional >> RESERVATIONS & 1:
        pytest.skip(
            f"the controller has no reservations: bit {RESERVATIONS} of its ONCS ({optional:x}h) is 0"
        )
    return f"bit {RESERVATIONS} of ONCS ({optional:x}h) reports that the controller has reservations"


def _loses_registrations(attachment: Attachment) -> bool:
    """Whether a SCSI device reports PTPL_C as 0; False if it or sg_persist(8) does not report it."""
    argv = ["sg_persist", "--no-inquiry", "--in", "--report-capabilities", attachment.path]
    with contextlib.suppress(HostError):
        stdout = attachment.client.run(argv, deadline=30, check=False).stdout
        return re.search(r"\(PTPL_C\): 0$", stdout, re.MULTILINE) is not None
    return False


@pytest.fixture
def both(
    variant: Variant,
    attachment: Attachment,
    promised: str,  # before the second client attaches: without reservations it need not
    second_attachment: Attachment,
    session_pool: SyscallSessionPool,
    request: pytest.FixtureRequest,
) -> Iterator[tuple[Initiator, Initiator]]:
    """Yield the device on both clients, without registrations before and after, or end the run."""
    if getattr(variant.options, "more_paths", ()):
        pytest.skip(
            f"{variant.id}: each path may be a separate initiator; the case requires one initiator per client"
        )
    assert attachment.size >= EDGE + RANGE
    sessions = [session_pool.get(each.client) for each in (attachment, second_attachment)]
    if sessions[0].boot == sessions[1].boot:
        pytest.skip(
            f"{sessions[0].name} and {sessions[1].name} are two names of one machine, which is one initiator"
        )
    seed = secrets.randbits(48)
    pair = (
        Initiator(sessions[0], attachment.path, 0xA0A0A0A0, seed, promised),
        Initiator(sessions[1], second_attachment.path, 0xB0B0B0B0, seed, promised),
    )
    restart_workers(*sessions)
    for each in pair:
        each.open()

    def require_undone(left: str, when: str) -> None:
        if left:
            stop_run(
                request.config,
                f"{variant.id} is reserved {when} {request.node.name}, and neither client can undo it "
                f"({left}): clear its reservations on the target, or restart it, and run again",
            )

    try:
        require_undone(undo_registrations(pair), "before")
        yield pair
    finally:
        usable = [each for each in pair if each.session.usable]
        restart_workers(*(each.session for each in usable))
        for each in usable:
            each.open()
        require_undone(undo_registrations(pair) or still_refused(pair), "after")
        for each in usable:
            each.session.close(each.fd)


def undo_registrations(pair: Sequence[Initiator]) -> str:
    """Remove every registration and reservation, from each client in turn; return why that failed, or "".

    A registrant clears all registrations (SPC-4, CLEAR; NVMe Base 8.1.24.8). A client that cannot clear
    unregisters, which gives up its reservation (SPC-4, unregistering; NVMe Base 8.1.24.4).
    """
    failures = []
    for each in pair:
        register, clear = pr_ioctl.register(each.key, ignore=True), pr_ioctl.clear(each.key)
        try:
            statuses = [each.ioctl(request) for request in (register, clear)]
            if not any(statuses):
                return ""
            failures.append(f"{each.session.name}: IOC_PR_REGISTER and IOC_PR_CLEAR end with {statuses}")
            each.ioctl(pr_ioctl.register(0, old=each.key))
        except (OSError, StoragetestError) as error:
            failures.append(f"{each.session.name}: {error}")
    return "; ".join(failures)


def still_refused(pair: Sequence[Initiator]) -> str:
    """Return which client may not write although nothing is registered, or ""; overwrites blocks."""
    for each in pair:
        try:
            if not each.may_write(1):
                return f"{each.session.name} may not write ({pr_ioctl.CONFLICT})"
        except (OSError, AssertionError, StoragetestError) as error:
            return f"{each.session.name}: {error}"
    return ""


@dataclass
class Disk:
    """The device on the client, and its server, which can change its size."""

    session: SyscallSession
    path: str
    client: Host
    server: Host
    variant: Variant
    seed: int
    logical: int = 512
    chunk: int = 64 << 10

    def open(self) -> int:
        """Open the device with O_DIRECT."""
        return self.session.open(self.path, os.O_RDWR | os.O_DIRECT)

    def size(self) -> int:
        """Return the size in bytes that the client's kernel reports."""
        fd = self.open()
        size = int(self.session.call("seek", fd, 0, os.SEEK_END))
        self.session.close(fd)
        return size

    def grow(self) -> None:
        """Enlarge the device on its server."""
        assert self.variant.controls.grow is not None
        self.server.run(self.variant.controls.grow, deadline=CONTROL_TIMEOUT)

    def shrink(self) -> None:
        """Restore the size on the server."""
        assert self.variant.controls.shrink is not None
        self.server.run(self.variant.controls.shrink, deadline=CONTROL_TIMEOUT)

    def rescan(self) -> None:
        """Rescan the device on the client."""
        self.client.run(["sh", "-c", RESCAN, "rescan", self.path], deadline=30)

    def wait_for_size(self, holds: Callable[[int], bool], description: str) -> int:
        """Wait until ``holds`` is true of the size, and return the size; fail after ``RESCAN_TIMEOUT``."""
        assert self.reaches_size(holds, RESCAN_TIMEOUT), (
            f"not within {RESCAN_TIMEOUT:g} s: {description}; it is {self.size()} bytes"
        )
        return self.size()

    def reaches_size(self, holds: Callable[[int], bool], within: float = NOTICE_TIMEOUT) -> bool:
        """Wait until ``holds`` is true of the size; return whether that happened in time."""
        try:
            wait_until(lambda: holds(self.size()), within, "another size", interval=0.2)
        except DeadlineExceeded:
            return False
        return True

    def kernel_log(self) -> str:
        """Return the kernel log of the client."""
        return self.client.run(["dmesg"], deadline=30).stdout

    def write(self, offset: int, generation: int) -> None:
        """Write a generation of self-describing blocks at byte ``offset``."""
        data = self.data(offset, generation)
        fd = self.open()
        assert self.session.call("write_direct", fd, data, offset) == self.chunk
        self.session.close(fd)

    def expect(self, offset: int, generation: int, size: int = 0) -> None:
        """Assert that these blocks are read, ``size`` bytes of them or a chunk."""
        fd = self.open()
        data = bytes(self.session.call("read_direct", fd, size or self.chunk, offset))
        self.session.close(fd)
        wrong = block_patterns.describe_mismatches(
            data, offset // self.logical, generation, self.seed, self.logical
        )
        assert not wrong, wrong

    def data(self, offset: int, generation: int, size: int = 0) -> bytes:
        """Return the bytes of a generation of blocks at byte ``offset``, a chunk or ``size`` bytes."""
        count = (size or self.chunk) // self.logical
        return block_patterns.make_blocks(offset // self.logical, count, generation, self.seed, self.logical)


@pytest.fixture
def disk(
    variant: Variant, attachment: Attachment, session_pool: SyscallSessionPool, st: RunState
) -> Iterator[Disk]:
    """Yield the device, and restore its size afterwards."""
    assert variant.server is not None, "the configuration rejects controls without a server"
    assert attachment.size >= EDGE + RANGE
    session = session_pool.get(attachment.client)
    session.restart_worker()
    session.chdir("")
    server = st.host(variant.server)
    device = Disk(session, attachment.path, attachment.client, server, variant, secrets.randbits(48))
    original = device.size()
    try:
        yield device
    finally:
        if session.usable:
            session.restart_worker()
        device.shrink()
        device.rescan()
        session = session_pool.get(attachment.client)
        session.chdir("")
        device.session = session
        device.wait_for_size(lambda size: size == original, f"{original} bytes as before the case")
