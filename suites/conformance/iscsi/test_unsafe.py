"""Cases that ended the process of a target, or after which it served nothing more: modules run by name, so
these run last.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import has_twelve_byte_commands
from storagetest.wire.iscsi.codes import LoginStatus, Stage
from storagetest.wire.iscsi.pdu import DataOut, LoginResponse, NopOut
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.logical_unit import LogicalUnit

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 11.7", level="MUST")]


@pytest.mark.case("SCS-MODE-11", section="SPC-4 MODE SENSE, allocation length", kills=("mode-zero-refused",))
def test_mode_sense_with_an_allocation_length_of_zero_is_no_error(unit):
    for command in (c.MODE_SENSE_6, c.MODE_SENSE_10):
        answer = unit.run(command, page=0x3F, allocation=0)
        assert answer.good, answer
        assert answer.data == b"", answer


@pytest.mark.case("SCS-RW-14", section="SBC-3 READ, WRITE", kills=("zero-blocks-refused",))
def test_zero_blocks_are_no_error_and_move_nothing(unit, scratch):
    for command in (c.READ_10, c.READ_16, c.WRITE_10, c.WRITE_16):
        answer = unit.run(command, lba=scratch.lba, blocks=0)
        assert answer.good, answer
        assert answer.data == b""


@pytest.mark.case(
    "SCS-RW-28", section="SBC-3 READ, WRITE", kills=("read-10-zero-is-256",), builds_on=("SCS-RW-14",)
)
def test_zero_blocks_leave_no_residual(session, scratch):
    """A TRANSFER LENGTH of zero is no block, not 256 as in READ(6): nothing else was to be transferred."""
    commands = [c.READ_10, c.READ_16, c.WRITE_10, c.WRITE_16]
    if has_twelve_byte_commands(LogicalUnit(session, block_size=scratch.block_size), scratch.lba):
        commands += [c.READ_12, c.WRITE_12]
    for command in commands:
        done = session.command(c.cdb(command, lba=scratch.lba, blocks=0))
        assert (done.status, done.data, done.overflow, done.residual) == (0, b"", False, 0), (
            f"{command.name} of no blocks: status {done.status:#04x}, residual {done.residual}"
        )


@pytest.mark.case("ISC-DATAOUT-13", section="RFC 7143 11.7.6, 11.3.4", kills=("overrun-kept",))
def test_data_out_beyond_the_expected_length_change_no_other_block(connections, scratch, observe):
    session = connections.prepared(scratch, ImmediateData="No", InitialR2T="Yes")
    size, data = scratch.block_size, scratch.pattern(16, seed=10)
    scratch.require(4)
    command, r2t = session.start_write(c.cdb(c.WRITE_10, lba=scratch.lba, blocks=4), 4 * size)
    session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, final=False, data=data[: 3 * size]))
    session.send(DataOut(itt=command.itt, ttt=r2t.ttt, lun=r2t.lun, data_sn=1, buffer_offset=3 * size,
                         data=data[3 * size : 6 * size]))  # fmt: skip
    after = session.probe_alive()
    observe(str(after))
    old, found = scratch.pattern(16), scratch.read_back(connections.login("z"), 16)
    changed = [
        at for at in range(4, 16) if found[at * size : (at + 1) * size] != old[at * size : (at + 1) * size]
    ]
    assert not changed, f"a write of 4 blocks changed block {changed[0]} from its first one on: {after}"


@pytest.mark.case(
    "ISC-IMMEDIATE-OVER",
    section="RFC 7143 11.3.4",
    kills=("immediate-overrun-kept",),
    builds_on=("ISC-UNSOL-01",),
)
def test_immediate_data_beyond_the_expected_length_change_no_other_block(connections, scratch, observe):
    """Immediate data of three blocks, in a write of one."""
    session = connections.prepared(scratch, ImmediateData="Yes", InitialR2T="Yes")
    size, agreed = scratch.block_size, session.parameters
    if not agreed.immediate_data or min(agreed.max_send, agreed.first_burst) < 3 * size:
        pytest.skip("the target takes no immediate data of three blocks")
    block = c.cdb(c.WRITE_10, lba=scratch.lba, blocks=1)
    session.start(block, write=size, data=scratch.pattern(3, seed=1413))
    session.validator.sent_invalid()
    after = session.probe_alive()
    observe(str(after))
    old, found = scratch.pattern(16), scratch.read_back(connections.login("z"), 16)
    assert found[size:] == old[size:], f"a write of one block changed a block behind it: {after}"


@pytest.mark.case("ISC-LOGIN-14", section="RFC 7143 6.3.1, 11.12.6", kills=("login-tsih-accepted",))
def test_a_tsih_of_no_session_is_refused_as_session_does_not_exist(send_login, portal):
    """Of two reasons for a refusal a target may report either: this login does not authenticate itself."""
    response = send_login(tsih=0xBEEF)
    assert response is not None, "closed without a Login Response with NO_SESSION"
    if portal.credentials is not None and response.status == LoginStatus.AUTHENTICATION_FAILED:
        pytest.skip("the target requires authentication, and refuses the login for the lack of it")
    assert response.status == LoginStatus.NO_SESSION, (
        f"Login Response with status {response.status:04x}, not NO_SESSION"
    )


@pytest.mark.case(
    "ISC-LOGIN-20", section="RFC 7143 4.2.4, 11.13.5", no_mutant_reason="LIO breaks this rule itself"
)
def test_any_other_pdu_during_the_login_is_refused_as_invalid_during_login(send_login, connection):
    first = send_login(csg=Stage.OPERATIONAL, transit=False, nsg=0)
    if first is None or first.status:
        pytest.skip("the target requires authentication: the login cannot begin in the operational stage")
    connection.send(NopOut(immediate=True, itt=9))
    answer = connection.receive()
    assert isinstance(answer, LoginResponse), f"expected a Login Response, received {answer}"
    assert answer.status == LoginStatus.INVALID_DURING_LOGIN, f"status {answer.status:04x}"
