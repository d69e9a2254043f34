"""The second implementations: the same cases, attached and on the wire, on NFS-Ganesha and tgt."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from line_kit import Line, only

from storagetest.lab import Lab

pytestmark = pytest.mark.lab

SUITES = Path(__file__).parents[2] / "suites"


@pytest.fixture(scope="module")
def alternate() -> Iterator[Lab]:
    started = Lab.up(f"alternate-{os.getpid()}", clients=1, appliance="alternate", owner=os.getpid())
    yield started
    started.down()


@pytest.fixture
def line(alternate: Lab, tmp_path: Path) -> Line:
    return Line(tmp_path, alternate.targets_yaml.read_text())


def test_the_line_over_both_protocols(line: Line, tmp_path: Path) -> None:
    status, output = line.run(*only("nfs-v3-nconnect1", "nfs-v4.2-nconnect1", "iscsi*"), timeout=400)
    assert status == 0, output
    runs = [json.loads(text)["run"] for text in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert {run["protocol"] for run in runs} == {"nfs", "iscsi"}
    assert "skipped" not in output.splitlines()[-1], output


def test_the_wire_suite_over_tgt(line: Line, tmp_path: Path) -> None:
    suite = SUITES / "conformance" / "iscsi"
    status, output = line.run(f"--rootdir={tmp_path}", "-q", "-m", "not slow", str(suite), timeout=300)
    assert status == 0, output
    records = [json.loads(text) for text in (tmp_path / "cases.jsonl").read_text().splitlines()]
    outcomes = Counter(record["outcome"] for record in records)
    assert outcomes["passed"] >= 160, outcomes
    assert not outcomes["failed"] + outcomes["error"], outcomes
