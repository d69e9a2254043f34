"""What can be done to a machine from outside, without its goodwill.

=========  ==========================================================================================
pause      it stands still and answers nothing; its connections stay (a hung server)
resume     it goes on, and has not noticed
set_link   the cable of one network card is out, or in again (a partition)
kill       the power is out: its QEMU ends; what was in memory is gone, and so are disks in memory
power_on   the power is in again: it boots, and serves under the addresses and ports that it had
reset      kill and power_on
=========  ==========================================================================================

A reset is not QEMU's system_reset: under emulation that is four times slower than a new QEMU, because code
that was translated before it has to be invalidated piece by piece.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from storagetest.errors import LabError
from storagetest.lab import keeper, qmp
from storagetest.lab.qemu import APPLIANCE, socket_name
from storagetest.lab.status import HostStatus, LabStatus
from storagetest.polling import wait_until

__all__ = ["Network", "Vm"]

Network = Literal["data", "admin"]
_BOOT = 120.0


class Vm:
    """One machine of a lab that is up; from :meth:`storagetest.lab.Lab.vm`."""

    def __init__(self, name: str, directory: Path, look: Callable[[], LabStatus]) -> None:
        self.name = name
        self._directory = directory
        self._qmp = directory / f"qmp-{name}"
        self._look = look

    def pause(self) -> None:
        """Stop its processors."""
        qmp.execute(self._qmp, "stop")

    def resume(self) -> None:
        """Let its processors run again."""
        qmp.execute(self._qmp, "cont")

    def set_link(self, network: Network, up: bool) -> None:
        """Put the cable of its card on ``network`` in or out: "data" carries storage, "admin" carries SSH."""
        qmp.execute(self._qmp, "set_link", name=f"nic-{network}", up=up)

    def kill(self) -> None:
        """Cut its power."""
        qmp.execute(self._qmp, "quit")
        wait_until(lambda: self._host().state == "ended", _BOOT, f"{self.name}'s QEMU to end", error=LabError)

    def power_on(self, *, wait: float = _BOOT) -> None:
        """Give it power again and wait up to ``wait`` seconds until it is ready (0: do not wait)."""
        boots = self._host().boots
        if self._host().state != "ended":
            raise LabError(f"{self.name} is not off")
        keeper.ask(self._directory, json.dumps({"start": self.name}))
        if self.name == APPLIANCE:
            self._replug_clients()
        if wait:
            wait_until(
                lambda: self._host().boots > boots,
                wait,
                f"{self.name} to be ready",
                interval=0.2,
                error=LabError,
            )

    def reset(self, *, wait: float = _BOOT) -> None:
        """Cut its power and give it again."""
        self.kill()
        self.power_on(wait=wait)

    def _host(self) -> HostStatus:
        found = self._look().host(self.name)
        assert found is not None
        return found

    def _replug_clients(self) -> None:
        """Connect the clients' links anew: QEMU 7.2 gives a link up when the other end is gone."""
        for client in self._look().hosts:
            if client.name == APPLIANCE or client.state == "ended":
                continue
            path, link = self._directory / f"qmp-{client.name}", f"link-{client.name}"
            address = {"type": "unix", "path": socket_name(client.name)}
            qmp.execute(path, "netdev_del", id=f"plug-{link}")
            qmp.execute(path, "netdev_del", id=link)
            qmp.execute(path, "netdev_add", type="stream", id=link, server=False, addr=address)
            qmp.execute(path, "netdev_add", type="hubport", id=f"plug-{link}", hubid=0, netdev=link)
