"""The tree of :mod:`.tree_sequence`: what exists, one step of a sequence, and the comparison after it."""

from __future__ import annotations

import errno
import mmap
import os
import random
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storagetest.agent.testlib.byte_model import BLOCK, first_difference
from storagetest.agent.testlib.outcomes import CannotRun, name_of
from storagetest.agent.testlib.silly_names import SillyNames
from storagetest.agent.testlib.stat_effects import ANY, DATA, KEPT, Effect
from storagetest.agent.testlib.tmpfiles import longest_name, wait_clock_tick
from storagetest.agent.testlib.tree_model import (
    DIRECTORY,
    FILE,
    KINDS,
    LINK,
    Inode,
    TreeName,
    differences,
    names_of,
)

FREE = Effect(ANY, ANY)
LARGE = ((1 << 31) - 3000, (1 << 32) - 3000)
"""Offsets near which a large file is written (chosen)."""
EVERYTHING = 0.15
"""Share of the comparisons of all contents, not only of those that a call concerned (chosen)."""
OTHERS = 12
"""Names whose attributes are compared, of those that no call concerned (chosen)."""
WHOLE = 1 << 16
"""Up to this size a file is read whole; of a larger one, the blocks that were written (chosen)."""
XATTRS = ("user.a", "user.ab", "user.other")
Effects = Mapping[Inode, Effect]


@dataclass
class OpenDescriptor:
    """An open descriptor, and a mapping of the file's first page if it has one."""

    descriptor: int
    inode: Inode
    append: bool
    mapped: mmap.mmap | None = None


class TreeWorld:
    """Files below ``root``, which is empty. :meth:`close` closes what was opened."""

    def __init__(self, root: Path, order: random.Random, lacking: set[str]) -> None:
        self.root, self.clock = str(root / "tree"), root / "clock"
        self.random, self.lacking = order, lacking
        longest = min(longest_name(root.parent), 255)
        self.names = ["a", "b", "c", "n" * (longest - 1) + "1", "n" * (longest - 1) + "2"]
        self.log: list[tuple[str, set[Inode]]] = []
        """Each call, and the files that it names."""
        self.held: list[OpenDescriptor] = []
        self.directories: dict[Inode, int] = {}
        self.silly = SillyNames[Inode]()
        self.focus = Inode(FILE)
        """The file that the next call concerns."""
        self.tick, self.near = 0, set[Inode]()
        self.effects: dict[Inode, Effect] = {}
        """Of the batch of calls: the clock before it, the files that they name, and their effects."""
        self.state, self.made = "", 0
        """The state that ``focus`` is in, and how many calls were made."""
        self.last = 0
        """The latest ctime that was found, in ns."""
        self.tree = Inode(DIRECTORY, 0o755)
        self._known: list[TreeName] = []
        self._paths: dict[Inode, str] = {self.tree: self.root}
        """What :meth:`_places` found since the last change."""

    def start(self) -> None:
        """Make the top directory."""
        self.clock.mkdir(parents=True)
        os.mkdir(self.root)
        os.umask(0o022)
        self.directories[self.tree] = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        one = os.stat(self.root)
        self.tree.mode, self.tree.uid, self.tree.gid = stat.S_IMODE(one.st_mode), one.st_uid, one.st_gid
        self.tree.take(one)
        self.last = one.st_ctime_ns

    def close(self) -> None:
        """Close all descriptors."""
        for one in self.held:
            if one.mapped is not None:
                one.mapped.close()
            os.close(one.descriptor)
        for descriptor in self.directories.values():
            os.close(descriptor)

    # The comparison

    def _step(
        self,
        text: str,
        call: Callable[[], Any],
        effects: Effects,
        apply: Callable[[], Any] | None = None,
        errors: tuple[int, ...] = (),
    ) -> None:
        """Make a call with ``effects``, or one of ``errors`` and no effect; :meth:`finish` compares."""
        if not self.tick:
            self.tick = wait_clock_tick(self.clock, after=self.last)
        self.log.append((text, set(effects) or {self.focus}))
        self.made += 1
        self.near |= set(effects)
        wanted = " or ".join(name_of(one) for one in errors)
        try:
            call()
        except OSError as error:
            if error.errno not in errors:
                found = name_of(error.errno or 0)
                raise AssertionError(
                    f"{found} from {self._history()}; it has to {'be ' + wanted if errors else 'succeed'}"
                ) from error
        else:
            assert not errors, f"success of {self._history()}; it has to fail with {wanted}"
            for inode, effect in effects.items():
                inode.wanted = inode.wanted if effect.mtime == KEPT else None
                self.effects[inode] = effect.after(self.effects.get(inode, Effect()))
            if apply is not None:
                apply()
                self._known = []
        finally:
            os.umask(0o022)

    def finish(self) -> None:
        """End the batch of calls: compare."""
        self._compare(self.effects, self.tick, self.near)
        self.tick, self.effects, self.near = 0, {}, set()

    def _compare(self, effects: Effects, tick: int, near: set[Inode]) -> None:
        """Compare the attributes of every file, and the contents of those ``near`` and of a few others."""
        places, everything = self._places(), self.random.random() < EVERYTHING
        near = {*near, *(held.inode for held in self.held)}
        chosen = set(self.random.sample(places, min(OTHERS, len(places))))
        chosen |= {place for place in places if place.directory in near}
        self._compare_lists(None if everything else {*near, self.random.choice(list(self.directories))})
        found: dict[Inode, os.stat_result] = {}
        for place in places:
            inode = place.found
            if not (everything or inode in near or place in chosen):
                continue
            show, one = self._show(place), self._stat(place)
            self._compare_inode(f"stat({show})", inode, one, effects, tick)
            self._compare_times(inode, found.setdefault(inode, one), one, f"another name, {show}")
            if everything or inode in near:
                self._compare_contents(place.path, show, inode)
        for held in self.held:
            one = os.fstat(held.descriptor)
            self._compare_inode("fstat() of an open file", held.inode, one, effects, tick)
            self._compare_times(held.inode, found.setdefault(held.inode, one), one, "fstat() of an open file")
            if everything or held.inode in near:
                self._compare_data("an open file", held.descriptor, held.inode)
                self._compare_xattrs(held.descriptor, "an open file", held.inode)
                self._compare_view(held)
        root = os.lstat(self.root)
        self._compare_inode("stat() of the top", self.tree, root, effects, tick)
        for inode, one in [*found.items(), (self.tree, root)]:
            inode.mtime, inode.ctime = one.st_mtime_ns, one.st_ctime_ns
            self.last = max(self.last, one.st_ctime_ns)

    def _stat(self, place: TreeName) -> os.stat_result:
        try:
            if self.random.random() < 0.25:
                return os.lstat(place.path)
            return os.stat(place.name, dir_fd=place.at, follow_symlinks=False)
        except FileNotFoundError:
            raise AssertionError(
                f"stat() does not find {self._show(place)}, after {self._history(place.found)}"
            ) from None

    def _compare_times(self, inode: Inode, one: os.stat_result, other: os.stat_result, what: str) -> None:
        """Compare what two ways to one file report."""
        times = [(each.st_mtime_ns, each.st_ctime_ns) for each in (one, other)]
        assert times[0] == times[1] or self.silly.touches(inode), (
            f"mtime and ctime are {times[1]} by {what}, {times[0]} by a name, after {self._history(inode)}"
        )

    def _compare_inode(
        self, what: str, inode: Inode, one: os.stat_result, effects: Effects, tick: int
    ) -> None:
        effect = effects.get(inode, FREE if self.silly.touches(inode) else Effect())
        lacks = inode.kind == DIRECTORY and ("links of directories" in self.lacking or not inode.nlink)
        more = None if lacks else self.silly.links(inode)
        wrong = differences(inode, one, effect, tick, more_links=more)
        assert not wrong, f"{what}: {'; '.join(wrong)}; after {self._history(inode)}"

    def _compare_lists(self, chosen: set[Inode] | None) -> None:
        """Compare the lists of the directories that are ``chosen``, or of all."""
        self._places()
        for directory, path in self._paths.items():
            if chosen is not None and directory not in chosen:
                continue
            with os.scandir(path) as entries:
                listed = list(entries)
            silly = self.silly.listed(directory, listed)
            names = sorted(one.name for one in listed if one.name not in silly)
            wanted = sorted(directory.entries)
            assert names == wanted, (
                f"readdir() of {self._brief(path)} returns {[name[:12] for name in names]} instead of "
                f"{[name[:12] for name in wanted]}, after {self._history(directory)}"
            )
            for one in listed:
                if one.name in silly:
                    continue
                kind = directory.entries[one.name].kind
                assert _type_fits(one, kind), (
                    f"readdir(): {one.name[:12]} is not {KINDS[kind]}, after {self._history(directory)}"
                )

    def _compare_contents(self, path: str, show: str, inode: Inode) -> None:
        if inode.kind == LINK:
            target = os.readlink(path)
            assert target == inode.target, (
                f"readlink({show}) returns {target[:30]!r} ({len(target)} characters) instead of "
                f"{inode.target[:30]!r} ({len(inode.target)}), after {self._history(inode)}"
            )
        elif inode.kind == FILE:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                self._compare_data(show, descriptor, inode)
            finally:
                os.close(descriptor)
        if inode.kind in (FILE, DIRECTORY):
            self._compare_xattrs(path, show, inode)

    def _compare_xattrs(self, path: str | int, show: str, inode: Inode) -> None:
        if "_set_xattr" in self.lacking:
            return
        listed = {name: os.getxattr(path, name) for name in os.listxattr(path) if name in XATTRS}
        assert listed == inode.xattrs, (
            f"extended attributes of {show} are {_lengths(listed)} instead of {_lengths(inode.xattrs)} "
            f"(or other bytes), after {self._history(inode)}"
        )

    def _compare_data(self, show: str, descriptor: int, inode: Inode) -> None:
        size = inode.data.size
        if size <= WHOLE:
            ranges = [(0, size + 10)]
        else:
            last = max(0, size - 100)
            ranges = [(block * BLOCK, BLOCK + 10) for block in inode.data.blocks()] + [(last, 200)]
        for offset, length in ranges:
            found = os.pread(descriptor, length, offset)
            wrong = first_difference(found, inode.data.read(offset, length))
            assert not wrong, f"data of {show} from {offset} on: {wrong}, after {self._history(inode)}"

    def _compare_view(self, held: OpenDescriptor) -> None:
        if held.mapped is None or not held.inode.data.size:
            return
        held.mapped.flush()  # mmap() leaves to the program to order mapping and write(): this does
        length = min(held.inode.data.size, mmap.PAGESIZE)
        wrong = first_difference(held.mapped[:length], held.inode.data.read(0, length))
        assert not wrong, f"a mapping that was made before has {wrong}, after {self._history(held.inode)}"

    # Mechanics

    def _make_entry(self, text: str, call: Callable[[], Any], place: TreeName, made: Inode) -> None:
        def apply() -> None:
            place.directory.entries[place.name] = made
            one = os.lstat(place.path)
            made.take(one)
            if made.kind == DIRECTORY:
                self.directories[made] = os.open(place.path, os.O_RDONLY | os.O_DIRECTORY)
            if not place.directory.mode & stat.S_ISGID:
                made.gid = one.st_gid  # the process' group or the directory's (POSIX.1-2024 open())

        errors = (errno.EEXIST,) if place.inode else ()
        effects = {place.directory: DATA, made: FREE}
        self._step(text, call, effects, apply, errors)

    def _new(self, place: TreeName, kind: int, mode: int) -> Inode:
        gid = place.directory.gid if place.directory.mode & stat.S_ISGID else os.getegid()
        return Inode(kind, mode, os.geteuid(), gid)

    def _drop(self, place: TreeName) -> None:
        inode = place.directory.entries.pop(place.name)
        inode.nlink -= 1
        if any(one.inode is inode for one in self.held):
            self.silly.remove(inode, inode.ino)
        if inode.kind == DIRECTORY:
            os.close(self.directories.pop(inode))

    def _on(
        self,
        show: str,
        text: str,
        call: Callable[[int], Any],
        on: tuple[Inode, OpenDescriptor | None, Effect],
        apply: Callable[[], Any],
        flags: int = 0,
    ) -> None:
        """Make a call through an open descriptor, or through a new open of a name."""
        inode, one, effect = on

        def through() -> None:
            if one is not None:
                call(one.descriptor)
                return
            descriptor = os.open(self._existing_name(inode), os.O_RDWR | flags)
            try:
                call(descriptor)
            finally:
                os.close(descriptor)

        self._step(f"{text} of {show}", through, {inode: effect}, apply)

    def _file(self) -> tuple[Inode, OpenDescriptor | None, str]:
        """Return the focus, and a descriptor of it, or None for a new open."""
        held = [one for one in self.held if one.inode is self.focus]
        if held and (not self.focus.nlink or self.random.random() < 0.7):
            one = self.random.choice(held)
            kind = "an O_APPEND descriptor" if one.append else "a descriptor"
            return one.inode, one, f"{kind} of {'a file' if one.inode.nlink else 'a removed file'}"
        place = self._own(FILE)
        return place.found, None, self._show(place)

    def _offset(self, inode: Inode) -> int:
        size = inode.data.size
        near = (0, 1, 4095, 4096, size, size, max(0, size - 1), size + 1, size + 5000)
        large = LARGE if "large" not in self.lacking and self.random.random() < 0.15 else ()
        offset = self.random.choice(large or near)
        return offset if large or offset < 1 << 18 or size > 1 << 30 else 0

    def _places(self) -> list[TreeName]:
        """Return each name that exists."""
        if not self._known:
            directories = [
                (path, inode)
                for path, inode in ((self.root, self.tree), *names_of(self.root, self.tree))
                if inode in self.directories
            ]
            self._paths = {inode: path for path, inode in directories}
            self._known = [
                TreeName(inode, path, name, self.directories[inode])
                for path, inode in directories
                for name in inode.entries
            ]
        return self._known

    def _bytes(self, length: int) -> bytes:
        return self.random.getrandbits(8 * length).to_bytes(length, "little")

    def _own(self, *kinds: int) -> TreeName:
        """Return a name of the focus, which has to be of one of the kinds."""
        places = [place for place in self._places() if place.found is self.focus]
        if not places or (kinds and self.focus.kind not in kinds):
            raise CannotRun
        return self.random.choice(places)

    def _other(self, kind: int) -> TreeName:
        """Return a name of another file."""
        places = [one for one in self._places() if one.found.kind == kind and one.found is not self.focus]
        if not places:
            raise CannotRun
        return self.random.choice(places)

    def _target(self) -> TreeName:
        """Return a name that may not exist, or one that does, often one of the focus' kind."""
        if self.random.random() < 0.6:
            return self._free()
        places = self._places()
        alike = [one for one in places if one.found.kind == self.focus.kind and one.found is not self.focus]
        linked = [one for one in alike if one.found.nlink > 1 or one.found.entries]
        return self.random.choice(self.random.choice((places, alike or places, linked or places)))

    def _way(self, *kinds: int) -> tuple[Inode, str | int, str]:
        """Return the focus and a way to it: a path, or a descriptor if one is open."""
        held = [one.descriptor for one in self.held if one.inode is self.focus]
        if held and (not self.focus.nlink or self.random.random() < 0.5):
            return self.focus, self.random.choice(held), f"a descriptor of {self.state}"
        place = self._own(*kinds)
        return place.found, place.path, self._show(place)

    def _free(self) -> TreeName:
        """Return a name that may not exist, mostly in the focus or in its directory."""
        near = [place.directory for place in self._places() if place.found is self.focus]
        if self.focus in self.directories:
            near.append(self.focus)
        directory = self.random.choice(near or [self.tree])
        if self.random.random() < 0.3:
            directory = self.random.choice(list(self.directories))
        return self._in(directory, self.random.choice(self.names))

    def _in(self, directory: Inode, name: str) -> TreeName:
        self._places()
        return TreeName(directory, self._paths[directory], name, self.directories[directory])

    def _existing_name(self, inode: Inode) -> str:
        return self.random.choice([place.path for place in self._places() if place.found is inode])

    def _is_below(self, place: TreeName, inode: Inode) -> bool:
        """Whether a name is in the directory ``inode`` or below it."""
        return place.directory is inode or any(one is place.directory for _, one in names_of("", inode))

    def _show(self, place: TreeName) -> str:
        return self._brief(place.path)

    def _brief(self, path: str) -> str:
        parts = path[len(self.root) + 1 :].split("/")
        return "/".join(part if len(part) < 20 else f"{part[0]}*{len(part) - 1}+{part[-1]}" for part in parts)

    def _history(self, inode: Inode | None = None) -> str:
        """Return the last calls, or the last that name ``inode``."""
        calls = [text for text, named in self.log if inode is None or inode in named][-4:]
        before = f" (before it: {'; '.join(calls[:-1])})" if calls[:-1] else ""
        return f"{calls[-1] if calls else 'calls on other files'}{before}, on {self.state}"


def _lengths(xattrs: Mapping[str, bytes]) -> dict[str, str]:
    return {name: f"{len(value)} bytes" for name, value in sorted(xattrs.items())}


def _type_fits(entry: os.DirEntry[str], kind: int) -> bool:
    """Return whether the type of an entry, if readdir() returns it, is that of ``kind``."""
    types = {
        FILE: entry.is_file(follow_symlinks=False),
        DIRECTORY: entry.is_dir(follow_symlinks=False),
        LINK: entry.is_symlink(),
    }
    return types[kind] if kind in types else not any(types.values())
