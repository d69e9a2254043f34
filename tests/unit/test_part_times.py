"""Times of the parts of script/test, compared with their last run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "script" / "part_times.py"


def part_times(directory: Path, **seconds: tuple[float, int]) -> list[str]:
    """Run the script on parts with (seconds, exit status); return its lines."""
    parts = {
        name: {"test": [{"elapsed": elapsed, "retcode": status}]}
        for name, (elapsed, status) in seconds.items()
    }
    result = directory / "result.json"
    result.write_text(json.dumps({"testenvs": {**parts, ".pkg": {"test": []}, "slow": {}}}))
    argv = [sys.executable, SCRIPT, result, directory / "times.json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


def test_a_part_that_takes_a_tenth_longer_is_marked(tmp_path: Path) -> None:
    assert part_times(tmp_path, unit=(100, 0), lint=(1, 0)) == ["unit 100.0 s passed", "lint 1.0 s passed"]
    assert part_times(tmp_path, unit=(111, 0), lint=(2, 0)) == [
        "unit 111.0 s passed 100.0 s before SLOWER by more than a tenth",
        "lint 2.0 s passed 1.0 s before",
    ]


def test_a_failed_run_is_not_what_later_runs_are_compared_with(tmp_path: Path) -> None:
    part_times(tmp_path, unit=(100, 0))
    assert part_times(tmp_path, unit=(20, 1)) == ["unit 20.0 s FAILED 100.0 s before"]
    assert part_times(tmp_path, unit=(105, 0)) == ["unit 105.0 s passed 100.0 s before"]
