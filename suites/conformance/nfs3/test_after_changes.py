"""What replies state after a change, and limits that FSINFO and PATHCONF state (RFC 1813 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from storagetest.plugin.conformance.first_look import Look
from storagetest.suites.conformance.nfs3.conftest import Arranged
from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok, refused
from storagetest.wire.nfs3.harness import Nfs3Export, Nfs3Harness
from storagetest.wire.nfs3.mount import MOUNT_V3, mountstat3
from storagetest.wire.nfs3.types import (
    ACCESS3_DELETE,
    ACCESS3_EXTEND,
    ACCESS3_LOOKUP,
    ACCESS3_MODIFY,
    ACCESS3_READ,
    createmode3,
    nfs_fh3,
    nfsstat3,
)
from storagetest.wire.rpc import auth_sys

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 1813 3.3.4")]

USER = auth_sys(4001, 4001)
"""Another user than the owner of the files."""


def case(identifier: str, *values: Any, kills: tuple[str, ...], **more: Any) -> Any:
    """Return a parameter set with the mark of its case."""
    return pytest.param(*values, marks=pytest.mark.case(identifier, kills=kills, **more))


# Names

FIRST = b"verifier"


@pytest.mark.case("NF3-CREATE-EXCLUSIVE-BYTES", section="RFC 1813 3.3.8", kills=("exclusive-half",))
def test_each_byte_of_the_verifier_of_an_exclusive_create_counts(nfs: Nfs3Client, here: Arranged) -> None:
    """One bit of each byte is changed: the first one, because servers keep verifiers in times."""
    made = nfs.create(here.handle, b"new", mode=createmode3.EXCLUSIVE, verifier=FIRST)
    if made.status == nfsstat3.NFS3ERR_NOTSUPP:
        pytest.skip("the server has no exclusive create (NFS3ERR_NOTSUPP)")
    ok(made)
    for at in range(len(FIRST)):
        other = FIRST[:at] + bytes([FIRST[at] ^ 1]) + FIRST[at + 1 :]
        done = nfs.create(here.handle, b"new", mode=createmode3.EXCLUSIVE, verifier=other)
        refused(done, nfsstat3.NFS3ERR_EXIST)


LATER: dict[str, Callable[[Nfs3Client, nfs_fh3], Any]] = {
    "WRITE": lambda nfs, file: ok(nfs.write(file, 0, b"data")),
    "MODE": lambda nfs, file: ok(nfs.setattr(file, attributes(mode=0o600))),
    "SIZE": lambda nfs, file: ok(nfs.setattr(file, attributes(size=4))),
}
"""What becomes of a file that an exclusive CREATE has made."""


@pytest.mark.parametrize(
    "change",
    [
        case(f"NF3-CREATE-EXCLUSIVE-LATER-{name}", one, section="RFC 1813 3.3.8", kills=("exclusive-later",))
        for name, one in LATER.items()
    ],
)
def test_an_exclusive_create_of_a_file_that_was_changed_is_refused(
    nfs: Nfs3Client, here: Arranged, change: Callable[[Nfs3Client, nfs_fh3], Any]
) -> None:
    """Servers keep the verifier in attributes of the file, which the change may overwrite."""
    made = nfs.create(here.handle, b"new", mode=createmode3.EXCLUSIVE, verifier=FIRST)
    if made.status == nfsstat3.NFS3ERR_NOTSUPP:
        pytest.skip("the server has no exclusive create (NFS3ERR_NOTSUPP)")
    file = ok(made).obj or ok(nfs.lookup(here.handle, b"new")).object
    change(nfs, file)
    size = here.nfs.attributes(file).size
    done = nfs.create(here.handle, b"new", mode=createmode3.EXCLUSIVE, verifier=b"verifieR")
    refused(done, nfsstat3.NFS3ERR_EXIST)
    assert here.nfs.attributes(file).size == size, "an exclusive CREATE that is refused changes the size"


@pytest.mark.case("NF3-RENAME-REPLACED", section="RFC 1813 3.3.14", kills=("replaced-lives",))
def test_the_handle_of_a_file_that_was_replaced_is_stale(nfs: Nfs3Client, here: Arranged) -> None:
    here.file(b"file", b"data")
    here.file(b"other")
    replaced = ok(nfs.lookup(here.handle, b"other")).object
    nfs.attributes(replaced)
    ok(nfs.rename(here.handle, b"file", here.handle, b"other"))
    refused(nfs.getattr(replaced), nfsstat3.NFS3ERR_STALE)


@pytest.mark.parametrize(
    "kind",
    [
        case(
            "NF3-LINKS-REMOVE",
            "remove",
            kills=("nlink-removed-twice", "nlink-removed-never"),
            builds_on=("NF3-LINK-01",),
        ),
        case("NF3-LINKS-RENAME", "rename", kills=("nlink-removed-never",), builds_on=("NF3-LINK-01",)),
    ],
)
@pytest.mark.case(section="RFC 1813 3.3.12, 3.3.14, 3.3.15")
def test_each_name_that_is_made_and_removed_is_counted_once(
    nfs: Nfs3Client, here: Arranged, kind: str
) -> None:
    file, other = here.file(b"name-0"), here.file(b"other")
    here.link(file, b"name-1")
    here.link(file, b"name-2")
    assert nfs.attributes(file).nlink == 3
    for at in (2, 1):
        if kind == "remove":
            ok(nfs.remove(here.handle, b"name-%d" % at))
        else:
            here.link(other, b"over")
            ok(nfs.rename(here.handle, b"over", here.handle, b"name-%d" % at))
        links = nfs.attributes(file).nlink
        assert links == at, f"name {at} is gone: nlink is {links}, not {at}"


# ACCESS


def permitted(mode: int, *, directory: bool) -> int:
    """Return what ACCESS states to another user than owner and group of a file with this mode."""
    found = ACCESS3_READ if mode & 4 else 0
    found |= ACCESS3_MODIFY | ACCESS3_EXTEND if mode & 2 else 0
    return found | (ACCESS3_LOOKUP if directory and mode & 1 else 0)


@pytest.mark.parametrize(
    "modes",
    [
        case(
            "NF3-ACCESS-AFTER-FILE",
            (0o666, 0o600, 0o644, 0o622),
            kills=("access-sticks",),
            builds_on=("NF3-ACCESS-READ", "NF3-ACCESS-WRITE"),
        ),
        case(
            "NF3-ACCESS-AFTER-DIR",
            (0o777, 0o700, 0o755, 0o711),
            kills=("access-sticks",),
            builds_on=("NF3-ACCESS-DIR",),
        ),
    ],
)
@pytest.mark.usefixtures("users")
def test_access_follows_each_change_of_the_mode(
    bench: Nfs3Harness, here: Arranged, modes: tuple[int, ...]
) -> None:
    directory = bool(modes[0] & 1)
    handle = here.directory(b"one") if directory else here.file(b"one")
    bits = ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND | (ACCESS3_LOOKUP if directory else 0)
    user = bench.client(cred=USER)
    for mode in (*modes, modes[0]):
        ok(here.nfs.setattr(handle, attributes(mode=mode)))
        found, wanted = ok(user.access(handle, bits)).access, permitted(mode, directory=directory)
        assert found == wanted, f"mode {mode:o}: ACCESS states {found:#x}, not {wanted:#x}"


@pytest.mark.case("NF3-ACCESS-DELETE", level="SHOULD", kills=("access-deletes",))
@pytest.mark.usefixtures("users")
def test_a_file_is_removed_if_access_states_so(bench: Nfs3Harness, here: Arranged) -> None:
    """Whether a name can be removed is a matter of its directory; a server may leave DELETE out."""
    directory = here.directory(b"below", mode=0o755)
    ok(here.nfs.create(directory, b"file", mode=createmode3.UNCHECKED, new=attributes(mode=0o666)))
    user = bench.client(cred=USER)
    stated = ok(user.access(here.nfs.find(directory, b"file"), ACCESS3_DELETE)).access
    refused(user.remove(directory, b"file"), nfsstat3.NFS3ERR_ACCES, nfsstat3.NFS3ERR_PERM)
    assert not stated, "ACCESS states DELETE to a user who may not remove the name from its directory"


# READDIR


def _readdir(nfs: Nfs3Client, where: nfs_fh3, cookie: int, verifier: bytes) -> Any:
    return nfs.readdir(where, cookie=cookie, verifier=verifier, count=700)


def _readdirplus(nfs: Nfs3Client, where: nfs_fh3, cookie: int, verifier: bytes) -> Any:
    return nfs.readdirplus(where, cookie=cookie, verifier=verifier, dircount=700, maxcount=3000)


SECTIONS = {"READDIR": (_readdir, "RFC 1813 3.3.16"), "READDIRPLUS": (_readdirplus, "RFC 1813 3.3.17")}
REMOVED = {"LAST": slice(-1, None), "PAGE": slice(None), "FIRST": slice(0, 1)}


@pytest.mark.parametrize(
    ("read", "removed"),
    [
        case(
            f"NF3-{name}-REMOVED-{which}",
            read,
            removed,
            kills=("listing-removed-end", "listing-removed-again"),
            section=section,
            builds_on=(
                f"NF3-{name}-SMALL",
                f"NF3-{name}-PAGES",
                *((f"NF3-{name}-REMOVED-LAST",) if which != "LAST" else ()),
            ),
        )
        for name, (read, section) in SECTIONS.items()
        for which, removed in REMOVED.items()
    ],
)
def test_a_listing_goes_on_after_entries_of_its_page_were_removed(
    nfs: Nfs3Client,
    here: Arranged,
    observe: Callable[[str], None],
    read: Callable[..., Any],
    removed: slice,
) -> None:
    """The names that stay are listed once, or the server states that the cookie is no longer valid."""
    wanted = {b"name-%02d" % at for at in range(40)}
    here.nfs.create_all(here.handle, sorted(wanted))
    wanted |= {b".", b".."}
    done = read(nfs, here.handle, 0, bytes(8))
    if done.status == nfsstat3.NFS3ERR_NOTSUPP:
        pytest.skip("the server does not support READDIRPLUS (NFS3ERR_NOTSUPP)")
    first = ok(done)
    page = first.reply.entries
    assert page, "the first page has no entries"
    assert not first.reply.eof, f"a small page has all {len(page)} names"
    found = [one.name for one in page]
    for name in [name for name in found if name not in (b".", b"..")][removed]:
        ok(here.nfs.remove(here.handle, name))
    cookie, verifier = page[-1].cookie, first.cookieverf
    for _ in range(len(wanted)):
        done = read(nfs, here.handle, cookie, verifier)
        if done.status == nfsstat3.NFS3ERR_BAD_COOKIE:
            observe(done.status.name)
            return
        more = ok(done).reply
        found += [one.name for one in more.entries]
        if more.eof:
            assert sorted({b".", b"..", *found}) == sorted(wanted), "the pages lack names"
            assert len(found) == len(set(found)), "the pages have a name twice"
            return
        assert more.entries, "a page has no entries, and is not the last one"
        cookie, verifier = more.entries[-1].cookie, done.value.cookieverf
    raise AssertionError("the listing does not end")


# Limits


@pytest.mark.case("NF3-PATHCONF-NAME-OVER", section="RFC 1813 3.3.20", kills=("pathconf-name-max-less",))
def test_a_longer_name_than_name_max_is_not_made(nfs: Nfs3Client, here: Arranged) -> None:
    """It is refused with NAMETOOLONG if no_trunc is TRUE, and else cut."""
    stated = ok(nfs.pathconf(here.handle))
    if stated.name_max >= 4096:
        pytest.skip(f"name_max is {stated.name_max}")
    name = b"n" * (stated.name_max + 1)
    done = nfs.create(here.handle, name)
    if stated.no_trunc:
        refused(done, nfsstat3.NFS3ERR_NAMETOOLONG)
    else:
        ok(done)
    assert name not in [one.name for one in here.nfs.entries(here.handle)], f"name_max is {stated.name_max}"


@pytest.mark.case(
    "NF3-FSINFO-FILE-OVER", section="RFC 1813 3.3.19", level="SHOULD", kills=("fsinfo-file-less",)
)
def test_a_file_is_not_larger_than_maxfilesize(
    nfs: Nfs3Client, here: Arranged, observe: Callable[[str], None]
) -> None:
    largest, file = ok(nfs.fsinfo(here.handle)).maxfilesize, here.file()
    if largest >= (1 << 64) - 1:
        pytest.skip("maxfilesize is the largest number")
    done = nfs.setattr(file, attributes(size=largest + 1))
    observe(done.status.name)
    assert done.status != nfsstat3.NFS3_OK, f"maxfilesize is {largest}, and a size of one byte more is set"


@pytest.mark.parametrize(
    "kind",
    [
        case("NF3-FSINFO-OF-FILE", "file", kills=("fsinfo-of-file",)),
        case("NF3-FSINFO-OF-DIR", "directory", kills=("fsinfo-changes",)),
        case("NF3-FSINFO-OF-SYMLINK", "symlink", kills=("fsinfo-of-file",)),
    ],
)
@pytest.mark.case(section="RFC 1813 3.3.19")
def test_static_information_is_that_of_the_file_system(
    nfs: Nfs3Client, here: Arranged, root: nfs_fh3, kind: str
) -> None:
    """Whatever object of a file system FSINFO names, its limits and properties are the same."""
    handle = getattr(here, kind)()
    if nfs.attributes(handle).fsid != nfs.attributes(root).fsid:
        pytest.skip("the object is in another file system than the root")
    first, second = (replace(ok(nfs.fsinfo(one)), obj_attributes=None) for one in (root, handle))
    assert first == second, f"FSINFO of the root and of a {kind} differ"


# MOUNT


@pytest.mark.case("MNT-MNT-BELOW", section="RFC 1813 5.2.1", kills=("mnt-below-is-root",))
def test_a_directory_below_the_export_is_itself_or_is_refused(
    bench: Nfs3Harness, about: Look[Nfs3Export], observe: Callable[[str], None]
) -> None:
    facts = about.get()
    path = f"{facts.endpoint.export.rstrip('/')}/".encode() + facts.name
    mounted = bench.rpc(MOUNT_V3).call("MNT", path)
    observe(mounted.fhs_status.name)
    if mounted.fhs_status == mountstat3.MNT3_OK:
        nfs = bench.arranger()
        found = nfs.attributes(nfs_fh3(mounted.value.fhandle)).fileid
        assert found == nfs.attributes(facts.directory).fileid, "MNT returns the handle of another directory"
