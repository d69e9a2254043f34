"""The paths by which a client's kernel reaches a device, as sysfs shows them.

A path is an NVMe controller of the namespace's subsystem (native multipath), or a SCSI disk, alone or under a
map of the device mapper. Only what belongs to the device itself is touched: never an address, a route or an
interface, which others may be using.

============ ============================================== ======================================
step         NVMe                                           SCSI
============ ============================================== ======================================
``drop``     the controller is reset: its connections end   the session's connection is ended (ss)
``lose``     the controller is deleted                      the disk is set offline
``restore``  nvme connect, as before                        the disk runs; the map is told
============ ============================================== ======================================

Sources: Linux, ABI/testing/sysfs-class-nvme, scsi_transport_iscsi.c and dm-mpath.c; nvme-connect(1); ss(8).
"""

from __future__ import annotations

import glob
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from storagetest.agent.testlib.block_range import BlockRange, disk_of
from storagetest.agent.testlib.outcomes import skip
from storagetest.agent.undo import Entry

__all__ = ["DevicePath", "device_paths", "wait_until"]

SECONDS = 20.0
"""How long a path may take to be back; an emulated client is slow."""

_SCSI_RESTORE = 'echo running >"$1" && { [ -z "$2" ] || dmsetup message "$2" 0 "reinstate_path $3"; }'
_NVME_DONE = (
    # Succeeds if there is a controller with that address, or none of the subsystem: then it was disconnected.
    'for each in "$1"/*; do [ "$(cat "$each/subsysnqn" 2>/dev/null)" = "$2" ] || continue; '
    'grep -qF "$3" "$each/address" && exit 0; other=yes; done; [ -z "$other" ]'
)


class DevicePath:
    """One path. ``name`` is the kernel's, ``address`` where it leads."""

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, address

    def live(self) -> bool:
        """Whether the kernel takes the path to work."""
        raise NotImplementedError

    def reset(self) -> None:
        """End the path's connections; the kernel makes them anew."""
        raise NotImplementedError

    def remove(self) -> None:
        """Take the path away. How to restore it is in the undo journal before."""
        self._entry = Entry(f"path {self.name} ({self.address})", self._undo())
        self._remove()

    def restore(self) -> None:
        """Give the path back; return when it works."""
        self._reconnect()
        self._entry.remove()

    def _undo(self) -> Mapping[str, Sequence[str]]:
        """Return the step of the undo journal that restores the path."""
        raise NotImplementedError

    def _remove(self) -> None:
        raise NotImplementedError

    def _reconnect(self) -> None:
        raise NotImplementedError

    def ana_state(self) -> str:
        """Return what the target says of the path: its ANA or ALUA state; "" where it says nothing."""
        return ""


class _Nvme(DevicePath):
    def __init__(self, name: str, disk: str) -> None:
        self._at, self._disk = f"/sys/class/nvme/{name}", disk
        names = ("address", "subsysnqn", "hostnqn", "hostid", "kato")
        self._said = {each: _read(f"{self._at}/{each}") for each in names}
        super().__init__(name, self._said["address"])
        self._where = dict(part.split("=", 1) for part in self.address.split(",") if "=" in part)

    def live(self) -> bool:
        return _read(f"{self._at}/state") == "live"

    def reset(self) -> None:
        _write(f"{self._at}/reset_controller", "1")
        wait_until(SECONDS, self.live, f"{self.name} is live again")

    def _undo(self) -> Mapping[str, Sequence[str]]:
        where = f"traddr={self._where['traddr']},trsvcid={self._where['trsvcid']}"
        done = ("sh", "-c", _NVME_DONE, "restored", "/sys/class/nvme", self._said["subsysnqn"], where)
        return {"argv": self._connect(), "unless": done}

    def _remove(self) -> None:
        _write(f"{self._at}/delete_controller", "1")

    def _connect(self) -> tuple[str, ...]:
        return (
            *("nvme", "connect", "--transport=tcp", f"--traddr={self._where['traddr']}"),
            *(f"--trsvcid={self._where['trsvcid']}", f"--nqn={self._said['subsysnqn']}"),
            *(f"--hostnqn={self._said['hostnqn']}", f"--hostid={self._said['hostid']}"),
            *(f"--keep-alive-tmo={self._said['kato'] or 5}", "--reconnect-delay=2", "--ctrl-loss-tmo=60"),
        )

    def _reconnect(self) -> None:
        before = set(os.listdir("/sys/class/nvme"))
        _run(*self._connect())
        (self.name,) = set(os.listdir("/sys/class/nvme")) - before
        self._at = f"/sys/class/nvme/{self.name}"
        wait_until(SECONDS, lambda: self.live() and bool(self._path()), f"{self.address} is a path again")

    def ana_state(self) -> str:
        return _read(f"{self._at}/{self._path()}/ana_state")

    def _path(self) -> str:
        found = (name for name in os.listdir(self._at) if disk_of(name) == self._disk)
        return next(found, "")


class _Scsi(DevicePath):
    def __init__(self, name: str, map_name: str) -> None:
        self._at, self._map = f"/sys/block/{name}/device", map_name
        session = re.search(r"/session(\d+)/", os.path.realpath(self._at))
        self._session = session[1] if session else ""
        at = f"/sys/class/iscsi_connection/connection{self._session}:0"
        self._portal = (_read(f"{at}/persistent_address"), _read(f"{at}/persistent_port"))
        super().__init__(name, ":".join(self._portal))

    def live(self) -> bool:
        logged_in = _read(f"/sys/class/iscsi_session/session{self._session}/state") == "LOGGED_IN"
        return logged_in and _read(f"{self._at}/state") == "running" and not self._failed()

    def reset(self) -> None:
        sharing = [
            at
            for at in glob.glob("/sys/class/iscsi_connection/*")
            if (_read(f"{at}/persistent_address"), _read(f"{at}/persistent_port")) == self._portal
        ]
        if len(sharing) != 1:
            skip(f"{len(sharing)} sessions lead to {self.address}: one cannot be ended alone")
        address, port = self._portal
        ended = _run("ss", "--no-header", "--tcp", "--kill", "dst", address, "dport", "=", f":{port}")
        if not ended.strip():
            skip("this kernel does not end connections for ss(8) (CONFIG_INET_DIAG_DESTROY)")
        wait_until(SECONDS, lambda: not self.live(), f"{self.name} has noticed", gently=True)
        wait_until(SECONDS, self._back, f"the session to {self.address} is logged in again")

    def _undo(self) -> Mapping[str, Sequence[str]]:
        state = f"{self._at}/state"
        argv = ("sh", "-c", _SCSI_RESTORE, "restore", state, self._map, self._number())
        return {"argv": argv, "unless": ("test", "!", "-e", state)}

    def _remove(self) -> None:
        _write(f"{self._at}/state", "offline\n")

    def _reconnect(self) -> None:
        _write(f"{self._at}/state", "running\n")
        wait_until(SECONDS, self._back, f"{self.address} is a path again")

    def ana_state(self) -> str:
        return _read(f"{self._at}/access_state")

    def _back(self) -> bool:
        if self._failed():
            _run("dmsetup", "message", self._map, "0", f"reinstate_path {self._number()}")
        return self.live()

    def _number(self) -> str:
        return _read(f"/sys/block/{self.name}/dev")

    def _failed(self) -> bool:
        """Whether the map has given the path up: ``F`` after its number in the status."""
        if not self._map:
            return False
        words = _run("dmsetup", "status", self._map).split()
        return words[words.index(self._number()) + 1] == "F" if self._number() in words else True


def device_paths(blocks: BlockRange) -> list[DevicePath]:
    """Return the device's paths; a case that wants them cannot be tried where the kernel shows none."""
    disk = os.path.basename(os.path.realpath(blocks.sysfs))
    found: list[DevicePath] = []
    if disk.startswith("nvme"):
        for name in sorted(os.listdir("/sys/class/nvme")):
            if disk in map(disk_of, os.listdir(f"/sys/class/nvme/{name}")):
                found += [_Nvme(name, disk)]
    elif disk.startswith("dm-"):
        map_name = blocks.attribute("dm/name")
        found += [_Scsi(name, map_name) for name in blocks.listed("slaves")]
    elif disk.startswith("sd") and "/session" in os.path.realpath(f"{blocks.sysfs}/device"):
        found.append(_Scsi(disk, ""))
    if not found:
        skip(f"the kernel shows no path to {disk} that could be lost")
    return found


def wait_until(seconds: float, true: Callable[[], bool], what: str, *, gently: bool = False) -> float:
    """Wait until ``true()``; return how long it took. It fails where it takes longer, unless ``gently``."""
    began = time.monotonic()
    while not true():
        if time.monotonic() - began > seconds:
            assert gently, f"not within {seconds:g} s: {what}"
            break
        time.sleep(0.02)
    return time.monotonic() - began


def _run(*argv: str) -> str:
    environment = {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DM_DISABLE_UDEV": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
