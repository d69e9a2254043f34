"""Custom workloads, which the targets file defines, are measured, judged and reported like any other."""

import pytest
from output_files import read_json_lines, read_runs
from pytest_results import assert_usage_error

SUITE = """\
def test_custom(measure, custom_workload):
    measure(custom_workload)
"""
FUNCTION = """\
def run(attachment, scale):
    attachment.client.run(["ls", attachment.path], deadline=10)
    return {"replies": 1 + scale.repeat / 1000}
"""
MORE = """\
workloads:
  oltp: {fio: oltp.fio}
  lists: {python: "lists:run", metrics: {replies: {unit: count, better: higher}}}
thresholds:
  oltp: ["log_iops >= 1"]
  lists: ["replies >= 5"]
"""


@pytest.mark.usefixtures("fio")
def test_custom_workloads_run_on_each_variant_and_are_judged(run_pytest, pytester):
    pytester.path.joinpath("oltp.fio").write_text("[pages]\nrw=randread\nbs=4k\n[log]\nrw=write\nbs=4k\n")
    pytester.path.joinpath("lists.py").write_text(FUNCTION)
    repeats = "profiles.tiny.max_repeats=20"  # enough for a verdict on a busy machine
    result = run_pytest("-v", "--st-set", repeats, more=MORE, suite=SUITE)
    outcomes = {"disk-oltp": "PASSED", "other-oltp": "PASSED", "disk-lists": "FAILED"}
    result.stdout.fnmatch_lines_random([f"*test_custom?{case}? {word}*" for case, word in outcomes.items()])
    result.stdout.fnmatch_lines(["*disk on here: replies: required >= 5, measured 1.00*"])
    result.stdout.fnmatch_lines(["*variant *case *replies *verdict*"])
    assert {(run["variant"], run["workload"]) for run in read_runs(pytester.path)} == {
        (variant, name) for variant in ("disk", "other") for name in ("oltp", "lists")
    }


@pytest.mark.parametrize("fixture", ["custom_workload", "own_workload"])
def test_a_case_without_custom_workloads_is_one_skip(run_pytest, fixture: str):
    suite = SUITE.replace("custom_workload", fixture)
    run_pytest("-W", "default", suite=suite).assert_outcomes(skipped=1)


def test_an_invalid_job_file_is_a_usage_error(run_pytest, pytester):
    pytester.path.joinpath("oltp.fio").write_text("[pages]\nfilename=/dev/sda\n")
    pytester.path.joinpath("lists.py").write_text(FUNCTION)
    message = "oltp.fio:2:1: filename: a job file must not name files"
    assert_usage_error(run_pytest(more=MORE, suite=SUITE), message)


PRESETS = """\
workloads:
  depths: {load: sweep, parameters: {over: queue_depth, values: [1, 2], block_size: 4KiB, access: random}}
  roles: {load: readers-writers, parameters: {write_block_size: 4KiB}}
thresholds:
  depths: ["iops rising within 99 % over queue_depth"]
  roles: ["read_iops >= 1", "write_iops >= 1"]
"""
ON_TWO = """\
version: 1
clients: {one: {transport: local}, two: {transport: local}}
targets:
  disk: {protocol: local, path: DIRECTORY/disk, clients: all, scale: [1, 2]}
profiles:
  tiny: {size: 4MiB, ramp: 0, runtime: 200ms, repeats: 3, max_repeats: 20, start_spread: 1min}
"""


@pytest.mark.usefixtures("fio")
def test_presets_run_with_the_parameters_of_the_file_and_on_several_clients(run_pytest, pytester):
    run_pytest("-v", targets=ON_TWO, more=PRESETS, suite=SUITE).assert_outcomes(passed=4)
    records = read_json_lines(pytester.path / "results.jsonl")
    runs = {(each["run"]["workload"], each["run"]["client"]): each["run"] for each in records}
    assert set(runs) == {(load, client) for load in ("depths", "roles") for client in ("one", "one, two")}
    assert runs["depths", "one"]["parameters"]["values"] == "1,2"
    assert "write: two" in runs["roles", "one, two"]["samples"][0]["evidence"]["roles"]
    judged = [verdict["threshold"]["text"] for each in records for verdict in each["verdicts"]]
    assert judged.count("iops rising within 99 % over queue_depth") == 2
