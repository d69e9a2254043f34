"""Guards of the iSCSI suite: no write without proof, no green run without a look."""

import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "controllers"))
from iscsi_full_unit import FullServer, FullUnit
from iscsi_seldom_choices import Masking
from iscsi_target import IQN, NAA, Connection, Server, fixed_sense

from storagetest.wire.iscsi.pdu import LoginRequest, LoginResponse, ScsiCommand, ScsiResponse
from storagetest.wire.scsi.codes import PrType

SUITE = Path(__file__).parents[2] / "suites" / "conformance" / "iscsi"
CASES = "what_is_written_is_read or last_block_can_be_written"
RunCases = Callable[..., tuple[pytest.RunResult, dict[str, str]]]


@dataclass(frozen=True)
class Completion:
    """Completion of a command that moves data to the initiator."""

    data: bytes = b""
    status: int = 0


Fault = Callable[[bytes, Completion], Completion]
WRITE_10, PERSISTENT_RESERVE_IN, PERSISTENT_RESERVE_OUT = 0x2A, 0x5E, 0x5F
BUSY, CONFLICT, REFUSED = Completion(status=0x08), Completion(status=0x18), Completion(status=0x02)


class Target(Server):
    """The small target; ``fault`` changes the completion of a command by its CDB."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: Fault = lambda _cdb, done: done
        self.before = bytes(self.unit)

    @property
    def written(self) -> bool:
        """Whether the unit has other data than when the suite began."""
        return bytes(self.unit) != self.before

    def put(self, offset: int, data: bytes) -> None:
        self.unit[offset : offset + len(data)] = data
        self.before = bytes(self.unit)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    running = Target()
    answer = Connection.answer

    def changed(self: Connection, pdu: ScsiCommand, data: bytes) -> None:
        done = running.fault(pdu.cdb, Completion(data))
        if done.status == 0:
            answer(self, pdu, done.data)
            return
        sense = fixed_sense(5, 0x2400) if done.status == REFUSED.status else b""
        more = struct.pack(">H", len(sense)) + sense if sense else b""
        self.respond(ScsiResponse(itt=pdu.itt, status=done.status, data=more))

    monkeypatch.setattr(Connection, "answer", changed)
    with running:
        yield running


@pytest.fixture
def run_suite(run_on_target, target: Target) -> RunCases:
    """Return a function that runs the writing cases that the target has commands for."""

    def run(*arguments: str):
        disk = {"protocol": "iscsi", "port": target.port, "iqn": IQN, "erase": f"naa.{NAA.hex()}"}
        return run_on_target(disk, *arguments, "-k", CASES, str(SUITE / "test_scsi_blocks.py"))

    return run


def of(opcodes: set[int], change: Callable[[Completion], Completion]) -> Fault:
    """Return a fault of the commands with these operation codes."""
    return lambda cdb, done: change(done) if cdb[0] in opcodes else done


READS = {0x28, 0x88}


class Garbled:
    """Every read returns another byte."""

    turn = 0

    def __call__(self, done: Completion) -> Completion:
        self.turn += 1
        return Completion(bytes([self.turn % 256]) + done.data[1:])


READ_FAULTS: dict[str, Callable[[], Callable[[Completion], Completion]]] = {
    "refused": lambda: lambda _: REFUSED,
    "busy": lambda: lambda _: BUSY,
    "reserved": lambda: lambda _: CONFLICT,
    "short": lambda: lambda done: Completion(done.data[:-512]),
    "empty": lambda: lambda _: Completion(),
    "garbled": Garbled,
}


@pytest.mark.parametrize("make", READ_FAULTS.values(), ids=READ_FAULTS)
def test_nothing_is_written_without_a_successful_look(
    run_suite: RunCases, target: Target, make: Callable[[], Callable[[Completion], Completion]]
) -> None:
    target.fault = of(READS, make())
    result, outcomes = run_suite("-rs")
    assert not target.written
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "skipped" in outcomes.values()
    result.stdout.fnmatch_lines(["*the look for blocks to overwrite failed in test_*: *"])


@pytest.mark.parametrize("opcode", [0x9E, 0x12], ids=["READ CAPACITY(16)", "INQUIRY"])
@pytest.mark.parametrize("completion", [REFUSED, BUSY, Completion(), Completion(b"\7" * 9)], ids=str)
def test_a_unit_that_cannot_be_looked_at_fails_once(
    run_suite: RunCases, target: Target, opcode: int, completion: Completion
) -> None:
    target.fault = of({opcode}, lambda _: completion)
    result, outcomes = run_suite()
    assert not target.written
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert sorted(set(outcomes.values())) == ["failed", "skipped"]
    assert list(outcomes.values()).count("failed") <= 2, "capacity and identity are two looks"


def test_a_file_system_is_not_overwritten(run_suite: RunCases, target: Target) -> None:
    target.put(0x438, b"\x53\xef")
    result, _ = run_suite("-rs")
    assert not target.written
    result.stdout.fnmatch_lines(["*carries ext2, ext3 or ext4; nothing is written there*"])


def test_a_unit_whose_identity_changes_is_not_written(run_suite: RunCases, target: Target) -> None:
    seen = iter(range(64))

    def fault(cdb: bytes, done: Completion) -> Completion:
        if cdb[0] == 0x12 and cdb[1] & 1 and cdb[2] == 0x83 and next(seen):
            return Completion(done.data[:-1] + b"\2")
        return done

    target.fault = fault
    result, _ = run_suite()
    assert not target.written
    result.stdout.fnmatch_lines(["*had the names *and then others*SPC-4*"])


def test_an_empty_unit_is_written(run_suite: RunCases, target: Target) -> None:
    _, outcomes = run_suite()
    assert target.written
    assert "passed" in outcomes.values()


def test_reservations_that_are_refused_are_one_red_line(
    run_on_target, target: Target, monkeypatch: pytest.MonkeyPatch
):
    """The target lists no key, and refuses every PERSISTENT RESERVE OUT."""
    command = Connection.command

    def with_reservations(self: Connection, pdu: ScsiCommand) -> None:
        if pdu.cdb[0] == PERSISTENT_RESERVE_IN:
            self.answer(pdu, bytes(8))
        elif pdu.cdb[0] == PERSISTENT_RESERVE_OUT:
            sense = fixed_sense(5, 0x2400)
            data = struct.pack(">H", len(sense)) + sense
            self.respond(ScsiResponse(itt=pdu.itt, status=REFUSED.status, data=data))
        elif pdu.cdb[0] == WRITE_10 and pdu.cdb[7:9] == bytes(2):
            self.respond(ScsiResponse(itt=pdu.itt))
        else:
            command(self, pdu)

    monkeypatch.setattr(Connection, "command", with_reservations)
    disk = {"protocol": "iscsi", "port": target.port, "iqn": IQN, "erase": f"naa.{NAA.hex()}"}
    result, outcomes = run_on_target(disk, str(SUITE / "test_reservations.py"), "-k", "not reserve_6")
    red = [name for name, outcome in outcomes.items() if outcome in ("failed", "error")]
    assert red[0] == "SCS-PR-36"
    assert set(red) <= {"SCS-PR-36", "SCS-PR-04", "SCS-PR-06", "SCS-PR-26", "SCS-PR-30", "SCS-PR-31"}
    assert len(outcomes) > 60
    result.stdout.fnmatch_lines(["SCS-PR-36 on disk failed: * that build on it were not judged"])


def test_sense_data_that_never_come_are_one_red_line(
    run_on_target, target: Target, monkeypatch: pytest.MonkeyPatch
):
    """Each command that the target refuses ends in CHECK CONDITION with an empty data segment."""
    monkeypatch.setattr(
        Connection, "fail", lambda self, pdu, _error: self.respond(ScsiResponse(itt=pdu.itt, status=2))
    )
    disk = {"protocol": "iscsi", "port": target.port, "iqn": IQN, "erase": f"naa.{NAA.hex()}"}
    result, outcomes = run_on_target(
        disk, str(SUITE / "test_scsi_blocks.py"), "-k", "compare or unmap or same"
    )
    assert len(red(outcomes)) == 1
    result.stdout.fnmatch_lines(["*CHECK CONDITION comes without sense data*"])


STRANGER = ("iqn.2024-01.org.example:stranger", b"\x80\0\0\0\0\1")


def reserved(kind: PrType | None) -> FullUnit:
    """Return a unit that another initiator has reserved: ``kind`` is None for RESERVE(6)."""
    unit = FullUnit()
    if kind is None:
        unit.reserved6 = STRANGER
    else:
        unit.registered, unit.holder, unit.type = {STRANGER: 0xA5}, STRANGER, kind
    return unit


@pytest.mark.parametrize("kind", [None, PrType.WRITE_EXCLUSIVE, PrType.EXCLUSIVE_ACCESS_ALL_REGISTRANTS])
def test_a_unit_that_another_initiator_has_reserved_ends_the_run(run_on_target, kind: PrType | None):
    unit = reserved(kind)
    with FullServer(unit) as server:
        disk = {"protocol": "iscsi", "port": server.port, "iqn": IQN, "erase": f"naa.{NAA.hex()}"}
        modules = [str(SUITE / name) for name in ("test_scsi_neighbours.py", "test_reservations.py")]
        result, outcomes = run_on_target(disk, *modules)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert list(outcomes.values()) == ["error"], "the target or another case was blamed"
    what = "RESERVATION CONFLICT" if kind is None else f"type {kind:d} and the key *"
    result.stdout.fnmatch_lines([f"! {IQN} LUN 0 is reserved (*{what}) by another initiator, *run again !"])
    assert STRANGER in (unit.reserved6, unit.holder)
    assert not unit.written


def test_a_target_that_does_not_serve_the_initiator_names_ends_the_run(run_on_target):
    with FullServer(FullUnit(), kind=Masking) as server:
        disk = {"protocol": "iscsi", "port": server.port, "iqn": IQN}
        result, outcomes = run_on_target(disk, str(SUITE / "test_nop.py"))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert list(outcomes.values()) == ["error"], "the target or another case was blamed"
    result.stdout.fnmatch_lines(
        [f"! {IQN} does not serve the initiator iqn.*:facts (*status 0202*, and run again !"]
    )


class ClosedDoor:
    """Logins number ``begin`` to ``end`` of a target are dropped, or refused with a status."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, begin: int, end: int, *, status: int = 0) -> None:
        self.logins = 0
        handle = Connection.handle

        def handle_login(connection: Connection, pdu: object) -> bool:
            if not isinstance(pdu, LoginRequest):
                return handle(connection, pdu)
            self.logins += 1
            if not begin <= self.logins < end:
                return handle(connection, pdu)
            if status:
                connection.respond(LoginResponse(itt=pdu.itt, isid=pdu.isid, csg=pdu.csg, status=status))
            return False

        monkeypatch.setattr(Connection, "handle", handle_login)


NEVER = 1 << 30


def red(outcomes: dict[str, str]) -> list[str]:
    return [name for name, outcome in outcomes.items() if outcome in ("failed", "error")]


@pytest.mark.parametrize("status", [0, 0x0302], ids=["dropped", "refused"])
def test_a_target_that_lets_no_session_in_any_more_is_one_red_line(
    run_on_target, target: Target, monkeypatch: pytest.MonkeyPatch, status: int
):
    ClosedDoor(monkeypatch, 8, NEVER, status=status)
    disk = {"protocol": "iscsi", "port": target.port, "iqn": IQN}
    modules = [str(SUITE / name) for name in ("test_nop.py", "test_keys.py")]
    result, outcomes = run_on_target(disk, *modules, "-rs")
    assert len(red(outcomes)) == 1
    assert list(outcomes.values()).count("skipped") > 20
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*the login failed after test_*"])


def test_a_target_that_lets_sessions_in_again_is_used_again(
    run_on_target, target: Target, monkeypatch: pytest.MonkeyPatch
):
    ClosedDoor(monkeypatch, 8, 12)
    disk = {"protocol": "iscsi", "port": target.port, "iqn": IQN}
    _, outcomes = run_on_target(disk, str(SUITE / "test_nop.py"))
    assert len(red(outcomes)) == 1
    after = list(outcomes.values())
    after = after[after.index("failed") :]
    assert "passed" in after[after.index("skipped") :]


def test_judge_all_judges_each_case_on_a_target_that_lets_no_session_in(
    run_on_target, target: Target, monkeypatch: pytest.MonkeyPatch
):
    ClosedDoor(monkeypatch, 8, NEVER)
    disk = {"protocol": "iscsi", "port": target.port, "iqn": IQN}
    _, outcomes = run_on_target(disk, str(SUITE / "test_nop.py"), "--st-judge-all")
    assert len(red(outcomes)) > 4
    assert "skipped" not in outcomes.values()
