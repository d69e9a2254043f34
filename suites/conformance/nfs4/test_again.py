"""What holds the second time, at large sizes, on later pages and for each of several (RFC 7530, RFC 8881)."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.wire.nfs4.attributes import decode_attributes, encode_attributes
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.harness import values
from storagetest.wire.nfs4.operations import (
    commit,
    create,
    getattr_,
    link,
    op,
    putfh,
    read,
    readdir,
    remove,
    rename,
    setattr_,
    write,
)
from storagetest.wire.nfs4.state import WHOLE, StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_CHANGE,
    FATTR4_FILEHANDLE,
    FATTR4_FILEID,
    FATTR4_LINK_SUPPORT,
    FATTR4_MAXREAD,
    FATTR4_MAXWRITE,
    FATTR4_MODE,
    FATTR4_NUMLINKS,
    FATTR4_SIZE,
    FATTR4_TYPE,
    LOCKT4args,
    NVERIFY4args,
    TEST_STATEID4args,
    VERIFY4args,
    nfs_ftype4,
    nfs_lock_type4,
    nfsstat4,
    stable_how4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

LARGEST = 1 << 20
"""Bytes of the largest READ and WRITE, or the server's limit if it is less (chosen)."""

HEADERS = 4096
"""Bytes of a message that are no data of READ or WRITE, more than enough (chosen)."""

WRITE_LT = nfs_lock_type4.WRITE_LT

TICK = 0.03
"""Seconds between two changes, whose times then differ on a clock of 100 Hz (chosen)."""


def sizes(most: int) -> list[int]:
    """Return sizes up to ``most``: powers of two from 4 KiB, and one byte less and more."""
    near = [4096 << step for step in range(9)]
    return sorted({size for one in near for size in (one - 1, one, one + 1) if size <= most} | {most})


def noise(size: int) -> bytes:
    """Return ``size`` bytes without a period."""
    return random.Random(size).randbytes(size)  # noqa: S311  # data, no secret


def limit(nfs, here, attribute, field):
    """Return the largest size that the attribute and the session allow."""
    stated = here.read(here.handle, attribute).get(attribute) or LARGEST
    session = LARGEST + HEADERS if nfs.session is None else getattr(nfs.session.fore, field)
    return min(stated, LARGEST, session - HEADERS)


@pytest.fixture
def file(here, owner):
    """Return an empty file that is open for reading and writing; it is closed at the end."""
    here.file()
    opened = owner.open(here.handle, b"file")
    yield opened
    opened.close()


@rule("READ-SIZES", "16.23.4", "18.22.3", kills=("read-eof-large",))
def test_a_read_of_every_size_returns_data_and_no_early_eof(nfs, here, owner):
    most = limit(nfs, here, FATTR4_MAXREAD, "ca_maxresponsesize")
    data = noise(most + 8192)
    here.file(data=data)
    opened = owner.open(here.handle, b"file")
    for size in sizes(most):
        found = ok(opened.on(read(opened.stateid, 0, size)))["READ"]
        assert 0 < len(found.data) <= size
        assert found.data == data[: len(found.data)]
        assert not found.eof, f"a READ of {size} bytes from the beginning of {len(data)} states eof"
    opened.close()


@rule(
    "WRITE-SIZES",
    "16.36.4",
    "18.32.3",
    over={"NONE": stable_how4.UNSTABLE4, "DATA": stable_how4.DATA_SYNC4, "FILE": stable_how4.FILE_SYNC4},
    kills=("write-large-verifier",),
)
def test_a_write_of_every_size_is_committed_as_asked(nfs, here, file, what):
    verifiers = set()
    for size in sizes(limit(nfs, here, FATTR4_MAXWRITE, "ca_maxrequestsize")):
        data = noise(size)
        done = ok(file.on(write(file.stateid, 0, data, what)))["WRITE"]
        assert 0 < done.count <= size
        assert done.committed >= what, f"{size} bytes: {done.committed.name}, and {what.name} was asked"
        verifiers.add(done.writeverf)
        head = ok(file.on(read(file.stateid, 0, 4096)))["READ"].data
        assert head[: done.count] == data[: min(len(head), done.count)]
    assert len(verifiers) == 1, "the write verifier changes while the server keeps its connections"


@rule("COMMIT-AGAIN", "16.3.5", "18.3.4", kills=("commit-second-verifier",))
def test_the_verifier_of_later_commits_is_that_of_the_writes(file):
    verifiers = set()
    for at in range(4):
        unstable = write(file.stateid, at * 4096, noise(4096), stable_how4.UNSTABLE4)
        verifiers.add(ok(file.on(unstable))["WRITE"].writeverf)
        verifiers.add(ok(file.on(commit()))["COMMIT"].writeverf)
    assert len(verifiers) == 1, "the write verifier changes while the server keeps its connections"


VERIFIED = {FATTR4_TYPE: nfs_ftype4.NF4DIR, FATTR4_SIZE: 5, FATTR4_MODE: 0o600, FATTR4_NUMLINKS: 7}
"""Values that a file of 4 bytes with mode 644 does not have."""


@rule("VERIFY-EACH", "16.35.4", "18.31.3", kills=("verify-first-only",))
def test_verify_compares_each_of_several_attributes(nfs, here):
    handle = here.file(data=b"data")
    true = here.read(handle, *VERIFIED)
    ok(nfs.compound(putfh(handle), op("VERIFY", VERIFY4args(encode_attributes(true)))))
    for number, other in VERIFIED.items():
        wrong = op("VERIFY", VERIFY4args(encode_attributes({**true, number: other})))
        refused(nfs.compound(putfh(handle), wrong), nfsstat4.NFS4ERR_NOT_SAME)


@rule("NVERIFY-EACH", "16.15.4", "18.15.3", kills=("nverify-first-only",))
def test_nverify_succeeds_if_one_of_several_attributes_differs(nfs, here):
    handle = here.file(data=b"data")
    true = here.read(handle, *VERIFIED)
    same = op("NVERIFY", NVERIFY4args(encode_attributes(true)))
    refused(nfs.compound(putfh(handle), same), nfsstat4.NFS4ERR_SAME)
    for number, other in VERIFIED.items():
        wrong = op("NVERIFY", NVERIFY4args(encode_attributes({**true, number: other})))
        ok(nfs.compound(putfh(handle), wrong))


@rule("SETATTR-EACH", "16.32.4", "18.30.3", kills=("setattr-first-only",))
def test_each_of_several_attributes_is_set(nfs, here):
    handle = here.file(data=b"data")
    for size, mode in ((2, 0o600), (7, 0o640), (0, 0o604)):
        ok(nfs.compound(putfh(handle), setattr_({FATTR4_SIZE: size, FATTR4_MODE: mode})))
        assert here.read(handle, FATTR4_SIZE, FATTR4_MODE) == {FATTR4_SIZE: size, FATTR4_MODE: mode}


@rule("CHANGE-AGAIN", "5.8.1.4", "5.8.1.4", kills=("change-sticks",))
def test_each_of_several_changes_gives_a_new_change_attribute(file):
    def change():
        return values(ok(file.on(getattr_(FATTR4_CHANGE))))[FATTR4_CHANGE]

    seen = [change()]
    for step in range(4):
        time.sleep(TICK)
        ok(file.on(write(file.stateid, step, b"data")))
        seen.append(change())
        time.sleep(TICK)
        ok(file.on(setattr_({FATTR4_MODE: 0o600 + step})))
        seen.append(change())
    assert len(set(seen)) == len(seen), f"9 states of a file have the change values {seen}"


@rule("CHANGE-DIR-AGAIN", "5.8.1.4", "5.8.1.4", kills=("change-sticks",))
def test_each_of_several_changes_of_a_directory_gives_a_new_change_attribute(nfs, here):
    def change():
        return values(ok(nfs.compound(putfh(here.handle), getattr_(FATTR4_CHANGE))))[FATTR4_CHANGE]

    seen = [change()]
    for step in range(3):
        name = b"made-%d" % step
        for made in (create(name), rename(name, name + b"x"), remove(name + b"x")):
            time.sleep(TICK)
            two = made.argop.name == "OP_RENAME"
            ok(nfs.compound(putfh(here.handle), *([op("SAVEFH")] if two else []), made))
            seen.append(change())
    assert len(set(seen)) == len(seen), f"10 states of a directory have the change values {seen}"


@rule(
    "CINFO-EXACT",
    "5.8.1.4",
    "18.25.3",
    over={one: one for one in ("CREATE", "LINK", "RENAME", "REMOVE")},
    kills=("cinfo-before-after",),
    after=("CINFO-EXACT-CREATE",),
)
def test_change_info_that_is_atomic_is_that_of_the_directory(nfs, here, what):
    here.file(b"file")
    ok(nfs.compound(putfh(here.handle), create(b"gone")))
    made = {
        "CREATE": (putfh(here.handle), create(b"new")),
        "LINK": (putfh(here.find(b"file")), op("SAVEFH"), putfh(here.handle), link(b"new")),
        "RENAME": (putfh(here.handle), op("SAVEFH"), rename(b"file", b"new")),
        "REMOVE": (putfh(here.handle), remove(b"gone")),
    }[what]
    time.sleep(TICK)
    was = here.read(here.handle, FATTR4_CHANGE)[FATTR4_CHANGE]
    done = ok(here.optional(nfs.compound(*made), FATTR4_LINK_SUPPORT))[what]
    is_now = here.read(here.handle, FATTR4_CHANGE)[FATTR4_CHANGE]
    info = done.source_cinfo if what == "RENAME" else done.cinfo
    assert was != is_now, "the change attribute of the directory is the same as before"
    if info.atomic:
        assert (info.before, info.after) == (was, is_now)


@rule(
    "READDIR-PAGE-ATTRIBUTES",
    "16.24.4",
    "18.23.3",
    kills=("readdir-later-attributes", "readdir-later-maxcount"),
)
def test_each_entry_of_every_page_has_the_attributes_of_its_file(nfs, here):
    wanted = here.directories([b"name-%02d" % at for at in range(60)])
    cookie, verifier, found = 0, bytes(8), {}
    for _ in range(len(wanted) + 1):
        asked = readdir(
            cookie=cookie,
            verifier=verifier,
            dircount=4096,
            maxcount=1024,
            numbers=(FATTR4_FILEID, FATTR4_FILEHANDLE),
        )
        page = ok(nfs.compound(putfh(here.handle), asked))["READDIR"]
        found.update({one.name: decode_attributes(one.attrs) for one in page.reply.entries})
        if page.reply.eof or not page.reply.entries:
            break
        cookie, verifier = page.reply.entries[-1].cookie, page.cookieverf
    assert set(found) == set(wanted)
    fileids = dict(zip(wanted, here.read_each(wanted.values(), FATTR4_FILEID), strict=True))
    for name, fileid in fileids.items():
        assert found[name].get(FATTR4_FILEID) == fileid, f"{name!r} has another fileid in READDIR"
    stated = [found[name].get(FATTR4_FILEHANDLE) for name in fileids]
    assert None not in stated, "an entry has no filehandle, which was asked for"
    for (name, fileid), of_handle in zip(fileids.items(), here.read_each(stated, FATTR4_FILEID), strict=True):
        assert of_handle == fileid, f"{name!r}: another file's handle"


FAR = (1 << 32, (1 << 62) - 1, (1 << 63) - 2)
"""Offsets far behind the end of a file, all of them below 2^63."""


@rule("LOCK-FAR", "16.10.4", "18.10.3", kills=("lock-to-end-half",))
def test_a_lock_to_the_end_holds_at_every_offset(bench, here, owner, version):
    here.file(data=b"data")
    file, other = owner.open(here.handle, b"file"), StateOwner(bench.client(version))
    opened = other.open(here.handle, b"file")
    done = file.lock(StateOwner(owner.client), WRITE_LT, 0, WHOLE)
    if done.status == nfsstat4.NFS4ERR_BAD_RANGE:
        pytest.skip("the server locks 32 bits of offset (NFS4ERR_BAD_RANGE)")
    ok(done)
    for offset in FAR:
        asked = LOCKT4args(WRITE_LT, offset, 1, StateOwner(other.client).wire)
        refused(opened.on(op("LOCKT", asked)), nfsstat4.NFS4ERR_DENIED)


@rule("LOCKT-HOLDER-END", "16.11.4", "18.11.3", no_mutant_reason="NFS-Ganesha itself states the length 0")
def test_a_denial_states_the_range_of_a_lock_to_the_end(bench, here, owner, version):
    here.file(data=b"data")
    file, other = owner.open(here.handle, b"file"), StateOwner(bench.client(version))
    opened = other.open(here.handle, b"file")
    ok(file.lock(StateOwner(owner.client), WRITE_LT, 100, WHOLE))
    asked = LOCKT4args(WRITE_LT, 1000, 1, StateOwner(other.client).wire)
    found = refused(opened.on(op("LOCKT", asked)), nfsstat4.NFS4ERR_DENIED).of("LOCKT").value
    assert found.length, "the length of the lock that denies it is 0, which no lock has"
    assert found.offset <= 1000
    assert found.length == WHOLE or found.offset + found.length > 1000


@rule("LOCKT-HOLDER", "16.11.4", "18.11.3", kills=("lockt-owner-of-asker", "lockt-length-zero"))
def test_lockt_states_the_owner_of_the_lock_that_denies_it(bench, here, owner, version):
    here.file(data=b"data")
    file, other = owner.open(here.handle, b"file"), StateOwner(bench.client(version))
    opened = other.open(here.handle, b"file")
    holders = [StateOwner(owner.client) for _ in range(2)]
    for at, holder in enumerate(holders):
        ok(file.lock(holder, WRITE_LT, at * 100, 50))
    for at, holder in enumerate(holders):
        asked = LOCKT4args(WRITE_LT, at * 100 + 10, 5, StateOwner(other.client).wire)
        found = refused(opened.on(op("LOCKT", asked)), nfsstat4.NFS4ERR_DENIED).of("LOCKT").value
        assert found.owner.owner == holder.name, f"the owner is {found.owner.owner!r}, not {holder.name!r}"
        assert (found.offset, found.length, found.locktype) == (at * 100, 50, WRITE_LT)


@rule("TS-EACH", "", "18.48.3", kills=("test-stateid-later",))
def test_each_of_several_stateids_has_its_own_status(nfs, here, owner):
    here.file(data=b"data")
    file = owner.open(here.handle, b"file")
    unknown = replace(file.stateid, other=bytes(12 * [0xA5]))
    for sent in ((file.stateid, unknown), (unknown, file.stateid), (unknown, file.stateid, unknown)):
        codes = ok(nfs.compound(op("TEST_STATEID", TEST_STATEID4args(sent))))["TEST_STATEID"].tsr_status_codes
        assert len(codes) == len(sent)
        for stateid, code in zip(sent, codes, strict=True):
            assert (code == nfsstat4.NFS4_OK) == (stateid == file.stateid), (
                f"{codes} for {len(sent)} stateids"
            )
    file.close()
