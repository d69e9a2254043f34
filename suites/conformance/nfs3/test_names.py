"""LOOKUP, READLINK, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, LINK (RFC 1813 3.3.3 to 3.3.13, 3.3.15)."""

from __future__ import annotations

import pytest

from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok, refused
from storagetest.wire.nfs3.harness import Nfs3Harness
from storagetest.wire.nfs3.types import LOOKUP3args, createmode3, diropargs3, ftype3, nfsstat3
from storagetest.wire.rpc import auth_sys

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 1813 3.3.3")]

LOOKUP, READLINK = "RFC 1813 3.3.3", "RFC 1813 3.3.5"
CREATE, MKDIR, SYMLINK, MKNOD = (f"RFC 1813 3.3.{number}" for number in (8, 9, 10, 11))
REMOVE, RMDIR, LINK = (f"RFC 1813 3.3.{number}" for number in (12, 13, 15))
GONE = ("stale-accepted", "stale-noent")
FIRST, SECOND = b"verifier", b"another!"


def skip_unsupported(result) -> None:
    """Skip if the server lacks what was called: EXCLUSIVE (3.3.8), SYMLINK (3.3.10), MKNOD (3.3.11), LINK."""
    if result.status == nfsstat3.NFS3ERR_NOTSUPP:
        pytest.skip(f"{type(result).__name__}: the server does not support this (NFS3ERR_NOTSUPP)")


def supported(result):
    """Return the value of a result of such a call."""
    skip_unsupported(result)
    return ok(result)


# LOOKUP


@pytest.mark.case("NF3-LOOKUP-01", kills=("lookup-other",))
def test_a_name_is_looked_up(nfs: Nfs3Client, here) -> None:
    file, _ = here.file(b"a"), here.file(b"b")
    found = ok(nfs.lookup(here.handle, b"a")).object
    assert here.nfs.attributes(found).fileid == here.nfs.attributes(file).fileid


@pytest.mark.case("NF3-LOOKUP-NOENT", kills=("noent-accepted", "noent-other"))
def test_a_name_that_does_not_exist_is_refused(nfs: Nfs3Client, here) -> None:
    refused(nfs.lookup(here.handle, b"absent"), nfsstat3.NFS3ERR_NOENT)


@pytest.mark.case("NF3-LOOKUP-NOTDIR", kills=("notdir-accepted", "notdir-other"))
def test_a_name_in_a_file_is_refused(nfs: Nfs3Client, here) -> None:
    refused(nfs.lookup(here.file(), b"name"), nfsstat3.NFS3ERR_NOTDIR)


@pytest.mark.case("NF3-LOOKUP-DOT", kills=("lookup-dot",))
def test_dot_is_the_directory(nfs: Nfs3Client, here) -> None:
    found = ok(nfs.lookup(here.handle, b".")).object
    assert here.nfs.attributes(found).fileid == here.nfs.attributes(here.handle).fileid


@pytest.mark.case("NF3-LOOKUP-DOTDOT", kills=("lookup-dot",))
def test_dot_dot_is_the_parent(nfs: Nfs3Client, here) -> None:
    found = ok(nfs.lookup(here.directory(), b"..")).object
    assert here.nfs.attributes(found).fileid == here.nfs.attributes(here.handle).fileid


@pytest.mark.case("NF3-LOOKUP-LONG", section="RFC 1813 3.3.20", kills=("long-accepted", "lookup-long-noent"))
def test_a_name_over_name_max_is_refused(nfs: Nfs3Client, here) -> None:
    """Where no_trunc is set, with NFS3ERR_NAMETOOLONG."""
    stated = ok(here.nfs.pathconf(here.handle))
    longest = stated.name_max
    if longest > 4096:
        pytest.skip(f"name_max is {longest}")
    done = nfs.lookup(here.handle, b"n" * (longest + 1))
    other = () if stated.no_trunc else (nfsstat3.NFS3ERR_NOENT,)
    refused(done, nfsstat3.NFS3ERR_NAMETOOLONG, *other)


@pytest.mark.case("NF3-LOOKUP-SYMLINK", kills=("lookup-follows",))
def test_a_symbolic_link_is_not_followed(nfs: Nfs3Client, here) -> None:
    here.file()
    here.symlink(text=b"file")
    assert here.nfs.attributes(ok(nfs.lookup(here.handle, b"symlink")).object).type == ftype3.NF3LNK


@pytest.mark.case("NF3-LOOKUP-CASE", section="RFC 1813 3.3.20", kills=("noent-accepted",))
def test_case_matters_unless_pathconf_states_otherwise(nfs: Nfs3Client, here) -> None:
    if ok(here.nfs.pathconf(here.handle)).case_insensitive:
        pytest.skip("the file system is case-insensitive")
    here.file(b"Name")
    refused(nfs.lookup(here.handle, b"name"), nfsstat3.NFS3ERR_NOENT)


@pytest.mark.case("NF3-LOOKUP-BYTES", kills=("noent-always",))
def test_names_are_bytes(nfs: Nfs3Client, here, observe) -> None:
    name = b"caf\xc3\xa9 \xff~"
    if here.nfs.create(here.handle, name).status != nfsstat3.NFS3_OK:
        observe("a name that is no UTF-8 is refused")
        name = "café ~".encode()
        here.file(name)
    ok(nfs.lookup(here.handle, name))


@pytest.mark.case("NF3-LOOKUP-EMPTY", kills=("empty-accepted",))
def test_an_empty_name_is_refused(nfs: Nfs3Client, here, observe) -> None:
    reply = nfs.rpc.ask("LOOKUP", LOOKUP3args(diropargs3(here.handle, b"")))
    observe(reply.status if reply.result is None else reply.result.status.name)
    found = reply.result is not None and reply.result.status == nfsstat3.NFS3_OK
    assert not found, "4.6: the empty name names no entry"


@pytest.mark.case("NF3-LOOKUP-PERMISSION", kills=("acces-accepted",))
@pytest.mark.usefixtures("users")
def test_a_directory_without_permission_to_search_is_refused(bench: Nfs3Harness, here) -> None:
    directory = here.directory(mode=0o700)
    ok(here.nfs.create(directory, b"file"))
    refused(bench.client(cred=auth_sys(4001, 4001)).lookup(directory, b"file"), nfsstat3.NFS3ERR_ACCES)


@pytest.mark.case("NF3-LOOKUP-STALE", kills=GONE, builds_on=("NF3-HANDLE-STALE",))
def test_a_lookup_in_a_removed_directory_is_stale(nfs: Nfs3Client, here) -> None:
    directory = here.directory()
    ok(here.nfs.rmdir(here.handle, b"directory"))
    refused(nfs.lookup(directory, b"name"), nfsstat3.NFS3ERR_STALE)


@pytest.mark.case("NF3-LOOKUP-ATTRIBUTES", kills=("lookup-attributes",))
def test_the_attributes_of_a_lookup_are_those_of_the_object(nfs: Nfs3Client, here) -> None:
    file = here.file(data=b"12345")
    found = ok(nfs.lookup(here.handle, b"file"))
    if found.obj_attributes is not None:
        assert found.obj_attributes == here.nfs.attributes(file)
    if found.dir_attributes is not None:
        assert found.dir_attributes.fileid == here.nfs.attributes(here.handle).fileid


# READLINK


@pytest.mark.case("NF3-READLINK-01", section=READLINK, kills=("readlink-text",))
def test_the_text_of_a_link_is_read(nfs: Nfs3Client, here) -> None:
    assert ok(nfs.readlink(here.symlink(text=b"../some/where"))).data == b"../some/where"


@pytest.mark.case("NF3-READLINK-FILE", section=READLINK, kills=("readlink-file",))
def test_a_file_is_no_link(nfs: Nfs3Client, here) -> None:
    refused(nfs.readlink(here.file()), nfsstat3.NFS3ERR_INVAL)


@pytest.mark.case("NF3-READLINK-DIR", section=READLINK, kills=("readlink-file",))
def test_a_directory_is_no_link(nfs: Nfs3Client, here) -> None:
    refused(nfs.readlink(here.directory()), nfsstat3.NFS3ERR_INVAL)


@pytest.mark.case(
    "NF3-READLINK-LONG",
    section=READLINK,
    kills=(
        "readlink-255",
        "readlink-text",
    ),
)
def test_a_long_text_is_read_whole(nfs: Nfs3Client, here) -> None:
    text = b"/".join([b"d" * 100] * 10)
    assert ok(nfs.readlink(here.symlink(text=text))).data == text


# CREATE


@pytest.mark.case("NF3-CREATE-GUARDED", section=CREATE, kills=("create-guarded",))
def test_a_guarded_create_refuses_a_name_that_exists(nfs: Nfs3Client, here) -> None:
    file = here.file(data=b"abc")
    refused(nfs.create(here.handle, b"file", mode=createmode3.GUARDED), nfsstat3.NFS3ERR_EXIST)
    assert here.nfs.attributes(file).size == 3


@pytest.mark.case("NF3-CREATE-NEW", section=CREATE, kills=("create-lost",))
def test_a_file_is_created_empty(nfs: Nfs3Client, here) -> None:
    ok(nfs.create(here.handle, b"new"))
    found = here.nfs.attributes(here.nfs.find(here.handle, b"new"))
    assert (found.type, found.size, found.nlink) == (ftype3.NF3REG, 0, 1)


@pytest.mark.case("NF3-CREATE-MODE", section=CREATE, kills=("create-mode",))
def test_a_file_is_created_with_its_mode(nfs: Nfs3Client, here) -> None:
    ok(nfs.create(here.handle, b"new", new=attributes(mode=0o640)))
    assert here.nfs.attributes(here.nfs.find(here.handle, b"new")).mode & 0o777 == 0o640


# No sentence requires it: "should be created without checking for the existence of a duplicate file".
@pytest.mark.case(
    "NF3-CREATE-UNCHECKED-KEEPS", section=CREATE, level="SHOULD", kills=("unchecked-mode-truncates",)
)
def test_an_unchecked_create_that_sets_a_mode_keeps_the_data(nfs: Nfs3Client, here) -> None:
    file = here.file(data=b"abc")
    ok(nfs.create(here.handle, b"file", mode=createmode3.UNCHECKED, new=attributes(mode=0o600)))
    again = here.nfs.find(here.handle, b"file")
    assert here.nfs.attributes(again).fileid == here.nfs.attributes(file).fileid, "it is another file"
    assert ok(here.nfs.read(again, 0, 10)).data == b"abc", (
        "an UNCHECKED CREATE without a size has cut the file"
    )


@pytest.mark.case("NF3-CREATE-UNCHECKED", section=CREATE, kills=("create-unchecked",))
def test_an_unchecked_create_of_a_name_that_exists_succeeds(nfs: Nfs3Client, here) -> None:
    here.file(data=b"abc")
    ok(nfs.create(here.handle, b"file", mode=createmode3.UNCHECKED, new=attributes()))
    again = here.nfs.find(here.handle, b"file")
    assert here.nfs.attributes(again).type == ftype3.NF3REG


@pytest.mark.case("NF3-CREATE-TRUNCATES", section=CREATE, kills=("create-truncates",))
def test_an_unchecked_create_with_size_0_truncates(nfs: Nfs3Client, here) -> None:
    here.file(data=b"abc")
    ok(nfs.create(here.handle, b"file", mode=createmode3.UNCHECKED, new=attributes(size=0)))
    assert here.nfs.attributes(here.nfs.find(here.handle, b"file")).size == 0


@pytest.mark.case(
    "NF3-CREATE-EXCLUSIVE",
    section=CREATE,
    kills=(
        "exclusive-again-refused",
        "create-exclusive-again",
    ),
)
def test_an_exclusive_create_that_is_repeated_succeeds(nfs: Nfs3Client, here) -> None:
    for _ in range(2):
        supported(nfs.create(here.handle, b"new", mode=createmode3.EXCLUSIVE, verifier=FIRST))


@pytest.mark.case(
    "NF3-CREATE-EXCLUSIVE-OTHER",
    section=CREATE,
    kills=(
        "exclusive-other-verifier",
        "create-exclusive-other",
    ),
)
def test_an_exclusive_create_with_another_verifier_is_refused(nfs: Nfs3Client, here) -> None:
    supported(nfs.create(here.handle, b"new", mode=createmode3.EXCLUSIVE, verifier=FIRST))
    done = nfs.create(here.handle, b"new", mode=createmode3.EXCLUSIVE, verifier=SECOND)
    refused(done, nfsstat3.NFS3ERR_EXIST)


@pytest.mark.case("NF3-CREATE-EXCLUSIVE-FILE", section=CREATE, kills=("create-exclusive-other",))
def test_an_exclusive_create_of_a_file_that_exists_is_refused(nfs: Nfs3Client, here) -> None:
    here.file(data=b"abc")
    done = nfs.create(here.handle, b"file", mode=createmode3.EXCLUSIVE, verifier=FIRST)
    skip_unsupported(done)
    refused(done, nfsstat3.NFS3ERR_EXIST)


@pytest.mark.case("NF3-CREATE-HANDLE", section=CREATE, kills=("create-handle",))
def test_the_handle_of_a_create_is_that_of_the_file(nfs: Nfs3Client, here) -> None:
    made = ok(nfs.create(here.handle, b"new"))
    if made.obj is not None:
        found = here.nfs.attributes(here.nfs.find(here.handle, b"new"))
        assert here.nfs.attributes(made.obj).fileid == found.fileid


@pytest.mark.case("NF3-CREATE-WCC", section="RFC 1813 2.6", kills=("create-wcc",))
def test_weak_cache_consistency_data_of_create_are_true(nfs: Nfs3Client, here) -> None:
    before = here.nfs.attributes(here.handle)
    wcc = ok(nfs.create(here.handle, b"new")).dir_wcc
    if wcc.before is not None:
        assert (wcc.before.mtime, wcc.before.ctime) == (before.mtime, before.ctime)
    if wcc.after is not None:
        assert wcc.after.fileid == before.fileid


MAKERS = {
    "CREATE": (CREATE, lambda nfs, top, name: nfs.create(top, name)),
    "MKDIR": (MKDIR, lambda nfs, top, name: nfs.mkdir(top, name)),
    "SYMLINK": (SYMLINK, lambda nfs, top, name: nfs.symlink(top, name, b"text")),
    "MKNOD": (MKNOD, lambda nfs, top, name: nfs.mknod(top, name, ftype3.NF3FIFO)),
}


def make(maker: str, nfs: Nfs3Client, top, name: bytes):
    """Return the result of a procedure that makes ``name``; skip if the server lacks it."""
    result = MAKERS[maker][1](nfs, top, name)
    if maker in ("SYMLINK", "MKNOD"):
        skip_unsupported(result)
    return result


def makers(name: str, **more):
    return [
        pytest.param(one, id=one, marks=pytest.mark.case(f"NF3-{one}-{name}", section=MAKERS[one][0], **more))
        for one in MAKERS
    ]


@pytest.mark.parametrize("maker", makers("EXIST", kills=("exist-accepted", "exist-other")))
def test_a_name_that_exists_is_not_made_again(nfs: Nfs3Client, here, maker: str) -> None:
    here.file(b"name")
    refused(make(maker, nfs, here.handle, b"name"), nfsstat3.NFS3ERR_EXIST)


@pytest.mark.parametrize(
    "maker", makers("NOTDIR", kills=("notdir-accepted", "notdir-other"), builds_on=("NF3-LOOKUP-NOTDIR",))
)
def test_nothing_is_made_in_a_file(nfs: Nfs3Client, here, maker: str) -> None:
    refused(make(maker, nfs, here.file(), b"name"), nfsstat3.NFS3ERR_NOTDIR)


@pytest.mark.parametrize("maker", makers("PERMISSION", kills=("acces-accepted",)))
@pytest.mark.usefixtures("users")
def test_nothing_is_made_without_permission(bench: Nfs3Harness, here, maker: str) -> None:
    directory = here.directory(mode=0o755)
    done = make(maker, bench.client(cred=auth_sys(4001, 4001)), directory, b"name")
    refused(done, nfsstat3.NFS3ERR_ACCES, nfsstat3.NFS3ERR_PERM)


@pytest.mark.parametrize("maker", makers("STALE", kills=GONE, builds_on=("NF3-HANDLE-STALE",)))
def test_nothing_is_made_in_a_removed_directory(nfs: Nfs3Client, here, maker: str) -> None:
    directory = here.directory()
    ok(here.nfs.rmdir(here.handle, b"directory"))
    refused(make(maker, nfs, directory, b"name"), nfsstat3.NFS3ERR_STALE)


@pytest.mark.parametrize("maker", makers("LONG", kills=("long-accepted",)))
def test_no_name_over_name_max_is_made(nfs: Nfs3Client, here, maker: str) -> None:
    limits = ok(here.nfs.pathconf(here.handle))
    if limits.name_max > 4096 or not limits.no_trunc:
        pytest.skip(f"name_max is {limits.name_max}, no_trunc is {limits.no_trunc}")
    done = make(maker, nfs, here.handle, b"n" * (limits.name_max + 1))
    refused(done, nfsstat3.NFS3ERR_NAMETOOLONG)


@pytest.mark.parametrize("maker", makers("OWNER", kills=("make-owner",)))
@pytest.mark.usefixtures("users")
def test_what_is_made_belongs_to_the_caller(bench: Nfs3Harness, here, maker: str) -> None:
    ok(make(maker, bench.client(cred=auth_sys(4001, 4001)), here.handle, b"name"))
    assert here.nfs.attributes(here.nfs.find(here.handle, b"name")).uid == 4001


@pytest.mark.parametrize("maker", makers("TYPE", kills=("make-type",)))
def test_the_attributes_of_what_is_made_are_true(nfs: Nfs3Client, here, maker: str) -> None:
    made = ok(make(maker, nfs, here.handle, b"name")).obj_attributes
    found = here.nfs.attributes(here.nfs.find(here.handle, b"name"))
    types = {
        "CREATE": ftype3.NF3REG,
        "MKDIR": ftype3.NF3DIR,
        "SYMLINK": ftype3.NF3LNK,
        "MKNOD": ftype3.NF3FIFO,
    }
    assert found.type == types[maker]
    if made is not None:
        assert (made.type, made.fileid, made.mode) == (found.type, found.fileid, found.mode)


@pytest.mark.case("NF3-MKDIR-MODE", section=MKDIR, kills=("mkdir-mode",))
def test_a_directory_is_made_with_its_mode(nfs: Nfs3Client, here) -> None:
    ok(nfs.mkdir(here.handle, b"new", new=attributes(mode=0o750)))
    assert here.nfs.attributes(here.nfs.find(here.handle, b"new")).mode & 0o777 == 0o750


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(b".", id="dot", marks=pytest.mark.case("NF3-MKDIR-DOT")),
        pytest.param(b"..", id="dotdot", marks=pytest.mark.case("NF3-MKDIR-DOTDOT")),
    ],
)
@pytest.mark.case(section=MKDIR, kills=("exist-accepted",))
def test_dot_names_are_not_made(nfs: Nfs3Client, here, name: bytes, observe) -> None:
    """Which error a server should return is not a must (3.3.9)."""
    done = nfs.mkdir(here.handle, name)
    observe(done.status.name)
    assert done.status != nfsstat3.NFS3_OK, f"MKDIR of {name.decode()!r} succeeds"


@pytest.mark.case("NF3-MKNOD-FILE", section=MKNOD, kills=("mknod-badtype",))
def test_no_regular_file_is_made_by_mknod(nfs: Nfs3Client, here, observe) -> None:
    done = nfs.mknod(here.handle, b"node", ftype3.NF3REG)
    observe(done.status.name)
    refused(done, nfsstat3.NFS3ERR_BADTYPE, nfsstat3.NFS3ERR_NOTSUPP, nfsstat3.NFS3ERR_INVAL)


@pytest.mark.case("NF3-MKNOD-DIR", section=MKNOD, kills=("mknod-badtype",))
def test_no_directory_is_made_by_mknod(nfs: Nfs3Client, here, observe) -> None:
    done = nfs.mknod(here.handle, b"node", ftype3.NF3DIR)
    observe(done.status.name)
    refused(done, nfsstat3.NFS3ERR_BADTYPE, nfsstat3.NFS3ERR_NOTSUPP, nfsstat3.NFS3ERR_INVAL)


# REMOVE, RMDIR


@pytest.mark.case("NF3-REMOVE-01", section=REMOVE, kills=("remove-stays",))
def test_a_removed_name_is_gone(nfs: Nfs3Client, here) -> None:
    here.file()
    ok(nfs.remove(here.handle, b"file"))
    refused(here.nfs.lookup(here.handle, b"file"), nfsstat3.NFS3ERR_NOENT)


@pytest.mark.case("NF3-REMOVE-NOENT", section=REMOVE, kills=("noent-accepted", "noent-other"))
def test_an_absent_name_cannot_be_removed(nfs: Nfs3Client, here) -> None:
    refused(nfs.remove(here.handle, b"absent"), nfsstat3.NFS3ERR_NOENT)


@pytest.mark.case("NF3-REMOVE-LINK", section=REMOVE, kills=("remove-stays",), builds_on=("NF3-LINK-01",))
def test_a_file_with_two_names_survives_the_removal_of_one(nfs: Nfs3Client, here) -> None:
    file = here.file(data=b"abc")
    here.link(file)
    ok(nfs.remove(here.handle, b"file"))
    assert (here.nfs.attributes(file).nlink, here.nfs.attributes(file).size) == (1, 3)


@pytest.mark.case("NF3-REMOVE-SYMLINK", section=REMOVE, kills=("remove-stays",))
def test_the_removal_of_a_link_leaves_its_file(nfs: Nfs3Client, here) -> None:
    here.file()
    here.symlink(text=b"file")
    ok(nfs.remove(here.handle, b"symlink"))
    ok(here.nfs.lookup(here.handle, b"file"))
    refused(here.nfs.lookup(here.handle, b"symlink"), nfsstat3.NFS3ERR_NOENT)


@pytest.mark.case(
    "NF3-REMOVE-NOTDIR",
    section=REMOVE,
    kills=("notdir-accepted", "notdir-other"),
    builds_on=("NF3-LOOKUP-NOTDIR",),
)
def test_nothing_is_removed_from_a_file(nfs: Nfs3Client, here) -> None:
    refused(nfs.remove(here.file(), b"name"), nfsstat3.NFS3ERR_NOTDIR)


@pytest.mark.case("NF3-REMOVE-PERMISSION", section=REMOVE, kills=("acces-accepted",))
@pytest.mark.usefixtures("users")
def test_nothing_is_removed_without_permission(bench: Nfs3Harness, here) -> None:
    directory = here.directory(mode=0o755)
    ok(here.nfs.create(directory, b"file"))
    done = bench.client(cred=auth_sys(4001, 4001)).remove(directory, b"file")
    refused(done, nfsstat3.NFS3ERR_ACCES, nfsstat3.NFS3ERR_PERM)
    ok(here.nfs.lookup(directory, b"file"))


@pytest.mark.case("NF3-RMDIR-01", section=RMDIR, kills=("rmdir-stays",))
def test_a_removed_directory_is_gone(nfs: Nfs3Client, here) -> None:
    here.directory()
    ok(nfs.rmdir(here.handle, b"directory"))
    refused(here.nfs.lookup(here.handle, b"directory"), nfsstat3.NFS3ERR_NOENT)


@pytest.mark.case("NF3-RMDIR-NOTEMPTY", section=RMDIR, kills=("notempty-accepted", "notempty-other"))
def test_a_directory_with_entries_is_not_removed(nfs: Nfs3Client, here) -> None:
    ok(here.nfs.create(here.directory(), b"file"))
    refused(nfs.rmdir(here.handle, b"directory"), nfsstat3.NFS3ERR_NOTEMPTY, nfsstat3.NFS3ERR_EXIST)
    ok(here.nfs.lookup(here.nfs.find(here.handle, b"directory"), b"file"))


@pytest.mark.case("NF3-RMDIR-NOENT", section=RMDIR, kills=("noent-accepted", "noent-other"))
def test_an_absent_directory_cannot_be_removed(nfs: Nfs3Client, here) -> None:
    refused(nfs.rmdir(here.handle, b"absent"), nfsstat3.NFS3ERR_NOENT)


@pytest.mark.case("NF3-RMDIR-FILE", section=RMDIR, kills=("notdir-accepted", "notdir-other"))
def test_a_file_is_not_removed_by_rmdir(nfs: Nfs3Client, here) -> None:
    here.file()
    refused(nfs.rmdir(here.handle, b"file"), nfsstat3.NFS3ERR_NOTDIR)
    ok(here.nfs.lookup(here.handle, b"file"))


@pytest.mark.case("NF3-RMDIR-DOT", section=RMDIR, kills=("rmdir-dot",))
def test_dot_is_refused_or_removed(nfs: Nfs3Client, here, observe) -> None:
    """The name "." is illegal on some servers only (3.3.13); what is answered is what was done."""
    done = nfs.rmdir(here.directory(), b".")
    observe(done.status.name)
    left = here.nfs.lookup(here.handle, b"directory")
    if done.status == nfsstat3.NFS3_OK:
        refused(left, nfsstat3.NFS3ERR_NOENT)
        return
    ok(left)


# LINK


@pytest.mark.case("NF3-LINK-01", section=LINK, kills=("link-nothing",))
def test_a_second_name_is_of_the_same_file(nfs: Nfs3Client, here) -> None:
    file = here.file(data=b"abc")
    supported(nfs.link(file, here.handle, b"second"))
    found = here.nfs.attributes(here.nfs.find(here.handle, b"second"))
    assert (found.fileid, found.nlink) == (here.nfs.attributes(file).fileid, 2)


@pytest.mark.case(
    "NF3-LINK-EXIST", section=LINK, kills=("exist-accepted", "exist-other"), builds_on=("NF3-LINK-01",)
)
def test_a_name_that_exists_is_not_linked(nfs: Nfs3Client, here) -> None:
    file, _ = here.file(), here.file(b"second")
    done = nfs.link(file, here.handle, b"second")
    skip_unsupported(done)
    refused(done, nfsstat3.NFS3ERR_EXIST)


@pytest.mark.case(
    "NF3-LINK-NOTDIR",
    section=LINK,
    kills=("notdir-accepted", "notdir-other"),
    builds_on=("NF3-LINK-01", "NF3-LOOKUP-NOTDIR"),
)
def test_no_name_is_linked_in_a_file(nfs: Nfs3Client, here) -> None:
    done = nfs.link(here.file(), here.file(b"second"), b"name")
    skip_unsupported(done)
    refused(done, nfsstat3.NFS3ERR_NOTDIR)


@pytest.mark.case("NF3-LINK-DIR", section=LINK, kills=("link-directory",), builds_on=("NF3-LINK-01",))
def test_a_directory_gets_no_second_name(nfs: Nfs3Client, here, observe) -> None:
    done = nfs.link(here.directory(), here.handle, b"second")
    observe(done.status.name)
    assert done.status != nfsstat3.NFS3_OK
    refused(here.nfs.lookup(here.handle, b"second"), nfsstat3.NFS3ERR_NOENT)


@pytest.mark.case("NF3-LINK-STALE", section=LINK, kills=GONE, builds_on=("NF3-LINK-01", "NF3-HANDLE-STALE"))
def test_a_removed_file_gets_no_name(nfs: Nfs3Client, here) -> None:
    file = here.file()
    ok(here.nfs.remove(here.handle, b"file"))
    done = nfs.link(file, here.handle, b"second")
    skip_unsupported(done)
    refused(done, nfsstat3.NFS3ERR_STALE)


@pytest.mark.case(
    "NF3-LINK-ATTRIBUTES",
    section=LINK,
    kills=(
        "link-nlink-old",
        "link-attributes",
    ),
    builds_on=("NF3-LINK-01",),
)
def test_the_attributes_of_a_link_are_those_after_it(nfs: Nfs3Client, here) -> None:
    file = here.file()
    found = supported(nfs.link(file, here.handle, b"second")).file_attributes
    if found is not None:
        assert (found.nlink, found.fileid) == (2, here.nfs.attributes(file).fileid)
