"""Directories and names: CREATE, LINK, RENAME, REMOVE, SECINFO, component names."""

from __future__ import annotations

import itertools
import time

import pytest

from storagetest.suites.conformance.nfs4.kinds import KINDS, supported
from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.harness import entries, values
from storagetest.wire.nfs4.operations import (
    GETFH,
    SAVEFH,
    create,
    getattr_,
    link,
    lookup,
    op,
    putfh,
    remove,
    rename,
)
from storagetest.wire.nfs4.types import (
    FATTR4_CHANGE,
    FATTR4_FILEID,
    FATTR4_LINK_SUPPORT,
    FATTR4_MAXNAME,
    FATTR4_MODE,
    FATTR4_RAWDEV,
    FATTR4_SYMLINK_SUPPORT,
    FATTR4_TYPE,
    SECINFO4args,
    nfs_ftype4,
    nfsstat4,
    specdata4,
)
from storagetest.wire.rpc.types import auth_flavor

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

TICK = 2.5
"""Seconds in which the clock of every file system has a new value: some count seconds (chosen)."""


@rule("CREATE-TYPE", "16.4.4", "18.4.3", kills=("attr-type",), over=KINDS)
def test_a_file_of_each_type_is_created(nfs, here, what):
    made = nfs.compound(putfh(here.handle), create(b"made", what), GETFH, getattr_(FATTR4_TYPE))
    if what == nfs_ftype4.NF4LNK:
        here.optional(made, FATTR4_SYMLINK_SUPPORT)
    done = ok(supported(made, what))
    assert values(done)[FATTR4_TYPE] == what
    assert here.find(b"made") == done["GETFH"].object, "18.4.3: the current filehandle is the new object"


@rule("CREATE-DEVICE", "16.4.4", "18.4.3", kills=("create-device",), after=("CREATE-TYPE-CHR",))
def test_a_device_keeps_its_numbers(nfs, here):
    kind = nfs_ftype4.NF4CHR
    made = create(b"made", kind, device=specdata4(11, 12))
    done = ok(supported(nfs.compound(putfh(here.handle), made, getattr_(FATTR4_RAWDEV)), kind))
    numbers = values(done)
    if FATTR4_RAWDEV not in numbers:
        pytest.skip("the server has no attribute rawdev")
    assert numbers[FATTR4_RAWDEV] == specdata4(11, 12)


@rule(
    "CREATE-REG", "16.4.4", "18.4.3", kills=("create-badtype",), over={"REG": 1, "ATTRDIR": 8, "NAMEDATTR": 9}
)
def test_a_regular_file_is_not_created_by_create(nfs, here, what):
    done = nfs.compound(putfh(here.handle), create(b"made", nfs_ftype4(what)))
    refused(done, nfsstat4.NFS4ERR_BADTYPE)


@rule("CREATE-EXIST", "16.4.4", "18.4.3", kills=("create-exist",), over=KINDS, after=("CREATE-TYPE-{}",))
def test_a_name_that_exists_is_not_created_again(nfs, here, what):
    here.file(b"made")
    refused(supported(nfs.compound(putfh(here.handle), create(b"made", what)), what), nfsstat4.NFS4ERR_EXIST)


@rule("CREATE-NOTDIR", "16.4.4", "18.4.3", kills=("create-notdir",))
def test_nothing_is_created_in_a_file(nfs, here):
    refused(nfs.compound(putfh(here.file()), create(b"made")), nfsstat4.NFS4ERR_NOTDIR)


@rule("CREATE-MODE", "16.4.4", "18.4.3", kills=("create-mode",))
def test_a_directory_has_the_mode_of_create(nfs, here):
    done = ok(
        nfs.compound(putfh(here.handle), create(b"made", values={FATTR4_MODE: 0o711}), getattr_(FATTR4_MODE))
    )
    assert values(done)[FATTR4_MODE] == 0o711


def cinfo_holds(here, change, *, arrange=lambda _name: None):
    """Check change_info4 of ``change(name)`` against the directory's change attribute before and after.

    Each ``name`` is arranged by ``arrange(name)``. It is repeated until the two values differ: they are equal
    within a tick of some servers' clocks.
    """
    until = time.monotonic() + TICK
    for number in itertools.count():
        arrange(b"made-%d" % number)
        before = here.read(here.handle, FATTR4_CHANGE)[FATTR4_CHANGE]
        found = change(b"made-%d" % number).cinfo
        after = here.read(here.handle, FATTR4_CHANGE)[FATTR4_CHANGE]
        if found.atomic:
            assert (found.before, found.after) == (before, after), "atomic: both are those of the operation"
        if found.before != found.after:
            return
        assert time.monotonic() < until, "the directory was changed"


@rule("CINFO-CREATE", "16.4.4", "18.4.3", kills=("cinfo",))
def test_create_reports_the_change_of_the_directory(nfs, here):
    cinfo_holds(here, lambda name: ok(nfs.compound(putfh(here.handle), create(name)))["CREATE"])


@rule("CINFO-REMOVE", "16.26.4", "18.25.3", kills=("cinfo",))
def test_remove_reports_the_change_of_the_directory(nfs, here):
    cinfo_holds(
        here,
        lambda name: ok(nfs.compound(putfh(here.handle), remove(name)))["REMOVE"],
        arrange=here.directory,
    )


@rule("REMOVE-TYPE", "16.26.4", "18.25.3", kills=("remove-ignored",), over=KINDS, after=("CREATE-TYPE-{}",))
def test_a_file_of_each_type_is_removed(nfs, here, what):
    here.other(b"made", what)
    ok(nfs.compound(putfh(here.handle), remove(b"made")))
    refused(nfs.compound(putfh(here.handle), lookup(b"made")), nfsstat4.NFS4ERR_NOENT)


@rule("REMOVE-NOENT", "16.26.4", "18.25.3", kills=("remove-noent",))
def test_an_absent_name_is_not_removed(nfs, here):
    refused(nfs.compound(putfh(here.handle), remove(b"absent")), nfsstat4.NFS4ERR_NOENT)


@rule("REMOVE-NOTDIR", "16.26.4", "18.25.3", kills=("remove-notdir",))
def test_nothing_is_removed_from_a_file(nfs, here):
    refused(nfs.compound(putfh(here.file()), remove(b"a")), nfsstat4.NFS4ERR_NOTDIR)


@rule("REMOVE-NOTEMPTY", "16.26.4", "18.25.3", kills=("remove-notempty",))
def test_a_directory_with_entries_is_not_removed(nfs, here):
    directory = here.directory()
    ok(nfs.compound(putfh(directory), create(b"inside")))
    refused(nfs.compound(putfh(here.handle), remove(b"directory")), nfsstat4.NFS4ERR_NOTEMPTY)


def renamed(nfs, here, old, new, to=None):
    """RENAME within the case's directory, or to another."""
    return nfs.compound(
        putfh(here.handle), SAVEFH, putfh(here.handle if to is None else to), rename(old, new)
    )


@rule("RENAME-01", "16.27.4", "18.26.3", kills=("rename-ignored",))
def test_a_file_is_renamed(nfs, here):
    handle = here.file(b"old")
    ok(renamed(nfs, here, b"old", b"new"))
    assert here.find(b"new") == handle
    refused(nfs.compound(putfh(here.handle), lookup(b"old")), nfsstat4.NFS4ERR_NOENT)


@rule("RENAME-02", "16.27.4", "18.26.3", kills=("rename-ignored",))
def test_a_file_is_moved_to_another_directory(nfs, here):
    handle, directory = here.file(b"old"), here.directory()
    ok(renamed(nfs, here, b"old", b"new", directory))
    assert here.read(here.find(b"new", directory), FATTR4_FILEID) == here.read(handle, FATTR4_FILEID)


@rule("RENAME-REPLACE", "16.27.4", "18.26.3", kills=("rename-ignored",))
def test_an_existing_file_is_replaced(nfs, here):
    handle, _ = here.file(b"old"), here.file(b"new")
    ok(renamed(nfs, here, b"old", b"new"))
    assert here.read(here.find(b"new"), FATTR4_FILEID) == here.read(handle, FATTR4_FILEID)
    assert [one.name for one in entries(nfs, here.handle)] == [b"new"]


@rule("RENAME-NOENT", "16.27.4", "18.26.3", kills=("rename-noent",))
def test_an_absent_name_is_not_renamed(nfs, here):
    refused(renamed(nfs, here, b"absent", b"new"), nfsstat4.NFS4ERR_NOENT)


@rule("RENAME-NOTEMPTY", "16.27.4", "18.26.3", kills=("rename-exist",))
def test_a_directory_with_entries_is_not_replaced(nfs, here):
    here.directory(b"old")
    ok(nfs.compound(putfh(here.directory(b"new")), create(b"inside")))
    refused(renamed(nfs, here, b"old", b"new"), nfsstat4.NFS4ERR_EXIST, nfsstat4.NFS4ERR_NOTEMPTY)


@rule(
    "RENAME-EXIST",
    "16.27.4",
    "18.26.3",
    no_mutant_reason="NFS-Ganesha breaks this rule itself",
    over={"FILE": ("file", "directory"), "DIR": ("directory", "file")},
)
def test_a_file_and_a_directory_do_not_replace_each_other(nfs, here, what):
    getattr(here, what[0])(b"old")
    getattr(here, what[1])(b"new")
    refused(renamed(nfs, here, b"old", b"new"), nfsstat4.NFS4ERR_EXIST)


@rule("RENAME-SAME", "16.27.4", "18.26.3", kills=("rename-same",))
def test_a_rename_to_another_link_of_the_file_does_nothing(nfs, here):
    here.file(b"old")
    done = nfs.compound(putfh(here.find(b"old")), SAVEFH, putfh(here.handle), link(b"new"))
    ok(here.optional(done, FATTR4_LINK_SUPPORT))
    ok(renamed(nfs, here, b"old", b"new"))
    assert {one.name for one in entries(nfs, here.handle)} == {b"old", b"new"}


@rule("RENAME-INTO", "16.27.4", "18.26.3", kills=("rename-inval",))
def test_a_directory_is_not_moved_into_itself(nfs, here):
    directory = here.directory(b"old")
    refused(renamed(nfs, here, b"old", b"inside", directory), nfsstat4.NFS4ERR_INVAL)


@rule("RENAME-NOTDIR", "16.27.4", "18.26.3", kills=("rename-notdir",))
def test_nothing_is_moved_into_a_file(nfs, here):
    here.file(b"old")
    refused(renamed(nfs, here, b"old", b"new", here.file(b"target")), nfsstat4.NFS4ERR_NOTDIR)


@rule("LINK-01", "16.9.4", "18.9.3", kills=("link-ignored",))
def test_a_link_is_the_same_file(nfs, here):
    handle = here.file()
    done = nfs.compound(putfh(handle), SAVEFH, putfh(here.handle), link(b"second"))
    ok(here.optional(done, FATTR4_LINK_SUPPORT))
    assert here.read(here.find(b"second"), FATTR4_FILEID) == here.read(handle, FATTR4_FILEID)


@rule("LINK-EXIST", "16.9.4", "18.9.3", kills=("link-exist",))
def test_a_link_replaces_nothing(nfs, here):
    handle, _ = here.file(), here.file(b"second")
    done = nfs.compound(putfh(handle), SAVEFH, putfh(here.handle), link(b"second"))
    refused(here.optional(done, FATTR4_LINK_SUPPORT), nfsstat4.NFS4ERR_EXIST)


@rule("LINK-ISDIR", "16.9.4", "18.9.3", kills=("link-isdir",))
def test_a_directory_has_no_link(nfs, here):
    done = nfs.compound(putfh(here.directory()), SAVEFH, putfh(here.handle), link(b"second"))
    refused(done, nfsstat4.NFS4ERR_ISDIR, nfsstat4.NFS4ERR_NOTSUPP)


@rule("LINK-NOTDIR", "16.9.4", "18.9.3", kills=("link-notdir",))
def test_nothing_is_linked_in_a_file(nfs, here):
    handle = here.file()
    done = nfs.compound(putfh(handle), SAVEFH, putfh(here.file(b"other")), link(b"second"))
    refused(here.optional(done, FATTR4_LINK_SUPPORT), nfsstat4.NFS4ERR_NOTDIR)


def named(name):
    """Return an operation with a name, by the operation's name."""
    return {
        "LOOKUP": lookup(name), "CREATE": create(name), "REMOVE": remove(name), "LINK": link(name),
        "RENAME-OLD": rename(name, b"new"), "RENAME-NEW": rename(b"file", name),
    }  # fmt: skip


@rule("NAME-EMPTY", "12.7", "14.5", kills=("name-inval",), over={name: name for name in named(b"")})
def test_a_name_of_zero_length_is_invalid(nfs, here, what):
    done = nfs.compound(putfh(here.file()), SAVEFH, putfh(here.handle), named(b"")[what])
    if what.startswith("RENAME"):
        done = nfs.compound(putfh(here.handle), SAVEFH, putfh(here.handle), named(b"")[what])
    refused(done, nfsstat4.NFS4ERR_INVAL)


def longest(facts) -> int:
    """Return maxname; skip if the server has no such attribute."""
    if FATTR4_MAXNAME not in facts.limits:
        pytest.skip("the server has no attribute maxname")
    return facts.limits[FATTR4_MAXNAME]


@rule("NAME-LONG", "12.7", "14.5", kills=("name-toolong",), over={name: name for name in named(b"")})
def test_a_name_over_maxname_is_too_long(nfs, here, facts, what):
    long = named(b"x" * (longest(facts) + 1))[what]
    here.file()
    saved = here.handle if what.startswith("RENAME") else here.find(b"file")
    refused(nfs.compound(putfh(saved), SAVEFH, putfh(here.handle), long), nfsstat4.NFS4ERR_NAMETOOLONG)


@rule(
    "NAME-LONGEST",
    "5.8.2.15",
    "5.8.2.26",
    no_mutant_reason="NFS-Ganesha breaks this rule itself, over a file system with shorter names",
)
def test_a_name_of_maxname_bytes_is_accepted(nfs, here, facts):
    name = b"x" * min(longest(facts), 4096)
    ok(nfs.compound(putfh(here.handle), create(name)))
    assert [one.name for one in entries(nfs, here.handle)] == [name]


@rule("NAME-DOT", "12.7", "14.5", kills=("create-badname",), over={"1": b".", "2": b".."})
def test_dot_and_dot_dot_are_not_created(nfs, here, what):
    bad = nfsstat4.NFS4ERR_BADNAME, nfsstat4.NFS4ERR_INVAL, nfsstat4.NFS4ERR_EXIST
    refused(nfs.compound(putfh(here.handle), create(what)), *bad)


@rule(
    "NAME-UTF8",
    "12.7",
    "14.5",
    kills=("readdir-name",),
    over={"LATIN": "Größe".encode(), "CJK": "保存".encode()},
)
def test_a_utf8_name_is_kept(nfs, here, what):
    ok(nfs.compound(putfh(here.handle), create(what)))
    assert [one.name for one in entries(nfs, here.handle)] == [what]
    ok(nfs.compound(putfh(here.handle), lookup(what)))


@rule("NAME-NOT-UTF8", "12.7", "14.5", level="SHOULD", kills=("create-not-utf8",))
def test_a_name_that_is_not_utf8_is_refused_or_kept(nfs, here, observe):
    done = refused(
        nfs.compound(putfh(here.handle), create(b"\xff\xfe")), nfsstat4.NFS4_OK, nfsstat4.NFS4ERR_INVAL
    )
    observe(done.status.name)
    names = [one.name for one in entries(nfs, here.handle)]
    assert names == ([b"\xff\xfe"] if done.status == nfsstat4.NFS4_OK else [])


@rule("SECINFO-01", "16.31.4", "18.29.3", kills=("secinfo-empty",))
def test_secinfo_lists_the_flavor_that_the_suite_uses(nfs, here):
    here.file()
    found = ok(nfs.compound(putfh(here.handle), op("SECINFO", SECINFO4args(b"file"))))["SECINFO"]
    assert auth_flavor.AUTH_SYS in [one.flavor for one in found]


@rule("SECINFO-02", "16.31.4", "18.29.3", kills=("secinfo-noent",))
def test_secinfo_of_an_absent_name_is_refused(nfs, here):
    refused(nfs.compound(putfh(here.handle), op("SECINFO", SECINFO4args(b"absent"))), nfsstat4.NFS4ERR_NOENT)


@rule(
    "SECINFO-03",
    "",
    "18.29.3",
    kills=(
        "secinfo-keeps-handle",
        "secinfo-keeps",
    ),
)
def test_secinfo_consumes_the_current_filehandle(nfs, here):
    here.file()
    done = nfs.compound(putfh(here.handle), op("SECINFO", SECINFO4args(b"file")), GETFH)
    refused(done, nfsstat4.NFS4ERR_NOFILEHANDLE)
