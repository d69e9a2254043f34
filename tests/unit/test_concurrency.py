"""run_concurrently: results in order, the first failure, and no call after it."""

from __future__ import annotations

import threading

import pytest

from storagetest.concurrency import results_in_order, run_concurrently


def test_results_are_in_the_order_of_the_items() -> None:
    assert run_concurrently(lambda number: number * 2, range(100), at_once=7) == [n * 2 for n in range(100)]
    assert run_concurrently(str, []) == []


def test_the_first_failure_is_raised_and_no_call_is_started_after_it() -> None:
    called: list[int] = []

    def call(number: int) -> None:
        called.append(number)
        raise LookupError(number)

    with pytest.raises(LookupError, match="0"):
        run_concurrently(call, range(10), at_once=1)
    assert called == [0]


def test_a_result_is_available_while_later_calls_still_run() -> None:
    first_read = threading.Event()
    results = results_in_order(lambda number: number if number == 0 else first_read.wait(60), [0, 1])
    assert next(results) == 0
    first_read.set()
    assert list(results) == [True]
