"""Cases on many clients: marks, option and file; what is too many; and what the report says."""

from __future__ import annotations

import json

import pytest

TARGETS = """\
version: 1
clients:
  one: {{transport: local}}
  two: {{transport: local}}
  three: {{transport: local}}
targets:
  disk:
    protocol: local
    path: {disk}
    clients: all
{more}
profiles:
  tiny: {{size: 1MiB, ramp: 0, runtime: 200ms, repeats: 1, max_repeats: 1, start_spread: 1min}}
"""

SUITE = """\
import pytest

WRITE = {"direct": False, "engine": "psync", "queue_depth": 1}

def test_as_the_file_says(measure):
    measure("small-random-write", **WRITE)
"""


def targets(tmp_path, more: str = "") -> str:
    return TARGETS.format(disk=tmp_path / "disk", more=more)


def runs(pytester: pytest.Pytester) -> list[dict]:
    lines = pytester.path.joinpath("results.jsonl").read_text().splitlines()
    return [json.loads(line)["run"] for line in lines]


def test_one_client_is_the_rule(line, fio, pytester, tmp_path):
    line(targets=targets(tmp_path), suite=SUITE).assert_outcomes(passed=1)
    (run,) = runs(pytester)
    assert run["client"] == "one"
    assert run["samples"][0]["concurrency"] is None


def test_a_scale_is_a_case_for_each_number(line, fio, pytester, tmp_path):
    result = line("-v", targets=targets(tmp_path, "    scale: [1, 2, all]"), suite=SUITE)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*[[]disk-1client]*", "*[[]disk-2clients]*", "*[[]disk-3clients]*"])
    result.stdout.fnmatch_lines(["disk, small-random-write*2 clients (one, two)*", "*began within *"])
    assert [run["client"] for run in runs(pytester)] == ["one", "one, two", "one, two, three"]
    story = runs(pytester)[-1]["samples"][0]["concurrency"]
    assert [client["client"] for client in story["clients"]] == ["one", "two", "three"]
    assert story["spread"] is not None


def test_the_option_goes_before_the_file_and_a_mark_before_both(line, fio, pytester, tmp_path):
    suite = (
        SUITE
        + """
@pytest.mark.clients("three", "one")
def test_these(measure):
    measure("small-random-write", **WRITE)
"""
    )
    result = line("-v", "--st-scale", "2", targets=targets(tmp_path, "    scale: 3"), suite=suite)
    result.assert_outcomes(passed=2)
    assert sorted(run["client"] for run in runs(pytester)) == ["one, two", "three, one"]


def test_a_case_takes_fewer_of_its_clients(line, fio, pytester, tmp_path):
    suite = """
import pytest

@pytest.mark.clients("all")
def test_scaling(measure):
    for clients in (1, 2, ["two", "three"]):
        options = {"direct": False, "engine": "psync", "queue_depth": 1}
        measure("small-random-write", clients=clients, data_set="own", **options)
"""
    line(targets=targets(tmp_path), suite=suite).assert_outcomes(passed=1)
    assert [run["client"] for run in runs(pytester)] == ["one", "one, two", "two, three"]


def test_more_than_there_are_is_a_skip_in_a_suite_and_a_mistake_in_the_file(line, tmp_path):
    suite = """
import pytest

@pytest.mark.scale(4)
def test_four(measure):
    raise AssertionError("it must not run")
"""
    result = line("-rs", targets=targets(tmp_path), suite=suite)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*disk has 3 clients, and the case needs 4*"])
    result = line(targets=targets(tmp_path, "    scale: [1, 4]"), suite=suite)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*targets.yaml:11:12: targets.disk.scale: 4 clients are asked for, and it has 3"]
    )


@pytest.mark.parametrize("given", ["0", "some", "2,2"])
def test_a_wrong_option_is_named(line, tmp_path, given):
    result = line("--st-scale", given, targets=targets(tmp_path), suite=SUITE)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--st-scale {given}: *"])


def test_clients_that_the_case_has_not_are_named(line, fio, tmp_path):
    suite = SUITE.replace("**WRITE", "clients=2, **WRITE")
    result = line(targets=targets(tmp_path), suite=suite)
    result.assert_outcomes(failed=0, errors=1)
    result.stdout.fnmatch_lines(["*clients=2: the case has only one. Mark it with*"])
