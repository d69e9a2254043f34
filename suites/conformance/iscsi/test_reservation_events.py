"""What each event does to a persistent reservation of each type: holder, keys, PRGENERATION (SPC-4)."""

# ruff: noqa: ARG005  # an event has both nexuses, and uses one or two

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, PrType, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.reservation_harness import KEY_A, KEY_B, RESERVING

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(
        section="SPC-4 persistent reservations, PRGENERATION", level="MUST", builds_on=RESERVING
    ),
]

KEY_C = 0xCCCC_0000_0003
OTHER = PrType.WRITE_EXCLUSIVE
"""The type that a preempting nexus asks for."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event while ``a`` holds a reservation of a type and ``b`` is registered.

    ``keys`` are the registered keys after it, ``holder`` is the key of the holder then, and 0 if there is no
    reservation; ``counts`` is whether PRGENERATION is one more.
    """

    act: Callable[[LogicalUnit, LogicalUnit, PrType], ScsiResult]
    keys: tuple[int, ...]
    holder: int
    counts: bool
    type: PrType | None = None  # of the reservation after it; None: as before


def ignoring(unit: LogicalUnit, key: int) -> ScsiResult:
    """REGISTER AND IGNORE EXISTING KEY."""
    return unit.reserve_out(PrOut.REGISTER_AND_IGNORE_EXISTING_KEY, key=0x9999, action_key=key)


def victim(kind: PrType) -> int:
    """Return the key that PREEMPT names to take the reservation over (zero under all-registrants types)."""
    return 0 if kind.all_hold else KEY_A


BOTH = (KEY_A, KEY_B)
EVENTS = {
    "REKEY": Event(lambda a, b, _: a.register(KEY_C, key=KEY_A), (KEY_B, KEY_C), KEY_C, counts=True),
    "REKEY-IGNORE": Event(lambda a, b, _: ignoring(a, KEY_C), (KEY_B, KEY_C), KEY_C, counts=True),
    "REKEY-OTHER": Event(lambda a, b, _: b.register(KEY_C, key=KEY_B), (KEY_A, KEY_C), KEY_A, counts=True),
    "UNREGISTER-OTHER": Event(lambda a, b, _: b.register(0, key=KEY_B), (KEY_A,), KEY_A, counts=True),
    "RESERVE": Event(lambda a, b, kind: a.reserve(kind, KEY_A), BOTH, KEY_A, counts=False),
    "RELEASE": Event(lambda a, b, kind: a.release(kind, KEY_A), BOTH, 0, counts=False),
    "CLEAR": Event(lambda a, b, _: b.reserve_out(PrOut.CLEAR, key=KEY_B), (), 0, counts=True),
    "PREEMPT": Event(
        lambda a, b, kind: b.preempt(OTHER, KEY_B, victim(kind)), (KEY_B,), KEY_B, counts=True, type=OTHER
    ),
    "PREEMPT-ABORT": Event(
        lambda a, b, kind: b.preempt(OTHER, KEY_B, victim(kind), abort=True),
        (KEY_B,), KEY_B, counts=True, type=OTHER,
    ),
}  # fmt: skip
"""The unregistering of the holder is in SCS-PR-21."""

KILLS = {
    "REKEY": ("generation-register", "reservation-key-before"),
    "REKEY-IGNORE": ("generation-ignore", "reservation-key-before"),
    "REKEY-OTHER": ("generation-register",),
    "UNREGISTER-OTHER": ("generation-register",),
    "RESERVE": ("generation-reserve",),
    "RELEASE": ("generation-of-release",),
    "CLEAR": ("generation-clear",),
    "PREEMPT": ("generation-preempt", "reservation-type-before"),
    "PREEMPT-ABORT": ("generation-preempt", "reservation-type-before"),
}


@pytest.mark.parametrize("event", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-PR-EVENT-{name}", kills=KILLS[name]))
    for name in EVENTS
])  # fmt: skip
@pytest.mark.case(section="SPC-4 persistent reservations, PRGENERATION", level="MUST")
def test_an_event_leaves_the_reservation_the_keys_and_the_generation_as_it_has_to(unreserved, types, event):
    a, b = unreserved
    rule = EVENTS[event]
    for kind in types:
        prepare(a, b, kind)
        before = a.keys().generation
        answer = rule.act(a, b, kind)
        if event == "PREEMPT-ABORT" and answer.check(SenseKey.ILLEGAL_REQUEST):
            pytest.skip(f"{answer}: not supported")
        where = f"{event} of type {kind:d}"
        assert answer.good, f"{where}: {answer}"
        for unit in (a, b):
            unit.clear_attentions()
        keys, held = b.keys(), b.reservation()
        assert sorted(keys.keys) == sorted(rule.keys), f"{where}: the keys are {keys.keys}"
        wanted = (before + rule.counts) % 2**32
        assert (keys.generation, held.generation) == (wanted, wanted), (
            f"{where}: PRGENERATION was {before}; it is {keys.generation} with READ KEYS and "
            f"{held.generation} with READ RESERVATION"
        )
        assert held.held == bool(rule.holder), f"{where}: {held}"
        if held.held:
            shown = rule.type or kind
            key = 0 if shown.all_hold else rule.holder
            assert (held.key, held.type) == (key, shown), f"{where}: {held}; the holder has key {key:#x}"


@pytest.fixture
def types(unreserved) -> list[PrType]:
    """Return the types that the unit supports: REPORT CAPABILITIES, or else the two that are always there."""
    shown = unreserved[0].reservation_types() or (PrType.WRITE_EXCLUSIVE, PrType.EXCLUSIVE_ACCESS)
    return [kind for kind in PrType if kind in shown]


def prepare(a: LogicalUnit, b: LogicalUnit, kind: PrType) -> None:
    """Leave ``a`` as the holder of a reservation, ``b`` registered, and no unit attention."""
    for unit, key in ((a, KEY_A), (b, KEY_B)):
        answer = ignoring(unit, key)
        assert answer.good, answer
    answer = a.reserve_out(PrOut.CLEAR, key=KEY_A)
    assert answer.good, answer
    for unit in (a, b):
        unit.clear_attentions()
    for answer in (a.register(KEY_A), b.register(KEY_B), a.reserve(kind, KEY_A)):
        assert answer.good, answer
    held = a.reservation()
    assert (held.held, held.type) == (True, kind), f"type {kind:d} was reserved: {held}"


@pytest.mark.case(
    "SCS-PR-ABORT-ATTENTION",
    section="SPC-4 PREEMPT AND ABORT, unit attention",
    kills=("abort-other-attention",),
    builds_on=(*RESERVING, "SCS-PR-16", "SCS-PR-19"),
)
def test_preempt_and_abort_is_reported_as_preempt_is(unreserved):
    """The preempted nexus gets REGISTRATIONS PREEMPTED, maybe after a unit attention for aborted commands."""
    a, b = unreserved
    prepare(a, b, PrType.WRITE_EXCLUSIVE)
    done = b.preempt(PrType.WRITE_EXCLUSIVE, KEY_B, KEY_A, abort=True)
    if done.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"not supported: {done}")
    assert done.good, done
    found = a.clear_attentions()
    assert Asc.REGISTRATIONS_PREEMPTED in [one.asc for one in found], (
        f"{done}: the unit attentions of the preempted nexus are {', '.join(map(str, found)) or 'none'}"
    )


ALLOWED = 0x05
"""The highest value of ALLOW COMMANDS that is not reserved (SPC-4, REPORT CAPABILITIES)."""


@pytest.mark.case(
    "SCS-PR-ALLOW-COMMANDS",
    section="SPC-4 REPORT CAPABILITIES, ALLOW COMMANDS",
    kills=("allow-commands-reserved",),
)
def test_allow_commands_is_no_reserved_value(unreserved):
    answer = unreserved[0].reserve_in(PrIn.REPORT_CAPABILITIES)
    if answer.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"not supported: {answer}")
    value = answer.good_data()[3] >> 4 & 7
    assert value <= ALLOWED, f"{answer}: ALLOW COMMANDS is {value:03b}b: {answer.data.hex()}"


# Events that are no other nexus's business


QUIET = ("REKEY", "REKEY-IGNORE", "REKEY-OTHER", "UNREGISTER-OTHER", "RESERVE")
"""Events that leave the reservation and each other registration as they were."""
QUIET_KILLS = {"RESERVE": ("reserve-attention",)}
QUIET_TYPES = (PrType.WRITE_EXCLUSIVE, PrType.EXCLUSIVE_ACCESS)
"""A reservation of these types excludes registrants as well: for its release there is no unit attention."""


def claim_quiet(a: LogicalUnit, b: LogicalUnit, event: str, kind: PrType) -> None:
    """Claim that neither nexus has a unit attention after an event."""
    for unit, name in ((a, "the holder"), (b, "the other registrant")):
        answer = unit.test_unit_ready()
        assert answer.good, f"{answer}: {name}, after {event} with a reservation of type {kind:d}"


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(
        f"SCS-PR-RELEASED-QUIET-{kind:d}", kills=("release-attention-any-type",)))
    for kind in QUIET_TYPES
])  # fmt: skip
@pytest.mark.case(section="SPC-4 RELEASE, unit attention")
def test_a_release_of_another_type_sets_no_unit_attention(unreserved, types, kind):
    """Of a type that is no registrants-only and no all-registrants one: neither here nor there."""
    if kind not in types:
        pytest.skip(f"the unit has no reservation of type {kind:d}")
    a, b = unreserved
    prepare(a, b, kind)
    answer = a.release(kind, KEY_A)
    assert answer.good, answer
    claim_quiet(a, b, "RELEASE", kind)


@pytest.mark.parametrize("event", [
    pytest.param(name, marks=pytest.mark.case(
        f"SCS-PR-QUIET-{name}", kills=QUIET_KILLS.get(name, ("register-attention",))))
    for name in QUIET
])  # fmt: skip
@pytest.mark.case(section="SPC-4 persistent reservations, unit attention", level="SHOULD")
def test_an_event_that_takes_nothing_from_others_sets_no_unit_attention(unreserved, types, event):
    """SHOULD: SAM-5 lists the conditions that there have to be, and excludes no other."""
    a, b = unreserved
    for kind in types:
        prepare(a, b, kind)
        answer = EVENTS[event].act(a, b, kind)
        assert answer.good, f"{event} of type {kind:d}: {answer}"
        claim_quiet(a, b, event, kind)
