"""How fast, and in how much memory, is fio's log of every single I/O parsed?

A log is written as fio writes it (seeded; log-normal latencies, reads and writes, offset and priority
columns), then parsed in a process of its own. Printed are lines per second, the best and the median of
several passes, by the clock and by processor time, and the process's peak resident memory. The parser's
histogram is compared with that of the numbers that were written. Exit status 0: at least 5 million lines/s in
the median by the clock, at most 1 GiB, and equal; else 1.

    python benchmarks/latency_log.py
    python benchmarks/latency_log.py --lines 50000000 --keep /var/tmp/big.log
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from storagetest.measure.histogram import Histogram
from storagetest.measure.latency_log import parse, read

FAST_ENOUGH = 5_000_000
MEMORY = 1 << 30
SLICE = 200_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Write, parse, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--median-us", type=float, default=250.0, help="of the latencies, in microseconds")
    parser.add_argument("--keep", type=Path, help="write the log here, and leave it")
    parser.add_argument("--parse", type=Path, help=argparse.SUPPRESS)
    wanted = parser.parse_args(arguments)
    if wanted.parse:
        return _child(wanted.parse, wanted.passes)
    with tempfile.TemporaryDirectory() as directory:
        path = wanted.keep or Path(directory) / "clat.log"
        expected = _write(path, wanted.lines, wanted.median_us)
        size = path.stat().st_size
        print(f"{wanted.lines:,} lines, {size / 2**20:,.0f} MiB", flush=True)
        command = [sys.executable, __file__, "--parse", str(path), "--passes", str(wanted.passes)]
        stdout = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        found = read(path).directions
    rates = [wanted.lines / float(seconds) for seconds in stdout[1::2]]
    busy = [wanted.lines / float(seconds) for seconds in stdout[2::2]]
    peak = int(stdout[0])
    median, equal = statistics.median(rates), dict(found) == expected
    print(f"median {median / 1e6:.2f}, best {max(rates) / 1e6:.2f} million lines/s over {len(rates)} passes")
    print(f"by processor time: median {statistics.median(busy) / 1e6:.2f}, best {max(busy) / 1e6:.2f}")
    print(f"peak resident memory {peak / 2**20:,.0f} MiB; histograms {'equal' if equal else 'DIFFER'}")
    good = median >= FAST_ENOUGH and peak <= MEMORY and equal
    print(f"{'meets' if good else 'MISSES'} {FAST_ENOUGH / 1e6:g} million lines/s within 1 GiB")
    return 0 if good else 1


def _write(path: Path, lines: int, median_us: float) -> dict[str, Histogram]:
    """Write the log and return its latencies' histograms, counted by the plain parser in small pieces."""
    made = np.random.default_rng(1)
    values = (median_us * 1000 * made.lognormal(0, 1, SLICE)).astype(np.int64)
    ways = made.integers(0, 2, SLICE)
    offsets = made.integers(0, 1 << 24, SLICE) * 4096
    rows = zip(values.tolist(), ways.tolist(), offsets.tolist(), strict=True)
    pieces = [f", {value}, {way}, 4096, {offset}, 0\n" for value, way, offset in rows]
    left = lines
    with path.open("w") as file:
        at = 0
        while left:
            part = pieces[: min(left, SLICE)]
            file.write("".join(f"{at + number // 1000}{piece}" for number, piece in enumerate(part)))
            left -= len(part)
            at += len(part) // 1000
    whole, rest = divmod(lines, SLICE)
    found = {}
    for way, name in enumerate(("read", "write")):
        every = Histogram.of((values[ways == way] * 1e-9).tolist())
        last = Histogram.of((values[:rest][ways[:rest] == way] * 1e-9).tolist())
        times = Histogram(tuple((ns, count * whole) for ns, count in every.bins)) if whole else Histogram()
        found[name] = times + last
    return {name: histogram for name, histogram in found.items() if histogram.count}


def _child(path: Path, passes: int) -> int:
    parse([b"1, 1, 0, 1, 0\n"])  # what is imported and made at the first call
    seconds = []
    for _ in range(passes):
        began, busy = time.perf_counter(), time.process_time()
        read(path)
        seconds += [time.perf_counter() - began, time.process_time() - busy]
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, *seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
