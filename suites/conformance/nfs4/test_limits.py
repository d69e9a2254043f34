"""What fits is kept whole: long names, wide owners, upper bits of a mode, nanoseconds (RFC 7530, RFC 8881).

And what several have in common: groups of a caller, cookies inside a reply, clients of two minor versions.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.sparse import content, served, size_of
from storagetest.wire.nfs4.attributes import encode_attributes, numbers_of
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.harness import entries
from storagetest.wire.nfs4.operations import (
    GETFH,
    LOOKUPP,
    READLINK,
    SAVEFH,
    access,
    create,
    guarded,
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
    ACCESS4_EXECUTE,
    ACCESS4_READ,
    FATTR4_ARCHIVE,
    FATTR4_FILEID,
    FATTR4_HIDDEN,
    FATTR4_MAXFILESIZE,
    FATTR4_MAXNAME,
    FATTR4_MODE,
    FATTR4_OWNER,
    FATTR4_OWNER_GROUP,
    FATTR4_SIZE,
    FATTR4_SYMLINK_SUPPORT,
    FATTR4_SYSTEM,
    FATTR4_TIME_DELTA,
    FATTR4_TIME_MODIFY,
    FATTR4_TIME_MODIFY_SET,
    OPEN4_SHARE_DENY_WRITE,
    ALLOCATE4args,
    DEALLOCATE4args,
    NVERIFY4args,
    SECINFO4args,
    SEEK4args,
    VERIFY4args,
    data_content4,
    nfs_ftype4,
    nfsstat4,
    nfstime4,
    settime4,
    time_how4,
)
from storagetest.wire.rpc import auth_sys

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

# Names

LONG = 255
"""Bytes of a long name: as long as those of most file systems can be (chosen)."""

USES = {
    "LOOKUP": ("old",),
    "SECINFO": ("old",),
    "CREATE": ("old", "new"),
    "REMOVE": (),
    "RENAME": ("new",),
    "LINK": ("old", "new"),
}
"""Operations with a name, and the names that the directory has afterwards."""


@rule(
    "NAME-WHOLE",
    "5.8.2.15",
    "5.8.2.19",
    over={name: name for name in USES},
    kills=("names-254",),
)
def test_every_operation_takes_a_name_that_open_takes(nfs, here, facts, what):
    """Maxname is the longest name that the server supports, whatever operation has it."""
    length = min(LONG, facts.limits.get(FATTR4_MAXNAME, LONG))
    old, new = b"a" * length, b"b" * length
    made = StateOwner(here.nfs).try_open(here.handle, old, how=guarded({FATTR4_MODE: 0o644}))
    if made.status == nfsstat4.NFS4ERR_NAMETOOLONG:
        pytest.skip(f"the file system has no names of {length} bytes (NFS4ERR_NAMETOOLONG)")
    ok(made)
    place = putfh(here.handle)
    operations = {
        "LOOKUP": (place, lookup(old)),
        "SECINFO": (place, op("SECINFO", SECINFO4args(old))),
        "CREATE": (place, create(new)),
        "REMOVE": (place, remove(old)),
        "RENAME": (place, SAVEFH, rename(old, new)),
        "LINK": (putfh(here.find(old)), SAVEFH, place, link(new)),
    }
    ok(nfs.compound(*operations[what]))
    found = {one.name for one in entries(here.nfs, here.handle)}
    assert found == {{"old": old, "new": new}[one] for one in USES[what]}


@rule(
    "READDIR-HIDDEN",
    "16.24.4",
    "18.23.3",
    over={"DOT": b".hidden", "DOTS": b"..more", "BLANK": b" a b ", "SIGNS": b"*?[;]\\'\"\n"},
    kills=("readdir-hides",),
)
def test_a_name_is_listed_whatever_its_bytes_are(nfs, here, what):
    """READDIR returns the entries of the directory; "." and ".." alone are none."""
    done = here.nfs.compound(putfh(here.handle), create(what))
    if done.status in (nfsstat4.NFS4ERR_BADCHAR, nfsstat4.NFS4ERR_BADNAME, nfsstat4.NFS4ERR_INVAL):
        pytest.skip(f"the server makes no such name ({done.status.name})")
    ok(done)
    here.file(b"plain")
    assert {one.name for one in entries(nfs, here.handle)} == {what, b"plain"}


TEXTS = {str(one): one for one in (1024, 2000, 4000)}


@rule("SYMLINK-WHOLE", "16.4.4", "18.4.3", over=TEXTS, kills=("symlink-1023",))
def test_a_text_of_a_link_is_kept_whole_or_refused(nfs, here, what):
    text = (b"directory/" * 400)[: what - 1] + b"x"
    done = nfs.compound(putfh(here.handle), create(b"link", nfs_ftype4.NF4LNK, text=text), GETFH)
    if done.status in (nfsstat4.NFS4ERR_NAMETOOLONG, nfsstat4.NFS4ERR_NOSPC, nfsstat4.NFS4ERR_INVAL):
        pytest.skip(f"the server has no symbolic link of {what} bytes ({done.status.name})")
    link_ = ok(here.optional(done, FATTR4_SYMLINK_SUPPORT))["GETFH"].object
    assert ok(nfs.compound(putfh(link_), READLINK))["READLINK"].link == text
    assert here.read(link_, FATTR4_SIZE) == {FATTR4_SIZE: what}


# Attributes


@rule(
    "SETATTR-OWNERS",
    "5.9",
    "5.9",
    over={"65539": 65_539, "2000000001": 2_000_000_001, "4000000001": 4_000_000_001},
    kills=("owners-16",),
)
def test_an_owner_that_is_set_is_returned(nfs, here, what):
    """A number may stand for an owner without a name; a server may refuse it (NFS4ERR_BADOWNER)."""
    handle = here.file()
    new = {FATTR4_OWNER: b"%d" % what, FATTR4_OWNER_GROUP: b"%d" % (what + 1)}
    done = nfs.compound(putfh(handle), setattr_(new))
    if done.status != nfsstat4.NFS4_OK:
        refused(done, nfsstat4.NFS4ERR_BADOWNER, nfsstat4.NFS4ERR_INVAL, nfsstat4.NFS4ERR_PERM)
        pytest.skip(f"the server does not set the owner {what} ({done.status.name})")
    found = here.read(handle, *new)
    if not all(value.isdigit() for value in found.values()):
        pytest.skip(f"the server has names for the owner and the group {what}: {found}")
    assert found == new


MODES = {
    "OPEN-4755": ("OPEN", 0o4755),
    "OPEN-2755": ("OPEN", 0o2755),
    "DIR-1777": ("DIR", 0o1777),
}


@rule("MADE-MODE", "16.16.4", "18.16.3", over=MODES, kills=("made-mode-777",))
def test_the_upper_bits_of_an_initial_mode_are_set_if_so_stated(nfs, here, what):
    """Attrset has the attributes that were set: a mode in it is the one that was asked for."""
    kind, mode = what
    if kind == "OPEN":
        made = StateOwner(nfs).open(here.handle, b"made", how=guarded({FATTR4_MODE: mode})).done["OPEN"]
    else:
        done = nfs.compound(
            putfh(here.handle), create(b"made", nfs_ftype4[f"NF4{kind}"], {FATTR4_MODE: mode})
        )
        if done.status in (nfsstat4.NFS4ERR_BADTYPE, nfsstat4.NFS4ERR_NOTSUPP):
            pytest.skip(f"the server makes no {kind} ({done.status.name})")
        made = ok(done)["CREATE"]
    if FATTR4_MODE not in numbers_of(made.attrset):
        pytest.skip("the server states that it has set no mode")
    found = here.read(here.find(b"made"), FATTR4_MODE)[FATTR4_MODE]
    assert found == mode, f"the mode is {found:o}, and {mode:o} was stated as set"


@rule("OPEN-NEW-SIZE", "16.16.4", "18.16.3", kills=("open-new-size",))
def test_a_file_that_open_makes_has_the_size_that_it_states(here, owner):
    """Attrset has the attributes that were set: a size in it is the one that was asked for."""
    opened = owner.open(here.handle, b"new", how=guarded({FATTR4_MODE: 0o644, FATTR4_SIZE: 5000}))
    if FATTR4_SIZE not in numbers_of(opened.done["OPEN"].attrset):
        pytest.skip("the server states that it has set no size")
    assert here.read(opened.handle, FATTR4_SIZE) == {FATTR4_SIZE: 5000}
    opened.close()


@rule(
    "SETATTR-EXACT",
    "5.8.2.37",
    "5.8.2.41",
    over={"123456789": 123_456_789, "999999999": 999_999_999},
    level="SHOULD",
    kills=("set-times-usec",),
)
def test_a_time_is_set_as_exactly_as_time_delta_states(nfs, here, facts, what):
    """time_delta is the smallest useful granularity of the server; one file system may be coarser."""
    if FATTR4_TIME_DELTA not in facts.supported[nfs.minor]:
        pytest.skip("the server does not support time_delta")
    handle, then = here.file(), nfstime4(1_234_567_890, what)
    delta = here.read(handle, FATTR4_TIME_DELTA)[FATTR4_TIME_DELTA]
    new = {FATTR4_TIME_MODIFY_SET: settime4(time_how4.SET_TO_CLIENT_TIME4, then)}
    ok(nfs.compound(putfh(handle), setattr_(new)))
    found = here.read(handle, FATTR4_TIME_MODIFY)[FATTR4_TIME_MODIFY]
    off = abs((found.seconds - then.seconds) * 10**9 + found.nseconds - then.nseconds)
    exact = delta.seconds * 10**9 + delta.nseconds
    assert off < max(exact, 100), f"time_modify is {off} ns off, and time_delta is {exact} ns"


COMPARED = {"VERIFY": VERIFY4args, "NVERIFY": NVERIFY4args}


@rule(
    "VERIFY-UNSUPPORTED",
    "16.35.4",
    "18.31.3",
    over={name: name for name in COMPARED},
    kills=("verify-unsupported",),
)
def test_an_attribute_that_is_not_supported_is_not_compared(nfs, here, facts, version, what):
    """VERIFY ends with NFS4ERR_ATTRNOTSUPP then, and so does NVERIFY (18.15.3)."""
    values = {FATTR4_HIDDEN: True, FATTR4_ARCHIVE: True, FATTR4_SYSTEM: True}
    missing = {one: true for one, true in values.items() if one not in facts.supported[version]}
    if not missing:
        pytest.skip("the server supports every attribute that the case compares")
    compared = op(what, COMPARED[what](encode_attributes(missing)))
    refused(nfs.compound(putfh(here.file()), compared), nfsstat4.NFS4ERR_ATTRNOTSUPP)


@rule(
    "MADE-UNSUPPORTED",
    "16.4.4",
    "18.4.3",
    over={"DIR": "CREATE", "FILE": "OPEN"},
    kills=("made-unsupported",),
)
def test_nothing_is_made_with_an_attribute_that_is_not_supported(nfs, here, facts, version, what):
    """The initial attributes are set as by SETATTR (18.30.3): NFS4ERR_ATTRNOTSUPP, and no object."""
    missing = [one for one in (FATTR4_HIDDEN, FATTR4_ARCHIVE) if one not in facts.supported[version]]
    if not missing:
        pytest.skip("the server supports every attribute that the case sets")
    new = {missing[0]: True}
    if what == "CREATE":
        done = nfs.compound(putfh(here.handle), create(b"made", values=new))
    else:
        done = StateOwner(nfs).try_open(here.handle, b"made", how=guarded(new))
    refused(done, nfsstat4.NFS4ERR_ATTRNOTSUPP)
    assert not list(entries(here.nfs, here.handle)), "the object was made all the same"


@rule("SECINFO-NOTDIR", "16.31.4", "18.29.3", kills=("secinfo-notdir-status",))
def test_secinfo_in_a_file_is_refused(nfs, here):
    """The current filehandle is a directory in which the name is looked up."""
    done = nfs.compound(putfh(here.file()), op("SECINFO", SECINFO4args(b"name")))
    refused(done, nfsstat4.NFS4ERR_NOTDIR)


@pytest.mark.exclusive  # after a write that ext4 refuses, Linux's server has another write verifier for all
@rule("WRITE-FBIG", "16.36.4", "18.32.3", kills=("write-fbig-status",))
def test_a_write_past_the_largest_file_is_refused(here, owner, facts):
    """Maxfilesize is the largest file that the file system supports (5.8.2)."""
    most = facts.limits.get(FATTR4_MAXFILESIZE, 0)
    if not 0 < most < (1 << 64) - 16:
        pytest.skip(f"maxfilesize is {most}: no offset is larger")
    opened = owner.open(here.handle, b"new", how=guarded({FATTR4_MODE: 0o644}))
    done = opened.on(write(opened.stateid, most + 1, b"data"))
    refused(done, nfsstat4.NFS4ERR_FBIG, nfsstat4.NFS4ERR_INVAL)
    assert here.read(opened.handle, FATTR4_SIZE) == {FATTR4_SIZE: 0}
    opened.close()


# Access

EXECUTE = {"NONE": (0o444, 0), "ALONE": (0o111, ACCESS4_EXECUTE)}
"""Modes of a file, and whether a user may execute it."""


@rule("ACCESS-EXECUTE", "16.1.4", "18.1.3", over=EXECUTE, kills=("access-execute-read",))
def test_access_to_execute_is_not_access_to_read(bench, version, here, what):
    mode, wanted = what
    nfs = bench.client(version, cred=auth_sys(4242, 4242))
    found = ok(nfs.compound(putfh(here.file(mode=mode)), access(ACCESS4_EXECUTE)))["ACCESS"]
    if not found.supported & ACCESS4_EXECUTE:
        pytest.skip("the server does not determine ACCESS4_EXECUTE (supported)")
    assert found.access == wanted, f"access to a file of mode {mode:o} is {found.access:#x}"


GROUPS = tuple(range(4101, 4117))
"""As many groups as a credential of AUTH_SYS can have."""


@rule(
    "ACCESS-GROUPS",
    "16.1.4",
    "18.1.3",
    over={"9": 9, "16": 16},
    no_mutant_reason="the proxy of NFSv4 changes no credential; a mutant of NFSv3 does (groups-eight)",
)
def test_each_group_of_a_credential_gives_access(bench, version, here, what):
    """Rights are those of the user as the credential identifies it: with up to 16 groups (RFC 5531 A)."""
    member, files = bench.client(version, cred=auth_sys(4001, 4001, GROUPS)), {}
    for at in (1, what):
        files[at] = here.file(b"file-%d" % at, mode=0o640)
        new = {FATTR4_OWNER_GROUP: b"%d" % GROUPS[at - 1], FATTR4_MODE: 0o640}
        done = here.nfs.compound(putfh(files[at]), setattr_(new))
        if done.status != nfsstat4.NFS4_OK:
            pytest.skip(f"the group of a file is not set by a number ({done.status.name})")

    def granted(at):
        return ok(member.compound(putfh(files[at]), access(ACCESS4_READ)))["ACCESS"].access

    if granted(1) != ACCESS4_READ:
        pytest.skip("the groups of a credential give no access: the server takes them from elsewhere")
    assert granted(what) == ACCESS4_READ, f"group {what} of 16 gives no access, and the first does"


# Directories


@rule("LOOKUPP-RENAMED", "16.14.4", "18.14.3", kills=("lookupp-first",))
def test_the_parent_of_a_directory_that_was_moved_is_its_new_one(nfs, here):
    first, second = here.directory(b"first"), here.directory(b"second")
    ok(here.nfs.compound(putfh(first), create(b"moved"), setattr_({FATTR4_MODE: 0o755})))
    for old, new in ((first, second), (second, first)):
        moved = here.find(b"moved", old)
        found = ok(nfs.compound(putfh(moved), LOOKUPP, GETFH))["GETFH"].object
        assert here.read(found, FATTR4_FILEID) == here.read(old, FATTR4_FILEID)
        ok(here.nfs.compound(putfh(old), SAVEFH, putfh(new), rename(b"moved", b"moved")))
        moved = here.find(b"moved", new)
        found = ok(nfs.compound(putfh(moved), LOOKUPP, GETFH))["GETFH"].object
        assert here.read(found, FATTR4_FILEID) == here.read(new, FATTR4_FILEID), (
            "its parent is that of before"
        )


@rule("READDIR-MIDDLE", "16.24.4", "18.23.3", kills=("readdir-cookie-of-last",))
def test_a_listing_goes_on_behind_the_entry_of_any_cookie(nfs, here):
    """The cookie is one that a READDIR returned: that of any entry, and not of the last one alone."""
    here.directories([b"name-%02d" % at for at in range(12)])
    page = ok(nfs.compound(putfh(here.handle), readdir()))["READDIR"]
    names = [one.name for one in page.reply.entries]
    if len(names) < 3:
        pytest.skip(f"a reply has {len(names)} entries, so no cookie is in its middle")
    for at, one in enumerate(page.reply.entries[:-1]):
        again = readdir(cookie=one.cookie, verifier=page.cookieverf)
        found = [each.name for each in ok(nfs.compound(putfh(here.handle), again))["READDIR"].reply.entries]
        assert found, f"there is no entry behind entry {at + 1} of {len(names)}"
        rest = names[at + 1 :]
        assert found[: len(rest)] == rest[: len(found)], f"behind entry {at + 1} of {len(names)}"


# State


@rule("OPEN-RENAMED", "9.1.4", "8.2", kills=("renamed-stateid-bad",))
def test_an_open_file_is_read_and_written_after_its_name_has_changed(nfs, here, owner):
    """A stateid is of an owner and a file, and not of a name."""
    here.file(data=b"0123456789")
    opened = owner.open(here.handle, b"file")
    for old, new in ((b"file", b"second"), (b"second", b"third")):
        ok(nfs.compound(putfh(here.handle), SAVEFH, rename(old, new)))
        assert ok(opened.on(read(opened.stateid, 0, 10)))["READ"].data == b"0123456789"
        ok(opened.on(write(opened.stateid, 0, b"0123456789")))
    opened.close()


@pytest.fixture
def other_minor(facts, version):
    """Return another minor version that the server has; skip if it has one alone."""
    others = [one for one in facts.minors if one != version]
    if not others:
        pytest.skip("the server has one minor version alone")
    return others[0]


@rule("MINORS-LOCK", "16.10.4", "18.10.3", kills=("lock-of-one-minor",))
def test_a_lock_excludes_a_client_of_another_minor_version(bench, here, owner, other_minor):
    """A lock is on the file, whose clients may use different minor versions."""
    here.file(data=b"0123456789")
    held = owner.open(here.handle, b"file")
    ok(held.lock(StateOwner(owner.client, b"holder"), length=4))
    strange = bench.client(other_minor)
    other = StateOwner(strange).open(here.handle, b"file")
    refused(other.test(StateOwner(strange, b"tester"), length=4), nfsstat4.NFS4ERR_DENIED)
    refused(other.lock(StateOwner(strange, b"locker"), length=4), nfsstat4.NFS4ERR_DENIED)
    ok(other.test(StateOwner(strange, b"tester"), offset=4, length=4))
    other.close()


@rule("MINORS-SHARE", "9.9", "9.7", kills=("share-of-one-minor",))
def test_a_share_excludes_a_client_of_another_minor_version(bench, here, owner, other_minor):
    """A share reservation is on the file, whose clients may use different minor versions."""
    here.file(data=b"0123456789")
    held = owner.open(here.handle, b"file", deny=OPEN4_SHARE_DENY_WRITE)
    strange = StateOwner(bench.client(other_minor))
    refused(strange.try_open(here.handle, b"file"), nfsstat4.NFS4ERR_SHARE_DENIED)
    held.close()
    strange.open(here.handle, b"file").close()


# Far offsets

FAR = (1 << 32) + 8192
"""An offset of more than 32 bits, in a block of its own."""


@pytest.fixture
def far(owner, here):
    """Return an open file with a block of data at 8192, and one 4 GiB behind it; skip if it is too large."""
    opened = owner.open(here.handle, b"far", how=guarded({FATTR4_MODE: 0o644}))
    opened.write_all(8192, b"n" * 4096)
    done = opened.on(write(opened.stateid, FAR, b"f" * 4096))
    if done.status in (nfsstat4.NFS4ERR_FBIG, nfsstat4.NFS4ERR_NOSPC, nfsstat4.NFS4ERR_INVAL):
        pytest.skip(f"the file system has no file of 4 GiB ({done.status.name})")
    ok(done)
    opened.write_all(FAR, b"f" * 4096)
    yield opened
    opened.close()


@rule("SEEK-4G", v42="RFC 7862 15.11.3", kills=("seek-32",))
def test_seek_finds_data_and_the_end_at_a_far_offset(far):
    """sr_offset has 64 bits."""
    for what, wanted in (
        (data_content4.NFS4_CONTENT_DATA, FAR),
        (data_content4.NFS4_CONTENT_HOLE, FAR + 4096),
    ):
        asked = op("SEEK", SEEK4args(far.stateid, FAR, what))
        assert ok(served("SEEK", far.on(asked)))["SEEK"].sr_offset == wanted


@rule("DEALLOC-4G", v42="RFC 7862 15.4.3", kills=("deallocate-32",))
def test_a_range_at_a_far_offset_is_deallocated_and_no_other(far):
    """da_offset has 64 bits."""
    ok(served("DEALLOCATE", far.on(op("DEALLOCATE", DEALLOCATE4args(far.stateid, FAR, 4096)))))
    assert content(far, FAR, 4096) == bytes(4096)
    assert content(far, 8192, 4096) == b"n" * 4096


@rule("ALLOC-4G", v42="RFC 7862 15.1.3", kills=("allocate-32",))
def test_a_range_at_a_far_offset_is_allocated(far):
    """aa_offset has 64 bits; a region outside the file sets the size to its end, to the byte."""
    asked = op("ALLOCATE", ALLOCATE4args(far.stateid, FAR + 8192, 1001))
    done = served("ALLOCATE", far.on(asked))
    if done.status == nfsstat4.NFS4ERR_NOSPC:
        pytest.skip("there is no space for 1001 bytes (NFS4ERR_NOSPC)")
    ok(done)
    assert size_of(far) == FAR + 8192 + 1001
