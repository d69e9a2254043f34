"""Discovery and text requests in full feature phase (RFC 7143 4.3, 6.4, 11.10, 11.11, 13.3, appendix C)."""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import NO_TAG, LogoutReason, LogoutResult, RejectReason, TaskFunction
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.keys import NOT_UNDERSTOOD, REJECT, Pairs, format_text, parse_text
from storagetest.wire.iscsi.outcomes import ProbeOutcome
from storagetest.wire.iscsi.pdu import (
    LogoutRequest,
    LogoutResponse,
    ScsiCommand,
    ScsiResponse,
    TaskRequest,
    TaskResponse,
    TextRequest,
    TextResponse,
)
from storagetest.wire.iscsi.validator import plus
from storagetest.wire.scsi.cdb import TEST_UNIT_READY, cdb

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 13.3, C", level="MUST")]

LIO_DEVIATES = "LIO breaks this rule itself"

READY = cdb(TEST_UNIT_READY).ljust(16, b"\0")


def met(after: ProbeOutcome, observe) -> None:
    """Claim that a request was met with a Reject or a close."""
    observe(str(after))
    assert after.closed or after.reject, f"neither a Reject nor a close: {after}"


@pytest.mark.case("ISC-DISC-01", kills=("send-targets-name",))
def test_send_targets_all_lists_the_target(discovery, portal):
    found = discovery.text(("SendTargets", "All"))
    assert portal.iqn in [value for name, value in found if name == "TargetName"]


@pytest.mark.case("ISC-DISC-02", section="RFC 7143 13.8, C", kills=("send-targets-address",))
def test_each_address_has_a_portal_group_tag(discovery, observe):
    addresses = [value for name, value in discovery.text(("SendTargets", "All")) if name == "TargetAddress"]
    observe(f"{len(addresses)} addresses")
    for address in addresses:
        where, comma, tag = address.rpartition(",")
        assert comma, f"{address} has no portal group tag"
        assert where
        assert 0 <= int(tag) <= 65535


@pytest.mark.case("ISC-DISC-03", section="RFC 7143 C", kills=("send-targets-first",))
def test_the_first_key_is_a_target_name_and_addresses_follow_their_target(discovery):
    names = [name for name, _ in discovery.text(("SendTargets", "All"))]
    assert names[0] == "TargetName"
    assert set(names) <= {"TargetName", "TargetAddress"}


@pytest.mark.case("ISC-DISC-04", section="RFC 7143 C", kills=("send-targets-name",))
def test_send_targets_with_a_name_lists_that_target(discovery, portal):
    found = discovery.text(("SendTargets", portal.iqn))
    assert portal.iqn in {value for name, value in found if name == "TargetName"}


@pytest.mark.case("ISC-DISC-11", section="RFC 7143 C", level="SHOULD", kills=("send-targets-other",))
def test_send_targets_with_a_name_lists_no_other_target(discovery, portal):
    found = discovery.text(("SendTargets", portal.iqn))
    assert {value for name, value in found if name == "TargetName"} == {portal.iqn}


@pytest.mark.case("ISC-DISC-05", section="RFC 7143 C", level="SHOULD", kills=("send-targets-other",))
def test_send_targets_with_a_name_that_is_not_there_lists_nothing(discovery, observe):
    found = discovery.text(("SendTargets", "iqn.2024-01.org.storagetest:there-is-no-such-target"))
    observe(f"{found}")
    assert not [value for name, value in found if name == "TargetName"]


@pytest.mark.case("ISC-DISC-06", kills=("send-targets-name",))
def test_send_targets_may_be_asked_twice(discovery, portal):
    for _ in range(2):
        assert ("TargetName", portal.iqn) in discovery.text(("SendTargets", "All"))


@pytest.mark.case("ISC-DISC-07", section="RFC 7143 4.3", kills=("scsi-in-discovery",))
def test_a_scsi_command_in_a_discovery_session_is_rejected(discovery, observe):
    discovery.send(ScsiCommand(cdb=READY))
    after = discovery.probe_alive()
    observe(str(after))
    assert not any(isinstance(pdu, ScsiResponse) for pdu in after.pdus), str(after)
    assert after.closed or after.reject, f"neither a Reject nor a close: {after}"


@pytest.mark.case("ISC-DISC-08", section="RFC 7143 4.3", kills=("task-in-discovery",))
def test_task_management_in_a_discovery_session_is_rejected(discovery, observe):
    discovery.send(TaskRequest(function=TaskFunction.LOGICAL_UNIT_RESET))
    after = discovery.probe_alive()
    observe(str(after))
    done = [pdu for pdu in after.pdus if isinstance(pdu, TaskResponse) and pdu.response == 0]
    assert not done, str(after)


@pytest.mark.case("ISC-DISC-09", section="RFC 7143 4.3, 13.21", kills=("logout-failed",))
def test_a_discovery_session_is_logged_out_like_any_other(discovery):
    assert discovery.logout().response == LogoutResult.SUCCESS


@pytest.mark.case(
    "ISC-DISC-10",
    section="RFC 7143 4.3, 13.21",
    kills=("logout-recovery",),
    builds_on=("ISC-LOGOUT-04",),
)
def test_a_discovery_session_is_only_closed_as_a_session(discovery, observe):
    discovery.send(LogoutRequest(reason=LogoutReason.RECOVERY, cid=5))
    answer = discovery.receive()
    observe("closed" if answer is None else answer.summary())
    assert not (isinstance(answer, LogoutResponse) and answer.response == 0), "recovery was accepted"
    discovery.logged_in = not isinstance(answer, LogoutResponse)


@pytest.mark.case("ISC-TEXT-01", section="RFC 7143 C", no_mutant_reason=LIO_DEVIATES)
def test_send_targets_all_is_not_supported_in_a_normal_session(session, observe):
    session.send(TextRequest(data=b"SendTargets=All\0"))
    after = session.probe_alive()
    observe(str(after))
    for pdu in after.pdus:
        if isinstance(pdu, TextResponse):
            found = parse_text(pdu.data)
            assert not [name for name, _ in found if name == "TargetName"], "answered with a list of targets"


@pytest.mark.case("ISC-TEXT-02", section="RFC 7143 C", no_mutant_reason=LIO_DEVIATES)
def test_send_targets_without_a_value_lists_this_target_in_a_normal_session(session, portal):
    found = session.text(("SendTargets", ""))
    assert {value for name, value in found if name == "TargetName"} == {portal.iqn}


@pytest.mark.case("ISC-TEXT-EMPTY", section="RFC 7143 11.10, 11.11", kills=("text-empty-unanswered",))
def test_a_text_request_without_text_is_answered(session, observe):
    """Its response has no text; a Reject is an answer, too."""
    session.send(TextRequest())
    answer = session.receive(expected="the Text Response, or a Reject")
    observe(answer.summary() if answer else "a close")
    if isinstance(answer, TextResponse):
        assert not answer.data, f"{answer.data!r} in response to a Text Request without text"


@pytest.mark.case("ISC-TEXT-03", section="RFC 7143 6.2", no_mutant_reason=LIO_DEVIATES)
def test_a_key_that_is_not_known_is_answered_not_understood(session):
    assert dict(session.text(("X-org.storagetest.key", "1"))) == {"X-org.storagetest.key": NOT_UNDERSTOOD}


@pytest.mark.case(
    "ISC-TEXT-TOGETHER",
    section="RFC 7143 6.2, C",
    kills=("text-key-together-unanswered",),
    builds_on=("ISC-TEXT-03", "ISC-DISC-01"),
)
def test_a_key_together_with_send_targets_is_answered_too(discovery, portal):
    """The order of the keys in the request decides nothing."""
    private = ("X-org.storagetest.other", "1")
    for asked in ([("SendTargets", "All"), private], [private, ("SendTargets", "All")]):
        found = discovery.text(*asked)
        names = [name for name, _ in asked]
        assert ("TargetName", portal.iqn) in found, f"a text of {names} lists no target: {found}"
        assert (private[0], NOT_UNDERSTOOD) in found, f"a text of {names} has no answer to the private key"


@pytest.mark.parametrize(
    "final",
    [
        pytest.param(False, marks=pytest.mark.case("ISC-TEXT-10", kills=("text-c-answered",))),
        pytest.param(True, marks=pytest.mark.case("ISC-TEXT-11", kills=("text-c-answered",))),
    ],
)
@pytest.mark.case(section="RFC 7143 6.2, 11.10.2", level="MUST")
def test_text_that_goes_on_is_not_answered_before_its_end(session, observe, final):
    """6.2: the response to a request with C has no data. With F and C the request contradicts itself."""
    session.send(TextRequest(final=final, continues=True, data=b"X-org.storagetest.key=1\0"))
    after = session.probe_alive(reject_decides=True)
    observe(str(after))
    for pdu in after.pdus:
        if isinstance(pdu, TextResponse):
            assert not pdu.data, f"answered {parse_text(pdu.data)} while the text goes on (C)"


@pytest.mark.case(
    "ISC-TEXT-ANEW", section="RFC 7143 11.10.4", kills=("text-goes-on",), builds_on=("ISC-DISC-01",)
)
def test_a_new_text_request_does_not_go_on_with_one_that_was_left(discovery):
    """A Target Transfer Tag of FFFFFFFFh: the request is new, and what was negotiated before is forgotten."""
    left = "X-org.storagetest.left"
    discovery.send(TextRequest(final=False, continues=True, data=f"{left}=1\0".encode()))
    after = discovery.probe_alive(reject_decides=True)
    answers = [pdu for pdu in after.pdus if isinstance(pdu, TextResponse)]
    if after.closed or after.reject or not answers or answers[0].data:
        pytest.skip(f"the target takes no text in parts: {after}")
    found = discovery.text(("SendTargets", "All"))
    assert left not in dict(found), (
        f"a new Text Request is answered {found}, as a part of the one before it, which was left"
    )
    assert found, "a new Text Request after one that was left is answered without any target"


@pytest.mark.case("ISC-TEXT-04", section="RFC 7143 11.11.3", kills=("text-itt",))
def test_a_text_response_has_the_task_tag_of_its_request(discovery):
    sent = discovery.send(TextRequest(data=b"SendTargets=All\0"))
    assert discovery.expect(TextResponse).itt == sent.itt


@pytest.mark.case(
    "ISC-TEXT-05", section="RFC 7143 11.11.4, 11.17.1", level="SHOULD", kills=("reject-swallowed",)
)
def test_a_text_request_with_an_unknown_target_transfer_tag_is_refused(session, observe):
    session.send(TextRequest(ttt=0x1234, data=b"X-org.storagetest.key=1\0"))
    met(session.probe_alive(), observe)


@pytest.mark.case(
    "ISC-DISC-NUMBERED",
    section="RFC 7143 4.2.2.1",
    kills=("exp-cmd-sn-stuck", "exp-cmd-sn-of-discovery-logout"),
    builds_on=("ISC-DISC-01", "ISC-LOGOUT-07"),
)
def test_text_and_logout_of_a_discovery_session_use_a_cmd_sn(discovery):
    """ExpCmdSN of each response: to two Text Requests and a Logout, none of which is immediate."""
    number = discovery.numbers.cmd_sn
    for _ in range(2):
        number = plus(number, 1)
        discovery.send(TextRequest(data=b"SendTargets=All\0"))
        answer = discovery.expect(TextResponse)
        assert answer.exp_cmd_sn == number, (
            f"ExpCmdSN is {answer.exp_cmd_sn} after a Text Request of CmdSN {plus(number, -1)}"
        )
        if not answer.final:
            pytest.skip(f"the list of targets comes in several responses: {answer.summary()}")
    answer = discovery.logout(immediate=False)
    assert answer.exp_cmd_sn == plus(number, 1), (
        f"ExpCmdSN is {answer.exp_cmd_sn} after a Logout that is not immediate, of CmdSN {number}"
    )


@pytest.mark.case("ISC-TEXT-06", section="RFC 7143 13, 13.13", kills=("leading-key-renegotiated",))
def test_a_leading_only_key_is_not_negotiated_in_full_feature_phase(session, observe):
    session.send(TextRequest(data=b"MaxBurstLength=65536\0"))
    after = session.probe_alive()
    observe(str(after))
    for pdu in after.pdus:
        if isinstance(pdu, TextResponse):
            reply = dict(parse_text(pdu.data)).get("MaxBurstLength", REJECT)
            assert reply in (REJECT, NOT_UNDERSTOOD, "Irrelevant"), f"replied {reply}"


@pytest.mark.case("ISC-TEXT-07", section="RFC 7143 11.11.1", kills=("text-not-final",))
def test_a_text_response_has_a_target_transfer_tag_where_it_is_not_final_and_only_there(discovery):
    discovery.send(TextRequest(data=b"SendTargets=All\0"))
    answer = discovery.expect(TextResponse)
    assert (answer.ttt == NO_TAG) == answer.final, answer.summary()


@pytest.mark.case(
    "ISC-TEXT-08",
    section="RFC 7143 6.1, 6.2",
    no_mutant_reason="a proxy cannot make a target die of it",
    builds_on=("ISC-NOP-01",),
)
def test_text_that_is_no_text_is_refused_and_the_target_lives(connections, session, observe):
    session.send(TextRequest(data=b"\x80\x81\x82 no equals sign\0"))
    after = session.probe_alive()
    observe(str(after))
    assert connections.login("b").ping(b"x").data == b"x"


@pytest.mark.case("ISC-TEXT-09", section="RFC 7143 6.2", level="SHOULD", kills=("reject-swallowed",))
def test_a_second_text_request_while_one_is_open_is_refused(session, observe):
    session.send(TextRequest(final=False, data=b"X-a=1\0"))
    session.send(TextRequest(final=False, data=b"X-b=1\0"))
    after = session.probe_alive(reject_decides=True)
    observe(str(after))
    rejects = [pdu for pdu in after.pdus if getattr(pdu, "reason", None) is not None]
    assert rejects or after.closed, str(after)
    assert all(isinstance(pdu.reason, int) and pdu.reason in list(RejectReason) for pdu in rejects)


SEGMENT = 512
"""Our MaxRecvDataSegmentLength, the least that is legal (13.12)."""


PRIVATE = tuple((f"X-org.storagetest.{number:02}", "1") for number in range(30))
"""Keys whose answers are longer than :data:`SEGMENT` together (6.2)."""


def keeps_to_segment(session: Initiator, asked: Pairs, observe) -> None:
    """Send a text with many private keys; claim that no Text Response is longer than :data:`SEGMENT`."""
    sent = session.send(TextRequest(data=format_text(asked)))
    lengths: list[int] = []
    for pdu in session.responses("the end of a text response"):
        if not isinstance(pdu, TextResponse):
            observe("a close" if pdu is None else pdu.summary())
            pytest.skip("a text with private keys is refused (ISC-TEXT-03)")
        lengths.append(len(pdu.data))
        if pdu.final:
            break
        session.ask_for_more(sent.itt, pdu.ttt)
    observe(f"Text Responses of {lengths} bytes")
    assert max(lengths) <= SEGMENT, (
        f"a Text Response of {max(lengths)} bytes, over our MaxRecvDataSegmentLength of {SEGMENT}"
    )
    if sum(lengths) <= SEGMENT:
        pytest.skip(f"the answer has {sum(lengths)} bytes, which one PDU holds")


@pytest.mark.case(
    "ISC-TEXT-SEGMENT",
    section="RFC 7143 13.12, 6.2",
    kills=("text-over-segment",),
    builds_on=("ISC-DISC-01",),
)
def test_a_long_text_response_keeps_to_our_segment_length(connections, observe):
    """SendTargets with many private keys, each of which is answered: more than one PDU holds."""
    session = connections.discovery(offer={"MaxRecvDataSegmentLength": str(SEGMENT)})
    keeps_to_segment(session, (("SendTargets", "All"), *PRIVATE), observe)
