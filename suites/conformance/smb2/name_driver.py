"""Sequences of names (:mod:`storagetest.wire.sequences.names`) as requests of SMB2."""

from __future__ import annotations

import struct

from storagetest.suites.conformance.smb2.support import NO_LINKS, open_directory
from storagetest.wire.sequences.names import ROOT, Feature, NameStep, Outcome
from storagetest.wire.smb2.client import SmbFile, Tree
from storagetest.wire.smb2.codes import Access, Disposition, FileInfo, Options, SmbStatus
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.information import directory_entries
from storagetest.wire.smb2.message import SmbMessage

LENGTHS = (65536, 2048, 4096, 1024)
"""Bytes of a page of a listing (chosen)."""

CLASSES = (FileInfo.ID_BOTH_DIRECTORY, FileInfo.NAMES, FileInfo.DIRECTORY, FileInfo.FULL_DIRECTORY,
           FileInfo.BOTH_DIRECTORY, FileInfo.ID_FULL_DIRECTORY)  # fmt: skip

OUTCOMES: dict[int, Outcome] = {
    SmbStatus.SUCCESS: "ok",
    SmbStatus.OBJECT_NAME_COLLISION: "exists",
    SmbStatus.OBJECT_NAME_NOT_FOUND: "absent",
    SmbStatus.DIRECTORY_NOT_EMPTY: "not empty",
}


class Smb2Names:
    """The operations in the directory ``root``; objects are known by their IndexNumbers."""

    def __init__(self, tree: Tree, root: str) -> None:
        self.tree = tree
        self.paths: dict[int, str] = {ROOT: root}
        self.files: dict[int, bytes] = {}
        self.folds = False

    def features(self) -> list[Feature]:
        """Return the optional properties of the share: hard links (MS-FSCC 2.4.27)."""
        path = f"{self.paths[ROOT]}\\look"
        file = self.tree.open(path, disposition=Disposition.CREATE)
        linked = self._link(file, f"{path}-2")
        expect(linked, SmbStatus.SUCCESS, *NO_LINKS)
        expect(file.close())
        upper = self.tree.create(
            path.upper(), access=Access.READ_ATTRIBUTES, disposition=Disposition.OPEN, options=0
        )
        self.folds = upper.status == SmbStatus.SUCCESS
        if self.folds:
            expect(SmbFile(self.tree, path, bytes(upper["file_id"]), upper).close())
        return [] if linked.status else ["link"]

    @staticmethod
    def _link(file: SmbFile, path: str) -> SmbMessage:
        name = path.encode("utf-16-le")
        return file.set(FileInfo.LINK, struct.pack("<B7xQI", False, 0, len(name)) + name)

    def _path(self, directory: int, name: str) -> str:
        return f"{self.paths[directory]}\\{name}"

    @staticmethod
    def _outcome(message: SmbMessage) -> Outcome:
        found = OUTCOMES.get(message.status)
        assert found is not None, message.summary()
        return found

    def create(self, step: NameStep) -> Outcome:
        """CREATE with FILE_CREATE (3.3.5.9)."""
        path = self._path(step.directory, step.name)
        kind = Options.DIRECTORY_FILE if step.kind == "directory" else Options.NON_DIRECTORY_FILE
        done = self.tree.create(path, disposition=Disposition.CREATE, options=kind)
        if done.status in (SmbStatus.FILE_IS_A_DIRECTORY, SmbStatus.NOT_A_DIRECTORY):
            return "exists"  # of two errors that apply, a server chooses one
        outcome = self._outcome(done)
        if outcome == "ok":
            file = SmbFile(self.tree, path, bytes(done["file_id"]), done)
            self.files[step.target] = self._identity(file)
            expect(file.close())
            if step.kind == "directory":
                self.paths[step.target] = path
        return outcome

    @staticmethod
    def _identity(file: SmbFile) -> bytes:
        return expect(file.query(FileInfo.INTERNAL)).buffer[:8]

    def link(self, step: NameStep) -> Outcome:
        """SET_INFO of FileLinkInformation (MS-FSA 2.1.5.15.6), without ReplaceIfExists."""
        access = Access.GENERIC_READ | Access.WRITE_ATTRIBUTES
        source = self.tree.open(self._path(*step.to), access=access, disposition=Disposition.OPEN)
        outcome = self._outcome(self._link(source, self._path(step.directory, step.name)))
        expect(source.close())
        return outcome

    def rename(self, step: NameStep) -> Outcome:
        """SET_INFO of FileRenameInformation (MS-FSA 2.1.5.15.11) with ReplaceIfExists for files."""
        to, new = step.to
        done = self.tree.create(
            self._path(step.directory, step.name),
            access=Access.DELETE | Access.READ_ATTRIBUTES,
            disposition=Disposition.OPEN,
            options=0,
        )
        if (outcome := self._outcome(done)) != "ok":
            return outcome
        file = SmbFile(self.tree, step.name, bytes(done["file_id"]), done)
        renamed = file.rename(self._path(to, new), replace=step.kind == "file")
        expect(file.close())
        if step.outcome == "loop" and renamed.status:
            return "loop"  # which error it is, MS-FSA leaves open
        outcome = self._outcome(renamed)
        if outcome == "ok" and step.kind == "directory":
            self._moved(step.target, self._path(to, new))
        return outcome

    def _moved(self, target: int, path: str) -> None:
        old = self.paths[target]
        for number, each in self.paths.items():
            if each == old or each.startswith(f"{old}\\"):
                self.paths[number] = path + each[len(old) :]

    def remove(self, step: NameStep) -> Outcome:
        """SET_INFO of FileDispositionInformation (MS-FSA 2.1.5.15.3), and CLOSE."""
        done = self.tree.create(
            self._path(step.directory, step.name),
            access=Access.DELETE,
            disposition=Disposition.OPEN,
            options=0,
        )
        if (outcome := self._outcome(done)) != "ok":
            return outcome
        file = SmbFile(self.tree, step.name, bytes(done["file_id"]), done)
        outcome = self._outcome(file.delete_on_close())
        expect(file.close())
        return outcome

    def lookup(self, step: NameStep) -> tuple[Outcome, bool]:
        """CREATE with FILE_OPEN; now and then the name has letters of the other case."""
        name = step.name.swapcase() if self.folds and len(step.name) % 2 else step.name
        done = self.tree.create(
            self._path(step.directory, name),
            access=Access.READ_ATTRIBUTES,
            disposition=Disposition.OPEN,
            options=0,
        )
        outcome = self._outcome(done)
        if outcome != "ok":
            return outcome, False
        file = SmbFile(self.tree, name, bytes(done["file_id"]), done)
        same = self._identity(file) == self.files.get(step.target)
        expect(file.close())
        return outcome, same

    def links(self, step: NameStep) -> int:
        """Return NumberOfLinks of FileStandardInformation (MS-FSCC 2.4.45)."""
        path = self._path(step.directory, step.name)
        file = self.tree.open(path, access=Access.READ_ATTRIBUTES, disposition=Disposition.OPEN, options=0)
        data = expect(file.query(FileInfo.STANDARD)).buffer
        expect(file.close())
        return int.from_bytes(data[16:20], "little")

    def text(self, step: NameStep) -> str:
        """A sequence of SMB2 has no symbolic links."""
        raise NotImplementedError

    def list(self, step: NameStep, pages: int) -> list[str]:
        """QUERY_DIRECTORY (3.3.5.18) of several classes, in pages of several sizes."""
        opened = open_directory(self.tree, self.paths[step.directory])
        info_class, length = CLASSES[pages % len(CLASSES)], LENGTHS[pages % len(LENGTHS)]
        found: list[str] = []
        while True:
            done = opened.list(info_class, length=length)
            if expect(done, SmbStatus.SUCCESS, SmbStatus.NO_MORE_FILES).status:
                break
            names = [one.name for one in directory_entries(done.buffer, info_class)]
            assert names, "a response to QUERY_DIRECTORY has no entries"
            assert names[-1] not in found, f"{names[-1]} is listed twice, so the directory has no end"
            found += [name for name in names if name not in (".", "..")]
        expect(opened.close())
        return found

    def parent(self, _step: NameStep) -> bool:
        """SMB2 has no request for the parent of a directory."""
        return True
