"""Sequences of names (:mod:`storagetest.wire.sequences.names`) as COMPOUNDs."""

from __future__ import annotations

from storagetest.wire.nfs4.attributes import decode_attributes
from storagetest.wire.nfs4.client import Done, Nfs4Client, ok
from storagetest.wire.nfs4.harness import values
from storagetest.wire.nfs4.operations import (
    GETFH,
    LOOKUPP,
    NO_VERIFIER,
    READLINK,
    SAVEFH,
    create,
    getattr_,
    guarded,
    link,
    lookup,
    putfh,
    readdir,
    remove,
    rename,
)
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_CASE_INSENSITIVE,
    FATTR4_FILEID,
    FATTR4_MODE,
    FATTR4_NUMLINKS,
    nfs_ftype4,
    nfsstat4,
)
from storagetest.wire.sequences.names import ODD, ROOT, Feature, NameStep, Outcome

MAXCOUNTS = (16384, 1500, 4096, 900)
"""Bytes of a page of a listing (chosen)."""

OUTCOMES: dict[nfsstat4, Outcome] = {
    nfsstat4.NFS4_OK: "ok",
    nfsstat4.NFS4ERR_EXIST: "exists",
    nfsstat4.NFS4ERR_NOENT: "absent",
    nfsstat4.NFS4ERR_NOTEMPTY: "not empty",
    nfsstat4.NFS4ERR_INVAL: "loop",
}
LISTED = (FATTR4_FILEID,)


class Nfs4Names:
    """The operations in ``root``; objects are known by their fileids, and used by their handles."""

    def __init__(self, nfs: Nfs4Client, root: bytes) -> None:
        self.nfs, self.owner = nfs, StateOwner(nfs)
        self.handles: dict[int, bytes] = {ROOT: root}
        done = ok(nfs.compound(putfh(root), getattr_(FATTR4_FILEID)))
        self.files: dict[int, int] = {ROOT: values(done)[FATTR4_FILEID]}

    def features(self) -> list[Feature]:
        """Return the optional properties of the file system (RFC 8881 5.8.2.1, 18.4, 18.9)."""
        root = self.handles[ROOT]
        stated = values(ok(self.nfs.compound(putfh(root), getattr_(FATTR4_CASE_INSENSITIVE))))
        found: list[Feature] = [] if stated.get(FATTR4_CASE_INSENSITIVE, True) else ["case"]
        ok(self.nfs.compound(putfh(root), create(b"look")))
        handle = ok(self.nfs.compound(putfh(root), lookup(b"look"), GETFH))["GETFH"].object
        made = [self.nfs.compound(putfh(handle), create(name.encode())).status for name in ODD]
        if not any(made) and set(self._list(handle, 8192)) == set(ODD):
            found.append("bytes")
        text = create(b"symlink", nfs_ftype4.NF4LNK, text=b"x")
        if (done := self.nfs.compound(putfh(handle), text)).status != nfsstat4.NFS4ERR_BADTYPE:
            ok(done)
            found.append("symlink")
        file = self.owner.open(handle, b"file", how=guarded({FATTR4_MODE: 0o644}))
        file.close()
        linked = self.nfs.compound(putfh(file.handle), SAVEFH, putfh(handle), link(b"link"))
        if linked.status != nfsstat4.NFS4ERR_NOTSUPP:
            ok(linked)
            found += ["link", "same"]
        return found

    @staticmethod
    def _outcome(done: Done) -> Outcome:
        found = OUTCOMES.get(done.status)
        assert found is not None, done.line
        return found

    def create(self, step: NameStep) -> Outcome:
        """OPEN with GUARDED4, or CREATE."""
        where, name = self.handles[step.directory], step.name.encode()
        if step.kind == "file":
            done = self.owner.try_open(where, name, how=guarded({FATTR4_MODE: 0o644}))
            if done.status == nfsstat4.NFS4_OK:
                self.owner.opened(done).close()
            if done.status == nfsstat4.NFS4ERR_ISDIR:
                return "exists"  # of two errors that apply, a server chooses one (RFC 8881 18.16.3)
        else:
            kind = nfs_ftype4.NF4DIR if step.kind == "directory" else nfs_ftype4.NF4LNK
            done = self.nfs.compound(putfh(where), create(name, kind, text=step.text.encode()), GETFH)
        outcome = self._outcome(done)
        if outcome == "ok":
            self.handles[step.target] = done["GETFH"].object
        return outcome

    def _fileid(self, target: int) -> int:
        """Return the fileid of an object, as its handle had it first."""
        if target not in self.files:
            done = ok(self.nfs.compound(putfh(self.handles[target]), getattr_(FATTR4_FILEID)))
            self.files[target] = values(done)[FATTR4_FILEID]
        return self.files[target]

    def _found(self, directory: int, name: str) -> Done:
        where = putfh(self.handles[directory])
        return self.nfs.compound(where, lookup(name.encode()), GETFH, getattr_(FATTR4_FILEID))

    def link(self, step: NameStep) -> Outcome:
        """LINK."""
        made = putfh(self.handles[step.target]), SAVEFH, putfh(self.handles[step.directory])
        return self._outcome(self.nfs.compound(*made, link(step.name.encode())))

    def rename(self, step: NameStep) -> Outcome:
        """RENAME; a handle may be another one after it (RFC 8881 4.2.3)."""
        to, new = step.to
        made = putfh(self.handles[step.directory]), SAVEFH, putfh(self.handles[to])
        outcome = self._outcome(self.nfs.compound(*made, rename(step.name.encode(), new.encode())))
        if outcome == "ok":
            self.handles[step.target] = ok(self._found(to, new))["GETFH"].object
        return outcome

    def remove(self, step: NameStep) -> Outcome:
        """REMOVE; a directory with entries is refused with NOTEMPTY, or with EXIST as by rmdir()."""
        done = self.nfs.compound(putfh(self.handles[step.directory]), remove(step.name.encode()))
        is_listed = step.kind == "directory" and done.status == nfsstat4.NFS4ERR_EXIST
        return "not empty" if is_listed else self._outcome(done)

    def lookup(self, step: NameStep) -> tuple[Outcome, bool]:
        """LOOKUP, and GETATTR of what was found."""
        done = self._found(step.directory, step.name)
        outcome = self._outcome(done)
        same = outcome == "ok" and values(done)[FATTR4_FILEID] == self._fileid(step.target)
        return outcome, same

    def links(self, step: NameStep) -> int:
        """Return numlinks."""
        done = ok(self.nfs.compound(putfh(self.handles[step.target]), getattr_(FATTR4_NUMLINKS)))
        found: int = values(done)[FATTR4_NUMLINKS]
        return found

    def text(self, step: NameStep) -> str:
        """READLINK."""
        text: bytes = ok(self.nfs.compound(putfh(self.handles[step.target]), READLINK))["READLINK"].link
        return text.decode()

    def list(self, step: NameStep, pages: int) -> list[str]:
        """READDIR in pages of several sizes, with attributes or without."""
        maxcount = MAXCOUNTS[pages % len(MAXCOUNTS)]
        return self._list(self.handles[step.directory], maxcount, numbers=LISTED if pages & 4 else ())

    def _list(self, where: bytes, maxcount: int, *, numbers: tuple[int, ...] = ()) -> list[str]:
        found: list[str] = []
        cookie, verifier = 0, NO_VERIFIER
        cookies = {cookie}
        while True:
            wanted = numbers if len(cookies) % 2 else ()  # each other page has no attributes
            asked = readdir(
                cookie=cookie, verifier=verifier, dircount=maxcount, maxcount=maxcount, numbers=wanted
            )
            done = self.nfs.compound(putfh(where), asked)
            page = ok(done)["READDIR"]
            names = [one.name for one in page.reply.entries]
            for one in page.reply.entries:
                stated = tuple(decode_attributes(one.attrs))
                assert stated == wanted, (
                    f"{one.name!r}: READDIR returns the attributes {stated}, not {wanted}"
                )
            found += [name.decode() for name in names]
            if page.reply.eof:
                return found
            assert names, "a page of the listing has no entries, and is not the last one"
            cookie, verifier = page.reply.entries[-1].cookie, page.cookieverf
            assert cookie not in cookies, f"the cookie {cookie} comes twice, so the directory has no end"
            cookies.add(cookie)

    def parent(self, step: NameStep) -> bool:
        """LOOKUPP."""
        handle = putfh(self.handles[step.target])
        done = ok(self.nfs.compound(handle, LOOKUPP, getattr_(FATTR4_FILEID)))
        return bool(values(done)[FATTR4_FILEID] == self._fileid(step.directory))
