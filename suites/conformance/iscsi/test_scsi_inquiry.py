"""INQUIRY, VPD pages, capacity, logical unit numbers, mode pages, sense data (SPC-4, SBC-3)."""

from __future__ import annotations

import pytest

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
    decode_vpd,
)
from storagetest.wire.scsi.sense import decode_sense

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SPC-4 INQUIRY", level="MUST")]


def invalid_field(answer) -> bool:
    """Return whether a command ended with INVALID FIELD IN CDB."""
    return answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)


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


@pytest.mark.case("SCS-VPD-01", section="SPC-4 Supported VPD Pages", kills=("vpd-order",))
def test_the_list_of_vpd_pages_is_ascending_and_begins_with_itself(unit):
    pages = list(decode_vpd(unit.inquiry(0x00).data).body)
    assert pages[0] == 0x00
    assert pages == sorted(set(pages))


@pytest.mark.case("SCS-VPD-02", section="SPC-4 Supported VPD Pages", kills=("vpd-code",))
def test_every_listed_vpd_page_is_there_and_carries_its_code(unit, facts):
    for page in sorted(facts.pages):
        answer = unit.inquiry(page)
        assert answer.good, answer
        assert decode_vpd(answer.data).code == page


@pytest.mark.case("SCS-VPD-03", section="SPC-4 Device Identification", kills=("designators-missing",))
def test_the_mandatory_pages_are_listed(facts):
    assert {0x00, 0x83} <= facts.pages


@pytest.mark.case("SCS-VPD-04", section="SPC-4 Device Identification", kills=("designators-missing",))
def test_the_unit_has_a_name_that_is_unique_in_the_world(unit):
    kinds = {
        found.kind
        for found in decode_designators(decode_vpd(unit.inquiry(0x83).data))
        if found.association == 0
    }
    assert kinds & {1, 2, 3, 8}, "no T10 vendor, EUI-64, NAA or SCSI name designator for the logical unit"


@pytest.mark.case("SCS-VPD-05", section="SPC-4 Device Identification", kills=("naa-length",))
def test_each_naa_designator_has_the_length_of_its_format(unit):
    for designator in decode_designators(decode_vpd(unit.inquiry(0x83).data)):
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
    page = decode_vpd(unit.inquiry(0xB0).data)
    assert len(page.body) in (0x0C, 0x3C)
    decode_block_limits(page)


@pytest.mark.case(
    "SCS-VPD-08",
    section="SBC-3 Logical Block Provisioning",
    no_mutant_reason="it compares two facts that are asked once, on a connection that no mutant touches",
)
@pytest.mark.usefixtures("unit")
def test_a_thin_unit_reports_it_in_both_fields(facts):
    if facts.provisioning is None:
        pytest.skip("no Logical Block Provisioning page")
    offers = facts.provisioning.unmap or facts.provisioning.write_same_unmap
    assert not offers or facts.capacity.provisioned_thin, "LBPU or LBPWS without LBPME"


@pytest.mark.case("SCS-VPD-09", section="SPC-4 Unit Serial Number", kills=("serial-binary",))
def test_the_serial_number_is_printable(unit, facts):
    if 0x80 not in facts.pages:
        pytest.skip("no Unit Serial Number page")
    assert all(0x20 <= byte <= 0x7E for byte in decode_vpd(unit.inquiry(0x80).data).body.strip(b"\0"))


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


@pytest.mark.case("SCS-CAP-03", section="SBC-3 READ CAPACITY (10)", level="SHOULD", kills=("pmi-accepted",))
def test_an_lba_without_pmi_is_an_invalid_field(unit, observe):
    answer = unit.run(c.READ_CAPACITY_10, read=8, lba=5)
    observe(str(answer))
    assert invalid_field(answer), answer


@pytest.mark.case("SCS-LUN-01", section="SPC-4 REPORT LUNS", kills=("lun-not-reported",))
def test_report_luns_lists_the_unit(unit, session):
    assert session.lun in decode_luns(unit.luns().data)


@pytest.mark.case("SCS-LUN-02", section="SPC-4 REPORT LUNS", kills=("lun-list-length",))
def test_the_lun_list_length_is_that_of_the_whole_list_even_where_it_is_cut(unit):
    whole, cut = unit.luns().data, unit.luns(allocation=16).data
    assert int.from_bytes(whole[:4], "big") == len(whole) - 8
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
    "SCS-LUN-05", section="SPC-4 REPORT LUNS", level="SHOULD", no_mutant_reason="LIO breaks this rule itself"
)
def test_a_select_report_that_is_reserved_is_an_invalid_field(unit, observe):
    answer = unit.luns(select=0x7F)
    observe(str(answer))
    assert invalid_field(answer), answer


@pytest.mark.case("SCS-MODE-01", section="SPC-4 MODE SENSE(6)", kills=("mode-length",))
def test_mode_sense_reports_the_length_of_its_data(unit):
    answer = unit.run(c.MODE_SENSE_6, read=255, page=0x3F, allocation=255)
    assert answer.good, answer
    assert answer.data[0] + 1 == len(answer.data)


@pytest.mark.case(
    "SCS-MODE-02", section="SPC-4 MODE SENSE, Caching and Control pages", kills=("mode-page-differs",)
)
def test_all_pages_include_the_caching_page_which_one_can_ask_for_alone(unit):
    every = decode_mode6(unit.run(c.MODE_SENSE_6, read=255, page=0x3F, allocation=255).data)
    if 0x08 not in every:
        pytest.skip("no Caching mode page")
    alone = decode_mode6(unit.run(c.MODE_SENSE_6, read=255, page=0x08, allocation=255).data)
    assert alone[0x08] == every[0x08]


@pytest.mark.case("SCS-MODE-03", section="SPC-4 MODE SENSE", kills=("mode-page-accepted",))
def test_a_mode_page_that_is_not_there_is_an_invalid_field(unit):
    answer = unit.run(c.MODE_SENSE_6, read=255, page=0x2B, allocation=255)
    assert invalid_field(answer), answer


@pytest.mark.case("SCS-MODE-04", section="SPC-4 MODE SENSE(10)", kills=("mode10-length",))
def test_mode_sense_10_has_the_same_pages(unit):
    answer = unit.run(c.MODE_SENSE_10, read=255, page=0x3F, dbd=1, allocation=255)
    assert answer.good, answer
    assert int.from_bytes(answer.data[:2], "big") + 2 == len(answer.data)


@pytest.mark.case("SCS-SENSE-01", section="SPC-4 sense data, SAM-5 5.13", kills=("sense-lost",))
def test_check_condition_comes_with_its_sense_data(session):
    done = session.command(bytes((0xFF, *bytes(15))))
    assert done.status == 2
    assert done.sense, "CHECK CONDITION without sense data"
    sense = decode_sense(done.sense)
    assert (sense.key, sense.asc) == (SenseKey.ILLEGAL_REQUEST, Asc.INVALID_COMMAND_OPERATION_CODE), sense


@pytest.mark.case("SCS-SENSE-02", section="RFC 7143 11.4.7.2", kills=("sense-length",))
def test_sense_length_is_the_length_of_the_sense_data(session):
    session.command(bytes((0xFF, *bytes(15))))
    data = session.frames[-1].pdu.data
    assert 8 <= int.from_bytes(data[:2], "big") <= len(data) - 2


@pytest.mark.case("SCS-SENSE-03", section="SPC-4 REQUEST SENSE", kills=("request-sense",))
def test_request_sense_with_nothing_pending_returns_no_sense(unit):
    answer = unit.run(c.REQUEST_SENSE, read=252, allocation=252)
    assert answer.good, answer
    assert decode_sense(answer.data).key == SenseKey.NO_SENSE


@pytest.mark.case("SCS-SENSE-04", section="SPC-4 REQUEST SENSE", kills=("request-sense-hardware",))
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
