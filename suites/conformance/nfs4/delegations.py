"""Delegations that cases hold: how they are obtained, their callbacks, and what the holder answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until
from storagetest.wire.nfs4.attributes import encode_attributes, numbers_of
from storagetest.wire.nfs4.callbacks import Answer, Callbacks
from storagetest.wire.nfs4.client import BACK, Done, Nfs4Client, ok
from storagetest.wire.nfs4.harness import Nfs4Harness
from storagetest.wire.nfs4.operations import GETFH, NO_CREATE, op, putfh, remove
from storagetest.wire.nfs4.state import OpenFile, StateOwner
from storagetest.wire.nfs4.types import (
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
    OPEN4_RESULT_CONFIRM,
    OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_ACCESS_READ,
    OPEN4_SHARE_ACCESS_WANT_READ_DELEG,
    OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG,
    CB_COMPOUND4args,
    CB_COMPOUND4res,
    CB_GETATTR4args,
    CB_GETATTR4res,
    CB_GETATTR4resok,
    CB_RECALL4args,
    DELEGRETURN4args,
    OPEN4args,
    RECLAIM_COMPLETE4args,
    nfs_argop4,
    nfs_cb_resop4,
    nfsstat4,
    open_claim4,
    open_claim_type4,
    open_delegation_type4,
    stateid4,
)

DATA = b"delegated"
TO_READ = open_delegation_type4.OPEN_DELEGATE_READ
TO_WRITE = open_delegation_type4.OPEN_DELEGATE_WRITE
_ASKS = {
    TO_READ: (OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WANT_READ_DELEG),
    TO_WRITE: (OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG),
}
"""The access of the OPEN for each type of delegation, and what it wants."""
TRIES = 6
"""Files until one has a delegation: a server may refuse it to one that resembles that of a late conflict."""
SETTLING = 0.3
"""Seconds from the last change of a file to the next try, in which the server ends its own write (chosen)."""


class Refusals:
    """How often in succession a target has granted no delegation to a case; then cases try one file each."""

    MOST = 2

    def __init__(self) -> None:
        self.count = 0

    @property
    def tries(self) -> int:
        """How many files the next case tries."""
        return TRIES if self.count < self.MOST else 1


@dataclass
class Delegation:
    """A delegation of a file, its client, and the callbacks that the client answers."""

    nfs: Nfs4Client
    callbacks: Callbacks
    handle: bytes
    opened: stateid4
    stateid: stateid4

    @property
    def recalls(self) -> list[CB_RECALL4args]:
        """The CB_RECALLs that were received."""
        return [one for one in self.received if isinstance(one, CB_RECALL4args)]

    @property
    def received(self) -> list[CB_RECALL4args | CB_GETATTR4args]:
        """The CB_RECALLs and CB_GETATTRs that were received."""
        found = [one.value for call in self.callbacks.seen for one in call.argarray]
        return [one for one in found if isinstance(one, (CB_RECALL4args, CB_GETATTR4args))]

    def wait_for_recall(self) -> CB_RECALL4args:
        """Return the first CB_RECALL. Raises AssertionError if none arrives in time."""
        return self._wait_for(lambda: self.recalls, "10.4.4: CB_RECALL")[0]

    def wait_for_callback(self, after: int = 0) -> CB_RECALL4args | CB_GETATTR4args:
        """Return the callback after the first ``after``. Raises AssertionError if none arrives in time."""
        return self._wait_for(lambda: self.received[after:], "10.4.3: CB_GETATTR or CB_RECALL")[0]

    def _wait_for(self, found: Callable[[], list[Any]], what: str) -> list[Any]:
        def arrived() -> list[Any]:
            self.nfs.renew()  # callbacks are read while a reply is expected
            return found()

        try:
            return wait_until(arrived, self.nfs.rpc.deadline / 2, what)
        except DeadlineExceeded as error:
            raise AssertionError(str(error)) from None

    def on(self, *ops: nfs_argop4, retry: bool = True) -> Done:
        """Execute operations of the holder on the file."""
        return self.nfs.compound(putfh(self.handle), *ops, retry=retry)

    def give_back(self) -> Done:
        """DELEGRETURN."""
        return self.on(op("DELEGRETURN", DELEGRETURN4args(self.stateid)))


def holder(bench: Nfs4Harness, version: int, callbacks: Callbacks, *, back: bool = True) -> Nfs4Client:
    """Return a client that may open files; its connection is the back channel, unless ``back`` is False."""
    nfs = bench.new(version)
    nfs.exchange()
    nfs.rpc.on_call = callbacks
    flag = CREATE_SESSION4_FLAG_CONN_BACK_CHAN if back else 0
    session = nfs.create_session(flags=flag, back=BACK)
    if not session.flags & flag and back:
        pytest.skip("the server does not use the connection of CREATE_SESSION as a back channel")
    ok(nfs.compound(op("RECLAIM_COMPLETE", RECLAIM_COMPLETE4args(False))))
    return nfs


def delegated(
    nfs: Nfs4Client,
    here: Any,
    callbacks: Callbacks,
    refusals: Refusals,
    kind: open_delegation_type4 = TO_READ,
) -> Delegation:
    """Open ``file`` with a delegation of ``kind``, and else new ones of its name; skip if none is granted."""
    access, want = _ASKS[kind]
    access |= want if nfs.minor else 0
    owner = StateOwner(nfs)  # of minor version 0, the first OPEN of an owner has none: it is confirmed
    claim = open_claim4(open_claim_type4.CLAIM_NULL, b"file")
    for left in reversed(range(refusals.tries)):
        asked = OPEN4args(owner.seqid, access, 0, owner.wire, NO_CREATE, claim)
        done = ok(nfs.compound(putfh(here.handle), op("OPEN", asked), GETFH))
        owner.bump(done.status)
        file = OpenFile(owner, done["GETFH"].object, done["OPEN"].stateid, done)
        found = done["OPEN"].delegation
        if done["OPEN"].rflags & OPEN4_RESULT_CONFIRM:
            file.confirm()
        stateid = getattr(found.value, "stateid", None)
        if stateid is not None and found.delegation_type == kind:
            refusals.count = 0
            return Delegation(nfs, callbacks, file.handle, file.stateid, stateid)
        if stateid is not None:
            ok(file.on(op("DELEGRETURN", DELEGRETURN4args(stateid))))
        file.close()
        ok(here.nfs.compound(putfh(here.handle), remove(b"file")))
        if left:
            here.file(data=DATA)
            time.sleep(SETTLING)
    refusals.count += 1
    pytest.skip(f"the server does not grant {kind.name}: {found.delegation_type.name}, {found.value}")


def open_to_write(nfs: Nfs4Client, directory: bytes) -> tuple[nfs_argop4, ...]:
    """Return an OPEN that conflicts with a read delegation."""
    return putfh(directory), StateOwner(nfs).open_op(b"file", access=OPEN4_SHARE_ACCESS_BOTH)


def stating(callbacks: Callbacks, values: Mapping[int, Any]) -> Answer:
    """Return an answer by which CB_GETATTR has those of ``values``, by number, that it asks for."""

    def one_of(given: CB_COMPOUND4args, one: Any) -> nfs_cb_resop4:
        if not isinstance(one.value, CB_GETATTR4args):
            return callbacks.execute(replace(given, argarray=(one,))).resarray[0]
        stated = {at: values[at] for at in numbers_of(one.value.attr_request) if at in values}
        found = CB_GETATTR4resok(encode_attributes(stated))
        return nfs_cb_resop4(one.argop, CB_GETATTR4res(nfsstat4.NFS4_OK, found))

    def answer(given: CB_COMPOUND4args) -> CB_COMPOUND4res:
        return CB_COMPOUND4res(
            nfsstat4.NFS4_OK, given.tag, tuple(one_of(given, one) for one in given.argarray)
        )

    return answer
