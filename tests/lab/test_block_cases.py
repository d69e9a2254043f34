"""The block suite on targets of the lab: no case fails, and nothing is left on a client."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "suites" / "conformance" / "block"
GOOD = {"passed", "observed", "skipped", "known"}

WANTED = {
    "test_multipath.py": {"BLK-PATH-01", "BLK-PATH-04", "BLK-PATH-06"},
    "test_reservations.py": {"BLK-RES-01"},
    "test_resize.py": {"BLK-GROW-01", "BLK-GROW-03", "BLK-GROW-06"},
}

pytestmark = pytest.mark.lab


@pytest.mark.parametrize(
    ("target", "modules"),
    [
        pytest.param("iscsi-chap", ["test_reservations.py", "test_resize.py"], marks=pytest.mark.slow),
        ("nvme-tcp-no-hdgst-no-ddgst", ["test_resize.py"]),
        pytest.param("iscsi-paths", ["test_data.py", "test_multipath.py"], marks=pytest.mark.slow),
        pytest.param("nvme-tcp-paths", ["test_discard.py", "test_multipath.py"], marks=pytest.mark.slow),
    ],
)
def test_no_case_fails(lab, clean_client, tmp_path, target, modules) -> None:
    cases = tmp_path / "cases.jsonl"
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        str(ROOT / "pyproject.toml"),
    ]
    argv += ["--rootdir", str(ROOT), "--st-targets", str(lab.targets_yaml), "--st-target", target]
    argv += ["--st-cases", str(cases), "--st-results", str(tmp_path / "results.jsonl")]
    argv += [str(SUITE / module) for module in modules]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=1200, check=False)
    records = [json.loads(line) for line in cases.read_text(encoding="utf-8").splitlines()]
    bad = {one["id"]: one["message"][:300] for one in records if one["outcome"] not in GOOD}
    assert (done.returncode, bad) == (0, {}), done.stdout[-3000:]
    passed = {one["id"] for one in records if one["outcome"] == "passed"}
    wanted = {case for module in modules for case in WANTED.get(module, ())}
    assert wanted <= passed, "a required case did not pass"
    assert clean_client.left() == []
