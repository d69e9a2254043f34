"""The cases of suites/conformance/posix through a mount of the lab: a sample of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from line_kit import Line, only

pytestmark = pytest.mark.lab

SUITE = Path(__file__).parents[2] / "suites" / "conformance" / "posix"
MODULES = ["test_open.py", "test_remove.py", "test_rename.py"]
SAMPLE = "exclusive or sticky or append or truncates or all_the_time or not_empty or replaced or mode_says"


def test_a_sample_holds_on_a_real_mount(lab, tmp_path: Path, client) -> None:
    line = Line(tmp_path, lab.targets_yaml.read_text())
    config = ["-c", str(tmp_path / "pytest.ini"), "--rootdir", str(tmp_path), "--import-mode=importlib"]
    modules = [str(SUITE / name) for name in MODULES]
    status, output = line.run(*config, *only("nfs-v4.2-nconnect1"), *modules, "-k", SAMPLE)
    assert status == 0, output
    cases = [json.loads(text) for text in (tmp_path / "cases.jsonl").read_text().splitlines()]
    assert len({case["id"] for case in cases}) == len(cases)
    assert {case["outcome"] for case in cases} == {"passed"}
    assert len(cases) >= 30
