"""Examine or clear a block device; runs on a client as ``python3 - COMMAND DEVICE``, with this file on stdin.

It uses the standard library only, because storagetest is not installed on the client. ``facts`` prints one
JSON object. ``clear`` wipes the signatures and zeroes the first and the last MiB, under O_EXCL, which the
kernel refuses while the device is mounted or in a volume. The script does not decide whether a device may be
overwritten: :mod:`storagetest.protocols._block_device` does.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

MIB = 1 << 20
DEVICE_GONE = 75
"""Exit status (EX_TEMPFAIL) of ``clear`` on a device that fails all I/O, because its target died."""

MULTIPATH_UUID_PREFIXES = ("mpath-", "storagetest-mpath-")
"""UUID prefixes of device mapper's multipath maps: of multipath-tools, and of storagetest."""

_DEAD = {errno.EIO, errno.ENXIO, errno.ENODEV, errno.ENOENT, errno.ENOLINK, errno.ETIMEDOUT, errno.EREMOTEIO}


def _text(path: Path) -> str:
    try:
        return path.read_text().strip("\0 \n")
    except OSError:
        return ""


def identity(node: Path) -> str:
    """Return the device's permanent identity (its WWID), or "" if it has none.

    Sources, in this order: the block device's or its SCSI device's wwid (NAA, EUI-64 or T10 name of VPD page
    83h; NVMe's UUID, NGUID or EUI-64), a virtio disk's serial, a loop device's backing file. A multipath map
    has the identity of its paths if all paths have the same one.
    """
    if _text(node / "dm/uuid").startswith(MULTIPATH_UUID_PREFIXES):
        of_paths = {identity(path) for path in _paths(node)}
        return of_paths.pop() if len(of_paths) == 1 else ""
    for attribute in ("wwid", "device/wwid"):
        wwid = " ".join(_text(node / attribute).split())
        if wwid:
            return wwid
    serial = _text(node / "serial")
    if serial:
        return f"serial.{serial}"
    backing = _text(node / "loop/backing_file")
    return f"loop.{backing}" if backing else ""


def _paths(node: Path) -> list[Path]:
    """Return the disks that a map consists of."""
    slaves = node / "slaves"
    return [path.resolve() for path in slaves.iterdir()] if slaves.is_dir() else []


def _mounts(numbers: set[str], paths: set[str]) -> list[str]:
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, tail = line.partition(" - ")
        if fields.split()[2] in numbers or tail.split()[1] in paths:
            points.append(fields.split()[4])
    return points


def _same_disks(node: Path) -> list[str]:
    """Return the other devices that are the same disk.

    Excludes NVMe's hidden paths, which have no device node, and the paths of a multipath map.
    """
    wwid, excluded = identity(node), {node, *_paths(node)}
    others = [entry.resolve() for entry in Path("/sys/block").iterdir()]
    return [
        other.name
        for other in others
        if wwid and other not in excluded and _text(other / "hidden") != "1" and identity(other) == wwid
    ]


def _signatures(device: str) -> list[dict[str, str]]:
    """Return the signatures that wipefs(8) finds. Raises an exception if they are no proof.

    libblkid takes a read that fails for the absence of a signature, and wipefs then exits with status 0.
    Therefore the start and the end must be readable before and after, and with equal data.
    """
    before, found = _edges(device), _wipefs(device)
    if _edges(device) != before or _wipefs(device) != found:
        raise ValueError("two reads of the same blocks differ")
    return found


def _wipefs(device: str) -> list[dict[str, str]]:
    done = subprocess.run(
        ["wipefs", "--no-act", "--json", device], capture_output=True, text=True, check=True, timeout=60
    )
    entries = json.loads(done.stdout)["signatures"] if done.stdout.strip() else []
    return [{"type": entry["type"] or "", "label": entry["label"] or ""} for entry in entries]


def _edges(device: str) -> list[bytes]:
    """Return the first and the last MiB, read from the device and not from the page cache (O_DIRECT).

    Raises OSError for a read that fails, and ValueError for one that is short.
    """
    handle = os.open(device, os.O_RDONLY | os.O_DIRECT)
    try:
        size = os.lseek(handle, 0, os.SEEK_END)
        if size <= 0:
            raise ValueError("it has no blocks")
        edges = [_read_direct(handle, start, min(MIB, size)) for start in (0, max(0, size - MIB))]
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)  # wipefs reads through the page cache
        return edges
    finally:
        os.close(handle)


def _read_direct(handle: int, start: int, length: int) -> bytes:
    with mmap.mmap(-1, length) as buffer:
        count = os.preadv(handle, [buffer], start)
        if count != length:
            raise ValueError(f"a read of {length} bytes at {start} returned {count}")
        return bytes(buffer)


def facts(device: str) -> dict[str, Any]:
    """Collect the facts about ``device``; the keys are the fields of ``_block_device.DeviceFacts``."""
    real = os.path.realpath(device)
    status = Path(real).stat()
    if not stat.S_ISBLK(status.st_mode):
        return {"problem": f"{device} is not a block device"}
    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    node = Path(f"/sys/dev/block/{number}").resolve()
    parts = [child for child in node.iterdir() if (child / "partition").exists()]
    numbers = {number} | {_text(part / "dev") for part in parts}
    paths = {real, device} | {f"/dev/{part.name}" for part in parts}
    swaps = [line.split()[0] for line in Path("/proc/swaps").read_text().splitlines()[1:]]
    holders = [
        holder.name + (f" ({_text(holder / 'dm/name')})" if _text(holder / "dm/name") else "")
        for owner in [node, *parts]
        if (owner / "holders").is_dir()
        for holder in (owner / "holders").iterdir()
    ]
    busy = ""
    try:
        os.close(os.open(real, os.O_RDONLY | os.O_EXCL))
    except OSError as error:
        busy = error.strerror or str(error)
    problem, signatures = "", []
    try:
        signatures = _signatures(real)
    except (OSError, subprocess.SubprocessError, LookupError, TypeError, ValueError) as error:
        problem = f"the signatures of {device} cannot be read: {error}"
    return {
        "path": real,
        "identity": identity(node),
        "size": int(_text(node / "size") or 0) * 512,
        "read_only": _text(node / "ro") == "1",
        "partition": (node / "partition").exists(),
        "partitions": sorted(part.name for part in parts),
        "holders": sorted(holders),
        "mounts": _mounts(numbers, paths),
        "swap": any(path in swaps for path in paths),
        "same_disks": sorted(_same_disks(node)),
        "busy": busy,
        "signatures": signatures,
        "problem": problem,
    }


def clear(device: str, expected: str) -> None:
    """Wipe the signatures of ``device`` and zero its first and last MiB, if its identity is ``expected``."""
    real = os.path.realpath(device)
    number = Path(real).stat().st_rdev
    node = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    if identity(node) != expected:
        sys.exit(f"{device} is now {identity(node)!r}, not {expected!r}: it is not cleared")
    handle = os.open(real, os.O_WRONLY | os.O_EXCL | os.O_SYNC)
    try:
        size = os.lseek(handle, 0, os.SEEK_END)
        for start in {0, max(0, size - MIB)}:
            os.pwrite(handle, bytes(min(MIB, size)), start)
    finally:
        os.close(handle)
    # wipefs removes signatures at other offsets, such as the second superblock of btrfs or md's 1.0 metadata.
    subprocess.run(["wipefs", "--all", "--quiet", real], check=True, timeout=60)


def main() -> None:
    """Run the command of the command line."""
    command, device, *more = sys.argv[1:]
    if command == "clear":
        try:
            clear(device, *more)
        except OSError as error:
            sys.stderr.write(f"{device}: {error.strerror or error}\n")
            sys.exit(DEVICE_GONE if error.errno in _DEAD else 1)
    else:
        try:
            result = facts(device)
        except OSError as error:
            result = {"problem": f"{device}: {error.strerror or error}"}
        sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
