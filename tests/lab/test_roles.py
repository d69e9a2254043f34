"""The smoke tests that the appliance roles declare (storagetest.lab.roles.SmokeTest), on a lab per role."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_run import PytestRun, select_targets

from storagetest.lab import Lab, roles

pytestmark = pytest.mark.lab

SUITES = Path(__file__).parents[2] / "suites"
SMOKE_TESTS = [
    pytest.param(name, smoke, id="-".join([name, *smoke.variants[:1], str(number)]))
    for name in roles.names()
    for number, smoke in enumerate(roles.load(name).smoke_tests)
]


@pytest.fixture(scope="module")
def role_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab with one client and the role of the parameter."""
    started = Lab.up(f"{request.param}-{os.getpid()}", clients=1, appliance=request.param, owner=os.getpid())
    yield started
    started.down()


@pytest.mark.parametrize(("role_lab", "smoke"), SMOKE_TESTS, indirect=["role_lab"])
def test_a_role_serves_its_targets(role_lab: Lab, smoke: roles.SmokeTest, tmp_path: Path) -> None:
    pytest_run = PytestRun(tmp_path, role_lab.targets_yaml.read_text())
    paths = [str(SUITES / path) for path in smoke.paths] or [str(tmp_path / "test_suite.py")]
    status, output = pytest_run.run(
        *("-c", str(tmp_path / "pytest.ini"), f"--rootdir={tmp_path}", "--import-mode=importlib"),
        *select_targets(*smoke.variants),
        *smoke.options,
        *paths,
        timeout=400,
    )
    assert status == 0, output
    cases = [json.loads(text) for text in (tmp_path / "cases.jsonl").read_text().splitlines()]
    outcomes = Counter(case["outcome"] for case in cases)
    assert outcomes["passed"] >= smoke.min_passed, outcomes
    assert not outcomes["failed"] + outcomes["error"], outcomes
    outcome_of = {case["id"]: case["outcome"] for case in cases}
    assert {outcome_of[case] for case in smoke.passed} <= {"passed"}
    assert "passed" not in {outcome_of[case] for case in smoke.not_passed}
