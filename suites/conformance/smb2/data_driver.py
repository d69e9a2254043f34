"""Sequences of data (:mod:`storagetest.wire.sequences.data`) as requests of SMB2."""

from __future__ import annotations

import struct

from storagetest.suites.conformance.smb2.support import NO_FSCTL, chunks, resume_key
from storagetest.wire.sequences.data import Stability, Verb
from storagetest.wire.smb2.client import SmbFile
from storagetest.wire.smb2.codes import FileInfo, Fsctl, SmbStatus
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.message import SmbMessage

MOST = 65536
"""Bytes of one READ or WRITE, which need one credit (3.3.5.2.5)."""

CHUNK = 65536
"""Bytes of a chunk of a copy, which every server with copies takes (3.3.3; 1 MiB by default)."""

WRITE_THROUGH = 1
"""SMB2_WRITEFLAG_WRITE_THROUGH (2.2.21)."""


class Smb2Data:
    """The operations on ``files``; ``through`` is whether the dialect has WRITE_THROUGH."""

    def __init__(self, files: list[SmbFile], *, through: bool) -> None:
        self.files, self.through = files, through
        self.keys: list[bytes] = []

    def features(self, tried: SmbFile) -> list[Verb]:
        """Return the optional operations that the server has for a file, which is tried (3.3.5.15)."""
        found: list[Verb] = []
        if expect(self._zero(tried, 0, 1), SmbStatus.SUCCESS, *NO_FSCTL).status == SmbStatus.SUCCESS:
            found.append("zero")
        key = tried.ioctl(Fsctl.SRV_REQUEST_RESUME_KEY, max_output=32)
        if expect(key, SmbStatus.SUCCESS, *NO_FSCTL).status == SmbStatus.SUCCESS:
            self.keys = [resume_key(file) for file in self.files]
            found.append("copy")
        return found

    def write(self, file: int, offset: int, data: bytes, stability: Stability) -> None:
        """WRITE (3.3.5.13)."""
        flags = WRITE_THROUGH if stability == "file" and self.through else 0
        for at in range(0, len(data), MOST):
            piece = data[at : at + MOST]
            done = expect(self.files[file].write(piece, offset + at, flags=flags))
            assert done["count"] == len(piece), f"WRITE of {len(piece)} bytes states {done['count']}"

    def read(self, file: int, offset: int, count: int) -> tuple[bytes, None]:
        """READ (3.3.5.12), to the end if it comes before ``count``."""
        data = b""
        while len(data) < count:
            asked = min(count - len(data), MOST)
            done = self.files[file].read(asked, offset + len(data))
            if expect(done, SmbStatus.SUCCESS, SmbStatus.END_OF_FILE).status:
                break
            assert 0 < len(done.buffer) <= asked, f"READ of {asked} bytes returns {len(done.buffer)}"
            data += done.buffer
        return data, None

    def resize(self, file: int, size: int) -> None:
        """SET_INFO of FileEndOfFileInformation (MS-FSA 2.1.5.15.4)."""
        expect(self.files[file].set_size(size))

    def flush(self, file: int) -> None:
        """FLUSH (3.3.5.11)."""
        expect(self.files[file].flush())

    def copy(self, source: int, source_offset: int, file: int, offset: int, count: int) -> None:
        """FSCTL_SRV_COPYCHUNK (3.3.5.15.6), of one or two chunks."""
        parts = [(source_offset + at, offset + at, min(CHUNK, count - at)) for at in range(0, count, CHUNK)]
        if len(parts) == 1 and count > 1:
            half = count // 2
            parts = [(source_offset, offset, half), (source_offset + half, offset + half, count - half)]
        data = chunks(self.keys[source], *parts)
        done = expect(self.files[file].ioctl(Fsctl.SRV_COPYCHUNK, data, max_output=12))
        total = struct.unpack_from("<III", done.buffer)[2]
        assert total == count, f"a copy of {count} bytes states {total}"

    def zero(self, file: int, offset: int, count: int) -> None:
        """FSCTL_SET_ZERO_DATA (MS-FSCC 2.3.67)."""
        expect(self._zero(self.files[file], offset, count))

    @staticmethod
    def _zero(file: SmbFile, offset: int, count: int) -> SmbMessage:
        return file.ioctl(Fsctl.SET_ZERO_DATA, struct.pack("<QQ", offset, offset + count))

    def size(self, file: int) -> int:
        """Return EndOfFile of FileStandardInformation (MS-FSCC 2.4.45)."""
        data = expect(self.files[file].query(FileInfo.STANDARD)).buffer
        return int.from_bytes(data[8:16], "little")
