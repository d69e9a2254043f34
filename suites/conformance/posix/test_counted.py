"""Many of a kind: entries, links, directories, holders of a lock, entries of an ACL, uses of one name.

A file system that counts in a few bits, has a table of fixed size or keeps something of each use passes cases
that make a few of each.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import struct
import time
from contextlib import suppress

import pytest

from storagetest.agent.testlib import SubprocessCall, skip
from storagetest.agent.testlib.tmpfiles import NO_VALUE_SPACE, make_file, open_fd

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

DIRECTORIES, MORE_DIRECTORIES, MOVED, STREAMS, READERS, NAMED, TIMES = 128, 270, 9, 66, 40, 24, 56
"""How many of each are made: more than 127, 255, 8, 64, 32, 16 and 50 (chosen)."""
OPEN = 1100
"""Descriptors that are open together: more than 1,024, a whole number of times 20 (chosen)."""
OPENING = 8.0
"""Seconds to open them (chosen); the case is skipped on a slower target."""
SECONDS = 3.0
"""Seconds after which no more of MORE_DIRECTORIES and of later TIMES are made (chosen)."""


@pytest.mark.exclusive
@pytest.mark.case(
    "PSX-COUNTED-DIRECTORIES",
    section="POSIX.1-2024 <sys/stat.h>: st_nlink; mkdir(), rename()",
    kills=("subdirectories-7-bit", "moved-directories-not-counted"),
)
def test_directories_in_a_directory_are_counted_as_the_first_ones(client_dir):
    """If the first directories in one are counted, so are 128 and more, and those that are moved to it.

    A link count of 1 is that of a directory whose links are not counted: some begin with it later on.
    """
    place, other = client_dir / "d", client_dir / "other"
    for path in (place, other, *(place / f"first-{number}" for number in range(3))):
        path.mkdir()
    if os.stat(place).st_nlink != 5:
        skip(f"directories are not counted here: 3 of them make a link count of {os.stat(place).st_nlink}")
    count = 5

    def compare(after):
        found = os.stat(place).st_nlink
        assert found in (count, 1), f"{found} is the link count of a directory of {count - 2} after {after}"

    until = time.monotonic() + SECONDS
    for number in range(MORE_DIRECTORIES):
        if number >= DIRECTORIES and time.monotonic() > until:
            break
        os.mkdir(place / str(number))
        count += 1
    compare("mkdir() of each")
    for number in range(MOVED):
        os.mkdir(other / f"moved-{number}")
        os.rename(other / f"moved-{number}", place / f"moved-{number}")
        count += 1
        compare(f"{number + 1} renames from another directory")
    for number in range(MOVED):
        os.rmdir(place / f"moved-{number}")
        count -= 1
    compare("rmdir() of those")


@pytest.mark.case(
    "PSX-COUNTED-STREAMS",
    section="POSIX.1-2024 opendir(), readdir(): DESCRIPTION",
    kills=("opendir-65-shows-first",),
)
def test_each_of_many_open_directories_has_its_own_entries(client_dir):
    """A directory stream is of the directory that was opened, however many are open."""
    descriptors = []
    try:
        for number in range(STREAMS):
            place = client_dir / f"d{number}"
            place.mkdir()
            make_file(place / f"in-{number}")
            descriptors.append(os.open(place, os.O_RDONLY | os.O_DIRECTORY))
        for number, descriptor in enumerate(descriptors):
            found = os.listdir(descriptor)
            assert found == [f"in-{number}"], f"directory {number + 1} of {STREAMS} that are open"
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


OFD_SETLK = 37
"""F_OFD_SETLK (fcntl(2), Linux)."""
FLOCK = struct.Struct("hhqqi4x")


def lock_described(descriptor, kind):
    """Ask for an open file description lock of the whole file."""
    fcntl.fcntl(descriptor, OFD_SETLK, FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0))


def can_write_lock(path):
    """Return whether another process is granted an exclusive lock."""

    def attempt():
        with open_fd(path) as descriptor:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                return False
        return True

    return SubprocessCall(attempt, ()).result(within=20)


@pytest.mark.needs("locks")
@pytest.mark.case(
    "PSX-COUNTED-READERS",
    section="fcntl(2): Open file description locks",
    builds_on=("PSX-LOCK-WRITE-READ", "PSX-LOCK-OFD"),
    kills=("lock-17-readers", "lock-third-shared-is-exclusive"),
)
def test_shared_lock_of_each_of_many_holders_counts(client_dir):
    """An exclusive lock is refused until the last of 40 holders of a shared one lets it go."""
    path = make_file(client_dir / "f", b"data")
    descriptors = [os.open(path, os.O_RDWR) for _ in range(READERS)]
    try:
        for descriptor in descriptors:
            try:
                lock_described(descriptor, fcntl.F_RDLCK)
            except OSError as error:
                if error.errno != errno.ENOLCK:
                    raise
                skip("the system has fewer locks ([ENOLCK])")
        # In another order than they were asked for: first all but the first, then all but the last.
        for kept in (descriptors[0], descriptors[-1]):
            for descriptor in descriptors:
                if descriptor != kept:
                    lock_described(descriptor, fcntl.F_UNLCK)
            assert not can_write_lock(path), (
                f"an exclusive lock is granted although holder {descriptors.index(kept) + 1} of {READERS} "
                "has its shared one"
            )
            for descriptor in descriptors:
                lock_described(descriptor, fcntl.F_RDLCK)
        for descriptor in descriptors:
            lock_described(descriptor, fcntl.F_UNLCK)
        assert can_write_lock(path), "an exclusive lock is refused after the last shared one was released"
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


NO_ID = 0xFFFFFFFF
USER = 54_000


@pytest.mark.case(
    "PSX-COUNTED-ACL",
    section="acl(5): ACL ENTRIES",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-ACL-KEPT"),
    kills=("acl-entries-10",),
)
def test_each_of_many_entries_of_an_acl_is_kept(client_dir):
    """getxattr() returns all entries that setxattr() set: 24 named users and 24 named groups."""
    entries = [
        (0x01, 6, NO_ID),
        *((0x02, number % 8, USER + number) for number in range(NAMED)),
        (0x04, 4, NO_ID),
        *((0x08, 7 - number % 8, USER + number) for number in range(NAMED)),
        (0x10, 7, NO_ID),
        (0x20, 0, NO_ID),
    ]
    for path, kinds in (
        (make_file(client_dir / "f"), ("access",)),
        (client_dir / "d", ("access", "default")),
    ):
        if path.name == "d":
            path.mkdir()
        for kind in kinds:
            value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries)
            try:
                os.setxattr(path, f"system.posix_acl_{kind}", value)
            except OSError as error:
                if error.errno in (errno.EOPNOTSUPP, *NO_VALUE_SPACE):
                    skip(f"no POSIX ACL of {len(entries)} entries on this mount: {error.strerror}")
                raise
            found = os.getxattr(path, f"system.posix_acl_{kind}")
            kept = sorted(struct.iter_unpack("<HHI", found[4:]))
            assert kept == sorted(entries), f"{len(kept)} of {len(entries)} entries of the {kind} ACL"


@pytest.mark.exclusive
@pytest.mark.case(
    "PSX-COUNTED-NAME",
    section="POSIX.1-2024 open(), mkdir(), symlink(), mkfifo(), link(), unlink(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-AGAIN-NAME", "PSX-AGAIN-KINDS"),
    kills=("made-removed-50-times-refused",),
)
def test_name_is_made_and_removed_many_times(client_dir):
    """A name that was removed is free: each time, for each kind of file, and the directory is empty then."""
    one = make_file(client_dir / "one", b"data")
    (client_dir / "d").mkdir()
    path = client_dir / "d" / "name"
    makers = {
        "open()": (lambda: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)), os.unlink),
        "mkdir()": (path.mkdir, os.rmdir),
        "symlink()": (lambda: path.symlink_to("target"), os.unlink),
        "mkfifo()": (lambda: os.mkfifo(path), os.unlink),
        "link()": (lambda: os.link(one, path), os.unlink),
    }
    until = time.monotonic() + SECONDS
    for what, (make, remove) in makers.items():
        for number in range(TIMES):
            if number > 1 and what != "open()" and time.monotonic() > until:
                break
            try:
                make()
            except OSError as error:
                assert number == 0, f"{what} of a name that was made and removed {number} times: {error}"
                with suppress(OSError):
                    remove(path)
                break  # other cases test whether a file system may lack it
            remove(path)
        assert os.listdir(client_dir / "d") == [], f"after {what} and its removal"


@pytest.mark.exclusive
@pytest.mark.case(
    "PSX-COUNTED-OPEN",
    section="POSIX.1-2024 open(), read(), write(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-OPEN-300"),
    kills=("handle-1025-is-first",),
)
def test_each_of_more_than_a_thousand_descriptors_is_of_its_file(client_dir):
    """1,100 descriptors of 20 files are open together: each reads and writes its own file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = OPEN + 100
    if hard != resource.RLIM_INFINITY and hard < limit:
        skip(f"a process of this client may have {hard} open files (RLIMIT_NOFILE)")
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    paths = [make_file(client_dir / f"f{number}", b"file %02d" % number) for number in range(20)]
    descriptors = []
    try:
        until = time.monotonic() + OPENING
        for number in range(OPEN):
            if time.monotonic() > until:
                skip(f"the target opened {number} of {OPEN} files in {OPENING:g} s")
            descriptors.append(os.open(paths[number % 20], os.O_RDWR))
        for number in (*range(250, 260), *range(505, 520), *range(1015, 1030), *range(OPEN - 5, OPEN)):
            found = os.pread(descriptors[number], 7, 0)
            assert found == b"file %02d" % (number % 20), (
                f"descriptor {number + 1} of {OPEN} reads {found!r} of file {number % 20}"
            )
        for number in range(OPEN - 20, OPEN):
            os.pwrite(descriptors[number], b"by %04d" % number, 7)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    for number, path in enumerate(paths):
        found = path.read_bytes()
        assert found == b"file %02dby %04d" % (number, OPEN - 20 + number), (
            f"file {number} is {found!r} after a write through descriptor {OPEN - 19 + number} of {OPEN}"
        )


FILES, FILE_STEP, READ_BETWEEN = 120, 997, 3
"""Files whose blocks are counted, the bytes by which each is longer, and how often all are read (chosen)."""
MOST_MORE = 64 << 20
"""Bytes of blocks that a file may have in addition to its data: a file system may allocate ahead (chosen)."""


@pytest.mark.exclusive
@pytest.mark.case(
    "PSX-COUNTED-BLOCKS",
    level="SHOULD",
    section="POSIX.1-2024 <sys/stat.h>: st_blocks",
    kills=("blocks-of-file-of-before",),
)
def test_blocks_of_many_files_are_those_of_their_data(client_dir):
    """st_blocks is the number of blocks that are allocated for the file: also when many others were used."""
    paths = []
    for number in range(FILES):
        paths.append(client_dir / f"f{number}")
        with open_fd(paths[-1], os.O_CREAT | os.O_EXCL | os.O_WRONLY) as descriptor:
            os.write(descriptor, os.urandom(number * FILE_STEP))
    with open_fd(paths[-1], os.O_RDONLY) as descriptor:
        os.fsync(descriptor)
    for turn in range(READ_BETWEEN):
        for number, path in enumerate(paths):
            found = os.stat(path)
            assert found.st_size == number * FILE_STEP, f"a file of {number * FILE_STEP} bytes, turn {turn}"
            more = found.st_blocks * 512 - found.st_size
            assert more <= MOST_MORE, (
                f"a file of {found.st_size} bytes has {found.st_blocks} blocks, when {FILES} were used"
            )
            path.read_bytes()
