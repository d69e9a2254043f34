"""What the keeper decides, without doing any of it: events in, actions out.

    start ──▶ every machine STARTING ──▶ all READY: "up" ──▶ committed ──▶ … ──▶ End
                 │ silent for too long, or QEMU ended
                 └▶ started once more (with the appliance everybody is: they hang on its hub), then "failed"

Rules:

1. Until `up` has committed, the lab is `up`'s: if `up` ends, however it ends, the lab ends.
2. From then on it is its owner's, if it has one: when that process ends, the lab ends.
3. Patience is counted from a machine's last milestone, not from its start: a loaded host is slow, not hung.
4. When the lab is up, a machine that reboots or ends is the business of whoever did that to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Any

from storagetest.lab.qemu import APPLIANCE

__all__ = ["Action", "End", "Event", "Phase", "Policy", "Report", "Start", "State"]

_ATTEMPTS = 2
_MARK = "storagetest: "


class Phase(StrEnum):
    """Where a machine is."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class State:
    """A machine as the keeper knows it; ``boots`` counts how often it became ready."""

    phase: Phase = Phase.STARTING
    attempts: int = 0
    boots: int = 0
    since: float = 0.0
    milestone: str = "power on"


@dataclass(frozen=True, slots=True)
class Start:
    """Start this machine, ending what runs of it."""

    machine: str


@dataclass(frozen=True, slots=True)
class Report:
    """Tell `up`."""

    event: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class End:
    """End all machines, remove the lab's directory, end."""

    why: str


Action = Start | Report | End


class Event(Enum):
    """What can happen to the whole lab."""

    COMMITTED = "committed"
    UP_LEFT = "`up` ended before the lab was up"
    OWNER_ENDED = "the process that owns the lab ended"
    ASKED = "asked to end"


class Policy:
    """The decisions for one lab. ``now`` is a monotonic clock's reading in seconds."""

    def __init__(self, machines: Iterable[str], patience: float) -> None:
        self.states = dict.fromkeys(machines, State())
        self._patience = patience
        self._up = False
        self._committed = False

    def begin(self, now: float) -> list[Action]:
        """Return the first actions."""
        return self._start(list(self.states), now)

    def lab(self, event: Event) -> list[Action]:
        """Return what follows from an event of the whole lab."""
        if event is Event.COMMITTED:
            self._committed = True
            return []
        if event is Event.UP_LEFT and self._committed:
            return []
        return [End(event.value)]

    def line(self, machine: str, text: str, now: float) -> list[Action]:
        """Return what follows from a line on a machine's console."""
        _, mark, rest = text.partition(_MARK)
        if not mark:
            return []
        word, _, more = rest.strip().partition(" ")
        state = replace(self.states[machine], since=now, milestone=rest.strip())
        self.states[machine] = state
        if word == "failed:":
            self.states[machine] = replace(state, phase=Phase.FAILED)
            return [] if self._up else self._give_up(machine, more)
        if word == "kernel":
            self.states[machine] = replace(state, phase=Phase.STARTING)
        if word != "ready":
            return []
        self.states[machine] = replace(state, phase=Phase.READY, boots=state.boots + 1)
        actions: list[Action] = [Report("ready", {"machine": machine})]
        if not self._up and all(other.phase is Phase.READY for other in self.states.values()):
            self._up = True
            actions.append(Report("up", {}))
        return actions

    def ended(self, machine: str, complaint: str, now: float) -> list[Action]:
        """Return what follows from the end of a machine's QEMU."""
        self.states[machine] = replace(self.states[machine], phase=Phase.ENDED)
        return [] if self._up else self._retry(machine, f"QEMU ended: {complaint}", now)

    def power_on(self, machine: str, now: float) -> list[Action]:
        """Return what follows from somebody asking for a machine whose QEMU has ended."""
        return self._start([machine], now) if self.states[machine].phase is Phase.ENDED else []

    def tick(self, now: float) -> list[Action]:
        """Return what follows from nothing having happened until ``now``."""
        for machine, state in self.states.items():
            if self._watched(state) and now >= state.since + self._patience:
                return self._retry(machine, f"silent for {self._patience:g} s after {state.milestone!r}", now)
        return []

    def next_tick(self) -> float | None:
        """Return when :meth:`tick` has something to say at the earliest."""
        return min(
            (state.since + self._patience for state in self.states.values() if self._watched(state)),
            default=None,
        )

    def _watched(self, state: State) -> bool:
        return not self._up and state.phase is Phase.STARTING

    def _start(self, machines: list[str], now: float) -> list[Action]:
        for machine in machines:
            self.states[machine] = replace(
                self.states[machine], phase=Phase.STARTING, since=now, milestone="power on"
            )
        return [Start(machine) for machine in machines]

    def _retry(self, machine: str, why: str, now: float) -> list[Action]:
        attempts = self.states[machine].attempts + 1
        if attempts >= _ATTEMPTS:
            return self._give_up(machine, why)
        self.states[machine] = replace(self.states[machine], attempts=attempts)
        again = list(self.states) if machine == APPLIANCE else [machine]
        return [Report("retry", {"machine": machine, "why": why}), *self._start(again, now)]

    def _give_up(self, machine: str, why: str) -> list[Action]:
        return [Report("failed", {"machine": machine, "why": why}), End(f"{machine}: {why}")]
