"""Comparisons: two variants are measured in turns, and the ratio of their metrics has a gate."""

from __future__ import annotations

from functools import partial

import pytest
from output_files import read_json_lines
from pytest_results import assert_usage_error

SUITE = "def test_comparison(comparison): comparison()\n"


@pytest.fixture
def run_comparison(run_with_fake_metrics):
    return partial(run_with_fake_metrics, suite=SUITE)


def more(gate: str, metric: str = "iops", workload: str = "fake-metrics") -> str:
    return f"comparisons: {{pair: {{workload: '{workload}', metric: {metric}, gate: {gate}}}}}\n"


def test_two_variants_are_measured_in_turns_and_judged(run_comparison, pytester):
    result = run_comparison(more=more("disk >= 1.5 x other"), disk=2000)
    result.assert_outcomes(passed=1)
    assert (pytester.path / "order").read_text() == "disk other other disk disk other "
    first, second = read_json_lines(pytester.path / "results.jsonl")
    runs = [(record["run"]["variant"], len(record["run"]["samples"])) for record in (first, second)]
    assert runs == [("disk", 3), ("other", 3)]
    assert first["verdicts"][0]["threshold"]["against"] == "other"
    assert second["verdicts"] == []
    assert not list((pytester.path / "disk").iterdir())


def test_a_missed_gate_is_confirmed_by_fresh_pairs(run_comparison):
    result = run_comparison(more=more("disk >= 1.5 x other"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        "*disk on here: iops: required disk >= 1.5 x other, measured *: 1 x (* interval * pairs):"
        " worse than required, confirmed by * fresh pairs*"
    )


def test_an_undecided_comparison_is_invalid(run_comparison):
    result = run_comparison(more=more("disk >= other"), noise=0.02)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*1 invalid*"])


def test_a_metric_of_which_less_is_better(run_comparison):
    run_comparison(more=more("disk <= 0.6 x other", "p99"), disk=2000).assert_outcomes(passed=1)
    run_comparison(more=more("disk <= 0.6 x other", "p99")).assert_outcomes(failed=1)


def test_a_comparison_without_both_variants_is_skipped(run_comparison):
    gate = more("disk >= 0.5 x other")
    run_comparison("--st-target", "disk", more=gate).assert_outcomes(skipped=1)
    run_comparison().assert_outcomes(skipped=1)


def test_other_cases_of_the_left_variant_run_too(run_comparison):
    suite = SUITE + "def test_metrics(measure): measure('fake-metrics')\n"
    run_comparison(suite=suite, more=more("disk >= 0.5 x other")).assert_outcomes(passed=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (more("disk >= disc"), "unknown variant 'disc'; did you mean 'disk'?"),
        (more("disk <= other"), "did you mean disk >= 1 x other?"),
        (more("disk >= other", "iop"), "fake-metrics has no metric 'iop'; did you mean 'iops'?"),
        (
            more("disk >= other", workload="fake-metric"),
            "unknown workload 'fake-metric'; did you mean 'fake-metrics'?",
        ),
        (more("disk >= other", workload="fake-metrics[x=1]"), "fake-metrics has no parameter 'x'*"),
        ("comparisons: {pair: {workload: fake-metrics, metric: iops}}", "comparisons.pair.gate: *"),
        (
            "comparisons: {pair: {workload: fake-metrics, metric: iops, gate: a, b: c}}",
            "comparisons.pair.b: *",
        ),
        ("comparisons: [fake-metrics]", "comparisons: expected a mapping (key: value)*"),
    ],
)
def test_an_error_is_reported_with_its_line(run_comparison, text, message):
    result = run_comparison(more=text)
    assert_usage_error(result)
    result.stderr.fnmatch_lines([f"*targets.yaml:*{message.replace('[', '[[]')}*"])
