"""Does the bonnie workload find what Bonnie++ finds?

Debian's bonnie++ (2.00) and the workload do the same on the same directory, in turns: a file written,
rewritten and read by the block, seeks, and empty files created, looked at and deleted, in order and at
random. This is a cross-check, not a race: printed are, for each figure, the medians, the median ratio and
the 95 % interval of the mean ratio. Characters are left out: Bonnie++ 2 moves them by a system call each,
1.03 through a buffered stream.

Exit status 0: no figure is shown to differ by more than ``--within`` (a factor); 1 otherwise; 2: it could
not run. What takes less than half a second Bonnie++ does not state ("+++++"): such figures are left out, so
the size and the number of files have to suit the target.

    python benchmarks/bonnie_ratio.py --path /mnt/nfs --size 64 --files 4
    python benchmarks/bonnie_ratio.py --targets targets.yaml --target nfs-v4.2-nconnect1 --sync
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence

from side_by_side import CONFIDENCE, attached, pairs, place_options, ratio

from storagetest.errors import StoragetestError
from storagetest.protocols.base import Attachment
from storagetest.workloads.base import LoadSize
from storagetest.workloads.bonnie import Bonnie

CHUNK = 8192
SEEKERS, SEEKS = 5, 8192  # constants of bonnie++ 2.00

# The workload's figure → its field in bonnie++'s line (format 1.98), and the factor to the base unit.
FIELDS: Mapping[str, tuple[int, int]] = {
    "block_write": (11, 1024),
    "rewrite": (13, 1024),
    "block_read": (17, 1024),
    "seeks": (19, 1),
    "sequential_create": (26, 1),
    "sequential_stat": (28, 1),
    "sequential_delete": (30, 1),
    "random_create": (32, 1),
    "random_stat": (34, 1),
    "random_delete": (36, 1),
}

PER_CORE = {f"{name} per core": name for name in ("block_write", "rewrite", "block_read")}
"""Bytes per second of processor time: a busy machine or target changes it little."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the pairs, print what came out, and return the exit status."""
    wanted = _parser().parse_args(arguments)
    try:
        with attached(wanted, "benchmarks/bonnie_ratio.py") as (name, attachment):
            print(
                f"{name} on {attachment.client.name}: {wanted.pairs} pairs, {wanted.size} MiB, "
                f"{wanted.files * 1024} files{', every write flushed' if wanted.sync else ''}"
            )
            found = pairs(
                wanted.pairs,
                lambda: _theirs(attachment, wanted),
                lambda: _ours(attachment, wanted),
                [*FIELDS, *PER_CORE],
            )
        return _report(found, wanted.within)
    except StoragetestError as error:
        print(error, file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    place_options(parser)
    parser.add_argument("--bonnie", default="bonnie++", help="the command")
    parser.add_argument("--size", type=int, default=64, help="of the file, in MiB")
    parser.add_argument("--files", type=int, default=4, help="empty files, in multiples of 1024")
    parser.add_argument("--sync", action="store_true", help="flush after every write and creation (-b)")
    parser.add_argument("--within", type=float, default=1.5, help="the factor that is too much")
    return parser


def _ours(attachment: Attachment, wanted: argparse.Namespace) -> dict[str, float]:
    """Return the workload's figures, all phases whole."""
    load = Bonnie()
    options = load.Options.model_validate(
        {
            "whole": True,
            "characters": False,
            "chunk_size": CHUNK,
            "seekers": SEEKERS,
            "seeks": SEEKS,
            "files": wanted.files * 1024,
            "sync": wanted.sync,
            "sync_on_close": True,
            "cold": False,
        }
    )
    values = load.measure(attachment, options, LoadSize(wanted.size << 20, 0, 1)).values
    per_core = {name: values[of] / values[f"{of}_cpu"] for name, of in PER_CORE.items()}
    return per_core | {name: values[name] for name in FIELDS if name in values}


def _theirs(attachment: Attachment, wanted: argparse.Namespace) -> dict[str, float]:
    """Return what bonnie++ states; see the module for what it leaves out."""
    command = [*shlex.split(wanted.bonnie), "-d", attachment.path, "-s", f"{wanted.size}:{CHUNK}"]
    # bonnie++ refuses small files, or many, for a larger memory (-r); it uses the size for nothing else.
    command += ["-n", f"{wanted.files}:0:0:1", "-r", str(max(1, wanted.size // 2))]
    command += ["-u", "root", "-m", "x", "-q", "-f"]
    stdout = attachment.client.run([*command, *(["-b"] if wanted.sync else [])], deadline=1800).stdout
    line = next((line for line in stdout.splitlines() if line.startswith("1.98,")), None)
    if line is None:
        raise StoragetestError(f"{shlex.join(command)} printed no line of format 1.98:\n{stdout[-1000:]}")
    fields = line.split(",")
    found = {
        name: float(fields[number]) * factor
        for name, (number, factor) in FIELDS.items()
        if fields[number] and "+" not in fields[number]
    }
    for name, of in PER_CORE.items():
        percent = fields[FIELDS[of][0] + 1]
        if of in found and percent.isdigit() and int(percent):
            found[name] = found[of] / int(percent) * 100
    return found


def _report(found: Mapping[str, Sequence[tuple[float, float]]], within: float) -> int:
    apart = []
    for name, each in found.items():
        if len(each) < 2:
            print(f"{name:20} too quick for bonnie++ to state")
            continue
        seen = ratio(each)
        differs = seen.low > within or seen.high < 1 / within
        apart += [name] if differs else []
        unit = "MiB/s" if FIELDS[PER_CORE.get(name, name)][1] > 1 else "/s"
        theirs, ours = (value / (1 << 20 if unit == "MiB/s" else 1) for value in (seen.theirs, seen.ours))
        print(
            f"{name:20} bonnie++ {theirs:10,.1f} {unit}  storagetest {ours:10,.1f} {unit}  median ratio "
            f"{seen.median:.3f}, {CONFIDENCE:.0%} interval {seen.low:.3f} .. {seen.high:.3f} "
            f"({seen.count} pairs){': APART' if differs else ''}"
        )
    print(f"shown to differ by more than a factor of {within:g}: {', '.join(apart) or 'none'}")
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
