"""How closely do many clients begin: ours, and fio's own client/server, in turns on this machine?

So many loopback clients (16), each a fio with one job, begin together, again and again. *First I/O* is the
first line of fio's log of every single I/O, less its latency, both ways alike: so it is known to a
millisecond. Ours is printed as the gates report it, too, as that is what a run is judged by. Exit status 0:
of our starts, the median spread and nine of ten are at most 10 ms; 1: they are not; 2: it could not run.

    python benchmarks/start_spread.py --path /var/tmp
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from storagetest.errors import StoragetestError
from storagetest.hosts import LocalHost
from storagetest.measure.run import Sample
from storagetest.measure.together import SPREAD_LIMIT
from storagetest.runner.gates import Gate, opened
from storagetest.runner.meeting import meet
from storagetest.units import format_duration
from storagetest.workloads._fio.job import waiting
from storagetest.workloads.base import Start

PORT = 18765
RUNTIME = 1.0
DEADLINE = 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both in turns, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--path", type=Path, required=True, help="a directory on this machine")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--starts", type=int, default=20)
    wanted = parser.parse_args(arguments)
    place = Path(tempfile.mkdtemp(prefix="storagetest-spread-", dir=wanted.path))
    try:
        return _compare(place, wanted.clients, wanted.starts)
    except (StoragetestError, subprocess.SubprocessError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _compare(place: Path, count: int, starts: int) -> int:
    homes = [place / f"client{number + 1}" for number in range(count)]
    for home in homes:
        home.mkdir()
        (home / "data").write_bytes(b"\xa5" * (4 << 20))
    ours: list[float] = []
    seen: list[float] = []
    theirs: list[float] = []
    with ExitStack() as stack:
        hosts = [stack.enter_context(LocalHost(home.name)) for home in homes]
        gates = opened(hosts, stack)
        servers = _servers(homes, stack)
        print("spread of first I/O, ms:  ours  (as the gates say)  fio client/server")
        for number in range(starts):
            if number % 2:
                theirs.append(_by_client_server(homes, servers, place))
            both = _ours(gates, homes)
            ours.append(both[0])
            seen.append(both[1])
            if not number % 2:
                theirs.append(_by_client_server(homes, servers, place))
            row = "  ".join(f"{1000 * each[-1]:8.1f}" for each in (ours, seen, theirs))
            print(f"  {number + 1:3}                    {row}", flush=True)
    for name, found in (("ours", ours), ("gates", seen), ("fio client/server", theirs)):
        print(f"{name:18} {_summary(found)}")
    within = sum(spread <= SPREAD_LIMIT for spread in ours)
    print(f"ours within {format_duration(SPREAD_LIMIT)}: {within} of {starts}")
    return 0 if within >= 0.9 * starts and statistics.median(ours) <= SPREAD_LIMIT else 1


def _summary(found: Sequence[float]) -> str:
    low, middle, high = min(found), statistics.median(found), max(found)
    return f"median {1000 * middle:.1f} ms, {1000 * low:.1f} to {1000 * high:.1f} ms, {len(found)} starts"


def _job(home: Path) -> list[str]:
    """Return the options of one client's job; both ways are given the same."""
    return [
        *("--name=first", f"--filename={home}/data", "--rw=randwrite", "--bs=4096", "--size=4194304"),
        *("--ioengine=psync", "--iodepth=1", "--thread=1", "--time_based=1", f"--runtime={round(RUNTIME)}"),
        *("--allow_file_create=0", "--norandommap=1", "--write_lat_log=first", "--log_unix_epoch=1"),
        *("--per_job_logs=0",),
    ]


def _ours(gates: Sequence[Gate], homes: Sequence[Path]) -> tuple[float, float]:
    for home in homes:
        (home / "first_clat.log").unlink(missing_ok=True)  # fio appends to it
    came = meet(gates, [partial(_load, gate, home) for gate, home in zip(gates, homes, strict=True)])
    first = [_first(home / "first_clat.log") for home in homes]
    said = [one.starts[0] for one in came]
    return max(first) - min(first), max(said) - min(said)


def _load(gate: Gate, home: Path, start: Start) -> Sample:
    command = ["fio", *_job(home), *waiting(start.place, 1), "--output=report"]
    script = f"cd {shlex.quote(str(home))} && exec {shlex.join(command)}"
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


def _by_client_server(homes: Sequence[Path], addresses: Sequence[str], place: Path) -> float:
    command = ["fio", "--output=report"]
    for home, address in zip(homes, addresses, strict=True):
        file = home / "job.fio"
        options = "\n".join(option.removeprefix("--") for option in _job(home)[1:])
        file.write_text(f"[first]\n{options}\n")
        command += [f"--client={address},{PORT}", str(file)]
    for old in place.glob("first_*"):
        old.unlink()
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=DEADLINE, check=False)
    found = []
    for address in addresses:
        with suppress(OSError, ValueError, IndexError):
            found.append(_first(next(place.glob(f"first_clat*{address}*"))))
    if len(found) < len(homes):
        raise StoragetestError(
            f"fio's client/server left {len(found)} logs of {len(homes)}: {done.stderr[-500:]}"
        )
    return max(found) - min(found)


def _first(log: Path) -> float:
    """Return when the first I/O was made, in seconds since the epoch."""
    with log.open() as file:
        milliseconds, nanoseconds = file.readline().split(",")[:2]
    return int(milliseconds) / 1000 - int(nanoseconds) * 1e-9


if __name__ == "__main__":
    sys.exit(main())
