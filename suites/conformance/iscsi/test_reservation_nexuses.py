"""Persistent reservations of three I_T nexuses, and keys that are almost right (SPC-4)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import reports_no_release, reserve_6
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, PrOut, PrType, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.reservation_harness import KEY_A, KEY_B, RESERVING, claim, reserved

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 registering", level="MUST", builds_on=RESERVING),
]

KEY_C = 0xC1C2C3C4C5C6C7C8


@pytest.fixture
def three(unreserved, connections, facts) -> tuple[LogicalUnit, LogicalUnit, LogicalUnit]:
    """Return the unit through three nexuses; none is registered."""
    return *unreserved, LogicalUnit(connections.login("c"), block_size=facts.capacity.block_size)


def registered(three: tuple[LogicalUnit, ...], *, kind: PrType | None = None) -> None:
    """Register all three, the first of which also reserves if ``kind`` is given."""
    a, b, c = three
    if kind is None:
        assert a.register(KEY_A).good
    else:
        reserved(a, kind)
    assert b.register(KEY_B).good
    assert c.register(KEY_C).good


@pytest.mark.case("SCS-PR-THREE-KEYS", section="SPC-4 READ KEYS", kills=("keys-two-at-most",))
def test_the_keys_of_three_nexuses_are_listed(three):
    registered(three)
    found = three[0].keys().keys
    assert sorted(found) == [KEY_A, KEY_B, KEY_C], f"READ KEYS: {[hex(key) for key in found]}"


@pytest.mark.parametrize("kind", [
    pytest.param(PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY, marks=pytest.mark.case("SCS-PR-THREE-WRITE-5")),
    pytest.param(PrType.WRITE_EXCLUSIVE_ALL_REGISTRANTS, marks=pytest.mark.case("SCS-PR-THREE-WRITE-7")),
])  # fmt: skip
@pytest.mark.case(section="SPC-4 reservations, types and WRITE", kills=("third-registrant-conflict",))
def test_each_registrant_may_write(three, scratch, kind):
    registered(three, kind=kind)
    for seed, nexus in enumerate(three, 180):
        nexus.clear_attentions()
        data = scratch.pattern(1, seed=seed)
        claim(nexus.write(scratch.lba, data), allowed=True)
        assert nexus.read(scratch.lba).data == data


@pytest.mark.case(
    "SCS-PR-THREE-CLEAR",
    section="SPC-4 CLEAR, unit attention",
    kills=("clear-attention-for-one",),
    builds_on=("SCS-PR-CLEAR-FREE",),
)
def test_clear_notifies_each_of_two_other_registrants(three):
    registered(three)
    a, b, c = three
    for nexus in three:
        nexus.clear_attentions()
    assert c.reserve_out(PrOut.CLEAR, key=KEY_C).good
    for nexus in (a, b):
        answer = nexus.test_unit_ready()
        assert answer.check(SenseKey.UNIT_ATTENTION, Asc.RESERVATIONS_PREEMPTED), (
            f"{answer}: CLEAR of another nexus has removed a registration"
        )


@pytest.mark.case(
    "SCS-PR-THREE-RELEASE",
    section="SPC-4 RELEASE, unit attention",
    kills=("release-attention-for-one",),
    builds_on=("SCS-PR-12",),
)
def test_a_release_notifies_each_of_two_other_registrants(three):
    if reports_no_release(three[0]):
        pytest.skip("NUAR of the Control mode page is 1: a release is not reported")
    kind = PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY
    registered(three, kind=kind)
    for nexus in three:
        nexus.clear_attentions()
    assert three[0].release(kind, KEY_A).good
    for nexus in three[1:]:
        answer = nexus.test_unit_ready()
        assert answer.check(SenseKey.UNIT_ATTENTION, Asc.RESERVATIONS_RELEASED), (
            f"{answer}: another nexus has released a reservation of the registrants"
        )


@pytest.mark.parametrize("kind", [
    pytest.param(PrType.WRITE_EXCLUSIVE_ALL_REGISTRANTS, marks=pytest.mark.case("SCS-PR-THREE-LAST-7")),
    pytest.param(PrType.EXCLUSIVE_ACCESS_ALL_REGISTRANTS, marks=pytest.mark.case("SCS-PR-THREE-LAST-8")),
])  # fmt: skip
@pytest.mark.case(section="SPC-4 unregistering", kills=("all-registrants-end-with-one",))
def test_a_reservation_of_all_registrants_ends_with_the_last_of_them(three, kind):
    """The nexus that made the reservation unregisters first: the others still hold it."""
    registered(three, kind=kind)
    a, b, c = three
    assert a.register(0, key=KEY_A).good
    assert c.reservation().held, "two of three registrants are left, and there is no reservation"
    assert b.register(0, key=KEY_B).good
    assert c.reservation().held, "one registrant is left, and there is no reservation"
    assert c.register(0, key=KEY_C).good
    assert not a.reservation().held, "no registrant is left, and there is a reservation"


SHARED = {
    "PREEMPT": ((0, KEY_A), (1, KEY_B), {"kills": ("shared-preempt-takes",)}),
    "MAKER": ((2, KEY_C), (0, KEY_A), {"no_mutant_reason": "LIO breaks this rule itself"}),
}
"""The nexus that preempts, and the one whose key it names: the first has made the reservation."""


@pytest.mark.parametrize(("kind", "preempting", "victim"), [
    pytest.param(
        kind, preempting, victim, id=f"{name.lower()}-{kind:d}",
        marks=pytest.mark.case(f"SCS-PR-SHARED-{name}-{kind:d}", **marks),
    )
    for name, (preempting, victim, marks) in SHARED.items()
    for kind in (PrType.WRITE_EXCLUSIVE_ALL_REGISTRANTS, PrType.EXCLUSIVE_ACCESS_ALL_REGISTRANTS)
])  # fmt: skip
@pytest.mark.case(section="SPC-4 PREEMPT")
def test_a_preempt_of_one_key_takes_no_reservation_that_all_registrants_hold(three, kind, preempting, victim):
    """Only the key 0 names that reservation: another one names registrations, also that of its maker."""
    registered(three, kind=kind)
    for nexus in three:
        nexus.clear_attentions()
    (number, key), (_, gone) = preempting, victim
    claim(three[number].preempt(PrType.WRITE_EXCLUSIVE, key, gone), allowed=True)
    held, keys = three[2].reservation(), three[2].keys().keys
    assert (held.held, held.type) == (True, kind), (
        f"the reservation has type {held.type} after a PREEMPT of one key; all held one of {kind:d}"
    )
    assert sorted(keys) == sorted({KEY_A, KEY_B, KEY_C} - {gone}), f"READ KEYS: {[hex(one) for one in keys]}"


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(f"SCS-PR-ANY-HOLDER-{kind:d}"))
    for kind in (PrType.WRITE_EXCLUSIVE_ALL_REGISTRANTS, PrType.EXCLUSIVE_ACCESS_ALL_REGISTRANTS)
])  # fmt: skip
@pytest.mark.case(
    section="SPC-4 RESERVE, RELEASE",
    kills=("all-registrants-release-ignored", "all-registrants-reserve-again"),
)
def test_each_registrant_reserves_and_releases_what_all_registrants_hold(three, scratch, kind):
    """RESERVE of the same type is GOOD for one that did not make the reservation; its RELEASE ends it."""
    a, b, _ = three
    reserved(a, kind)
    assert b.register(KEY_B).good
    claim(b.reserve(kind, KEY_B), allowed=True)
    held = a.reservation()
    assert (held.held, held.type) == (True, kind), f"after RESERVE of another registrant: {held}"
    answer = b.release(kind, KEY_B)
    assert answer.good, answer
    for nexus in three:
        nexus.clear_attentions()
    assert not a.reservation().held, f"{answer}: each registrant is a holder; the reservation stays"
    claim(three[2].write(scratch.lba, scratch.pattern(1, seed=1840)), allowed=True)
    assert sorted(a.keys().keys) == [KEY_A, KEY_B], f"{answer}: a registration has changed"


@pytest.mark.case(
    "SCS-R6-OTHER-ISID",
    section="SPC-2 RESERVE(6)",
    kills=("reserve6-by-name", "release6-by-name"),
    builds_on=("SCS-R6-01",),
)
def test_reserve_6_is_of_one_session_of_an_initiator(not_reserved, connections, scratch):
    """One with another ISID is another nexus: it writes nothing, and releases nothing."""
    a, b = not_reserved
    again = LogicalUnit(connections.login("a"), block_size=a.block_size)
    reserve_6(a)
    try:
        claim(again.write(scratch.lba, scratch.pattern(1, seed=1841)), allowed=False)
        answer = again.run(c.RELEASE_6)
        assert answer.good or answer.conflict, answer
        claim(b.write(scratch.lba, scratch.pattern(1, seed=1842)), allowed=False)
        claim(a.write(scratch.lba, scratch.pattern(1, seed=1843)), allowed=True)
    finally:
        a.run(c.RELEASE_6)


@pytest.mark.case(
    "SCS-PR-KEY-BYTES", section="SPC-4 RESERVE", kills=("key-low-half",), builds_on=("SCS-PR-07",)
)
def test_every_byte_of_a_reservation_key_counts(unreserved):
    a, _ = unreserved
    assert a.register(KEY_A).good
    for byte in range(8):
        key = KEY_A ^ 0x10 << 8 * byte
        answer = a.reserve(PrType.WRITE_EXCLUSIVE, key)
        assert answer.conflict, f"{answer}: the key is {key:#x}, and the registered one {KEY_A:#x}"
    assert not a.reservation().held
