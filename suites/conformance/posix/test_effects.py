"""What each call marks, and what it has to leave: attributes of the file, its directories and a bystander.

Each call is made several times, in an order that differs from round to round: what a file system does right
the first time only is noticed.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from storagetest.agent.testlib import record_observation, skip
from storagetest.agent.testlib.libc import (
    FALLOC_KEEP_SIZE,
    FALLOC_PUNCH_HOLE,
    FALLOC_ZERO_RANGE,
    fallocate,
)
from storagetest.agent.testlib.outcomes import CannotRun
from storagetest.agent.testlib.stat_effects import (
    ANY,
    DATA,
    Effect,
    attributes,
    check_effects,
)
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, wait_clock_tick

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.server_inodes("*st_ino is *"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

SECONDS = 2.5
"""Seconds for the rounds of one case; one round is always made (chosen)."""
ROUNDS = 3
ENTRY = Effect("marked", "marked")
MAY_MARK = Effect("kept", ANY)
"""rename() may mark the status change of the file itself (POSIX.1-2024 rename(): RATIONALE)."""


class Ground:
    """Two directories with files that calls are made on, and one that no call is made on."""

    def __init__(self, directory):
        self.clock = directory / "clock"
        self.a, self.b = directory / "a", directory / "b"
        for one in (self.clock, self.a, self.b):
            one.mkdir()
        self.file = make_file(self.a / "file", b"0123456789" * 500)
        make_file(self.a / "bystander", b"not touched")
        (self.b / "below").mkdir()
        self.number = 0

    def watched(self):
        """Return the files that are compared, by name."""
        return {
            "the file": self.file,
            "its directory": self.file.parent,
            "the other directory": self.b if self.file.parent == self.a else self.a,
            "another file": self.a / "bystander",
            "another directory": self.b / "below",
        }

    def check(self, name, call, effects, moved=None):
        """Make a call and compare its effects."""
        check_effects(name, call, self.watched(), effects, moved=moved or {}, clock=self.clock)

    def name(self):
        """Return a new name."""
        self.number += 1
        return f"n{self.number}"


def in_rounds(client_dir, calls):
    """Make each of ``calls`` in rounds, each round in another order."""
    ground, order = Ground(client_dir), random.Random(7)  # noqa: S311  # an order, no secret
    until = time.monotonic() + SECONDS
    for number in range(ROUNDS):
        order.shuffle(calls)
        for call in calls:
            if number and time.monotonic() > until:
                return
            call(ground)


def writes(ground):
    def call():
        with ground.file.open("r+b", buffering=0) as file:
            file.write(b"written")

    ground.check("write()", call, {"the file": DATA})


def extends(ground):
    size = os.stat(ground.file).st_size
    effect = Effect("marked", "marked", {"st_size": size + 5})

    def call():
        with ground.file.open("ab", buffering=0) as file:
            file.write(b"added")

    ground.check("write() with O_APPEND", call, {"the file": effect})


def cuts(ground):
    size = max(0, os.stat(ground.file).st_size - 100)
    effect = Effect("marked", "marked", {"st_size": size})
    ground.check("truncate() to a smaller size", lambda: os.truncate(ground.file, size), {"the file": effect})


def grows(ground):
    size = os.stat(ground.file).st_size + 4097
    effect = Effect("marked", "marked", {"st_size": size})
    ground.check("truncate() to a larger size", lambda: os.truncate(ground.file, size), {"the file": effect})


def reads(ground):
    ground.check("read()", ground.file.read_bytes, {})


def opens(ground):
    ground.check("open() for writing and close()", lambda: os.close(os.open(ground.file, os.O_RDWR)), {})


def flushes(ground):
    def call():
        descriptor = os.open(ground.file, os.O_RDWR)
        os.fsync(descriptor)
        os.close(descriptor)

    ground.check("fsync()", call, {})


def lists(ground):
    ground.check("readdir()", lambda: (os.listdir(ground.a), os.listdir(ground.b)), {})


def asks(ground):
    """Ask for what the file is, and move the offset of a descriptor."""

    def call():
        os.access(ground.file, os.R_OK | os.W_OK)
        os.statvfs(ground.file)
        with open_fd(ground.file) as descriptor:
            os.lseek(descriptor, 1, os.SEEK_END)

    ground.check("access(), statvfs() and lseek()", call, {})


def writes_after_the_future(ground):
    """A write marks the times with the present also if they are later than it."""
    future = (1 << 31) - 10
    os.utime(ground.file, (future, future))
    if os.stat(ground.file).st_mtime != future:
        return
    tick = wait_clock_tick(ground.clock)
    with ground.file.open("r+b", buffering=0) as file:
        file.write(b"W")
    found = attributes(ground.file).st_mtime_ns
    assert tick < found < future * 10**9, (
        f"write() to a file whose mtime was set to the future leaves mtime at {found / 1e9:.0f} s: it has to "
        f"be the time of the write, {tick / 1e9:.0f} s or later"
    )


def changes_range(ground, name, call):
    """Make a call that changes data within the file and that a file system may lack; check its effects."""
    if os.stat(ground.file).st_size < 4096:
        os.truncate(ground.file, 5000)
    probe = make_file(ground.clock / "probe", b"probe" * 1000)
    try:
        with open_fd(probe) as descriptor:
            call(descriptor)
    except (OSError, CannotRun):
        return  # PSX-PUNCH-*, PSX-ZERO-RANGE and PSX-COPY-* test whether that is legal
    finally:
        os.unlink(probe)

    def change():
        with open_fd(ground.file) as descriptor:
            call(descriptor)

    ground.check(name, change, {"the file": DATA})


def punches(ground):
    mode = FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE
    changes_range(ground, "FALLOC_FL_PUNCH_HOLE", lambda descriptor: fallocate(descriptor, mode, 0, 100))


def zeroes(ground):
    changes_range(
        ground, "FALLOC_FL_ZERO_RANGE", lambda descriptor: fallocate(descriptor, FALLOC_ZERO_RANGE, 0, 100)
    )


DATA_CALLS = [
    writes, writes, extends, cuts, grows, reads, opens, flushes, lists, asks, writes_after_the_future,
]  # fmt: skip


@pytest.mark.case(
    "PSX-EFFECTS-DATA",
    section="POSIX.1-2024 XBD 4.12 File Times Update",
    kills=("read-marks-mtime", "readdir-marks-mtime", "future-mtime-stays"),
)
def test_calls_on_data_mark_what_they_change_and_nothing_else(client_dir):
    """write() and truncate() mark mtime and ctime of the file; read(), open(), fsync(), readdir() neither."""
    in_rounds(client_dir, list(DATA_CALLS))


@pytest.mark.case("PSX-EFFECTS-RANGES", section="inode(7): mtime", kills=("punch-times",))
def test_holes_and_zeroed_ranges_mark_the_times(client_dir):
    """A hole and a zeroed range are changes of the data: mtime is "changed by file modifications"."""
    in_rounds(client_dir, [punches, zeroes])


def copies(ground, name, copy):
    """Copy from another file into the file, by ``copy(source, target)``: the source is not marked."""

    def call(descriptor):
        with open_fd(ground.a / "bystander", os.O_RDONLY) as source:
            if copy(source, descriptor) < 1:
                raise CannotRun(f"{name} copies nothing")

    changes_range(ground, name, call)


def copies_range(ground):
    copies(ground, "copy_file_range()", lambda source, target: os.copy_file_range(source, target, 5, 1, 7))


def copies_within(ground):
    changes_range(
        ground,
        "copy_file_range() within the file",
        lambda descriptor: os.copy_file_range(descriptor, descriptor, 50, 0, 300),
    )


def copies_range_past_end(ground):
    """Copy to behind the end of the file, which that extends."""
    size = os.stat(ground.file).st_size

    def call():
        with open_fd(ground.a / "bystander", os.O_RDONLY) as source, open_fd(ground.file) as target:
            os.copy_file_range(source, target, 5, 0, size + 10)

    extended = Effect("marked", "marked", {"st_size": size + 15})
    ground.check("copy_file_range() to behind the end", call, {"the file": extended})


def sends(ground):
    copies(ground, "sendfile()", lambda source, target: os.sendfile(target, source, 0, 5))


@pytest.mark.case(
    "PSX-EFFECTS-COPIES",
    section="copy_file_range(2), sendfile(2): DESCRIPTION; inode(7): mtime, ctime",
    kills=("copied-range-marks-no-time", "copied-range-marks-source", "copied-within-marks-no-time"),
)
def test_copies_mark_the_target_and_not_the_source(client_dir):
    """What is copied into a file changes its data, and marks it; the source is read, and keeps its mtime."""
    calls = [sends]
    source, target = make_file(client_dir / "source", b"source"), make_file(client_dir / "target")
    with open_fd(source, os.O_RDONLY) as one, open_fd(target) as two:
        try:
            os.copy_file_range(one, two, 5, 0, 0)
        except (AttributeError, OSError) as error:
            record_observation(f"there is no copy_file_range(): {error}")
        else:
            calls += [copies_range, copies_within, copies_range_past_end]
    in_rounds(client_dir, calls)


def creates(ground):
    name = ground.name()
    ground.check(
        "open() with O_CREAT", lambda: make_file(ground.file.parent / name), {"its directory": ENTRY}
    )


def makes_directory(ground):
    path = ground.file.parent / ground.name()
    ground.check("mkdir()", path.mkdir, {"its directory": ENTRY})
    ground.check("rmdir()", path.rmdir, {"its directory": ENTRY})


def removes(ground):
    path = make_file(ground.file.parent / ground.name())
    ground.check("unlink()", lambda: os.unlink(path), {"its directory": ENTRY})


def renames_here(ground):
    new = ground.file.parent / ground.name()
    old = ground.file
    ground.check(
        "rename() within a directory",
        lambda: os.rename(old, new),
        {"the file": MAY_MARK, "its directory": ENTRY},
        {"the file": new},
    )
    ground.file = new


def renames_away(ground):
    new = (ground.b if ground.file.parent == ground.a else ground.a) / ground.name()
    old = ground.file
    ground.check(
        "rename() to another directory",
        lambda: os.rename(old, new),
        {"the file": MAY_MARK, "its directory": ENTRY, "the other directory": ENTRY},
        {"the file": new},
    )
    ground.file = new


def renames_over(ground):
    """Replace a file in the same and in the other directory."""
    for place in (ground.a, ground.b):
        new = make_file(place / ground.name(), b"replaced")
        old = ground.file
        effects = {"the file": MAY_MARK, "its directory": ENTRY}
        if place != old.parent:
            effects["the other directory"] = ENTRY
        ground.check(
            f"rename() over a file in {'this' if place == old.parent else 'another'} directory",
            lambda old=old, new=new: os.rename(old, new),
            effects,
            {"the file": new},
        )
        ground.file = new


def moves_directory(ground):
    """Move an empty directory to the other directory and back."""
    for old, new in ((ground.a, ground.b), (ground.b, ground.a)):
        name = ground.name()
        (old / name).mkdir()
        both = {"its directory": ENTRY, "the other directory": ENTRY}
        ground.check(
            "rename() of a directory",
            lambda old=old, new=new, name=name: os.rename(old / name, new / name),
            both,
        )
        (new / name).rmdir()


def makes_symlink(ground):
    path = ground.file.parent / ground.name()
    try:
        path.symlink_to("nowhere")
    except OSError:
        return  # PSX-SYMLINK-* test whether that is legal
    os.unlink(path)
    ground.check("symlink()", lambda: path.symlink_to("nowhere"), {"its directory": ENTRY})


NAME_CALLS = [
    creates, makes_directory, removes, renames_here, renames_away, renames_over, moves_directory,
    makes_symlink,
]  # fmt: skip


@pytest.mark.case(
    "PSX-EFFECTS-NAMES",
    section="POSIX.1-2024 XBD 4.12 File Times Update",
    kills=("rename-over-leaves-times", "rmdir-leaves-parent-times", "rename-leaves-old-parent-times",
           "rename-marks-mtime"),
)  # fmt: skip
def test_calls_on_names_mark_the_directories_that_they_change_and_nothing_else(client_dir):
    """Each directory that loses or gets a name is marked; the file keeps its mtime, and all else stays."""
    in_rounds(client_dir, list(NAME_CALLS))


def changes_mode(ground):
    mode = os.stat(ground.file).st_mode ^ 0o044
    effect = Effect("kept", "marked", {"st_mode": mode})
    ground.check("chmod()", lambda: os.chmod(ground.file, mode & 0o7777), {"the file": effect})


def changes_group(ground):
    one = os.stat(ground.file)
    effect = Effect("kept", "marked", {"st_gid": one.st_gid + 1})
    ground.check("chown()", lambda: os.chown(ground.file, -1, one.st_gid + 1), {"the file": effect})


def sets_times(ground):
    effect = Effect(ANY, "marked")
    ground.check(
        "utimensat()", lambda: os.utime(ground.file, (1_000_000_000, 1_200_000_000)), {"the file": effect}
    )
    assert os.stat(ground.file).st_mtime == 1_200_000_000


def changes_mode_of_directory(ground):
    mode = os.stat(ground.b).st_mode ^ 0o011
    key = "the other directory" if ground.file.parent == ground.a else "its directory"
    effect = Effect("kept", "marked", {"st_mode": mode})
    ground.check("chmod() of a directory", lambda: os.chmod(ground.b, mode & 0o7777), {key: effect})


@pytest.mark.case(
    "PSX-EFFECTS-STATUS",
    section="POSIX.1-2024 XBD 4.12 File Times Update",
    kills=("chmod-marks-mtime", "chmod-ctime-not-moved", "chown-ctime-not-moved"),
)
def test_calls_on_the_status_mark_ctime_and_nothing_else(client_dir):
    """chmod(), chown() and utimensat() mark ctime of their file, and change no other attribute or file."""
    in_rounds(client_dir, [changes_mode, changes_group, sets_times, changes_mode_of_directory, writes, reads])


def links(ground):
    path = ground.b / ground.name()
    count = os.stat(ground.file).st_nlink
    key = "the other directory" if ground.file.parent == ground.a else "its directory"
    more = Effect("kept", "marked", {"st_nlink": count + 1})
    ground.check("link()", lambda: os.link(ground.file, path), {"the file": more, key: ENTRY})
    less = Effect("kept", "marked", {"st_nlink": count})
    ground.check("unlink() of one of two names", lambda: os.unlink(path), {"the file": less, key: ENTRY})


def replaces_link(ground):
    """Replace one of two names of a file by another file."""
    path = ground.b / ground.name()
    count = os.stat(ground.file).st_nlink
    os.link(ground.file, path)
    make_file(ground.b / "new", b"new")
    key = "the other directory" if ground.file.parent == ground.a else "its directory"
    less = Effect("kept", "marked", {"st_nlink": count})
    ground.check(
        "rename() over one of two names",
        lambda: os.rename(ground.b / "new", path),
        {"the file": less, key: ENTRY},
    )
    assert path.read_bytes() == b"new", (
        "rename() over one of two names of a file: the new name has other data"
    )


@pytest.mark.case(
    "PSX-EFFECTS-LINKS",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-NLINK"),
    section="POSIX.1-2024 link(), unlink(), rename(): DESCRIPTION",
    kills=("link-marks-mtime", "unlink-leaves-ctime", "replaced-name-still-counted"),
)
def test_calls_on_links_count_them_and_mark_ctime(client_dir):
    """Each link that is made, removed or replaced is counted, and marks ctime of file and directory."""
    make_file(client_dir / "probe")
    try:
        os.link(client_dir / "probe", client_dir / "linked")
    except OSError as error:
        skip(f"the file system has no hard links: {error.strerror}")
    in_rounds(client_dir, [links, replaces_link, links, writes, renames_here, renames_away])


def sets_attribute(ground):
    """Give an extended attribute values that become longer and shorter, and remove it."""
    for value in (b"", b"v" * 100, b"w" * 100, b"short", b"w" * 700, b"x"):
        ground.check(
            f"setxattr() of {len(value)} bytes",
            lambda value=value: os.setxattr(ground.file, "user.effect", value),
            {"the file": Effect("kept", ANY)},
        )
        found = os.getxattr(ground.file, "user.effect")
        assert found == value, (
            f"setxattr() of {len(value)} bytes over another value: {len(found)} bytes are read"
        )
    ground.check(
        "getxattr() and listxattr()",
        lambda: (os.getxattr(ground.file, "user.effect"), os.listxattr(ground.file)),
        {},
    )
    ground.check(
        "removexattr()", lambda: os.removexattr(ground.file, "user.effect"), {"the file": Effect("kept", ANY)}
    )
    assert "user.effect" not in os.listxattr(ground.file)


@pytest.mark.case(
    "PSX-EFFECTS-XATTR",
    section="setxattr(2): DESCRIPTION; inode(7)",
    kills=("setxattr-marks-mtime", "xattr-shorter-keeps-tail", "xattr-longer-cut", "getxattr-marks-ctime"),
)
def test_attributes_are_replaced_whole_and_mark_no_data(client_dir):
    """The value is the one that was set last, longer or shorter; mtime is of the data, and stays.

    getxattr() and listxattr() mark nothing.
    """
    make_file(client_dir / "probe")
    try:
        os.setxattr(client_dir / "probe", "user.effect", b"v")
    except OSError as error:
        skip(f"this file system has no user.* attributes: {error.strerror}")
    in_rounds(client_dir, [sets_attribute, reads, sets_attribute])
