"""Delegations to write (RFC 8881 10.4, 18.6, 20.1, 20.2): I/O, CB_RECALL, CB_GETATTR, claims of the holder.

A server grants a delegation if it wants to: without one, the cases are skipped with that reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from storagetest.suites.conformance.nfs4.conflicts import conflict
from storagetest.suites.conformance.nfs4.delegations import (
    DATA,
    TO_READ,
    TO_WRITE,
    Delegation,
    Refusals,
    delegated,
    holder,
    open_to_write,
    stating,
)
from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.slots import session_of, with_slots
from storagetest.wire.nfs4.callbacks import Callbacks
from storagetest.wire.nfs4.client import Nfs4Client, ok, refused
from storagetest.wire.nfs4.harness import values
from storagetest.wire.nfs4.operations import (
    ANONYMOUS,
    GETFH,
    NO_CREATE,
    SAVEFH,
    close,
    getattr_,
    link,
    op,
    putfh,
    read,
    remove,
    rename,
    setattr_,
    write,
)
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_CHANGE,
    FATTR4_MODE,
    FATTR4_SIZE,
    OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_ACCESS_READ,
    OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
    OPEN4_SHARE_ACCESS_WRITE,
    BIND_CONN_TO_SESSION4args,
    CB_GETATTR4args,
    DELEGRETURN4args,
    OPEN4args,
    channel_dir_from_client4,
    channel_dir_from_server4,
    nfs_argop4,
    nfsstat4,
    open_claim4,
    open_claim_delegate_cur4,
    open_claim_type4,
    open_delegation_type4,
    stateid4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

Ops = tuple[nfs_argop4, ...]
INVALID_STATE = (nfsstat4.NFS4ERR_BAD_STATEID, nfsstat4.NFS4ERR_OLD_STATEID)
MORE = b"written while it is recalled"


@pytest.fixture(scope="session")
def refusals(variant: object) -> Refusals:  # noqa: ARG001  # one for each target
    """Return the refusals of the target to delegate to writers."""
    return Refusals()


@pytest.fixture
def callbacks() -> Callbacks:
    """Return callbacks that are answered as the standard requires."""
    return Callbacks()


@pytest.fixture
def held(bench, here, callbacks, version, refusals) -> Delegation:
    """Return a delegation to write the file ``file``, of a client with a back channel."""
    here.file(data=DATA)
    return delegated(holder(bench, version, callbacks), here, callbacks, refusals, TO_WRITE)


# The stateid


@rule("WDELEG-IO", "", "10.4", kills=("deleg-write-refused", "deleg-read-refused"))
def test_the_stateid_of_a_delegation_to_write_reads_and_writes(held):
    ok(held.on(write(held.stateid, 0, b"DELE")))
    assert ok(held.on(read(held.stateid, 0, 100)))["READ"].data == b"DELEgated"


@rule("WDELEG-CLOSED", "", "10.4", kills=("deleg-closed",))
def test_a_delegation_to_write_stays_after_the_file_was_closed(held):
    ok(held.on(close(held.opened)))
    ok(held.on(write(held.stateid, 0, b"DELE")))
    assert ok(held.on(read(held.stateid, 0, 100)))["READ"].data == b"DELEgated"
    ok(held.give_back())


IO: dict[str, Callable[[stateid4], nfs_argop4]] = {
    "READ": lambda stateid: read(stateid, 0, 10),
    "WRITE": lambda stateid: write(stateid, 0, b"x"),
    "SETATTR": lambda stateid: setattr_({FATTR4_SIZE: 1}, stateid),
}


@rule("WDELEG-RETURNED", "", "18.6.3", kills=("deleg-returned",), over=IO)
def test_the_stateid_of_a_returned_delegation_is_bad(held, what):
    ok(held.give_back())
    refused(held.on(what(held.stateid)), *INVALID_STATE)


@rule("WDELEG-OTHER-FILE", "", "8.2.4", kills=("deleg-other-file",), over=IO)
def test_the_stateid_of_a_delegation_is_bad_for_another_file(held, here, what):
    other = here.file(b"other", DATA)
    refused(held.nfs.compound(putfh(other), what(held.stateid)), *INVALID_STATE)


@rule("WDELEG-OTHER-CLIENT", "", "8.2.4", kills=("deleg-other-client",))
def test_a_delegation_is_not_returned_by_another_client(bench, held, version):
    other = bench.client(version)
    done = other.compound(putfh(held.handle), op("DELEGRETURN", DELEGRETURN4args(held.stateid)))
    refused(done, *INVALID_STATE)
    ok(held.on(write(held.stateid, 0, b"DELE")))
    ok(held.give_back())


# Who has one

OPENED = {
    "READ": OPEN4_SHARE_ACCESS_READ,
    "WRITE": OPEN4_SHARE_ACCESS_WRITE,
}


@rule("WDELEG-SHARED", "", "10.4", kills=("deleg-shared",), over=OPENED)
def test_no_delegation_to_write_while_another_client_has_the_file_open(bench, held, here, version, what):
    """Another file than that of ``held``, which shows that the server delegates."""
    ok(held.give_back())
    here.file(b"other", DATA)
    other = StateOwner(bench.client(version)).open(here.handle, b"other", access=what)
    assert granted(held.nfs, here.handle, b"other").delegation_type != TO_WRITE
    other.close()


def granted(nfs: Nfs4Client, directory: bytes, name: bytes, want: int = 0) -> Any:
    """Return the delegation of an OPEN for both."""
    owner, claim = StateOwner(nfs), open_claim4(open_claim_type4.CLAIM_NULL, name)
    asked = OPEN4args(owner.seqid, OPEN4_SHARE_ACCESS_BOTH | want, 0, owner.wire, NO_CREATE, claim)
    return ok(nfs.compound(putfh(directory), op("OPEN", asked)))["OPEN"].delegation


@rule("WDELEG-NO-BACK", "", "10.4", level="SHOULD", kills=("deleg-no-back",))
def test_a_client_that_cannot_be_called_back_has_no_delegation(bench, here, callbacks, version):
    here.file()
    found = granted(holder(bench, version, callbacks, back=False), here.handle, b"file")
    assert getattr(found.value, "stateid", None) is None, "10.4: the client has no back channel"


@rule("WDELEG-UNWANTED", "", "18.16.3", level="SHOULD", kills=("deleg-unwanted",))
def test_a_client_that_can_be_called_back_has_no_delegation_if_it_wants_none(bench, here, callbacks, version):
    here.file()
    nfs = holder(bench, version, callbacks)
    found = granted(nfs, here.handle, b"file", OPEN4_SHARE_ACCESS_WANT_NO_DELEG)
    assert getattr(found.value, "stateid", None) is None


@rule("WDELEG-NONE", "", "18.16.3", level="SHOULD", kills=("none-ext-unasked",))
def test_an_open_that_states_no_want_has_no_reason_for_none(bench, here, callbacks, version):
    """OPEN_DELEGATE_NONE_EXT is for clients that send the flags of wanted delegations."""
    here.file()
    other = StateOwner(bench.client(version)).open(here.handle, b"file")
    found = granted(holder(bench, version, callbacks), here.handle, b"file").delegation_type
    assert found != open_delegation_type4.OPEN_DELEGATE_NONE_EXT
    other.close()


OWN = {
    "OPEN": lambda held, here: open_to_write(held.nfs, here.handle),
    "READ": lambda held, _: (putfh(held.handle), read(held.opened, 0, 10)),
    "WRITE": lambda held, _: (putfh(held.handle), write(held.opened, 0, b"x")),
    "SETATTR": lambda held, _: (putfh(held.handle), setattr_({FATTR4_SIZE: 1}, held.stateid)),
    "MODE": lambda held, _: (putfh(held.handle), setattr_({FATTR4_MODE: 0o600})),
    "GETATTR": lambda held, _: (putfh(held.handle), getattr_(FATTR4_SIZE, FATTR4_CHANGE)),
}


@rule("WDELEG-HOLDER", "", "10.4.1", level="SHOULD", kills=("own-recalled",), over=OWN)
def test_an_operation_of_the_holder_recalls_nothing(held, here, what):
    ok(held.nfs.compound(*what(held, here), retry=False))
    held.nfs.renew()
    assert not held.received


# CB_RECALL


def opening(access: int) -> Callable[[Nfs4Client, Delegation, Any], Ops]:
    """Return an OPEN of another client."""
    return lambda nfs, _, here: (putfh(here.handle), StateOwner(nfs).open_op(b"file", access=access))


CONFLICTS: dict[str, Callable[[Nfs4Client, Delegation, Any], Ops]] = {
    "OPEN-READ": opening(OPEN4_SHARE_ACCESS_READ),
    "OPEN-WRITE": opening(OPEN4_SHARE_ACCESS_WRITE),
    "READ": lambda _nfs, held, _here: (putfh(held.handle), read(ANONYMOUS, 0, 10)),
    "WRITE": lambda _nfs, held, _here: (putfh(held.handle), write(ANONYMOUS, 0, b"x")),
    "SETATTR": lambda _nfs, held, _here: (putfh(held.handle), setattr_({FATTR4_SIZE: 1})),
    "MODE": lambda _nfs, held, _here: (putfh(held.handle), setattr_({FATTR4_MODE: 0o600})),
    "REMOVE": lambda _nfs, _held, here: (putfh(here.handle), remove(b"file")),
    "RENAME": lambda _nfs, _held, here: (putfh(here.handle), SAVEFH, rename(b"file", b"renamed")),
    "RENAME-ONTO": lambda _nfs, _held, here: (putfh(here.handle), SAVEFH, rename(b"source", b"file")),
    "LINK": lambda _nfs, held, here: (putfh(held.handle), SAVEFH, putfh(here.handle), link(b"link")),
}


UNRECALLED = {
    "OPEN-READ": "unrecalled-read",
    "OPEN-WRITE": "unrecalled-write",
    "READ": "unrecalled-io-read",
    "WRITE": "unrecalled-io-write",
    "SETATTR": "unrecalled-setattr",
    "MODE": "unrecalled-setattr",
    "REMOVE": "unrecalled-remove",
    "RENAME": "unrecalled-rename",
    "RENAME-ONTO": "unrecalled-replace",
    "LINK": "unrecalled-link",
}
"""The mutant of each operation of :data:`CONFLICTS`."""


def by_each_conflict() -> pytest.MarkDecorator:
    """Return the marks of the cases of :data:`CONFLICTS`, each with the mutant of its operation."""
    found = []
    for name, operation in CONFLICTS.items():
        kills = (UNRECALLED[name], *(("recall-write-lost",) if name == "OPEN-WRITE" else ()))
        made = rule("RECALL-WRITE-BY", "", "10.4.4", kills=kills, over={name: operation})
        found += made.args[1]
    return pytest.mark.parametrize(("minor", "what"), found)


@by_each_conflict()
def test_an_operation_of_another_client_recalls_a_delegation_to_write(bench, held, here, version, what):
    here.file(b"source")
    other = bench.client(version)
    waiting = conflict(other, *what(other, held, here))
    held.wait_for_recall()
    ok(held.give_back())
    ok(waiting.end())


@rule("RECALL-WRITE-WHAT", "", "20.2.3", kills=("recall-write-stateid", "recall-write-handle"))
def test_a_recall_names_the_delegation_to_write_and_the_file(bench, held, here, version):
    other = bench.client(version)
    waiting = conflict(other, *open_to_write(other, here.handle))
    found = held.wait_for_recall()
    assert found.stateid.other == held.stateid.other
    assert found.fh == held.handle
    ok(held.give_back())
    waiting.end()


@rule(
    "RECALL-WRITE-DELAY",
    "",
    "10.4.4",
    kills=("deleg-early",),
    over={name: CONFLICTS[name] for name in ("OPEN-READ", "OPEN-WRITE", "READ", "WRITE", "REMOVE")},
)
def test_nothing_conflicts_with_a_delegation_to_write_before_its_return(bench, held, here, version, what):
    other = bench.client(version)
    with_slots(other, 2)
    ops = what(other, held, here)
    waiting = conflict(other, *ops)
    held.wait_for_recall()
    for _ in range(2):
        refused(other.compound(*ops, slot=1, retry=False), nfsstat4.NFS4ERR_DELAY)
    ok(held.give_back())
    ok(waiting.end())


@rule(
    "RECALL-WRITE-DATA",
    "",
    "10.4.4",
    kills=("recalled-write-refused", "recalled-write-lost"),
)
def test_what_the_holder_writes_before_it_returns_the_delegation_is_read_by_the_other(
    bench, held, here, version
):
    other = bench.client(version)
    waiting = conflict(other, putfh(here.handle), StateOwner(other).open_op(b"file"), GETFH)
    held.wait_for_recall()
    ok(held.on(write(held.stateid, 0, MORE)))
    ok(held.give_back())
    stateid = ok(waiting.end())["OPEN"].stateid
    assert ok(other.compound(putfh(held.handle), read(stateid, 0, 100)))["READ"].data == MORE


@rule("RECALL-WRITE-AGAIN", "", "10.4.4", kills=("recall-second-lost",))
def test_the_next_delegation_of_a_file_is_recalled_too(bench, held, here, callbacks, version):
    other = bench.client(version)
    for _ in range(2):
        callbacks.seen.clear()
        opened = StateOwner(other)
        waiting = conflict(other, putfh(here.handle), opened.open_op(b"file"), GETFH)
        held.wait_for_recall()
        ok(held.give_back())
        opened.opened(ok(waiting.end())).close()
        found = granted(held.nfs, here.handle, b"file")
        if found.delegation_type != TO_WRITE:
            pytest.skip("the server delegates no file again that had a conflict")
        held.stateid = found.value.stateid
    ok(held.give_back())


# Claims of the holder


def claims(held: Delegation, here: Any, stateid: stateid4) -> dict[str, Ops]:
    """Return the OPENs of a holder that claim an open which it has made itself (18.16.3)."""
    owner = StateOwner(held.nfs)
    by_name = open_claim4(open_claim_type4.CLAIM_DELEGATE_CUR, open_claim_delegate_cur4(stateid, b"file"))
    by_handle = open_claim4(open_claim_type4.CLAIM_DELEG_CUR_FH, stateid)
    return {
        "NAME": (putfh(here.handle), owner.open_op(b"", claim=by_name), GETFH),
        "FH": (putfh(held.handle), owner.open_op(b"", claim=by_handle), GETFH),
    }


@rule("WDELEG-CLAIM", "", "18.16.3", kills=("cur-recalled",), over={"NAME": "NAME", "FH": "FH"})
def test_the_holder_claims_an_open_while_its_delegation_is_recalled(bench, held, here, version, what):
    other = bench.client(version)
    waiting = conflict(other, *open_to_write(other, here.handle))
    held.wait_for_recall()
    done = ok(held.nfs.compound(*claims(held, here, held.stateid)[what], retry=False))
    ok(held.on(write(done["OPEN"].stateid, 0, MORE)))
    ok(held.give_back())
    assert ok(held.on(read(done["OPEN"].stateid, 0, 100)))["READ"].data == MORE
    ok(waiting.end())


@rule("WDELEG-CLAIM-BAD", "", "18.16.3", kills=("cur-any",), over={"NAME": "NAME", "FH": "FH"})
def test_a_returned_delegation_claims_no_open(held, here, what):
    ok(held.give_back())
    refused(held.nfs.compound(*claims(held, here, held.stateid)[what]), *INVALID_STATE)


# CB_GETATTR


def seen_by(other: Nfs4Client, held: Delegation, size: int) -> dict[int, Any]:
    """Return size and change attribute as another client reads them.

    If the server recalls the delegation instead of CB_GETATTR, the holder writes, and returns it.
    """
    before = len(held.received)
    waiting = conflict(other, putfh(held.handle), getattr_(FATTR4_SIZE, FATTR4_CHANGE))
    if not isinstance(held.wait_for_callback(before), CB_GETATTR4args):
        if size != len(DATA):
            ok(held.on(write(held.stateid, 0, bytes(size))))
        ok(held.give_back())
    return values(ok(waiting.end()))


@pytest.fixture
def known(held) -> dict[int, Any]:
    """Return size and change attribute as the holder reads them."""
    return values(ok(held.on(getattr_(FATTR4_SIZE, FATTR4_CHANGE))))


@rule("WDELEG-SIZE", "", "10.4.3", kills=("getattr-unasked", "getattr-ignored"))
def test_another_client_sees_the_size_that_the_holder_states(bench, held, known, callbacks, version):
    callbacks.answer = stating(callbacks, {FATTR4_SIZE: 1000, FATTR4_CHANGE: known[FATTR4_CHANGE] + 1})
    assert seen_by(bench.client(version), held, 1000)[FATTR4_SIZE] == 1000


@rule("WDELEG-CHANGE", "", "10.4.3", kills=("getattr-unasked", "getattr-change"))
def test_another_client_sees_another_change_attribute_if_the_holder_has_modified_the_file(
    bench, held, known, callbacks, version
):
    callbacks.answer = stating(callbacks, {FATTR4_SIZE: 1000, FATTR4_CHANGE: known[FATTR4_CHANGE] + 1})
    assert seen_by(bench.client(version), held, 1000)[FATTR4_CHANGE] != known[FATTR4_CHANGE]


@rule("WDELEG-UNMODIFIED", "", "10.4.3", kills=("getattr-unmodified",))
def test_another_client_sees_the_same_change_attribute_if_the_holder_has_modified_nothing(
    bench, held, known, callbacks, version
):
    callbacks.answer = stating(callbacks, known)
    assert seen_by(bench.client(version), held, len(DATA)) == known


@rule("WDELEG-SIZE-AGAIN", "", "10.4.3", kills=("getattr-once",))
def test_another_client_sees_each_size_that_the_holder_states(bench, held, known, callbacks, version):
    other = bench.client(version)
    for number, size in enumerate((1000, 5000, 2000), 1):
        stated = {FATTR4_SIZE: size, FATTR4_CHANGE: known[FATTR4_CHANGE] + number}
        callbacks.answer = stating(callbacks, stated)
        assert seen_by(other, held, size)[FATTR4_SIZE] == size
        if held.recalls:
            pytest.skip("the server recalls the delegation instead of CB_GETATTR")


@rule("WDELEG-GETATTR-WHAT", "", "20.1.3", kills=("getattr-handle",))
def test_cb_getattr_names_the_file(bench, held, known, callbacks, version):
    callbacks.answer = stating(callbacks, known)
    seen_by(bench.client(version), held, len(DATA))
    for one in held.received:
        assert one.fh == held.handle


# The connections of the back channel


@rule("BACK-BOUND", "", "18.34.3", kills=("bind-back-lost",), over={"READ": TO_READ, "WRITE": TO_WRITE})
def test_a_delegation_is_recalled_on_a_connection_that_was_bound(
    bench, here, callbacks, version, refusals, what
):
    """The connection of CREATE_SESSION is the back channel no more once it is closed."""
    here.file(data=DATA)
    nfs = holder(bench, version, callbacks)
    held = delegated(nfs, here, callbacks, refusals, what)
    second = bench.rpc(name="second")
    first, nfs.rpc = nfs.rpc, second
    second.on_call = callbacks
    argument = BIND_CONN_TO_SESSION4args(
        session_of(nfs).id, channel_dir_from_client4.CDFC4_FORE_OR_BOTH, False
    )
    bound = ok(nfs.raw(op("BIND_CONN_TO_SESSION", argument)))
    if bound["BIND_CONN_TO_SESSION"].bctsr_dir != channel_dir_from_server4.CDFS4_BOTH:
        pytest.skip("the server does not use the connection as a back channel")
    first.link.close()
    nfs.renew()
    other = bench.client(version)
    waiting = conflict(other, *open_to_write(other, here.handle))
    held.wait_for_recall()
    ok(held.give_back())
    ok(waiting.end())
