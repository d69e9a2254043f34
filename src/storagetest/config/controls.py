"""The ``controls`` of a target: command lines for actions that only an administrator can perform.

    targets:
      san:
        protocol: iscsi
        server: array
        controls:
          grow: [sh, -c, "lvextend --size 2g vg/lun0"]     # on the server
          shrink: [sh, -c, "lvreduce --yes --size 1g vg/lun0"]
          restart: [systemctl, restart, target]            # on the server

A suite runs only the command lines that the targets file gives. A case that needs another one is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from storagetest.config.base import Items, Model

Command = Annotated[Items[str], Field(min_length=1)]
"""A program and its arguments. No shell interprets them."""


class Controls(Model):
    """Pairs of command lines, of which the second undoes the first, and `restart`."""

    renamed_keys: ClassVar[Mapping[str, str]] = {"cut_off": "isolate", "let_back": "reconnect"}

    grow: Command | None = None
    """Run on the target's `server`: makes the device larger."""

    shrink: Command | None = None
    """Run on the target's `server`: restores the size that the device had before `grow`."""

    isolate: Command | None = None
    """Run on a client: drop all packets between the client and the target, as after a power loss."""

    reconnect: Command | None = None
    """Run on a client: undo `isolate`."""

    remove_device: Command | None = None
    """Run on a client: take the device away on which a pNFS layout has its data."""

    return_device: Command | None = None
    """Run on a client: undo `remove_device`."""

    restart: Command | None = None
    """Run on the target's `server`: restart the service, as after a reboot: it forgets its clients' state.
    It also interrupts all others that use the server."""

    @model_validator(mode="after")
    def _in_pairs(self) -> Self:
        pairs = (("grow", "shrink"), ("isolate", "reconnect"), ("remove_device", "return_device"))
        for one, other in pairs:
            if (getattr(self, one) is None) is not (getattr(self, other) is None):
                raise ValueError(f"{one} and {other} go together: the second undoes the first")
        return self

    @property
    def resizes(self) -> bool:
        """Whether the device can be made larger."""
        return self.grow is not None

    @property
    def isolates(self) -> bool:
        """Whether a client can be isolated from the target."""
        return self.isolate is not None

    @property
    def removes_devices(self) -> bool:
        """Whether a client's device can be taken away."""
        return self.remove_device is not None

    @property
    def restarts(self) -> bool:
        """Whether the target's service can be restarted."""
        return self.restart is not None
