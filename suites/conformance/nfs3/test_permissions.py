"""What callers without permission may not do, and what owners may do whatever the mode is (RFC 1813 4.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from storagetest.suites.conformance.nfs3.conftest import Arranged
from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok, refused
from storagetest.wire.nfs3.harness import OTHER_UID, Nfs3Harness
from storagetest.wire.nfs3.types import nfs_fh3, nfsstat3, nfstime3, sattr3, stable_how, time_how
from storagetest.wire.rpc import RpcError, auth_sys
from storagetest.wire.rpc.types import auth_flavor, opaque_auth

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 1813 4.4")]

DENIED = (nfsstat3.NFS3ERR_ACCES, nfsstat3.NFS3ERR_PERM)
THEN = nfstime3(1_000_000_000, 0)
"""A time that every file system can keep."""
GROUP = 4005
"""A supplementary group of a caller (chosen)."""


@pytest.fixture
def other(bench: Nfs3Harness, users: None) -> Nfs3Client:  # noqa: ARG001  # it skips
    """Return the procedures, called by a user who is not root and owns nothing."""
    return bench.client(cred=auth_sys(OTHER_UID, OTHER_UID))


# Directories

Act = Callable[[Nfs3Client, nfs_fh3, nfs_fh3, nfs_fh3], Any]
"""A change by the first argument; a directory that only its owner may write to, one for all, and a file."""

CHANGES: dict[str, tuple[str, Act]] = {
    "RENAME-FROM": ("3.3.14", lambda nfs, own, all_, _file: nfs.rename(own, b"file", all_, b"new")),
    "RENAME-TO": ("3.3.14", lambda nfs, own, all_, _file: nfs.rename(all_, b"file", own, b"new")),
    "RENAME-OVER": ("3.3.14", lambda nfs, own, all_, _file: nfs.rename(all_, b"file", own, b"file")),
    "RENAME-IN": ("3.3.14", lambda nfs, own, _all, _file: nfs.rename(own, b"file", own, b"new")),
    "RMDIR": ("3.3.13", lambda nfs, own, _all, _file: nfs.rmdir(own, b"inner")),
    "LINK": ("3.3.15", lambda nfs, own, _all, file: nfs.link(file, own, b"new")),
}


def names(nfs: Nfs3Client, *directories: nfs_fh3) -> list[dict[bytes, int]]:
    """Return the names and fileids of each directory."""
    return [
        {one.name: one.fileid for one in nfs.entries(place) if one.name not in (b".", b"..")}
        for place in directories
    ]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            change,
            marks=pytest.mark.case(
                f"NF3-{change}-PERMISSION", section=f"RFC 1813 {section}", kills=("acces-accepted",)
            ),
        )
        for change, (section, _) in CHANGES.items()
    ],
)
def test_no_name_is_changed_without_permission(other: Nfs3Client, here: Arranged, change: str) -> None:
    """NFS3ERR_ACCES or NFS3ERR_PERM: the caller may not write to one of the directories (mode 755)."""
    own, open_ = here.directory(b"own"), here.directory(b"all", mode=0o777)
    ok(here.nfs.setattr(open_, attributes(mode=0o777)))
    for place in (own, open_):
        ok(here.nfs.create(place, b"file", new=attributes(mode=0o666)))
    ok(here.nfs.mkdir(own, b"inner"))
    before = names(here.nfs, own, open_)
    done = CHANGES[change][1](other, own, open_, here.nfs.find(open_, b"file"))
    if done.status == nfsstat3.NFS3ERR_NOTSUPP:
        pytest.skip("the server does not support this (NFS3ERR_NOTSUPP)")
    refused(done, *DENIED)
    assert names(here.nfs, own, open_) == before, "the call was refused, and names have changed"


# Attributes

SETS: dict[str, sattr3] = {
    "SIZE": attributes(size=1),
    "UID": attributes(uid=OTHER_UID),
    "GID": attributes(gid=OTHER_UID),
    "ATIME": attributes(atime=THEN),
    "MTIME": attributes(mtime=THEN),
    "NOW": attributes(mtime=time_how.SET_TO_SERVER_TIME),
}
KEPT = ("mode", "uid", "gid", "size", "atime", "mtime")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.case(f"NF3-SETATTR-DENIED-{name}", kills=("setattr-not-owner",)))
        for name in SETS
    ],
)
@pytest.mark.case(section="RFC 1813 3.3.2")
def test_no_attribute_of_a_file_of_others_is_set(other: Nfs3Client, here: Arranged, name: str) -> None:
    """NFS3ERR_ACCES or NFS3ERR_PERM: the file belongs to another user, and its mode is 644."""
    file = here.file(data=b"0123456789")
    ok(here.nfs.setattr(file, attributes(mode=0o644, atime=THEN, mtime=nfstime3(900_000_000, 0))))
    before = here.nfs.attributes(file)
    refused(other.setattr(file, SETS[name]), *DENIED)
    after = here.nfs.attributes(file)
    changed = [one for one in KEPT if getattr(after, one) != getattr(before, one)]
    assert not changed, f"the call was refused, and {changed} changed"


OWN: dict[str, sattr3] = {"MODE": attributes(mode=0o640), "MTIME": attributes(mtime=THEN)}


def closed(nfs: Nfs3Client, here: Arranged, data: bytes = b"") -> nfs_fh3:
    """Make a file of the caller of ``nfs`` with ``data``, to which its mode permits nothing."""
    ok(nfs.create(here.handle, b"own", new=attributes(mode=0o600)))
    file = nfs.find(here.handle, b"own")
    nfs.write_all(file, 0, data)
    ok(nfs.setattr(file, attributes(mode=0)))
    return file


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.case(f"NF3-SETATTR-OWN-{name}", kills=("setattr-own-closed",)))
        for name in OWN
    ],
)
@pytest.mark.usefixtures("sets_times")
@pytest.mark.case(section="RFC 1813 3.3.2")
def test_the_owner_sets_attributes_whatever_the_mode_is(other: Nfs3Client, here: Arranged, name: str) -> None:
    """Mode and times are the owner's to set, also those of a file that the owner may not open."""
    file = closed(other, here)
    ok(other.setattr(file, OWN[name]))
    found = here.nfs.attributes(file)
    if name == "MODE":
        assert found.mode & 0o7777 == 0o640, f"the mode is {found.mode & 0o7777:o}, and it was set to 640"
    else:
        assert found.mtime.seconds == THEN.seconds, f"mtime is {found.mtime.seconds} s, not {THEN.seconds} s"


# Data


@pytest.mark.case("NF3-OWNER-READ", level="SHOULD", kills=("read-bits-alone",))
def test_the_owner_reads_a_file_whatever_its_mode_is(other: Nfs3Client, here: Arranged) -> None:
    """A client may have opened the file before its mode changed: the owner has access regardless of it."""
    assert ok(other.read(closed(other, here, b"data"), 0, 4)).data == b"data"


@pytest.mark.case("NF3-OWNER-WRITE", level="SHOULD", kills=("write-bits-alone",))
def test_the_owner_writes_to_a_file_whatever_its_mode_is(other: Nfs3Client, here: Arranged) -> None:
    """A client may have opened the file before its mode changed: the owner has access regardless of it."""
    file = closed(other, here, b"data")
    ok(other.write(file, 1, b"x"))
    ok(other.setattr(file, attributes(mode=0o644)))  # also root may have the rights of another user
    assert ok(here.nfs.read(file, 0, 4)).data == b"dxta"


@pytest.mark.parametrize(
    ("whose", "mode"),
    [
        pytest.param(
            whose,
            mode,
            marks=pytest.mark.case(f"NF3-READ-EXECUTE-{whose}", level="SHOULD", kills=("read-bits-alone",)),
        )
        for whose, mode in (("GROUP", 0o110), ("GROUPS", 0o110), ("OTHER", 0o101))
    ],
)
@pytest.mark.usefixtures("users", "superuser", "authenticated")
def test_a_file_that_may_be_executed_is_read(
    bench: Nfs3Harness, here: Arranged, whose: str, mode: int
) -> None:
    """A client reads the pages of a program: either execute or read permission is enough."""
    file = here.file(data=b"program")
    ok(here.nfs.setattr(file, attributes(gid=GROUP, mode=mode)))
    gid, gids = {
        "GROUP": (GROUP, ()), "GROUPS": (OTHER_UID, (4004, GROUP)), "OTHER": (OTHER_UID, ()),
    }[whose]  # fmt: skip
    assert ok(bench.client(cred=auth_sys(OTHER_UID, gid, gids)).read(file, 0, 7)).data == b"program"


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(
            call,
            marks=pytest.mark.case(
                f"NF3-{call}-DENIED-LATER", section=f"RFC 1813 {section}, 4.4", kills=("descriptor-kept",)
            ),
        )
        for call, section in (("READ", "3.3.6"), ("WRITE", "3.3.7"))
    ],
)
@pytest.mark.usefixtures("superuser")
def test_permission_does_not_come_from_the_call_of_another_user(
    nfs: Nfs3Client, other: Nfs3Client, here: Arranged, call: str
) -> None:
    """There is no open file: what one caller is doing with a file gives no right to another (mode 600)."""
    file = here.file(data=b"secret" * 1000)
    ok(here.nfs.setattr(file, here.mode(0o600)))
    if call == "READ":
        ok(nfs.read(file, 0, 6))
        refused(other.read(file, 6, 6), *DENIED)
    else:
        ok(nfs.write(file, 0, b"SECRET", stable=stable_how.UNSTABLE))
        refused(other.write(file, 6, b"broken", stable=stable_how.UNSTABLE), *DENIED)
        found = ok(here.nfs.read(file, 6, 6)).data
        assert found == b"secret", f"the WRITE was refused, and the data are {found!r}"


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(
            call,
            marks=pytest.mark.case(
                f"NF3-{call}-DENIED-CHANGED",
                section=f"RFC 1813 {section}, 4.4",
                kills=("descriptor-kept",),
                builds_on=(f"NF3-{call}-DENIED-LATER",),
            ),
        )
        for call, section in (("READ", "3.3.6"), ("WRITE", "3.3.7"))
    ],
)
def test_permission_ends_when_the_mode_changes(other: Nfs3Client, here: Arranged, call: str) -> None:
    """Each call is judged by the mode of its time, also while the caller is reading or writing the file."""
    file = here.file(data=b"secret" * 1000)
    ok(here.nfs.setattr(file, here.mode(0o666)))
    how = stable_how.UNSTABLE
    ok(other.read(file, 0, 6) if call == "READ" else other.write(file, 0, b"SECRET", stable=how))
    ok(here.nfs.setattr(file, here.mode(0o600)))
    refused(other.read(file, 6, 6) if call == "READ" else other.write(file, 6, b"x", stable=how), *DENIED)


@pytest.mark.case("RPC-AUTH-NONE-READ", section="RFC 5531 8.2", level="SHOULD", kills=("read-permission",))
@pytest.mark.usefixtures("users", "superuser", "authenticated")
def test_a_caller_without_an_identity_does_not_read_files_of_root(
    bench: Nfs3Harness, here: Arranged, observe: Callable[[str], None]
) -> None:
    """A call of AUTH_NONE names no user: it is denied, or it has the rights of a user without privileges."""
    file = here.file(data=b"secret")
    ok(here.nfs.setattr(file, here.mode(0o600)))
    nfs = bench.client(cred=opaque_auth(auth_flavor.AUTH_NONE, b""))
    try:
        done = nfs.read(file, 0, 6)
    except RpcError as error:
        observe(error.reply.status)
        return
    observe(done.status.name)
    refused(done, *DENIED)
