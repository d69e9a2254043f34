"""Guards of the iSCSI suite: what proves that a unit is empty, and the undo of reservations."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from storagetest.errors import DataAtRisk, RemoteProtocolError
from storagetest.suites.conformance.iscsi.absent_unit import NUMBERS, absent_lun
from storagetest.suites.conformance.iscsi.conftest import Connections
from storagetest.wire.iscsi.encoding import flat_lun
from storagetest.wire.iscsi.look import data_signature, good_data, vpd_page
from storagetest.wire.iscsi.outcomes import ScsiCompletion
from storagetest.wire.iscsi.pdu import DataIn
from storagetest.wire.scsi.data import BlockLimits, Capacity
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.undo import UNDO_KEY, undo_reservations

GOOD, CHECK, BUSY, CONFLICT = 0x00, 0x02, 0x08, 0x18
ILLEGAL = bytes([0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0])
ATTENTION = bytes([0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 0, 0, 0, 0, 0])
SIZE, BLOCKS = 512, 4096
CAPACITY = Capacity(BLOCKS - 1, SIZE)


def completed(status: int = GOOD, data: bytes = b"", **more: Any) -> ScsiCompletion:
    pdus = (DataIn(data=data),) if data else ()
    fields = {"sense": b"", "overflow": False, "underflow": False, "residual": 0, "response": 0, "pdus": pdus}
    return ScsiCompletion(status=status, data=data, **{**fields, **more})


# The look


class Disk:
    """An initiator whose unit has only READ. ``fault`` changes the completion of the read number ``at``."""

    def __init__(self) -> None:
        self.data = bytearray(SIZE * BLOCKS)
        self.at, self.reads = -1, 0
        self.fault: Callable[[ScsiCompletion], ScsiCompletion] = lambda done: done

    def command(self, cdb: bytes, *, read: int = 0, data: bytes = b"") -> ScsiCompletion:
        assert cdb[0] == 0x28, "READ(10)"
        lba, blocks = int.from_bytes(cdb[2:6], "big"), int.from_bytes(cdb[7:9], "big")
        assert read == blocks * SIZE
        assert not data
        self.reads += 1
        done = completed(GOOD, bytes(self.data[lba * SIZE : lba * SIZE + read]))
        return self.fault(done) if self.reads - 1 == self.at else done

    def find(self, limits: BlockLimits | None = None) -> str | None:
        self.reads = 0
        return data_signature(self, CAPACITY, limits)  # type: ignore[arg-type]  # all that it uses


def gap(done: ScsiCompletion) -> ScsiCompletion:
    """Leave the middle out: the data of a completion has zeroes there."""
    third = len(done.data) // 4
    pdus = (DataIn(data=done.data[:third]), DataIn(buffer_offset=2 * third, data=done.data[2 * third :]))
    return replace(done, pdus=pdus)


FAULTS: dict[str, Callable[[ScsiCompletion], ScsiCompletion]] = {
    "refused": lambda _: completed(CHECK, sense=ILLEGAL),
    "busy for ever": lambda _: completed(BUSY),
    "short": lambda done: completed(GOOD, done.data[:-SIZE]),
    "empty": lambda _: completed(GOOD),
    "residual": lambda done: replace(done, residual=SIZE, underflow=True),
    "target failure": lambda done: replace(done, response=1),
    "garbled": lambda done: completed(GOOD, b"\1" + done.data[1:]),
    "gap": gap,
}


@pytest.mark.parametrize("with_data", [False, True])
@pytest.mark.parametrize("name", FAULTS)
def test_a_bad_read_is_never_a_proof_whichever_it_is(name: str, with_data: bool) -> None:
    disk = Disk()
    if with_data:
        disk.data[0x438:0x43A] = b"\x53\xef"
    assert disk.find() == ("ext2, ext3 or ext4" if with_data else None)
    for at in range(disk.reads):
        disk.at, disk.fault = at, FAULTS[name]
        if name == "busy for ever":
            disk.fault = lambda _: _stay_busy(disk)
        with pytest.raises(RemoteProtocolError):
            disk.find()


def _stay_busy(disk: Disk) -> ScsiCompletion:
    disk.at += 1
    return completed(BUSY)


def test_a_unit_attention_is_no_failure_and_a_reservation_is_no_fault_of_the_target() -> None:
    disk = Disk()
    disk.at, disk.fault = 3, lambda _: completed(CHECK, sense=ATTENTION)
    assert disk.find() is None
    disk.fault = lambda _: completed(CONFLICT)
    with pytest.raises(DataAtRisk, match="reserved the unit"):
        disk.find()


def test_reads_obey_the_maximum_transfer_length() -> None:
    disk = Disk()
    limits = BlockLimits(0, 4, 0, 0, 0, 0, 0, write_same_non_zero=False)
    disk.fault = lambda done: done
    seen: list[int] = []
    command = disk.command

    def watched(cdb: bytes, **more: Any) -> ScsiCompletion:
        seen.append(int.from_bytes(cdb[7:9], "big"))
        return command(cdb, **more)

    disk.command = watched  # type: ignore[method-assign]
    assert disk.find(limits) is None
    assert max(seen) == 4


def test_the_data_of_a_refused_command_do_not_count() -> None:
    result = LogicalUnit.result(completed(CHECK, b"\0" * 36, sense=ILLEGAL), "INQUIRY")
    with pytest.raises(RemoteProtocolError, match="GOOD is required"):
        good_data(result)


@pytest.mark.parametrize("length", [8, 251, 252, 600])
def test_a_long_page_is_read_whole(length: int) -> None:
    page = bytes([0, 0x83]) + length.to_bytes(2, "big") + bytes(range(256)) * 3

    def command(cdb: bytes, *, read: int = 0, data: bytes = b"") -> ScsiCompletion:
        return completed(GOOD, page[: 4 + length][:read])

    unit = LogicalUnit(SimpleNamespace(command=command))
    assert vpd_page(unit, 0x83).body == page[4 : 4 + length]
    with pytest.raises(RemoteProtocolError, match="returned page 83h"):
        vpd_page(unit, 0xB0)


# The undo


@dataclass
class Unit:
    """Reservations of a unit in memory. ``refuses`` names what every nexus is refused."""

    keys: dict[str, int] = field(default_factory=dict)
    holder: str = ""
    reserved6: str = ""
    refuses: frozenset[str] = frozenset()
    persistent: bool = True

    def through(self, nexus: str) -> LogicalUnit:
        def command(cdb: bytes, *, read: int = 0, data: bytes = b"") -> ScsiCompletion:
            return self.run(nexus, cdb, data, read)

        return LogicalUnit(SimpleNamespace(command=command))

    def run(self, nexus: str, cdb: bytes, data: bytes, read: int) -> ScsiCompletion:
        if cdb[0] in (0x5E, 0x5F) and not self.persistent:
            return completed(CHECK, sense=ILLEGAL)
        match cdb[0], cdb[1] & 0x1F:
            case 0x17, _:
                if self.reserved6 == nexus and "release6" not in self.refuses:
                    self.reserved6 = ""
                return completed()
            case 0x5E, 0:
                if "report" in self.refuses:
                    return completed(BUSY)
                listed = b"" if "list" in self.refuses else keys_of(self)
                return completed(GOOD, bytes(4) + len(listed).to_bytes(4, "big") + listed)
            case 0x5E, _:
                held = self.keys.get(self.holder, 0).to_bytes(8, "big") + b"\0" * 5 + b"\1\0\0"
                return completed(GOOD, bytes(7) + (b"\x10" + held if self.holder else b"\0"))
            case 0x5F, action:
                return completed(GOOD if self.change(nexus, action, data) else CONFLICT)
        others = {self.reserved6, self.holder} - {"", nexus}
        return completed(CONFLICT if others and cdb[0] in (0x28, 0x35) else GOOD, bytes(read))

    def change(self, nexus: str, action: int, data: bytes) -> bool:
        key, new = int.from_bytes(data[:8], "big"), int.from_bytes(data[8:16], "big")
        names = {0: "register", 3: "clear", 4: "preempt", 6: "ignore"}
        if names.get(action) in self.refuses:
            return False
        if action == 6 or (action == 0 and key == self.keys.get(nexus, 0)):
            if new:
                self.keys[nexus] = new
            else:
                self.keys.pop(nexus, None)
                self.holder = "" if self.holder == nexus else self.holder
            return True
        if self.keys.get(nexus) != key:
            return False
        if action == 2 and self.holder == nexus:
            self.holder = ""
        elif action == 3:
            self.keys, self.holder = {}, ""
        elif action == 4:
            for victim in [name for name, one in self.keys.items() if one == new and name != nexus]:
                del self.keys[victim]
                self.holder = "" if self.holder == victim else self.holder
        return True


def keys_of(unit: Unit) -> bytes:
    """Return the list of READ KEYS."""
    return b"".join(key.to_bytes(8, "big") for key in unit.keys.values())


LEFT: dict[str, Callable[..., Unit]] = {
    "nothing": Unit,
    "a registration of the first": lambda **more: Unit({"a": 1}, **more),
    "a reservation of the second": lambda **more: Unit({"b": 2}, "b", **more),
    "both registered": lambda **more: Unit({"a": 1, "b": 2}, "b", **more),
    "RESERVE(6) of the second": lambda **more: Unit(reserved6="b", **more),
}


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("refused", ["", "ignore", "clear", "preempt", "clear ignore", "clear preempt"])
def test_what_is_left_is_undone_from_each_nexus(left: str, refused: str) -> None:
    unit = LEFT[left](refuses=frozenset(refused.split()))
    assert undo_reservations([unit.through("a"), unit.through("b")]) == ""
    assert (unit.keys, unit.holder, unit.reserved6) == ({}, "", "")


def test_a_registration_that_is_not_listed_is_undone() -> None:
    unit = Unit({"a": 1, "b": 2}, refuses=frozenset({"list"}))
    assert undo_reservations([unit.through("a"), unit.through("b")]) == ""
    assert unit.keys == {}


def test_the_undo_sends_no_transfer_of_no_blocks() -> None:
    """istgt 0.4 never completes a WRITE(10) of no blocks, so the undo itself would end a run."""
    unit = Unit({"b": 2}, "b")
    sent: list[bytes] = []

    def command(cdb: bytes, *, read: int = 0, data: bytes = b"") -> ScsiCompletion:
        sent.append(cdb)
        return unit.run("a", cdb, data, read)

    assert undo_reservations([LogicalUnit(SimpleNamespace(command=command)), unit.through("b")]) == ""
    assert sent
    assert not [cdb.hex() for cdb in sent if cdb[0] in (0x28, 0x2A) and cdb[7:9] == b"\0\0"]


def test_a_unit_without_persistent_reservations_is_released() -> None:
    unit = Unit(reserved6="b", persistent=False)
    assert undo_reservations([unit.through("a"), unit.through("b")]) == ""


@pytest.mark.parametrize(
    ("unit", "left"),
    [
        (Unit(reserved6="gone"), "RESERVATION CONFLICT"),
        (Unit(reserved6="b", refuses=frozenset({"release6"})), "RESERVATION CONFLICT"),
        (Unit({"b": 2}, "b", refuses=frozenset({"register", "clear", "ignore"})), "CONFLICT|key 0x2 is"),
        (Unit(refuses=frozenset({"report"})), "does not report its reservations"),
    ],
)
def test_what_cannot_be_undone_is_returned(unit: Unit, left: str) -> None:
    assert re.search(left, undo_reservations([unit.through("a"), unit.through("b")]))


def test_no_nexus_is_no_proof_that_nothing_is_left() -> None:
    assert undo_reservations([]) == "no I_T nexus could be made, so nothing is known"


def test_a_reservation_that_outlives_its_nexus_is_undone_by_a_reset() -> None:
    unit = Unit(reserved6="gone")

    def reset() -> None:
        unit.reserved6 = ""

    assert undo_reservations([unit.through("a"), unit.through("b")], reset=reset) == ""


def test_a_nexus_that_does_not_respond_is_no_proof_and_hinders_no_other() -> None:
    unit = Unit({"b": 2}, "b")

    def silent(_cdb: bytes, **_more: Any) -> ScsiCompletion:
        raise RemoteProtocolError("no response")

    dead = LogicalUnit(SimpleNamespace(command=silent))
    assert "does not report" in undo_reservations([dead, unit.through("b")])
    assert UNDO_KEY not in unit.keys.values()
    assert unit.holder == ""


# Logical units that the targets file does not name


def test_the_undo_leaves_the_reservations_of_another_logical_unit() -> None:
    """Another host may have reserved it: a session that a case has for it is no nexus of the undo."""
    units = {lun: Unit({"host": 0xAB}, "host") for lun in (1, 2)}
    made = Connections(SimpleNamespace(lun=1), None, "x")  # type: ignore[arg-type]  # all that is used
    for letter, lun in (("a", 1), ("o", 2)):
        runner = units[lun].through(letter).runner
        runner.name, runner.isid, runner.tsih, runner.lun = letter, b"1", 1, flat_lun(lun)
        runner.logged_in = True
        made._initiators.append(runner)
    assert undo_reservations(made.nexuses(SIZE)) == ""
    assert units[1].keys == {}
    assert units[2].keys == {"host": 0xAB}


def listing(*luns: int) -> Any:
    """An initiator whose target lists these LUNs, or none if it has no REPORT LUNS."""
    fields = b"".join(flat_lun(lun).to_bytes(8, "big") for lun in luns)
    data = len(fields).to_bytes(4, "big") + bytes(4) + fields
    return SimpleNamespace(
        command=lambda _cdb, **_more: completed(GOOD, data) if luns else completed(CHECK, sense=ILLEGAL)
    )


def test_a_logical_unit_that_is_listed_is_not_thought_absent() -> None:
    assert absent_lun(listing(0)) == flat_lun(NUMBERS[0])
    assert absent_lun(listing(0, NUMBERS[0])) == flat_lun(NUMBERS[1])
    with pytest.raises(pytest.skip.Exception, match="are there"):
        absent_lun(listing(0, *NUMBERS))


def test_nothing_is_written_to_a_logical_unit_that_may_be_there() -> None:
    assert absent_lun(listing()) == flat_lun(NUMBERS[0])
    with pytest.raises(pytest.skip.Exception, match="not listed"):
        absent_lun(listing(), harmless=False)
