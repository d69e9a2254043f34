"""Fields of PERSISTENT RESERVE OUT that a service action ignores, whatever they have (SPC-4)."""

from __future__ import annotations

import pytest

from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import PrIn, PrOut, PrType
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import KEY_A, KEY_B, RESERVING, reserved
from storagetest.wire.scsi.reservations import decode_capabilities, out_list

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(
        section="SPC-4 PERSISTENT RESERVE OUT, ignored fields", level="MUST", builds_on=RESERVING
    ),
]

TYPES = ((0, 0), (0, 4), (0xF, 0xF))
"""SCOPE and TYPE: of no reservation, a reserved type, and reserved values of both."""
KIND = PrType.WRITE_EXCLUSIVE
ANY_KEY = 0x1234_5678_9ABC_DEF0


def out(unit: LogicalUnit, action: PrOut, data: bytes, *, scope: int = 0, kind: int = 0) -> ScsiResult:
    """Send PERSISTENT RESERVE OUT with a parameter list."""
    fields = {"service_action": int(action), "scope": scope, "type": kind, "allocation": len(data)}
    return unit.run(c.PERSISTENT_RESERVE_OUT, data=data, **fields)


@pytest.mark.parametrize("action", [
    pytest.param(PrOut.REGISTER, marks=pytest.mark.case(
        "SCS-PR-ANY-TYPE-REGISTER", kills=("register-type-checked",), builds_on=("SCS-PR-36",))),
    pytest.param(PrOut.REGISTER_AND_IGNORE_EXISTING_KEY, marks=pytest.mark.case(
        "SCS-PR-ANY-TYPE-IGNORE", kills=("register-type-checked",), builds_on=("SCS-PR-36",))),
])  # fmt: skip
def test_a_registration_ignores_scope_and_type(unreserved, action):
    """The nexus registers, changes its key, and unregisters."""
    a = unreserved[0]
    key = 0
    for (scope, kind), new in zip(TYPES, (KEY_A, KEY_B, 0), strict=True):
        answer = out(a, action, out_list(key, new), scope=scope, kind=kind)
        assert answer.good, f"{answer}: SCOPE is {scope:X}h and TYPE {kind:X}h, which are ignored"
        keys, wanted = a.keys().keys, (new,) if new else ()
        assert keys == wanted, f"{answer}: the keys are {keys}; it has SCOPE {scope:X}h and TYPE {kind:X}h"
        key = new


@pytest.mark.case("SCS-PR-ANY-TYPE-CLEAR", kills=("clear-type-checked",))
def test_clear_ignores_scope_type_and_the_service_action_key(unreserved):
    """A reservation of another type is held."""
    a, b = unreserved
    for scope, kind in TYPES:
        reserved(a, KIND)
        assert b.register(KEY_B).good
        answer = out(b, PrOut.CLEAR, out_list(KEY_B, ANY_KEY), scope=scope, kind=kind)
        assert answer.good, f"{answer}: SCOPE is {scope:X}h and TYPE {kind:X}h, which are ignored"
        for unit in (a, b):
            unit.clear_attentions()
        assert (a.keys().keys, a.reservation().held) == ((), False), f"{answer}: it has cleared nothing"


@pytest.mark.parametrize("action", [
    pytest.param(PrOut.RESERVE, marks=pytest.mark.case(
        "SCS-PR-ANY-KEY-RESERVE", kills=("reserve-action-key-checked", "reserve-registers"))),
    pytest.param(PrOut.RELEASE, marks=pytest.mark.case(
        "SCS-PR-ANY-KEY-RELEASE", kills=("reserve-action-key-checked",))),
])  # fmt: skip
def test_reserve_and_release_ignore_the_service_action_key(unreserved, action):
    """The keys stay, and the reservation is that of the nexus' own key."""
    a, b = unreserved
    assert a.register(KEY_A).good
    assert b.register(KEY_B).good
    if action == PrOut.RELEASE:
        assert a.reserve(KIND, KEY_A).good
    for new in (ANY_KEY, KEY_B):
        answer = out(a, action, out_list(KEY_A, new), kind=KIND)
        assert answer.good, f"{answer}: SERVICE ACTION RESERVATION KEY is {new:#x}, which is ignored"
        a.clear_attentions()
        assert sorted(a.keys().keys) == sorted((KEY_A, KEY_B)), f"{answer}: the keys have changed"
        held = a.reservation()
        wanted = (True, KEY_A) if action == PrOut.RESERVE else (False, 0)
        assert (held.held, held.key) == wanted, f"{answer}: {held}"


@pytest.mark.parametrize("action", [
    pytest.param(PrOut.RESERVE, marks=pytest.mark.case(
        "SCS-PR-ANY-APTPL-RESERVE", kills=("aptpl-of-each-checked", "aptpl-of-each-taken"))),
    pytest.param(PrOut.RELEASE, marks=pytest.mark.case(
        "SCS-PR-ANY-APTPL-RELEASE", kills=("aptpl-of-each-checked",))),
    pytest.param(PrOut.CLEAR, marks=pytest.mark.case(
        "SCS-PR-ANY-APTPL-CLEAR", kills=("aptpl-of-each-checked",))),
    pytest.param(PrOut.PREEMPT, marks=pytest.mark.case(
        "SCS-PR-ANY-APTPL-PREEMPT", kills=("aptpl-of-each-checked",))),
])  # fmt: skip
@pytest.mark.case(section="SPC-4 APTPL, ALL_TG_PT")
def test_only_a_registration_has_aptpl_and_all_tg_pt(unreserved, action):
    """Both are ignored in the other service actions, and PTPL_A stays."""
    a, b = unreserved
    reserved(a, KIND)
    assert b.register(KEY_B).good
    before = _persists(a)
    data = out_list(KEY_A, KEY_B, aptpl=True, all_target_ports=True)
    answer = out(a, action, data, kind=KIND)
    assert answer.good, f"{answer}: APTPL and ALL_TG_PT are 1, which this service action ignores"
    after = _persists(a)
    assert after == before, f"{answer}: PTPL_A is {after}; it was {before}, and only a registration sets it"


def _persists(unit: LogicalUnit) -> bool:
    """Return PTPL_A; False if the unit does not report its capabilities."""
    answer = unit.reserve_in(PrIn.REPORT_CAPABILITIES)
    return answer.good and decode_capabilities(answer.data).power_loss_active
