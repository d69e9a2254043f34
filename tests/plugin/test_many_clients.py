"""Loads on several clients, and their aggregate bandwidth."""

from pathlib import Path

import pytest
from output_files import read_runs
from pytest_results import assert_result, assert_usage_error

TARGETS = """\
version: 1
clients:
  one: {transport: local}
  two: {transport: local}
  three: {transport: local}
targets:
  disk:
    protocol: local
    path: DIRECTORY/disk
    clients: all
    SCALE
profiles:
  tiny:
    {size: 1MiB, ramp: 0, runtime: 10ms, repeats: 1, max_repeats: 1, sample_interval: 0, start_spread: 1min}
"""

SUITE = """\
import pytest

def test_default(measure):
    measure("fake-metrics")
"""
FIO_SUITE = """\
def test_fio(measure):
    measure("small-random-write", direct=False, engine="psync", queue_depth=1)
"""


def targets(scale: str = "") -> str:
    """Return the targets file, with the line ``scale`` in the target."""
    return TARGETS.replace("SCALE", scale)


def clients_of_runs(directory: Path) -> list[str]:
    return [run["client"] for run in read_runs(directory)]


def test_the_default_is_one_client(run_with_fake_metrics, pytester):
    run_with_fake_metrics(targets=targets(), suite=SUITE).assert_outcomes(passed=1)
    (run,) = read_runs(pytester.path)
    assert run["client"] == "one"
    assert run["samples"][0]["concurrency"] is None


def test_each_number_of_a_scale_is_a_case(run_with_fake_metrics, pytester):
    result = run_with_fake_metrics("-v", targets=targets("scale: [1, 2, all]"), suite=SUITE)
    assert_result(result, "*[[]disk-1client]*", "*[[]disk-2clients]*", "*[[]disk-3clients]*", passed=3)
    result.stdout.fnmatch_lines(["disk, fake-metrics*2 clients (one, two)*", "*began within *"])
    assert clients_of_runs(pytester.path) == ["one", "one, two", "one, two, three"]
    concurrency = read_runs(pytester.path)[-1]["samples"][0]["concurrency"]
    assert [client["client"] for client in concurrency["clients"]] == ["one", "two", "three"]
    assert concurrency["spread"] is not None


def test_fio_starts_on_two_clients_at_the_same_time(run_pytest, fio, pytester):
    result = run_pytest(targets=targets("scale: 2").replace("10ms", "1s"), suite=FIO_SUITE)
    result.assert_outcomes(passed=1)
    concurrency = read_runs(pytester.path)[0]["samples"][0]["concurrency"]
    assert [client["client"] for client in concurrency["clients"]] == ["one", "two"]
    assert concurrency["spread"] is not None


def test_the_option_overrides_the_file_and_a_mark_overrides_both(run_with_fake_metrics, pytester):
    marked = '@pytest.mark.clients("three", "one")\ndef test_mark(measure): measure("fake-metrics")\n'
    result = run_with_fake_metrics("--st-scale", "2", targets=targets("scale: 3"), suite=SUITE + marked)
    result.assert_outcomes(passed=2)
    assert sorted(clients_of_runs(pytester.path)) == ["one, two", "three, one"]


def test_a_case_may_use_some_of_its_clients(run_with_fake_metrics, pytester):
    suite = """
import pytest

@pytest.mark.clients("all")
def test_scaling(measure):
    for clients in (1, 2, ["two", "three"]):
        measure("fake-metrics", clients=clients, data_set="own")
"""
    run_with_fake_metrics(targets=targets(), suite=suite).assert_outcomes(passed=1)
    assert clients_of_runs(pytester.path) == ["one", "one, two", "two, three"]


def test_too_many_clients_are_a_skip_in_a_suite_and_an_error_in_the_file(run_pytest):
    suite = """
import pytest

@pytest.mark.scale(4)
def test_four(measure):
    raise AssertionError("the case ran")
"""
    result = run_pytest("-rs", targets=targets(), suite=suite)
    assert_result(result, "*disk has 3 clients, and the case needs 4*", skipped=1)
    message = "targets.yaml:11:12: targets.disk.scale: 4 clients are requested, but the target has 3\n"
    assert_usage_error(run_pytest(targets=targets("scale: [1, 4]"), suite=suite), message)


@pytest.mark.parametrize("value", ["0", "some", "2,2"])
def test_an_invalid_option_is_named(run_pytest, value):
    result = run_pytest("--st-scale", value, targets=targets(), suite=SUITE)
    assert_usage_error(result, f"--st-scale {value}: ")


def test_more_clients_than_the_case_has_are_an_error(run_with_fake_metrics):
    suite = SUITE.replace('"fake-metrics"', '"fake-metrics", clients=2')
    result = run_with_fake_metrics(targets=targets(), suite=suite)
    assert_result(result, "*clients=2: the case has only one. Mark it with*", errors=1)


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
SEARCH_TARGETS = NO_SEARCH.replace("SEARCH", "search: 8, start_spread: 1min")
SEARCH_SUITE = """
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
    suite = (
        SEARCH_SUITE.replace("WORKLOAD", "fake-metrics").replace("STRATEGY", strategy).replace("OPTIONS", "")
    )
    result = run_with_fake_metrics(targets=SEARCH_TARGETS, suite=suite)
    assert_search_is_recorded(result, pytester.path, strategy, most=8)


def test_a_search_with_fio(run_pytest, fio, pytester):
    options = 'direct=False, engine="psync", queue_depth=1'
    suite = SEARCH_SUITE.replace("WORKLOAD", "small-random-write").replace("OPTIONS", options)
    targets = SEARCH_TARGETS.replace("search: 8", "search: 2").replace("10ms", "1s")
    result = run_pytest(targets=targets, suite=suite.replace("STRATEGY", "one-at-a-time"))
    assert_search_is_recorded(result, pytester.path, "one-at-a-time", most=2)


def test_a_profile_without_search_is_a_skip(run_pytest):
    result = run_pytest(
        "-rs", targets=NO_SEARCH.replace("SEARCH", ""), suite=SEARCH_SUITE.replace("OPTIONS", "")
    )
    message = "*profile tiny allows no measurements for a search. Set `search: 40` in it*"
    assert_result(result, message, skipped=1)


def test_a_search_without_parameters_is_an_error(run_pytest):
    suite = 'def test_maximum(find_maximum): find_maximum("small-random-write")\n'
    result = run_pytest(targets=SEARCH_TARGETS, suite=suite)
    assert_result(result, "*find_maximum has nothing to search*", errors=1)


PLANS = """
searches:
  blocks:
    workload: small-random-write[direct=false,engine=psync,queue_depth=1]
    values: {block_size: [4KiB, 16KiB, 64KiB], jobs: [1, 2], clients: [2, 1]}
    strategy: stepwise
    start: {block_size: 16KiB, clients: 1}
  elsewhere:
    workload: small-random-write
    values: {jobs: [1, 2]}
    targets: [nowhere]
"""
PLAN_SUITE = """
import pytest

@pytest.mark.clients("all")
def test_search(find_maximum, search_plan):
    values = {name: list(listed) for name, listed in search_plan.values.items()}
    how = {"strategy": search_plan.strategy, "start": search_plan.start}
    find_maximum(search_plan.workload, **how, **search_plan.parameters, **values)
"""
NOWHERE = SEARCH_TARGETS.replace(
    "profiles:", "  nowhere: {protocol: local, path: DIRECTORY/other}\nprofiles:"
)


def test_a_search_of_the_targets_file_begins_at_its_start(run_pytest, fio, pytester):
    targets = NOWHERE.replace("search: 8", "search: 3").replace("10ms", "100ms")
    result = run_pytest("-v", "--st-target", "disk", targets=targets, more=PLANS, suite=PLAN_SUITE)
    assert_result(result, "*test_search[[]disk-blocks-2clients]*", passed=1)
    (run,) = read_runs(pytester.path)
    table = run["samples"][0]["evidence"]["search"].splitlines()
    assert "of 12 combinations (stepwise)" in table[0]
    assert [line.split()[:3] for line in table[3:]] == [["16KiB", "1", "1"]] * 2 + [["64KiB", "1", "1"]]
    assert run["parameters"]["engine"] == "psync"


def test_clients_that_the_case_does_not_have_are_an_error(run_pytest):
    suite = 'def test_one(find_maximum): find_maximum("small-random-write", jobs=[1, 2], clients=[1, 9])\n'
    result = run_pytest(targets=SEARCH_TARGETS, suite=suite)
    assert_result(result, "*find_maximum: clients: 9 of 1 clients*", errors=1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("jobs: [1, 2], clients", "jobz: [1, 2], clients"),
        ("[4KiB, 16KiB, 64KiB]", "[4KiB, 4096]"),
        ("start: {block_size: 16KiB", "start: {block_size: 8KiB"),
        ("targets: [nowhere]", "targets: [some]"),
        ("clients: [2, 1]", "clients: [two]"),
        ("values: {block_size", "values: {engine: [psync], block_size"),
    ],
)
def test_a_search_that_cannot_be_is_refused_with_its_place(run_pytest, changed, message):
    wanted = {
        "jobz": "'jobz' is neither a parameter of small-random-write nor an option of a target; did you mean",
        "[4KiB, 4096]": "block_size: one value or more, each once",
        "8KiB": "start: block_size has no such value among its `values`",
        "some": "targets: none is called some",
        "two": "clients: 'two' is not a number of clients",
        "engine: [psync]": "engine is both fixed and searched",
    }
    expected = next(text for part, text in wanted.items() if part in message)
    plans = PLANS.replace(changed, message)
    result = run_pytest(targets=NOWHERE, more=plans, suite=PLAN_SUITE)
    assert_usage_error(result, expected)
