"""Run pytest as a user does: in a child process, with a lab's targets file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

POSIX = Path(__file__).parents[2] / "suites" / "conformance" / "posix"

PROFILE = """
profiles:
  tiny: {size: 4MiB, ramp: 0, runtime: 300ms, repeats: 3, max_repeats: 3}
  long: {size: 4MiB, ramp: 0, runtime: 30s, repeats: 3, max_repeats: 3}
"""

SUITE = """
def test_writes(measure):
    run = measure("small-random-write")
    assert all(sample.values["iops"] > 0 for sample in run.samples)

def test_reads(measure):
    run = measure("sequential", direction="read", block_size="64KiB")
    assert all(sample.values["bandwidth"] > 0 for sample in run.samples)
"""


class PytestRun:
    """A directory with the lab's targets.yaml and a suite, and pytest runs in it."""

    def __init__(self, directory: Path, targets: str) -> None:
        self.directory = directory
        # Without thresholds: the speed of an emulated appliance is not tested.
        ungated = targets.partition("\nthresholds:")[0] + "\n"
        (directory / "targets.yaml").write_text(ungated + PROFILE)
        (directory / "test_suite.py").write_text(SUITE)
        (directory / "pytest.ini").write_text("[pytest]\n")

    def edit(self, old: str, new: str) -> None:
        """Replace ``old`` by ``new`` in the targets file."""
        path = self.directory / "targets.yaml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def start(self, *arguments: str, profile: str = "tiny") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", "-rs", "-v", "--st-profile", profile, *arguments],
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "COLUMNS": "160"},
        )

    def run(self, *arguments: str, profile: str = "tiny", timeout: float = 900) -> tuple[int, str]:
        """Return pytest's exit status and its output."""
        process = self.start(*arguments, profile=profile)
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            pytest.fail(f"pytest did not end in {timeout} s:\n{output}")
        return process.returncode, output

    def clean(self) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "storagetest", "clean"],
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.stdout + done.stderr


def select_targets(*variants: str) -> list[str]:
    return [text for variant in variants for text in ("--st-target", variant)]


def posix_cases(directory: Path, targets: str, variant: str, *modules: str) -> dict[str, dict[str, Any]]:
    """Run modules of the posix suite on a variant; return the record of each case by id. None may fail."""
    config = ["-c", str(directory / "pytest.ini"), "--rootdir", str(directory), "--import-mode=importlib"]
    files = [str(POSIX / f"test_{module}.py") for module in modules]
    status, output = PytestRun(directory, targets).run(
        *config, *select_targets(variant), *files, timeout=1200
    )
    assert status == 0, output
    text = (directory / "cases.jsonl").read_text(encoding="utf-8")
    cases = [json.loads(line) for line in text.splitlines()]
    assert len({case["id"] for case in cases}) == len(cases)
    return {case["id"]: case for case in cases}
