"""The decisions of the supervisor as a pure state machine: events in, actions out.

    start ──▶ all machines STARTING ──▶ all READY: "up" ──▶ committed ──▶ … ──▶ StopLab
                 │ silent too long, or QEMU exited
                 └▶ start it once more (the appliance: all machines, they use its hub), then "failed"

A lab starts by a boot, or resumes from a snapshot (snapshots.py). If a machine does not resume, all machines
boot.

Rules:

1. Until `up` commits, the lab ends when `up` ends, for whatever reason.
2. After the commit, the lab ends with its owner process, if it has one.
3. A machine that starts is hung if its console is silent for the boot timeout, in time in which it could run
   (process_watch.py): a busy host does not trigger it. A start as a whole has a limit, on the clock.
4. After all machines were ready once, a machine that reboots or exits is not restarted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Any

from storagetest.lab.qemu import APPLIANCE

_MAX_ATTEMPTS = 2
_MARK = "storagetest: "
"""Prefix of a milestone on the console; see guest/boot.sh."""


class MachinePhase(StrEnum):
    """Phase of a machine."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class MachineState:
    """State of a machine. ``boots`` counts how often it became ready; ``milestone`` is the last one."""

    phase: MachinePhase = MachinePhase.STARTING
    attempts: int = 0
    boots: int = 0
    milestone: str = "power on"


@dataclass(frozen=True, slots=True)
class StartMachine:
    """Start a machine, by a boot or from its snapshot; kill its QEMU first if it runs."""

    machine: str
    resume: bool = False


@dataclass(frozen=True, slots=True)
class SendSettings:
    """Send the lab's keys, its passwords and the time to a machine that runs again (guest/resume.py)."""

    machine: str


@dataclass(frozen=True, slots=True)
class Notify:
    """Send an event to `up`."""

    event: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StopLab:
    """Kill all machines, remove the lab's directory, exit."""

    reason: str


Action = StartMachine | SendSettings | Notify | StopLab


class LabEvent(Enum):
    """Events that concern the whole lab; the value of those that end it is the reason."""

    COMMITTED = "committed"
    UP_EXITED = "`up` ended before the lab was up"
    OWNER_EXITED = "the owner process of the lab ended"
    STOP_REQUESTED = "stop requested"


class SupervisorFsm:
    """State machine of one lab. ``now`` is a monotonic time in seconds.

    ``boot_timeout`` is the longest silence of a machine that starts, and ``boot_limit`` the longest start, in
    seconds.
    """

    def __init__(
        self, machines: Iterable[str], boot_timeout: float, boot_limit: float, *, resume: bool = False
    ) -> None:
        self.states = dict.fromkeys(machines, MachineState())
        self._started: dict[str, float] = {}
        self._boot_timeout = boot_timeout
        self._boot_limit = boot_limit
        self._resume = resume
        self._up = False
        self._committed = False

    def begin(self, now: float) -> list[Action]:
        """Return the first actions."""
        return self._start(list(self.states), now, resume=self._resume)

    def resume(self, now: float) -> list[Action]:
        """Handle the request to resume all machines from the snapshot that was made of them."""
        self._up, self._resume = False, True
        self.states = dict.fromkeys(self.states, MachineState())
        return self.begin(now)

    def on_lab_event(self, event: LabEvent) -> list[Action]:
        """Handle an event of the whole lab."""
        if event is LabEvent.COMMITTED:
            self._committed = True
            return []
        if event is LabEvent.UP_EXITED and self._committed:
            return []
        return [StopLab(event.value)]

    def on_console_line(self, machine: str, text: str, now: float) -> list[Action]:
        """Handle a line on a machine's console."""
        _, mark, rest = text.partition(_MARK)
        if not mark:
            return []
        word, _, more = rest.strip().partition(" ")
        state = replace(self.states[machine], milestone=rest.strip())
        self.states[machine] = state
        if word == "resumed":
            return [SendSettings(machine)]
        if word == "failed:":
            self.states[machine] = replace(state, phase=MachinePhase.FAILED)
            if self._up:
                return []
            return self._retry(machine, more, now) if self._resume else self._give_up(machine, more)
        if word == "kernel":
            self.states[machine] = replace(state, phase=MachinePhase.STARTING)
        if word != "ready":
            return []
        self.states[machine] = replace(state, phase=MachinePhase.READY, boots=state.boots + 1)
        actions: list[Action] = [Notify("ready", {"machine": machine})]
        if not self._up and all(other.phase is MachinePhase.READY for other in self.states.values()):
            self._up = True
            actions.append(Notify("up", {}))
        return actions

    def on_exit(self, machine: str, stderr: str, now: float) -> list[Action]:
        """Handle the exit of a machine's QEMU."""
        self.states[machine] = replace(self.states[machine], phase=MachinePhase.ENDED)
        return [] if self._up else self._retry(machine, f"QEMU exited: {stderr}", now)

    def power_on(self, machine: str, now: float, *, resume: bool = False) -> list[Action]:
        """Handle a request to start a machine; without effect unless its QEMU has exited."""
        ended = self.states[machine].phase is MachinePhase.ENDED
        return self._start([machine], now, resume=resume) if ended else []

    def on_timer(self, now: float, silent: Mapping[str, float]) -> list[Action]:
        """Handle the time ``now``: restart a machine that is hung. ``silent`` has the seconds of each."""
        for machine in self.starting():
            after = f"after {self.states[machine].milestone!r}"
            if silent.get(machine, 0.0) >= self._boot_timeout:
                reason = f"its console was silent for {self._boot_timeout:g} s of its own time {after}"
                return self._retry(machine, reason, now)
            if now >= self._started[machine] + self._boot_limit:
                reason = f"it was not ready within {self._boot_limit:g} s, and is still {after}"
                return self._retry(machine, reason, now) if self._resume else self._give_up(machine, reason)
        return []

    def starting(self) -> list[str]:
        """Return the machines that the lab waits for."""
        if self._up:
            return []
        return [name for name, state in self.states.items() if state.phase is MachinePhase.STARTING]

    def _start(self, machines: list[str], now: float, *, resume: bool = False) -> list[Action]:
        for machine in machines:
            self._started[machine] = now
            self.states[machine] = replace(
                self.states[machine], phase=MachinePhase.STARTING, milestone="power on"
            )
        return [StartMachine(machine, resume) for machine in machines]

    def _retry(self, machine: str, reason: str, now: float) -> list[Action]:
        if self._resume:
            self._resume = False
            facts = {"machine": machine, "reason": reason}
            return [Notify("not resumed", facts), *self._start(list(self.states), now)]
        attempts = self.states[machine].attempts + 1
        if attempts >= _MAX_ATTEMPTS:
            return self._give_up(machine, reason)
        self.states[machine] = replace(self.states[machine], attempts=attempts)
        again = list(self.states) if machine == APPLIANCE else [machine]
        return [Notify("retry", {"machine": machine, "reason": reason}), *self._start(again, now)]

    def _give_up(self, machine: str, reason: str) -> list[Action]:
        return [Notify("failed", {"machine": machine, "reason": reason}), StopLab(f"{machine}: {reason}")]
