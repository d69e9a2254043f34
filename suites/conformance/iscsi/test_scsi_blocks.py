"""Reading and writing blocks (SBC-3)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import (
    has_twelve_byte_commands,
    offered,
    require_address,
)
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.data import first_grain

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SBC-3 READ, WRITE", level="MUST")]

PAIRS = [
    pytest.param(c.WRITE_10, c.READ_10, marks=pytest.mark.case("SCS-RW-01", kills=("read-corrupt",))),
    pytest.param(c.WRITE_12, c.READ_12, marks=pytest.mark.case("SCS-RW-02", kills=("read-corrupt",))),
    pytest.param(c.WRITE_16, c.READ_16, marks=pytest.mark.case("SCS-RW-03", kills=("read-corrupt",))),
]


def out_of_range(answer) -> bool:
    """Return whether a command ended with LOGICAL BLOCK ADDRESS OUT OF RANGE."""
    return answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE)


@pytest.mark.parametrize(("write", "read"), PAIRS)
def test_what_is_written_is_read(unit, scratch, write, read):
    if write is c.WRITE_12 and not has_twelve_byte_commands(unit, scratch.lba):
        pytest.skip("READ(12) is not supported")
    data = scratch.pattern(8, seed=write.opcode)
    answer = unit.write(scratch.lba, data, command=write)
    if answer.unsupported and write is c.WRITE_10 and unit.write(scratch.lba, data).good:
        pytest.skip(f"{answer}; WRITE(16) is there")
    assert answer.good, answer
    answer = unit.read(scratch.lba, 8, command=read)
    assert answer.good, answer
    assert answer.data == data


@pytest.mark.case("SCS-RW-04", section="SBC-3 READ(6), WRITE(6)", kills=("read-corrupt",))
def test_six_byte_commands_agree_with_the_others_or_are_not_there(unit, scratch):
    data = scratch.pattern(1, seed=6)
    answer = unit.run(c.WRITE_6, data=data, lba=scratch.lba, blocks=1)
    if answer.unsupported:
        pytest.skip("WRITE(6) is not supported")
    assert answer.good, answer
    assert unit.read(scratch.lba).data == data
    assert unit.run(c.READ_6, read=len(data), lba=scratch.lba, blocks=1).data == data


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(c.READ_10, marks=pytest.mark.case("SCS-RW-05", kills=("lba-range-good",))),
        pytest.param(
            c.READ_16,
            marks=pytest.mark.case("SCS-RW-06", kills=("lba-range-good",), builds_on=("SCS-RW-05",)),
        ),
        pytest.param(
            c.WRITE_10,
            marks=pytest.mark.case("SCS-RW-07", kills=("lba-range-good",), builds_on=("SCS-RW-05",)),
        ),
        pytest.param(
            c.WRITE_16,
            marks=pytest.mark.case("SCS-RW-08", kills=("lba-range-good",), builds_on=("SCS-RW-05",)),
        ),
        pytest.param(
            c.VERIFY_10,
            marks=pytest.mark.case("SCS-RW-09", kills=("lba-range-good",), builds_on=("SCS-RW-05",)),
        ),
        pytest.param(
            c.SYNCHRONIZE_CACHE_10,
            marks=pytest.mark.case("SCS-RW-10", kills=("lba-range-good",), builds_on=("SCS-RW-05",)),
        ),
    ],
)
def test_the_first_block_past_the_end_is_out_of_range(unit, facts, scratch, command):
    past = facts.capacity.blocks
    require_address(command, past)
    reads = facts.capacity.block_size if command.name.startswith("READ") else 0
    data = scratch.pattern(1) if command.name.startswith("WRITE") else b""
    answer = unit.run(command, read=reads, data=data, lba=past, blocks=1)
    if answer.unsupported:
        pytest.skip(f"{command.name} is not supported")
    assert out_of_range(answer), answer


@pytest.mark.case("SCS-RW-11", kills=("lba-range-good",), builds_on=("SCS-RW-05",))
def test_a_read_across_the_end_moves_nothing(unit, facts):
    answer = unit.read(facts.capacity.last_lba, 2)
    assert out_of_range(answer), answer
    assert answer.data == b""


@pytest.mark.case("SCS-RW-12", kills=("lba-range-good",), builds_on=("SCS-RW-05",))
def test_a_write_across_the_end_writes_nothing(unit, facts, scratch):
    before = unit.read(facts.capacity.last_lba).data
    answer = unit.write(facts.capacity.last_lba, scratch.pattern(2, seed=12))
    assert out_of_range(answer), answer
    assert unit.read(facts.capacity.last_lba).data == before


@pytest.mark.case("SCS-RW-13", kills=("read-corrupt",))
def test_the_last_block_can_be_written_and_read(unit, facts, scratch):
    data = scratch.pattern(1, seed=13)
    assert unit.write(facts.capacity.last_lba, data).good
    assert unit.read(facts.capacity.last_lba).data == data


@pytest.mark.parametrize(
    ("write", "read"),
    [
        pytest.param(c.WRITE_10, c.READ_10, marks=pytest.mark.case("SCS-RW-29")),
        pytest.param(c.WRITE_16, c.READ_16, marks=pytest.mark.case("SCS-RW-30")),
    ],
)
@pytest.mark.case(
    section="SBC-3 DPOFUA, READ, WRITE",
    no_mutant_reason="the mutants' target reports DPOFUA 0: it is skipped there",
)
def test_dpo_and_fua_are_accepted_if_dpofua_is_set(unit, scratch, write, read):
    """DPOFUA of the mode parameter header states that DPO and FUA are supported: each, and both together."""
    header = unit.run(c.MODE_SENSE_6, read=255, page=0x3F, dbd=1, allocation=255)
    if not header.good or len(header.data) < 4 or not header.data[2] & 0x10:
        pytest.skip("DPOFUA is 0: DPO and FUA need not be supported")
    for dpo, fua in ((1, 0), (0, 1), (1, 1)):
        data, flags = scratch.pattern(4, seed=dpo + 2 * fua), f"DPO {dpo}, FUA {fua}"
        done = unit.run(write, data=data, lba=scratch.lba, blocks=4, dpo=dpo, fua=fua)
        if done.unsupported and write is c.WRITE_10:
            pytest.skip(f"{done}; SCS-RW-01 tests whether another form is there")
        assert done.good, f"{flags}: {done}"
        done = unit.run(read, read=4 * scratch.block_size, lba=scratch.lba, blocks=4, dpo=dpo, fua=fua)
        assert done.good, f"{flags}: {done}"
        assert done.data == data, f"{flags}: other data are read"


@pytest.mark.case("SCS-RW-15", kills=("lba-range-wrap",), builds_on=("SCS-RW-05",))
def test_an_lba_at_the_very_top_does_not_wrap(unit):
    answer = unit.read(0xFFFFFFFFFFFFFFFF, 2)
    assert out_of_range(answer), answer


@pytest.mark.case("SCS-RW-16", section="SBC-3 caching, FUA", kills=("read-corrupt",))
def test_a_write_with_fua_is_done_and_read_back_with_fua(unit, scratch):
    data = scratch.pattern(4, seed=16)
    answer = unit.write(scratch.lba, data, fua=1)
    if answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
        pytest.skip("FUA is not supported (DPOFUA is 0)")
    assert answer.good, answer
    assert unit.read(scratch.lba, 4, fua=1).data == data


@pytest.mark.case("SCS-RW-17", section="SBC-3 SYNCHRONIZE CACHE", kills=("sync-cache-refused",))
def test_synchronize_cache_of_a_range_and_of_all_is_done(unit, scratch, observe):
    for fields in ({"lba": scratch.lba, "blocks": 8}, {"lba": 0, "blocks": 0}):
        answer = offered(unit.run(c.SYNCHRONIZE_CACHE_10, **fields))
        assert answer.good, answer
    answer = unit.run(c.SYNCHRONIZE_CACHE_10, immed=1)
    observe(f"IMMED: {answer}")
    assert answer.good or answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), answer
    answer = unit.run(c.SYNCHRONIZE_CACHE_16)
    assert answer.good or answer.unsupported, answer


@pytest.mark.case(
    "SCS-RW-18", section="SBC-3 protection information", level="SHOULD", kills=("protect-accepted",)
)
def test_rdprotect_on_a_unit_without_protection_is_an_invalid_field(unit, facts, scratch, observe):
    if facts.capacity.protection:
        pytest.skip("the unit has protection information")
    answer = unit.read(scratch.lba, 1, protect=1)
    observe(str(answer))
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), answer


@pytest.mark.case("SCS-RW-19", kills=("read-corrupt",))
def test_a_large_transfer_in_one_command_is_whole(unit, facts, scratch):
    blocks = min(1024, facts.largest)
    data = scratch.pattern(blocks, seed=19)
    assert unit.write(scratch.lba, data).good
    answer = unit.read(scratch.lba, blocks)
    assert answer.data == data


@pytest.mark.case("SCS-RW-20", kills=("read-corrupt",))
def test_neighbouring_blocks_are_left_alone(unit, scratch):
    assert unit.write(scratch.lba, scratch.pattern(5)).good
    assert unit.write(scratch.lba + 2, scratch.pattern(1, seed=20)).good
    size, first = scratch.block_size, scratch.pattern(5)
    wanted = first[: 2 * size] + scratch.pattern(1, seed=20) + first[3 * size :]
    assert unit.read(scratch.lba, 5).data == wanted


@pytest.mark.case(
    "SCS-RW-21", section="SBC-3 transfer length, Block Limits", no_mutant_reason="LIO breaks this rule itself"
)
@pytest.mark.usefixtures("scratch")
def test_more_blocks_than_the_unit_takes_at_once_are_refused(unit, facts):
    most = facts.limits.max_transfer if facts.limits else 0
    if not most or most * facts.capacity.block_size > 16 * 1024 * 1024:
        pytest.skip(f"MAXIMUM TRANSFER LENGTH is {most}: too much to try")
    answer = unit.read(0, most + 1)
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), answer


@pytest.mark.case("SCS-VERIFY-01", section="SBC-3 VERIFY", kills=("verify-refused",))
def test_verify_of_what_is_there_is_good(unit, scratch):
    scratch.require(4)
    answer = unit.run(c.VERIFY_10, lba=scratch.lba, blocks=4)
    if answer.unsupported:
        pytest.skip("VERIFY(10) is not supported")
    assert answer.good, answer


@pytest.mark.case("SCS-VERIFY-02", section="SBC-3 VERIFY, BYTCHK", kills=("miscompare-good",))
def test_verify_with_bytchk_finds_a_difference(unit, scratch):
    assert unit.write(scratch.lba, scratch.pattern(1)).good
    same = unit.run(c.VERIFY_10, data=scratch.pattern(1), lba=scratch.lba, blocks=1, bytchk=1)
    if same.unsupported or same.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
        pytest.skip(f"BYTCHK is not supported: {same}")
    assert same.good, same
    other = unit.run(c.VERIFY_10, data=scratch.pattern(1, seed=1), lba=scratch.lba, blocks=1, bytchk=1)
    assert other.check(SenseKey.MISCOMPARE), other


@pytest.mark.case("SCS-CAW-01", section="SBC-3 COMPARE AND WRITE", kills=("read-corrupt",))
def test_compare_and_write_writes_where_the_blocks_are_equal(unit, scratch):
    old, new = scratch.pattern(1), scratch.pattern(1, seed=1)
    assert unit.write(scratch.lba, old).good
    answer = unit.compare_and_write(scratch.lba, old, new)
    if answer.unsupported:
        pytest.skip("COMPARE AND WRITE is not supported")
    assert answer.good, answer
    assert unit.read(scratch.lba).data == new


@pytest.mark.case(
    "SCS-CAW-02", section="SBC-3 COMPARE AND WRITE", kills=("miscompare-good", "miscompare-offset")
)
def test_a_miscompare_names_the_first_byte_that_differs_and_writes_nothing(unit, scratch):
    old, new = scratch.pattern(1), scratch.pattern(1, seed=1)
    assert unit.write(scratch.lba, old).good
    wrong = bytearray(old)
    wrong[100] ^= 0xFF
    answer = unit.compare_and_write(scratch.lba, bytes(wrong), new)
    if answer.unsupported:
        pytest.skip("COMPARE AND WRITE is not supported")
    assert answer.check(SenseKey.MISCOMPARE, Asc.MISCOMPARE_DURING_VERIFY), answer
    assert unit.read(scratch.lba).data == old, "written in spite of the miscompare"
    assert answer.sense.information == 100, f"INFORMATION is {answer.sense.information}"


@pytest.mark.case(
    "SCS-CAW-03", section="SBC-3 COMPARE AND WRITE, Block Limits", kills=("caw-length-accepted",)
)
def test_more_blocks_than_the_maximum_compare_and_write_length_are_refused(unit, facts, scratch):
    most = facts.limits.max_compare_and_write if facts.limits else 0
    if not most or most > 64:
        pytest.skip(f"MAXIMUM COMPARE AND WRITE LENGTH is {most}")
    data = scratch.pattern(most + 1)
    answer = unit.compare_and_write(scratch.lba, data, data)
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), answer


@pytest.mark.case("SCS-SAME-01", section="SBC-3 WRITE SAME", kills=("read-corrupt",))
def test_write_same_repeats_one_block(unit, scratch):
    scratch.require(8)
    block = scratch.pattern(1, seed=30)
    answer = unit.run(c.WRITE_SAME_16, data=block, lba=scratch.lba, blocks=8)
    if answer.unsupported:
        pytest.skip("WRITE SAME(16) is not supported")
    assert answer.good, answer
    assert unit.read(scratch.lba, 8).data == block * 8


@pytest.mark.case(
    "SCS-SAME-02", section="SBC-3 WRITE SAME", kills=("lba-range-good",), builds_on=("SCS-RW-05",)
)
def test_write_same_past_the_end_is_out_of_range(unit, facts, scratch):
    answer = unit.run(c.WRITE_SAME_16, data=scratch.pattern(1), lba=facts.capacity.last_lba, blocks=2)
    if answer.unsupported:
        pytest.skip("WRITE SAME(16) is not supported")
    assert out_of_range(answer), answer


@pytest.mark.case(
    "SCS-SAME-03", section="SBC-3 WRITE SAME, Block Limits", kills=("write-same-length-accepted",)
)
def test_write_same_over_its_maximum_is_refused(unit, facts, scratch):
    most = facts.limits.max_write_same if facts.limits else 0
    if not most or most >= facts.capacity.blocks:
        pytest.skip(f"MAXIMUM WRITE SAME LENGTH is {most}")
    answer = unit.run(c.WRITE_SAME_16, data=scratch.pattern(1), lba=0, blocks=most + 1)
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), answer


@pytest.mark.case("SCS-UNMAP-01", section="SBC-3 UNMAP, LBPRZ", kills=("unmap-refused",))
def test_unmapped_blocks_read_as_reported(unit, facts, scratch, observe):
    if facts.provisioning is None or not facts.provisioning.unmap:
        pytest.skip("UNMAP is not supported (LBPU is 0)")
    grain = max(1, facts.limits.unmap_granularity if facts.limits else 1)
    start = first_grain(facts.limits, scratch.lba)
    assert unit.write(start, scratch.pattern(grain)).good
    answer = unit.unmap((start, grain))
    assert answer.good, answer
    data = unit.read(start, grain).data
    observe("zero" if not any(data) else "not zero")
    if facts.provisioning.reads_zero or facts.capacity.reads_zero:
        assert not any(data), "LBPRZ is set, but the data are not zero"


@pytest.mark.case("SCS-UNMAP-02", section="SBC-3 UNMAP", kills=("unmap-refused",))
def test_unmap_of_nothing_is_no_error(unit, facts):
    if facts.provisioning is None or not facts.provisioning.unmap:
        pytest.skip("UNMAP is not supported (LBPU is 0)")
    answer = unit.unmap()
    if answer.check(SenseKey.DATA_PROTECT):
        pytest.skip(f"the unit is write-protected: {answer}")
    assert answer.good, answer
    answer = unit.run(c.UNMAP, allocation=0)
    assert answer.good, answer


@pytest.mark.case("SCS-UNMAP-03", section="SBC-3 UNMAP", kills=("lba-range-good",))
def test_unmap_past_the_end_is_out_of_range(unit, facts, scratch):
    if facts.provisioning is None or not facts.provisioning.unmap:
        pytest.skip("UNMAP is not supported (LBPU is 0)")
    answer = unit.unmap((facts.capacity.last_lba, 2))
    assert out_of_range(answer), answer
    assert scratch.count


@pytest.mark.case("SCS-UNMAP-04", section="SBC-3 UNMAP, Block Limits", kills=("unmap-list-accepted",))
def test_more_descriptors_than_the_unit_takes_are_refused(unit, facts, scratch):
    most = facts.limits.max_unmap_descriptors if facts.limits else 0
    if facts.provisioning is None or not facts.provisioning.unmap or not 0 < most <= 1024:
        pytest.skip(f"UNMAP with MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT {most}")
    answer = unit.unmap(*[(scratch.lba + at, 1) for at in range(most + 1)])
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_PARAMETER_LIST), answer


@pytest.mark.case(
    "SCS-UNMAP-05",
    section="SBC-3 UNMAP, SPC-4 parameter list length",
    kills=("unmap-list-accepted", "sense-list-deferred"),
)
def test_a_parameter_list_shorter_than_its_header_is_refused(unit, facts, scratch):
    if facts.provisioning is None or not facts.provisioning.unmap:
        pytest.skip("UNMAP is not supported (LBPU is 0)")
    answer = unit.run(c.UNMAP, data=bytes(4), allocation=4)
    wanted = (Asc.PARAMETER_LIST_LENGTH_ERROR, Asc.INVALID_FIELD_IN_CDB, Asc.INVALID_FIELD_IN_PARAMETER_LIST)
    assert answer.check(SenseKey.ILLEGAL_REQUEST, *wanted), answer
    assert scratch.count
