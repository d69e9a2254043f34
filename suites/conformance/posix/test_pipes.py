"""Data that go through a pipe or several buffers: splice(), sendfile(), preadv() and pwritev() with flags."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager

import pytest

from storagetest.agent.testlib import skip
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, pattern_bytes

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

SIZE = 150_001
"""Bytes of the file: 36 pages and a part of one (chosen)."""
PART = 20_000
"""Bytes that go through a pipe at a time: a pipe has 64 KiB."""
PLACES = (0, 1, 511, 4095, 4096, 65_535, 65_537, 100_003, SIZE - PART, SIZE - 1)
"""Offsets at and next to the borders of sectors, pages and readahead (chosen)."""
PARTS = (1, 4095, 0, 4097, 3, 8192, 17)
"""Bytes of each of the buffers of one call (chosen)."""
LACKING = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def a_pipe():
    """Return both ends of a pipe for the with-block."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def splice(source, target, length, **offsets):
    """Move bytes between a file and a pipe; skip the case if the file system cannot."""
    try:
        return os.splice(source, target, length, **offsets)
    except OSError as error:
        if error.errno in LACKING:
            skip(f"this file system has no splice(2): {error.strerror}")
        raise


def drain(pipe, length):
    """Read ``length`` bytes of a pipe."""
    found = b""
    while len(found) < length:
        found += os.read(pipe, length - len(found))
    return found


def assert_same(found, expected, what):
    """Assert that bytes are those that are expected; describe the first difference."""
    assert len(found) == len(expected), f"{what}: {len(found)} bytes, and not {len(expected)}"
    if found != expected:
        at = next(place for place, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1])
        raise AssertionError(f"{what}: byte {at} and on is {found[at:][:20]!r}, not {expected[at:][:20]!r}")


@pytest.mark.case(
    "PSX-SPLICE-OUT", section="splice(2): DESCRIPTION, RETURN VALUE", kills=("spliced-out-at-page",)
)
def test_file_goes_into_a_pipe(client_dir):
    """The bytes at the offset go into the pipe: those of the file that are left, 0 at its end.

    A given offset leaves that of the file; without one, the file's is used and advances.
    """
    data = pattern_bytes(SIZE)
    make_file(client_dir / "f", data)
    with open_fd(client_dir / "f", os.O_RDONLY) as file, a_pipe() as (output, into):
        for place in PLACES:
            moved = splice(file, into, PART, offset_src=place)
            assert 0 < moved <= PART, f"splice() of {PART} bytes at {place} returns {moved}"
            assert_same(drain(output, moved), data[place : place + moved], f"splice() at {place}")
        assert os.lseek(file, 0, os.SEEK_CUR) == 0, "splice() from a given offset moved the file's"
        assert splice(file, into, PART, offset_src=SIZE) == 0
        found = b""
        while moved := splice(file, into, PART):
            found += drain(output, moved)
            at = os.lseek(file, 0, os.SEEK_CUR)
            assert at == len(found), f"the file's offset is {at} after {len(found)} bytes"
    assert_same(found, data, "splice() from the file's offset")


@pytest.mark.case("PSX-SPLICE-IN", section="splice(2): DESCRIPTION", kills=("spliced-in-behind-end-early",))
def test_pipe_goes_into_a_file(client_dir):
    """The bytes of the pipe are written at the offset, and no others: over data, and behind the end.

    A given offset leaves that of the file; without one, the file's is used and advances.
    """
    data = bytearray(b"-" * SIZE)
    make_file(client_dir / "f", bytes(data))
    with open_fd(client_dir / "f") as file, a_pipe() as (output, into):
        for number, place in enumerate((*PLACES, SIZE + 70_000)):
            part = pattern_bytes(PART + number)[number:]
            os.write(into, part)
            done = 0
            while done < PART:
                moved = splice(output, file, PART - done, offset_dst=place + done)
                assert moved > 0, f"splice() to {place + done} moves nothing"
                done += moved
            data += bytes(max(0, place - len(data)))
            data[place : place + PART] = part
            assert_same(os.pread(file, 2 * SIZE, 0), bytes(data), f"after splice() to {place}")
        assert os.lseek(file, 0, os.SEEK_CUR) == 0, "splice() to a given offset moved the file's"
        os.lseek(file, 7, os.SEEK_SET)
        os.write(into, b"here")
        assert splice(output, file, 4) == 4
        data[7:11] = b"here"
        assert os.lseek(file, 0, os.SEEK_CUR) == 11, "splice() to the file's offset does not move it"
    assert_same((client_dir / "f").read_bytes(), bytes(data), "after splice() to the file's offset")


@pytest.mark.case(
    "PSX-SPLICE-BETWEEN",
    section="splice(2): DESCRIPTION",
    builds_on=("PSX-SPLICE-OUT", "PSX-SPLICE-IN"),
    kills=("spliced-in-behind-end-early",),
)
def test_file_is_copied_through_a_pipe(client_dir):
    """What goes from a file through a pipe into another one is the whole file, in parts of any size."""
    data = pattern_bytes(SIZE)
    make_file(client_dir / "f", data)
    make_file(client_dir / "copy")
    with (
        open_fd(client_dir / "f", os.O_RDONLY) as source,
        open_fd(client_dir / "copy") as target,
        a_pipe() as ends,
    ):
        step = 1
        while moved := splice(source, ends[1], step):
            while moved:
                done = splice(ends[0], target, moved)
                assert done > 0, f"splice() into the copy moves nothing of {moved} bytes"
                moved -= done
            step = step * 3 % 50_000 + 1
    assert_same((client_dir / "copy").read_bytes(), data, "the copy")


@pytest.mark.case(
    "PSX-SENDFILE-PLACES",
    section="sendfile(2): DESCRIPTION",
    kills=("sent-odd-offset-rounded", "sendfile-far-zeros"),
)
def test_parts_of_a_file_are_sent(client_dir):
    """The bytes at the offset are copied, up to the end of the file; the file's own offset stays."""
    data = pattern_bytes(SIZE)
    make_file(client_dir / "f", data)
    make_file(client_dir / "copy")
    expected = b""
    with open_fd(client_dir / "f", os.O_RDONLY) as source, open_fd(client_dir / "copy") as target:
        for place in (*PLACES, SIZE, SIZE + 5):
            part, done = data[place : place + PART], 0
            while done < PART:
                sent = os.sendfile(target, source, place + done, PART - done)
                if sent == 0:
                    break
                done += sent
            assert done == len(part), f"{done} of {len(part)} bytes at {place} are sent"
            expected += part
        assert os.lseek(source, 0, os.SEEK_CUR) == 0, "sendfile() from a given offset moved the file's"
    assert_same((client_dir / "copy").read_bytes(), expected, "what was sent")


@pytest.mark.case(
    "PSX-BUFFERS-PLACES",
    section="preadv(2), pwritev(2): DESCRIPTION",
    kills=("vector-at-odd-offset-early",),
)
def test_buffers_are_read_and_written_at_an_offset(client_dir):
    """The buffers are used in their order, an empty one, too, at the offset; the file's offset stays."""
    data = bytearray(b"-" * SIZE)
    make_file(client_dir / "f", bytes(data))
    total = sum(PARTS)
    with open_fd(client_dir / "f") as file:
        for number, place in enumerate((*PLACES, SIZE + 9_999)):
            whole = pattern_bytes(total + number)[number:]
            parts, at = [], 0
            for length in PARTS:
                parts.append(whole[at : at + length])
                at += length
            written = os.pwritev(file, parts, place)
            assert written == total, f"pwritev() of {total} bytes at {place} returns {written}"
            data += bytes(max(0, place - len(data)))
            data[place : place + total] = whole
            assert_same(os.pread(file, 2 * SIZE, 0), bytes(data), f"after pwritev() at {place}")
        for place in (*PLACES, len(data) - 1):
            buffers = [bytearray(length) for length in PARTS]
            found = os.preadv(file, buffers, place)
            expected = bytes(data[place : place + total])
            assert found == len(expected), f"preadv() at {place} returns {found}, and not {len(expected)}"
            assert_same(b"".join(buffers)[:found], expected, f"preadv() at {place}")
            assert not any(b"".join(buffers)[found:]), f"preadv() at {place} changes more than it returns"
        assert os.lseek(file, 0, os.SEEK_CUR) == 0, "preadv() or pwritev() moved the file's offset"


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        pytest.param(name, flag, id=name.lower(), marks=pytest.mark.case(f"PSX-BUFFERS-{name}"))
        for name, flag in (("APPEND", 0x10), ("DSYNC", 0x02), ("SYNC", 0x04), ("HIGH-PRIORITY", 0x01))
    ],
)
@pytest.mark.case(section="pwritev2(2): DESCRIPTION", kills=("vector-loses-last",))
def test_flags_of_one_write(client_dir, name, flag):
    """RWF_APPEND writes at the end of the file, whatever the offset is; the other flags at the offset.

    RWF_DSYNC and RWF_SYNC are as O_DSYNC and O_SYNC, of this write; RWF_HIPRI has effect on O_DIRECT only.
    """
    data = pattern_bytes(10_001)
    make_file(client_dir / "f", data)
    expected = bytearray(data)
    with open_fd(client_dir / "f") as file:
        for number, place in enumerate((0, 5, 4096, 10_000, 10_001, 30_000)):
            part = b"part %d of several" % number * 100
            before = len(expected)
            try:
                done = os.pwritev(file, [part[:700], part[700:]], place, flag)
            except OSError as error:
                if error.errno in LACKING:
                    skip(f"there is no pwritev2(2) with flags {flag:#x} here: {error.strerror}")
                raise
            assert done == len(part), f"pwritev2() of {len(part)} bytes returns {done}"
            at = before if name == "APPEND" else place
            expected += bytes(max(0, at - before))
            expected[at : at + len(part)] = part
            what = f"after pwritev2() at {place} with flags {flag:#x}, of a file of {before} bytes"
            assert_same((client_dir / "f").read_bytes(), bytes(expected), what)
        assert os.lseek(file, 0, os.SEEK_CUR) == 0, "pwritev2() at a given offset moved the file's"


@pytest.mark.case("PSX-COPY-OFFSETS", section="copy_file_range(2): DESCRIPTION", kills=("copy-range-short",))
def test_copy_without_offsets_moves_those_of_the_files(client_dir):
    """A null offset is the file's own: the copy begins there, and it advances by the bytes copied."""
    data = pattern_bytes(60_000)
    make_file(client_dir / "f", data)
    make_file(client_dir / "copy", b"-" * 70_000)
    with open_fd(client_dir / "f", os.O_RDONLY) as source, open_fd(client_dir / "copy") as target:
        os.lseek(source, 1001, os.SEEK_SET)
        os.lseek(target, 333, os.SEEK_SET)
        done = 0
        while done < 50_000:
            try:
                step = os.copy_file_range(source, target, 50_000 - done)
            except OSError as error:
                if error.errno in LACKING:
                    skip(f"this file system has no copy_file_range(2): {error.strerror}")
                raise
            assert step > 0, f"copy_file_range() copies nothing at {done} of 50000 bytes"
            done += step
            found = os.lseek(source, 0, os.SEEK_CUR), os.lseek(target, 0, os.SEEK_CUR)
            assert found == (1001 + done, 333 + done), f"the offsets are {found} after {done} bytes"
    expected = b"-" * 333 + data[1001:51_001] + b"-" * (70_000 - 50_333)
    assert_same((client_dir / "copy").read_bytes(), expected, "the copy")
