"""pNFS on a Linux client: which layout an NFS mount uses, from /proc/self/mountstats (RFC 8881 12).

The kernel chooses a layout driver at the mount, from the types that the server offers and the modules that
it has. The ``nfsv4:`` line names it: ``pnfs=LAYOUT_BLOCK_VOLUME``, or ``pnfs=not configured``. A driver does
not mean that a layout is used: if the server grants none, or if the client does not find the device, the
kernel reads and writes through the server, without a message. So the first data are counted: the last two
numbers of the ``events:`` line are reads and writes through a layout (pnfs_io in the kernel), and the
operations are those that went to the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

NONE = "none"
MODULES: Mapping[str, str] = {
    "files": "nfs_layout_nfsv41_files",
    "block": "blocklayoutdriver",
    "scsi": "blocklayoutdriver",
    "flexfiles": "nfs_layout_flexfiles",
}
"""Kernel module of each layout's driver."""

_DRIVERS: Mapping[str, str] = {
    "not configured": NONE,
    "LAYOUT_NFSV4_1_FILES": "files",
    "LAYOUT_BLOCK_VOLUME": "block",
    "LAYOUT_SCSI": "scsi",
    "LAYOUT_FLEX_FILES": "flexfiles",
}
_EVENTS = 27
"""Numbers of the ``events:`` line (nfs_stat_eventcounters in the kernel's include/linux/nfs_iostat.h)."""

PROBE = r"""
file=$1/layout-probe
dd if=/dev/zero of="$file" bs=64k count=4 oflag=direct status=none || exit 1
dd if="$file" of=/dev/null bs=64k iflag=direct status=none || exit 1
cat "$2"
rm -f "$file"
"""
"""Write and read 256 KiB of a new file past the page cache, and print mountstats."""


@dataclass(frozen=True, slots=True)
class LayoutUse:
    """Counters of one mount: I/O through a layout, and operations that its server has answered."""

    driver: str
    layout_reads: int = 0
    layout_writes: int = 0
    operations: Mapping[str, int] | None = None

    def calls(self, *names: str) -> int:
        """Return the number of calls of these operations."""
        return sum((self.operations or {}).get(name, 0) for name in names)


def layout_use(mountstats: str, point: str) -> LayoutUse | None:
    """Return the counters of the mount on ``point``; None if it has no ``pnfs=``: no NFSv4.1 or later."""
    driver, events, operations = "", list[int](), {}
    for line in lines_of(mountstats, point):
        name, _, rest = line.strip().partition(":")
        if match := re.search(r"\bpnfs=([^,]+)", line):
            driver = match[1].strip()
        elif name == "events":
            events = [int(word) for word in rest.split()]
        elif name.isupper() and (words := rest.split()) and words[0].isdigit():
            operations[name] = int(words[0])
    if not driver:
        return None
    reads, writes = events[_EVENTS - 2 : _EVENTS] if len(events) >= _EVENTS else (0, 0)
    return LayoutUse(_DRIVERS.get(driver, driver), reads, writes, operations)


def lines_of(mountstats: str, point: str) -> Iterator[str]:
    """Yield the lines of the mount on ``point`` in /proc/self/mountstats."""
    in_mount = False
    for line in mountstats.splitlines():
        if line.startswith("device "):
            in_mount = f" mounted on {point} " in line
        elif in_mount:
            yield line


def layout_got(before: LayoutUse, after: LayoutUse) -> str:
    """Return the layout that the I/O between two readings used, or what happened instead."""
    reads = after.calls("READ", "READ_PLUS") - before.calls("READ", "READ_PLUS")
    writes = after.calls("WRITE") - before.calls("WRITE")
    through = (after.layout_reads - before.layout_reads, after.layout_writes - before.layout_writes)
    if after.driver == NONE or (not reads and not writes and all(through)):
        return after.driver
    layouts = after.calls("LAYOUTGET") - before.calls("LAYOUTGET")
    return (
        f"{after.driver}, but the first data went through the server: {writes} WRITE, {reads} READ "
        f"({layouts} LAYOUTGET, {through[1]} writes and {through[0]} reads through a layout)"
    )
