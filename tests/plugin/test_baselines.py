"""Gates against a baseline, by pytest's own command line: made, kept, met, missed, and not there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

DIAL = "def test_dial(measure): measure('dial')\n"
GATE = 'thresholds: {dial: ["iops >= baseline - 5 %"]}\n'


def test_a_baseline_is_made_met_missed_and_grows(dial, pytester: pytest.Pytester):
    made = dial("--st-save-baseline", "base.json", more=GATE)
    made.assert_outcomes(passed=2)  # the gate is left out while the first baseline is made
    made.stdout.fnmatch_lines(["baseline: base.json: 2 cases saved"])
    document = json.loads((pytester.path / "base.json").read_text())
    assert document["schema"] == "storagetest.baseline/1"
    assert [case["variant"] for case in document["cases"]] == ["disk", "other"]
    assert len(document["cases"][0]["sessions"][0]["values"]["iops"]) == 10  # the whole budget
    assert document["cases"][0]["noise_floors"] == {}

    dial("--st-baseline", "base.json", more=GATE).assert_outcomes(passed=2)

    missed = dial("--st-baseline", "base.json", more=GATE, disk=800)
    missed.assert_outcomes(passed=1, failed=1)
    missed.stdout.fnmatch_lines(
        "*disk on here: iops: asked >= baseline - 5 %, measured 7*/s against 99*/s of 10 runs: -20*%*worse"
        " than asked (its noise floor is not known: the baseline has one session), confirmed by*"
    )

    dial("--st-baseline", "base.json", "--st-save-baseline", "base.json", more=GATE, disk=1030)
    document = json.loads((pytester.path / "base.json").read_text())
    assert [len(case["sessions"]) for case in document["cases"]] == [2, 2]
    assert document["cases"][0]["noise_floors"]["iops"] == pytest.approx(0.03, abs=1e-3)


def test_an_effect_below_the_noise_floor_is_never_a_failure(dial):
    dial("--st-save-baseline", "base")
    dial("--st-save-baseline", "base", disk=850)  # A/A: 18 % lie between two sessions of the same target
    result = dial("--st-baseline", "base", "--st-target", "disk", more=GATE, disk=800)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*1 invalid*"])


def test_what_failed_against_the_baseline_is_not_saved(dial, pytester: pytest.Pytester):
    dial("--st-save-baseline", "base", "--st-target", "disk")
    result = dial(
        "--st-baseline", "base", "--st-save-baseline", "base", "--st-target", "disk", more=GATE, disk=500
    )
    result.assert_outcomes(failed=1)
    (file,) = (pytester.path / "base").glob("*.json")
    assert file.name.startswith("dial-disk-")
    assert len(json.loads(file.read_text())["cases"][0]["sessions"]) == 1


def test_a_results_file_is_a_baseline_too(dial):
    dial("--st-results", "before.jsonl")
    dial("--st-results", "before.jsonl")
    dial("--st-baseline", "before.jsonl", more=GATE).assert_outcomes(passed=2)


def test_a_marker_can_be_against_the_baseline(dial):
    suite = f'import pytest\n@pytest.mark.gate("p99 <= baseline + 10 %")\n{DIAL}'
    dial("--st-save-baseline", "base", suite=suite).assert_outcomes(passed=2)
    dial("--st-baseline", "base", suite=suite).assert_outcomes(passed=2)
    dial("--st-baseline", "base", suite=suite, disk=500).assert_outcomes(passed=1, failed=1)


def test_a_case_that_the_baseline_does_not_hold_is_invalid(dial):
    dial("--st-save-baseline", "base", "--st-target", "disk")
    result = dial("--st-baseline", "base", "--st-target", "other", more=GATE)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*no verdict: the baseline", "*base has no iops of this case; save it first"]
    )


def test_without_a_baseline_such_a_gate_is_an_error_that_says_how_to_make_one(dial):
    result = dial(more=GATE)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*targets.yaml:*: threshold 'iops >= baseline - 5 %': no baseline is given. Add --st-baseline*"]
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("none", None, "--st-baseline none: no such baseline. Create it with --st-save-baseline none"),
        ("bad.json", '{"schema": "storagetest.baseline/7"}', "bad.json: schema is 'storagetest.baseline/7'*"),
        ("bad.json", '{"schema": "storagetest.baseline/1"', "bad.json: damaged: *"),
        ("bad.json", '{"schema": "storagetest.baseline/1"}', "bad.json: member 'cases' is missing"),
        ("bad.jsonl", "once upon a time", "bad.jsonl:1: damaged*"),
    ],
)
def test_a_baseline_that_cannot_be_read_ends_the_run_before_it_starts(
    dial: Callable[..., pytest.RunResult],
    pytester: pytest.Pytester,
    name: str,
    text: str | None,
    message: str,
):
    if text is not None:
        Path(pytester.path / name).write_text(text)
    result = dial("--st-baseline", name)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{message}"])


def test_a_results_file_is_not_overwritten_by_a_baseline(dial, pytester: pytest.Pytester):
    (pytester.path / "results.jsonl").write_text("")
    result = dial("--st-save-baseline", "results.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*not a directory or a .json file*"])


def test_two_workers_save_one_baseline(dial, pytester: pytest.Pytester):
    dial("-n", "2", "--st-save-baseline", "base.json").assert_outcomes(passed=2)
    document = json.loads((pytester.path / "base.json").read_text())
    assert [len(case["sessions"]) for case in document["cases"]] == [1, 1]


def test_comparing_and_saving_on_one_path_starts_from_nothing(dial, pytester: pytest.Pytester):
    first = dial("--st-baseline", "base", "--st-save-baseline", "base", "--st-target", "disk", more=GATE)
    assert first.ret == 1  # there is nothing to compare with yet: INVALID, and saved
    first.stdout.fnmatch_lines(["*baseline: base: 1 case saved", "*1 invalid*"])
    second = dial("--st-baseline", "base", "--st-save-baseline", "base", "--st-target", "disk", more=GATE)
    second.assert_outcomes(passed=1)
