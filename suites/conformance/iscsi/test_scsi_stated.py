"""What a device server states: where a field is wrong, which commands it has, who holds a reservation.

SPC-4 sense data, REPORT SUPPORTED OPERATION CODES, READ FULL STATUS, PREEMPT; SBC-3 UNMAP, WRITE SAME;
SAM-5 unit attentions of one logical unit.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import reserve_6
from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.iscsi.encoding import flat_lun
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.look import vpd_page
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, PrType, SenseKey
from storagetest.wire.scsi.data import decode_designators, decode_luns, wwids
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import KEY_A, KEY_B, RESERVING, claim, reserved
from storagetest.wire.scsi.reservations import decode_full_status

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SPC-4 sense data", level="MUST")]


# The field pointer


@pytest.mark.case(
    "SCS-SENSE-POINTER-CDB", section="SPC-4 sense data, FIELD POINTER", kills=("pointer-past-cdb",)
)
def test_a_field_pointer_names_a_byte_of_the_cdb(unit, facts):
    """SKSV is the target's choice; with it and C/D, the byte is one of the CDB (SPC-4 4.5.2.4.2)."""
    seen = 0
    for block, read in (
        (c.cdb(c.INQUIRY, page=0x83, allocation=255), 255),
        (c.cdb(c.INQUIRY, evpd=1, page=0xAB, allocation=255), 255),
        (c.cdb(c.MODE_SENSE_6, page=c.NO_MODE_PAGE, allocation=255), 255),
        (c.cdb(c.PERSISTENT_RESERVE_IN, service_action=0x1F, allocation=64), 64),
        (c.cdb(c.REPORT_LUNS, select=0x7F, allocation=64), 64),
        (c.cdb(c.READ_10, lba=facts.capacity.last_lba & 0xFFFFFFFF, blocks=2), 2 * unit.block_size),
    ):
        answer = unit.result(unit.runner.command(block, read=read), c.describe(block))
        sense = answer.sense
        if sense is None or sense.key != SenseKey.ILLEGAL_REQUEST or sense.field_pointer is None:
            continue
        seen += 1
        assert sense.field_in_cdb, f"{answer}: there are no data, and C/D is 0: the field is in the data"
        assert sense.field_pointer < len(block), (
            f"{answer}: FIELD POINTER is {sense.field_pointer}, and the CDB has {len(block)} bytes"
        )
    if not seen:
        pytest.skip("SKSV is 0 in all sense data: no field pointer is returned")


# REPORT SUPPORTED OPERATION CODES


NOT_OFFERED = "the mutants' target does not offer the command: it is skipped there"


def one_command(unit: LogicalUnit, options: int, opcode: int, action: int = 0) -> ScsiResult:
    """Ask for one command; skip if the unit has no REPORT SUPPORTED OPERATION CODES."""
    answer = unit.run(
        c.REPORT_SUPPORTED_OPERATION_CODES,
        read=64,
        options=options,
        requested_opcode=opcode,
        requested_action=action,
        allocation=64,
    )
    if answer.unsupported:
        pytest.skip(f"not offered: {answer}")
    return answer


ACTIONS = {
    "CAPACITY": (0x9E, 0x10, 16),
    "READ-KEYS": (0x5E, 0, 10),
    "READ-RESERVATION": (0x5E, 1, 10),
    "REGISTER": (0x5F, 0, 10),
    "RESERVE": (0x5F, 1, 10),
}
"""Operation code, service action and CDB length."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-OPS-ACTION-{name}", no_mutant_reason=NOT_OFFERED))
    for name in ACTIONS
])  # fmt: skip
@pytest.mark.case(section="SPC-4 REPORT SUPPORTED OPERATION CODES, CDB USAGE DATA", level="SHOULD")
def test_a_command_with_a_service_action_is_reported_with_it(unit, name):
    """CDB USAGE DATA have the operation code and, where the CDB has it, the service action."""
    opcode, action, length = ACTIONS[name]
    answer = one_command(unit, 2, opcode, action)
    if not answer.good:
        pytest.skip(f"the service action is not reported: {answer}")
    if answer.data[1] & 7 != 3:
        pytest.skip(f"SUPPORT is {answer.data[1] & 7}")
    size, usage = int.from_bytes(answer.data[2:4], "big"), answer.data[4:]
    assert size == length, f"{answer}: CDB SIZE is {size}, of a command of {length} bytes"
    assert (usage[0], usage[1] & 0x1F) == (opcode, action), (
        f"{answer}: CDB USAGE DATA begin {usage[:2].hex()}; operation code {opcode:02x}h and service action "
        f"{action:02x}h are required"
    )


@pytest.mark.case(
    "SCS-OPS-LISTED",
    section="SPC-4 REPORT SUPPORTED OPERATION CODES",
    no_mutant_reason=NOT_OFFERED,
    builds_on=("SCS-OPS-03",),
)
def test_each_command_of_the_list_is_supported_if_it_is_asked_for_alone(unit):
    """SUPPORT is not 1 (not supported), and CDB SIZE is the CDB LENGTH of the list."""
    whole = unit.run(c.REPORT_SUPPORTED_OPERATION_CODES, read=8192, allocation=8192)
    if not whole.good:
        pytest.skip(f"not offered: {whole}")
    entries = whole.data[4 : 4 + int.from_bytes(whole.data[:4], "big")]
    at = 0
    while at + 8 <= len(entries):
        entry = entries[at : at + 8]
        at += 20 if entry[5] & 2 else 8  # CTDP: a command timeouts descriptor follows
        opcode, action, serves = entry[0], int.from_bytes(entry[2:4], "big"), entry[5] & 1
        length = int.from_bytes(entry[6:8], "big")
        alone = one_command(unit, 2 if serves else 1, opcode, action)
        if not alone.good:
            continue  # a reporting option is the target's choice
        support, size = alone.data[1] & 7, int.from_bytes(alone.data[2:4], "big")
        assert support != 1, f"{alone}: SUPPORT is 1, and the command is in the list: {entry.hex()}"
        assert support != 3 or size == length, f"{alone}: CDB SIZE is {size}, and {length} in the list"


# Registrations


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(f"SCS-PR-FULL-{kind:d}", kills=("full-status-one-holder",)))
    for kind in (PrType.WRITE_EXCLUSIVE_ALL_REGISTRANTS, PrType.EXCLUSIVE_ACCESS_ALL_REGISTRANTS)
])  # fmt: skip
@pytest.mark.case(section="SPC-4 READ FULL STATUS, R_HOLDER", builds_on=RESERVING)
def test_each_registrant_is_a_holder_if_the_type_states_it(unreserved, kind):
    a, b = unreserved
    for answer in (b.register(KEY_B), a.register(KEY_A)):
        assert answer.good, answer
    answer = a.reserve(kind, KEY_A)
    assert answer.good, answer
    full = b.reserve_in(PrIn.READ_FULL_STATUS)
    if full.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"not supported: {full}")
    found = {one.key: (one.holder, one.type) for one in decode_full_status(full.data)}
    assert found == {KEY_A: (True, kind), KEY_B: (True, kind)}, (
        f"{full}: R_HOLDER and TYPE by key are {found}; all registrants hold a reservation of type {kind}"
    )


@pytest.fixture
def twins(unreserved, connections) -> tuple[LogicalUnit, LogicalUnit, LogicalUnit]:
    """Register one nexus with KEY_A, and two with KEY_B."""
    a, b = unreserved
    third = LogicalUnit(connections.login("c"), block_size=a.block_size)
    for unit, key in ((a, KEY_A), (b, KEY_B), (third, KEY_B)):
        claim(unit.register(key), allowed=True)
    return a, b, third


@pytest.mark.case(
    "SCS-PR-TWIN-KEYS", section="SPC-4 READ KEYS", kills=("equal-keys-once",), builds_on=RESERVING
)
def test_a_key_of_two_nexuses_is_listed_for_each(twins):
    found = sorted(twins[0].keys().keys)
    assert found == sorted((KEY_A, KEY_B, KEY_B)), f"READ KEYS: {[f'{key:#x}' for key in found]}"


@pytest.mark.case(
    "SCS-PR-TWIN-PREEMPT", section="SPC-4 PREEMPT", kills=("preempt-one-of-two",), builds_on=RESERVING
)
def test_preempt_removes_every_registration_with_the_key(twins):
    a, b, third = twins
    claim(a.preempt(PrType.WRITE_EXCLUSIVE, KEY_A, KEY_B), allowed=True)
    found = a.keys().keys
    assert found == (KEY_A,), f"READ KEYS after PREEMPT of {KEY_B:#x}: {[f'{key:#x}' for key in found]}"
    for unit in (b, third):
        unit.clear_attentions()
        claim(unit.reserve(PrType.WRITE_EXCLUSIVE, KEY_B), allowed=False)


@pytest.mark.case(
    "SCS-PR-TWIN-UNREGISTER", section="SPC-4 REGISTER", kills=("unregister-both",), builds_on=RESERVING
)
def test_a_nexus_unregisters_itself_alone_although_another_has_its_key(twins):
    a, b, third = twins
    claim(b.register(0, key=KEY_B), allowed=True)
    found = sorted(a.keys().keys)
    assert found == sorted((KEY_A, KEY_B)), f"READ KEYS: {[f'{key:#x}' for key in found]}"
    claim(third.reserve(PrType.WRITE_EXCLUSIVE, KEY_B), allowed=True)


@pytest.mark.case(
    "SCS-PR-TWIN-HOLDER",
    section="SPC-4 RESERVE, RELEASE",
    kills=("reservation-of-key",),
    builds_on=RESERVING,
)
def test_the_holder_is_a_nexus_and_no_key(twins, scratch):
    """A write of the other nexus with the same key is a conflict, and its RELEASE releases nothing."""
    _, b, third = twins
    claim(b.reserve(PrType.WRITE_EXCLUSIVE, KEY_B), allowed=True)
    claim(third.write(scratch.lba, scratch.pattern(1, seed=150)), allowed=False)
    third.release(PrType.WRITE_EXCLUSIVE, KEY_B)
    assert b.reservation().held, "RELEASE of a nexus that is not the holder has released the reservation"


# UNMAP and WRITE SAME


@pytest.mark.parametrize(("before", "after"), [
    pytest.param(1, 0, marks=pytest.mark.case("SCS-UNMAP-SECOND", kills=("unmap-later-range-good",))),
    pytest.param(3, 0, marks=pytest.mark.case("SCS-UNMAP-FOURTH", kills=("unmap-later-range-good",))),
    pytest.param(0, 1, marks=pytest.mark.case("SCS-UNMAP-FIRST-OF-TWO", kills=("unmap-last-range-counts",))),
    pytest.param(1, 1, marks=pytest.mark.case("SCS-UNMAP-BETWEEN", kills=("unmap-last-range-counts",))),
])  # fmt: skip
@pytest.mark.case(section="SBC-3 UNMAP", builds_on=("SCS-UNMAP-03",))
def test_one_descriptor_past_the_end_is_out_of_range_wherever_it_is(unit, facts, scratch, before, after):
    """The blocks of the other descriptors, before and after it, are there."""
    if facts.provisioning is None or not facts.provisioning.unmap:
        pytest.skip("UNMAP is not supported (LBPU is 0)")
    if facts.limits and facts.limits.max_unmap_descriptors <= before + after:
        pytest.skip(f"MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT is {facts.limits.max_unmap_descriptors}")
    if facts.limits and facts.limits.max_unmap_blocks < 8 * (before + after) + 2:
        pytest.skip(f"MAXIMUM UNMAP LBA COUNT is {facts.limits.max_unmap_blocks}")
    ranges = [(scratch.lba + 8 * at, 8) for at in range(before + after)]
    answer = unit.unmap(*ranges[:before], (facts.capacity.last_lba, 2), *ranges[before:])
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE), (
        f"{answer}: descriptor {before + 1} ends past the last block, {facts.capacity.last_lba}"
    )


@pytest.mark.parametrize("command", [
    pytest.param(c.WRITE_SAME_10, marks=pytest.mark.case("SCS-SAME-ANCHOR-10")),
    pytest.param(c.WRITE_SAME_16, marks=pytest.mark.case("SCS-SAME-ANCHOR-16")),
])  # fmt: skip
@pytest.mark.case(section="SBC-3 WRITE SAME, ANCHOR", no_mutant_reason="no target of the mutants has it")
def test_write_same_with_anchor_and_without_unmap_is_refused(unit, facts, scratch, command):
    """With UNMAP, ANCHOR is an error if ANC_SUP is 0. The blocks stay. (SBC-3, WRITE SAME(10), table.)"""
    if not facts.capacity.provisioned_thin:
        pytest.skip("LBPME is 0: the table is of units that manage provisioning")
    old = scratch.pattern(4, seed=151)
    assert unit.write(scratch.lba, old).good
    anchors = facts.provisioning is not None and facts.provisioning.anchor
    for unmap in (0,) if anchors else (0, 1):
        answer = unit.run(
            command, data=bytes(scratch.block_size), lba=scratch.lba, blocks=4, anchor=1, unmap=unmap
        )
        if answer.unsupported:
            pytest.skip(f"{command.name} is not supported")
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), (
            f"{answer}: ANCHOR is 1, UNMAP is {unmap}, and ANC_SUP is {anchors:d}"
        )
        assert unit.read(scratch.lba, 4).data == old, f"{answer}, but blocks were written"


# Another logical unit of the target


@pytest.fixture
def other_unit(two, connections, portal) -> tuple[LogicalUnit, LogicalUnit, LogicalUnit]:
    """Return the unit through two nexuses, and another unit through the second; skip if there is none."""
    first, second = two
    listed = first.luns()
    found = decode_luns(listed.data) if listed.good else ()
    luns = [lun for lun in found if lun not in (flat_lun(portal.lun), 0)]
    if not luns:
        pytest.skip(f"{listed}: no logical unit but that of the cases and LUN 0")
    link: Initiator = connections.login("o")
    link.lun = luns[0]
    other = LogicalUnit(link, block_size=first.block_size)
    other.clear_attentions()
    return first, second, other


@pytest.mark.case(
    "SCS-OTHER-RESET", section="SAM-5 5.14, 7.7", kills=("reset-of-every-unit",), builds_on=("ISC-TMF-04",)
)
def test_a_reset_of_one_logical_unit_is_none_of_another(other_unit):
    first, _, other = other_unit
    if not (before := other.test_unit_ready()).good:
        pytest.skip(f"{before} of the other logical unit: it is not ready, or another host has reserved it")
    if first.runner.task(TaskFunction.LOGICAL_UNIT_RESET).response != TaskResult.COMPLETE:
        pytest.skip("LOGICAL UNIT RESET is not complete (ISC-TMF-04)")
    answer = other.test_unit_ready()
    assert answer.good, f"{answer} of another logical unit, after LOGICAL UNIT RESET"


def _ready_and_read(unit: LogicalUnit) -> tuple[ScsiResult, ScsiResult]:
    """Return the results of TEST UNIT READY and of a READ; the unit may be reserved by another host."""
    return unit.test_unit_ready(), unit.run(c.READ_10, read=unit.block_size, lba=0, blocks=1)


@pytest.mark.case(
    "SCS-OTHER-KEYS", section="SPC-4 registering", kills=("keys-of-every-unit",), builds_on=RESERVING
)
def test_a_registration_is_of_one_logical_unit(other_unit, unreserved):
    """Its key is not among those of the other unit, nor does it count in that one's PRGENERATION."""
    a, other = unreserved[0], other_unit[2]
    before = other.reserve_in(PrIn.READ_KEYS)
    if not before.good:
        pytest.skip(f"the other logical unit has no persistent reservations: {before}")
    served = _ready_and_read(other)
    reserved(a, PrType.EXCLUSIVE_ACCESS)
    for was, answer in zip(served, _ready_and_read(other), strict=True):
        assert answer.good or not was.good, f"{answer} of another logical unit; before the reservation: {was}"
    after = other.reserve_in(PrIn.READ_KEYS)
    assert after.data == before.data, (
        f"READ KEYS of another logical unit: {after.data.hex()}; it was {before.data.hex()}"
    )
    claim(a.reserve_out(PrOut.CLEAR, key=KEY_A), allowed=True)


@pytest.mark.case(
    "SCS-OTHER-RESERVE-6",
    section="SPC-2 RESERVE(6)",
    kills=("reserve6-of-every-unit",),
    builds_on=("SCS-R6-01",),
)
def test_reserve_6_is_of_one_logical_unit(other_unit, not_reserved):
    """Another nexus uses the other unit as before."""
    a, other = not_reserved[0], other_unit[2]
    served = _ready_and_read(other)
    reserve_6(a)
    try:
        found = _ready_and_read(other)
    finally:
        a.run(c.RELEASE_6)
    for was, answer in zip(served, found, strict=True):
        assert answer.good or not was.good, f"{answer} of another logical unit; before RESERVE(6): {was}"


@pytest.mark.case(
    "SCS-OTHER-DATA",
    section="SPC-4 Device Identification",
    kills=("read-of-written-unit", "name-of-first-unit"),
    builds_on=("SCS-VPD-04", "SCS-RW-01"),
)
def test_two_logical_units_have_the_same_blocks_only_if_they_have_one_name(other_unit, scratch):
    """A name is unique in the world: two LUNs with one name are one unit, others have blocks of their own."""
    first, _, other = other_unit
    own, its = (
        {name for name in wwids(decode_designators(vpd_page(one, 0x83))) if name.startswith(("naa.", "eui."))}
        for one in (first, other)
    )
    if not own or not its:
        pytest.skip("page 83h of one of the units has no NAA or EUI-64 designator")

    def read(unit: LogicalUnit) -> bytes:
        answer = unit.run(c.READ_10, read=first.block_size, lba=scratch.lba, blocks=1)
        if not answer.good:
            pytest.skip(f"the block cannot be read: {answer}")
        return answer.data

    for seed in (180, 181):
        data = scratch.pattern(1, seed=seed)
        assert first.write(scratch.lba, data).good
        assert read(first) == data, "the unit does not hold what was written to it"
        same = read(other) == data
        assert same == bool(own & its), (
            f"LUN {other.runner.lun:016x} {'has' if same else 'has not'} what was written to the other unit; "
            f"the names of the units are {sorted(own)} and {sorted(its)}"
        )
