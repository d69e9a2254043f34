"""What clients seldom send, and what a server states after a first look (RFC 7530, RFC 8881).

The public filehandle, directories of named attributes, the current filehandle behind an operation, locks that
may wait, stateids that were freed, and names and attributes that change after they were read.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.suites.conformance.nfs4.kinds import KINDS
from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.opens import open_new
from storagetest.wire.nfs4 import types
from storagetest.wire.nfs4.attributes import decode_attributes, encode_attributes
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.harness import entries, values
from storagetest.wire.nfs4.operations import (
    ANONYMOUS,
    CURRENT,
    GETFH,
    SAVEFH,
    access,
    commit,
    create,
    getattr_,
    link,
    lookup,
    op,
    putfh,
    read,
    readdir,
    remove,
    rename,
    setattr_,
    write,
)
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_FILEHANDLE,
    FATTR4_LINK_SUPPORT,
    FATTR4_MODE,
    FATTR4_NAMED_ATTR,
    FATTR4_NUMLINKS,
    FATTR4_RDATTR_ERROR,
    FATTR4_SIZE,
    FATTR4_SYMLINK_SUPPORT,
    FATTR4_TYPE,
    nfs_ftype4,
    nfs_lock_type4,
    nfsstat4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

PUTPUBFH = op("PUTPUBFH")
READ, WRITE = nfs_lock_type4.READ_LT, nfs_lock_type4.WRITE_LT
READW, WRITEW = nfs_lock_type4.READW_LT, nfs_lock_type4.WRITEW_LT
BAD = nfsstat4.NFS4ERR_BAD_STATEID

# Filehandles


@rule(
    "PUBFH", "16.21.4", "18.20.3", over={"FILE": "file", "DIRECTORY": "directory"}, kills=("putpubfh-keeps",)
)
def test_the_public_filehandle_replaces_the_current_one(nfs, here, what):
    """It is that of a directory, and the same one whatever the current filehandle was."""
    alone = ok(nfs.compound(PUTPUBFH, GETFH, getattr_(FATTR4_TYPE)))
    assert values(alone)[FATTR4_TYPE] == nfs_ftype4.NF4DIR
    found = ok(nfs.compound(putfh(getattr(here, what)()), PUTPUBFH, GETFH))["GETFH"].object
    assert found == alone["GETFH"].object


def named_attributes(nfs, handle, *, make):
    """OPENATTR, and the handle and the type that are current then; skip if the server has none."""
    opened = op("OPENATTR", types.OPENATTR4args(make))
    done = nfs.compound(putfh(handle), opened, GETFH, getattr_(FATTR4_TYPE))
    if done.status == nfsstat4.NFS4ERR_NOTSUPP:
        pytest.skip("the server has no named attributes (NFS4ERR_NOTSUPP)")
    return done


@rule("OPENATTR", "16.17.4", "18.17.3", kills=("openattr-same",))
def test_openattr_goes_to_a_directory_of_named_attributes(nfs, here):
    file = here.file()
    done = ok(named_attributes(nfs, file, make=True))
    assert done["GETFH"].object != file, "the current filehandle is that of the file"
    assert values(done)[FATTR4_TYPE] == nfs_ftype4.NF4ATTRDIR


@rule("OPENATTR-ABSENT", "16.17.4", "18.17.3", kills=("openattr-same",))
def test_openattr_without_createdir_finds_the_directory_or_nothing(nfs, here):
    file = here.file()
    done = named_attributes(nfs, file, make=False)
    if done.status == nfsstat4.NFS4ERR_NOENT:
        assert not here.read(file, FATTR4_NAMED_ATTR)[FATTR4_NAMED_ATTR], (
            "named_attr is TRUE, and none is found"
        )
        return
    assert values(ok(done))[FATTR4_TYPE] == nfs_ftype4.NF4ATTRDIR


@rule("CFH-LINK", "16.9.4", "18.9.3", kills=("link-leaves-file",))
def test_the_target_directory_is_current_after_link(nfs, here):
    done = nfs.compound(putfh(here.file()), SAVEFH, putfh(here.handle), link(b"second"), GETFH)
    assert ok(here.optional(done, FATTR4_LINK_SUPPORT))["GETFH"].object == here.handle


@rule("CFH-RENAME", "16.27.4", "18.26.3", kills=("rename-leaves-source",))
def test_the_target_directory_is_current_after_rename(nfs, here):
    here.file()
    target = here.directory()
    done = ok(nfs.compound(putfh(here.handle), SAVEFH, putfh(target), rename(b"file", b"file"), GETFH))
    assert done["GETFH"].object == target


@rule("CFH-CREATE", "16.4.4", "18.4.3", kills=("create-leaves-parent",))
def test_what_was_made_is_current_after_create(nfs, here):
    done = ok(nfs.compound(putfh(here.handle), create(b"made"), GETFH, getattr_(FATTR4_TYPE)))
    assert done["GETFH"].object == here.find(b"made") != here.handle
    assert values(done)[FATTR4_TYPE] == nfs_ftype4.NF4DIR


KEEP = {
    "REMOVE": (True, remove(b"file")),
    "READDIR": (True, readdir()),
    "ACCESS": (True, access(types.ACCESS4_READ)),
    "SAVEFH": (True, SAVEFH),
    "SETATTR": (False, setattr_({FATTR4_MODE: 0o600})),
    "READ": (False, read(ANONYMOUS, 0, 4)),
    "WRITE": (False, write(ANONYMOUS, 0, b"data")),
    "COMMIT": (False, commit()),
}
"""Operations that leave the current filehandle: whether on a directory, and the operation."""


@rule("CFH-KEPT", "15.2.4", "16.2.3.1.1", over=KEEP, kills=("kept-handle-lost",))
def test_other_operations_keep_the_current_filehandle(nfs, here, what):
    on_directory, operation = what
    file = here.file(data=b"data")
    handle = here.handle if on_directory else file
    done = ok(nfs.compound(putfh(handle), operation, GETFH, getattr_(FATTR4_FILEHANDLE)))
    assert (done["GETFH"].object, values(done)[FATTR4_FILEHANDLE]) == (handle, handle)


# Attributes


@rule("READDIR-RDATTR", "5.8.1.12", "5.8.1.12", kills=("rdattr-error-always",))
def test_an_entry_with_attributes_has_no_error(nfs, here, facts):
    """The value of rdattr_error is NFS4_OK if the other attributes were retrieved."""
    if FATTR4_RDATTR_ERROR not in facts.supported[nfs.minor]:
        pytest.skip("the server lacks rdattr_error")
    kinds = {
        b"file": nfs_ftype4.NF4REG,
        b"directory": nfs_ftype4.NF4DIR,
        b"symlink": nfs_ftype4.NF4LNK,
    }
    here.file()
    here.directory()
    here.symlink()
    numbers = (FATTR4_TYPE, FATTR4_RDATTR_ERROR, FATTR4_NUMLINKS)
    found = {one.name: decode_attributes(one.attrs) for one in entries(nfs, here.handle, numbers=numbers)}
    assert {name: one[FATTR4_TYPE] for name, one in found.items()} == kinds
    for name, one in found.items():
        assert one.get(FATTR4_RDATTR_ERROR, nfsstat4.NFS4_OK) == nfsstat4.NFS4_OK, f"{name!r} has an error"


@rule("ATTR-LINKS", "5.8.1.6", "5.8.1.6", kills=("link-support-false",))
def test_link_support_is_true_if_links_are_made(nfs, here):
    ok(
        here.optional(
            nfs.compound(putfh(here.file()), SAVEFH, putfh(here.handle), link(b"second")), FATTR4_LINK_SUPPORT
        )
    )
    found = values(ok(nfs.compound(putfh(here.handle), getattr_(FATTR4_LINK_SUPPORT))))
    assert found[FATTR4_LINK_SUPPORT], "link_support is FALSE, and LINK succeeds"


@rule("ATTR-SYMLINKS", "5.8.1.7", "5.8.1.7", kills=("symlink-support-false",))
def test_symlink_support_is_true_if_symbolic_links_are_made(nfs, here):
    here.symlink()
    found = values(ok(nfs.compound(putfh(here.handle), getattr_(FATTR4_SYMLINK_SUPPORT))))
    assert found[FATTR4_SYMLINK_SUPPORT], "symlink_support is FALSE, and a symbolic link is made"


@rule("LOOKUP-LATER", "16.13.4", "18.13.3", over={one: one for one in ("CREATE", "RENAME", "LINK")},
      kills=("lookup-negative-kept",), after=("LOOKUP-02", "LOOKUP-LATER-CREATE"))  # fmt: skip
def test_a_name_that_was_not_found_is_found_when_it_was_made(nfs, here, what):
    """A name that another connection makes after a LOOKUP is found by the next LOOKUP."""
    file = here.file()
    refused(nfs.compound(putfh(here.handle), lookup(b"new")), nfsstat4.NFS4ERR_NOENT)
    made = {
        "CREATE": (putfh(here.handle), create(b"new")),
        "RENAME": (putfh(here.handle), SAVEFH, rename(b"file", b"new")),
        "LINK": (putfh(file), SAVEFH, putfh(here.handle), link(b"new")),
    }[what]
    ok(here.optional(here.nfs.compound(*made), FATTR4_LINK_SUPPORT))
    found = ok(nfs.compound(putfh(here.handle), lookup(b"new"), GETFH))["GETFH"].object
    assert what == "CREATE" or found == file


@rule("READDIR-LATER", "16.24.4", "18.23.3", kills=("readdir-attributes-kept",))
def test_a_second_listing_states_the_attributes_of_now(nfs, here):
    file, numbers = here.file(data=b"data"), (FATTR4_SIZE, FATTR4_MODE)
    for size, mode in ((4, 0o644), (100, 0o600), (1, 0o640)):
        ok(here.nfs.compound(putfh(file), setattr_({FATTR4_SIZE: size, FATTR4_MODE: mode})))
        page = ok(nfs.compound(putfh(here.handle), readdir(numbers=numbers)))["READDIR"]
        (entry,) = page.reply.entries
        assert decode_attributes(entry.attrs) == {FATTR4_SIZE: size, FATTR4_MODE: mode}


@rule("LOOKUP-REPLACED", "16.13.4", "18.13.3", over={one: one for one in ("RENAME", "REMOVE")},
      kills=("lookup-positive-kept",), after=("LOOKUP-REPLACED-REMOVE",))  # fmt: skip
def test_a_name_that_was_found_leads_to_the_file_that_replaces_it(nfs, here, what):
    """A LOOKUP finds the file that another connection has put in the place of the first one."""
    looked = putfh(here.handle), lookup(b"name"), GETFH
    first, second = here.file(b"name"), here.file(b"other")
    assert ok(nfs.compound(*looked))["GETFH"].object == first
    if what == "REMOVE":
        ok(here.nfs.compound(putfh(here.handle), remove(b"name")))
        refused(nfs.compound(*looked), nfsstat4.NFS4ERR_NOENT)
    ok(here.nfs.compound(putfh(here.handle), SAVEFH, rename(b"other", b"name")))
    assert ok(nfs.compound(*looked))["GETFH"].object == second


@rule("READDIR-SPECIAL", "16.24.4", "18.23.3", over={name: KINDS[name] for name in ("FIFO", "SOCK", "CHR")},
      kills=("readdir-special-regular",))  # fmt: skip
def test_a_listing_states_the_type_of_a_special_file(nfs, here, what):
    handle = here.other(b"special", what, {FATTR4_MODE: 0o640})
    numbers = (FATTR4_TYPE, FATTR4_MODE, FATTR4_NUMLINKS)
    (entry,) = ok(nfs.compound(putfh(here.handle), readdir(numbers=numbers)))["READDIR"].reply.entries
    found = decode_attributes(entry.attrs)
    assert found == here.read(handle, *numbers)
    assert (found[FATTR4_TYPE], found[FATTR4_MODE]) == (what, 0o640)


OTHERS = {
    "HANDLE": (FATTR4_FILEHANDLE, lambda value: value[:-1] + bytes([value[-1] ^ 1])),
    "CHANGE": (types.FATTR4_CHANGE, lambda value: value ^ 1),
    "FSID": (types.FATTR4_FSID, lambda value: replace(value, major=value.major ^ 1)),
    "FILEID": (types.FATTR4_FILEID, lambda value: value ^ 1),
    "TIME": (types.FATTR4_TIME_MODIFY, lambda value: replace(value, seconds=value.seconds - 1)),
    "LEASE": (types.FATTR4_LEASE_TIME, lambda value: value + 1),
    "LINKS": (FATTR4_LINK_SUPPORT, lambda value: not value),
    "MAXNAME": (types.FATTR4_MAXNAME, lambda value: value - 1),
}
"""Attributes of each kind of value, and another value than a file has."""


def compared(nfs, handle, number, value):
    """Return the status of VERIFY and that of NVERIFY of one attribute."""
    sent = encode_attributes({number: value})
    return [
        nfs.compound(putfh(handle), op(name, argument(sent))).status
        for name, argument in (("VERIFY", types.VERIFY4args), ("NVERIFY", types.NVERIFY4args))
    ]


@rule("VERIFY-KIND", "16.35.4", "18.31.3", over=OTHERS, kills=("verify-some-alone",))
def test_an_attribute_of_any_kind_is_compared(nfs, here, facts, what):
    """VERIFY succeeds with the value that GETATTR states, and not with another one; NVERIFY the contrary."""
    number, other = what
    if number not in facts.supported[nfs.minor]:
        pytest.skip("the server lacks the attribute")
    handle = here.file(data=b"data")
    value = here.read(handle, number)[number]
    same = compared(nfs, handle, number, value)
    assert same == [nfsstat4.NFS4_OK, nfsstat4.NFS4ERR_SAME], f"{same[0].name}, {same[1].name}"
    different = compared(nfs, handle, number, other(value))
    assert different == [nfsstat4.NFS4ERR_NOT_SAME, nfsstat4.NFS4_OK], (
        f"another value: {different[0].name}, {different[1].name}"
    )


# State


@rule(
    "SID-CURRENT-RESET",
    "",
    "16.2.3.1.2",
    over={"PUTFH": "PUTFH", "LOOKUP": "LOOKUP"},
    kills=("putfh-keeps-stateid",),
)
def test_a_filehandle_that_is_set_after_an_open_has_no_current_stateid(nfs, here, owner, what):
    """PUTFH and LOOKUP leave no current stateid, even if the file is the one that was opened."""
    handle = here.file(data=b"data")
    again = (putfh(handle),) if what == "PUTFH" else (putfh(here.handle), lookup(b"file"))
    opened = putfh(here.handle), owner.open_op(b"file"), GETFH
    done = refused(nfs.compound(*opened, *again, read(CURRENT, 0, 4)), BAD)
    owner.opened(done).close()


@rule("FS-AFTER", "", "18.38.3", kills=("free-stateid-stays",))
def test_a_stateid_that_was_freed_is_bad(nfs, here):
    file, locker = open_new(nfs, here.handle), StateOwner(nfs)
    ok(file.lock(locker))
    ok(file.unlock(locker))
    freed = file.locks[locker.name]
    ok(nfs.compound(op("FREE_STATEID", types.FREE_STATEID4args(freed))))
    codes = ok(nfs.compound(op("TEST_STATEID", types.TEST_STATEID4args((freed, file.stateid)))))[
        "TEST_STATEID"
    ]
    assert codes.tsr_status_codes == (BAD, nfsstat4.NFS4_OK)
    refused(nfs.compound(op("FREE_STATEID", types.FREE_STATEID4args(freed))), BAD)
    refused(file.lock(locker), BAD)
    file.close()


@rule("RLO-OTHERS", "16.37", kills=("release-lockowner-others",), after=("RLO-01",))
def test_the_release_of_a_lock_owner_leaves_the_locks_of_others(bench, nfs, here, version):
    file, lockers = open_new(nfs, here.handle), [StateOwner(nfs) for _ in range(2)]
    for at, locker in enumerate(lockers):
        ok(file.lock(locker, WRITE, 10 * at, 10))
    ok(file.unlock(lockers[0], 0, 10))
    ok(nfs.raw(op("RELEASE_LOCKOWNER", types.RELEASE_LOCKOWNER4args(lockers[0].wire))))
    other = open_new(bench.client(version), here.handle)
    refused(other.test(StateOwner(other.client), WRITE, 10, 10), nfsstat4.NFS4ERR_DENIED)
    ok(file.unlock(lockers[1], 10, 10))
    other.close()
    file.close()


@rule("LOCK-WAITING", "16.10.4", "18.10.3", over={"READW": (READW, True), "WRITEW": (WRITEW, False)},
      kills=("lock-waiting-other",))  # fmt: skip
def test_a_lock_that_might_have_waited_excludes_as_others_do(bench, nfs, here, version, what):
    """READW_LT and WRITEW_LT of a range that is free are locks for reading and for writing."""
    kind, shared = what
    file, other = open_new(nfs, here.handle), open_new(bench.client(version), here.handle)
    holder, rival = StateOwner(nfs), StateOwner(other.client)
    ok(file.lock(holder, kind, 0, 10))
    refused(other.test(rival, WRITE, 5, 1), nfsstat4.NFS4ERR_DENIED)
    done = other.lock(rival, READ, 5, 1)
    if shared:
        ok(done)
        ok(other.unlock(rival, 5, 1))
    else:
        refused(done, nfsstat4.NFS4ERR_DENIED)
    ok(file.unlock(holder, 0, 10))
    other.close()
    file.close()


@rule(
    "LOCKT-WAITING",
    "16.11.4",
    "18.11.3",
    over={"READW": READW, "WRITEW": WRITEW},
    kills=("lockt-waiting-free",),
)
def test_a_test_of_a_lock_that_may_wait_is_one_of_any_lock(bench, nfs, here, version, what):
    file, other = open_new(nfs, here.handle), open_new(bench.client(version), here.handle)
    holder, rival = StateOwner(nfs), StateOwner(other.client)
    ok(file.lock(holder, WRITE, 0, 10))
    refused(other.test(rival, what, 5, 1), nfsstat4.NFS4ERR_DENIED)
    ok(other.test(rival, what, 10, 1))
    ok(file.unlock(holder, 0, 10))
    ok(other.test(rival, what, 5, 1))
    other.close()
    file.close()


DENIED = {
    "READ": (types.OPEN4_SHARE_DENY_READ, read(ANONYMOUS, 0, 4)),
    "WRITE": (types.OPEN4_SHARE_DENY_WRITE, write(ANONYMOUS, 0, b"DATA")),
}


@rule("SID-ANONYMOUS-DENY", "9.1.4.3", "8.2.3", over=DENIED, kills=("anonymous-passes",))
def test_the_anonymous_stateid_is_subject_to_share_reservations(bench, here, owner, version, what):
    """An access that an OPEN denies is denied to a request without an OPEN."""
    deny, operation = what
    handle = here.file(data=b"data")
    file = owner.open(here.handle, b"file", access=types.OPEN4_SHARE_ACCESS_BOTH, deny=deny)
    other = bench.client(version)
    denied = nfsstat4.NFS4ERR_LOCKED, nfsstat4.NFS4ERR_SHARE_DENIED, nfsstat4.NFS4ERR_ACCESS
    refused(other.compound(putfh(handle), operation), *denied)
    assert ok(file.on(read(file.stateid, 0, 4)))["READ"].data == b"data"
    file.close()
    ok(other.compound(putfh(handle), operation))
