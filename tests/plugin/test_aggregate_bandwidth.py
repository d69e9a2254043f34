"""The fixture find_maximum: search for the parameters with the best value, on two clients."""

from __future__ import annotations

from pathlib import Path

import pytest
from output_files import read_runs
from pytest_results import assert_result

NO_SEARCH = """\
version: 1
clients:
  one: {transport: local}
  two: {transport: local}
targets:
  disk: {protocol: local, path: DIRECTORY/disk, clients: all}
profiles:
  tiny: {size: 1MiB, ramp: 0, runtime: 10ms, repeats: 1, max_repeats: 1, sample_interval: 0, SEARCH}
"""
TARGETS = NO_SEARCH.replace("SEARCH", "search: 8, start_spread: 1min")
SUITE = """
import pytest

@pytest.mark.clients("all")
def test_maximum(find_maximum):
    run, best = find_maximum(
        "WORKLOAD", strategy="STRATEGY", block_size=["4KiB", "64KiB"], jobs=[1, 2], OPTIONS
    )
    assert set(best.values) == {"block_size", "jobs", "clients"}
    assert run.samples[-1].values["bandwidth"] > 0
"""


def assert_search_is_recorded(result: pytest.RunResult, directory: Path, strategy: str, most: int) -> None:
    assert_result(result, "disk, best: *block_size=*clients=*", "*at the limit of their range: *", passed=1)
    (run,) = read_runs(directory)
    table = run["samples"][0]["evidence"]["search"].splitlines()
    assert f"({strategy})" in table[0]
    assert table[2].split() == ["block_size", "jobs", "clients", "bandwidth"]
    assert 1 <= len(table) - 3 <= most


@pytest.mark.parametrize("strategy", ["surrogate", "one-at-a-time"])
def test_the_best_value_is_measured_and_all_attempts_are_recorded(run_with_fake_metrics, pytester, strategy):
    suite = SUITE.replace("WORKLOAD", "fake-metrics").replace("STRATEGY", strategy).replace("OPTIONS", "")
    result = run_with_fake_metrics(targets=TARGETS, suite=suite)
    assert_search_is_recorded(result, pytester.path, strategy, most=8)


def test_a_search_with_fio(run_pytest, fio, pytester):
    options = 'direct=False, engine="psync", queue_depth=1'
    suite = SUITE.replace("WORKLOAD", "small-random-write").replace("OPTIONS", options)
    targets = TARGETS.replace("search: 8", "search: 2").replace("10ms", "1s")
    result = run_pytest(targets=targets, suite=suite.replace("STRATEGY", "one-at-a-time"))
    assert_search_is_recorded(result, pytester.path, "one-at-a-time", most=2)


def test_a_profile_without_search_is_a_skip(run_pytest):
    result = run_pytest("-rs", targets=NO_SEARCH.replace("SEARCH", ""), suite=SUITE.replace("OPTIONS", ""))
    message = "*profile tiny allows no measurements for a search. Set `search: 40` in it*"
    assert_result(result, message, skipped=1)


def test_a_search_without_parameters_is_an_error(run_pytest):
    suite = 'def test_maximum(find_maximum): find_maximum("small-random-write")\n'
    result = run_pytest(targets=TARGETS, suite=suite)
    assert_result(result, "*find_maximum has nothing to search*", errors=1)
