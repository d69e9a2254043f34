"""Mutants of what a Lustre file system promises under faults: an inactive OST, no space, a restarted MDS.

Each is :class:`lustre_server.Server` with one rule broken.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Never

from fuse_locks import LAST, WRITE
from fuse_protocol import DIRECT_IO, Call, Created, Opened
from lustre_mutants import MUTANTS
from lustre_server import INACTIVE, OSTS, Server
from posix_rules import mutant as enter

mutant = partial(enter, table=MUTANTS)


def _refuse(number: int = errno.EIO) -> Never:
    raise OSError(number, os.strerror(number))


# Inactive OST


@mutant("inactive-has-new-objects | Removing and Restoring OSTs | a new file has objects on an inactive OST")
class InactiveHasNewObjects(Server):
    def active(self) -> tuple[int, ...]:
        return OSTS


@mutant("inactive-takes-another | Removing and Restoring OSTs | an inactive OST disables a second one")
class InactiveTakesAnother(Server):
    def active(self) -> tuple[int, ...]:
        return super().active()[:1]


@mutant("inactive-not-read | Removing and Restoring OSTs | data on an inactive OST are not read")
class InactiveNotRead(Server):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        return _refuse() if self.is_on_inactive(node) else super().read(call, node, handle, offset, size)


@mutant("inactive-write-lost | Removing and Restoring OSTs | data written on an inactive OST are lost")
class InactiveWriteLost(Server):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        lost = self.is_on_inactive(node)
        return len(data) if lost else super().write(call, node, handle, offset, data)


@mutant(
    "inactive-unlink-refused | Removing and Restoring OSTs | a file on an inactive OST is not removed: EIO"
)
class InactiveUnlinkRefused(Server):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        if "ost_deactivation" in self.faults:
            _refuse()
        super().unlink(call, parent, name)


@mutant(
    "inactive-name-stays | Removing and Restoring OSTs | a file on an inactive OST is removed and still there"
)
class InactiveNameStays(Server):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        if "ost_deactivation" not in self.faults:
            super().unlink(call, parent, name)


class _Deactivated(Server):
    """Knows whether the OST was ever inactive."""

    deactivated = False

    def control(self, capability: str, *, on: bool) -> None:
        super().control(capability, on=on)
        self.deactivated |= capability == "ost_deactivation"


@mutant("active-again-unused | Removing and Restoring OSTs | an OST that is active again has no new objects")
class ActiveAgainUnused(_Deactivated):
    def new_layout(self) -> tuple[int, ...]:
        return self.active() if self.deactivated else super().new_layout()


@mutant("active-again-loses-data | Removing and Restoring OSTs | an OST that is active again loses new data")
class ActiveAgainLosesData(_Deactivated):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        lost = self.deactivated and INACTIVE in self.layouts.get(node, ())
        return len(data) if lost else super().write(call, node, handle, offset, data)


# No space


@mutant("full-accepts | write(3p) [ENOSPC] | a write without space succeeds, and its data are lost")
class FullAccepts(Server):
    def write_without_space(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        return len(data)


@mutant("full-eio | write(3p) [ENOSPC] | a write without space ends in EIO")
class FullEio(Server):
    def write_without_space(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        _refuse()


@mutant("full-destroys | write(3p) [ENOSPC] | a write without space empties the file")
class FullDestroys(Server):
    def write_without_space(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        os.truncate(self.nodes[node].path, 0)
        return super().write_without_space(call, node, handle, offset, data)


@mutant("full-forever | write(3p) [ENOSPC] | writes are refused also after space is free again")
class FullForever(Server):
    def control(self, capability: str, *, on: bool) -> None:
        super().control(capability, on=on or capability == "space_exhaustion")


class _Freed(Server):
    freed = False

    def control(self, capability: str, *, on: bool) -> None:
        super().control(capability, on=on)
        self.freed |= capability == "space_exhaustion" and not on


@mutant("freed-loses-data | write(3p) | what is written after space is free again is lost")
class FreedLosesData(_Freed):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        return len(data) if self.freed else super().write(call, node, handle, offset, data)


@mutant("freed-overwrites | write(3p) | what is written after space is free again begins 2 bytes too early")
class FreedOverwrites(_Freed):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        done = super().write(call, node, handle, offset, data)
        if self.freed and offset >= 2:
            super().write(call, node, handle, offset - 2, data[:2])
        return done


@mutant("full-not-read | Handling Full OSTs | a file is not read without space")
class FullNotRead(Server):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        return (
            _refuse(errno.ENOSPC)
            if "space_exhaustion" in self.faults
            else super().read(call, node, handle, offset, size)
        )


@mutant("full-not-truncated | Handling Full OSTs | a file is not truncated without space: ENOSPC")
class FullNotTruncated(Server):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        if "space_exhaustion" in self.faults:
            _refuse(errno.ENOSPC)
        super().truncate(call, node, handle, size)


@mutant("full-truncate-ignored | Handling Full OSTs | a file that is truncated without space keeps its size")
class FullTruncateIgnored(Server):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        if "space_exhaustion" not in self.faults:
            super().truncate(call, node, handle, size)


@mutant("full-not-removed | Handling Full OSTs | a file is not removed without space: ENOSPC")
class FullNotRemoved(Server):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        if "space_exhaustion" in self.faults:
            _refuse(errno.ENOSPC)
        super().unlink(call, parent, name)


@mutant("full-name-stays | Handling Full OSTs | a file is removed without space and still there")
class FullNameStays(Server):
    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        if "space_exhaustion" not in self.faults:
            super().unlink(call, parent, name)


# Restart of the metadata server


class _Remembering(Server):
    """Knows the files that are open, and the names that were changed since the last start."""

    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.handles: dict[int, int] = {}
        self.before: set[int] = set()
        """Handles that a restart has seen."""
        self.created: list[tuple[int, bytes]] = []
        self.renamed: list[tuple[int, bytes, int, bytes]] = []
        self.removed: list[tuple[int, bytes]] = []

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.handles[opened.handle] = node
        return opened

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        self.handles[opened.handle] = node
        self.created.append((parent, name))
        return node, opened

    def release(self, call: Call, node: int, handle: int, owner: int, *, flock: bool) -> None:
        self.handles.pop(handle, None)
        self.before.discard(handle)
        super().release(call, node, handle, owner, flock=flock)

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        super().rename(call, parent, old, where, new, flags)
        self.renamed.append((parent, old, where, new))

    def unlink(self, call: Call, parent: int, name: bytes) -> None:
        super().unlink(call, parent, name)
        self.removed.append((parent, name))

    def restart(self) -> None:
        self.before = set(self.handles)

    def is_removed(self, node: int) -> bool:
        return os.fstat(self.fd(node)).st_nlink == 0


@mutant("restart-closes-files | Metadata Replay | a file that was open is ESTALE after the restart")
class RestartClosesFiles(_Remembering):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        if handle in self.before:
            _refuse(errno.ESTALE)
        return super().read(call, node, handle, offset, size)


@mutant("restart-ends-writes | Metadata Replay | what an open file writes after the restart is lost")
class RestartEndsWrites(_Remembering):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        lost = handle in self.before
        return len(data) if lost else super().write(call, node, handle, offset, data)


@mutant("restart-never-recovers | Lustre File System Recovery | every name ends in EIO after the restart")
class RestartNeverRecovers(_Remembering):
    restarted = False

    def restart(self) -> None:
        self.restarted = True

    def lookup(self, call: Call, parent: int, name: bytes) -> int:
        return _refuse() if self.restarted else super().lookup(call, parent, name)


@mutant("restart-destroys-orphans | Metadata Replay | a removed file that is open is empty after the restart")
class RestartDestroysOrphans(_Remembering):
    def restart(self) -> None:
        for node in filter(self.is_removed, set(self.handles.values())):
            os.truncate(self.nodes[node].path, 0)


@mutant("restart-orphans-end-writes | Metadata Replay | an open, removed file loses writes after the restart")
class RestartOrphansEndWrites(_Remembering):
    """Without a page cache, in which the lost data would be."""

    def open(self, call: Call, node: int, flags: int) -> Opened:
        return replace(super().open(call, node, flags), flags=DIRECT_IO)

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        lost = handle in self.before and self.is_removed(node)
        return len(data) if lost else super().write(call, node, handle, offset, data)


@mutant("restart-loses-creates | Metadata Replay | files created before the restart are gone")
class RestartLosesCreates(_Remembering):
    def restart(self) -> None:
        for parent, name in self.created:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self.fd(parent))


@mutant("restart-loses-renames | Metadata Replay | files renamed before the restart have their old names")
class RestartLosesRenames(_Remembering):
    def restart(self) -> None:
        for parent, old, where, new in self.renamed:
            with suppress(FileNotFoundError):
                os.rename(new, old, src_dir_fd=self.fd(where), dst_dir_fd=self.fd(parent))


@mutant("restart-loses-removals | Metadata Replay | names removed before the restart are there again")
class RestartLosesRemovals(_Remembering):
    def restart(self) -> None:
        for parent, name in self.removed:
            with suppress(FileNotFoundError):  # the directory of an earlier case
                os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=self.fd(parent)))


@mutant("restart-empties-files | Metadata Replay | files created before the restart are empty")
class RestartEmptiesFiles(_Remembering):
    def restart(self) -> None:
        for one in self.nodes.values():
            if Path(one.path).is_file():
                os.truncate(one.path, 0)


@mutant("restart-forgets-locks | Metadata Replay | record locks are gone after the restart")
class RestartForgetsLocks(Server):
    def restart(self) -> None:
        self.held.clear()


@mutant("restart-widens-locks | Metadata Replay | a record lock covers the whole file after the restart")
class RestartWidensLocks(Server):
    def restart(self) -> None:
        for one in list(self.held):
            self.setlk(
                Call(0, one.node, 0, 0, 0),
                one.node,
                one.owner,
                0,
                LAST,
                WRITE,
                one.pid,
                waits=False,
                whole=False,
            )


@mutant(
    "restart-keeps-locks | Metadata Replay | a record lock from before the restart is not released by close"
)
class RestartKeepsLocks(Server):
    restarted = False

    def restart(self) -> None:
        self.restarted = True

    def give_up(self, node: int, owner: int, *, whole: bool) -> None:
        if not self.restarted:
            super().give_up(node, owner, whole=whole)


@mutant("stopped-refuses | Lustre File System Recovery | a call without metadata server ends in EIO")
class StoppedRefuses(Server):
    def needs_metadata(self, call: Call) -> None:
        if "mds_restart" in self.faults:
            _refuse()


@mutant("stopped-goes-on | Lustre File System Recovery | a name is created without metadata server")
class StoppedGoesOn(Server):
    def needs_metadata(self, call: Call) -> None:
        """Nothing stops."""


@mutant("restart-ends-calls | Lustre File System Recovery | a call that waits for the restart ends in EIO")
class RestartEndsCalls(Server):
    """The kernel repeats a lookup that fails, so the process that waits has to be known."""

    waiting: frozenset[int] = frozenset()

    def restart(self) -> None:
        self.waiting = frozenset(call.pid for call in self.late)

    def needs_metadata(self, call: Call) -> None:
        if call.pid in self.waiting:
            _refuse()
        super().needs_metadata(call)


@mutant(
    "restart-forgets-calls | Lustre File System Recovery | a call that waits for the restart does not end"
)
class RestartForgetsCalls(Server):
    lost: tuple[Call, ...] = ()

    def restart(self) -> None:
        self.lost = tuple(self.late)
        self.late.clear()

    def interrupt(self, unique: int) -> None:
        super().interrupt(unique)
        if any(call.unique == unique for call in self.lost):
            self.answer(unique, errno.EINTR)


@mutant("stopped-stops-writes | Lustre File System Recovery | without metadata server a write ends in EIO")
class StoppedStopsWrites(Server):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if "mds_restart" in self.faults:
            _refuse()
        return super().write(call, node, handle, offset, data)


@mutant(
    "stopped-reads-zeros | Lustre File System Recovery | an open file reads as zeros without metadata server"
)
class StoppedReadsZeros(Server):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        found = super().read(call, node, handle, offset, size)
        return bytes(len(found)) if "mds_restart" in self.faults else found


@mutant("restart-undoes-writes | Lustre File System Recovery | data written without metadata server are lost")
class RestartUndoesWrites(Server):
    def __init__(self, below: Path) -> None:
        super().__init__(below)
        self.replaced: list[tuple[int, int, bytes]] = []

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if "mds_restart" in self.faults:
            fd = os.open(self.nodes[node].path, os.O_RDONLY)
            self.replaced.append((node, offset, os.pread(fd, len(data), offset)))
            os.close(fd)
        return super().write(call, node, handle, offset, data)

    def restart(self) -> None:
        for node, offset, data in self.replaced:
            fd = os.open(self.nodes[node].path, os.O_WRONLY)
            os.pwrite(fd, data, offset)
            os.close(fd)


def names() -> list[str]:
    """Return the names of this module's mutants."""
    return [name for name, one in MUTANTS.items() if one.files.startswith(f"{__name__}:")]
