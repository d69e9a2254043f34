"""iscsi-test-cu on the lab's LIO, without CHAP and with it, as a user runs it: suites/external."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from storagetest.lab import Lab

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
SOME = "Inquiry.Standard or TestUnitReady.Simple or Read10.Simple or Verify10.Mismatch[ or OrWrite.Simple"


@pytest.fixture
def program() -> None:
    if shutil.which("iscsi-test-cu") is None:
        pytest.skip("iscsi-test-cu is not installed: libiscsi-bin (Debian)")


def run(lab: Lab, where: Path, *arguments: str) -> str:
    argv = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "--st-target", "iscsi*"]
    argv += [
        "--rootdir",
        str(ROOT),
        "-c",
        str(ROOT / "pyproject.toml"),
        "--st-targets",
        str(lab.targets_yaml),
    ]
    argv += ["--st-results", str(where / "results.jsonl"), *arguments, str(ROOT / "suites" / "external")]
    done = subprocess.run(argv, cwd=where, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("program")
def test_a_few_of_its_tests_pass_skip_and_fail_as_known(lab: Lab, tmp_path: Path) -> None:
    output = run(lab, tmp_path, "-k", SOME)
    lines = [line for line in output.splitlines() if "toml::" in line]
    ended = {line.split("::")[1].split()[0]: line.split()[0] for line in lines}
    for target in ("iscsi-hdgstnone", "iscsi-chap"):
        assert ended[f"Read10.Simple[{target}]"] == "PASSED"
        assert ended[f"Verify10.Mismatch[{target}]"] == "XFAIL"
    assert "ORWRITE is not implemented" in output
