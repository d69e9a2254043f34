"""Searches: the strategies, and the search as a process."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from storagetest.search import BayesianSearch, OneAtATime, Parameter, Space, Stepwise
from storagetest.search.gaussian_process import GaussianProcess

SPACE = Space(
    (
        Parameter("block", ("64KiB", "256KiB", "1MiB", "4MiB", "16MiB")),
        Parameter("connections", (1, 2, 4, 8, 16, 32)),
        Parameter("clients", (1, 2, 3, 4)),
    )
)


def looked(strategy, value, *, noise=0.0, seed=1):
    """Let ``strategy`` look until it knows enough; return what it found and where it measured."""
    random, asked = np.random.default_rng(seed), []
    while (point := strategy.next_point()) is not None:
        asked.append(point)
        assert len(asked) <= strategy.budget
        strategy.record(point, value(point) * math.exp(random.normal(0.0, noise)))
    return strategy.result(), asked


def hill(point):
    """One hill: block 1MiB, 8 connections, and more the more clients there are."""
    block, connections, clients = point
    return 1000 * math.exp(-0.4 * abs(block - 2) - 0.3 * abs(connections - 3) + 0.3 * clients)


def ridge(point):
    """The more clients, the fewer connections each: the best lies where one at a time does not look."""
    block, connections, clients = point
    return 1000 * math.exp(-0.4 * abs(block - 2) - 0.5 * abs(connections + 2 * clients - 7) + 0.25 * clients)


BOTH = [lambda: OneAtATime(SPACE, budget=len(SPACE)), lambda: BayesianSearch(SPACE, budget=60)]


@pytest.mark.parametrize("make", BOTH, ids=["one-at-a-time", "surrogate"])
def test_hill_is_climbed_and_the_limit_is_reported(make):
    found, asked = looked(make(), hill)
    assert found.point == (2, 3, 3)
    assert found.values == {"block": "1MiB", "connections": 8, "clients": 4}
    assert found.value == pytest.approx(hill(found.point), rel=0.05)
    assert found.limits == ("clients",)
    assert found.measurements == len(asked) <= 60


def test_a_ridge_is_found_by_the_surrogate_in_noise():
    hits = 0
    best = max(map(ridge, SPACE))
    for seed in range(10):
        found, _ = looked(BayesianSearch(SPACE, budget=60, seed=seed), ridge, noise=0.02, seed=seed)
        hits += ridge(found.point) >= 0.98 * best
    assert hits >= 9


def test_one_at_a_time_measures_each_value_of_each_parameter_as_often_as_asked():
    _, asked = looked(OneAtATime(SPACE, budget=len(SPACE), repeats=2), hill)
    # Where it stands is measured already when the next one's turn comes.
    assert len(asked) == 2 * (5 + 6 + 4) - 2 * 2
    assert {point[1:] for point in asked[:10]} == {SPACE.middle()[1:]}


def test_a_measurement_that_something_slowed_hides_no_good_point():
    calls = itertools.count(1)

    def value(point):
        return hill(point) * (0.4 if next(calls) in (4, 9) else 1.0)

    found, _ = looked(BayesianSearch(SPACE, budget=60), value)
    assert hill(found.point) >= 0.98 * max(map(hill, SPACE))


@pytest.mark.parametrize("make", BOTH, ids=["one-at-a-time", "surrogate"])
def test_the_same_seed_and_answers_ask_the_same(make):
    assert looked(make(), hill, noise=0.03)[1] == looked(make(), hill, noise=0.03)[1]


def test_a_small_budget_is_kept():
    found, asked = looked(BayesianSearch(SPACE, budget=3), hill)
    assert len(asked) == found.measurements == 3


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_throughput_is_refused_with_its_place(value):
    strategy = BayesianSearch(SPACE, budget=5)
    with pytest.raises(ValueError, match="'clients': 3"):
        strategy.record(SPACE.middle(), value)


def test_nothing_measured_is_nothing_found():
    with pytest.raises(ValueError, match="nothing was measured"):
        OneAtATime(SPACE, budget=5).result()


def test_invalid_space_is_an_error():
    with pytest.raises(ValueError, match="twice"):
        Parameter("block", (1, 1))
    with pytest.raises(ValueError, match="at least one"):
        Parameter("block", ())
    with pytest.raises(ValueError, match="distinct names"):
        Space((Parameter("a", (1,)), Parameter("a", (2,))))
    with pytest.raises(ValueError, match="finds nothing"):
        BayesianSearch(SPACE, budget=0)


def test_a_space_of_one_point_is_found_at_once():
    found, asked = looked(BayesianSearch(Space((Parameter("a", (1,)),)), budget=10), lambda _: 5.0)
    assert found.value == pytest.approx(5.0)
    assert found.limits == ()
    assert set(asked) == {(0,)}


def test_every_parameter_that_limits_is_named_in_noise():
    def slope(point):
        block, connections, clients = point
        return 1000 * math.exp(0.2 * block - 0.4 * abs(connections - 2) + 0.3 * clients)

    found, _ = looked(BayesianSearch(SPACE, budget=60), slope, noise=0.02)
    assert found.values == {"block": "16MiB", "connections": 4, "clients": 4}
    assert found.limits == ("block", "clients")


def test_on_a_plateau_nothing_limits_and_what_needs_least_is_taken():
    def plateau(point):
        block, connections, clients = point
        return 1000 * min(1.0, 0.4 * (1 + block), 0.3 * (1 + connections), 0.5 * (1 + clients))

    found, _ = looked(BayesianSearch(SPACE, budget=60), plateau, noise=0.005)
    assert found.point == (2, 3, 1)
    assert found.limits == ()


def test_the_edge_of_a_plateau_is_found_where_a_model_alone_would_round_it_off():
    """It falls by 0.4 % a step beyond knees that are sharp; what lies before them is worth little."""
    space = Space(tuple(Parameter(name, tuple(range(8))) for name in ("block", "connections", "clients")))

    def edge(point):
        before = sum(max(0, 2 - at) for at in point)
        return 1000 * math.exp(-0.8 * before - 0.004 * sum(max(0, at - 2) for at in point))

    for seed in (2, 4):  # with these, without the walk along each parameter, it lost 2.4 and 2.8 %
        found, _ = looked(BayesianSearch(space, budget=76, seed=seed), edge, noise=0.02, seed=seed)
        assert edge(found.point) >= 0.98 * 1000


SHAPE = (5, 6, 4)


def observed(*, count=40, noise=0.03, slowed=(), seed=1):
    """Return a process that has observations of a hill at ``count`` random points."""
    random = np.random.default_rng(seed)
    process = GaussianProcess(SHAPE)
    for number in range(count):
        point = tuple(int(random.integers(values)) for values in SHAPE)
        log = 5 - 0.3 * abs(point[0] - 2) - 0.2 * point[1] + random.normal(0.0, noise)
        process.add(point, math.exp(log) * (0.5 if number in slowed else 1.0))
    return process


def test_one_after_the_other_is_the_same_as_all_at_once():
    process = observed()
    mean, variance = process.mean.copy(), process.variance.copy()
    process._rebuild()
    assert process.mean == pytest.approx(mean, abs=1e-9)
    assert process.variance == pytest.approx(variance, abs=1e-9)


def test_the_guess_is_the_textbooks():
    process = observed(count=12)
    across = np.array([process._row(point) for point in process._points])
    covariance = across[:, process._at] + process.noise**2 * np.eye(12)
    expected = process._centre + across.T @ np.linalg.solve(covariance, process._centred_logs())
    left = process._row((0, 0, 0))[0] - np.sum(across * np.linalg.solve(covariance, across), axis=0)
    assert process.mean == pytest.approx(expected, abs=1e-6)
    assert process.variance == pytest.approx(left, abs=1e-6)


def test_the_slopes_that_it_learns_by_are_those_of_what_it_learns():
    process = observed(slowed=(20,))
    theta = process._theta + np.linspace(-0.2, 0.2, len(process._theta))
    by_steps = approx_fprime(theta, lambda at: process._loss(at)[0], 1e-6)
    assert process._loss(theta)[1] == pytest.approx(by_steps, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_the_noise_is_learned(noise):
    process = observed(count=120, noise=noise)
    process.learn()
    assert noise / 1.5 < process.noise < noise * 1.5


def test_what_was_slowed_is_left_out_of_account():
    slowed, clean = observed(slowed=(20,)), observed()
    slowed.learn()
    clean.learn()
    assert slowed._disturbed == {20}
    assert clean._disturbed == set()
    assert slowed.mean[slowed._at[20]] == pytest.approx(clean.mean[clean._at[20]], abs=0.1)


def test_where_little_was_measured_less_is_known():
    process = GaussianProcess((9,))
    for _ in range(4):
        process.add((1,), 100.0)
    assert process.variance[1] < process.variance[2] < process.variance[8]


def test_stepwise_begins_at_its_start_and_climbs():
    found, asked = looked(Stepwise(SPACE, budget=len(SPACE), start=(1, 4, 3)), hill)
    assert asked[0] == (1, 4, 3)
    assert found.point == (2, 3, 3)
    tried = {(1, 4, 3), (2, 4, 3), (3, 4, 3), (2, 5, 3), (2, 3, 3), (2, 2, 3)}
    assert set(asked) <= tried | {(1, 3, 3), (3, 3, 3), (2, 3, 2)}
    assert max(asked.count(point) for point in asked) == 2


def test_stepwise_starts_at_the_smallest_values_and_stays_on_its_hill():
    def two_hills(point):
        return 1000 if point == (4, 5, 3) else 100 - point[0] - point[1] - point[2]

    found, asked = looked(Stepwise(SPACE, budget=len(SPACE)), two_hills)
    assert found.point == (0, 0, 0)
    assert len(asked) == 8


def test_stepwise_ends_with_its_budget():
    _, asked = looked(Stepwise(SPACE, budget=3), hill)
    assert len(asked) == 3


@pytest.mark.parametrize("strategy", [OneAtATime, BayesianSearch, Stepwise])
def test_every_strategy_begins_at_its_start(strategy):
    first = strategy(SPACE, budget=20, start=(4, 1, 0)).next_point()
    assert first == ((4, 1, 0) if strategy is not OneAtATime else (0, 1, 0))
