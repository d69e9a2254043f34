"""Seeded random sequences of system calls on files in many states; a model has what each call leaves.

:mod:`.name_sequence` and :mod:`.file_sequence` compare what a call names. Here a call is made on a file in
each of :attr:`Episode.STATES` (with two names, open, removed, replaced, made again, ...), and then all files
are compared, by all their names and open descriptors: kind, serial number, link count, mode, owner, group,
size, data, target, extended attributes, and whether mtime and ctime were marked or kept. So a call that
changes a bystander, forgets one of two names, or marks a time that it has to leave, is noticed.

Invariants: the model is changed after the call succeeded, and only then; a call that has to fail changes
nothing; a step of the target's clock lies between two batches, so that a time that is marked differs.
"""

from __future__ import annotations

import os
import random
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from storagetest.agent.testlib.outcomes import CannotRun
from storagetest.agent.testlib.tree_files import GROUP, FileCalls
from storagetest.agent.testlib.tree_lacking import lacking_calls
from storagetest.agent.testlib.tree_model import Inode
from storagetest.agent.testlib.tree_world import LARGE

CALLS = 8
"""Calls on each file before new ones are made (chosen): later ones find fewer of the states."""

TURNS, SLOW_TURNS = 14, 4
"""Calls on each file of a sequence, and of one on a slow target (chosen)."""
SLOW_SECONDS = 5.0
"""A target is slow if the first files take longer to make (chosen): 0.3 s on a disk, 0.8 s on FUSE."""
LAST_SECONDS = 12.0
"""Seconds after which no call is begun at all (chosen): a case has a deadline of 30 s."""
FIRST = ("_unlink", "_utime", "_mkdir", "_rename", "_empty", "_copy")
"""The first calls of a sequence, from the last to the first: a slow target has some of those (chosen)."""


def run_tree(root: Path, seed: int) -> int:
    """Run episodes of TURNS calls together, or of SLOW_TURNS; return how many calls were made.

    So each run makes the same calls, however fast a target is, unless LAST_SECONDS have passed.
    """
    order = random.Random(seed)  # noqa: S311  # a sequence, no secret
    lacking, began, count, number, turns = lacking_calls(root), time.monotonic(), 0, 0, TURNS
    pending = [one for one in FIRST if one not in lacking]
    while turns > 0:
        number += 1
        prepared = time.monotonic()
        episode = Episode(root / f"e{number}", order, lacking)
        try:
            episode.prepare()
            if number == 1 and time.monotonic() - prepared > SLOW_SECONDS:
                turns = SLOW_TURNS
            for _ in range(min(CALLS, turns)):
                if not pending:
                    pending = [one for one in Episode.CALLS if one not in lacking]
                    order.shuffle(pending)
                if time.monotonic() - began > LAST_SECONDS:
                    return count
                count += episode.make(pending.pop())
                turns -= 1
        finally:
            episode.close()
    return count


class Episode(FileCalls):
    """Files in each state, and calls on all of them."""

    CALLS = (
        "_create", "_create", "_mkdir", "_symlink", "_fifo", "_unlink", "_unlink", "_rmdir", "_rename",
        "_rename", "_rename", "_rename_flags", "_exchange", "_link", "_link", "_open_existing", "_empty",
        "_empty", "_hold", "_close", "_write", "_write", "_write", "_truncate", "_truncate", "_copy",
        "_copy", "_copy", "_copy", "_allocate", "_punch", "_punch", "_store", "_store", "_chmod", "_chmod",
        "_chown", "_utime", "_utime", "_set_xattr", "_set_xattr", "_remove_xattr", "_read", "_again",
        "_again", "_refused",
    )  # fmt: skip

    def prepare(self) -> None:
        """Make a file in each state."""
        self.start()
        self.actors: list[tuple[str, Inode]] = []
        for number, (state, make) in enumerate(self._states().items()):
            self.state = state
            place = self._in(self.tree, f"s{number}")
            self._mkdir_at(place, 0o755)
            with suppress(CannotRun):
                make(place.found)
                self.actors.append((state, self.focus))
                self._change_attributes()
        self.finish()

    def _change_attributes(self) -> None:
        """Make one or two of the calls that change an attribute: later calls have to keep that."""
        calls = ("_chmod", "_chown", "_utime", "_set_xattr")
        for name in self.random.sample([one for one in calls if one not in self.lacking], 2):
            with suppress(CannotRun):
                getattr(self, name)()

    def make(self, call: str) -> int:
        """Make a call on each file, and compare; return how many were made."""
        before = self.made
        for state, focus in self.actors:
            self.state, self.focus = state, focus
            with suppress(CannotRun):
                getattr(self, call)()
        self.finish()
        return self.made - before

    def _states(self) -> dict[str, Callable[[Inode], None]]:
        return {
            "a file": self._file_in,
            "a file with two names": self._two_names,
            "a file with names in two directories": self._two_directories,
            "an open file": self._open,
            "a file that is open three times": self._open_often,
            "a removed open file": self._removed,
            "a removed open file whose name was made again": self._succeeded,
            "a replaced open file": self._replaced,
            "an open file with another name that was replaced": self._replaced_name,
            "a renamed open file": self._renamed,
            "a file with its old name": self._renamed_back,
            "a file whose name was made again": self._made_again,
            "a file in a renamed directory": self._below_renamed,
            "a file with attributes": self._with_xattrs,
            "a large file": self._large,
            "a removed large open file": self._removed_large,
            "a file that was cut": self._cut,
            "a file with a hole": self._sparse,
            "a file with a set-group-ID directory": self._below_setgid,
            "an exchanged file": self._exchanged,
            "an empty directory": self._empty_directory,
            "a directory with entries": self._full_directory,
            "a moved directory": self._moved_directory,
            "a directory whose name was made again": self._directory_again,
            "a symbolic link": self._link_in,
            "a symbolic link whose name was made again": self._link_again,
            "a FIFO with two names": self._fifo_in,
        }

    # States

    def _file_in(self, directory: Inode) -> None:
        self._create_at(self._in(directory, "a"))
        self.focus = directory.entries["a"]
        self._write_at(0, 5000)

    def _two_names(self, directory: Inode) -> None:
        self._file_in(directory)
        self._link_at(self._own(), self._in(directory, "b"))
        self._chmod_to(0o640)

    def _two_directories(self, directory: Inode) -> None:
        self._file_in(directory)
        self._mkdir_at(self._in(directory, "b"), 0o755)
        self._link_at(self._own(), self._in(directory.entries["b"], "c"))
        self._hold_with(0)

    def _open(self, directory: Inode) -> None:
        self._file_in(directory)
        self._hold_with(0)

    def _open_often(self, directory: Inode) -> None:
        self._file_in(directory)
        for flags in (0, os.O_APPEND, os.O_APPEND):
            self._hold_with(flags)

    def _removed(self, directory: Inode) -> None:
        self._open(directory)
        self._unlink()

    def _succeeded(self, directory: Inode) -> None:
        self._with_xattrs(directory)
        self._hold_with(0)
        self._unlink()
        removed = self.focus
        self._file_in(directory)
        self.focus = removed
        self._truncate_to(3000)
        self._write_at(10, 50)

    def _replaced(self, directory: Inode) -> None:
        self._open(directory)
        replaced = self.focus
        self._create_at(self._in(directory, "b"))
        self._move(self._in(directory, "b"), self._in(directory, "a"), 0)
        self.focus = replaced

    def _replaced_name(self, directory: Inode) -> None:
        self._two_names(directory)
        self._hold_with(0)
        self._create_at(self._in(directory, "c"))
        self._move(self._in(directory, "c"), self._in(directory, "b"), 0)

    def _renamed(self, directory: Inode) -> None:
        self._open(directory)
        self._mkdir_at(self._in(directory, "b"), 0o755)
        self._move(self._own(), self._in(directory.entries["b"], "c"), 0)

    def _renamed_back(self, directory: Inode) -> None:
        self._renamed(directory)
        self._move(self._own(), self._in(directory, "a"), 0)

    def _made_again(self, directory: Inode) -> None:
        self._with_xattrs(directory)
        self._unlink()
        self._file_in(directory)

    def _below_renamed(self, directory: Inode) -> None:
        self._mkdir_at(self._in(directory, "b"), 0o755)
        self._mkdir_at(self._in(directory.entries["b"], "c"), 0o755)
        self._file_in(directory.entries["b"].entries["c"])
        self._hold_with(0)
        self._move(self._in(directory, "b"), self._in(directory, "e"), 0)

    def _with_xattrs(self, directory: Inode) -> None:
        self._file_in(directory)
        if "_set_xattr" not in self.lacking:
            for name in ("user.a", "user.ab"):
                self._set_xattr_to(name, self._bytes(80), 0)
                self._remove_xattr_of(name)
                for flags in (os.XATTR_REPLACE, os.XATTR_CREATE, os.XATTR_CREATE):
                    self._set_xattr_to(name, self._bytes(80), flags)

    def _large(self, directory: Inode) -> None:
        self._file_in(directory)
        if "large" in self.lacking:
            raise CannotRun
        for offset in LARGE:
            self._write_at(offset, 9000)

    def _removed_large(self, directory: Inode) -> None:
        self._large(directory)
        self._hold_with(0)
        self._unlink()

    def _cut(self, directory: Inode) -> None:
        self._file_in(directory)
        for size in (4097, 100, 4000):
            self._truncate_to(size)

    def _sparse(self, directory: Inode) -> None:
        self._file_in(directory)
        self._truncate_to(30_000)
        self._write_at(29_000, 500)

    def _below_setgid(self, directory: Inode) -> None:
        if "_chown" in self.lacking:
            raise CannotRun
        self.focus = directory
        self._chown_to(-1, GROUP)
        self._chmod_to(0o2755)
        if not os.stat(self._own().path).st_mode & stat.S_ISGID:
            raise CannotRun  # PSX-CHMOD-2755 tests whether that is legal
        self._mkdir_at(self._in(directory, "b"), 0o755)
        below = directory.entries["b"]
        self._file_in(below)
        self._fill(below)

    def _fill(self, directory: Inode) -> None:
        """Make an entry of each kind."""
        self._create_at(self._in(directory, "file"))
        self._mkdir_at(self._in(directory, "directory"), 0o755)
        for name, make in (("_symlink", self._symlink_at), ("_fifo", self._fifo_at)):
            if name not in self.lacking:
                make(self._in(directory, name))

    def _exchanged(self, directory: Inode) -> None:
        self._open(directory)
        self._mkdir_at(self._in(directory, "b"), 0o755)
        self._mkdir_at(self._in(directory, "c"), 0o755)
        self._create_at(self._in(directory.entries["b"], "c"))
        if "_exchange" not in self.lacking:
            self._exchange_once(self._own(), self._in(directory, "c"))
            self._exchange_once(self._own(), self._in(directory.entries["b"], "c"))
            self._mkdir_at(self._in(directory, "e"), 0o755)
            self._exchange_once(self._own(), self._in(directory, "e"))

    def _empty_directory(self, directory: Inode) -> None:
        self._mkdir_at(self._in(directory, "a"), 0o755)
        self.focus = directory.entries["a"]

    def _full_directory(self, directory: Inode) -> None:
        self._empty_directory(directory)
        self._fill(self.focus)
        self._rmdir()
        self._mkdir_at(self._in(directory, "f"), 0o755)
        self._move(self._in(directory, "f"), self._own(), 0)

    def _moved_directory(self, directory: Inode) -> None:
        self._full_directory(directory)
        self._mkdir_at(self._in(directory, "b"), 0o755)
        self._move(self._own(), self._in(directory.entries["b"], "c"), 0)
        self._make_below(self.focus)

    def _make_below(self, directory: Inode) -> None:
        self._mkdir_at(self._in(directory, "later"), 0o755)
        self._fill(directory.entries["later"])

    def _directory_again(self, directory: Inode) -> None:
        self._empty_directory(directory)
        self._chmod_to(0o711)
        self._rmdir()
        self._empty_directory(directory)

    def _link_in(self, directory: Inode, target: str = "a/./b//c/") -> None:
        if "_symlink" in self.lacking:
            raise CannotRun
        self._symlink_at(self._in(directory, "a"), target)
        self.focus = directory.entries["a"]

    def _link_again(self, directory: Inode) -> None:
        self._link_in(directory)
        self._unlink()
        self._link_in(directory, "other/dir")

    def _fifo_in(self, directory: Inode) -> None:
        if "_fifo" in self.lacking:
            raise CannotRun
        self._fifo_at(self._in(directory, "a"))
        self.focus = directory.entries["a"]
        self._link_at(self._own(), self._in(directory, "b"))
