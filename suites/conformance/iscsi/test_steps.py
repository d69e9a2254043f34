"""What takes several steps: a login or a text in several requests, more than 256 PDUs of one command.

RFC 7143 6.2 and 11.12.2 (negotiation, C bit), 11.3.4 and 11.8.4 (data after a short first burst), 11.7.5 and
11.8.2 (DataSN, R2TSN), 11.10 and 11.11 (text).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from storagetest.wire.iscsi.codes import NO_TAG, Stage
from storagetest.wire.iscsi.keys import (
    KEYS,
    Negotiation,
    format_text,
    negotiated_reply,
    numeric,
    outcome,
    parse_text,
)
from storagetest.wire.iscsi.pdu import LoginRequest, TextRequest, TextResponse
from storagetest.wire.scsi.cdb import READ_16, WRITE_16, cdb
from storagetest.wire.scsi.codes import ScsiStatus
from storagetest.wire.scsi.logical_unit import LogicalUnit

if TYPE_CHECKING:
    from storagetest.wire.iscsi.initiator import Initiator
    from storagetest.wire.iscsi.keys import Pairs

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 6.2", level="MUST")]

SEGMENT = 512
"""Bytes of a PDU's data or of a burst, the least that is legal (13.12 to 13.14)."""
MANY = 260
"""PDUs of one command: more than a byte counts."""
LIMITS = {"MaxBurstLength": "1024", "FirstBurstLength": "512"}
STAYS = {"transit": False, "csg": Stage.OPERATIONAL, "nsg": 0}
ENDS = {"transit": True, "csg": Stage.OPERATIONAL, "nsg": Stage.FULL_FEATURE}


# Logins


@pytest.fixture
def login_of(connections, portal):
    """Return a function that logs in with the given requests: fields, and a data segment each."""
    if portal.credentials is not None:
        pytest.skip("the target requires authentication: it decides how many exchanges a login takes")
    initiator = connections.open()

    def run(*requests: tuple[dict[str, Any], bytes]) -> Initiator:
        offered = parse_text(b"".join(data for _, data in requests))
        replied: Pairs = ()
        answers: Pairs = ()
        for number, (fields, data) in enumerate(requests, 1):
            request = LoginRequest(
                itt=0x51, isid=b"\x80\1\2\3\4\5", cid=1, data=data + format_text(answers), **fields
            )
            response = initiator.send_login(request)
            if response.status and any("continues" in fields for fields, _ in requests):
                pytest.skip(f"text that continues is refused: {response.status:04x} (ISC-LOGIN-23)")
            assert not response.status, f"request {number} of a login is refused: {response.status:04x}"
            if "continues" in fields and response.data:
                pytest.skip("the response to text that continues is not empty (ISC-LOGIN-23)")
            pairs = parse_text(response.data)
            replied, answers = (*replied, *pairs), answers_to(pairs, offered)
        if not response.transit:
            pytest.skip(f"the target asks for more exchanges: {response.summary()}")
        initiator.isid, initiator.tsih, initiator.replied = response.isid, response.tsih, replied
        initiator.enter_full_feature(
            outcome(offered, replied),
            max_recv=int(dict(offered).get("MaxRecvDataSegmentLength", "8192")),
        )
        LogicalUnit(initiator).clear_attentions()
        return initiator

    return run


def answers_to(pairs: Pairs, offered: Pairs) -> Pairs:
    """Return the answers to keys that the target offers of its own accord, with our defaults."""
    own = dict(offered)
    return tuple(
        (name, negotiated_reply(KEYS[name], value, KEYS[name].default or ""))
        for name, value in pairs
        if name in KEYS and name not in own and KEYS[name].negotiation is not Negotiation.DECLARE
    )


def identity(connections, portal) -> Pairs:
    """Return the keys that each login begins with; a target need not offer digests of its own accord."""
    return (
        ("InitiatorName", connections.name()),
        ("SessionType", "Normal"),
        ("TargetName", portal.iqn),
        ("HeaderDigest", "None"),
        ("DataDigest", "None"),
    )


@pytest.mark.case("ISC-LOGIN-KEPT", kills=("login-step-forgotten",), builds_on=("ISC-R2T-01",))
def test_what_an_earlier_request_of_a_login_agreed_on_is_kept(connections, portal, scratch, login_of):
    """Each key in a request of its own: R2Ts and segments keep to all of them (reads: ISC-DATAIN-04)."""
    steps = (
        (*identity(connections, portal), ("MaxBurstLength", "1024")),
        (("FirstBurstLength", "512"),),
        (("MaxRecvDataSegmentLength", "512"),),
        (("InitialR2T", "Yes"), ("ImmediateData", "No")),
    )
    session = login_of(*((STAYS, format_text(pairs)) for pairs in steps), (ENDS, b""))
    data = scratch.pattern(8, seed=901)
    done = session.command(cdb(WRITE_16, lba=scratch.lba, blocks=8), data=data, immediate_length=0)
    assert done.status == ScsiStatus.GOOD, f"the write ended in status {done.status:#04x}"
    assert scratch.read_back(session, 8) == data, "what was written is not read back"
    found = session.validator.violations_of("r2t-length", "data-length")
    assert not found, f"a login of {len(steps) + 1} requests agreed on {session.negotiated}: {found[0]}"


@pytest.mark.case(
    "ISC-LOGIN-CUT",
    section="RFC 7143 6.2, 11.12.2",
    kills=("login-cut-dropped",),
    builds_on=("ISC-LOGIN-23",),
)
def test_every_key_of_a_text_that_is_cut_within_a_value_is_answered(connections, portal, login_of):
    """The first request of the login ends within a value and has C; its data go on in the next one."""
    text = format_text((*identity(connections, portal), *LIMITS.items(), ("ErrorRecoveryLevel", "0")))
    cut = text.index(b"FirstBurstLength=5") + len(b"FirstBurstLength=5")
    session = login_of(({**STAYS, "continues": True}, text[:cut]), (STAYS, text[cut:]), (ENDS, b""))
    answers = dict(session.replied)
    for key, value in LIMITS.items():
        answer = numeric(answers.get(key, ""))
        assert answer is not None, f"{key}={value} is not answered: {answers}"
        assert 512 <= answer <= int(value), f"{key}={value} is answered {answers[key]}"


# Text


@pytest.mark.case("ISC-TEXT-CUT", section="RFC 7143 6.2, 11.11.1, 11.11.4", kills=("text-cut-final",))
def test_a_text_in_two_requests_is_answered_as_one(discovery, observe):
    """The first request ends within a key and has C, not F: its response is empty, has no F, but a tag."""
    whole = discovery.text(("SendTargets", "All"))
    sent = discovery.send(TextRequest(final=False, continues=True, data=b"SendTar"))
    first = discovery.receive(expected="a Text Response")
    if not isinstance(first, TextResponse):
        observe(f"text that continues is met with {first.summary() if first else 'a close'}")
        pytest.skip("text that continues is refused")
    assert not first.data, f"{first.data!r} answers the first part of a text"
    assert not first.final, "F of a Text Response is 1 in response to a Text Request whose F is 0 (11.11.1)"
    assert first.ttt != NO_TAG, "a Text Response that is not final has no Target Transfer Tag (11.11.4)"
    found = rest_of_text(discovery, sent.itt, first.ttt, b"gets=All\0")
    assert parse_text(found) == whole, "SendTargets=All in two requests has other answers than in one"


@pytest.mark.case(
    "ISC-TEXT-OPEN",
    section="RFC 7143 11.11.1, 11.11.4",
    kills=("text-open-final",),
    builds_on=("ISC-DISC-01",),
)
def test_a_text_request_that_is_not_final_gets_no_final_response(discovery, observe):
    """A whole text, without C and without F: the initiator has more to send, and sends it under the tag."""
    whole = discovery.text(("SendTargets", "All"))
    sent = discovery.send(TextRequest(final=False, data=b"SendTargets=All\0"))
    first = discovery.receive(expected="a Text Response")
    if not isinstance(first, TextResponse):
        observe(f"a text that goes on is met with {first.summary() if first else 'a close'}")
        pytest.skip("a Text Request without F is refused")
    assert not first.final, "F of a Text Response is 1 in response to a Text Request whose F is 0 (11.11.1)"
    assert first.ttt != NO_TAG, "a Text Response that is not final has no Target Transfer Tag (11.11.4)"
    found = first.data + rest_of_text(discovery, sent.itt, first.ttt)
    assert parse_text(found) == whole, "SendTargets=All without F has other answers than with it"


def rest_of_text(session: Initiator, itt: int, ttt: int, data: bytes = b"") -> bytes:
    """End a text negotiation with a final request with ``data``; return the text of the responses.

    All requests of a negotiation have one Initiator Task Tag (11.10.3).
    """
    session.send(TextRequest(itt=itt, ttt=ttt, data=data))
    found = b""
    for response in session.responses("the end of a text response"):
        assert isinstance(response, TextResponse), f"the last request is met with {response}"
        found += response.data
        if response.final:
            break
        session.ask_for_more(itt, response.ttt)
    return found


# Many PDUs


def blocks_of_many(scratch, facts) -> int:
    """Return the blocks of MANY segments; skip if one command may not transfer them."""
    blocks = -(-MANY * SEGMENT // scratch.block_size)
    if blocks > facts.largest:
        pytest.skip(f"a command transfers {facts.largest} blocks at most; the case needs {blocks}")
    return blocks


@pytest.mark.case(
    "ISC-R2T-MANY", section="RFC 7143 11.8.2", kills=("r2t-sn-byte",), builds_on=("ISC-R2T-02",)
)
def test_r2t_sn_counts_every_r2t_of_a_long_write(connections, scratch, facts):
    blocks, size = blocks_of_many(scratch, facts), str(SEGMENT)
    session = connections.prepared(
        scratch, MaxBurstLength=size, FirstBurstLength=size, InitialR2T="Yes", ImmediateData="No"
    )
    data = scratch.pattern(blocks, seed=902)
    done = session.command(cdb(WRITE_16, lba=scratch.lba, blocks=blocks), data=data, immediate_length=0)
    assert done.status == ScsiStatus.GOOD, f"status {done.status:#04x}"
    numbers = [pdu.r2t_sn for pdu in done.r2ts]
    assert numbers == list(range(len(numbers))), f"R2TSN of the R2Ts of one write: {unexpected(numbers)}"
    assert scratch.read_back(session, blocks) == data, "what was written is not read back"


@pytest.mark.case(
    "ISC-DATAIN-MANY", section="RFC 7143 11.7.5", kills=("data-sn-byte",), builds_on=("ISC-DATAIN-03",)
)
def test_data_sn_counts_every_data_in_of_a_long_read(connections, scratch, facts):
    blocks = blocks_of_many(scratch, facts)
    session = connections.prepared(scratch, MaxRecvDataSegmentLength=str(SEGMENT))
    size = blocks * scratch.block_size
    done = session.command(cdb(READ_16, lba=scratch.lba, blocks=blocks), read=size)
    assert (done.status, len(done.data)) == (ScsiStatus.GOOD, size)
    numbers = [pdu.data_sn for pdu in done.data_ins]
    assert numbers == list(range(len(numbers))), f"DataSN of the Data-In of one read: {unexpected(numbers)}"


@pytest.mark.case(
    "ISC-DATAOUT-MANY", section="RFC 7143 11.7.5", kills=("data-out-sn-byte",), builds_on=("ISC-DATAOUT-09",)
)
def test_a_sequence_of_many_data_out_is_written(connections, scratch):
    """Each has few words, so that there are more than 256; DataSN counts them from 0 in the sequence."""
    session = connections.prepared(scratch, InitialR2T="Yes", ImmediateData="No")
    data = scratch.pattern(16, seed=904)
    size = len(data) // MANY // 4 * 4
    command, r2t = session.start_write(cdb(WRITE_16, lba=scratch.lba, blocks=16), len(data))
    if r2t.desired_length < len(data):
        pytest.skip(f"the target asks for {r2t.desired_length} of {len(data)} bytes at a time")
    session.parameters = replace(session.parameters, max_send=size)
    session.send_data(command, data, start=0, end=len(data), ttt=r2t.ttt)
    done = session.finish(command, data)
    assert done.status == ScsiStatus.GOOD, f"status {done.status:#04x} after {len(data) // size} Data-Out"
    assert scratch.read_back(session, 16) == data, "what was written is not read back"


def unexpected(numbers: list[int]) -> str:
    """Return the first of ``numbers`` that is not its place."""
    at, number = next((at, number) for at, number in enumerate(numbers) if at != number)
    return f"after {at} of them comes {number}"


# A short first burst


@pytest.mark.parametrize("initial_r2t", [
    pytest.param("Yes", marks=pytest.mark.case("ISC-UNSOL-SHORT-SOLICITED")),
    pytest.param("No", marks=pytest.mark.case("ISC-UNSOL-SHORT-FINAL")),
])  # fmt: skip
@pytest.mark.case(
    section="RFC 7143 11.3.4, 11.8.4", kills=("r2t-after-first-burst",), builds_on=("ISC-R2T-01",)
)
def test_an_r2t_asks_from_where_a_short_first_burst_ends(connections, scratch, initial_r2t):
    """A write over FirstBurstLength with immediate data alone, less than it allows: F is 1, no more come."""
    size = scratch.block_size
    first = str(4 * size)
    session = connections.prepared(
        scratch, InitialR2T=initial_r2t, ImmediateData="Yes", FirstBurstLength=first, MaxBurstLength=first
    )
    if not session.parameters.immediate_data:
        pytest.skip("ImmediateData=No")
    if session.parameters.initial_r2t != (initial_r2t == "Yes"):
        pytest.skip(f"InitialR2T={initial_r2t} is not agreed on")
    data = scratch.pattern(12, seed=903)
    done = session.command(cdb(WRITE_16, lba=scratch.lba, blocks=12), data=data, immediate_length=size)
    assert done.status == ScsiStatus.GOOD, f"status {done.status:#04x}"
    asked = [(pdu.buffer_offset, pdu.desired_length) for pdu in done.r2ts]
    assert asked, f"no R2T asks for the {len(data) - size} bytes after the immediate data"
    assert asked[0][0] == size, (
        f"{size} bytes came as immediate data, and the first R2T asks from byte {asked[0][0]}; "
        f"FirstBurstLength is {session.parameters.first_burst}"
    )
    assert scratch.read_back(session, 12) == data, f"not what was written; the R2Ts asked for {asked}"
