"""The paths of a client's kernel to a device, as shown by sysfs.

A path is an NVMe controller of the namespace's subsystem (native multipath), or a SCSI disk, alone or under a
map of the device mapper. Only the device's own connections are changed: never an address, a route or an
interface, because others may use it.

============ ============================================== ======================================
step         NVMe                                           SCSI
============ ============================================== ======================================
``reset``    the controller is reset: its connections end   the session's connection is ended (ss)
``remove``   the controller is deleted                      the disk is set offline
``restore``  nvme connect, as before                        the disk is set running and reinstated
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

from storagetest.agent import fsutil
from storagetest.agent.testlib.block_range import BlockRange, disk_of
from storagetest.agent.testlib.outcomes import skip
from storagetest.agent.undo import UndoEntry

SECONDS = 20.0
"""Timeout for the return of a path; an emulated client is slow (chosen)."""

_SCSI_RESTORE = 'echo running >"$1" && { [ -z "$2" ] || dmsetup message "$2" 0 "reinstate_path $3"; }'
_NVME_DONE = (
    # Succeeds if there is a controller with that address, or none of the subsystem: then it was disconnected.
    'for each in "$1"/*; do [ "$(cat "$each/subsysnqn" 2>/dev/null)" = "$2" ] || continue; '
    'grep -qF "$3" "$each/address" && exit 0; other=yes; done; [ -z "$other" ]'
)


class DevicePath:
    """One path. ``name`` is the kernel's, ``address`` that of the target."""

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, address

    def live(self) -> bool:
        """Return whether the path works according to the kernel."""
        raise NotImplementedError

    def reset(self) -> None:
        """End the path's connections; the kernel opens new ones."""
        raise NotImplementedError

    def remove(self) -> None:
        """Remove the path, after the step that restores it is in the undo journal."""
        self._entry = UndoEntry(f"path {self.name} ({self.address})", self._undo())
        self._remove()

    def restore(self) -> None:
        """Restore the path; return when it works."""
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
        """Return the path's ANA or ALUA state as reported by the target; "" if there is none."""
        return ""


class _NvmePath(DevicePath):
    def __init__(self, name: str, disk: str) -> None:
        self._sysfs, self._disk = f"/sys/class/nvme/{name}", disk
        names = ("address", "subsysnqn", "hostnqn", "hostid", "kato")
        self._attributes = {each: _read(f"{self._sysfs}/{each}") for each in names}
        super().__init__(name, self._attributes["address"])
        self._endpoint = dict(part.split("=", 1) for part in self.address.split(",") if "=" in part)

    def live(self) -> bool:
        return _read(f"{self._sysfs}/state") == "live"

    def reset(self) -> None:
        _write(f"{self._sysfs}/reset_controller", "1")
        wait_until(SECONDS, self.live, f"{self.name} is live again")

    def _undo(self) -> Mapping[str, Sequence[str]]:
        where = f"traddr={self._endpoint['traddr']},trsvcid={self._endpoint['trsvcid']}"
        done = ("sh", "-c", _NVME_DONE, "restored", "/sys/class/nvme", self._attributes["subsysnqn"], where)
        return {"argv": self._connect(), "unless": done}

    def _remove(self) -> None:
        _write(f"{self._sysfs}/delete_controller", "1")

    def _connect(self) -> tuple[str, ...]:
        return (
            *("nvme", "connect", "--transport=tcp", f"--traddr={self._endpoint['traddr']}"),
            *(f"--trsvcid={self._endpoint['trsvcid']}", f"--nqn={self._attributes['subsysnqn']}"),
            *(f"--hostnqn={self._attributes['hostnqn']}", f"--hostid={self._attributes['hostid']}"),
            *(
                f"--keep-alive-tmo={self._attributes['kato'] or 5}",
                "--reconnect-delay=2",
                "--ctrl-loss-tmo=60",
            ),
        )

    def _reconnect(self) -> None:
        before = set(os.listdir("/sys/class/nvme"))
        _run(*self._connect())
        (self.name,) = set(os.listdir("/sys/class/nvme")) - before
        self._sysfs = f"/sys/class/nvme/{self.name}"
        wait_until(SECONDS, lambda: self.live() and bool(self._path()), f"{self.address} is a path again")

    def ana_state(self) -> str:
        return _read(f"{self._sysfs}/{self._path()}/ana_state")

    def _path(self) -> str:
        paths = (name for name in os.listdir(self._sysfs) if disk_of(name) == self._disk)
        return next(paths, "")


class _ScsiPath(DevicePath):
    def __init__(self, name: str, map_name: str) -> None:
        self._sysfs, self._map = f"/sys/block/{name}/device", map_name
        session = re.search(r"/session(\d+)/", os.path.realpath(self._sysfs))
        self._session = session[1] if session else ""
        at = f"/sys/class/iscsi_connection/connection{self._session}:0"
        self._portal = (_read(f"{at}/persistent_address"), _read(f"{at}/persistent_port"))
        super().__init__(name, ":".join(self._portal))

    def live(self) -> bool:
        logged_in = _read(f"/sys/class/iscsi_session/session{self._session}/state") == "LOGGED_IN"
        return logged_in and _read(f"{self._sysfs}/state") == "running" and not self._failed()

    def reset(self) -> None:
        sharing = [
            directory
            for directory in glob.glob("/sys/class/iscsi_connection/*")
            if (_read(f"{directory}/persistent_address"), _read(f"{directory}/persistent_port"))
            == self._portal
        ]
        if len(sharing) != 1:
            skip(f"{len(sharing)} sessions use {self.address}: one of them cannot be ended alone")
        address, port = self._portal
        ended = _run("ss", "--no-header", "--tcp", "--kill", "dst", address, "dport", "=", f":{port}")
        if not ended.strip():
            skip("this kernel cannot end connections by ss(8) (CONFIG_INET_DIAG_DESTROY)")
        wait_until(SECONDS, lambda: not self.live(), f"{self.name} has noticed", or_fail=False)
        wait_until(SECONDS, self._back, f"the session to {self.address} is logged in again")

    def _undo(self) -> Mapping[str, Sequence[str]]:
        state = f"{self._sysfs}/state"
        argv = ("sh", "-c", _SCSI_RESTORE, "restore", state, self._map, self._number())
        return {"argv": argv, "unless": ("test", "!", "-e", state)}

    def _remove(self) -> None:
        _write(f"{self._sysfs}/state", "offline\n")

    def _reconnect(self) -> None:
        _write(f"{self._sysfs}/state", "running\n")
        wait_until(SECONDS, self._back, f"{self.address} is a path again")

    def ana_state(self) -> str:
        return _read(f"{self._sysfs}/access_state")

    def _back(self) -> bool:
        if self._failed():
            _run("dmsetup", "message", self._map, "0", f"reinstate_path {self._number()}")
        return self.live()

    def _number(self) -> str:
        return _read(f"/sys/block/{self.name}/dev")

    def _failed(self) -> bool:
        """Return whether the map has failed the path: ``F`` after its number in the status."""
        if not self._map:
            return False
        words = _run("dmsetup", "status", self._map).split()
        return words[words.index(self._number()) + 1] == "F" if self._number() in words else True


def device_paths(blocks: BlockRange) -> list[DevicePath]:
    """Return the device's paths; skip the case if the kernel shows none."""
    disk = os.path.basename(os.path.realpath(blocks.sysfs))
    paths: list[DevicePath] = []
    if disk.startswith("nvme"):
        for name in sorted(os.listdir("/sys/class/nvme")):
            if disk in map(disk_of, os.listdir(f"/sys/class/nvme/{name}")):
                paths += [_NvmePath(name, disk)]
    elif disk.startswith("dm-"):
        map_name = blocks.attribute("dm/name")
        paths += [_ScsiPath(name, map_name) for name in blocks.list_sysfs("slaves")]
    elif disk.startswith("sd") and "/session" in os.path.realpath(f"{blocks.sysfs}/device"):
        paths.append(_ScsiPath(disk, ""))
    if not paths:
        skip(f"the kernel shows no path to {disk} that could be lost")
    return paths


def wait_until(
    seconds: float, predicate: Callable[[], bool], description: str, *, or_fail: bool = True
) -> float:
    """Wait until ``predicate()`` is true; return the waiting time. Fails after ``seconds`` if ``or_fail``."""
    began = time.monotonic()
    while not predicate():
        if time.monotonic() - began > seconds:
            assert not or_fail, f"not within {seconds:g} s: {description}"
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
    return (fsutil.read_text(path) or "").strip()


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
