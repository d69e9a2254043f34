"""Header and data digests (RFC 7143 7.8, 11.2.3, 13.1)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.wire.iscsi.codes import RejectReason, SnackType, TaskFunction
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import (
    DataOut,
    LogoutRequest,
    NopIn,
    NopOut,
    ScsiCommand,
    ScsiResponse,
    SnackRequest,
    TaskRequest,
    TextRequest,
)
from storagetest.wire.scsi.cdb import READ_16, TEST_UNIT_READY, WRITE_10, cdb
from storagetest.wire.scsi.logical_unit import LogicalUnit

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 7.8", level="MUST")]

READY = cdb(TEST_UNIT_READY).ljust(16, b"\0")
_OFFER = {"yes": "CRC32C", "no": "None"}


def with_digests(connections, *, header: str, data: str, letter: str = "a", **offer: str) -> Initiator:
    """Log in with these digests; skip where the target will not have them."""
    wanted = {"HeaderDigest": _OFFER[header], "DataDigest": _OFFER[data]}
    session: Initiator = connections.login(letter, offer={**wanted, **offer})
    got = {name: session.negotiated[name] for name in wanted}
    if got != wanted:
        pytest.skip(f"the target answers {wanted} with {got}")
    return session


@pytest.mark.parametrize(
    ("header", "data"),
    [
        pytest.param(
            "yes", "no", marks=pytest.mark.case("ISC-DIGEST-01", kills=("header-digest-of-target",))
        ),
        pytest.param("no", "yes", marks=pytest.mark.case("ISC-DIGEST-02", kills=("data-digest-of-target",))),
        pytest.param(
            "yes",
            "yes",
            marks=pytest.mark.case(
                "ISC-DIGEST-03", kills=("header-digest-of-target", "data-digest-of-target")
            ),
        ),
        pytest.param("no", "no", marks=pytest.mark.case("ISC-DIGEST-04", kills=("digest-unasked",))),
    ],
)
@pytest.mark.case(section="RFC 7143 11.2.3, 13.1", level="MUST", builds_on=("ISC-NOP-01",))
def test_digests_are_right_both_ways_in_every_combination(connections, scratch, header, data):
    session = with_digests(connections, header=header, data=data)
    unit = LogicalUnit(session, block_size=scratch.block_size)
    written = scratch.pattern(64, seed=1)
    assert unit.write(scratch.lba, written).good
    assert unit.read(scratch.lba, 64).data == written
    assert session.ping(b"odd").data[:3] == b"odd"


@pytest.mark.case(
    "ISC-DIGEST-14",
    section="RFC 7143 11.2.3, 13.1",
    kills=("digest-of-padded-data", "digest-of-second-data-in", "digest-of-task-response"),
    builds_on=("ISC-DIGEST-03",),
)
def test_the_digests_of_every_kind_of_pdu_are_right(connections, scratch):
    """Data-In of many PDUs and of any length, sense data, a task's response, a ping, a logout."""
    session = with_digests(connections, header="yes", data="yes", MaxRecvDataSegmentLength="4096")
    unit = LogicalUnit(session, block_size=scratch.block_size)
    blocks = max(2, 3 * 4096 // scratch.block_size)
    data = scratch.pattern(blocks, seed=5)
    assert unit.write(scratch.lba, data).good
    assert unit.read(scratch.lba, blocks).data == data
    for allocation in (5, 6, 7, 36):
        assert len(unit.inquiry(allocation=allocation).data) == allocation
    assert not unit.run(READ_16, lba=(1 << 64) - 1, blocks=1, read=scratch.block_size).good
    session.task(TaskFunction.ABORT_TASK, referenced_itt=0x7FFFFFFF)
    assert session.ping(b"pad12").data[:5] == b"pad12"
    session.logout()


@pytest.mark.case(
    "ISC-DIGEST-15", section="RFC 7143 11.2.3, 13.1", kills=("digest-of-text",), builds_on=("ISC-DISC-01",)
)
def test_a_discovery_session_has_right_digests(connections, portal):
    wanted = {"HeaderDigest": "CRC32C", "DataDigest": "CRC32C"}
    session = connections.discovery(offer=wanted)
    if {name: session.negotiated[name] for name in wanted} != wanted:
        pytest.skip("the target takes no digests in a discovery session")
    found = [session.text(("SendTargets", "All")) for _ in range(2)]
    assert ("TargetName", portal.iqn) in found[0], found[0]
    assert found[0] == found[1]


@pytest.mark.case(
    "ISC-DIGEST-REJECT",
    section="RFC 7143 11.2.3, 11.17",
    kills=("header-digest-of-reject", "data-digest-of-reject"),
    builds_on=("ISC-DIGEST-03", "ISC-SNACK-01"),
)
def test_the_digests_of_a_reject_are_right(connections, observe):
    """The header that comes back is data, with a digest. Some reject an immediate command, others a SNACK."""
    immediate = ScsiCommand(itt=0x71, lun=0, cdb=READY, immediate=True)
    snack = SnackRequest(kind=SnackType.STATUS, itt=0xFFFFFFFF, beg_run=1, run_length=1)
    for request in (immediate, snack):
        session = with_digests(connections, header="yes", data="yes")
        session.send(request)
        after = session.probe_alive()
        observe(f"{type(request).__name__}: {after}")
        if after.reject:
            return
    pytest.skip("the target rejects neither an immediate command nor a SNACK")


@pytest.mark.case("ISC-DIGEST-05", kills=("header-digest-not-checked",))
def test_a_pdu_with_a_wrong_header_digest_is_never_answered(connections, observe):
    session = with_digests(connections, header="yes", data="no")
    session.send(ScsiCommand(itt=0x99, lun=session.lun, cdb=READY, immediate=True),
                 overrides={"immediate": False}, header_digest_xor=1)  # fmt: skip
    after = session.probe_alive()
    observe(str(after))
    assert not any(pdu.itt == 0x99 for pdu in after.pdus), f"answered: {after}"


@pytest.mark.case(
    "ISC-DIGEST-06",
    section="RFC 7143 7.8, 11.17.1",
    kills=("data-digest-not-checked", "data-digest-reject-missing"),
)
def test_immediate_data_with_a_wrong_digest_are_rejected_and_not_written(connections, scratch, observe):
    session = with_digests(connections, header="no", data="yes")
    unit = LogicalUnit(session, block_size=scratch.block_size)
    assert unit.write(scratch.lba, scratch.pattern(2)).good
    data = scratch.pattern(2, seed=2)
    session.send(
        ScsiCommand(write=True, lun=session.lun, expected_length=len(data), data=data,
                    cdb=cdb(WRITE_10, lba=scratch.lba, blocks=2).ljust(16, b"\0")),
        data_digest_xor=1,
    )  # fmt: skip
    after = session.probe_alive()
    observe(str(after))
    fresh = LogicalUnit(connections.login("b"), block_size=scratch.block_size)
    assert fresh.read(scratch.lba, 2).data == scratch.pattern(2), "data with a wrong digest were written"
    assert after.closed or after.reject, f"neither a Reject nor a close: {after}"
    if after.reject:
        assert after.reject.reason == RejectReason.DATA_DIGEST_ERROR, f"reason {after.reject.reason:#04x}"


@pytest.mark.case("ISC-DIGEST-07", section="RFC 7143 7.8, 11.17.1", kills=("data-digest-not-checked",))
def test_data_out_with_a_wrong_digest_are_rejected_and_not_written(connections, scratch, observe):
    session = with_digests(connections, header="no", data="yes", ImmediateData="No", InitialR2T="Yes")
    unit = LogicalUnit(session, block_size=scratch.block_size)
    assert unit.write(scratch.lba, scratch.pattern(2)).good
    data = scratch.pattern(2, seed=3)
    command, r2t = session.start_write(cdb(WRITE_10, lba=scratch.lba, blocks=2), len(data))
    session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, data=data), data_digest_xor=1)
    after = session.probe_alive()
    observe(str(after))
    fresh = LogicalUnit(connections.login("b"), block_size=scratch.block_size)
    assert fresh.read(scratch.lba, 2).data == scratch.pattern(2), "data with a wrong digest were written"
    assert not any(isinstance(pdu, ScsiResponse) and not pdu.status for pdu in after.pdus), str(after)
    assert after.closed or after.reject or after.pdus, f"the wrong digest had no effect: {after}"
    if after.reject:
        assert after.reject.reason == RejectReason.DATA_DIGEST_ERROR, f"reason {after.reject.reason:#04x}"


@pytest.mark.case("ISC-DIGEST-08", section="RFC 7143 7.8, 11.17.4", kills=("reject-header-lost",))
def test_a_reject_for_a_wrong_data_digest_carries_the_whole_header(connections, observe):
    session = with_digests(connections, header="no", data="yes")
    sent = session.send(NopOut(immediate=True, itt=0x66, data=b"ping"), data_digest_xor=1)
    after = session.probe_alive()
    observe(str(after))
    assert not any(isinstance(pdu, NopIn) and pdu.itt == 0x66 for pdu in after.pdus), "answered all the same"
    if after.reject:
        assert after.reject.data[:48] == sent.encode()[:48]


@pytest.mark.case(
    "ISC-DIGEST-09", section="RFC 7143 13.1", kills=("data-digest-of-target",), builds_on=("ISC-NOP-01",)
)
def test_the_data_digest_covers_the_padding_whatever_it_is(connections):
    session = with_digests(connections, header="no", data="yes")
    session.send(NopOut(immediate=True, itt=0x67, data=b"pad"), padding=b"\xa5")
    assert session.expect(NopIn).data == b"pad"


@pytest.mark.case("ISC-DIGEST-10", section="RFC 7143 11.2.3", kills=("digest-on-empty-data",))
def test_a_pdu_without_data_has_no_data_digest(connections):
    session = with_digests(connections, header="yes", data="yes")
    for _ in range(4):
        session.command(READY)
    assert session.ping().data == b""


@pytest.mark.case("ISC-DIGEST-11", section="RFC 7143 13.1", kills=("digest-in-login",))
def test_the_login_phase_itself_has_no_digests(connections):
    session = with_digests(connections, header="yes", data="yes")
    logins = [event for event in session.frames if type(event.pdu).__name__ == "LoginResponse"]
    assert logins
    assert all(event.frame.header_digest is None for event in logins)


@pytest.mark.case("ISC-DIGEST-12", section="RFC 7143 7.8", kills=("reject-swallowed",))
def test_a_wrong_data_digest_harms_no_other_command(connections, observe):
    session = with_digests(connections, header="no", data="yes")
    session.send(NopOut(immediate=True, itt=0x68, data=b"bad"), data_digest_xor=0xFFFFFFFF)
    after = session.probe_alive()
    observe("closed" if after.closed else "the connection lives")
    if not after.closed:
        assert LogicalUnit(session).test_unit_ready().good


@pytest.mark.case("ISC-DIGEST-13", section="RFC 7143 7.8, 11.17.1", kills=("data-digest-later",))
def test_a_wrong_digest_within_a_sequence_of_data_out_is_found(connections, scratch, observe):
    session = with_digests(connections, header="no", data="yes", ImmediateData="No", InitialR2T="Yes")
    unit = LogicalUnit(session, block_size=scratch.block_size)
    assert unit.write(scratch.lba, scratch.pattern(4)).good
    data, size = scratch.pattern(4, seed=3), scratch.block_size
    command, r2t = session.start_write(cdb(WRITE_10, lba=scratch.lba, blocks=4), len(data))
    for number in range(4):
        at = number * size
        session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, data_sn=number, buffer_offset=at,
                             final=number == 3, data=data[at : at + size]),
                     data_digest_xor=1 if number == 2 else 0)  # fmt: skip
    after = session.probe_alive()
    observe(str(after))
    assert not any(isinstance(pdu, ScsiResponse) and not pdu.status for pdu in after.pdus), f"taken: {after}"
    fresh = LogicalUnit(connections.login("b"), block_size=size)
    assert fresh.read(scratch.lba + 2).data == scratch.pattern(4)[2 * size : 3 * size], (
        "data with a wrong digest were written"
    )


HEADERS = {
    "NOP": NopOut(immediate=True, data=b"ping"),
    "TASK": TaskRequest(function=TaskFunction.ABORT_TASK, referenced_itt=0x7FFFFFFF),
    "TEXT": TextRequest(immediate=True, data=b"SendTargets=All\0"),
    "LOGOUT": LogoutRequest(),
}
"""Immediate requests, so that the CmdSN of the next one does not depend on them."""


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(
        f"ISC-DIGEST-HEADER-{kind}", kills=(f"header-digest-of-{kind.lower()}",)))
    for kind in HEADERS
])  # fmt: skip
@pytest.mark.case(builds_on=("ISC-DIGEST-05",))
def test_no_request_with_a_wrong_header_digest_is_answered(connections, observe, kind):
    """Its header is not to be believed, whatever it is: it is discarded, or the connection ends."""
    session = with_digests(connections, header="yes", data="no")
    session.ping()
    session.send(replace(HEADERS[kind], itt=0x99), header_digest_xor=0x8000)
    after = session.probe_alive()
    observe(str(after))
    answers = [pdu.summary() for pdu in after.pdus if pdu.itt == 0x99]
    assert not answers, f"a request with a wrong header digest is answered: {answers[0]}"


@pytest.mark.parametrize("immediate", [
    pytest.param("Yes", marks=pytest.mark.case("ISC-DIGEST-HEADER-WRITE", kills=("header-digest-of-write",))),
    pytest.param("No", marks=pytest.mark.case(
        "ISC-DIGEST-HEADER-DATA-OUT", kills=("header-digest-of-data-out",))),
])  # fmt: skip
@pytest.mark.case(builds_on=("ISC-DIGEST-05",))
def test_nothing_of_a_write_with_a_wrong_header_digest_is_written(connections, scratch, observe, immediate):
    """The digest of the command with its immediate data is wrong, or that of the Data-Out."""
    session = with_digests(connections, header="yes", data="no", ImmediateData=immediate, InitialR2T="Yes")
    if session.parameters.immediate_data != (immediate == "Yes"):
        pytest.skip(f"ImmediateData={immediate} is not agreed on")
    unit = LogicalUnit(session, block_size=scratch.block_size)
    assert unit.write(scratch.lba, scratch.pattern(2)).good
    data, block = scratch.pattern(2, seed=7), cdb(WRITE_10, lba=scratch.lba, blocks=2).ljust(16, b"\0")
    if immediate == "Yes":
        wrong = session.send(
            ScsiCommand(write=True, lun=session.lun, expected_length=len(data), data=data, cdb=block),
            header_digest_xor=1,
        )
    else:
        wrong, r2t = session.start_write(block, len(data))
        session.send(DataOut(itt=wrong.itt, ttt=r2t.ttt, lun=r2t.lun, data=data), header_digest_xor=1)
    after = session.probe_alive()
    observe(str(after))
    good = [pdu for pdu in after.pdus if isinstance(pdu, ScsiResponse) and not pdu.status]
    assert not good, f"a write ends in GOOD, and a header digest of it was wrong: {after}"
    fresh = LogicalUnit(connections.login("b"), block_size=scratch.block_size)
    assert fresh.read(scratch.lba, 2).data == scratch.pattern(2), (
        "data that came with a wrong header digest were written"
    )
