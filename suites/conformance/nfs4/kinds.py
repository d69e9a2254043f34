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
    """Return the reply to a CREATE; skip if the server has no files of the type, or no devices of this user.

    A device may need a privilege (mknod(2): CAP_MKNOD), which the user of an export that maps root has not.
    """
    if done.status == nfsstat4.NFS4ERR_BADTYPE and kind.name[3:] in _SPECIAL:
        pytest.skip(f"the server makes no file of type {kind.name}, as it may (NFS4ERR_BADTYPE)")
    refused = done.status in (nfsstat4.NFS4ERR_PERM, nfsstat4.NFS4ERR_ACCESS)
    if refused and kind in (nfs_ftype4.NF4BLK, nfs_ftype4.NF4CHR):
        pytest.skip(f"the server makes no device of this user ({done.status.name})")
    return done
