"""The unit of :mod:`iscsi_rare_unit`, with an administrator: it is resized, and its target restarts."""

from __future__ import annotations

from pathlib import Path

from control_port import Administered
from iscsi_full_unit import POWER_ON, FullServer, UnitChoices
from iscsi_rare_unit import RareConnection, RareUnit

from storagetest.wire.scsi.codes import Asc

MORE = 512
"""Blocks by which the unit grows."""


class ControlledTarget(Administered, FullServer):
    """A target with a second port, at which an administrator acts; ``file`` is to have its number."""

    def __init__(self, file: Path) -> None:
        choices = UnitChoices(persists=True, attentions=(POWER_ON,))
        super().__init__(RareUnit(choices), kind=RareConnection)
        self.administered_by(file)

    def grow(self) -> None:
        """Make the unit larger, if it is not."""
        self._resize(self.full.choices.blocks + MORE)

    def shrink(self) -> None:
        """Give the unit its first size again."""
        self._resize(self.full.choices.blocks)
        self.full.clear(self.full.blocks, MORE)

    def _resize(self, blocks: int) -> None:
        if blocks != self.full.blocks:
            self.full.blocks = blocks
            self.full.notify(list(self.full.attentions), Asc.CAPACITY_DATA_HAS_CHANGED)

    def restart(self) -> None:
        """Drop every connection and forget what does not persist through a loss of power (SPC-4)."""
        ControlledTarget.restarts += 1
        self.drop_connections()
        self.full.lose_power()
