"""How many bytes left the client's cache for the target, or came from it, between two readings.

The file system that a path is on decides which sources count them (:attr:`Source.counts_for`). Each source
offers one or more counts, such as one for each block device; the one that moved most is taken, because a
device may stand on others. Of any other kind of file system nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storagetest.counters.base import DEVICE, MOUNTS, Source, all_sources, file_system

__all__ = ["TransferredBytes", "line_prefixes", "paths", "transferred_between"]


@dataclass(frozen=True, slots=True)
class TransferredBytes:
    """Bytes that were read from and written to the target, and which counter says so."""

    read: int
    written: int
    counter: str


def paths() -> tuple[str, ...]:
    """Return the files that :func:`transferred_between` looks at, as globs."""
    return tuple(dict.fromkeys((MOUNTS, *(path for one in _sources() for path in one.paths))))


def line_prefixes() -> Mapping[str, tuple[str, ...]]:
    """Return how the lines begin that it needs, of files of which it does not need all."""
    wanted = {MOUNTS: ("device ",)}
    for source in _sources():
        for path, starts in source.transfer_lines.items():
            wanted[path] = (*wanted.get(path, ()), *starts)
    return wanted


def transferred_between(
    before: Mapping[str, str], after: Mapping[str, str], path: str
) -> TransferredBytes | None:
    """Return what crossed for the file or device at ``path``; None where no counter tells."""
    point, kind = file_system(after.get(MOUNTS, ""), path)
    wanted = DEVICE if path.startswith("/dev/") else kind
    found = [
        one
        for source in _sources()
        if wanted in source.counts_for
        for one in _of(source, source.select(before), source.select(after), point)
    ]
    return max(found, key=lambda one: one.read + one.written, default=None)


def _sources() -> list[Source]:
    return [source for source in all_sources() if source.counts_for]


def _of(
    source: Source, before: Mapping[str, str], after: Mapping[str, str], point: str
) -> list[TransferredBytes]:
    if not before:
        return []
    was = source.transferred(before, point)
    found = []
    for counter, (read, written) in source.transferred(after, point).items():
        first = was.get(counter, (0, 0))
        found.append(TransferredBytes(max(0, read - first[0]), max(0, written - first[1]), counter))
    return found
