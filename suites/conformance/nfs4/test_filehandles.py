"""Current and saved filehandles: PUTROOTFH, PUTFH, GETFH, SAVEFH, LOOKUP, LOOKUPP, READLINK."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.stale import assert_stale
from storagetest.wire.nfs4.attributes import encode_attributes
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.harness import values
from storagetest.wire.nfs4.operations import (
    ANONYMOUS,
    GETFH,
    LOOKUPP,
    PUTROOTFH,
    READLINK,
    RESTOREFH,
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
from storagetest.wire.nfs4.types import (
    FATTR4_FILEHANDLE,
    FATTR4_FILEID,
    FATTR4_MODE,
    FATTR4_TYPE,
    NFS4_FHSIZE,
    NVERIFY4args,
    SECINFO4args,
    VERIFY4args,
    nfs_ftype4,
    nfsstat4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

MODE = encode_attributes({FATTR4_MODE: 0o600})


@rule("ROOT-01", "16.22.3", "18.21.3", kills=("root-handle",))
def test_the_root_filehandle_is_that_of_a_directory_and_stays(nfs):
    first, again = (ok(nfs.compound(PUTROOTFH, GETFH, getattr_(FATTR4_TYPE))) for _ in range(2))
    assert first["GETFH"].object == again["GETFH"].object
    assert values(first)[FATTR4_TYPE] == nfs_ftype4.NF4DIR


@rule("GETFH-01", "16.8.4", "18.8.3", kills=("fh-length",))
def test_a_filehandle_has_1_to_128_bytes(nfs, here):
    for handle in (here.handle, here.file(), here.symlink()):
        found = ok(nfs.compound(putfh(handle), GETFH))["GETFH"].object
        assert 1 <= len(found) <= NFS4_FHSIZE


@rule("GETFH-02", "16.20.3", "18.19.3", kills=("getfh-other",))
def test_getfh_returns_the_handle_of_putfh(nfs, here):
    handle = here.file()
    assert ok(nfs.compound(putfh(handle), GETFH))["GETFH"].object == handle


@rule("GETFH-03", "5.8.1.13", "5.8.1.13", kills=("attr-filehandle",))
def test_the_attribute_filehandle_is_that_of_getfh(nfs, here):
    handle = here.file()
    assert values(ok(nfs.compound(putfh(handle), getattr_(FATTR4_FILEHANDLE))))[FATTR4_FILEHANDLE] == handle


@rule(
    "NOFH", "4.2.1", "16.2.3.1.1", kills=("nofilehandle",),
    over={
        "GETFH": GETFH, "GETATTR": getattr_(FATTR4_TYPE), "LOOKUP": lookup(b"a"), "LOOKUPP": LOOKUPP,
        "READDIR": readdir(), "SAVEFH": SAVEFH, "ACCESS": access(1), "READLINK": READLINK,
        "REMOVE": remove(b"a"), "CREATE": create(b"a"), "COMMIT": commit(), "READ": read(ANONYMOUS, 0, 1),
        "WRITE": write(ANONYMOUS, 0, b"a"), "SETATTR": setattr_(MODE),
        "VERIFY": op("VERIFY", VERIFY4args(MODE)),
        "NVERIFY": op("NVERIFY", NVERIFY4args(MODE)), "SECINFO": op("SECINFO", SECINFO4args(b"a")),
        "LINK": link(b"a"), "RENAME": rename(b"a", b"b"),
    },
)  # fmt: skip
def test_an_operation_without_a_current_filehandle_is_refused(nfs, what):
    refused(nfs.compound(what), nfsstat4.NFS4ERR_NOFILEHANDLE)


@rule(
    "NOSAVED",
    "16.9.4",
    "18.9.3",
    kills=("nofilehandle",),
    over={"LINK": link(b"a"), "RENAME": rename(b"a", b"b")},
)
def test_an_operation_without_a_saved_filehandle_is_refused(nfs, here, what):
    refused(nfs.compound(putfh(here.handle), what), nfsstat4.NFS4ERR_NOFILEHANDLE)


@rule("RESTOREFH-01", "16.29.4", "18.27.3", kills=("restorefh-none", "restorefh-nothing"))
def test_restorefh_without_a_saved_filehandle_is_refused(nfs, here, minor):
    expected = nfsstat4.NFS4ERR_NOFILEHANDLE if minor else nfsstat4.NFS4ERR_RESTOREFH
    refused(nfs.compound(putfh(here.handle), RESTOREFH), expected)


@rule("RESTOREFH-02", "16.29.4", "18.27.3", kills=("restorefh-ignored",))
def test_restorefh_makes_the_saved_filehandle_the_current_one(nfs, here):
    handle = here.file()
    done = ok(nfs.compound(putfh(handle), SAVEFH, PUTROOTFH, RESTOREFH, GETFH))
    assert done["GETFH"].object == handle


@rule("SAVEFH-01", "16.30.4", "18.28.3", kills=("restorefh-ignored",))
def test_savefh_replaces_what_was_saved_and_keeps_the_current_one(nfs, here):
    handle = here.file()
    done = ok(nfs.compound(PUTROOTFH, SAVEFH, putfh(handle), SAVEFH, GETFH, PUTROOTFH, RESTOREFH, GETFH))
    first, second = (one.value.value.object for one in done.results if one.resop.name == "OP_GETFH")
    assert (first, second) == (handle, handle)


@rule(
    "BADHANDLE",
    "16.20.4",
    "18.19.3",
    kills=("putfh-badhandle",),
    over={"EMPTY": b"", "SHORT": b"x", "ONES": b"\xff" * 64, "LONGEST": b"\xff" * 128},
)
def test_a_handle_that_no_server_made_is_bad(nfs, what):
    refused(nfs.compound(putfh(what), GETFH), nfsstat4.NFS4ERR_BADHANDLE)


@rule("STALE-01", "4.2.2", "4.2.2", kills=("stale",))
def test_the_handle_of_a_removed_file_is_stale(nfs, here):
    handle = here.file()
    ok(here.nfs.compound(putfh(here.handle), remove(b"file")))
    assert_stale(nfs, handle)


@rule("LOOKUP-01", "16.13.4", "18.13.3", kills=("lookup-other",))
def test_lookup_finds_the_file_of_that_name(nfs, here):
    wanted = {name: here.file(name) for name in (b"one", b"two", b"three", b"four")}
    for name, handle in wanted.items():
        done = ok(nfs.compound(putfh(here.handle), lookup(name), GETFH, getattr_(FATTR4_FILEID)))
        assert done["GETFH"].object == handle
        assert values(done) == here.read(handle, FATTR4_FILEID)


@rule("LOOKUP-02", "16.13.4", "18.13.3", kills=("lookup-noent",))
def test_lookup_of_an_absent_name_finds_nothing(nfs, here):
    refused(nfs.compound(putfh(here.handle), lookup(b"absent")), nfsstat4.NFS4ERR_NOENT)


@rule("LOOKUP-03", "16.13.5", "18.13.3", kills=("lookup-notdir",))
def test_lookup_in_a_file_is_refused(nfs, here):
    refused(nfs.compound(putfh(here.file()), lookup(b"a")), nfsstat4.NFS4ERR_NOTDIR)


@rule("LOOKUP-04", "16.13.5", "18.13.3", kills=("lookup-symlink",))
def test_lookup_in_a_symbolic_link_is_refused(nfs, here):
    refused(nfs.compound(putfh(here.symlink()), lookup(b"a")), nfsstat4.NFS4ERR_SYMLINK)


@rule("LOOKUP-05", "16.13.4", "18.13.3", kills=("lookup-follows",))
def test_lookup_does_not_follow_a_symbolic_link(nfs, here):
    here.symlink(text=b".")
    done = ok(nfs.compound(putfh(here.handle), lookup(b"symlink"), getattr_(FATTR4_TYPE)))
    assert values(done)[FATTR4_TYPE] == nfs_ftype4.NF4LNK


@rule("LOOKUPP-01", "16.14.4", "18.14.3", kills=("lookupp-same",))
def test_lookupp_finds_the_parent(nfs, here):
    done = ok(nfs.compound(putfh(here.directory()), LOOKUPP, GETFH))
    assert done["GETFH"].object == here.handle


@rule("LOOKUPP-02", "16.14.4", "18.14.3", kills=("lookupp-root",))
def test_the_root_has_no_parent(nfs):
    refused(nfs.compound(PUTROOTFH, LOOKUPP), nfsstat4.NFS4ERR_NOENT)


@rule("LOOKUPP-03", "16.14.5", "18.14.3", kills=("lookupp-notdir",))
def test_a_file_has_no_parent(nfs, here):
    refused(nfs.compound(putfh(here.file()), LOOKUPP), nfsstat4.NFS4ERR_NOTDIR)


@rule("READLINK-01", "16.25.4", "18.24.3", kills=("readlink-text",))
def test_readlink_returns_the_text_of_the_link(nfs, here):
    for name, text in ((b"a", b"target"), (b"b", b"/an/absolute/path"), (b"c", b"x" * 255)):
        assert ok(nfs.compound(putfh(here.symlink(name, text)), READLINK))["READLINK"].link == text


@rule("READLINK-02", "16.25.4", "18.24.3", kills=("readlink-file",))
def test_readlink_of_a_file_is_refused(nfs, here):
    wrong = nfsstat4.NFS4ERR_INVAL, nfsstat4.NFS4ERR_WRONG_TYPE
    refused(nfs.compound(putfh(here.file()), READLINK), *wrong)
    refused(nfs.compound(putfh(here.handle), READLINK), *wrong, nfsstat4.NFS4ERR_ISDIR)


@rule("RESTOREFH-AGAIN", "16.29.4", "18.27.3", kills=("restorefh-once",), after=("RESTOREFH-02",))
def test_what_is_saved_is_restored_more_than_once(nfs, here):
    """RESTOREFH leaves the saved filehandle: a second one in the COMPOUND succeeds too."""
    handle = here.file()
    restored = PUTROOTFH, RESTOREFH, GETFH
    done = ok(nfs.compound(putfh(handle), SAVEFH, *restored, *restored))
    found = [one.value.value.object for one in done.results if one.resop.name == "OP_GETFH"]
    assert found == [handle, handle]
