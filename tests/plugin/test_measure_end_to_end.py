"""Measurements from targets.yaml to the results file and the reports."""

import json

from output_files import read_json_lines, read_runs
from pytest_results import assert_result

SUITE = "def test_metrics(measure): measure('fake-metrics')\n"
IMPOSSIBLE_GATE = 'thresholds: {small-random-write: ["iops >= 1000000000"]}'
P99_GATE = 'thresholds: {fake-metrics: ["p99 <= 1h"]}'


def test_a_case_runs_once_for_each_variant_and_leaves_nothing(run_pytest, fio, pytester):
    result = run_pytest("-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines_random(["*test_writes?disk? PASSED*", "*test_writes?other? PASSED*"])
    assert list((pytester.path / "disk").iterdir()) == []
    runs = [(run["variant"], len(run["samples"])) for run in read_runs(pytester.path)]
    assert runs == [("disk", 3), ("other", 3)]


def test_a_missed_gate_is_a_failure_with_threshold_and_value(run_pytest, fio):
    result = run_pytest("--st-target", "disk", more=IMPOSSIBLE_GATE)
    assert_result(result, "*disk on here: iops: required >= 1,000,000,000*", failed=1)


def test_a_gate_that_cannot_be_judged_is_invalid(run_with_fake_metrics):
    suite = "def test_metrics(measure): measure('fake-metrics', ios=10)\n"
    result = run_with_fake_metrics("--st-target", "disk", suite=suite, more=P99_GATE)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["=* INVALID *=", "_* test_metrics[[]disk[]] *_", "*not enough*", "*1 invalid*"]
    )


def test_a_mark_is_a_gate(run_with_fake_metrics):
    suite = 'import pytest\n@pytest.mark.gate("iops >= 500")\n' + SUITE
    run_with_fake_metrics(suite=suite, other=400).assert_outcomes(passed=1, failed=1)


def test_a_gate_of_the_file_and_of_a_mark_is_judged_once(run_with_fake_metrics, pytester):
    suite = 'import pytest\n@pytest.mark.gate("iops >= 1", "p99 <= 1h")\n' + SUITE
    more = 'thresholds: {fake-metrics: ["iops >= 1"]}'
    run_with_fake_metrics("--st-target", "disk", suite=suite, more=more).assert_outcomes(passed=1)
    (record,) = read_json_lines(pytester.path / "results.jsonl")
    assert [verdict["threshold"]["text"] for verdict in record["verdicts"]] == ["iops >= 1", "p99 <= 1h"]


def test_two_workers_write_one_results_file(run_with_fake_metrics, pytester):
    result = run_with_fake_metrics("-n", "2", "-v", suite=SUITE)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines_random(["*PASSED*test_metrics?disk?*", "*PASSED*test_metrics?other?*"])
    assert sorted(run["variant"] for run in read_runs(pytester.path)) == ["disk", "other"]


def test_counters_and_load_are_sampled_at_the_interval(run_pytest, fio, pytester):
    def measured(interval: str) -> dict:
        options = ("--st-set", f"profiles.tiny.sample_interval={interval}")
        options += ("--st-results", f"{interval}.jsonl")
        run_pytest("--st-target", "disk", *options).assert_outcomes(passed=1)
        return read_runs(pytester.path, f"{interval}.jsonl")[0]

    sampled = measured("100ms")
    sources = {series["source"] for series in sampled["samples"][-1]["series"]}
    assert {"load", "cpu", "nic"} <= sources
    assert "of a core" in sampled["samples"][-1]["evidence"]["sampling"]
    assert sampled["limited_by"]["who"] == "target"  # a directory of the client
    assert [sample["series"] for sample in measured("0s")["samples"]] == [[], [], []]


def test_junit_contains_the_metrics(run_with_fake_metrics, pytester):
    run_with_fake_metrics("--junit-xml", "junit.xml", "--st-target", "disk")
    text = (pytester.path / "junit.xml").read_text()
    assert 'name="storagetest.iops [/s]"' in text
    assert 'name="storagetest.variant" value="disk"' in text


def test_allure_contains_labels_and_attachments(run_pytest, fio, pytester):
    run_pytest("--alluredir", "allure", "--st-target", "disk")
    directory = pytester.path / "allure"
    (result,) = [json.loads(path.read_text()) for path in directory.glob("*-result.json")]
    labels = {label["name"]: label["value"] for label in result["labels"]}
    assert (labels["epic"], labels["feature"], labels["story"]) == ("Local", "suite", "measured, no gate")
    assert {"argv", "negotiated"} <= {
        attachment["name"].partition(" (")[0] for attachment in result["attachments"]
    }
    assert (directory / "environment.properties").exists()
    assert json.loads((directory / "categories.json").read_text())


def test_the_terminal_table_fits_80_columns(run_with_fake_metrics, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = run_with_fake_metrics()
    lines = result.outlines[next(i for i, text in enumerate(result.outlines) if " storagetest " in text) :]
    assert len(lines) > 4
    assert max(map(len, lines)) <= 80
