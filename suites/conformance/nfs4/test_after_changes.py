"""What replies state after a change, and whether what they claim is true (RFC 7530, RFC 8881, RFC 7862)."""

from __future__ import annotations

import time

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.opens import VERIFIER, exclusive4_1, may_be_exclusive
from storagetest.suites.conformance.nfs4.opens import served as served_exclusive
from storagetest.suites.conformance.nfs4.sparse import BLOCK, SIZE, served, sparse_file
from storagetest.suites.conformance.nfs4.stale import assert_stale
from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.attributes import decode_attributes, numbers_of
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.harness import entries, values
from storagetest.wire.nfs4.operations import (
    GETFH,
    SAVEFH,
    access,
    exclusive,
    getattr_,
    link,
    lookup,
    op,
    putfh,
    readdir,
    remove,
    rename,
    setattr_,
    unchecked,
)
from storagetest.wire.nfs4.state import OpenFile, StateOwner
from storagetest.wire.nfs4.types import (
    ACCESS4_DELETE,
    ACCESS4_EXTEND,
    ACCESS4_LOOKUP,
    ACCESS4_MODIFY,
    ACCESS4_READ,
    FATTR4_CHANGE,
    FATTR4_LINK_SUPPORT,
    FATTR4_MODE,
    FATTR4_NUMLINKS,
    FATTR4_SIZE,
    SEEK4args,
    data_content4,
    nfsstat4,
)
from storagetest.wire.rpc import auth_sys

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

DATA = b"0123456789"
USER = auth_sys(4242, 4242)
"""Another user than the owner of the files."""

TICK = 0.011
"""Seconds between two changes, whose times then differ on a clock of 100 Hz (chosen)."""


# OPEN of a file that exists


def open_old(nfs, here, sent):
    """OPEN a file that exists with UNCHECKED4; check what was set, and what the reply claims of it."""
    handle = here.file(data=DATA, mode=0o600)
    file = StateOwner(nfs).open(here.handle, b"file", how=unchecked(sent))
    claimed, found = numbers_of(file.done["OPEN"].attrset), here.read(handle, FATTR4_SIZE, FATTR4_MODE)
    file.close()
    size = 0 if sent.get(FATTR4_SIZE) == 0 else len(DATA)
    assert found == {FATTR4_SIZE: size, FATTR4_MODE: 0o600}
    assert set(claimed) <= set(sent), f"attrset has {claimed}, and {tuple(sent)} were sent"
    for number in claimed:
        assert found[number] == sent[number], f"attrset has {number}, which is {found[number]}"


@rule("OPEN-OLD-NOTHING", "16.16", "18.16.3", kills=("open-old-attrset", "open-old-truncates"))
def test_an_open_of_an_old_file_sets_nothing_that_was_not_sent(nfs, here):
    open_old(nfs, here, {})


@rule("OPEN-OLD-ZERO", "16.16", "18.16.3", kills=("open-old-attrset",))
def test_an_open_of_an_old_file_claims_a_size_of_zero_alone(nfs, here):
    open_old(nfs, here, {FATTR4_SIZE: 0})


@rule(
    "OPEN-OLD",
    "16.16",
    "18.16.3",
    level="SHOULD",
    over={
        "SIZE": {FATTR4_SIZE: 5},
        "MODE": {FATTR4_MODE: 0o640},
        "BOTH": {FATTR4_SIZE: 0, FATTR4_MODE: 0o640},
    },
    no_mutant_reason="NFS-Ganesha, the target of the mutants, breaks this rule itself",
)
def test_an_open_of_an_old_file_claims_what_it_set(nfs, here, what):
    """UNCHECKED4 sets the size of a file that exists to zero if that was sent, and no other attribute.

    The text calls attrset that which was set, and servers return what was sent.
    """
    open_old(nfs, here, what)


def near(verifier: bytes):
    """Return verifiers that differ from ``verifier`` in one bit of one byte, each in another byte."""
    return [verifier[:at] + bytes([verifier[at] ^ 1]) + verifier[at + 1 :] for at in range(len(verifier))]


@rule("OPEN-EXCLUSIVE-BYTES", "16.16", "18.16.3", kills=("exclusive-half",))
def test_each_byte_of_the_verifier_of_an_exclusive_create_counts(nfs, here):
    may_be_exclusive(nfs)
    how = exclusive4_1 if nfs.minor else exclusive
    served_exclusive(StateOwner(nfs).try_open(here.handle, b"file", how=how(VERIFIER)))
    for other in near(VERIFIER):
        refused(StateOwner(nfs).try_open(here.handle, b"file", how=how(other)), nfsstat4.NFS4ERR_EXIST)


# RENAME and REMOVE


@rule("RENAME-REPLACED", "16.27.4", "18.26.3", kills=("replaced-lives",))
def test_the_handle_of_a_file_that_was_replaced_is_stale(nfs, here):
    """The file has no name any more, and is not open."""
    here.file(b"other")
    replaced = ok(nfs.compound(putfh(here.handle), lookup(b"other"), GETFH))["GETFH"].object
    ok(nfs.compound(putfh(replaced), getattr_(FATTR4_SIZE)))
    here.file(b"file", b"data")
    ok(nfs.compound(putfh(here.handle), SAVEFH, rename(b"file", b"other")))
    assert_stale(nfs, replaced)


@rule(
    "LINKS-EACH",
    "16.9.4",
    "18.9.3",
    over={"REMOVE": "REMOVE", "RENAME": "RENAME"},
    kills=("numlinks-removed-twice", "numlinks-removed-never"),
    after=("LINK-01", "LINKS-EACH-REMOVE"),
)
def test_each_name_that_is_made_and_removed_is_counted_once(nfs, here, what):
    """Numlinks goes up and down by one, and the change attribute of the file changes."""
    handle, other = here.file(b"name-0"), here.file(b"other")
    states = [here.read(handle, FATTR4_NUMLINKS, FATTR4_CHANGE)]

    def look(links: int, step: str) -> None:
        time.sleep(TICK)
        found = values(ok(nfs.compound(putfh(handle), getattr_(FATTR4_NUMLINKS, FATTR4_CHANGE))))
        assert found[FATTR4_NUMLINKS] == links, f"{step}: numlinks is {found[FATTR4_NUMLINKS]}, not {links}"
        assert found not in states, f"{step}: the change attribute is {found[FATTR4_CHANGE]} as before"
        states.append(found)

    for at in (1, 2):
        time.sleep(TICK)
        done = nfs.compound(putfh(handle), SAVEFH, putfh(here.handle), link(b"name-%d" % at))
        ok(here.optional(done, FATTR4_LINK_SUPPORT))
        look(at + 1, f"link {at} made")
    for at in (2, 1):
        time.sleep(TICK)
        if what == "REMOVE":
            ok(nfs.compound(putfh(here.handle), remove(b"name-%d" % at)))
        else:
            ok(nfs.compound(putfh(other), SAVEFH, putfh(here.handle), link(b"over")))
            ok(nfs.compound(putfh(here.handle), SAVEFH, rename(b"over", b"name-%d" % at)))
        look(at, f"link {at} gone")


# ACCESS


def permitted(mode: int, *, directory: bool) -> int:
    """Return what ACCESS states to another user than owner and group of a file with this mode."""
    found = ACCESS4_READ if mode & 4 else 0
    found |= ACCESS4_MODIFY | ACCESS4_EXTEND if mode & 2 else 0
    return found | (ACCESS4_LOOKUP if directory and mode & 1 else 0)


@rule(
    "ACCESS-AFTER-MODE",
    "16.1.4",
    "18.1.3",
    over={"FILE": (0o666, 0o600, 0o644, 0o622), "DIRECTORY": (0o777, 0o700, 0o755, 0o711)},
    kills=("access-sticks",),
)
def test_access_follows_each_change_of_the_mode(bench, version, here, what):
    directory = what[0] & 1
    handle = here.directory(b"one") if directory else here.file(b"one")
    bits = ACCESS4_READ | ACCESS4_MODIFY | ACCESS4_EXTEND | (ACCESS4_LOOKUP if directory else 0)
    user = bench.client(version, cred=USER)
    for mode in (*what, what[0]):
        ok(here.nfs.compound(putfh(handle), setattr_({FATTR4_MODE: mode})))
        found = ok(user.compound(putfh(handle), access(bits)))["ACCESS"].access
        wanted = permitted(mode, directory=bool(directory))
        assert found == wanted, f"mode {mode:o}: ACCESS states {found:#x}, not {wanted:#x}"


def delete_stated(bench, version, here, mode):
    """Compare DELETE of ACCESS of a file with REMOVE of it by the same user, in a directory of ``mode``."""
    directory = here.directory(b"below", mode=mode)
    ok(here.nfs.compound(putfh(directory), setattr_({FATTR4_MODE: mode})))
    file = StateOwner(here.nfs).open(directory, b"file", how=unchecked({FATTR4_MODE: 0o666}))
    file.close()
    user = bench.client(version, cred=USER)
    stated = ok(user.compound(putfh(file.handle), access(ACCESS4_DELETE)))["ACCESS"]
    removed = user.compound(putfh(directory), remove(b"file")).status
    assert removed in (nfsstat4.NFS4_OK, nfsstat4.NFS4ERR_ACCESS, nfsstat4.NFS4ERR_PERM), removed.name
    if stated.supported & ACCESS4_DELETE:
        can = bool(stated.access & ACCESS4_DELETE)
        assert can == (removed == nfsstat4.NFS4_OK), f"DELETE is {can}, and REMOVE ends with {removed.name}"


@rule("ACCESS-DELETE-CLOSED", "16.1.4", "18.1.3", level="SHOULD", kills=("access-deletes",))
def test_a_file_that_cannot_be_removed_has_no_delete_in_access(bench, version, here):
    """Whether a name can be removed is a matter of its directory; a server may leave DELETE out."""
    delete_stated(bench, version, here, 0o755)


@rule("ACCESS-DELETE-OPEN", "16.1.4", "18.1.3", level="SHOULD", kills=("access-delete-never",))
def test_a_file_that_can_be_removed_has_delete_in_access(bench, version, here):
    """If ``supported`` has DELETE, so has ``access``."""
    delete_stated(bench, version, here, 0o777)


# READDIR


@rule(
    "READDIR-REMOVED",
    "16.24.4",
    "18.23.3",
    over={"LAST": slice(-1, None), "PAGE": slice(None), "FIRST": slice(0, 1)},
    kills=("readdir-removed-end", "readdir-removed-again"),
    after=("READDIR-10", "READDIR-REMOVED-LAST"),
)
def test_a_listing_goes_on_after_entries_of_its_page_were_removed(nfs, here, observe, what):
    """The names that stay are listed once, or the server states that its cookies are no longer valid."""
    wanted = here.directories([b"name-%02d" % at for at in range(40)])
    first = ok(nfs.compound(putfh(here.handle), readdir(dircount=800, maxcount=800)))["READDIR"]
    page = first.reply.entries
    assert page, "the first page has no entries"
    assert not first.reply.eof, f"a page of 800 bytes has all {len(page)} names"
    gone = [one.name for one in page[what]]
    for name in gone:
        ok(here.nfs.compound(putfh(here.handle), remove(name)))
    found, cookie, verifier = [one.name for one in page], page[-1].cookie, first.cookieverf
    for _ in range(len(wanted)):
        done = nfs.compound(putfh(here.handle), readdir(cookie=cookie, verifier=verifier, maxcount=4096))
        if done.status in (nfsstat4.NFS4ERR_BAD_COOKIE, nfsstat4.NFS4ERR_NOT_SAME):
            observe(done.status.name)
            break
        more = ok(done)["READDIR"]
        found += [one.name for one in more.reply.entries]
        if more.reply.eof:
            assert sorted(found) == sorted(wanted), "the pages have not each name once"
            break
        assert more.reply.entries, "a page has no entries, and is not the last one"
        cookie, verifier = more.reply.entries[-1].cookie, more.cookieverf
    else:
        raise AssertionError("the listing does not end")


LISTED = (
    types.FATTR4_TYPE,
    types.FATTR4_CHANGE,
    types.FATTR4_SIZE,
    types.FATTR4_FSID,
    types.FATTR4_FILEID,
    types.FATTR4_MODE,
    types.FATTR4_NUMLINKS,
    types.FATTR4_OWNER,
    types.FATTR4_OWNER_GROUP,
    types.FATTR4_TIME_METADATA,
    types.FATTR4_TIME_MODIFY,
    types.FATTR4_MOUNTED_ON_FILEID,
)
"""Attributes that a look at a file does not change."""


@rule("READDIR-STATED", "16.24.4", "18.23.3", kills=("readdir-mounted-on-other",))
def test_a_listing_states_what_the_files_state(nfs, here, facts):
    """The attributes of a file, a directory and a symbolic link are those of GETATTR."""
    numbers = tuple(one for one in LISTED if one in facts.supported[nfs.minor])
    handles = {b"file": here.file(data=DATA), b"directory": here.directory(), b"symlink": here.symlink()}
    found = {one.name: decode_attributes(one.attrs) for one in entries(nfs, here.handle, numbers=numbers)}
    assert set(found) == set(handles), f"the names are {sorted(found)}"
    for name, handle in handles.items():
        assert found[name] == here.read(handle, *numbers), f"{name!r} in READDIR and in GETATTR"


# Reclaims


@rule("RECLAIM-ONE-FS", "", "18.51.3", kills=("reclaim-one-fs-all",))
def test_the_reclaims_of_one_file_system_are_not_those_of_all(bench, here, version):
    """RECLAIM_COMPLETE with rca_one_fs is about the current filehandle; the one for all comes later."""
    nfs = bench.new(version)
    nfs.exchange()
    nfs.create_session()
    nfs.compound(putfh(here.handle), op("RECLAIM_COMPLETE", types.RECLAIM_COMPLETE4args(True)))
    ok(nfs.compound(op("RECLAIM_COMPLETE", types.RECLAIM_COMPLETE4args(False))))


# SEEK


def seek(file: OpenFile, offset: int, what: data_content4):
    """SEEK; skip if it is not served."""
    return served("SEEK", file.on(op("SEEK", SEEK4args(file.stateid, offset, what))))


DATA_AT, HOLE_AT = data_content4.NFS4_CONTENT_DATA, data_content4.NFS4_CONTENT_HOLE
INSIDE = {"ONE": 1, "PAGE": 4096, "ODD": BLOCK // 2 + 77, "LAST": BLOCK - 1}


@rule("SEEK-DATA-INSIDE", v42="RFC 7862 15.11.3", over=INSIDE, kills=("seek-data-begin", "seek-data-next"))
def test_data_are_found_at_an_offset_inside_them(nfs, here, what):
    sparse = sparse_file(nfs, here.handle)
    for base in (0, SIZE - BLOCK):
        found = ok(seek(sparse, base + what, DATA_AT))["SEEK"]
        assert (found.sr_eof, found.sr_offset) == (False, base + what)


@rule("SEEK-HOLE-INSIDE", v42="RFC 7862 15.11.3", over=INSIDE, kills=("seek-hole-begin",))
def test_no_hole_is_found_before_the_offset(nfs, here, what):
    """The hole that holds the offset is found at the offset, and the end of the file is a hole."""
    sparse = sparse_file(nfs, here.handle)
    for offset in (what, 2 * BLOCK + what, SIZE - BLOCK + what):
        found = ok(seek(sparse, offset, HOLE_AT))["SEEK"].sr_offset
        assert offset <= found <= SIZE, f"SEEK from {offset} finds a hole at {found}"
        assert found >= BLOCK, f"SEEK finds a hole at {found}, and there are data"


@rule(
    "SEEK-FROM-END",
    v42="RFC 7862 15.11.3",
    over={"DATA": DATA_AT, "HOLE": HOLE_AT},
    kills=("seek-end-begin",),
)
def test_seek_from_the_end_finds_nothing_before_it(nfs, here, what):
    sparse = sparse_file(nfs, here.handle)
    done = seek(sparse, SIZE, what)
    if done.status != nfsstat4.NFS4ERR_NXIO:
        found = ok(done)["SEEK"]
        assert found.sr_eof, f"SEEK from the end of the file is not at the end, but at {found.sr_offset}"
        assert found.sr_offset >= SIZE
