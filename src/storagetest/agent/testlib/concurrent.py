"""Many threads at once. System calls let go of Python's lock, so that the device does see them at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["run_threads"]


def run_threads(work: Callable[[int], object], count: int, *, over: threading.Event | None = None) -> None:
    """Call ``work(0)`` to ``work(count - 1)``, each in a thread, begun at once; return when all have ended.

    What the first of them raised is raised here; ``over`` is set then, for those that go on until told.
    Nothing ends a thread whose system call hangs: the deadline of the case does, with its process.
    """
    begin = threading.Barrier(count)
    failed: list[BaseException] = []

    def one(which: int) -> None:
        begin.wait()
        try:
            work(which)
        except BaseException as error:  # raised again below, in the thread of the case
            failed.append(error)
            if over is not None:
                over.set()

    threads = [threading.Thread(target=one, args=(which,), daemon=True) for which in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
