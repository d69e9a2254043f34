"""The calls on names of :mod:`.tree_sequence`: what each does to the tree, and which error it has to have."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from storagetest.agent.testlib.libc import RENAME_EXCHANGE, RENAME_NOREPLACE, renameat2
from storagetest.agent.testlib.stat_effects import ANY, DATA, KEPT, STATUS, Effect
from storagetest.agent.testlib.tree_model import (
    DIRECTORY,
    FIFO,
    FILE,
    LINK,
    Inode,
    TreeName,
)
from storagetest.agent.testlib.tree_world import FREE, TreeWorld

MOVED = Effect(KEPT, ANY)
"""rename() may mark the status change of the file itself (POSIX.1-2024 rename(): RATIONALE)."""


class NameCalls(TreeWorld):
    """Calls that make, remove and change names."""

    def _create(self) -> None:
        self._create_at(self._target())

    def _create_at(self, place: TreeName) -> None:
        mode, mask = self.random.choice((0o644, 0o600, 0o666, 0o751)), self.random.choice((0o022, 0o077, 0))
        made = self._new(place, FILE, mode & ~mask)

        def call() -> None:
            os.umask(mask)
            flags = os.O_CREAT | os.O_EXCL | os.O_RDWR
            os.close(os.open(place.name, flags, mode, dir_fd=place.at))

        self._make_entry(f"open({self._show(place)}, O_CREAT | O_EXCL, {mode:o})", call, place, made)

    def _mkdir(self) -> None:
        self._mkdir_at(self._target(), self.random.choice((0o755, 0o700)))

    def _mkdir_at(self, place: TreeName, mode: int) -> None:
        made = self._new(place, DIRECTORY, mode)
        made.mode |= place.directory.mode & stat.S_ISGID
        self._make_entry(
            f"mkdir({self._show(place)}, {mode:o})",
            lambda: os.mkdir(place.name, mode, dir_fd=place.at),
            place,
            made,
        )

    def _symlink(self) -> None:
        targets = ("a", "../d1/", "./x//y", "nowhere.", "t" * 250, "u" * 1000, "v" * 1000, "b")
        self._symlink_at(self._target(), self.random.choice(targets))

    def _symlink_at(self, place: TreeName, target: str = "nowhere") -> None:
        made = self._new(place, LINK, 0o777)
        made.target = target
        self._make_entry(
            f"symlink({target[:12]!r}, {self._show(place)})",
            lambda: os.symlink(target, place.name, dir_fd=place.at),
            place,
            made,
        )

    def _fifo(self) -> None:
        self._fifo_at(self._target())

    def _fifo_at(self, place: TreeName) -> None:
        self._make_entry(
            f"mkfifo({self._show(place)})",
            lambda: os.mkfifo(place.name, 0o640, dir_fd=place.at),
            place,
            self._new(place, FIFO, 0o640),
        )

    def _link(self) -> None:
        self._link_at(self._own(FILE, LINK, FIFO), self._target())

    def _link_at(self, old: TreeName, new: TreeName) -> None:
        def call() -> None:
            os.link(old.name, new.name, src_dir_fd=old.at, dst_dir_fd=new.at, follow_symlinks=False)

        def apply() -> None:
            inode.nlink += 1
            new.directory.entries[new.name] = inode

        inode = old.found
        if "_link" in self.lacking or f"_link of {inode.kind}" in self.lacking:
            return
        self._step(
            f"link({self._show(old)}, {self._show(new)})",
            call,
            {inode: STATUS, new.directory: DATA},
            apply,
            (errno.EEXIST,) if new.inode else (),
        )

    def _unlink(self) -> None:
        place = self._own()
        inode = place.inode
        errors: tuple[int, ...] = () if inode else (errno.ENOENT,)
        if inode is not None and inode.kind == DIRECTORY:
            errors = (errno.EISDIR, errno.EPERM)
        effects = {place.directory: DATA} | ({inode: STATUS} if inode else {})
        self._step(
            f"unlink({self._show(place)})",
            lambda: os.unlink(place.name, dir_fd=place.at),
            effects,
            lambda: self._drop(place),
            errors,
        )

    def _rmdir(self) -> None:
        place = self._own()
        inode = place.inode
        errors: tuple[int, ...] = ()
        if inode is None:
            errors = (errno.ENOENT,)
        elif inode.kind != DIRECTORY:
            errors = (errno.ENOTDIR,)
        elif inode.entries:
            errors = (errno.ENOTEMPTY, errno.EEXIST)
        elif self.silly.may_hold(inode):
            return  # the client may still have a file there
        self._step(
            f"rmdir({self._show(place)})",
            lambda: os.rmdir(place.name, dir_fd=place.at),
            {place.directory: DATA},
            lambda: self._drop(place),
            errors,
        )

    def _rename(self) -> None:
        self._move(self._own(), self._target(), 0)

    def _rename_flags(self) -> None:
        self._move(self._own(), self._target(), RENAME_NOREPLACE)

    def _again(self) -> None:
        """Give a file another name or place and the old one again, or make a removed file again."""
        old, new = self._own(FILE, DIRECTORY, LINK), self._free()
        if self.random.random() < 0.5 or old.found.entries or self.silly.may_hold(old.found):
            if new.inode is None:
                self._move(old, new, 0)
                self._move(new, old, 0)
            return
        kind, mode, target = old.found.kind, self.random.choice((0o700, 0o751)), old.found.target[::-1]
        self._step(
            f"{'rmdir' if kind == DIRECTORY else 'unlink'}({self._show(old)})",
            lambda: (os.rmdir if kind == DIRECTORY else os.unlink)(old.name, dir_fd=old.at),
            {old.directory: DATA, old.found: STATUS},
            lambda: self._drop(old),
        )
        made = self._new(old, kind, mode)
        made.target = target
        if kind == DIRECTORY:
            made.mode |= old.directory.mode & stat.S_ISGID

        def call() -> None:
            if kind == LINK:
                os.symlink(target, old.name, dir_fd=old.at)
            elif kind == DIRECTORY:
                os.mkdir(old.name, mode, dir_fd=old.at)
            else:
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
                os.close(os.open(old.name, flags, mode, dir_fd=old.at))

        self._make_entry(f"{self._show(old)} made again", call, old, made)

    def _move(self, old: TreeName, new: TreeName, flags: int) -> None:
        moved, target = old.inode, new.inode
        if target is not None and self.silly.may_hold(target):
            return  # the client may still have a file in it
        effects: dict[Inode, Effect] = {}
        if moved is not None and target is not moved:
            effects = {target: STATUS} if target is not None else {}
            effects |= {
                moved: FREE if moved.kind == DIRECTORY else MOVED,
                old.directory: DATA,
                new.directory: DATA,
            }

        def call() -> None:
            if flags:
                renameat2(Path(old.path), Path(new.path), flags)
            else:
                os.rename(old.name, new.name, src_dir_fd=old.at, dst_dir_fd=new.at)

        def apply() -> None:
            if target is moved:
                return
            if target is not None:
                self._drop(new)
            new.directory.entries[new.name] = old.directory.entries.pop(old.name)

        name = f"{'RENAME_NOREPLACE' if flags else 'rename'}({self._show(old)}, {self._show(new)})"
        self._step(name, call, effects, apply, self._move_errors(old, new, flags))

    def _move_errors(self, old: TreeName, new: TreeName, flags: int) -> tuple[int, ...]:
        """Return the errors of a rename() that has to fail."""
        moved, target = old.inode, new.inode
        if moved is None:
            return (errno.ENOENT,)
        if flags and target is not None:
            return (errno.EEXIST,)
        if moved.kind == DIRECTORY and self._is_below(new, moved):
            return (errno.EINVAL, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
        if target is None or target is moved:
            return ()
        if moved.kind == DIRECTORY and target.kind != DIRECTORY:
            return (errno.ENOTDIR,)
        if moved.kind != DIRECTORY and target.kind == DIRECTORY:
            # [EISDIR], and what a target that is above the file or has entries may give before it.
            return (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST)
        return (errno.ENOTEMPTY, errno.EEXIST) if target.entries else ()

    def _exchange(self) -> None:
        """Exchange two names, up to three times."""
        old, new = self._own(FILE, DIRECTORY, LINK), self._other(self.random.choice((FILE, DIRECTORY, LINK)))
        one, other = old.found, new.found
        if one is other or self._is_below(old, other) or self._is_below(new, one):
            return
        for _ in range(self.random.randrange(1, 4)):
            self._exchange_once(old, new)

    def _exchange_once(self, old: TreeName, new: TreeName) -> None:
        first, second = old.found, new.found
        effects = {one: FREE if one.kind == DIRECTORY else MOVED for one in (first, second)}

        def apply() -> None:
            old.directory.entries[old.name], new.directory.entries[new.name] = second, first

        self._step(
            f"RENAME_EXCHANGE({self._show(old)}, {self._show(new)})",
            lambda: renameat2(Path(old.path), Path(new.path), RENAME_EXCHANGE),
            effects | {old.directory: DATA, new.directory: DATA},
            apply,
        )

    def _open_existing(self) -> None:
        place = self._own(FILE)
        flags = os.O_CREAT | os.O_RDWR

        def call() -> None:
            descriptor = os.open(place.name, flags, 0o777, dir_fd=place.at)
            os.fsync(descriptor)
            os.write(descriptor, b"")
            os.close(descriptor)

        self._step(f"open({self._show(place)}, O_CREAT), fsync(), write() of nothing", call, {})

    def _refused(self) -> None:
        """Make calls that have to fail: everything stays."""
        place = self._own(FILE, LINK, FIFO)
        below = f"{place.name}/x"

        def exclusive() -> None:
            os.close(os.open(place.name, os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_RDWR, dir_fd=place.at))

        call, errors = self.random.choice((
            (lambda: os.mkdir(place.name, dir_fd=place.at), (errno.EEXIST,)),
            (lambda: os.symlink("x", place.name, dir_fd=place.at), (errno.EEXIST,)),
            (exclusive, (errno.EEXIST,)),
            (
                lambda: os.stat(below, dir_fd=place.at),
                (errno.ENOTDIR, errno.ENOENT, errno.ELOOP, errno.ENAMETOOLONG),
            ),
            (lambda: os.rmdir(place.name, dir_fd=place.at), (errno.ENOTDIR,)),
            (
                lambda: os.close(os.open(place.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW,
                                         dir_fd=place.at)),
                (errno.ENOTDIR, errno.ELOOP),
            ),
        ))  # fmt: skip
        self._step(f"a call on {self._show(place)} that has to fail", call, {}, None, errors)
