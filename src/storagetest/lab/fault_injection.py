"""Fault injection for lab machines: pause, kill, power on, unplug a network card.

=========  ===============================================================================================
pause      stop the processors; connections stay open (a server that hangs)
resume     continue after pause
set_link   unplug or plug in one network card (a network partition)
kill       end QEMU without a shutdown (a power failure); memory and in-memory disks are lost
power_on   boot again after kill, with the same addresses and ports
reset      kill and power_on
restore    kill, and continue from the lab's snapshot: the machine as it was after the start of the lab
           (refused in a lab whose machines share a disk)
=========  ===============================================================================================

Why reset does not use QEMU's system_reset: under emulation it takes four times as long as a new QEMU process,
because QEMU has to invalidate all translated code.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from storagetest.errors import LabError
from storagetest.lab import qmp, supervisor
from storagetest.lab.qemu import APPLIANCE, SHARED_DISK, socket_name
from storagetest.lab.status import HostStatus, LabStatus
from storagetest.lab.subprocess_util import tail
from storagetest.polling import wait_until

Network = Literal["data", "admin"]
_BOOT_TIMEOUT = 600.0  # seconds; a bound on a hang, for emulation on a busy host


class FaultableVm:
    """One machine of a running lab; returned by :meth:`storagetest.lab.Lab.vm`."""

    def __init__(self, name: str, directory: Path, query: Callable[[], LabStatus]) -> None:
        self.name = name
        self._directory = directory
        self._qmp = directory / f"qmp-{name}"
        self._query = query

    def pause(self) -> None:
        """Stop the processors."""
        qmp.execute(self._qmp, "stop")

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        qmp.execute(self._qmp, "cont")

    def set_link(self, network: Network, up: bool) -> None:
        """Plug in or unplug the card on ``network``: "data" carries storage traffic, "admin" carries SSH."""
        qmp.execute(self._qmp, "set_link", name=f"nic-{network}", up=up)

    def kill(self) -> None:
        """End QEMU without a shutdown and wait until it has exited."""
        qmp.execute(self._qmp, "quit")
        wait_until(
            lambda: self._host().state == "ended",
            _BOOT_TIMEOUT,
            f"{self.name}'s QEMU to exit",
            error=LabError,
        )

    def power_on(self, *, timeout: float = _BOOT_TIMEOUT) -> None:
        """Boot after :meth:`kill`; wait up to ``timeout`` seconds until the machine is ready (0: no wait)."""
        if self._host().state != "ended":
            raise LabError(f"{self.name}: power_on failed: it is running. Call kill() first.")
        self._start(timeout, resume=False)

    def reset(self, *, timeout: float = _BOOT_TIMEOUT) -> None:
        """Kill and boot the machine."""
        self.kill()
        self.power_on(timeout=timeout)

    def restore(self, *, timeout: float = _BOOT_TIMEOUT) -> None:
        """Replace the machine by that of the lab's snapshot: its memory, its disks in memory, its services.

        Connections of other machines to it break. Raises :class:`LabError` if the lab has no snapshot.
        """
        if not self._query().snapshot:
            raise LabError(f"{self.name}: restore failed: the lab was booted without a snapshot")
        if (self._directory / SHARED_DISK).exists():
            raise LabError(f"{self.name}: restore failed: the disk that the machines share has changed since")
        if self._host().state != "ended":
            self.kill()
        self._start(timeout, resume=True)

    def _start(self, timeout: float, *, resume: bool) -> None:
        """Start the machine and wait up to ``timeout`` seconds until it is ready (0: no wait)."""
        boots = self._host().boots
        supervisor.send_request(self._directory, json.dumps({"start": self.name, "resume": resume}))
        if self.name == APPLIANCE:
            self._replug_clients()
        if timeout:
            wait_until(
                lambda: self._is_ready(boots),
                timeout,
                f"{self.name} to be ready",
                interval=0.1,
                error=LabError,
            )

    def _is_ready(self, boots: int) -> bool:
        """Return whether the machine became ready after its start number ``boots``."""
        host = self._host()
        if host.state in {"ended", "failed"}:
            log = tail(self._directory / f"qemu-{self.name}.log", 3)
            raise LabError(f"{self.name} did not start: {log}")
        return host.boots > boots

    def _host(self) -> HostStatus:
        host = self._query().host(self.name)
        assert host is not None
        return host

    def _replug_clients(self) -> None:
        """Reconnect the clients' links: QEMU 7.2 does not reconnect a stream socket after its peer's exit."""
        for client in self._query().hosts:
            if client.name == APPLIANCE or client.state == "ended":
                continue
            path, link = self._directory / f"qmp-{client.name}", f"link-{client.name}"
            address = {"type": "unix", "path": socket_name(client.name)}
            qmp.execute(path, "netdev_del", id=f"plug-{link}")
            qmp.execute(path, "netdev_del", id=link)
            qmp.execute(path, "netdev_add", type="stream", id=link, server=False, addr=address)
            qmp.execute(path, "netdev_add", type="hubport", id=f"plug-{link}", hubid=0, netdev=link)
