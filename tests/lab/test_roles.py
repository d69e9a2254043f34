"""The smoke tests that the appliance roles declare (storagetest.lab.roles.SmokeTest), on one lab per role."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from pytest_run import PytestRun, select_targets

from storagetest.lab import Lab, roles

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SUITES = Path(__file__).parents[2] / "suites"
ROLES = [name for name in roles.names() if roles.load(name).smoke_tests]


@pytest.mark.parametrize("name", ROLES)
def test_a_role_serves_its_targets(name: str, tmp_path: Path) -> None:
    lab = Lab.up(f"{name}-{os.getpid()}", clients=1, appliance=name, owner=os.getpid())
    try:
        for number, smoke in enumerate(roles.load(name).smoke_tests):
            directory = tmp_path / str(number)
            directory.mkdir()
            run(smoke, directory, lab.targets_yaml.read_text())
    finally:
        lab.down()


def run(smoke: roles.SmokeTest, directory: Path, targets: str) -> None:
    pytest_run = PytestRun(directory, targets)
    paths = [str(SUITES / path) for path in smoke.paths] or [str(directory / "test_suite.py")]
    status, output = pytest_run.run(
        *("-c", str(directory / "pytest.ini"), f"--rootdir={directory}", "--import-mode=importlib"),
        *select_targets(*smoke.variants),
        *smoke.options,
        *paths,
        timeout=1200,
    )
    assert status == 0, output
    passed = re.search(r"(\d+) passed", output.splitlines()[-1])
    outcomes = Counter(passed=int(passed[1]) if passed else 0)
    outcome_of: dict[str, str] = {}
    if smoke.paths:  # conformance cases have more outcomes than pytest
        records = [json.loads(text) for text in (directory / "cases.jsonl").read_text().splitlines()]
        outcome_of = {record["id"]: record["outcome"] for record in records}
        outcomes = Counter(record["outcome"] for record in records)
    assert outcomes["passed"] >= smoke.min_passed, output
    assert not outcomes["failed"] + outcomes["error"], outcomes
    assert {outcome_of[case] for case in smoke.passed} <= {"passed"}
    assert "passed" not in {outcome_of[case] for case in smoke.not_passed}
