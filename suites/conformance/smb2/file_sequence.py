"""A seeded random sequence of requests on the files of a directory, each compared with a :class:`FileModel`.

Invariants: the model has made the same requests as the server; after a request that concerns a file, size,
links and data are looked at through another open than the one that made it. No request is larger than 64 KiB
or than the server's largest sizes, and several are in flight only if there are credits for them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from storagetest.suites.conformance.smb2.file_model import (
    KINDS,
    REPLACES,
    FileModel,
    ModelFile,
    ModelLock,
    ModelOpen,
)
from storagetest.suites.conformance.smb2.support import (
    NO_LINKS,
    basic_information,
    link_information,
    open_directory,
)
from storagetest.wire.sequences.data import compare
from storagetest.wire.sequences.dealer import Dealer
from storagetest.wire.sequences.history import History
from storagetest.wire.smb2.client import SmbFile, Tree, create_request
from storagetest.wire.smb2.codes import (
    NO_FILE,
    RESTART_SCANS,
    RETURN_SINGLE_ENTRY,
    Access,
    Disposition,
    FileInfo,
    Lock,
    Options,
    SmbAttribute,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.information import directory_entries
from storagetest.wire.smb2.message import SmbEncoded, SmbMessage, request

NAMES = ("one.txt", "two.txt", "three.dat", "four", "a five", "s.i.x")
"""Names of the sequence's files (chosen)."""
PATTERNS = ("*", "*.txt", "*e*", "t*", "four", "*i*", "no such*")
"""Patterns of listings without the wildcards that a shell does not have (chosen)."""
SIZES = (1, 2, 3, 511, 513, 4095, 4096, 4097, 8192, 12_289, 65_535, 65_536)
"""Bytes of a READ or WRITE, around a sector, a page, and what one credit is for (chosen)."""
MOST = 200_000
"""Bytes of a file (chosen)."""
OPENS = 6
"""Opens at one time (chosen)."""
CLUSTER = 1 << 20
"""The largest allocation unit to which a size may be rounded (chosen)."""
POSTQUERY = 1
"""SMB2_CLOSE_FLAG_POSTQUERY_ATTRIB (2.2.15)."""

_ATTRIBUTES = Access.READ_ATTRIBUTES | Access.WRITE_ATTRIBUTES
_DATA = Access.READ_DATA | Access.WRITE_DATA | Access.APPEND_DATA
ACCESSES = (
    _ATTRIBUTES | _DATA | Access.DELETE,
    _ATTRIBUTES | _DATA | Access.DELETE,
    Access.READ_ATTRIBUTES | _DATA,
    Access.READ_ATTRIBUTES | Access.READ_DATA,
    _ATTRIBUTES | Access.READ_DATA | Access.DELETE,
    Access.READ_ATTRIBUTES | Access.WRITE_DATA | Access.APPEND_DATA,
)
"""Access of an open (chosen)."""
TIMES = ("creation_time", "last_access_time", "last_write_time", "change_time")
CLASSES = (FileInfo.ID_BOTH_DIRECTORY, FileInfo.NAMES, FileInfo.DIRECTORY, FileInfo.FULL_DIRECTORY)
_SHOWN = Access.READ_DATA | Access.WRITE_DATA | Access.DELETE


@dataclass(eq=False)
class Opened:
    """An open: the server's, and the model's."""

    file: SmbFile
    model: ModelOpen

    @property
    def of(self) -> ModelFile:
        """The file in the model."""
        return self.model.file


@dataclass
class FileSequence:
    """Requests in ``directory`` through two ``trees``; ``length`` is how many steps are made."""

    trees: list[Tree]
    directory: str
    seed: int
    length: int
    model: FileModel = field(default_factory=FileModel)
    opened: list[Opened] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dealer = Dealer(self.seed)
        self.random = self.dealer.random
        self.history = History(self.seed, self.length)
        settled = self.trees[0].session.connection.settled.message
        self.largest = min(SIZES[-1], settled["max_read"], settled["max_write"])
        self.links, self.keeps_kinds = self._features()
        self.listing = open_directory(self.trees[0], self.directory)

    def _features(self) -> tuple[bool, bool]:
        """Return whether the file system has hard links, and whether it keeps HIDDEN and SYSTEM."""
        file = self.trees[0].open(f"{self.directory}-tried")
        linked = file.set(FileInfo.LINK, link_information(f"{file.name}-2"))
        expect(linked, SmbStatus.SUCCESS, *NO_LINKS)
        kept = not file.set(FileInfo.BASIC, basic_information(KINDS)).status and _standing(file)[1] == KINDS
        expect(file.close())
        return not linked.status, kept

    def run(self) -> None:
        """Make the steps, close all, and compare all files."""
        requests: list[Callable[[], None]] = [
            *(self.writes,) * 4, *(self.reads,) * 2, *(self.creates,) * 3, *(self.closes,) * 2, self.resizes,
            self.allocates, self.flushes, self.marks, self.renames, *(self.locks,) * 2, self.unlocks,
            self.lists, self.related, self.related_to_an_open, self.unrelated, self.in_flight,
            *(self.makes_links,) * self.links, *(self.sets_kinds,) * self.keeps_kinds,
        ]  # fmt: skip
        for _ in range(self.length):
            self.dealer.deal("request", requests)()
        while self.opened:
            self.closes()
        self.lists()
        for name, file in sorted(self.model.names.items()):
            with self.history.step(f"a look at {name} at the end", name):
                self._look(file, 0)

    # Opens

    def creates(self) -> None:
        """CREATE with each disposition, some with attributes, some with FILE_DELETE_ON_CLOSE."""
        if len(self.opened) >= OPENS:
            self.closes()
        name, disposition = self.dealer.deal("name", NAMES), self.dealer.deal("disposition", [*Disposition])
        file = self.model.names.get(name)
        if file and disposition in REPLACES and any(one.locks for one in file.opens):
            disposition = Disposition.OPEN_IF  # whether a lock denies an overwrite, MS-FSA does not say
        if file and file.deleted and disposition == Disposition.CREATE:
            disposition = Disposition.OPEN  # of two errors that apply, a server chooses one
        kinds = self.dealer.deal("kinds", (0, 0, *KINDS, KINDS)) if self.keeps_kinds else 0
        if file and (file.deleted or disposition == Disposition.SUPERSEDE):
            kinds |= file.kinds  # of two errors a server chooses one; SUPERSEDE is another case's
        # An open that replaces is granted what that needs (MS-FSA 2.1.5.1.2).
        access = ACCESSES[0] if disposition in REPLACES else self.dealer.deal("access", ACCESSES)
        deletes = bool(access & Access.DELETE) and (file is None or len(file.names) == 1)
        deletes = deletes and self.dealer.deal("deletes", (True, False, False, False))
        text = f"CREATE {disposition.name} of {name}, attributes {kinds:#x}{', DELETE_ON_CLOSE' * deletes}"
        with self.history.step(text, name):
            tree = self.random.choice(self.trees)
            done = tree.create(
                self._path(name),
                access=access,
                disposition=disposition,
                options=Options.NON_DIRECTORY_FILE | (Options.DELETE_ON_CLOSE if deletes else 0),
                attributes=int(kinds) or SmbAttribute.NORMAL,
            )
            status = self.model.create_status(name, disposition, kinds)
            _has_status(done, status)
            if status:
                return
            opened, action = self.model.create(name, disposition, kinds, access, deletes=deletes)
            self.opened.append(Opened(SmbFile(tree, name, bytes(done["file_id"]), done), opened))
            _has("CreateAction", done["action"], action)
            _has("EndofFile", done["end_of_file"], len(opened.file.data))
            self._check_access(self.opened[-1])
            self._look(opened.file, 0, self.opened[-1])

    def _check_access(self, opened: Opened) -> None:
        """Check that FileAccessInformation has what was granted (MS-FSA 2.1.5.12.1)."""
        data = expect(opened.file.query(FileInfo.ACCESS)).buffer
        _has("AccessFlags", int.from_bytes(data[:4], "little") & _SHOWN, opened.model.access & _SHOWN)

    def closes(self) -> None:
        """CLOSE, with and without a query of the attributes (3.3.5.10)."""
        opened = self._pick()
        flags, name = self.dealer.deal("close", (0, POSTQUERY)), opened.model.name
        with self.history.step(f"CLOSE of {name} with flags {flags}", name):
            done = expect(opened.file.close(flags=flags))
            known = done["flags"] & flags
            _has("EndofFile of CLOSE", done["end_of_file"], len(opened.of.data) if known else 0)
            if not known:
                found = [done[each] for each in (*TIMES, "allocation_size", "attributes", "flags")]
                _has("the attributes of CLOSE", found, [0] * len(found))
            self.opened.remove(opened)
            self.model.close(opened.model)
            self._check_name(name)

    def _check_name(self, name: str) -> None:
        """Open a name for its attributes alone, and check how the server answers."""
        status = self.model.create_status(name, Disposition.OPEN, 0)
        tree = self.random.choice(self.trees)
        done = tree.create(self._path(name), access=Access.READ_ATTRIBUTES, disposition=Disposition.OPEN)
        _has_status(done, status)
        if not status:
            expect(SmbFile(tree, name, bytes(done["file_id"]), done).close())

    # Data

    def writes(self) -> None:
        """WRITE of bytes, of none at times (3.3.5.13)."""
        opened = self._pick(Access.WRITE_DATA)
        length = min(self.dealer.deal("size of a write", (*SIZES, 0)), self.largest)
        offset, data = self._offset(opened.of, length), self.random.randbytes(length)
        with self._step(f"WRITE of {length} bytes at {offset}", opened):
            status = opened.model.write_status(offset, length)
            done = opened.file.write(data, offset, buffer_offset=112)
            _has_status(done, status)
            if not status:
                _has("Count", done["count"], length)
                opened.of.write(offset, data)
            self._look(opened.of, offset, opened)

    def reads(self) -> None:
        """READ, some of a MinimumCount (3.3.5.12)."""
        opened = self._pick(Access.READ_DATA)
        _, offset, length, minimum = self._read_of(opened)
        with self._step(f"READ of {minimum} to {length} bytes at {offset}", opened):
            done = opened.file.read(length, offset, minimum=minimum)
            _has_data(done, *opened.model.read(offset, length, minimum), offset)

    def resizes(self) -> None:
        """SET_INFO of FileEndOfFileInformation (MS-FSA 2.1.5.15.4)."""
        opened = self._pick_unlocked()
        if opened is None:
            return
        size = len(opened.of.data)
        new = max(0, min(MOST, self.dealer.deal("size", (0, size, size - 1, size // 2, size + 4097, 65_537))))
        denied = not opened.model.allows(Access.WRITE_DATA)
        new += denied and new == size
        with self._step(f"SET_INFO of EndOfFile {new}", opened):
            _has_status(opened.file.set_size(new), SmbStatus.ACCESS_DENIED if denied else SmbStatus.SUCCESS)
            if not denied:
                opened.of.resize(new)
            self._look(opened.of, min(size, new), opened)

    def allocates(self) -> None:
        """SET_INFO of FileAllocationInformation, which may make a file smaller (MS-FSA 2.1.5.15.1)."""
        opened = self._pick_unlocked(Access.WRITE_DATA)
        if opened is None or not opened.model.allows(Access.WRITE_DATA):
            return
        size = len(opened.of.data)
        new = max(0, self.dealer.deal("allocation", (0, size // 2, size - 1, size + 1, size + 70_000)))
        with self._step(f"SET_INFO of AllocationSize {new}, size {size}", opened):
            expect(opened.file.set(FileInfo.ALLOCATION, struct.pack("<Q", new)))
            found = _standing(opened.file)[0]
            least, most = min(size, new), min(size, new + -new % CLUSTER)
            assert least <= found <= most, f"EndOfFile is {found}, the model has {least} to {most}"
            opened.of.resize(found)
            self._look(opened.of, found, opened)

    def flushes(self) -> None:
        """FLUSH (3.3.5.11)."""
        opened = self._pick()
        denied = not opened.model.allows(Access.WRITE_DATA)
        with self._step("FLUSH", opened):
            _has_status(opened.file.flush(), SmbStatus.ACCESS_DENIED if denied else SmbStatus.SUCCESS)
            self._look(opened.of, 0, opened)

    # Names and attributes

    def sets_kinds(self) -> None:
        """SET_INFO of FileBasicInformation, in which attributes of 0 change none (MS-FSA 2.1.5.15.2)."""
        opened = self._pick(Access.WRITE_ATTRIBUTES)
        new = int(self.dealer.deal("new kinds", (0, *KINDS, KINDS, SmbAttribute.NORMAL)))
        denied = not opened.model.allows(Access.WRITE_ATTRIBUTES)
        with self._step(f"SET_INFO of FileAttributes {new:#x}", opened):
            done = opened.file.set(FileInfo.BASIC, basic_information(new))
            _has_status(done, SmbStatus.ACCESS_DENIED if denied else SmbStatus.SUCCESS)
            if new and not denied:
                opened.of.kinds = new & KINDS
            self._look(opened.of, 0, opened)

    def marks(self) -> None:
        """SET_INFO of FileDispositionInformation, which the next one may take back (MS-FSA 2.1.5.15.3)."""
        opened = self._pick(Access.DELETE)
        if len(opened.of.names) > 1:
            return
        denied = not opened.model.allows(Access.DELETE)
        pending = denied or not opened.of.deleted
        with self._step(f"SET_INFO of DeletePending {pending}", opened):
            done = opened.file.delete_on_close(pending=pending)
            _has_status(done, SmbStatus.ACCESS_DENIED if denied else SmbStatus.SUCCESS)
            if not denied:
                opened.of.deleted = pending
            self._look(opened.of, 0, opened)
            self._check_name(opened.model.name)

    def renames(self) -> None:
        """SET_INFO of FileRenameInformation (MS-FSA 2.1.5.15.11)."""
        opened, new = self._pick(Access.DELETE), self.dealer.deal("new name", NAMES)
        if opened.of.deleted or not self._may_take(opened, new):
            return
        if not opened.model.allows(Access.DELETE) and new in self.model.names:
            return  # of two errors that apply, a server chooses one
        old, replace = opened.model.name, self.dealer.deal("replace", (True, False))
        text = f"rename of {old} to {new}{', replacing it' * replace}"
        with self.history.step(text, old, new):
            status = self.model.rename_status(opened.model, new, replace=replace)
            _has_status(opened.file.rename(self._path(new), replace=replace), status)
            if not status:
                self.model.rename(opened.model, new)
            for name in (old, new):
                self._check_name(name)
            self._look(opened.of, 0, opened)

    def makes_links(self) -> None:
        """SET_INFO of FileLinkInformation (MS-FSA 2.1.5.15.6)."""
        opened, new = self._pick(Access.WRITE_DATA), self.dealer.deal("link", NAMES)
        if opened.of.deleted or not self._may_take(opened, new):
            return
        if any(one.deletes for one in opened.of.opens):
            return  # which link an open deletes, is a question of another case
        old, taken = opened.model.name, new in self.model.names
        with self.history.step(f"link of {old} to {new}", old, new):
            done = opened.file.set(FileInfo.LINK, link_information(self._path(new)))
            _has_status(done, SmbStatus.OBJECT_NAME_COLLISION if taken else SmbStatus.SUCCESS)
            if not taken:
                self.model.link(opened.model, new)
            self._check_name(new)
            self._look(opened.of, 0, opened)

    def _may_take(self, opened: Opened, name: str) -> bool:
        """Whether the model knows what happens to ``name``: another file's, whose opens are of one client."""
        target = self.model.names.get(name)
        if target is None:
            return True
        trees = {id(one.file.tree) for one in self.opened if one.of is target}
        return target is not opened.of and not target.deleted and trees <= {id(opened.file.tree)}

    def lists(self) -> None:
        """QUERY_DIRECTORY of one open, restarted with another pattern, in pages of several sizes."""
        pattern, length = self.dealer.deal("pattern", PATTERNS), self.dealer.deal("page", (65_536, 1024, 512))
        info_class, single = self.dealer.deal("class", CLASSES), self.dealer.deal("single", (False, True))
        with self.history.step(f"QUERY_DIRECTORY of {pattern}", *NAMES):
            found: list[str] = []
            flags = RESTART_SCANS
            while True:
                flags |= RETURN_SINGLE_ENTRY if single else 0
                done = self.listing.list(info_class, pattern, flags=flags, length=length)
                none = SmbStatus.NO_MORE_FILES if found else SmbStatus.NO_SUCH_FILE
                if done.status in (SmbStatus.NO_MORE_FILES, none):
                    break
                expect(done)
                names = [one.name for one in directory_entries(done.buffer, info_class)]
                assert names, "a response to QUERY_DIRECTORY has no entries"
                assert names[-1] not in found, f"the listing goes on with {names}, which it had before"
                assert not single or len(names) == 1, f"RETURN_SINGLE_ENTRY returns {names}"
                found += names
                flags = 0
            after = self.listing.list(info_class, pattern).status
            assert after in (done.status, SmbStatus.NO_MORE_FILES), (
                f"after its end the listing goes on with {SmbStatus.name_of(after)}"
            )
            deleted = {name for name, file in self.model.names.items() if file.deleted}
            wanted = {name for name in self.model.names if fnmatchcase(name, pattern)}
            # Whether the directory itself is listed, is SMB-LIST-DOTS's.
            _has("the listing", sorted({*found} - deleted - {".", ".."}), sorted(wanted - deleted))
            _has("the number of its entries", len(found), len(set(found)))

    # Locks

    def locks(self) -> None:
        """LOCK of one range or two, of which all or none are locked (3.3.5.14.2)."""
        opened = self._pick()
        wanted = [self._lock() for _ in range(self.dealer.deal("ranges", (1, 2)))]
        held = {(one.start, one.end) for one in opened.model.locks}
        if any((one.start, one.end) in held for one in wanted):
            return  # a lock that an open has twice is SMB-SEQUENCE-LOCKS's
        text = ", ".join(f"{one.start} to {one.end}{' exclusively' * one.exclusive}" for one in wanted)
        with self._step(f"LOCK of {text}", opened):
            status = opened.model.lock(wanted)
            kinds = [Lock.EXCLUSIVE if one.exclusive else Lock.SHARED for one in wanted]
            elements = [
                (one.start, one.end - one.start, kind | Lock.FAIL_IMMEDIATELY)
                for one, kind in zip(wanted, kinds, strict=True)
            ]
            _has_status(opened.file.lock(*elements), status)
            self._look(opened.of, wanted[0].start, opened)

    def _lock(self) -> ModelLock:
        start = self.dealer.deal("start of a lock", (0, 1, 4000, 4096, 65_536, 1 << 33))
        length = self.dealer.deal("length of a lock", (1, 100, 5000))
        return ModelLock(start, start + length, exclusive=self.dealer.deal("exclusive", (True, False)))

    def unlocks(self) -> None:
        """Unlock a range, and with it at times one that is not locked (3.3.5.14.1)."""
        held = [one for one in self.opened if one.model.locks]
        if not held:
            return
        owner = self.random.choice(held)
        first = self.random.choice(owner.model.locks)
        others = [one for one in self.opened if one.of is owner.of]
        opened = owner if self.dealer.deal("owner", (True, True, False)) else self.random.choice(others)
        ranges = [(first.start, first.end), *self.dealer.deal("more", ((), ((7, 8),)))]
        with self._step(f"unlock of {', '.join(f'{start} to {end}' for start, end in ranges)}", opened):
            status = opened.model.unlock(ranges)
            _has_status(
                opened.file.lock(*((start, end - start, Lock.UNLOCK) for start, end in ranges)), status
            )
            self._look(opened.of, ranges[0][0], opened)

    # Several requests at once

    def related(self) -> None:
        """A compound of CREATE and related requests, which concern the file that it opens (3.3.5.2.7.2)."""
        name = self.dealer.deal("related", NAMES)
        file = self.model.names.get(name)
        readable = file is None or (file.data and not any(one.locks for one in file.opens))
        tree = self._tree(4)
        if tree is None or not readable:
            return
        access = Access.READ_DATA | Access.READ_ATTRIBUTES
        parts = [
            create_request(self._path(name), access=access, disposition=Disposition.OPEN),
            _read_request(NO_FILE, 0, self.largest),
            _standard_request(NO_FILE),
            request(SmbCommand.CLOSE, file_id=NO_FILE),
        ]
        with self.history.step(f"a compound of CREATE, READ, QUERY_INFO and CLOSE of {name}", name):
            done = [tree.receive(mid) for mid in tree.send(*parts, related=True)]
            status = self.model.create_status(name, Disposition.OPEN, 0)
            _has_status(done[0], status)
            if status or file is None:
                assert all(each.status for each in done), "a request succeeds, for which CREATE made no open"
                return
            _has_data(done[1], SmbStatus.SUCCESS, bytes(file.data[: self.largest]), 0)
            _has("EndOfFile", int.from_bytes(expect(done[2]).buffer[8:16], "little"), len(file.data))
            expect(done[3])

    def related_to_an_open(self) -> None:
        """A compound of a WRITE to an open, and related requests (3.3.5.2.7.2)."""
        opened = self._pick(Access.WRITE_DATA | Access.READ_DATA)
        wanted = Access.WRITE_DATA | Access.READ_DATA
        if not opened.model.allows(wanted) or self._locked(opened.of):
            return
        length = min(self.dealer.deal("related size", (1, 511, 4097)), self.largest)
        offset, data = self._offset(opened.of, length), self.random.randbytes(length)
        if self._tree(3, opened.file.tree) is None:
            return
        parts = [
            request(SmbCommand.WRITE, data, offset=offset, file_id=opened.file.file_id),
            _read_request(NO_FILE, offset, length),
            _standard_request(NO_FILE),
        ]
        with self._step(f"a compound of WRITE of {length} bytes at {offset}, READ and QUERY_INFO", opened):
            tree = opened.file.tree
            done = [tree.receive(mid) for mid in tree.send(*parts, related=True)]
            opened.of.write(offset, data)
            _has("Count", expect(done[0])["count"], length)
            _has_data(done[1], SmbStatus.SUCCESS, data, offset)
            _has("EndOfFile", int.from_bytes(expect(done[2]).buffer[8:16], "little"), len(opened.of.data))
            self._look(opened.of, offset, opened)

    def unrelated(self) -> None:
        """A compound of READs of several opens, each of which is answered for itself (3.3.5.2.7.1)."""
        self._reads_at_once(compound=True)

    def in_flight(self) -> None:
        """READs that are sent before one of them is answered."""
        self._reads_at_once(compound=False)

    def _reads_at_once(self, *, compound: bool) -> None:
        tree = self._tree(4)
        opens = [one for one in self.opened if one.file.tree is tree]
        if tree is None or not opens:
            return
        chosen = [self._read_of(self.random.choice(opens)) for _ in range(4)]
        if self.dealer.deal("one length", (True, False)):
            chosen = [(one, at, chosen[0][2], 0) for one, at, _, _ in chosen]
        texts = ", ".join(f"{length} at {at} of {one.model.name}" for one, at, length, _ in chosen)
        with self.history.step(f"READs {'in a compound' if compound else 'in flight'}: {texts}"):
            parts = [_read_request(one.file.file_id, at, length, least) for one, at, length, least in chosen]
            ids = tree.send(*parts) if compound else [tree.send(part)[0] for part in parts]
            for mid, (one, offset, length, minimum) in reversed([*zip(ids, chosen, strict=True)]):
                _has_data(tree.receive(mid), *one.model.read(offset, length, minimum), offset)

    # Mechanics

    def _step(self, text: str, opened: Opened) -> AbstractContextManager[None]:
        return self.history.step(f"{text} of {opened.model.name}", *opened.of.names)

    def _path(self, name: str) -> str:
        return f"{self.directory}\\{name}"

    def _pick(self, access: int = 0) -> Opened:
        """Return an open, five times of six one that has ``access``, if there is one."""
        while not self.opened:
            self.creates()
        able = [one for one in self.opened if one.model.allows(access)]
        return self.random.choice(able if able and self.random.random() < 5 / 6 else self.opened)

    def _pick_unlocked(self, access: int = 0) -> Opened | None:
        """Return an open of a file without locks: whether they deny a change of size, MS-FSA does not say."""
        opened = self._pick(access)
        return None if self._locked(opened.of) else opened

    @staticmethod
    def _locked(file: ModelFile) -> bool:
        return any(one.locks for one in file.opens)

    def _tree(self, credits_: int, tree: Tree | None = None) -> Tree | None:
        """Return a tree, or None if its connection has too few credits for several requests."""
        chosen = tree or self.random.choice(self.trees)
        return chosen if chosen.session.connection.granted > credits_ else None

    def _offset(self, file: ModelFile, length: int) -> int:
        """Return where a request begins: at an edge of a page, of the file, or anywhere."""
        size = len(file.data)
        near = self.dealer.deal("place", (0, size, size - 1, size - length, size + 4097, 4096, 4095, 65_535))
        return max(0, min(self.random.choice((near, self.random.randrange(size + 1))), MOST - length))

    def _read_of(self, opened: Opened) -> tuple[Opened, int, int, int]:
        """Return offset, length and MinimumCount of a READ."""
        length = min(self.dealer.deal("size of a read", SIZES), self.largest)
        offset = self._offset(opened.of, length) + self.dealer.deal("far", (0,) * 7 + (1 << 33,))
        return opened, offset, length, self.dealer.deal("minimum", (0, 0, 1, length))

    def _look(self, file: ModelFile, offset: int, but: Opened | None = None) -> None:
        """Read around ``offset`` and query size, links and attributes, through another open than ``but``."""
        others = [one for one in self.opened if one.of is file and one is not but]
        fresh = not file.deleted and (not others or self.random.random() < 0.3)
        if fresh:
            name = self.random.choice(sorted(file.names))
            access = Access.READ_DATA | Access.READ_ATTRIBUTES
            made = self.random.choice(self.trees).open(
                self._path(name), access=access, disposition=Disposition.OPEN
            )
            looker = Opened(made, ModelOpen(file, name, access))
        elif others:
            looker = self.random.choice(others)
        else:
            assert but is not None, "an open of a file that is to be deleted"
            looker = but
        start = max(0, offset - 100)
        done = looker.file.read(self.largest, start)
        _has_data(done, *looker.model.read(start, self.largest), start)
        size, kinds, links, deleted, number = _standing(looker.file)
        file.number = number if file.number is None else file.number
        _has("IndexNumber", number, file.number)
        _has("EndOfFile", size, len(file.data))
        _has("NumberOfLinks", links, file.links)
        _has("DeletePending", deleted, file.deleted)
        if self.keeps_kinds:
            _has("FileAttributes", kinds, file.kinds)
        if fresh:
            expect(looker.file.close())


def _standing(file: SmbFile) -> tuple[int, int, int, bool, int]:
    """Return size, KINDS, links, DeletePending and IndexNumber of FileAllInformation (MS-FSCC 2.4.2)."""
    data = expect(file.query(FileInfo.ALL)).buffer
    (attributes,) = struct.unpack_from("<I", data, 32)
    size, links, deleted = struct.unpack_from("<QIB", data, 48)
    (number,) = struct.unpack_from("<Q", data, 64)
    return size, attributes & KINDS, links, bool(deleted), number


def _read_request(file_id: bytes, offset: int, length: int, minimum: int = 0) -> SmbEncoded:
    return request(
        SmbCommand.READ, file_id=file_id, offset=offset, length=length, minimum=minimum, padding=80
    )


def _standard_request(file_id: bytes) -> SmbEncoded:
    return request(
        SmbCommand.QUERY_INFO, info_type=1, info_class=FileInfo.STANDARD, output_length=24, file_id=file_id
    )


def _has(what: str, found: object, wanted: object) -> None:
    assert found == wanted, f"{what}: {found}, the model has {wanted}"


def _has_status(message: SmbMessage, wanted: SmbStatus) -> None:
    assert message.status == wanted, (
        f"the status is {SmbStatus.name_of(message.status)}, the model has {wanted.name}"
    )


def _has_data(message: SmbMessage, status: SmbStatus, wanted: bytes, offset: int) -> None:
    """Check the response to a READ."""
    _has_status(message, status)
    if not status:
        compare(message.buffer, wanted, offset)
