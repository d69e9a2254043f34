"""Sequences of data (:mod:`storagetest.wire.sequences.data`) as calls of NFSv3."""

from __future__ import annotations

from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok
from storagetest.wire.nfs3.types import nfs_fh3, stable_how
from storagetest.wire.sequences.data import Stability

STABLE: dict[Stability, stable_how] = {
    "unstable": stable_how.UNSTABLE,
    "data": stable_how.DATA_SYNC,
    "file": stable_how.FILE_SYNC,
}


class Nfs3Data:
    """The operations on ``files``, with transfers of at most ``most`` bytes."""

    def __init__(self, nfs: Nfs3Client, files: list[nfs_fh3], most: int) -> None:
        self.nfs, self.files, self.most = nfs, files, most

    def write(self, file: int, offset: int, data: bytes, stability: Stability) -> None:
        """WRITE (3.3.7)."""
        at = 0
        while at < len(data):
            piece = data[at : at + self.most]
            done = ok(self.nfs.write(self.files[file], offset + at, piece, stable=STABLE[stability]))
            assert 0 < done.count <= len(piece), f"WRITE of {len(piece)} bytes states a count of {done.count}"
            at += done.count
            after = done.file_wcc.after
            assert after is None or after.size >= offset + at, (
                f"the attributes after WRITE have {after.size} bytes, and data were written to {offset + at}"
            )

    def read(self, file: int, offset: int, count: int) -> tuple[bytes, bool]:
        """READ (3.3.6) until the end or all of ``count``."""
        data = b""
        while True:
            asked = min(count - len(data), self.most)
            done = ok(self.nfs.read(self.files[file], offset + len(data), asked))
            assert len(done.data) == done.count <= asked, (
                f"READ of {asked} bytes returns {len(done.data)} and states {done.count}"
            )
            data += done.data
            if done.eof or len(data) >= count:
                return data, done.eof
            assert done.data, f"READ of {asked} bytes returns none, and no end of the file"

    def resize(self, file: int, size: int) -> None:
        """SETATTR of the size (3.3.2)."""
        after = ok(self.nfs.setattr(self.files[file], attributes(size=size))).obj_wcc.after
        assert after is None or after.size == size, f"the attributes after SETATTR have {after.size} bytes"

    def flush(self, file: int) -> None:
        """COMMIT (3.3.21) of the whole file."""
        ok(self.nfs.commit(self.files[file]))

    def copy(self, source: int, source_offset: int, file: int, offset: int, count: int) -> None:
        """NFSv3 has no copies."""
        raise NotImplementedError

    def zero(self, file: int, offset: int, count: int) -> None:
        """NFSv3 has no such operation."""
        raise NotImplementedError

    def size(self, file: int) -> int:
        """GETATTR (3.3.1)."""
        return self.nfs.attributes(self.files[file]).size
