"""One command under way: its deadline, its progress, its crew, and the directory that it cleans up."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.worker_pool import CommandError, WorkerPool

__all__ = ["CLEANUP_LIMIT", "CLEANUP_MESSAGE", "CLEANUP_STALL", "CommandContext"]

CLEANUP_LIMIT = 600.0
"""Seconds that removing files may take past the deadline, while files are being removed (chosen)."""
CLEANUP_STALL = 8.0
"""Seconds past the deadline without a removed file after which the target is taken to hang (chosen)."""
_CLEANUP_STOPPED = 1.5
"""Seconds that removing files may take after SIGTERM: the sender sends SIGKILL after two seconds."""
_CLEANUP_TURN = 0.5
"""Seconds between two progress messages while files are being removed (chosen)."""
CLEANUP_MESSAGE = '{"t":"progress","cleanup":'
"""Start of these messages: the parent extends the agent's deadline for each."""


class CommandContext:
    """What a command is given. Use as a context manager: at its end its workers and directories are gone."""

    def __init__(
        self, until: float, say: Callable[[dict[str, Any]], None], *, slot: float = 0.0, place: str = ""
    ) -> None:
        """``place`` is where the door is at which phases wait for other clients (none, if it is empty)."""
        self.until = until
        self._slot = slot
        self._place = place
        self._say = say
        self._crew: WorkerPool | None = None
        self._places: list[bytes] = []
        self._phases: dict[str, Any] = {}
        self._cpu = ["", ""]

    def __enter__(self) -> CommandContext:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._crew is not None:
            self._crew.close()
        stopped = isinstance(error, CommandError) and error.fields["kind"] == "stopped"
        end = time.monotonic() + _CLEANUP_STOPPED if stopped else self.until + CLEANUP_LIMIT
        for place in self._places:
            try:
                self._remove(place, end)
            except CommandError:
                if kind is None:
                    raise

    def _remove(self, place: bytes, end: float) -> None:
        """Remove ``place`` in a worker until ``end`` (``time.monotonic``), and send progress messages.

        Raises :class:`CommandError` at ``end``, and if the deadline is over and nothing is removed for
        :data:`CLEANUP_STALL` seconds.
        """
        with WorkerPool(1, lambda _: _Remover(place), end) as remover:
            more = True
            while more:
                with suppress(OSError):  # the reader has gone: the files are removed all the same
                    self.progress(cleanup=os.fsdecode(place))
                remover.until = min(end, max(self.until, time.monotonic() + CLEANUP_STALL))
                more = remover.call("remove")[0]

    def remove_at_end(self, place: bytes) -> bytes:
        """Note a directory or file that is removed at the end, be it there or not; return it."""
        self._places.append(place)
        return place

    def start_workers(self, count: int, make: Callable[[int], object]) -> WorkerPool:
        """Start the command's workers."""
        self._crew = WorkerPool(count, make, self.until, slot=self._slot, place=self._place)
        return self._crew

    def phase(
        self,
        name: str,
        method: str,
        *arguments: Any,  # noqa: ANN401  # a worker's
        only: Sequence[int] | None = None,
        to_the_last: bool = False,
    ) -> dict[str, Any]:
        """Run a phase of the crew, or of some of it, keep its report under ``name``, and return it."""
        if self._crew is None:
            raise CommandError("bug", "a phase without a crew")
        self._say({"t": "progress", "phase": name})
        if not self._cpu[0]:
            self._cpu[0] = _processors()
        self._phases[name] = report = self._crew.phase(method, *arguments, only=only, to_the_last=to_the_last)
        self._cpu[1] = _processors()
        return report

    def progress(self, **fields: Any) -> None:  # noqa: ANN401  # JSON values
        """Say something while the command runs: a line of progress."""
        self._say({"t": "progress", **fields})

    def result(self, **more: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON values
        """Return the phases, the machine's processor time before and after them, and ``more``."""
        return {"phases": self._phases, "cpu": self._cpu, **more}


class _Remover:
    """The worker that removes what a command left."""

    def __init__(self, place: bytes) -> None:
        self._removal = fsutil.removal(place)

    def remove(self) -> bool:
        """Go on for :data:`_CLEANUP_TURN` seconds; return whether there may be more to remove."""
        end = time.monotonic() + _CLEANUP_TURN
        return any(time.monotonic() >= end for _ in self._removal)


def _processors() -> str:
    try:
        with open("/proc/stat", encoding="ascii") as stat:
            return "".join(line for line in stat if line.startswith("cpu"))
    except OSError:
        return ""
