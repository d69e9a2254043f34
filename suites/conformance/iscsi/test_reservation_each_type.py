"""Which commands of another nexus a reservation of each type excludes, and RESERVE(6): each form, and a stop.

``test_reservation_limits.py`` has the commands for the two types that every unit with reservations has. What
only a registrants or all registrants type excludes is here (tables of allowed commands, SPC-4 and SBC-3).
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import reserve_6
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, PrOut, PrType, SenseKey
from storagetest.wire.scsi.reservation_harness import KEY_B, RESERVING, claim, reserved

from .test_reservation_limits import READERS, WRITERS, excluded

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SBC-3 reservations", level="MUST", builds_on=RESERVING),
]

OF_ONE = (PrType.WRITE_EXCLUSIVE, PrType.EXCLUSIVE_ACCESS)
"""Types that exclude registrants, too."""


@pytest.mark.parametrize(("kind", "registers"), [
    *(
        pytest.param(kind, False, marks=pytest.mark.case(f"SCS-PR-EXCLUDES-{kind:d}"))
        for kind in PrType if kind not in OF_ONE
    ),
    *(
        pytest.param(kind, True, marks=pytest.mark.case(f"SCS-PR-EXCLUDES-REGISTRANT-{kind:d}"))
        for kind in OF_ONE
    ),
])  # fmt: skip
@pytest.mark.case(
    kills=("reservation-unmap-any", "reservation-same-any"), builds_on=(*RESERVING, "SCS-PR-61", "SCS-PR-62")
)
def test_each_type_excludes_every_command_that_it_has_to(unreserved, scratch, kind, registers):
    """Commands that write, and under exclusive access those that read, of a nexus without access."""
    a, b = unreserved
    reserved(a, kind)
    if registers:
        assert b.register(KEY_B).good
        for unit in (a, b):
            unit.clear_attentions()
    assert a.write(scratch.lba, scratch.pattern(1)).good
    excluded(b, scratch, WRITERS)
    if kind.reads_too:
        excluded(b, scratch, READERS)
    assert a.read(scratch.lba).data == scratch.pattern(1), "written against the reservation"


@pytest.mark.exclusive  # a broken unit stops, for every initiator
@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=pytest.mark.case(f"SCS-PR-STOP-{kind:d}")) for kind in PrType
])  # fmt: skip
@pytest.mark.case(kills=("reservation-stop",))
def test_a_stop_of_another_nexus_is_a_conflict(unreserved, scratch, kind):
    """START STOP UNIT with START 0, with IMMED and without: the unit stays ready for the holder."""
    a, b = unreserved
    reserved(a, kind)
    found = []
    try:
        for immed in (0, 1):
            answer = b.run(c.START_STOP_UNIT, start=0, immed=immed)
            refused = answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB)
            if not answer.unsupported and not refused:
                found.append(answer)
        read = a.read(scratch.lba)
    finally:
        a.run(c.START_STOP_UNIT, start=1, immed=1)
    if not found:
        pytest.skip(f"a stop is not supported: {answer}")
    for answer in found:
        claim(answer, allowed=False)
    assert read.good, f"{read}, of the holder after a stop that was a conflict"


@pytest.mark.case(
    "SCS-R6-EXCLUDES",
    section="SPC-2 RESERVE(6)",
    kills=("reserve6-unmap-any", "reserve6-same-any"),
    builds_on=("SCS-R6-01",),
)
def test_reserve_6_excludes_every_command_that_reads_or_writes(not_reserved, scratch):
    a, b = not_reserved
    assert a.write(scratch.lba, scratch.pattern(1)).good
    reserve_6(a)
    try:
        excluded(b, scratch, (*WRITERS, *READERS))
        assert a.read(scratch.lba).data == scratch.pattern(1), "written against RESERVE(6)"
    finally:
        a.run(c.RELEASE_6)


@pytest.mark.parametrize("action", [
    pytest.param(PrOut.REGISTER, marks=pytest.mark.case("SCS-R6-REGISTER")),
    pytest.param(PrOut.REGISTER_AND_IGNORE_EXISTING_KEY, marks=pytest.mark.case("SCS-R6-REGISTER-IGNORE")),
])  # fmt: skip
@pytest.mark.case(section="SPC-2 RESERVE(6)", kills=("reserve6-register",), builds_on=("SCS-R6-01",))
def test_nothing_is_registered_while_another_nexus_has_reserve_6(unreserved, action):
    """PERSISTENT RESERVE OUT of another nexus is a conflict."""
    a, b = unreserved
    reserve_6(a)
    try:
        claim(b.reserve_out(action, action_key=KEY_B), allowed=False)
    finally:
        a.run(c.RELEASE_6)
    keys = a.keys().keys
    assert not keys, f"registered while another nexus had RESERVE(6): {[hex(key) for key in keys]}"


REFUSED = {
    "RESERVE": lambda unit, lba: unit.run(c.RESERVE_6),  # noqa: ARG005
    "READ": lambda unit, lba: unit.read(lba),
    "REGISTER": lambda unit, lba: unit.register(KEY_B),  # noqa: ARG005
}
"""Commands that RESERVE(6) of another nexus excludes."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"SCS-R6-KEPT-{name}")) for name in REFUSED
])  # fmt: skip
@pytest.mark.case(section="SPC-2 RESERVE(6)", kills=("reserve6-lost-by-conflict",), builds_on=("SCS-R6-01",))
def test_a_command_that_ends_in_a_conflict_ends_no_reservation(not_reserved, scratch, name):
    """The nexus that has RESERVE(6) keeps it: the other one is refused again."""
    a, b = not_reserved
    reserve_6(a)
    try:
        answer = REFUSED[name](b, scratch.lba)
        if not answer.conflict:
            pytest.skip(f"{answer}: not a conflict (SCS-R6-01, SCS-R6-REGISTER)")
        for again in (b.test_unit_ready(), b.read(scratch.lba), b.run(c.RESERVE_6)):
            assert again.conflict, f"{again}; another nexus has RESERVE(6), before and after {answer}"
        claim(a.write(scratch.lba, scratch.pattern(1)), allowed=True)
    finally:
        a.run(c.RELEASE_6)
