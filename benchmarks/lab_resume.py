"""How long a lab takes to start: resumes from a snapshot and boots, in turn.

    python benchmarks/lab_resume.py [--resumes 30] [--boots 3] [--clients 2] [--appliance kernel]

Prints for each kind of start: the median and the range of the seconds until `Lab.up` returns and until the
first SSH command on the last machine has run, and how many failed. The snapshot is made before the first.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time

from storagetest.errors import LabError
from storagetest.lab import Lab


def start(arguments: argparse.Namespace, *, cold: bool) -> tuple[float, float] | None:
    """Return the seconds until the lab is up and until it has run a command; None if it did not resume."""
    began = time.monotonic()
    try:
        lab = Lab.up(
            f"resume-{os.getpid()}",
            clients=arguments.clients,
            appliance=arguments.appliance,
            owner=os.getpid(),
            progress=lambda _: None,
            cold=cold,
        )
    except LabError as error:
        print(f"failed: {error}")
        return None
    try:
        up = time.monotonic() - began
        machine = lab.hosts[-1].name
        subprocess.run(lab.ssh_argv(machine, ["true"]), check=True, timeout=60)
        as_asked = (lab.status().start == "booted") == cold
        return (up, time.monotonic() - began) if as_asked else None
    finally:
        lab.down()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--resumes", type=int, default=30)
    parser.add_argument("--boots", type=int, default=3)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--appliance", default="kernel")
    arguments = parser.parse_args()
    start(arguments, cold=False)
    results: dict[str, list[tuple[float, float] | None]] = {"resume": [], "boot": []}
    every = max(1, arguments.resumes // max(1, arguments.boots))
    for number in range(arguments.resumes):
        results["resume"].append(start(arguments, cold=False))
        if number % every == 0 and len(results["boot"]) < arguments.boots:
            results["boot"].append(start(arguments, cold=True))
    for kind, starts in results.items():
        done = [seconds for seconds in starts if seconds]
        print(f"{kind}: {len(starts)} starts, {len(starts) - len(done)} failed", end="")
        for name, values in zip(("up", "first command"), zip(*done, strict=True), strict=False):
            print(
                f"; {name} {statistics.median(values):.2f} s ({min(values):.2f} to {max(values):.2f})", end=""
            )
        print()


if __name__ == "__main__":
    main()
