"""Runs a conformance suite on one target of tests/controllers."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mutation_run import ROOT


def run_cases(
    target: Mapping[str, Any], where: Path, *what: str, more: tuple[str, ...] = ()
) -> dict[str, tuple[str, str]]:
    """Run ``what`` (paths in suites/conformance) on ``target``; return (outcome, message) by case id."""
    targets = {"version": 1, "clients": {"here": {"transport": "local"}}, "targets": {"sound": dict(target)}}
    (where / "targets.yaml").write_text(json.dumps(targets), encoding="utf-8")
    argv = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider"]
    argv += ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    argv += ["--st-targets", str(where / "targets.yaml"), "--st-cases", str(where / "cases.jsonl")]
    argv += [*more, *(str(ROOT / "suites" / "conformance" / path) for path in what)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        argv, cwd=where, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
    lines = (where / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    return {one["id"]: (one["outcome"], one["message"]) for one in map(json.loads, lines)}
