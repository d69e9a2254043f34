"""Bytes transferred between the client and the target between two snapshots.

The type of the file system of a path selects the sources (:attr:`CounterSource.counts_for`). Each source has
one or more counts, for example one per block device. The result is the largest one, because a device may
consist of other devices. Other types of file systems have no count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storagetest.counters.base import DEVICE, MOUNTS, CounterSource, all_sources, file_system, paths_of


@dataclass(frozen=True, slots=True)
class TransferredBytes:
    """Bytes read from and written to the target, and the name of the counter."""

    read: int
    written: int
    counter: str


def paths() -> tuple[str, ...]:
    """Return the files that :func:`transferred_between` needs, as globs."""
    return paths_of(_sources())


def line_prefixes() -> Mapping[str, tuple[str, ...]]:
    """Return path → prefixes of the required lines, for files of which only some lines are required."""
    prefixes = {MOUNTS: ("device ",)}
    for source in _sources():
        for path, starts in source.transfer_lines.items():
            prefixes[path] = (*prefixes.get(path, ()), *starts)
    return prefixes


def transferred_between(
    before: Mapping[str, str], after: Mapping[str, str], path: str
) -> TransferredBytes | None:
    """Return the bytes transferred for the file or device at ``path``; None if no source counts them."""
    point, fstype = file_system(after.get(MOUNTS, ""), path)
    kind = DEVICE if path.startswith("/dev/") else fstype
    counts = [
        count
        for source in _sources()
        if kind in source.counts_for
        for count in _counts_of(source, source.select(before), source.select(after), point)
    ]
    return max(counts, key=lambda count: count.read + count.written, default=None)


def _sources() -> list[CounterSource]:
    return [source for source in all_sources() if source.counts_for]


def _counts_of(
    source: CounterSource, before: Mapping[str, str], after: Mapping[str, str], point: str
) -> list[TransferredBytes]:
    if not before:
        return []
    start = source.transferred(before, point)
    counts = []
    for counter, (read, written) in source.transferred(after, point).items():
        first = start.get(counter, (0, 0))
        counts.append(TransferredBytes(max(0, read - first[0]), max(0, written - first[1]), counter))
    return counts
