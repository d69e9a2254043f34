"""Three I_T nexuses: what one does reaches each of the others that it concerns, and none that it does not.

The initiator of a session may have others with ISIDs of their own: they are other nexuses (RFC 7143 4.4.3.1).
"""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import ReadyToTransfer, ScsiCommand, ScsiResponse, TaskRequest, TaskResponse
from storagetest.wire.scsi.cdb import WRITE_10, cdb
from storagetest.wire.scsi.codes import Asc, PrType, ScsiStatus, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.reservation_harness import KEY_A, KEY_B, RESERVING

from .optional_commands import reports_no_release
from .test_reservation_losses import Preemption
from .test_reservation_nexuses import KEY_C
from .test_scsi_edges import BITS, CACHING, CONTROL, current_page, mode_select, selectable_page
from .test_task import result, send_asked
from .test_task_sets import SOLICITED
from .windows import unless_serial

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(level="MUST", section="SAM-5 5.14")]

BLOCKS, APART = 4, 8
"""Blocks of a write, and between the first blocks of two writes (chosen)."""
CHANGEABLE = 1
"""PC of MODE SENSE."""


@pytest.mark.parametrize("page", [
    pytest.param(CACHING, id="caching", marks=pytest.mark.case(
        "SCS-UA-MODE-CACHING", kills=("caching-change-third-unreported", "mode-change-reported-once"))),
    pytest.param(CONTROL, id="control", marks=pytest.mark.case(
        "SCS-UA-MODE-CONTROL", kills=("mode-change-same-name-unreported",))),
])  # fmt: skip
@pytest.mark.case(
    section="SPC-4 MODE SELECT(6), unit attention",
    builds_on=("SCS-MSEL-01",),
)
@pytest.mark.usefixtures("scratch")
def test_each_page_that_changed_is_reported_to_each_other_nexus(unit, connections, page):
    """A nexus that has the new values had a unit attention; one with pages of its own keeps its values.

    Each change is reported: the first one, the one back, and the same one again.
    """
    before, mask = selectable_page(unit, page), current_page(unit, page, control=CHANGEABLE)
    bits = [(4 + byte, bit) for byte, some in BITS[page] for bit in some]
    bits = [(at, bit) for at, bit in bits if at < min(len(mask), len(before)) and mask[at] & bit]
    if not bits:
        pytest.skip(f"no bit of page {page:02x}h that is tested is changeable: {mask.hex()}")
    others = {name: LogicalUnit(connections.login(name)) for name in "bac"}
    at, bit = bits[0]
    wanted = bytearray(before)
    wanted[at] ^= bit
    changed, apart = bytes(wanted), set()  # the nexuses that have pages of their own
    try:
        for old, new in ((before, changed), (changed, before), (before, changed)):
            answer = mode_select(unit, new)
            assert answer.good, f"{answer}; bit {bit:02x}h of byte {at - 4} of page {page:02x}h is changeable"
            for name, other in others.items():
                attentions = other.clear_attentions()
                reported = any(one.asc == Asc.MODE_PARAMETERS_CHANGED for one in attentions)
                found = current_page(other, page)
                if not reported and found == old:
                    apart.add(name)
                assert reported or name in apart, (
                    f"the nexus of {name} has no unit attention MODE PARAMETERS CHANGED, and the page is "
                    f"{found.hex()}; it was {old.hex()} until another nexus changed it"
                )
    finally:
        mode_select(unit, before)
        for other in others.values():
            other.clear_attentions()


def waiting(connections, scratch, letter: str, place: int) -> tuple[Initiator, ScsiCommand, ReadyToTransfer]:
    """Log in, and start a write of the blocks at ``place`` that waits for its data."""
    session = connections.login(letter, offer=SOLICITED)
    return session, *session.start_write(write_at(scratch, place), BLOCKS * scratch.block_size)


def write_at(scratch, place: int) -> bytes:
    """Return the CDB of a write of the blocks at ``place``; skip if it has too many."""
    scratch.require(BLOCKS)
    return cdb(WRITE_10, lba=scratch.lba + APART * place, blocks=BLOCKS)


def at(unit: LogicalUnit, scratch, place: int) -> bytes:
    """Return the data of the blocks at ``place``."""
    return unit.read(scratch.lba + APART * place, BLOCKS).good_data()


def ends_with(session: Initiator, command: ScsiCommand, data: bytes, r2t: ReadyToTransfer) -> list[int]:
    """Send the data of a write that may have been aborted; return the status that it has then, if any."""
    send_asked(session, command, data, r2t)
    session.validator.forget(command.itt)
    after = session.probe_alive()
    return [pdu.status for pdu in after.pdus if isinstance(pdu, ScsiResponse) and pdu.itt == command.itt]


@pytest.mark.case(
    "ISC-TMF-RESET-EACH",
    section="RFC 7143 11.5.1, 4.2.3.3",
    kills=("reset-spares-third",),
    builds_on=("ISC-TMF-RESET-OTHER",),
)
def test_a_reset_ends_the_writes_of_each_other_nexus(connections, scratch):
    """Three nexuses have a write that waits for its data, two of them of one initiator; a fourth one resets.

    A target may wait for data of third parties before it responds (4.2.3.3); then nothing is judged.
    """
    writes = [waiting(connections, scratch, letter, place) for place, letter in enumerate("aab")]
    other = connections.login("c")
    unit = LogicalUnit(other, block_size=scratch.block_size)
    before = [at(unit, scratch, place) for place in range(len(writes))]
    sent = other.send(TaskRequest(function=TaskFunction.LOGICAL_UNIT_RESET, lun=other.lun))
    answers = [pdu for pdu in other.probe_alive().pdus if isinstance(pdu, TaskResponse)]
    other.validator.forget(sent.itt)
    ended = [
        ends_with(session, command, scratch.pattern(BLOCKS, seed=1500 + place), r2t)
        for place, (session, command, r2t) in enumerate(writes)
    ]
    if not answers or answers[0].response != TaskResult.COMPLETE:
        pytest.skip(f"no reset was done before the data came: {[result(one) for one in answers]}")
    unit.clear_attentions()
    for place, statuses in enumerate(ended):
        where = f"write {place + 1} of {len(writes)}, each of another nexus, after LOGICAL UNIT RESET"
        assert ScsiStatus.GOOD not in statuses, f"{where}: GOOD"
        assert at(unit, scratch, place) == before[place], f"{where}: its data were written"


@pytest.mark.case(
    "SCS-PR-ABORT-THIRD",
    section="SPC-4 PREEMPT AND ABORT",
    kills=("preempt-aborts-third",),
    builds_on=(*RESERVING, "SCS-PR-19"),
)
def test_preempt_and_abort_spares_the_commands_of_a_third_registrant(unreserved, connections, scratch):
    """A write of a nexus with another key waits for its data: it ends with GOOD, and its data are written."""
    a, b = unreserved
    third = connections.login("c", offer=SOLICITED)
    unit = LogicalUnit(third, block_size=scratch.block_size)
    kind = PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY
    for nexus, key in ((b, KEY_B), (a, KEY_A), (unit, KEY_C)):
        assert nexus.register(key).good
    assert b.reserve(kind, KEY_B).good
    command, r2t = third.start_write(write_at(scratch, 0), BLOCKS * scratch.block_size)
    preemption = Preemption(a, kind)
    before = preemption.response
    if before is not None and before.status == ScsiStatus.CHECK_CONDITION:
        third.validator.forget(command.itt)
        pytest.skip(f"PREEMPT AND ABORT is not supported: {before.summary()}")
    data = scratch.pattern(BLOCKS, seed=1510)
    send_asked(third, command, data, r2t)
    ended = LogicalUnit.result(third.finish(command, data), "WRITE(10) of a third registrant")
    preemption.finish()
    assert ended.good, f"{ended}: PREEMPT AND ABORT named the key of another one"
    unit.clear_attentions()
    assert at(unit, scratch, 0) == data, "the data of a third registrant were not written"


@pytest.mark.case(
    "SCS-PR-ABORT-BOTH",
    section="SPC-4 PREEMPT AND ABORT",
    kills=("preempt-aborts-one",),
    builds_on=(*RESERVING, "SCS-PR-19", "SCS-PR-ABORT-REGISTRANT"),
)
def test_preempt_and_abort_ends_the_commands_of_each_nexus_with_the_key(unreserved, connections, scratch):
    """Two nexuses are registered with one key, and a write of each waits for its data.

    A target may wait for the data before it responds; then nothing is judged.
    """
    a, _ = unreserved
    kind = PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY
    assert a.register(KEY_A).good
    assert a.reserve(kind, KEY_A).good
    victims = [LogicalUnit(connections.login(letter, offer=SOLICITED)) for letter in "cd"]
    for victim in victims:
        assert victim.register(KEY_B).good
    with unless_serial(victims[1].runner, [victims[0].runner]):
        writes = [
            victim.runner.start_write(write_at(scratch, place), BLOCKS * scratch.block_size)
            for place, victim in enumerate(victims)
        ]
    old = [at(a, scratch, place) for place in range(len(writes))]
    preemption = Preemption(a, kind)
    ended = [
        ends_with(victim.runner, command, scratch.pattern(BLOCKS, seed=1520 + place), r2t)
        for place, (victim, (command, r2t)) in enumerate(zip(victims, writes, strict=True))
    ]
    preemption.good_or_skip()
    a.clear_attentions()
    assert a.keys().keys == (KEY_A,), f"READ KEYS: {[hex(key) for key in a.keys().keys]}"
    for place, statuses in enumerate(ended):
        where = f"the write of nexus {place + 1} of 2 with the preempted key"
        assert ScsiStatus.GOOD not in statuses, f"{where}: GOOD after PREEMPT AND ABORT"
        assert at(a, scratch, place) == old[place], f"{where}: its data were written"


CHANGED = {
    PrType.WRITE_EXCLUSIVE: PrType.EXCLUSIVE_ACCESS,
    PrType.EXCLUSIVE_ACCESS: PrType.WRITE_EXCLUSIVE,
    PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY: PrType.WRITE_EXCLUSIVE,
    PrType.EXCLUSIVE_ACCESS_REGISTRANTS_ONLY: PrType.WRITE_EXCLUSIVE_REGISTRANTS_ONLY,
}
"""Types of which one nexus is the holder, and another type that a preempting nexus asks for."""


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(f"SCS-PR-TYPE-{kind:d}")) for kind in CHANGED
])  # fmt: skip
@pytest.mark.case(
    section="SPC-4 PREEMPT, unit attention",
    kills=("preempt-change-unreported", "preempt-change-reported-once"),
    builds_on=(*RESERVING, "SCS-PR-14"),
)
def test_a_preempt_that_changes_the_type_is_reported_to_each_remaining_registrant(
    unreserved, connections, kind
):
    """Two registrants have a key that the PREEMPT does not name: each gets RESERVATIONS RELEASED."""
    a, b = unreserved
    if reports_no_release(a):
        pytest.skip("NUAR of the Control mode page is 1: a release is not reported")
    others = [LogicalUnit(connections.login(letter)) for letter in "cd"]
    for number, nexus in enumerate((a, b, *others)):
        assert nexus.register((KEY_A, KEY_B, KEY_C, KEY_C ^ 1)[number]).good
    answer = a.reserve(kind, KEY_A)
    if answer.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"type {kind:d} is not supported: {answer}")
    assert answer.good, answer
    for nexus in (a, b, *others):
        nexus.clear_attentions()
    answer = b.preempt(CHANGED[kind], KEY_B, KEY_A)
    assert answer.good, answer
    for number, nexus in enumerate(others, 1):
        found = nexus.clear_attentions()
        assert Asc.RESERVATIONS_RELEASED in [one.asc for one in found], (
            f"remaining registrant {number} of 2 has the unit attentions "
            f"{', '.join(map(str, found)) or 'none'}; PREEMPT made type {CHANGED[kind]:d} of type {kind:d}"
        )
