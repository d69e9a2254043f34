"""The error probability of a suite is divided among its gates; the shares never exceed one."""

from __future__ import annotations

import random

import pytest

from storagetest.plugin.measure.error_budget import ErrorBudget, max_gates


def test_foreseen_gates_get_equal_shares_and_one_share_remains():
    budget = ErrorBudget({"a": 2, "b": 1})
    assert [budget.take("a", 2), budget.take("b", 1)] == [4, 4]


def test_unforeseen_gates_get_halves_of_the_last_share():
    budget = ErrorBudget({"a": 1})
    assert [budget.take("a", 1), budget.take("a", 1), budget.take("x", 1)] == [2, 4, 8]


@pytest.mark.parametrize("seed", range(20))
def test_the_shares_never_add_up_to_more_than_one(seed):
    draw = random.Random(seed)
    allotted = {str(i): draw.randrange(4) for i in range(30)}
    budget = ErrorBudget(allotted)
    spent = 0.0
    for _ in range(100):
        gates = draw.randrange(5)
        spent += gates / budget.take(str(draw.randrange(40)), gates) if gates else 0
    assert spent <= 1


def test_each_worker_has_a_last_share_of_its_own():
    assert ErrorBudget({"a": 3}, workers=4).take("a", 3) == 7


@pytest.mark.parametrize(
    ("constants", "expected"),
    [(("stream", "read", 4096), 2), (("stream", "drip"), 7), (("read", None), 5), ((), 5)],
)
def test_max_gates_counts_the_workloads_named_by_a_function(constants, expected):
    most = {"stream": 2, "drip": 5, "idle": 0}
    assert max_gates(constants, most, most.__getitem__) == expected
