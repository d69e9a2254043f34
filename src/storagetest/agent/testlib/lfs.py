"""Lustre's layouts, extents and group locks for the bodies of cases, by lfs(1) and ioctl(2).

Sources: lfs-setstripe(1), lfs-getstripe(1), llapi_group_lock(3), and the kernel's
Documentation/filesystems/fiemap.rst.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
import subprocess
from collections.abc import Sequence
from typing import Any

from storagetest.agent.testlib.outcomes import CannotRun, skip

MIB = 1 << 20
STRIPE_UNIT = 64 * 1024
"""A stripe size is a multiple of it (lfs-setstripe(1), --stripe-size)."""

TIMEOUT = 25.0
"""Seconds of one lfs command: less than a case's deadline (chosen)."""

GROUP_LOCK, GROUP_UNLOCK = 0x4008669E, 0x4008669F
"""llapi_group_lock(3): _IOW('f', 158, long) and _IOW('f', 159, long)."""
_FIEMAP = 0xC020660B  # <linux/fs.h>, FS_IOC_FIEMAP
_FIEMAP_HEAD = struct.Struct("=QQIIII")
_FIEMAP_EXTENT = struct.Struct("=QQQQQIIII")
FIEMAP_SYNC = 0x1
FIEMAP_DEVICE_ORDER = 0x40000000  # lfs(1), "fid2path": extents of one OST after those of another
EXTENT_LAST = 0x1
EXTENT_UNKNOWN = 0x2
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_NOT_SUPPORTED = ("not supported", "Not supported", "not implemented")


class Finished:
    """A command that has ended: its status, stdout and stderr."""

    def __init__(self, argv: Sequence[str], status: int, stdout: str, stderr: str) -> None:
        self.argv, self.status, self.stdout, self.stderr = tuple(argv), status, stdout, stderr

    def __str__(self) -> str:
        output = " ".join((self.stderr or self.stdout).split())
        return f"`{' '.join(self.argv)}` exited {self.status}: {output or 'no output'}"


def try_lfs(*words: object) -> Finished:
    """Run lfs with ``words`` to its end."""
    argv = ["lfs", *map(str, words)]
    environment = {**os.environ, "PATH": PATH, "LC_ALL": "C"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT, check=False, env=environment)
    return Finished(argv, done.returncode, done.stdout, done.stderr)


def lfs(*words: object) -> str:
    """Run lfs with ``words`` and return its stdout; a command that fails fails the case."""
    done = try_lfs(*words)
    assert done.status == 0, str(done)
    return done.stdout


def optional_lfs(what: str, *words: object) -> str:
    """Run lfs as :func:`lfs`; skip the case if the file system reports that it does not support it."""
    done = try_lfs(*words)
    if done.status and any(text in done.stderr + done.stdout for text in _NOT_SUPPORTED):
        skip(f"this file system has no {what}: {done}")
    assert done.status == 0, str(done)
    return done.stdout


def refused(*words: object) -> Finished:
    """Run lfs and assert that it refuses: a status other than 0, and an error message."""
    done = try_lfs(*words)
    assert done.status != 0, f"{done} has to be refused"
    assert done.stderr.strip(), f"{done}: the refusal has no message"
    return done


class Part:
    """One component of a file's layout, of ``lfs getstripe --yaml``; numbers are bytes or indices."""

    def __init__(self, text: str) -> None:
        self.fields = dict(re.findall(r"(?m)^\s*((?:lmm|lcme)_[a-z_.]+):\s*(\S+)\s*$", text))
        self.id = self._number("lcme_id")
        self.start = self._number("lcme_extent.e_start") or 0
        end = self.fields.get("lcme_extent.e_end", "EOF")
        self.end = int(end) if end.isdecimal() else None
        self.count = self._number("lmm_stripe_count")
        self.size = self._number("lmm_stripe_size")
        self.offset = self._number("lmm_stripe_offset")
        self.pattern = self.fields.get("lmm_pattern", "")
        self.pool = self.fields.get("lmm_pool", "")
        self.osts = [int(index) for index in re.findall(r"l_ost_idx:\s*(\d+)", text)]

    @property
    def has_objects(self) -> bool:
        """Whether the component has objects: it is on the MDT, or its OSTs are listed."""
        return bool(self.osts) or self.pattern == "mdt"

    def _number(self, name: str) -> int | None:
        text = self.fields.get(name)
        return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def parse_parts(text: str) -> list[Part]:
    """Parse the YAML of a file's layout; a plain layout is one component.

    Components are keys (``component0:``) of old releases of Lustre, and entries of a list of new ones.
    """
    blocks = re.split(r"(?m)^\s*(?:component\d+:\s*$|- (?=lcme_id:))", text)
    return [Part(block) for block in (blocks[1:] or blocks)]


def parts_of(path: object) -> list[Part]:
    """Return the components of a file's layout."""
    return parse_parts(lfs("getstripe", "--yaml", path))


def layout_of(path: object) -> Part:
    """Return the layout of a file with a plain layout."""
    parts = parts_of(path)
    assert len(parts) == 1, f"{path} has {len(parts)} components instead of a plain layout"
    return parts[0]


def parse_osts(text: str) -> list[int]:
    """Parse ``lfs osts``: the indices of the active OSTs."""
    found = re.findall(r"(?m)^(\d+):\s+\S+\s+(\w+)", text)
    return [int(index) for index, state in found if state != "INACTIVE"]


def ost_indices(path: object) -> list[int]:
    """Return the indices of the file system's active OSTs."""
    found = parse_osts(lfs("osts", path))
    assert found, "lfs osts lists no active OST"
    return found


def pools_of(path: object) -> dict[str, list[int]]:
    """Return the file system's pools that have OSTs, as FSNAME.POOL, with the indices of their OSTs."""
    names = re.findall(r"(?m)^(\S+\.\S+)$", lfs("pool_list", path))
    found = {name: parse_pool(lfs("pool_list", name)) for name in names}
    return {name: osts for name, osts in found.items() if osts}


def parse_pool(text: str) -> list[int]:
    """Parse ``lfs pool_list FSNAME.POOL``: the indices of the pool's OSTs."""
    return [int(index, 16) for index in re.findall(r"(?m)-OST([0-9a-fA-F]{4})_UUID\s*$", text)]


def several_osts(path: object) -> list[int]:
    """Return the indices of the active OSTs; skip the case if there is one only."""
    found = ost_indices(path)
    if len(found) < 2:
        skip("this file system has one active OST")
    return found


def group_lock(descriptor: int, group: int) -> None:
    """Take the group lock ``group``: waits for others' locks, unless the file is open with O_NONBLOCK."""
    fcntl.ioctl(descriptor, GROUP_LOCK, group)


def group_unlock(descriptor: int, group: int) -> None:
    """Release the group lock."""
    fcntl.ioctl(descriptor, GROUP_UNLOCK, group)


class Extent:
    """One extent of FIEMAP: its range in the file, its flags and the index of its OST."""

    def __init__(self, fields: Sequence[Any]) -> None:
        self.start, self.physical, self.length, _, _, self.flags, self.device, _, _ = fields


def fiemap(descriptor: int, *, flags: int = FIEMAP_SYNC, most: int = 64) -> tuple[int, list[Extent]]:
    """Return the number of mapped extents and ``most`` of them at most.

    Skip the case without FIEMAP (EOPNOTSUPP), and if the file system does not know where the data are: then
    the extents are no map. In that state Lustre 2.17.57's client writes an extent behind a request without
    space for one, so ask with an array first.
    """
    head = _FIEMAP_HEAD.pack(0, (1 << 64) - 1, flags, 0, most, 0)
    buffer = bytearray(head + bytes(_FIEMAP_EXTENT.size * most))
    try:
        fcntl.ioctl(descriptor, _FIEMAP, buffer, True)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY):
            raise CannotRun("this file system has no FIEMAP for this file") from None
        raise
    mapped = _FIEMAP_HEAD.unpack_from(buffer)[3]
    at = _FIEMAP_HEAD.size
    extents = [
        Extent(_FIEMAP_EXTENT.unpack_from(buffer, at + number * _FIEMAP_EXTENT.size))
        for number in range(min(mapped, most))
    ]
    if any(extent.flags & EXTENT_UNKNOWN for extent in extents):
        raise CannotRun("this file system does not know where the data of this file are (FIEMAP)")
    return mapped, extents
