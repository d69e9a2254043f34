"""NOP-Out and NOP-In (RFC 7143 11.18, 11.19)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.windows import with_room
from storagetest.wire.iscsi.codes import NO_TAG
from storagetest.wire.iscsi.pdu import NopIn, NopOut

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 11.19", level="MUST")]


@pytest.mark.case("ISC-NOP-01", kills=("nop-echo", "ping-lun"))
def test_ping_data_come_back_whole(session):
    for size in (0, 1, 3, 4, 100, min(1024, session.parameters.max_send)):
        data = bytes(at % 251 for at in range(size))
        assert session.ping(data).data == data


@pytest.mark.case("ISC-NOP-02", kills=("nop-itt",))
def test_the_answer_has_the_task_tag_of_the_ping(session):
    session.send(NopOut(immediate=True, itt=0x5A5A))
    assert session.expect(NopIn).itt == 0x5A5A


@pytest.mark.case("ISC-NOP-03", section="RFC 7143 11.19.1", kills=("nop-ttt",))
def test_the_answer_to_a_ping_has_no_target_transfer_tag(session):
    assert session.ping().ttt == NO_TAG


@pytest.mark.case("ISC-NOP-04", section="RFC 7143 11.19", level="SHOULD", kills=("nop-unasked",))
def test_a_nop_out_with_the_reserved_task_tag_is_not_answered(session):
    session.send(NopOut(immediate=True))
    after = session.probe_alive()
    assert not after.pdus, str(after)
    assert not after.closed


@pytest.mark.case(
    "ISC-NOP-05",
    section="RFC 7143 11.18.3, 11.19, 13.12",
    no_mutant_reason="LIO breaks this rule itself",
    builds_on=("ISC-NOP-01",),
)
def test_ping_data_are_cut_to_our_max_recv_data_segment_length(connections):
    session = connections.login(offer={"MaxRecvDataSegmentLength": "512"})
    size = min(1024, session.parameters.max_send)
    data = bytes(at % 251 for at in range(size))
    echoed = session.ping(data).data
    assert len(echoed) <= 512, f"{len(echoed)} bytes, over our MaxRecvDataSegmentLength of 512"
    assert echoed == data[:512]


# 4.2.2.1 orders the delivery of commands, and no sentence the answers.
@pytest.mark.case("ISC-NOP-06", section="RFC 7143 4.2.2.1", level="SHOULD", kills=("nop-order",))
def test_pings_are_answered_in_their_order(session):
    with_room(session, 2)
    count = min(10, session.window)
    sent = [session.send(NopOut(itt=session.numbers.itt(), data=bytes((at,)))).itt for at in range(count)]
    assert [session.expect(NopIn).itt for _ in sent] == sent


@pytest.mark.case("ISC-NOP-07", section="RFC 7143 11.19, 11.18.2", level="SHOULD", kills=("nop-unasked",))
def test_a_nop_out_with_a_target_transfer_tag_of_no_nop_in_is_not_answered(session, observe):
    session.send(NopOut(immediate=True, ttt=0x1234, lun=session.lun))
    after = session.probe_alive()
    observe(str(after))
    assert not any(isinstance(pdu, NopIn) for pdu in after.pdus), str(after)


@pytest.mark.case("ISC-NOP-08", section="RFC 7143 11.19", kills=("nop-final",))
def test_a_nop_in_has_bit_one_of_byte_one_set(session):
    assert session.ping().final


@pytest.mark.case(
    "ISC-NOP-09", section="RFC 7143 11.18.3, 11.19", kills=("nop-echo",), builds_on=("ISC-NOP-01",)
)
def test_a_ping_with_data_as_long_as_the_target_takes_is_answered(session):
    size = min(session.parameters.max_send, session.parameters.max_recv)
    assert len(session.ping(bytes(size)).data) == size
