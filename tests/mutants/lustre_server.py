"""An honest file system with the faults of a Lustre server, for both clients in one mount.

It has three OSTs in name: a layout is the list of those on which a file has objects. An attribute of the
root, ``user.control.CAPABILITY``, is the control: 1 while the server has the fault, 0 at its end.

- ``ost_deactivation``: a new layout does not contain OST 1. Data are not affected.
- ``space_exhaustion``: a write behind the end of a file is refused by ENOSPC.
- ``mds_restart``: a request that needs the metadata server is carried out after its end. Those on an open
  file need the OSTs only. Nothing is lost by the restart.

:mod:`lustre_lfs` is lfs(1) for it: ``user.layout`` of a file is its layout, and creates it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuse_locks import Locking
from fuse_passthrough import ROOT
from fuse_protocol import Attributes, Call, Later

CONTROL = b"user.control."
LAYOUT = b"user.layout"
OSTS = (0, 1, 2)
INACTIVE = 1
"""The OST that the control deactivates."""
METADATA = (
    *("lookup", "mkdir", "mknod", "symlink", "link", "unlink", "rmdir", "rename", "readlink"),
    *("chmod", "chown", "utimens", "access", "setxattr", "removexattr"),
    *("open", "create", "tmpfile", "opendir", "readdir", "setlk"),
)
"""Operations that need the metadata server; and getattr() and truncate() of a file by its name."""


class Server(Locking):
    """The honest file system with controls."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.faults: set[str] = set()
        self.layouts: dict[int, tuple[int, ...]] = {}
        """By node, which :meth:`forget` keeps."""
        self.late: list[Call] = []

    # Controls.

    def setxattr(self, call: Call, node: int, name: bytes, value: bytes, flags: int) -> None:
        if node == ROOT and name.startswith(CONTROL):
            self.control(name.removeprefix(CONTROL).decode(), on=value == b"1")
        elif name == LAYOUT:
            self.layouts[node] = self.new_layout()
        else:
            super().setxattr(call, node, name, value, flags)

    def control(self, capability: str, *, on: bool) -> None:
        """Make a fault, or end it."""
        if on:
            self.faults.add(capability)
        else:
            self.faults.discard(capability)
        if capability == "mds_restart" and not on:
            self.restart()
            late, self.late = self.late, []
            for call in late:
                self.carry_out(call.request)

    def restart(self) -> None:
        """The metadata server starts: nothing is lost."""

    def interrupt(self, unique: int) -> None:
        super().interrupt(unique)
        for call in [call for call in self.late if call.unique == unique]:
            self.late.remove(call)
            self.answer(unique, errno.EINTR)

    def forget(self, node: int, times: int) -> None:
        """Keep every node: its layout would be another file's."""

    # Inactive OST.

    def new_layout(self) -> tuple[int, ...]:
        """Return the OSTs of a new file over all OSTs."""
        return self.active() if "ost_deactivation" in self.faults else OSTS

    def active(self) -> tuple[int, ...]:
        return tuple(ost for ost in OSTS if ost != INACTIVE)

    def is_on_inactive(self, node: int) -> bool:
        """Whether the file has an object on an OST that is inactive now."""
        return "ost_deactivation" in self.faults and INACTIVE in self.layouts.get(node, ())

    def getxattr(self, call: Call, node: int, name: bytes) -> bytes:
        if name == LAYOUT:
            return " ".join(map(str, self.layouts.get(node, (0,)))).encode()
        return super().getxattr(call, node, name)

    # Space.

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if "space_exhaustion" in self.faults and offset + len(data) > os.fstat(handle).st_size:
            return self.write_without_space(call, node, handle, offset, data)
        return super().write(call, node, handle, offset, data)

    def write_without_space(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        """Refuse the write."""
        raise OSError(errno.ENOSPC, "write")

    # Metadata server.

    def needs_metadata(self, call: Call) -> None:
        """Leave a request for later while the metadata server is stopped."""
        if "mds_restart" in self.faults:
            self.late.append(call)
            raise Later

    def getattr(self, call: Call, node: int, handle: int | None) -> Attributes:
        if handle is None and node != ROOT:
            self.needs_metadata(call)
        return super().getattr(call, node, handle)

    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        if handle is None:
            self.needs_metadata(call)
        super().truncate(call, node, handle, size)


def _by_the_metadata_server(name: str) -> Callable[..., Any]:
    below = getattr(Server, name)

    def operation(self: Server, call: Call, node: int, *arguments: Any, **named: Any) -> Any:
        if node != ROOT or name != "setxattr":  # the control
            self.needs_metadata(call)
        return below(self, call, node, *arguments, **named)

    return operation


for _name in METADATA:
    setattr(Server, _name, _by_the_metadata_server(_name))
