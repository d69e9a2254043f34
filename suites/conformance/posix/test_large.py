"""Large sizes, offsets, counts and names behave as small ones. Large files are sparse: they cost little."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import time
from array import array

import pytest

from storagetest.agent.testlib import CannotRun, call_in_subprocess, record_observation, skip, tmpfiles
from storagetest.agent.testlib.large_files import append, put, resize
from storagetest.agent.testlib.libc import FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE, fallocate
from storagetest.agent.testlib.many_entries import is_full, make_many
from storagetest.agent.testlib.mappings import map_file
from storagetest.agent.testlib.tmpfiles import hard_link, make_file, open_fd, pattern_bytes, symbolic_link

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def differences(path, expected: dict[int, bytes]) -> list[int]:
    """Return the offsets at which a new open of the file does not read the expected data."""
    with open_fd(path, os.O_RDONLY) as descriptor:
        return [
            offset for offset, data in expected.items() if os.pread(descriptor, len(data), offset) != data
        ]


@pytest.mark.case(
    "PSX-LARGE-READ",
    section="POSIX.1-2024 pread(): DESCRIPTION",
    kills=("large-read-wraps", "large-write-lost"),
)
def test_data_at_large_offsets_are_read_by_a_new_open(client_dir):
    """Any read() from each position shall return the data written there: at 17 MiB, 2, 4, 6 and 8 GiB."""
    offsets = [5, 17 * MIB, 2 * GIB - 3, 4 * GIB - 30, 4 * GIB + 5, 6 * GIB + 7, 8 * GIB + 5]
    expected = {offset: b"at %015d" % offset for offset in offsets}
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        for offset, data in expected.items():
            put(descriptor, data, offset)
        assert os.fstat(descriptor).st_size == 8 * GIB + 5 + 18
    assert differences(client_dir / "f", expected) == []
    with open_fd(client_dir / "f") as descriptor:
        os.pwrite(descriptor, b"new", 5)
    assert differences(client_dir / "f", expected | {5: b"new000000000000005"}) == []


@pytest.mark.case(
    "PSX-LARGE-TRUNCATE",
    section="POSIX.1-2024 ftruncate(): DESCRIPTION",
    kills=("large-truncate-wraps", "large-file-not-shrunk"),
)
def test_large_sizes_are_set(client_dir):
    """The size is as given, to larger and to smaller sizes, around 2 and 4 GiB; data before it are kept."""
    with open_fd(make_file(client_dir / "f", b"begin")) as descriptor:
        sizes = (
            2 * GIB - 1,
            2 * GIB,
            4 * GIB - 1,
            4 * GIB,
            4 * GIB + 7,
            6 * GIB,
            4 * GIB + 1,
            2 * GIB + 3,
            7,
        )
        for size in sizes:
            resize(descriptor, size)
            assert os.fstat(descriptor).st_size == size
            assert os.stat(client_dir / "f").st_size == size
    assert (client_dir / "f").read_bytes() == b"begin\0\0"


@pytest.mark.case(
    "PSX-LARGE-CUT", section="POSIX.1-2024 ftruncate(): DESCRIPTION", kills=("large-truncate-wraps",)
)
def test_large_file_is_cut_at_its_new_size(client_dir):
    """Data beyond the new size are discarded, also beyond 4 GiB; data before it are kept."""
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        for offset in (100, 4 * GIB + 100, 5 * GIB):
            put(descriptor, b"data", offset)
        resize(descriptor, 4 * GIB + 102)
        assert os.fstat(descriptor).st_size == 4 * GIB + 102
        resize(descriptor, 5 * GIB + 4)
    wanted = {100: b"data", 4 * GIB + 100: b"da\0\0", 5 * GIB: bytes(4)}
    assert differences(client_dir / "f", wanted) == []


@pytest.mark.case(
    "PSX-LARGE-WRITE",
    section="POSIX.1-2024 write(): DESCRIPTION",
    kills=("large-overwrite-lost", "vector-of-many-cut"),
)
def test_large_write_is_stored_completely(client_dir):
    """A write of several MiB, by one buffer or by many, stores all its bytes; so does one over it."""
    data = pattern_bytes(3 * MIB + 17)
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        assert os.pwrite(descriptor, data, 11) == len(data)
        assert (client_dir / "f").read_bytes() == bytes(11) + data, "written by one buffer"
        other = data[::-1]
        parts = [other[start : start + 50_021] for start in range(0, len(data), 50_021)]
        assert os.pwritev(descriptor, parts, 11) == len(data)
        assert (client_dir / "f").read_bytes() == bytes(11) + other, f"written by {len(parts)} buffers"


@pytest.mark.case(
    "PSX-LARGE-APPEND-LONG",
    section="POSIX.1-2024 open(): O_APPEND",
    kills=("append-of-128k-cut",),
)
def test_long_appends_are_stored_completely(client_dir):
    """Each write with O_APPEND is at the end of the file, with all its bytes: from one byte to MiB."""
    path, wanted = make_file(client_dir / "f", b"begin"), bytearray(b"begin")
    with open_fd(path, os.O_WRONLY | os.O_APPEND) as descriptor:
        for size in (1, 4096, 65_537, 128 * KIB, 128 * KIB + 1, 300_003, 2 * MIB + 9, 3):
            data = pattern_bytes(size)[::-1]
            assert os.write(descriptor, data) == size
            wanted += data
            found = path.read_bytes()
            assert len(found) == len(wanted), f"after an append of {size} bytes"
            assert found == wanted, f"an append of {size} bytes is stored wrongly"


@pytest.mark.case(
    "PSX-LARGE-OVERWRITE",
    section="POSIX.1-2024 write(): DESCRIPTION",
    kills=("large-overwrite-lost", "zeros-of-128k-skipped"),
)
def test_large_overwrite_changes_all_its_bytes_and_no_others(client_dir):
    """A write of 1 MiB into a file replaces exactly those bytes."""
    data, patch = pattern_bytes(2 * MIB), b"\xa5" * MIB
    make_file(client_dir / "f", data)
    with open_fd(client_dir / "f") as descriptor:
        assert os.pwrite(descriptor, patch, 300_001) == MIB
    assert (client_dir / "f").read_bytes() == data[:300_001] + patch + data[300_001 + MIB :]
    with open_fd(client_dir / "f") as descriptor:
        assert os.pwrite(descriptor, bytes(MIB // 2), 400_003) == MIB // 2
    found = (client_dir / "f").read_bytes()[400_003:][: MIB // 2]
    assert not found.strip(b"\0"), "zeroes that are written over other data are not read"


BORDERS = [1 << bits for bits in range(16, 44)]
"""Offsets at which a number may lose a bit, or a file be cut into parts: 64 KiB to 8 TiB (chosen)."""


def write_at_borders(descriptor, edge: int) -> dict[int, bytes]:
    """Write ``2 * edge`` bytes across each of BORDERS that the file system can hold."""
    written = {}
    for border in BORDERS:
        data = b"%016d" % border * (edge // 8)
        try:
            stored = os.pwrite(descriptor, data, border - edge)
            if stored < len(data):  # as many bytes as fit; the rest of them is refused
                os.pwrite(descriptor, data[stored:], border - edge + stored)
                raise AssertionError(f"of {len(data)} bytes at {border - edge} {stored} are written")
        except OSError as error:
            if error.errno not in (errno.EFBIG, errno.ENOSPC, errno.EDQUOT) or not written:
                raise
            record_observation(f"no data can be written at {border}: {error.strerror}")
            os.ftruncate(descriptor, max(written) + edge)
            break
        written[border] = data
    return written


@pytest.mark.case(
    "PSX-LARGE-BORDERS",
    section="POSIX.1-2024 write(), read(), ftruncate(): DESCRIPTION; lseek(2): SEEK_DATA",
    kills=("offset-41-bits", "read-across-4gib-zeros", "write-across-64-mib-cut"),
)
def test_offsets_around_each_power_of_two_are_kept_apart(client_dir):
    """Data across each border are read, found, cleared and cut there, and nowhere else."""
    edge = 4096
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        written = write_at_borders(descriptor, edge)
        last = max(written)
        assert os.fstat(descriptor).st_size == last + edge, f"size after a write across {last}"
        expected = {0: bytes(64)} | {border - edge: data for border, data in written.items()}
        assert differences(client_dir / "f", expected) == [], "data across these offsets differ"
        for border in written:
            try:
                found = os.lseek(descriptor, border - edge - 1, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.EINVAL:  # lseek(2): SEEK_DATA is an extension
                    raise
                break
            assert found <= border - edge, f"SEEK_DATA skips data from {border - edge} on: it finds {found}"
        for border in sorted(written, reverse=True):
            os.ftruncate(descriptor, border + 1)
            os.pwrite(descriptor, b"now", border - 1)
            assert os.fstat(descriptor).st_size == border + 2, f"size after a write past the cut at {border}"
            expected[border - edge] = written[border][: edge - 1] + b"now"
            assert differences(client_dir / "f", {border - edge: expected[border - edge]}) == [], (
                f"data across {border} differ after a truncation to {border + 1} and a write across it"
            )
            del expected[border - edge]
    assert differences(client_dir / "f", {0: bytes(64)}) == []


def copy_to(source, descriptor: int, at: int, length: int) -> None:
    """Copy the first ``length`` bytes of a file to ``at``; skip if there is no copy_file_range()."""
    if not hasattr(os, "copy_file_range"):
        skip("the client's Python has no copy_file_range()")
    with open_fd(source, os.O_RDONLY) as one:
        done = 0
        while done < length:
            step = os.copy_file_range(one, descriptor, length - done, done, at + done)
            assert step > 0, f"copy_file_range() to {at + done} copies nothing"
            done += step


def store(descriptor: int, at: int, data: bytes) -> None:
    """Store ``data`` at ``at`` through a shared mapping of three pages."""
    start = at // mmap.PAGESIZE * mmap.PAGESIZE
    with map_file(descriptor, 3 * mmap.PAGESIZE, offset=start) as mapped:
        mapped[at - start : at - start + len(data)] = data
        mapped.flush()


@pytest.mark.case(
    "PSX-LARGE-BORDERS-CALLS",
    section="POSIX.1-2024 write(), mmap(): DESCRIPTION; copy_file_range(2); fallocate(2)",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LARGE-BORDERS"),
    kills=("append-across-64-mib-cut", "mapped-across-64-mib-lost", "punch-across-64-mib-short"),
)
def test_calls_across_each_power_of_two_change_both_sides(client_dir):
    """An append, a copy, a store through a mapping and a hole across a border have all of their bytes."""
    page = mmap.PAGESIZE
    data = pattern_bytes(2 * page)
    source = make_file(client_dir / "source", data)
    path = client_dir / "f"
    with open_fd(path, os.O_CREAT | os.O_RDWR) as one, open_fd(path, os.O_WRONLY | os.O_APPEND) as end:
        until = time.monotonic() + 8.0  # chosen: all take 1 s on a local disk
        for border in BORDERS:
            if time.monotonic() > until:
                return
            at, size = border - page, border + 2 * page
            try:
                resize(one, size)
                put(one, data, at)
            except CannotRun:
                return  # larger files cannot be made here
            for text, start, change in (
                ("an append", at, lambda: os.write(end, data)),
                ("a copied range", size, lambda at=at: copy_to(source, one, at, len(data))),
                ("a store through a mapping", size, lambda at=at: store(one, at, data)),
            ):
                os.ftruncate(one, 0)
                os.ftruncate(one, start)
                try:
                    change()
                except CannotRun:
                    continue  # it is not there: other cases test whether that is legal
                assert differences(path, {at - 50: bytes(50) + data}) == [], f"{text} across {border}"
                assert os.fstat(one).st_size == max(start, at + len(data)), (
                    f"the size after {text} across {border}"
                )
            os.pwrite(one, data, at)
            try:
                fallocate(one, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, border - 60, 120)
            except CannotRun:
                continue
            assert differences(path, {at: data[: page - 60] + bytes(120) + data[page + 60 :]}) == [], (
                f"a hole across {border}"
            )


@pytest.mark.case("PSX-LARGE-APPEND", section="POSIX.1-2024 open(): O_APPEND", kills=("large-append-lost",))
def test_append_to_a_large_file_is_at_its_end(client_dir):
    """If O_APPEND is set, the file offset shall be set to the end of the file, beyond 4 GiB, too."""
    with open_fd(make_file(client_dir / "f", b"begin")) as descriptor:
        resize(descriptor, 4 * GIB + 10)
    with open_fd(client_dir / "f", os.O_WRONLY | os.O_APPEND) as descriptor:
        for part in (b"one,", b"two"):
            append(descriptor, part)
    assert os.stat(client_dir / "f").st_size == 4 * GIB + 17
    assert differences(client_dir / "f", {0: b"begin" + bytes(20), 4 * GIB: bytes(10) + b"one,two"}) == []


@pytest.mark.case(
    "PSX-LARGE-SEEK",
    section="POSIX.1-2024 lseek(): SEEK_HOLE",
    kills=("large-seek-wraps",),
)
def test_data_beyond_4_gib_are_found(client_dir):
    """SEEK_DATA skips no data and SEEK_HOLE stops in none, beyond 4 GiB, too."""
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        put(descriptor, b"x" * 4096, 5 * GIB)
        os.fsync(descriptor)
        assert os.lseek(descriptor, 4 * GIB, os.SEEK_DATA) in range(4 * GIB, 5 * GIB + 1)
        assert os.lseek(descriptor, 5 * GIB + 5, os.SEEK_DATA) == 5 * GIB + 5
        assert os.lseek(descriptor, 5 * GIB, os.SEEK_HOLE) == 5 * GIB + 4096
        assert os.lseek(descriptor, 0, os.SEEK_END) == 5 * GIB + 4096


@pytest.mark.case(
    "PSX-LARGE-PUNCH",
    section="fallocate(2): FALLOC_FL_PUNCH_HOLE",
    kills=("large-punch-ignored", "fallocate-32-bits"),
)
def test_hole_beyond_4_gib_reads_as_zeroes(client_dir):
    """The range reads as zeroes, at any offset, and the same range of the lower 32 bits is kept."""
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        for offset in (GIB, 5 * GIB):
            put(descriptor, b"x" * 12_288, offset)
        fallocate(descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 5 * GIB + 4096, 4096)
    expected = {GIB: b"x" * 12_288, 5 * GIB: b"x" * 4096 + bytes(4096) + b"x" * 4096}
    assert differences(client_dir / "f", expected) == []


@pytest.mark.case(
    "PSX-LARGE-PUNCH-LENGTH",
    section="fallocate(2): FALLOC_FL_PUNCH_HOLE",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LARGE-PUNCH"),
    kills=("punch-length-32-bits",),
)
def test_hole_of_more_than_4_gib_reads_as_zeroes(client_dir):
    """Each byte of the range reads as zero, and those before and behind it are kept: a length has 64 bits."""
    places = (0, GIB, 5 * GIB, 6 * GIB)
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        for offset in places:
            put(descriptor, b"x" * 12_288, offset)
        fallocate(descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 4096, 6 * GIB)
        assert os.fstat(descriptor).st_size == 6 * GIB + 12_288
    ends = {0: b"x" * 4096 + bytes(8192), 6 * GIB: bytes(4096) + b"x" * 8192}
    assert differences(client_dir / "f", {offset: ends.get(offset, bytes(12_288)) for offset in places}) == []


@pytest.mark.parametrize(
    ("mode", "offset", "length"),
    [
        pytest.param(*rest, id=name.lower(), marks=pytest.mark.case(f"PSX-LARGE-{name}", kills=kills))
        for name, kills, *rest in (
            ("HOLE", ("punch-first-mib",), FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 4096, 3 * MIB),
            ("HOLE-ODD", ("punch-first-mib",), FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, MIB - 5, 2 * MIB + 4099),
            ("ZEROED", ("zeroed-first-mib",), FALLOC_ZERO_RANGE, 8192, 3 * MIB),
            ("ZEROED-ODD", ("zeroed-first-mib",), FALLOC_ZERO_RANGE, 2 * MIB - 7, MIB + 4111),
        )
    ],
)
@pytest.mark.case(section="fallocate(2): FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE")
def test_whole_of_a_long_range_reads_as_zeroes(client_dir, mode, offset, length):
    """A range of several MiB reads as zeroes from its first byte to its last, and its neighbours are kept."""
    size = 4 * MIB
    data = pattern_bytes(size)
    with open_fd(make_file(client_dir / "f", data)) as descriptor:
        fallocate(descriptor, mode, offset, length)
    end = offset + length
    found = (client_dir / "f").read_bytes()
    assert len(found) == size
    assert found[:offset] == data[:offset], "data before the range changed"
    assert not found[offset:end].strip(b"\0"), "the range has a byte that is not zero"
    assert found[end:] == data[end:], "data after the range changed"


@pytest.mark.case("PSX-LARGE-COPY", section="copy_file_range(2): DESCRIPTION", kills=("large-copy-wraps",))
def test_range_beyond_4_gib_is_copied(client_dir):
    """copy_file_range() copies from the given offset, beyond 4 GiB, too."""
    if not hasattr(os, "copy_file_range"):
        skip("the client's Python has no copy_file_range()")
    with (
        open_fd(client_dir / "a", os.O_CREAT | os.O_RDWR) as source,
        open_fd(make_file(client_dir / "b")) as target,
    ):
        put(source, b"low!" * 1024, GIB)
        put(source, b"high" * 1024, 5 * GIB)
        done = 0
        while done < 4096:
            step = os.copy_file_range(source, target, 4096 - done, 5 * GIB + done, done)
            assert step > 0
            done += step
    assert (client_dir / "b").read_bytes() == b"high" * 1024


@pytest.mark.case(
    "PSX-COPY-LONG", section="copy_file_range(2): DESCRIPTION", kills=("copy-first-mib-repeated",)
)
def test_a_range_of_several_mib_is_copied(client_dir):
    """copy_file_range() copies len bytes, or fewer and returns how many: each from its own place."""
    if not hasattr(os, "copy_file_range"):
        skip("the client's Python has no copy_file_range()")
    size = 5 * (1 << 20) + 4097
    data = array("Q", range(size // 8 + 1)).tobytes()[:size]
    with (
        open_fd(make_file(client_dir / "a", data)) as source,
        open_fd(make_file(client_dir / "b", b"head")) as target,
    ):
        done = 0
        while done < size:
            step = os.copy_file_range(source, target, size - done, done, 4 + done)
            assert step > 0, f"copy_file_range() returns {step} after {done} of {size} bytes"
            done += step
    found = (client_dir / "b").read_bytes()
    assert len(found) == 4 + size, f"the copy of {size} bytes behind 4 has {len(found)} bytes"
    wrong = next(
        (at for at in range(0, size, 4096) if found[4 + at : 4100 + at] != data[at : at + 4096]), None
    )
    assert wrong is None, f"the copy differs from byte {wrong} of {size} on"


@pytest.mark.case(
    "PSX-LARGE-MMAP", section="POSIX.1-2024 mmap(): DESCRIPTION", kills=("write-at-wrong-offset",)
)
def test_page_beyond_4_gib_is_mapped(client_dir):
    """References within the mapping are to the file at the offset, beyond 4 GiB, too."""
    page = mmap.PAGESIZE
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR) as descriptor:
        put(descriptor, b"low", GIB)
        put(descriptor, b"high" + bytes(page), 5 * GIB)
        assert os.fstat(descriptor).st_size == 5 * GIB + 4 + page
        with map_file(descriptor, page, offset=5 * GIB) as mapped:
            assert mapped[:4] == b"high"
            mapped[4:10] = b"mapped"
            mapped.flush()
    assert differences(client_dir / "f", {GIB: b"low", 5 * GIB: b"highmapped"}) == []


@pytest.mark.needs("locks")
@pytest.mark.case("PSX-LARGE-LOCK", section="POSIX.1-2024 fcntl(): F_SETLK", kills=("large-lock-wraps",))
def test_locks_beyond_2_and_4_gib_are_apart(client_dir):
    """A lock covers its bytes and no others: not those at the lower 31 or 32 bits of its offset."""
    flock = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, len, pid

    def lock(descriptor, start):
        fcntl.fcntl(descriptor, fcntl.F_SETLK, flock.pack(fcntl.F_WRLCK, os.SEEK_SET, start, 10, 0))

    def locked(starts):
        refused = []
        with open_fd(client_dir / "f") as mine:
            for start in starts:
                try:
                    lock(mine, start)
                except OSError as error:
                    assert error.errno in (errno.EAGAIN, errno.EACCES), error
                    refused.append(start)
        return refused

    starts = [100, 2 * GIB + 100, 4 * GIB + 100, 4 * GIB + 105, 6 * GIB + 100, (1 << 40) + 100]
    with open_fd(make_file(client_dir / "f", b"x")) as descriptor:
        lock(descriptor, 4 * GIB + 100)
        assert call_in_subprocess(locked, starts) == [4 * GIB + 100, 4 * GIB + 105]


@pytest.mark.case(
    "PSX-LARGE-SYMLINK",
    section="POSIX.1-2024 readlink(): DESCRIPTION",
    kills=("symlink-target-1024", "readlink-again-cut", "symlink-size-255"),
)
def test_long_contents_of_a_link_are_kept_or_refused(client_dir):
    """Contents of up to {SYMLINK_MAX} bytes are returned unchanged; longer ones are [ENAMETOOLONG]."""
    for length in (255, 1023, 1025, 2048, 4000, 4095):
        contents = "".join(f"/{number:07}" for number in range(512))[:length]
        try:
            symbolic_link(contents, client_dir / "link")
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG or length <= 255:  # _POSIX_SYMLINK_MAX
                raise
            record_observation(f"contents of {length} bytes are refused")
            return
        for turn in range(3):
            found = os.readlink(client_dir / "link")
            assert found == contents, f"readlink() {turn + 1} returns {len(found)} of {length} bytes"
        assert os.lstat(client_dir / "link").st_size == length
        os.unlink(client_dir / "link")


@pytest.mark.case(
    "PSX-LARGE-LINKS",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-NLINK"),
    section="POSIX.1-2024 link(): DESCRIPTION",
    kills=("links-in-a-byte",),
)
def test_hundreds_of_links_are_counted(client_dir):
    """The link count is incremented by each link, up to 1,100 of them; [EMLINK] beyond {LINK_MAX}."""
    make_file(client_dir / "a", b"x")
    hard_link(client_dir / "a", client_dir / "2")
    count = 2
    try:
        until = time.monotonic() + FILLING
        while count < 300 or (count < 1100 and time.monotonic() < until):
            os.link(client_dir / "a", client_dir / str(count + 1))
            count += 1
    except OSError as error:
        if error.errno == errno.EMLINK:
            record_observation(f"a file has at most {count} links")
        elif not is_full(error, count):
            raise
    assert os.stat(client_dir / "a").st_nlink == count >= 8, "_POSIX_LINK_MAX"
    os.unlink(client_dir / "2")
    assert os.stat(client_dir / "a").st_nlink == count - 1


@pytest.mark.case("PSX-LARGE-XATTR-LIST", section="listxattr(2): DESCRIPTION", kills=("xattr-list-cut",))
def test_long_list_of_attributes_is_complete(client_dir):
    """listxattr() retrieves all names, also if the list has several KiB; space for them may be limited."""
    make_file(client_dir / "f")
    wanted = set()
    for number in range(40):
        name = f"user.{number:02}-{'n' * 60}"
        try:
            os.setxattr(client_dir / "f", name, b"v")
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP and not wanted:
                skip("this file system has no user.* attributes, or they are disabled (setxattr(2), ENOTSUP)")
            if error.errno not in tmpfiles.NO_VALUE_SPACE:
                raise
            break
        wanted.add(name)
    assert {name for name in os.listxattr(client_dir / "f") if name.startswith("user.")} == wanted


@pytest.mark.case(
    "PSX-LARGE-OWNER",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-CHOWN-32-BIT"),
    section="POSIX.1-2024 chown(): DESCRIPTION",
    kills=("owner-in-16-bits", "owner-65534-is-root"),
)
def test_large_ids_are_kept(client_dir):
    """The user and group ID are set as given, beyond 16 and 31 bits and 65,534; of directories, too."""
    (client_dir / "d").mkdir()
    for path in (make_file(client_dir / "f", b"data"), client_dir / "d"):
        for number in (65_535 + 7, 1 << 24, (1 << 31) + 5, 65_534, 65_533, 99):
            os.chown(path, number, number + 1)
            found = os.stat(path)
            assert (found.st_uid, found.st_gid) == (number, number + 1)


FILLING = 3.0
"""Seconds in which the largest directory is made (chosen): some 10,000 entries over a network."""


@pytest.mark.exclusive
@pytest.mark.case(
    "PSX-LARGE-DIRECTORY",
    section="POSIX.1-2024 readdir(): DESCRIPTION",
    kills=("directory-of-250", "late-entry-not-found", "late-file-data-lost"),
)
def test_directory_of_up_to_20000_entries(client_dir):
    """Each entry is returned once: of a large directory, and of what removals leave.

    A file that is made there is found by its name, and has its data.
    """
    (client_dir / "d").mkdir()
    names = make_many(client_dir / "d", [f"e{number:05}" for number in range(20_000)], FILLING, least=300)
    late = [f"late-{number}" for number in range(5)]
    for _ in late:  # so that there is space for them
        os.unlink(client_dir / "d" / names.pop(len(names) // 2))
    for name in late:
        make_file(client_dir / "d" / name, name.encode())
        assert (client_dir / "d" / name).read_bytes() == name.encode(), f"{name}, after {len(names)} others"
        os.lstat(client_dir / "d" / names[-1])
    names += late
    found = os.listdir(client_dir / "d")
    assert len(found) == len(names), f"{len(found)} entries are listed of {len(names)}"
    assert sorted(found) == names
    for name in names[::10]:
        os.unlink(client_dir / "d" / name)
    assert sorted(os.listdir(client_dir / "d")) == [name for at, name in enumerate(names) if at % 10]


@pytest.mark.exclusive
@pytest.mark.case(
    "PSX-LARGE-DIRECTORY-300",
    section="POSIX.1-2024 readdir(): DESCRIPTION",
    kills=("readdir-loses-far-entry", "removed-entry-hides-next", "directory-of-280-stays"),
)
def test_directory_of_300_entries_after_removals_and_additions(client_dir):
    """Each entry is returned once, in each of several listings between which entries come and go.

    When all of them are gone, the directory is removed.
    """
    names = {f"entry-{number:03}" for number in range(300)}
    (client_dir / "d").mkdir()
    for name in sorted(names):
        os.mknod(client_dir / "d" / name)
    for turn in range(3):
        assert sorted(os.listdir(client_dir / "d")) == sorted(names), f"listing {turn + 1}"
        gone = sorted(names)[turn::40]
        for name in gone:
            os.unlink(client_dir / "d" / name)
            os.mknod(client_dir / "d" / f"new-{turn}-{name}")
        names = names.difference(gone) | {f"new-{turn}-{name}" for name in gone}
    for name in names:
        os.unlink(client_dir / "d" / name)
    (client_dir / "d").rmdir()
