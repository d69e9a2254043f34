"""One command under way: its deadline, its progress, its crew, and the directory that it cleans up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.worker_pool import CommandError, WorkerPool

__all__ = ["CommandContext"]

_LAST_TIDYING = {"stopped": 1.5, "deadline": 8.0}
"""Seconds that removing files may take: who told us to end waits for two, past the deadline for some more."""


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
        limit = self.until
        if isinstance(error, CommandError) and error.fields["kind"] in _LAST_TIDYING:
            limit = time.monotonic() + _LAST_TIDYING[error.fields["kind"]]
        for place in self._places:
            with WorkerPool(1, lambda _: _Tidier(), limit) as tidier:
                try:
                    tidier.call("remove", place)
                except CommandError:
                    if kind is None:
                        raise

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


class _Tidier:
    """The worker that removes what a command left."""

    def remove(self, place: bytes) -> None:
        fsutil.remove(place)


def _processors() -> str:
    try:
        with open("/proc/stat", encoding="ascii") as stat:
            return "".join(line for line in stat if line.startswith("cpu"))
    except OSError:
        return ""
