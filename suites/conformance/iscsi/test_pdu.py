"""PDUs that are odd or wrong: headers, lengths, opcodes, tags, reserved bits (RFC 7143 7.7, 11)."""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import NO_TAG, Attribute, RejectReason
from storagetest.wire.iscsi.encoding import AHS_BIDIRECTIONAL, Ahs
from storagetest.wire.iscsi.outcomes import ProbeOutcome
from storagetest.wire.iscsi.pdu import (
    NopIn,
    NopOut,
    Reject,
    ScsiCommand,
    ScsiResponse,
    SnackRequest,
    TextRequest,
)
from storagetest.wire.scsi.cdb import INQUIRY, TEST_UNIT_READY, WRITE_10, cdb
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.data import decode_luns
from storagetest.wire.scsi.logical_unit import LogicalUnit

from .absent_unit import absent_lun

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 11.2", level="MUST")]

LIO_DEVIATES = "LIO breaks this rule itself"
NO_CRASH = "a proxy cannot make a target die of it"

READY = cdb(TEST_UNIT_READY).ljust(16, b"\0")
LONGEST_SEGMENT = (1 << 24) - 1
"""DataSegmentLength has 24 bits (RFC 7143 11.2.1.6)."""
REPORTED = {Attribute.ORDERED: 0x02, Attribute.HEAD_OF_QUEUE: 0x04}
"""ORDSUP and HEADSUP of byte 5 of the Extended INQUIRY page (SPC-4)."""


def met(after: ProbeOutcome, observe, *reasons: RejectReason) -> None:
    """Assert that a format error led to a Reject (of one of ``reasons``) or a close (RFC 7143 7.7)."""
    observe(str(after))
    assert after.closed or after.reject, f"neither a Reject nor a close: {after}"
    if after.reject and reasons:
        assert after.reject.reason in reasons, f"Reject with reason {after.reject.reason:#04x}"


@pytest.mark.case("ISC-PDU-01", section="RFC 7143 11", kills=("reserved-checked",))
def test_bits_that_are_not_defined_are_ignored(session):
    command = session.assign_numbers(ScsiCommand(lun=session.lun, cdb=READY))
    session.validator.sent(command)
    session.send_parts(command.parts().override_bytes(2, b"\xff\xff"))
    assert session.expect(ScsiResponse).itt == command.itt


@pytest.mark.parametrize(
    "opcode",
    [
        pytest.param(0x07, marks=pytest.mark.case("ISC-PDU-02", kills=("opcode-ignored",))),
        pytest.param(0x11, marks=pytest.mark.case("ISC-PDU-03", kills=("opcode-ignored",))),
        pytest.param(0x1F, marks=pytest.mark.case("ISC-PDU-04", kills=("opcode-ignored",))),
        pytest.param(0x21, marks=pytest.mark.case("ISC-PDU-05", kills=("opcode-ignored",))),
        pytest.param(0x3F, marks=pytest.mark.case("ISC-PDU-06", kills=("opcode-ignored",))),
    ],
)
# 7.7 leaves the opcode out of what MUST end the connection; Reject has a reason for it (11.17.1).
@pytest.mark.case(section="RFC 7143 11.2.1.2, 11.17.1", level="SHOULD")
def test_an_opcode_that_no_initiator_has_is_rejected_or_ends_the_connection(session, observe, opcode):
    nop = session.assign_numbers(NopOut(immediate=True, itt=0x42))
    session.send_parts(nop.parts().override_fields(opcode=opcode))
    met(session.probe_alive(), observe, RejectReason.COMMAND_NOT_SUPPORTED,
        RejectReason.PROTOCOL_ERROR, RejectReason.INVALID_PDU_FIELD)  # fmt: skip


@pytest.mark.case("ISC-PDU-07", section="RFC 7143 11.17.4", kills=("reject-header-lost",))
def test_a_reject_carries_the_header_of_what_it_rejects(connections, session, observe):
    nop = session.assign_numbers(NopOut(immediate=True, itt=0x43))
    parts = nop.parts().override_fields(opcode=0x07)
    session.send_parts(parts)
    after = session.probe_alive()
    if after.reject is None:  # some close at once on that, but reject an immediate command
        session = connections.login("b")
        parts = session.send(ScsiCommand(lun=session.lun, cdb=READY, immediate=True)).parts()
        after = session.probe_alive()
    observe(str(after))
    if after.reject is None:
        pytest.skip(f"the target does not reject but: {after}")
    assert after.reject.data[:48] == parts.bhs
    assert after.reject.itt == NO_TAG


@pytest.mark.case(
    "ISC-PDU-REJECTS", section="RFC 7143 11.17.4", kills=("reject-first-header",), builds_on=("ISC-PDU-07",)
)
def test_each_reject_of_a_session_carries_its_own_header(session, observe):
    """Requests that a target may reject, each with fields of its own; a target may also close at one."""
    rejected = 0
    for pdu in (
        *(SnackRequest(kind=0, itt=NO_TAG, beg_run=run, run_length=1) for run in (0, 5)),
        *(TextRequest(immediate=True, itt=tag, ttt=tag + 1, data=b"X-a=1\0") for tag in (0x151, 0x52)),
        *(ScsiCommand(immediate=True, itt=tag, lun=session.lun, cdb=READY) for tag in (0x53, 0x154)),
    ):
        parts = session.assign_numbers(pdu).parts()
        session.send_parts(parts)
        after = session.probe_alive()
        if after.reject is not None:
            rejected += 1
            assert after.reject.data[:48] == parts.bhs, (
                f"Reject {rejected} has {after.reject.data[:48].hex()}, not the header of its PDU"
            )
        if after.closed or after.unresponsive:
            break
    observe(f"{rejected} rejects")
    if rejected < 2:
        pytest.skip(f"the target rejects {rejected} requests of a session, and not two")


@pytest.mark.case(
    "ISC-PDU-33",
    section="RFC 7143 11.17, 11.17.1",
    kills=("reject-reason-reserved", "reject-tag", "reject-reserved"),
)
def test_every_reject_has_a_defined_reason(connections, observe):
    """Each provocation has a session of its own: the target may end it instead."""
    defined = set(RejectReason) - {RejectReason.RESERVED}
    rejects = []
    for letter, pdu, overrides in (
        ("a", NopOut(immediate=True, itt=0x43), {"opcode": 0x07}),
        ("b", SnackRequest(kind=0, itt=NO_TAG, run_length=1), {}),
        ("c", TextRequest(ttt=0x1234, data=b"X-a=1\0"), {}),
        ("d", ScsiCommand(itt=0x44, cdb=READY, immediate=True), {}),
        ("e", NopOut(immediate=True, itt=0x45, ttt=0x1234), {}),
    ):
        session = connections.login(letter)
        session.send(pdu, overrides=overrides)
        after = session.probe_alive()
        rejects += [pdu for pdu in after.pdus if isinstance(pdu, Reject)]
    observe(f"{len(rejects)} Rejects, of reasons {sorted({pdu.reason for pdu in rejects})}")
    if not rejects:
        pytest.skip("the target rejects none of them")
    for pdu in rejects:
        assert pdu.reason in defined, f"{pdu.summary()}: the reason is reserved"
        assert pdu.itt == NO_TAG, f"{pdu.summary()}: its task tag is not the reserved one"


@pytest.mark.case("ISC-PDU-08", section="RFC 7143 11.2.2, 7.7", no_mutant_reason=NO_CRASH)
def test_an_additional_header_of_a_reserved_type_is_survived(session, observe):
    session.send(ScsiCommand(lun=session.lun, cdb=READY, ahs=(Ahs(0x3F, b"\0\0\0\0\0"),)))
    after = session.probe_alive()
    observe(str(after))
    assert after.closed or after.pdus, "the command with the wrong header got no response and no Reject"


@pytest.mark.case("ISC-PDU-09", section="RFC 7143 11.2.2.3, 11.3.5", no_mutant_reason=NO_CRASH)
def test_a_cdb_of_more_than_16_bytes_goes_on_in_an_additional_header(session, observe):
    long = bytes((0x7F, 0, 0, 0, 0, 0, 0, 0x18)) + bytes(8)
    session.send(ScsiCommand(lun=session.lun, cdb=long, ahs=(Ahs(1, b"\0" + bytes(16)),)))
    after = session.probe_alive()
    observe(str(after))
    assert any(isinstance(pdu, ScsiResponse) for pdu in after.pdus) or after.reject, str(after)


@pytest.mark.case("ISC-PDU-10", section="RFC 7143 13.12, 7.10", level="SHOULD", kills=("ping-long-taken",))
def test_a_data_segment_over_the_targets_max_recv_is_refused(session, observe):
    most = session.parameters.max_send
    if most + 4 > LONGEST_SEGMENT:
        pytest.skip(f"MaxRecvDataSegmentLength of the target is {most}: no data segment is longer")
    session.send(NopOut(immediate=True, itt=0x44, data=bytes(most + 4)))
    after = session.probe_alive(reject_decides=True)
    observe(str(after))
    assert not any(isinstance(pdu, NopIn) and pdu.itt == 0x44 for pdu in after.pdus), "it was echoed"
    assert after.closed or after.reject, f"neither a Reject nor a close: {after}"


@pytest.mark.parametrize(
    "request_pdu",
    [
        pytest.param(NopOut(itt=0x47, data=b"12345678"), id="nop",
                     marks=pytest.mark.case("ISC-PDU-29", kills=("reject-then-deaf",))),
        pytest.param(TextRequest(itt=0x48, continues=True, data=b"X-a=1\0\0\0"), id="text",
                     marks=pytest.mark.case("ISC-PDU-30", no_mutant_reason=LIO_DEVIATES)),
    ],
)  # fmt: skip
@pytest.mark.case(section="RFC 7143 7.3, 7.7", level="MUST")
def test_after_a_reject_of_a_pdu_with_data_the_connection_is_in_step(session, observe, request_pdu):
    unknown = isinstance(request_pdu, NopOut)
    session.send(request_pdu, overrides={"opcode": 0x07, "immediate": True} if unknown else {})
    after = session.probe_alive()
    observe(str(after))
    assert not after.unresponsive, f"the target does not respond: {after}"


@pytest.mark.case(
    "ISC-PDU-11", section="RFC 7143 11.2.1.8, 11.17.1", level="SHOULD", no_mutant_reason=LIO_DEVIATES
)
def test_a_task_tag_in_use_does_not_start_a_second_task(connections, scratch, observe):
    session = connections.login(offer={"ImmediateData": "No", "InitialR2T": "Yes"})
    size = scratch.block_size
    block = cdb(WRITE_10, lba=scratch.lba, blocks=1)
    first = session.start(block, write=size)
    session.receive()  # its R2T: the task is outstanding
    session.send(ScsiCommand(itt=first.itt, lun=session.lun, cdb=READY))
    after = session.probe_alive()
    observe(str(after))
    good = [pdu for pdu in after.pdus if isinstance(pdu, ScsiResponse) and not pdu.status]
    assert not good, f"two tasks of one tag: {after}"


@pytest.mark.case("ISC-PDU-12", section="RFC 7143 11.2.1.8", level="SHOULD", no_mutant_reason=LIO_DEVIATES)
def test_the_reserved_task_tag_is_not_taken_for_a_command(session, observe):
    session.send_parts(session.numbers.number(ScsiCommand(lun=session.lun, cdb=READY)).parts())
    after = session.probe_alive()
    observe(str(after))
    assert not any(isinstance(pdu, ScsiResponse) and not pdu.status for pdu in after.pdus), str(after)


@pytest.mark.case("ISC-PDU-13", section="RFC 7143 11.1", kills=("coalesced-lost",))
def test_several_pdus_in_one_segment_are_each_answered(session):
    tags, wire = [], b""
    for _ in range(8):
        nop = session.assign_numbers(NopOut(immediate=True, itt=session.numbers.itt(), data=b"x" * 5))
        session.validator.sent(nop)
        tags.append(nop.itt)
        wire += nop.encode()
    session.send_raw(wire)
    assert [session.expect(NopIn).itt for _ in tags] == tags


@pytest.mark.case("ISC-PDU-14", section="RFC 7143 11.1", kills=("nop-echo",), builds_on=("ISC-NOP-01",))
def test_a_pdu_that_comes_in_pieces_is_answered(session):
    nop = session.assign_numbers(NopOut(immediate=True, itt=session.numbers.itt(), data=b"piece by piece"))
    session.validator.sent(nop)
    wire = nop.encode()
    for at in range(0, len(wire), 5):
        session.send_raw(wire[at : at + 5])
    assert session.expect(NopIn).data == b"piece by piece"


@pytest.mark.case(
    "ISC-PDU-15", section="RFC 7143 11.1", kills=("padding-missing",), builds_on=("ISC-NOP-01",)
)
def test_data_are_padded_to_four_bytes(session):
    for size in (1, 2, 3, 4, 5):
        answer = session.ping(b"abcde"[:size])
        assert answer.data == b"abcde"[:size]
        padding = session.frames[-1].frame.padding
        assert len(answer.data + padding) % 4 == 0


@pytest.mark.case("ISC-PDU-31", section="RFC 7143 11.1", level="SHOULD", kills=("padding-not-zero",))
def test_padding_is_zero(session):
    for size in (1, 2, 3):
        session.ping(b"abc"[:size])
        assert not any(session.frames[-1].frame.padding), "the padding is not zero"


@pytest.mark.parametrize(
    "attribute",
    [
        pytest.param(Attribute.UNTAGGED, marks=pytest.mark.case("ISC-PDU-16", kills=("tur-busy",))),
        pytest.param(Attribute.SIMPLE, marks=pytest.mark.case("ISC-PDU-17", kills=("tur-busy",))),
        pytest.param(
            Attribute.ORDERED, marks=pytest.mark.case("ISC-PDU-18", level="SHOULD", kills=("ordered-busy",))
        ),
        pytest.param(
            Attribute.HEAD_OF_QUEUE, marks=pytest.mark.case("ISC-PDU-19", level="SHOULD", kills=("tur-busy",))
        ),
    ],
)
@pytest.mark.case(section="RFC 7143 11.3.1", level="MUST")
def test_a_command_with_each_task_attribute_is_executed(session, attribute):
    """A unit whose Extended INQUIRY page lacks the attribute may refuse it (SPC-4)."""
    answer = LogicalUnit.result(
        session.command(READY, attribute=attribute), f"{attribute.name}: TEST UNIT READY"
    )
    if answer.check(SenseKey.ILLEGAL_REQUEST) and attribute in REPORTED:
        page = LogicalUnit(session).inquiry(0x86)
        if page.good and len(page.data) > 5 and not page.data[5] & REPORTED[attribute]:
            pytest.skip(f"the bit of {attribute.name} in page 86h is 0: {answer}")
    assert answer.good, answer


@pytest.mark.case("ISC-PDU-20", section="RFC 7143 11.3.1", level="MAY", no_mutant_reason="a MAY never fails")
def test_a_reserved_task_attribute_is_refused(session, observe):
    session.start(READY, attribute=7)
    after = session.probe_alive()
    observe(str(after))
    assert not any(isinstance(pdu, ScsiResponse) and not pdu.status for pdu in after.pdus)


@pytest.mark.case("ISC-PDU-21", section="RFC 7143 11.2.1.7, SAM-5 4.7", kills=("wrong-lun-answered",))
def test_a_command_to_a_logical_unit_that_is_not_there_is_not_executed(session):
    lun = absent_lun(session)
    answer = LogicalUnit.result(session.command(READY, lun=lun), f"TEST UNIT READY to LUN {lun:016x}")
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LOGICAL_UNIT_NOT_SUPPORTED), answer


@pytest.mark.case(
    "ISC-PDU-LUN",
    section="RFC 7143 11.2.1.7, SAM-5 4.7",
    kills=("lun-of-two-bytes",),
    builds_on=("ISC-PDU-21",),
)
def test_a_lun_is_all_of_its_bytes(session):
    """With another level below it, the LUN of the unit is that of no unit that is listed."""
    listed = LogicalUnit(session).luns()
    if not listed.good:
        pytest.skip(f"{listed}: the units are not listed")
    for below in (0x0001_0000_0000, 0x0001_0000, 0x0001):
        other = session.lun | below
        if other in decode_luns(listed.data):
            continue
        answer = LogicalUnit.result(session.command(READY, lun=other), f"TEST UNIT READY to LUN {other:016x}")
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LOGICAL_UNIT_NOT_SUPPORTED), (
            f"{answer}: REPORT LUNS does not list it"
        )


@pytest.mark.case("ISC-PDU-22", section="RFC 7143 11.2.1.7, SPC-4 INQUIRY", no_mutant_reason=LIO_DEVIATES)
def test_inquiry_of_an_absent_logical_unit_reports_its_absence(session):
    done = session.command(cdb(INQUIRY, allocation=96), read=96, lun=absent_lun(session))
    assert done.status == 0, f"status {done.status:#04x}, where INQUIRY data were due"
    assert done.data[0] in (0x7F, 0x3F), f"the peripheral qualifier and type are {done.data[0]:#04x}"


@pytest.mark.parametrize("page", [
    pytest.param(page, marks=pytest.mark.case(f"ISC-PDU-LUN-VPD-{page:02X}")) for page in (0x00, 0x83)
])  # fmt: skip
@pytest.mark.case(section="SPC-4 INQUIRY", kills=("vpd-of-absent-unit",))
def test_a_vpd_page_of_an_absent_logical_unit_is_of_none_that_is_there(session, page):
    """It states that the unit is absent, or the command is refused (SAM-5, incorrect logical unit)."""
    block = cdb(INQUIRY, evpd=1, page=page, allocation=252)
    done = session.command(block, read=252, lun=absent_lun(session))
    assert done.status or done.data[0] in (0x7F, 0x3F), (
        f"page {page:02x}h of a logical unit that is not there: {done.data[:24].hex()}"
    )


@pytest.mark.case("ISC-PDU-23", section="RFC 7143 11.3.1", no_mutant_reason=NO_CRASH)
def test_a_bidirectional_command_is_answered_or_rejected(session, observe):
    size = (512).to_bytes(4, "big")
    session.send(ScsiCommand(read=True, write=True, expected_length=0, lun=session.lun, cdb=READY,
                             ahs=(Ahs(AHS_BIDIRECTIONAL, b"\0" + size),)))  # fmt: skip
    after = session.probe_alive()
    observe(str(after))
    assert after.closed or after.pdus


@pytest.mark.case("ISC-PDU-24", section="RFC 7143 11.2.1.6, 7.7", no_mutant_reason=NO_CRASH)
@pytest.mark.usefixtures("portal")
def test_a_length_of_16_mib_that_does_not_come_does_not_hang_the_target(connections):
    initiator = connections.login("a")
    nop = initiator.assign_numbers(NopOut(immediate=True, itt=0x45))
    initiator.send_parts(nop.parts().override_fields(data_length=0xFFFFFF))
    initiator.logged_in = False
    connections.login("b").ping()


@pytest.mark.case("ISC-PDU-25", section="RFC 7143 11.2.1.5, 7.7", no_mutant_reason=NO_CRASH)
def test_an_ahs_length_that_points_past_the_pdu_does_not_hang_the_target(connections):
    initiator = connections.login("a")
    nop = initiator.assign_numbers(NopOut(immediate=True, itt=0x46))
    initiator.send_parts(nop.parts().override_fields(ahs_words=255))
    initiator.logged_in = False
    connections.login("b").ping()


@pytest.mark.case("ISC-PDU-26", section="RFC 7143 7.7", no_mutant_reason=NO_CRASH)
def test_noise_after_the_login_leaves_the_target_well(connections):
    noisy = connections.login("a")
    noisy.send_raw(bytes(range(256)) * 16)
    noisy.link.close()
    noisy.logged_in = False
    connections.login("b").ping()


@pytest.mark.case("ISC-PDU-27", section="RFC 7143 7.14", no_mutant_reason=NO_CRASH)
def test_a_connection_that_ends_within_a_write_leaves_the_unit_usable(connections, scratch):
    first = connections.login("a", offer={"ImmediateData": "No", "InitialR2T": "Yes"})
    first.start(cdb(WRITE_10, lba=scratch.lba, blocks=8), write=8 * scratch.block_size)
    first.receive()
    first.link.close()
    first.logged_in = False
    unit = LogicalUnit(connections.login("b"), block_size=scratch.block_size)
    assert unit.write(scratch.lba, scratch.pattern(8)).good
    assert unit.read(scratch.lba, 8).data == scratch.pattern(8)


@pytest.mark.case("ISC-PDU-28", section="RFC 7143 6.2, 11.10.2", level="SHOULD", kills=("reject-swallowed",))
def test_a_text_request_with_both_f_and_c_is_rejected(session, observe):
    session.send(TextRequest(final=True, continues=True, data=b"X-a=1\0"))
    after = session.probe_alive(reject_decides=True)
    observe(str(after))
    assert after.closed or after.reject, str(after)
