"""What is held stays as it is while nothing uses it: no call gives a time after which it may change."""

from __future__ import annotations

import errno
import fcntl
import os
import time

import pytest

from storagetest.agent.testlib import call_in_subprocess
from storagetest.agent.testlib.tmpfiles import longest_name, make_file, open_fd, pattern_bytes

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

IDLE = 7.0
"""Seconds for which nothing is used (chosen: longer than a client keeps attributes, or data to be written, by
default)."""
SECOND = 10**9


@pytest.mark.case(
    "PSX-IDLE-DESCRIPTOR",
    section="POSIX.1-2024 open(), close(): DESCRIPTION",
    kills=("idle-descriptor-closed",),
)
def test_idle_descriptor_is_read_and_written(client_dir):
    """A descriptor is open until it is closed: it reads and writes its file, from its offset."""
    data = pattern_bytes(2 << 20)
    with (
        open_fd(make_file(client_dir / "f", data), os.O_RDONLY) as reader,
        open_fd(client_dir / "f", os.O_RDWR) as writer,
    ):
        assert os.read(reader, 5000) == data[:5000]
        os.lseek(writer, 1000, os.SEEK_SET)
        time.sleep(IDLE)
        assert os.read(reader, 9000) == data[5000:14_000], "from the offset at which the last read ended"
        assert os.pread(reader, 9000, 1 << 20) == data[1 << 20 :][:9000]
        assert os.write(writer, b"later") == 5
    assert (client_dir / "f").read_bytes() == data[:1000] + b"later" + data[1005:]


@pytest.mark.case(
    "PSX-IDLE-REMOVED", section="POSIX.1-2024 unlink(): DESCRIPTION", kills=("idle-removed-file-emptied",)
)
def test_idle_removed_file_is_kept_while_it_is_open(client_dir):
    """The removal of the contents shall be postponed until all references to the file are closed."""
    data = pattern_bytes(70_000)
    with open_fd(make_file(client_dir / "f", data)) as descriptor:
        os.unlink(client_dir / "f")
        time.sleep(IDLE)
        assert os.pread(descriptor, 80_000, 0) == data
        assert os.pwrite(descriptor, b"later", 69_998) == 5
        assert os.pread(descriptor, 100, 69_990) == data[69_990:69_998] + b"later"


@pytest.mark.needs("locks")
@pytest.mark.case(
    "PSX-IDLE-LOCK",
    section="POSIX.1-2024 fcntl(): F_SETLK",
    builds_on=("PSX-LOCK-WRITE-WRITE",),
    kills=("idle-lock-expires",),
)
def test_idle_lock_is_held(client_dir):
    """A lock is held until it is released, its file is closed, or its process ends."""
    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        fcntl.lockf(descriptor, fcntl.LOCK_EX, 10, 20)
        time.sleep(IDLE)

        def locked() -> list:
            """Return whether another process is refused a lock before the range, in it and after it."""
            with open_fd(client_dir / "f") as other:
                return [_is_refused(other, start) for start in (0, 25, 60)]

        assert call_in_subprocess(locked) == [False, True, False], f"after {IDLE:g} s"


def _is_refused(descriptor, start):
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, start)
    except OSError as error:
        assert error.errno in (errno.EAGAIN, errno.EACCES), error
        return True
    return False


@pytest.mark.case(
    "PSX-IDLE-LISTING", section="POSIX.1-2024 readdir(): DESCRIPTION", kills=("idle-listing-restarts",)
)
def test_idle_listing_goes_on_where_it_was(client_dir):
    """Each entry is returned once, also if some time passes between two calls."""
    (client_dir / "d").mkdir()
    filling = "x" * (min(205, longest_name(client_dir)) - 5)
    names = [f"{number:04}-{filling}" for number in range(180)]
    for name in names:
        os.mknod(client_dir / "d" / name)
    with os.scandir(client_dir / "d") as entries:
        found = [next(entries).name for _ in range(10)]
        time.sleep(IDLE)
        found += [entry.name for entry in entries]
    twice = {name[:4] for name in found if found.count(name) > 1} if len(found) != len(set(found)) else set()
    assert not twice, f"entries that are returned twice: {sorted(twice)[:5]}"
    assert sorted(found) == names


@pytest.mark.case(
    "PSX-IDLE-ATTRIBUTES",
    section="POSIX.1-2024 <sys/stat.h>; futimens(): DESCRIPTION",
    kills=("idle-times-rounded",),
)
def test_attributes_stay_after_they_were_set(client_dir):
    """Owner, mode, size and times of a file that no process uses are those that were set, and its data."""
    path = make_file(client_dir / "f", pattern_bytes(10_000), 0o640)
    os.utime(path, ns=(1_000_000_000 * SECOND + 123_456_700, 1_100_000_000 * SECOND + 987_654_300))
    before = os.stat(path)
    time.sleep(IDLE)
    after = os.stat(path)
    for name in ("st_mode", "st_uid", "st_gid", "st_size", "st_nlink", "st_mtime_ns"):
        was, now = getattr(before, name), getattr(after, name)
        assert now == was, f"{name} is {now} after {IDLE:g} s, and was {was}"
    assert path.read_bytes() == pattern_bytes(10_000)
