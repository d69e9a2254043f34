"""A seeded random sequence of requests on directories and their entries, compared with a :class:`TreeModel`.

Invariants: the model has made the same requests as the server; after a request that concerns a directory or a
file, its name, attributes, times and streams are looked at through another open, of either client.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from storagetest.suites.conformance.smb2.directory_model import Node, NodeOpen, TreeModel
from storagetest.suites.conformance.smb2.file_model import KINDS
from storagetest.suites.conformance.smb2.support import basic_information, open_directory
from storagetest.wire.sequences.dealer import Dealer
from storagetest.wire.sequences.history import History
from storagetest.wire.smb2.client import SmbFile, Tree
from storagetest.wire.smb2.codes import (
    RESTART_SCANS,
    RETURN_SINGLE_ENTRY,
    Access,
    Disposition,
    FileInfo,
    FsInfo,
    InfoType,
    Options,
    SmbAttribute,
    SmbShare,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.information import directory_entries
from storagetest.wire.smb2.message import SmbMessage

NAMES = ("alpha", "beta.d", "gamma.txt", "d e")
"""Names in each directory (chosen)."""
PATTERNS = ("*", "*a*", "beta.d", "g*", "???*", "no such*")
"""Patterns of listings (chosen)."""
DEPTH = 3
"""Directories above one another, with the sequence's own (chosen)."""
OPENS = 6
"""Opens at one time (chosen)."""
NAMED_STREAMS = 0x40000
"""FILE_NAMED_STREAMS of FileFsAttributeInformation (MS-FSCC 2.5.1)."""
STREAMS = ("one", "two")
"""Names of streams (chosen)."""
CLASSES = (
    FileInfo.DIRECTORY,
    FileInfo.FULL_DIRECTORY,
    FileInfo.BOTH_DIRECTORY,
    FileInfo.NAMES,
    FileInfo.ID_BOTH_DIRECTORY,
    FileInfo.ID_FULL_DIRECTORY,
)
TIMES = tuple(at * 10_000_000 + 116444736000000000 for at in (1_000_000_007, 1_234_567_890, 1_500_000_001))
"""Values of CreationTime: whole seconds of 2001, 2009 and 2017 (chosen)."""
_ATTRIBUTES = Access.READ_ATTRIBUTES | Access.WRITE_ATTRIBUTES
ACCESSES = (
    _ATTRIBUTES | Access.READ_DATA | Access.DELETE,
    _ATTRIBUTES | Access.DELETE,
    Access.READ_ATTRIBUTES | Access.READ_DATA,
    Access.READ_ATTRIBUTES,
    _ATTRIBUTES | Access.READ_DATA | Access.WRITE_DATA | Access.DELETE,
)
"""Access of an open (chosen)."""
SHARES = (SmbShare.ALL,) * 3 + (
    SmbShare.READ | SmbShare.WRITE,
    SmbShare.READ | SmbShare.DELETE,
    SmbShare.WRITE | SmbShare.DELETE,
    SmbShare.NONE,
)
"""Share access of an open (chosen)."""


@dataclass(eq=False)
class Opened:
    """An open: the server's, and the model's."""

    file: SmbFile
    model: NodeOpen

    @property
    def of(self) -> Node:
        """The node in the model."""
        return self.model.node


@dataclass
class DirectorySequence:
    """Requests below ``directory`` through two ``trees``; ``length`` is how many steps are made."""

    trees: list[Tree]
    directory: str
    seed: int
    length: int
    model: TreeModel = field(default_factory=TreeModel)
    opened: list[Opened] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dealer = Dealer(self.seed)
        self.random = self.dealer.random
        self.history = History(self.seed, self.length)
        self._features()

    def _features(self) -> None:
        """Find out which attributes and times the file system keeps, and whether it has named streams."""
        tried = f"{self.directory}-tried"
        with_all = Access.DELETE | Access.WRITE_ATTRIBUTES | Access.READ_ATTRIBUTES
        opened = self.trees[0].open(
            tried,
            access=with_all,
            options=Options.DIRECTORY_FILE | Options.DELETE_ON_CLOSE,
            disposition=Disposition.OPEN_IF,
        )
        self.keeps_kinds = not opened.set(FileInfo.BASIC, basic_information(KINDS)).status
        self.keeps_kinds = self.keeps_kinds and _standing(opened).kinds == KINDS
        self.keeps_times = not opened.set(FileInfo.BASIC, _creation(TIMES[0])).status
        self.keeps_times = self.keeps_times and _standing(opened).created == TIMES[0]
        data = opened.query(FsInfo.ATTRIBUTE, kind=InfoType.FILESYSTEM)
        self.streams = not data.status and bool(int.from_bytes(data.buffer[:4], "little") & NAMED_STREAMS)
        expect(opened.close())

    def run(self) -> None:
        """Make the steps, close all, and look at all that is left."""
        requests: list[Callable[[], None]] = [
            *(self.creates,) * 5, *(self.closes,) * 2, *(self.marks,) * 2, *(self.renames,) * 3,
            *(self.lists,) * 2,
            *(self.sets_kinds,) * self.keeps_kinds, *(self.sets_times,) * self.keeps_times,
            *(self.writes_streams,) * self.streams,
        ]  # fmt: skip
        for _ in range(self.length):
            self.dealer.deal("request", requests)()
        while self.opened:
            self.closes()
        for node in [*self.model.root.below()][1:]:
            with self.history.step(f"a look at {node.path} at the end", node.path):
                self._look(node)
        self.lists(self.model.root)

    # Opens

    def creates(self) -> None:
        """CREATE of a directory or a file, with the options of either, or none of them."""
        if len(self.opened) >= OPENS:
            self.closes()
        parent, name = self._place(), self.dealer.deal("name", NAMES)
        disposition = self.dealer.deal(
            "disposition", (Disposition.OPEN, Disposition.CREATE, Disposition.OPEN_IF, Disposition.OPEN_IF)
        )
        directory = self.dealer.deal("kind", (True, True, True, False, None))
        node = parent.children.get(name)
        if node and node.deleted:
            disposition, directory = Disposition.OPEN, None  # of two errors that apply, a server chooses one
        if (
            node
            and directory not in (None, node.is_directory)
            and (node.opens or disposition == Disposition.CREATE)
        ):
            directory = None
        access, share = self.dealer.deal("access", ACCESSES), self.dealer.deal("share", SHARES)
        empty = node is None or not node.children
        deletes = (
            bool(access & Access.DELETE) and empty and self.dealer.deal("deletes", (True, *(False,) * 4))
        )
        option = {True: Options.DIRECTORY_FILE, False: Options.NON_DIRECTORY_FILE, None: Options(0)}[
            directory
        ]
        path = f"{parent.path}\\{name}" if parent.path else name
        what = f"{option.name or 'no option'}, access {int(access):#x}, share {int(share)}"
        text = f"CREATE {disposition.name} of {path}, {what}{', DELETE_ON_CLOSE' * deletes}"
        with self.history.step(text, path):
            tree = self.random.choice(self.trees)
            done = tree.create(
                self._path(path), access=access, share=share, disposition=disposition,
                options=option | (Options.DELETE_ON_CLOSE if deletes else 0),
            )  # fmt: skip
            status = self.model.create_status(parent, name, disposition, access, share, directory=directory)
            _has_status(done, status)
            if status:
                return
            opened, action = self.model.create(
                parent, name, access, share, directory=bool(directory), deletes=deletes
            )
            self.opened.append(Opened(SmbFile(tree, path, bytes(done["file_id"]), done), opened))
            _has("CreateAction", done["action"], action)
            shown = bool(done["attributes"] & SmbAttribute.DIRECTORY)
            _has("FILE_ATTRIBUTE_DIRECTORY of CREATE", shown, opened.node.is_directory)
            self._look(opened.node)

    def closes(self) -> None:
        """CLOSE with a query of the attributes, or without (3.3.5.10)."""
        if not self.opened:
            return
        opened = self.random.choice(self.opened)
        flags, path = self.dealer.deal("close", (0, 1)), opened.of.path
        with self.history.step(f"CLOSE of {path} with flags {flags}", path):
            done = expect(opened.file.close(flags=flags))
            if done["flags"] & flags:
                shown = bool(done["attributes"] & SmbAttribute.DIRECTORY)
                _has("FILE_ATTRIBUTE_DIRECTORY of CLOSE", shown, opened.of.is_directory)
            self.opened.remove(opened)
            self.model.close(opened.model)
            self._check(opened.of, path)

    # Names

    def marks(self) -> None:
        """SET_INFO of FileDispositionInformation, which the next one may take back (MS-FSA 2.1.5.15.3)."""
        opened = self._pick(Access.DELETE)
        if opened is None:
            return
        pending = not opened.of.deleted
        if not pending and not opened.model.access & Access.DELETE:
            return  # smbd does not deny what takes a deletion back
        with self.history.step(f"SET_INFO of DeletePending {pending} of {opened.of.path}", opened.of.path):
            status = self.model.mark_status(opened.model, pending=pending)
            _has_status(opened.file.delete_on_close(pending=pending), status)
            if not status:
                opened.of.deleted = pending
            self._look(opened.of)
            self._check(opened.of, opened.of.path)

    def renames(self) -> None:
        """SET_INFO of FileRenameInformation, also to another directory (MS-FSA 2.1.5.15.11)."""
        opened = self._pick(Access.DELETE)
        parent, name = self._place(), self.dealer.deal("new name", NAMES)
        if opened is None or not self._is_movable(opened) or not self._fits(opened.of, parent, name):
            return
        node, target = opened.of, parent.children.get(name)
        if target and not opened.model.access & Access.DELETE:
            return  # of two errors that apply, a server chooses one
        replace = self.dealer.deal("replace", (True, False))
        if target and (target.is_directory or node.is_directory):
            replace = False  # what a directory replaces, and what replaces one, is SMB-RENAME-09's
        old, new = node.path, f"{parent.path}\\{name}" if parent.path else name
        with self.history.step(f"rename of {old} to {new}{', replacing it' * replace}", old, new):
            status = self.model.rename_status(opened.model, parent, name, replace=replace)
            _has_status(opened.file.rename(self._path(new), replace=replace), status)
            if not status:
                self.model.rename(node, parent, name)
                self._check(None, old)
            elif target:
                self._look(target)
            for each in node.below():
                self._look(each)

    @staticmethod
    def _is_movable(opened: Opened) -> bool:
        """Whether no other open keeps off a rename: of the node, of what is below it or of its directory."""
        node = opened.of
        if node.deleted or (node.is_directory and not opened.model.access & Access.DELETE):
            return False
        if any(each.opens for each in [*node.below()][1:]) or (
            node.parent and any(map(_keeps_names, node.parent.opens))
        ):
            return False
        return all(one.share & SmbShare.DELETE for one in node.opens)

    @staticmethod
    def _fits(node: Node, parent: Node, name: str) -> bool:
        """Whether the tree stays within its depth, and one error at most applies to the new place."""
        target = parent.children.get(name)
        deepest = max(_depth(each) for each in node.below()) - _depth(node)
        if target is node or parent in node.below() or _depth(parent) + 1 + deepest > DEPTH:
            return False
        if any(map(_keeps_names, parent.opens)):
            return False
        return target is None or not (target.deleted or target.opens or node in target.below())

    def lists(self, parent: Node | None = None) -> None:
        """QUERY_DIRECTORY by each class, in pages of several sizes, with attributes and sizes."""
        parent = parent or self._place()
        if not all(one.shares(Access.READ_DATA, SmbShare.ALL) for one in parent.opens):
            return
        pattern, length = self.dealer.deal("pattern", PATTERNS), self.dealer.deal("page", (65_536, 512, 300))
        info_class, single = self.dealer.deal("class", CLASSES), self.dealer.deal("single", (False, True))
        with self.history.step(f"QUERY_DIRECTORY of {pattern} in {parent.path or '.'}", parent.path):
            opened = open_directory(self.random.choice(self.trees), self._path(parent.path))
            found: dict[str, tuple[int, int]] = {}
            flags = RESTART_SCANS
            while True:
                flags |= RETURN_SINGLE_ENTRY if single else 0
                done = opened.list(info_class, pattern, flags=flags, length=length)
                if done.status in (SmbStatus.NO_MORE_FILES, SmbStatus.NO_SUCH_FILE):
                    break
                entries = directory_entries(expect(done).buffer, info_class)
                assert entries, "a response to QUERY_DIRECTORY has no entries"
                again = {one.name for one in entries} & {*found}
                assert not again, f"the listing has {sorted(again)} twice"
                assert not single or len(entries) == 1, "RETURN_SINGLE_ENTRY returns several entries"
                found |= {one.name: (one.size, one.attributes) for one in entries}
                flags = 0
            expect(opened.close())
            self._check_listing(parent, pattern, info_class, found)

    def _check_listing(
        self, parent: Node, pattern: str, info_class: FileInfo, found: dict[str, tuple[int, int]]
    ) -> None:
        """Check names and attributes; whether ``.`` and ``..`` are listed, is SMB-LIST-DOTS's."""
        wanted = {name: node for name, node in parent.children.items() if fnmatchcase(name, pattern)}
        deleted = {name for name, node in wanted.items() if node.deleted}
        _has("the listing", sorted({*found} - deleted - {".", ".."}), sorted({*wanted} - deleted))
        if info_class == FileInfo.NAMES:
            return
        for name, node in wanted.items():
            if name in found:
                attributes = found[name][1]
                shown = bool(attributes & SmbAttribute.DIRECTORY)
                _has(f"FILE_ATTRIBUTE_DIRECTORY of {name} in the listing", shown, node.is_directory)
                if self.keeps_kinds:
                    _has(f"the attributes of {name} in the listing", attributes & KINDS, node.kinds)

    # Attributes

    def sets_kinds(self) -> None:
        """SET_INFO of FileAttributes, of which 0 changes none (MS-FSA 2.1.5.15.2)."""
        opened = self._pick(Access.WRITE_ATTRIBUTES)
        if opened is None:
            return
        new = int(self.dealer.deal("new kinds", (0, *KINDS, KINDS, SmbAttribute.NORMAL)))
        if new == SmbAttribute.NORMAL and opened.of.is_directory:
            new = int(SmbAttribute.DIRECTORY)
        with self.history.step(f"SET_INFO of FileAttributes {new:#x} of {opened.of.path}", opened.of.path):
            denied = not opened.model.access & Access.WRITE_ATTRIBUTES
            done = opened.file.set(FileInfo.BASIC, basic_information(new))
            _has_status(done, SmbStatus.ACCESS_DENIED if denied else SmbStatus.SUCCESS)
            if new and not denied:
                opened.of.kinds = new & KINDS
            self._look(opened.of)

    def sets_times(self) -> None:
        """SET_INFO of CreationTime, which no other request changes (MS-FSA 2.1.5.15.2)."""
        opened = self._pick(Access.WRITE_ATTRIBUTES)
        if opened is None:
            return
        new = self.dealer.deal("time", TIMES)
        with self.history.step(f"SET_INFO of CreationTime {new} of {opened.of.path}", opened.of.path):
            denied = not opened.model.access & Access.WRITE_ATTRIBUTES
            done = opened.file.set(FileInfo.BASIC, _creation(new))
            _has_status(done, SmbStatus.ACCESS_DENIED if denied else SmbStatus.SUCCESS)
            if not denied:
                opened.of.created = new
            self._look(opened.of)

    def writes_streams(self) -> None:
        """CREATE and WRITE of a named stream: of its directory or file nothing else changes."""
        nodes = [node for node in [*self.model.root.below()][1:] if not node.opens and not node.deleted]
        if not nodes:
            return
        node, name = self.random.choice(nodes), self.dealer.deal("stream", STREAMS)
        data = bytes([self.random.randrange(256)]) * self.dealer.deal("size of a stream", (1, 100, 700))
        path = f"{node.path}:{name}"
        with self.history.step(f"a stream {path} of {len(data)} bytes", node.path):
            kinds = node.kinds or SmbAttribute.NORMAL  # those of a CREATE may be the file's
            file = self.trees[0].open(
                self._path(path), disposition=Disposition.OPEN_IF, attributes=int(kinds)
            )
            expect(file.set_size(len(data)))
            expect(file.write(data))
            expect(file.close())
            node.streams[name] = data
            self._look(node)

    # Mechanics

    def _path(self, path: str) -> str:
        return f"{self.directory}\\{path}" if path else self.directory

    def _pick(self, access: int) -> Opened | None:
        """Return an open, five times of six one that has ``access``, if there is one."""
        able = [one for one in self.opened if one.model.access & access]
        every = able if able and self.random.random() < 5 / 6 else self.opened
        return self.random.choice(every) if every else None

    def _place(self) -> Node:
        """Return a directory in which a name may be made."""
        fit = [
            node for node in self.model.root.below()
            if node.is_directory and not node.deleted and not any(one.deletes for one in node.opens)
            and _depth(node) < DEPTH
        ]  # fmt: skip
        return self.random.choice(fit)

    def _check(self, node: Node | None, path: str) -> None:
        """Open a name for its attributes alone, and check how the server answers."""
        there = (
            node is not None and node.path == path and (node.parent or node).children.get(node.name) is node
        )
        status = SmbStatus.SUCCESS if there else SmbStatus.OBJECT_NAME_NOT_FOUND
        if node is not None and there and node.deleted:
            status = SmbStatus.DELETE_PENDING
        tree = self.random.choice(self.trees)
        done = tree.create(
            self._path(path), access=Access.READ_ATTRIBUTES, share=SmbShare.NONE,
            disposition=Disposition.OPEN, options=0,
        )  # fmt: skip
        _has_status(done, status)
        if not status:
            expect(SmbFile(tree, path, bytes(done["file_id"]), done).close())

    def _look(self, node: Node) -> None:
        """Query a node through an open of its own; one that is to be deleted through an open that it has."""
        if node.deleted:
            self._compare(next(one.file for one in self.opened if one.of is node), node)
            return
        tree = self.random.choice(self.trees)
        file = tree.open(
            self._path(node.path), access=Access.READ_ATTRIBUTES, disposition=Disposition.OPEN, options=0
        )
        self._compare(file, node)
        expect(file.close())

    def _compare(self, file: SmbFile, node: Node) -> None:
        """Compare what QUERY_INFO returns with the model."""
        found = _standing(file)
        _has(f"FILE_ATTRIBUTE_DIRECTORY of {node.path}", found.is_directory, node.is_directory)
        _has(f"Directory in FileStandardInformation of {node.path}", found.directory, node.is_directory)
        _has(f"DeletePending of {node.path}", found.deleted, node.deleted)
        node.number = found.number if node.number is None else node.number
        _has(f"IndexNumber of {node.path}", found.number, node.number)
        if self.keeps_kinds:
            _has(f"the attributes of {node.path}", found.kinds, node.kinds)
        if node.created is not None:
            _has(f"CreationTime of {node.path}", found.created, node.created)
        if node.streams and not node.deleted:
            sizes = {name: len(data) for name, data in node.streams.items()}
            _has(f"the streams of {node.path}", _streams(file), sizes)


@dataclass(frozen=True, slots=True)
class _Standing:
    created: int
    kinds: int
    is_directory: bool
    deleted: bool
    directory: bool
    number: int


def _standing(file: SmbFile) -> _Standing:
    """Return what FileAllInformation has (MS-FSCC 2.4.2)."""
    data = expect(file.query(FileInfo.ALL)).buffer
    created, attributes = struct.unpack_from("<Q24xI", data)
    deleted, directory = struct.unpack_from("<BB", data, 60)
    (number,) = struct.unpack_from("<Q", data, 64)
    is_directory = bool(attributes & SmbAttribute.DIRECTORY)
    return _Standing(created, attributes & KINDS, is_directory, bool(deleted), bool(directory), number)


def _streams(file: SmbFile) -> dict[str, int]:
    """Return the sizes of the named streams of FileStreamInformation (MS-FSCC 2.4.49)."""
    data, found = expect(file.query(FileInfo.STREAM)).buffer, {}
    while data:
        step, length, size = struct.unpack_from("<IIQ", data)
        name = data[24 : 24 + length].decode("utf-16-le")
        if name != "::$DATA":
            found[name.removeprefix(":").removesuffix(":$DATA")] = size
        data = data[step:] if step else b""
    return found


def _creation(time: int) -> bytes:
    """Return FileBasicInformation that sets CreationTime alone (MS-FSCC 2.4.7)."""
    return struct.pack("<Q32x", time)


def _keeps_names(opened: NodeOpen) -> bool:
    """Whether an open of a directory may keep off a rename in it, which opens it and shares no deletion."""
    return bool(opened.access & Access.DELETE) or not opened.share & SmbShare.DELETE


def _depth(node: Node) -> int:
    return 0 if node.parent is None else 1 + _depth(node.parent)


def _has(what: str, found: object, wanted: object) -> None:
    assert found == wanted, f"{what}: {found}, the model has {wanted}"


def _has_status(message: SmbMessage, wanted: SmbStatus) -> None:
    assert message.status == wanted, (
        f"the status is {SmbStatus.name_of(message.status)}, the model has {wanted.name}"
    )
