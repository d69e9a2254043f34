"""Two variants measured in turns, by pytest's own command line."""

from __future__ import annotations

import json

import pytest

SUITE = "def test_comparison(comparison): comparison()\n"


def more(gate: str, metric: str = "iops", workload: str = "dial") -> str:
    return f"comparisons: {{pair: {{workload: '{workload}', metric: {metric}, gate: {gate}}}}}\n"


def test_two_variants_are_measured_in_turns_and_held_to_their_gate(dial, pytester: pytest.Pytester):
    result = dial(suite=SUITE, more=more("disk >= 1.5 x other"), disk=2000)
    result.assert_outcomes(passed=1)
    assert (pytester.path / "order").read_text().split() == [
        "disk",
        "other",
        "other",
        "disk",
        "disk",
        "other",
    ]
    first, second = (json.loads(line) for line in (pytester.path / "results.jsonl").read_text().splitlines())
    assert [one["run"]["variant"] for one in (first, second)] == ["disk", "other"]
    assert [len(one["run"]["samples"]) for one in (first, second)] == [3, 3]
    assert first["verdicts"][0]["threshold"]["against"] == "other"
    assert second["verdicts"] == []
    assert not list((pytester.path / "disk").iterdir())


def test_one_that_is_missed_is_confirmed_and_says_by_how_much(dial):
    result = dial(suite=SUITE, more=more("disk >= 1.5 x other"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        "*disk on here: iops: asked disk >= 1.5 x other, measured *: 1 x (* interval * pairs):"
        " worse than asked, confirmed by * fresh pairs*"
    )


def test_one_that_cannot_be_told_is_invalid(dial):
    result = dial(suite=SUITE, more=more("disk >= other"), noise=0.02)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*1 invalid*"])


def test_lower_is_better_where_it_is(dial):
    dial(suite=SUITE, more=more("disk <= 0.6 x other", "p99"), disk=2000).assert_outcomes(passed=1)
    dial(suite=SUITE, more=more("disk <= 0.6 x other", "p99")).assert_outcomes(failed=1)


def test_without_both_sides_selected_there_is_nothing_to_compare(dial):
    gate = more("disk >= 0.5 x other")
    dial("--st-target", "disk", suite=SUITE, more=gate).assert_outcomes(skipped=1)
    dial(suite=SUITE).assert_outcomes(skipped=1)


def test_the_left_sides_own_cases_share_its_attachment(dial):
    suite = SUITE + "def test_dial(measure): measure('dial')\n"
    dial(suite=suite, more=more("disk >= 0.5 x other")).assert_outcomes(passed=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (more("disk >= disc"), "unknown variant 'disc'; did you mean 'disk'?"),
        (more("disk <= other"), "did you mean disk >= 1 x other?"),
        (more("disk >= other", "iop"), "dial has no metric 'iop'; did you mean 'iops'?"),
        (more("disk >= other", workload="dail"), "unknown workload 'dail'; did you mean 'dial'?"),
        (more("disk >= other", workload="dial[x=1]"), "dial has no parameter 'x'*"),
        ("comparisons: {pair: {workload: dial, metric: iops}}", "comparisons.pair.gate: *"),
        ("comparisons: {pair: {workload: dial, metric: iops, gate: a, b: c}}", "comparisons.pair.b: *"),
        ("comparisons: [dial]", "comparisons: expected a mapping (key: value)*"),
    ],
)
def test_a_mistake_is_told_with_its_place(dial, text, message):
    result = dial(suite=SUITE, more=text)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*targets.yaml:*{message.replace('[', '[[]')}*"])
