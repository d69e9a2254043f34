"""Two SMB servers with POSIX extensions, Samba and ksmbd: cases of the posix suite through their mounts."""

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

SUITE = Path(__file__).parents[2] / "suites" / "conformance" / "posix"
MODULES = ("create", "mode_owner", "remove")


@pytest.fixture(scope="module")
def smb() -> Iterator[Lab]:
    started = Lab.up(f"smb-{os.getpid()}", clients=1, appliance="smb", owner=os.getpid())
    yield started
    started.down()


@pytest.mark.parametrize(("target", "modes"), [("smb-posix", True), ("ksmbd-posix", True), ("ksmbd", False)])
def test_files_with_and_without_posix_extensions(smb: Lab, tmp_path: Path, target: str, modes: bool) -> None:
    line = Line(tmp_path, smb.targets_yaml.read_text())
    config = ["-c", str(tmp_path / "pytest.ini"), "--rootdir", str(tmp_path), "--import-mode=importlib"]
    files = [str(SUITE / f"test_{module}.py") for module in MODULES]
    status, output = line.run(*config, *only(target), *files, timeout=400)
    assert status == 0, output
    cases = [json.loads(text) for text in (tmp_path / "cases.jsonl").read_text("utf-8").splitlines()]
    outcomes = Counter(case["outcome"] for case in cases)
    assert outcomes["passed"] >= 30, outcomes
    assert not outcomes["failed"] + outcomes["error"], outcomes
    said = {case["id"]: case["outcome"] for case in cases}
    assert (said["PSX-CHMOD-0640"] == "passed") == modes, said["PSX-CHMOD-0640"]
