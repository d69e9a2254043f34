"""Run on a client (``python3 - COMMAND DEVICE``, this file on stdin): what a block device is and carries.

It uses the standard library only and imports nothing of ours, because the client has nothing of ours.
``facts`` prints one JSON object; ``clear`` wipes the signatures and zeroes the first and the last MiB, under
O_EXCL, which the kernel refuses while anybody has the device mounted or in a volume. It never decides: that
is :mod:`storagetest.protocols._block_device`'s.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

MIB = 1 << 20
DEVICE_GONE = 75
"""Exit status (EX_TEMPFAIL) of ``clear`` on a device that takes no more I/O: its target died, say."""

MULTIPATH_UUID_PREFIXES = ("mpath-", "storagetest-mpath-")
"""How the UUID of a device mapper's multipath map begins: of multipath-tools, and of our own."""

_DEAD = {errno.EIO, errno.ENXIO, errno.ENODEV, errno.ENOENT, errno.ENOLINK, errno.ETIMEDOUT, errno.EREMOTEIO}


def _text(path: Path) -> str:
    try:
        return path.read_text().strip("\0 \n")
    except OSError:
        return ""


def identity(node: Path) -> str:
    """Return what names this very device for ever (its WWID), or "" when it has no such thing.

    Sources, in this order: the block device's or its SCSI device's wwid (NAA, EUI-64 or T10 name of VPD page
    83h; NVMe's UUID, NGUID or EUI-64), a virtio disk's serial, a loop device's backing file. A disk that is
    the multipath map of others is named by them, where they agree.
    """
    if _text(node / "dm/uuid").startswith(MULTIPATH_UUID_PREFIXES):
        of_paths = {identity(path) for path in _paths(node)}
        return of_paths.pop() if len(of_paths) == 1 else ""
    for place in ("wwid", "device/wwid"):
        wwid = " ".join(_text(node / place).split())
        if wwid:
            return wwid
    serial = _text(node / "serial")
    if serial:
        return f"serial.{serial}"
    backing = _text(node / "loop/backing_file")
    return f"loop.{backing}" if backing else ""


def _paths(node: Path) -> list[Path]:
    """Return the disks that a map is made of."""
    slaves = node / "slaves"
    return [path.resolve() for path in slaves.iterdir()] if slaves.is_dir() else []


def _mounts(numbers: set[str], paths: set[str]) -> list[str]:
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, tail = line.partition(" - ")
        if fields.split()[2] in numbers or tail.split()[1] in paths:
            found.append(fields.split()[4])
    return found


def _same_disks(node: Path) -> list[str]:
    """Return the other devices that are this same disk; NVMe's hidden paths have no device node.

    The paths of a multipath map are the map's own: it holds them.
    """
    mine, own = identity(node), {node, *_paths(node)}
    others = [entry.resolve() for entry in Path("/sys/block").iterdir()]
    return [
        other.name
        for other in others
        if mine and other not in own and _text(other / "hidden") != "1" and identity(other) == mine
    ]


def _signatures(device: str) -> list[dict[str, str]]:
    done = subprocess.run(
        ["wipefs", "--no-act", "--json", device], capture_output=True, text=True, check=True, timeout=60
    )
    listed = json.loads(done.stdout)["signatures"] if done.stdout.strip() else []
    return [{"type": one["type"] or "", "label": one["label"] or ""} for one in listed]


def facts(device: str) -> dict[str, Any]:
    """Collect what decides whether the device may be overwritten; the keys are ``_block.Facts``'s."""
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
    except (OSError, subprocess.SubprocessError, KeyError, ValueError) as error:
        problem = f"wipefs cannot say what is on {device}: {error}"
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
        "twins": sorted(_same_disks(node)),
        "busy": busy,
        "signatures": signatures,
        "problem": problem,
    }


def clear(device: str, wanted: str) -> None:
    """Wipe the signatures of ``device`` and zero its first and last MiB; only if it is still ``wanted``."""
    real = os.path.realpath(device)
    number = Path(real).stat().st_rdev
    node = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    if identity(node) != wanted:
        sys.exit(f"{device} is {identity(node)!r} by now, not {wanted!r}: left alone")
    handle = os.open(real, os.O_WRONLY | os.O_EXCL | os.O_SYNC)
    try:
        size = os.lseek(handle, 0, os.SEEK_END)
        for start in {0, max(0, size - MIB)}:
            os.pwrite(handle, bytes(min(MIB, size)), start)
    finally:
        os.close(handle)
    # A signature further in, such as the second superblock of btrfs or md's 1.0 at the end, is wipefs's.
    subprocess.run(["wipefs", "--all", "--quiet", real], check=True, timeout=60)


def main() -> None:
    """Do what the command line says."""
    command, device, *more = sys.argv[1:]
    if command == "clear":
        try:
            clear(device, *more)
        except OSError as error:
            sys.stderr.write(f"{device}: {error.strerror or error}\n")
            sys.exit(DEVICE_GONE if error.errno in _DEAD else 1)
    else:
        try:
            found = facts(device)
        except OSError as error:
            found = {"problem": f"{device}: {error.strerror or error}"}
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
