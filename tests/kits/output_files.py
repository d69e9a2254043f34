"""Read the files that a pytest run with storagetest writes."""

import json
from pathlib import Path
from typing import Any


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_runs(directory: Path, name: str = "results.jsonl") -> list[dict[str, Any]]:
    """Return the runs of the results file ``name``."""
    return [record["run"] for record in read_json_lines(directory / name)]


def read_cases(directory: Path, target: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the records in cases.jsonl by case id: those of ``target``, or all."""
    records = read_json_lines(directory / "cases.jsonl")
    return {record["id"]: record for record in records if target in {None, record["target"]}}


def case_outcomes(directory: Path, target: str | None = None) -> dict[str, str]:
    """Return the outcome of each case by its id."""
    return {name: record["outcome"] for name, record in read_cases(directory, target).items()}
