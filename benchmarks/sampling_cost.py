"""What does sampling the counters cost?

The sampler runs on this machine, or on a client or server of a targets file, at the interval asked for, with
nothing else to do. Printed is the processor time that its readings took (user and system, by the process's
own clock) as a share of one core. Exit status 0: at most 0.5 % of a core; 1: more; 2: it could not run.

    python benchmarks/sampling_cost.py
    python benchmarks/sampling_cost.py --targets targets.yaml --machine client1 --seconds 30
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from storagetest import config
from storagetest.errors import StoragetestError
from storagetest.hosts import Host, LocalHost
from storagetest.hosts.connect import connect
from storagetest.runner.sampling import CounterSampling
from storagetest.runner.throughput_watch import ThroughputWatch
from storagetest.units import parse_duration

LIMIT = 0.005


def main(arguments: Sequence[str] | None = None) -> int:
    """Sample, print what it cost, and return the exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--targets", type=Path, default=Path("targets.yaml"), help="the targets file")
    parser.add_argument("--machine", help="a client or server of it; this machine by default")
    parser.add_argument("--interval", type=parse_duration, default=1.0, help="such as 1s")
    parser.add_argument(
        "--watch", type=parse_duration, default=0.0, help="interval of progress messages, such as 2s"
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    wanted = parser.parse_args(arguments)
    try:
        with _host(wanted.targets, wanted.machine) as host:
            host.run(["true"], deadline=60)  # log in first
            watch = ThroughputWatch("/", wanted.watch, lambda _: None) if wanted.watch else None
            sampling = CounterSampling((host,), wanted.interval, watch=watch)
            sampling.start()
            time.sleep(wanted.seconds)
            (found,) = sampling.stop()
    except StoragetestError as error:
        print(error, file=sys.stderr)
        return 2
    if found.note:
        print(found.note, file=sys.stderr)
        return 2
    files = len(found.moments[-1].texts)
    size = sum(len(text) for text in found.moments[-1].texts.values())
    print(
        f"{host.name}: {len(found.moments)} readings of {files} files ({size:,} bytes) every "
        f"{wanted.interval:g} s: {found.cost:.3%} of a core"
    )
    within = found.cost <= LIMIT
    print(f"{'at most' if within else 'MORE THAN'} {LIMIT:.1%} of a core")
    return 0 if within else 1


def _host(targets: Path, name: str | None) -> Host:
    if name is None:
        return LocalHost()
    loaded = config.load(targets)
    machines = {**loaded.clients, **loaded.servers}
    if name not in machines:
        raise StoragetestError(f"{targets} has no machine {name!r}; known: {', '.join(machines)}")
    return connect(machines[name])


if __name__ == "__main__":
    sys.exit(main())
