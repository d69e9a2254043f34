"""Operations of minor version 2 (RFC 7862 15): SEEK, ALLOCATE, DEALLOCATE, READ_PLUS, COPY, CLONE and others.

Each of them is optional: a server without one ends it with NFS4ERR_NOTSUPP, and the cases are skipped.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.sparse import (
    BLOCK,
    SIZE,
    change_of,
    content,
    has,
    served,
    size_of,
    sparse_file,
)
from storagetest.wire.nfs4.client import Done, ok, refused
from storagetest.wire.nfs4.operations import ANONYMOUS, INVALID, op, putfh, read, unchecked, write
from storagetest.wire.nfs4.state import OpenFile, StateOwner
from storagetest.wire.nfs4.types import (
    OPEN4_SHARE_ACCESS_READ,
    ALLOCATE4args,
    DEALLOCATE4args,
    IO_ADVISE4args,
    LAYOUTERROR4args,
    LAYOUTSTATS4args,
    OFFLOAD_CANCEL4args,
    OFFLOAD_STATUS4args,
    READ_PLUS4args,
    SEEK4args,
    WRITE_SAME4args,
    app_data_block4,
    data_content4,
    io_info4,
    layouttype4,
    layoutupdate4,
    nfsstat4,
    stable_how4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

DATA, HOLE = data_content4.NFS4_CONTENT_DATA, data_content4.NFS4_CONTENT_HOLE
PAGE, PAGES = 4096, 50
TICK = 2.5
"""Seconds in which the clock of every file system has a new value: some count seconds (chosen)."""

NOT_FOR_WRITE = (nfsstat4.NFS4ERR_OPENMODE, nfsstat4.NFS4ERR_BAD_STATEID, nfsstat4.NFS4ERR_ACCESS)
UNSERVED = "neither NFS-Ganesha nor the lab's knfsd, the targets of the mutants, serves it"
DEVIATES = "NFS-Ganesha and the lab's knfsd, the targets of the mutants, break this rule themselves"


@pytest.fixture
def sparse(nfs, here) -> OpenFile:
    """Return an open file: data in the first and the last block of 64 KiB of a MiB, and nothing between."""
    return sparse_file(nfs, here.handle)


@pytest.fixture
def full(nfs, here) -> OpenFile:
    """Return an open file of four blocks of data."""
    file = StateOwner(nfs).open(here.handle, b"full", how=unchecked())
    for at in range(4):
        file.write_all(at * BLOCK, bytes([65 + at]) * BLOCK)
    return file


FULL = b"".join(bytes([65 + at]) * BLOCK for at in range(4))


def seek(file: OpenFile, offset: int, what: data_content4) -> Done:
    """SEEK; skip if it is not served."""
    return served("SEEK", file.on(op("SEEK", SEEK4args(file.stateid, offset, what))))


# SEEK


@rule("SEEK-DATA", v42="RFC 7862 15.11.3", kills=("seek-offset",))
def test_seek_finds_the_data_at_the_offset(sparse):
    found = ok(seek(sparse, 0, DATA))["SEEK"]
    assert (found.sr_eof, found.sr_offset) == (False, 0)


@rule("SEEK-DATA-NEXT", v42="RFC 7862 15.11.3", kills=("seek-offset", "seek-eof"))
def test_seek_skips_no_data_after_a_hole(sparse):
    found = ok(seek(sparse, BLOCK, DATA))["SEEK"]
    assert not found.sr_eof
    assert BLOCK <= found.sr_offset <= SIZE - BLOCK


@rule("SEEK-HOLE", v42="RFC 7862 15.11.3", kills=("seek-offset",))
def test_no_hole_is_found_in_data(sparse, observe):
    found = ok(seek(sparse, 0, HOLE))["SEEK"]
    observe(f"a hole at {found.sr_offset}")
    assert BLOCK <= found.sr_offset <= SIZE


@rule("SEEK-HOLE-EOF", v42="RFC 7862 15.11.3", level="SHOULD", kills=("seek-hole-eof",))
def test_a_hole_before_the_end_of_a_file_is_not_its_end(sparse):
    found = ok(seek(sparse, 0, HOLE))["SEEK"]
    assert found.sr_eof == (found.sr_offset >= SIZE), f"a hole at {found.sr_offset}, eof is {found.sr_eof}"


@rule("SEEK-HOLE-HERE", v42="RFC 7862 15.11.3", level="SHOULD", kills=("seek-offset",))
def test_the_next_hole_of_a_sparse_file_is_found(sparse):
    assert ok(seek(sparse, 0, HOLE))["SEEK"].sr_offset < SIZE - BLOCK


@rule(
    "SEEK-HOLE-END",
    v42="RFC 7862 15.11.3",
    kills=(
        "seek-hole-past-end",
        "seek-offset",
    ),
)
def test_a_file_has_a_hole_at_its_end(sparse):
    assert ok(seek(sparse, SIZE - BLOCK, HOLE))["SEEK"].sr_offset == SIZE


@rule(
    "SEEK-AGREES", v42="RFC 7862 15.11.3", kills=("seek-data-asked",), after=("SEEK-HOLE", "SEEK-DATA-NEXT")
)
def test_where_a_hole_begins_are_no_data(sparse):
    hole = ok(seek(sparse, 0, HOLE))["SEEK"].sr_offset
    if hole >= SIZE - BLOCK:
        pytest.skip(f"the server finds no hole in a sparse file before byte {hole}")
    data = ok(seek(sparse, hole, DATA))["SEEK"].sr_offset
    assert data > hole, f"SEEK finds both a hole and data at {hole}"


@rule("SEEK-NOTHING", v42="RFC 7862 15.11.3", kills=("seek-nothing",))
def test_data_that_is_not_found_is_the_end_of_the_file(nfs, here):
    file = StateOwner(nfs).open(here.handle, b"hole", how=unchecked())
    served("ALLOCATE", file.on(op("ALLOCATE", ALLOCATE4args(file.stateid, 0, SIZE))))
    served("DEALLOCATE", file.on(op("DEALLOCATE", DEALLOCATE4args(file.stateid, 0, SIZE))))
    found = ok(seek(file, 0, DATA))["SEEK"]
    assert found.sr_eof or found.sr_offset < SIZE, "a server may return zeros as data"


@rule(
    "SEEK-NXIO",
    v42="RFC 7862 15.11.3",
    kills=(
        "seek-at-end-ok",
        "seek-nxio",
    ),
    over={"DATA": DATA, "HOLE": HOLE},
)
def test_seek_beyond_the_end_of_the_file_is_refused(sparse, what):
    refused(seek(sparse, SIZE + 1, what), nfsstat4.NFS4ERR_NXIO)


@rule("SEEK-AT-END", v42="RFC 7862 15.11.3", level="MAY")
def test_seek_at_the_end_of_the_file(sparse, observe):
    observe(seek(sparse, SIZE, HOLE).status.name)


@rule("SEEK-STATEID", v42="RFC 7862 15.11.3", kills=("seek-stateid",))
def test_seek_with_a_bad_stateid_is_refused(sparse):
    seek(sparse, 0, DATA)
    done = sparse.on(op("SEEK", SEEK4args(INVALID, 0, DATA)))
    refused(done, nfsstat4.NFS4ERR_BAD_STATEID)


# ALLOCATE


def allocate(file: OpenFile, offset: int, length: int) -> Done:
    """ALLOCATE; skip if it is not served."""
    return served("ALLOCATE", file.on(op("ALLOCATE", ALLOCATE4args(file.stateid, offset, length))))


@rule("ALLOC-EXTEND", v42="RFC 7862 15.1.3", kills=("alloc-ignored",))
def test_allocate_beyond_the_end_extends_the_file(full):
    ok(allocate(full, 3 * BLOCK, 3 * BLOCK))
    assert size_of(full) == 6 * BLOCK
    assert has(full, FULL + bytes(2 * BLOCK))


@rule("ALLOC-FAR", v42="RFC 7862 15.1.3", kills=("alloc-ignored",))
def test_what_is_before_an_allocation_beyond_the_end_is_zero(full):
    ok(allocate(full, 6 * BLOCK, BLOCK))
    assert has(full, FULL + bytes(3 * BLOCK))


@rule("ALLOC-INSIDE", v42="RFC 7862 15.1.3", kills=("alloc-truncates",))
def test_allocate_inside_a_file_changes_nothing(full):
    ok(allocate(full, BLOCK, BLOCK))
    assert has(full, FULL)


@rule("ALLOC-HOLE", v42="RFC 7862 15.1.3", kills=("alloc-truncates",))
def test_an_allocated_hole_reads_as_zero(sparse):
    ok(allocate(sparse, 0, SIZE))
    assert size_of(sparse) == SIZE
    assert content(sparse, BLOCK, 2 * BLOCK) == bytes(2 * BLOCK)


@rule("ALLOC-MODE", v42="RFC 7862 15.1.3", kills=("alloc-mode",))
def test_allocate_needs_a_stateid_that_is_valid_for_write(nfs, here):
    here.file()
    file = StateOwner(nfs).open(here.handle, b"file", access=OPEN4_SHARE_ACCESS_READ)
    refused(allocate(file, 0, BLOCK), *NOT_FOR_WRITE)


@rule("ALLOC-DIR", v42="RFC 7862 15.1.3", no_mutant_reason=DEVIATES)
def test_a_directory_is_not_allocated(nfs, here):
    done = nfs.compound(putfh(here.handle), op("ALLOCATE", ALLOCATE4args(ANONYMOUS, 0, BLOCK)))
    refused(served("ALLOCATE", done), nfsstat4.NFS4ERR_WRONG_TYPE)


@rule("ALLOC-NOSPC", v42="RFC 7862 15.1.3", kills=("alloc-nospc",))
def test_more_space_than_there_is_is_not_allocated(full):
    done = allocate(full, 0, 1 << 60)
    refused(done, nfsstat4.NFS4ERR_NOSPC, nfsstat4.NFS4ERR_FBIG, nfsstat4.NFS4ERR_DQUOT)
    assert size_of(full) == 4 * BLOCK


# DEALLOCATE


def deallocate(file: OpenFile, offset: int, length: int) -> Done:
    """DEALLOCATE; skip if it is not served."""
    return served("DEALLOCATE", file.on(op("DEALLOCATE", DEALLOCATE4args(file.stateid, offset, length))))


@rule(
    "DEALLOC",
    v42="RFC 7862 15.4.3",
    kills=("dealloc-ignored", "dealloc-more"),
    over={
        "BLOCK": (BLOCK, BLOCK),
        "FIRST": (0, BLOCK),
        "INSIDE": (BLOCK + 1000, 500),
        "ODD": (1001, 100_003),
        "BLOCKS": (BLOCK, 2 * BLOCK),
    },
)
def test_a_deallocated_range_reads_as_zero_and_its_neighbours_are_kept(full, what):
    offset, length = what
    ok(deallocate(full, offset, length))
    assert has(full, FULL[:offset] + bytes(length) + FULL[offset + length :])


@rule(
    "DEALLOC-SIZE",
    v42="RFC 7862 15.4.3",
    kills=("dealloc-truncates",),
    over={"LAST": (3 * BLOCK, BLOCK), "BEYOND": (3 * BLOCK, 2 * BLOCK), "ALL": (0, 8 * BLOCK)},
)
def test_deallocate_keeps_the_size(full, what):
    offset, length = what
    ok(deallocate(full, offset, length))
    assert size_of(full) == 4 * BLOCK
    assert has(full, FULL[:offset] + bytes(4 * BLOCK - offset))


@rule(
    "DEALLOC-EDGES",
    v42="RFC 7862 15.4.3",
    kills=("deallocate-whole-pages",),
    over={"INSIDE": (BLOCK + 1000, 500), "BYTE": (4095, 1), "OVER": (4000, 200)},
)
def test_the_neighbours_of_a_small_deallocated_range_stay(full, what):
    offset, length = what
    ok(deallocate(full, offset, length))
    for at in (offset - 1, offset + length):
        found = ok(full.on(read(full.stateid, at, 1)))["READ"].data
        assert found != b"\0", f"the byte at {at} next to the range is 0"


@rule("DEALLOC-CHANGE", v42="RFC 8881 5.8.1.4", kills=("dealloc-change-kept",))
def test_the_change_attribute_shows_that_data_was_deallocated(full):
    """One page after the other is deallocated, for as long as a clock of seconds needs to go on."""
    before = change_of(full)
    for page in range(PAGES):
        ok(deallocate(full, page * PAGE, PAGE))
        if change_of(full) != before:
            return
        time.sleep(TICK / PAGES)
    pytest.fail(f"the change attribute is {before} after {PAGES} pages were deallocated")


@rule("DEALLOC-AGAIN", v42="RFC 7862 15.4.3", kills=("dealloc-again",))
def test_a_range_that_is_not_allocated_is_deallocated(sparse):
    for _ in range(2):
        ok(deallocate(sparse, 2 * BLOCK, BLOCK))
    assert size_of(sparse) == SIZE


@rule("DEALLOC-WRITE", v42="RFC 7862 15.4.3", kills=("dealloc-stays",))
def test_a_deallocated_range_is_written_again(full):
    ok(deallocate(full, BLOCK, BLOCK))
    ok(full.on(write(full.stateid, BLOCK, b"new")))
    assert content(full, BLOCK, 6) == b"new\0\0\0"


@rule("DEALLOC-MODE", v42="RFC 7862 15.4.3", kills=("dealloc-mode",))
def test_deallocate_needs_a_stateid_that_is_valid_for_write(nfs, here):
    here.file(data=b"data")
    file = StateOwner(nfs).open(here.handle, b"file", access=OPEN4_SHARE_ACCESS_READ)
    refused(deallocate(file, 0, 4), *NOT_FOR_WRITE)
    assert has(file, b"data")


@rule("DEALLOC-DIR", v42="RFC 7862 15.4.3", no_mutant_reason=DEVIATES)
def test_a_directory_is_not_deallocated(nfs, here):
    done = nfs.compound(putfh(here.handle), op("DEALLOCATE", DEALLOCATE4args(ANONYMOUS, 0, BLOCK)))
    refused(served("DEALLOCATE", done), nfsstat4.NFS4ERR_WRONG_TYPE)


# READ_PLUS


def read_plus(file: OpenFile, offset: int, count: int) -> Any:
    """READ_PLUS: return whether it is the end of the file, and the contents; skip if it is not served."""
    done = file.on(op("READ_PLUS", READ_PLUS4args(file.stateid, offset, count)))
    found = ok(served("READ_PLUS", done))["READ_PLUS"]
    return found.rpr_eof, found.rpr_contents


def extent(one: Any) -> tuple[int, int]:
    """Return offset and length of one of the contents."""
    value = one.value
    return (
        (value.d_offset, len(value.d_data)) if one.rpc_content == DATA else (value.di_offset, value.di_length)
    )


@rule(
    "RP-BYTES",
    v42="RFC 7862 15.10.3",
    kills=("rp-bytes", "rp-hole"),
    over={
        "MOST": (0, SIZE // 2),
        "DATA": (100, 1000),
        "EDGE": (BLOCK - 100, 1000),
        "LAST": (SIZE - 1000, 1000),
    },
)
def test_read_plus_returns_the_bytes_of_the_file(sparse, what):
    offset, count = what
    wanted, found, at = content(sparse, offset, count), b"", offset
    while at < offset + count:
        _, contents = read_plus(sparse, at, offset + count - at)
        before = at
        for one in contents:
            start, length = extent(one)
            assert start <= at, "the contents are contiguous, from the offset on"
            data = bytes(length) if one.rpc_content == HOLE else one.value.d_data
            found += data[at - start :]
            at = max(at, start + length)
        assert at > before, f"READ_PLUS of {count} bytes at {before}, before the end, returns nothing"
    assert found[:count] == wanted


@rule("RP-EOF", v42="RFC 7862 15.10.3", kills=("rp-eof",))
def test_read_plus_of_the_last_bytes_is_at_the_end(sparse):
    assert read_plus(sparse, SIZE - 100, 200)[0]


@rule("RP-NOT-EOF", v42="RFC 7862 15.10.3", kills=("rp-not-eof",))
def test_read_plus_before_the_end_is_not_at_the_end(sparse):
    assert not read_plus(sparse, 0, 100)[0]


@rule("RP-PAST", v42="RFC 7862 15.10.3", kills=("rp-eof", "rp-past"))
def test_read_plus_past_the_end_returns_nothing(sparse):
    at_end, contents = read_plus(sparse, SIZE + BLOCK, 100)
    assert at_end
    assert sum(extent(one)[1] for one in contents) == 0


@rule("RP-NONE", v42="RFC 7862 15.10.3", kills=("rp-past",))
def test_read_plus_of_no_bytes_returns_none(sparse):
    _, contents = read_plus(sparse, 0, 0)
    assert sum(len(one.value.d_data) for one in contents if one.rpc_content == DATA) == 0


@rule("RP-DIR", v42="RFC 7862 15.10.3", kills=("rp-dir",))
def test_read_plus_of_a_directory_is_refused(nfs, here):
    done = nfs.compound(putfh(here.handle), op("READ_PLUS", READ_PLUS4args(ANONYMOUS, 0, 100)))
    refused(served("READ_PLUS", done), nfsstat4.NFS4ERR_ISDIR)


# WRITE_SAME, IO_ADVISE, layouts


@rule("WRITE-SAME", v42="RFC 7862 15.12.3", no_mutant_reason=UNSERVED)
def test_write_same_writes_the_pattern_into_each_block(full):
    block = app_data_block4(BLOCK, 512, 4, 0, 0, 0, b"pattern.")
    argument = WRITE_SAME4args(full.stateid, stable_how4.FILE_SYNC4, block)
    done = ok(served("WRITE_SAME", full.on(op("WRITE_SAME", argument))))["WRITE_SAME"]
    if done.wr_callback_id:
        pytest.skip("WRITE_SAME is executed asynchronously")
    for at in range(4):
        assert content(full, BLOCK + at * 512, 8) == b"pattern."
    assert content(full, 0, BLOCK) == FULL[:BLOCK]


@rule("IO-ADVISE", v42="RFC 7862 15.5.3", level="MAY")
def test_advice_changes_no_data(full, observe):
    done = served("IO_ADVISE", full.on(op("IO_ADVISE", IO_ADVISE4args(full.stateid, 0, 0, (1 << 2,)))))
    observe(f"hints {ok(done)['IO_ADVISE'].ior_hints}")
    assert has(full, FULL)


NO_UPDATE = layoutupdate4(layouttype4.LAYOUT4_NFSV4_1_FILES, b"")
OPTIONAL = {
    "LAYOUTERROR": op("LAYOUTERROR", LAYOUTERROR4args(0, 1, ANONYMOUS, ())),
    "LAYOUTSTATS": op(
        "LAYOUTSTATS",
        LAYOUTSTATS4args(0, 1, ANONYMOUS, io_info4(0, 0), io_info4(0, 0), bytes(16), NO_UPDATE),
    ),
    "OFFLOAD_STATUS": op("OFFLOAD_STATUS", OFFLOAD_STATUS4args(INVALID)),
    "OFFLOAD_CANCEL": op("OFFLOAD_CANCEL", OFFLOAD_CANCEL4args(INVALID)),
}


@rule("OPTIONAL", v42="RFC 7862 13", kills=("v42-illegal",), over=OPTIONAL)
def test_an_optional_operation_is_refused_by_a_status_of_its_own(full, what, observe):
    done = full.on(what)
    observe(done.status.name)
    assert done.status not in (
        nfsstat4.NFS4_OK,
        nfsstat4.NFS4ERR_OP_ILLEGAL,
        nfsstat4.NFS4ERR_BADXDR,
    ), f"{done.line}: there is no layout and no copy"
