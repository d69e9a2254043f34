"""Mutants of Lustre's group locks: each is :class:`lustre_groups.Groups` with one rule broken."""

from __future__ import annotations

import errno
from functools import partial

from fuse_passthrough import PassThrough
from fuse_protocol import Call
from lustre_fault_mutants import MUTANTS
from lustre_groups import Groups
from posix_rules import mutant as enter

mutant = partial(enter, table=MUTANTS)


@mutant("group-unknown | llapi_group_lock(3) | a group lock ends in ENOTTY")
class GroupUnknown(Groups):
    def ioctl(self, call: Call, node: int, handle: int, request: int, number: int) -> int | None:
        return PassThrough.ioctl(self, call, node, handle, request, number)


@mutant("group-stays | llapi_group_lock(3) | a group lock that is released is still held")
class GroupStays(Groups):
    def give(self, node: int, handle: int, group: int) -> None:
        """Keep it."""


@mutant("group-zero | llapi_group_lock(3) EINVAL | group 0 is granted")
class GroupZero(Groups):
    def take(self, call: Call, node: int, handle: int, group: int) -> None:
        super().take(call, node, handle, group or 1)


@mutant("group-twice | llapi_group_lock(3) EINVAL | a descriptor has two group locks")
class GroupTwice(Groups):
    def take(self, call: Call, node: int, handle: int, group: int) -> None:
        self.groups.pop(handle, None)
        super().take(call, node, handle, group)


@mutant("group-same-twice | llapi_group_lock(3) EINVAL | a second lock of the same group is granted")
class GroupSameTwice(Groups):
    def take(self, call: Call, node: int, handle: int, group: int) -> None:
        if self.groups.get(handle) != (node, group):
            super().take(call, node, handle, group)


@mutant("group-unlock-without | llapi_group_lock(3) EINVAL | an unlock without a lock succeeds")
class GroupUnlockWithout(Groups):
    def give(self, node: int, handle: int, group: int) -> None:
        if handle in self.groups:
            super().give(node, handle, group)


@mutant("group-unlock-any | llapi_group_lock(3) EINVAL | an unlock of another group succeeds")
class GroupUnlockAny(Groups):
    def give(self, node: int, handle: int, group: int) -> None:
        if handle not in self.groups:
            super().give(node, handle, group)
        self.end_lock(handle)


@mutant("group-unlock-refused-ends | llapi_group_lock(3) EINVAL | an unlock that is refused ends the lock")
class GroupUnlockRefusedEnds(Groups):
    def give(self, node: int, handle: int, group: int) -> None:
        try:
            super().give(node, handle, group)
        finally:
            self.end_lock(handle)


@mutant("group-alone | llapi_group_lock(3) | a second descriptor of the group is refused: EBUSY")
class GroupAlone(Groups):
    def take(self, call: Call, node: int, handle: int, group: int) -> None:
        if handle not in self.groups and (node, group) in self.groups.values():
            raise OSError(errno.EBUSY, "group lock")
        super().take(call, node, handle, group)


@mutant("group-shared-by-all | llapi_group_lock(3) | two groups have one file")
class GroupSharedByAll(Groups):
    def conflicts(self, node: int, group: int) -> bool:
        return False


@mutant("group-other-refused | llapi_group_lock(3) | another group is refused, and does not wait")
class GroupOtherRefused(Groups):
    def wait(self, call: Call) -> None:
        raise OSError(errno.EAGAIN, "group lock")


@mutant("group-always-waits | llapi_group_lock(3) O_NONBLOCK | another group waits also with O_NONBLOCK")
class GroupAlwaysWaits(Groups):
    def take(self, call: Call, node: int, handle: int, group: int) -> None:
        self.never_waits.clear()
        super().take(call, node, handle, group)


@mutant("group-read-by-others | llapi_group_lock(3) | a client outside of the group reads")
class GroupReadByOthers(Groups):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        return PassThrough.read(self, call, node, handle, offset, size)


@mutant("group-close-keeps | llapi_group_lock(3) | the last close does not release the lock")
class GroupCloseKeeps(Groups):
    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        """Keep the handle, so that no other file has its number."""


@mutant("group-loses-a-write | llapi_group_lock(3) | of a group's writes, each third is lost")
class GroupLosesAWrite(Groups):
    count = 0

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if handle in self.groups:
            self.count += 1
        lost = handle in self.groups and self.count % 3 == 0
        return len(data) if lost else super().write(call, node, handle, offset, data)


def names() -> list[str]:
    """Return the names of this module's mutants."""
    return [name for name, one in MUTANTS.items() if one.files.startswith(f"{__name__}:")]
