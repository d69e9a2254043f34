"""Polling and thread pools."""

import threading
from types import SimpleNamespace

import pytest

from storagetest.concurrency import results_in_order, run_concurrently
from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until


def test_it_returns_what_became_true() -> None:
    answers = iter([None, "", 0, "there"])
    assert wait_until(lambda: next(answers), 30, "an answer", interval=0.001) == "there"


def test_it_asks_at_least_once() -> None:
    assert wait_until(lambda: 7, 0, "seven") == 7


def test_a_timeout_names_the_condition() -> None:
    asked: list[int] = []
    with pytest.raises(DeadlineExceeded, match=r"^gave up after 0\.05 s: a device for iqn\.x$"):
        wait_until(lambda: asked.append(1), 0.05, "a device for iqn.x", interval=0.01)
    assert len(asked) >= 2


def test_an_error_goes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 / 0, 5, "sense")


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


def test_intervals_grow(monkeypatch):
    slept = []
    monkeypatch.setattr(
        "storagetest.polling.time", SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)
    )
    with pytest.raises(DeadlineExceeded):
        wait_until(lambda: False, 5, "an answer", interval=0.5, growth=2)
    assert slept == [0.5, 1, 2, 1.5]
