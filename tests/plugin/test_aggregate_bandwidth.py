"""The search for the maximum, as a suite asks for it, on a directory of this machine."""

from __future__ import annotations

import json

import pytest

TARGETS = """\
version: 1
clients:
  one: {{transport: local}}
  two: {{transport: local}}
targets:
  disk: {{protocol: local, path: {disk}, clients: all}}
profiles:
  tiny: {{size: 1MiB, ramp: 0, runtime: 200ms, repeats: 1, max_repeats: 1, start_spread: 1min{more}}}
"""
SUITE = """
import pytest

@pytest.mark.clients("all")
def test_most(find_maximum):
    run, found = find_maximum(
        "small-random-write", strategy="STRATEGY", direct=False, engine="psync", queue_depth=1,
        block_size=["4KiB", "64KiB"], jobs=[1, 2],
    )
    assert set(found.values) == {"block_size", "jobs", "clients"}
    assert run.samples[-1].values["bandwidth"] > 0
"""


@pytest.mark.parametrize("strategy", ["surrogate", "one-at-a-time"])
def test_the_best_is_measured_and_the_table_says_what_was_tried(line, fio, pytester, tmp_path, strategy):
    given = TARGETS.format(disk=tmp_path, more=", search: 8")
    result = line(targets=given, suite=SUITE.replace("STRATEGY", strategy))
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["disk, best: *block_size=*clients=*", "*at the limit of their range: *"])
    (text,) = pytester.path.joinpath("results.jsonl").read_text().splitlines()
    table = json.loads(text)["run"]["samples"][0]["evidence"]["search"].splitlines()
    assert table[2].split() == ["block_size", "jobs", "clients", "bandwidth"]
    assert 1 <= len(table) - 3 <= 8
    assert f"({strategy})" in table[0]


def test_without_measurements_there_is_no_search(line, tmp_path):
    result = line("-rs", targets=TARGETS.format(disk=tmp_path, more=""), suite=SUITE)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        ["*profile tiny allows no measurements for a search. Set `search: 40` in it*"]
    )


def test_nothing_to_search_is_a_mistake_of_the_case(line, tmp_path):
    suite = """
def test_most(find_maximum):
    find_maximum("small-random-write")
"""
    given = TARGETS.format(disk=tmp_path, more=", search: 8")
    result = line(targets=given, suite=suite)
    result.assert_outcomes(errors=1, failed=0)
    result.stdout.fnmatch_lines(["*find_maximum has nothing to search*"])
