"""mmap(): file contents through a mapping."""

from __future__ import annotations

import errno
import mmap
import os
import signal

import pytest

from storagetest.agent.testlib import KilledBySignal, assert_errno, call_in_subprocess
from storagetest.agent.testlib.byte_model import first_difference
from storagetest.agent.testlib.mappings import last_page, map_file
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, pattern_bytes, read_at, wait_clock_tick

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST",
        builds_on=("PSX-DATA-NEW-FILE", "PSX-MMAP-READ"),
        section="POSIX.1-2024 mmap(): DESCRIPTION",
    ),
]
PAGE = mmap.PAGESIZE


@pytest.mark.case("PSX-MMAP-READ")
def test_a_mapping_shows_the_file(client_dir):
    """References within the mapping are to the file's contents, from the offset on."""
    data = pattern_bytes(3 * PAGE)
    with open_fd(make_file(client_dir / "f", data), os.O_RDONLY) as descriptor:
        with map_file(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
            assert mapped[:] == data
        with map_file(descriptor, PAGE, mmap.MAP_PRIVATE, mmap.PROT_READ, offset=2 * PAGE) as mapped:
            assert mapped[:] == data[2 * PAGE :]


@pytest.mark.case("PSX-MMAP-WRITE", kills=("mapped-write-lost", "write-not-done"))
def test_shared_mapping_writes_to_the_file(client_dir):
    """With MAP_SHARED, write references shall change the underlying object."""
    with open_fd(make_file(client_dir / "f", pattern_bytes(2 * PAGE))) as descriptor:
        with map_file(descriptor, 0) as mapped:
            mapped[PAGE - 2 : PAGE + 2] = b"edge"
            mapped.flush()
        assert os.pread(descriptor, 4, PAGE - 2) == b"edge"
    assert read_at(client_dir / "f", 4, PAGE - 2) == b"edge"


@pytest.mark.case("PSX-MMAP-READ-AFTER-WRITE", kills=("mapped-write-lost", "read-stale", "write-not-done"))
def test_mapping_and_write_are_coherent(client_dir):
    """On Linux a shared mapping and read() and write() see each other's changes at once (mmap(2))."""
    with (
        open_fd(make_file(client_dir / "f", bytes(PAGE))) as descriptor,
        map_file(descriptor, PAGE) as mapped,
    ):
        os.pwrite(descriptor, b"written", 100)
        assert mapped[100:107] == b"written"
        mapped[200:206] = b"mapped"
        assert os.pread(descriptor, 6, 200) == b"mapped"


@pytest.mark.case("PSX-MMAP-PRIVATE")
def test_private_mapping_does_not_change_the_file(client_dir):
    """With MAP_PRIVATE, modifications shall be visible only to the process, and not change the object."""
    with (
        open_fd(make_file(client_dir / "f", b"a" * PAGE)) as file,
        map_file(file, PAGE, mmap.MAP_PRIVATE) as mapped,
    ):
        mapped[0:3] = b"xyz"
        assert mapped[0:4] == b"xyza"
        assert os.pread(file, 4, 0) == b"aaaa"
    assert read_at(client_dir / "f", 4) == b"aaaa"


@pytest.mark.case("PSX-MMAP-OTHER-PROCESS")
def test_two_processes_share_a_mapping(client_dir):
    """A change by one process is seen by all processes that map the same part with MAP_SHARED."""
    with (
        open_fd(make_file(client_dir / "f", bytes(PAGE))) as descriptor,
        map_file(descriptor, PAGE) as mapped,
    ):

        def change():
            with open_fd(client_dir / "f") as mine, map_file(mine, PAGE) as other:
                other[10:15] = b"hello"

        call_in_subprocess(change)
        assert mapped[10:15] == b"hello"


@pytest.mark.case("PSX-MMAP-TAIL")
def test_partial_last_page_is_zero_filled_and_not_written(client_dir):
    """The system shall always zero-fill any partial page at the end, and shall never write it out."""
    with open_fd(make_file(client_dir / "f", b"x" * 100)) as descriptor, map_file(descriptor, 100) as mapped:
        assert mapped[:] == b"x" * 100
        os.ftruncate(descriptor, 50)
        os.ftruncate(descriptor, 200)
        assert os.pread(descriptor, 200, 0) == b"x" * 50 + bytes(150)


@pytest.mark.case(
    "PSX-MMAP-TAIL-ZERO", builds_on=("PSX-DATA-NEW-FILE", "PSX-MMAP-TAIL"), kills=("read-returns-more",)
)
def test_bytes_behind_the_end_are_zero_in_a_mapping(client_dir):
    """The system shall always zero-fill any partial page at the end of an object: of a file of any history.

    New, cut, grown, written behind its end and opened again; the mapping is of the pages that it has.
    """

    def compare(path, text):
        with open_fd(path, os.O_RDONLY) as descriptor:
            size = os.fstat(descriptor).st_size
            for kind in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
                behind = last_page(descriptor, size, kind)[(size - 1) % PAGE + 1 :]
                assert behind == bytes(len(behind)), (
                    f"{text}, a mapping of a file of {size} bytes has {len(behind) - behind.count(0)} bytes "
                    "behind the end that are not zero; required: zeroes up to the end of the page"
                )

    for size in (1, 100, 511, PAGE - 1, PAGE + 1, 3 * PAGE + 700, 32 * PAGE + 5, 70 * PAGE - 2):
        path = make_file(client_dir / f"{size}", b"x" * size)
        compare(path, "new")
        os.truncate(path, size + 3 * PAGE - 5)
        compare(path, "grown")
        with open_fd(path) as descriptor:
            os.pwrite(descriptor, b"y" * 300, size + 4 * PAGE)
        compare(path, "written behind its end")
        for less in (size + PAGE + 9, size):
            os.truncate(path, less)
            compare(path, f"cut to {less}")


@pytest.mark.case("PSX-MMAP-SIGBUS")
def test_reference_past_the_end_raises_sigbus(client_dir):
    """References to whole pages following the end of an object shall result in a SIGBUS signal."""
    with (
        open_fd(make_file(client_dir / "f", pattern_bytes(4 * PAGE))) as descriptor,
        map_file(descriptor, 4 * PAGE) as mapped,
    ):
        os.ftruncate(descriptor, PAGE)
        assert mapped[0:1] == b"0"

        def touch():
            return mapped[3 * PAGE]

        try:
            call_in_subprocess(touch)
        except KilledBySignal as signalled:
            assert signalled.number == signal.SIGBUS
            return
    raise AssertionError("the page could be read")


@pytest.mark.case("PSX-MMAP-CLOSED")
def test_mapping_is_valid_after_close(client_dir):
    """A reference is added to the file, which a close of the descriptor does not remove."""
    descriptor = os.open(make_file(client_dir / "f", pattern_bytes(PAGE)), os.O_RDWR)
    with map_file(descriptor, PAGE) as mapped:
        os.close(descriptor)
        mapped[0:4] = b"late"
        mapped.flush()
        assert read_at(client_dir / "f", 4) == b"late"


@pytest.mark.case("PSX-MMAP-UNLINKED")
def test_mapping_is_valid_after_unlink(client_dir):
    """The mapping keeps the file until it is unmapped."""
    with open_fd(make_file(client_dir / "f", pattern_bytes(PAGE))) as descriptor:
        mapped = map_file(descriptor, PAGE)
    os.unlink(client_dir / "f")
    assert mapped[:] == pattern_bytes(PAGE)
    mapped[0:4] = b"gone"
    mapped.close()


@pytest.mark.case("PSX-MMAP-UNLINKED-WRITE", kills=("mapped-unlinked-lost",))
def test_file_without_a_name_is_written_through_a_mapping(client_dir):
    """What is stored through a mapping is in the file, also after its name was removed or replaced."""
    for how in ("removed", "replaced"):
        path = make_file(client_dir / how, pattern_bytes(20 * PAGE))
        wanted = bytearray(pattern_bytes(20 * PAGE))
        with open_fd(path) as descriptor:
            with map_file(descriptor, 20 * PAGE) as mapped:
                if how == "removed":
                    os.unlink(path)
                else:
                    os.rename(make_file(client_dir / "new", b"another file"), path)
                for start in (7, 9 * PAGE + 7, 19 * PAGE + 7):
                    mapped[start : start + 5] = wanted[start : start + 5] = b"store"
                mapped.flush()
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            assert os.pread(descriptor, 21 * PAGE, 0) == wanted, f"a file whose name was {how}"
        if how == "replaced":
            assert path.read_bytes() == b"another file"


@pytest.mark.case("PSX-MMAP-EACCES", section="POSIX.1-2024 mmap(): ERRORS")
def test_mapping_requires_a_matching_open_mode(client_dir):
    """[EACCES] The descriptor is not open for reading or, for PROT_WRITE and MAP_SHARED, for writing."""
    make_file(client_dir / "f", bytes(PAGE))
    with open_fd(client_dir / "f", os.O_WRONLY) as descriptor:
        assert_errno(errno.EACCES, mmap.mmap, descriptor, PAGE, mmap.MAP_SHARED, mmap.PROT_WRITE)
    with open_fd(client_dir / "f", os.O_RDONLY) as descriptor:
        both = mmap.PROT_READ | mmap.PROT_WRITE
        assert_errno(errno.EACCES, mmap.mmap, descriptor, PAGE, mmap.MAP_SHARED, both)
        map_file(descriptor, PAGE, mmap.MAP_PRIVATE, both).close()


@pytest.mark.case(
    "PSX-MMAP-TIMES", section="POSIX.1-2024 mmap(): DESCRIPTION", kills=("write-mtime-not-moved",)
)
def test_mapping_write_updates_the_times(client_dir):
    """The file's mtime and ctime are marked between the write reference and the next msync() with MS_SYNC."""
    with (
        open_fd(make_file(client_dir / "f", bytes(PAGE))) as descriptor,
        map_file(descriptor, PAGE) as mapped,
    ):
        before = os.stat(client_dir / "f")
        wait_clock_tick(client_dir)
        mapped[0] = 1
        mapped.flush()
        os.fsync(descriptor)
        after = os.stat(client_dir / "f")
        assert after.st_mtime_ns > before.st_mtime_ns, "a write through a mapping does not mark mtime"


@pytest.mark.case(
    "PSX-MMAP-TIMES-AGAIN",
    section="POSIX.1-2024 mmap(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-MMAP-READ", "PSX-MMAP-TIMES"),
    kills=("second-msync-keeps-mtime",),
)
def test_each_mapping_write_updates_the_times(client_dir):
    """Each write reference marks the times until the next msync(): of the same page again, or another.

    Also after a write() and after the times were set. Each has a mapping of its own: on tmpfs a page that is
    mapped stays writable, and Linux marks the times when a page becomes so.
    """
    path = make_file(client_dir / "f", bytes(3 * PAGE))
    with open_fd(path) as descriptor:
        for turn, at in enumerate((0, 0, 2 * PAGE, 1, PAGE, 0)):
            if turn == 3:
                os.pwrite(descriptor, b"written", 100)
            elif turn == 4:
                os.utime(descriptor, (1_000_000_000, 1_000_000_000))
            before = os.stat(path)
            wait_clock_tick(client_dir)
            with map_file(descriptor, 3 * PAGE) as mapped:
                mapped[at] = turn + 1
                mapped.flush()
            os.fsync(descriptor)
            after = os.stat(path)
            for name in ("st_mtime_ns", "st_ctime_ns"):
                assert getattr(after, name) > getattr(before, name), (
                    f"{name} is not marked by store {turn + 1} through a mapping, at {at}"
                )


@pytest.mark.case("PSX-MMAP-SPARSE", kills=("hole-reads-garbage",))
def test_hole_can_be_written_through_a_mapping(client_dir):
    """A hole reads as zeroes in a mapping and can be written there."""
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        os.ftruncate(descriptor, 64 * PAGE)
        with map_file(descriptor, 64 * PAGE) as mapped:
            assert mapped[32 * PAGE : 33 * PAGE] == bytes(PAGE)
            mapped[40 * PAGE : 40 * PAGE + 6] = b"island"
            mapped.flush()
        os.fsync(descriptor)
    assert read_at(client_dir / "f", 8, 40 * PAGE - 1) == b"\0island\0"


@pytest.mark.case("PSX-MMAP-LONG", kills=("mapped-pages-after-128-kib-lost",))
def test_each_page_of_a_long_mapping_is_stored(client_dir):
    """With MAP_SHARED, write references change the file: of each of many pages that are stored together."""
    size = 3 * (1 << 20) + 5 * PAGE + 100
    make_file(client_dir / "f", bytes(size))
    for turn, synchronised in enumerate((True, False, True)):
        data = pattern_bytes(size + PAGE)[16 * (turn + 1) :][:size]
        with open_fd(client_dir / "f") as descriptor, map_file(descriptor, size) as view:
            view[:] = data
            if synchronised:
                view.flush()
        wrong = first_difference(read_at(client_dir / "f", size), data)
        how = "msync()" if synchronised else "the unmapping"
        assert not wrong, f"after {how} of a mapping of {size} bytes the file has {wrong}"
