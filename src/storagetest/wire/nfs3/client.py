"""The 21 procedures of NFS version 3 (RFC 1813 3.3) on one connection, each as a method.

A method returns the result as the server sent it, whatever its status is; :func:`ok` and :func:`refused`
claim what it should be. A call that ends with NFS3ERR_JUKEBOX is repeated until the deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from storagetest.wire.nfs3.types import (
    ACCESS3args,
    COMMIT3args,
    CREATE3args,
    FSINFO3args,
    FSSTAT3args,
    GETATTR3args,
    LINK3args,
    LOOKUP3args,
    MKDIR3args,
    MKNOD3args,
    PATHCONF3args,
    READ3args,
    READDIR3args,
    READDIRPLUS3args,
    READLINK3args,
    REMOVE3args,
    RENAME3args,
    RMDIR3args,
    SETATTR3args,
    SYMLINK3args,
    WRITE3args,
    createhow3,
    createmode3,
    devicedata3,
    diropargs3,
    entry3,
    entryplus3,
    fattr3,
    ftype3,
    mknoddata3,
    nfs_fh3,
    nfsstat3,
    nfstime3,
    sattr3,
    set_atime,
    set_mtime,
    specdata3,
    stable_how,
    symlinkdata3,
    time_how,
)
from storagetest.wire.rpc import RpcConnection
from storagetest.wire.rpc.busy import while_busy

NO_VERIFIER = bytes(8)
"""The cookie verifier of a READDIR from the beginning (RFC 1813 3.3.16)."""

PIECE = 65536
"""Largest WRITE of :meth:`Nfs3Client.write_all`, in bytes (chosen)."""


def attributes(
    *,
    mode: int | None = None,
    uid: int | None = None,
    gid: int | None = None,
    size: int | None = None,
    atime: nfstime3 | time_how | None = None,
    mtime: nfstime3 | time_how | None = None,
) -> sattr3:
    """Return attributes to set (RFC 1813 2.6, sattr3): None leaves one as it is."""

    def how(value: nfstime3 | time_how | None) -> tuple[time_how, nfstime3 | None]:
        if isinstance(value, nfstime3):
            return time_how.SET_TO_CLIENT_TIME, value
        return (time_how.DONT_CHANGE if value is None else value), None

    return sattr3(mode, uid, gid, size, set_atime(*how(atime)), set_mtime(*how(mtime)))


class Nfs3Client:
    """The procedures of version 3, called on ``rpc``."""

    def __init__(self, rpc: RpcConnection) -> None:
        self.rpc = rpc

    def call(self, name: str, argument: Any, *, fragments: tuple[int, ...] = ()) -> Any:  # noqa: ANN401
        """Return the result of the procedure ``name``, which is sent in ``fragments`` of these sizes."""
        procedure = self.rpc.procedure(name)

        def execute() -> Any:  # noqa: ANN401  # the type of the procedure's result
            return self.rpc.result(
                self.rpc.send(procedure, self.rpc.encode(name, argument), fragments=fragments)
            )

        return while_busy(execute, is_busy, self.rpc.deadline)

    def call_all(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """Return the results of calls of ``name`` that overlap; one that has to be repeated is, alone."""
        procedure = self.rpc.procedure(name)
        xids = [self.rpc.send(procedure, self.rpc.encode(name, one)) for one in arguments]
        results = [self.rpc.result(xid) for xid in xids]
        return [
            self.call(name, argument) if is_busy(result) else result
            for argument, result in zip(arguments, results, strict=True)
        ]

    def getattr(self, file: nfs_fh3) -> Any:  # noqa: ANN401
        """GETATTR (3.3.1)."""
        return self.call("GETATTR", GETATTR3args(file))

    def attributes(self, file: nfs_fh3) -> fattr3:
        """Return the attributes of ``file``; raises AssertionError if GETATTR is refused."""
        found: fattr3 = ok(self.getattr(file)).obj_attributes
        return found

    def setattr(self, file: nfs_fh3, new: sattr3, *, guard: nfstime3 | None = None) -> Any:  # noqa: ANN401
        """SETATTR (3.3.2)."""
        return self.call("SETATTR", SETATTR3args(file, new, guard))

    def lookup(self, directory: nfs_fh3, name: bytes) -> Any:  # noqa: ANN401
        """LOOKUP (3.3.3)."""
        return self.call("LOOKUP", LOOKUP3args(diropargs3(directory, name)))

    def access(self, file: nfs_fh3, bits: int) -> Any:  # noqa: ANN401
        """ACCESS (3.3.4)."""
        return self.call("ACCESS", ACCESS3args(file, bits))

    def readlink(self, link: nfs_fh3) -> Any:  # noqa: ANN401
        """READLINK (3.3.5)."""
        return self.call("READLINK", READLINK3args(link))

    def read(self, file: nfs_fh3, offset: int, count: int) -> Any:  # noqa: ANN401
        """READ (3.3.6)."""
        return self.call("READ", READ3args(file, offset, count))

    def write(
        self,
        file: nfs_fh3,
        offset: int,
        data: bytes,
        *,
        stable: stable_how = stable_how.FILE_SYNC,
        count: int | None = None,
    ) -> Any:  # noqa: ANN401
        """WRITE (3.3.7)."""
        size = len(data) if count is None else count
        return self.call("WRITE", WRITE3args(file, offset, size, stable, data))

    def write_all(
        self, file: nfs_fh3, offset: int, data: bytes, *, stable: stable_how = stable_how.FILE_SYNC
    ) -> Any:  # noqa: ANN401
        """Write all of ``data``; return the value of the last WRITE: a server may write fewer bytes (3.3.7).

        Raises AssertionError if a WRITE fails, writes nothing, or counts more bytes than it got.
        """
        at, done = 0, None
        while at < len(data):
            piece = data[at : at + PIECE]
            done = ok(self.write(file, offset + at, piece, stable=stable))
            assert 0 < done.count <= len(piece), f"a WRITE of {len(piece)} bytes wrote {done.count}"
            at += done.count
        return done

    def create(
        self,
        directory: nfs_fh3,
        name: bytes,
        *,
        mode: createmode3 = createmode3.GUARDED,
        new: sattr3 | None = None,
        verifier: bytes = b"",
    ) -> Any:  # noqa: ANN401
        """CREATE (3.3.8); ``verifier`` is that of an exclusive one."""
        value = verifier if mode == createmode3.EXCLUSIVE else new or attributes(mode=0o644)
        return self.call("CREATE", CREATE3args(diropargs3(directory, name), createhow3(mode, value)))

    def create_all(self, directory: nfs_fh3, names: Iterable[bytes]) -> None:
        """CREATE (3.3.8) of several files, by calls that overlap. Raises AssertionError if one is refused."""
        new = createhow3(createmode3.UNCHECKED, attributes(mode=0o644))
        for result in self.call_all(
            "CREATE", [CREATE3args(diropargs3(directory, name), new) for name in names]
        ):
            ok(result)

    def mkdir(self, directory: nfs_fh3, name: bytes, *, new: sattr3 | None = None) -> Any:  # noqa: ANN401
        """MKDIR (3.3.9)."""
        return self.call("MKDIR", MKDIR3args(diropargs3(directory, name), new or attributes(mode=0o755)))

    def symlink(self, directory: nfs_fh3, name: bytes, text: bytes) -> Any:  # noqa: ANN401
        """SYMLINK (3.3.10)."""
        data = symlinkdata3(attributes(mode=0o777), text)
        return self.call("SYMLINK", SYMLINK3args(diropargs3(directory, name), data))

    def mknod(
        self,
        directory: nfs_fh3,
        name: bytes,
        kind: ftype3,
        *,
        device: specdata3 | None = None,
        mode: int = 0o644,
    ) -> Any:  # noqa: ANN401
        """MKNOD (3.3.11)."""
        new = attributes(mode=mode)
        value = devicedata3(new, device or specdata3(0, 0)) if kind in (ftype3.NF3BLK, ftype3.NF3CHR) else new
        what = mknoddata3(kind, value if kind in mknoddata3.ARMS else None)
        return self.call("MKNOD", MKNOD3args(diropargs3(directory, name), what))

    def remove(self, directory: nfs_fh3, name: bytes) -> Any:  # noqa: ANN401
        """REMOVE (3.3.12)."""
        return self.call("REMOVE", REMOVE3args(diropargs3(directory, name)))

    def rmdir(self, directory: nfs_fh3, name: bytes) -> Any:  # noqa: ANN401
        """RMDIR (3.3.13)."""
        return self.call("RMDIR", RMDIR3args(diropargs3(directory, name)))

    def rename(self, directory: nfs_fh3, name: bytes, to: nfs_fh3, new: bytes) -> Any:  # noqa: ANN401
        """RENAME (3.3.14)."""
        return self.call("RENAME", RENAME3args(diropargs3(directory, name), diropargs3(to, new)))

    def link(self, file: nfs_fh3, directory: nfs_fh3, name: bytes) -> Any:  # noqa: ANN401
        """LINK (3.3.15)."""
        return self.call("LINK", LINK3args(file, diropargs3(directory, name)))

    def readdir(
        self, directory: nfs_fh3, *, cookie: int = 0, verifier: bytes = NO_VERIFIER, count: int = 4096
    ) -> Any:  # noqa: ANN401
        """READDIR (3.3.16)."""
        return self.call("READDIR", READDIR3args(directory, cookie, verifier, count))

    def readdirplus(
        self,
        directory: nfs_fh3,
        *,
        cookie: int = 0,
        verifier: bytes = NO_VERIFIER,
        dircount: int = 4096,
        maxcount: int = 32768,
    ) -> Any:  # noqa: ANN401
        """READDIRPLUS (3.3.17)."""
        return self.call("READDIRPLUS", READDIRPLUS3args(directory, cookie, verifier, dircount, maxcount))

    def fsstat(self, root: nfs_fh3) -> Any:  # noqa: ANN401
        """FSSTAT (3.3.18)."""
        return self.call("FSSTAT", FSSTAT3args(root))

    def fsinfo(self, root: nfs_fh3) -> Any:  # noqa: ANN401
        """FSINFO (3.3.19)."""
        return self.call("FSINFO", FSINFO3args(root))

    def pathconf(self, file: nfs_fh3) -> Any:  # noqa: ANN401
        """PATHCONF (3.3.20)."""
        return self.call("PATHCONF", PATHCONF3args(file))

    def commit(self, file: nfs_fh3, offset: int = 0, count: int = 0) -> Any:  # noqa: ANN401
        """COMMIT (3.3.21)."""
        return self.call("COMMIT", COMMIT3args(file, offset, count))

    def entries(self, directory: nfs_fh3, *, count: int = 4096) -> Iterator[entry3]:
        """Read a whole directory; raises AssertionError if a READDIR is refused or has nothing new."""
        return _pages("3.3.16", partial(self.readdir, directory, count=count))

    def entries_plus(self, directory: nfs_fh3) -> Iterator[entryplus3]:
        """Read a whole directory with READDIRPLUS; raises as :meth:`entries` does."""
        return _pages("3.3.17", partial(self.readdirplus, directory))

    def find(self, directory: nfs_fh3, name: bytes) -> nfs_fh3:
        """Return the handle of ``name``; raises AssertionError if LOOKUP is refused."""
        found: nfs_fh3 = ok(self.lookup(directory, name)).object
        return found


def is_busy(result: Any) -> bool:  # noqa: ANN401
    """Whether the server asks to repeat the call later (2.6, NFS3ERR_JUKEBOX)."""
    return bool(result.status == nfsstat3.NFS3ERR_JUKEBOX)


def _pages(section: str, read: Callable[..., Any]) -> Iterator[Any]:
    cookie, verifier = 0, NO_VERIFIER
    seen = {cookie}
    while True:
        page = ok(read(cookie=cookie, verifier=verifier))
        yield from page.reply.entries
        if page.reply.eof:
            return
        assert page.reply.entries, f"{section}: a page without entries that is not at the end"
        cookie, verifier = page.reply.entries[-1].cookie, page.cookieverf
        assert cookie not in seen, f"{section}: the cookie {cookie} comes twice, so the directory has no end"
        seen.add(cookie)


def ok(result: Any) -> Any:  # noqa: ANN401
    """Return the value of a result whose status is NFS3_OK. Raises AssertionError otherwise."""
    assert result.status == nfsstat3.NFS3_OK, f"{type(result).__name__}: {result.status.name}, not NFS3_OK"
    return result.value


def refused(result: Any, *statuses: nfsstat3) -> None:  # noqa: ANN401
    """Raise AssertionError unless the status is one of ``statuses``."""
    wanted = " or ".join(one.name for one in statuses)
    assert result.status in statuses, f"{type(result).__name__}: {result.status.name}, not {wanted}"
