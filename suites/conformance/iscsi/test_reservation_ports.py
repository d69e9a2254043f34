"""Persistent reservations of other ports: REGISTER AND MOVE, SPEC_I_PT, ALL_TG_PT (SPC-4).

All of them are optional. REPORT CAPABILITIES states whether the bits are supported.
"""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.look import vpd_page
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, PrType, SenseKey
from storagetest.wire.scsi.data import decode_designators
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import KEY_A, KEY_B, RESERVING, claim, reserved
from storagetest.wire.scsi.reservations import (
    Capabilities,
    FullStatus,
    decode_capabilities,
    decode_full_status,
    move_list,
    out_list,
    port_list,
    transport_id,
)

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 REGISTER AND MOVE", level="MUST", builds_on=RESERVING),
]

RELATIVE_PORT = 4
"""Type of the designator that is a relative target port identifier (SPC-4)."""
PORT_FORMAT = 1
"""TPID FORMAT of the TransportID of an initiator port of iSCSI (SPC-4)."""


def of(unit: LogicalUnit) -> bytes:
    """Return the TransportID of the initiator port through which ``unit`` is used."""
    assert isinstance(unit.runner, Initiator)
    return transport_id(unit.runner.name, unit.runner.isid)


def relative_port(unit: LogicalUnit) -> int:
    """Return the relative target port identifier of page 83h; skip if there is none."""
    found = [one.data for one in decode_designators(vpd_page(unit, 0x83)) if one.kind == RELATIVE_PORT]
    if not found:
        pytest.skip("page 83h has no relative target port identifier")
    return int.from_bytes(found[0][2:4], "big")


def sent(unit: LogicalUnit, action: PrOut, data: bytes, **fields: int) -> ScsiResult:
    """PERSISTENT RESERVE OUT with a parameter list of any form."""
    return unit.run(
        c.PERSISTENT_RESERVE_OUT, data=data, service_action=int(action), allocation=len(data), **fields
    )


def moved(a: LogicalUnit, b: LogicalUnit, *, key: int = KEY_A, unregister: bool = False) -> ScsiResult:
    """REGISTER AND MOVE through ``a`` to the nexus of ``b``; skip if the service action is not supported."""
    data = move_list(key, KEY_B, relative_port(a), of(b), unregister=unregister)
    answer = sent(a, PrOut.REGISTER_AND_MOVE, data)
    if answer.unsupported or answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
        pytest.skip(f"REGISTER AND MOVE is not supported: {answer}")
    return answer


def capabilities(unit: LogicalUnit) -> Capabilities:
    """Return REPORT CAPABILITIES; skip if it is not supported."""
    answer = unit.reserve_in(PrIn.REPORT_CAPABILITIES)
    if answer.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"REPORT CAPABILITIES is not supported: {answer}")
    return decode_capabilities(answer.good_data())


@pytest.mark.parametrize("kind", [
    pytest.param(PrType.WRITE_EXCLUSIVE, marks=pytest.mark.case("SCS-PR-MOVE-1")),
    pytest.param(PrType.EXCLUSIVE_ACCESS, marks=pytest.mark.case("SCS-PR-MOVE-3")),
])  # fmt: skip
@pytest.mark.case(kills=("move-ignored",))
def test_register_and_move_registers_the_other_nexus_and_makes_it_the_holder(unreserved, scratch, kind):
    """The reservation keeps its type, and the nexus that held it stays registered."""
    a, b = unreserved
    reserved(a, kind)
    before = a.keys().generation
    answer = moved(a, b)
    assert answer.good, answer
    b.clear_attentions()
    keys, held = b.keys(), b.reservation()
    assert sorted(keys.keys) == [KEY_A, KEY_B], f"{answer}: the keys are {[hex(key) for key in keys.keys]}"
    assert keys.generation == (before + 1) % 2**32, f"PRGENERATION was {before}; it is {keys.generation}"
    assert (held.held, held.key, held.type) == (True, KEY_B, kind), f"{answer}: {held}"
    claim(b.write(scratch.lba, scratch.pattern(1, seed=230)), allowed=True)
    claim(a.write(scratch.lba, scratch.pattern(1, seed=231)), allowed=False)


@pytest.mark.case("SCS-PR-MOVE-UNREG", kills=("move-unreg-ignored",), builds_on=("SCS-PR-MOVE-1",))
def test_register_and_move_with_unreg_unregisters_the_nexus_that_sent_it(unreserved):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    answer = moved(a, b, unregister=True)
    assert answer.good, answer
    b.clear_attentions()
    keys, held = b.keys().keys, b.reservation()
    assert keys == (KEY_B,), f"{answer}: the keys are {[hex(key) for key in keys]}"
    assert (held.held, held.key) == (True, KEY_B), f"{answer}: {held}"


@pytest.mark.case("SCS-PR-MOVE-REKEY", kills=("move-keeps-key",), builds_on=("SCS-PR-MOVE-1",))
def test_register_and_move_to_a_registered_nexus_changes_its_key(unreserved):
    """Its key is the one that the command names then, and that is the key of the holder."""
    a, b = unreserved
    assert b.register(KEY_B ^ 0xFF).good
    reserved(a, PrType.WRITE_EXCLUSIVE)
    answer = moved(a, b)
    assert answer.good, answer
    b.clear_attentions()
    keys, held = b.keys().keys, b.reservation()
    assert sorted(keys) == [KEY_A, KEY_B], (
        f"{answer}: the keys are {[hex(key) for key in keys]}; the one of the nexus was {KEY_B ^ 0xFF:#x}"
    )
    assert (held.held, held.key) == (True, KEY_B), f"{answer}: {held}"


@pytest.mark.case("SCS-PR-MOVE-KEY", kills=("move-any-key",), builds_on=("SCS-PR-MOVE-1",))
def test_register_and_move_with_another_key_is_a_conflict(unreserved):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    before = a.keys()
    answer = moved(a, b, key=KEY_A + 1)
    claim(answer, allowed=False)
    assert a.keys() == before, f"{answer}: the registrations or PRGENERATION have changed"
    assert a.reservation().key == KEY_A


LENGTHS = {"LONGER": 4, "FAR": 1 << 20, "ZERO": None}
"""What is added to TRANSPORTID PARAMETER DATA LENGTH; None: it is zero."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-PR-MOVE-LENGTH-{name}")) for name in LENGTHS
])  # fmt: skip
@pytest.mark.case(kills=("move-any-length",), builds_on=("SCS-PR-MOVE-1",))
def test_register_and_move_with_another_length_of_the_transport_id_is_an_illegal_request(unreserved, name):
    """The length is that of the TransportID, 24 at least, and the parameter list has all of it."""
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    data, more = move_list(KEY_A, KEY_B, relative_port(a), of(b)), LENGTHS[name]
    length = 0 if more is None else len(of(b)) + more
    before = a.keys()
    answer = sent(a, PrOut.REGISTER_AND_MOVE, data[:20] + length.to_bytes(4, "big") + data[24:])
    if answer.unsupported or answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
        pytest.skip(f"REGISTER AND MOVE is not supported: {answer}")
    assert answer.check(SenseKey.ILLEGAL_REQUEST), (
        f"{answer}: TRANSPORTID PARAMETER DATA LENGTH is {length}, of a TransportID of {len(of(b))} bytes"
    )
    assert a.keys() == before, f"{answer}: the registrations or PRGENERATION have changed"
    assert a.reservation().key == KEY_A


@pytest.mark.case("SCS-PR-MOVE-OTHER", kills=("move-any-key",), builds_on=("SCS-PR-MOVE-1",))
def test_only_the_holder_moves_a_reservation(unreserved, connections, facts):
    """Another registrant gets a conflict, and nothing changes."""
    a, b = unreserved
    third = LogicalUnit(connections.login("c"), block_size=facts.capacity.block_size)
    reserved(a, PrType.WRITE_EXCLUSIVE)
    assert b.register(KEY_B).good
    before = a.keys()
    answer = moved(b, third, key=KEY_B)
    claim(answer, allowed=False)
    assert a.keys() == before, f"{answer}: the registrations or PRGENERATION have changed"
    assert a.reservation().key == KEY_A


@pytest.mark.parametrize("kind", [
    pytest.param(PrType.WRITE_EXCLUSIVE_ALL_REGISTRANTS, marks=pytest.mark.case("SCS-PR-MOVE-7")),
    pytest.param(PrType.EXCLUSIVE_ACCESS_ALL_REGISTRANTS, marks=pytest.mark.case("SCS-PR-MOVE-8")),
])  # fmt: skip
@pytest.mark.case(kills=("move-any-key",), builds_on=("SCS-PR-MOVE-1",))
def test_a_reservation_of_all_registrants_is_not_moved(unreserved, kind):
    a, b = unreserved
    reserved(a, kind)
    before = a.keys()
    claim(moved(a, b), allowed=False)
    assert a.keys() == before, "the registrations or PRGENERATION have changed"


@pytest.mark.case("SCS-PR-MOVE-ZERO", kills=("move-zero-key",), builds_on=("SCS-PR-MOVE-1",))
def test_register_and_move_with_a_key_of_zero_or_to_itself_is_an_illegal_request(unreserved):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    before, port = a.keys(), relative_port(a)
    for name, data in {
        "a key of zero": move_list(KEY_A, 0, port, of(b)),
        "the nexus itself": move_list(KEY_A, KEY_B, port, of(a)),
    }.items():
        answer = sent(a, PrOut.REGISTER_AND_MOVE, data)
        if answer.unsupported:
            pytest.skip(f"REGISTER AND MOVE is not supported: {answer}")
        assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}; {name}"
        assert a.keys() == before, f"{name}: the registrations or PRGENERATION have changed"
    assert a.reservation().key == KEY_A


@pytest.mark.parametrize("action", [
    pytest.param(PrOut.REGISTER, marks=pytest.mark.case("SCS-PR-PORTS")),
    pytest.param(PrOut.REGISTER_AND_IGNORE_EXISTING_KEY, marks=pytest.mark.case("SCS-PR-PORTS-IGNORE")),
])  # fmt: skip
@pytest.mark.case(section="SPC-4 SPEC_I_PT", kills=("ports-ignored",), builds_on=("SCS-PR-36",))
def test_spec_i_pt_registers_the_initiator_ports_of_the_list_or_is_refused(unreserved, action):
    """REPORT CAPABILITIES states which: SIP_C. A refused command registers no nexus.

    SPC-4 allows the bit with REGISTER alone, SPC-5 also with REGISTER AND IGNORE EXISTING KEY.
    """
    a, b = unreserved
    able = capabilities(a).spec_i_pt
    answer = sent(a, action, port_list(0, KEY_A, of(b)))
    keys = a.keys().keys
    if not able or (action is not PrOut.REGISTER and not answer.good):
        assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}; SIP_C of REPORT CAPABILITIES is {able:d}"
        assert keys == (), f"{answer}: the keys are {[hex(key) for key in keys]}"
        return
    assert answer.good, f"{answer}; SIP_C of REPORT CAPABILITIES is 1"
    assert keys == (KEY_A, KEY_A), (
        f"{answer}: the keys are {[hex(key) for key in keys]}; two nexuses are named"
    )
    answer = b.register(KEY_B, key=KEY_A)
    assert answer.good, f"{answer}; the nexus was registered with SPEC_I_PT"


@pytest.mark.case(
    "SCS-PR-PORTS-CUT", section="SPC-4 SPEC_I_PT", kills=("ports-list-accepted",), builds_on=("SCS-PR-PORTS",)
)
def test_a_list_of_transport_ids_that_is_longer_than_the_parameter_list_is_refused(unreserved):
    a, b = unreserved
    if not capabilities(a).spec_i_pt:
        pytest.skip("SIP_C of REPORT CAPABILITIES is 0")
    name = of(b)
    answer = sent(a, PrOut.REGISTER, port_list(0, KEY_A, name, length=2 * len(name)))
    assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}; the list ends {len(name)} bytes too early"
    assert a.keys().keys == (), f"{answer}: a nexus was registered"


@pytest.mark.case(
    "SCS-PR-PORTS-RESERVE",
    section="SPC-4 SPEC_I_PT",
    kills=("ports-of-reserve-accepted",),
    builds_on=RESERVING,
)
def test_spec_i_pt_with_reserve_is_an_illegal_request(unreserved):
    a, _ = unreserved
    assert a.register(KEY_A).good
    answer = sent(a, PrOut.RESERVE, out_list(KEY_A, spec_i_pt=True), type=int(PrType.WRITE_EXCLUSIVE))
    assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}; SPEC_I_PT is of REGISTER"
    assert not a.reservation().held, f"{answer}: the unit is reserved"


@pytest.mark.case(
    "SCS-PR-ALL-PORTS", section="SPC-4 ALL_TG_PT", kills=("all-ports-refused",), builds_on=("SCS-PR-36",)
)
def test_all_tg_pt_registers_through_every_port_or_is_refused(unreserved):
    """REPORT CAPABILITIES states which: ATP_C. A refused command registers no nexus."""
    a, _ = unreserved
    able = capabilities(a).all_tg_pt
    answer = sent(a, PrOut.REGISTER, out_list(0, KEY_A, all_target_ports=True))
    keys = a.keys().keys
    if not able:
        assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}; ATP_C of REPORT CAPABILITIES is 0"
        assert keys == (), f"{answer}: the keys are {[hex(key) for key in keys]}"
        return
    assert answer.good, f"{answer}; ATP_C of REPORT CAPABILITIES is 1"
    assert KEY_A in keys, f"{answer}: the keys are {[hex(key) for key in keys]}"


# READ FULL STATUS


@pytest.mark.case(
    "SCS-PR-FULL-PORT",
    section="SPC-4 READ FULL STATUS",
    kills=("full-status-port",),
    builds_on=("SCS-PR-28",),
)
def test_full_status_has_the_port_of_each_registration(unreserved):
    """The relative target port identifier of page 83h, unless ALL_TG_PT states every port."""
    for key, unit in zip((KEY_A, KEY_B), unreserved, strict=True):
        assert unit.register(key).good
    for one in full_status(unreserved[0]):
        if not one.all_ports:
            port = relative_port(unreserved[0])
            assert one.port == port, (
                f"key {one.key:016x} is registered through port {one.port}; page 83h of that port has {port}"
            )


@pytest.mark.case(
    "SCS-PR-FULL-ISID",
    section="SPC-4 READ FULL STATUS, TransportID",
    kills=("full-status-isid",),
    builds_on=("SCS-PR-28",),
)
def test_full_status_has_the_initiator_port_of_each_registration(unreserved, connections, facts):
    """Name and ISID, of two initiators and of a second session of the first one."""
    again = LogicalUnit(connections.login("a"), block_size=facts.capacity.block_size)
    units = dict(zip((KEY_A, KEY_B, KEY_A ^ KEY_B), (*unreserved, again), strict=True))
    for key, unit in units.items():
        assert unit.register(key).good
    found = {one.key: one.transport_id for one in full_status(again)}
    assert set(found) == set(units), f"keys {[f'{key:016x}' for key in found]}"
    for key, unit in units.items():
        if found[key][0] >> 6 != PORT_FORMAT:
            pytest.skip("the TransportIDs name initiator devices, and no ports")
        name, wanted = (shown.rstrip(b"\0")[4:].lower() for shown in (found[key], of(unit)))
        assert name == wanted, f"key {key:016x} is of {name.decode()}; {wanted.decode()} has registered it"


def full_status(unit: LogicalUnit) -> tuple[FullStatus, ...]:
    """Return the descriptors of READ FULL STATUS; skip if it is not supported."""
    answer = unit.reserve_in(PrIn.READ_FULL_STATUS)
    if answer.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"not supported: {answer}")
    assert answer.good, answer
    return decode_full_status(answer.data)
