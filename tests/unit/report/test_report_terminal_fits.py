"""The tables at the end fit 100 columns, and 80, for every registered workload and however long the names."""

from __future__ import annotations

import pytest

from storagetest.measure.run import Run, Sample
from storagetest.report.base import Record
from storagetest.report.terminal import summary_lines
from storagetest.workloads.base import workloads

VARIANTS = ("nvme-tcp-no-hdgst-no-ddgst-queues16-queuedepth1024", "nfs-v4.2-nconnect16")


def record(name: str, variant: str) -> Record:
    load = workloads.get(name)
    values = {
        metric: 0.5 if one.unit.value == "ratio" else 123456.789 for metric, one in load.metrics.items()
    }
    run = Run(
        case=f"suites/performance/test_load.py::test_load[{variant}-write-1MiB-and-other-parameters]",
        workload=name,
        target="t",
        variant=variant,
        protocol="nfs",
        client="client1",
        parameters={},
        negotiated={},
        samples=(Sample(values, 30.0, 10**7),) * 3,
        started=0.0,
        title=f"{name} sequential write 1MiB queue_depth=32 jobs=16",
        metrics=load.metrics,
        headline=load.headline,
    )
    return Record(run=run)


@pytest.mark.parametrize("width", [140, 100, 80])
def test_the_tables_of_all_workloads_fit(width: int) -> None:
    records = [record(name, variant) for name in workloads.all() for variant in VARIANTS]
    lines = summary_lines(records, width=width)
    assert len(lines) > len(records)
    assert max(map(len, lines)) <= width
    assert sum(line.endswith("no gate") for line in lines) == len(records)  # the verdict is never cut
