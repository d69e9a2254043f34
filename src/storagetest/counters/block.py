"""The block layer's counters, /sys/block/*/stat (Documentation/block/stat.rst of the Linux kernel)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import PurePosixPath
from typing import ClassVar

from storagetest.counters.base import DEVICE, CounterSource, Kind, Reading, leading_integers, register
from storagetest.measure.unit import Unit

_SECTOR = 512  # bytes, independent of the device's sector size


class BlockSource(CounterSource):
    """A source with readings from :func:`device_readings`; counts the transferred bytes of each device."""

    counts_for = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "xfs", "zfs", DEVICE})

    def transferred(self, texts: Mapping[str, str], point: str) -> Mapping[str, tuple[int, int]]:  # noqa: ARG002
        """Return the bytes of each device."""
        readings = self.parse(texts)
        devices = [name.removesuffix(" in flight") for name in readings if name.endswith(" in flight")]
        return {
            f"{device}'s": (
                round(readings[f"{device} read"].value),
                round(readings[f"{device} written"].value),
            )
            for device in devices
        }


@register
class Block(BlockSource):
    """Requests of each block device after merging, and their times."""

    name = "block"
    paths = ("/sys/block/*/stat",)
    example: ClassVar[Mapping[str, str]] = {
        "/sys/block/sda/stat": "  1200 30 48000 900 800 200 64000 2400 3 1500 3300 0 0 0 0 10 40\n"
    }

    def parse(self, texts: Mapping[str, str]) -> Mapping[str, Reading]:
        """Return the readings of all devices; each name starts with the device's name."""
        readings: dict[str, Reading] = {}
        for path, text in texts.items():
            readings |= device_readings(PurePosixPath(path).parent.name, text)
        return readings


@lru_cache(maxsize=256)  # most devices of a host are idle: the same text in each sample
def device_readings(device: str, text: str) -> Mapping[str, Reading]:
    """Return the readings in a ``stat`` file; none if it is truncated."""
    columns = leading_integers(text.split())
    if len(columns) < 11:
        return {}
    reads, reads_merged, read_sectors, read_ms = columns[:4]
    writes, writes_merged, written_sectors, write_ms = columns[4:8]
    in_flight, busy_ms = columns[8:10]
    named = {
        "reads": Reading(reads, Unit.PER_SECOND),
        "read": Reading(read_sectors * _SECTOR, Unit.BYTES_PER_SECOND),
        "reads merged": Reading(reads_merged, Unit.PER_SECOND),
        "read time": Reading(read_ms / 1000, Unit.SECONDS, Kind.QUOTIENT, per=reads),
        "writes": Reading(writes, Unit.PER_SECOND),
        "written": Reading(written_sectors * _SECTOR, Unit.BYTES_PER_SECOND),
        "writes merged": Reading(writes_merged, Unit.PER_SECOND),
        "write time": Reading(write_ms / 1000, Unit.SECONDS, Kind.QUOTIENT, per=writes),
        "in flight": Reading(in_flight, Unit.COUNT, Kind.GAUGE),
        "busy": Reading(busy_ms / 1000, Unit.RATIO),
    }
    return {f"{device} {name}": reading for name, reading in named.items()}
