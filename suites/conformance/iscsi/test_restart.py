"""What outlives a restart of the target: data, names, and reservations with APTPL (SPC-4, SBC-3).

The target's control ``restart`` is taken as a loss of power of the logical unit. Each case restarts it once.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.plugin.conformance.leftovers import stop_run
from storagetest.suites.conformance.iscsi.conftest import Connections, Facts
from storagetest.suites.conformance.iscsi.optional_commands import offered, reserve_6
from storagetest.suites.conformance.iscsi.scratch import Scratch
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import PrIn, PrOut, PrType, SenseKey
from storagetest.wire.scsi.data import decode_capacity16
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.reservation_harness import KEY_A, KEY_B, RESERVING, claim
from storagetest.wire.scsi.reservations import decode_capabilities
from storagetest.wire.tcp import is_connected

from .test_scsi_edges import current_page
from .test_scsi_mode_masks import SAVED
from .test_scsi_saved_pages import savable, save

pytestmark = [
    pytest.mark.needs("iscsi-wire", "restart"),
    pytest.mark.exclusive,
    pytest.mark.case(level="MUST", section="SPC-4 preserving persistent reservations and registrations"),
]

BLOCKS = 8
POWER_ON = 0x29
"""Additional sense code of a power on, with any qualifier (SPC-4)."""
HELD = {
    "WE": PrType.WRITE_EXCLUSIVE,
    "EARO": PrType.EXCLUSIVE_ACCESS_REGISTRANTS_ONLY,
    "WEAR": PrType.WRITE_EXCLUSIVE_ALL_REGISTRANTS,
}

Restart = Callable[[Initiator], None]
Units = tuple[LogicalUnit, LogicalUnit]


@pytest.fixture
def restart(
    connections: Connections, restart_target: Callable[[Callable[[], bool], Callable[[], bool]], None]
) -> Restart:
    """Return a function that restarts the target; it takes a session of before, which ends with it."""
    return lambda before: restart_target(lambda: is_connected(before.ping), connections.completes_login)


def _again(connections: Connections, unit: LogicalUnit, *, isid: bytes | None = None) -> LogicalUnit:
    """Return the unit through the same nexus, or through another port of the same initiator."""
    before = unit.runner
    assert isinstance(before, Initiator)
    letter = before.name.rpartition("-")[2]
    session = connections.login(letter, isid=isid or before.isid)
    return LogicalUnit(session, block_size=unit.block_size, largest=unit.largest)


# Reservations


@pytest.fixture
def persistent(unreserved: Units) -> Units:
    """Return two nexuses on a unit whose registrations can persist; skip if they cannot."""
    answer = unreserved[0].reserve_in(PrIn.REPORT_CAPABILITIES)
    if not answer.good or not decode_capabilities(answer.data).persist_through_power_loss:
        pytest.skip(f"PTPL_C of REPORT CAPABILITIES: no APTPL ({answer})")
    return unreserved


def _held(unit: LogicalUnit) -> dict[str, object]:
    """Return what the unit reports of its reservation."""
    found = unit.reservation()
    return {
        "keys": sorted(unit.keys().keys),
        "a reservation": found.held,
        "its type": found.type,
        "its key": found.key,
    }


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(
        f"SCS-PR-RESTART-{name}", kills=("persistence-lost", "persistent-key-lost")))
    for name, kind in HELD.items()
])  # fmt: skip
@pytest.mark.case(builds_on=(*RESERVING, "SCS-PR-32"))
def test_reservations_persist(
    persistent: Units, connections: Connections, restart: Restart, scratch: Scratch, kind: PrType
) -> None:
    """With APTPL 1 the registrations and the reservation are as before, and hold for the same nexuses."""
    a, b = persistent
    assert b.register(KEY_B, aptpl=True).good
    assert a.register(KEY_A, aptpl=True).good
    assert a.reserve(kind, KEY_A).good
    before = _held(a)
    restart(a.runner)
    stranger = LogicalUnit(connections.login("x"), block_size=a.block_size)
    a, b = _again(connections, a), _again(connections, b)
    after = _held(a)
    changed = {what: (before[what], found) for what, found in after.items() if found != before[what]}
    assert not changed, f"APTPL was 1, and the restart has changed (before, after): {changed}"
    data = scratch.pattern()
    claim(a.write(scratch.lba, data), allowed=True)
    claim(b.write(scratch.lba, data), allowed=kind.registrants)
    claim(stranger.write(scratch.lba, data), allowed=False)
    claim(b.register(KEY_A, key=KEY_B), allowed=True)
    claim(a.release(kind, KEY_A), allowed=True)
    assert not a.reservation().held, f"after the restart the holder's RELEASE of type {kind} releases nothing"


@pytest.mark.parametrize("turned_off", [
    pytest.param(False, marks=pytest.mark.case("SCS-PR-RESTART-LOST", kills=("persistence-forced",))),
    pytest.param(True, marks=pytest.mark.case(
        "SCS-PR-RESTART-OFF", kills=("persistence-forced",), builds_on=("SCS-PR-32",))),
], ids=["never", "turned-off"])  # fmt: skip
@pytest.mark.case(builds_on=RESERVING)
def test_reservations_that_do_not_persist_are_released(
    unreserved: Units, connections: Connections, restart: Restart, scratch: Scratch, turned_off: bool
) -> None:
    """The last APTPL is 0: all registrations are removed, and the reservation is released."""
    a, b = unreserved
    if turned_off and not a.register(KEY_A, aptpl=True).good:
        pytest.skip("APTPL is not supported")
    assert a.reserve_out(PrOut.REGISTER_AND_IGNORE_EXISTING_KEY, action_key=KEY_A).good
    assert b.register(KEY_B).good
    assert a.reserve(PrType.WRITE_EXCLUSIVE, KEY_A).good
    restart(a.runner)
    b = _again(connections, b)
    after = _held(b)
    assert not after["keys"], f"APTPL was 0, and after the restart there are {after}"
    assert not after["a reservation"], f"APTPL was 0, and after the restart there is {after}"
    claim(b.write(scratch.lba, scratch.pattern()), allowed=True)


@pytest.mark.case("SCS-PR-RESTART-GONE", kills=("persistence-revives",), builds_on=(*RESERVING, "SCS-PR-32"))
def test_what_was_removed_stays_removed(
    persistent: Units, connections: Connections, restart: Restart, scratch: Scratch
) -> None:
    """A registration that was preempted, and a reservation that was released, before the restart."""
    a, b = persistent
    kind = PrType.WRITE_EXCLUSIVE
    assert b.register(KEY_B, aptpl=True).good
    assert a.register(KEY_A, aptpl=True).good
    assert b.reserve(kind, KEY_B).good
    assert a.preempt(kind, KEY_A, KEY_B).good
    assert a.release(kind, KEY_A).good
    restart(a.runner)
    a = _again(connections, a)
    after = _held(a)
    assert after["keys"] == [KEY_A], f"KEY_B was preempted, and after the restart there are {after}"
    assert not after["a reservation"], f"it was released, and after the restart there is {after}"
    claim(a.write(scratch.lba, scratch.pattern()), allowed=True)


@pytest.mark.case("SCS-RESTART-RESERVE6", section="SPC-2 RESERVE(6)", kills=("reserve6-persists",))
def test_a_reserve6_ends_with_a_restart(
    not_reserved: Units, connections: Connections, restart: Restart, scratch: Scratch
) -> None:
    a, b = not_reserved
    reserve_6(a)
    restart(a.runner)
    claim(_again(connections, b).write(scratch.lba, scratch.pattern()), allowed=True)


# The unit


@pytest.mark.parametrize("way", [
    pytest.param("cache", marks=pytest.mark.case(
        "SCS-RESTART-CACHE", section="SBC-3 SYNCHRONIZE CACHE", kills=("restart-loses-synchronized",))),
    pytest.param("fua", marks=pytest.mark.case(
        "SCS-RESTART-FUA", section="SBC-3 WRITE, FUA", kills=("restart-loses-fua",))),
])  # fmt: skip
def test_data_on_the_medium_are_kept(
    unit: LogicalUnit, connections: Connections, restart: Restart, scratch: Scratch, way: str
) -> None:
    """After SYNCHRONIZE CACHE of the range, or written with FUA."""
    data = scratch.pattern(BLOCKS, seed=31)
    written = unit.write(scratch.lba, data, fua=int(way == "fua"))
    if way == "fua" and written.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"FUA is not supported: {written}")
    assert written.good, written
    if way == "cache":
        flushed = offered(unit.run(c.SYNCHRONIZE_CACHE_10, lba=scratch.lba, blocks=BLOCKS))
        assert flushed.good, flushed
    restart(unit.runner)
    answer = _again(connections, unit).read(scratch.lba, BLOCKS)
    assert answer.good, f"{answer}, after the restart"
    assert answer.data == data, (
        f"the data of LBA {scratch.lba} were on the medium, and differ after the restart"
    )


@pytest.mark.case("SCS-RESTART-NAMES", section="SPC-4 INQUIRY", kills=("restart-renames",))
def test_the_unit_is_the_same(
    unit: LogicalUnit, connections: Connections, restart: Restart, facts: Facts
) -> None:
    """Its names, its serial number, its capacity and its block size."""

    def look(seen: LogicalUnit) -> dict[str, object]:
        found: dict[str, object] = {
            f"VPD page {page:02X}h": seen.inquiry(page).good_data()
            for page in (0x80, 0x83)
            if page in facts.pages
        }
        return found | {"capacity": decode_capacity16(seen.capacity16().good_data())}

    before = look(unit)
    restart(unit.runner)
    after = look(_again(connections, unit))
    changed = {what: (before[what], found) for what, found in after.items() if found != before[what]}
    assert not changed, f"the restart has changed (before, after): {changed}"


@pytest.mark.case(
    "SCS-RESTART-SAVED",
    section="SPC-4 MODE SENSE, saved values",
    kills=("saved-lost-by-restart",),
    builds_on=("SCS-SAVED-SP-6",),
)
def test_saved_mode_pages_are_kept(
    unit: LogicalUnit,
    connections: Connections,
    restart: Restart,
    scratch: Scratch,
    pytestconfig: pytest.Config,
) -> None:
    """What MODE SELECT with SP has saved are the saved and the current values after the restart."""
    assert scratch.count
    page = savable(unit)
    if current_page(unit, page.code, control=SAVED) != page.old or not save(unit, page.new).good:
        pytest.skip("the current values are not those that are saved, or cannot be saved")
    restart(unit.runner)
    unit = _again(connections, unit)
    found = [current_page(unit, page.code, control=control) for control in (0, SAVED)]
    save(unit, page.old)
    if [current_page(unit, page.code, control=control) for control in (0, SAVED)] != [page.old, page.old]:
        stop_run(pytestconfig, f"mode page {page.code:02x}h was {page.old[4:].hex()}: save it at the target")
    assert found == [page.new, page.new], (
        f"{page.new[4:].hex()} was saved; after the restart the current and the saved values of page "
        f"{page.code:02x}h are {' and '.join(one[4:].hex() for one in found)}"
    )


@pytest.mark.case(
    "SCS-RESTART-ATTENTION",
    section="SAM-5 power on",
    level="SHOULD",
    kills=("restart-silent",),
)
def test_each_nexus_has_a_unit_attention_after_a_power_on(
    two: Units, connections: Connections, restart: Restart
) -> None:
    """Each nexus that logs in again, whose first command is TEST UNIT READY."""
    restart(two[0].runner)
    for unit in two:
        before = unit.runner
        assert isinstance(before, Initiator)
        letter = before.name.rpartition("-")[2]
        session = connections.login(letter, isid=before.isid, clear=False)
        first = LogicalUnit(session).test_unit_ready()
        assert first.check(SenseKey.UNIT_ATTENTION), f"{first} is the first command after a power on"
        assert first.sense is not None
        assert first.sense.asc >> 8 == POWER_ON, f"{first}; a power on is 29h with any qualifier"
