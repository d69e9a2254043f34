"""Large counts, long listings, and attributes that are set in pairs (RFC 1813 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest

from storagetest.suites.conformance.nfs3.conftest import Arranged
from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok
from storagetest.wire.nfs3.types import (
    COMMIT3args,
    LOOKUP3args,
    READ3args,
    READDIR3args,
    SETATTR3args,
    WRITE3args,
    diropargs3,
    nfs_fh3,
    nfsstat3,
    nfstime3,
    stable_how,
)

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST")]

COUNTS = {"31": 1 << 31, "32": (1 << 32) - 1}
"""Counts whose highest bit is set: count3 is an unsigned number of 32 bits (2.5)."""


def counts(procedure: str, section: str) -> list[object]:
    """Return a parameter set for each of ``COUNTS``."""
    return [
        pytest.param(
            count,
            id=name,
            marks=pytest.mark.case(
                f"NF3-{procedure}-COUNT-{name}", section=f"RFC 1813 {section}", kills=("count-signed",)
            ),
        )
        for name, count in COUNTS.items()
    ]


@pytest.mark.parametrize("count", counts("READ", "3.3.6"))
def test_a_read_of_any_count_returns_what_there_is(nfs: Nfs3Client, here: Arranged, count: int) -> None:
    """Of more than rtmax "the server may return only rtmax bytes, resulting in a short read" (3.3.6)."""
    part = ok(nfs.read(here.file(data=b"0123456789"), 0, count))
    assert part.data, "a READ of a file of 10 bytes returns nothing"
    assert b"0123456789".startswith(part.data)
    assert part.eof == (part.count == 10)


@pytest.mark.parametrize("count", counts("READDIR", "3.3.16"))
def test_a_readdir_of_any_count_lists_a_directory(nfs: Nfs3Client, here: Arranged, count: int) -> None:
    """The count is the most that the server may return."""
    here.file()
    names = {one.name for one in ok(nfs.readdir(here.handle, count=count)).reply.entries}
    assert names, "the first page has no entry"
    assert names <= {b".", b"..", b"file"}


@pytest.mark.parametrize("count", counts("READDIRPLUS", "3.3.17"))
def test_a_readdirplus_of_any_count_lists_a_directory(nfs: Nfs3Client, here: Arranged, count: int) -> None:
    here.file()
    done = nfs.readdirplus(here.handle, dircount=count, maxcount=count)
    if done.status == nfsstat3.NFS3ERR_NOTSUPP:
        pytest.skip("the server does not support READDIRPLUS (NFS3ERR_NOTSUPP)")
    names = {one.name for one in ok(done).reply.entries}
    assert names, "the first page has no entry"
    assert names <= {b".", b"..", b"file"}


MANY = 300
"""Entries of a directory of several pages and blocks (chosen)."""


@pytest.mark.parametrize(
    "procedure",
    [
        pytest.param(
            name,
            marks=pytest.mark.case(
                f"NF3-{name}-MANY", section=f"RFC 1813 {section}", kills=("readdir-many-lost",)
            ),
        )
        for name, section in (("READDIR", "3.3.16"), ("READDIRPLUS", "3.3.17"))
    ],
)
def test_a_directory_of_many_entries_is_listed_whole(nfs: Nfs3Client, here: Arranged, procedure: str) -> None:
    wanted = {b"entry-%04d" % at for at in range(MANY)}
    here.nfs.create_all(here.handle, sorted(wanted))
    if procedure == "READDIR":
        found = [one.name for one in nfs.entries(here.handle)]
    elif nfs.readdirplus(here.handle).status == nfsstat3.NFS3ERR_NOTSUPP:
        pytest.skip("the server does not support READDIRPLUS (NFS3ERR_NOTSUPP)")
    else:
        found = [one.name for one in nfs.entries_plus(here.handle)]
    names = [name for name in found if name not in (b".", b"..")]
    assert len(names) == len(set(names)), "a name is listed twice"
    assert set(names) == wanted, f"{len(wanted - set(names))} of {MANY} names are not listed"


@pytest.mark.case("NF3-WRITE-MANY", section="RFC 1813 3.3.7, 3.3.21", kills=("unstable-many-lost",))
def test_data_of_many_files_are_written_before_any_is_committed(nfs: Nfs3Client, here: Arranged) -> None:
    """UNSTABLE data of each of many files are read as they were written, before and after their COMMIT."""
    names = [b"file-%04d" % at for at in range(MANY)]
    here.nfs.create_all(here.handle, names)
    found = here.nfs.call_all("LOOKUP", [LOOKUP3args(diropargs3(here.handle, name)) for name in names])
    files = [ok(one).object for one in found]
    data = [name * 4 for name in names]
    how = stable_how.UNSTABLE
    writes = [WRITE3args(file, 0, len(part), how, part) for file, part in zip(files, data, strict=True)]
    for at, done in enumerate(nfs.call_all("WRITE", writes)):
        count = ok(done).count
        assert 0 < count <= len(data[at]), f"a WRITE of {len(data[at])} bytes wrote {count}"
        data[at] = data[at][:count]
    reads = [READ3args(file, 0, 100) for file in files]
    for client, when in ((nfs, "before"), (here.nfs, "after")):
        for at, done in enumerate(client.call_all("READ", reads)):
            part = ok(done).data
            assert part == data[at], (
                f"{part!r} is read from file {at} {when} COMMIT, and {data[at]!r} was written"
            )
        if when == "before":
            for done in nfs.call_all("COMMIT", [COMMIT3args(file, 0, 0) for file in files]):
                ok(done)


OFTEN = 1_200
"""Calls in a row: more than the descriptors that a process may have by default, 1,024 (chosen)."""
BATCH = 100
"""Calls that overlap (chosen)."""


def often(
    call: str, file: nfs_fh3, directory: nfs_fh3
) -> READDIR3args | READ3args | WRITE3args | SETATTR3args:
    """Return the argument of a call that servers open an object for."""
    match call:
        case "READDIR":
            return READDIR3args(directory, 0, bytes(8), 1024)
        case "READ":
            return READ3args(file, 0, 4)
        case "WRITE":
            return WRITE3args(file, 0, 4, stable_how.UNSTABLE, b"data")
        case _:
            return SETATTR3args(file, attributes(mode=0o600), None)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(
            call,
            marks=pytest.mark.case(
                f"NF3-{call}-OFTEN", section=f"RFC 1813 {section}", kills=("calls-run-out",)
            ),
        )
        for call, section in (
            ("READDIR", "3.3.16"),
            ("READ", "3.3.6"),
            ("WRITE", "3.3.7"),
            ("SETATTR", "3.3.2"),
        )
    ],
)
def test_a_call_succeeds_however_often_it_was_made(nfs: Nfs3Client, here: Arranged, call: str) -> None:
    """What a server opens for a call it closes: 1,200 calls in a row end as the first one does."""
    file, inner = here.file(data=b"data"), here.directory()
    argument = often(call, file, inner)
    for at in range(0, OFTEN, BATCH):
        for result in nfs.call_all(call, [argument] * BATCH):
            assert result.status == nfsstat3.NFS3_OK, (
                f"{call} ends with {result.status.name} after {at} calls"
            )
    assert here.nfs.attributes(file).size == 4


DEPTH = 50
"""Directories in one another: more than the bytes of a handle that has one for each (chosen)."""


@pytest.mark.case("NF3-LOOKUP-DEEP", section="RFC 1813 3.3.3, 3.3.9", kills=("deep-fails",))
def test_a_tree_of_many_directories_is_made_and_looked_up(
    nfs: Nfs3Client, here: Arranged, observe: Callable[[str], None]
) -> None:
    """Each of 50 directories is in the one before. A path that is too long ends with NFS3ERR_NAMETOOLONG."""
    parents = [here.handle]
    try:
        while len(parents) <= DEPTH:
            made = nfs.mkdir(parents[-1], b"deeper")
            if made.status == nfsstat3.NFS3ERR_NAMETOOLONG:
                break
            ok(made)
            found = nfs.lookup(parents[-1], b"deeper")
            if found.status == nfsstat3.NFS3ERR_NAMETOOLONG:
                ok(nfs.rmdir(parents[-1], b"deeper"))
                break
            parents.append(ok(found).object)
    finally:
        for parent in reversed(parents[:-1]):
            here.nfs.rmdir(parent, b"deeper")
    observe(f"{len(parents) - 1} directories")
    left = {one.name for one in here.nfs.entries(here.handle)} - {b".", b".."}
    assert not left, f"{sorted(left)} are left after RMDIR of each"


SET = {
    "mode": 0o640,
    "uid": 4001,
    "gid": 4002,
    "size": 7,
    "atime": nfstime3(1_000_000_000, 0),
    "mtime": nfstime3(1_100_000_000, 0),
}


@pytest.mark.case("NF3-SETATTR-PAIRS", section="RFC 1813 3.3.2", kills=("setattr-owner-with-mode",))
@pytest.mark.usefixtures("superuser", "authenticated", "sets_times")
def test_each_two_attributes_are_set_together(nfs: Nfs3Client, here: Arranged) -> None:
    """SETATTR changes one or more attributes; of mode, owners and size, the others stay as they were."""
    for at, names in enumerate(combinations(SET, 2)):
        file = here.file(b"file-%d" % at, b"0123456789")
        before = here.nfs.attributes(file)
        new = {name: SET[name] for name in names}
        ok(nfs.setattr(file, attributes(**new)))  # type: ignore[arg-type]
        after = here.nfs.attributes(file)
        kept = {name: getattr(before, name) for name in ("mode", "uid", "gid", "size") if name not in names}
        wanted = kept | new
        found = {name: getattr(after, name) for name in wanted}
        for values in (wanted, found):
            if "mode" in values:
                values["mode"] &= 0o7777  # the bits that fattr3 defines (2.6)
        assert found == wanted, f"after a SETATTR of {' and '.join(names)}"


@pytest.mark.case("NF3-ACCESS-NOTHING", section="RFC 1813 3.3.4", kills=("access-nothing-all",))
def test_no_right_is_stated_if_none_was_asked_for(nfs: Nfs3Client, here: Arranged) -> None:
    assert ok(nfs.access(here.file(), 0)).access == 0
