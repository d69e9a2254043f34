"""INQUIRY, VPD pages, capacity, logical unit numbers, mode pages, sense data (SPC-4, SBC-3)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.iscsi.look import vpd_page
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.data import (
    decode_block_limits,
    decode_capacity10,
    decode_capacity16,
    decode_designators,
    decode_inquiry,
    decode_luns,
    decode_mode6,
)
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.sense import decode_sense

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SPC-4 INQUIRY", level="MUST")]


LONGEST = {c.MODE_SENSE_6: 0xFF, c.MODE_SENSE_10: 0xFFFF}
"""The largest allocation length of MODE SENSE (SPC-4, MODE SENSE)."""


def invalid_field(answer) -> bool:
    """Return whether a command ended with INVALID FIELD IN CDB."""
    return answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)


def mode_sense(unit, command, page: int = 0x3F, *, control: int = 0, dbd: int = 1) -> ScsiResult:
    """MODE SENSE of all pages, or of one, with the largest allocation length; skip if it is not supported."""
    length = LONGEST[command]
    result: ScsiResult = unit.run(
        command, read=length, page=page, page_control=control, dbd=dbd, allocation=length
    )
    return offered(result)


@pytest.mark.case("SCS-INQ-01", kills=("inquiry-type",))
def test_standard_inquiry_data_are_those_of_a_connected_disk(unit):
    data = decode_inquiry(unit.inquiry().data)
    assert (data.qualifier, data.device_type) == (0, 0)
    assert data.response_format == 2
    assert data.version >= 4, "SPC-2 or later"


@pytest.mark.case("SCS-INQ-02", kills=("inquiry-length",))
def test_additional_length_is_the_length_of_the_data(unit):
    data = decode_inquiry(unit.inquiry().data)
    assert data.length == data.additional_length + 5


@pytest.mark.case("SCS-INQ-03", kills=("inquiry-truncation",))
def test_a_short_allocation_cuts_the_data_and_changes_nothing_else(unit):
    whole = unit.inquiry().data
    for allocation in (5, 16, 36):
        answer = unit.inquiry(allocation=allocation)
        assert answer.good, answer
        assert answer.data == whole[:allocation]


@pytest.mark.case("SCS-INQ-04", kills=("inquiry-zero-refused",))
def test_an_allocation_of_zero_is_no_error(unit):
    answer = unit.run(c.INQUIRY, allocation=0)
    assert answer.good, answer
    assert answer.data == b""


@pytest.mark.case("SCS-INQ-05", kills=("inquiry-page-accepted",))
def test_a_page_code_without_evpd_is_an_invalid_field(unit):
    answer = unit.run(c.INQUIRY, read=96, page=0x83, allocation=96)
    assert invalid_field(answer), answer


@pytest.mark.case("SCS-INQ-06", kills=("vpd-page-accepted",))
def test_a_vpd_page_that_is_not_there_is_an_invalid_field(unit, facts):
    absent = next(page for page in range(0xA0, 0xB0) if page not in facts.pages)
    answer = unit.inquiry(absent)
    assert invalid_field(answer), answer


@pytest.mark.case("SCS-INQ-07", section="SPC-4 INQUIRY, vendor and product", kills=("inquiry-ascii",))
def test_vendor_and_product_are_printable_ascii(unit):
    data = decode_inquiry(unit.inquiry().data)
    for text in (data.vendor, data.product, data.revision):
        assert all(" " <= letter <= "~" for letter in text), repr(text)


@pytest.mark.case("SCS-INQ-08", section="SPC-4 INQUIRY, SAM-5 5.14", kills=("attention-on-first-inquiry",))
def test_inquiry_and_report_luns_are_good_as_the_first_commands_of_a_session(connections):
    """A new I_T nexus may have a unit attention, which neither of them reports."""
    for letter, reads in (("a", LogicalUnit.inquiry), ("b", LogicalUnit.luns)):
        unit = LogicalUnit(connections.login(letter, clear=False))
        for answer in (reads(unit), reads(unit)):
            assert answer.good, f"{answer}, as the first command of a session"


@pytest.mark.case("SCS-INQ-09", section="SPC-4 INQUIRY", kills=("vpd-device-type",))
def test_every_page_has_the_qualifier_and_device_type_of_the_standard_data(unit, facts):
    standard = unit.inquiry().data[0]
    for page in sorted(facts.pages):
        answer = unit.inquiry(page)
        assert answer.good, answer
        assert answer.data[0] == standard, (
            f"byte 0 of page {page:02x}h is {answer.data[0]:#04x}, not {standard:#04x}"
        )


@pytest.mark.case(
    "SCS-VPD-10", section="SPC-4 Device Identification", kills=("designator-changes", "serial-per-session")
)
def test_every_page_is_the_same_each_time_and_for_each_initiator(two, facts):
    first = {page: two[0].inquiry(page).data for page in sorted(facts.pages)}
    for unit in (*two, *two):
        for page, data in first.items():
            again = unit.inquiry(page).data
            assert again == data, f"page {page:02x}h: {again.hex()}, and before {data.hex()}"


@pytest.mark.case("SCS-VPD-11", section="SPC-4 INQUIRY", kills=("vpd-page-cut", "vpd-page-padded"))
def test_every_page_is_cut_to_each_allocation_length(unit, facts):
    for page in sorted(facts.pages):
        whole = unit.inquiry(page, allocation=0xFFFF).data
        length = 4 + int.from_bytes(whole[2:4], "big")
        assert len(whole) == min(length, 0xFFFF), (
            f"page {page:02X}h: {len(whole)} bytes came; PAGE LENGTH states {length}, and no more may come"
        )
        for allocation in (4, 5, 12, length - 1, length, length + 1):
            answer = unit.inquiry(page, allocation=allocation)
            assert answer.good, answer
            assert answer.data == whole[:allocation], (
                f"{answer}: {len(answer.data)} bytes, which are not the first of the {len(whole)} of the page"
            )


@pytest.mark.case("SCS-VPD-01", section="SPC-4 Supported VPD Pages", kills=("vpd-order",))
def test_the_list_of_vpd_pages_is_ascending_and_begins_with_itself(unit):
    pages = list(vpd_page(unit, 0x00).body)
    assert pages[0] == 0x00
    assert pages == sorted(set(pages))


@pytest.mark.case("SCS-VPD-02", section="SPC-4 Supported VPD Pages", kills=("vpd-code",))
def test_every_listed_vpd_page_is_there_and_carries_its_code(unit, facts):
    for page in sorted(facts.pages):
        assert vpd_page(unit, page).code == page


@pytest.mark.case("SCS-VPD-03", section="SPC-4 Device Identification", kills=("designators-missing",))
def test_the_mandatory_pages_are_listed(facts):
    assert {0x00, 0x83} <= facts.pages


@pytest.mark.case("SCS-VPD-04", section="SPC-4 Device Identification", kills=("designators-missing",))
def test_the_unit_has_a_name_that_is_unique_in_the_world(unit):
    """A UUID names a logical unit since SPC-5."""
    kinds = {found.kind for found in decode_designators(vpd_page(unit, 0x83)) if found.association == 0}
    assert kinds & {1, 2, 3, 8, 10}, (
        "no T10 vendor, EUI-64, NAA, SCSI name or UUID designator for the logical unit"
    )


@pytest.mark.case("SCS-VPD-05", section="SPC-4 Device Identification", kills=("naa-length",))
def test_each_naa_designator_has_the_length_of_its_format(unit):
    for designator in decode_designators(vpd_page(unit, 0x83)):
        data = designator.data
        if designator.kind == 3:
            assert len(data) == (16 if data[0] >> 4 == 6 else 8), data.hex()


@pytest.mark.case("SCS-VPD-06", section="SPC-4 INQUIRY", kills=("vpd-truncation",))
def test_a_short_allocation_cuts_a_vpd_page_but_not_its_length(unit):
    whole = unit.inquiry(0x83).data
    cut = unit.inquiry(0x83, allocation=8)
    assert cut.good, cut
    assert cut.data == whole[:8]


@pytest.mark.case("SCS-VPD-07", section="SBC-3 Block Limits", kills=("block-limits-length",))
def test_the_block_limits_page_has_its_length(unit, facts):
    if 0xB0 not in facts.pages:
        pytest.skip("no Block Limits page")
    page = vpd_page(unit, 0xB0)
    assert len(page.body) in (0x0C, 0x3C)
    decode_block_limits(page)


@pytest.mark.case("SCS-VPD-09", section="SPC-4 Unit Serial Number", kills=("serial-binary",))
def test_the_serial_number_is_printable(unit, facts):
    if 0x80 not in facts.pages:
        pytest.skip("no Unit Serial Number page")
    assert all(0x20 <= byte <= 0x7E for byte in vpd_page(unit, 0x80).body.strip(b"\0"))


@pytest.mark.case("SCS-CAP-01", section="SBC-3 READ CAPACITY", kills=("capacity-mismatch",))
def test_both_read_capacity_commands_agree(unit):
    short = decode_capacity10(unit.run(c.READ_CAPACITY_10, read=8).data)
    long = decode_capacity16(unit.capacity16().data)
    assert short.block_size == long.block_size
    assert short.last_lba == min(long.last_lba, 0xFFFFFFFF)


@pytest.mark.case("SCS-CAP-02", section="SBC-3 READ CAPACITY (16)", kills=("capacity-truncation",))
def test_read_capacity_16_is_cut_to_its_allocation(unit):
    whole = unit.capacity16().data
    cut = unit.capacity16(allocation=12)
    assert cut.good, cut
    assert cut.data == whole[:12]


@pytest.mark.case(
    "SCS-CAP-06", section="SBC-3 READ CAPACITY (16)", kills=("capacity-alignment",), builds_on=("SCS-CAP-01",)
)
def test_the_lowest_aligned_block_is_in_the_first_physical_block(unit):
    answer = unit.capacity16()
    assert answer.good, answer
    exponent = answer.data[13] & 0x0F
    lowest = int.from_bytes(answer.data[14:16], "big") & 0x3FFF
    assert lowest < 1 << exponent, (
        f"a physical block has {1 << exponent} logical blocks; the lowest aligned block is {lowest}"
    )


@pytest.mark.case("SCS-CAP-03", section="SBC-3 READ CAPACITY (10)", kills=("capacity-lba-empty",))
def test_an_lba_without_pmi_is_refused_or_changes_nothing(unit, observe):
    """SBC-2 refuses it; since SBC-3 both fields are obsolete, and a unit may ignore them."""
    answer = unit.run(c.READ_CAPACITY_10, read=8, lba=5)
    observe(str(answer))
    if not invalid_field(answer):
        whole = unit.run(c.READ_CAPACITY_10, read=8)
        assert answer.good_data() == whole.good_data(), (
            f"{answer} with {answer.data.hex()}; without an LBA it returns {whole.data.hex()}"
        )


@pytest.mark.case("SCS-CAP-04", section="SBC-3 READ CAPACITY (16)", kills=("capacity-any-action",))
def test_a_service_action_that_is_not_defined_is_refused(session):
    for action in (0x00, 0x01, 0x0F, 0x1F):
        block = bytes((0x9E, action, *bytes(8), 0, 0, 0, 32, 0, 0))
        answer = LogicalUnit.result(
            session.command(block, read=32), f"SERVICE ACTION IN(16), action {action:02x}h"
        )
        refused = (Asc.INVALID_FIELD_IN_CDB, Asc.INVALID_COMMAND_OPERATION_CODE)
        assert answer.check(SenseKey.ILLEGAL_REQUEST, *refused), answer
        assert answer.data == b"", f"{answer}, with {len(answer.data)} bytes"


@pytest.mark.case("SCS-LUN-01", section="SPC-4 REPORT LUNS", kills=("lun-not-reported",))
def test_report_luns_lists_the_unit(unit, session):
    assert session.lun in decode_luns(unit.luns().data)


@pytest.mark.case("SCS-LUN-02", section="SPC-4 REPORT LUNS", kills=("lun-list-length",))
def test_the_lun_list_length_is_that_of_the_whole_list_even_where_it_is_cut(unit):
    size = 8 + int.from_bytes(unit.luns(allocation=16).data[:4], "big")
    whole, cut = unit.luns(allocation=size + 100).data, unit.luns(allocation=16).data
    assert len(whole) == size, f"LUN LIST LENGTH is {size - 8}; the list has {len(whole) - 8} bytes"
    assert cut == whole[:16]


@pytest.mark.case("SCS-LUN-03", section="SPC-4 REPORT LUNS", kills=("lun-not-reported",))
def test_report_luns_to_lun_0_is_answered(session):
    done = session.command(c.cdb(c.REPORT_LUNS, allocation=4096), read=4096, lun=0)
    assert done.status == 0
    assert session.lun in decode_luns(done.data)


@pytest.mark.case("SCS-LUN-04", section="SPC-4 REPORT LUNS", kills=("report-luns-long",))
def test_an_allocation_under_16_bytes_cuts_the_list_or_is_an_invalid_field(unit, observe):
    answer = unit.luns(allocation=8)
    observe("cut" if answer.good else "INVALID FIELD IN CDB, as SPC had it")
    assert invalid_field(answer) or (answer.good and len(answer.data) == 8), answer


@pytest.mark.case(
    "SCS-LUN-05", section="SPC-4 REPORT LUNS, reserved", no_mutant_reason="LIO breaks this rule itself"
)
def test_a_select_report_that_is_reserved_is_an_invalid_field(unit, observe):
    answer = unit.luns(select=0x7F)
    observe(str(answer))
    assert invalid_field(answer), answer


@pytest.mark.case("SCS-MODE-01", section="SPC-4 MODE SENSE(6)", kills=("mode-length",))
def test_mode_sense_reports_the_length_of_its_data(unit):
    answer = mode_sense(unit, c.MODE_SENSE_6, dbd=0)
    assert answer.good, answer
    assert len(answer.data) == min(answer.data[0] + 1, LONGEST[c.MODE_SENSE_6])


@pytest.mark.case(
    "SCS-MODE-02", section="SPC-4 MODE SENSE, Caching and Control pages", kills=("mode-page-differs",)
)
def test_all_pages_include_the_caching_page_which_one_can_ask_for_alone(unit):
    every, alone = (
        offered(unit.run(c.MODE_SENSE_6, read=255, page=page, allocation=255)) for page in (0x3F, 0x08)
    )
    assert every.good, f"MODE SENSE of all pages: {every}"
    if 0x08 not in decode_mode6(every.data) and alone.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip("no Caching mode page")
    assert alone.good, f"MODE SENSE of the Caching page: {alone}"
    caching = [decode_mode6(answer.data).get(0x08) for answer in (every, alone)]
    assert caching[1], "MODE SENSE of the Caching page returned another page"
    assert caching[0] == caching[1], f"the Caching page among all is {caching[0]!r}, and alone {caching[1]!r}"


@pytest.mark.case("SCS-MODE-03", section="SPC-4 MODE SENSE", kills=("mode-page-accepted",))
def test_a_mode_page_that_is_not_there_is_an_invalid_field(unit):
    answer = offered(unit.run(c.MODE_SENSE_6, read=255, page=c.NO_MODE_PAGE, allocation=255))
    assert invalid_field(answer), answer


@pytest.mark.case("SCS-MODE-04", section="SPC-4 MODE SENSE(10)", kills=("mode10-length",))
def test_mode_sense_10_has_the_same_pages(unit):
    answer = mode_sense(unit, c.MODE_SENSE_10)
    assert answer.good, answer
    assert len(answer.data) == min(int.from_bytes(answer.data[:2], "big") + 2, LONGEST[c.MODE_SENSE_10])


def mode_pages(data: bytes, *, ten: bool) -> list[tuple[int, bytes]]:
    """Return the pages of MODE SENSE data in their order, with headers; a sub-page has a code over 63.

    Pages end with the data that the header announces, with a page that the allocation length cuts, and
    before page 00h, which comes last and has a vendor's own format.
    """
    size = int.from_bytes(data[:2], "big") + 2 if ten else data[0] + 1
    start = 8 + int.from_bytes(data[6:8], "big") if ten else 4 + data[3]
    rest, cut = data[start:size], size > len(data)
    pages = []
    while rest and rest[0] & 0x3F:
        sub = bool(rest[0] & 0x40)
        header = rest.ljust(4, b"\0")
        length = 4 + int.from_bytes(header[2:4], "big") if sub else 2 + header[1]
        if cut and len(rest) < length:
            break
        assert len(rest) >= length, f"a mode page of {length} bytes in {len(rest)}: {rest.hex()}"
        pages.append((rest[0] & 0x3F | (rest[1] << 8 if sub else 0), rest[:length]))
        rest = rest[length:]
    return pages


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            c.MODE_SENSE_6,
            marks=pytest.mark.case("SCS-MODE-05", kills=("mode-page-code",), builds_on=("SCS-MODE-01",)),
        ),
        pytest.param(
            c.MODE_SENSE_10,
            marks=pytest.mark.case("SCS-MODE-06", kills=("mode10-page-code",), builds_on=("SCS-MODE-04",)),
        ),
    ],
)
@pytest.mark.case(section="SPC-4 MODE SENSE, mode pages", level="MUST")
def test_each_mode_page_alone_has_its_code_and_is_as_among_all(unit, command):
    ten = command is c.MODE_SENSE_10
    every = mode_sense(unit, command)
    assert every.good, every
    pages = mode_pages(every.data, ten=ten)
    if not pages:
        pytest.skip("no mode page but those of the vendor's own format")
    for code, page in pages:
        if code > 0x3F:
            continue
        alone = mode_sense(unit, command, code)
        assert alone.good, alone
        assert mode_pages(alone.data, ten=ten) == [(code, page)], (
            f"{alone}: {alone.data.hex()}; among all pages it is {page.hex()}"
        )


@pytest.mark.case("SCS-MODE-07", section="SPC-4 MODE SENSE, DBD", kills=("mode-dbd-ignored",))
def test_dbd_leaves_the_block_descriptor_out(unit):
    for command, at in ((c.MODE_SENSE_6, slice(3, 4)), (c.MODE_SENSE_10, slice(6, 8))):
        answer = offered(unit.run(command, read=255, page=0x3F, dbd=1, allocation=255))
        assert answer.good, answer
        length = int.from_bytes(answer.data[at], "big")
        assert length == 0, f"{answer}: BLOCK DESCRIPTOR LENGTH is {length}, although DBD is 1"


@pytest.mark.case(
    "SCS-MODE-08", section="SBC-3 mode parameter block descriptors", kills=("mode-block-length",)
)
def test_a_block_descriptor_has_the_block_length_of_the_unit(unit, facts):
    answer = offered(unit.run(c.MODE_SENSE_6, read=255, page=0x3F, allocation=255))
    assert answer.good, answer
    if answer.data[3] != 8:
        pytest.skip(f"BLOCK DESCRIPTOR LENGTH is {answer.data[3]}: no short block descriptor")
    length = int.from_bytes(answer.data[9:12], "big")
    assert length == facts.capacity.block_size, (
        f"LOGICAL BLOCK LENGTH {length}, READ CAPACITY {facts.capacity.block_size}"
    )


@pytest.mark.case(
    "SCS-MODE-09",
    section="SPC-4 MODE SENSE, PC",
    kills=("mode-changeable-differs",),
    builds_on=("SCS-MODE-01",),
)
def test_changeable_and_default_values_have_the_pages_of_the_current_ones(unit):
    current = mode_sense(unit, c.MODE_SENSE_6)
    assert current.good, current
    shape = [(code, len(page)) for code, page in mode_pages(current.data, ten=False)]
    for control in (1, 2):
        answer = mode_sense(unit, c.MODE_SENSE_6, control=control)
        if answer.check(SenseKey.ILLEGAL_REQUEST):
            continue
        assert answer.good, answer
        found = [(code, len(page)) for code, page in mode_pages(answer.data, ten=False)]
        assert found == shape, f"{answer}: pages and lengths {found}; those of the current values are {shape}"


@pytest.mark.case(
    "SCS-MODE-10", section="SPC-4 MODE SENSE", kills=("mode-cut",), builds_on=("SCS-MODE-01", "SCS-MODE-04")
)
def test_mode_sense_is_cut_to_its_allocation_length(unit):
    for command in (c.MODE_SENSE_6, c.MODE_SENSE_10):
        whole = mode_sense(unit, command, dbd=0).data
        for allocation in (3, 8, 12, len(whole) - 1):
            answer = unit.run(command, read=allocation, page=0x3F, allocation=allocation)
            assert answer.good, answer
            assert answer.data == whole[:allocation], (
                f"{answer}: {answer.data.hex()}; the whole is {whole.hex()}"
            )


@pytest.mark.case("SCS-SENSE-05", section="SPC-4 sense data", kills=("sense-deferred",))
def test_sense_data_of_a_failed_command_are_those_of_a_current_error(unit, facts, session):
    for answer in (
        LogicalUnit.result(session.command(c.NO_COMMAND), "operation code 6Bh"),
        unit.read(facts.capacity.blocks),
        unit.inquiry(0xAB),
    ):
        assert answer.sense is not None, answer
        assert not answer.sense.deferred, f"{answer}: a deferred error; the command itself is wrong"


@pytest.mark.case(
    "SCS-SENSE-06",
    section="SPC-4 Control mode page, D_SENSE",
    kills=("sense-other-format",),
    builds_on=("SCS-MODE-01",),
)
def test_sense_data_have_the_format_of_d_sense(session, unit):
    answer = mode_sense(unit, c.MODE_SENSE_6, 0x0A)
    pages = dict(mode_pages(answer.data, ten=False)) if answer.good else {}
    if 0x0A not in pages or len(pages[0x0A]) < 3:
        pytest.skip(f"no Control mode page: {answer}")
    descriptor = bool(pages[0x0A][2] & 0x04)
    sense = decode_sense(session.command(c.NO_COMMAND).sense)
    assert sense.descriptor == descriptor, (
        f"D_SENSE is {descriptor:d}; the sense data begin with {'72h' if sense.descriptor else '70h'}"
    )


@pytest.mark.case(
    "SCS-SENSE-07",
    section="SAM-5 5.13, SPC-4 REQUEST SENSE",
    kills=("sense-again",),
    builds_on=("SCS-SENSE-03",),
)
def test_sense_data_that_came_with_the_status_are_not_returned_again(unit, facts):
    for failed in (unit.read(facts.capacity.blocks), unit.inquiry(0xAB)):
        assert failed.check(SenseKey.ILLEGAL_REQUEST), failed
        answer = unit.run(c.REQUEST_SENSE, read=252, allocation=252)
        assert answer.good, answer
        sense = decode_sense(answer.data)
        assert sense.key != SenseKey.ILLEGAL_REQUEST, (
            f"REQUEST SENSE: {sense}, which came with the status of: {failed}"
        )


@pytest.mark.case("SCS-SENSE-01", section="SPC-4 sense data, SAM-5 5.13", kills=("sense-lost",))
def test_check_condition_comes_with_its_sense_data(session):
    done = session.command(c.NO_COMMAND)
    assert done.status == 2
    assert done.sense, "CHECK CONDITION without sense data"
    sense = decode_sense(done.sense)
    assert (sense.key, sense.asc) == (SenseKey.ILLEGAL_REQUEST, Asc.INVALID_COMMAND_OPERATION_CODE), sense


@pytest.mark.case("SCS-SENSE-02", section="RFC 7143 11.4.7.2", kills=("sense-length",))
def test_sense_length_is_the_length_of_the_sense_data(session):
    session.command(c.NO_COMMAND)
    data = session.frames[-1].pdu.data
    assert 8 <= int.from_bytes(data[:2], "big") <= len(data) - 2


@pytest.mark.case("SCS-SENSE-03", section="SPC-4 REQUEST SENSE", kills=("request-sense",))
def test_request_sense_with_nothing_pending_returns_no_sense(unit):
    answer = unit.run(c.REQUEST_SENSE, read=252, allocation=252)
    assert answer.good, answer
    assert decode_sense(answer.data).key == SenseKey.NO_SENSE


@pytest.mark.case(
    "SCS-SENSE-04",
    section="SPC-4 REQUEST SENSE",
    kills=("request-sense-hardware",),
    builds_on=("SCS-SENSE-03",),
)
def test_request_sense_can_be_had_in_either_format_or_refuses_the_bit(unit, observe):
    answer = unit.run(c.REQUEST_SENSE, read=252, desc=1, allocation=252)
    if answer.good:
        observe("descriptor" if decode_sense(answer.data).descriptor else "fixed, whatever was asked")
    else:
        assert invalid_field(answer), answer


@pytest.mark.case(
    "SCS-OPS-01",
    section="SPC-4 REPORT SUPPORTED OPERATION CODES",
    no_mutant_reason="the mutants' target does not offer the command: it is skipped there",
)
def test_what_is_reported_as_supported_is_not_an_invalid_operation_code(unit):
    answer = unit.run(c.REPORT_SUPPORTED_OPERATION_CODES, read=4096, allocation=4096)
    if not answer.good:
        pytest.skip(f"not offered: {answer}")
    listed = answer.data[4 : 4 + int.from_bytes(answer.data[:4], "big")]
    codes = {listed[at] for at in range(0, len(listed) - 7, 8)}
    assert {0x00, 0x12, 0xA0} & codes, "TEST UNIT READY, INQUIRY and REPORT LUNS are mandatory"


@pytest.mark.case("SCS-TUR-01", section="SPC-4 TEST UNIT READY", kills=("tur-busy",))
def test_the_unit_is_ready(unit):
    answer = unit.test_unit_ready()
    assert answer.good, answer
