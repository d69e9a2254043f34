"""Gates between the points of a curve: flat, rising, falling, a knee."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from storagetest.errors import ConfigError
from storagetest.measure.bottleneck import Bottleneck, Limiter
from storagetest.measure.histogram import Histogram
from storagetest.measure.run import Better, Metric, Run, Sample
from storagetest.measure.scaling import knee, knee_margin
from storagetest.measure.unit import Unit
from storagetest.verdict import (
    ErrorPlan,
    Outcome,
    judge,
    mark_client_limited,
    parse_threshold,
    wants_more,
)

LEVELS = (1, 2, 4, 8, 16)
METRICS = {
    **{f"threads_{at}_iops": Metric(f"threads_{at}_iops", Unit.PER_SECOND, Better.HIGHER) for at in LEVELS},
    **{
        f"threads_{at}_p99": Metric(f"threads_{at}_p99", Unit.SECONDS, Better.LOWER, 0.99, f"threads_{at}")
        for at in LEVELS
    },
    **{
        f"block_size_{at << 10}_bandwidth": Metric(
            f"block_size_{at << 10}_bandwidth", Unit.BYTES_PER_SECOND, Better.HIGHER
        )
        for at in LEVELS
    },
}
PLAN = ErrorPlan(gates=20, max_repeats=12)


def run_of(*repeats: dict[int, float], quantity: str = "iops", **more) -> Run:
    samples = tuple(
        Sample({f"threads_{at}_{quantity}": value for at, value in each.items()}, 1.0, 1000)
        for each in repeats
    )
    return Run("case", "load", "t", "t-v", "local", "c", {}, {}, samples, 0.0, metrics=METRICS, **more)


def noisy(curve: dict[int, float], repeats: int, noise: float = 0.01, *, drift: float = 0.0, seed: int = 1):
    """Repeats of a curve: each point has noise, each repeat as a whole drifts."""
    source = random.Random(seed)
    return [
        {at: value * (1 + drift * number) * (1 + source.gauss(0, noise)) for at, value in curve.items()}
        for number in range(repeats)
    ]


def judged(text: str, *repeats: dict[int, float], plan: ErrorPlan | None = PLAN, **more):
    return judge(run_of(*repeats, **more), parse_threshold(text, METRICS), plan=plan)


RISING = {1: 1000, 2: 1900, 4: 3500, 8: 6000, 16: 6100}
FLAT = dict.fromkeys(LEVELS, 1000)
DIP = {**RISING, 8: 3000}


@pytest.mark.parametrize(
    ("text", "curve", "outcome"),
    [
        ("iops rising over threads", {**RISING, 16: 9000}, Outcome.PASS),
        ("iops rising within 5 % over threads", RISING, Outcome.PASS),
        ("iops rising within 5 % over threads", DIP, Outcome.FAIL),
        ("iops rising within 5 % over threads from 1 to 4", DIP, Outcome.PASS),
        ("iops falling within 5 % over threads", RISING, Outcome.FAIL),
        ("iops falling within 5 % over threads from 4 to 8", DIP, Outcome.PASS),
        ("iops flat within 10 % over threads", FLAT, Outcome.PASS),
        ("iops flat within 10 % over threads", RISING, Outcome.FAIL),
        ("iops flat within 10 % from 8 to 16", RISING, Outcome.PASS),
        ("iops knee at threads >= 8", RISING, Outcome.PASS),
        ("iops knee at threads <= 8", RISING, Outcome.PASS),
        ("iops knee at threads >= 16", RISING, Outcome.FAIL),
        ("iops knee at threads <= 4", RISING, Outcome.FAIL),
    ],
)
def test_a_curve_meets_or_misses_its_gate(text, curve, outcome):
    verdict = judged(text, *noisy(curve, 24, drift=0.05))
    assert verdict.outcome is outcome, verdict.reason
    assert verdict.reason.startswith(f"required {text}, measured: ")


def test_a_slow_decline_counts_as_a_whole():
    """Each step loses 4 %, all of them 15 %."""
    curve = {at: 1000 * 0.96**number for number, at in enumerate(LEVELS)}
    verdict = judged("iops rising within 5 % over threads", *noisy(curve, 24, 0.002))
    assert verdict.outcome is Outcome.FAIL
    assert "850/s at 16 and 1,002/s at 1: 0.848 x" in verdict.reason


def test_a_curve_at_the_bound_is_undecided_and_wants_more_runs():
    repeats = noisy({**FLAT, 8: 900}, 3)
    verdict = judged("iops flat within 10 % over threads", *repeats)
    assert verdict.outcome is Outcome.INVALID
    assert "undecided after 3 runs" in verdict.reason
    assert verdict.interval is not None
    assert verdict.interval.low < 0.9 < verdict.interval.high
    assert wants_more(run_of(*repeats), [verdict], max_repeats=12)


def test_an_alarm_is_confirmed_by_fresh_runs():
    repeats = noisy(DIP, 24, 0.001)
    gate = "iops rising over threads from 4 to 16"
    alarmed = next(
        verdict
        for count in range(3, 13)
        if (verdict := judged(gate, *repeats[:count])).alarmed_at is not None
    )
    assert alarmed.outcome is Outcome.INVALID
    assert wants_more(run_of(*repeats[: alarmed.alarmed_at]), [alarmed], max_repeats=alarmed.alarmed_at)
    failed = judged(gate, *repeats)
    assert failed.outcome is Outcome.FAIL
    assert "confirmed by" in failed.reason
    healed = judged(gate, *repeats[: alarmed.alarmed_at], *noisy({**RISING, 16: 9000}, 6, 0.001))
    assert healed.outcome is Outcome.INVALID
    assert "the target changed meanwhile" in healed.reason
    assert not wants_more(run_of(*repeats), [healed], max_repeats=99)


def test_a_flat_curve_seldom_alarms():
    """Noise of 3 % in each of 20 claims."""
    outcomes = [
        judged("iops flat within 10 % over threads", *noisy(FLAT, 24, 0.03, seed=seed)).outcome
        for seed in range(200)
    ]
    assert Outcome.FAIL not in outcomes
    assert outcomes.count(Outcome.PASS) > 150


def test_claims_share_the_error_of_the_gate():
    """The gate is just met, by six claims at their bound."""
    curve = {1: 1000, 2: 1000, 4: 1000, 8: 900, 16: 900}
    plan = ErrorPlan(gates=1, max_repeats=5, false_alarm=0.05)
    failed = sum(
        judged("iops flat within 10 %", *noisy(curve, 10, 0.02, seed=seed), plan=plan).outcome is Outcome.FAIL
        for seed in range(400)
    )
    assert failed <= 0.05 * 400


@pytest.mark.parametrize(
    ("repeats", "more", "message"),
    [
        (noisy(FLAT, 2), {}, "at least 3 runs"),
        (noisy(FLAT, 3), {"invalid": ("too busy",)}, "no verdict: too busy"),
        (noisy({8: 1000}, 3), {}, "of its range were measured: 8"),
        ([*noisy(FLAT, 3), {**FLAT, 4: 0.0}], {}, "has no ratio"),
        ([*noisy(FLAT, 3), {1: 1000, 2: 1000}], {}, "has no ratio"),
    ],
)
def test_a_curve_without_a_verdict_has_a_reason(repeats, more, message):
    verdict = judged("iops flat within 10 % over threads", *repeats, **more)
    assert verdict.outcome is Outcome.INVALID
    assert message in verdict.reason


def test_a_percentile_of_too_few_operations_has_no_verdict():
    run = run_of(*noisy(FLAT, 3), quantity="p99")
    few = Histogram(((1000, 9),))
    samples = tuple(
        replace(sample, operations={f"threads_{at}": few for at in LEVELS}) for sample in run.samples
    )
    verdict = judge(replace(run, samples=samples), parse_threshold("p99 flat within 10 %", METRICS))
    assert verdict.outcome is Outcome.INVALID
    assert "not enough samples: 27 of 10,000" in verdict.reason


def test_a_curve_that_was_not_measured_is_an_error():
    with pytest.raises(ConfigError, match="no bandwidth over block_size was measured"):
        judged("bandwidth flat within 10 %", *noisy(FLAT, 3))


def test_a_missed_gate_is_invalid_if_the_client_was_the_limit():
    repeats = noisy(DIP, 24)
    verdict = judged("iops rising over threads", *repeats)
    limited = run_of(*repeats, limited_by=Bottleneck(Limiter.CLIENT, "busy"))
    assert verdict.outcome is Outcome.FAIL
    assert mark_client_limited(verdict, limited).outcome is Outcome.INVALID


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("iops monotone over threads", "Write iops rising, or falling"),
        ("iops flat over threads", "write flat within 10 %"),
        ("iops flat within 100 % over threads", "could never fail"),
        ("iops rising over users", "no curve over 'users'; iops has one over: threads"),
        (
            "speed rising over threads",
            "no curve of 'speed'; this workload has curves of: iops, p99, bandwidth",
        ),
        ("iops rising over threads from 1 to 3", "threads has no level '3'; it has 1, 2, 4, 8, 16"),
        ("bandwidth flat within 9 % from 1KiB to 3KiB", "it has 1KiB, 2KiB, 4KiB, 8KiB, 16KiB"),
        ("iops rising over threads from 8 to 2", "a range ascends: from 2 to 8"),
        ("iops rising upwards", "a gate between points reads like"),
        ("iops knee at threads > 8", "a gate between points reads like"),
        ("iops knee at threads >= 1", "could never fail"),
        ("iops knee at threads <= 16", "could never fail"),
        ("p99 knee at threads >= 4", "of which more is better"),
    ],
)
def test_mistakes_are_refused_with_their_place(text, message):
    with pytest.raises(ConfigError, match=r"^t\.yaml:3:5") as caught:
        parse_threshold(text, METRICS, place="t.yaml:3:5")
    assert message in str(caught.value)


def test_levels_of_sizes_are_sizes():
    gate = parse_threshold("bandwidth flat within 10 % over block_size from 2KiB to 8 KiB", METRICS)
    assert gate.points is not None
    assert (gate.points.low, gate.points.high) == (2048, 8192)
    assert gate.metric.name == "bandwidth over block_size 2KiB..8KiB"


@pytest.mark.parametrize("seed", range(50))
def test_the_margin_of_a_knee_agrees_with_the_knee(seed):
    source = random.Random(seed)
    heights = [source.uniform(1, 100) for _ in range(6)]
    heights = sorted(heights) if seed % 2 else heights
    points = [(float(2**number), height) for number, height in enumerate(heights)]
    found = knee(points)
    at = found if found is not None else points[-1][0] * 2
    for x, _ in points:
        assert (knee_margin(points, x, at_least=True) > 0) is (at >= x)
        assert (knee_margin(points, x, at_least=False) >= 0) is (at <= x)
