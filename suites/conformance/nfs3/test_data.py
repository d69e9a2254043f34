"""READ, WRITE and COMMIT (RFC 1813 3.3.6, 3.3.7, 3.3.21)."""

from __future__ import annotations

import random

import pytest

from storagetest.suites.conformance.nfs_holes import SPARSE, WRITES, hole_edges
from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok, refused
from storagetest.wire.nfs3.harness import Nfs3Harness
from storagetest.wire.nfs3.types import nfsstat3, nfstime3, stable_how
from storagetest.wire.rpc import auth_sys

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 1813 3.3.6")]

DATA = random.Random(3).randbytes(5000)  # noqa: S311  # data, no secret
LARGEST = 1 << 20
"""The largest rtmax of which twice as many bytes are read (chosen)."""
GONE = ("stale-accepted", "stale-noent")
DEVIATES = "the server of the mutants breaks this rule itself"


def read_all(nfs: Nfs3Client, file, size: int, offset: int = 0) -> bytes:
    """Return ``size`` bytes from ``offset`` on, however few each READ returns."""
    data = b""
    while len(data) < size:
        part = ok(nfs.read(file, offset + len(data), size - len(data)))
        data += part.data
        if part.eof or not part.count:
            break
    return data


# READ


@pytest.mark.case("NF3-READ-01", kills=("read-data",))
def test_what_was_written_is_read(nfs: Nfs3Client, here) -> None:
    assert read_all(nfs, here.file(data=DATA), len(DATA)) == DATA


@pytest.mark.case("NF3-READ-OFFSET", kills=("read-offset",))
def test_a_read_begins_at_its_offset(nfs: Nfs3Client, here) -> None:
    file = here.file(data=DATA)
    for offset in (1, 511, 4095, 4999):
        part = ok(nfs.read(file, offset, 1))
        assert part.data == DATA[offset : offset + 1]


@pytest.mark.case("NF3-READ-COUNT", kills=("read-count",))
def test_count_is_the_number_of_bytes_returned(nfs: Nfs3Client, here) -> None:
    file = here.file(data=DATA)
    for count in (1, 3, 100, 10000):
        part = ok(nfs.read(file, 0, count))
        assert part.count == len(part.data) <= count


@pytest.mark.case("NF3-READ-LESS", kills=("read-more",))
def test_no_more_is_returned_than_was_asked_for(nfs: Nfs3Client, here) -> None:
    assert len(ok(nfs.read(here.file(data=DATA), 0, 10)).data) <= 10


@pytest.mark.case("NF3-READ-EOF", kills=("read-eof",))
def test_eof_is_set_by_the_read_that_reaches_the_end(nfs: Nfs3Client, here) -> None:
    part = ok(nfs.read(here.file(data=b"0123456789"), 5, 100))
    assert (part.data, part.eof) == (b"56789", True)


@pytest.mark.case("NF3-READ-EOF-EXACT", kills=("read-eof",))
def test_eof_is_set_by_a_read_of_exactly_the_rest(nfs: Nfs3Client, here) -> None:
    part = ok(nfs.read(here.file(data=b"0123456789"), 0, 10))
    assert (part.data, part.eof) == (b"0123456789", True)


@pytest.mark.case("NF3-READ-NOT-EOF", kills=("read-eof-early",))
def test_eof_is_not_set_before_the_end(nfs: Nfs3Client, here) -> None:
    part = ok(nfs.read(here.file(data=b"0123456789"), 0, 9))
    assert not part.eof


@pytest.mark.parametrize(
    "offset",
    [
        pytest.param(10, id="at-end", marks=pytest.mark.case("NF3-READ-AT-END")),
        pytest.param(11, id="behind", marks=pytest.mark.case("NF3-READ-BEHIND")),
        pytest.param(1 << 40, id="far", marks=pytest.mark.case("NF3-READ-FAR", kills=("read-offset-32",))),
    ],
)
@pytest.mark.case(kills=("read-behind-data", "read-behind-eof"))
def test_a_read_behind_the_end_returns_nothing_and_eof(nfs: Nfs3Client, here, offset: int) -> None:
    part = ok(nfs.read(here.file(data=b"0123456789"), offset, 10))
    assert (part.count, part.data, part.eof) == (0, b"", True)


FAR = {
    "62": ((1 << 63) - 200, {"kills": ("read-far-refused",)}),
    "OVER": ((1 << 63) - 5, {"no_mutant_reason": DEVIATES}),
    "63": (1 << 63, {"no_mutant_reason": DEVIATES}),
    "64": ((1 << 64) - 16, {"no_mutant_reason": DEVIATES}),
}
"""Offsets of a READ of 10 bytes: it ends before 2^63, passes it, or begins there or behind it."""


@pytest.mark.parametrize(
    "offset",
    [
        pytest.param(offset, id=name, marks=pytest.mark.case(f"NF3-READ-FAR-{name}", **claims))
        for name, (offset, claims) in FAR.items()
    ],
)
def test_an_offset_has_64_bits_without_a_sign(nfs: Nfs3Client, here, offset: int) -> None:
    """A READ behind the end returns NFS3_OK, no data and eof, however far behind it is (3.3.6)."""
    part = ok(nfs.read(here.file(data=b"0123456789"), offset, 10))
    assert (part.count, part.data, part.eof) == (0, b"", True)


@pytest.mark.case("NF3-READ-ZERO", kills=("read-zero-refused",))
def test_a_read_of_no_bytes_succeeds(nfs: Nfs3Client, here) -> None:
    part = ok(nfs.read(here.file(data=DATA), 0, 0))
    assert (part.count, part.data) == (0, b"")


@pytest.mark.case("NF3-READ-HOLE", kills=("read-hole",))
def test_a_hole_is_read_as_zeroes(nfs: Nfs3Client, here) -> None:
    file = here.file()
    ok(here.nfs.write(file, 8192, b"end"))
    assert read_all(nfs, file, 8195) == bytes(8192) + b"end"


@pytest.mark.case("NF3-READ-HOLE-EDGE", kills=("read-hole-shifted",))
def test_a_read_that_begins_in_a_hole_and_ends_in_data_returns_both(nfs: Nfs3Client, here) -> None:
    """At pages and a byte from them: a server may send both from its cache, a page at a time."""
    file = here.file()
    for offset, data in WRITES.items():
        here.nfs.write_all(file, offset, data)
    for offset, count in hole_edges():
        found, wanted = read_all(nfs, file, count, offset), SPARSE[offset : offset + count]
        assert found == wanted, f"READ of {count} bytes at {offset} returns other data"


@pytest.mark.case("NF3-READ-DIR", kills=("read-dir",))
def test_a_directory_cannot_be_read(nfs: Nfs3Client, here, observe) -> None:
    done = nfs.read(here.directory(), 0, 10)
    observe(done.status.name)
    refused(done, nfsstat3.NFS3ERR_ISDIR, nfsstat3.NFS3ERR_INVAL)


@pytest.mark.case("NF3-READ-PERMISSION", kills=("read-permission",))
@pytest.mark.usefixtures("users")
def test_a_file_that_is_not_readable_is_refused(bench: Nfs3Harness, here) -> None:
    file = here.file(data=DATA, new=attributes(mode=0o600))
    refused(bench.client(cred=auth_sys(4001, 4001)).read(file, 0, 10), nfsstat3.NFS3ERR_ACCES)


@pytest.mark.case("NF3-READ-STALE", kills=GONE, builds_on=("NF3-HANDLE-STALE",))
def test_a_read_of_a_removed_file_is_stale(nfs: Nfs3Client, here) -> None:
    file = here.file()  # without data: a server may keep a file that it has opened
    ok(here.nfs.remove(here.handle, b"file"))
    refused(nfs.read(file, 0, 10), nfsstat3.NFS3ERR_STALE)


@pytest.mark.case("NF3-READ-ATTRIBUTES", kills=("read-attributes",))
def test_the_attributes_of_a_read_are_those_of_the_file(nfs: Nfs3Client, here) -> None:
    file = here.file(data=DATA)
    found = ok(nfs.read(file, 0, 10)).file_attributes
    if found is not None:
        assert (found.size, found.fileid) == (len(DATA), here.nfs.attributes(file).fileid)


@pytest.mark.case("NF3-READ-RTMAX", section="RFC 1813 3.3.19", kills=("read-data",))
def test_a_read_of_rtmax_is_served(nfs: Nfs3Client, here, limits) -> None:
    count = min(limits.rtmax, 1 << 20)
    part = ok(nfs.read(here.file(data=DATA), 0, count))
    assert part.data == DATA[: part.count]
    assert part.count, "3.3.19: rtmax is a size that the server supports"


@pytest.mark.case(
    "NF3-READ-OVER-RTMAX",
    section="RFC 1813 3.3.6",
    kills=("read-over-rtmax-eof",),
    builds_on=("NF3-READ-RTMAX",),
)
def test_a_read_of_more_than_rtmax_may_be_short_and_states_no_end(nfs: Nfs3Client, here) -> None:
    """Of a larger count "the server may return only rtmax bytes, resulting in a short read" (3.3.6)."""
    rtmax = ok(nfs.fsinfo(here.handle)).rtmax
    if not 0 < rtmax <= LARGEST:
        pytest.skip(f"rtmax is {rtmax} bytes, and the largest READ of the suite has {2 * LARGEST}")
    data = random.Random(5).randbytes(2 * rtmax)  # noqa: S311  # data, no secret
    file = here.file()
    here.nfs.write_all(file, 0, data)
    done = nfs.read(file, 0, len(data))
    if done.status == nfsstat3.NFS3ERR_INVAL:
        pytest.skip("the server refuses a READ of more than rtmax (NFS3ERR_INVAL)")
    part = ok(done)
    assert part.count, "nothing was read"
    assert part.data == data[: part.count]
    assert part.eof == (part.count == len(data)), f"eof is {part.eof} after {part.count} of {len(data)} bytes"


# WRITE


@pytest.mark.case("NF3-WRITE-01", section="RFC 1813 3.3.7", kills=("write-lost",))
def test_data_are_written(nfs: Nfs3Client, here) -> None:
    file = here.file()
    nfs.write_all(file, 0, DATA)
    assert read_all(here.nfs, file, len(DATA)) == DATA


@pytest.mark.case("NF3-WRITE-MIDDLE", section="RFC 1813 3.3.7", kills=("write-offset",))
def test_a_write_changes_nothing_but_its_bytes(nfs: Nfs3Client, here) -> None:
    file = here.file(data=DATA)
    ok(nfs.write(file, 1000, b"middle"))
    assert read_all(here.nfs, file, len(DATA)) == DATA[:1000] + b"middle" + DATA[1006:]


@pytest.mark.case("NF3-WRITE-COUNT", section="RFC 1813 3.3.7", kills=("write-count", "write-zero-count"))
def test_no_more_is_written_than_was_sent(nfs: Nfs3Client, here) -> None:
    assert 0 < ok(nfs.write(here.file(), 0, b"12345")).count <= 5


@pytest.mark.parametrize(
    "stable",
    [
        pytest.param(how, id=how.name, marks=pytest.mark.case(f"NF3-WRITE-{how.name.replace('_', '-')}"))
        for how in (stable_how.DATA_SYNC, stable_how.FILE_SYNC)
    ],
)
@pytest.mark.case(section="RFC 1813 3.3.7", kills=("write-committed",))
def test_data_are_committed_as_was_asked_or_better(
    nfs: Nfs3Client, here, stable: stable_how, observe
) -> None:
    done = ok(nfs.write(here.file(), 0, DATA, stable=stable))
    observe(f"{stable.name} is committed as {done.committed.name}")
    assert done.committed >= stable, f"{stable.name} was asked for, and {done.committed.name} was done"


@pytest.mark.case("NF3-WRITE-UNSTABLE", section="RFC 1813 3.3.7", level="MAY")
def test_unstable_data_may_stay_uncommitted(nfs: Nfs3Client, here, observe) -> None:
    observe(ok(nfs.write(here.file(), 0, b"x", stable=stable_how.UNSTABLE)).committed.name)


@pytest.mark.case("NF3-WRITE-ZERO", section="RFC 1813 3.3.7", kills=("write-zero",))
def test_a_write_of_no_bytes_succeeds_and_changes_nothing(nfs: Nfs3Client, here) -> None:
    file = here.file(data=b"abc")
    assert ok(nfs.write(file, 100, b"")).count == 0
    assert here.nfs.attributes(file).size == 3


@pytest.mark.case("NF3-WRITE-BEHIND", section="RFC 1813 3.3.7", kills=("write-offset",))
def test_a_write_behind_the_end_leaves_a_hole(nfs: Nfs3Client, here) -> None:
    file = here.file(data=b"abc")
    ok(nfs.write(file, 5000, b"end"))
    assert here.nfs.attributes(file).size == 5003
    assert read_all(here.nfs, file, 5003) == b"abc" + bytes(4997) + b"end"


@pytest.mark.case("NF3-WRITE-DIR", section="RFC 1813 3.3.7", kills=("write-dir",))
def test_a_directory_cannot_be_written(nfs: Nfs3Client, here, observe) -> None:
    done = nfs.write(here.directory(), 0, b"data")
    observe(done.status.name)
    refused(done, nfsstat3.NFS3ERR_ISDIR, nfsstat3.NFS3ERR_INVAL)


@pytest.mark.case("NF3-WRITE-PERMISSION", section="RFC 1813 3.3.7", kills=("write-permission",))
@pytest.mark.usefixtures("users")
def test_a_file_that_is_not_writable_is_refused(bench: Nfs3Harness, here) -> None:
    file = here.file(data=b"abc", new=attributes(mode=0o644))
    refused(bench.client(cred=auth_sys(4001, 4001)).write(file, 0, b"xyz"), nfsstat3.NFS3ERR_ACCES)
    assert read_all(here.nfs, file, 3) == b"abc"


@pytest.mark.case("NF3-WRITE-STALE", section="RFC 1813 3.3.7", kills=GONE, builds_on=("NF3-HANDLE-STALE",))
def test_a_write_to_a_removed_file_is_stale(nfs: Nfs3Client, here) -> None:
    file = here.file()
    ok(here.nfs.remove(here.handle, b"file"))
    refused(nfs.write(file, 0, b"data"), nfsstat3.NFS3ERR_STALE)


@pytest.mark.exclusive  # after a write that ext4 refuses, Linux's server has another write verifier for all
@pytest.mark.case(
    "NF3-WRITE-FBIG",
    section="RFC 1813 3.3.7",
    kills=(
        "write-offset-31",
        "write-too-far",
    ),
)
def test_a_write_past_the_largest_file_is_refused(nfs: Nfs3Client, here, limits, observe) -> None:
    if limits.maxfilesize >= (1 << 64) - 16:
        pytest.skip("maxfilesize is as large as an offset can be")
    file = here.file()
    done = nfs.write(file, limits.maxfilesize + 1, b"data")
    observe(done.status.name)
    refused(done, nfsstat3.NFS3ERR_FBIG, nfsstat3.NFS3ERR_INVAL)
    assert not here.nfs.attributes(file).size


@pytest.mark.exclusive  # for the reason of NF3-WRITE-FBIG
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.case(
                f"NF3-WRITE-FAR-{name}", section="RFC 1813 3.3.7", kills=("write-far-lost",)
            ),
        )
        for name in FAR
    ],
)
def test_a_write_at_any_offset_is_whole_or_refused(nfs: Nfs3Client, here, name: str, observe) -> None:
    """A WRITE that succeeds has written count bytes at its offset; one that is refused changes nothing."""
    file, offset = here.file(data=b"0123456789"), FAR[name][0]
    done = nfs.write(file, offset, b"abcdefghij")
    observe(done.status.name)
    size, count = here.nfs.attributes(file).size, 0
    if done.status == nfsstat3.NFS3_OK:
        count = done.value.count
        assert 0 < count <= 10, f"a WRITE of 10 bytes states that it has written {count}"
        assert size == offset + count, f"the WRITE succeeds at {offset}, and the size is {size}"
        found = read_all(here.nfs, file, count, offset)
        assert found == b"abcdefghij"[:count], f"the WRITE succeeds, and {found!r} is at its offset"
    else:
        assert size == 10, f"the WRITE is refused ({done.status.name}), and the size of 10 became {size}"
    found = read_all(here.nfs, file, 10)
    assert found == b"0123456789", f"a WRITE at {offset} has changed the first bytes to {found!r}"


@pytest.mark.case("NF3-WRITE-WCC", section="RFC 1813 2.6", kills=("write-wcc",))
def test_weak_cache_consistency_data_of_write_are_true(nfs: Nfs3Client, here) -> None:
    file = here.file(data=b"12345")
    before = here.nfs.attributes(file)
    wcc = ok(nfs.write(file, 0, b"x" * 10)).file_wcc
    if wcc.before is not None:
        assert (wcc.before.size, wcc.before.mtime, wcc.before.ctime) == (5, before.mtime, before.ctime)
    if wcc.after is not None:
        assert (wcc.after.size, wcc.after.fileid) == (10, before.fileid)


@pytest.mark.case("NF3-WRITE-VERIFIER", section="RFC 1813 3.3.7", kills=("write-verifier",))
def test_the_write_verifier_is_the_same_for_all_writes(nfs: Nfs3Client, here) -> None:
    first, second = here.file(b"a"), here.file(b"b")
    found = {
        ok(nfs.write(file, at, b"x", stable=how)).verf
        for file in (first, second)
        for at in (0, 9)
        for how in stable_how
    }
    assert len(found) == 1, "4.8: the verifier changes only when uncommitted data may be lost"


@pytest.mark.case("NF3-WRITE-MTIME", section="RFC 1813 2.6", kills=("write-mtime",))
@pytest.mark.usefixtures("sets_times")
def test_a_write_sets_the_modification_time(nfs: Nfs3Client, here) -> None:
    file = here.file()
    ok(here.nfs.setattr(file, attributes(mtime=nfstime3(1_000_000_000, 0))))
    ok(nfs.write(file, 0, b"data"))
    assert nfs.attributes(file).mtime.seconds > 1_000_000_000


# COMMIT


@pytest.mark.case(
    "NF3-COMMIT-01",
    section="RFC 1813 3.3.21",
    kills=("commit-verifier",),
    builds_on=("NF3-COMMIT-CLEAN",),
)
def test_the_verifier_of_commit_is_that_of_the_writes(nfs: Nfs3Client, here) -> None:
    file = here.file()
    written = nfs.write_all(file, 0, DATA, stable=stable_how.UNSTABLE).verf
    assert ok(nfs.commit(file)).verf == written
    assert read_all(nfs, file, len(DATA)) == DATA


@pytest.mark.case(
    "NF3-COMMIT-RANGE",
    section="RFC 1813 3.3.21",
    kills=("commit-range",),
    builds_on=("NF3-COMMIT-CLEAN",),
)
def test_a_range_is_committed(nfs: Nfs3Client, here) -> None:
    file = here.file()
    nfs.write_all(file, 0, DATA, stable=stable_how.UNSTABLE)
    for offset, count in ((0, 10), (4990, 10), (1 << 32, 4096)):
        ok(nfs.commit(file, offset, count))


@pytest.mark.case("NF3-COMMIT-CLEAN", section="RFC 1813 3.3.21", kills=("commit-range",))
def test_a_file_without_uncommitted_data_is_committed(nfs: Nfs3Client, here) -> None:
    ok(nfs.commit(here.file(data=b"abc"), 0, 0))


@pytest.mark.case(
    "NF3-COMMIT-STALE",
    section="RFC 1813 3.3.21",
    kills=GONE,
    builds_on=("NF3-COMMIT-CLEAN", "NF3-HANDLE-STALE"),
)
def test_a_removed_file_cannot_be_committed(nfs: Nfs3Client, here) -> None:
    file = here.file()
    ok(here.nfs.remove(here.handle, b"file"))
    refused(nfs.commit(file), nfsstat3.NFS3ERR_STALE)


@pytest.mark.case(
    "NF3-COMMIT-WCC", section="RFC 1813 2.6", kills=("commit-wcc",), builds_on=("NF3-COMMIT-CLEAN",)
)
def test_weak_cache_consistency_data_of_commit_are_true(nfs: Nfs3Client, here) -> None:
    file = here.file(data=b"12345")
    wcc = ok(nfs.commit(file)).file_wcc
    if wcc.after is not None:
        assert (wcc.after.size, wcc.after.fileid) == (5, here.nfs.attributes(file).fileid)
