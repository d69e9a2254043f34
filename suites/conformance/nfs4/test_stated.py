"""What each of several replies states of one change or one range (RFC 7530, RFC 8881, RFC 7862).

Change attributes of both directories of a RENAME, times, the flags and slots of a session, long texts, far
offsets, sizes that are set through an open, and reclaims that no grace period allows.
"""

from __future__ import annotations

import time

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.harness import values
from storagetest.wire.nfs4.operations import (
    GETFH,
    READLINK,
    SAVEFH,
    create,
    getattr_,
    link,
    op,
    putfh,
    read,
    rename,
    setattr_,
    unchecked,
    write,
)
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_CHANGE,
    FATTR4_LINK_SUPPORT,
    FATTR4_MAXFILESIZE,
    FATTR4_MODE,
    FATTR4_SIZE,
    FATTR4_TIME_METADATA,
    nfs_ftype4,
    nfsstat4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

TICK = 0.03
"""Seconds between two changes of one file, whose times then differ on a clock of 100 Hz (chosen)."""

# Change attributes


@rule("CINFO-EXACT-BETWEEN", "16.27.4", "18.26.3", kills=("rename-target-cinfo",))
def test_a_rename_states_the_change_of_both_directories(nfs, here):
    old, new = here.directory(b"old"), here.directory(b"new")
    ok(nfs.compound(putfh(old), create(b"file")))
    time.sleep(TICK)
    ok(here.nfs.compound(putfh(new), create(b"other")))
    was = [here.read(one, FATTR4_CHANGE)[FATTR4_CHANGE] for one in (old, new)]
    time.sleep(TICK)
    done = ok(nfs.compound(putfh(old), SAVEFH, putfh(new), rename(b"file", b"file")))["RENAME"]
    is_now = [here.read(one, FATTR4_CHANGE)[FATTR4_CHANGE] for one in (old, new)]
    for at, info in enumerate((done.source_cinfo, done.target_cinfo)):
        assert was[at] != is_now[at], "the change attribute of the directory is the same as before"
        if info.atomic:
            assert (info.before, info.after) == (was[at], is_now[at])


@rule("CINFO-EXACT-OPEN", "16.16.4", "18.16.3", kills=("open-cinfo-same",))
def test_an_open_that_creates_states_the_change_of_the_directory(here, owner):
    time.sleep(TICK)
    was = here.read(here.handle, FATTR4_CHANGE)[FATTR4_CHANGE]
    info = owner.open(here.handle, b"new", how=unchecked()).done["OPEN"].cinfo
    is_now = here.read(here.handle, FATTR4_CHANGE)[FATTR4_CHANGE]
    assert was != is_now, "the change attribute of the directory is the same as before"
    if info.atomic:
        assert (info.before, info.after) == (was, is_now)


# Attributes


def time_of(done, number):
    """Return a time; skip if it is of whole seconds, as on a server that keeps no less."""
    found = values(ok(done))[number]
    if not found.nseconds:
        pytest.skip("the server keeps times of whole seconds")
    return found


@rule(
    "TIME-METADATA",
    "5.8.2",
    "5.8.2",
    over={one: one for one in ("MODE", "LINK", "SIZE")},
    kills=("time-metadata-sticks",),
)
def test_a_change_of_metadata_has_a_later_time(nfs, here, facts, what):
    if FATTR4_TIME_METADATA not in facts.supported[nfs.minor]:
        pytest.skip("the server has no time_metadata")
    file = here.file()
    done = {
        "MODE": (putfh(file), setattr_({FATTR4_MODE: 0o600})),
        "LINK": (putfh(file), SAVEFH, putfh(here.handle), link(b"second")),
        "SIZE": (putfh(file), setattr_({FATTR4_SIZE: 100})),
    }[what]
    was = time_of(nfs.compound(putfh(file), getattr_(FATTR4_TIME_METADATA)), FATTR4_TIME_METADATA)
    time.sleep(TICK)
    ok(here.optional(nfs.compound(*done), FATTR4_LINK_SUPPORT))
    is_now = time_of(nfs.compound(putfh(file), getattr_(FATTR4_TIME_METADATA)), FATTR4_TIME_METADATA)
    assert was != is_now, "time_metadata is the same as before"


def look_at_times(nfs, facts, file):
    """Return time_modify and time_metadata; skip if the server lacks one, or keeps whole seconds."""
    numbers = types.FATTR4_TIME_MODIFY, FATTR4_TIME_METADATA
    if not set(numbers) <= set(facts.supported[nfs.minor]):
        pytest.skip("the server lacks time_modify or time_metadata")
    return [time_of(nfs.compound(putfh(file), getattr_(one)), one) for one in numbers]


def assert_later(before, found, change):
    """Check that a change has made both times later ones."""
    for name, was, is_now in zip(("time_modify", "time_metadata"), before, found, strict=True):
        assert (is_now.seconds, is_now.nseconds) > (was.seconds, was.nseconds), (
            f"{name} is {is_now.seconds}.{is_now.nseconds:09} after {change}, "
            f"and was {was.seconds}.{was.nseconds:09} before it"
        )


@rule(
    "TIMES-SIZE",
    "16.32",
    "18.30",
    over={"ZERO": 0, "CUT": 4, "GROWN": 100_000},
    kills=("setattr-size-time-modify-stays",),
)
def test_a_change_of_the_size_changes_the_time_of_modification(nfs, here, facts, what):
    """A SETATTR that changes the size indirectly changes time_modify, and the metadata of the file."""
    file = here.file(data=b"0123456789")
    before = look_at_times(nfs, facts, file)
    time.sleep(TICK)
    ok(nfs.compound(putfh(file), setattr_({FATTR4_SIZE: what})))
    assert_later(before, look_at_times(nfs, facts, file), f"a SETATTR of the size {what}")


@rule(
    "TIMES-WRITE",
    "5.8.2",
    "5.8.2",
    over={"INSIDE": 2, "OVER": 8, "BEHIND": 5000},
    kills=("write-time-metadata-stays",),
    level="SHOULD",  # 5.8.2 leaves open what the metadata of a file are
)
def test_a_write_changes_both_times(nfs, here, owner, facts, what):
    """The data are modified, and with them the time of modification, which is metadata."""
    here.file(data=b"0123456789")
    file = owner.open(here.handle, b"file")
    before = look_at_times(nfs, facts, file.handle)
    time.sleep(TICK)
    ok(file.on(write(file.stateid, what, b"abc")))
    assert_later(before, look_at_times(nfs, facts, file.handle), f"a WRITE at {what}")


def values_of(nfs, here, facts, numbers):
    """Return attributes of the case's directory; skip if the server lacks one of them."""
    if not set(numbers) <= set(facts.supported[nfs.minor]):
        pytest.skip("the server lacks one of these attributes")
    found = values(ok(nfs.compound(putfh(here.handle), getattr_(*numbers))))
    return tuple(found[one] for one in numbers)


SPACE = (types.FATTR4_SPACE_AVAIL, types.FATTR4_SPACE_FREE, types.FATTR4_SPACE_TOTAL)
FILES = (types.FATTR4_FILES_AVAIL, types.FATTR4_FILES_FREE, types.FATTR4_FILES_TOTAL)


@rule("ATTR-SPACE", "5.8.2", "5.8.2", kills=("space-free-more",))
def test_no_more_space_is_free_than_there_is(nfs, here, facts):
    available, free, total = values_of(nfs, here, facts, SPACE)
    assert available <= free <= total, f"{available} bytes are available, {free} free, of {total}"


@rule("ATTR-FILES", "5.8.2", "5.8.2", kills=("files-free-more",))
def test_no_more_files_are_free_than_there_may_be(nfs, here, facts):
    available, free, total = values_of(nfs, here, facts, FILES)
    assert available <= free <= total, f"{available} files are available, {free} free, of {total}"


@rule("ATTR-MOUNTED-ON", "5.8.2", "5.8.2", kills=("mounted-on-other",))
def test_what_is_no_mount_point_is_mounted_on_itself(nfs, here, facts):
    fileid, mounted_on = values_of(nfs, here, facts, (types.FATTR4_FILEID, types.FATTR4_MOUNTED_ON_FILEID))
    assert fileid == mounted_on, f"fileid is {fileid}, and mounted_on_fileid {mounted_on}"


@rule("TIME-MODIFY-EACH", "5.8.2", "5.8.2", kills=("mtime-sticks",))
def test_each_write_has_a_later_time_of_modification(nfs, here, owner, facts):
    if types.FATTR4_TIME_MODIFY not in facts.supported[nfs.minor]:
        pytest.skip("the server has no time_modify")
    here.file()
    file, seen = owner.open(here.handle, b"file"), set()
    for at in range(3):
        ok(file.on(write(file.stateid, 10 * at, b"0123456789")))
        stated = time_of(file.on(getattr_(types.FATTR4_TIME_MODIFY)), types.FATTR4_TIME_MODIFY)
        assert stated not in seen, f"time_modify after write {at + 1} is that of a write before it"
        seen.add(stated)
        time.sleep(TICK)


@rule(
    "READLINK-LONG",
    "16.25.4",
    "18.24.3",
    over={str(one): one for one in (256, 1000, 1023)},
    kills=("readlink-255",),
)
def test_a_long_text_of_a_symbolic_link_is_read_whole(nfs, here, what):
    text = (b"directory/" * 200)[: what - 1] + b"x"
    done = nfs.compound(putfh(here.handle), create(b"link", nfs_ftype4.NF4LNK, text=text), GETFH)
    if done.status in (nfsstat4.NFS4ERR_NAMETOOLONG, nfsstat4.NFS4ERR_NOSPC):
        pytest.skip(f"the server has no symbolic link of {what} bytes ({done.status.name})")
    handle = ok(done)["GETFH"].object
    assert ok(nfs.compound(putfh(handle), READLINK))["READLINK"].link == text


# Sizes and offsets


@rule("SETATTR-SIZE-READ", "16.32.4", "18.30.3", kills=("setattr-size-anonymous",))
def test_a_size_is_not_set_through_an_open_for_reading(here, owner):
    here.file(data=b"0123456789")
    file = owner.open(here.handle, b"file", access=types.OPEN4_SHARE_ACCESS_READ)
    refused(file.on(setattr_({FATTR4_SIZE: 4}, file.stateid)), nfsstat4.NFS4ERR_OPENMODE)
    assert here.read(file.handle, FATTR4_SIZE)[FATTR4_SIZE] == 10


@rule("SETATTR-SIZE-WRITE", "16.32.4", "18.30.3", kills=("setattr-size",))
def test_a_size_is_set_through_an_open_for_writing(here, owner):
    here.file(data=b"0123456789")
    file = owner.open(here.handle, b"file", access=types.OPEN4_SHARE_ACCESS_WRITE)
    ok(file.on(setattr_({FATTR4_SIZE: 4}, file.stateid)))
    assert here.read(file.handle, FATTR4_SIZE)[FATTR4_SIZE] == 4


@rule("SETATTR-SIZE-BAD", "16.32.4", "18.30.3", kills=("setattr-size-anonymous",))
def test_a_size_is_not_set_through_a_stateid_that_was_closed(here, owner):
    here.file(data=b"0123456789")
    file = owner.open(here.handle, b"file")
    old = file.stateid
    file.close()
    bad = (nfsstat4.NFS4ERR_BAD_STATEID, nfsstat4.NFS4ERR_OLD_STATEID, nfsstat4.NFS4ERR_EXPIRED)
    done = file.on(setattr_({FATTR4_SIZE: 4}, old))
    assert done.status in bad, f"{done.status.name}, and the stateid is that of a file that was closed"
    assert here.read(file.handle, FATTR4_SIZE)[FATTR4_SIZE] == 10


@rule(
    "FAR",
    "16.36.4",
    "18.32.3",
    over={"2G": 1 << 31, "4G": 1 << 32, "4G-OVER": (1 << 32) - 2, "1T": 1 << 40},
    kills=("write-offset-31", "read-offset-31"),
)
def test_data_at_a_far_offset_are_there_and_nowhere_else(facts, here, owner, what):
    if facts.limits.get(FATTR4_MAXFILESIZE, 1 << 62) < what + 4:
        pytest.skip("the server has no file of this size (maxfilesize)")
    here.file(data=b"0123456789")
    file = owner.open(here.handle, b"file")
    done = file.on(write(file.stateid, what, b"data"))
    if done.status in (nfsstat4.NFS4ERR_FBIG, nfsstat4.NFS4ERR_NOSPC):
        pytest.skip(f"the server writes no file of this size ({done.status.name})")
    count = ok(done)["WRITE"].count
    assert ok(file.on(read(file.stateid, what, count)))["READ"].data == b"data"[:count]
    assert ok(file.on(read(file.stateid, 0, 10)))["READ"].data == b"0123456789"
    assert here.read(file.handle, FATTR4_SIZE)[FATTR4_SIZE] == what + count


@rule(
    "READ-NOTHING-EOF",
    "16.23.4",
    "18.22.3",
    over={"START": 0, "MIDDLE": 4, "BEFORE": 9},
    kills=("read-nothing-eof",),
)
def test_a_read_of_no_bytes_before_the_end_is_not_at_the_end(here, owner, what):
    here.file(data=b"0123456789")
    file = owner.open(here.handle, b"file")
    assert not ok(file.on(read(file.stateid, what, 0)))["READ"].eof


# Reclaims


@rule("RECLAIM-NO-GRACE", "9.6.2", "8.4.2.1", kills=("reclaim-any-time",))
def test_a_lock_is_not_reclaimed_without_a_grace_period(here, owner):
    here.file()
    file = owner.open(here.handle, b"file")
    done = file.lock(StateOwner(owner.client), reclaim=True)
    refused(done, nfsstat4.NFS4ERR_NO_GRACE, nfsstat4.NFS4ERR_RECLAIM_BAD)


# Sessions

LOST = (
    types.SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED
    | types.SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED
    | types.SEQ4_STATUS_ADMIN_STATE_REVOKED
    | types.SEQ4_STATUS_RECALLABLE_STATE_REVOKED
)
"""Flags of SEQUENCE that state a loss of state, until FREE_STATEID has acknowledged it (18.46.3)."""


@rule("SEQ-NOTHING-LOST", "", "18.46.3", kills=("sequence-expired-flag",))
def test_no_loss_is_stated_to_a_client_that_has_lost_no_state(here, owner):
    here.file(data=b"data")
    file = owner.open(here.handle, b"file")
    holder = StateOwner(owner.client)
    ok(file.lock(holder, length=4))
    ok(file.unlock(holder, length=4))
    file.close()
    first = ok(owner.client.compound(op("PUTROOTFH"))).result.resarray[0].value.value
    assert not first.sr_status_flags & LOST, f"sr_status_flags is {first.sr_status_flags:#x}"
