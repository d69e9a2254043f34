"""How many bytes left the client's cache for the target, or came from it, between two readings.

Which counter tells follows from the file system that a path is on: an NFS mount has its own, the SMB and
Lustre clients have one for all mounts, and a local file system goes through a block device; of those the one
that moved most is taken, as a device may stand on others. Of any other kind of file system nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from storagetest.counters.base import Reading, Source
from storagetest.counters.block import Block
from storagetest.counters.cifs import Cifs
from storagetest.counters.lustre import Lustre
from storagetest.counters.mountstats import parse_mounts
from storagetest.counters.nvme import Nvme

__all__ = ["COUNTERS", "LINES", "TransferredBytes", "transferred_between"]

_MOUNTSTATS = "/proc/self/mountstats"
COUNTERS = (_MOUNTSTATS, *Cifs.paths, *Lustre.paths, *Block.paths, *Nvme.paths)
"""The files that :func:`crossing` looks at, as globs."""

LINES: Mapping[str, tuple[str, ...]] = {_MOUNTSTATS: ("device ", "\tbytes:")}
"""How the lines begin that it needs, of files of which it does not need all."""

_ON_A_DEVICE = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "xfs", "zfs"}


@dataclass(frozen=True, slots=True)
class TransferredBytes:
    """Bytes that were read from and written to the target, and which counter says so."""

    read: int
    written: int
    counter: str


def transferred_between(
    before: Mapping[str, str], after: Mapping[str, str], path: str
) -> TransferredBytes | None:
    """Return what crossed for the file or device at ``path``; None where no counter tells."""
    mounted, kind = file_system(after.get(_MOUNTSTATS, ""), path)
    if path.startswith("/dev/"):
        return _most(before, after)
    if kind.startswith("nfs"):
        return _nfs(before, after, mounted)
    if kind in {"cifs", "smb3"}:
        return _of(Cifs(), before, after, "read", "written", "the SMB client's")
    if kind == "lustre":
        return _of(Lustre(), before, after, "osc read_bytes", "osc write_bytes", "the Lustre client's")
    return _most(before, after) if kind in _ON_A_DEVICE else None


def file_system(mountstats: str, path: str) -> tuple[str, str]:
    """Return mount point and type of the file system that ``path`` is on; two empty texts if unknown."""
    found = ("", "")
    for line in mountstats.splitlines():
        head, _, kind = line.partition(" with fstype ")
        point = head.partition(" mounted on ")[2]
        on_it = line.startswith("device ") and point and kind and PurePosixPath(path).is_relative_to(point)
        if on_it and len(point) >= len(found[0]):
            found = (point, kind.split()[0])
    return found


def _nfs(before: Mapping[str, str], after: Mapping[str, str], point: str) -> TransferredBytes | None:
    was, now = (
        next((one for one in parse_mounts(texts.get(_MOUNTSTATS, "")) if one.path == point), None)
        for texts in (before, after)
    )
    if was is None or now is None:
        return None
    return TransferredBytes(max(0, now.read - was.read), max(0, now.written - was.written), "the NFS mount's")


def _of(
    source: Source, before: Mapping[str, str], after: Mapping[str, str], read: str, written: str, whose: str
) -> TransferredBytes | None:
    was, now = (source.parse(source.select(texts)) for texts in (before, after))
    if read not in now and written not in now:
        return None
    return TransferredBytes(_more(was, now, read), _more(was, now, written), whose)


def _most(before: Mapping[str, str], after: Mapping[str, str]) -> TransferredBytes | None:
    was, now = (
        {**Block().parse(Block().select(texts)), **Nvme().parse(Nvme().select(texts))}
        for texts in (before, after)
    )
    devices = {name.removesuffix(" in flight") for name in now if name.endswith(" in flight")}
    moved = [
        TransferredBytes(_more(was, now, f"{one} read"), _more(was, now, f"{one} written"), f"{one}'s")
        for one in sorted(devices)
    ]
    return max(moved, key=lambda one: one.read + one.written, default=None)


def _more(was: Mapping[str, Reading], now: Mapping[str, Reading], name: str) -> int:
    before, after = was.get(name), now.get(name)
    if after is None:
        return 0
    return round(max(0.0, after.value - (before.value if before else 0.0)))
