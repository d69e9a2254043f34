"""Two clients in turn, many times: what one has made, changed or removed holds for the other, each time.

Sources: RFC 7530 10.3.1 and nfs(5) (close-to-open), POSIX.1-2024 open() O_EXCL, mkdir(), link(), symlink()
[EEXIST]; RFC 8276 (extended attributes); MS-SMB2 3.3.4.7. What one client has once cached (the data of a
block, a listing, the fact that a name is free) is what the second time finds.
"""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable
from fcntl import F_UNLCK, F_WRLCK
from functools import partial
from os import O_APPEND, O_CREAT, O_EXCL, O_RDWR, O_WRONLY

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="RFC 7530 10.3.1; nfs(5)", level="MUST"),
]

TICK = 2.1
"""Seconds after which mtime is another one: file systems store it by two seconds at most (FAT)."""
TURNS = 28
MEBIBYTE = 1 << 20
MANY = 1_100
"""Entries of a large directory: more than a reply of a server has (chosen)."""


class Alternation:
    """One file that two clients change in turn, and its bytes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311  # a sequence, no secret
        self.data = bytearray(self.random.randbytes(MEBIBYTE + 70_000))
        self.changes: list[Callable] = [self.overwrite, self.overwrite, self.append, self.cut, self.grow]

    def change(self, session, turn: int) -> tuple[str, int]:
        """Make the next change through ``session``; return its name and where it begins."""
        if turn % len(self.changes) == 0:
            self.random.shuffle(self.changes)
        return self.changes[turn % len(self.changes)](session)

    def overwrite(self, session) -> tuple[str, int]:
        """Replace some bytes."""
        last = len(self.data) - 1
        offset = min(last, self.random.choice((0, 5, 4095, 65_530, MEBIBYTE - 7, MEBIBYTE + 4096, last - 20)))
        data = self.random.randbytes(min(self.random.choice((1, 20, 5000)), len(self.data) - offset))
        return self.write(session, offset, data)

    def write(self, session, offset: int, data: bytes) -> tuple[str, int]:
        """Write ``data`` at ``offset``, inside the file."""
        fd = session.open("f", O_RDWR)
        session.pwrite(fd, data, offset)
        session.close(fd)
        self.data[offset : offset + len(data)] = data
        return f"a write of {len(data)} bytes at {offset}", offset

    def append(self, session) -> tuple[str, int]:
        """Append 30 bytes."""
        data, end = self.random.randbytes(30), len(self.data)
        session.write_file("f", data, O_APPEND)
        self.data += data
        return f"a write of 30 bytes with O_APPEND at {end}", end

    def cut(self, session) -> tuple[str, int]:
        """Truncate to a smaller size."""
        size = len(self.data) - self.random.choice((1, 4000))
        session.truncate("f", size)
        del self.data[size:]
        return f"truncate() to {size}", size - 100

    def grow(self, session) -> tuple[str, int]:
        """Truncate to a larger size."""
        size = len(self.data)
        session.truncate("f", size + 3000)
        self.data += bytes(3000)
        return f"truncate() to {size + 3000}", size

    def compare(self, session, made: str, at: int) -> None:
        """Compare the size, and the bytes at ``at`` and at some other places, through a new open."""
        fd = session.open("f")
        size = session.fstat(fd).size
        assert size == len(self.data), f"{size} bytes instead of {len(self.data)} after {made}"
        for offset in (0, 65_000, MEBIBYTE - 4096, MEBIBYTE, max(0, at - 50), max(0, size - 4000)):
            found = session.pread(fd, 8192, offset)
            assert found == self.data[offset : offset + 8192], (
                f"a read at {offset} does not return what the file has after {made} by the other client"
            )
        session.close(fd)


@pytest.mark.case("SHR-TURN-01", kills=("two-old-far-blocks", "two-same-size-old"))
def test_each_open_reads_what_the_other_client_has_made_of_the_file(a, b, crossed_wire):
    """After each of many writes, appends and truncations by one client, an open of the other has them all."""
    file = Alternation(1)
    a.write_file("f", bytes(file.data))
    for session in (b, a):
        file.compare(session, "the creation", 0)
    for session, other in ((a, b), (b, a)):
        with crossed_wire(session, "write"):
            made, at = file.write(session, 4096, session.name.encode())
        file.compare(other, made, at)
    for turn in range(TURNS):
        session, other = ((a, b), (b, a))[turn % 2]
        made, at = file.change(session, turn)
        file.compare(other, made, at)
    for session in (a, b):
        assert session.call("read_file", "f", 1 << 23) == bytes(file.data), "the whole file at the end"


def create(session, name: str) -> None:
    session.close(session.open(name, O_CREAT | O_EXCL | O_WRONLY))


def failure(call: Callable, *arguments) -> OSError | None:
    """Return the error of a call, or None if it succeeds."""
    try:
        call(*arguments)
    except OSError as error:
        return error
    return None


def made(make: Callable, session, name: str) -> bool:
    """Make a name; return False if it exists already."""
    error = failure(make, session, name)
    if error is not None and error.errno != errno.EEXIST:
        raise error
    return error is None


MAKERS: dict[str, tuple[Callable, Callable]] = {
    "open() with O_EXCL": (create, lambda session, name: session.unlink(name)),
    "mkdir()": (lambda session, name: session.mkdir(name), lambda session, name: session.rmdir(name)),
    "symlink()": (
        lambda session, name: session.symlink("target", name),
        lambda session, name: session.unlink(name),
    ),
    "link()": (
        lambda session, name: session.link("source", name),
        lambda session, name: session.unlink(name),
    ),
}
MAY_LACK = ("symlink()", "link()")
"""What a file system may lack (symlink(2) and link(2): EPERM; mount.cifs(8), mfsymlinks)."""


@pytest.mark.case(
    "SHR-TURN-02",
    section="POSIX.1-2024 open() O_EXCL, mkdir(), symlink(), link() [EEXIST]",
    kills=("two-exclusive-second", "two-mkdir-both"),
)
def test_name_is_made_by_one_client_each_time_that_it_is_free(a, b, crossed_wire, at_once, observe):
    """Each client makes the name and removes it in turn; the other gets EEXIST, each time."""
    a.write_file("source", b"source")
    with crossed_wire(a, "change"), crossed_wire(b, "change"):
        for what, (make, remove) in MAKERS.items():
            name = what[:4]
            refused = failure(make, a, name)
            if refused is not None:
                if what in MAY_LACK and refused.errno in (errno.EOPNOTSUPP, errno.EPERM):
                    observe(f"no {what} here: {refused.strerror}")
                    continue
                raise refused
            for turn in range(6):
                other = (b, a)[turn % 2]
                error = failure(make, other, name)
                assert error is not None, (
                    f"{what} of a name that the other client has made succeeds at turn {turn + 1}"
                )
                assert error.errno == errno.EEXIST, f"{what} at turn {turn + 1}: {error}"
                # The other removes it, so that it knows best that the name is free, and makes it again.
                remove(other, name)
                at_once(partial(made, make, other, name), "that the name is free, and can be made")


@pytest.mark.case(
    "SHR-TURN-03", section="RFC 7530 10.9; nfs(5)", kills=("two-large-listing-old", "listings-never-expire")
)
def test_changes_in_a_large_directory_are_listed_by_the_other_client(a, b, crossed_wire, eventually):
    """What one client makes, removes and renames in a directory of 1,100 entries, the other lists."""
    a.mkdir("d")
    names = {f"entry-{number:05}" for number in range(MANY)}
    a.each([("mkdir", f"d/{name}") for name in sorted(names)], deadline=120)
    with crossed_wire(b, "list"):
        assert b.listdir("d") == sorted(names)
    with crossed_wire(a, "change"):
        a.mkdir("d/made")
        a.rmdir("d/entry-00003")
        a.rename("d/entry-01090", "d/renamed")
    b.mkdir("d/of-b")  # the reply shows that others have changed the directory, too
    names = names - {"entry-00003", "entry-01090"} | {"made", "renamed", "of-b"}
    eventually(lambda: b.listdir("d") == sorted(names), "three changes in a large directory")


@pytest.mark.case(
    "SHR-TURN-04",
    section="xattr(7): DESCRIPTION; RFC 8276 8.4",
    kills=("two-xattr-old",),
)
def test_extended_attributes_of_the_other_client_are_seen_by_an_open(a, b, crossed_wire, at_once):
    """A value that was set, replaced or removed by one client is that of the other's next open."""
    a.write_file("f", b"data")
    try:
        a.call("setxattr", "f", "user.turn", b"first")
    except OSError as error:
        pytest.skip(f"files have no extended attributes here: {error}")

    def value(session) -> bytes | None:
        session.close(session.open("f"))
        try:
            return bytes(session.call("getxattr", "f", "user.turn"))
        except OSError as error:
            if error.errno != errno.ENODATA:
                raise
            return None

    with crossed_wire(b, "query"):
        assert value(b) == b"first"
        for wanted in (b"second", b"3", b"fourth" * 20, None, b"again"):
            if wanted is None:
                a.call("removexattr", "f", "user.turn")
            else:
                a.call("setxattr", "f", "user.turn", wanted)
            at_once(lambda wanted=wanted: value(b) == wanted, "the value that the other client set")


def guarded_write(session, fd: int, data: bytes, offset: int) -> None:
    """Write under a lock of the whole file, with which a client revalidates what it has cached."""
    session.lock(fd, F_WRLCK)
    session.pwrite(fd, data, offset)
    session.fsync(fd)
    session.lock(fd, F_UNLCK)


@pytest.mark.case(
    "SHR-TURN-05",
    section="POSIX.1-2024 lseek(), write(); RFC 7530 10.3.2",
    kills=("two-cut-tail-restored", "two-write-restores-size"),
)
def test_what_the_other_client_has_cut_is_not_brought_back(a, b, crossed_wire):
    """A write past the end that another client has set leaves a gap of zeroes, not the former data."""
    for turn, (session, other) in enumerate(((a, b), (b, a))):
        name = f"f{turn}"
        session.write_file(name, b"old data" * 10_000)
        fd = other.open(name, O_RDWR)
        assert other.pread(fd, 8, 79_992) == b"old data"
        with crossed_wire(session, "change"):
            session.truncate(name, 100)
        with crossed_wire(other, "write"):
            guarded_write(other, fd, b"new", 70_000)
        other.close(fd)
        found = session.read_file(name)
        assert len(found) == 70_003, f"{len(found)} bytes after a write of 3 bytes at 70000"
        assert found[:100] == (b"old data" * 13)[:100]
        assert not found[100:70_000].strip(b"\0"), "the gap has data that another client has cut off"
        assert found[70_000:] == b"new"


@pytest.mark.case(
    "SHR-TURN-06", section="POSIX.1-2024 close(), write(): DESCRIPTION", kills=("two-close-sets-mtime-back",)
)
def test_close_without_a_write_undoes_nothing_of_the_other_client(a, b, crossed_wire):
    """A client that had the file open and did not write leaves data, size and mtime of the other."""
    a.write_file("f", b"first")
    for turn in range(2):
        fd = b.open("f", O_RDWR)
        assert b.pread(fd, 5)
        opened = b.fstat(fd).mtime_ns
        time.sleep(TICK)
        with crossed_wire(a, "write"):
            a.write_file("f", b"second, and longer %d" % turn)
        b.close(fd)
        for session in (a, b):
            # Not compared with what the writer reads: until then it may know its write by its own clock.
            after = session.fstat(session.open("f")).mtime_ns
            assert after > opened, (
                f"mtime after the close is {after}; before the other's write it was {opened}"
            )
            assert session.read_file("f") == b"second, and longer %d" % turn


@pytest.mark.case(
    "SHR-TURN-07", section="POSIX.1-2024 rename(), write(): DESCRIPTION", kills=("two-renamed-parent-lost",)
)
def test_open_file_is_written_after_the_other_client_renamed_its_directory(a, b, crossed_wire):
    """A descriptor refers to the file, wherever the directories that lead to it are now."""
    a.mkdir("d")
    a.write_file("d/f", b"first")
    fd = b.open("d/f", O_RDWR)
    with crossed_wire(a, "change"):
        error = failure(a.rename, "d", "e")
    if error is not None:
        pytest.skip(f"a directory with an open file cannot be renamed here: {error}")
    with crossed_wire(b, "write"):
        b.pwrite(fd, b"later", 0)
        b.close(fd)
    assert a.read_file("e/f") == b"later"
