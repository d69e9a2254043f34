"""How long a machine has been silent, in time in which its QEMU could have run.

On a busy host the clock shows little: a machine that gets a thirtieth of a processor boots thirty times more
slowly than on an idle one. The time that counts against a silent machine is the larger one of

* the processor time of its QEMU, over all threads: a machine that computes without an end uses it up;
* the time on the clock, less the time in which a thread of its QEMU waited for a processor or a disk, or was
  stopped: a machine that waits for an event that never comes uses this up, as fast as the clock.

The kernel counts processor time and waiting of each thread (``/proc/PID/task/TID/schedstat``, in nanoseconds;
Documentation/scheduler/sched-stats.rst). It adds a wait when the wait is over, so a thread that could run and
has not run since the sample before is waiting. It does not count waiting for disks: a thread that is seen in
that state counts as waiting since the sample before. Without these files only the clock counts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_NANOSECOND = 1e-9
_BLOCKED = frozenset("DTt")
"""States of a thread that waits for a disk, or is stopped (proc_pid_stat(5))."""

_RUNNABLE = "R"


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """Processor time and time of waiting for a processor in seconds; the state (proc_pid_stat(5))."""

    ran: float = 0.0
    waited: float = 0.0
    state: str = "S"


Sample = dict[int, ThreadTimes]
"""The threads of a process, by thread id."""


def read_threads(pid: int, proc: Path = Path("/proc")) -> Sample:
    """Return the threads of a process; none if it has ended or the kernel does not count."""
    threads: Sample = {}
    with suppress(OSError):
        for task in (proc / str(pid) / "task").iterdir():
            with suppress(OSError, ValueError, IndexError):
                ran, waited, _ = map(int, (task / "schedstat").read_text().split())
                state = (task / "stat").read_text().rpartition(")")[2].split()[0]
                threads[int(task.name)] = ThreadTimes(ran * _NANOSECOND, waited * _NANOSECOND, state)
    return threads


class SilenceClock:
    """Counts the time since a machine's last output. ``now`` is a monotonic time in seconds."""

    def __init__(self, read: Callable[[], Sample], now: float) -> None:
        self._read = read
        self._threads: Sample = {}
        self._sampled = now
        self._blocked = 0.0
        self._waiting_since: dict[int, float] = {}
        self._mark = (now, 0.0, 0.0)
        self.restart(now)

    def restart(self, now: float) -> None:
        """Begin to count anew: the machine wrote to its console."""
        self._sample(now)
        self._mark = (now, *self._totals(now))

    def silent(self, now: float) -> float:
        """Return the seconds that count against the machine since it wrote last."""
        self._sample(now)
        began, ran_before, waited_before = self._mark
        ran, waited = self._totals(now)
        return max(ran - ran_before, now - began - (waited - waited_before))

    def _totals(self, now: float) -> tuple[float, float]:
        """Return the time that all threads ran, and the time that they waited or were blocked."""
        threads = self._threads.values()
        waiting = max((now - since for since in self._waiting_since.values()), default=0.0)
        waited = sum(thread.waited for thread in threads) + waiting + self._blocked
        return sum(thread.ran for thread in threads), waited

    def _sample(self, now: float) -> None:
        found = self._read()
        if any(thread.state in _BLOCKED for thread in found.values()):
            self._blocked += now - self._sampled
        self._waiting_since = {
            name: self._waiting_since.get(name, self._sampled)
            for name, thread in found.items()
            if thread.state == _RUNNABLE and thread == self._threads.get(name)
        }
        self._threads |= found  # the times of threads that have ended remain
        self._sampled = now
