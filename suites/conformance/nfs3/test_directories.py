"""READDIR and READDIRPLUS (RFC 1813 3.3.16, 3.3.17), also while entries come and go."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from storagetest.wire.nfs3.client import NO_VERIFIER, Nfs3Client, ok, refused
from storagetest.wire.nfs3.harness import Nfs3Harness
from storagetest.wire.nfs3.types import READDIRPLUS3resok, ftype3, nfsstat3
from storagetest.wire.rpc import auth_sys

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 1813 3.3.16")]

PLUS = "RFC 1813 3.3.17"
GONE = ("stale-accepted", "stale-noent")
NAMES = [f"name-{number:02}".encode() for number in range(40)]


def filled(here, names=NAMES):
    directory = here.directory()
    here.nfs.create_all(directory, names)
    return directory


def plus_entries(nfs: Nfs3Client, directory, *, maxcount: int = 32768):
    cookie, verifier, found = 0, NO_VERIFIER, []
    seen = {cookie}
    while True:
        page: READDIRPLUS3resok = ok(
            nfs.readdirplus(directory, cookie=cookie, verifier=verifier, maxcount=maxcount)
        )
        found += page.reply.entries
        if page.reply.eof:
            return found
        assert page.reply.entries, "3.3.17: no entries, and not the end"
        cookie, verifier = page.reply.entries[-1].cookie, page.cookieverf
        assert cookie not in seen, f"3.3.17: the cookie {cookie} comes twice, so the directory has no end"
        seen.add(cookie)


@pytest.fixture
def plus(nfs: Nfs3Client, root) -> None:
    """Skip if the server has no READDIRPLUS."""
    if nfs.readdirplus(root).status == nfsstat3.NFS3ERR_NOTSUPP:
        pytest.skip("the server does not support READDIRPLUS (NFS3ERR_NOTSUPP)")


def real(entries) -> list[bytes]:
    return sorted(one.name for one in entries if one.name not in (b".", b".."))


@pytest.mark.case("NF3-READDIR-ALL", kills=("readdir-drops", "readdir-repeats"))
def test_each_entry_is_returned_once(nfs: Nfs3Client, here) -> None:
    assert real(nfs.entries(filled(here))) == NAMES


@pytest.mark.case("NF3-READDIR-SMALL", kills=("readdir-small-refused",))
def test_a_count_of_512_is_large_enough_for_an_entry(nfs: Nfs3Client, here) -> None:
    """NFS3ERR_TOOSMALL is for a count that no entry fits in (3.3.16)."""
    assert ok(nfs.readdir(filled(here), count=512)).reply.entries


@pytest.mark.case(
    "NF3-READDIR-PAGES",
    kills=("readdir-later-page-first-lost", "readdir-drops", "readdir-repeats", "readdir-cookie"),
    builds_on=("NF3-READDIR-SMALL",),
)
def test_each_entry_is_returned_once_over_many_pages(nfs: Nfs3Client, here) -> None:
    assert real(nfs.entries(filled(here), count=512)) == NAMES


@pytest.mark.case("NF3-READDIR-COOKIES", kills=("readdir-same-cookies",))
def test_each_cookie_is_unique(nfs: Nfs3Client, here) -> None:
    cookies = [one.cookie for one in nfs.entries(filled(here))]
    assert len(set(cookies)) == len(cookies)


@pytest.mark.case("NF3-READDIR-EMPTY", kills=("readdir-eof-never",))
def test_an_empty_directory_has_an_end(nfs: Nfs3Client, here) -> None:
    directory, cookie, verifier = here.directory(), 0, NO_VERIFIER
    for _ in range(3):  # a page may have one entry: ".", ".." and an end without any
        page = ok(nfs.readdir(directory, cookie=cookie, verifier=verifier))
        assert not real(page.reply.entries)
        if page.reply.eof:
            return
        assert page.reply.entries, "a page has no entries, and is not the last one"
        cookie, verifier = page.reply.entries[-1].cookie, page.cookieverf
    raise AssertionError("an empty directory has no end after three pages")


@pytest.mark.case("NF3-READDIR-COUNT", kills=("readdir-large",), builds_on=("NF3-READDIR-SMALL",))
def test_a_result_is_no_longer_than_count(nfs: Nfs3Client, here) -> None:
    directory = filled(here)
    for count in (512, 1024, 4096):
        done = nfs.readdir(directory, count=count)
        size = len(ok(done).encode().data)
        assert size <= count, f"READDIR3resok has {size} bytes, and count is {count}"


def behind_the_end(read: Callable[..., Any]) -> Any:
    """Read a directory of seven entries in pages of any size; return what the last cookie leads to."""
    cookie, verifier = 0, NO_VERIFIER
    for _ in range(20):
        page = ok(read(cookie=cookie, verifier=verifier))
        verifier = page.cookieverf
        cookie = page.reply.entries[-1].cookie if page.reply.entries else cookie
        if page.reply.eof:
            return ok(read(cookie=cookie, verifier=verifier)).reply
    raise AssertionError("20 pages of a directory of seven entries state no end")


@pytest.mark.case("NF3-READDIR-END", kills=("readdir-end-again",))
def test_nothing_follows_the_last_entry(nfs: Nfs3Client, here) -> None:
    """The cookie of the last entry leads behind it: the page has no entry, and states the end."""
    behind = behind_the_end(partial(nfs.readdir, filled(here, NAMES[:5])))
    assert not behind.entries, f"{behind.entries[0].name!r} follows the last entry"
    assert behind.eof, "no entry follows the last one, and the page states no end"


@pytest.mark.case("NF3-READDIR-TOOSMALL", kills=("readdir-toosmall",))
def test_a_count_for_no_entry_is_too_small(nfs: Nfs3Client, here) -> None:
    refused(nfs.readdir(filled(here), count=8), nfsstat3.NFS3ERR_TOOSMALL)


@pytest.mark.case("NF3-READDIR-FILEID", kills=("readdir-fileid",))
def test_fileids_are_those_of_the_files(nfs: Nfs3Client, here) -> None:
    directory = filled(here, NAMES[:3])
    found = {one.name: one.fileid for one in nfs.entries(directory)}
    for name in NAMES[:3]:
        assert found[name] == here.nfs.attributes(here.nfs.find(directory, name)).fileid


@pytest.mark.case(
    "NF3-READDIR-AGAIN",
    kills=("readdir-cookie-ignored",),
    builds_on=("NF3-READDIR-SMALL", "NF3-READDIR-PAGES"),
)
def test_a_cookie_can_be_used_again(nfs: Nfs3Client, here) -> None:
    directory = filled(here)
    page = ok(nfs.readdir(directory, count=512))
    last = page.reply.entries[-1].cookie
    first, again = (
        ok(nfs.readdir(directory, cookie=last, verifier=page.cookieverf, count=512)) for _ in range(2)
    )
    assert [one.name for one in first.reply.entries] == [one.name for one in again.reply.entries]
    assert not {one.name for one in first.reply.entries} & {one.name for one in page.reply.entries}


@pytest.mark.case(
    "NF3-READDIR-REMOVE",
    kills=("readdir-drops", "readdir-cookie"),
    builds_on=("NF3-READDIR-SMALL", "NF3-READDIR-PAGES"),
)
def test_entries_that_stay_are_returned_while_others_go(nfs: Nfs3Client, here) -> None:
    directory = filled(here)
    page = ok(nfs.readdir(directory, count=512))
    seen = [one.name for one in page.reply.entries]
    for name in NAMES[::4]:
        ok(here.nfs.remove(directory, name))
    cookies = {0}
    while not page.reply.eof:
        assert page.reply.entries, "a page has no entries, and is not the last one"
        cookie = page.reply.entries[-1].cookie
        assert cookie not in cookies, f"the cookie {cookie} comes twice, so the directory has no end"
        cookies.add(cookie)
        done = nfs.readdir(directory, cookie=cookie, verifier=page.cookieverf, count=512)
        if done.status == nfsstat3.NFS3ERR_BAD_COOKIE:
            pytest.skip("the server refuses cookies of a directory that was changed, as it may")
        page = ok(done)
        seen += [one.name for one in page.reply.entries]
    stay = set(NAMES) - set(NAMES[::4])
    assert stay <= set(seen), f"not returned: {sorted(stay - set(seen))}"
    assert len(seen) == len(set(seen)), "an entry was returned twice"


@pytest.mark.case("NF3-READDIR-NOTDIR", kills=("notdir-accepted", "notdir-other"))
def test_a_file_is_no_directory(nfs: Nfs3Client, here) -> None:
    refused(nfs.readdir(here.file()), nfsstat3.NFS3ERR_NOTDIR)


@pytest.mark.case("NF3-READDIR-PERMISSION", kills=("acces-accepted",))
@pytest.mark.usefixtures("users")
def test_a_directory_without_permission_to_read_is_refused(bench: Nfs3Harness, here) -> None:
    directory = here.directory(mode=0o700)
    refused(bench.client(cred=auth_sys(4001, 4001)).readdir(directory), nfsstat3.NFS3ERR_ACCES)


@pytest.mark.case("NF3-READDIR-STALE", kills=GONE, builds_on=("NF3-HANDLE-STALE",))
def test_a_removed_directory_is_not_read(nfs: Nfs3Client, here) -> None:
    directory = here.directory()
    ok(here.nfs.rmdir(here.handle, b"directory"))
    refused(nfs.readdir(directory), nfsstat3.NFS3ERR_STALE)


@pytest.mark.case("NF3-READDIRPLUS-ALL", section=PLUS, kills=("readdir-drops", "readdir-repeats"))
@pytest.mark.usefixtures("plus")
def test_each_entry_of_readdirplus_is_returned_once(nfs: Nfs3Client, here) -> None:
    assert real(plus_entries(nfs, filled(here))) == NAMES


@pytest.mark.case("NF3-READDIRPLUS-SMALL", section=PLUS, kills=("readdir-small-refused",))
@pytest.mark.usefixtures("plus")
def test_a_maxcount_of_1024_is_large_enough_for_an_entry(nfs: Nfs3Client, here) -> None:
    """An entry with its attributes and a handle of 64 bytes takes less than 300 bytes (3.3.17)."""
    assert ok(nfs.readdirplus(filled(here), maxcount=1024)).reply.entries


@pytest.mark.case(
    "NF3-READDIRPLUS-PAGES",
    section=PLUS,
    kills=("readdir-drops", "readdir-repeats"),
    builds_on=("NF3-READDIRPLUS-SMALL",),
)
@pytest.mark.usefixtures("plus")
def test_each_entry_of_readdirplus_is_returned_once_over_many_pages(nfs: Nfs3Client, here) -> None:
    assert real(plus_entries(nfs, filled(here), maxcount=2048)) == NAMES


@pytest.mark.case(
    "NF3-READDIRPLUS-MAXCOUNT", section=PLUS, kills=("readdir-large",), builds_on=("NF3-READDIRPLUS-SMALL",)
)
@pytest.mark.usefixtures("plus")
def test_a_result_is_no_longer_than_maxcount(nfs: Nfs3Client, here) -> None:
    directory = filled(here)
    for maxcount in (1024, 4096):
        done = nfs.readdirplus(directory, maxcount=maxcount)
        size = len(ok(done).encode().data)
        assert size <= maxcount, f"READDIRPLUS3resok has {size} bytes, and maxcount is {maxcount}"


@pytest.mark.case(
    "NF3-READDIRPLUS-HANDLES", section=PLUS, kills=("readdirplus-handles", "readdirplus-attributes")
)
@pytest.mark.usefixtures("plus")
def test_handles_and_attributes_are_those_of_the_files(nfs: Nfs3Client, here) -> None:
    directory = filled(here, NAMES[:5])
    for entry in plus_entries(nfs, directory):
        if entry.name in NAMES:
            found = here.nfs.attributes(here.nfs.find(directory, entry.name))
            assert entry.fileid == found.fileid
            if entry.name_attributes is not None:
                assert entry.name_attributes == found
            if entry.name_handle is not None:
                assert here.nfs.attributes(entry.name_handle).fileid == found.fileid


@pytest.mark.case("NF3-READDIRPLUS-END", section=PLUS, kills=("readdir-end-again",))
@pytest.mark.usefixtures("plus")
def test_nothing_follows_the_last_entry_of_readdirplus(nfs: Nfs3Client, here) -> None:
    """The cookie of the last entry leads behind it: the page has no entry, and states the end."""
    behind = behind_the_end(partial(nfs.readdirplus, filled(here, NAMES[:5])))
    assert not behind.entries, f"{behind.entries[0].name!r} follows the last entry"
    assert behind.eof, "no entry follows the last one, and the page states no end"


@pytest.mark.case("NF3-READDIRPLUS-TOOSMALL", section=PLUS, kills=("readdir-toosmall",))
@pytest.mark.usefixtures("plus")
def test_a_maxcount_for_no_entry_is_too_small(nfs: Nfs3Client, here) -> None:
    refused(nfs.readdirplus(filled(here), dircount=8, maxcount=8), nfsstat3.NFS3ERR_TOOSMALL)


@pytest.mark.case("NF3-READDIRPLUS-NOTDIR", section=PLUS, kills=("notdir-accepted", "notdir-other"))
@pytest.mark.usefixtures("plus")
def test_readdirplus_of_a_file_is_refused(nfs: Nfs3Client, here) -> None:
    refused(nfs.readdirplus(here.file()), nfsstat3.NFS3ERR_NOTDIR)


@pytest.mark.case(
    "NF3-READDIRPLUS-KINDS",
    section=PLUS,
    kills=("readdirplus-symlink-size",),
    builds_on=("NF3-READDIRPLUS-HANDLES",),
)
@pytest.mark.usefixtures("plus")
def test_a_listing_has_the_attributes_of_objects_of_each_kind(nfs: Nfs3Client, here) -> None:
    """The attributes of a file, a directory, a symbolic link and a FIFO are those of GETATTR."""
    handles = {
        b"file": here.file(data=b"data"),
        b"directory": here.directory(),
        b"link": here.symlink(b"link"),
    }
    made = here.nfs.mknod(here.handle, b"fifo", ftype3.NF3FIFO)
    if made.status == nfsstat3.NFS3_OK:  # a server may have no special files (3.3.11)
        handles[b"fifo"] = here.nfs.find(here.handle, b"fifo")
    listed = {entry.name: entry for entry in plus_entries(nfs, here.handle)}
    for name, handle in handles.items():
        entry, found = listed[name], here.nfs.attributes(handle)
        assert entry.fileid == found.fileid, f"{name!r} has another fileid in the listing"
        if entry.name_attributes is not None:
            assert entry.name_attributes == found, f"{name!r} in READDIRPLUS and in GETATTR"
