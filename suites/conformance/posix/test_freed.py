"""Space and serial numbers of what was removed, replaced or cut are free again, as statvfs() reports them."""

from __future__ import annotations

import errno
import os
import time

import pytest

from storagetest.agent.testlib import skip
from storagetest.agent.testlib.libc import FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, fallocate, syncfs
from storagetest.agent.testlib.many_entries import make_many
from storagetest.agent.testlib.tmpfiles import (
    NO_VALUE_SPACE,
    fifo,
    hard_link,
    make_file,
    open_fd,
    symbolic_link,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.exclusive,
    pytest.mark.case(level="SHOULD", builds_on=("PSX-DATA-NEW-FILE", "PSX-STATVFS-SANE")),
]

MIB = 1 << 20
AMOUNT = 16 * MIB
"""Bytes of a file whose space is to be free again."""
NUMBER = 100
"""Objects whose serial numbers are to be free again."""
ROUNDS, PIECES, PIECE = 16, 320, 4096
"""How often a file is filled and emptied, the pieces that it is made of, and the bytes of each."""
MORE = 64 << 10
"""Bytes by which the blocks of an empty file may change over all rounds (chosen: 4 KiB a round)."""
ATTRIBUTE = "user.storagetest.freed"
VALUES = 500
"""Extended attributes whose space is to be free again."""
VALUE_SIZES = {"": 3500, "-SHORT": 700}
"""Bytes of each: ext4 has them in a block, or if they are longer than one in an inode of their own."""
WAITS = (0.5, 1.5, 6.0)
"""Seconds in which space has to be free, for each time that a case tries: a file system may free it later,
and others may use it, too."""
IDLE = 1.0
"""Seconds in which what is free may not change, if nothing is done."""
INTERVAL = 0.25
"""Seconds between two looks."""


def free_bytes(directory):
    """Return the free bytes of a file system, after its changes were written to storage."""
    with open_fd(directory, os.O_RDONLY) as descriptor:
        syncfs(descriptor)
        found = os.fstatvfs(descriptor)
    return found.f_bfree * found.f_frsize


def free_files(directory):
    """Return the free serial numbers of a file system, after its changes were written to storage."""
    with open_fd(directory, os.O_RDONLY) as descriptor:
        syncfs(descriptor)
        return os.fstatvfs(descriptor).f_ffree


def wait_until_more(look, directory, wanted, seconds):
    """Look for ``seconds`` until there are at least ``wanted``; return the last number."""
    until = time.monotonic() + seconds
    while True:
        found = look(directory)
        if found >= wanted or time.monotonic() > until:
            return found
        time.sleep(INTERVAL)


def skip_if_others_use_it(look, directory, taken, freed, least, spare=0):
    """Skip the case if others make and remove files at the same time, so that what is free is no answer.

    They do if what is free goes down by more than ``least`` while the case only removes (``spare`` is what
    it makes then), if the same files take amounts that differ by more, or if it changes by itself.
    """
    others = "others use the file system at the same time: what is free"
    if min(freed, default=0) < -least - spare:
        skip(f"{others} went down while files were removed")
    if max(taken) - min(taken) > 2 * least:
        skip(f"{others} went down by {', '.join(map(str, taken))} for the same files")
    first = look(directory)
    until = time.monotonic() + IDLE
    while time.monotonic() < until:
        time.sleep(INTERVAL)
        if abs(look(directory) - first) > least:
            skip(f"{others} changes by itself")


def write_file(path):
    """Write a file of AMOUNT incompressible bytes."""
    with open_fd(path, os.O_CREAT | os.O_WRONLY) as descriptor:
        for _ in range(AMOUNT // MIB):
            os.write(descriptor, os.urandom(MIB))
        os.fsync(descriptor)


def _unlink(path):
    os.unlink(path)


def _last_link(path):
    other = path.with_name("other")
    hard_link(path, other)
    os.unlink(path)
    os.unlink(other)


def _closed(path):
    with open_fd(path, os.O_RDONLY) as descriptor:
        os.unlink(path)
        assert os.pread(descriptor, 10, AMOUNT - 10), "the removed file has no data, while it is open"


def _replaced(path):
    os.rename(make_file(path.with_name("new"), b"new"), path)


def _with_directory(path):
    directory = path.with_name("d")
    directory.mkdir()
    os.rename(path, directory / "f")
    os.unlink(directory / "f")
    directory.rmdir()


def _truncate(path):
    os.truncate(path, 0)


def _ftruncate(path):
    with open_fd(path) as descriptor:
        os.ftruncate(descriptor, 0)


def _opened(path):
    with open_fd(path, os.O_WRONLY | os.O_TRUNC):
        pass


def _punched(path):
    with open_fd(path) as descriptor:
        fallocate(descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 0, AMOUNT)


unlinked = "POSIX.1-2024 unlink(): DESCRIPTION"
WAYS = {
    "UNLINK": (_unlink, unlinked, "removed-space-stays"),
    "LAST-LINK": (_last_link, unlinked, "removed-space-stays"),
    "CLOSED": (_closed, unlinked, "removed-space-stays"),
    "WITH-DIRECTORY": (_with_directory, unlinked, "removed-space-stays"),
    "REPLACED": (_replaced, "POSIX.1-2024 rename(): DESCRIPTION", "replaced-space-stays"),
    "TRUNCATE": (_truncate, "POSIX.1-2024 truncate(), <sys/statvfs.h>", "cut-space-stays"),
    "FTRUNCATE": (_ftruncate, "POSIX.1-2024 ftruncate(), <sys/statvfs.h>", "cut-space-stays"),
    "O-TRUNC": (_opened, "POSIX.1-2024 open(): O_TRUNC", "cut-space-stays"),
    "PUNCHED": (_punched, "fallocate(2): Deallocating file space", "punched-space-stays"),
}
"""How space becomes free: the calls, the section, and a mutant that lacks it."""


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(
            way,
            id=way.lower(),
            marks=pytest.mark.case(f"PSX-FREED-{way}", section=section, kills=(kills,)),
        )
        for way, (_, section, kills) in WAYS.items()
    ],
)
def test_space_is_free_again(client_dir, way):
    """What a file occupied is freed when it has no link and no open descriptor, or is cut or punched.

    f_bfree has to grow by three quarters of the file at the least. Snapshots and bins of a target keep space.
    """
    path = client_dir / "f"
    changes, taken, freed = [], [], []
    for seconds in WAITS:
        before = free_bytes(client_dir)
        write_file(path)
        full = free_bytes(client_dir)
        taken.append(before - full)
        if before - full < AMOUNT // 2:
            changes.append(f"{before - full} bytes taken")
            WAYS[way][0](path)
            continue
        WAYS[way][0](path)
        found = wait_until_more(free_bytes, client_dir, full + AMOUNT // 4 * 3, seconds)
        if found >= full + AMOUNT // 4 * 3:
            return
        freed.append(found - full)
        changes.append(f"{before - full} bytes taken and {found - full} freed")
    skip_if_others_use_it(free_bytes, client_dir, taken, freed, MIB)
    if all(change.endswith("bytes taken") for change in changes):
        skip(f"the free blocks do not count {AMOUNT} bytes of data: {', '.join(changes)}")
    raise AssertionError(f"a file of {AMOUNT} bytes, {len(WAITS)} times: {', '.join(changes)}")


def _of_attributes(paths):
    for path in paths:
        os.removexattr(path, ATTRIBUTE)


def _of_files(paths):
    for path in paths:
        os.unlink(path)


ATTRIBUTE_WAYS = {
    "REMOVED": (_of_attributes, "removexattr(2): DESCRIPTION"),
    "FILES": (_of_files, unlinked),
}


@pytest.mark.parametrize(
    ("way", "size"),
    [
        pytest.param(
            way,
            size,
            id=f"{way}{short}".lower(),
            marks=pytest.mark.case(
                f"PSX-FREED-ATTRIBUTE-{way}{short}",
                section=section,
                kills=("attribute-space-stays", *(["short-attribute-space-stays"] if short else [])),
            ),
        )
        for way, (_, section) in ATTRIBUTE_WAYS.items()
        for short, size in VALUE_SIZES.items()
    ],
)
def test_space_of_attributes_is_free_again(client_dir, way, size):
    """The space of values of extended attributes is freed with the attribute or its file.

    All are made and then removed, so that a file system may keep many values in one block.
    """
    changes, taken, freed = [], [], []
    for turn, seconds in enumerate(WAITS):
        directory = client_dir / str(turn)
        directory.mkdir()
        names = make_many(directory, [str(number) for number in range(VALUES)])
        paths = [directory / name for name in names]
        before = free_bytes(client_dir)
        for path in paths:
            try:
                os.setxattr(path, ATTRIBUTE, os.urandom(size))
            except OSError as error:
                if error.errno in (errno.EOPNOTSUPP, *NO_VALUE_SPACE):
                    skip(f"a file cannot have an attribute of {size} bytes: {error.strerror}")
                raise
        full = free_bytes(client_dir)
        taken.append(before - full)
        ATTRIBUTE_WAYS[way][0](paths)
        if before - full < len(paths) * size // 2:
            changes.append(f"{before - full} bytes taken")
            continue
        wanted = full + len(paths) * size // 2
        found = wait_until_more(free_bytes, client_dir, wanted, seconds)
        if found >= wanted:
            return
        freed.append(found - full)
        changes.append(f"{before - full} bytes taken and {found - full} freed")
    skip_if_others_use_it(free_bytes, client_dir, taken, freed, len(paths) * size // 8)
    if all(change.endswith("bytes taken") for change in changes):
        skip(f"the free blocks do not count attributes of {len(paths) * size} bytes: {', '.join(changes)}")
    raise AssertionError(f"{len(paths)} attributes of {size} bytes, {len(WAITS)} times: {', '.join(changes)}")


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(
            way,
            id=way.lower(),
            marks=pytest.mark.case(f"PSX-FREED-BLOCKS-{way}", kills=("emptied-counts-up",)),
        )
        for way in ("TRUNCATE", "FTRUNCATE", "O-TRUNC", "PUNCHED")
    ],
)
@pytest.mark.case(section="POSIX.1-2024 <sys/stat.h>")
def test_emptied_file_counts_no_more_blocks_each_time(client_dir, way):
    """st_blocks is the number of allocated blocks: of an emptied file, as many each time.

    The file is made of pieces with gaps between them, so that the places of its blocks need blocks, too.
    """
    path = make_file(client_dir / "f")
    counts = []
    for _ in range(ROUNDS):
        with open_fd(path) as descriptor:
            for number in range(PIECES):
                os.pwrite(descriptor, os.urandom(PIECE), 2 * number * PIECE)
            os.fsync(descriptor)
        if way == "PUNCHED":
            with open_fd(path) as descriptor:
                fallocate(descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 0, 2 * PIECES * PIECE)
        else:
            WAYS[way][0](path)
        with open_fd(path) as descriptor:
            os.fsync(descriptor)
        counts.append(os.stat(path).st_blocks)
    grown = (counts[-1] - counts[0]) * 512
    assert grown <= MORE, (
        f"st_blocks of a file that was emptied {ROUNDS} times has grown by {grown} bytes: {counts}"
    )


KINDS = {
    "FILE": (make_file, os.unlink, "POSIX.1-2024 unlink(): DESCRIPTION"),
    "DIRECTORY": (os.mkdir, os.rmdir, "POSIX.1-2024 rmdir(): DESCRIPTION"),
    "SYMLINK": (lambda path: symbolic_link("target", path), os.unlink, "POSIX.1-2024 unlink(): DESCRIPTION"),
    "FIFO": (fifo, os.unlink, "POSIX.1-2024 unlink(): DESCRIPTION"),
    "REPLACED": (
        make_file,
        lambda path: os.rename(make_file(path.with_name("new")), path),
        "POSIX.1-2024 rename(): DESCRIPTION",
    ),
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind,
            id=kind.lower(),
            marks=pytest.mark.case(
                f"PSX-FREED-NUMBER-{kind}", section=section, kills=("removed-number-stays",)
            ),
        )
        for kind, (_, _, section) in KINDS.items()
    ],
)
def test_serial_numbers_are_free_again(client_dir, kind):
    """f_ffree is the number of free serial numbers: each removed or replaced object gives its own back.

    A file system that makes them as it needs them may count them by its free space, or not at all.
    """
    make, remove, _ = KINDS[kind]
    changes, taken, freed = [], [], []
    for turn, seconds in enumerate(WAITS):
        before = free_files(client_dir)
        paths = [client_dir / f"{turn}-{number}" for number in range(NUMBER)]
        for path in paths:
            make(path)
        full = free_files(client_dir)
        taken.append(before - full)
        for path in paths:
            remove(path)
        if kind == "REPLACED":
            wanted = full - NUMBER // 4
            found = wait_until_more(free_files, client_dir, wanted, seconds)
        else:
            wanted = full + NUMBER // 4 * 3
            counted = taken[-1] >= NUMBER // 2
            found = wait_until_more(free_files, client_dir, wanted, seconds) if counted else None
        if found is not None and found >= wanted:
            return
        if found is not None:
            freed.append(found - full)
        given = "" if found is None else f" and {found - full} given back"
        changes.append(f"{taken[-1]} taken{given}")
    replaced = NUMBER if kind == "REPLACED" else 0
    skip_if_others_use_it(free_files, client_dir, taken, freed, NUMBER // 10, replaced)
    if all("given" not in change for change in changes):
        skip(f"the free serial numbers do not count {NUMBER} objects: {', '.join(changes)}")
    what = "replaced" if kind == "REPLACED" else "removed"
    raise AssertionError(f"{NUMBER} objects were made and {what}, {len(WAITS)} times: {', '.join(changes)}")


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(
            way,
            id=way.lower(),
            marks=pytest.mark.case(f"PSX-FREED-WRITTEN-{way}", kills=("what-is-freed-is-all-that-is-free",)),
        )
        for way in ("UNLINK", "REPLACED", "TRUNCATE", "FTRUNCATE", "O-TRUNC")
    ],
)
@pytest.mark.case(section="POSIX.1-2024 <sys/statvfs.h>: f_bfree")
def test_what_was_written_had_been_free(client_dir, way):
    """f_bfree is the number of free blocks, after a removal or a cut, too: what can be written was free."""
    if os.statvfs(client_dir).f_blocks == 0:
        skip("the file system does not report its blocks")
    path, small, found = client_dir / "f", client_dir / "small", []
    for _ in WAITS:
        with open_fd(small, os.O_CREAT | os.O_WRONLY) as descriptor:
            os.write(descriptor, os.urandom(MIB))
            os.fsync(descriptor)
        WAYS[way][0](small)
        free = free_bytes(client_dir)
        try:
            write_file(path)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                skip(f"there is no space for {AMOUNT} bytes: {error.strerror}")
            raise
        finally:
            path.unlink(missing_ok=True)
        if free >= AMOUNT // 2:
            return
        found.append(free)
    raise AssertionError(f"{AMOUNT} bytes were written when {', '.join(map(str, found))} bytes were free")
