"""What is around a measured program: its working directory, and the counters before and after it.

Theory. Starting a process is expensive on a slow client: each small program that makes a directory or reads a
counter takes some hundredths of a second. Here the fork server does that itself, so only the measured program
is started.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from storagetest.agent import counter_files, fsutil


class ProgramSurroundings:
    """An empty directory in memory, and the counters now; :meth:`readings` when the program has ended.

    ``counters`` are globs of files, ``files`` names of files that the program may leave in its directory.
    """

    def __init__(self, counters: list[str], files: list[str]) -> None:
        self._counters, self._files = counters, files
        self._directory = fsutil.make_memory_directory(f"storagetest-program-{os.getpid()}")
        self._before = counter_files.texts(counters)
        self._began = time.monotonic()

    @contextmanager
    def as_working_directory(self) -> Iterator[None]:
        """Make the directory this process's own for the with-block, in which the program is started."""
        with fsutil.open_fd(".", os.O_RDONLY | os.O_DIRECTORY) as own:
            os.chdir(self._directory)
            try:
                yield
            finally:
                os.fchdir(own)

    def readings(self) -> dict[str, Any]:
        """Return ``seconds`` since the start; ``before``, ``after`` and ``files`` (path or name → text)."""
        seconds, after = time.monotonic() - self._began, counter_files.texts(self._counters)
        left = {name: counter_files.content(f"{self._directory}/{name}") for name in self._files}
        files = {name: data.decode("utf-8", "replace") for name, data in left.items() if data is not None}
        return {"seconds": seconds, "before": self._before, "after": after, "files": files}

    def remove(self) -> None:
        """Remove the directory."""
        fsutil.remove(self._directory.encode())
