"""Workload ``fake-metrics``: its metrics come from a file, and it generates no load.

Load it with ``pytest -p fake_metrics``. The metrics of a variant with the path ``DIRECTORY/disk`` come from
``DIRECTORY/disk.metrics``: IOPS, and noise as a fraction of it. Each measurement appends the directory's name
to ``DIRECTORY/order``.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

from storagetest.config.base import WorkloadOptions
from storagetest.measure.common_window import ActivitySpan
from storagetest.measure.run import Sample
from storagetest.protocols.base import Attachment
from storagetest.workloads.base import LoadSize, Workload, register

SPREAD = [1.0, 0.99, 1.01, 1.005, 0.995, 1.002, 0.992]
ACTIVE = 60.0
"""Seconds for which a client reports that it was active: clients overlap however late one of them starts."""


@register
class FakeMetrics(Workload["FakeMetrics.Options"]):
    """Returns the metrics that a file contains."""

    name = "fake-metrics"
    example: ClassVar[dict[str, Any]] = {}

    class Options(WorkloadOptions):
        """``ios``: the number of I/Os that are counted. The other options have no effect."""

        ios: int = 100000
        jobs: int = 1
        block_size: str = "4KiB"

    def measure(self, attachment: Attachment, options: FakeMetrics.Options, scale: LoadSize) -> Sample:
        """Return the file's metrics after the runtime."""
        directory = Path(attachment.path).parent
        with (directory.parent / "order").open("a") as log:
            log.write(directory.name + " ")
        spans = {}
        if scale.start is not None:
            scale.start.wait()
            began = time.monotonic()
            spans = {"": ActivitySpan(began, began, began + ACTIVE, began + ACTIVE)}
        time.sleep(scale.runtime)
        value, noise = map(float, directory.with_suffix(".metrics").read_text().split())
        iops = value * SPREAD[scale.repeat % len(SPREAD)] * (1 + noise * (-1) ** scale.repeat)
        values = {"iops": iops, "bandwidth": iops * 4096, "p99": 100 / iops}
        return Sample(values, scale.runtime, options.ios, spans=spans)
