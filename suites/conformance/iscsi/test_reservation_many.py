"""Persistent reservations with many registrants: each one is listed, may write, and is notified (SPC-4).

A device server may have fewer places: then it refuses a registration, for INSUFFICIENT REGISTRATION
RESOURCES, and the cases go on with those that it took.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, PrType, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, TooManyRegistrants
from storagetest.wire.scsi.reservation_harness import RESERVING
from storagetest.wire.scsi.reservations import decode_full_status

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 registering", level="MUST", builds_on=RESERVING),
]

LETTERS = "cdefghijklmnopqrstuvwx"
"""Names of the nexuses besides those of ``unreserved``: 24 in all (chosen: over 16)."""
FEW = 3
"""Registrants without which nothing is judged (chosen)."""
ALLOCATION = 32768
"""Allocation length for the status of all of them (chosen)."""


def key_of(number: int) -> int:
    """Return the key of a nexus; each byte differs from those of the others in the last one or two."""
    return 0x5100000000000000 + 0x0123 * (number + 1)


@pytest.fixture
def many(unreserved, connections, facts, observe) -> list[LogicalUnit]:
    """Register many nexuses; return the unit through each one, without pending unit attentions."""
    units = [*unreserved]
    size = facts.capacity.block_size
    units += [LogicalUnit(connections.login(letter), block_size=size) for letter in LETTERS]
    registered = []
    for number, unit in enumerate(units):
        try:
            answer = unit.register(key_of(number))
        except TooManyRegistrants as limit:
            observe(f"registration {number + 1}: {limit}")
            break
        assert answer.good, answer
        registered.append(unit)
    if len(registered) < FEW:
        pytest.skip(f"{len(registered)} nexuses can be registered")
    for unit in registered:
        unit.clear_attentions()
    return registered


@pytest.mark.case("SCS-PR-MANY-KEYS", section="SPC-4 READ KEYS", kills=("keys-sixteen-at-most",))
def test_the_keys_of_many_nexuses_are_listed(many):
    """All of them, through the first nexus and the last one."""
    wanted = [key_of(number) for number in range(len(many))]
    for unit in (many[0], many[-1]):
        whole = unit.reserve_in(PrIn.READ_KEYS, allocation=ALLOCATION).good_data()
        found = sorted(int.from_bytes(whole[at : at + 8], "big") for at in range(8, len(whole) - 7, 8))
        missing = sorted(set(wanted) - set(found))
        assert len(whole) >= 8 + 8 * len(wanted), (
            f"READ KEYS has {len(whole)} bytes; {len(wanted)} nexuses are registered, and it lacks "
            f"{[hex(key) for key in missing]}"
        )
        assert not missing, f"READ KEYS lacks {[hex(key) for key in missing]} of {len(wanted)} keys"


@pytest.mark.case("SCS-PR-MANY-FULL", section="SPC-4 READ FULL STATUS", kills=("full-sixteen-at-most",))
def test_the_status_of_many_nexuses_is_whole(many):
    """One descriptor for each registration; the holder is one of them, the last that was registered."""
    answer = many[-1].reserve(PrType.WRITE_EXCLUSIVE, key_of(len(many) - 1))
    assert answer.good, answer
    status = many[0].reserve_in(PrIn.READ_FULL_STATUS, allocation=ALLOCATION)
    if status.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"not supported: {status}")
    found = decode_full_status(status.good_data())
    missing = {key_of(number) for number in range(len(many))} - {one.key for one in found}
    assert not missing, f"READ FULL STATUS lacks {[hex(key) for key in sorted(missing)]}, of {len(many)} keys"
    holders = [hex(one.key) for one in found if one.holder]
    assert holders == [hex(key_of(len(many) - 1))], f"the holders are {holders}"
    ports = {one.transport_id for one in found}
    assert len(ports) == len(found), f"{len(found)} registrations have {len(ports)} initiator ports"


@pytest.mark.case(
    "SCS-PR-MANY-CLEAR",
    section="SPC-4 CLEAR, unit attention",
    kills=("clear-notifies-sixteen",),
    builds_on=("SCS-PR-CLEAR-FREE",),
)
def test_clear_ends_many_registrations_and_notifies_each(many):
    answer = many[-1].reserve_out(PrOut.CLEAR, key=key_of(len(many) - 1))
    assert answer.good, answer
    for number, unit in enumerate(many[:-1]):
        ready = unit.test_unit_ready()
        assert ready.check(SenseKey.UNIT_ATTENTION, Asc.RESERVATIONS_PREEMPTED), (
            f"{ready}: registration {number + 1} of {len(many)} was ended by CLEAR of another nexus"
        )
    keys = many[0].keys().keys
    assert not keys, f"after CLEAR, READ KEYS has {[hex(key) for key in keys]}"


@pytest.mark.case(
    "SCS-PR-MANY-WRITE",
    section="SPC-4 reservations, types and WRITE",
    kills=("late-registrant-conflict",),
)
def test_each_of_many_registrants_may_write(many, scratch):
    """Under a reservation of registrants only; each reads what it wrote."""
    answer = many[0].reserve(PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY, key_of(0))
    assert answer.good, answer
    for number, unit in enumerate(many):
        unit.clear_attentions()
        data = scratch.pattern(1, seed=1500 + number)
        answer = unit.write(scratch.lba, data)
        assert answer.good, f"{answer}: registrant {number + 1} of {len(many)}"
        assert unit.read(scratch.lba).data == data, f"registrant {number + 1} reads other data than it wrote"


@pytest.mark.case(
    "SCS-OPS-OPTIONS",
    section="SPC-4 REPORT SUPPORTED OPERATION CODES",
    kills=("operations-reserved-option",),
    builds_on=(),
)
def test_a_reserved_reporting_option_is_an_invalid_field(unit):
    """REPORTING OPTIONS 4 to 7 are reserved in SPC-4."""
    offered(unit.run(c.REPORT_SUPPORTED_OPERATION_CODES, read=64, allocation=64))
    for options in (4, 5, 6, 7):
        answer = unit.run(
            c.REPORT_SUPPORTED_OPERATION_CODES, read=64, options=options, requested_opcode=0x12, allocation=64
        )
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), answer
