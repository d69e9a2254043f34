"""Rules that a unit keeps for one command, nexus or size, and has to keep for each other one."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered, reports_no_release, reserve_6
from storagetest.wire.iscsi.codes import TaskFunction
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, PrType, SenseKey
from storagetest.wire.scsi.data import first_grain, unmap_list
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import KEY_A, KEY_B, RESERVING, claim, reserved
from storagetest.wire.scsi.reservations import decode_capabilities, out_list

from .test_scsi_inquiry import mode_pages, mode_sense

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(level="MUST")]

Fields = dict[str, Any]

ALL_PAGES = 0x3F
"""Page code of MODE SENSE: all pages (SPC-4)."""

MOST_DESCRIPTORS = 1024
"""Descriptors of an UNMAP of a case (chosen): their length has 16 bits (SBC-3)."""


def on_blocks(lba: int, data: bytes) -> dict[str, tuple[c.CommandFormat, Fields]]:
    """Return commands that read, compare or change the block ``lba``, by name; ``data`` is one block."""
    at: Fields = {"lba": lba, "blocks": 1}
    reads: Fields = at | {"read": len(data)}
    return {
        **{command.name: (command, reads) for command in (c.READ_6, c.READ_10, c.READ_12, c.READ_16)},
        **{
            command.name: (command, at | {"data": data})
            for command in (
                c.WRITE_6, c.WRITE_10, c.WRITE_12, c.WRITE_16, c.WRITE_AND_VERIFY_10, c.WRITE_AND_VERIFY_16,
                c.WRITE_SAME_10, c.WRITE_SAME_16, c.ORWRITE_16,
            )
        },
        c.COMPARE_AND_WRITE.name: (c.COMPARE_AND_WRITE, at | {"data": data * 2}),
        c.VERIFY_10.name: (c.VERIFY_10, at | {"data": data, "bytchk": 1}),
        c.VERIFY_16.name: (c.VERIFY_16, at | {"data": data, "bytchk": 1}),
    }  # fmt: skip


ABOUT: dict[str, tuple[c.CommandFormat, Fields]] = {
    "MODE SENSE(6)": (c.MODE_SENSE_6, {"read": 64, "page": ALL_PAGES, "allocation": 64}),
    "MODE SENSE(10)": (c.MODE_SENSE_10, {"read": 64, "page": ALL_PAGES, "allocation": 64}),
}
CAPACITIES: dict[str, tuple[c.CommandFormat, Fields]] = {
    "READ CAPACITY(10)": (c.READ_CAPACITY_10, {"read": 8}),
    "READ CAPACITY(16)": (c.READ_CAPACITY_16, {"read": 32, "allocation": 32}),
    "SYNCHRONIZE CACHE(10)": (c.SYNCHRONIZE_CACHE_10, {}),
    "SYNCHRONIZE CACHE(16)": (c.SYNCHRONIZE_CACHE_16, {}),
}


def absent(answer: ScsiResult) -> bool:
    """Whether the unit has no such command, or not with these fields."""
    return answer.unsupported or answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)


# Unit attentions


@pytest.mark.case(
    "SCS-UA-EACH", section="SAM-5 5.14", kills=("attention-passed",), builds_on=("SCS-UA-AGAIN",)
)
def test_a_unit_attention_ends_each_command_but_those_that_do_not_report_it(two, scratch):
    """Only INQUIRY, REPORT LUNS and REQUEST SENSE are executed; the block that others name is kept."""
    first, second = two
    old, new = scratch.pattern(1, seed=220), scratch.pattern(1, seed=221)
    first.runner.task(TaskFunction.LOGICAL_UNIT_RESET)
    if second.test_unit_ready().good:
        pytest.skip("the target reports no unit attention for a reset (ISC-TMF-06)")
    for unit in two:
        unit.clear_attentions()
    assert first.write(scratch.lba, old).good
    for name, (command, fields) in (on_blocks(scratch.lba, new) | ABOUT | CAPACITIES).items():
        first.runner.task(TaskFunction.LOGICAL_UNIT_RESET)
        answer = second.run(command, **fields)
        assert answer.unsupported or answer.check(SenseKey.UNIT_ATTENTION), f"{answer}: a reset came before"
        for unit in two:
            unit.clear_attentions()
        held = first.read(scratch.lba)
        assert held.data == old, f"{name} ended in {answer}, and it changed the block"


OWN_EVENTS = {
    "REGISTER": lambda unit: unit.register(KEY_B, key=KEY_A),
    "RELEASE": lambda unit: unit.release(PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY, KEY_A),
    "CLEAR": lambda unit: unit.reserve_out(PrOut.CLEAR, key=KEY_A),
    "PREEMPT": lambda unit: unit.preempt(PrType.WRITE_EXCLUSIVE, KEY_A, KEY_B),
}


@pytest.mark.parametrize("event", [
    pytest.param(event, marks=pytest.mark.case(f"SCS-UA-OWN-{event}")) for event in OWN_EVENTS
])  # fmt: skip
@pytest.mark.case(
    section="SPC-4 unit attentions of reservations", kills=("attention-own",), builds_on=RESERVING
)
def test_a_nexus_has_no_unit_attention_for_what_it_did_itself(unreserved, event):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY)
    assert b.register(KEY_B).good
    a.clear_attentions()
    answer = OWN_EVENTS[event](a)
    assert answer.good, answer
    after = a.test_unit_ready()
    assert after.good, f"{after}, after a {event} of its own"


@pytest.mark.parametrize("command", [
    pytest.param(c.MODE_SELECT_6, marks=pytest.mark.case("SCS-UA-OWN-SELECT-6")),
    pytest.param(c.MODE_SELECT_10, marks=pytest.mark.case("SCS-UA-OWN-SELECT-10")),
])  # fmt: skip
@pytest.mark.case(section="SPC-4 MODE SELECT, unit attention", kills=("attention-own-select",))
@pytest.mark.usefixtures("scratch")
def test_the_nexus_that_changed_a_mode_page_has_no_unit_attention(two, command):
    """MODE PARAMETERS CHANGED is for each nexus but the one of the MODE SELECT."""
    unit, other = two
    code, before, mask = changeable(unit)
    for wanted in (bytes(a ^ b for a, b in zip(before, mask, strict=True)), before):
        page = bytes((code, len(wanted))) + wanted
        data = bytes(8 if command is c.MODE_SELECT_10 else 4) + page
        answer = offered(unit.run(command, data=data, pf=1, allocation=len(data)))
        if not answer.good:
            pytest.skip(f"{answer}: the bits are not changed together")
        after = unit.test_unit_ready()
        other.clear_attentions()
        unit.clear_attentions()
        assert after.good, f"{after}, after a {command.name} of its own"


def changeable(unit: LogicalUnit) -> tuple[int, bytes, bytes]:
    """Return code, values and one changeable bit of the Control or Caching mode page; skip if there is none.

    The bits are WCE of the Caching page and D_SENSE of the Control page (SPC-4, SBC-3).
    """
    for code, bit in ((0x08, 0x04), (0x0A, 0x04)):
        values = [
            dict(mode_pages(answer.data, ten=False)).get(code, b"")[2:]
            for control in (0, 1)
            if (answer := unit.run(
                c.MODE_SENSE_6, read=255, page=code, page_control=control, dbd=1, allocation=255
            )).good
        ]  # fmt: skip
        if len(values) == 2 and values[0] and len(values[0]) == len(values[1]) and values[1][0] & bit:
            return code, values[0], bytes((bit,)) + bytes(len(values[0]) - 1)
    pytest.skip("neither WCE nor D_SENSE is changeable")


# Ranges and lists


@pytest.mark.parametrize("command", [
    pytest.param(command, marks=pytest.mark.case(
        f"SCS-ZERO-PAST-{name}",
        kills=("zero-blocks-past-good" if name[:5] in ("READ-", "WRITE") else "zero-blocks-past-other",),
    ))
    for name, command in {
        "READ-10": c.READ_10, "READ-12": c.READ_12, "READ-16": c.READ_16,
        "WRITE-10": c.WRITE_10, "WRITE-12": c.WRITE_12, "WRITE-16": c.WRITE_16, "ORWRITE": c.ORWRITE_16,
        "WVER-10": c.WRITE_AND_VERIFY_10, "WVER-12": c.WRITE_AND_VERIFY_12, "WVER-16": c.WRITE_AND_VERIFY_16,
        "VERIFY-10": c.VERIFY_10, "VERIFY-12": c.VERIFY_12, "VERIFY-16": c.VERIFY_16,
        "SYNC-10": c.SYNCHRONIZE_CACHE_10, "SYNC-16": c.SYNCHRONIZE_CACHE_16,
        "FETCH-10": c.PRE_FETCH_10, "FETCH-16": c.PRE_FETCH_16, "CAW": c.COMPARE_AND_WRITE,
    }.items()
])  # fmt: skip
@pytest.mark.case(section="SBC-3, LOGICAL BLOCK ADDRESS", builds_on=("SCS-RW-01",))
@pytest.mark.usefixtures("scratch")
def test_no_blocks_past_the_end_are_out_of_range(unit, facts, command):
    """An address past the last block is an error also if no blocks follow it."""
    top = 1 << (64 if command.length == 16 else 32)
    found = [lba for lba in (facts.capacity.blocks + 1, top - 1) if facts.capacity.blocks < lba < top]
    for lba in found:
        answer = offered(unit.run(command, lba=lba, blocks=0))
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE), (
            f"{answer}; the last block is {facts.capacity.last_lba}"
        )


@pytest.mark.case(
    "SCS-UNMAP-SHORT", section="SBC-3 UNMAP", kills=("unmap-short-sense",), builds_on=("SCS-UNMAP-05",)
)
@pytest.mark.usefixtures("scratch")
def test_a_list_without_its_header_is_a_parameter_list_length_error(unit, facts):
    """A length of 1 to 7 bytes, which is less than the header of the list."""
    if facts.provisioning is None or not facts.provisioning.unmap:
        pytest.skip("UNMAP is not supported (LBPU is 0)")
    for length in (1, 4, 7):
        answer = unit.run(c.UNMAP, data=bytes(length), allocation=length)
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.PARAMETER_LIST_LENGTH_ERROR), (
            f"{answer}; PARAMETER LIST LENGTH ERROR is required of a list of {length} bytes"
        )


@pytest.mark.case(
    "SCS-UNMAP-COUNT", section="SBC-3 UNMAP, Block Limits",
    no_mutant_reason="LIO takes one descriptor", builds_on=("SCS-UNMAP-04",),
)  # fmt: skip
def test_more_blocks_than_one_unmap_may_have_are_refused(unit, facts, scratch):
    """The blocks of all descriptors count, also those that several of them name."""
    limits = facts.limits
    most = limits.max_unmap_blocks if limits else 0
    if facts.provisioning is None or not facts.provisioning.unmap or not most:
        pytest.skip("UNMAP is not supported, or MAXIMUM UNMAP LBA COUNT is 0")
    whole = min(most, scratch.count)
    number = most // whole + 1
    if number > min(limits.max_unmap_descriptors, MOST_DESCRIPTORS):
        pytest.skip(f"{number} descriptors are needed; the unit takes {limits.max_unmap_descriptors}")
    answer = unit.unmap(*[(scratch.lba, whole)] * number)
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_PARAMETER_LIST), (
        f"{answer}: {whole * number} blocks; MAXIMUM UNMAP LBA COUNT is {most}"
    )


@pytest.mark.parametrize("command", [
    pytest.param(command, marks=pytest.mark.case(f"SCS-VERIFY-RESERVED-{name}"))
    for name, command in {"10": c.VERIFY_10, "12": c.VERIFY_12, "16": c.VERIFY_16}.items()
])  # fmt: skip
@pytest.mark.case(
    section="SBC-3 VERIFY, BYTCHK; SPC-4 reserved", level="SHOULD", kills=("verify-reserved-good",)
)
def test_a_reserved_bytchk_is_an_invalid_field(unit, scratch, command):
    data = scratch.pattern(1, seed=222)
    assert unit.write(scratch.lba, data).good
    answer = offered(unit.run(command, lba=scratch.lba, blocks=1, bytchk=2))
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), f"{answer}: BYTCHK is 10b"


@pytest.mark.case(
    "SCS-UNMAP-CUT",
    section="SBC-3 UNMAP",
    no_mutant_reason="a proxy cannot lengthen the data of a command",
    builds_on=("SCS-UNMAP-02",),
)
def test_a_descriptor_that_the_length_cuts_is_not_executed(unit, facts, scratch):
    """UNMAP BLOCK DESCRIPTOR DATA LENGTH is no multiple of 16: the last descriptor is ignored."""
    if facts.provisioning is None or not facts.provisioning.unmap:
        pytest.skip("UNMAP is not supported (LBPU is 0)")
    data = scratch.pattern(1, seed=225)
    assert unit.write(scratch.lba, data).good
    whole = unmap_list((scratch.lba, 1))
    for kept in (12, 15):
        listed = struct.pack(">HH", 6 + kept, kept) + whole[4 : 8 + kept]
        answer = unit.run(c.UNMAP, data=listed, allocation=len(listed))
        assert answer.good or answer.check(SenseKey.ILLEGAL_REQUEST), answer
        held = unit.read(scratch.lba)
        assert held.data == data, f"{answer}: a descriptor of {kept} bytes unmapped its block"


@pytest.mark.case(
    "SCS-UNMAP-AFTER", section="SBC-3 UNMAP", kills=("unmap-length-ignored",), builds_on=("SCS-UNMAP-02",)
)
def test_a_descriptor_behind_the_length_is_not_executed(unit, facts, scratch):
    """The list has two descriptors, and UNMAP BLOCK DESCRIPTOR DATA LENGTH counts the first one alone."""
    if facts.provisioning is None or not facts.provisioning.unmap:
        pytest.skip("UNMAP is not supported (LBPU is 0)")
    grain = max(1, facts.limits.unmap_granularity if facts.limits else 1)
    first = first_grain(facts.limits, scratch.lba)
    data = scratch.pattern(1, seed=227)
    whole = unmap_list((first, grain), (first + grain, grain))
    for stated in (0, 16):
        assert unit.write(first + grain, data).good
        listed = whole[:2] + struct.pack(">H", stated) + whole[4:]
        answer = unit.run(c.UNMAP, data=listed, allocation=len(listed))
        assert answer.good or answer.check(SenseKey.ILLEGAL_REQUEST), answer
        held = unit.read(first + grain)
        assert held.data == data, (
            f"{answer}: the list states {stated} bytes of descriptors, and the descriptor at byte 16 of them "
            "unmapped its block"
        )


@pytest.mark.case(
    "SCS-CAW-NONE", section="SBC-3 COMPARE AND WRITE", kills=("caw-none-refused",), builds_on=("SCS-CAW-01",)
)
def test_compare_and_write_of_no_blocks_is_no_error(unit, scratch):
    data = scratch.pattern(1, seed=226)
    assert unit.write(scratch.lba, data).good
    answer = offered(unit.run(c.COMPARE_AND_WRITE, lba=scratch.lba, blocks=0))
    assert answer.good, answer
    assert unit.read(scratch.lba).data == data, f"{answer}: the block has changed"


@pytest.mark.case(
    "SCS-CAW-OFFSET-LATER", section="SBC-3 COMPARE AND WRITE",
    no_mutant_reason="LIO takes one block", builds_on=("SCS-CAW-07",),
)  # fmt: skip
def test_a_miscompare_in_a_later_block_names_its_offset_in_all_data(unit, facts, scratch):
    """INFORMATION is the offset of the first byte that differs in the data, not in its block."""
    most = facts.limits.max_compare_and_write if facts.limits else 0
    if most < 2:
        pytest.skip(f"MAXIMUM COMPARE AND WRITE LENGTH is {most}")
    data, size = scratch.pattern(2, seed=227), scratch.block_size
    assert unit.write(scratch.lba, data).good
    for at in (size, size + 300):
        wrong = data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]
        answer = offered(unit.compare_and_write(scratch.lba, wrong, data))
        assert answer.check(SenseKey.MISCOMPARE), answer
        assert answer.sense is not None
        assert answer.sense.information in (None, at), f"{answer}; the first difference is at byte {at}"


@pytest.mark.case("SCS-LUN-CUT", section="SPC-4 REPORT LUNS", kills=("luns-length-cut",))
def test_the_list_of_logical_units_that_is_cut_has_the_length_of_the_whole(unit):
    whole = unit.luns()
    assert whole.good, whole
    cut = unit.luns(allocation=16)
    if len(whole.data) <= 16:
        cut = unit.luns(allocation=8)
    if not cut.good:
        pytest.skip(f"{cut}: an allocation length under 16 is refused")
    assert cut.data == whole.data[: len(cut.data)], f"{cut.data.hex(' ')}, of {whole.data.hex(' ')}"


@pytest.mark.case("SCS-LOG-SUBPAGE", section="SPC-4 LOG SENSE", kills=("log-subpage-ignored",))
def test_a_log_subpage_that_is_not_there_is_an_invalid_field(unit):
    """No standard has a subpage 3Eh of page 00h, the list of pages."""
    offered(unit.run(c.LOG_SENSE, read=64, page_control=1, allocation=64))
    answer = unit.run(c.LOG_SENSE, read=64, page_control=1, subpage=0x3E, allocation=64)
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), answer


@pytest.mark.parametrize(("options", "command"), [
    pytest.param(1, c.READ_CAPACITY_16, marks=pytest.mark.case("SCS-OPS-FORM-1")),
    pytest.param(2, c.INQUIRY, marks=pytest.mark.case("SCS-OPS-FORM-2")),
])  # fmt: skip
@pytest.mark.case(section="SPC-4 REPORT SUPPORTED OPERATION CODES", kills=("operations-any-form",))
def test_a_command_is_reported_only_in_the_form_that_it_has(unit, options, command):
    """Option 1 is for commands without service actions, option 2 for those that have some."""
    offered(unit.run(c.REPORT_SUPPORTED_OPERATION_CODES, read=64, allocation=64))
    answer = unit.run(
        c.REPORT_SUPPORTED_OPERATION_CODES, read=64, options=options, requested_opcode=command.opcode,
        requested_action=command.service_action or 0, allocation=64,
    )  # fmt: skip
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), answer


# Mode pages


@pytest.mark.parametrize("command", [
    pytest.param(c.MODE_SENSE_6, marks=pytest.mark.case("SCS-MODE-WHOLE-6")),
    pytest.param(c.MODE_SENSE_10, marks=pytest.mark.case("SCS-MODE-WHOLE-10")),
])  # fmt: skip
@pytest.mark.case(section="SPC-4 MODE SENSE", kills=("mode-whole-lacks",), builds_on=("SCS-MODE-03",))
def test_all_pages_have_each_page_that_is_returned_alone(unit, command):
    """Page 3Fh is all pages. Page 00h is the vendor's, and may have another format."""
    ten = command is c.MODE_SENSE_10

    def pages(code: int) -> list[int]:
        answer = mode_sense(unit, command, code)
        return [found for found, _ in mode_pages(answer.data, ten=ten)] if answer.good else []

    whole = pages(ALL_PAGES)
    if not whole:
        pytest.skip(f"{command.name} returns no pages")
    lacking = [code for code in range(1, ALL_PAGES) if code in pages(code) and code not in whole]
    assert not lacking, (
        f"{command.name} returns the pages {[f'{code:02x}h' for code in lacking]} alone, and page 3Fh has "
        f"{[f'{code:02x}h' for code in whole]}"
    )


# Reservations


@pytest.mark.case(
    "SCS-PR-LIST-LONG", section="SPC-4 PERSISTENT RESERVE OUT", kills=("pr-list-long",),
    builds_on=("SCS-PR-36",),
)  # fmt: skip
def test_a_parameter_list_of_more_than_24_bytes_is_of_a_wrong_length(unreserved):
    """Without SPEC_I_PT the list has 24 bytes: the command fails, and registers nothing."""
    a, _ = unreserved
    for more in (1, 4, 24):
        data = out_list(0, KEY_A) + bytes(more)
        answer = a.run(
            c.PERSISTENT_RESERVE_OUT, data=data, service_action=int(PrOut.REGISTER), allocation=len(data)
        )
        assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}: the list has {len(data)} bytes"
        assert not a.keys().keys, f"{answer}, and the key is registered"


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(f"SCS-PR-SILENT-{kind.value}"))
    for kind in PrType if not kind.registrants
])  # fmt: skip
@pytest.mark.case(section="SPC-4 RELEASE, unit attention", kills=("release-reported",), builds_on=RESERVING)
def test_a_release_of_another_type_notifies_no_registrant(unreserved, kind):
    """Only the end of a registrants only or all registrants reservation is reported."""
    a, b = unreserved
    reserved(a, kind)
    assert b.register(KEY_B).good
    b.clear_attentions()
    answer = a.release(kind, KEY_A)
    assert answer.good, answer
    after = b.test_unit_ready()
    assert after.good, f"{after}, after the RELEASE of a reservation of type {kind:d}"


@pytest.mark.parametrize("kind", [
    pytest.param(PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY, marks=pytest.mark.case("SCS-PR-LEFT-5")),
    pytest.param(PrType.EXCLUSIVE_ACCESS_REGISTRANTS_ONLY, marks=pytest.mark.case("SCS-PR-LEFT-6")),
])  # fmt: skip
@pytest.mark.case(
    section="SPC-4 unregistering, unit attention", kills=("unregister-unreported",), builds_on=RESERVING
)
def test_the_end_of_the_registration_of_the_holder_is_reported_to_the_registrants(unreserved, kind):
    a, b = unreserved
    if reports_no_release(a):
        pytest.skip("NUAR is 1")
    reserved(a, kind)
    assert b.register(KEY_B).good
    b.clear_attentions()
    answer = a.register(0, key=KEY_A)
    assert answer.good, answer
    after = b.test_unit_ready()
    assert after.check(SenseKey.UNIT_ATTENTION, Asc.RESERVATIONS_RELEASED), (
        f"{after}: the holder of a reservation of type {kind:d} has ended its registration"
    )


@pytest.mark.case(
    "SCS-PR-RELEASE-NONE", section="SPC-4 RELEASE", kills=("release-none-conflict",), builds_on=("SCS-PR-36",)
)
def test_a_release_without_a_reservation_is_good(unreserved):
    a, _ = unreserved
    assert a.register(KEY_A).good
    for kind in (PrType.WRITE_EXCLUSIVE, PrType.EXCLUSIVE_ACCESS_REGISTRANTS_ONLY):
        claim(a.release(kind, KEY_A), allowed=True)
    assert not a.reservation().held


@pytest.mark.parametrize("action", [
    pytest.param(PrOut.REGISTER, marks=pytest.mark.case("SCS-PR-ZERO-REGISTER")),
    pytest.param(PrOut.REGISTER_AND_IGNORE_EXISTING_KEY, marks=pytest.mark.case("SCS-PR-ZERO-IGNORE")),
])  # fmt: skip
@pytest.mark.case(section="SPC-4 REGISTER", kills=("register-none-conflict",), builds_on=("SCS-PR-36",))
def test_a_nexus_that_is_not_registered_may_unregister(unreserved, action):
    a, b = unreserved
    assert a.register(KEY_A).good
    claim(b.reserve_out(action), allowed=True)
    assert a.keys().keys == (KEY_A,), "the keys have changed"


@pytest.mark.case(
    "SCS-PR-TYPE-UNLISTED", section="SPC-4 REPORT CAPABILITIES", kills=("capabilities-lack-type",),
    builds_on=(*RESERVING, "SCS-PR-26"),
)  # fmt: skip
def test_a_type_that_the_mask_lacks_is_not_reserved(unreserved):
    a, _ = unreserved
    seen = decode_capabilities(a.reserve_in(PrIn.REPORT_CAPABILITIES).data)
    if seen.types is None:
        pytest.skip("TMV is 0: the mask is not valid")
    assert a.register(KEY_A).good
    for kind in set(PrType) - set(seen.types):
        answer = a.reserve_out(PrOut.RESERVE, key=KEY_A, type=kind)
        assert not answer.good, f"{answer}: the mask of REPORT CAPABILITIES lacks type {kind:d}"


@pytest.mark.case(
    "SCS-PR-SYNC-16", section="SPC-4 allowed commands", kills=("reservation-sync-16",), builds_on=RESERVING
)
def test_under_exclusive_access_a_long_synchronize_cache_of_others_is_a_conflict(unreserved):
    a, b = unreserved
    reserved(a, PrType.EXCLUSIVE_ACCESS)
    claim(offered(b.run(c.SYNCHRONIZE_CACHE_16)), allowed=False)


@pytest.mark.exclusive  # the unit serves no other client while it is stopped
@pytest.mark.case(
    "SCS-PR-STOP", section="SBC-3 reservations, START STOP UNIT",
    no_mutant_reason="LIO has no stop", builds_on=RESERVING,
)  # fmt: skip
def test_a_reservation_of_another_nexus_excludes_a_stop(unreserved):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    answer = b.run(c.START_STOP_UNIT, start=0)
    if answer.good:
        a.run(c.START_STOP_UNIT, start=1)
    if absent(answer):
        pytest.skip(f"not supported: {answer}")
    claim(answer, allowed=False)


@pytest.mark.case(
    "SCS-R6-EACH", section="SPC-2 RESERVE(6)", kills=("reserve6-read",), builds_on=("SCS-R6-01",)
)
def test_a_reservation_of_reserve_6_excludes_each_command_on_blocks(not_reserved, scratch):
    """Those that the unit has: SPC-2 has a reservation for the whole unit, for reads and writes."""
    a, b = not_reserved
    old, new = scratch.pattern(1, seed=223), scratch.pattern(1, seed=224)
    assert a.write(scratch.lba, old).good
    reserve_6(a)
    try:
        for command, fields in on_blocks(scratch.lba, new).values():
            answer = b.run(command, **fields)
            assert answer.conflict or absent(answer), f"{answer}; RESERVE(6) of another nexus excludes it"
        held = a.read(scratch.lba)
        assert held.data == old, f"{held}: commands that ended in a conflict changed the block"
    finally:
        a.run(c.RELEASE_6)


@pytest.mark.case(
    "SCS-R6-ABOUT", section="SPC-2 RESERVE(6)", level="SHOULD", kills=("reserve6-mode",),
    builds_on=("SCS-R6-01",),
)  # fmt: skip
def test_a_reservation_of_reserve_6_excludes_mode_sense_and_persistent_reservations(not_reserved):
    a, b = not_reserved
    reserve_6(a)
    try:
        for command, fields in ABOUT.values():
            answer = b.run(command, **fields)
            assert answer.conflict or absent(answer), f"{answer}; RESERVE(6) of another nexus excludes it"
        answer = b.register(KEY_B)
        assert answer.conflict or absent(answer), f"{answer}; RESERVE(6) of another nexus excludes it"
    finally:
        b.register(0, key=KEY_B)
        a.run(c.RELEASE_6)


@pytest.mark.case(
    "SCS-R6-AGAIN", section="SPC-2 RESERVE(6)", kills=("reserve6-again-refused",), builds_on=("SCS-R6-01",)
)
def test_the_holder_may_reserve_again_and_releases_once(not_reserved, scratch):
    a, b = not_reserved
    reserve_6(a)
    try:
        claim(a.run(c.RESERVE_6), allowed=True)
        claim(b.write(scratch.lba, scratch.pattern(1)), allowed=False)
    finally:
        a.run(c.RELEASE_6)
    claim(b.write(scratch.lba, scratch.pattern(1)), allowed=True)
