"""Loads beyond plain fio, as a user runs them, on a file system and on block devices in the lab."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pytest_run import PytestRun, select_targets

pytestmark = pytest.mark.lab

ONE_OF_EACH = ["nfs-v4.2-nconnect1", "smb-v3.1.1", "iscsi-hdgstcrc32c", "nvme-tcp-hdgst-ddgst"]
SUITE = """
def test_streaming(measure):
    measure("streaming", streams=2, frames_per_second=10)

def test_database(measure):
    measure("database", page_workers=2)

def test_multi_user(measure):
    measure("multi-user", levels=[1, 2])

def test_noisy_neighbour(measure):
    measure("noisy-neighbour", neighbours=2, neighbour_queue_depth=2)

def test_own(measure, custom_workload):
    measure(custom_workload)
"""
OWN = """
workloads:
  oltp: {fio: oltp.fio}
  lists: {python: "lists:run", metrics: {answer_time: {unit: s, better: lower}}}
"""
JOB = "[global]\ndirect=1\nioengine=libaio\n[pages]\nrw=randrw\nbs=8k\niodepth=4\n[log]\nrw=write\nbs=4k\n"
FUNCTION = """
def run(attachment, scale):
    done = attachment.client.run(["ls", attachment.path], deadline=30)
    return {"answer_time": done.seconds}
"""


@pytest.fixture
def line(lab, tmp_path: Path) -> PytestRun:
    made = PytestRun(tmp_path, lab.targets_yaml.read_text().replace("\nthresholds:", f"{OWN}\nthresholds:"))
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "oltp.fio").write_text(JOB)
    (tmp_path / "lists.py").write_text(FUNCTION)
    return made


@pytest.mark.parametrize(
    "where", [ONE_OF_EACH[0], *(pytest.param(one, marks=pytest.mark.slow) for one in ONE_OF_EACH[1:])]
)
def test_every_load_runs_and_leaves_nothing(line: PytestRun, client, tmp_path: Path, where: str) -> None:
    line.edit("runtime: 300ms", "runtime: 1s")
    _, output = line.run(*select_targets(where), timeout=1200)
    runs = [json.loads(text)["run"] for text in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert "ERROR" not in output, output
    assert "FAILED" not in output, output
    assert sorted(run["workload"] for run in runs) == [
        "database", "lists", "multi-user", "noisy-neighbour", "oltp", "streaming",
    ], output  # fmt: skip
    for run in runs:
        assert set(run["headline"]) & set(run["samples"][0]["values"])
    stream = next(run for run in runs if run["workload"] == "streaming")
    # A busy machine may be too slow even for this. The run is INVALID then, and only then.
    slow = [sample for sample in stream["samples"] if sample["values"]["achieved"] < 0.99]
    assert bool(slow) is bool(stream["invalid"]), stream["invalid"]
    assert client.left() == []
