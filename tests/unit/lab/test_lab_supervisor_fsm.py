"""Decisions of the supervisor, event by event."""

import pytest

from storagetest.lab.supervisor_fsm import (
    LabEvent,
    MachinePhase,
    Notify,
    SendSettings,
    StartMachine,
    StopLab,
    SupervisorFsm,
)

MACHINES = ["appliance", "client1", "client2"]


@pytest.fixture
def fsm() -> SupervisorFsm:
    fsm = SupervisorFsm(MACHINES, boot_timeout=10, boot_limit=100)
    assert fsm.begin(0) == [StartMachine(machine) for machine in MACHINES]
    return fsm


def ready(fsm: SupervisorFsm, *machines: str, now: float = 1) -> list:
    lines = [fsm.on_console_line(machine, "storagetest: ready", now) for machine in machines]
    return [action for actions in lines for action in actions]


def test_up_is_sent_once_when_the_last_machine_is_ready(fsm):
    assert ready(fsm, "client1", "appliance") == [
        Notify("ready", {"machine": "client1"}),
        Notify("ready", {"machine": "appliance"}),
    ]
    assert ready(fsm, "client2")[-1] == Notify("up", {})
    assert fsm.starting() == []
    assert ready(fsm, "client2") == [Notify("ready", {"machine": "client2"})]


def test_other_console_lines_are_ignored(fsm):
    assert fsm.on_console_line("client1", "[    0.000000] Linux version 6.1", 1) == []
    assert fsm.states["client1"].milestone == "power on"


SILENT = dict.fromkeys(MACHINES, 10.0)
REASON = "its console was silent for 10 s of its own time after "


def test_a_busy_host_does_not_end_a_start_that_goes_on(fsm):
    fsm.on_console_line("client1", "storagetest: kernel", 8)
    assert fsm.on_timer(99.9, dict.fromkeys(MACHINES, 9.9)) == []
    assert fsm.starting() == MACHINES


@pytest.mark.parametrize("silent", [{}, dict.fromkeys(MACHINES, 0.0)])
def test_a_start_has_a_limit_on_the_clock(fsm, silent):
    ready(fsm, "appliance", "client1")
    fsm.on_console_line("client2", "storagetest: kernel", 99)
    failed, end = fsm.on_timer(100, silent)
    reason = "it was not ready within 100 s, and is still after 'kernel'"
    assert failed == Notify("failed", {"machine": "client2", "reason": reason})
    assert end == StopLab(f"client2: {reason}")


def test_the_limit_starts_anew_with_the_second_start(fsm):
    ready(fsm, "appliance", "client1")
    assert fsm.on_timer(60, SILENT) != []
    assert fsm.on_timer(159, {}) == []
    assert fsm.on_timer(160, {}) != []


def test_a_silent_client_is_restarted_once(fsm):
    ready(fsm, "appliance", "client1")
    notify, start = fsm.on_timer(12, SILENT)
    assert notify == Notify("retry", {"machine": "client2", "reason": f"{REASON}'power on'"})
    assert start == StartMachine("client2")
    failed, end = fsm.on_timer(24, SILENT)
    assert failed.event == "failed"
    assert isinstance(end, StopLab)


def test_a_silent_appliance_restarts_all_machines(fsm):
    ready(fsm, "client1", "client2")
    actions = fsm.on_timer(12, SILENT)
    assert actions[1:] == [StartMachine(machine) for machine in MACHINES]
    assert all(state.phase is MachinePhase.STARTING for state in fsm.states.values())
    assert fsm.states["client1"].attempts == 0


def test_a_qemu_that_exits_is_restarted_once(fsm):
    assert fsm.on_exit("client1", "no such CPU", 1)[1:] == [StartMachine("client1")]
    failed, _ = fsm.on_exit("client1", "no such CPU", 2)
    assert failed == Notify("failed", {"machine": "client1", "reason": "QEMU exited: no such CPU"})


def test_a_failed_service_fails_the_lab_without_retry(fsm):
    failed, end = fsm.on_console_line("appliance", "storagetest: failed: samba: no space", 3)
    assert failed == Notify("failed", {"machine": "appliance", "reason": "samba: no space"})
    assert end == StopLab("appliance: samba: no space")


def test_before_the_commit_the_end_of_up_ends_the_lab(fsm):
    assert fsm.on_lab_event(LabEvent.UP_EXITED) == [StopLab(LabEvent.UP_EXITED.value)]
    assert fsm.on_lab_event(LabEvent.COMMITTED) == []
    assert fsm.on_lab_event(LabEvent.UP_EXITED) == []
    assert fsm.on_lab_event(LabEvent.OWNER_EXITED) == [StopLab(LabEvent.OWNER_EXITED.value)]
    assert fsm.on_lab_event(LabEvent.STOP_REQUESTED) == [StopLab(LabEvent.STOP_REQUESTED.value)]


def test_after_up_reboots_and_exits_are_only_recorded(fsm):
    ready(fsm, *MACHINES)
    assert fsm.on_console_line("appliance", "storagetest: kernel", 50) == []
    assert fsm.states["appliance"].phase is MachinePhase.STARTING
    assert fsm.on_timer(500, SILENT) == []
    ready(fsm, "appliance", now=501)
    assert fsm.states["appliance"].boots == 2
    assert fsm.on_exit("client1", "killed", 502) == []
    assert fsm.states["client1"].phase is MachinePhase.ENDED
    assert fsm.on_console_line("client2", "storagetest: failed: client: x", 503) == []
    assert fsm.states["client2"].phase is MachinePhase.FAILED


def test_only_an_ended_machine_is_powered_on(fsm):
    ready(fsm, *MACHINES)
    assert fsm.power_on("client1", 60) == []
    fsm.on_exit("client1", "quit", 61)
    assert fsm.power_on("client1", 62) == [StartMachine("client1")]
    assert fsm.states["client1"].phase is MachinePhase.STARTING
    assert fsm.starting() == []
    ready(fsm, "client1", now=70)
    assert fsm.states["client1"].boots == 2


@pytest.fixture
def resuming() -> SupervisorFsm:
    fsm = SupervisorFsm(MACHINES, boot_timeout=10, boot_limit=100, resume=True)
    assert fsm.begin(0) == [StartMachine(machine, resume=True) for machine in MACHINES]
    return fsm


def test_a_machine_that_runs_again_gets_the_settings_and_is_then_ready(resuming):
    assert resuming.on_console_line("client1", "storagetest: resumed", 1) == [SendSettings("client1")]
    assert ready(resuming, *MACHINES)[-1] == Notify("up", {})


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (lambda fsm: fsm.on_timer(12, SILENT), f"{REASON}'power on'"),
        (
            lambda fsm: fsm.on_timer(100, {}),
            "it was not ready within 100 s, and is still after 'power on'",
        ),
        (lambda fsm: fsm.on_exit("appliance", "bad state", 1), "QEMU exited: bad state"),
        (
            lambda fsm: fsm.on_console_line("appliance", "storagetest: failed: resume: no sshd", 1),
            "resume: no sshd",
        ),
    ],
    ids=["hung", "slow", "exited", "failed"],
)
def test_machines_that_do_not_resume_are_booted_once(resuming, event, reason):
    notify, *starts = event(resuming)
    assert notify == Notify("not resumed", {"machine": "appliance", "reason": reason})
    assert starts == [StartMachine(machine) for machine in MACHINES]
    assert resuming.on_exit("client1", "no such CPU", 2)[0].event == "retry"


def test_after_the_boot_all_machines_resume_from_the_snapshot_of_it(fsm):
    ready(fsm, *MACHINES)
    assert fsm.resume(20) == [StartMachine(machine, resume=True) for machine in MACHINES]
    assert ready(fsm, *MACHINES, now=21)[-1] == Notify("up", {})


def test_one_machine_is_restored_from_the_snapshot(fsm):
    ready(fsm, *MACHINES)
    fsm.on_exit("client1", "quit", 61)
    assert fsm.power_on("client1", 62, resume=True) == [StartMachine("client1", resume=True)]
