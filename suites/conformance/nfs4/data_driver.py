"""Sequences of data (:mod:`storagetest.wire.sequences.data`) as COMPOUNDs on open files."""

from __future__ import annotations

from storagetest.wire.nfs4.client import Nfs4Client, ok
from storagetest.wire.nfs4.harness import values
from storagetest.wire.nfs4.operations import SAVEFH, commit, getattr_, op, putfh, read, setattr_, write
from storagetest.wire.nfs4.state import OpenFile
from storagetest.wire.nfs4.types import (
    FATTR4_SIZE,
    COPY4args,
    DEALLOCATE4args,
    nfsstat4,
    stable_how4,
)
from storagetest.wire.sequences.data import Stability, Verb

STABLE: dict[Stability, stable_how4] = {
    "unstable": stable_how4.UNSTABLE4,
    "data": stable_how4.DATA_SYNC4,
    "file": stable_how4.FILE_SYNC4,
}


class Nfs4Data:
    """The operations on ``files``, with transfers of at most ``most`` bytes."""

    def __init__(self, files: list[OpenFile], most: int) -> None:
        self.files, self.most = files, most

    @property
    def nfs(self) -> Nfs4Client:
        """The client that opened the files."""
        return self.files[0].client

    def features(self) -> list[Verb]:
        """Return the optional operations that the server has for these files (RFC 7862 15.2, 15.4)."""
        if self.nfs.minor < 2:
            return []
        self.write(0, 0, b"data", "file")
        found: list[Verb] = []
        copied = self._copy(0, 0, 1, 0, 1)
        if copied != nfsstat4.NFS4ERR_NOTSUPP:
            found.append("copy")
        if self._zero(0, 0, 1) not in (nfsstat4.NFS4ERR_NOTSUPP, nfsstat4.NFS4ERR_OP_ILLEGAL):
            found.append("zero")
        return found

    def write(self, file: int, offset: int, data: bytes, stability: Stability) -> None:
        """WRITE, and in the same COMPOUND GETATTR: the size includes what was written."""
        opened, at = self.files[file], 0
        while at < len(data):
            piece = data[at : at + self.most]
            done = ok(
                opened.on(write(opened.stateid, offset + at, piece, STABLE[stability]), getattr_(FATTR4_SIZE))
            )
            count = done["WRITE"].count
            assert 0 < count <= len(piece), f"WRITE of {len(piece)} bytes states a count of {count}"
            size = values(done)[FATTR4_SIZE]
            assert size >= offset + at + count, (
                f"GETATTR after WRITE in one COMPOUND: {size} bytes, and {count} were written at "
                f"{offset + at}"
            )
            at += count

    def read(self, file: int, offset: int, count: int) -> tuple[bytes, bool]:
        """READ until the end or all of ``count``."""
        opened, data = self.files[file], b""
        while True:
            asked = min(count - len(data), self.most)
            done = ok(opened.on(read(opened.stateid, offset + len(data), asked)))["READ"]
            assert len(done.data) <= asked, f"READ of {asked} bytes returns {len(done.data)}"
            data += done.data
            if done.eof or len(data) >= count:
                return data, done.eof
            assert done.data, f"READ of {asked} bytes returns none, and no end of the file"

    def resize(self, file: int, size: int) -> None:
        """SETATTR of the size with the open's stateid, and in the same COMPOUND GETATTR."""
        opened = self.files[file]
        done = ok(opened.on(setattr_({FATTR4_SIZE: size}, opened.stateid), getattr_(FATTR4_SIZE)))
        found = values(done)[FATTR4_SIZE]
        assert found == size, f"GETATTR after SETATTR in one COMPOUND: {found} bytes"

    def flush(self, file: int) -> None:
        """COMMIT of the whole file."""
        ok(self.files[file].on(commit()))

    def copy(self, source: int, source_offset: int, file: int, offset: int, count: int) -> None:
        """COPY, synchronous."""
        status = self._copy(source, source_offset, file, offset, count)
        assert status == nfsstat4.NFS4_OK, f"COPY ends with {status.name}"

    def _copy(self, source: int, source_offset: int, file: int, offset: int, count: int) -> nfsstat4:
        one, two = self.files[source], self.files[file]
        done_so_far = 0
        while True:
            asked = COPY4args(
                one.stateid, two.stateid, source_offset + done_so_far, offset + done_so_far,
                count - done_so_far, True, True, (),
            )  # fmt: skip
            done = self.nfs.compound(putfh(one.handle), SAVEFH, putfh(two.handle), op("COPY", asked))
            if done.status != nfsstat4.NFS4_OK:
                return done.status
            written = done["COPY"].cr_response.wr_count
            assert 0 < written <= count - done_so_far, f"COPY of {count} bytes states {written}"
            done_so_far += written
            if done_so_far == count:
                return done.status

    def zero(self, file: int, offset: int, count: int) -> None:
        """DEALLOCATE."""
        status = self._zero(file, offset, count)
        assert status == nfsstat4.NFS4_OK, f"DEALLOCATE ends with {status.name}"

    def _zero(self, file: int, offset: int, count: int) -> nfsstat4:
        opened = self.files[file]
        return opened.on(op("DEALLOCATE", DEALLOCATE4args(opened.stateid, offset, count))).status

    def size(self, file: int) -> int:
        """Return the size that GETATTR states."""
        found: int = values(ok(self.files[file].on(getattr_(FATTR4_SIZE))))[FATTR4_SIZE]
        return found
