"""Guards of the NVMe/TCP suite: no write without proof, no green run without a look, nothing left behind."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "controllers"))
import nvme_namespace
import nvme_reservations
import nvme_subsystem
from nvme_namespace import Answer, CommandFailed, ControllerConfig
from nvme_subsystem import Controller
from nvme_tcp_server import NQN, Connection, Server

from storagetest.plugin.conformance import entry
from storagetest.wire.nvme.codes import Admin, Cns, Feature, Io, StatusCode
from storagetest.wire.nvme.command import Command

SUITE = Path(__file__).parents[2] / "suites" / "conformance" / "nvme_tcp"
ERASE = "uuid.22222222-2222-4222-8222-222222222201"
RunCases = Callable[..., tuple[pytest.RunResult, dict[str, str]]]
Fault = Callable[[Command, Answer], Answer]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Command]:
    """Return the list of commands that changed blocks."""
    commands: list[Command] = []
    media = Controller._media

    def counted(self, namespace, command, data):
        if command.opcode in (Io.WRITE, Io.WRITE_ZEROES, Io.DATASET_MANAGEMENT, Io.COPY):
            commands.append(command)
        return media(self, namespace, command, data)

    monkeypatch.setattr(Controller, "_media", counted)
    return commands


@pytest.fixture
def run_suite(run_on_target, server: Server) -> RunCases:
    """Return a function that runs files of the suite."""

    def run(*files: str, erase: str | None = ERASE, arguments: tuple[str, ...] = (), **more: Any):
        disk = {"protocol": "nvme-tcp", "port": server.port, "nqn": NQN, **more}
        if erase is not None:
            disk["erase"] = erase
        return run_on_target(disk, *arguments, *(str(SUITE / name) for name in files))

    return run


def on_reads(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """Let ``fault`` change the result of every Read command."""
    execute = Controller.io

    def io(self, command, data):
        answer = execute(self, command, data)
        return fault(command, answer) if command.opcode == Io.READ else answer

    monkeypatch.setattr(Controller, "io", io)


def refused(status: int) -> Fault:
    def fault(_command: Command, _answer: Answer) -> Answer:
        raise CommandFailed(status)

    return fault


def large_refused(command: Command, answer: Answer) -> Answer:
    if len(answer.data) > 8192:
        raise CommandFailed(StatusCode.INVALID_FIELD)
    return answer


def shortened(_command: Command, answer: Answer) -> Answer:
    return Answer(answer.data[:-512])


def emptied(_command: Command, _answer: Answer) -> Answer:
    return Answer()


class Garbled:
    """Every read returns another byte."""

    turn = 0

    def __call__(self, _command: Command, answer: Answer) -> Answer:
        self.turn += 1
        return Answer(bytes([self.turn % 256]) + answer.data[1:])


FAULTS: dict[str, Callable[[], Fault]] = {
    "refused": lambda: refused(StatusCode.INVALID_FIELD),
    "reserved": lambda: refused(StatusCode.RESERVATION_CONFLICT),
    "large ones refused": lambda: large_refused,
    "shortened": lambda: shortened,
    "empty": lambda: emptied,
    "garbled": Garbled,
}


@pytest.mark.parametrize("make", FAULTS.values(), ids=FAULTS)
def test_nothing_is_written_without_a_successful_look(
    run_suite: RunCases, monkeypatch: pytest.MonkeyPatch, written: list[Command], make: Callable[[], Fault]
) -> None:
    on_reads(monkeypatch, make())
    result, outcomes = run_suite("test_blocks.py")
    assert not written
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    looked = [outcome for outcome in outcomes.values() if outcome in ("failed", "error")]
    assert len(looked) == 1, outcomes
    word = "failed" if "failed" in outcomes.values() else "error"
    result.stdout.fnmatch_lines([f"*1 {word}*"])


def test_a_file_system_is_not_overwritten_whatever_mdts_is(
    run_suite: RunCases, written: list[Command], server: Server
) -> None:
    """MDTS of 2^2 pages refuses a read of the whole start; the signature is beyond the first read."""
    server.subsystem.personality = ControllerConfig(mdts=2)
    server.subsystem.namespaces[1].data[0x10040:0x10048] = b"_BHRfS_M"
    result, outcomes = run_suite("test_blocks.py", arguments=("-rs",))
    assert not written
    assert set(outcomes.values()) <= {"skipped", "passed", "observed"}
    result.stdout.fnmatch_lines(["*namespace 1 carries btrfs; nothing is written there*"])


def test_an_empty_namespace_with_a_small_mdts_is_written(
    run_suite: RunCases, written: list[Command], server: Server
) -> None:
    server.subsystem.personality = ControllerConfig(mdts=2)
    result, outcomes = run_suite("test_blocks.py")
    assert written
    assert result.ret == pytest.ExitCode.OK, outcomes


def test_a_look_that_fails_is_one_failure_and_the_reason_of_the_skips(
    run_suite: RunCases, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_reads(monkeypatch, refused(StatusCode.INVALID_FIELD))
    result, outcomes = run_suite("test_blocks.py", "test_reservations.py", arguments=("-rs",))
    assert list(outcomes.values()).count("failed") == 1
    result.stdout.fnmatch_lines(
        ["*the look for blocks to overwrite failed in test_*: a read of * INVALID_FIELD*"]
    )


@pytest.mark.parametrize("cns", [Cns.CONTROLLER, Cns.NAMESPACE, Cns.ACTIVE_NAMESPACES, Cns.DESCRIPTORS])
def test_an_identify_that_fails_gives_no_green_run(
    run_suite: RunCases, monkeypatch: pytest.MonkeyPatch, written: list[Command], cns: Cns
) -> None:
    execute = Controller.admin

    def admin(self, command, data):
        if command.opcode == Admin.IDENTIFY and command.cdw10 & 0xFF == cns:
            raise CommandFailed(StatusCode.INVALID_FIELD)
        return execute(self, command, data)

    monkeypatch.setattr(Controller, "admin", admin)
    result, outcomes = run_suite("test_blocks.py", "test_reservations.py")
    assert not written
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "failed" in outcomes.values()


def test_a_namespace_whose_identity_changes_is_not_written(
    run_suite: RunCases, monkeypatch: pytest.MonkeyPatch, written: list[Command]
) -> None:
    names = iter(range(16))
    execute = Controller.admin

    def admin(self, command, data):
        answer = execute(self, command, data)
        if command.opcode == Admin.IDENTIFY and command.cdw10 & 0xFF == Cns.DESCRIPTORS and next(names):
            return Answer(bytes([3, 16, 0, 0, 7, 7]).ljust(4096, b"\0"))
        return answer

    monkeypatch.setattr(Controller, "admin", admin)
    result, _ = run_suite("test_blocks.py")
    assert not written
    result.stdout.fnmatch_lines(["*had the names *remains fixed*NVM 4.1.5.1*"])


def test_a_device_that_erase_does_not_name_is_a_skip(run_suite: RunCases, written: list[Command]) -> None:
    result, outcomes = run_suite("test_blocks.py", erase="uuid.other", arguments=("-rs",))
    assert not written
    assert "failed" not in outcomes.values()
    result.stdout.fnmatch_lines(["*`erase` does not name namespace 1*"])


def test_without_erase_the_skip_states_the_names_to_choose_from(
    run_suite: RunCases, written: list[Command]
) -> None:
    result, outcomes = run_suite("test_blocks.py", erase=None, arguments=("-rs",))
    assert not written
    assert "failed" not in outcomes.values()
    result.stdout.fnmatch_lines(
        [f"*no `erase` in the targets file, so nothing is written (its names: *{ERASE}*). If *"]
    )


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ([], "*no `more_namespaces` in the targets file*"),
        ([{"namespace": 2, "erase": "uuid.other"}], "*`erase` does not name namespace 2*"),
        ([{"namespace": 3, "erase": "uuid.other"}], "*namespace 3 is not active*"),
    ],
)
def test_two_namespaces_are_written_only_if_both_are_named(
    run_suite: RunCases, written: list[Command], more: list[dict[str, Any]], reason: str
) -> None:
    result, outcomes = run_suite("test_two_namespaces.py", more_namespaces=more, arguments=("-rs",))
    assert not written
    assert set(outcomes.values()) == {"skipped"}
    result.stdout.fnmatch_lines([reason])


# What a case leaves on the target is undone from every host, or the run ends with one sentence.


def refuse(monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    """Refuse an action of a host that is no registrant (``replace``), or what ``refused`` names, of all."""
    reserve = nvme_subsystem.reserve

    def changed(self, namespace, command, data):
        action = command.cdw10 & 7
        registers, releases = (
            command.opcode == kind for kind in (Io.RESERVATION_REGISTER, Io.RESERVATION_RELEASE)
        )
        conflicts = {
            "replace": registers and action == 2 and self.hostid not in namespace.registrants,
            "clear": releases and action == 1,
            "undo": (registers and action != 0) or releases,
        }
        if conflicts[refused]:
            raise CommandFailed(StatusCode.RESERVATION_CONFLICT)
        return reserve(self, namespace, command, data)

    monkeypatch.setattr(nvme_subsystem, "reserve", changed)


def test_replace_refused_to_a_non_registrant_leaves_nothing(
    run_suite: RunCases, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    refuse(monkeypatch, "replace")
    result, outcomes = run_suite("test_reservations.py")
    assert result.ret == pytest.ExitCode.OK, outcomes
    assert set(outcomes.values()) == {"passed"}
    assert not server.subsystem.namespaces[1].registrants


def test_a_target_without_clear_fails_only_the_case_that_clears(
    run_suite: RunCases, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    refuse(monkeypatch, "clear")
    _, outcomes = run_suite("test_reservations.py")
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "passed"} == {
        "NVR-CLEAR-01": "failed",
        "NVR-GEN-03": "skipped",
    }
    assert not server.subsystem.namespaces[1].registrants


def test_a_registrant_that_is_not_listed_is_undone(
    run_suite: RunCases, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    def report(namespace, controller, command):
        return bytes((command.cdw10 + 1) * 4)  # no registrant and no reservation

    monkeypatch.setattr(nvme_reservations, "_report", report)
    _, outcomes = run_suite("test_reservations.py", arguments=("-k", "test_a_host_may_register"))
    assert "passed" in outcomes.values()
    assert not server.subsystem.namespaces[1].registrants


def test_a_reservation_that_cannot_be_undone_ends_the_run(
    run_suite: RunCases, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, "undo")
    result, outcomes = run_suite("test_reservations.py")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert len(outcomes) <= 2, "other cases were blamed"
    result.stdout.fnmatch_lines(
        ["! namespace 1 of *: its reservations cannot be undone after test_*restart it, and run again !"]
    )


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize(
    ("module", "case"),
    [
        ("test_reservation_state.py", "test_the_persist_state"),
        ("test_refused_reservations.py", "persist_state"),
        ("test_answer_details.py", "default_of_a_feature"),
    ],
)
def test_the_persist_state_is_set_back(
    server: Server, run_suite: RunCases, module: str, case: str, before: int
) -> None:
    server.subsystem.namespaces[1].persistence = before
    _, outcomes = run_suite(module, arguments=("-k", case))
    assert set(outcomes.values()) == {"passed"}
    assert server.subsystem.namespaces[1].persistence == before


@pytest.mark.parametrize(
    ("module", "case", "line"),
    [
        (
            "test_reservation_state.py",
            "test_the_persist_state_is_kept",
            "! namespace 1 of *: its reservations cannot be undone after * Power Loss State is 1, and was 0*",
        ),
        (
            "test_answer_details.py",
            "default_of_a_feature",
            "! feature 83h of namespace 1 was 0x0 and cannot be set back, it is 0x1: set it on the target*",
        ),
    ],
)
def test_a_persist_state_that_cannot_be_set_back_ends_the_run(
    run_suite: RunCases, monkeypatch: pytest.MonkeyPatch, module: str, case: str, line: str
) -> None:
    """It is set once, and then never cleared, and no command that should clear it is refused."""
    monkeypatch.setattr(nvme_namespace.Namespace, "__setattr__", _persistence_that_stays)
    result, _ = run_suite(module, arguments=("-k", case))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([line])


def _persistence_that_stays(self: nvme_namespace.Namespace, name: str, value: object) -> None:
    object.__setattr__(self, name, 1 if name == "persistence" and getattr(self, name, 0) else value)


def test_a_write_protection_that_cannot_be_lifted_ends_the_run(
    run_suite: RunCases, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = nvme_subsystem.set_features

    def refuse_to_lift(controller, command, *, data):
        if command.cdw10 & 0xFF == Feature.WRITE_PROTECT and not command.cdw11:
            raise CommandFailed(StatusCode.INTERNAL_ERROR)
        return change(controller, command, data=data)

    monkeypatch.setattr(nvme_subsystem, "set_features", refuse_to_lift)
    result, outcomes = run_suite("test_write_protection.py")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert len(outcomes) <= 2, "other cases were blamed"
    result.stdout.fnmatch_lines(
        ["! namespace 1 of *: its write protection cannot be lifted after test_*, and run again !"]
    )


@pytest.mark.parametrize(
    ("opcode", "red", "judged"),
    [
        (Io.RESERVATION_REGISTER, ["NVR-REG-07"], ["NVR-ACQ-01"]),
        (Io.RESERVATION_ACQUIRE, ["NVR-ACQ-07"], ["NVR-REG-01", "NVR-REG-02", "NVR-ACQ-02"]),
    ],
)
def test_reservations_that_are_refused_are_one_red_line(
    run_suite: RunCases, monkeypatch: pytest.MonkeyPatch, opcode: int, red: list[str], judged: list[str]
):
    execute = Controller.io

    def io(self, command, data):
        if command.opcode == opcode:
            raise CommandFailed(StatusCode.INVALID_OPCODE)
        return execute(self, command, data)

    monkeypatch.setattr(Controller, "io", io)
    result, outcomes = run_suite("test_reservations.py")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    failed = [name for name, outcome in outcomes.items() if outcome in ("failed", "error")]
    assert set(red) <= set(failed)
    assert not set(judged) & {name for name, outcome in outcomes.items() if outcome == "skipped"}
    assert len(failed) < len(outcomes) / 10, failed
    result.stdout.fnmatch_lines([f"{red[0]} on disk failed: * that build on it were not judged"])


def lets_in_until(monkeypatch: pytest.MonkeyPatch, begin: int, end: int) -> None:
    """Let the controller drop the connections number ``begin`` to ``end`` at their ICReq."""
    count = 0
    initialize = Connection._initialize

    def _initialize(self, icreq, event):
        nonlocal count
        count += 1
        if begin <= count < end:
            self.drop_connection()
        else:
            initialize(self, icreq, event)

    monkeypatch.setattr(Connection, "_initialize", _initialize)


def red(outcomes: dict[str, str]) -> list[str]:
    return [name for name, outcome in outcomes.items() if outcome in ("failed", "error")]


def test_a_target_that_lets_no_host_in_any_more_is_one_red_line(
    run_suite: RunCases, monkeypatch: pytest.MonkeyPatch
):
    lets_in_until(monkeypatch, 12, 1 << 30)
    result, outcomes = run_suite("test_features.py", "test_admin.py", arguments=("-rs",))
    assert len(red(outcomes)) == 1
    assert list(outcomes.values()).count("skipped") > 10
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*the connection of a host failed after test_*"])


def test_a_target_that_lets_hosts_in_again_is_used_again(
    run_suite: RunCases, monkeypatch: pytest.MonkeyPatch
):
    lets_in_until(monkeypatch, 12, 16)
    _, outcomes = run_suite("test_features.py", "test_admin.py")
    assert len(red(outcomes)) == 1
    after = list(outcomes.values())
    after = after[after.index("failed" if "failed" in after else "error") :]
    assert "passed" in after[after.index("skipped") :]


def test_a_target_that_does_not_respond_to_connect_is_one_red_line(
    run_suite: RunCases, monkeypatch: pytest.MonkeyPatch
):
    """Each entry of a skipped case takes one second, and after ``GIVE_UP`` seconds there is none."""
    monkeypatch.setattr(entry, "GIVE_UP", 2.0)
    connects = []

    def silent(self, command, raw):
        connects.append(command)
        raise CommandFailed(StatusCode.INTERNAL_ERROR)

    monkeypatch.setattr(Connection, "_connect", silent)
    monkeypatch.setattr(Connection, "_refuse", lambda self, command, refused: None)
    result, outcomes = run_suite("test_features.py", "test_admin.py", arguments=("-rs",))
    assert len(red(outcomes)) == 1
    assert set(outcomes.values()) <= {"failed", "error", "skipped"}
    assert len(connects) < 8, "the target is entered for each case"
    result.stdout.fnmatch_lines(["*Connect to nqn.*: *neither responded nor closed*"])


def test_a_subsystem_that_does_not_exist_is_one_red_line(run_suite: RunCases, server: Server):
    server.subsystem.nqn = "nqn.2024-01.example:another"
    result, outcomes = run_suite("test_features.py", "test_admin.py", arguments=("-rs",))
    assert len(red(outcomes)) == 1
    assert set(outcomes.values()) <= {"failed", "error", "skipped"}
    result.stdout.fnmatch_lines(["*it names SUBNQN: no such subsystem is here. Check `nqn`*"])
