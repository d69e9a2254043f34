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

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from storagetest.config.base import Items, Model

PAIRS: Mapping[str, tuple[str, str]] = {
    "resize": ("grow", "shrink"),
    "isolation": ("isolate", "reconnect"),
    "device_removal": ("remove_device", "return_device"),
    "ost_deactivation": ("deactivate_ost", "activate_ost"),
    "space_exhaustion": ("exhaust_space", "free_space"),
    "mds_restart": ("stop_mds", "start_mds"),
}
"""For each capability, the command lines that give it to a target: what is done, and what undoes it."""

COMMANDS: Mapping[str, tuple[str, ...]] = {**PAIRS, "restart": ("restart",), "allocation": ("allocated",)}
"""For each capability, the names of its command lines."""

ON_THE_SERVER = frozenset(
    {"resize", "ost_deactivation", "space_exhaustion", "mds_restart", "restart", "allocation"}
)
"""Capabilities whose command lines are run on the target's ``server``; the others' are run on a client."""

Command = Annotated[Items[str], Field(min_length=1)]
"""A program and its arguments. No shell interprets them."""


class Controls(Model):
    """Pairs of command lines, of which the second undoes the first, and `restart` and `allocated`."""

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

    deactivate_ost: Command | None = None
    """Run on the target's `server`: stop the creation of objects on one OST of a Lustre file system."""

    activate_ost: Command | None = None
    """Run on the target's `server`: undo `deactivate_ost`."""

    exhaust_space: Command | None = None
    """Run on the target's `server`: let every write that needs new space fail, as on a full file system."""

    free_space: Command | None = None
    """Run on the target's `server`: undo `exhaust_space`."""

    stop_mds: Command | None = None
    """Run on the target's `server`: stop the metadata server of a Lustre file system for a failover."""

    start_mds: Command | None = None
    """Run on the target's `server`: start the metadata server that `stop_mds` has stopped."""

    restart: Command | None = None
    """Run on the target's `server`: restart the service, as after a reboot: it forgets its clients' state.
    It also interrupts all others that use the server."""

    allocated: Command | None = None
    """Run on the target's `server`: print the number of bytes that the target's data take there."""

    @model_validator(mode="after")
    def _in_pairs(self) -> Self:
        for one, other in PAIRS.values():
            if (getattr(self, one) is None) is not (getattr(self, other) is None):
                raise ValueError(f"{one} and {other} go together: the second undoes the first")
        return self

    def pair(self, capability: str) -> tuple[Sequence[str], Sequence[str]]:
        """Return the command lines of ``capability``: what is done, and what undoes it."""
        one, other = (getattr(self, name) for name in PAIRS[capability])
        assert one is not None, f"needs({capability!r})"
        return one, other

    @property
    def capabilities(self) -> frozenset[str]:
        """The capabilities whose command lines are given."""
        return frozenset(name for name, (one, *_) in COMMANDS.items() if getattr(self, one) is not None)

    @property
    def on_the_server(self) -> frozenset[str]:
        """Those of :attr:`capabilities` whose command lines are run on the target's ``server``."""
        return self.capabilities & ON_THE_SERVER
