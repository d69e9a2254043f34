"""Operations of the cases of open files: exclusive creates, opens by handle, the status of a share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from storagetest.wire.nfs4.attributes import encode_attributes
from storagetest.wire.nfs4.client import Done, Nfs4Client, ok
from storagetest.wire.nfs4.operations import unchecked
from storagetest.wire.nfs4.state import OpenFile, StateOwner
from storagetest.wire.nfs4.types import (
    CREATE_SESSION4_FLAG_PERSIST,
    OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_DENY_NONE,
    createhow4,
    createmode4,
    creatverfattr,
    nfsstat4,
    open_claim4,
    open_claim_type4,
    openflag4,
    opentype4,
    stateid4,
)

CLAIM_FH = open_claim4(open_claim_type4.CLAIM_FH)
VERIFIER, OTHER_VERIFIER = b"verifier", b"another "


def exclusive4_1(verifier: bytes, values: Mapping[int, Any] | None = None) -> openflag4:
    """OPEN with EXCLUSIVE4_1 (RFC 8881 18.16.3)."""
    how = creatverfattr(verifier, encode_attributes(values or {}))
    return openflag4(opentype4.OPEN4_CREATE, createhow4(createmode4.EXCLUSIVE4_1, how))


def served(done: Done) -> Done:
    """Return ``done``; skip if the server has no exclusive create (RFC 8881 18.16.4)."""
    if done.status == nfsstat4.NFS4ERR_NOTSUPP:
        pytest.skip("the server has no exclusive create: NFS4ERR_NOTSUPP")
    return done


def may_be_exclusive(nfs: Nfs4Client) -> None:
    """Skip if the session is persistent, and has no exclusive create (RFC 8881 18.16.3, table 10)."""
    if nfs.session is not None and nfs.session.flags & CREATE_SESSION4_FLAG_PERSIST:
        pytest.skip("the session is persistent, and has GUARDED4 for an exclusive create")


def open_new(
    nfs: Nfs4Client,
    directory: bytes,
    name: bytes = b"file",
    *,
    access: int = OPEN4_SHARE_ACCESS_BOTH,
    deny: int = OPEN4_SHARE_DENY_NONE,
) -> OpenFile:
    """Make a file if there is none, and open it as a new owner."""
    return StateOwner(nfs).open(directory, name, how=unchecked(), access=access, deny=deny)


def again(file: OpenFile, directory: bytes, name: bytes = b"file", *, access: int, deny: int = 0) -> Done:
    """OPEN the file again by its owner, and keep the new stateid."""
    done = ok(file.owner.try_open(directory, name, access=access, deny=deny))
    file.stateid = done["OPEN"].stateid
    return done


def with_seqid(stateid: stateid4, seqid: int) -> stateid4:
    """Return a stateid with another sequence id."""
    return replace(stateid, seqid=seqid)
