"""From targets.yaml to results.jsonl, by pytest's own command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Line = Callable[..., pytest.RunResult]
pytestmark = pytest.mark.usefixtures("fio")


def test_a_case_runs_once_for_each_variant_and_leaves_nothing(
    line: Line, pytester: pytest.Pytester, tmp_path: Path
):
    result = line("-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines_random(["*test_writes?disk? PASSED*", "*test_writes?other? PASSED*"])
    assert list((tmp_path / "disk").iterdir()) == []
    documents = [json.loads(text) for text in (pytester.path / "results.jsonl").read_text().splitlines()]
    assert [document["run"]["variant"] for document in documents] == ["disk", "other"]
    assert all(len(document["run"]["samples"]) == 3 for document in documents)


def test_a_gate_that_is_missed_is_a_failure_that_says_what_was_asked_and_measured(line: Line):
    result = line(more='thresholds: {small-random-write: ["iops >= 1000000000"]}', suite=SUITE_ONLY_MEASURE)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*disk on here: iops: asked >= 1,000,000,000*"])


def test_a_gate_that_cannot_be_judged_is_invalid_and_not_green(line: Line):
    result = line(
        "--st-target", "disk", more='thresholds: {small-random-write: ["p99.9 <= 1h"]}', suite=SUITE_FEW_IOS
    )
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*1 invalid*"])
    result.stdout.fnmatch_lines(["*not enough*"])


def test_a_marker_is_a_gate_too(line: Line):
    suite = 'import pytest\n@pytest.mark.gate("iops >= 1")\n' + SUITE_ONLY_MEASURE
    line("--st-target", "disk", suite=suite).assert_outcomes(passed=1)
    impossible = suite.replace("iops >= 1", "iops >= 1000000000")
    line("--st-target", "disk", suite=impossible).assert_outcomes(failed=1)


def test_a_gate_of_the_file_and_of_a_marker_is_judged_once(line: Line, pytester: pytest.Pytester):
    suite = 'import pytest\n@pytest.mark.gate("iops >= 1", "p50 <= 1h")\n' + SUITE_ONLY_MEASURE
    more = 'thresholds: {small-random-write: ["iops >= 1"]}'
    line("--st-target", "disk", suite=suite, more=more)  # what comes out is the machine's to say
    (document,) = (json.loads(text) for text in (pytester.path / "results.jsonl").read_text().splitlines())
    assert [verdict["threshold"]["text"] for verdict in document["verdicts"]] == ["iops >= 1", "p50 <= 1h"]


def test_two_workers_give_the_same_cases_and_one_results_file(line: Line, pytester: pytest.Pytester):
    result = line("-n", "2", "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines_random(["*PASSED*test_writes?disk?*", "*PASSED*test_writes?other?*"])
    assert len((pytester.path / "results.jsonl").read_text().splitlines()) == 2


def test_counters_and_the_loads_own_course_are_kept_at_the_interval_asked_for(
    line: Line, pytester: pytest.Pytester
):
    def document(interval: str) -> dict:
        path = pytester.path / f"{interval}.jsonl"
        arguments = ("--st-target", "disk", "--st-results", str(path))
        line(*arguments, "--st-set", f"profiles.tiny.sample_interval={interval}").assert_outcomes(passed=1)
        return json.loads(path.read_text())["run"]

    sampled = document("100ms")
    sources = {one["source"] for one in sampled["samples"][-1]["series"]}
    assert {"load", "cpu", "nic"} <= sources
    assert "of a core" in sampled["samples"][-1]["evidence"]["sampling"]
    assert sampled["limited_by"]["who"] == "target"  # a directory of the client's own
    assert [sample["series"] for sample in document("0s")["samples"]] == [[], [], []]


def test_junit_carries_the_figures(line: Line, pytester: pytest.Pytester):
    line("--junit-xml", "junit.xml", "--st-target", "disk")
    text = (pytester.path / "junit.xml").read_text()
    assert 'name="storagetest.iops [/s]"' in text
    assert 'name="storagetest.variant" value="disk"' in text


def test_allure_is_told_where_the_case_belongs(line: Line, pytester: pytest.Pytester):
    line("--alluredir", "allure", "--st-target", "disk")
    directory = pytester.path / "allure"
    (result,) = [json.loads(path.read_text()) for path in directory.glob("*-result.json")]
    labels = {label["name"]: label["value"] for label in result["labels"]}
    assert (labels["epic"], labels["feature"], labels["story"]) == ("Local", "suite", "measured, no gate")
    assert {"argv", "negotiated"} <= {
        attachment["name"].partition(" (")[0] for attachment in result["attachments"]
    }
    assert (directory / "environment.properties").exists()
    assert json.loads((directory / "categories.json").read_text())


def test_the_terminal_table_fits_eighty_columns(line: Line, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = line()
    lines = result.outlines[next(i for i, text in enumerate(result.outlines) if " storagetest " in text) :]
    assert len(lines) > 4
    assert max(map(len, lines)) <= 80


SUITE_ONLY_MEASURE = """\
def test_writes(measure):
    measure("small-random-write", direct=False, engine="psync", queue_depth=1)
"""

SUITE_FEW_IOS = """\
def test_writes(measure):
    measure("small-random-write", direct=True, engine="psync", queue_depth=1, block_size="1MiB")
"""
