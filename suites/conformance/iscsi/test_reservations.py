"""Persistent reservations between two I_T nexuses (SPC-4 PERSISTENT RESERVE IN and OUT)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import reports_no_release
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, PrType, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.reservation_harness import KEY_A, KEY_B, RESERVING, claim, reserved
from storagetest.wire.scsi.reservations import decode_capabilities, decode_full_status, out_list

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 PERSISTENT RESERVE OUT", level="MUST", builds_on=("SCS-PR-36",)),
]


def marks(prefix: str, kind: PrType) -> pytest.MarkDecorator:
    """Return the mark of one type's case."""
    identifier = f"{prefix}-{kind.value}"
    if prefix == "SCS-PR-AGAIN" and kind.all_hold:
        return pytest.mark.case(
            identifier, no_mutant_reason="every registrant is a holder: no host is refused"
        )
    return pytest.mark.case(identifier, kills=KILLS[prefix])


def matrix(prefix: str) -> list[object]:
    """Return the six types, one case each."""
    return [pytest.param(kind, id=kind.name.lower(), marks=marks(prefix, kind)) for kind in PrType]


KILLS = {
    "SCS-PR-WRITE": ("reservation-write",),
    "SCS-PR-READ": ("reservation-read",),
    "SCS-PR-REGW": ("registrant-write",),
    "SCS-PR-REGR": ("registrant-read",),
    "SCS-PR-HOLD": ("reservation-type",),
    "SCS-PR-RELEASE": ("release-ignored",),
    "SCS-PR-AGAIN": ("reserve-any-key",),
}


@pytest.mark.case("SCS-PR-36", section="SPC-4 REGISTER", kills=("register-refused",))
def test_an_initiator_may_register(unreserved):
    a, _ = unreserved
    claim(a.register(KEY_A), allowed=True)


@pytest.mark.case("SCS-PR-37", section="SPC-4 RESERVE", kills=("reserve-refused",))
def test_a_registrant_may_reserve(unreserved):
    a, _ = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)


@pytest.mark.parametrize("kind", matrix("SCS-PR-WRITE"))
@pytest.mark.case(section="SPC-4 reservations, types and WRITE", level="MUST", builds_on=RESERVING)
def test_an_unregistered_initiator_may_not_write(unreserved, scratch, kind):
    a, b = unreserved
    reserved(a, kind)
    assert a.write(scratch.lba, scratch.pattern(1)).good
    claim(b.write(scratch.lba, scratch.pattern(1, seed=1)), allowed=False)
    assert a.read(scratch.lba).data == scratch.pattern(1), "written against the reservation"


@pytest.mark.parametrize("kind", matrix("SCS-PR-READ"))
@pytest.mark.case(section="SPC-4 reservations, types and READ", level="MUST", builds_on=RESERVING)
def test_an_unregistered_initiator_may_read_unless_access_is_exclusive(unreserved, scratch, kind):
    a, b = unreserved
    reserved(a, kind)
    answer = b.read(scratch.lba)
    claim(answer, allowed=not kind.reads_too)
    assert answer.good or answer.data == b"", "data with a conflict"


@pytest.mark.parametrize("kind", matrix("SCS-PR-REGW"))
@pytest.mark.case(section="SPC-4 reservations, registrants and WRITE", level="MUST", builds_on=RESERVING)
def test_a_registered_initiator_may_write_only_under_the_registrants_types(unreserved, scratch, kind):
    a, b = unreserved
    reserved(a, kind)
    assert b.register(KEY_B).good
    claim(b.write(scratch.lba, scratch.pattern(1, seed=2)), allowed=kind.registrants)


@pytest.mark.parametrize("kind", matrix("SCS-PR-REGR"))
@pytest.mark.case(section="SPC-4 reservations, registrants and READ", level="MUST", builds_on=RESERVING)
def test_a_registered_initiator_may_read_unless_the_holder_alone_may(unreserved, scratch, kind):
    a, b = unreserved
    reserved(a, kind)
    assert b.register(KEY_B).good
    claim(b.read(scratch.lba), allowed=kind is not PrType.EXCLUSIVE_ACCESS)


@pytest.mark.parametrize("kind", matrix("SCS-PR-HOLD"))
@pytest.mark.case(section="SPC-4 READ RESERVATION", level="MUST", builds_on=RESERVING)
def test_the_reservation_is_reported_as_it_was_made(unreserved, kind):
    a, b = unreserved
    reserved(a, kind)
    seen = b.reservation()
    assert (seen.held, seen.type, seen.scope) == (True, kind, 0)
    assert seen.key == (0 if kind.all_hold else KEY_A)


@pytest.mark.parametrize("kind", matrix("SCS-PR-RELEASE"))
@pytest.mark.case(section="SPC-4 RELEASE", level="MUST", builds_on=RESERVING)
def test_a_release_lets_everybody_in_again(unreserved, scratch, kind):
    a, b = unreserved
    reserved(a, kind)
    assert a.release(kind, KEY_A).good
    assert not a.reservation().held
    claim(b.write(scratch.lba, scratch.pattern(1, seed=3)), allowed=True)


@pytest.mark.parametrize("kind", matrix("SCS-PR-AGAIN"))
@pytest.mark.case(section="SPC-4 RESERVE", level="MUST", builds_on=RESERVING)
def test_only_the_holder_may_repeat_a_reservation(unreserved, kind):
    a, b = unreserved
    reserved(a, kind)
    assert b.register(KEY_B).good
    claim(a.reserve(kind, KEY_A), allowed=True)
    claim(b.reserve(kind, KEY_B), allowed=kind.all_hold)  # under the all-registrants types b is a holder too


@pytest.mark.case("SCS-PR-01", section="SPC-4 REGISTER", kills=("registration-lost",))
def test_a_registration_is_listed(unreserved):
    a, b = unreserved
    assert a.register(KEY_A).good
    assert b.register(KEY_B).good
    assert sorted(a.keys().keys) == sorted((KEY_A, KEY_B))


@pytest.mark.case("SCS-PR-02", section="SPC-4 REGISTER", kills=("register-any-key",))
def test_register_with_a_key_that_is_not_ones_own_is_a_conflict(unreserved):
    a, _ = unreserved
    claim(a.register(KEY_A, key=0x1234), allowed=False)
    assert a.register(KEY_A).good
    claim(a.register(KEY_B, key=0x1234), allowed=False)
    assert a.keys().keys == (KEY_A,)


@pytest.mark.case("SCS-PR-03", section="SPC-4 REGISTER", kills=("registration-lost",))
def test_register_changes_ones_key(unreserved):
    a, _ = unreserved
    assert a.register(KEY_A).good
    assert a.register(KEY_B, key=KEY_A).good
    assert a.keys().keys == (KEY_B,)


@pytest.mark.case(
    "SCS-PR-04", section="SPC-4 REGISTER AND IGNORE EXISTING KEY", kills=("registration-lost",), builds_on=()
)
def test_register_and_ignore_existing_key_ignores_it(unreserved):
    a, _ = unreserved
    for key in (KEY_A, KEY_B):
        answer = a.reserve_out(PrOut.REGISTER_AND_IGNORE_EXISTING_KEY, key=0x9999, action_key=key)
        assert answer.good, answer
    assert a.keys().keys == (KEY_B,)


@pytest.mark.case("SCS-PR-05", section="SPC-4 unregistering", kills=("clear-ignored",))
def test_a_key_of_zero_unregisters(unreserved):
    a, _ = unreserved
    assert a.register(KEY_A).good
    assert a.register(0, key=KEY_A).good
    assert a.keys().keys == ()


@pytest.mark.case(
    "SCS-PR-06", section="SPC-4 RESERVE", no_mutant_reason="LIO breaks this rule itself", builds_on=()
)
def test_reserve_without_a_registration_is_a_conflict(unreserved):
    a, _ = unreserved
    claim(a.reserve(PrType.WRITE_EXCLUSIVE, KEY_A), allowed=False)
    assert not a.reservation().held


@pytest.mark.case("SCS-PR-07", section="SPC-4 RESERVE", kills=("reserve-any-key",))
def test_reserve_with_another_key_is_a_conflict(unreserved):
    a, _ = unreserved
    assert a.register(KEY_A).good
    claim(a.reserve(PrType.WRITE_EXCLUSIVE, KEY_B), allowed=False)
    assert not a.reservation().held


@pytest.mark.case("SCS-PR-08", section="SPC-4 RESERVE", kills=("reserve-any-key",), builds_on=RESERVING)
def test_a_second_reservation_of_another_type_is_a_conflict(unreserved):
    a, _ = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    claim(a.reserve(PrType.EXCLUSIVE_ACCESS, KEY_A), allowed=False)
    assert a.reservation().type == PrType.WRITE_EXCLUSIVE


@pytest.mark.case("SCS-PR-09", section="SPC-4 RESERVE", no_mutant_reason="LIO breaks this rule itself")
def test_a_reserved_type_or_scope_is_an_invalid_field(unreserved, observe):
    a, _ = unreserved
    assert a.register(KEY_A).good
    for fields in ({"type": 4}, {"type": 0}, {"type": 1, "scope": 1}):
        answer = a.reserve_out(PrOut.RESERVE, key=KEY_A, **fields)
        observe(str(answer))
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), answer


@pytest.mark.case("SCS-PR-10", section="SPC-4 RELEASE", kills=("sense-key-other",), builds_on=RESERVING)
def test_a_release_with_the_wrong_type_is_an_invalid_release(unreserved):
    a, _ = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    answer = a.release(PrType.EXCLUSIVE_ACCESS, KEY_A)
    wanted = Asc.INVALID_RELEASE_OF_PERSISTENT_RESERVATION
    assert answer.check(SenseKey.ILLEGAL_REQUEST, wanted), answer
    assert a.reservation().held


@pytest.mark.case("SCS-PR-11", section="SPC-4 RELEASE", kills=("release-foreign",), builds_on=RESERVING)
def test_a_release_by_a_registrant_who_holds_nothing_is_good_and_changes_nothing(unreserved):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    assert b.register(KEY_B).good
    claim(b.release(PrType.WRITE_EXCLUSIVE, KEY_B), allowed=True)
    assert a.reservation().held


@pytest.mark.parametrize("kind", [
    pytest.param(
        PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY,
        marks=pytest.mark.case("SCS-PR-12", kills=("release-attention",)),
    ),
    *(
        pytest.param(
            kind,
            marks=pytest.mark.case(
                f"SCS-PR-RELEASED-{kind.value}", kills=("release-attention-once",), builds_on=("SCS-PR-12",)
            ),
        )
        for kind in (
            PrType.EXCLUSIVE_ACCESS_REGISTRANTS_ONLY,
            PrType.WRITE_EXCLUSIVE_ALL_REGISTRANTS,
            PrType.EXCLUSIVE_ACCESS_ALL_REGISTRANTS,
        )
    ),
])  # fmt: skip
@pytest.mark.case(section="SPC-4 RELEASE, unit attention", builds_on=RESERVING)
def test_a_release_of_a_registrants_only_reservation_notifies_the_other_registrants(unreserved, kind):
    a, b = unreserved
    if reports_no_release(a):
        pytest.skip("NUAR of the Control mode page is 1: a release is not reported")
    reserved(a, kind)
    assert b.register(KEY_B).good
    b.clear_attentions()
    assert a.release(kind, KEY_A).good
    answer = b.test_unit_ready()
    assert answer.check(SenseKey.UNIT_ATTENTION, Asc.RESERVATIONS_RELEASED), answer
    assert a.test_unit_ready().good, "the initiator that released got a unit attention"


@pytest.mark.case("SCS-PR-13", section="SPC-4 CLEAR", kills=("clear-ignored",), builds_on=RESERVING)
def test_clear_removes_every_registration_and_the_reservation(unreserved):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    assert b.register(KEY_B).good
    assert b.reserve_out(PrOut.CLEAR, key=KEY_B).good
    a.clear_attentions()
    assert a.keys().keys == ()
    assert not a.reservation().held


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(True, marks=pytest.mark.case("SCS-PR-14", kills=("clear-attention",))),
        pytest.param(
            False,
            marks=pytest.mark.case(
                "SCS-PR-CLEAR-FREE",
                kills=("clear-attention", "clear-free-attention"),
                builds_on=(*RESERVING, "SCS-PR-14"),
            ),
        ),
    ],
    ids=["reserved", "not-reserved"],
)
@pytest.mark.case(section="SPC-4 CLEAR, unit attention", builds_on=RESERVING)
def test_clear_notifies_the_others_that_reservations_were_preempted(unreserved, held):
    """Every other registered nexus gets the attention, also if there was no reservation to release."""
    a, b = unreserved
    if held:
        reserved(a, PrType.WRITE_EXCLUSIVE)
    else:
        assert a.register(KEY_A).good
    assert b.register(KEY_B).good
    assert b.reserve_out(PrOut.CLEAR, key=KEY_B).good
    answer = a.test_unit_ready()
    assert answer.check(SenseKey.UNIT_ATTENTION, Asc.RESERVATIONS_PREEMPTED), answer


@pytest.mark.case("SCS-PR-15", section="SPC-4 PREEMPT", kills=("preempt-ignored",), builds_on=RESERVING)
def test_preempt_takes_the_reservation_over(unreserved, scratch):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    assert b.register(KEY_B).good
    answer = b.preempt(PrType.EXCLUSIVE_ACCESS, KEY_B, KEY_A)
    assert answer.good, answer
    seen = b.reservation()
    assert (seen.held, seen.key, seen.type) == (True, KEY_B, PrType.EXCLUSIVE_ACCESS)
    assert b.keys().keys == (KEY_B,)
    a.clear_attentions()
    claim(a.write(scratch.lba, scratch.pattern(1)), allowed=False)


@pytest.mark.case(
    "SCS-PR-16", section="SPC-4 PREEMPT, unit attention", kills=("preempt-attention",), builds_on=RESERVING
)
def test_a_preempted_initiator_gets_a_unit_attention(unreserved):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    assert b.register(KEY_B).good
    assert b.preempt(PrType.WRITE_EXCLUSIVE, KEY_B, KEY_A).good
    answer = a.test_unit_ready()
    assert answer.check(SenseKey.UNIT_ATTENTION, Asc.REGISTRATIONS_PREEMPTED), answer


@pytest.mark.case("SCS-PR-17", section="SPC-4 PREEMPT", kills=("registration-lost",), builds_on=RESERVING)
def test_preempt_of_a_registration_leaves_the_reservation(unreserved):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    assert b.register(KEY_B).good
    assert a.preempt(PrType.WRITE_EXCLUSIVE, KEY_A, KEY_B).good
    assert a.keys().keys == (KEY_A,)
    seen = a.reservation()
    assert (seen.held, seen.key) == (True, KEY_A)


@pytest.mark.case(
    "SCS-PR-PREEMPT-SELF",
    section="SPC-4 PREEMPT",
    kills=("preempt-self-type", "preempt-self-unregisters"),
    builds_on=RESERVING,
)
def test_the_holder_preempts_itself_to_change_the_type(unreserved):
    """Its registration stays, as does that of the other initiator; the reservation has the new type."""
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    assert b.register(KEY_B).good
    answer = a.preempt(PrType.EXCLUSIVE_ACCESS, KEY_A, KEY_A)
    assert answer.good, answer
    seen = a.reservation()
    assert (seen.held, seen.key, seen.type) == (True, KEY_A, PrType.EXCLUSIVE_ACCESS), f"{answer}: {seen}"
    assert sorted(a.keys().keys) == [KEY_A, KEY_B], f"{answer}: a registration has changed"


@pytest.mark.case("SCS-PR-18", section="SPC-4 PREEMPT", kills=("preempt-no-such-key",), builds_on=RESERVING)
def test_preempt_of_an_unregistered_key_is_a_conflict(unreserved):
    a, _ = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    claim(a.preempt(PrType.WRITE_EXCLUSIVE, KEY_A, 0x5555), allowed=False)


@pytest.mark.case(
    "SCS-PR-19", section="SPC-4 PREEMPT AND ABORT", kills=("preempt-ignored",), builds_on=RESERVING
)
def test_preempt_and_abort_takes_the_reservation_over_too(unreserved):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    assert b.register(KEY_B).good
    answer = b.preempt(PrType.WRITE_EXCLUSIVE, KEY_B, KEY_A, abort=True)
    assert answer.good, answer
    assert b.reservation().key == KEY_B


@pytest.mark.case("SCS-PR-20", section="SPC-4 PRGENERATION", kills=("generation-stuck",), builds_on=RESERVING)
def test_register_clear_and_preempt_count_generations_and_reserve_does_not(unreserved):
    a, b = unreserved
    seen = [a.keys().generation]
    assert a.register(KEY_A).good
    seen.append(a.keys().generation)
    assert a.reserve(PrType.WRITE_EXCLUSIVE, KEY_A).good
    seen.append(a.keys().generation)
    assert b.register(KEY_B).good
    seen.append(a.keys().generation)
    assert b.preempt(PrType.WRITE_EXCLUSIVE, KEY_B, KEY_A).good
    seen.append(b.keys().generation)
    first = seen[0]
    assert seen == [first, first + 1, first + 1, first + 2, first + 3]


@pytest.mark.case("SCS-PR-21", section="SPC-4 unregistering", kills=("release-ignored",), builds_on=RESERVING)
def test_the_holder_who_unregisters_gives_the_reservation_up(unreserved, scratch):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    assert a.register(0, key=KEY_A).good
    assert not b.reservation().held
    claim(b.write(scratch.lba, scratch.pattern(1)), allowed=True)


@pytest.mark.case(
    "SCS-PR-22",
    section="SPC-4 reservations, I_T nexus loss",
    kills=("reservation-write",),
    builds_on=RESERVING,
)
def test_a_reservation_outlives_the_session_of_its_holder(unreserved, connections, facts, scratch):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    isid = a.runner.isid
    a.runner.logout()
    claim(b.write(scratch.lba, scratch.pattern(1)), allowed=False)
    again = LogicalUnit(connections.login("a", isid=isid), block_size=facts.capacity.block_size)
    claim(again.write(scratch.lba, scratch.pattern(1)), allowed=True)
    assert again.reserve_out(PrOut.CLEAR, key=KEY_A).good


@pytest.mark.case(
    "SCS-PR-23",
    section="SPC-4 I_T nexus, RFC 7143 4.4.3.1",
    kills=("reservation-write",),
    builds_on=RESERVING,
)
def test_a_registration_belongs_to_an_i_t_nexus_not_to_the_initiator_name(
    unreserved, connections, facts, scratch
):
    a, _ = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    other = LogicalUnit(connections.login("a"), block_size=facts.capacity.block_size)
    assert other.runner.isid != a.runner.isid
    claim(other.write(scratch.lba, scratch.pattern(1)), allowed=False)


@pytest.mark.case(
    "SCS-PR-24", section="SPC-4 allowed commands", kills=("reservation-inquiry",), builds_on=RESERVING
)
def test_inquiry_is_allowed_to_all_under_exclusive_access(unreserved):
    a, b = unreserved
    reserved(a, PrType.EXCLUSIVE_ACCESS)
    for answer in (
        b.inquiry(),
        b.luns(),
        b.test_unit_ready(),
        b.reserve_in(PrIn.READ_KEYS),
        b.run(c.REQUEST_SENSE, read=18, allocation=18),
    ):
        assert answer.good, answer


@pytest.mark.case(
    "SCS-PR-25", section="SPC-4 allowed commands", kills=("reservation-sync",), builds_on=RESERVING
)
def test_under_exclusive_access_synchronize_cache_of_others_is_a_conflict(unreserved):
    a, b = unreserved
    reserved(a, PrType.EXCLUSIVE_ACCESS)
    claim(b.run(c.SYNCHRONIZE_CACHE_10), allowed=False)


@pytest.mark.case(
    "SCS-PR-26", section="SPC-4 REPORT CAPABILITIES", kills=("capabilities-length",), builds_on=()
)
def test_the_capabilities_have_their_length_and_a_type_mask(unreserved):
    a, _ = unreserved
    seen = decode_capabilities(a.reserve_in(PrIn.REPORT_CAPABILITIES).data)
    assert seen.length == 8
    assert seen.types is None or seen.types, "TMV is set and no type is"


@pytest.mark.case("SCS-PR-27", section="SPC-4 REPORT CAPABILITIES", kills=("reserve-refused",))
def test_every_type_in_the_mask_can_be_reserved(unreserved):
    a, _ = unreserved
    seen = decode_capabilities(a.reserve_in(PrIn.REPORT_CAPABILITIES).data)
    assert a.register(KEY_A).good
    for kind in sorted(seen.types or ()):
        for answer in (a.reserve(kind, KEY_A), a.release(kind, KEY_A)):
            assert answer.good, answer


@pytest.mark.case(
    "SCS-PR-28",
    section="SPC-4 READ FULL STATUS",
    kills=("full-status-holder", "full-status-short"),
    builds_on=RESERVING,
)
def test_full_status_names_holder_and_registrants_with_their_transport_ids(unreserved):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    assert b.register(KEY_B).good
    answer = a.reserve_in(PrIn.READ_FULL_STATUS)
    if answer.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"not supported: {answer}")
    found = {descriptor.key: descriptor for descriptor in decode_full_status(answer.data)}
    assert set(found) == {KEY_A, KEY_B}
    assert (found[KEY_A].holder, found[KEY_B].holder) == (True, False)
    for key, unit in ((KEY_A, a), (KEY_B, b)):
        identifier = found[key].transport_id
        assert identifier[0] & 0x0F == 5, "the protocol identifier is not iSCSI's"
        assert unit.runner.name.encode() in identifier


@pytest.mark.case("SCS-PR-80", section="SPC-4 READ KEYS", kills=("third-key-lost",), builds_on=RESERVING)
def test_read_keys_returns_the_key_of_every_registrant(unreserved, connections):
    """ADDITIONAL LENGTH counts all keys, and each is listed once: of one to three nexuses."""
    size = unreserved[0].block_size
    third = LogicalUnit(connections.login("c"), block_size=size)
    keys = []
    for unit, key in zip((*unreserved, third), (KEY_A, KEY_B, 0xC3C3C3C3), strict=True):
        claim(unit.register(key), allowed=True)
        keys.append(key)
        data = unit.reserve_in(PrIn.READ_KEYS).data
        length = int.from_bytes(data[4:8], "big")
        found = [int.from_bytes(data[at : at + 8], "big") for at in range(8, 8 + length, 8)]
        assert sorted(found) == sorted(keys), f"ADDITIONAL LENGTH {length}: {found}"


@pytest.mark.case("SCS-PR-29", section="SPC-4 PERSISTENT RESERVE IN", kills=("keys-truncation",))
def test_read_keys_is_cut_to_its_allocation_and_its_length_is_not(unreserved):
    a, b = unreserved
    assert a.register(KEY_A).good
    assert b.register(KEY_B).good
    cut = a.reserve_in(PrIn.READ_KEYS, allocation=8)
    assert cut.good, cut
    assert len(cut.data) == 8
    assert int.from_bytes(cut.data[4:8], "big") == 16


@pytest.mark.case(
    "SCS-PR-30",
    section="SPC-4 PERSISTENT RESERVE OUT, parameter list length",
    kills=("out-length-accepted",),
    builds_on=(),
)
def test_a_parameter_list_that_is_not_24_bytes_is_refused(unreserved):
    a, _ = unreserved
    data = out_list(0, KEY_A)[:16]
    answer = a.run(c.PERSISTENT_RESERVE_OUT, data=data, service_action=0, allocation=16)
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.PARAMETER_LIST_LENGTH_ERROR), answer


@pytest.mark.case(
    "SCS-PR-31", section="SPC-4 PERSISTENT RESERVE OUT", kills=("out-action-accepted",), builds_on=()
)
def test_a_service_action_that_is_not_defined_is_an_invalid_field(unreserved):
    a, _ = unreserved
    answer = a.run(c.PERSISTENT_RESERVE_OUT, data=out_list(0, KEY_A), service_action=0x1F, allocation=24)
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB), answer


@pytest.mark.case("SCS-PR-32", section="SPC-4 registering, APTPL", kills=("power-loss-inactive",))
def test_aptpl_is_stored_or_refused_according_to_the_capabilities(unreserved, observe):
    a, _ = unreserved
    able = decode_capabilities(a.reserve_in(PrIn.REPORT_CAPABILITIES).data).persist_through_power_loss
    answer = a.register(KEY_A, aptpl=True)
    observe(f"PTPL_C={able}: {answer}")
    if able:
        assert answer.good, answer
        assert decode_capabilities(a.reserve_in(PrIn.REPORT_CAPABILITIES).data).power_loss_active
    else:
        assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_PARAMETER_LIST), answer


@pytest.mark.case(
    "SCS-PR-33", section="SPC-4 preempting, all registrants", kills=("clear-ignored",), builds_on=RESERVING
)
def test_preempt_with_key_zero_removes_all_other_registrants_of_an_all_registrants_reservation(unreserved):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE_ALL_REGISTRANTS)
    assert b.register(KEY_B).good
    answer = b.preempt(PrType.WRITE_EXCLUSIVE, KEY_B, 0)
    assert answer.good, answer
    assert b.keys().keys == (KEY_B,)
    assert b.reservation().type == PrType.WRITE_EXCLUSIVE


@pytest.mark.case(
    "SCS-PR-34", section="SPC-4 preempting", kills=("preempt-zero-accepted",), builds_on=RESERVING
)
def test_preempt_with_key_zero_without_an_all_registrants_reservation_is_refused(unreserved):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    assert b.register(KEY_B).good
    answer = b.preempt(PrType.WRITE_EXCLUSIVE, KEY_B, 0)
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_PARAMETER_LIST), answer


@pytest.mark.case(
    "SCS-PR-35",
    section="SPC-2 RESERVE(6), SPC-4 exceptions to RESERVE and RELEASE",
    kills=("reserve6-ignored",),
    builds_on=RESERVING,
)
def test_reserve_6_under_a_persistent_reservation_is_a_conflict(unreserved):
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    answer = b.run(c.RESERVE_6)
    if answer.unsupported:
        pytest.skip("RESERVE(6) is not supported")
    claim(answer, allowed=False)
