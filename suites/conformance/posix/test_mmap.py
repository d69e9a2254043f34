"""mmap(): a file in memory is the file."""

from __future__ import annotations

import errno
import mmap
import os
import signal

import pytest

from storagetest.agent.testlib import Signalled, elsewhere, refused
from storagetest.agent.testlib.tmpfiles import a_file, opened, read_at, text_of, tick

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", section="POSIX.1-2024 mmap(): DESCRIPTION"),
]
PAGE = mmap.PAGESIZE


@pytest.mark.case("PSX-MMAP-READ")
def test_a_mapping_shows_the_file(here):
    """References within the mapping are to the file's contents, from the offset on."""
    data = text_of(3 * PAGE)
    with opened(a_file(here / "f", data), os.O_RDONLY) as descriptor:
        with mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
            assert mapped[:] == data
        with mmap.mmap(descriptor, PAGE, mmap.MAP_PRIVATE, mmap.PROT_READ, offset=2 * PAGE) as mapped:
            assert mapped[:] == data[2 * PAGE :]


@pytest.mark.case("PSX-MMAP-WRITE", kills=("mapped-write-lost", "write-not-done"))
def test_a_write_to_a_shared_mapping_is_a_write_to_the_file(here):
    """With MAP_SHARED, write references shall change the underlying object."""
    with opened(a_file(here / "f", text_of(2 * PAGE))) as descriptor:
        with mmap.mmap(descriptor, 0) as mapped:
            mapped[PAGE - 2 : PAGE + 2] = b"edge"
            mapped.flush()
        assert os.pread(descriptor, 4, PAGE - 2) == b"edge"
    assert read_at(here / "f", 4, PAGE - 2) == b"edge"


@pytest.mark.case("PSX-MMAP-READ-AFTER-WRITE", kills=("mapped-write-lost", "read-stale", "write-not-done"))
def test_a_write_is_seen_in_a_mapping_and_the_other_way_round(here):
    """On Linux a shared mapping and read() and write() see each other's changes at once (mmap(2))."""
    with opened(a_file(here / "f", bytes(PAGE))) as descriptor, mmap.mmap(descriptor, PAGE) as mapped:
        os.pwrite(descriptor, b"written", 100)
        assert mapped[100:107] == b"written"
        mapped[200:206] = b"mapped"
        assert os.pread(descriptor, 6, 200) == b"mapped"


@pytest.mark.case("PSX-MMAP-PRIVATE")
def test_a_write_to_a_private_mapping_stays_there(here):
    """With MAP_PRIVATE, modifications shall be visible only to the process, and not change the object."""
    with opened(a_file(here / "f", b"a" * PAGE)) as file, mmap.mmap(file, PAGE, mmap.MAP_PRIVATE) as mapped:
        mapped[0:3] = b"xyz"
        assert mapped[0:4] == b"xyza"
        assert os.pread(file, 4, 0) == b"aaaa"
    assert read_at(here / "f", 4) == b"aaaa"


@pytest.mark.case("PSX-MMAP-OTHER-PROCESS")
def test_two_processes_share_a_mapping(here):
    """A change by one process is seen by all that have the same part mapped MAP_SHARED."""
    with opened(a_file(here / "f", bytes(PAGE))) as descriptor, mmap.mmap(descriptor, PAGE) as mapped:

        def change():
            with opened(here / "f") as mine, mmap.mmap(mine, PAGE) as other:
                other[10:15] = b"hello"

        elsewhere(change)
        assert mapped[10:15] == b"hello"


@pytest.mark.case("PSX-MMAP-TAIL")
def test_the_rest_of_the_last_page_is_zero_and_not_written(here):
    """The system shall always zero-fill any partial page at the end, and shall never write it out."""
    with opened(a_file(here / "f", b"x" * 100)) as descriptor, mmap.mmap(descriptor, 100) as mapped:
        assert mapped[:] == b"x" * 100
        os.ftruncate(descriptor, 50)
        os.ftruncate(descriptor, 200)
        assert os.pread(descriptor, 200, 0) == b"x" * 50 + bytes(150)


@pytest.mark.case("PSX-MMAP-SIGBUS")
def test_a_reference_past_the_end_of_the_file(here):
    """References to whole pages following the end of an object shall result in a SIGBUS signal."""
    with (
        opened(a_file(here / "f", text_of(4 * PAGE))) as descriptor,
        mmap.mmap(descriptor, 4 * PAGE) as mapped,
    ):
        os.ftruncate(descriptor, PAGE)
        assert mapped[0:1] == b"0"

        def touch():
            return mapped[3 * PAGE]

        try:
            elsewhere(touch)
        except Signalled as signalled:
            assert signalled.number == signal.SIGBUS
            return
    raise AssertionError("the page could be read")


@pytest.mark.case("PSX-MMAP-CLOSED")
def test_a_mapping_outlives_its_descriptor(here):
    """A reference is added to the file, which a close of the descriptor does not remove."""
    descriptor = os.open(a_file(here / "f", text_of(PAGE)), os.O_RDWR)
    with mmap.mmap(descriptor, PAGE) as mapped:
        os.close(descriptor)
        mapped[0:4] = b"late"
        mapped.flush()
        assert read_at(here / "f", 4) == b"late"


@pytest.mark.case("PSX-MMAP-UNLINKED")
def test_a_mapping_outlives_the_name(here):
    """The mapping keeps the file until it is unmapped."""
    with opened(a_file(here / "f", text_of(PAGE))) as descriptor:
        mapped = mmap.mmap(descriptor, PAGE)
    os.unlink(here / "f")
    assert mapped[:] == text_of(PAGE)
    mapped[0:4] = b"gone"
    mapped.close()


@pytest.mark.case("PSX-MMAP-EACCES", section="POSIX.1-2024 mmap(): ERRORS")
def test_a_mapping_needs_a_descriptor_that_fits(here):
    """[EACCES] Not open for reading; or not for writing, with PROT_WRITE and MAP_SHARED."""
    a_file(here / "f", bytes(PAGE))
    with opened(here / "f", os.O_WRONLY) as descriptor:
        refused(errno.EACCES, mmap.mmap, descriptor, PAGE, mmap.MAP_SHARED, mmap.PROT_WRITE)
    with opened(here / "f", os.O_RDONLY) as descriptor:
        both = mmap.PROT_READ | mmap.PROT_WRITE
        refused(errno.EACCES, mmap.mmap, descriptor, PAGE, mmap.MAP_SHARED, both)
        mmap.mmap(descriptor, PAGE, mmap.MAP_PRIVATE, both).close()


@pytest.mark.case(
    "PSX-MMAP-TIMES", section="POSIX.1-2024 mmap(): DESCRIPTION", kills=("write-mtime-not-moved",)
)
def test_a_write_through_a_mapping_stamps_the_file(here):
    """The file's mtime and ctime are marked between the write reference and the next msync() with MS_SYNC."""
    with opened(a_file(here / "f", bytes(PAGE))) as descriptor, mmap.mmap(descriptor, PAGE) as mapped:
        before = os.stat(here / "f")
        tick(here)
        mapped[0] = 1
        mapped.flush()
        os.fsync(descriptor)
        assert os.stat(here / "f").st_mtime_ns > before.st_mtime_ns


@pytest.mark.case("PSX-MMAP-SPARSE", kills=("hole-reads-garbage",))
def test_a_hole_is_written_through_a_mapping(here):
    """A part of the file that was never written reads as zeroes in a mapping and can be written there."""
    with opened(here / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        os.ftruncate(descriptor, 64 * PAGE)
        with mmap.mmap(descriptor, 64 * PAGE) as mapped:
            assert mapped[32 * PAGE : 33 * PAGE] == bytes(PAGE)
            mapped[40 * PAGE : 40 * PAGE + 6] = b"island"
            mapped.flush()
        os.fsync(descriptor)
    assert read_at(here / "f", 8, 40 * PAGE - 1) == b"\0island\0"
