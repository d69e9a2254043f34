"""Details of answers: the M bit, log pages read again, the Host Identifier after a reset, capabilities.

M states that the Error Information log has more about a command (Base 4.2.3), so there is an entry of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import Cns, Feature, LogPage, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme.fabrics import ConnectData
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch
from storagetest.wire.nvme_tcp.reservation_harness import kept_masks, mask_of, set_mask

from .test_controller_states import reset
from .test_feature_values import need_feature
from .test_namespace_features import kept_feature

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 4.2.3")]

ALL_NAMESPACES = 0xFFFFFFFF
MOST_ENTRIES = 64
"""Entries of the error log that a case looks at (chosen)."""

UNKNOWN_OPCODE = 0x7C
WRONG_CNS = 0x0F

DEFAULT, CAPABILITIES = 1, 3
"""Select of Get Features (5.2.11)."""
SAVE_AND_SELECT = 1 << 4
"""ONCS: Select of Get Features is supported (5.2.13.2.1)."""
CHANGEABLE = 1 << 2
"""Of the capabilities of a feature; the bits above it are reserved (5.2.11)."""
PERSISTENT = 1 << 0
"""RESCAP: a reservation persists through power loss, if it is to (NVM 4.1.5.1)."""


# More (4.2.3)


def _entries(session: ControllerSession) -> set[tuple[int, int]]:
    """Return SQID and CID of each entry of the Error Information log."""
    length = 64 * min(session.controller["elpe"] + 1, MOST_ENTRIES)
    raw = session.log_page(LogPage.ERROR, length, nsid=ALL_NAMESPACES)
    entries = [raw[at : at + 64] for at in range(0, len(raw), 64)]
    return {struct.unpack_from("<HH", one, 8) for one in entries if any(one[:8])}


def _explained(session: ControllerSession, queue: Queue, command: Command, *, reads: int = 0) -> None:
    """Run a command; if its completion has M set, claim that the error log has an entry of it."""
    cid = queue.submit(command, reads=reads)
    done = queue.wait(cid)
    if not done.cqe.more:
        return
    found = _entries(session)
    assert (queue.qid, cid) in found, (
        f"4.2.3: M is 1 in the completion of opcode {command.opcode:02x}h ({status_name(done.status)}), CID "
        f"{cid:#x} of queue {queue.qid}, so the error log has more about it; it has no entry of that command"
    )


@pytest.mark.case("NVT-MORE-DONE", kills=("more-of-success",))
def test_a_command_that_succeeds_has_more_in_the_error_log_or_states_none(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    _explained(session, queue, io.read(scratch.nsid, scratch.lba, 1), reads=scratch.block_size)
    _explained(session, queue, io.flush(scratch.nsid))
    _explained(session, session.admin, admin.keep_alive())
    _explained(session, session.admin, admin.identify(Cns.CONTROLLER), reads=4096)


@pytest.mark.case("NVT-MORE-FAILED", kills=("more-of-nothing",))
def test_a_command_that_fails_has_more_in_the_error_log_or_states_none(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    _explained(session, queue, io.read(scratch.nsid, scratch.end, 1), reads=scratch.block_size)
    _explained(session, queue, Command(UNKNOWN_OPCODE, nsid=scratch.nsid))
    _explained(session, session.admin, Command(UNKNOWN_OPCODE))
    _explained(session, session.admin, admin.identify(WRONG_CNS), reads=4096)


@pytest.mark.case("NVF-MORE-CONNECT", section="Base 6.3", kills=("more-of-connect",))
def test_a_refused_connect_states_no_more_in_the_error_log(bench: Harness) -> None:
    """A Connect that fails adds no entry to the error log, and has no controller to read one of."""
    queue, identity, endpoint = bench.queue(), bench.any_host(), bench.endpoint
    data = ConnectData(identity.hostid, endpoint.any_controller, endpoint.subnqn, identity.nqn).encode()
    done = queue.run(fabrics.connect(qid=0, sqsize=0, kato=120_000), data=data, inside=True)
    assert not done.ok, "6.3: a Connect with SQSIZE 0 succeeds"
    assert not done.cqe.more, (
        f"6.3: a Connect that fails ({status_name(done.status)}) adds no entry to the error log, but M is 1: "
        "4.2.3: there is more status information as part of the error log"
    )


# A log page is the same each time (5.2.12)

PAGES = {LogPage.SUPPORTED: 1024, LogPage.FIRMWARE_SLOT: 512, LogPage.EFFECTS: 4096, LogPage.FEATURES: 1024}
"""Log pages that do not change by themselves, and their bytes."""


@pytest.mark.parametrize("page", [
    pytest.param(page, marks=pytest.mark.case(f"NVA-LOG-AGAIN-{page:02X}H", kills=("log-offset-kept",)))
    for page in PAGES
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.12", builds_on=("NVA-LOG-OFFSET",))
def test_a_log_page_is_the_same_after_parts_of_it_were_read(session: ControllerSession, page: int) -> None:
    """An offset is of its own command, and a length is."""
    if not session.controller["lpa"] & 4:
        pytest.skip("LPA bit 2: the log page offset is not supported")
    size = PAGES[LogPage(page)]

    def read(at: int, length: int) -> bytes:
        done = session.admin.run(admin.get_log_page(page, length, offset=at), reads=length)
        if not done.ok and not at and length == size:
            pytest.skip(f"log page {page:02x}h is not supported: {status_name(done.status)}")
        assert done.ok, f"5.2.12: {length} bytes from LPO {at} end with {status_name(done.status)}"
        return done.data

    whole = read(0, size)
    for at, length in ((8, 8), (60, 4), (size - 8, 8)):
        read(at, length)
        found = read(0, size)
        assert found == whole, (
            f"5.2.12: log page {page:02x}h is another one after {length} bytes of it were read from LPO {at}"
        )
        assert read(0, 16) == whole[:16], f"5.2.12: 16 bytes after {length} from LPO {at} are not its first"


# Abort (5.2.1), Host Identifier (5.2.26.1.32)


@pytest.mark.case("NVA-ABORT-SELF", section="Base 5.2.1", kills=("abort-self-done",))
def test_an_abort_of_itself_is_not_reported_as_done(session: ControllerSession) -> None:
    """It may be refused; if it succeeds it was not aborted, so bit 0 of its result is set."""
    cid = 0x2A5
    done = session.admin.wait(session.admin.submit(replace(admin.abort(sqid=0, cid=cid), cid=cid)))
    assert not done.ok or done.cqe.dw0 & 1, (
        f"5.2.1: an Abort that names itself succeeds with the result {done.cqe.dw0:#x}: it was aborted"
    )
    assert session.admin.run(admin.keep_alive()).ok, "5.2.14: Keep Alive after an Abort of itself"


@pytest.mark.case(
    "NVA-FEAT-HOSTID-RESET",
    section="Base 5.2.26.1.32",
    kills=("hostid-gone-by-reset",),
    builds_on=("NVA-FEAT-HOSTID-01", "NVF-RESET-02"),
)
def test_the_host_identifier_outlives_a_reset(session: ControllerSession) -> None:
    """Connect has set it, and the association goes on."""
    for number in (1, 2):
        reset(session)
        done = session.admin.run(admin.get_features(Feature.HOST_IDENTIFIER, cdw11=1), reads=16)
        assert done.ok, f"5.2.26.1.32: after reset {number} Get Features is {status_name(done.status)}"
        assert done.data == session.identity.hostid, (
            f"5.2.26.1.32: the Host Identifier after reset {number} is {done.data.hex()}; Connect has set "
            f"{session.identity.hostid.hex()}"
        )


# Select of features of a namespace (5.2.11)


@contextmanager
def _other_persistence(session: ControllerSession, scratch: Scratch, config: pytest.Config) -> Iterator[None]:
    """Set the Persist Through Power Loss State of a namespace to another one, and back."""
    fid, nsid = Feature.RESERVATION_PERSISTENCE, scratch.nsid
    if not scratch.rescap & PERSISTENT:
        pytest.skip("RESCAP bit 0: reservations do not persist")
    need_feature(session, fid, nsid=nsid)
    with kept_feature(session, fid, (nsid,), config) as before:
        done = session.admin.run(admin.set_features(fid, before[nsid] ^ 1, nsid=nsid))
        if not done.ok:
            pytest.skip(f"Set Features of Reservation Persistence ends with {status_name(done.status)}")
        yield


@contextmanager
def _other_mask(session: ControllerSession, scratch: Scratch, _config: pytest.Config) -> Iterator[None]:
    """Set the Reservation Notification Mask of a namespace to another one, and back."""
    with kept_masks(session, scratch.nsid):
        done = set_mask(session, scratch.nsid, mask_of(session, scratch.nsid) ^ 0xE)
        if not done.ok:
            pytest.skip(f"the Reservation Notification Mask is not set: {status_name(done.status)}")
        yield


OTHER = {"MASK": (Feature.RESERVATION_NOTIFICATION_MASK, _other_mask),
         "PTPL": (Feature.RESERVATION_PERSISTENCE, _other_persistence)}  # fmt: skip
"""By name: a feature of a namespace, and how another value of it is set."""


@pytest.fixture
def reserving(session: ControllerSession, scratch: Scratch) -> ControllerSession:
    """Return a session; skip without Select, or without reservations."""
    if not session.controller["oncs"] & SAVE_AND_SELECT:
        pytest.skip("ONCS bit 4: Select of Get Features is not supported")
    if not scratch.rescap & 0x7E:
        pytest.skip("RESCAP: this namespace cannot be reserved")
    return session


def _selected(session: ControllerSession, fid: int, nsid: int, select: int) -> int:
    done = session.admin.run(admin.get_features(fid, select=select, nsid=nsid))
    assert done.ok, f"5.2.11: SEL {select} of feature {fid:02x}h ends with {status_name(done.status)}"
    return done.cqe.dw0


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVR-{name}-DEFAULT", kills=("namespace-default-current",)))
    for name in OTHER
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.11")
def test_the_default_of_a_feature_of_a_namespace_stays(
    reserving: ControllerSession, scratch: Scratch, name: str, pytestconfig: pytest.Config
) -> None:
    fid, other = OTHER[name]
    before = _selected(reserving, fid, scratch.nsid, DEFAULT)
    with other(reserving, scratch, pytestconfig):
        found = _selected(reserving, fid, scratch.nsid, DEFAULT)
    assert found == before, (
        f"5.2.11: the default of feature {fid:02x}h was {before:#x}; {found:#x} after another value was set"
    )


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVR-{name}-CAPABLE", kills=("namespace-capable-current",)))
    for name in OTHER
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.11")
def test_the_capabilities_of_a_feature_of_a_namespace_are_right(
    reserving: ControllerSession, scratch: Scratch, name: str, pytestconfig: pytest.Config
) -> None:
    """It is changed here, so it is changeable; bits 31:3 are reserved."""
    fid, other = OTHER[name]
    with other(reserving, scratch, pytestconfig):
        found = _selected(reserving, fid, scratch.nsid, CAPABILITIES)
    assert found & CHANGEABLE, f"5.2.11: feature {fid:02x}h was changed; its capabilities are {found:#x}"
    assert not found >> 3, (
        f"1.4.1.6: the capabilities {found:#x} of feature {fid:02x}h have reserved bits set"
    )
