"""What clients seldom send, and what a server states after a first look (RFC 1813 3.3)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs3.conftest import Arranged
from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok, refused
from storagetest.wire.nfs3.types import ftype3, nfs_fh3, nfsstat3

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 1813 3.3.11")]


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        pytest.param(
            kind,
            mode,
            marks=pytest.mark.case(f"NF3-MKNOD-MODE-{kind.name[3:]}-{mode:o}", kills=("mknod-mode",)),
        )
        for kind in (ftype3.NF3FIFO, ftype3.NF3SOCK)
        for mode in (0o600, 0o751)
    ],
)
def test_what_mknod_makes_has_the_mode_that_was_asked_for(
    nfs: Nfs3Client, here: Arranged, kind: ftype3, mode: int
) -> None:
    done = nfs.mknod(here.handle, b"node", kind, mode=mode)
    if done.status in (nfsstat3.NFS3ERR_NOTSUPP, nfsstat3.NFS3ERR_BADTYPE):
        pytest.skip(f"the server makes no {kind.name} ({done.status.name})")
    ok(done)
    found = nfs.attributes(nfs.find(here.handle, b"node"))
    assert (found.type, found.mode & 0o7777) == (kind, mode)


def make(here: Arranged, how: str, file: nfs_fh3) -> None:
    """Make the name ``new`` on another connection than that of the claims; skip if the server cannot."""
    match how:
        case "CREATE":
            here.file(b"new")
        case "MKDIR":
            here.directory(b"new")
        case "RENAME":
            ok(here.nfs.rename(here.handle, b"file", here.handle, b"new"))
        case _:
            here.link(file, b"new")


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(
            how,
            marks=pytest.mark.case(
                f"NF3-LOOKUP-LATER-{how}",
                kills=("lookup-negative-kept",),
                builds_on=("NF3-LINK-01",) if how == "LINK" else (),
            ),
        )
        for how in ("CREATE", "MKDIR", "RENAME", "LINK")
    ],
)
@pytest.mark.case(section="RFC 1813 3.3.3")
def test_a_name_that_was_not_found_is_found_when_it_was_made(
    nfs: Nfs3Client, here: Arranged, how: str
) -> None:
    file = here.file()
    fileid = here.nfs.attributes(file).fileid  # a RENAME may make the handle stale (3.3.14)
    refused(nfs.lookup(here.handle, b"new"), nfsstat3.NFS3ERR_NOENT)
    make(here, how, file)
    found = nfs.find(here.handle, b"new")
    if how in ("RENAME", "LINK"):
        assert nfs.attributes(found).fileid == fileid


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(
            how, marks=pytest.mark.case(f"NF3-LOOKUP-REPLACED-{how}", kills=("lookup-positive-kept",))
        )
        for how in ("RENAME", "REMOVE")
    ],
)
@pytest.mark.case(section="RFC 1813 3.3.3")
def test_a_name_that_was_found_leads_to_the_file_that_replaces_it(
    nfs: Nfs3Client, here: Arranged, how: str
) -> None:
    """A LOOKUP finds the file that another connection has put in the place of the first one."""
    first, second = here.file(b"name"), here.file(b"other")
    wanted = [here.nfs.attributes(file).fileid for file in (first, second)]
    assert nfs.attributes(nfs.find(here.handle, b"name")).fileid == wanted[0]
    if how == "REMOVE":
        ok(here.nfs.remove(here.handle, b"name"))
        refused(nfs.lookup(here.handle, b"name"), nfsstat3.NFS3ERR_NOENT)
    ok(here.nfs.rename(here.handle, b"other", here.handle, b"name"))
    assert nfs.attributes(nfs.find(here.handle, b"name")).fileid == wanted[1]


@pytest.mark.case("NF3-READDIRPLUS-LATER", section="RFC 1813 3.3.17", kills=("readdirplus-attributes-kept",))
def test_a_second_listing_states_the_attributes_of_now(nfs: Nfs3Client, here: Arranged) -> None:
    file = here.file(data=b"data")
    if nfs.readdirplus(here.handle).status == nfsstat3.NFS3ERR_NOTSUPP:
        pytest.skip("the server does not support READDIRPLUS (NFS3ERR_NOTSUPP)")
    for size, mode in ((4, 0o644), (100, 0o600), (1, 0o640)):
        ok(here.nfs.setattr(file, attributes(size=size, mode=mode)))
        (entry,) = (one for one in nfs.entries_plus(here.handle) if one.name == b"file")
        if entry.name_attributes is not None:
            assert (entry.name_attributes.size, entry.name_attributes.mode & 0o7777) == (size, mode)
