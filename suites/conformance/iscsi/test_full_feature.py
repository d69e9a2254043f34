"""Full feature phase: what immediate requests do not count, and what later requests and declarations do.

RFC 7143 4.2.2.1 (CmdSN), 13.12 (MaxRecvDataSegmentLength, which may be declared again), C (SendTargets).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.wire.iscsi.codes import TaskFunction
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.keys import NOT_UNDERSTOOD, REJECT, Pairs, numeric, parse_text
from storagetest.wire.iscsi.pdu import (
    LogoutRequest,
    NopOut,
    Request,
    ScsiCommand,
    TaskRequest,
    TextRequest,
    TextResponse,
)
from storagetest.wire.scsi.cdb import READ_10, TEST_UNIT_READY, cdb

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 4.2.2.1", level="MUST")]

READY = cdb(TEST_UNIT_READY).ljust(16, b"\0")
NO_TASK = 0x5555
"""A task tag that is not in use."""

REQUESTS: dict[str, Callable[[Initiator, bool], Request]] = {
    "NOP": lambda session, immediate: NopOut(immediate=immediate, itt=session.numbers.itt()),
    "TASK": lambda session, immediate: TaskRequest(
        immediate=immediate, function=TaskFunction.ABORT_TASK, referenced_itt=NO_TASK, lun=session.lun
    ),
    "SCSI": lambda session, immediate: ScsiCommand(immediate=immediate, lun=session.lun, cdb=READY),
    "LOGOUT": lambda _, immediate: LogoutRequest(immediate=immediate),
}
"""Each kind of request that can be immediate in a normal session and is answered (RFC 7143 11.2.1.1)."""

PINGS = {kind: () if kind == "NOP" else ("ISC-IMMEDIATE-NOP",) for kind in REQUESTS}
"""The case that judges the immediate pings of the cases of each kind."""


def answered(session: Initiator, request: Request) -> Pdu:
    """Send ``request`` and return what it is answered with: its response, or a Reject."""
    session.send(request)
    answer = session.receive(expected="the response, or a Reject")
    if isinstance(request, LogoutRequest):
        session.logged_in = answer is None
    assert answer is not None, f"closed instead of an answer to {request.summary()}"
    return answer


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(
        f"ISC-IMMEDIATE-{kind}", kills=(f"immediate-{kind.lower()}-counts",), builds_on=PINGS[kind]))
    for kind in REQUESTS
])  # fmt: skip
def test_an_immediate_request_uses_no_cmd_sn(session, kind):
    """ExpCmdSN stays, in the answer and after it, whatever the answer is (4.2.2.1: CmdSN is not advanced)."""
    session.ping()
    expected = session.numbers.cmd_sn
    for turn in (1,) if kind == "LOGOUT" else (1, 2):
        answer = answered(session, REQUESTS[kind](session, True))
        found = [answer.exp_cmd_sn]
        if kind != "LOGOUT":
            found.append(session.ping().exp_cmd_sn)
        assert found == [expected] * len(found), (
            f"ExpCmdSN is {found} in and after {answer.summary()}, the answer to immediate request {turn}; "
            f"the next CmdSN is {expected}"
        )


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(
        f"ISC-NUMBERED-{kind}", kills=(f"numbered-{kind.lower()}-ignored",)))
    for kind in REQUESTS
])  # fmt: skip
@pytest.mark.case(builds_on=("ISC-IMMEDIATE-NOP",))
def test_a_request_that_is_not_immediate_uses_its_cmd_sn(session, kind):
    """ExpCmdSN is one more, in the answer and after it: also if the request was rejected (4.2.2.1)."""
    answer = answered(session, REQUESTS[kind](session, False))
    expected = session.numbers.cmd_sn
    found = [answer.exp_cmd_sn]
    if kind != "LOGOUT":
        found.append(session.ping().exp_cmd_sn)
    assert found == [expected] * len(found), (
        f"ExpCmdSN is {found} in and after {answer.summary()}; the next CmdSN is {expected}"
    )


@pytest.mark.parametrize("immediate", [
    pytest.param(True, marks=pytest.mark.case("ISC-IMMEDIATE-TEXT", kills=("immediate-text-counts",))),
    pytest.param(False, marks=pytest.mark.case("ISC-NUMBERED-TEXT", kills=("exp-cmd-sn-text",))),
])  # fmt: skip
@pytest.mark.case(builds_on=("ISC-DISC-01",))
def test_a_text_request_uses_a_cmd_sn_if_it_is_not_immediate(discovery, immediate):
    """In a discovery session, which every target has: the second of two requests is immediate or not."""
    discovery.text(("SendTargets", "All"))
    answer = answered(discovery, TextRequest(immediate=immediate, data=b"SendTargets=All\0"))
    expected = discovery.numbers.cmd_sn
    assert answer.exp_cmd_sn == expected, (
        f"ExpCmdSN is {answer.exp_cmd_sn} in {answer.summary()}; the next CmdSN is {expected}"
    )


# A segment length that is declared again


SMALL, LARGE = 512, 4096
"""Our MaxRecvDataSegmentLength in full feature phase and before (13.12: from 512 on)."""


@pytest.fixture
def declared_later(connections, scratch) -> Initiator:
    """Log in with LARGE, and declare SMALL by a Text Request; skip if the target takes no such text."""
    session = connections.prepared(scratch, MaxRecvDataSegmentLength=str(LARGE))
    session.send(TextRequest(data=f"MaxRecvDataSegmentLength={SMALL}\0".encode()))
    after = session.probe_alive(reject_decides=True)
    replies = [pdu for pdu in after.pdus if isinstance(pdu, TextResponse)]
    if not replies or after.closed or after.reject:
        pytest.skip(f"the target negotiates nothing in full feature phase: {after}")
    value = dict(parse_text(replies[0].data)).get("MaxRecvDataSegmentLength", "")
    if value in (REJECT, NOT_UNDERSTOOD, "Irrelevant"):
        pytest.skip(f"MaxRecvDataSegmentLength in full feature phase is answered {value}")
    if declared := numeric(value):  # the target's own, for what it receives from now on
        session.parameters = session.validator.parameters = replace(session.parameters, max_send=declared)
    return session


@pytest.mark.case("ISC-SEGMENT-READ", section="RFC 7143 13.12", kills=("segment-of-login",))
def test_data_in_keep_to_a_segment_length_that_was_declared_later(declared_later, scratch):
    block = cdb(READ_10, lba=scratch.lba, blocks=16)
    for _ in range(2):
        done = declared_later.command(block, read=16 * scratch.block_size)
        assert done.data == scratch.pattern(16), "not what was written"
        longest = max(len(pdu.data) for pdu in done.data_ins)
        assert longest <= SMALL, (
            f"a Data-In of {longest} bytes; MaxRecvDataSegmentLength was {LARGE}, and is {SMALL} since"
        )


@pytest.mark.case("ISC-SEGMENT-PING", section="RFC 7143 13.12, 11.18.3", kills=("segment-of-login",))
def test_ping_data_keep_to_a_segment_length_that_was_declared_later(declared_later):
    size = min(3 * SMALL, declared_later.parameters.max_send)
    if size <= SMALL:
        pytest.skip(f"the target declares a MaxRecvDataSegmentLength of {size} in its answer")
    data = bytes(number % 251 for number in range(size))
    echoed = declared_later.ping(data).data
    assert echoed == data[: len(echoed)], "not the data of the ping"
    assert len(echoed) <= SMALL, (
        f"a NOP-In of {len(echoed)} bytes; MaxRecvDataSegmentLength was {LARGE}, and is {SMALL} since"
    )


# SendTargets


def record(found: Pairs, name: str) -> list[str]:
    """Return the addresses of one target in the keys of a response."""
    addresses, current = [], ""
    for key, value in found:
        current = value if key == "TargetName" else current
        if key == "TargetAddress" and current == name:
            addresses.append(value)
    return sorted(addresses)


@pytest.mark.case(
    "ISC-DISC-AGAIN",
    section="RFC 7143 C",
    kills=("send-targets-again-short", "send-targets-again-empty"),
    builds_on=("ISC-DISC-01",),
)
def test_each_send_targets_of_a_session_returns_all_path_information(discovery):
    """C: "a target MUST return all path information"; what was returned once is returned again."""
    first, again = (discovery.text(("SendTargets", "All")) for _ in range(2))
    for name in sorted({value for key, value in first if key == "TargetName"}):
        assert ("TargetName", name) in again, f"{name} is not in the second list; it was in the first one"
        assert record(again, name) == record(first, name), (
            f"the second list has the addresses {record(again, name)} for {name}; "
            f"the first one had {record(first, name)}"
        )


@pytest.mark.case(
    "ISC-DISC-ONE-OF-ALL", section="RFC 7143 C", kills=("send-targets-one-short",), builds_on=("ISC-DISC-04",)
)
def test_a_target_by_its_name_has_the_addresses_that_it_has_among_all(discovery, portal):
    every = record(discovery.text(("SendTargets", "All")), portal.iqn)
    alone = record(discovery.text(("SendTargets", portal.iqn)), portal.iqn)
    assert alone == every, f"SendTargets={portal.iqn} has the addresses {alone}; among all it has {every}"
