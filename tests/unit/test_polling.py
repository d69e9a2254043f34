"""wait_until: calls the condition repeatedly; the error names what it waited for."""

from __future__ import annotations

import pytest

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
