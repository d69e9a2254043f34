"""Files of each type; a server may lack some: NFS4ERR_BADTYPE (RFC 8881 15.1.4.1; RFC 7530 13.1.4.1)."""

from __future__ import annotations

import pytest

from storagetest.wire.nfs4.client import Done
from storagetest.wire.nfs4.types import nfs_ftype4, nfsstat4

KINDS = {kind.name[3:]: kind for kind in (
    nfs_ftype4.NF4DIR, nfs_ftype4.NF4LNK, nfs_ftype4.NF4BLK, nfs_ftype4.NF4CHR, nfs_ftype4.NF4SOCK,
    nfs_ftype4.NF4FIFO,
)}  # fmt: skip
_SPECIAL = KINDS.keys() - {"DIR", "LNK"}


def supported(done: Done, kind: nfs_ftype4) -> Done:
    """Return the reply to a CREATE; skip if it states that the server has no files of the type."""
    if done.status == nfsstat4.NFS4ERR_BADTYPE and kind.name[3:] in _SPECIAL:
        pytest.skip(f"the server makes no file of type {kind.name}, as it may (NFS4ERR_BADTYPE)")
    return done
