"""What a limited client means for a gate."""

from __future__ import annotations

import pytest

from storagetest.measure.bottleneck import Bottleneck, Limiter
from storagetest.measure.run import METRICS, Run, Sample
from storagetest.verdict import Outcome, judge, mark_client_limited, parse_threshold


def run(who: Limiter | None, metric: str, *values: float) -> Run:
    samples = tuple(Sample({metric: value}, 1.0, 10**6) for value in values)
    limit = Bottleneck(who, "its busiest core 99% busy") if who else None
    return Run("c", "w", "t", "v", "p", "here", {}, {}, samples, 0.0, limited_by=limit)


@pytest.mark.parametrize(
    ("who", "gate", "outcome"),
    [
        (Limiter.CLIENT, "iops >= 500", Outcome.PASS),
        (Limiter.CLIENT, "iops >= 2000", Outcome.INVALID),
        (Limiter.CLIENT, "iops >= 1000", Outcome.INVALID),
        (Limiter.TARGET, "iops >= 2000", Outcome.FAIL),
        (Limiter.NETWORK, "iops >= 2000", Outcome.FAIL),
        (Limiter.UNKNOWN, "iops >= 2000", Outcome.FAIL),
        (None, "iops >= 2000", Outcome.FAIL),
    ],
)
def test_only_a_miss_is_harmed_and_only_by_the_client(who, gate, outcome):
    measured = run(who, "iops", 1000.0, 1001.0, 999.0)
    verdict = judge(measured, parse_threshold(gate, METRICS))
    found = mark_client_limited(verdict, measured)
    assert found.outcome is outcome
    named = "the client was the bottleneck (its busiest core 99% busy)" in found.reason
    assert named == (who is Limiter.CLIENT and verdict.outcome is not Outcome.INVALID)


def test_a_gate_on_the_client_itself_stands():
    measured = run(Limiter.CLIENT, "client_cpu", 0.9, 0.91, 0.92)
    verdict = judge(measured, parse_threshold("client_cpu <= 50%", METRICS))
    assert verdict.outcome is Outcome.FAIL
    assert mark_client_limited(verdict, measured) is verdict


def test_of_a_pair_one_limited_client_is_enough():
    left, right = run(None, "iops", 1.0, 1.0, 1.0), run(Limiter.CLIENT, "iops", 1.0, 1.0, 1.0)
    verdict = judge(left, parse_threshold("iops >= 2", METRICS))
    assert mark_client_limited(verdict, left, right).outcome is Outcome.INVALID
