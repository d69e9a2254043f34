"""Custom workloads, which the targets file defines: found, measured, judged and reported like any other."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

Line = Callable[..., pytest.RunResult]
SUITE = """\
def test_own(measure, custom_workload):
    measure(custom_workload)
"""
FUNCTION = """\
def run(attachment, scale):
    done = attachment.client.run(["ls", attachment.path], deadline=10)
    return {"answers": 1 + scale.repeat / 1000}
"""
MORE = """\
workloads:
  oltp: {fio: oltp.fio}
  lists: {python: "lists:run", metrics: {answers: {unit: count, better: higher}}}
thresholds:
  oltp: ["log_iops >= 1"]
  lists: ["answers >= 5"]
"""


@pytest.mark.usefixtures("fio")
def test_they_run_on_each_variant_and_are_judged(line: Line, pytester: pytest.Pytester):
    pytester.path.joinpath("oltp.fio").write_text("[pages]\nrw=randread\nbs=4k\n[log]\nrw=write\nbs=4k\n")
    pytester.path.joinpath("lists.py").write_text(FUNCTION)
    enough = "profiles.tiny.max_repeats=20"  # for a verdict on a machine that does other things as well
    result = line("-v", "--st-set", enough, more=MORE, suite=SUITE)
    result.stdout.fnmatch_lines_random(
        ["*test_own?disk-oltp? PASSED*", "*test_own?other-oltp? PASSED*", "*test_own?disk-lists? FAILED*"]
    )
    result.stdout.fnmatch_lines(["*disk on here: answers: asked >= 5, measured 1.00*"])
    result.stdout.fnmatch_lines(["*variant *case *answers *verdict*"])
    runs = [json.loads(text)["run"] for text in (pytester.path / "results.jsonl").read_text().splitlines()]
    assert {(run["variant"], run["workload"]) for run in runs} == {
        (variant, name) for variant in ("disk", "other") for name in ("oltp", "lists")
    }


@pytest.mark.parametrize("fixture", ["custom_workload", "own_workload"])
def test_where_none_is_named_that_is_one_skip(line: Line, fixture: str):
    line(suite=SUITE.replace("custom_workload", fixture)).assert_outcomes(skipped=1)


def test_a_job_file_that_is_refused_ends_the_run_before_anything_is_contacted(
    line: Line, pytester: pytest.Pytester
):
    pytester.path.joinpath("oltp.fio").write_text("[pages]\nfilename=/dev/sda\n")
    pytester.path.joinpath("lists.py").write_text(FUNCTION)
    result = line(more=MORE, suite=SUITE)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*oltp.fio:2:1: filename: a job file must not name files*"])
