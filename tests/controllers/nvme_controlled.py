"""The small NVMe/TCP controller, with an administrator: its namespaces are resized, and it restarts."""

from __future__ import annotations

from pathlib import Path

from control_port import Administered
from nvme_namespace import ControllerConfig
from nvme_subsystem import EVENTS
from nvme_tcp_server import Server

from storagetest.wire.nvme.codes import Feature, LogPage

MORE = 512
"""Blocks by which the namespaces grow."""
NAMESPACE_NOTICES = 1 << 8
"""Of the feature Asynchronous Event Configuration: Namespace Attribute Notices (Base 5.2.26.1.5)."""


class ControlledServer(Administered, Server):
    """A server with a second port, at which an administrator acts; ``file`` is to have its number."""

    def __init__(self, file: Path, *, personality: ControllerConfig | None = None) -> None:
        super().__init__(personality=personality)
        self.administered_by(file)

    def grow(self) -> None:
        """Make each namespace larger, as far as it is not."""
        self._resize(self.subsystem.personality.blocks + MORE)

    def shrink(self) -> None:
        """Give each namespace its first size again."""
        self._resize(self.subsystem.personality.blocks)

    def _resize(self, blocks: int) -> None:
        with self.subsystem.lock:
            for one in self.subsystem.namespaces.values():
                one.data = one.data[: blocks * one.block_size].ljust(blocks * one.block_size, b"\0")
                one.blocks = blocks
            controllers = [one for one in self.subsystem.controllers.values() if not one.discovery]
            for controller in controllers:
                controller.changed.update(self.subsystem.namespaces)
        event = EVENTS[LogPage.CHANGED_NAMESPACES] | LogPage.CHANGED_NAMESPACES << 16
        for controller in controllers:
            if controller.features.get(Feature.ASYNC_EVENT, 0) & NAMESPACE_NOTICES:
                any(send(event) for send in list(controller.notify))

    def restart(self) -> None:
        """Drop every connection and forget what does not persist through power loss (7.6)."""
        for connection in list(self.connections):
            connection.drop_connection()
        with self.subsystem.lock:
            self.subsystem.controllers.clear()
            for one in self.subsystem.namespaces.values():
                if not one.persistence:
                    one.release()
                    one.registrants.clear()
        ControlledServer.restarts += 1
