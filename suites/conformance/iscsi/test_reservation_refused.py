"""A PERSISTENT RESERVE OUT that is refused changes nothing; commands on buffers and reservations (SPC-4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, PrOut, PrType, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import KEY_A, KEY_B, RESERVING, claim, reserved
from storagetest.wire.scsi.reservations import out_list
from storagetest.wire.scsi.seldom_cdb import READ_BUFFER, RECEIVE_DIAGNOSTIC_RESULTS, WRITE_BUFFER

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 PRGENERATION", level="MUST", builds_on=RESERVING),
]

HELD, OTHER = PrType.WRITE_EXCLUSIVE, PrType.EXCLUSIVE_ACCESS
NO_KEY = 0x0123_4567_89AB_CDEF
"""A key that no nexus has."""
DESCRIPTOR, ECHO = 0x03, 0x0A
"""MODE of READ BUFFER and WRITE BUFFER (SPC-4)."""


def out(unit: LogicalUnit, action: PrOut, data: bytes, kind: PrType | int = 0) -> ScsiResult:
    """Send PERSISTENT RESERVE OUT with a parameter list of any length."""
    return unit.run(
        c.PERSISTENT_RESERVE_OUT, data=data, service_action=int(action), type=int(kind), allocation=len(data)
    )


CONFLICTS: dict[str, Callable[[LogicalUnit, LogicalUnit], ScsiResult]] = {
    "PREEMPT-NONE": lambda _, b: b.preempt(HELD, KEY_B, NO_KEY),
    "PREEMPT-KEY": lambda _, b: b.preempt(HELD, NO_KEY, KEY_A),
    "CLEAR-KEY": lambda _, b: b.reserve_out(PrOut.CLEAR, key=KEY_A),
    "RELEASE-KEY": lambda a, _: a.release(HELD, KEY_B),
    "RESERVE-OTHERS": lambda _, b: b.reserve(HELD, KEY_B),
    "RESERVE-TYPE": lambda a, _: a.reserve(OTHER, KEY_A),
}
"""Commands that end in RESERVATION CONFLICT. "a" holds a reservation of type 1, and "b" is registered."""
ILLEGAL: dict[str, Callable[[LogicalUnit, LogicalUnit], ScsiResult]] = {
    "PREEMPT-ZERO": lambda _, b: b.preempt(HELD, KEY_B, 0),
    "RELEASE-TYPE": lambda a, _: a.release(OTHER, KEY_A),
    "REGISTER-SHORT": lambda _, b: out(b, PrOut.REGISTER, out_list(KEY_B, NO_KEY)[:23]),
    "CLEAR-SHORT": lambda _, b: out(b, PrOut.CLEAR, out_list(KEY_B)[:16]),
    "PREEMPT-SHORT": lambda _, b: out(b, PrOut.PREEMPT, out_list(KEY_B, KEY_A)[:23], HELD),
}
"""Commands that end in ILLEGAL REQUEST."""


@pytest.mark.parametrize("name", [
    pytest.param(name, id=name.lower(), marks=pytest.mark.case(
        f"SCS-PR-REFUSED-{name}",
        kills=("generation-refused-preempt",) if name.startswith("PREEMPT") else ("generation-refused",),
    ))
    for name in (*CONFLICTS, *ILLEGAL)
])  # fmt: skip
def test_a_refused_service_action_changes_nothing(unreserved, name):
    a, b = unreserved
    reserved(a, HELD)
    assert b.register(KEY_B).good
    keys, held = a.keys(), a.reservation()
    answer = (CONFLICTS | ILLEGAL)[name](a, b)
    if name in CONFLICTS:
        claim(answer, allowed=False)
    else:
        assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}; ILLEGAL REQUEST is required"
    for unit in (a, b):
        unit.clear_attentions()
    now = b.keys()
    assert now.keys == keys.keys, f"{answer}: the keys are {[hex(key) for key in now.keys]}"
    assert now.generation == keys.generation, (
        f"{answer}: PRGENERATION was {keys.generation}; it is {now.generation}"
    )
    assert a.reservation() == held, f"{answer}: the reservation was {held}; it is {a.reservation()}"


@pytest.mark.case("SCS-PR-ABORT-SELF", section="SPC-4 PREEMPT AND ABORT", kills=("abort-self-type",))
def test_the_holder_preempts_and_aborts_itself_to_change_the_type(unreserved):
    """Both registrations stay; the reservation has the new type."""
    a, b = unreserved
    reserved(a, HELD)
    assert b.register(KEY_B).good
    answer = a.preempt(OTHER, KEY_A, KEY_A, abort=True)
    if answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
        pytest.skip(f"PREEMPT AND ABORT is not supported: {answer}")
    assert answer.good, answer
    a.clear_attentions()
    held = a.reservation()
    assert (held.held, held.key, held.type) == (True, KEY_A, OTHER), f"{answer}: {held}"
    assert sorted(a.keys().keys) == [KEY_A, KEY_B], f"{answer}: a registration has changed"


BUFFERS: dict[str, tuple[c.CommandFormat, dict[str, Any]]] = {
    "READ-BUFFER": (READ_BUFFER, {"read": 4, "mode": DESCRIPTOR, "allocation": 4}),
    "WRITE-BUFFER": (WRITE_BUFFER, {"data": b"echo", "mode": ECHO, "allocation": 4}),
    "DIAGNOSTIC-PAGE": (RECEIVE_DIAGNOSTIC_RESULTS, {"read": 64, "pcv": 1, "allocation": 64}),
}
"""Commands on what is no block; each is a conflict of a nexus without a registration."""


@pytest.mark.parametrize("name", [
    pytest.param(name, id=name.lower(), marks=pytest.mark.case(f"SCS-PR-EXCLUDES-{name}")) for name in BUFFERS
])  # fmt: skip
@pytest.mark.case(section="SPC-4, SBC-3 reservations, allowed commands", kills=("reservation-buffers",))
def test_a_reservation_excludes_commands_on_buffers_and_diagnostic_pages(unreserved, name):
    a, b = unreserved
    command, fields = BUFFERS[name]
    before = offered(b.run(command, **fields))
    if not before.good:
        pytest.skip(f"not supported: {before}")
    reserved(a, HELD if name == "WRITE-BUFFER" else PrType.EXCLUSIVE_ACCESS)
    claim(b.run(command, **fields), allowed=False)
