"""Our runs where users of pytest-benchmark look for them."""

from __future__ import annotations

import json

import pytest

OWN = "\ndef test_own(benchmark): benchmark(sum, [1, 2])\n"


def test_benchmark_json_has_our_runs_beside_its_own(dial, pytester: pytest.Pytester):
    suite = "def test_dial(measure): measure('dial', ios=20000)\n" + OWN
    result = dial("--benchmark-json", "out.json", suite=suite, more='thresholds: {dial: ["iops >= 10"]}\n')
    result.assert_outcomes(passed=3)
    entries = {
        one["fullname"]: one for one in json.loads((pytester.path / "out.json").read_text())["benchmarks"]
    }
    assert set(entries) == {
        "test_suite.py::test_dial[disk]",
        "test_suite.py::test_dial[other]",
        "test_suite.py::test_own",
    }
    ours = entries["test_suite.py::test_dial[disk]"]
    assert ours["group"] == "dial"
    assert ours["param"] == "disk"
    assert ours["params"] == {"ios": 20000}
    assert ours["stats"]["data"] == pytest.approx([1 / 1000, 1 / 990, 1 / 1010])
    assert ours["extra_info"]["round"] == "seconds per operation, 1/iops"
    assert ours["extra_info"]["metrics"]["iops [/s]"] == pytest.approx(1000)
    assert ours["extra_info"]["verdicts"] == ["PASS iops >= 10"]


def test_what_was_saved_is_compared(dial):
    dial("--benchmark-autosave").assert_outcomes(passed=2)
    slower = dial(
        "--benchmark-compare", "--benchmark-compare-fail=mean:5%", "--benchmark-columns=mean", disk=500
    )
    assert slower.ret != 0
    slower.stdout.fnmatch_lines_random(["test_dial?disk? (NOW)*", "test_dial?disk? (0001_*)*"])
    slower.stderr.fnmatch_lines(["*Performance has regressed*", "*test_dial?disk?*(0001_*mean*100.0*"])


def test_two_runs_of_a_case_are_two_entries(dial, pytester: pytest.Pytester):
    suite = "def test_dial(measure): measure('dial'); measure('dial', ios=20000)\n"
    dial("--st-target", "disk", "--benchmark-json", "out.json", suite=suite)
    names = [one["name"] for one in json.loads((pytester.path / "out.json").read_text())["benchmarks"]]
    assert names == ["test_dial[disk]", "test_dial[disk] 2"]


def test_nothing_is_added_unless_asked_for(dial):
    quiet = dial()
    assert "benchmark: 2 tests" not in quiet.stdout.str()
    dial("--st-benchmark").stdout.fnmatch_lines(["*benchmark 'dial': 2 tests*"])
    switched_off = dial("--st-benchmark", "--benchmark-disable")
    assert "benchmark 'dial'" not in switched_off.stdout.str()
    dial("-p", "no:benchmark").assert_outcomes(passed=2)


def test_with_workers_pytest_benchmark_is_off_and_so_are_we(dial, pytester: pytest.Pytester):
    dial("-n", "2", "--benchmark-json", "out.json").assert_outcomes(passed=2)
    assert not (pytester.path / "out.json").exists()
