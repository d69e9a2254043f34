# ruff: noqa: ARG001  # `names` makes the entries
"""READDIR (RFC 7530 16.24, RFC 8881 18.23)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.wire.nfs4.attributes import decode_attributes
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.harness import entries
from storagetest.wire.nfs4.operations import create, putfh, readdir, remove
from storagetest.wire.nfs4.types import (
    FATTR4_FILEID,
    FATTR4_TIME_ACCESS_SET,
    FATTR4_TIME_MODIFY_SET,
    FATTR4_TYPE,
    nfsstat4,
)
from storagetest.wire.xdr import encode

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

COUNT = 60


@pytest.fixture
def names(here):
    """Make directories in the case's directory, and return their names."""
    made = [b"entry-%03d" % number for number in range(COUNT)]
    here.directories(made)
    return made


@rule("READDIR-01", "16.24.4", "18.23.3", kills=("readdir-lost",))
def test_every_entry_is_returned_once(nfs, here, names):
    assert sorted(one.name for one in entries(nfs, here.handle)) == names


@rule("READDIR-02", "16.24.4", "18.23.3", kills=("readdir-lost", "readdir-twice"))
def test_every_entry_is_returned_once_in_small_replies(nfs, here, names):
    assert sorted(one.name for one in entries(nfs, here.handle, maxcount=512)) == names


@rule(
    "READDIR-03",
    "16.24.4",
    "18.23.3",
    kills=(
        "readdir-low-cookies",
        "readdir-cookie",
    ),
)
def test_cookies_are_unique_and_not_reserved(nfs, here, names):
    cookies = [one.cookie for one in entries(nfs, here.handle, maxcount=1024)]
    assert len(set(cookies)) == COUNT
    assert not {0, 1, 2} & set(cookies), "0 begins, 1 and 2 are reserved"


@rule("READDIR-04", "16.24.4", "18.23.3", level="SHOULD", kills=("readdir-dots",))
def test_dot_and_dot_dot_are_no_entries(nfs, here, names):
    assert not {b".", b".."} & {one.name for one in entries(nfs, here.handle)}


@rule(
    "READDIR-05", "16.24.4", "18.23.3", kills=("readdir-big",), over={"512": 512, "1024": 1024, "4096": 4096}
)
def test_a_reply_is_not_longer_than_maxcount(nfs, here, names, what):
    found = ok(
        nfs.compound(putfh(here.handle), readdir(maxcount=what, numbers=(FATTR4_TYPE, FATTR4_FILEID)))
    )["READDIR"]
    assert len(encode(type(found), found).data) <= what
    assert found.reply.entries


@rule("READDIR-06", "16.24.4", "18.23.3", kills=("readdir-toosmall",), over={"0": 0, "20": 20})
def test_a_maxcount_for_no_entry_is_too_small(nfs, here, names, what):
    refused(nfs.compound(putfh(here.handle), readdir(maxcount=what)), nfsstat4.NFS4ERR_TOOSMALL)


@rule(
    "READDIR-SET-ONLY",
    "5.5",
    "5.5",
    kills=("readdir-set-only",),
    over={"ACCESS": FATTR4_TIME_ACCESS_SET, "MODIFY": FATTR4_TIME_MODIFY_SET},
)
def test_a_set_only_attribute_of_entries_is_refused(nfs, here, facts, version, names, what):
    """READDIR gets the attributes of entries as GETATTR does: a set-only one is NFS4ERR_INVAL."""
    if what not in facts.supported[version]:
        pytest.skip(f"the server does not support attribute {what}")
    asked = readdir(numbers=(FATTR4_TYPE, what))
    refused(nfs.compound(putfh(here.handle), asked), nfsstat4.NFS4ERR_INVAL)


@rule("READDIR-07", "16.24.4", "18.23.3", kills=("readdir-notdir",))
def test_a_file_is_no_directory(nfs, here):
    refused(nfs.compound(putfh(here.file()), readdir()), nfsstat4.NFS4ERR_NOTDIR)


@rule("READDIR-08", "16.24.4", "18.23.3", kills=("readdir-attributes",))
def test_attributes_of_entries_are_those_of_getattr(nfs, here, names):
    for one in list(entries(nfs, here.handle, numbers=(FATTR4_FILEID, FATTR4_TYPE)))[:5]:
        assert decode_attributes(one.attrs) == here.read(here.find(one.name), FATTR4_FILEID, FATTR4_TYPE)


@rule("READDIR-09", "16.24.4", "18.23.3", kills=("readdir-eof",))
def test_an_empty_directory_is_at_its_end_at_once(nfs, here):
    found = ok(nfs.compound(putfh(here.handle), readdir()))["READDIR"].reply
    assert (found.entries, found.eof) == ((), True)


@rule("READDIR-10", "16.24.4", "18.23.3", kills=("readdir-lost",))
def test_entries_that_stay_are_returned_while_others_go_and_come(nfs, here, names):
    seen, cookie, verifier, eof = [], 0, bytes(8), False
    gone, cookies = set(), {0}
    while not eof:
        done = nfs.compound(putfh(here.handle), readdir(cookie=cookie, verifier=verifier, maxcount=512))
        if gone and done.status == nfsstat4.NFS4ERR_NOT_SAME:
            pytest.skip("the server refuses cookies of a directory that was changed, as it may")
        page = ok(done)["READDIR"]
        seen += [one.name for one in page.reply.entries]
        eof = page.reply.eof
        assert eof or page.reply.entries, "a page has no entries, and is not the last one"
        if page.reply.entries:
            cookie, verifier = page.reply.entries[-1].cookie, page.cookieverf
            assert cookie not in cookies, f"the cookie {cookie} comes twice, so the directory has no end"
            cookies.add(cookie)
        if len(gone) < 5 and not eof:
            victim = seen[0 if not gone else len(gone)]
            gone.add(victim)
            ok(
                here.nfs.compound(
                    putfh(here.handle), remove(victim), putfh(here.handle), create(b"new-%d" % len(gone))
                )
            )
    stayed = [name for name in seen if name.startswith(b"entry")]
    assert len(stayed) == len(set(stayed)), "an entry was returned twice"
    assert set(names) - gone <= set(stayed), "an entry that stayed was not returned"


@rule("READDIR-11", "16.24.4", "18.23.3", level="SHOULD", kills=("readdir-reserved",), over={"1": 1, "2": 2})
def test_a_reserved_cookie_is_bad(nfs, here, names, what):
    refused(nfs.compound(putfh(here.handle), readdir(cookie=what)), nfsstat4.NFS4ERR_BAD_COOKIE)


@rule("READDIR-12", "16.24.4", "18.23.3", kills=("readdir-same-verifier",))
def test_a_read_that_goes_on_has_the_verifier_of_the_first_reply(nfs, here, names):
    first = ok(nfs.compound(putfh(here.handle), readdir(maxcount=512)))["READDIR"]
    later = readdir(cookie=first.reply.entries[-1].cookie, verifier=first.cookieverf, maxcount=512)
    assert ok(nfs.compound(putfh(here.handle), later))["READDIR"].reply.entries


@rule("READDIR-13", "16.24.4", "18.23.3", kills=("readdir-second-none",))
def test_each_of_two_reads_in_a_compound_returns_its_entries(nfs, here, names):
    one = (putfh(here.handle), readdir(maxcount=16384, numbers=(FATTR4_TYPE, FATTR4_FILEID)))
    done = ok(nfs.compound(*one, *one))
    for read in (done.results[1], done.results[3]):
        page = read.value.value.reply
        found = {entry.name for entry in page.entries}
        assert found, "a READDIR in a compound returns no entry"
        assert found == set(names) if page.eof else found <= set(names), f"a READDIR returns {sorted(found)}"


@rule("READDIR-PAGE-OTHERS", "16.24.4", "18.23.3", kills=("readdir-first-mask",), after=("READDIR-12",))
def test_each_page_has_the_attributes_that_it_was_asked_for(nfs, here, names):
    """A later READDIR may ask for other attributes than the first one of the listing."""
    cookie, verifier, pages = 0, bytes(8), 0
    for numbers in ((FATTR4_TYPE,), (FATTR4_FILEID,), (), (FATTR4_TYPE, FATTR4_FILEID)):
        asked = readdir(cookie=cookie, verifier=verifier, maxcount=512, numbers=numbers)
        page = ok(nfs.compound(putfh(here.handle), asked))["READDIR"]
        for one in page.reply.entries:
            stated = tuple(sorted(decode_attributes(one.attrs)))
            assert stated == numbers, (
                f"page {pages + 1}: {one.name!r} has the attributes {stated}, not {numbers}"
            )
        if page.reply.eof:
            break
        cookie, verifier, pages = page.reply.entries[-1].cookie, page.cookieverf, pages + 1
    assert pages, f"a page of 512 bytes has all {COUNT} names"
