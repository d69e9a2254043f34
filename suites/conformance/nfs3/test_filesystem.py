"""FSSTAT, FSINFO and PATHCONF (RFC 1813 3.3.18 to 3.3.20)."""

from __future__ import annotations

import pytest

from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok, refused
from storagetest.wire.nfs3.types import FSF3_HOMOGENEOUS, FSF3_LINK, FSF3_SYMLINK, nfsstat3, nfstime3

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 1813 3.3.18")]

FSINFO, PATHCONF = "RFC 1813 3.3.19", "RFC 1813 3.3.20"
GONE = ("stale-accepted", "stale-noent")


@pytest.mark.case("NF3-FSSTAT-BYTES", kills=("fsstat-bytes",))
def test_free_space_is_within_the_total(nfs: Nfs3Client, root) -> None:
    found = ok(nfs.fsstat(root))
    assert found.abytes <= found.tbytes
    assert found.fbytes <= found.tbytes


@pytest.mark.case("NF3-FSSTAT-FILES", kills=("fsstat-files",))
def test_free_files_are_within_the_total(nfs: Nfs3Client, root) -> None:
    found = ok(nfs.fsstat(root))
    assert found.afiles <= found.tfiles
    assert found.ffiles <= found.tfiles


@pytest.mark.case("NF3-FSSTAT-AVAILABLE", kills=("fsstat-available-more",))
def test_no_more_is_available_than_is_free(nfs: Nfs3Client, root, here) -> None:
    """What is available to the caller (abytes, afiles) is a part of what is free (3.3.18)."""
    for handle in (root, here.file()):
        found = ok(nfs.fsstat(handle))
        assert found.abytes <= found.fbytes, f"{found.abytes} bytes are available, and {found.fbytes} free"
        assert found.afiles <= found.ffiles, f"{found.afiles} files are available, and {found.ffiles} free"


@pytest.mark.case("NF3-FSSTAT-STALE", kills=GONE, builds_on=("NF3-HANDLE-STALE",))
def test_the_file_system_of_a_removed_file_is_stale(nfs: Nfs3Client, here) -> None:
    file = here.file()
    ok(here.nfs.remove(here.handle, b"file"))
    refused(nfs.fsstat(file), nfsstat3.NFS3ERR_STALE)


@pytest.mark.case("NF3-FSINFO-SIZES", section=FSINFO, kills=("fsinfo-preferred",))
def test_preferred_sizes_are_within_the_largest(nfs: Nfs3Client, root) -> None:
    found = ok(nfs.fsinfo(root))
    assert 0 < found.rtpref <= found.rtmax
    assert 0 < found.wtpref <= found.wtmax
    assert found.dtpref > 0


@pytest.mark.case("NF3-FSINFO-SAME", section=FSINFO, kills=("fsinfo-changes",))
def test_static_information_is_static(nfs: Nfs3Client, root) -> None:
    first, second = (ok(nfs.fsinfo(root)) for _ in range(2))
    assert first.rtmax == second.rtmax
    assert first.maxfilesize == second.maxfilesize
    assert first.properties == second.properties


@pytest.mark.case("NF3-FSINFO-LINK", section=FSINFO, kills=("fsinfo-properties",), builds_on=("NF3-LINK-01",))
def test_hard_links_work_as_is_stated(nfs: Nfs3Client, here, root) -> None:
    if ok(nfs.fsinfo(root)).properties & FSF3_LINK:
        ok(here.nfs.link(here.file(), here.handle, b"second"))
    else:
        refused(here.nfs.link(here.file(), here.handle, b"second"), nfsstat3.NFS3ERR_NOTSUPP)


@pytest.mark.case("NF3-FSINFO-SYMLINK", section=FSINFO, kills=("fsinfo-properties",))
def test_symbolic_links_work_as_is_stated(nfs: Nfs3Client, here, root) -> None:
    if ok(nfs.fsinfo(root)).properties & FSF3_SYMLINK:
        ok(here.nfs.symlink(here.handle, b"symlink", b"text"))
    else:
        refused(here.nfs.symlink(here.handle, b"symlink", b"text"), nfsstat3.NFS3ERR_NOTSUPP)


@pytest.mark.case("NF3-FSINFO-TIME", section=FSINFO, kills=("fsinfo-delta",))
@pytest.mark.usefixtures("sets_times")
def test_the_server_keeps_times_as_exactly_as_is_stated(nfs: Nfs3Client, here, root) -> None:
    delta = ok(nfs.fsinfo(root)).time_delta
    step = delta.seconds * 1_000_000_000 + delta.nseconds
    assert step > 0, "3.3.19: time_delta is the server's granularity"
    set_to = nfstime3(1_000_000_000, 500_000_000)
    file = here.file()
    ok(here.nfs.setattr(file, attributes(mtime=set_to)))
    kept = here.nfs.attributes(file).mtime
    assert abs((kept.seconds - set_to.seconds) * 1_000_000_000 + kept.nseconds - set_to.nseconds) <= step


@pytest.mark.case("NF3-PATHCONF-HOMOGENEOUS", section=FSINFO, kills=("pathconf-differs",))
def test_pathconf_is_the_same_everywhere_if_so_stated(nfs: Nfs3Client, here, root) -> None:
    if not ok(nfs.fsinfo(root)).properties & FSF3_HOMOGENEOUS:
        pytest.skip("FSF3_HOMOGENEOUS is not set")
    first, second = ok(nfs.pathconf(root)), ok(nfs.pathconf(here.file()))
    names = ("linkmax", "name_max", "no_trunc", "chown_restricted", "case_insensitive", "case_preserving")
    assert [getattr(first, name) for name in names] == [getattr(second, name) for name in names]


@pytest.mark.case("NF3-PATHCONF-NAME", section=PATHCONF, kills=("pathconf-name-max",))
def test_a_name_of_name_max_is_made(nfs: Nfs3Client, here) -> None:
    longest = ok(nfs.pathconf(here.handle)).name_max
    assert longest, "3.3.20: the maximum length of a name"
    name = b"n" * min(longest, 4096)
    ok(here.nfs.create(here.handle, name))
    ok(here.nfs.lookup(here.handle, name))


@pytest.mark.case("NF3-PATHCONF-CASE", section=PATHCONF, kills=("pathconf-case",))
def test_case_is_preserved_if_so_stated(nfs: Nfs3Client, here) -> None:
    stated = ok(nfs.pathconf(here.handle)).case_preserving
    here.file(b"MiXeD")
    kept = b"MiXeD" in [one.name for one in here.nfs.entries(here.handle)]
    assert kept == stated
