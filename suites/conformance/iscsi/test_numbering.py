"""Command, status and data numbering (RFC 7143 4.2.2)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.windows import with_room
from storagetest.wire.iscsi.codes import NO_TAG, RejectReason, ServiceResponse, TaskFunction
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import (
    NopIn,
    NopOut,
    Reject,
    ScsiCommand,
    ScsiResponse,
    SnackRequest,
    TextRequest,
)
from storagetest.wire.iscsi.validator import before, plus
from storagetest.wire.scsi.cdb import INQUIRY, NO_COMMAND, READ_10, TEST_UNIT_READY, WRITE_10, cdb
from storagetest.wire.scsi.logical_unit import LogicalUnit

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 4.2.2.1", level="MUST")]

READY = cdb(TEST_UNIT_READY).ljust(16, b"\0")

WINDOW = 4096
"""Commands of a command window that a case fills, at most (chosen)."""


def out_of_order(session: Initiator, itt: int, cmd_sn: int) -> ScsiCommand:
    """Send a command with a CmdSN that is not its turn; the session's own numbers stay."""
    ready = ScsiCommand(itt=itt, lun=session.lun, cdb=READY, immediate=True)
    return session.send(ready, overrides={"immediate": False, "cmd_sn": cmd_sn})


def answers(session: Initiator, count: int) -> list[Pdu]:
    """Return the next ``count`` PDUs."""
    return [session.expect(Pdu) for _ in range(count)]


@pytest.mark.case("ISC-CMDSN-01", kills=("exp-cmd-sn-stuck",))
def test_each_command_moves_exp_cmd_sn_on_by_one(session):
    for _ in range(5):
        session.command(READY)
        last = session.frames[-1].pdu
        assert last.exp_cmd_sn == session.numbers.cmd_sn


@pytest.mark.case("ISC-CMDSN-02", kills=("immediate-counts",))
def test_an_immediate_command_does_not_move_exp_cmd_sn(session):
    first = session.ping(immediate=True).exp_cmd_sn
    assert session.ping(immediate=True).exp_cmd_sn == first


@pytest.mark.case("ISC-CMDSN-03", kills=("cmd-sn-window-open", "cmd-sn-window-late"))
def test_a_command_beyond_max_cmd_sn_is_ignored(session):
    session.ping()
    beyond = plus(session.numbers.max_cmd_sn, 1)
    out_of_order(session, 0x77, beyond)
    after = session.probe_alive()  # it waits: the task counts as outstanding
    session.validator.forget(0x77)
    assert not after.pdus, f"a command outside the window was answered: {after}"
    assert not after.closed


@pytest.mark.case("ISC-CMDSN-04", kills=("cmd-sn-old-answered",))
def test_a_command_below_exp_cmd_sn_is_ignored(session):
    for _ in range(3):
        session.command(READY)
    old = plus(session.numbers.cmd_sn, -2)
    out_of_order(session, 0x78, old)
    after = session.probe_alive()
    session.validator.forget(0x78)
    assert not after.pdus, f"a command below the window was answered: {after}"
    assert not after.closed, "the connection was closed, where the command was to be ignored"


@pytest.mark.case("ISC-CMDSN-05", kills=("cmd-sn-order",))
def test_a_command_after_a_gap_waits_for_the_one_that_is_missing(session):
    with_room(session, 2)
    number = session.numbers.cmd_sn
    second = out_of_order(session, 0x22, number + 1)
    waiting = session.probe_alive()
    assert not waiting.pdus, f"CmdSN {number + 1} was answered before {number}: {waiting}"
    first = session.send(ScsiCommand(itt=0x21, lun=session.lun, cdb=READY))
    session.numbers.cmd_sn = plus(number, 2)
    came = answers(session, 2)  # delivered in their order; simple tasks may end in any
    assert {pdu.itt for pdu in came} == {first.itt, second.itt}


@pytest.mark.case("ISC-CMDSN-06", kills=("exp-cmd-sn-gap",), builds_on=("ISC-CMDSN-05",))
def test_exp_cmd_sn_does_not_pass_a_gap(session):
    with_room(session, 2)
    number = session.numbers.cmd_sn
    out_of_order(session, 0x32, number + 1)
    assert session.ping().exp_cmd_sn == number
    session.send(ScsiCommand(itt=0x31, lun=session.lun, cdb=READY))
    session.numbers.cmd_sn = plus(number, 2)
    answers(session, 2)
    assert session.ping().exp_cmd_sn == plus(number, 2)


@pytest.mark.parametrize("limit", [
    pytest.param(2**32, marks=pytest.mark.case("ISC-CMDSN-07", kills=("cmd-sn-wrap",))),
    pytest.param(2**31, marks=pytest.mark.case("ISC-CMDSN-SIGN", kills=("cmd-sn-signed",))),
    pytest.param(2**24, marks=pytest.mark.case("ISC-CMDSN-24", kills=("cmd-sn-three-bytes",))),
    pytest.param(2**16, marks=pytest.mark.case("ISC-CMDSN-16-BITS", kills=("cmd-sn-two-bytes",))),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 4.2.2.1, 11.12.8", level="MUST", builds_on=("ISC-CMDSN-02",))
def test_cmd_sn_passes_each_limit(connections, portal, limit):
    """A session begins with any CmdSN, and goes on past 2**32, and past a smaller or signed number."""
    made = connections.open()
    made.numbers.cmd_sn = limit - 2
    made.login(target=portal.iqn, credentials=portal.credentials)
    for _ in range(6):
        made.command(READY)
    passed = (made.numbers.cmd_sn - limit) % 2**32
    assert 4 <= passed < 64, "commands that are sent again use further numbers"
    assert made.ping().exp_cmd_sn == made.numbers.cmd_sn
    assert not made.validator.violations_of("exp-cmd-sn", "max-cmd-sn")


@pytest.mark.case("ISC-CMDSN-08", kills=("max-cmd-sn-low",))
def test_max_cmd_sn_is_never_below_exp_cmd_sn_less_one(session):
    for _ in range(8):
        session.command(READY)
        session.ping()
    assert not session.validator.violations_of("max-cmd-sn")


@pytest.mark.case("ISC-CMDSN-09", level="SHOULD", kills=("max-cmd-sn-closed",))
def test_an_idle_session_has_an_open_window(session):
    session.ping()
    assert not before(session.numbers.max_cmd_sn, session.numbers.cmd_sn), "the command window is closed"


@pytest.mark.case("ISC-CMDSN-10", kills=("max-cmd-sn-low",))
def test_a_whole_window_of_commands_is_answered(session):
    session.ping()
    window = (session.numbers.max_cmd_sn - session.numbers.cmd_sn) % 2**32 + 1
    sent = [session.start(READY).itt for _ in range(min(window, 64))]
    assert sorted(pdu.itt for pdu in answers(session, len(sent))) == sorted(sent)
    assert not session.validator.violations_of("max-cmd-sn")


@pytest.mark.case("ISC-CMDSN-WHOLE", kills=("window-end-ignored",), builds_on=("ISC-CMDSN-10",))
def test_the_last_command_of_the_window_is_answered(session):
    """Every CmdSN up to MaxCmdSN is in the window: the commands are sent in one piece, before any answer."""
    session.ping()
    window = (session.numbers.max_cmd_sn - session.numbers.cmd_sn) % 2**32 + 1
    if window > WINDOW:
        pytest.skip(f"the window has {window} commands; the case sends {WINDOW} at most")
    sent = [session.assign_numbers(ScsiCommand(lun=session.lun, cdb=READY)) for _ in range(window)]
    for command in sent:
        session.validator.sent(command)
    session.send_raw(b"".join(command.encode() for command in sent))
    missing = {command.itt for command in sent}
    for pdu in session.responses(f"the response of each of the {window} commands in the window"):
        assert pdu is not None, f"closed after {window - len(missing)} of {window} responses"
        missing.discard(pdu.itt)
        if not missing:
            break


@pytest.mark.case("ISC-CMDSN-11", kills=("exp-cmd-sn-back",))
def test_exp_cmd_sn_never_goes_back(session):
    for _ in range(4):
        session.command(READY)
        session.ping(immediate=False)
    assert not session.validator.violations_of("exp-cmd-sn")


@pytest.mark.case("ISC-CMDSN-12", section="RFC 7143 4.2.2.1", kills=("exp-cmd-sn-stuck",))
def test_a_nop_out_that_is_not_immediate_uses_a_cmd_sn(session):
    first = session.ping(immediate=False)
    assert first.exp_cmd_sn == session.numbers.cmd_sn


# "MUST be able to handle at least … one immediate non-task-management iSCSI command", but also "MAY reject
# immediate commands": a target that takes an immediate NOP-Out and never a SCSI command can point at both.
@pytest.mark.case(
    "ISC-CMDSN-13", section="RFC 7143 4.2.2.1", level="SHOULD", no_mutant_reason="LIO breaks this rule itself"
)
def test_one_immediate_scsi_command_is_executed(session):
    session.start(READY, immediate=True)
    answer = session.expect(Pdu)
    assert isinstance(answer, ScsiResponse), f"an immediate command was met with {answer.summary()}"


@pytest.mark.case("ISC-CMDSN-14", section="RFC 7143 4.2.2.1, 11.17.1", kills=("coalesced-lost",))
def test_many_immediate_requests_are_each_answered_or_rejected(session, observe):
    sent = [session.send(NopOut(immediate=True, itt=session.numbers.itt())).itt for _ in range(16)]
    came = answers(session, len(sent))
    rejected = [pdu for pdu in came if isinstance(pdu, Reject)]
    observe(f"{len(rejected)} of {len(sent)} immediate requests rejected")
    assert all(pdu.reason == RejectReason.TOO_MANY_IMMEDIATE for pdu in rejected)
    assert {pdu.itt for pdu in came if isinstance(pdu, NopIn)} <= set(sent)


@pytest.mark.case("ISC-CMDSN-15", no_mutant_reason="a proxy cannot make a target write what it ignores")
def test_a_write_beyond_max_cmd_sn_is_not_executed(connections, scratch):
    session = connections.login()
    unit = LogicalUnit(session, block_size=scratch.block_size)
    assert unit.write(scratch.lba, scratch.pattern(1)).good
    assert session.command(READY).status == 0
    session.ping()
    beyond, data = plus(session.numbers.max_cmd_sn, 1), scratch.pattern(1, seed=15)
    if not session.parameters.immediate_data:
        pytest.skip("ImmediateData=No")
    block = cdb(WRITE_10, lba=scratch.lba, blocks=1).ljust(16, b"\0")
    write = ScsiCommand(
        itt=0x79, lun=session.lun, cdb=block, write=True, expected_length=len(data), data=data, immediate=True
    )
    session.send(write, overrides={"immediate": False, "cmd_sn": beyond})
    after = session.probe_alive()
    session.validator.forget(0x79)
    assert not after.pdus, f"a command outside the window was answered: {after}"
    other = LogicalUnit(connections.login("b"), block_size=scratch.block_size)
    assert other.read(scratch.lba).data == scratch.pattern(1), "a write outside the window was executed"


@pytest.mark.case("ISC-CMDSN-16", kills=("nop-beyond-window",), builds_on=("ISC-CMDSN-03",))
def test_a_nop_out_beyond_max_cmd_sn_is_ignored(session):
    session.ping()
    beyond = plus(session.numbers.max_cmd_sn, 1)
    session.send(
        NopOut(immediate=True, itt=0x7A, data=b"beyond"), overrides={"immediate": False, "cmd_sn": beyond}
    )
    after = session.probe_alive()
    session.validator.forget(0x7A)
    assert not after.pdus, f"a NOP-Out outside the window was answered: {after}"
    assert not after.closed, "the connection was closed, where the NOP-Out was to be ignored"


@pytest.mark.case("ISC-CMDSN-17", kills=("cmd-sn-duplicate",), builds_on=("ISC-CMDSN-05",))
def test_of_two_commands_with_the_same_cmd_sn_one_is_ignored(session):
    """The first of them waits for a gap: which one is taken for the duplicate then is the target's choice."""
    with_room(session, 2)
    number = session.numbers.cmd_sn
    waits = out_of_order(session, 0x51, plus(number, 1))
    out_of_order(session, 0x52, plus(number, 1))
    first = session.send(ScsiCommand(itt=0x50, lun=session.lun, cdb=READY))
    session.numbers.cmd_sn = plus(number, 2)
    tags = {pdu.itt for pdu in answers(session, 2)}
    assert tags in ({first.itt, waits.itt}, {first.itt, 0x52}), f"responses to {sorted(tags)}"
    after = session.probe_alive()
    session.validator.forget(({waits.itt, 0x52} - tags).pop())
    assert not after.pdus, f"both commands with CmdSN {plus(number, 1)} were executed: {after}"
    assert session.ping().exp_cmd_sn == plus(number, 2)


# Several requests that wait


def filled(session: Initiator, itt: int, number: int, ahead: int) -> ScsiCommand:
    """Send the command that is missing; the session goes on ``ahead`` numbers after it."""
    session.numbers.cmd_sn = number
    first = session.send(ScsiCommand(itt=itt, lun=session.lun, cdb=READY))
    session.numbers.cmd_sn = plus(number, ahead)
    return first


@pytest.mark.case("ISC-CMDSN-SEVERAL", kills=("cmd-sn-one-waits",), builds_on=("ISC-CMDSN-05",))
def test_each_of_several_commands_after_a_gap_waits_and_is_executed(session):
    """Four commands in their order, and then the one before them, as after a digest error."""
    with_room(session, 5)
    number = session.numbers.cmd_sn
    tags = {out_of_order(session, 0x61 + ahead, plus(number, ahead)).itt for ahead in range(1, 5)}
    waiting = session.probe_alive()
    assert not waiting.pdus, f"a command was answered before CmdSN {number}: {waiting}"
    first = filled(session, 0x61, number, 5)
    came = {pdu.itt for pdu in answers(session, 5)}
    assert came == {first.itt, *tags}, f"responses to {sorted(came)}"
    found = session.ping().exp_cmd_sn
    assert found == plus(number, 5), (
        f"ExpCmdSN is {found} after CmdSN {number} and four that had waited for it"
    )


@pytest.mark.case("ISC-CMDSN-TWO-GAPS", kills=("cmd-sn-second-gap",), builds_on=("ISC-CMDSN-05",))
def test_a_command_after_a_second_gap_waits_also_when_the_first_one_is_filled(session):
    """Of the numbers 0 to 3 come 1 and 3, then 0, and 2 at last."""
    with_room(session, 4)
    number = session.numbers.cmd_sn
    second = out_of_order(session, 0x72, plus(number, 1))
    fourth = out_of_order(session, 0x74, plus(number, 3))
    waiting = session.probe_alive()
    assert not waiting.pdus, f"a command was answered before CmdSN {number}: {waiting}"
    first = filled(session, 0x71, number, 2)
    came = {pdu.itt for pdu in answers(session, 2)}
    assert came == {first.itt, second.itt}, f"responses to {sorted(came)}, with one gap left"
    waiting = session.probe_alive()
    assert not waiting.pdus, f"a command was answered before CmdSN {plus(number, 2)}: {waiting}"
    third = filled(session, 0x73, plus(number, 2), 2)
    came = {pdu.itt for pdu in answers(session, 2)}
    assert came == {third.itt, fourth.itt}, f"responses to {sorted(came)}"
    assert session.ping().exp_cmd_sn == plus(number, 4)


@pytest.mark.case("ISC-CMDSN-GAP-NOP", kills=("cmd-sn-gap-nop",), builds_on=("ISC-CMDSN-05",))
def test_a_numbered_nop_out_after_a_gap_waits(session):
    with_room(session, 2)
    number = session.numbers.cmd_sn
    ping = NopOut(immediate=True, itt=0x82, data=b"waits")
    session.send(ping, overrides={"immediate": False, "cmd_sn": plus(number, 1)})
    waiting = session.probe_alive()
    assert not waiting.pdus, f"CmdSN {plus(number, 1)} was answered before {number}: {waiting}"
    first = filled(session, 0x81, number, 2)
    came = {pdu.itt: pdu for pdu in answers(session, 2)}
    assert set(came) == {first.itt, ping.itt}, f"responses to {sorted(came)}"
    assert came[ping.itt].data == ping.data, f"{came[ping.itt].summary()}: other ping data"
    assert session.ping().exp_cmd_sn == plus(number, 2)


@pytest.mark.case("ISC-CMDSN-TEXT", section="RFC 7143 4.2.2.1, 11.11.4", kills=("exp-cmd-sn-text",))
def test_a_text_request_uses_a_cmd_sn(discovery):
    for _ in range(2):
        discovery.text(("SendTargets", "All"))
        last = discovery.frames[-1].pdu
        assert last.exp_cmd_sn == discovery.numbers.cmd_sn, last.summary()


@pytest.mark.case("ISC-STATSN-01", section="RFC 7143 4.2.2.2, 11.4.9", kills=("stat-sn-skips",))
def test_each_response_has_the_next_stat_sn(session):
    for _ in range(4):
        session.command(READY)
    assert not session.validator.violations_of("stat-sn")


@pytest.mark.case("ISC-STATSN-02", section="RFC 7143 4.2.2.2, 11.6", kills=("stat-sn-task",))
def test_a_task_management_response_uses_a_stat_sn(session):
    """The next response has the next StatSN; an Asynchronous Message between them uses one, too."""
    session.task(TaskFunction.ABORT_TASK, referenced_itt=0x5555)
    session.ping()
    assert not (faults := session.validator.violations_of("stat-sn")), "; ".join(faults)


@pytest.mark.case("ISC-STATSN-03", section="RFC 7143 4.2.2.2, 11.19.2", kills=("stat-sn-nop",))
def test_the_answer_to_a_nop_out_uses_a_stat_sn(session):
    """The next response has the next StatSN; an Asynchronous Message between them uses one, too."""
    for _ in range(3):
        session.ping()
    assert not (faults := session.validator.violations_of("stat-sn")), "; ".join(faults)


@pytest.mark.case("ISC-STATSN-04", section="RFC 7143 11.8.3", kills=("stat-sn-r2t",))
def test_an_r2t_carries_the_next_stat_sn_and_does_not_use_it(connections, scratch):
    made = connections.login(offer={"ImmediateData": "No", "InitialR2T": "Yes"})
    answer = LogicalUnit(made, block_size=scratch.block_size).write(scratch.lba, scratch.pattern(4))
    assert answer.good, answer
    assert not made.validator.violations_of("stat-sn")


@pytest.mark.case("ISC-STATSN-08", section="RFC 7143 4.2.2.2, 11.11", kills=("stat-sn-text",))
def test_a_text_response_uses_a_stat_sn(discovery):
    for _ in range(2):
        discovery.text(("SendTargets", "All"))
    assert not (faults := discovery.validator.violations_of("stat-sn")), "; ".join(faults)


@pytest.mark.case("ISC-STATSN-05", section="RFC 7143 4.2.2.2", kills=("stat-sn-nop",))
def test_an_exp_stat_sn_that_lags_behind_does_no_harm(session):
    started = session.numbers.exp_stat_sn
    for _ in range(4):
        session.send(NopOut(immediate=True, itt=session.numbers.itt()), overrides={"exp_stat_sn": started})
        session.expect(NopIn)
    assert not session.validator.violations_of("stat-sn")


@pytest.mark.case("ISC-STATSN-06", section="RFC 7143 11.15", kills=("stat-sn-logout",))
def test_the_logout_response_has_the_next_stat_sn(session):
    session.logout()
    assert not (faults := session.validator.violations_of("stat-sn")), "; ".join(faults)


@pytest.mark.case("ISC-STATSN-07", section="RFC 7143 4.2.2.2, 11.17", kills=("stat-sn-reject",))
def test_a_reject_uses_a_stat_sn(connections):
    """What a target rejects, and what ends its connection, differs: the first Reject is taken."""
    for letter, provocation in (
        ("a", SnackRequest(kind=0, itt=NO_TAG, run_length=1)),
        ("b", ScsiCommand(cdb=READY, immediate=True)),
        ("c", TextRequest(ttt=0x1234, data=b"X-a=1\0")),
    ):
        session = connections.login(letter)
        session.ping()
        session.send(provocation)
        after = session.probe_alive()
        if after.reject is not None and after.pdus[0] is after.reject:
            assert not (faults := session.validator.violations_of("stat-sn")), "; ".join(faults)
            return
    pytest.skip("the target rejects none of the provocations")


@pytest.mark.case("ISC-WATCH-01", section="RFC 7143 11", kills=("reserved-set",))
def test_the_target_sets_no_bit_that_is_not_defined(session, unit, scratch):
    unit.write(scratch.lba, scratch.pattern(4))
    unit.read(scratch.lba, 4)
    session.ping(b"x")
    session.task(TaskFunction.ABORT_TASK, referenced_itt=0x5555)
    session.logout()
    assert not session.validator.violations_of("reserved")


@pytest.mark.case(
    "ISC-WATCH-03", section="RFC 7143 11.4.3", kills=("response-code-reserved", "response-failure-good")
)
def test_a_completed_command_has_the_response_of_one(session, unit, scratch):
    session.command(READY)
    session.command(NO_COMMAND)
    unit.write(scratch.lba, scratch.pattern(4))
    unit.read(scratch.lba, 4)
    for frame in session.frames:
        if isinstance(frame.pdu, ScsiResponse):
            assert frame.pdu.response == ServiceResponse.COMPLETED, (
                f"{frame.pdu.summary()}: the command was completed"
            )


@pytest.mark.case(
    "ISC-WATCH-04",
    section="RFC 7143 11.4, 11.4.5, 11.8",
    kills=("response-final", "r2t-final", "both-residuals"),
)
def test_fixed_bits_are_set_and_flags_that_exclude_each_other_are_not(connections, scratch):
    session = connections.login(offer={"ImmediateData": "No", "InitialR2T": "Yes"})
    unit = LogicalUnit(session, block_size=scratch.block_size)
    assert unit.write(scratch.lba, scratch.pattern(4)).good
    assert unit.read(scratch.lba, 4).good
    session.command(cdb(INQUIRY, allocation=36), read=4096)
    session.command(cdb(READ_10, lba=scratch.lba, blocks=2), read=scratch.block_size)
    session.command(NO_COMMAND, read=512)
    session.ping(b"x")
    session.task(TaskFunction.ABORT_TASK, referenced_itt=0x5555)
    session.logout()
    broken = session.validator.violations_of("fixed-bit", "residual", "response-code")
    assert not broken, "; ".join(broken)


@pytest.mark.case("ISC-WATCH-02", section="RFC 7143 11.2.1.8", kills=("itt-unknown",))
def test_every_answer_is_to_a_task_that_is_outstanding(session, unit, scratch):
    unit.write(scratch.lba, scratch.pattern(4))
    unit.read(scratch.lba, 4)
    session.ping(b"x")
    after = session.probe_alive()
    assert not after.pdus, str(after)
    assert not session.validator.violations_of("itt")
