"""What is made and set, and what the results state of it (RFC 7530, RFC 8881).

Change attributes by what was made, removed or set; attributes of CREATE and OPEN; times that are set
together; owners of locks with every byte; a size that is set in spite of a share reservation.
"""

from __future__ import annotations

import time
from itertools import product

import pytest

from storagetest.suites.conformance.nfs4.kinds import KINDS, supported
from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.wire.nfs4.attributes import numbers_of
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.harness import values
from storagetest.wire.nfs4.operations import create, getattr_, putfh, remove, setattr_, unchecked
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_CHANGE,
    FATTR4_MODE,
    FATTR4_SIZE,
    FATTR4_TIME_ACCESS,
    FATTR4_TIME_ACCESS_SET,
    FATTR4_TIME_METADATA,
    FATTR4_TIME_MODIFY,
    FATTR4_TIME_MODIFY_SET,
    OPEN4_SHARE_DENY_WRITE,
    nfsstat4,
    nfstime4,
    settime4,
    time_how4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

TICK = 0.03
"""Seconds between two changes, whose times then differ on a clock of 100 Hz (chosen)."""

SERVER = settime4(time_how4.SET_TO_SERVER_TIME4)
THEN, BEFORE = nfstime4(1_000_000_000, 0), nfstime4(900_000_000, 0)
"""Times that every file system can keep."""


def by_client(when):
    """Return a time that the client sets."""
    return settime4(time_how4.SET_TO_CLIENT_TIME4, when)


# Changes

OTHERS = {name: KINDS[name] for name in ("LNK", "SOCK", "FIFO")}


def cinfo_is_exact(here, call):
    """Check that change_info4 of ``call`` is the change of the directory, and that it has changed."""
    time.sleep(TICK)
    was = here.read(here.handle, FATTR4_CHANGE)[FATTR4_CHANGE]
    info = call().cinfo
    is_now = here.read(here.handle, FATTR4_CHANGE)[FATTR4_CHANGE]
    assert was != is_now, "the change attribute of the directory is the same as before"
    if info.atomic:
        assert (info.before, info.after) == (was, is_now), "change_info4 is atomic, and states others"


@rule(
    "CINFO-MADE", "16.4.4", "18.4.3", over=OTHERS, kills=("create-special-cinfo",), after=("CREATE-TYPE-{}",)
)
def test_create_of_each_type_states_the_change_of_the_directory(nfs, here, what):
    cinfo_is_exact(
        here, lambda: ok(supported(nfs.compound(putfh(here.handle), create(b"new", what)), what))["CREATE"]
    )


@rule(
    "CINFO-REMOVED",
    "16.26.4",
    "18.25.3",
    over={"REG": None, **OTHERS},
    kills=("remove-special-cinfo",),
)
def test_remove_of_each_type_states_the_change_of_the_directory(nfs, here, what):
    here.file(b"gone") if what is None else here.other(b"gone", what)
    cinfo_is_exact(here, lambda: ok(nfs.compound(putfh(here.handle), remove(b"gone")))["REMOVE"])


SETTINGS = {
    "ATIME": {FATTR4_TIME_ACCESS_SET: by_client(BEFORE)},
    "MTIME": {FATTR4_TIME_MODIFY_SET: by_client(BEFORE)},
    "SIZE": {FATTR4_SIZE: 3},
}


@rule("CHANGE-SET", "5.8.1.4", "5.8.1.4", over=SETTINGS, kills=("change-sticks-at-setattr",))
def test_setting_an_attribute_changes_the_change_attribute(nfs, here, facts, what):
    """A client determines by it if data, contents or attributes of the object have been modified."""
    if not set(what) <= set(facts.supported[nfs.minor]):
        pytest.skip("the server lacks this attribute")
    handle = putfh(here.file(data=b"0123456789"))
    was = values(ok(nfs.compound(handle, getattr_(FATTR4_CHANGE))))
    time.sleep(TICK)
    ok(nfs.compound(handle, setattr_(what)))
    assert values(ok(nfs.compound(handle, getattr_(FATTR4_CHANGE)))) != was, "change is the same as before"


# Attributes of what is made


@rule(
    "CREATE-ATTRSET",
    "16.4.4",
    "18.4.3",
    over={name: KINDS[name] for name in ("DIR", "SOCK", "FIFO")},
    kills=("create-attrset-empty",),
    after=("CREATE-TYPE-{}",),
)
def test_create_states_the_attributes_that_were_set(nfs, here, what):
    """The result has a mask of the attributes that were set, when the operation is successful."""
    done = nfs.compound(putfh(here.handle), create(b"new", what, {FATTR4_MODE: 0o741}))
    stated = set(numbers_of(ok(supported(done, what))["CREATE"].attrset))
    is_set = here.read(here.find(b"new"), FATTR4_MODE)[FATTR4_MODE] == 0o741
    assert (FATTR4_MODE in stated) == is_set, f"attrset is {stated}"


@rule("OPEN-TIMES", "16.16.4", "18.16.3", kills=("open-times-ignored",))
def test_an_open_that_creates_sets_the_times_that_it_states(here, owner, facts):
    """Attrset has the attributes that were set; a server may set fewer than were asked for."""
    both = {FATTR4_TIME_ACCESS_SET: FATTR4_TIME_ACCESS, FATTR4_TIME_MODIFY_SET: FATTR4_TIME_MODIFY}
    if not set(both) <= set(facts.supported[owner.client.minor]):
        pytest.skip("the server sets no times")
    new = dict.fromkeys(both, by_client(THEN))
    file = owner.open(here.handle, b"new", how=unchecked({FATTR4_MODE: 0o644, **new}))
    stated = set(numbers_of(file.done["OPEN"].attrset)) & set(both)
    if not stated:
        pytest.skip("OPEN states that it has set no time")
    found = here.read(file.handle, *both.values())
    for number in stated:
        assert found[both[number]].seconds == THEN.seconds, f"attrset has {number}, which was not set"


# Times that are set together

HOWS = {"KEPT": None, "SERVER": SERVER, "CLIENT": by_client(THEN)}
PAIRS = {
    f"{access}-{modify}": (HOWS[access], HOWS[modify])
    for access, modify in product(HOWS, HOWS)
    if {access, modify} == {"SERVER", "CLIENT"} or ("KEPT" in (access, modify) and access != modify)
}


@rule("TIMES-TOGETHER", "5.8.2", "5.8.2", over=PAIRS, kills=("setattr-mixed-times",))
def test_each_time_is_set_in_its_own_way(nfs, here, facts, what):
    numbers = FATTR4_TIME_ACCESS_SET, FATTR4_TIME_MODIFY_SET
    if not {*numbers, FATTR4_TIME_METADATA} <= set(facts.supported[nfs.minor]):
        pytest.skip("the server lacks one of these attributes")
    file = here.file()
    ok(here.nfs.compound(putfh(file), setattr_(dict.fromkeys(numbers, by_client(BEFORE)))))
    new = {number: how for number, how in zip(numbers, what, strict=True) if how is not None}
    ok(nfs.compound(putfh(file), setattr_(new)))
    shown = FATTR4_TIME_ACCESS, FATTR4_TIME_MODIFY
    found = here.read(file, *shown, FATTR4_TIME_METADATA)
    for number, how in zip(shown, what, strict=True):
        if how is SERVER:
            late = found[number].seconds - found[FATTR4_TIME_METADATA].seconds
            assert abs(late) <= 1, f"attribute {number} is not the server's time, as time_metadata is"
        else:
            wanted = BEFORE if how is None else THEN
            assert found[number].seconds == wanted.seconds, f"attribute {number} has another time"


# Owners and shares

OWNERS = {"NUL": b"a\0b", "FIRST": b"\0ab", "LAST": b"ab\0", "BYTES": bytes(range(256)), "LONG": b"o" * 1024}
"""Names of lock owners, which are opaque, of up to 1024 bytes (NFS4_OPAQUE_LIMIT)."""


@rule("OWNER-BYTES", "9.1.1", "9.1.1", over=OWNERS, kills=("denied-owner-cut",))
def test_each_byte_of_a_lock_owner_counts(nfs, here, owner, what):
    here.file(data=b"0123456789")
    file = owner.open(here.handle, b"file")
    holder = StateOwner(nfs, what)
    ok(file.lock(holder, length=4))
    other = StateOwner(nfs, what[:-1] + bytes([what[-1] ^ 1]))
    done = file.test(other, length=4)
    refused(done, nfsstat4.NFS4ERR_DENIED)
    assert done["LOCKT"].owner.owner == what, "the denial has other bytes of the holder"
    ok(file.unlock(holder, length=4))
    file.close()


@rule("SETATTR-SIZE-DENY", "16.32.4", "18.30.3", kills=("setattr-size-denied-ok",))
def test_a_size_is_not_set_against_a_share_reservation(bench, version, here, owner):
    """A SETATTR that sets the size is incompatible with a reservation of OPEN4_SHARE_DENY_WRITE."""
    here.file(data=b"0123456789")
    file = owner.open(here.handle, b"file", deny=OPEN4_SHARE_DENY_WRITE)
    done = bench.client(version).compound(putfh(file.handle), setattr_({FATTR4_SIZE: 3}))
    assert done.status != nfsstat4.NFS4_OK, "the size is set"
    assert here.read(file.handle, FATTR4_SIZE)[FATTR4_SIZE] == 10
    file.close()
