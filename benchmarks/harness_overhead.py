"""What does storagetest add to a case, besides the load itself?

A *case* is what the plugin does for one measuring case: attach, versions, ceiling, fill, repeats, detach.
What it adds is its whole time, less that of attaching and detaching, less what the fio processes of fill and
repeats took (from before each is started to after it has ended, by the client's clock). So it is everything
else: the connection's round trips, shells, counters read, sampling and putting it all together. It is printed
for the first case on a client, which asks for versions and measures the ceiling, and for those after it. A
user meets more: fio itself starts, calibrates its clock and ends in each repeat. That is printed too, as the
case less ramps, runtimes and fill. Exit status 0: the median added is at most 100 ms (``--path``), or 3 %
of the case (``--target``); 1: more; 2: it could not run.

    python benchmarks/harness_overhead.py --path /var/tmp
    python benchmarks/harness_overhead.py --targets targets.yaml --target nfs-v4.2-nconnect1 --client client1
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storagetest import config
from storagetest.config.base import TargetOptions
from storagetest.errors import StoragetestError
from storagetest.hosts import Host, LocalHost
from storagetest.hosts.connect import connect
from storagetest.protocols.base import Attachment, Protocol, protocols
from storagetest.protocols.local import Local
from storagetest.runner import CaseInfo, PrefillCache, run_case
from storagetest.units import format_duration, parse_duration, parse_size
from storagetest.workloads._fio import base as fio_load
from storagetest.workloads._fio.run import FioOutcome, run_fio
from storagetest.workloads.base import LoadSize
from storagetest.workloads.small_random_write import SmallRandomWrite

LOCAL_LIMIT = 0.1
LAB_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class CaseTimes:
    """Seconds of a whole case, what storagetest added to it, and what fio took beyond ramps and runtimes."""

    whole: float
    added: float
    fio: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases, print what came out, and return the exit status."""
    wanted = _parser().parse_args(arguments)
    scale = LoadSize(wanted.size, wanted.ramp, wanted.runtime, interval=wanted.interval)
    try:
        client, extra_hosts, protocol, options = _found(wanted)
        with client:
            for host in (client, *extra_hosts):
                host.run(["true"], deadline=60)  # log in first: a session does that once
            cases = []
            for number in range(wanted.cases + 1):
                cases.append(_case(client, extra_hosts, protocol, options, scale, wanted.repeats))
                one = cases[-1]
                print(
                    f"  {number:3}  case {one.whole:8.3f} s, of which added {one.added * 1000:6.0f} ms; "
                    f"by fio's starts and ends {one.fio * 1000:6.0f} ms",
                    flush=True,
                )
    except StoragetestError as error:
        print(error, file=sys.stderr)
        return 2
    return _report(cases, local=wanted.path is not None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--path", type=Path, help="a directory on this machine")
    where.add_argument("--target", help="a variant of the targets file (storagetest targets lists them)")
    parser.add_argument("--targets", type=Path, default=Path("targets.yaml"), help="the targets file")
    parser.add_argument("--client", help="the client to run on; the variant's first by default")
    parser.add_argument("--cases", type=int, default=5)
    parser.add_argument("--runtime", type=parse_duration, default=3.0, help="of each repeat, such as 3s")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ramp", type=parse_duration, default=0.3)
    parser.add_argument("--size", type=parse_size, default=16 << 20)
    parser.add_argument("--interval", type=parse_duration, default=1.0, help="of sampling; 0s: none")
    return parser


def _found(wanted: argparse.Namespace) -> tuple[Host, tuple[Host, ...], Protocol[Any], TargetOptions]:
    if wanted.path is not None:
        return LocalHost(), (), Local(), Local.Options(path=str(wanted.path.resolve()))
    loaded = config.load(wanted.targets)
    variant = next((each for each in loaded.variants if each.id == wanted.target), None)
    if variant is None:
        raise StoragetestError(f"{wanted.targets} has no variant {wanted.target!r}")
    machine = next((one for one in variant.clients if wanted.client in (None, one.name)), None)
    if machine is None:
        raise StoragetestError(f"{variant.id} has no client {wanted.client!r}")
    extra_hosts = (connect(variant.server),) if variant.server else ()
    return connect(machine), extra_hosts, protocols.get(variant.protocol)(), variant.options


def _case(
    client: Host,
    extra_hosts: tuple[Host, ...],
    protocol: Protocol[Any],
    options: TargetOptions,
    scale: LoadSize,
    repeats: int,
) -> CaseTimes:
    load: list[float] = []
    filled: list[float] = []

    def watched(client: Host, *jobs: Any, **more: Any) -> FioOutcome:  # noqa: ANN401  # as it comes
        done = run_fio(client, *jobs, **more)
        if all(job.engine != "null" for job in jobs):  # the ceiling is ours
            load.append(done.counted.seconds)
            if jobs[0].runtime is None:
                filled.append(load[-1])
        return done

    before = fio_load.run_fio
    fio_load.run_fio = watched
    try:
        began = time.monotonic()
        with protocol.attach(client, options) as attachment:
            attached = time.monotonic()
            _run(attachment, extra_hosts, scale, repeats)
            measured = time.monotonic()
        ended = time.monotonic()
    finally:
        fio_load.run_fio = before
    added = measured - attached - sum(load)
    return CaseTimes(ended - began, added, sum(load) - sum(filled) - repeats * (scale.ramp + scale.runtime))


def _run(attachment: Attachment, extra_hosts: tuple[Host, ...], scale: LoadSize, repeats: int) -> None:
    load = SmallRandomWrite()
    run_case(
        load,
        load.Options(),
        attachment,
        scale,
        repeats=repeats,
        max_repeats=repeats,
        gates=(),
        case=CaseInfo("overhead", load.name, "t", "v", "p", attachment.client.name),
        fills=PrefillCache(),
        extra_hosts=extra_hosts,
    )


def _report(cases: list[CaseTimes], *, local: bool) -> int:
    first, *others = cases
    added = [one.added for one in others]
    middle, whole = statistics.median(added), statistics.median(one.whole for one in others)
    print(f"the first case on a client: {format_duration(first.added)}, with versions and ceiling")
    print(f"fio's starts and ends: median {format_duration(statistics.median(one.fio for one in others))}")
    print(
        f"each case after it: median {format_duration(middle)} of {format_duration(whole)}"
        f" ({middle / whole:.2%}), {format_duration(min(added))} to {format_duration(max(added))}"
    )
    limit = LOCAL_LIMIT if local else LAB_SHARE * whole
    print(f"{'at most' if middle <= limit else 'MORE THAN'} {format_duration(limit)}")
    return 0 if middle <= limit else 1


if __name__ == "__main__":
    sys.exit(main())
