"""A target is slowed by a known amount: does the gate against its baseline turn red, and only then?

Against a lab that is up, a stream of reads is saved as a baseline, in several sessions, which teach the noise
floor. Then the same case is run with `bandwidth >= baseline - 5 %` by pytest's own command line, as often as
asked for each slowdown. All the time netem (tc-netem(8), rate) holds what the appliance sends to --rate, far
below what the emulated machines reach: their own speed is noise, and the rate is known. For a slowdown of s
it is lowered to 1 - s of that. Levels are run in turns: whatever else the machine does hits all of them.

Exit status 0: no FAIL without a slowdown, and a FAIL in at least 95 % of the runs with the largest one;
1 otherwise; 2: it could not run.

    storagetest lab up --name slow --clients 1
    python benchmarks/slowdown_in_the_lab.py --lab slow
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from storagetest import config
from storagetest.errors import StoragetestError
from storagetest.hosts import Host
from storagetest.hosts.connect import connect
from storagetest.lab.paths import lab_dir

SUITE = """\
import pytest

@pytest.mark.gate("bandwidth >= baseline - 5 %")
def test_reads(measure):
    measure("sequential", direction="read", block_size="16KiB", queue_depth=4)
"""
PROFILE = "profiles.slowdown={size: 8MiB, ramp: 500ms, runtime: %s, repeats: 3, max_repeats: 12}"
DEADLINE = 1200.0
DETACHED_WITHIN = 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line a run and what they come to; return the exit status."""
    wanted = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the line is as it was
    targets = lab_dir(wanted.lab) / "targets.yaml"
    try:
        loaded = config.load(targets)
        variant = next((one for one in loaded.variants if one.id == wanted.target), None)
        if variant is None or variant.server is None:
            print(f"{targets} has no {wanted.target} with a server", file=sys.stderr)
            return 2
        with (
            connect(variant.server) as server,
            tempfile.TemporaryDirectory() as scratch,
            shaped(server, str(getattr(variant.options, "address", ""))) as line,
        ):
            return _run(wanted, targets, Path(scratch), line)
    except (StoragetestError, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lab", default="default", help="the name of a lab that is up")
    parser.add_argument("--target", default="nfs-v3-nconnect1", help="the variant to slow down")
    parser.add_argument("--rate", type=float, default=20.0, help="of the server, in Mbit/s (default: 20)")
    parser.add_argument("--slowdowns", type=float, nargs="+", default=[0.0, 10.0, 20.0], metavar="PERCENT")
    parser.add_argument("--runs", type=int, default=3, help="how often each (default: 3)")
    parser.add_argument("--sessions", type=int, default=3, help="sessions of the baseline (default: 3)")
    parser.add_argument("--runtime", default="3s", help="of one repeat (default: 3s)")
    return parser


class Line:
    """netem on one network card of the server."""

    def __init__(self, server: Host, card: str) -> None:
        self._server = server
        self._card = card

    def set(self, rate: float) -> None:
        """Hold what the server sends to ``rate`` Mbit/s."""
        netem = ["netem", "rate", f"{rate * 1000:.0f}kbit"]
        self._server.run(["tc", "qdisc", "replace", "dev", self._card, "root", *netem], deadline=30)

    def clear(self) -> None:
        """Let it send as fast as it can."""
        self._server.run(["tc", "qdisc", "del", "dev", self._card, "root"], deadline=30, check=False)


@contextmanager
def shaped(server: Host, address: str) -> Iterator[Line]:
    """Yield the server's card that has ``address``; afterwards it is as fast as before."""
    output = server.run(["ip", "-o", "-4", "addr", "show", "to", address], deadline=30).stdout.split()
    server.run(["modprobe", "sch_netem"], deadline=30)
    line = Line(server, output[1])
    try:
        yield line
    finally:
        line.clear()


def _run(wanted: argparse.Namespace, targets: Path, scratch: Path, line: Line) -> int:
    (scratch / "test_reads.py").write_text(SUITE)
    baseline = str(scratch / "baseline.json")

    def once(*options: str) -> dict[str, Any]:
        results = scratch / "results.jsonl"
        results.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_reads.py"]
        argv += ["--st-targets", str(targets), "--st-target", wanted.target, "--st-results", str(results)]
        argv += [
            "--st-set",
            PROFILE % wanted.runtime,
            "--st-profile",
            "slowdown",
            "--st-set",
            "thresholds={}",
        ]
        argv += options
        output = _pytest_output(argv, scratch)
        if not results.exists():
            raise StoragetestError(output)
        document: dict[str, Any] = json.loads(results.read_text().splitlines()[-1])
        return document

    line.set(wanted.rate)
    for session in range(1, wanted.sessions + 1):
        samples = once("--st-save-baseline", baseline)["run"]["samples"]
        found = [sample["values"]["bandwidth"] / 125_000 for sample in samples]
        print(
            f"baseline, session {session}: {len(found)} runs, {sum(found) / len(found):.2f} Mbit/s",
            flush=True,
        )
    floor = json.loads(Path(baseline).read_text())["cases"][0]["noise_floors"].get("bandwidth")
    print("noise floor", "not known (one session)" if floor is None else f"{floor:.1%}", flush=True)
    outcomes: dict[float, list[str]] = {percent: [] for percent in wanted.slowdowns}
    for _ in range(wanted.runs):
        for percent in wanted.slowdowns:
            line.set(wanted.rate * (1 - percent / 100))
            verdict = once("--st-baseline", baseline)["verdicts"][0]
            outcomes[percent].append(verdict["outcome"])
            print(f"slowed by {percent:g} %: {verdict['outcome']}: {verdict['reason']}", flush=True)
    return _report(outcomes)


def _pytest_output(argv: Sequence[str], directory: Path) -> str:
    """Run pytest and return its output; if this program is interrupted, pytest detaches first."""
    with subprocess.Popen(
        argv, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as pytest:
        try:
            return pytest.communicate(timeout=DEADLINE)[0]
        except BaseException:
            pytest.send_signal(signal.SIGINT)
            pytest.communicate(timeout=DETACHED_WITHIN)
            raise


def _report(outcomes: dict[float, list[str]]) -> int:
    kept = True
    for percent, seen in outcomes.items():
        counts = ", ".join(f"{seen.count(one)} {one}" for one in ("PASS", "FAIL", "INVALID"))
        print(f"slowed by {percent:g} %: {counts} of {len(seen)}")
        if percent == 0:
            kept &= "FAIL" not in seen
        elif percent == max(outcomes):
            kept &= seen.count("FAIL") >= 0.95 * len(seen)
    print("no false alarm, and the largest slowdown found:", "yes" if kept else "NO")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
