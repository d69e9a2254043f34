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
import math
import re
import shlex
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from storagetest import config
from storagetest.errors import StoragetestError
from storagetest.hosts import Host, LocalHost
from storagetest.hosts.connect import connect
from storagetest.measure.stats import mean_interval
from storagetest.protocols.base import Attachment, Protocol, protocols
from storagetest.protocols.local import Local
from storagetest.runner import exclusive
from storagetest.runner.locks import identity
from storagetest.workloads.base import Scale
from storagetest.workloads.metadata import Metadata

CONFIDENCE = 0.95

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
        with _attached(wanted) as (name, attachment):
            load = f"{wanted.files} files each of {wanted.processes} processes"
            print(f"{name} on {attachment.client.name}: {wanted.pairs} pairs, {load}")
            pairs = _measure(attachment, wanted)
    except StoragetestError as error:
        print(error, file=sys.stderr)
        return 2
    return _report(pairs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--path", type=Path, help="a directory on this machine")
    where.add_argument("--target", help="a variant of the targets file (storagetest targets lists them)")
    parser.add_argument("--mdtest", default="mdtest", help="the command, with mpirun before it if need be")
    parser.add_argument("--targets", type=Path, default=Path("targets.yaml"), help="the targets file")
    parser.add_argument("--client", help="the client to run on; the variant's first by default")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--files", type=int, default=5000, help="of each process")
    parser.add_argument("--processes", type=int, default=1, help="as many as --mdtest starts")
    return parser


@contextmanager
def _attached(wanted: argparse.Namespace) -> Iterator[tuple[str, Attachment]]:
    """Attach what was asked for, with its client and server to ourselves."""
    with ExitStack() as stack:
        protocol: Protocol[Any]
        options: Any
        client: Host
        if wanted.path is not None:
            name, protocol, options = "local", Local(), Local.Options(path=str(wanted.path.resolve()))
            client, locks = stack.enter_context(LocalHost()), ["client:local"]
        else:
            loaded = config.load(wanted.targets)
            variant = next((each for each in loaded.variants if each.id == wanted.target), None)
            if variant is None:
                known = ", ".join(each.id for each in loaded.variants)
                raise StoragetestError(f"{wanted.targets} has no variant {wanted.target!r}: {known}")
            named = {machine.name: machine for machine in variant.clients}
            machine = named.get(wanted.client or next(iter(named)))
            if machine is None:
                raise StoragetestError(f"{variant.id} has no client {wanted.client!r}: {', '.join(named)}")
            name, protocol, options = variant.id, protocols.get(variant.protocol)(), variant.options
            client, locks = stack.enter_context(connect(machine)), [f"client:{identity(machine)}"]
        locks.append(f"server:{protocol.server(options)}")
        stack.enter_context(exclusive(locks, timeout=600, what="benchmarks/mdtest_ratio.py"))
        yield name, stack.enter_context(protocol.attach(client, options))


def _measure(attachment: Attachment, wanted: argparse.Namespace) -> dict[str, list[tuple[float, float]]]:
    """Return, for each operation, mdtest's and our rates, pair by pair. A first pair is not counted."""
    load = Metadata()
    options = load.Options.model_validate(
        {
            "whole": True,
            "processes": wanted.processes,
            "files": wanted.files * wanted.processes,
            "operations": list(COMPARED),
        }
    )

    def ours() -> dict[str, float]:
        sample = load.measure(attachment, options, Scale(1 << 40, 0, 1))
        phases = [json.loads(line) for line in sample.evidence["phases"].splitlines()]
        return {each["phase"]: each["lanes"][each["phase"]]["total"] / each["span"] for each in phases}

    def theirs() -> dict[str, float]:
        return _mdtest(attachment, wanted)

    ours(), theirs()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in COMPARED}
    for number in range(wanted.pairs):
        if number % 2:
            mine = ours()
            other = theirs()
        else:
            other = theirs()
            mine = ours()
        for name, pairs in found.items():
            pairs.append((other[name], mine[name]))
        ratios = "  ".join(f"{name} {mine[name] / other[name]:.3f}" for name in COMPARED)
        print(f"  {number + 1:3}  {ratios}", flush=True)
    return found


def _mdtest(attachment: Attachment, wanted: argparse.Namespace) -> dict[str, float]:
    """Return the rates that mdtest prints."""
    command = [*shlex.split(wanted.mdtest), "-n", str(wanted.files), "-d", f"{attachment.path}/mdtest"]
    command += ["-u", "-C", "-T", "-r"]  # create, stat and remove, each process in a directory of its own
    # Open MPI refuses root unless it is told twice.
    env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    said = attachment.client.run(command, deadline=600, env=env).stdout
    found = {}
    for name, line in COMPARED.items():
        match = re.search(rf"^\s*{line}\s+([\d.]+)", said, re.MULTILINE)
        if match is None:
            raise StoragetestError(f"{shlex.join(command)} printed no rate for {line!r}:\n{said[-1000:]}")
        found[name] = float(match[1])
    return found


def _report(found: Mapping[str, Sequence[tuple[float, float]]]) -> int:
    slower = []
    for name, pairs in found.items():
        ratios = [mine / other for other, mine in pairs]
        interval = mean_interval([math.log(ratio) for ratio in ratios], CONFIDENCE)
        if interval is None:
            print("one pair has no interval: ask for two or more", file=sys.stderr)
            return 2
        low, high = math.exp(interval.low), math.exp(interval.high)
        other, mine = (statistics.median(column) for column in zip(*pairs, strict=True))
        word = "faster" if low > 1 else "SLOWER" if high < 1 else "level"
        slower += [name] if high < 1 else []
        print(
            f"{name:7} mdtest {other:10,.0f}/s  storagetest {mine:10,.0f}/s  median ratio "
            f"{statistics.median(ratios):.3f}, {CONFIDENCE:.0%} interval {low:.3f} .. {high:.3f}: {word}"
        )
    print(f"shown to be slower than mdtest: {', '.join(slower) or 'none'} ({len(pairs)} pairs)")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
