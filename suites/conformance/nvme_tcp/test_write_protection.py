"""Namespace Write Protection: what a protected namespace refuses, what it serves, and for how long.

The only state that is set is Write Protect, which a host lifts again. The other two last until a power cycle,
or for ever. Without ``erase`` in the targets file, no namespace is protected.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from storagetest.errors import DeadlineExceeded, NotOffered, RemoteProtocolError
from storagetest.plugin.conformance.leftovers import stop_run
from storagetest.polling import wait_until
from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import ONCS_BITS, Cns, Feature, Io, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks, refused, write_blocks

from .test_resets import another_queue
from .test_two_namespaces import CHANGES

SECTION = "Base 5.2.26.1.35"

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section=SECTION, builds_on=("NVB-RW-01",)),
]

NO_WRITE_PROTECT, WRITE_PROTECT, RESERVED = 0, 1, 4
"""Values of the Write Protection State. The other reserved ones are not sent: of 7, a controller that looks
at two bits makes Permanent Write Protect."""

WRITE_PROTECTED = 1
"""The bit of NSATTR (NVM 4.1.5.1)."""

BLOCKS = 4
"""Blocks that are written before the namespace is protected (chosen)."""

LARGE = 65536
"""Bytes of a write whose data are not in its capsule (chosen)."""


@dataclass(frozen=True, slots=True)
class Protection:
    """The Namespace Write Protection of a namespace, as one controller sets and reports it."""

    session: ControllerSession
    nsid: int

    def set(self, state: int) -> CommandResult:
        """Set the state."""
        return self.session.admin.run(admin.set_features(Feature.WRITE_PROTECT, state, nsid=self.nsid))

    def protect(self) -> None:
        """Set Write Protect; every case here begins with it."""
        done = self.set(WRITE_PROTECT)
        assert done.ok, f"5.2.26.1.35: NWPC bit 0 is 1; Write Protect is not set: {status_name(done.status)}"

    def state(self) -> int:
        """Return the state that Get Features reports."""
        done = self.session.admin.run(admin.get_features(Feature.WRITE_PROTECT, nsid=self.nsid))
        assert done.ok, f"5.2.26.1.35: NWPC bit 0 is 1; Get Features ended with {status_name(done.status)}"
        return done.cqe.dw0 & 7

    def is_marked(self) -> bool:
        """Whether NSATTR states that the namespace is write protected."""
        return bool(self.session.namespace(self.nsid)["nsattr"] & WRITE_PROTECTED)


@pytest.fixture
def protection(
    session: ControllerSession, scratch: Scratch, bench: Harness, request: pytest.FixtureRequest
) -> Iterator[Protection]:
    """Yield the protection of a namespace that is not protected; it is not at the end, or the run ends."""
    if not session.controller["nwpc"] & 1:
        pytest.skip("NWPC bit 0 is 0: there is no Namespace Write Protection")
    yield Protection(session, scratch.nsid)

    def lifted() -> bool:
        bench.close()  # the undo needs a controller, of which there may be no more
        with suppress(RemoteProtocolError, NotOffered, AssertionError):
            undo = Protection(bench.session(name="admin queue of the undo"), scratch.nsid)
            return undo.set(NO_WRITE_PROTECT).ok and not undo.state()
        return False

    try:
        wait_until(lifted, bench.endpoint.deadline, "the end of the write protection")
    except DeadlineExceeded:
        stop_run(
            request.config,
            f"namespace {scratch.nsid} of {bench.endpoint.subnqn}: its write protection cannot be lifted "
            f"after {request.node.name}: set feature 84h to 0 on the target, and run again",
        )


def _need(session: ControllerSession, opcode: Io) -> None:
    if opcode in ONCS_BITS and not session.controller["oncs"] >> ONCS_BITS[opcode] & 1:
        pytest.skip(f"ONCS: {opcode.name} is not supported")


def _claim_refused(queue: Queue, command: Command, data: bytes, what: str) -> None:
    done = queue.run(command, data=data)
    assert not done.ok, f"5.2.26.1.35: the namespace is write protected, and {what} succeeds"
    refused(done, StatusCode.NAMESPACE_WRITE_PROTECTED)


def _claim_kept(queue: Queue, scratch: Scratch, data: bytes, what: str) -> None:
    found = read_blocks(queue, scratch, len(data) // scratch.block_size)
    assert found == data, f"5.2.26.1.35: {what} has changed blocks of a namespace that is write protected"


# What is refused


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVB-PROTECT-{name}", kills=(f"protected-{name.lower()}",)))
    for name in ("WRITE", "ZEROES", "COPY")
])  # fmt: skip
def test_a_protected_namespace_is_not_written(
    queue: Queue, scratch: Scratch, protection: Protection, name: str
) -> None:
    """Twice, so that the first refusal lifts nothing."""
    opcode, make, _, _ = CHANGES[name]
    if opcode is not None:
        _need(protection.session, opcode)
    data = write_blocks(queue, scratch, BLOCKS, 1410)
    command, sent = make(scratch)
    protection.protect()
    for _ in range(2):
        _claim_refused(queue, command, sent, name)
        _claim_kept(queue, scratch, data, name)


@pytest.mark.case("NVB-PROTECT-DSM", kills=("protected-dsm",), builds_on=("NVB-DSM-01",))
def test_a_protected_namespace_is_not_deallocated(
    queue: Queue, scratch: Scratch, protection: Protection
) -> None:
    """Whether the command succeeds is left open; its blocks have their data."""
    _need(protection.session, Io.DATASET_MANAGEMENT)
    data = write_blocks(queue, scratch, BLOCKS, 1420)
    protection.protect()
    done = queue.run(
        io.dataset_management(scratch.nsid, 1), data=io.dsm_ranges([(scratch.lba, scratch.fit(BLOCKS))])
    )
    _claim_kept(queue, scratch, data, f"Deallocate ({status_name(done.status)})")


@pytest.mark.case("NVB-PROTECT-MARK", kills=("protected-mark",), builds_on=("NVB-UNC-01",))
def test_a_protected_namespace_is_not_marked(queue: Queue, scratch: Scratch, protection: Protection) -> None:
    _need(protection.session, Io.WRITE_UNCORRECTABLE)
    data = write_blocks(queue, scratch, BLOCKS, 1430)
    lba = scratch.lba
    command = Command(
        Io.WRITE_UNCORRECTABLE, nsid=scratch.nsid, cdw10=lba & 0xFFFFFFFF, cdw11=lba >> 32, cdw12=0
    )
    protection.protect()
    _claim_refused(queue, command, b"", "Write Uncorrectable")
    _claim_kept(queue, scratch, data, "Write Uncorrectable")


@pytest.mark.case("NVB-PROTECT-LARGE", kills=("protected-large",))
def test_a_large_write_of_a_protected_namespace_is_refused(
    queue: Queue, scratch: Scratch, protection: Protection
) -> None:
    """Its data may be asked for, and are not written; the queue goes on."""
    blocks = scratch.blocks_of(LARGE)
    data = write_blocks(queue, scratch, blocks, 1440)
    protection.protect()
    sent = block_data(blocks * scratch.block_size, 1441)
    _claim_refused(queue, io.write(scratch.nsid, scratch.lba, blocks), sent, f"a write of {len(sent)} bytes")
    _claim_kept(queue, scratch, data, f"a write of {len(sent)} bytes")


@pytest.mark.case("NVB-PROTECT-FUA", kills=("protected-fua",))
def test_a_write_with_fua_of_a_protected_namespace_is_refused(
    queue: Queue, scratch: Scratch, protection: Protection
) -> None:
    data = write_blocks(queue, scratch, 1, 1450)
    protection.protect()
    command = io.write(scratch.nsid, scratch.lba, 1, fua=True)
    _claim_refused(queue, command, block_data(scratch.block_size, 1451), "a write with FUA")
    _claim_kept(queue, scratch, data, "a write with FUA")


# What is served


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVB-PROTECT-{name}", kills=(f"protected-{name.lower()}",)))
    for name in ("READ", "COMPARE", "VERIFY", "FLUSH")
])  # fmt: skip
def test_a_protected_namespace_is_read(
    queue: Queue, scratch: Scratch, protection: Protection, name: str
) -> None:
    """Read, Compare, Verify and Flush change no block."""
    _need(protection.session, Io[name])
    data = write_blocks(queue, scratch, 1, 1460)
    command = {
        "READ": io.read(scratch.nsid, scratch.lba, 1),
        "COMPARE": io.compare(scratch.nsid, scratch.lba, 1),
        "VERIFY": io.verify(scratch.nsid, scratch.lba, 1),
        "FLUSH": io.flush(scratch.nsid),
    }[name]
    protection.protect()
    sent, reads = data * (name == "COMPARE"), scratch.block_size * (name == "READ")
    done = queue.run(command, data=sent, reads=reads)
    assert done.ok, (
        f"5.2.26.1.35: {name} changes nothing, and is not served while the namespace is write protected: "
        f"{status_name(done.status)}"
    )
    assert name != "READ" or done.data == data, "5.2.26.1.35: a protected block is read with other data"


# The state


@pytest.mark.case("NVA-PROTECT-STATE", kills=("protection-not-read",))
def test_the_state_is_read_back(protection: Protection) -> None:
    for wanted in (WRITE_PROTECT, NO_WRITE_PROTECT, WRITE_PROTECT):
        done = protection.set(wanted)
        assert done.ok, f"5.2.26.1.35: state {wanted} is not set: {status_name(done.status)}"
        found = protection.state()
        assert found == wanted, f"5.2.26.1.35: the state is {found}; it was set to {wanted}"


@pytest.mark.case("NVA-PROTECT-NSATTR", section="NVM 4.1.5.1", kills=("nsattr-clear", "nsattr-stays"))
def test_the_namespaces_attributes_state_whether_it_is_write_protected(protection: Protection) -> None:
    for state in (NO_WRITE_PROTECT, WRITE_PROTECT, NO_WRITE_PROTECT):
        done = protection.set(state)
        assert done.ok, f"5.2.26.1.35: state {state} is not set: {status_name(done.status)}"
        found = protection.is_marked()
        assert found == bool(state), f"4.1.5.1: NSATTR bit 0 is {int(found)} in the protection state {state}"


@pytest.mark.case("NVA-PROTECT-INDEPENDENT", section="Base 5.2.13", kills=("independent-nsattr-clear",))
def test_the_independent_attributes_state_whether_it_is_write_protected(protection: Protection) -> None:
    """Of the I/O Command Set Independent Identify Namespace data structure (CNS 08h), byte 8 is NSATTR."""
    identify = admin.identify(Cns.CSI_INDEPENDENT, nsid=protection.nsid)
    done = protection.session.admin.run(identify, reads=4096)
    if not done.ok:
        pytest.skip(f"CNS 08h ends with {status_name(done.status)}")
    protection.protect()
    done = protection.session.admin.run(identify, reads=4096)
    assert done.ok, f"5.2.13: CNS 08h of a protected namespace ended with {status_name(done.status)}"
    assert done.data[8] & WRITE_PROTECTED, (
        f"5.2.13: NSATTR of CNS 08h is {done.data[8]:#x}; the namespace is write protected"
    )


@pytest.mark.case("NVA-PROTECT-RESERVED", section=f"Base 1.4.1.6, {SECTION}", kills=("protection-any",))
def test_a_reserved_state_is_refused_and_changes_nothing(protection: Protection) -> None:
    protection.protect()
    done = protection.set(RESERVED)
    assert not done.ok, f"1.4.1.6: the protection state {RESERVED} is reserved, and Set Features succeeds"
    found = protection.state()
    assert found == WRITE_PROTECT, f"5.2.26: Set Features was refused, and the state is {found}; it was 1"


@pytest.mark.case("NVB-PROTECT-LIFTED", kills=("protection-stays",))
def test_a_namespace_is_written_again_after_its_protection(
    queue: Queue, scratch: Scratch, protection: Protection
) -> None:
    for number in range(2):
        protection.protect()
        done = protection.set(NO_WRITE_PROTECT)
        assert done.ok, f"5.2.26.1.35: the protection is not lifted: {status_name(done.status)}"
        data = block_data(scratch.block_size, 1470 + number)
        done = queue.run(io.write(scratch.nsid, scratch.lba, 1), data=data)
        assert done.ok, (
            f"5.2.26.1.35: the protection is lifted, and a write ends with {status_name(done.status)}"
        )
        _claim_kept(queue, scratch, data, "a write")


@pytest.mark.case("NVB-PROTECT-HOST", kills=("protection-of-controller",))
def test_a_protected_namespace_is_so_for_every_controller(
    queue: Queue, scratch: Scratch, protection: Protection, bench: Harness
) -> None:
    """Of a host that had an I/O queue before, and of one that comes after it."""
    before = bench.session(name="another controller's admin queue")
    its_queue = before.io_queue()
    data = write_blocks(queue, scratch, BLOCKS, 1480)
    protection.protect()
    after = bench.session(name="a later controller's admin queue")
    for other, one in ((before, its_queue), (after, after.io_queue())):
        found = Protection(other, scratch.nsid).state()
        assert found == WRITE_PROTECT, f"5.2.26.1.35: through another controller the state is {found}, not 1"
        sent = block_data(scratch.block_size, 1481)
        _claim_refused(one, io.write(scratch.nsid, scratch.lba, 1), sent, "another controller's write")
    _claim_kept(queue, scratch, data, "another controller's write")


@pytest.mark.case("NVB-PROTECT-RESET", kills=("protection-until-reset",))
def test_a_protection_outlives_a_reset(scratch: Scratch, protection: Protection, queue: Queue) -> None:
    """Write Protect persists across Controller Level Resets and power cycles."""
    data = write_blocks(queue, scratch, 1, 1490)
    protection.protect()
    protection.session.disable()
    protection.session.enable()
    found = protection.state()
    assert found == WRITE_PROTECT, f"5.2.26.1.35: the state is {found} after a reset; it was 1"
    again = another_queue(protection.session)
    sent = block_data(scratch.block_size, 1491)
    _claim_refused(again, io.write(scratch.nsid, scratch.lba, 1), sent, "a write after a reset")
    _claim_kept(again, scratch, data, "a write after a reset")


@pytest.mark.case("NVB-PROTECT-ONE", section=f"Base 3.2.1, {SECTION}", kills=("protection-of-all",))
def test_another_namespace_is_not_protected(
    queue: Queue, pair: tuple[Scratch, Scratch], protection: Protection
) -> None:
    (other,) = [one for one in pair if one.nsid != protection.nsid]
    its_own = Protection(protection.session, other.nsid)
    before = its_own.state()
    protection.protect()
    try:
        assert its_own.state() == before, (
            f"5.2.26.1.35: NSID {protection.nsid} was protected, and NSID {other.nsid} has another state"
        )
        done = queue.run(io.write(other.nsid, other.lba, 1), data=block_data(other.block_size, 1500))
    finally:
        if not before:  # a broken controller has protected it, too
            its_own.set(NO_WRITE_PROTECT)
    assert done.ok, (
        f"5.2.26.1.35: NSID {protection.nsid} is write protected, and a write of NSID {other.nsid} ends with "
        f"{status_name(done.status)}"
    )


@pytest.mark.case("NVA-PROTECT-NWPC", section="Base 5.2.13.2.1", kills=("nwpc-alone", "nwpc-reserved"))
def test_the_announced_write_protection_is_possible(session: ControllerSession) -> None:
    """The states that last need the one that a host lifts; bits 7:3 are reserved."""
    nwpc = session.controller["nwpc"]
    assert not nwpc >> 3, f"5.2.13.2.1: NWPC is {nwpc:#x}; bits 7:3 are reserved"
    assert nwpc & 1 or not nwpc, f"5.2.13.2.1: NWPC is {nwpc:#x}; bits 2:1 require bit 0"
