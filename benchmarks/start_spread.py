"""Measure how closely many clients start: storagetest and fio's client/server, in turns on this machine.

Several loopback clients (16), each a fio process with one job, start together, repeatedly. The job is that
of a small random write (4 KiB, libaio, O_DIRECT); with ``--buffered`` it writes to the page cache by psync,
so that every client keeps a processor busy. *First I/O* is the first entry of fio's log of every single I/O,
minus its latency, for both: its resolution is a millisecond. The spread that a run reports (the first I/O of
each client's scout job) is also printed. Exit status 0: the median and the 90th percentile of storagetest's
spreads are at most 10 ms; 1: they are not; 2: the measurement failed.

    python benchmarks/start_spread.py --path /var/tmp
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from storagetest.errors import StoragetestError
from storagetest.hosts import LocalHost
from storagetest.measure.merge_clients import SPREAD_LIMIT
from storagetest.measure.run import Sample
from storagetest.runner.start_barriers import StartBarrier, open_barriers
from storagetest.runner.synchronized_start import run_synchronized
from storagetest.units import format_duration
from storagetest.workloads._fio.job import FIRST, FioJob, argv
from storagetest.workloads.base import StartBarrierRef

PORT = 18765
RUNTIME = 1.0
DEADLINE = 120.0
ALL = "all"
LOGS = (f"--write_lat_log={ALL}", "--log_unix_epoch=1", "--per_job_logs=0")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both in turns, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--path", type=Path, required=True, help="a directory on this machine")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--buffered", action="store_true", help="write to the page cache")
    wanted = parser.parse_args(arguments)
    place = Path(tempfile.mkdtemp(prefix="storagetest-spread-", dir=wanted.path))
    try:
        return _compare(place, _job(buffered=wanted.buffered), wanted.clients, wanted.starts)
    except (StoragetestError, subprocess.SubprocessError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _job(*, buffered: bool) -> FioJob:
    engine = "psync" if buffered else "libaio"
    return FioJob(
        *("load", "data", "randwrite", 4096, 4 << 20),
        runtime=RUNTIME,
        seed=1,
        direct=not buffered,
        engine=engine,
    )


def _compare(place: Path, job: FioJob, count: int, starts: int) -> int:
    homes = [place / f"client{number + 1}" for number in range(count)]
    jobs = {home: replace(job, filename=f"{home}/data") for home in homes}
    for home in homes:
        home.mkdir()
        (home / "data").write_bytes(b"\xa5" * (4 << 20))
    ours: list[float] = []
    seen: list[float] = []
    theirs: list[float] = []
    with ExitStack() as stack:
        hosts = [stack.enter_context(LocalHost(home.name)) for home in homes]
        gates = open_barriers(hosts, stack)
        servers = _servers(homes, stack)
        print("spread of first I/O, ms:  ours  (as reported)  fio client/server")
        for number in range(starts):
            if number % 2:
                theirs.append(_by_client_server(jobs, servers, place))
            both = _ours(gates, jobs)
            ours.append(both[0])
            seen.append(both[1])
            if not number % 2:
                theirs.append(_by_client_server(jobs, servers, place))
            row = "  ".join(f"{1000 * each[-1]:8.1f}" for each in (ours, seen, theirs))
            print(f"  {number + 1:3}                    {row}", flush=True)
    for name, found in (("ours", ours), ("as reported", seen), ("fio client/server", theirs)):
        print(f"{name:18} {_summary(found)}")
    within = sum(spread <= SPREAD_LIMIT for spread in ours)
    print(f"ours within {format_duration(SPREAD_LIMIT)}: {within} of {starts}")
    return 0 if within >= 0.9 * starts and statistics.median(ours) <= SPREAD_LIMIT else 1


def _summary(found: Sequence[float]) -> str:
    low, middle, high = min(found), statistics.median(found), max(found)
    return f"median {1000 * middle:.1f} ms, {1000 * low:.1f} to {1000 * high:.1f} ms, {len(found)} starts"


def _ours(gates: Sequence[StartBarrier], jobs: Mapping[Path, FioJob]) -> tuple[float, float]:
    _settle(jobs)
    run_synchronized(
        gates, [partial(_load, gate, *one) for gate, one in zip(gates, jobs.items(), strict=True)]
    )
    return _spread(home / f"{ALL}_lat.log" for home in jobs), _spread(
        home / f"{FIRST}_lat.log" for home in jobs
    )


def _settle(jobs: Mapping[Path, FioJob]) -> None:
    """Leave nothing to be written, nor logs, which fio would append to."""
    os.sync()
    for home in jobs:
        for log in home.glob("*.log"):
            log.unlink()


def _load(gate: StartBarrier, home: Path, job: FioJob, start: StartBarrierRef) -> Sample:
    program, name, *options = argv(job, barrier=start.directory)
    script = f"cd {shlex.quote(str(home))} && exec {shlex.join([program, name, *LOGS, *options])}"
    gate.host.run(["sh", "-c", script], deadline=DEADLINE)
    return Sample({}, RUNTIME, 0)


def _servers(homes: Sequence[Path], stack: ExitStack) -> list[str]:
    """Start a fio server for each client, on a loopback address of its own."""
    addresses = [f"127.0.1.{number + 1}" for number in range(len(homes))]
    for home, address in zip(homes, addresses, strict=True):
        process = subprocess.Popen(
            ["fio", f"--server={address},{PORT}"],
            cwd=home,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(process.wait)
        stack.callback(process.terminate)
    time.sleep(1.0)
    return addresses


def _by_client_server(jobs: Mapping[Path, FioJob], addresses: Sequence[str], place: Path) -> float:
    _settle({place: next(iter(jobs.values())), **jobs})
    command = ["fio", "--output=report"]
    for (home, job), address in zip(jobs.items(), addresses, strict=True):
        file = home / "job.fio"
        _, _, *options = argv(job)
        given = (option.removeprefix("--") for option in (*LOGS, *options))
        lines = "\n".join(option for option in given if not option.startswith(("eta=", "output-format=")))
        file.write_text(f"[load]\n{lines}\n")
        command += [f"--client={address},{PORT}", str(file)]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=DEADLINE, check=False)
    found = [*place.glob(f"{ALL}_lat*")]
    if len(found) < len(jobs):
        raise StoragetestError(
            f"fio's client/server left {len(found)} logs of {len(jobs)}: {done.stderr[-500:]}"
        )
    return _spread(found)


def _spread(logs: Iterable[Path]) -> float:
    first = [_first(log) for log in logs]
    return max(first) - min(first)


def _first(log: Path) -> float:
    """Return when the first I/O was made, in seconds since the epoch."""
    with log.open() as file:
        milliseconds, nanoseconds = file.readline().split(",")[:2]
    return int(milliseconds) / 1000 - int(nanoseconds) * 1e-9


if __name__ == "__main__":
    sys.exit(main())
