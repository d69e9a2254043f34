"""A nexus whose session has ended: its registration and its reservation are as those of any other (SPC-4).

A cluster removes the registration of a host that is down. The host finds that it has none when it comes back.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.scsi.codes import PrIn, PrOut, PrType, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import KEY_A, KEY_B, RESERVING, claim, reserved
from storagetest.wire.scsi.reservations import decode_full_status

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(
        section="SPC-4 persistent reservations, I_T nexus loss",
        level="MUST",
        builds_on=(*RESERVING, "SCS-PR-LOGOUT"),
    ),
]

REGISTRANTS = PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY
ALL = PrType.WRITE_EXCLUSIVE_ALL_REGISTRANTS

WAYS: dict[str, tuple[PrType, Callable[[LogicalUnit], ScsiResult], tuple[int, ...]]] = {
    "PREEMPT": (REGISTRANTS, lambda a: a.preempt(REGISTRANTS, KEY_A, KEY_B), (KEY_A,)),
    "ABORT": (REGISTRANTS, lambda a: a.preempt(REGISTRANTS, KEY_A, KEY_B, abort=True), (KEY_A,)),
    "ALL": (ALL, lambda a: a.preempt(ALL, KEY_A, 0), (KEY_A,)),
    "CLEAR": (REGISTRANTS, lambda a: a.reserve_out(PrOut.CLEAR, key=KEY_A), ()),
}
"""What removes the registration: the type that is reserved, the command, and the keys after it."""


def back(connections, unit: LogicalUnit, isid: bytes) -> LogicalUnit:
    """Log the nexus of "b" in again: its name and ISID are those that it had (RFC 7143 4.4.3.1)."""
    return LogicalUnit(connections.login("b", isid=isid), block_size=unit.block_size, largest=unit.largest)


@pytest.mark.parametrize("way", [
    pytest.param(way, id=way.lower(), marks=pytest.mark.case(f"SCS-PR-GONE-{way}")) for way in WAYS
])  # fmt: skip
@pytest.mark.case(kills=("removal-spares-absent",))
def test_the_registration_of_a_nexus_without_a_session_is_removed(unreserved, connections, scratch, way):
    """Its key is not listed any more, and it is no registrant when it comes back with its ISID."""
    a, b = unreserved
    kind, remove, left = WAYS[way]
    assert b.register(KEY_B).good
    reserved(a, kind)
    isid = b.runner.isid
    b.runner.logout()
    answer = remove(a)
    if way == "ABORT" and answer.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"PREEMPT AND ABORT is not supported: {answer}")
    assert answer.good, answer
    keys = a.keys().keys
    assert keys == left, (
        f"{answer}: the keys are {[hex(key) for key in keys]}; {KEY_B:#x} is of a nexus without a session"
    )
    again = back(connections, b, isid)
    claim(again.register(KEY_B + 1, key=KEY_B), allowed=False)
    if left:
        claim(again.write(scratch.lba, scratch.pattern(1, seed=1810)), allowed=False)


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(f"SCS-PR-GONE-HOLDER-{kind:d}"))
    for kind in (PrType.WRITE_EXCLUSIVE, PrType.EXCLUSIVE_ACCESS_REGISTRANTS_ONLY)
])  # fmt: skip
@pytest.mark.case(kills=("absent-holder-keeps",))
def test_the_reservation_of_a_nexus_without_a_session_is_taken_over(unreserved, connections, scratch, kind):
    """It excludes the others until then; after it, its holder is excluded when it comes back."""
    a, b = unreserved
    assert b.register(KEY_B).good
    assert b.reserve(kind, KEY_B).good
    isid = b.runner.isid
    b.runner.logout()
    claim(a.write(scratch.lba, scratch.pattern(1, seed=1811)), allowed=False)
    assert a.register(KEY_A).good
    answer = a.preempt(kind, KEY_A, KEY_B)
    assert answer.good, f"{answer}: {KEY_B:#x} is the key of the holder, which has no session"
    held = a.reservation()
    assert (held.held, held.key, held.type) == (True, KEY_A, kind), f"{answer}: {held}"
    claim(a.write(scratch.lba, scratch.pattern(1, seed=1812)), allowed=True)
    claim(back(connections, b, isid).write(scratch.lba, scratch.pattern(1, seed=1813)), allowed=False)


def status_of_all(unit: LogicalUnit) -> list[tuple[int, bool, int, bytes]]:
    """Return key, holder, port and TransportID of each registration of READ FULL STATUS."""
    answer = unit.reserve_in(PrIn.READ_FULL_STATUS)
    if answer.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"READ FULL STATUS is not supported: {answer}")
    found = decode_full_status(answer.good_data())
    return sorted((one.key, one.holder, one.port, one.transport_id) for one in found)


@pytest.mark.parametrize("ignores", [
    pytest.param(False, id="register", marks=pytest.mark.case("SCS-PR-FULL-REKEY")),
    pytest.param(True, id="ignore", marks=pytest.mark.case("SCS-PR-FULL-REKEY-IGNORE")),
])  # fmt: skip
@pytest.mark.case(section="SPC-4 READ FULL STATUS", kills=("full-status-old-key",), builds_on=RESERVING)
def test_full_status_has_the_key_that_was_registered_last(unreserved, ignores):
    """The descriptor of the nexus has its new key, and the port and the TransportID of before."""
    a, b = unreserved
    assert b.register(KEY_B).good
    reserved(a, PrType.WRITE_EXCLUSIVE)
    before = status_of_all(a)
    action = PrOut.REGISTER_AND_IGNORE_EXISTING_KEY if ignores else PrOut.REGISTER
    answer = b.reserve_out(action, key=KEY_B, action_key=KEY_B ^ 0xFF)
    assert answer.good, answer
    wanted = sorted((key ^ 0xFF if key == KEY_B else key, *rest) for key, *rest in before)
    found = status_of_all(a)
    assert found == wanted, f"{answer}: READ FULL STATUS has {found}; required: {wanted}"


@pytest.mark.case("SCS-PR-GONE-FULL", section="SPC-4 READ FULL STATUS", kills=("full-status-lacks-absent",))
def test_full_status_has_a_nexus_without_a_session(unreserved):
    """Its descriptor is what it was while it had a session: the key, the port and its TransportID."""
    a, b = unreserved
    assert b.register(KEY_B).good
    reserved(a, PrType.WRITE_EXCLUSIVE)

    before = status_of_all(a)
    b.runner.logout()
    after = status_of_all(a)
    assert after == before, f"before a logout: {before}; after it: {after}"


@pytest.mark.parametrize("event", [
    pytest.param(event, marks=pytest.mark.case(
        f"SCS-PR-GENERATION-{event.upper()}", kills=(f"generation-after-{event}",)))
    for event in ("reset", "logout")
])  # fmt: skip
@pytest.mark.case(section="SPC-4 PRGENERATION", builds_on=RESERVING)
def test_prgeneration_outlives_a_reset_and_a_logout(unreserved, connections, event):
    """It is zero after a power on alone, and counts service actions alone."""
    a, b = unreserved
    assert b.register(KEY_B).good
    reserved(a, PrType.WRITE_EXCLUSIVE)
    before = a.keys().generation
    isid = b.runner.isid
    if event == "logout":
        b.runner.logout()
        back(connections, b, isid)
    elif b.runner.task(TaskFunction.LOGICAL_UNIT_RESET).response != TaskResult.COMPLETE:
        pytest.skip("LOGICAL UNIT RESET is not done (ISC-TMF-04)")
    a.clear_attentions()
    after = a.keys().generation
    assert after == before, f"PRGENERATION was {before}; after a {event} of another nexus it is {after}"
