"""A seeded random sequence of operations on names in four directories, each compared with a model.

Invariants: an operation has the result or the error that the model computes before it is made; after it, the
directories that it names list what the model has, and each name is of the kind, the serial number, the link
count, the size and the contents of the model. A mismatch is an AssertionError that names the last operations.
"""

from __future__ import annotations

import errno
import os
import random
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from storagetest.agent.testlib.byte_model import first_difference
from storagetest.agent.testlib.file_sequence import go_on
from storagetest.agent.testlib.libc import RENAME_EXCHANGE, RENAME_NOREPLACE, renameat2
from storagetest.agent.testlib.outcomes import CannotRun, name_of
from storagetest.agent.testlib.silly_names import SillyNames
from storagetest.agent.testlib.tmpfiles import longest_name

FILE, DIRECTORY, LINK = stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK
_KINDS = {FILE: "a regular file", DIRECTORY: "a directory", LINK: "a symbolic link"}


@dataclass(eq=False)
class Node:
    """A file of any kind; ``rights`` are mode, owner and group, ``entries`` those of a directory."""

    kind: int
    ino: int = 0
    data: bytes = b""
    nlink: int = 1
    rights: tuple[int, int, int] = (0, 0, 0)
    attributes: dict[str, bytes] = field(default_factory=dict)
    entries: dict[str, Node] = field(default_factory=dict)

    def take(self, one: os.stat_result) -> Node:
        """Take serial number and rights from what is found; return this node."""
        self.ino, self.rights = one.st_ino, _rights(one)
        return self


@dataclass(frozen=True)
class Place:
    """A name in a directory; ``node`` is what has it in the model, or None."""

    directory: Node
    parent: Path
    name: str

    @property
    def path(self) -> Path:
        """The path."""
        return self.parent / self.name

    @property
    def node(self) -> Node | None:
        """The node of the name."""
        return self.directory.entries.get(self.name)


class NameSequence:
    """Operations below ``root``, which is empty. ``held``: files are kept open, also when their names go."""

    def __init__(self, root: Path, seed: int, *, held: bool = False) -> None:
        self.root, self.held = root, held
        self.random = random.Random(seed)  # noqa: S311  # a sequence, no secret
        longest = longest_name(root)
        self.names = ["a", "b", "c", "e", *("n" * (min(longest, 255) - 1) + end for end in "12")]
        self.top = {name: self._made(root / name) for name in ("d0", "d1")}
        self.log: list[str] = []
        self.open: list[tuple[int, Node]] = []
        self.silly = SillyNames[Node]()
        self.lacking = self._lacking()

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor, _ in self.open:
            os.close(descriptor)

    def run(self, seconds: float, least: int) -> int:
        """Run until ``seconds`` have passed, ``least`` operations or MOST_SECONDS; return the count."""
        began, count = time.monotonic(), 0
        operations = [one for one in self._operations() if one.__name__ not in self.lacking]
        while go_on(count, time.monotonic() - began, least, seconds):
            if count % len(operations) == 0:
                self.random.shuffle(operations)
            operations[count % len(operations)]()
            count += 1
            if count % 40 == 0:
                self._compare_all()
        self._compare_all()
        return count

    def _operations(self) -> list[Callable[[], None]]:
        common = [
            self._create, self._create, self._create, self._rewrite, self._mkdir, self._rmdir, self._unlink,
            self._rename, self._rename, self._rename, self._exchange, self._noreplace, self._link, self._link,
            self._symlink, self._symlink, self._xattr, self._open_existing, self._chmod, self._tmpfile,
        ]  # fmt: skip
        if not self.held:
            return common
        # A directory may not be removable while a removed file of it is open (NFS keeps it there as .nfs*).
        kept = [
            self._create,
            self._unlink,
            self._rename,
            self._noreplace,
            self._link,
            self._xattr,
            self._exchange,
        ]
        return [*kept, self._hold, self._hold, self._use_held, *[self._succeed] * 5]

    # Operations

    def _create(self) -> None:
        """Create a file exclusively."""
        place, data = self._place(), self._data()
        node = Node(FILE, data=data)

        def call() -> None:
            descriptor = os.open(place.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
            os.write(descriptor, data)
            node.take(os.fstat(descriptor))
            os.close(descriptor)

        error = (errno.EEXIST,) if place.node else ()
        if self._make(f"open({self._show(place)}, O_CREAT | O_EXCL)", call, error):
            place.directory.entries[place.name] = node
        self._compare(place)

    def _open_existing(self) -> None:
        """Open with O_CREAT: an existing file stays as it is."""
        place = self._place()
        if place.node is not None and place.node.kind == FILE:
            self._make(
                f"open({self._show(place)}, O_CREAT)",
                lambda: os.close(os.open(place.path, os.O_CREAT | os.O_RDWR)),
                (),
            )
            self._compare(place)

    def _rewrite(self) -> None:
        place, data = self._place(), self._data()
        if place.node is None or place.node.kind != FILE:
            return
        self._make(f"O_TRUNC and write of {self._show(place)}", lambda: place.path.write_bytes(data), ())
        place.node.data = data
        self._compare(place)

    def _mkdir(self) -> None:
        place = self._place(top=True)
        error = (errno.EEXIST,) if place.node else ()
        mode = self.random.choice((0o755, 0o700, 0o750))
        if self._make(f"mkdir({self._show(place)}, {mode:o})", lambda: place.path.mkdir(mode), error):
            place.directory.entries[place.name] = Node(DIRECTORY).take(os.stat(place.path))
        self._compare(place)

    def _rmdir(self) -> None:
        place = self._place(top=True)
        error = self._no(place, errno.ENOENT)
        if place.node and place.node.kind != DIRECTORY:
            error = (errno.ENOTDIR,)
        elif place.node and place.node.entries:
            error = (errno.ENOTEMPTY, errno.EEXIST)
        if self._make(f"rmdir({self._show(place)})", place.path.rmdir, error):
            del place.directory.entries[place.name]
        self._compare(place)

    def _unlink(self) -> None:
        place = self._place()
        error = self._no(place, errno.ENOENT)
        if place.node and place.node.kind == DIRECTORY:
            error = (errno.EISDIR, errno.EPERM)
        if self._make(f"unlink({self._show(place)})", lambda: os.unlink(place.path), error):
            self._forget(place)
        self._compare(place)

    def _rename(self) -> None:
        self._move(0, lambda old, new: os.rename(old.path, new.path), "rename")

    def _noreplace(self) -> None:
        self._move(
            RENAME_NOREPLACE,
            lambda old, new: renameat2(old.path, new.path, RENAME_NOREPLACE),
            "RENAME_NOREPLACE",
        )

    def _move(self, flags: int, call: Callable[[Place, Place], None], name: str) -> None:
        old = self._place(self.random.choice((FILE, DIRECTORY, LINK)))
        new = self._place(top=old.node is not None and old.node.kind == DIRECTORY)
        error = self._no(old, errno.ENOENT)
        if old.node and new.node and flags:
            error = (errno.EEXIST,)
        elif old.node and new.node and new.node is not old.node:
            if old.node.kind == DIRECTORY and new.node.kind != DIRECTORY:
                error = (errno.ENOTDIR,)
            elif old.node.kind != DIRECTORY and new.node.kind == DIRECTORY:
                error = (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST)
            elif new.node.entries:
                error = (errno.ENOTEMPTY, errno.EEXIST)
        done = self._make(f"{name}({self._show(old)}, {self._show(new)})", lambda: call(old, new), error)
        if done and old.node is not new.node and old.node is not None:
            if new.node is not None:
                self._forget(new)
            new.directory.entries[new.name] = old.directory.entries.pop(old.name)
        self._compare(old)
        self._compare(new)

    def _exchange(self) -> None:
        """Exchange two names that exist, once or twice."""
        old, new = self._place(), self._place()
        kinds = {one.node.kind for one in (old, new) if one.node is not None}
        below = any(one.directory not in self.top.values() for one in (old, new))
        if not old.node or not new.node or (DIRECTORY in kinds and below):
            return
        for _ in range(self.random.choice((1, 2, 3))):
            first, second = old.node, new.node
            self._make(
                f"RENAME_EXCHANGE({self._show(old)}, {self._show(new)})",
                lambda: renameat2(old.path, new.path, RENAME_EXCHANGE),
                (),
            )
            assert first is not None
            assert second is not None
            old.directory.entries[old.name], new.directory.entries[new.name] = second, first
            self._compare(old)
            self._compare(new)

    def _link(self) -> None:
        old, new = self._place(), self._place()
        if not old.node or old.node.kind != FILE:
            return
        error = (errno.EEXIST,) if new.node else ()
        if self._make(
            f"link({self._show(old)}, {self._show(new)})", lambda: os.link(old.path, new.path), error
        ):
            old.node.nlink += 1
            new.directory.entries[new.name] = old.node
        self._compare(old)
        self._compare(new)

    def _symlink(self) -> None:
        place = self._place()
        target = self._data(300).hex()[:200] or "x"
        error = (errno.EEXIST,) if place.node else ()
        if self._make(f"symlink({self._show(place)})", lambda: os.symlink(target, place.path), error):
            node = Node(LINK, data=target.encode()).take(os.lstat(place.path))
            place.directory.entries[place.name] = node
        self._compare(place)

    def _chmod(self) -> None:
        """Change the mode of a file or a directory; other cases test that it is the one given."""
        place = self._place(self.random.choice((FILE, DIRECTORY)))
        node = place.node
        if node is None or node.kind == LINK:
            return
        mode = self.random.choice((0o700, 0o755, 0o750, 0o711))
        self._make(f"chmod({self._show(place)}, {mode:o})", lambda: os.chmod(place.path, mode), ())
        node.take(os.stat(place.path))
        self._compare(place)

    def _tmpfile(self) -> None:
        """Make a file without a name, write it, and give it a name."""
        place, data = self._place(), self._data() or b"x"
        if place.node:
            return
        node = Node(FILE, data=data)

        def call() -> None:
            descriptor = os.open(place.parent, os.O_TMPFILE | os.O_RDWR, 0o640)
            os.write(descriptor, data)
            node.take(os.fstat(descriptor))
            try:
                _link_open(descriptor, place.path)
            finally:
                os.close(descriptor)

        if self._make(f"linkat({self._show(place)}) of an O_TMPFILE file", call, ()):
            place.directory.entries[place.name] = node
        self._compare(place)

    def _xattr(self) -> None:
        """Set an extended attribute of a file or a directory, replace it or remove it."""
        place = self._place(self.random.choice((FILE, DIRECTORY)))
        node = place.node
        if node is None or node.kind == LINK:
            return
        name = self.random.choice(("user.one", "user.two", "user.a-longer-name"))
        if name in node.attributes and self.random.random() < 0.3:
            self._make(f"removexattr({self._show(place)})", lambda: os.removexattr(place.path, name), ())
            del node.attributes[name]
        else:
            value = self._data(300)
            self._make(
                f"setxattr({self._show(place)}) of {len(value)} bytes",
                lambda: os.setxattr(place.path, name, value),
                (),
            )
            node.attributes[name] = value
        self._compare(place)

    def _hold(self) -> None:
        """Open a file and keep it open."""
        place = self._place(FILE)
        if place.node is None or place.node.kind != FILE:
            return
        if len(self.open) > 5:
            descriptor, _ = self.open.pop(0)
            os.close(descriptor)
        self.log.append(f"open({self._show(place)}), which stays open")
        self.open.append((os.open(place.path, os.O_RDWR), place.node))

    def _succeed(self) -> None:
        """Remove a name of a file that stays open, or replace it, and write through the descriptor."""
        if not self.open:
            self._hold()
            return
        descriptor, node = self.random.choice(self.open)
        places = [
            Place(directory, self.root / top, name)
            for top, directory in self.top.items()
            for name, one in directory.entries.items()
            if one is node
        ]
        if not places:
            self._write_held(descriptor, node)
            return
        place, data = places[0], self._data()
        if self.random.random() < 0.5:
            self._make(f"unlink({self._show(place)}), which is open", lambda: os.unlink(place.path), ())
            self._forget(place)
        else:
            other = self.root / "successor"
            other.write_bytes(b"")
            self._make(
                f"rename() over {self._show(place)}, which is open", lambda: os.rename(other, place.path), ()
            )
            self._forget(place)
            self._make(f"unlink({self._show(place)})", lambda: os.unlink(place.path), ())
        self._make(f"write of {self._show(place)}, made again", lambda: place.path.write_bytes(data), ())
        place.directory.entries[place.name] = Node(FILE, data=data).take(os.stat(place.path))
        self._compare(place)
        self._write_held(descriptor, node)
        self._compare(place)

    def _use_held(self) -> None:
        """Write through a descriptor that was opened before: its file may have another name now, or none."""
        if self.open:
            self._write_held(*self.random.choice(self.open))

    def _write_held(self, descriptor: int, node: Node) -> None:
        data = self._data() or b"x"
        self._make(
            "a write through a file that was opened before", lambda: os.pwrite(descriptor, data, 0), ()
        )
        node.data = data + node.data[len(data) :]
        self._compare_held()
        for top, directory in self.top.items():
            for name, one in directory.entries.items():
                if one is node:
                    self._compare(Place(directory, self.root / top, name))

    # The comparison

    def _make(self, history: str, call: Callable[[], Any], errors: tuple[int, ...]) -> bool:
        """Make a call, which has to fail with one of ``errors`` if any; return whether it succeeded."""
        self.log.append(history)
        wanted = " or ".join(name_of(one) for one in errors)
        try:
            call()
        except OSError as error:
            if error.errno in errors:
                return False
            found = name_of(error.errno or 0)
            raise AssertionError(
                f"{found} from {self._history()}; it has to {'be ' + wanted if errors else 'succeed'}"
            ) from error
        assert not errors, f"success of {self._history()}; it has to fail with {wanted}"
        return True

    def _compare(self, place: Place) -> None:
        """Compare the directory's list and one name with the model."""
        with os.scandir(place.parent) as entries:
            listed = list(entries)
        silly = self.silly.listed(place.directory, listed)
        found = {one.name: _type(one) for one in listed if one.name not in silly}
        names, wanted = sorted(found), sorted(place.directory.entries)
        assert names == wanted, (
            f"readdir() of {place.parent.name} returns {_brief(names)} instead of {_brief(wanted)}, after "
            f"{self._history()}"
        )
        for name, node in place.directory.entries.items():
            assert found[name] in (0, node.kind), (
                f"readdir() returns {_KINDS.get(found[name])} for {_brief([name])}, which is "
                f"{_KINDS[node.kind]}, after {self._history()}"
            )
        if place.node is None:
            try:
                os.lstat(place.path)
            except FileNotFoundError:
                return
            raise AssertionError(
                f"lstat() finds {self._show(place)}, which does not exist, after {self._history()}"
            )
        self._compare_node(place, place.node)

    def _compare_node(self, place: Place, node: Node) -> None:
        path, shown = place.path, self._show(place)
        try:
            one = os.lstat(path)
        except FileNotFoundError:
            raise AssertionError(
                f"lstat() does not find {shown}, which exists, after {self._history()}"
            ) from None
        for what, found, wanted in (
            ("kind", _KINDS.get(stat.S_IFMT(one.st_mode)), _KINDS[node.kind]),
            ("serial number", one.st_ino, node.ino),
            ("link count", self._links(node, one), node.nlink),
            ("mode, owner and group", _rights(one), node.rights),
            ("size", one.st_size if node.kind != DIRECTORY else 0, len(node.data)),
        ):
            self._same(f"the {what} of {shown}", found, wanted)
        if node.kind == FILE:
            self._same(f"the data of {shown}", path.read_bytes(), node.data)
        elif node.kind == LINK:
            self._same(f"the contents of {shown}", os.fsencode(os.readlink(path)), node.data)
        if node.kind != LINK and "_xattr" not in self.lacking:
            listed = {name for name in os.listxattr(path) if name.startswith("user.")}
            self._same(f"the attributes of {shown}", listed, set(node.attributes))
            for name, value in node.attributes.items():
                self._same(f"{name} of {shown}", os.getxattr(path, name), value)

    def _same(self, what: str, found: object, wanted: object) -> None:
        if isinstance(found, bytes) and isinstance(wanted, bytes):
            difference = first_difference(found, wanted)
            assert not difference, f"{what}: {difference}, after {self._history()}"
        assert found == wanted, f"{what}: {found!r:.90} instead of {wanted!r:.90}, after {self._history()}"

    def _compare_all(self) -> None:
        for top, directory in self.top.items():
            self._compare_tree(self.root / top, directory)
        self._compare_held()

    def _compare_tree(self, path: Path, directory: Node) -> None:
        for name, node in directory.entries.items():
            self._compare(Place(directory, path, name))
            if node.kind == DIRECTORY:
                self._compare_tree(path / name, node)

    def _compare_held(self) -> None:
        for descriptor, node in self.open:
            one = os.fstat(descriptor)
            self._same("the data of a file that stays open", os.pread(descriptor, 4096, 0), node.data)
            self._same("the serial number of a file that stays open", one.st_ino, node.ino)
            self._same("the link count of a file that stays open", self._links(node, one), node.nlink)

    def _links(self, node: Node, one: os.stat_result) -> int:
        """Return the link count without the client's own names; that of the model if it is not compared."""
        if node.kind != FILE or 0 <= one.st_nlink - node.nlink <= self.silly.links(node):
            return node.nlink
        return one.st_nlink

    # Mechanics

    def _place(self, kind: int = 0, *, top: bool = False) -> Place:
        """Return a name, mostly one that exists; ``top``: in d0 or d1, not in a directory below.

        ``kind``: if there is any of it in d0 and d1, one of that kind.
        """
        places = [
            Place(directory, self.root / key, name)
            for key, directory in self.top.items()
            for name, node in directory.entries.items()
            if node.kind == kind
        ]
        if places:
            return self.random.choice(places)
        key = self.random.choice(sorted(self.top))
        directory, parent = self.top[key], self.root / key
        below = sorted(name for name, node in directory.entries.items() if node.kind == DIRECTORY)
        if below and not top and self.random.random() < 0.4:
            name = self.random.choice(below)
            directory, parent = directory.entries[name], parent / name
        if directory.entries and self.random.random() < 0.6:
            return Place(directory, parent, self.random.choice(sorted(directory.entries)))
        return Place(directory, parent, self.random.choice(self.names))

    def _no(self, place: Place, error: int) -> tuple[int, ...]:
        return () if place.node else (error,)

    def _forget(self, place: Place) -> None:
        node = place.directory.entries.pop(place.name)
        node.nlink -= 1
        if any(node is one for _, one in self.open):
            self.silly.remove(node, node.ino)

    def _data(self, most: int = 2000) -> bytes:
        length = self.random.choice((0, 1, 17, 100, 255, 256, most))
        return self.random.getrandbits(8 * length).to_bytes(length, "little")

    def _made(self, path: Path) -> Node:
        path.mkdir()
        return Node(DIRECTORY).take(os.stat(path))

    def _lacking(self) -> set[str]:
        """Return the operations that the file system lacks: other cases test whether that is legal."""
        probe, other = self.root / "probe", self.root / "other"
        lacking = set()
        tries: tuple[tuple[str, Callable[[], None]], ...] = (
            ("_link", lambda: os.link(probe, other)),
            ("_symlink", lambda: os.symlink("probe", other)),
            ("_xattr", lambda: os.setxattr(probe, "user.one", b"v" * 300)),
            ("_tmpfile", lambda: _named_later(self.root, other)),
            ("_noreplace", lambda: renameat2(probe, other, RENAME_NOREPLACE)),
            ("_exchange", lambda: renameat2(probe, self.root / "third", RENAME_EXCHANGE)),
        )
        for name, attempt in tries:
            for path in (probe, self.root / "third"):
                path.write_bytes(b"x")
            try:
                attempt()
            except (OSError, CannotRun):
                lacking.add(name)
            for path in (probe, other, self.root / "third"):
                if os.path.lexists(path):
                    os.unlink(path)
        return lacking

    def _show(self, place: Place) -> str:
        return f"{place.parent.relative_to(self.root)}/{_brief([place.name])[1:-1]}"

    def _history(self, last: int = 5) -> str:
        before = self.log[-last:-1]
        return self.log[-1] + (f" (before it: {'; '.join(before)})" if before else "")


def _link_open(descriptor: int, name: Path) -> None:
    """Give an open file a name (open(2), O_TMPFILE: linkat() with AT_SYMLINK_FOLLOW)."""
    os.link(f"/proc/self/fd/{descriptor}", name, src_dir_fd=descriptor, follow_symlinks=True)


def _named_later(directory: Path, name: Path) -> None:
    """Make a file without a name, and give it one."""
    descriptor = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o640)
    try:
        _link_open(descriptor, name)
    finally:
        os.close(descriptor)


def _rights(one: os.stat_result) -> tuple[int, int, int]:
    return stat.S_IMODE(one.st_mode), one.st_uid, one.st_gid


def _type(entry: os.DirEntry[str]) -> int:
    for kind, is_kind in (
        (LINK, entry.is_symlink()),
        (DIRECTORY, entry.is_dir(follow_symlinks=False)),
        (FILE, entry.is_file(follow_symlinks=False)),
    ):
        if is_kind:
            return kind
    return 0


def _brief(names: list[str]) -> str:
    return (
        "["
        + ", ".join(name if len(name) < 20 else f"{name[0]}*{len(name) - 1}+{name[-1]}" for name in names)
        + "]"
    )
