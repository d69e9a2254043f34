"""GETATTR, SETATTR and ACCESS (RFC 1813 3.3.1, 3.3.2, 3.3.4), and the attributes of results (2.6)."""

from __future__ import annotations

import pytest

from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok, refused
from storagetest.wire.nfs3.harness import Nfs3Harness
from storagetest.wire.nfs3.types import (
    ACCESS3_DELETE,
    ACCESS3_EXECUTE,
    ACCESS3_EXTEND,
    ACCESS3_LOOKUP,
    ACCESS3_MODIFY,
    ACCESS3_READ,
    ftype3,
    nfs_fh3,
    nfsstat3,
    nfstime3,
    time_how,
)
from storagetest.wire.rpc import auth_sys

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 1813 3.3.1")]

ALL = ACCESS3_READ | ACCESS3_LOOKUP | ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_DELETE | ACCESS3_EXECUTE
THEN = nfstime3(1_000_000_000, 0)
"""A time that every file system can keep."""

# GETATTR


@pytest.mark.case("NF3-GETATTR-FILE", kills=("getattr-type",))
def test_a_regular_file_is_one(nfs: Nfs3Client, here) -> None:
    assert nfs.attributes(here.file()).type == ftype3.NF3REG


@pytest.mark.case("NF3-GETATTR-DIR", kills=("getattr-type",))
def test_a_directory_is_one(nfs: Nfs3Client, here) -> None:
    assert nfs.attributes(here.directory()).type == ftype3.NF3DIR


@pytest.mark.case("NF3-GETATTR-LINK", kills=("getattr-type",))
def test_a_symbolic_link_is_one(nfs: Nfs3Client, here) -> None:
    assert nfs.attributes(here.symlink()).type == ftype3.NF3LNK


@pytest.mark.case("NF3-GETATTR-SIZE", section="RFC 1813 2.6", kills=("getattr-size",))
def test_the_size_is_the_number_of_bytes(nfs: Nfs3Client, here) -> None:
    assert nfs.attributes(here.file(data=b"x" * 1234)).size == 1234


@pytest.mark.case(
    "NF3-GETATTR-NLINK", section="RFC 1813 2.6", kills=("getattr-nlink",), builds_on=("NF3-LINK-01",)
)
def test_nlink_counts_the_names_of_a_file(nfs: Nfs3Client, here) -> None:
    file = here.file()
    assert nfs.attributes(file).nlink == 1
    here.link(file)
    assert nfs.attributes(file).nlink == 2


@pytest.mark.case("NF3-GETATTR-FILEID", section="RFC 1813 2.6", kills=("getattr-fileid-shared",))
def test_two_files_have_two_fileids(nfs: Nfs3Client, here) -> None:
    first, second = nfs.attributes(here.file(b"a")), nfs.attributes(here.file(b"b"))
    assert (first.fsid, first.fileid) != (second.fsid, second.fileid)


@pytest.mark.case("NF3-GETATTR-STABLE", section="RFC 1813 2.6", kills=("getattr-fileid-changes",))
def test_a_file_keeps_its_fileid_and_fsid(nfs: Nfs3Client, here) -> None:
    file = here.file()
    first = nfs.attributes(file)
    ok(here.nfs.write(file, 0, b"data"))
    ok(here.nfs.rename(here.handle, b"file", here.handle, b"new"))
    again = nfs.attributes(here.nfs.find(here.handle, b"new"))  # the old handle may be stale (3.3.14)
    assert (again.fsid, again.fileid) == (first.fsid, first.fileid)


@pytest.mark.case("NF3-GETATTR-NSEC", section="RFC 1813 2.6", kills=("getattr-nseconds",))
def test_nanoseconds_are_less_than_a_second(nfs: Nfs3Client, here) -> None:
    found = nfs.attributes(here.file())
    for time in (found.atime, found.mtime, found.ctime):
        assert time.nseconds < 1_000_000_000


@pytest.mark.case("NF3-GETATTR-AGAIN", section="RFC 1813 2.6", kills=("getattr-ctime-moves",))
def test_attributes_of_an_idle_file_do_not_change(nfs: Nfs3Client, here) -> None:
    file = here.file()
    assert nfs.attributes(file) == nfs.attributes(file)


@pytest.mark.parametrize(
    "handle",
    [
        pytest.param(b"", id="empty", marks=pytest.mark.case("NF3-HANDLE-EMPTY")),
        pytest.param(bytes(8), id="zero", marks=pytest.mark.case("NF3-HANDLE-ZERO")),
        pytest.param(b"\xa5" * 64, id="64", marks=pytest.mark.case("NF3-HANDLE-64")),
        pytest.param(b"\xff" * 32, id="ones", marks=pytest.mark.case("NF3-HANDLE-ONES")),
    ],
)
@pytest.mark.case(section="RFC 1813 2.6", kills=("badhandle-accepted", "badhandle-noent"))
def test_a_handle_that_is_none_is_refused(nfs: Nfs3Client, handle: bytes, observe) -> None:
    done = nfs.getattr(nfs_fh3(handle))
    observe(done.status.name)
    refused(done, nfsstat3.NFS3ERR_BADHANDLE, nfsstat3.NFS3ERR_STALE)


@pytest.mark.case("NF3-HANDLE-STALE", section="RFC 1813 2.6", kills=("stale-accepted", "stale-noent"))
def test_the_handle_of_a_removed_file_is_stale(nfs: Nfs3Client, here) -> None:
    file = here.file()
    ok(here.nfs.remove(here.handle, b"file"))
    refused(nfs.getattr(file), nfsstat3.NFS3ERR_STALE)


@pytest.mark.case(
    "NF3-HANDLE-STALE-DIR",
    section="RFC 1813 2.6",
    kills=("stale-accepted", "stale-noent"),
    builds_on=("NF3-HANDLE-STALE",),
)
def test_the_handle_of_a_removed_directory_is_stale(nfs: Nfs3Client, here) -> None:
    directory = here.directory()
    ok(here.nfs.rmdir(here.handle, b"directory"))
    refused(nfs.getattr(directory), nfsstat3.NFS3ERR_STALE)


# SETATTR


@pytest.mark.case("NF3-SETATTR-MODE", section="RFC 1813 3.3.2", kills=("setattr-mode",))
def test_the_mode_is_set(nfs: Nfs3Client, here) -> None:
    file = here.file()
    for mode in (0o000, 0o600, 0o751):
        ok(nfs.setattr(file, attributes(mode=mode)))
        assert here.nfs.attributes(file).mode & 0o777 == mode


@pytest.mark.case("NF3-SETATTR-SHRINK", section="RFC 1813 3.3.2", kills=("setattr-size",))
def test_a_file_is_truncated(nfs: Nfs3Client, here) -> None:
    file = here.file(data=b"0123456789")
    ok(nfs.setattr(file, attributes(size=4)))
    assert here.nfs.attributes(file).size == 4
    assert ok(here.nfs.read(file, 0, 100)).data == b"0123"


@pytest.mark.case("NF3-SETATTR-GROW", section="RFC 1813 3.3.2", kills=("setattr-size",))
def test_a_file_grows_by_zeroes(nfs: Nfs3Client, here) -> None:
    file = here.file(data=b"01")
    ok(nfs.setattr(file, attributes(size=10)))
    assert ok(here.nfs.read(file, 0, 100)).data == b"01" + bytes(8)


@pytest.mark.case("NF3-SETATTR-SIZE-DIR", section="RFC 1813 3.3.2", kills=("setattr-dir-size",))
def test_the_size_of_a_directory_cannot_be_set(nfs: Nfs3Client, here, observe) -> None:
    done = nfs.setattr(here.directory(), attributes(size=0))
    observe(done.status.name)
    assert done.status != nfsstat3.NFS3_OK, "a directory was truncated"


@pytest.mark.case("NF3-SETATTR-MTIME", section="RFC 1813 3.3.2", kills=("setattr-mtime",))
@pytest.mark.usefixtures("sets_times")
def test_the_modification_time_is_set(nfs: Nfs3Client, here) -> None:
    file = here.file()
    ok(nfs.setattr(file, attributes(mtime=THEN)))
    assert here.nfs.attributes(file).mtime.seconds == THEN.seconds


@pytest.mark.case("NF3-SETATTR-ATIME", section="RFC 1813 3.3.2", kills=("setattr-atime",))
@pytest.mark.usefixtures("sets_times")
def test_the_access_time_is_set(nfs: Nfs3Client, here) -> None:
    file = here.file()
    ok(nfs.setattr(file, attributes(atime=THEN)))
    assert here.nfs.attributes(file).atime.seconds == THEN.seconds


@pytest.mark.case("NF3-SETATTR-NOW", section="RFC 1813 2.6", kills=("setattr-server-time",))
@pytest.mark.usefixtures("sets_times")
def test_the_time_of_the_server_is_set(nfs: Nfs3Client, here) -> None:
    file = here.file()
    ok(here.nfs.setattr(file, attributes(mtime=THEN)))
    ok(nfs.setattr(file, attributes(mtime=time_how.SET_TO_SERVER_TIME)))
    found = here.nfs.attributes(file)
    assert abs(found.mtime.seconds - found.ctime.seconds) <= 1, "mtime is the server's time, as ctime is"


@pytest.mark.case("NF3-SETATTR-ONLY", section="RFC 1813 3.3.2", kills=("setattr-others",))
@pytest.mark.usefixtures("sets_times")
def test_attributes_that_are_not_named_stay(nfs: Nfs3Client, here) -> None:
    file = here.file(data=b"abc", new=attributes(mode=0o640))
    before = here.nfs.attributes(file)
    ok(nfs.setattr(file, attributes(mtime=THEN)))
    after = here.nfs.attributes(file)
    names = ("type", "mode", "nlink", "uid", "gid", "size", "fileid")
    assert [getattr(after, name) for name in names] == [getattr(before, name) for name in names]


@pytest.mark.case("NF3-SETATTR-CTIME", section="RFC 1813 3.3.2", kills=("setattr-ctime",))
def test_a_change_of_attributes_changes_ctime(nfs: Nfs3Client, here) -> None:
    file = here.file()
    before = nfs.attributes(file).ctime
    for mode in (0o600, 0o640, 0o644):  # more than one: clocks of servers are coarse
        ok(nfs.setattr(file, attributes(mode=mode)))
    after = nfs.attributes(file).ctime
    assert (after.seconds, after.nseconds) >= (before.seconds, before.nseconds)


@pytest.mark.case("NF3-SETATTR-GUARD", section="RFC 1813 3.3.2", kills=("setattr-guard",))
def test_a_guard_that_does_not_match_prevents_the_change(nfs: Nfs3Client, here) -> None:
    file = here.file(new=attributes(mode=0o644))
    refused(nfs.setattr(file, attributes(mode=0o600), guard=THEN), nfsstat3.NFS3ERR_NOT_SYNC)
    assert here.nfs.attributes(file).mode & 0o777 == 0o644


@pytest.mark.case("NF3-SETATTR-GUARDED", section="RFC 1813 3.3.2", kills=("setattr-guard-always",))
def test_a_guard_that_matches_permits_the_change(nfs: Nfs3Client, here) -> None:
    file = here.file()
    ok(nfs.setattr(file, attributes(mode=0o600), guard=here.nfs.attributes(file).ctime))
    assert here.nfs.attributes(file).mode & 0o777 == 0o600


@pytest.mark.case("NF3-SETATTR-OWNER", section="RFC 1813 3.3.2", kills=("setattr-not-owner",))
@pytest.mark.usefixtures("users")
def test_only_the_owner_sets_the_mode(bench: Nfs3Harness, here) -> None:
    file = here.file(new=attributes(mode=0o666))
    done = bench.client(cred=auth_sys(4001, 4001)).setattr(file, attributes(mode=0o777))
    refused(done, nfsstat3.NFS3ERR_PERM, nfsstat3.NFS3ERR_ACCES)
    assert here.nfs.attributes(file).mode & 0o777 == 0o666


@pytest.mark.case(
    "NF3-SETATTR-WCC",
    section="RFC 1813 2.6",
    kills=(
        "setattr-after-size-old",
        "setattr-wcc",
    ),
)
def test_weak_cache_consistency_data_of_setattr_are_true(nfs: Nfs3Client, here) -> None:
    file = here.file(data=b"12345")
    before = here.nfs.attributes(file)
    wcc = ok(nfs.setattr(file, attributes(size=3))).obj_wcc
    if wcc.before is not None:
        assert (wcc.before.size, wcc.before.mtime, wcc.before.ctime) == (5, before.mtime, before.ctime)
    if wcc.after is not None:
        assert wcc.after.size == 3
        assert wcc.after.fileid == before.fileid


@pytest.mark.case(
    "NF3-SETATTR-STALE",
    section="RFC 1813 3.3.2",
    kills=("stale-accepted", "stale-noent"),
    builds_on=("NF3-HANDLE-STALE",),
)
def test_attributes_of_a_removed_file_cannot_be_set(nfs: Nfs3Client, here) -> None:
    file = here.file()
    ok(here.nfs.remove(here.handle, b"file"))
    refused(nfs.setattr(file, attributes(mode=0o600)), nfsstat3.NFS3ERR_STALE)


# ACCESS

MODES = {
    "READ": (0o444, ACCESS3_READ),
    "WRITE": (0o222, ACCESS3_MODIFY | ACCESS3_EXTEND),
    "EXECUTE": (0o111, ACCESS3_EXECUTE),
    "NONE": (0o000, 0),
    "ALL": (0o777, ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_EXECUTE),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.case(
                f"NF3-ACCESS-{name}", kills=("access-all", "access-none")[: 2 if MODES[name][1] else 1]
            ),
        )
        for name in MODES
    ],
)
@pytest.mark.case(section="RFC 1813 3.3.4")
@pytest.mark.usefixtures("users")
def test_access_is_what_the_mode_permits(bench: Nfs3Harness, here, name: str) -> None:
    mode, permitted = MODES[name]
    file = here.file(new=attributes(mode=0o600))
    ok(here.nfs.setattr(file, attributes(mode=mode)))
    wanted = ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_EXECUTE
    found = ok(bench.client(cred=auth_sys(4001, 4001)).access(file, wanted)).access
    if name in ("NONE", "ALL", "READ", "WRITE", "EXECUTE"):
        assert found == permitted, (
            f"mode {mode:o} permits {permitted:#x} to others, and ACCESS states {found:#x}"
        )


@pytest.mark.case(
    "NF3-ACCESS-ASKED",
    section="RFC 1813 3.3.4",
    kills=("access-unasked", "access-more-than-asked", "access-size"),
)
def test_access_returns_only_bits_that_were_asked_for(nfs: Nfs3Client, here) -> None:
    file = here.file(new=attributes(mode=0o777))
    for bit in (ACCESS3_READ, ACCESS3_MODIFY, ACCESS3_EXTEND, ACCESS3_EXECUTE):
        assert not ok(nfs.access(file, bit)).access & ~bit


@pytest.mark.case("NF3-ACCESS-DIR", section="RFC 1813 3.3.4", kills=("access-all", "access-none"))
@pytest.mark.usefixtures("users")
def test_access_to_a_directory_follows_its_mode(bench: Nfs3Harness, here) -> None:
    other = bench.client(cred=auth_sys(4001, 4001))
    closed, open_ = here.directory(b"closed", mode=0o700), here.directory(b"open", mode=0o755)
    wanted = ACCESS3_READ | ACCESS3_LOOKUP | ACCESS3_MODIFY
    assert ok(other.access(closed, wanted)).access == 0
    assert ok(other.access(open_, wanted)).access == ACCESS3_READ | ACCESS3_LOOKUP


@pytest.mark.case(
    "NF3-ACCESS-STALE",
    section="RFC 1813 3.3.4",
    kills=("stale-accepted", "stale-noent"),
    builds_on=("NF3-HANDLE-STALE",),
)
def test_access_to_a_removed_file_is_stale(nfs: Nfs3Client, here) -> None:
    file = here.file()
    ok(here.nfs.remove(here.handle, b"file"))
    refused(nfs.access(file, ALL), nfsstat3.NFS3ERR_STALE)


@pytest.mark.case("NF3-ACCESS-GROUPS", section="RFC 5531 A", kills=("access-none",))
@pytest.mark.usefixtures("users", "superuser")
def test_a_supplementary_group_gives_access(bench: Nfs3Harness, here) -> None:
    file = here.file(new=attributes(mode=0o640))
    ok(here.nfs.setattr(file, attributes(gid=4005, mode=0o640)))
    member = bench.client(cred=auth_sys(4001, 4001, (4002, 4005)))
    assert ok(member.access(file, ACCESS3_READ)).access == ACCESS3_READ
    assert ok(bench.client(cred=auth_sys(4001, 4001)).access(file, ACCESS3_READ)).access == 0
