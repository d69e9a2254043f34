"""What a file system lacks of the calls of :mod:`.tree_sequence`: other cases test whether that is legal."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from storagetest.agent.testlib.libc import (
    FALLOC_KEEP_SIZE,
    FALLOC_ZERO_RANGE,
    RENAME_EXCHANGE,
    RENAME_NOREPLACE,
    fallocate,
    renameat2,
)
from storagetest.agent.testlib.outcomes import CannotRun
from storagetest.agent.testlib.tree_model import FIFO, LINK
from storagetest.agent.testlib.tree_world import LARGE


def lacking_calls(root: Path) -> set[str]:
    """Return the calls that the file system lacks, by name."""
    probes = _Probes(root / "probe")
    tries: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("_link", lambda: os.link(probes.one, probes.other)),
        ("_symlink", lambda: os.symlink("x", probes.other)),
        ("_fifo", lambda: os.mkfifo(probes.other)),
        (f"_link of {LINK}", lambda: probes.linked(lambda: os.symlink("x", probes.one))),
        (f"_link of {FIFO}", lambda: probes.linked(lambda: os.mkfifo(probes.one))),
        (f"_utime of {LINK}", probes.times_of_link),
        ("_set_xattr", lambda: os.setxattr(probes.one, "user.a", b"v" * 200)),
        ("_remove_xattr", lambda: os.setxattr(probes.one, "user.a", b"v" * 200)),
        ("long values", probes.long_values),
        ("links of directories", probes.counted),
        ("_rename_flags", lambda: renameat2(probes.one, probes.other, RENAME_NOREPLACE)),
        ("_exchange", lambda: renameat2(probes.one, probes.third, RENAME_EXCHANGE)),
        ("_chown", probes.owned),
        ("_utime", lambda: os.utime(probes.one, ns=(10**18, 10**18))),
        ("_allocate", lambda: probes.on_file(lambda fd: fallocate(fd, FALLOC_KEEP_SIZE, 0, 10))),
        ("_punch", lambda: probes.on_file(lambda fd: fallocate(fd, FALLOC_ZERO_RANGE, 0, 10))),
        ("large", lambda: probes.on_file(_write_far)),
    )
    return {name for name, attempt in tries if not probes.works(attempt)}


class _Probes:
    """Files in ``place``: ``one`` and ``third`` exist before each attempt, ``other`` does not."""

    def __init__(self, place: Path) -> None:
        place.mkdir()
        self.place, self.one, self.other, self.third = place, place / "one", place / "other", place / "third"

    def works(self, attempt: Callable[[], Any]) -> bool:
        """Return whether an attempt succeeds."""
        for path in (self.one, self.other, self.third):
            with suppress(FileNotFoundError):
                os.unlink(path)
        for path in (self.one, self.third):
            path.write_bytes(b"0123456789")
        try:
            attempt()
        except (OSError, CannotRun):
            return False
        return True

    def on_file(self, call: Callable[[int], Any]) -> None:
        """Make a call on an open file."""
        descriptor = os.open(self.one, os.O_RDWR)
        try:
            call(descriptor)
        finally:
            os.close(descriptor)

    def owned(self) -> None:
        """Change owner and group: a server may map the ids of all users to one."""
        os.chown(self.one, 70_001, 70_002)
        found = os.stat(self.one)
        if (found.st_uid, found.st_gid) != (70_001, 70_002):
            raise CannotRun

    def linked(self, make: Callable[[], Any]) -> None:
        """Give a file that is not a regular one a second name."""
        os.unlink(self.one)
        make()
        os.link(self.one, self.other, follow_symlinks=False)

    def times_of_link(self) -> None:
        """Set the times of a symbolic link: PSX-UTIMENS-LINK tests it."""
        os.symlink("x", self.other)
        os.utime(self.other, ns=(10**18, 10**18), follow_symlinks=False)
        if os.lstat(self.other).st_mtime_ns != 10**18:
            raise CannotRun

    def counted(self) -> None:
        """Find whether a directory's link count has the directories in it."""
        for path in (self.place / "d", self.place / "d" / "one", self.place / "d" / "other"):
            path.mkdir()
        if os.stat(self.place / "d").st_nlink != 4:
            raise CannotRun

    def long_values(self) -> None:
        """Set the longest attributes of a sequence."""
        for name, length in (("user.other", 2500), ("user.a", 200), ("user.ab", 200)):
            os.setxattr(self.one, name, b"v" * length)


def _write_far(descriptor: int) -> None:
    os.ftruncate(descriptor, LARGE[1] + (1 << 20))
    os.pwrite(descriptor, b"x", LARGE[1])
