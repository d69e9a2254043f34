"""An honest file system with Lustre's group locks (llapi_group_lock(3)), for both clients in one mount.

Nothing is cached of a file, so that each read reaches it. A request that has to wait for a group is carried
out again when a group lock ends.
"""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

from fuse_locks import Locking
from fuse_protocol import DIRECT_IO, Call, Created, Later, Opened

from storagetest.agent.testlib.lfs import GROUP_LOCK, GROUP_UNLOCK


class Groups(Locking):
    """The honest file system with group locks."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.groups: dict[int, tuple[int, int]] = {}
        """The node and the group of each handle that has a lock."""
        self.never_waits: set[int] = set()
        """Handles with O_NONBLOCK."""
        self.waiting_for_group: list[Call] = []

    def open(self, call: Call, node: int, flags: int) -> Opened:
        return self.opened(super().open(call, node, flags), flags)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        return node, self.opened(opened, flags)

    def opened(self, opened: Opened, flags: int) -> Opened:
        if flags & os.O_NONBLOCK:
            self.never_waits.add(opened.handle)
        return replace(opened, flags=DIRECT_IO)

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.never_waits.discard(handle)
        self.end_lock(handle)
        super().release(call, node, handle, owner, flock=flock)

    def ioctl(self, call: Call, node: int, handle: int, request: int, number: int) -> int | None:
        if request == GROUP_LOCK:
            self.take(call, node, handle, number)
        elif request == GROUP_UNLOCK:
            self.give(node, handle, number)
        else:
            return super().ioctl(call, node, handle, request, number)
        return None

    def take(self, call: Call, node: int, handle: int, group: int) -> None:
        if group == 0 or handle in self.groups:
            raise OSError(errno.EINVAL, "group lock")
        if self.conflicts(node, group):
            if handle in self.never_waits:
                raise OSError(errno.EAGAIN, "group lock")
            self.wait(call)
        self.groups[handle] = (node, group)

    def give(self, node: int, handle: int, group: int) -> None:
        if self.groups.get(handle) != (node, group):
            raise OSError(errno.EINVAL, "group unlock")
        self.end_lock(handle)

    def conflicts(self, node: int, group: int) -> bool:
        """Whether another group has a lock on the file."""
        return any(one == node and other != group for one, other in self.groups.values())

    def end_lock(self, handle: int) -> None:
        self.groups.pop(handle, None)
        self.go_on()

    def go_on(self) -> None:
        """Carry out again what waits; some of it may wait again."""
        late, self.waiting_for_group = self.waiting_for_group, []
        for call in late:
            self.carry_out(call.request)

    def wait(self, call: Call) -> None:
        self.waiting_for_group.append(call)
        raise Later

    def interrupt(self, unique: int) -> None:
        super().interrupt(unique)
        for call in [call for call in self.waiting_for_group if call.unique == unique]:
            self.waiting_for_group.remove(call)
            self.answer(unique, errno.EINTR)

    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        if handle not in self.groups and any(one == node for one, _ in self.groups.values()):
            self.wait(call)
        return super().read(call, node, handle, offset, size)
