"""Absolute gates: what passes, what fails, what carries no verdict, and how often that is wrong."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from storagetest.errors import ConfigError
from storagetest.measure.histogram import Histogram
from storagetest.measure.run import METRICS, Better, Metric, Run, Sample
from storagetest.measure.unit import Unit
from storagetest.verdict import Outcome, Verdict, judge, parse_threshold, wants_more


def run_of(metric: str, values: list[float], *, ios: int = 100_000, invalid: tuple[str, ...] = ()) -> Run:
    samples = tuple(Sample({metric: value}, 1.0, ios) for value in values)
    return Run("case", "load", "t", "t-v", "local", "c", {}, {}, samples, 0.0, invalid=invalid)


def verdict_of(text: str, values: list[float], **more: object) -> Verdict:
    threshold = parse_threshold(text, METRICS, place="t.yaml:1:1")
    return judge(run_of(threshold.metric.name, values, **more), threshold)


IOPS = [18400.0, 18420.0, 18410.0, 18390.0, 18440.0]
FOUND = "measured 18,412/s (99 % interval 18,372..18,452/s, 5 runs)"


@pytest.mark.parametrize(
    ("text", "values", "outcome", "reason"),
    [
        ("iops >= 20000", IOPS, Outcome.FAIL, "iops: required >= 20,000/s, {}: below the threshold"),
        ("iops >= 18000", IOPS, Outcome.PASS, "iops: required >= 18,000/s, {}: meets the threshold"),
        (
            "iops >= 18400",
            IOPS,
            Outcome.INVALID,
            (
                "iops: required >= 18,400/s, {}: undecided: the threshold lies inside the interval,"
                " ±0.215 % after 5 runs; more or longer runs would narrow it"
            ),
        ),
        (
            "p99 <= 5ms",
            [0.0041, 0.0042, 0.00415],
            Outcome.PASS,
            (
                "p99: required <= 5 ms, measured 4.15 ms on average (99 % interval 3.83..4.47 ms, 3 runs):"
                " meets the threshold"
            ),
        ),
        (
            "latency_mean <= 1ms",
            [0.00101, 0.00102, 0.001015],
            Outcome.INVALID,
            (
                "latency_mean: required <= 1 ms, measured 1.02 ms (99 % interval 986 us..1.04 ms, 3 runs):"
                " undecided: the threshold lies inside the interval, ±2.82 % after 3 runs;"
                " more or longer runs would narrow it"
            ),
        ),
        (
            "bandwidth >= 50MiB/s",
            [40 * 2**20, 40 * 2**20, 40 * 2**20],
            Outcome.FAIL,
            (
                "bandwidth: required >= 50 MiB/s, measured 40.0 MiB/s"
                " (99 % interval 40.0..40.0 MiB/s, 3 runs): below the threshold"
            ),
        ),
        (
            "client_cpu <= 80%",
            [0.9, 0.91, 0.9],
            Outcome.FAIL,
            (
                "client_cpu: required <= 80%, measured 90.3% (99 % interval 87.0..93.6%, 3 runs):"
                " above the threshold"
            ),
        ),
        (
            "iops >= 100",
            [500.0],
            Outcome.INVALID,
            "iops: required >= 100/s, measured 500/s (1 run): no verdict: it takes at least 3 runs",
        ),
        (
            "iops >= 100",
            [500.0, 500.0],
            Outcome.INVALID,
            (
                "iops: required >= 100/s, measured 500/s (99 % interval 500..500/s, 2 runs):"
                " no verdict: it takes at least 3 runs"
            ),
        ),
    ],
)
def test_gate_has_an_outcome_and_a_reason(text, values, outcome, reason):
    verdict = verdict_of(text, values)
    assert (verdict.outcome, verdict.reason) == (outcome, reason.format(FOUND))


def test_the_bound_itself_is_good_enough():
    assert verdict_of("iops >= 500", [500.0] * 3).outcome is Outcome.PASS
    assert verdict_of("latency_mean <= 5ms", [0.005] * 3).outcome is Outcome.PASS


def test_values_equal_in_three_digits_are_printed_with_more():
    verdict = verdict_of("bandwidth >= 50MiB/s", [49.999 * 2**20] * 3)
    assert verdict.outcome is Outcome.FAIL
    assert "required >= 50 MiB/s, measured 49.999 MiB/s" in verdict.reason


@pytest.mark.parametrize(
    ("text", "ios", "enough", "message"),
    [
        ("p99.9 <= 5ms", 1366, 33_334, "not enough samples: 4,098 of 100,000"),
        ("p99 <= 5ms", 3333, 3334, "not enough samples: 9,999 of 10,000"),
        ("p50 <= 5ms", 66, 67, "not enough samples: 198 of 200"),
    ],
)
def test_a_percentile_of_too_few_ios_carries_no_verdict(text, ios, enough, message):
    verdict = verdict_of(text, [0.001] * 3, ios=ios)
    assert verdict.outcome is Outcome.INVALID
    assert message in verdict.reason
    assert verdict_of(text, [0.001] * 3, ios=enough).outcome is Outcome.PASS


def test_count_of_latencies_is_that_of_the_histogram():
    samples = tuple(Sample({"p50": 0.001}, 1, 10**6, Histogram.of([0.001] * 10)) for _ in range(3))
    run = replace(run_of("p50", []), samples=samples)
    assert "30 of 200" in judge(run, parse_threshold("p50 <= 5ms", METRICS)).reason


def test_a_bound_within_the_bins_error_is_undecided_even_where_all_repeats_agree():
    """Every p99 came from one bucket around 5.01 ms: the true ones may lie on either side of 5 ms."""
    samples = tuple(
        Sample({"p99": h.percentile(0.99)}, 1, h.count, h) for h in [Histogram.of([0.00501] * 5000)] * 3
    )
    run = replace(run_of("p99", []), samples=samples)
    assert judge(run, parse_threshold("p99 <= 5ms", METRICS)).outcome is Outcome.INVALID
    assert judge(run, parse_threshold("p99 <= 5.1ms", METRICS)).outcome is Outcome.PASS
    assert judge(run, parse_threshold("p99 <= 4.9ms", METRICS)).outcome is Outcome.FAIL


def test_invalid_run_has_no_verdict_but_its_reason():
    verdict = verdict_of("iops >= 100", [500.0] * 3, invalid=("the client was the bottleneck",))
    assert verdict.outcome is Outcome.INVALID
    assert verdict.reason.endswith("no verdict: the client was the bottleneck")


def test_gate_on_a_missing_metric_is_a_configuration_error():
    run = run_of("iops", [1.0] * 3)
    with pytest.raises(ConfigError, match=r"^t.yaml:1:1: .*p99 was not measured; load measures iops"):
        judge(run, parse_threshold("p99 <= 5ms", METRICS, place="t.yaml:1:1"))


def test_a_run_without_samples_carries_no_verdict():
    assert "measured nothing" in verdict_of("iops >= 1", []).reason


def test_an_undecided_gate_wants_more_until_the_budget_is_spent():
    threshold = parse_threshold("iops >= 18400", METRICS)
    run = run_of("iops", IOPS)
    undecided = judge(run, threshold)
    passed = judge(run, parse_threshold("iops >= 18000", METRICS))
    assert wants_more(run, [passed, undecided], max_repeats=6)
    assert not wants_more(run, [passed, undecided], max_repeats=5)
    assert not wants_more(run, [passed], max_repeats=6)
    assert not wants_more(run, [], max_repeats=6)
    assert not wants_more(replace(run, invalid=("so",)), [undecided], max_repeats=6)


def test_too_few_runs_want_more_unless_a_verdict_is_out_of_reach():
    run = run_of("iops", [500.0])
    verdicts = [judge(run, parse_threshold("iops >= 100", METRICS))]
    assert wants_more(run, verdicts, max_repeats=3)
    assert not wants_more(run, verdicts, max_repeats=2)


def test_a_percentile_wants_more_only_where_the_budget_can_bring_enough_ios():
    run = run_of("p99.9", [0.001] * 3, ios=11_000)
    verdicts = [judge(run, parse_threshold("p99.9 <= 5ms", METRICS))]
    assert wants_more(run, verdicts, max_repeats=10)
    assert not wants_more(run, verdicts, max_repeats=9)


def simulate(draw: random.Random, truth: float, spread: float, *, repeats: int, budget: int) -> Outcome:
    """One case, repeated while it is undecided, as the runner does it."""
    threshold = parse_threshold("iops >= 1000", METRICS)
    values = [draw.gauss(truth, truth * spread) for _ in range(repeats)]
    while True:
        run = run_of("iops", values)
        verdict = judge(run, threshold)
        if not wants_more(run, [verdict], max_repeats=budget):
            return verdict.outcome
        values.append(draw.gauss(truth, truth * spread))


def test_looking_again_errs_rarely_and_decides_mostly():
    """Repeats that spread by 3 %, three to ten of them, 1,000 cases each (seeded): measured, not assumed."""
    draw = random.Random(7)
    outcomes = {
        truth: [simulate(draw, truth, 0.03, repeats=3, budget=10) for _ in range(1000)]
        for truth in (900, 950, 1000, 1050, 1100)
    }
    shares = {
        truth: {outcome: found.count(outcome) / 1000 for outcome in Outcome}
        for truth, found in outcomes.items()
    }
    assert shares[1100][Outcome.FAIL] <= 0.001
    assert shares[900][Outcome.PASS] <= 0.001
    assert shares[1050][Outcome.FAIL] <= 0.01
    assert shares[950][Outcome.PASS] <= 0.01
    assert shares[1000][Outcome.PASS] + shares[1000][Outcome.FAIL] <= 0.05  # eight looks at 1 % each
    assert shares[1100][Outcome.PASS] >= 0.95
    assert shares[900][Outcome.FAIL] >= 0.95


def test_a_percentile_of_one_operation_needs_enough_of_that_operation():
    metric = Metric("stat_p99", Unit.SECONDS, Better.LOWER, 0.99, operation="stat")
    threshold = parse_threshold("stat_p99 <= 5ms", {"stat_p99": metric})
    few, many = Histogram.of([0.001] * 100), Histogram.of([0.001] * 4000)

    def outcome(histogram: Histogram) -> Verdict:
        sample = Sample({"stat_p99": 0.001}, 1.0, 10**6, operations={"stat": histogram})
        return judge(Run("c", "w", "t", "v", "p", "h", {}, {}, (sample,) * 3, 0.0), threshold)

    assert "not enough samples: 300 of 10,000" in outcome(few).reason
    assert outcome(many).outcome is Outcome.PASS
