"""Is the metadata workload at least as fast as mdtest?

mdtest (https://github.com/hpc/ior) and the workload do the same on the same directory, in interleaved pairs:
A B, B A, A B … Both make as many directories and files in one directory a process, look at them and take
them away again; the rate is all operations over the time from the first begin to the last end. The ratio of a
pair is one observation. Printed are, for each operation, the medians, the median ratio and the 95 % interval
of the mean ratio (Student's t on the logarithms). Exit status 0: for no operation is the workload shown to be
slower (no interval lies below 1); 1 otherwise; 2: it could not run.

    python benchmarks/mdtest_ratio.py --mdtest mdtest --path /dev/shm
    python benchmarks/mdtest_ratio.py --mdtest "mpirun -np 4 mdtest" --processes 4 --path /mnt/nfs
    python benchmarks/mdtest_ratio.py --mdtest /opt/mdtest --targets targets.yaml --target nfs-v4.2-nconnect1

With ``--target`` mdtest runs on the target's client, where it has to be.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence

from side_by_side import CONFIDENCE, attached, pairs, place_options, ratio

from storagetest.errors import StoragetestError
from storagetest.protocols.base import Attachment
from storagetest.workloads.base import LoadSize
from storagetest.workloads.metadata import Metadata

# The workload's operation → mdtest's line. Its "File read" is left out: it opens for reading and writing, and
# ours for reading. Over NFSv4 the one makes the client return the file's delegation, which the next unlink is
# then spared, and the other never leaves the client.
COMPARED: Mapping[str, str] = {
    "mkdir": "Directory creation",
    "rmdir": "Directory removal",
    "create": "File creation",
    "stat": "File stat",
    "unlink": "File removal",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the pairs, print what came out, and return the exit status."""
    wanted = _parser().parse_args(arguments)
    try:
        with attached(wanted, "benchmarks/mdtest_ratio.py") as (name, attachment):
            load = f"{wanted.files} files each of {wanted.processes} processes"
            print(f"{name} on {attachment.client.name}: {wanted.pairs} pairs, {load}")
            found = pairs(
                wanted.pairs,
                lambda: _mdtest(attachment, wanted),
                lambda: _ours(attachment, wanted),
                list(COMPARED),
            )
        return _report(found)
    except StoragetestError as error:
        print(error, file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    place_options(parser)
    parser.add_argument("--mdtest", default="mdtest", help="the command, with mpirun before it if need be")
    parser.add_argument("--files", type=int, default=5000, help="of each process")
    parser.add_argument("--processes", type=int, default=1, help="as many as --mdtest starts")
    return parser


def _ours(attachment: Attachment, wanted: argparse.Namespace) -> dict[str, float]:
    """Return the workload's rates."""
    load = Metadata()
    options = load.Options.model_validate(
        {
            "whole": True,
            "processes": wanted.processes,
            "files": wanted.files * wanted.processes,
            "operations": list(COMPARED),
        }
    )
    sample = load.measure(attachment, options, LoadSize(1 << 40, 0, 1))
    phases = [json.loads(line) for line in sample.evidence["phases"].splitlines()]
    return {each["phase"]: each["operations"][each["phase"]]["total"] / each["span"] for each in phases}


def _mdtest(attachment: Attachment, wanted: argparse.Namespace) -> dict[str, float]:
    """Return the rates that mdtest prints."""
    command = [*shlex.split(wanted.mdtest), "-n", str(wanted.files), "-d", f"{attachment.path}/mdtest"]
    command += ["-u", "-C", "-T", "-r"]  # create, stat and remove, each process in a directory of its own
    # Open MPI refuses root unless both variables are set.
    env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    stdout = attachment.client.run(command, deadline=600, env=env).stdout
    found = {}
    for name, line in COMPARED.items():
        match = re.search(rf"^\s*{line}\s+([\d.]+)", stdout, re.MULTILINE)
        if match is None:
            raise StoragetestError(f"{shlex.join(command)} printed no rate for {line!r}:\n{stdout[-1000:]}")
        found[name] = float(match[1])
    return found


def _report(found: Mapping[str, Sequence[tuple[float, float]]]) -> int:
    slower = []
    for name, each in found.items():
        seen = ratio(each)
        word = "faster" if seen.low > 1 else "SLOWER" if seen.high < 1 else "level"
        slower += [name] if seen.high < 1 else []
        print(
            f"{name:7} mdtest {seen.theirs:10,.0f}/s  storagetest {seen.ours:10,.0f}/s  median ratio "
            f"{seen.median:.3f}, {CONFIDENCE:.0%} interval {seen.low:.3f} .. {seen.high:.3f}: {word}"
        )
    print(f"shown to be slower than mdtest: {', '.join(slower) or 'none'} ({len(each)} pairs)")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
