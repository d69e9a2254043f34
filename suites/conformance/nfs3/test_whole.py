"""Listings that go on from any entry, what is stated of . and .., and numbers that need all their bytes.

The rules are those of RFC 1813 3.3.2, 3.3.11, 3.3.16 and 3.3.17, and RFC 5531 A.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs3.conftest import Arranged
from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok
from storagetest.wire.nfs3.harness import Nfs3Harness
from storagetest.wire.nfs3.types import (
    ACCESS3_READ,
    FSINFO3resok,
    READDIR3resok,
    READDIRPLUS3resok,
    ftype3,
    nfs_fh3,
    nfsstat3,
    specdata3,
)
from storagetest.wire.rpc import auth_sys

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 1813 3.3.16")]

Page = READDIR3resok | READDIRPLUS3resok
LISTS = {"READDIR": "RFC 1813 3.3.16", "READDIRPLUS": "RFC 1813 3.3.17"}
NAMES = [f"entry-{number:02}".encode() for number in range(24)]


def page(
    nfs: Nfs3Client, call: str, directory: nfs_fh3, *, cookie: int = 0, verifier: bytes = bytes(8)
) -> Page:
    """Return a page of at most 8 KiB; skip if the server has no READDIRPLUS."""
    if call == "READDIR":
        listed: Page = ok(nfs.readdir(directory, cookie=cookie, verifier=verifier, count=8192))
        return listed
    done = nfs.readdirplus(directory, cookie=cookie, verifier=verifier, maxcount=8192)
    if done.status == nfsstat3.NFS3ERR_NOTSUPP:
        pytest.skip("the server does not support READDIRPLUS (NFS3ERR_NOTSUPP)")
    found: Page = ok(done)
    return found


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(
            call,
            marks=pytest.mark.case(f"NF3-{call}-MIDDLE", section=section, kills=("cookie-of-last",)),
        )
        for call, section in LISTS.items()
    ],
)
def test_the_cookie_of_any_entry_leads_to_the_entry_behind_it(
    nfs: Nfs3Client, here: Arranged, call: str
) -> None:
    """A request has a cookie as the server returned it, that of any entry (3.3.16)."""
    directory = here.directory()
    here.nfs.create_all(directory, NAMES)
    first = page(nfs, call, directory)
    names = [one.name for one in first.reply.entries]
    for at in range(0, len(names) - 1, 5):
        following = page(
            nfs, call, directory, cookie=first.reply.entries[at].cookie, verifier=first.cookieverf
        )
        assert following.reply.entries, f"nothing follows entry {at} of {len(names)}"
        behind = following.reply.entries[0].name
        assert behind == names[at + 1], f"{behind!r} follows entry {at}, and it is {names[at + 1]!r}"


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(call, marks=pytest.mark.case(f"NF3-{call}-DOTS", section=section, kills=("dots-alike",)))
        for call, section in LISTS.items()
    ],
)
def test_dot_and_dotdot_are_the_directory_and_its_parent(nfs: Nfs3Client, here: Arranged, call: str) -> None:
    """The name . is the directory, and .. is its parent (3.2); an entry states the object of its name."""
    inner = here.directory()
    wanted = {b".": nfs.attributes(inner), b"..": nfs.attributes(here.handle)}
    found = {one.name: one for one in page(nfs, call, inner).reply.entries if one.name in wanted}
    if not found:
        pytest.skip("the server lists neither . nor ..")
    for name, entry in found.items():
        assert entry.fileid == wanted[name].fileid, f"the fileid of {name!r} is that of another object"
        stated = getattr(entry, "name_attributes", None)
        if stated is not None:
            assert stated.fileid == entry.fileid, f"the attributes of {name!r} are those of another object"
        handle = getattr(entry, "name_handle", None)
        if handle is not None:
            assert nfs.attributes(handle).fileid == entry.fileid, f"the handle of {name!r} is another's"


WIDE = {"MAJOR": specdata3(300, 7), "MINOR": specdata3(7, 70_000)}
"""Numbers of devices that do not fit in a byte, and in 16 bits; those of Linux have 12 and 20 bits."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.case(f"NF3-MKNOD-WIDE-{name}", kills=("rdev-cut",)))
        for name in WIDE
    ],
)
@pytest.mark.usefixtures("superuser")
@pytest.mark.case(section="RFC 1813 2.6, 3.3.11")
def test_large_numbers_of_a_device_are_kept_or_refused(nfs: Nfs3Client, here: Arranged, name: str) -> None:
    """specdata3 has two numbers of 32 bits; a server that makes the device keeps both of them."""
    done = nfs.mknod(here.handle, b"device", ftype3.NF3CHR, device=WIDE[name])
    if done.status:
        pytest.skip(f"the server makes no such device ({done.status.name})")
    assert nfs.attributes(nfs.find(here.handle, b"device")).rdev == WIDE[name]


GROUPS = tuple(range(4101, 4117))
"""As many groups as a credential of AUTH_SYS can have."""


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, marks=pytest.mark.case(f"NF3-ACCESS-GROUP-{place}", kills=("groups-eight",)))
        for place in (9, 16)
    ],
)
@pytest.mark.usefixtures("users", "superuser", "authenticated")
@pytest.mark.case(section="RFC 5531 A")
def test_each_group_of_a_credential_gives_access(bench: Nfs3Harness, here: Arranged, place: int) -> None:
    """A credential has up to 16 groups that contain the caller, and the last counts as the first does."""
    member = bench.client(cred=auth_sys(4001, 4001, GROUPS))
    files = {}
    for at in (1, place):
        files[at] = here.file(b"file-%d" % at)
        ok(here.nfs.setattr(files[at], attributes(gid=GROUPS[at - 1], mode=0o640)))
    if ok(member.access(files[1], ACCESS3_READ)).access != ACCESS3_READ:
        pytest.skip("the groups of a credential give no access: the server takes them from elsewhere")
    granted = ok(member.access(files[place], ACCESS3_READ)).access
    assert granted == ACCESS3_READ, f"group {place} of 16 gives no access, and the first does"


SIZES = {"4G": 1 << 32, "4G-5": (1 << 32) + 5, "5G-1": 5 * (1 << 30) - 1}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.case(f"NF3-SETATTR-SIZE-{name}", kills=("size-of-a-word",)))
        for name in SIZES
    ],
)
@pytest.mark.case(section="RFC 1813 3.3.2")
def test_a_size_that_needs_more_than_32_bits_is_set(
    nfs: Nfs3Client, here: Arranged, limits: FSINFO3resok, name: str
) -> None:
    """size3 has 64 bits; a size up to maxfilesize (3.3.19) is set, and it is the size that is stated."""
    size, file = SIZES[name], here.file(data=b"data")
    if size > limits.maxfilesize:
        pytest.skip(f"maxfilesize is {limits.maxfilesize}")
    done = nfs.setattr(file, attributes(size=size))
    if done.status in (nfsstat3.NFS3ERR_NOSPC, nfsstat3.NFS3ERR_DQUOT):
        pytest.skip(f"the file system has no space for {size} bytes ({done.status.name})")
    ok(done)
    assert nfs.attributes(file).size == size
