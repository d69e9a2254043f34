"""Sequences of names (:mod:`storagetest.wire.sequences.names`) as calls of NFSv3."""

from __future__ import annotations

from typing import Any

from storagetest.wire.nfs3.client import NO_VERIFIER, Nfs3Client, ok
from storagetest.wire.nfs3.types import createmode3, nfs_fh3, nfsstat3
from storagetest.wire.sequences.names import ODD, ROOT, Feature, NameStep, Outcome

COUNTS = (8192, 1100, 2048, 700)
"""Bytes of a page of a listing (chosen)."""

OUTCOMES: dict[nfsstat3, Outcome] = {
    nfsstat3.NFS3_OK: "ok",
    nfsstat3.NFS3ERR_EXIST: "exists",
    nfsstat3.NFS3ERR_NOENT: "absent",
    nfsstat3.NFS3ERR_NOTEMPTY: "not empty",
    nfsstat3.NFS3ERR_INVAL: "loop",
}


class Nfs3Names:
    """The operations in ``root``; objects are known by their fileids, directories by their handles."""

    def __init__(self, nfs: Nfs3Client, root: nfs_fh3) -> None:
        self.nfs = nfs
        self.handles: dict[int, nfs_fh3] = {ROOT: root}
        self.files: dict[int, int] = {ROOT: nfs.attributes(root).fileid}
        self.renamed = 0
        self.plus = nfs.readdirplus(root).status != nfsstat3.NFS3ERR_NOTSUPP

    def features(self) -> list[Feature]:
        """Return the optional properties of the file system (3.3.20, 3.3.10, 3.3.15)."""
        stated = ok(self.nfs.pathconf(self.handles[ROOT]))
        probe = ok(self.nfs.mkdir(self.handles[ROOT], b"look"))
        handle = probe.obj or self.nfs.find(self.handles[ROOT], b"look")
        found: list[Feature] = [] if stated.case_insensitive else ["case"]
        odd = [self.nfs.create(handle, name.encode()).status for name in ODD]
        if not any(odd) and set(self._list(handle, 4096)) == set(ODD):
            found.append("bytes")
        file = self.nfs.create(handle, b"file")
        if (made := self.nfs.symlink(handle, b"symlink", b"x")).status != nfsstat3.NFS3ERR_NOTSUPP:
            ok(made)
            found.append("symlink")
        target = ok(file).obj or self.nfs.find(handle, b"file")
        if (made := self.nfs.link(target, handle, b"link")).status != nfsstat3.NFS3ERR_NOTSUPP:
            ok(made)
            found += ["link", "same"]
        return found

    def _outcome(self, result: Any) -> Outcome:  # the result of a procedure
        found = OUTCOMES.get(result.status)
        assert found is not None, f"{type(result).__name__}: {result.status.name}"
        return found

    def create(self, step: NameStep) -> Outcome:
        """CREATE, guarded (3.3.8), MKDIR (3.3.9) or SYMLINK (3.3.10)."""
        where, name = self.handles[step.directory], step.name.encode()
        if step.kind == "directory":
            result = self.nfs.mkdir(where, name)
        elif step.kind == "symlink":
            result = self.nfs.symlink(where, name, step.text.encode())
        else:
            result = self.nfs.create(where, name, mode=createmode3.GUARDED)
        outcome = self._outcome(result)
        if outcome == "ok":
            stated = result.value
            self.handles[step.target] = stated.obj or self.nfs.find(where, name)
            if stated.obj_attributes is not None:
                self.files[step.target] = stated.obj_attributes.fileid
        return outcome

    def _fileid(self, found: Any) -> int:  # LOOKUP3resok
        stated = found.obj_attributes or self.nfs.attributes(found.object)
        number: int = stated.fileid
        return number

    def _file(self, target: int) -> int:
        """Return the fileid of an object, as its handle had it first."""
        if target not in self.files:
            self.files[target] = self.nfs.attributes(self.handles[target]).fileid
        return self.files[target]

    def link(self, step: NameStep) -> Outcome:
        """LINK (3.3.15)."""
        where = self.handles[step.directory]
        return self._outcome(self.nfs.link(self.handles[step.target], where, step.name.encode()))

    def rename(self, step: NameStep) -> Outcome:
        """RENAME (3.3.14)."""
        to, new = step.to
        result = self.nfs.rename(
            self.handles[step.directory], step.name.encode(), self.handles[to], new.encode()
        )
        self.renamed += result.status == nfsstat3.NFS3_OK
        return self._outcome(result)

    def remove(self, step: NameStep) -> Outcome:
        """REMOVE (3.3.12) or RMDIR (3.3.13), which may end with EXIST for entries."""
        where, name = self.handles[step.directory], step.name.encode()
        if step.kind != "directory":
            return self._outcome(self.nfs.remove(where, name))
        result = self.nfs.rmdir(where, name)
        return "not empty" if result.status == nfsstat3.NFS3ERR_EXIST else self._outcome(result)

    def lookup(self, step: NameStep) -> tuple[Outcome, bool]:
        """LOOKUP (3.3.3)."""
        result = self.nfs.lookup(self.handles[step.directory], step.name.encode())
        outcome = self._outcome(result)
        return outcome, outcome == "ok" and self._fileid(result.value) == self._file(step.target)

    def links(self, step: NameStep) -> int:
        """Return nlink of GETATTR (3.3.1)."""
        return self.nfs.attributes(self.handles[step.target]).nlink

    def text(self, step: NameStep) -> str:
        """READLINK (3.3.5)."""
        text: bytes = ok(self.nfs.readlink(self.handles[step.target])).data
        return text.decode()

    def list(self, step: NameStep, pages: int) -> list[str]:
        """READDIR, or READDIRPLUS if there is one (3.3.16, 3.3.17), in pages of several sizes."""
        return self._list(
            self.handles[step.directory], COUNTS[pages % len(COUNTS)], plus=self.plus and bool(pages & 4)
        )

    def _list(self, where: nfs_fh3, count: int, *, plus: bool = False) -> list[str]:
        found: list[str] = []
        cookie, verifier = 0, NO_VERIFIER
        cookies = {cookie}
        while True:
            result = (
                self.nfs.readdirplus(where, cookie=cookie, verifier=verifier, maxcount=count * 4)
                if plus
                else self.nfs.readdir(where, cookie=cookie, verifier=verifier, count=count)
            )
            page = ok(result)
            names = [one.name for one in page.reply.entries]
            found += [name.decode() for name in names if name not in (b".", b"..")]
            if page.reply.eof:
                return found
            assert names, "a page of the listing has no entries, and is not the last one"
            cookie, verifier = page.reply.entries[-1].cookie, page.cookieverf
            assert cookie not in cookies, f"the cookie {cookie} comes twice, so the directory has no end"
            cookies.add(cookie)

    def parent(self, step: NameStep) -> bool:
        """LOOKUP of ``..`` (3.3.3)."""
        found = ok(self.nfs.lookup(self.handles[step.target], b".."))
        return self._fileid(found) == self._file(step.directory)
