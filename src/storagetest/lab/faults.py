"""What can be done to a machine from outside, without its goodwill. All by QMP, all undone by the next one.

========  =============================================================================================
pause     it stands still and answers nothing; its connections stay (a hung server)
resume    it goes on, and has not noticed
reset     as if the reset button were pressed: what was in memory is gone, disks in memory too
set_link  the cable of one network card is out, or in again (a partition)
kill      its QEMU ends, as if the power were out; only `down` and `up` bring it back
========  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from storagetest.lab import qmp
from storagetest.lab.process import wait_until
from storagetest.lab.status import HostStatus

__all__ = ["Network", "Vm"]

Network = Literal["data", "admin"]
_BOOT = 120.0


class Vm:
    """One machine of a lab that is up; from :meth:`storagetest.lab.Lab.vm`."""

    def __init__(self, name: str, directory: Path, look: Callable[[], HostStatus]) -> None:
        self.name = name
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

    def reset(self, *, wait: float = _BOOT) -> None:
        """Press the reset button and wait up to ``wait`` seconds until it is ready again (0: do not wait)."""
        boots = self._look().boots
        qmp.execute(self._qmp, "system_reset")
        if wait:
            wait_until(
                lambda: self._look().boots > boots, wait, f"{self.name} to be ready after a reset", every=0.2
            )

    def kill(self) -> None:
        """End its QEMU at once."""
        qmp.execute(self._qmp, "quit")
        wait_until(lambda: self._look().state == "ended", _BOOT, f"{self.name}'s QEMU to end")
