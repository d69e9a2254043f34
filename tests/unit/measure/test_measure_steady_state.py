"""Whether a target has settled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storagetest.measure.run import Sample
from storagetest.measure.series import LOAD, Series
from storagetest.measure.steady_state import by_rounds, fit, within_a_round
from storagetest.measure.unit import Unit


def rounds(*iops: float, p99: tuple[float, ...] = ()) -> list[dict[str, float]]:
    tails = p99 or (0.001,) * len(iops)
    return [{"iops": value, "p99": tail} for value, tail in zip(iops, tails, strict=True)]


@pytest.mark.parametrize(
    ("values", "steady"),
    [
        (rounds(100, 100, 100, 100), False),  # too few
        (rounds(100, 100, 100, 100, 100), True),
        (rounds(500, 300, 100, 100, 100, 100, 100), True),  # what was before does not matter
        (rounds(100, 100, 100, 100, 100, 50), False),
        (rounds(90, 110, 90, 110, 90), False),  # 20.4 % of 98
        (rounds(91, 109, 91, 109, 100), True),
        (rounds(95, 97.5, 100, 102.5, 105), True),  # moves by 10 % exactly
        (rounds(94, 97, 100, 103, 106), False),  # ranges over 12 %, but moves by as much
        (rounds(100, 100, 100, 100, 100, p99=(1, 1, 1, 1, 2)), False),
    ],
)
def test_snias_rule_over_the_last_five_rounds_of_throughput_and_p99(values, steady):
    found = by_rounds(values, ("iops", "p99"))
    assert found.steady is steady
    if len(values) >= 5:
        assert "iops ranges over" in found.summary
        assert "p99 ranges over" in found.summary


def test_metric_without_values_is_not_steady():
    found = by_rounds([{"x": 1.0}] * 5, ("iops",))
    assert not found.steady
    assert "no metric" in found.summary


@given(st.lists(st.floats(1, 1e6), min_size=2, max_size=20), st.floats(0.01, 100))
def test_spread_and_move_are_shares(values, factor):
    one, other = fit(values), fit([value * factor for value in values])
    assert other.range == pytest.approx(one.range, abs=1e-6)
    assert other.move == pytest.approx(one.move, abs=1e-6)
    assert one.move == pytest.approx(fit(values[::-1]).move, abs=1e-6)
    assert one.range >= 0 <= one.move


def test_a_straight_line_moves_by_its_ends():
    assert fit([90.0, 100.0, 110.0]).move == pytest.approx(0.2)
    assert fit([0.0, 0.0]).move == 0.0
    with pytest.raises(ValueError, match="two"):
        fit([1.0])


def course(iops: list[float], latency: list[float]) -> Sample:
    def series(name: str, unit: Unit, values: list[float]) -> Series:
        return Series(LOAD, name, unit, "c", tuple(float(at) for at in range(len(values))), tuple(values))

    half = [value / 2 for value in iops]
    rates = [series(f"{way} IOPS", Unit.PER_SECOND, half) for way in ("read", "write")]
    cpu = Series("cpu", "x", Unit.SECONDS, "c", (0.0, 1.0), (1.0, 9.0))  # not the load's
    return Sample({}, 1.0, 1, series=(*rates, series("read latency", Unit.SECONDS, latency), cpu))


@pytest.mark.parametrize(
    ("iops", "latency", "steady"),
    [
        ([100.0] * 8, [0.1] * 8, True),
        ([100.0, 140.0] * 4, [0.1] * 8, False),  # the line through a saw moves by 11 %
        ([100.0, 120.0] * 4, [0.1] * 8, True),
        ([100.0, 104, 108, 112, 116, 120], [0.1] * 6, False),
        ([100.0] * 6, [0.10, 0.12, 0.14, 0.16, 0.18, 0.20], False),
        ([100.0] * 4, [0.1] * 4, False),  # too few points
    ],
)
def test_a_slope_within_a_round(iops, latency, steady):
    assert within_a_round(course(iops, latency)).steady is steady
