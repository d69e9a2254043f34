"""The cases of suites/conformance/posix through the lab's mounts: a sample of each ground."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from line_kit import Line, only

pytestmark = pytest.mark.lab

SUITE = Path(__file__).parents[2] / "suites" / "conformance" / "posix"
SAMPLE = (
    "EISDIR or exclusive or sticky or append or never_absent or all_the_time or waits_for or churn or zeroes"
)
BAD = {"failed", "error"}


@pytest.mark.parametrize("variant", ["nfs-v4.2-nconnect1", "smb-v3.1.1"])
def test_a_sample_holds_on_a_real_mount(lab, tmp_path: Path, client, variant: str) -> None:
    line = Line(tmp_path, lab.targets_yaml.read_text())
    modules = ["test_open.py", "test_rename.py", "test_remove.py", "test_locks.py", "test_data.py"]
    status, output = line.run(*only(variant), *[str(SUITE / name) for name in modules], "-k", SAMPLE)
    assert status == 0, output
    cases = [json.loads(text) for text in (tmp_path / "cases.jsonl").read_text().splitlines()]
    assert len({case["id"] for case in cases}) == len(cases) > 15
    assert [case["id"] for case in cases if case["outcome"] in BAD] == []
    assert sum(case["outcome"] == "passed" for case in cases) > 10
