"""Sequences of opens and of attributes (:mod:`storagetest.wire.sequences`) as COMPOUNDs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from storagetest.wire.nfs4.attributes import numbers_of
from storagetest.wire.nfs4.client import Nfs4Client, ok, refused
from storagetest.wire.nfs4.harness import values
from storagetest.wire.nfs4.operations import getattr_, putfh, read, setattr_, write
from storagetest.wire.nfs4.state import OpenFile, StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_MODE,
    FATTR4_SIZE,
    FATTR4_TIME_ACCESS,
    FATTR4_TIME_ACCESS_SET,
    FATTR4_TIME_MODIFY,
    FATTR4_TIME_MODIFY_SET,
    nfsstat4,
    nfstime4,
    settime4,
    time_how4,
)
from storagetest.wire.sequences.shares import ShareStep

SECOND = 1_000_000_000


class Nfs4Shares:
    """Owners of two clients that open one file, of 100 bytes."""

    def __init__(self, clients: list[Nfs4Client], directory: bytes, name: bytes) -> None:
        self.directory, self.name = directory, name
        self.owners = [StateOwner(client) for client in clients]
        self.files: dict[int, OpenFile] = {}

    def open(self, step: ShareStep) -> bool:
        """OPEN."""
        owner = self.owners[step.owner]
        done = owner.try_open(self.directory, self.name, access=step.access, deny=step.deny)
        refused(done, nfsstat4.NFS4_OK, nfsstat4.NFS4ERR_SHARE_DENIED)
        if done.status == nfsstat4.NFS4_OK:
            self.files[step.owner] = owner.opened(done)
        return done.status == nfsstat4.NFS4_OK

    def again(self, step: ShareStep) -> bool:
        """OPEN by an owner that has the file open: the stateid has the same ``other``."""
        was = self.files[step.owner].stateid
        done = self.open(step)
        now = self.files[step.owner].stateid
        assert now.other == was.other, "a second OPEN of the same owner has another stateid"
        return done

    def downgrade(self, step: ShareStep) -> bool:
        """OPEN_DOWNGRADE."""
        ok(self.files[step.owner].downgrade(step.access, step.deny))
        return True

    def close(self, step: ShareStep) -> bool:
        """CLOSE."""
        self.files.pop(step.owner).close()
        return True

    def read(self, step: ShareStep) -> bool:
        """READ with the open's stateid."""
        file = self.files[step.owner]
        done = refused(file.on(read(file.stateid, 0, 10)), nfsstat4.NFS4_OK, nfsstat4.NFS4ERR_OPENMODE)
        return done.status == nfsstat4.NFS4_OK

    def write(self, step: ShareStep) -> bool:
        """WRITE with the open's stateid."""
        file = self.files[step.owner]
        done = file.on(write(file.stateid, 0, b"data"))
        return refused(done, nfsstat4.NFS4_OK, nfsstat4.NFS4ERR_OPENMODE).status == nfsstat4.NFS4_OK


SET = {
    "mode": FATTR4_MODE,
    "size": FATTR4_SIZE,
    "atime": FATTR4_TIME_ACCESS_SET,
    "mtime": FATTR4_TIME_MODIFY_SET,
}
GET = {**SET, "atime": FATTR4_TIME_ACCESS, "mtime": FATTR4_TIME_MODIFY}


class Nfs4Attributes:
    """Attributes of files."""

    def __init__(self, nfs: Nfs4Client, handles: list[bytes]) -> None:
        self.nfs, self.handles = nfs, handles

    def set(self, file: int, values: Mapping[str, int]) -> None:
        """SETATTR, which has to state that it has set all of them."""
        new = {SET[name]: self._encoded(name, value) for name, value in values.items()}
        done = ok(self.nfs.compound(putfh(self.handles[file]), setattr_(new)))
        stated = set(numbers_of(done.of("SETATTR").attrsset))
        assert stated == set(new), (
            f"attrsset has the attributes {sorted(stated)}, and {sorted(new)} were sent"
        )

    @staticmethod
    def _encoded(name: str, value: int) -> Any:  # the attribute's type
        if name not in ("atime", "mtime"):
            return value
        return settime4(time_how4.SET_TO_CLIENT_TIME4, nfstime4(*divmod(value, SECOND)))

    def get(self, file: int) -> dict[str, int]:
        """GETATTR."""
        found = values(ok(self.nfs.compound(putfh(self.handles[file]), getattr_(*GET.values()))))
        times = {name: found[GET[name]] for name in ("atime", "mtime")}
        return {
            "mode": found[FATTR4_MODE],
            "size": found[FATTR4_SIZE],
            **{name: one.seconds * SECOND + one.nseconds for name, one in times.items()},
        }
