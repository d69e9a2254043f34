"""Files of the cases of minor version 2: their bytes and size, and operations that are optional."""

from __future__ import annotations

import pytest

from storagetest.wire.nfs4.client import Done, Nfs4Client, ok
from storagetest.wire.nfs4.harness import values
from storagetest.wire.nfs4.operations import getattr_, read, unchecked
from storagetest.wire.nfs4.state import OpenFile, StateOwner
from storagetest.wire.nfs4.types import FATTR4_CHANGE, FATTR4_SIZE, nfsstat4

BLOCK = 65536
"""Bytes of a piece of a file (chosen): a multiple of the blocks of usual file systems."""

SIZE = 1 << 20
"""Bytes of the sparse file (chosen)."""


def served(name: str, done: Done) -> Done:
    """Return ``done``; skip if it ended with NFS4ERR_NOTSUPP."""
    if done.status == nfsstat4.NFS4ERR_NOTSUPP:
        pytest.skip(f"the server has no {name} for this file system (NFS4ERR_NOTSUPP)")
    return done


def sparse_file(nfs: Nfs4Client, directory: bytes) -> OpenFile:
    """Return an open file of :data:`SIZE` bytes: data in the first and the last block, nothing between."""
    file = StateOwner(nfs).open(directory, b"sparse", how=unchecked())
    for offset in (0, SIZE - BLOCK):
        file.write_all(offset, b"data" * (BLOCK // 4))
    return file


def largest_read(file: OpenFile) -> int:
    """Return the bytes that one READ may return on the file's session, a block at most."""
    session = file.client.session
    return BLOCK if session is None else max(512, min(BLOCK, session.fore.ca_maxresponsesize - 1024))


def content(file: OpenFile, offset: int, count: int) -> bytes:
    """Return bytes of a file, fewer at its end."""
    found = b""
    while len(found) < count:
        piece = min(count - len(found), largest_read(file))
        done = ok(file.on(read(file.stateid, offset + len(found), piece)))["READ"]
        found += done.data
        if done.eof:
            break
        assert done.data, "18.22.3: a READ of no bytes that is not at the end of the file"
    return found


def has(file: OpenFile, data: bytes) -> bool:
    """Whether these are all bytes of a file. Raises AssertionError with the first difference."""
    found = content(file, 0, len(data) + 1)
    differs = next((at for at, pair in enumerate(zip(found, data, strict=False)) if pair[0] != pair[1]), None)
    assert differs is None, f"byte {differs} is {found[differs]:#x}, not {data[differs]:#x}"
    assert len(found) == len(data), f"the file has {len(found)} bytes or more, not {len(data)}"
    return True


def change_of(file: OpenFile) -> int:
    """Return the change attribute of a file."""
    change: int = values(ok(file.on(getattr_(FATTR4_CHANGE))))[FATTR4_CHANGE]
    return change


def size_of(file: OpenFile) -> int:
    """Return the size of a file."""
    size: int = values(ok(file.on(getattr_(FATTR4_SIZE))))[FATTR4_SIZE]
    return size
