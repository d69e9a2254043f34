"""Simulated records in any number, for benchmarks of reports: real shapes, seeded random values."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from storagetest.measure.bottleneck import Bottleneck, Limiter
from storagetest.measure.histogram import Histogram, bucket
from storagetest.measure.run import METRICS, Run, Sample
from storagetest.measure.series import LOAD, Series
from storagetest.measure.stats import Interval
from storagetest.measure.unit import Unit
from storagetest.report.base import Record
from storagetest.report.coverage import CaseOutcome, CaseRecord, Level
from storagetest.verdict.base import Outcome, Threshold, Verdict

TITLES = {"nfs": "NFS", "smb": "SMB", "iscsi": "iSCSI", "nvme-tcp": "NVMe/TCP", "lustre": "Lustre"}
VARIANTS = tuple(
    f"{protocol}-{option}" for protocol in TITLES for option in ("plain", "tuned", "secure", "wide", "deep")
)
WORKLOADS = ("sequential", "small-random-read", "small-random-write", "random-mixed", "mixed-access")
SIZES = tuple(1024 << number for number in range(13))
DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128)
_REPEATS = 3


def records(count: int, *, evidence: bool = True) -> Iterator[Record]:
    """Yield ``count`` cases; every tenth misses its gate, every twentieth is INVALID."""
    every = itertools.product(DEPTHS, SIZES, WORKLOADS, VARIANTS)
    for number, (depth, size, workload, variant) in zip(range(count), itertools.cycle(every), strict=False):
        round_ = number // (len(DEPTHS) * len(SIZES) * len(WORKLOADS) * len(VARIANTS))
        yield record(number, workload, variant, size, depth, profile=f"simulated{round_}", evidence=evidence)


def record(
    number: int, workload: str, variant: str, size: int, depth: int, *, profile: str, evidence: bool
) -> Record:
    """Return one case."""
    rng = random.Random(number)
    speed = (1 + VARIANTS.index(variant) % 7) * 2000.0 * depth**0.6 / (1 + size / 65536)
    samples = tuple(_sample(rng, speed * rng.gauss(1, 0.02), size, depth, evidence) for _ in range(_REPEATS))
    outcome = Outcome.INVALID if number % 20 == 7 else Outcome.FAIL if number % 10 == 3 else Outcome.PASS
    threshold = Threshold(
        METRICS["iops"], ">=", speed * 0.9, f"iops >= {speed * 0.9:.0f}", "targets.yaml:9:9"
    )
    reason = f"iops: required >= {speed * 0.9:,.0f}/s, measured {speed:,.0f}/s (made up)"
    interval = Interval(speed, speed * 0.98, speed * 1.02, 0.99, _REPEATS)
    asked = {"direction": "write", "block_size": size, "queue_depth": depth}
    run = Run(
        case=f"suites/performance/test_{workload.replace('-', '_')}.py::test_{number}[{variant}]",
        workload=workload,
        target=variant.rpartition("-")[0],
        variant=variant,
        protocol=variant.rpartition("-")[0],
        client="client1",
        title=f"{workload} write {size // 1024}KiB queue_depth={depth}",
        parameters=asked,
        negotiated={"vers": "4.2", "rsize": "1048576", "wsize": "1048576", "nconnect": "4"},
        samples=samples,
        started=1_790_000_000.0 + number,
        profile=profile,
        versions={"fio": "3.33", "kernel": "6.1.0"},
        limited_by=Bottleneck(Limiter.TARGET, "client and network were not limited: 12 % of the ceiling"),
    )
    return Record(run, (Verdict(outcome, threshold, interval, reason),), nodeid=run.case)


def cases(count: int) -> Iterator[CaseRecord]:
    """Yield ``count`` conformance cases over five targets."""
    outcomes = (
        *(CaseOutcome.PASSED,) * 16,
        CaseOutcome.FAILED,
        CaseOutcome.KNOWN,
        CaseOutcome.OBSERVED,
        CaseOutcome.SKIPPED,
    )
    for number in range(count):
        yield CaseRecord(
            f"ISC-{number:05}",
            f"RFC 7143 {number % 13 + 1}.{number % 17}",
            Level.MUST,
            outcomes[number % len(outcomes)],
            target=f"array{number % 5}",
            message=""
            if number % 20 < 16
            else "the target answered with another status than the section wants",
        )


def _latencies(mean: float, rng: random.Random) -> Histogram:
    """Return 12,000 latencies of 120 sorts, which takes less time than drawing each."""
    bins: dict[int, int] = {}
    for _ in range(120):
        ns = bucket(round(mean * rng.lognormvariate(-0.1, 0.45) * 1e9))
        bins[ns] = bins.get(ns, 0) + 100
    return Histogram.from_fio_bins(dict(sorted(bins.items())))


def _sample(rng: random.Random, iops: float, size: int, depth: int, evidence: bool) -> Sample:
    mean = depth / iops
    latency = _latencies(mean, rng)
    times = tuple(float(second) for second in range(1, 11))
    shapes = (
        (LOAD, "write IOPS", Unit.PER_SECOND, iops),
        (LOAD, "write bandwidth", Unit.BYTES_PER_SECOND, iops * size),
        (LOAD, "write latency", Unit.SECONDS, mean),
        ("cpu", "all cores", Unit.RATIO, 0.4),
        ("nic", "eth0 sent", Unit.BYTES_PER_SECOND, iops * size),
    )
    series = tuple(
        Series(source, name, unit, "client1", times, tuple(level * rng.gauss(1, 0.05) for _ in times))
        for source, name, unit, level in shapes
    )
    quantiles = {
        name: latency.percentile(metric.quantile) for name, metric in METRICS.items() if metric.quantile
    }
    return Sample(
        values={
            "bandwidth": iops * size,
            "iops": iops,
            "latency_mean": mean,
            **quantiles,
            "client_cpu": rng.uniform(0.2, 0.5),
        },
        seconds=10.0,
        ios=round(iops * 10),
        latency=latency,
        evidence={"argv": "fio --output-format=json+ job.fio", "fio.json": '{"jobs": []}'}
        if evidence
        else {},
        series=series if evidence else (),
    )
