"""Does storagetest's figure equal that of fio run by hand?

On one attachment, fio is run by hand (one command, its own JSON) and through storagetest's line
(``run_case`` with one repeat), in interleaved pairs: A B, B A, A B … The ratio of a pair's IOPS is one
observation. What else the machine does hits single runs, and hard, so the verdict is on the median: Hodges
and Lehmann's estimate with the 95 % interval of Wilcoxon's signed ranks (Hollander, Wolfe, Chicken,
Nonparametric Statistical Methods, 3.2 and 3.3), on the logarithms. The mean with Student's t is also
printed. Exit status 0: 1.00 lies inside the interval and the interval's half-width is at most 3 %;
1 otherwise; 2: it could not run.

    python benchmarks/raw_fio_ratio.py --path /var/tmp
    python benchmarks/raw_fio_ratio.py --targets targets.yaml --target nfs-v4.2-nconnect1 --client client1
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Sequence

from side_by_side import CONFIDENCE, attached, place_options

from storagetest.errors import StoragetestError
from storagetest.measure.stats import Interval, mean_interval
from storagetest.protocols.base import Attachment, AttachmentKind
from storagetest.runner import CaseInfo, PrefillCache, run_case
from storagetest.units import format_duration, format_size, parse_duration, parse_size
from storagetest.workloads.base import LoadSize
from storagetest.workloads.small_random_write import SmallRandomWrite

HALF_WIDTH = 0.03
DEPTH, BLOCK = 8, 4096


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the pairs, print what came out, and return the exit status."""
    wanted = _parser().parse_args(arguments)
    scale = LoadSize(wanted.size, wanted.ramp, wanted.runtime, interval=wanted.interval)
    try:
        with attached(wanted, "benchmarks/raw_fio_ratio.py") as (name, attachment):
            load = f"randwrite {format_size(BLOCK)} at depth {DEPTH}, {format_size(scale.size)}"
            time = f"{format_duration(scale.runtime)} (ramp {format_duration(scale.ramp)})"
            print(f"{name} on {attachment.client.name}: {wanted.pairs} pairs of {time}, {load}")
            ratios = _measure(name, attachment, scale, wanted.pairs)
    except StoragetestError as error:
        print(error, file=sys.stderr)
        return 2
    return _report(ratios)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    place_options(parser)
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


def _measure(name: str, attachment: Attachment, scale: LoadSize, pairs: int) -> list[float]:
    """Return storagetest's IOPS over fio's, pair by pair. A first pair warms up and is not counted."""
    fills = PrefillCache()
    case = CaseInfo("raw_fio_ratio", SmallRandomWrite.name, name, name, "", attachment.client.name)

    def ours() -> float:
        load = SmallRandomWrite()
        options = load.Options(block_size=BLOCK, queue_depth=DEPTH)
        run, _ = run_case(
            load, options, attachment, scale, repeats=1, max_repeats=1, gates=(), case=case, fills=fills
        )
        return run.samples[0].values["iops"]

    def by_hand() -> float:
        return _raw_fio(attachment, scale)

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
            f"  {number + 1:3}  fio {raw:10,.0f}/s  storagetest {mine:10,.0f}/s  ratio {mine / raw:.4f}",
            flush=True,
        )
    return ratios


def _raw_fio(attachment: Attachment, scale: LoadSize) -> float:
    """Return the IOPS that fio prints if it is run by this command."""
    path = attachment.path
    if attachment.kind is AttachmentKind.FILESYSTEM:
        path = f"{path}/storagetest-{scale.size}.dat"  # the file that the first run of ours has filled
    size = min(scale.size, attachment.size)
    command = ["fio", "--name=byhand", f"--filename={path.replace(':', chr(92) + ':')}", f"--size={size}"]
    command += ["--rw=randwrite", f"--bs={BLOCK}", f"--iodepth={DEPTH}", "--ioengine=libaio", "--direct=1"]
    # A thread, as ours: between processes an emulated client loses its TLB at every switch.
    command += ["--refill_buffers", "--norandommap", "--group_reporting", "--time_based", "--thread"]
    command += [f"--runtime={round(scale.runtime * 1000)}ms", "--output-format=json"]
    if scale.ramp:
        command.append(f"--ramp_time={round(scale.ramp * 1000)}ms")
    done = attachment.client.run(command, deadline=scale.ramp + scale.runtime + 60)
    text = done.stdout
    return float(json.loads(text[text.index("{") : text.rindex("}") + 1])["jobs"][0]["write"]["iops"])


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
