"""Operations of the session cases: SEQUENCE with chosen fields, another incarnation, what ends a session."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from storagetest.wire.nfs4.client import Done, Nfs4Client, Session
from storagetest.wire.nfs4.harness import Nfs4Harness
from storagetest.wire.nfs4.operations import op
from storagetest.wire.nfs4.types import (
    DESTROY_CLIENTID4args,
    DESTROY_SESSION4args,
    SEQUENCE4args,
    nfs_argop4,
    nfsstat4,
)
from storagetest.wire.rpc import auth_sys

OTHER_USER = auth_sys(4001, 4001)
"""The credential of another principal than root."""


def send(nfs: Nfs4Client, sequence: SEQUENCE4args, *ops: nfs_argop4) -> Done:
    """Execute ``ops`` after this SEQUENCE; the results are all, also that of SEQUENCE.

    Skip if the server delays one of ``ops``: to repeat it takes another sequence id than the case's.
    """
    done = nfs.raw(op("SEQUENCE", sequence), *ops)
    if done.status == nfsstat4.NFS4ERR_DELAY and len(done.results) > 1:
        pytest.skip(f"the server is busy, and the case has sequence ids of its own: {done.line}")
    session = nfs.session
    if session is not None and sequence.sa_sessionid == session.id and done.statuses[0] == nfsstat4.NFS4_OK:
        session.next[sequence.sa_slotid] = sequence.sa_sequenceid % 0xFFFFFFFF + 1
    return done


def session_of(nfs: Nfs4Client) -> Session:
    """Return the session of a client that has one."""
    assert nfs.session is not None, "the client has no session"
    return nfs.session


def with_slots(nfs: Nfs4Client, count: int) -> Session:
    """Return the session of a client; skip if it has fewer than ``count`` slots (ca_maxrequests)."""
    session = session_of(nfs)
    if session.fore.ca_maxrequests < count:
        pytest.skip(f"the session has {session.fore.ca_maxrequests} slots, not {count}")
    return session


def exchange(nfs: Nfs4Client, **fields: Any) -> nfs_argop4:
    """Return EXCHANGE_ID with other fields."""
    made = nfs.exchange_id()
    return replace(made, value=replace(made.value, **fields))  # type: ignore[type-var]


def restarted(bench: Nfs4Harness, nfs: Nfs4Client) -> Nfs4Client:
    """Return the next incarnation of a client: the same owner with another verifier, without a client id."""
    return bench.new(nfs.minor, owner=nfs.owner)


def destroy_session(nfs: Nfs4Client, session: Session | None = None) -> nfs_argop4:
    """Return DESTROY_SESSION of ``session``, by default the one that the client uses."""
    return op("DESTROY_SESSION", DESTROY_SESSION4args((session or session_of(nfs)).id))


def destroy_client(nfs: Nfs4Client) -> nfs_argop4:
    """Return DESTROY_CLIENTID of a client."""
    return op("DESTROY_CLIENTID", DESTROY_CLIENTID4args(nfs.clientid))
