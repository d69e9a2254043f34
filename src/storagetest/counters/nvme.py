"""NVMe controllers in sysfs: their state, their queues, and the I/O of each path.

Linux has no counters of an NVMe/TCP connection. With native multipath (the default) the kernel also counts a
namespace's I/O for each path, in the hidden disks ``nvme0c0n1``. Reconnects are visible in ``state``, which
is ``live`` while the controller is connected.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import ClassVar

from storagetest.counters.base import Kind, Reading, leading_integers, register
from storagetest.counters.block import BlockSource, device_readings
from storagetest.measure.unit import Unit


@register
class Nvme(BlockSource):
    """State and number of queues of each controller, and the I/O of each path."""

    name = "nvme"
    paths = ("/sys/class/nvme/*/state", "/sys/class/nvme/*/queue_count", "/sys/class/nvme/*/nvme*c*n*/stat")
    example: ClassVar[Mapping[str, str]] = {
        "/sys/class/nvme/nvme0/state": "live\n",
        "/sys/class/nvme/nvme0/queue_count": "5\n",
        "/sys/class/nvme/nvme0/nvme0c0n1/stat": "1200 30 48000 900 800 200 64000 2400 3 1500 3300\n",
    }

    def parse(self, texts: Mapping[str, str]) -> Mapping[str, Reading]:
        """Return the readings; each name starts with the controller's or the path's name."""
        readings: dict[str, Reading] = {}
        for path, text in texts.items():
            file = PurePosixPath(path)
            name = file.parent.name
            if file.name == "stat":
                readings |= device_readings(name, text)
            elif file.name == "state":
                live = float(text.strip() == "live")
                readings[f"{name} live"] = Reading(live, Unit.COUNT, Kind.GAUGE, keep=True)
            elif queues := leading_integers(text.split()):
                readings[f"{name} queues"] = Reading(queues[0], Unit.COUNT, Kind.GAUGE)
        return readings
