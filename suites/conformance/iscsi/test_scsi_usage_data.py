"""What REPORT SUPPORTED OPERATION CODES returns for one command (SPC-4): CDB USAGE DATA, SUPPORT, lengths.

CDB USAGE DATA have a bit for each bit of the CDB: 1 if the device server evaluates it. It evaluates each bit
of an address, of a number of blocks and of a length (SCS-HIGH, SCS-COUNT and SCS-ALLOC test that it does).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from storagetest.wire.bitfields import get, put
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import COMMANDS as FORMATS
from storagetest.wire.scsi.codes import PrIn, PrOut, PrType, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import KEY_A, RESERVING, reserved

from .test_scsi_edges import CACHING, CONTROL
from .test_scsi_reported_lengths import listed_commands

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 REPORT SUPPORTED OPERATION CODES, CDB USAGE DATA", level="MUST"),
]

EVALUATED = ("lba_high", "lba", "blocks", "allocation")
"""Fields of a CDB, as :mod:`storagetest.wire.scsi.cdb` names them: addresses and lengths."""
FULL_SUPPORT = (3, 5)
"""SUPPORT: the command is supported, as a standard has it or in the vendor's way."""
LONGEST = 64
"""Allocation length: a CDB of at most 16 bytes, four before it and twelve after it fit (chosen)."""
COMMANDS = {
    "READ-6": (c.READ_6, None),
    "READ-10": (c.READ_10, None),
    "READ-12": (c.READ_12, None),
    "READ-16": (c.READ_16, None),
    "WRITE-6": (c.WRITE_6, None),
    "WRITE-10": (c.WRITE_10, None),
    "WRITE-12": (c.WRITE_12, None),
    "WRITE-16": (c.WRITE_16, None),
    "WVER-10": (c.WRITE_AND_VERIFY_10, None),
    "WVER-12": (c.WRITE_AND_VERIFY_12, None),
    "WVER-16": (c.WRITE_AND_VERIFY_16, None),
    "VERIFY-10": (c.VERIFY_10, None),
    "VERIFY-12": (c.VERIFY_12, None),
    "VERIFY-16": (c.VERIFY_16, None),
    "SAME-10": (c.WRITE_SAME_10, None),
    "SAME-16": (c.WRITE_SAME_16, None),
    "ORWRITE": (c.ORWRITE_16, None),
    "UNMAP": (c.UNMAP, None),
    "LBAS": (c.GET_LBA_STATUS, c.GET_LBA_STATUS.service_action),
    "INQUIRY": (c.INQUIRY, None),
    "SENSE": (c.REQUEST_SENSE, None),
    "MODE-6": (c.MODE_SENSE_6, None),
    "MODE-10": (c.MODE_SENSE_10, None),
    "SELECT-6": (c.MODE_SELECT_6, None),
    "SELECT-10": (c.MODE_SELECT_10, None),
    "LOG": (c.LOG_SENSE, None),
    "LUNS": (c.REPORT_LUNS, None),
    "OPS": (c.REPORT_SUPPORTED_OPERATION_CODES, c.REPORT_SUPPORTED_OPERATION_CODES.service_action),
    "PRIN": (c.PERSISTENT_RESERVE_IN, int(PrIn.READ_KEYS)),
    "PROUT": (c.PERSISTENT_RESERVE_OUT, int(PrOut.REGISTER)),
}
"""Commands and their service actions.

Not those whose range a device server may ignore (SYNCHRONIZE CACHE, PRE-FETCH), nor COMPARE AND WRITE, whose
number of blocks has one bit if MAXIMUM COMPARE AND WRITE LENGTH is 1, nor READ CAPACITY (it is obsolete).
"""
KILLS = {
    "READ-16": ("usage-of-low-address",),
    "WRITE-16": ("usage-of-low-address",),
    "ORWRITE": ("usage-of-low-address",),
    "INQUIRY": ("usage-of-one-byte",),
    "MODE-10": ("usage-of-one-byte",),
    "PRIN": ("usage-of-one-byte",),
}


def one(unit: LogicalUnit, opcode: int, action: int | None, allocation: int = LONGEST) -> ScsiResult:
    """Ask for one command: by its operation code, and by its service action if it has one."""
    return unit.run(
        c.REPORT_SUPPORTED_OPERATION_CODES,
        read=allocation,
        options=1 if action is None else 2,
        requested_opcode=opcode,
        requested_action=action or 0,
        allocation=allocation,
    )


def described(unit: LogicalUnit, opcode: int, action: int | None) -> bytes:
    """Return the data for one command; skip if it is not supported, or REPORT SUPPORTED ... is not."""
    answer = one(unit, opcode, action)
    if answer.unsupported or answer.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"not offered: {answer}")
    data = answer.good_data()
    if data[1] & 7 not in FULL_SUPPORT:
        pytest.skip(f"SUPPORT is {data[1] & 7}")
    return data


def ones(command: c.CommandFormat) -> bytes:
    """Return a CDB of zeroes, with ones in the fields that are addresses and lengths."""
    data = bytes(command.length)
    for place in command.fields:
        if place.name in EVALUATED:
            data = put(data, place, place.mask >> place.shift)
    return data


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"SCS-USAGE-{name}", kills=KILLS.get(name, ("usage-of-operation-code",))))
    for name in COMMANDS
])  # fmt: skip
@pytest.mark.case(builds_on=("SCS-OPS-02",))
def test_usage_data_have_each_bit_of_addresses_and_lengths(unit, name):
    command, action = COMMANDS[name]
    data = described(unit, command.opcode, action)
    usage, wanted = data[4 : 4 + command.length], ones(command)
    missing = [at for at, (found, want) in enumerate(zip(usage, wanted, strict=True)) if want & ~found]
    assert not missing, (
        f"CDB USAGE DATA of {command.name} are {usage.hex(' ')}: bytes {missing} lack bits of the address, "
        f"of the number of blocks or of the length, which are {wanted.hex(' ')}"
    )


RESERVED = {
    "READY": (c.TEST_UNIT_READY, (2, 3, 4)),
    "SENSE": (c.REQUEST_SENSE, (2, 3)),
    "SELECT-6": (c.MODE_SELECT_6, (2, 3)),
    "CAPACITY-10": (c.READ_CAPACITY_10, (6, 7)),
    "SELECT-10": (c.MODE_SELECT_10, (2, 3, 4, 5, 6)),
    "MODE-10": (c.MODE_SENSE_10, (4, 5, 6)),
    "UNMAP": (c.UNMAP, (2, 3, 4, 5)),
    "LUNS": (c.REPORT_LUNS, (3, 4, 5, 10)),
}
"""Commands, and bytes of their CDBs that no version of the standard has a field in."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-USAGE-RESERVED-{name}", kills=("usage-of-all",)))
    for name in RESERVED
])  # fmt: skip
@pytest.mark.case(level="SHOULD", builds_on=("SCS-OPS-02",))
def test_usage_data_have_no_bit_of_a_reserved_byte(unit, name):
    """SHOULD: a device server that refuses a command with such bits evaluates them, in a way."""
    command, reserved = RESERVED[name]
    usage = described(unit, command.opcode, None)[4 : 4 + command.length]
    wrong = [at for at in reserved if usage[at]]
    assert not wrong, f"CDB USAGE DATA of {command.name} are {usage.hex(' ')}: bytes {wrong} are reserved"


@pytest.mark.case(
    "SCS-OPS-UNLISTED",
    section="SPC-4 REPORT SUPPORTED OPERATION CODES, SUPPORT",
    kills=("unlisted-supported",),
    builds_on=("SCS-OPS-03", "SCS-OPS-LISTED"),
)
def test_each_operation_code_that_is_not_listed_is_not_supported_if_it_is_asked_for_alone(unit):
    """Each of the 256: what has SUPPORT 011b or 101b is in the list of all commands."""
    listed = {opcode for opcode, _ in listed_commands(unit)}
    for opcode in range(256):
        answer = one(unit, opcode, None)
        assert opcode == 0 or not answer.unsupported, f"{answer}: it was supported for the list"
        if opcode in listed or not answer.good:
            continue
        support = answer.data[1] & 7
        assert support not in FULL_SUPPORT, (
            f"SUPPORT is {support} for the operation code {opcode:02x}h, which the list of commands lacks: "
            f"{answer.data.hex(' ')}"
        )


@pytest.mark.case(
    "SCS-OPS-CUT-ONE",
    section="SPC-4 allocation length",
    kills=("one-command-cut-refused", "one-command-cut-size"),
    builds_on=("SCS-OPS-02",),
)
def test_what_is_reported_of_one_command_is_cut_to_any_allocation_length(unit):
    """Of zero, within the header, at the CDB, and within it: CDB SIZE stays that of the command."""
    for command, action in (COMMANDS["INQUIRY"], COMMANDS["READ-10"], COMMANDS["OPS"]):
        whole = described(unit, command.opcode, action)
        for allocation in (0, 1, 3, 4, 5, 4 + command.length - 1, 4 + command.length):
            answer = one(unit, command.opcode, action, allocation)
            assert answer.good, f"{answer}; an allocation length of {allocation} is no error"
            assert answer.data == whole[:allocation], (
                f"{answer}: {answer.data.hex(' ')}; the whole of {command.name} is {whole.hex(' ')}"
            )


def each_described(unit: LogicalUnit) -> Iterator[tuple[c.CommandFormat | None, int, int | None, bytes]]:
    """Yield what is described alone of the list: format (None: unknown), code, service action, data."""
    listed = listed_commands(unit)
    for opcode, action in listed:
        answer = one(unit, opcode, action)
        if answer.good and answer.data[1] & 7 in FULL_SUPPORT:
            command = FORMATS.get((opcode, action)) or FORMATS.get((opcode, None))
            yield command, opcode, action, answer.data


@pytest.mark.case(
    "SCS-USAGE-FIRST",
    kills=("usage-of-start-stop-empty", "usage-of-another-command"),
    builds_on=("SCS-OPS-02", "SCS-OPS-03"),
)
def test_usage_data_of_each_listed_command_begin_with_its_operation_code(unit):
    """Of each command of the list, also one that this suite does not know; CDB SIZE is their length."""
    wrong = []
    for _, opcode, action, data in each_described(unit):
        size, usage = int.from_bytes(data[2:4], "big"), data[4:]
        if usage[:1] != bytes([opcode]):
            wrong.append(f"{opcode:02x}h action {action}: usage data {usage[:size].hex(' ')}")
        assert len(usage) >= size, f"{opcode:02x}h action {action}: CDB SIZE is {size}: {data.hex(' ')}"
    assert not wrong, f"the first byte of CDB USAGE DATA is not the operation code of {wrong}"


NOT_WHOLE = ("bytchk", "service_action", "prevent", "power_condition", "requested_action")
"""BYTCHK and PREVENT have bits that some standards lack; a service action is a code there, and no map."""


@pytest.mark.case(
    "SCS-USAGE-WHOLE-FIELD",
    level="SHOULD",
    kills=("usage-of-one-bit", "usage-of-half-a-page-code"),
    builds_on=("SCS-OPS-02", "SCS-OPS-03"),
)
def test_usage_data_have_all_bits_of_a_field_or_none(unit):
    """SHOULD: SPC-4 has a bit for each bit that is evaluated, and a field is evaluated as a whole."""
    wrong = []
    for command, opcode, _, data in each_described(unit):
        if command is None:
            continue
        usage = data[4 : 4 + command.length].ljust(command.length, b"\0")
        for place in command.fields:
            if place.name in NOT_WHOLE or (command is c.COMPARE_AND_WRITE and place.name == "blocks"):
                continue
            found, every = int(get(usage, place)), place.mask >> place.shift
            if found not in (0, every):
                wrong.append(f"{place.name} of {command.name} ({opcode:02x}h): {found:x}h of {every:x}h")
    assert not wrong, f"usage maps have some of the bits of a field, and not all: {wrong}"


# Fields that the device server obeys, as its data show


def asked_twice(
    unit: LogicalUnit, command: c.CommandFormat, first: Mapping[str, int], second: Mapping[str, int]
) -> bool:
    """Run the command with each of two CDBs; return whether both are GOOD, with other data."""
    one_way, other = (
        unit.run(command, read=LONGEST, allocation=LONGEST, **fields) for fields in (first, second)
    )
    return bool(one_way.good and other.good and one_way.data != other.data)


OBEYED: dict[str, tuple[c.CommandFormat, str, Mapping[str, int], Mapping[str, int]]] = {
    "EVPD": (c.INQUIRY, "evpd", {"evpd": 0}, {"evpd": 1}),
    "VPD-PAGE": (c.INQUIRY, "page", {"evpd": 1, "page": 0}, {"evpd": 1, "page": 0x83}),
    "DBD-6": (c.MODE_SENSE_6, "dbd", {"page": CONTROL}, {"page": CONTROL, "dbd": 1}),
    "DBD-10": (c.MODE_SENSE_10, "dbd", {"page": CONTROL}, {"page": CONTROL, "dbd": 1}),
    "PC-6": (c.MODE_SENSE_6, "page_control", {"page": CONTROL}, {"page": CONTROL, "page_control": 1}),
    "PC-10": (c.MODE_SENSE_10, "page_control", {"page": CONTROL}, {"page": CONTROL, "page_control": 1}),
    "MODE-PAGE-6": (c.MODE_SENSE_6, "page", {"page": CONTROL}, {"page": CACHING}),
    "MODE-PAGE-10": (c.MODE_SENSE_10, "page", {"page": CONTROL}, {"page": CACHING}),
    "DESC": (c.REQUEST_SENSE, "desc", {"desc": 0}, {"desc": 1}),
    "OPTIONS": (
        c.REPORT_SUPPORTED_OPERATION_CODES,
        "options",
        {},
        {"options": 1, "requested_opcode": c.INQUIRY.opcode},
    ),
    "CODE": (
        c.REPORT_SUPPORTED_OPERATION_CODES,
        "requested_opcode",
        {"options": 1, "requested_opcode": c.INQUIRY.opcode},
        {"options": 1, "requested_opcode": c.READ_10.opcode},
    ),
    "RCTD": (
        c.REPORT_SUPPORTED_OPERATION_CODES,
        "rctd",
        {"options": 1, "requested_opcode": c.INQUIRY.opcode},
        {"options": 1, "requested_opcode": c.INQUIRY.opcode, "rctd": 1},
    ),
}
"""Command, the name of the field, and two CDBs that differ in the field alone (SELECT REPORT: see SCS-LUN).

With OPTIONS the requested operation code is ignored in the first CDB.
"""
OBEYED_KILLS = {
    "EVPD": ("usage-without-flags",),
    "VPD-PAGE": ("usage-without-page",),
    "DBD-6": ("usage-without-flags",),
    "DBD-10": ("usage-without-flags",),
    "PC-6": ("usage-without-page",),
    "PC-10": ("usage-without-page",),
    "MODE-PAGE-6": ("usage-without-page",),
    "MODE-PAGE-10": ("usage-without-page",),
    "DESC": ("usage-without-flags",),
    "OPTIONS": ("usage-without-page",),
    "CODE": ("usage-without-code",),
    "RCTD": ("usage-without-page",),
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-USAGE-OBEYED-{name}", kills=OBEYED_KILLS[name]))
    for name in OBEYED
])  # fmt: skip
@pytest.mark.case(builds_on=("SCS-OPS-02",))
def test_usage_data_have_the_bits_of_a_field_that_changes_the_data(unit, name):
    """Two CDBs that differ in one field return other data: the device server evaluates the field."""
    command, field, first, second = OBEYED[name]
    usage = described(unit, command.opcode, command.service_action)[4 : 4 + command.length]
    if not asked_twice(unit, command, first, second):
        pytest.skip(f"{command.name} returns the same data with {first} and with {second}, or refuses one")
    place = next(place for place in command.fields if place.name == field)
    assert int(get(usage, place)) == place.mask >> place.shift, (
        f"CDB USAGE DATA of {command.name} are {usage.hex(' ')}: the bits of {field} are not all one, and it "
        f"returns other data with {second} than with {first}"
    )


COMPARES = {"10": c.VERIFY_10, "12": c.VERIFY_12, "16": c.VERIFY_16}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"SCS-USAGE-OBEYED-BYTCHK-{name}", kills=("usage-without-flags",)))
    for name in COMPARES
])  # fmt: skip
@pytest.mark.case(builds_on=("SCS-OPS-02",))
def test_usage_data_of_a_verify_that_compares_have_bytchk(unit, scratch, name):
    """MISCOMPARE with BYTCHK of 01b, and GOOD without it: the lower bit of BYTCHK is evaluated."""
    command = COMPARES[name]
    usage = described(unit, command.opcode, None)[4 : 4 + command.length]
    written = unit.write(scratch.lba, scratch.pattern(1, seed=731))
    assert written.good, written
    other = scratch.pattern(1, seed=732)
    compared = unit.run(command, data=other, bytchk=1, lba=scratch.lba, blocks=1)
    plain = unit.run(command, lba=scratch.lba, blocks=1)
    if not (plain.good and compared.check(SenseKey.MISCOMPARE)):
        pytest.skip(f"no comparison: {plain}; {compared}")
    assert usage[1] & 2, f"CDB USAGE DATA of {command.name} are {usage.hex(' ')}, without BYTCHK; {compared}"


@pytest.mark.case(
    "SCS-USAGE-OBEYED-TYPE", kills=("usage-without-page",), builds_on=(*RESERVING, "SCS-OPS-02")
)
def test_usage_data_of_reserve_have_the_type(unreserved):
    """Two reservations differ in their type, as READ RESERVATION returns it: TYPE is evaluated."""
    a, _ = unreserved
    usage = described(a, c.PERSISTENT_RESERVE_OUT.opcode, int(PrOut.RESERVE))[4:14]
    shown = a.reservation_types() or (PrType.WRITE_EXCLUSIVE, PrType.EXCLUSIVE_ACCESS)
    known = [kind for kind in PrType if kind in shown]
    if len(known) < 2:
        pytest.skip(f"the unit has the reservation types {sorted(shown)}, and two are needed")
    one_type, other = known[0], known[-1]
    reserved(a, one_type)
    first = a.reserve_in(PrIn.READ_RESERVATION).good_data()
    for answer in (a.release(one_type, KEY_A), a.reserve(other, KEY_A)):
        assert answer.good, answer
    if a.reserve_in(PrIn.READ_RESERVATION).good_data() == first:
        pytest.skip("both reservations are reported with one type")
    assert usage[2] & 0x0F == 0x0F, f"CDB USAGE DATA of RESERVE are {usage.hex(' ')}: TYPE is evaluated"
