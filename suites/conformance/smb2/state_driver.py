"""Sequences of opens and of attributes (:mod:`storagetest.wire.sequences`) as requests of SMB2."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from storagetest.wire.sequences.shares import DELETE, READ, WRITE, ShareStep
from storagetest.wire.smb2.client import SmbFile, Tree
from storagetest.wire.smb2.codes import Access, Disposition, FileInfo, SmbStatus
from storagetest.wire.smb2.harness import expect

ALL = READ | WRITE | DELETE
"""FILE_SHARE_READ, FILE_SHARE_WRITE and FILE_SHARE_DELETE have these bits, too (2.2.13)."""

ACCESS = {READ: Access.READ_DATA, WRITE: Access.WRITE_DATA, DELETE: Access.DELETE}


class Smb2Shares:
    """Owners in several sessions that open one file, of 10 bytes."""

    def __init__(self, trees: list[Tree], name: str) -> None:
        self.trees, self.name = trees, name
        self.files: dict[int, SmbFile] = {}

    def open(self, step: ShareStep) -> bool:
        """CREATE (3.3.5.9)."""
        wanted = sum(access for bit, access in ACCESS.items() if step.access & bit)
        done = self.trees[step.owner].create(
            self.name, access=wanted, share=ALL & ~step.deny, disposition=Disposition.OPEN
        )
        expect(done, SmbStatus.SUCCESS, SmbStatus.SHARING_VIOLATION)
        if not done.status:
            self.files[step.owner] = SmbFile(self.trees[step.owner], self.name, bytes(done["file_id"]), done)
        return not done.status

    def again(self, step: ShareStep) -> bool:
        """In SMB2 each CREATE is an open of its own."""
        raise NotImplementedError

    def downgrade(self, step: ShareStep) -> bool:
        """SMB2 has no such request."""
        raise NotImplementedError

    def close(self, step: ShareStep) -> bool:
        """CLOSE (3.3.5.10)."""
        expect(self.files.pop(step.owner).close())
        return True

    def read(self, step: ShareStep) -> bool:
        """READ (3.3.5.12)."""
        done = self.files[step.owner].read(10)
        return not expect(done, SmbStatus.SUCCESS, SmbStatus.ACCESS_DENIED).status

    def write(self, step: ShareStep) -> bool:
        """WRITE (3.3.5.13)."""
        done = self.files[step.owner].write(b"data")
        return not expect(done, SmbStatus.SUCCESS, SmbStatus.ACCESS_DENIED).status


class Smb2Attributes:
    """Attributes of open files."""

    def __init__(self, files: list[SmbFile]) -> None:
        self.files = files

    def set(self, file: int, values: Mapping[str, int]) -> None:
        """SET_INFO of FileBasicInformation, in which 0 leaves a value (MS-FSCC 2.4.7), or of the size."""
        if "size" in values:
            expect(self.files[file].set_size(values["size"]))
            return
        times = (values.get(name, 0) for name in ("created", "accessed", "written"))
        data = struct.pack("<QQQQII", *times, 0, values.get("attributes", 0), 0)
        expect(self.files[file].set(FileInfo.BASIC, data))

    def get(self, file: int) -> dict[str, int]:
        """QUERY_INFO of FileNetworkOpenInformation (MS-FSCC 2.4.33)."""
        data = expect(self.files[file].query(FileInfo.NETWORK_OPEN)).buffer
        created, accessed, written, _, _, size, attributes = struct.unpack_from("<QQQQQQI", data)
        return {
            "created": created,
            "accessed": accessed,
            "written": written,
            "size": size,
            "attributes": attributes,
        }
