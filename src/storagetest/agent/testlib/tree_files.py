"""The calls on data and attributes of :mod:`.tree_sequence`."""

from __future__ import annotations

import errno
import mmap
import os
import stat
from contextlib import suppress
from pathlib import Path

from storagetest.agent.testlib.libc import (
    FALLOC_KEEP_SIZE,
    FALLOC_PUNCH_HOLE,
    FALLOC_ZERO_RANGE,
    UTIME_NOW,
    UTIME_OMIT,
    fallocate,
    utimensat,
)
from storagetest.agent.testlib.mappings import map_file
from storagetest.agent.testlib.outcomes import CannotRun
from storagetest.agent.testlib.stat_effects import ANY, DATA, KEPT, MARKED, STATUS, Effect
from storagetest.agent.testlib.tree_model import (
    DIRECTORY,
    FIFO,
    FILE,
    LINK,
)
from storagetest.agent.testlib.tree_names import MOVED, NameCalls
from storagetest.agent.testlib.tree_world import FREE, XATTRS, OpenDescriptor

GROUP = 4242


class FileCalls(NameCalls):
    """Calls that change what a file contains, and what stat() reports of it."""

    # Calls on data

    def _hold(self) -> None:
        """Open a file and keep it open, with or without O_APPEND and a mapping."""
        self._hold_with(self.random.choice((0, os.O_APPEND)))

    def _hold_with(self, flags: int) -> None:
        place = self._own(FILE)
        inode = place.found

        def call() -> None:
            one = OpenDescriptor(os.open(place.name, os.O_RDWR | flags, dir_fd=place.at), inode, bool(flags))
            if inode.data.size >= mmap.PAGESIZE and not flags:
                with suppress(CannotRun):
                    one.mapped = map_file(one.descriptor, mmap.PAGESIZE)
            self.held.append(one)

        self._step(f"open({self._show(place)}), which stays open", call, {inode: Effect()})

    def _close(self) -> None:
        held = [one for one in self.held if one.inode is self.focus]
        if not held:
            return
        one = self.random.choice(held)
        self.held.remove(one)
        if one.mapped is not None:
            one.mapped.close()
        effects = {one.inode: FREE if self.silly.touches(one.inode) else Effect()}
        effects |= dict.fromkeys(self.silly.directories(one.inode), FREE)
        self._step("close() of a file that stayed open", lambda: os.close(one.descriptor), effects)

    def _write(self) -> None:
        """Write by an open descriptor, or by a new open."""
        length = self.random.choice((1, 100, 511, 4096, 4097, 9000))
        self._write_at(None, length)

    def _write_at(self, offset: int | None, length: int) -> None:
        """Write at ``offset``, by default at any, or at the end with O_APPEND."""
        inode, one, show = self._file()
        data = self._bytes(length)
        append = one.append if one is not None else offset is None and self.random.random() < 0.3
        at = inode.data.size if append else self._offset(inode) if offset is None else offset

        def call(descriptor: int) -> None:
            if append:
                done = os.write(descriptor, data)
            else:
                done = os.pwritev(descriptor, [data[: length // 3], data[length // 3 :]], at)
            assert done == length, f"a short write: {done} of {length} bytes, {self._history()}"

        self._on(
            show,
            f"a write of {length} bytes {'with O_APPEND' if append else f'at {at}'}",
            call,
            (inode, one, DATA),
            lambda: inode.data.write(at, data),
            os.O_APPEND if append else 0,
        )

    def _truncate(self) -> None:
        self._truncate_to(None)

    def _truncate_to(self, given: int | None) -> None:
        """Set the size to ``given``, by default to any."""
        inode, one, show = self._file()
        old = inode.data.size
        near = (0, old // 2, max(0, old - 1), old, old + 1, old + 5000, self._offset(inode))
        size = self.random.choice(near) if given is None else given
        effect = FREE if size == old else DATA
        if one is None and self.random.random() < 0.5:
            place = self._existing_name(inode)
            self._step(
                f"truncate({show}, {size}) from {old}",
                lambda: os.truncate(place, size),
                {inode: effect},
                lambda: inode.data.truncate(size),
            )
        else:
            self._on(
                show,
                f"ftruncate() from {old} to {size}",
                lambda descriptor: os.ftruncate(descriptor, size),
                (inode, one, effect),
                lambda: inode.data.truncate(size),
            )

    def _empty(self) -> None:
        """Open with O_TRUNC while others may have the file open, and write other bytes, as many or fewer."""
        place = self._own(FILE)
        inode = place.found
        old = inode.data.size
        # A file with two names stays empty: what O_TRUNC leaves is not written over.
        data = self._bytes(0 if inode.nlink > 1 else self.random.choice((0, 1, min(old, 9000))))

        def call() -> None:
            descriptor = os.open(place.name, os.O_WRONLY | os.O_TRUNC, dir_fd=place.at)
            os.write(descriptor, data)
            os.close(descriptor)

        def apply() -> None:
            inode.data.truncate(0)
            inode.data.write(0, data)

        text = f"open({self._show(place)}, O_TRUNC) and a write of {len(data)} bytes"
        self._step(text, call, {inode: DATA if old else FREE}, apply)

    def _copy(self) -> None:
        """Copy a range to another file, also one that reaches beyond the end of the source."""
        source, target = self._own(FILE), self._other(FILE)
        if self.random.random() < 0.5:
            source, target = target, source
        one, other = source.found, target.found
        if one is other or not one.data.size or not hasattr(os, "copy_file_range"):
            return
        offset, to = min(self._offset(one), one.data.size - 1), self._offset(other)
        data = one.data.read(offset, self.random.choice((1, 4096, 10_000)))

        def call() -> None:
            first = os.open(source.name, os.O_RDONLY, dir_fd=source.at)
            second = os.open(target.name, os.O_RDWR, dir_fd=target.at)
            try:
                done = 0
                while done < len(data):
                    wanted = len(data) - done
                    if offset + len(data) == one.data.size:
                        wanted += 5000
                    step = os.copy_file_range(first, second, wanted, offset + done, to + done)
                    assert 0 < step <= len(data) - done, f"{step} bytes are copied by {self._history()}"
                    done += step
            finally:
                os.close(first)
                os.close(second)

        text = (
            f"copy_file_range() of {len(data)} bytes of {self._show(source)} to {to} of {self._show(target)}"
        )
        self._step(text, call, {other: DATA}, lambda: other.data.write(to, data))

    def _allocate(self) -> None:
        inode, one, show = self._file()
        mode = self.random.choice((0, FALLOC_KEEP_SIZE))
        offset = min(self._offset(inode), inode.data.size)
        length = self.random.choice((100, 4097, 12_000))
        self._on(
            show,
            f"fallocate({'KEEP_SIZE' if mode else '0'}) of {length} bytes at {offset}",
            lambda descriptor: fallocate(descriptor, mode, offset, length),
            (inode, one, FREE),
            (lambda: None) if mode else lambda: inode.data.extend(offset + length),
        )

    def _punch(self) -> None:
        inode, one, show = self._file()
        mode = self.random.choice((FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, FALLOC_ZERO_RANGE))
        size = inode.data.size
        if not size:
            return
        offset = min(self._offset(inode), size - 1)
        length = min(self.random.choice((1, 100, 4096, 9000)), size - offset)
        self._on(
            show,
            f"fallocate({mode:#x}) of {length} bytes at {offset}",
            lambda descriptor: fallocate(descriptor, mode, offset, length),
            (inode, one, FREE),
            lambda: inode.data.zero(offset, length),
        )

    def _store(self) -> None:
        """Store through a mapping that was made before, and msync()."""
        mapped = [
            one
            for one in self.held
            if one.mapped is not None and one.inode.data.size and one.inode is self.focus
        ]
        if not mapped:
            return
        one = self.random.choice(mapped)
        view = one.mapped
        assert view is not None
        at = self.random.randrange(min(one.inode.data.size, mmap.PAGESIZE))
        data = self._bytes(1)

        def call() -> None:
            view[at : at + 1] = data
            view.flush()

        self._step(
            f"a byte stored at {at} through a mapping, and msync()",
            call,
            {one.inode: FREE},
            lambda: one.inode.data.write(at, data),
        )

    def _read(self) -> None:
        """Read: neither mtime nor ctime is marked."""
        place = self._own(FILE, DIRECTORY)
        if place.found.kind == DIRECTORY:
            self._step(f"readdir() of {self._show(place)}", lambda: os.listdir(place.path), {})
            return

        def call() -> None:
            descriptor = os.open(place.path, os.O_RDONLY)
            os.read(descriptor, 1)
            os.close(descriptor)

        self._step(f"open(), read() and close() of {self._show(place)}", call, {place.found: Effect()})

    # Calls on attributes

    def _chmod(self) -> None:
        mode = self.random.choice((0o700, 0o755, 0o750, self.focus.mode))
        if self.focus.kind == DIRECTORY and self.random.random() < 0.4 and "_chown" not in self.lacking:
            mode ^= stat.S_ISGID
        self._chmod_to(mode)

    def _chmod_to(self, mode: int) -> None:
        inode, way, show = self._way(FILE, DIRECTORY, FIFO)

        def apply() -> None:
            inode.mode = mode

        self._step(f"chmod({show}, {mode:o})", lambda: os.chmod(way, mode), {inode: STATUS}, apply)

    def _chown(self) -> None:
        ids = ((-1, GROUP), (1001, -1), (0, 0), (70_001, 70_002), (-1, 70_003))
        self._chown_to(*self.random.choice(ids))

    def _chown_to(self, uid: int, gid: int) -> None:
        inode, way, show = self._way(FILE, DIRECTORY, LINK, FIFO)

        def call() -> None:
            if isinstance(way, int):
                os.fchown(way, uid, gid)
            else:
                os.lchown(way, uid, gid)

        def apply() -> None:
            inode.uid = inode.uid if uid == -1 else uid
            inode.gid = inode.gid if gid == -1 else gid

        self._step(f"chown({show}, {uid}, {gid})", call, {inode: STATUS}, apply)

    def _utime(self) -> None:
        kinds = (
            (FILE, DIRECTORY, FIFO) if f"_utime of {LINK}" in self.lacking else (FILE, DIRECTORY, FIFO, LINK)
        )
        inode, way, show = self._way(*kinds)
        seconds, part = (
            self.random.choice((1_000_000_000, 1_234_567_890)),
            self.random.choice((0, 123_456_000)),
        )
        given, now, omit = (seconds, part), (0, UTIME_NOW), (0, UTIME_OMIT)
        accessed, modified = self.random.choice((
            (given, given), (now, given), (omit, given), (given, omit), (given, now), (now, now),
        ))  # fmt: skip
        value = seconds * 10**9 + part
        if inode.kind == LINK or isinstance(way, int):
            accessed, modified = given, given

        def call() -> None:
            before = _atime(way)
            if isinstance(way, int):
                os.utime(way, ns=(value, value))
            elif inode.kind == LINK:
                os.utime(way, ns=(value, value), follow_symlinks=False)
            else:
                utimensat(Path(way), accessed, modified)
            if accessed != now:
                found, wanted = _atime(way), value if accessed == given else before
                assert found in (wanted, wanted // 10**9 * 10**9), (
                    f"atime is {found} ns instead of {wanted} ns after {self._history(inode)}"
                )

        def apply() -> None:
            if modified == given:
                inode.wanted = value
                self.effects[inode] = Effect(ANY, MARKED)

        words = {given: "given", now: "now", omit: "as it is"}
        self._step(
            f"utimensat({show}), atime {words[accessed]}, mtime {words[modified]}",
            call,
            {inode: Effect(KEPT if modified == omit else MARKED if modified == now else ANY, MARKED)},
            apply,
        )

    def _set_xattr(self) -> None:
        flags, name = (
            self.random.choice((0, 0, os.XATTR_CREATE, os.XATTR_REPLACE)),
            self.random.choice(XATTRS),
        )
        length = self.random.choice((0, 1, 60, 200))
        if name == "user.other" and "long values" not in self.lacking and self.random.random() < 0.5:
            length = 2500
        self._set_xattr_to(name, self._bytes(length), flags)

    def _set_xattr_to(self, name: str, value: bytes, flags: int) -> None:
        inode, way, show = self._way(FILE, DIRECTORY)
        errors: tuple[int, ...] = ()
        if flags == os.XATTR_CREATE and name in inode.xattrs:
            errors = (errno.EEXIST,)
        elif flags == os.XATTR_REPLACE and name not in inode.xattrs:
            errors = (errno.ENODATA,)

        def apply() -> None:
            inode.xattrs[name] = value

        self._step(
            f"setxattr({show}, {name}, {len(value)} bytes, flags {flags})",
            lambda: os.setxattr(way, name, value, flags),
            {inode: MOVED},
            apply,
            errors,
        )

    def _remove_xattr(self) -> None:
        self._remove_xattr_of(self.random.choice(XATTRS))

    def _remove_xattr_of(self, name: str) -> None:
        inode, way, show = self._way(FILE, DIRECTORY)
        self._step(
            f"removexattr({show}, {name})",
            lambda: os.removexattr(way, name),
            {inode: MOVED},
            lambda: inode.xattrs.pop(name),
            () if name in inode.xattrs else (errno.ENODATA,),
        )


def _atime(way: str | int) -> int:
    one = os.fstat(way) if isinstance(way, int) else os.lstat(way)
    return one.st_atime_ns
