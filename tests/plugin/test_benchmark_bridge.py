"""Runs in the output of pytest-benchmark."""

from __future__ import annotations

import json

import pytest

BENCHMARK = "\ndef test_benchmark(benchmark): benchmark(sum, [1, 2])\n"


def read_benchmarks(pytester: pytest.Pytester) -> list[dict]:
    return json.loads((pytester.path / "out.json").read_text())["benchmarks"]


def test_benchmark_json_contains_runs_and_benchmarks(run_with_fake_metrics, pytester):
    suite = "def test_metrics(measure): measure('fake-metrics', ios=20000)\n" + BENCHMARK
    result = run_with_fake_metrics(
        "--benchmark-json", "out.json", suite=suite, more='thresholds: {fake-metrics: ["iops >= 10"]}\n'
    )
    result.assert_outcomes(passed=3)
    entries = {entry["fullname"]: entry for entry in read_benchmarks(pytester)}
    assert set(entries) == {
        "test_suite.py::test_metrics[disk]",
        "test_suite.py::test_metrics[other]",
        "test_suite.py::test_benchmark",
    }
    entry = entries["test_suite.py::test_metrics[disk]"]
    assert entry["group"] == "fake-metrics"
    assert entry["param"] == "disk"
    assert entry["params"] == {"ios": 20000, "jobs": 1, "block_size": "4KiB"}
    assert entry["stats"]["data"] == pytest.approx([1 / 1000, 1 / 990, 1 / 1010])
    assert entry["extra_info"]["round"] == "seconds per operation, 1/iops"
    assert entry["extra_info"]["metrics"]["iops [/s]"] == pytest.approx(1000)
    assert entry["extra_info"]["verdicts"] == ["PASS iops >= 10"]


def test_saved_runs_are_compared(run_with_fake_metrics):
    run_with_fake_metrics("--benchmark-autosave").assert_outcomes(passed=2)
    slower = run_with_fake_metrics(
        "--benchmark-compare", "--benchmark-compare-fail=mean:5%", "--benchmark-columns=mean", disk=500
    )
    assert slower.ret != 0
    slower.stdout.fnmatch_lines_random(["test_metrics?disk? (NOW)*", "test_metrics?disk? (0001_*)*"])
    slower.stderr.fnmatch_lines(["*Performance has regressed*", "*test_metrics?disk?*(0001_*mean*100.0*"])


def test_two_runs_of_a_case_are_two_entries(run_with_fake_metrics, pytester):
    suite = "def test_metrics(measure): measure('fake-metrics'); measure('fake-metrics', ios=20000)\n"
    run_with_fake_metrics("--st-target", "disk", "--benchmark-json", "out.json", suite=suite)
    assert [entry["name"] for entry in read_benchmarks(pytester)] == [
        "test_metrics[disk]",
        "test_metrics[disk] 2",
    ]


def test_runs_are_added_only_on_request(run_with_fake_metrics):
    quiet = run_with_fake_metrics()
    assert "benchmark: 2 tests" not in quiet.stdout.str()
    run_with_fake_metrics("--st-benchmark").stdout.fnmatch_lines(["*benchmark 'fake-metrics': 2 tests*"])
    switched_off = run_with_fake_metrics("--st-benchmark", "--benchmark-disable")
    assert "benchmark 'fake-metrics'" not in switched_off.stdout.str()
    run_with_fake_metrics("-p", "no:benchmark").assert_outcomes(passed=2)


def test_with_workers_pytest_benchmark_is_disabled(run_with_fake_metrics, pytester):
    run_with_fake_metrics("-p", "benchmark", "-n", "2", "--benchmark-json", "out.json").assert_outcomes(
        passed=2
    )
    assert not (pytester.path / "out.json").exists()
