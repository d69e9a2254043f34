"""Measure how long pytest takes to collect 30,000 cases: a whole process, from its start to its end.

The cases are those of suites/performance and suites/conformance/posix on as many local targets as that takes;
nothing is run on them. Exit status 0: the median of the runs is at most 5 s; 1: it is not; 2: the measurement
failed.

    python benchmarks/collecting.py --path /var/tmp
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUITES = ("suites/performance", "suites/conformance/posix")
CASES = 30_000
LIMIT = 5.0
DEADLINE = 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Collect on one target, then repeatedly on as many as give 30,000 cases; return the exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--path", type=Path, required=True, help="a directory on this machine")
    parser.add_argument("--runs", type=int, default=5)
    wanted = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="storagetest-collecting-", dir=wanted.path) as place:
        try:
            of_one, alone = _collect(Path(place), targets=1)  # writes the byte code, too
            targets = -(-CASES // of_one)
            runs = [_collect(Path(place), targets=targets) for _ in range(wanted.runs)]
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(error, file=sys.stderr)
            return 2
    seconds = [taken for _, taken in runs]
    median = statistics.median(seconds)
    print(f"{of_one:,} cases on 1 target: {alone:.1f} s (the first run)")
    print(
        f"{runs[0][0]:,} cases on {targets} targets: median {median:.2f} s of {len(runs)} runs "
        f"({min(seconds):.2f} to {max(seconds):.2f}); the limit is {LIMIT:g} s for {CASES:,}"
    )
    return int(median > LIMIT)


def _collect(place: Path, *, targets: int) -> tuple[int, float]:
    """Collect the suites on ``targets`` local targets; return the number of cases, and the seconds."""
    lines = ["version: 1", "targets:"]
    for number in range(targets):
        (place / str(number)).mkdir(exist_ok=True)
        lines.append(f"  local{number}: {{protocol: local, path: {place / str(number)}}}")
    file = place / "targets.yaml"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    argv = [sys.executable, "-m", "pytest", "-qq", "--collect-only", "--st-targets", str(file), *SUITES]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.monotonic()
    done = subprocess.run(
        argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    taken = time.monotonic() - start
    counts = [
        int(count) for _, _, count in (line.partition(".py: ") for line in done.stdout.split("\n")) if count
    ]
    if done.returncode != 0 or not counts:
        raise ValueError(f"pytest ended with exit code {done.returncode}: {done.stdout}{done.stderr}")
    return sum(counts), taken


if __name__ == "__main__":
    sys.exit(main())
