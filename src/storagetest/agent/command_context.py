"""The context of a running command: deadline, messages, worker pool, and paths to remove at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.worker_pool import CommandError, WorkerPool

CLEANUP_LIMIT = 600.0
"""Seconds that removing files may take past the deadline, while files are being removed (chosen)."""
CLEANUP_STALL = 8.0
"""Seconds past the deadline without a removed file after which the target is taken to hang (chosen)."""
_CLEANUP_STOPPED = 1.5
"""Seconds that removing files may take after SIGTERM: the sender sends SIGKILL after two seconds."""
_CLEANUP_INTERVAL = 0.5
"""Seconds between two progress messages while files are being removed (chosen)."""
CLEANUP_MESSAGE = '{"t":"progress","cleanup":'
"""Start of these messages: the parent extends the agent's deadline for each."""


class CommandContext:
    """The context of a command. As a context manager it ends the workers and removes the command's paths."""

    def __init__(
        self,
        until: float,
        write: Callable[[dict[str, Any]], None],
        *,
        slot: float = 0.0,
        barrier_path: str = "",
    ) -> None:
        """``until`` is the deadline (``time.monotonic``), ``write`` sends a message to the controller.

        ``barrier_path`` is the directory of the start barrier at which phases wait for other clients, or "".
        """
        self.until = until
        self._slot = slot
        self._barrier_path = barrier_path
        self._write = write
        self._workers: WorkerPool | None = None
        self._paths: list[bytes] = []
        self._phases: dict[str, Any] = {}
        self._cpu = ["", ""]

    def __enter__(self) -> CommandContext:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._workers is not None:
            self._workers.close()
        stopped = isinstance(error, CommandError) and error.fields["kind"] == "stopped"
        end = time.monotonic() + _CLEANUP_STOPPED if stopped else self.until + CLEANUP_LIMIT
        for path in self._paths:
            try:
                self._remove(path, end)
            except CommandError:
                if kind is None:
                    raise

    def _remove(self, path: bytes, end: float) -> None:
        """Remove ``path`` in a worker until ``end`` (``time.monotonic``), and send progress messages.

        Raises :class:`CommandError` at ``end``, and if the deadline is over and nothing is removed for
        :data:`CLEANUP_STALL` seconds.
        """
        with WorkerPool(1, lambda _: _Remover(path), end) as remover:
            more = True
            while more:
                with suppress(OSError):  # without a reader too the files are removed
                    self.progress(cleanup=os.fsdecode(path))
                remover.until = min(end, max(self.until, time.monotonic() + CLEANUP_STALL))
                more = remover.call("remove")[0]

    def remove_at_end(self, path: bytes) -> bytes:
        """Remove this directory or file at the end of the command, if it exists then; return the path."""
        self._paths.append(path)
        return path

    def start_workers(self, count: int, make: Callable[[int], object]) -> WorkerPool:
        """Start the command's workers."""
        self._workers = WorkerPool(count, make, self.until, slot=self._slot, barrier_path=self._barrier_path)
        return self._workers

    def phase(
        self,
        name: str,
        method: str,
        *arguments: Any,  # noqa: ANN401  # the worker method's
        only: Sequence[int] | None = None,
        until_last_end: bool = False,
    ) -> dict[str, Any]:
        """Run ``method`` in all workers, or in ``only`` some; store its report as ``name`` and return it."""
        if self._workers is None:
            raise CommandError("bug", "a phase was started without workers")
        self._write({"t": "progress", "phase": name})
        if not self._cpu[0]:
            self._cpu[0] = _processor_times()
        self._phases[name] = report = self._workers.phase(
            method, *arguments, only=only, until_last_end=until_last_end
        )
        self._cpu[1] = _processor_times()
        return report

    def progress(self, **fields: Any) -> None:  # noqa: ANN401  # JSON values
        """Send a progress message."""
        self._write({"t": "progress", **fields})

    def result(self, **more: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON values
        """Return the phases' reports, /proc/stat's processor lines before and after them, and ``more``."""
        return {"phases": self._phases, "cpu": self._cpu, **more}


class _Remover:
    """The worker that removes a command's files."""

    def __init__(self, path: bytes) -> None:
        self._removal = fsutil.removal(path)

    def remove(self) -> bool:
        """Remove files for :data:`_CLEANUP_INTERVAL` seconds; return whether there may be more."""
        end = time.monotonic() + _CLEANUP_INTERVAL
        return any(time.monotonic() >= end for _ in self._removal)


def _processor_times() -> str:
    lines = (fsutil.read_text("/proc/stat") or "").splitlines(keepends=True)
    return "".join(line for line in lines if line.startswith("cpu"))
