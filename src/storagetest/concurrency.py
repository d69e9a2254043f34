"""Call a function for many items at the same time, each call in a thread of its own.

The threads are daemons: after Ctrl-C the controller does not wait for them, and what they run ends at its own
deadline.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

AT_ONCE = 64
"""Calls that run at the same time, unless the caller sets a limit (chosen)."""

T = TypeVar("T")
U = TypeVar("U")


def run_concurrently(
    function: Callable[[T], U], items: Sequence[T], *, at_once: int = AT_ONCE, name: str = "client"
) -> list[U]:
    """Return ``function(item)`` for each item, in order; see :func:`results_in_order`."""
    return list(results_in_order(function, items, at_once=at_once, name=name))


def results_in_order(
    function: Callable[[T], U], items: Sequence[T], *, at_once: int = AT_ONCE, name: str = "client"
) -> Iterator[U]:
    """Yield ``function(item)`` for each item in order, as soon as it and all before it are available.

    At most ``at_once`` calls run at the same time, in threads named ``name-0``, ``name-1`` … After a call has
    raised an exception, no further call is started; the first exception is raised here when all started calls
    have ended.
    """
    calls = _Calls(function, items)
    count = min(at_once, len(items))
    threads = [
        threading.Thread(target=calls.work, name=f"{name}-{index}", daemon=True) for index in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        for number in range(len(items)):
            if not calls.wait_for(number):
                break
            yield calls.results.pop(number)
        for thread in threads:
            thread.join()
    except BaseException as error:  # Ctrl-C, or the caller has stopped iterating: start no further call
        calls.failures.append(error)
        raise
    if calls.failures:
        raise calls.failures[0]


class _Calls(Generic[T, U]):
    """What the threads share: the numbers of the items that wait for a thread, results and failures."""

    def __init__(self, function: Callable[[T], U], items: Sequence[T]) -> None:
        self.results: dict[int, U] = {}
        self.failures: list[BaseException] = []
        self._function, self._items = function, items
        self._numbers = iter(range(len(items)))
        self._changed = threading.Condition()

    def work(self) -> None:
        """Call the function for one item after the other until none is left, or a call has failed."""
        while True:
            with self._changed:
                number = None if self.failures else next(self._numbers, None)
            if number is None:
                return
            try:
                result = self._function(self._items[number])
            except BaseException as error:  # raised in the caller's thread
                with self._changed:
                    self.failures.append(error)
                    self._changed.notify_all()
            else:
                with self._changed:
                    self.results[number] = result
                    self._changed.notify_all()

    def wait_for(self, number: int) -> bool:
        """Wait until that result is available or a call has failed; return whether it is available."""
        with self._changed:
            self._changed.wait_for(lambda: number in self.results or self.failures)
            return number in self.results
