"""PREEMPT that removes registrations alone; the unit attention of a busy nexus; the last APTPL (SPC-4).

A PREEMPT preempts the reservation if its SERVICE ACTION RESERVATION KEY is that of the holder, or zero if all
registrants hold it. Any other key names registrations: SCOPE and TYPE are ignored then.
"""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.pdu import ReadyToTransfer
from storagetest.wire.scsi.cdb import WRITE_10, cdb
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, PrType, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.reservation_harness import KEY_A, KEY_B, RESERVING, reserved
from storagetest.wire.scsi.reservations import decode_capabilities
from storagetest.wire.scsi.sense import decode_sense

from .test_reservation_losses import Preemption, answered
from .test_task import send_asked

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 PREEMPT, removing registrations", level="MUST", builds_on=RESERVING),
]

PREEMPTS = {"PREEMPT": PrOut.PREEMPT, "ABORT": PrOut.PREEMPT_AND_ABORT}
HELD = {
    "NONE": None,
    "ONE": PrType.WRITE_EXCLUSIVE,
    "ALL": PrType.WRITE_EXCLUSIVE_ALL_REGISTRANTS,
}
"""The reservation that is there: none, that of the preempting nexus, and one that all registrants hold."""
RESERVED_TYPES = (0, 2, 4, 9, 15)
"""Values of TYPE that SPC-4 does not define."""


def removes(two: tuple[LogicalUnit, LogicalUnit], kind: PrType | None, action: PrOut, **fields: int) -> None:
    """Claim that ``a`` removes the registration of ``b``, and that the reservation of type ``kind`` stays."""
    a, b = two
    b.clear_attentions()
    again = b.reserve_out(PrOut.REGISTER_AND_IGNORE_EXISTING_KEY, action_key=KEY_B)
    assert again.good, again
    before = a.reservation()
    answer = a.reserve_out(action, key=KEY_A, action_key=KEY_B, **fields)
    where = f"{answer}: it names a registration that holds no reservation, and SCOPE and TYPE are ignored"
    assert answer.good, where
    keys, after = a.keys().keys, a.reservation()
    assert keys == (KEY_A,), f"{where}; the keys are {[hex(key) for key in keys]}"
    assert (after.held, after.key, after.type) == (before.held, before.key, before.type), (
        f"{where}; the reservation was {before}, it is {after}; type {kind} was made"
    )


def prepared(two: tuple[LogicalUnit, LogicalUnit], kind: PrType | None, action: PrOut) -> None:
    """Register both, reserve, and remove one registration with valid fields; skip if ``action`` is absent."""
    a, b = two
    if kind is None:
        assert a.register(KEY_A).good
    else:
        reserved(a, kind)
    assert b.register(KEY_B).good
    usual = a.reserve_out(action, key=KEY_A, action_key=KEY_B, type=kind or PrType.WRITE_EXCLUSIVE)
    if action is PrOut.PREEMPT_AND_ABORT and usual.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"not supported: {usual}")
    assert usual.good, usual


@pytest.mark.parametrize(("held", "name"), [
    pytest.param(held, name, marks=pytest.mark.case(f"SCS-PR-REMOVE-{held}-{name}"))
    for held in HELD for name in PREEMPTS
])  # fmt: skip
@pytest.mark.case(kills=("preempt-removal-type",), builds_on=(*RESERVING, "SCS-PR-17"))
def test_a_preempt_that_removes_registrations_ignores_its_type(unreserved, held, name):
    kind, action = HELD[held], PREEMPTS[name]
    prepared(unreserved, kind, action)
    for value in RESERVED_TYPES:
        removes(unreserved, kind, action, type=value)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-PR-REMOVE-SCOPE-{name}")) for name in PREEMPTS
])  # fmt: skip
@pytest.mark.case(kills=("preempt-removal-scope",), builds_on=(*RESERVING, "SCS-PR-17"))
def test_a_preempt_that_removes_registrations_ignores_its_scope(unreserved, name):
    kind, action = PrType.WRITE_EXCLUSIVE, PREEMPTS[name]
    prepared(unreserved, kind, action)
    for value in (1, 2, 15):
        removes(unreserved, kind, action, type=int(kind), scope=value)


@pytest.mark.parametrize("holds", [
    pytest.param(True, marks=pytest.mark.case("SCS-PR-BUSY-HOLDER")),
    pytest.param(False, marks=pytest.mark.case("SCS-PR-BUSY-REGISTRANT")),
], ids=["holder", "registrant"])  # fmt: skip
@pytest.mark.case(
    section="SPC-4 PREEMPT AND ABORT, unit attention",
    kills=("abort-busy-unreported",),
    builds_on=("SCS-PR-ABORT-ATTENTION", "SCS-PR-ABORT-REGISTRANT"),
)
def test_a_nexus_whose_write_was_aborted_gets_the_unit_attention_of_its_registration(
    unreserved, connections, scratch, holds
):
    """REGISTRATIONS PREEMPTED, maybe with one for the aborted command; the write itself may end with it.

    A target may wait for the data before it responds; then nothing is judged.
    """
    a, _ = unreserved
    size, data = scratch.block_size, scratch.pattern(4, seed=1560)
    solicited = {"ImmediateData": "No", "InitialR2T": "Yes"}
    victim = LogicalUnit(connections.login("c", offer=solicited), block_size=size)
    kind = PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY
    assert victim.register(KEY_B).good
    assert a.register(KEY_A).good
    for nexus in (a, victim):
        nexus.clear_attentions()
    answer = (victim if holds else a).reserve(kind, KEY_B if holds else KEY_A)
    assert answer.good, answer
    command = victim.runner.start(cdb(WRITE_10, lba=scratch.lba, blocks=4), write=4 * size)
    asked = victim.runner.expect(ReadyToTransfer)
    preemption = Preemption(a, kind)
    send_asked(victim.runner, command, data, asked)
    ended = answered(victim, command)
    before = preemption.good_or_skip()
    found = [decode_sense(ended.sense)] if ended is not None and ended.sense else []
    found += victim.clear_attentions()
    assert Asc.REGISTRATIONS_PREEMPTED in [one.asc for one in found], (
        f"{before.summary()}: the preempted nexus, whose write waited for its data, has the unit attentions "
        f"{', '.join(map(str, found)) or 'none'}"
    )


LATER = {
    "REGISTER": lambda a, b: a.register(KEY_B, key=KEY_A),  # noqa: ARG005
    "IGNORE": lambda a, b: a.reserve_out(PrOut.REGISTER_AND_IGNORE_EXISTING_KEY, action_key=KEY_B),  # noqa: ARG005
    "OTHER": lambda a, b: b.register(KEY_B),  # noqa: ARG005
    "UNREGISTER": lambda a, b: a.register(0, key=KEY_A),  # noqa: ARG005
}
"""Requests with APTPL 0: of the nexus that sent APTPL 1, and of another one."""


def active(unit: LogicalUnit) -> bool:
    """Return PTPL_A of REPORT CAPABILITIES."""
    return decode_capabilities(unit.reserve_in(PrIn.REPORT_CAPABILITIES).good_data()).power_loss_active


@pytest.mark.parametrize("later", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-PR-APTPL-{name}")) for name in LATER
])  # fmt: skip
@pytest.mark.case(
    section="SPC-4 registering, APTPL", kills=("power-loss-stays",), builds_on=("SCS-PR-36", "SCS-PR-32")
)
def test_the_last_aptpl_counts(unreserved, later):
    """Registrations outlive a loss of power if the last APTPL that was received is 1; PTPL_A states it."""
    a, b = unreserved
    capabilities = a.reserve_in(PrIn.REPORT_CAPABILITIES)
    if not capabilities.good or not decode_capabilities(capabilities.data).persist_through_power_loss:
        pytest.skip(f"{capabilities}: PTPL_C is 0")
    answer = a.register(KEY_A, aptpl=True)
    assert answer.good, answer
    assert active(a), "PTPL_A is 0 after a REGISTER with APTPL 1"
    answer = LATER[later](a, b)
    assert answer.good, answer
    assert not active(a), f"{answer} with APTPL 0: PTPL_A is 1; the last APTPL counts"
