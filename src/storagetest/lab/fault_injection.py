"""Fault injection for lab machines: pause, kill, power on, unplug a network card.

=========  ===============================================================================================
pause      stop the processors; connections stay open (a server that hangs)
resume     continue after pause
set_link   unplug or plug in one network card (a network partition)
kill       end QEMU without a shutdown (a power failure); memory and in-memory disks are lost
power_on   boot again after kill, with the same addresses and ports
reset      kill and power_on
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
from storagetest.lab.qemu import APPLIANCE, socket_name
from storagetest.lab.status import HostStatus, LabStatus
from storagetest.polling import wait_until

__all__ = ["FaultableVm", "Network"]

Network = Literal["data", "admin"]
_BOOT_TIMEOUT = 120.0  # seconds; for emulation on a loaded host


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
        boots = self._host().boots
        if self._host().state != "ended":
            raise LabError(f"{self.name}: power_on failed: it is running. Call kill() first.")
        supervisor.send_request(self._directory, json.dumps({"start": self.name}))
        if self.name == APPLIANCE:
            self._replug_clients()
        if timeout:
            wait_until(
                lambda: self._host().boots > boots,
                timeout,
                f"{self.name} to be ready",
                interval=0.2,
                error=LabError,
            )

    def reset(self, *, timeout: float = _BOOT_TIMEOUT) -> None:
        """Kill and boot the machine."""
        self.kill()
        self.power_on(timeout=timeout)

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
