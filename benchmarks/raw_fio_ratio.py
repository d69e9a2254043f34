"""Does storagetest's figure equal that of fio run by hand?

On one attachment, fio is run by hand (one command, its own JSON) and through storagetest's line
(``run_case`` with one repeat), in interleaved pairs: A B, B A, A B … The ratio of a pair's IOPS is one
observation. What else the machine does hits single runs, and hard, so the verdict is on the median: Hodges
and Lehmann's estimate with the 95 % interval of Wilcoxon's signed ranks (Hollander, Wolfe, Chicken,
Nonparametric Statistical Methods, 3.2 and 3.3), on the logarithms. The mean with Student's t is also
printed. Exit status 0: 1.00 lies inside the interval and the interval's half-width is at most 3 %;
1 otherwise; 2: it could not run.

A sequential load has few, large blocks. Its figure is no more exact than the blocks that are cut by the ends
of the window, about one of those that fit into it. Each pair's resolution is therefore printed: a window with
less than a hundred blocks shows nothing to 1 %.

    python benchmarks/raw_fio_ratio.py --path /var/tmp
    python benchmarks/raw_fio_ratio.py --path /mnt/limited --load sequential-read --runtime 10s
    python benchmarks/raw_fio_ratio.py --targets targets.yaml --target nfs-v4.2-nconnect1 --client client1
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from side_by_side import CONFIDENCE, attached, place_options

from storagetest.errors import StoragetestError
from storagetest.measure.stats import Interval, mean_interval
from storagetest.protocols.base import Attachment, AttachmentKind
from storagetest.runner import CaseInfo, PrefillCache, run_case
from storagetest.units import format_duration, format_size, parse_duration, parse_size
from storagetest.workloads.base import LoadSize, Workload
from storagetest.workloads.sequential import Sequential
from storagetest.workloads.small_random_write import SmallRandomWrite

HALF_WIDTH = 0.03


@dataclass(frozen=True)
class Load:
    """A load of both: the workload's options, and fio's ``rw``, block size and queue depth."""

    workload: type[Workload[Any]]
    options: Mapping[str, Any]
    rw: str
    block: int
    depth: int


LOADS = {
    "random-write": Load(SmallRandomWrite, {}, "randwrite", 4096, 8),
    "sequential-read": Load(Sequential, {"direction": "read"}, "read", 1 << 20, 4),
    "sequential-write": Load(Sequential, {"direction": "write"}, "write", 1 << 20, 4),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the pairs, print what came out, and return the exit status."""
    wanted = _parser().parse_args(arguments)
    scale = LoadSize(wanted.size, wanted.ramp, wanted.runtime, interval=wanted.interval)
    try:
        with attached(wanted, "benchmarks/raw_fio_ratio.py") as (name, attachment):
            chosen = _chosen(wanted)
            load = (
                f"{chosen.rw} {format_size(chosen.block)} at depth {chosen.depth}, {format_size(scale.size)}"
            )
            time = f"{format_duration(scale.runtime)} (ramp {format_duration(scale.ramp)})"
            print(f"{name} on {attachment.client.name}: {wanted.pairs} pairs of {time}, {load}")
            ratios = _measure(name, attachment, scale, wanted.pairs, chosen)
    except StoragetestError as error:
        print(error, file=sys.stderr)
        return 2
    return _report(ratios)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    place_options(parser)
    parser.add_argument("--load", choices=LOADS, default="random-write")
    parser.add_argument("--block", type=parse_size, help="bytes per I/O")
    parser.add_argument("--depth", type=int, help="I/Os in flight")
    parser.add_argument("--runtime", type=parse_duration, default=3.0, help="of each run, such as 3s")
    parser.add_argument("--ramp", type=parse_duration, default=0.5)
    parser.add_argument(
        "--interval",
        type=parse_duration,
        default=0.0,
        help="interval of storagetest's counter sampling (0: none)",
    )
    parser.add_argument("--size", type=parse_size, default=64 << 20, help="of the data set, such as 64MiB")
    return parser


def _chosen(wanted: argparse.Namespace) -> Load:
    load = LOADS[wanted.load]
    block, depth = wanted.block or load.block, wanted.depth or load.depth
    options = {**load.options, "block_size": block, "queue_depth": depth}
    return replace(load, options=options, block=block, depth=depth)


def _measure(name: str, attachment: Attachment, scale: LoadSize, pairs: int, chosen: Load) -> list[float]:
    """Return storagetest's IOPS over fio's, pair by pair. A first pair warms up and is not counted."""
    fills = PrefillCache()
    case = CaseInfo("raw_fio_ratio", chosen.workload.name, name, name, "", attachment.client.name)

    def ours() -> float:
        load = chosen.workload()
        options = load.Options.model_validate(chosen.options)
        run, _ = run_case(
            load, options, attachment, scale, repeats=1, max_repeats=1, gates=(), case=case, fills=fills
        )
        return run.samples[0].values["iops"]

    def by_hand() -> float:
        return _raw_fio(attachment, scale, chosen)

    ours(), by_hand()
    ratios: list[float] = []
    for number in range(pairs):
        if number % 2:
            mine = ours()
            raw = by_hand()
        else:
            raw = by_hand()
            mine = ours()
        ratios.append(mine / raw)
        print(
            f"  {number + 1:3}  fio {raw:10,.1f}/s  storagetest {mine:10,.1f}/s  ratio {mine / raw:.4f}"
            f"  (one of {raw * scale.runtime:,.0f} blocks is {1 / raw / scale.runtime:.2%})",
            flush=True,
        )
    return ratios


def _raw_fio(attachment: Attachment, scale: LoadSize, load: Load) -> float:
    """Return the IOPS that fio prints if it is run by this command."""
    path = attachment.path
    if attachment.kind is AttachmentKind.FILESYSTEM:
        path = f"{path}/storagetest-{scale.size}.dat"  # the file that the first run of ours has filled
    size = min(scale.size, attachment.size)
    command = ["fio", "--name=byhand", f"--filename={path.replace(':', chr(92) + ':')}", f"--size={size}"]
    command += [f"--rw={load.rw}", f"--bs={load.block}", f"--iodepth={load.depth}"]
    command += ["--ioengine=libaio", "--direct=1"]
    # A thread, as ours: between processes an emulated client loses its TLB at every switch.
    command += ["--refill_buffers", "--norandommap", "--group_reporting", "--time_based", "--thread"]
    command += [f"--runtime={round(scale.runtime * 1000)}ms", "--output-format=json"]
    if scale.ramp:
        command.append(f"--ramp_time={round(scale.ramp * 1000)}ms")
    done = attachment.client.run(command, deadline=scale.ramp + scale.runtime + 60)
    text, direction = done.stdout, "read" if load.rw == "read" else "write"
    return float(json.loads(text[text.index("{") : text.rindex("}") + 1])["jobs"][0][direction]["iops"])


def _report(ratios: Sequence[float]) -> int:
    logs = [math.log(ratio) for ratio in ratios]
    mean, median = mean_interval(logs, CONFIDENCE), _median_interval(logs)
    if mean is None or median is None:
        print("so few pairs have no interval: ask for six or more", file=sys.stderr)
        return 2
    _print("mean", mean)
    _print("median", median)
    low, high = math.exp(median.low), math.exp(median.high)
    inside, narrow = low <= 1 <= high, (high - low) / 2 <= HALF_WIDTH
    print(
        f"1.00 lies {'inside' if inside else 'OUTSIDE'} the median's interval; its half-width is "
        f"{'at most' if narrow else 'MORE THAN'} {HALF_WIDTH:.0%}"
    )
    return 0 if inside and narrow else 1


def _median_interval(values: Sequence[float]) -> Interval | None:
    """Return the median of the Walsh averages, and those that the signed ranks leave as its bounds."""
    count = len(values)
    averages = sorted((a + b) / 2 for a, b in itertools.combinations_with_replacement(values, 2))
    spread = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    skip = math.floor(count * (count + 1) / 4 - z * spread)
    if skip < 1:
        return None
    return Interval(statistics.median(averages), averages[skip - 1], averages[-skip], CONFIDENCE, count)


def _print(what: str, found: Interval) -> None:
    low, middle, high = (math.exp(value) for value in (found.low, found.mean, found.high))
    print(
        f"storagetest / fio: {what} {middle:.4f}, {CONFIDENCE:.0%} interval {low:.4f} .. {high:.4f} "
        f"({found.count} pairs), half-width {(high - low) / 2:.2%}"
    )


if __name__ == "__main__":
    sys.exit(main())
