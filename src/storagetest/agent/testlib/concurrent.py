"""Run threads at the same time. System calls release Python's lock, so the device gets them concurrently."""

from __future__ import annotations

import threading
from collections.abc import Callable


def run_threads(work: Callable[[int], object], count: int, *, over: threading.Event | None = None) -> None:
    """Call ``work(0)`` to ``work(count - 1)`` at the same time in threads; return when all have ended.

    Raises the first exception of a thread; then ``over`` is set, for threads that run until it is set. A
    thread whose system call hangs is ended with the process, at the case's deadline.
    """
    start = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as error:  # raised below, in the thread of the case
            errors.append(error)
            if over is not None:
                over.set()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
