"""The tables at the end fit 100 columns, and 80, for every registered workload and however long the names."""

from __future__ import annotations

import pytest

from storagetest.measure.run import Sample
from storagetest.report.terminal import summary_lines
from storagetest.workloads.base import workloads

VARIANTS = ("nvme-tcp-no-hdgst-no-ddgst-queues16-queuedepth1024", "nfs-v4.2-nconnect16")


@pytest.mark.parametrize("width", [140, 100, 80])
def test_the_tables_of_all_workloads_fit(make_record, width: int) -> None:
    def record(name: str, variant: str):
        metrics, headline = workloads.get(name).metrics, workloads.get(name).headline
        values = {name: 0.5 if one.unit.value == "ratio" else 123456.789 for name, one in metrics.items()}
        title = f"{name} sequential write 1MiB queue_depth=32 jobs=16"
        run = {"title": title, "metrics": metrics, "headline": headline, "outcome": None}
        return make_record(variant=variant, workload=name, samples=(Sample(values, 30.0, 10**7),) * 3, **run)

    records = [record(name, variant) for name in workloads.all() for variant in VARIANTS]
    lines = summary_lines(records, width=width)
    assert len(lines) > len(records)
    assert max(map(len, lines)) <= width
    assert sum(line.endswith("no gate") for line in lines) == len(records)  # the verdict is never cut
