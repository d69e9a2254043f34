"""Runs of the conformance suites on targets of the tests, each by a pytest process of its own."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from child_pytest import run_pytest
from output_files import read_json_lines

ROOT = Path(__file__).parents[2]


def run_suite(
    targets: Mapping[str, Mapping[str, Any]], where: Path, *what: str, options: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Run ``what`` (paths in suites/conformance) on ``targets``; return the records of the cases."""
    document = {"version": 1, "clients": {"here": {"transport": "local"}}, "targets": targets}
    (where / "targets.yaml").write_text(json.dumps(document), encoding="utf-8")
    argv = ["-q", "--tb=line", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    argv += ["--st-targets", str(where / "targets.yaml"), "--st-cases", str(where / "cases.jsonl")]
    argv += [*options, *(str(ROOT / "suites" / "conformance" / path) for path in what)]
    done = run_pytest(argv, where, {"PYTHONPATH": str(ROOT / "src")})
    assert done.returncode in (0, 1), done.stdout[-3000:] + done.stderr[-2000:]
    return read_json_lines(where / "cases.jsonl")
