"""RENAME (RFC 1813 3.3.14)."""

from __future__ import annotations

import pytest

from storagetest.wire.nfs3.client import Nfs3Client, ok, refused
from storagetest.wire.nfs3.types import nfsstat3

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 1813 3.3.14")]


@pytest.mark.case("NF3-RENAME-01", kills=("rename-nothing",))
def test_a_file_is_renamed(nfs: Nfs3Client, here) -> None:
    before = here.nfs.attributes(here.file()).fileid
    ok(nfs.rename(here.handle, b"file", here.handle, b"new"))
    refused(here.nfs.lookup(here.handle, b"file"), nfsstat3.NFS3ERR_NOENT)
    assert here.nfs.attributes(here.nfs.find(here.handle, b"new")).fileid == before


@pytest.mark.case("NF3-RENAME-HANDLE", level="SHOULD", kills=("rename-stale",))
def test_a_handle_outlives_a_rename(nfs: Nfs3Client, here) -> None:
    """A handle may become stale on a rename; servers are strongly encouraged to avoid it (3.3.14)."""
    file = here.file()
    before = nfs.attributes(file).fileid
    ok(nfs.rename(here.handle, b"file", here.handle, b"new"))
    done = nfs.getattr(file)
    assert done.status == nfsstat3.NFS3_OK, done.status.name
    assert done.value.obj_attributes.fileid == before


@pytest.mark.case("NF3-RENAME-MOVE", kills=("rename-nothing",))
def test_a_file_moves_to_another_directory(nfs: Nfs3Client, here) -> None:
    here.file(data=b"abc")
    directory = here.directory()
    ok(nfs.rename(here.handle, b"file", directory, b"file"))
    assert here.nfs.attributes(here.nfs.find(directory, b"file")).size == 3


@pytest.mark.case("NF3-RENAME-REPLACE", kills=("rename-nothing",))
def test_a_file_that_exists_is_replaced(nfs: Nfs3Client, here) -> None:
    here.file(b"old", b"old")
    here.file(b"new", b"newer")
    ok(nfs.rename(here.handle, b"new", here.handle, b"old"))
    assert here.nfs.attributes(here.nfs.find(here.handle, b"old")).size == 5
    refused(here.nfs.lookup(here.handle, b"new"), nfsstat3.NFS3ERR_NOENT)


@pytest.mark.case("NF3-RENAME-NOENT", kills=("noent-accepted", "noent-other"))
def test_an_absent_name_cannot_be_renamed(nfs: Nfs3Client, here) -> None:
    refused(nfs.rename(here.handle, b"absent", here.handle, b"new"), nfsstat3.NFS3ERR_NOENT)


@pytest.mark.case("NF3-RENAME-SAME", kills=("rename-same",), builds_on=("NF3-LINK-01",))
def test_two_names_of_one_file_stay(nfs: Nfs3Client, here) -> None:
    file = here.file()
    here.link(file)
    ok(nfs.rename(here.handle, b"file", here.handle, b"second"))
    ok(here.nfs.lookup(here.handle, b"file"))
    ok(here.nfs.lookup(here.handle, b"second"))


@pytest.mark.case("NF3-RENAME-ITSELF", kills=("rename-same",))
def test_a_file_is_renamed_to_its_own_name(nfs: Nfs3Client, here) -> None:
    here.file()
    ok(nfs.rename(here.handle, b"file", here.handle, b"file"))
    ok(here.nfs.lookup(here.handle, b"file"))


@pytest.mark.case("NF3-RENAME-NOTEMPTY", kills=("notempty-accepted",))
def test_a_directory_with_entries_is_not_replaced(nfs: Nfs3Client, here) -> None:
    here.directory(b"from")
    ok(here.nfs.create(here.directory(b"to"), b"file"))
    done = nfs.rename(here.handle, b"from", here.handle, b"to")
    refused(done, nfsstat3.NFS3ERR_NOTEMPTY, nfsstat3.NFS3ERR_EXIST)


@pytest.mark.case("NF3-RENAME-FILE-DIR", kills=("rename-types",))
def test_a_directory_is_not_replaced_by_a_file(nfs: Nfs3Client, here, observe) -> None:
    here.file()
    here.directory()
    done = nfs.rename(here.handle, b"file", here.handle, b"directory")
    observe(done.status.name)
    refused(done, nfsstat3.NFS3ERR_EXIST, nfsstat3.NFS3ERR_ISDIR)


@pytest.mark.case("NF3-RENAME-DIR-FILE", kills=("rename-types",))
def test_a_file_is_not_replaced_by_a_directory(nfs: Nfs3Client, here, observe) -> None:
    here.file()
    here.directory()
    done = nfs.rename(here.handle, b"directory", here.handle, b"file")
    observe(done.status.name)
    refused(done, nfsstat3.NFS3ERR_EXIST, nfsstat3.NFS3ERR_NOTDIR)


@pytest.mark.case("NF3-RENAME-INTO-SELF", kills=("rename-loop",))
def test_a_directory_does_not_move_into_itself(nfs: Nfs3Client, here, observe) -> None:
    directory = here.directory()
    done = nfs.rename(here.handle, b"directory", directory, b"inside")
    observe(done.status.name)
    refused(done, nfsstat3.NFS3ERR_INVAL)
    ok(here.nfs.lookup(here.handle, b"directory"))


@pytest.mark.case("NF3-RENAME-EMPTY-DIR", kills=("rename-nothing",))
def test_an_empty_directory_is_replaced_by_a_directory(nfs: Nfs3Client, here) -> None:
    first = here.nfs.attributes(here.directory(b"from")).fileid
    here.directory(b"to")
    ok(nfs.rename(here.handle, b"from", here.handle, b"to"))
    assert here.nfs.attributes(here.nfs.find(here.handle, b"to")).fileid == first


@pytest.mark.case("NF3-RENAME-WCC", section="RFC 1813 2.6", kills=("rename-wcc",))
def test_weak_cache_consistency_data_of_rename_are_of_both_directories(nfs: Nfs3Client, here) -> None:
    here.file()
    directory = here.directory()
    done = ok(nfs.rename(here.handle, b"file", directory, b"file"))
    for wcc, handle in ((done.fromdir_wcc, here.handle), (done.todir_wcc, directory)):
        if wcc.after is not None:
            assert wcc.after.fileid == here.nfs.attributes(handle).fileid
