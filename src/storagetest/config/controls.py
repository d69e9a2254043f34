"""What takes an administrator: command lines by which a suite has a server or a client do it.

    targets:
      san:
        protocol: iscsi
        server: array
        controls:
          grow: [sh, -c, "lvextend --size 2g vg/lun0"]     # on the server
          shrink: [sh, -c, "lvreduce --yes --size 1g vg/lun0"]

Nothing is done that is not written there: a case that takes a control is skipped where there is none.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from storagetest.config.base import Items, Model

__all__ = ["Command", "Controls"]

Command = Annotated[Items[str], Field(min_length=1)]
"""A program and its arguments, which no shell looks at."""


class Controls(Model):
    """Command lines, in pairs: what one does the other undoes."""

    grow: Command | None = None
    """Run on the target's `server`: makes the device larger."""

    shrink: Command | None = None
    """Run on the target's `server`: makes the device as it was before `grow`."""

    cut_off: Command | None = None
    """Run on a client: from now on nothing that it sends reaches the target, as if it had lost its power."""

    let_back: Command | None = None
    """Run on a client: undoes `cut_off`."""

    @model_validator(mode="after")
    def _in_pairs(self) -> Self:
        for one, other in (("grow", "shrink"), ("cut_off", "let_back")):
            if (getattr(self, one) is None) is not (getattr(self, other) is None):
                raise ValueError(f"{one} and {other} go together: what one does the other undoes")
        return self

    @property
    def resizes(self) -> bool:
        """Whether the device can be made larger."""
        return self.grow is not None

    @property
    def cuts_off(self) -> bool:
        """Whether a client can be cut off."""
        return self.cut_off is not None
