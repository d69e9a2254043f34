"""Files of every kind, with every attribute, that are moved; files without a name; opens with every flag."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress

import pytest

from storagetest.agent.testlib import CannotRun, call_in_subprocess, skip
from storagetest.agent.testlib.libc import (
    FALLOC_KEEP_SIZE,
    FALLOC_PUNCH_HOLE,
    RENAME_EXCHANGE,
    RENAME_NOREPLACE,
    UTIME_NOW,
    UTIME_OMIT,
    fallocate,
    renameat2,
    utimensat,
)
from storagetest.agent.testlib.mappings import map_file
from storagetest.agent.testlib.stat_effects import DATA, Effect, check_effects
from storagetest.agent.testlib.tmpfiles import (
    fifo,
    hard_link,
    make_file,
    open_fd,
    pattern_bytes,
    read_at,
    symbolic_link,
    wait_clock_tick,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

FIELDS = ("st_mode", "st_uid", "st_gid", "st_rdev", "st_mtime_ns", "st_ino", "st_nlink")
ENTRY = Effect("marked", "marked")
SECOND = 10**9


def _file(path):
    make_file(path, pattern_bytes(9000))
    with suppress(OSError):  # a file system without modes; other cases test chmod()
        os.chmod(path, 0o4751)


def _directory(path):
    os.mkdir(path)
    with suppress(OSError):
        os.chmod(path, 0o1750)


def _link(path):
    symbolic_link(" contents with white space \t", path)


def _node(kind):
    return lambda path: os.mknod(path, kind | 0o640, os.makedev(9, 77))


KINDS = {
    "FILE": _file,
    "DIRECTORY": _directory,
    "SYMLINK": _link,
    "FIFO": _node(stat.S_IFIFO),
    "SOCKET": _node(stat.S_IFSOCK),
    "DEVICE": _node(stat.S_IFCHR),
}


MOVED_KILLS = {
    "FILE": "rename-away-drops-suid",
    "DIRECTORY": "moved-directory-hides-entries",
    "SYMLINK": "link-moved-loses-target",
}


def described(path):
    """Return all that a rename leaves: attributes, contents, extended attributes."""
    one = os.lstat(path)
    found = {field: getattr(one, field) for field in FIELDS}
    if stat.S_ISDIR(one.st_mode):
        found["contents"] = (path / "inside").read_bytes()  # by its name, before the directory is listed
        del found["st_mtime_ns"]  # its entry dot-dot changes: XFS marks that in an exchange
    if stat.S_ISREG(one.st_mode):
        found |= {"size": one.st_size, "contents": path.read_bytes()}
    elif stat.S_ISLNK(one.st_mode):
        found |= {"size": one.st_size, "contents": os.readlink(path)}
    if stat.S_ISREG(one.st_mode) or stat.S_ISDIR(one.st_mode):
        try:
            found["xattrs"] = {
                name: os.getxattr(path, name) for name in os.listxattr(path) if name.startswith("user.")
            }
        except OSError:
            found["xattrs"] = {}
    return found


def prepared(root, kind):
    """Make root/a/x with every attribute, and root/b/other of the same kind; return the first."""
    for name in ("a", "b"):
        (root / name).mkdir()
    path, other = root / "a" / "x", root / "b" / "other"
    try:
        KINDS[kind](path)
        KINDS[kind](other)
    except OSError as error:
        if kind in ("FILE", "DIRECTORY"):
            raise
        skip(f"no {kind.lower()} can be made: {error.strerror} (PSX-MKNOD-*, PSX-SYMLINK-*: is that legal)")
    if kind == "DIRECTORY":
        make_file(path / "inside", b"inside")
    with suppress(OSError):  # what the file system does not keep is not compared
        os.chown(path, 1001, 1002, follow_symlinks=False)
        if kind != "SYMLINK":
            os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) | 0o6000)
            os.utime(path, ns=(SECOND, 1_234_567_890 * SECOND + 123_456_000))
        if kind in ("FILE", "DIRECTORY"):
            os.setxattr(path, "user.x", b"kept")
            os.setxattr(other, "user.other", b"of the other")
    return path


@pytest.mark.server_inodes("*st_ino is *")
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind,
            id=kind.lower(),
            marks=pytest.mark.case(
                f"PSX-MOVED-{kind}",
                builds_on=("PSX-DATA-NEW-FILE", "PSX-KEPT-RENAME-INODE"),
                kills=(MOVED_KILLS.get(kind, "moved-node-is-file"),),
            ),
        )
        for kind in KINDS
    ],
)
@pytest.mark.case(section="POSIX.1-2024 rename(): DESCRIPTION; <sys/stat.h>")
def test_file_of_each_kind_is_the_same_wherever_it_moves(client_dir, kind):
    """rename() changes the name: mode, owner, mtime, number, contents and attributes stay, at each move."""
    path = prepared(client_dir, kind)
    before = described(path)
    moves = (
        ("within its directory", "a/y", 0),
        ("within its directory, again", "a/x", 0),
        ("to another directory", "b/x", 0),
        ("over another of its kind", "b/other", 0),
        ("back", "a/x", 0),
        ("with RENAME_NOREPLACE", "b/x", RENAME_NOREPLACE),
        ("with RENAME_EXCHANGE", "a/exchanged", RENAME_EXCHANGE),
    )
    for text, new, flags in moves:
        try:
            if flags:
                if flags == RENAME_EXCHANGE:
                    make_file(client_dir / new, b"exchanged", 0o600)
                renameat2(path, client_dir / new, flags)
            else:
                os.rename(path, client_dir / new)
        except CannotRun:
            continue
        path = client_dir / new
        after = described(path)
        changed = [key for key in before if after[key] != before[key]]
        assert not changed, (
            f"moved {text}: {changed[0]} is {after[changed[0]]!r:.60} and was {before[changed[0]]!r:.60}"
        )


def allocate_without_a_name(one, two):
    """Allocate to 25,000 bytes and punch a hole, by one of two descriptors of a file of 20,000 bytes."""
    size = 20_000
    for mode, offset, length in ((0, 15_000, 10_000), (FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 4000, 100)):
        try:
            fallocate(one, mode, offset, length)
        except CannotRun:
            continue  # ext2 has the second alone
        size = 25_000 if mode == 0 else size
        assert os.fstat(two).st_size == size
        found = os.pread(two, length, offset)
        assert not mode or not found.strip(b"\0"), "a hole in a file without a name keeps its data"


def copy_without_a_name(descriptor, path):
    """Copy a range of an open file without a name to a new file, and one of that back; remove that."""
    if not hasattr(os, "copy_file_range"):
        return
    data = os.pread(descriptor, 3000, 0)
    with open_fd(path, os.O_CREAT | os.O_RDWR) as other:
        for source, sink, at in ((descriptor, other, 0), (other, descriptor, 10_000)):
            done = 0
            while done < len(data):
                step = os.copy_file_range(source, sink, len(data) - done, done, at + done)
                assert step > 0, "copy_file_range() with a file without a name copies nothing"
                done += step
            assert os.pread(sink, len(data), at) == data, "a range that was copied with a file without a name"
    os.unlink(path)


@pytest.mark.case(
    "PSX-NO-NAME-CALLS",
    section="POSIX.1-2024 unlink(), rename(): DESCRIPTION",
    kills=(
        "unlinked-fchown-refused",
        "unlinked-file-not-resized",
        "unlinked-chmod-stale",
        "unlinked-statvfs-refused",
        "unlinked-copy-refused",
        "unlinked-hole-ignored",
    ),
)
def test_every_call_on_a_descriptor_works_without_a_name(client_dir):
    """All references to the file stay valid, for each call on a descriptor: after unlink() and rename()."""
    for remove in (os.unlink, lambda path: os.rename(make_file(client_dir / "new"), path)):
        path = make_file(client_dir / "f", b"data" * 3000)
        try:
            os.setxattr(path, "user.x", b"first")
            attributes = True
        except OSError:
            attributes = False
        with open_fd(path) as one, open_fd(path) as two:
            remove(path)
            os.fchmod(one, 0o640)
            os.fchown(one, 1001, 1002)
            os.utime(one, ns=(6 * SECOND, 8 * SECOND))
            found = os.fstat(two)
            assert (found.st_mode & 0o777, found.st_uid, found.st_gid) == (0o640, 1001, 1002)
            assert found.st_mtime_ns == 8 * SECOND
            if attributes:
                os.setxattr(one, "user.x", b"second")
                os.setxattr(one, "user.y", b"new")
                assert os.getxattr(two, "user.x") == b"second"
                os.removexattr(two, "user.x")
                assert "user.x" not in os.listxattr(one)
            os.pwrite(one, b"DATA", 8000)
            os.ftruncate(two, 20_000)
            assert os.fstat(one).st_size == 20_000
            assert os.pread(two, 4, 8000) == b"DATA"
            allocate_without_a_name(one, two)
            try:
                mapped = map_file(one, 4096)
            except CannotRun:
                os.pwrite(one, b"MMAP", 0)
            else:
                mapped[0:4] = b"MMAP"
                mapped.close()
            os.fsync(one)
            os.fdatasync(two)
            assert os.pread(two, 4, 0) == b"MMAP"
            assert os.fstatvfs(one).f_namemax == os.statvfs(client_dir).f_namemax
            copy_without_a_name(two, client_dir / "copy")
            fcntl.fcntl(one, fcntl.F_SETFL, os.O_APPEND)
            assert os.write(one, b"end") == 3
            size = os.fstat(two).st_size
            assert os.pread(two, 10, size - 3) == b"end"
        if path.exists():
            os.unlink(path)


def can_be_opened(path, flag) -> bool:
    """Whether files are opened with ``flag``; open() is [EINVAL] without support for synchronised I/O."""
    try:
        os.close(os.open(path, os.O_RDWR | flag))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


@pytest.mark.case(
    "PSX-OPEN-TRUNC-FLAGS",
    section="POSIX.1-2024 open(): O_TRUNC",
    kills=("append-with-trunc-keeps",),
)
def test_o_trunc_truncates_with_each_other_flag(client_dir):
    """O_TRUNC truncates a regular file that is opened O_RDWR or O_WRONLY: with each other flag, each time."""
    path = make_file(client_dir / "f", pattern_bytes(20_000))
    others = [0, os.O_APPEND, os.O_CREAT, os.O_NOFOLLOW, os.O_CLOEXEC, os.O_NONBLOCK]
    others += [flag for flag in (os.O_SYNC, os.O_DSYNC) if can_be_opened(path, flag)]
    for access in (os.O_WRONLY, os.O_RDWR):
        for flags in (*others, os.O_CREAT | os.O_APPEND):
            with open_fd(path) as before, open_fd(path, access | os.O_TRUNC | flags, 0o644) as descriptor:
                assert os.fstat(descriptor).st_size == 0, f"opened with O_TRUNC and {flags:#o}"
                assert os.pread(before, 10, 0) == b"", f"opened with O_TRUNC and {flags:#o}"
                assert os.write(descriptor, b"new" * 3000) == 9000
            assert path.read_bytes() == b"new" * 3000, f"opened with O_TRUNC and {flags:#o}"


@pytest.mark.case(
    "PSX-DATA-DUPLICATES",
    section="POSIX.1-2024 close(), dup(), fork(): DESCRIPTION",
    kills=("write-after-duplicate-closed-lost",),
)
def test_descriptor_is_usable_after_a_duplicate_is_closed(client_dir):
    """close() ends one descriptor: others of the open file description write and mark times as before."""
    path = make_file(client_dir / "f")
    wanted = b""
    with open_fd(path, os.O_RDWR | os.O_APPEND) as descriptor:
        for number in range(3):
            duplicate = os.dup(descriptor)
            for one, part in ((duplicate, b"by the duplicate "), (descriptor, b"before its close ")):
                assert os.write(one, part) == len(part)
                wanted += part
            os.close(duplicate)
            part = b"after close %d " % number
            assert os.write(descriptor, part) == len(part)
            wanted += part
            if number == 1:
                call_in_subprocess(os.close, descriptor)
                assert os.write(descriptor, b"after a child ") == 14
                wanted += b"after a child "
            assert path.read_bytes() == wanted, f"after close {number + 1} of a duplicate"
        before = os.stat(path)
        wait_clock_tick(client_dir)
        os.write(descriptor, b"!")
        after = os.stat(path)
    assert path.read_bytes() == wanted + b"!"
    assert after.st_mtime_ns > before.st_mtime_ns


@pytest.mark.case(
    "PSX-EFFECTS-AGAIN",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-NLINK"),
    section="POSIX.1-2024 XBD 4.12 File Times Update; write(), link(), rename()",
    kills=("same-data-marks-nothing", "read-later-page-marks", "third-link-marks-mtime"),
)
def test_calls_that_seem_to_change_nothing_mark_the_times(client_dir):
    """write() of the data that are there, a link again, and renames with flags mark as the first do."""
    for name in ("clock", "a", "b"):
        (client_dir / name).mkdir()
    path, other = (
        make_file(client_dir / "a" / "f", b"0123456789" * 500),
        make_file(client_dir / "b" / "o", b"o"),
    )
    watched = {"the file": path, "its directory": path.parent, "the other directory": other.parent}

    def check(text, call, effects):
        check_effects(text, call, watched, effects, moved={}, clock=client_dir / "clock")

    data, fifo, link = path.read_bytes(), other.parent / "fifo", other.parent / "link"
    old, new = other.parent / "o", other.parent / "p"
    names = {"the other directory": ENTRY}
    linked = names | {"the file": Effect("kept", "marked", {"st_nlink": None})}  # other cases test the count
    calls = (
        ("write() of the same data", lambda: at_once(path, [data], 0), {"the file": DATA}),
        ("write() of the last byte", lambda: at_once(path, [data[-1:]], len(data) - 1), {"the file": DATA}),
        ("writev() of the same data", lambda: at_once(path, [data[:9], data[9:99]], 0), {"the file": DATA}),
        ("mkfifo()", lambda: mkfifo_or_skip(fifo), names),
        ("unlink() of a FIFO", lambda: os.unlink(fifo), names),
        ("pread() of a later page", lambda: read_at(path, 100, 4096), {}),
        ("a first link()", lambda: hard_link(path, link), linked),
        ("a second link()", lambda: hard_link(path, other.parent / "2"), linked),
        ("a third link()", lambda: hard_link(path, other.parent / "3"), linked),
        ("unlink() of the first link", lambda: os.unlink(link), linked),
        ("unlink() of the second link", lambda: os.unlink(other.parent / "2"), linked),
        ("unlink() of the third link", lambda: os.unlink(other.parent / "3"), linked),
        ("RENAME_NOREPLACE", lambda: renameat2(old, new, RENAME_NOREPLACE), names),
        ("rename() back", lambda: os.rename(new, old), names),
    )
    lacking = set()
    for turn in (1, 2):
        for text, call, effects in calls:
            if text in lacking:
                continue
            try:
                check(f"{text}, time {turn}", call, effects)
            except CannotRun:
                # These calls: other cases test whether their absence is legal.
                word = next(word for word in ("FIFO", "link", "rename") if word.lower() in text.lower())
                lacking |= {one[0] for one in calls if word.lower() in one[0].lower()}


def mkfifo_or_skip(path):
    """Make a FIFO; skip the call if the file system has none (PSX-MKNOD-*: is that legal)."""
    try:
        fifo(path)
    except OSError as error:
        skip(f"the file system has no FIFOs: {error.strerror}")


def at_once(path, parts, offset):
    """Write with one call, through an open of its own."""
    with open_fd(path) as descriptor:
        os.pwritev(descriptor, parts, offset)


def resolution_of(directory):
    """Return the resolution of times in ns, a power of ten: a time is set to one that is supported."""
    probe = make_file(directory / "probe")
    os.utime(probe, ns=(0, 1_500_000_000 * SECOND + 111_111_111))
    found = os.stat(probe).st_mtime_ns % SECOND
    os.unlink(probe)
    return next(
        (10**digits for digits in range(9) if found == 111_111_111 // 10**digits * 10**digits), SECOND
    )


@pytest.mark.case(
    "PSX-UTIMENS-SEQUENCE",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-UTIMENS-OMIT-ATIME", "PSX-UTIMENS-OMIT-MTIME"),
    section="POSIX.1-2024 futimens(), utimensat(): DESCRIPTION",
    kills=("utimens-now-again-old", "utimens-atime-cuts-mtime"),
)
def test_times_are_those_that_were_set_last(client_dir):
    """Each of the two times is set, set to now, or left, again and again, of a file and of a directory."""
    (client_dir / "d").mkdir()
    unit = resolution_of(client_dir)
    for path in (make_file(client_dir / "f", b"x"), client_dir / "d"):
        os.utime(path, ns=(10 * SECOND, 20 * SECOND))
        model = {"st_atime_ns": 10 * SECOND, "st_mtime_ns": 20 * SECOND}
        orders = (
            (55_000, UTIME_OMIT), (UTIME_NOW, UTIME_NOW), (UTIME_OMIT, 1000), (UTIME_NOW, UTIME_NOW),
            (999_999_000, UTIME_OMIT), (UTIME_OMIT, UTIME_NOW), (1, 2),
        )  # fmt: skip
        for number, order in enumerate(orders):
            changed = os.stat(path).st_ctime_ns
            tick = wait_clock_tick(client_dir)
            given = []
            for field, what in zip(("st_atime_ns", "st_mtime_ns"), order, strict=True):
                if what in (UTIME_NOW, UTIME_OMIT):
                    given.append((0, what))
                    model[field] = None if what == UTIME_NOW else model[field]
                else:
                    seconds = 1_500_000_000 + 1000 * number
                    nanoseconds = what // unit * unit % SECOND
                    given.append((seconds, nanoseconds))
                    model[field] = seconds * SECOND + nanoseconds
            utimensat(path, *given)
            one = os.stat(path)
            for field, wanted in model.items():
                found = getattr(one, field)
                if wanted is None:
                    assert found > tick, f"{field} is not now after step {number + 1}, {order}"
                    model[field] = found
                else:
                    assert found == wanted, f"{field} is {found} instead of {wanted} after {order}"
            assert one.st_ctime_ns > changed, f"ctime after {order}"
        if path.is_dir():
            tick = wait_clock_tick(client_dir)
            make_file(path / "new")
            assert os.stat(path).st_mtime_ns > tick, (
                "mtime of a directory whose times were set, and an entry made"
            )


@pytest.mark.case(
    "PSX-TMPFILE-LINKED",
    section="open(2): O_TMPFILE; linkat(2)",
    builds_on=("PSX-DATA-NEW-FILE",),
    kills=("tmpfile-linked-cut",),
)
def test_file_that_gets_its_first_name_is_as_it_was(client_dir):
    """linkat() gives a file without a name one: data of many pages, mode and mtime stay, and links count."""
    for size in (1, 4096, 20_000, 300_000):
        data, path = pattern_bytes(size), client_dir / str(size)
        try:
            descriptor = os.open(client_dir, os.O_TMPFILE | os.O_RDWR, 0o640)
        except OSError as error:
            skip(f"the file system has no O_TMPFILE: {error.strerror}")
        try:
            assert os.write(descriptor, data) == size
            os.utime(descriptor, ns=(6 * SECOND, 8 * SECOND))
            try:
                os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
            except OSError as error:
                skip(f"the file cannot be linked: {error.strerror} (PSX-OPEN-TMPFILE: is that legal)")
            one = os.stat(path)
            assert (one.st_size, one.st_nlink, one.st_mode & 0o777) == (size, 1, 0o640)
            assert one.st_mtime_ns == 8 * SECOND
            assert path.read_bytes() == data, f"{size} bytes of a file that was linked"
            os.pwrite(descriptor, b"more", size)
        finally:
            os.close(descriptor)
        assert path.read_bytes() == data + b"more", "written after the file got its name"


@pytest.mark.case(
    "PSX-XATTR-CTIME-EACH",
    section="setxattr(2), removexattr(2), inode(7): ctime",
    level="SHOULD",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-XATTR-1"),
    kills=("xattr-removed-keeps-ctime",),
)
def test_each_change_of_an_attribute_marks_ctime(client_dir):
    """The status changes with an attribute that is set, replaced, and removed: each time."""
    path = make_file(client_dir / "f", b"x")
    steps = (
        lambda: os.setxattr(path, "user.x", b"one"),
        lambda: os.setxattr(path, "user.x", b"two", os.XATTR_REPLACE),
        lambda: os.removexattr(path, "user.x"),
    )
    for turn in (1, 2):
        for number, step in enumerate(steps, 1):
            before = os.stat(path)
            wait_clock_tick(client_dir)
            try:
                step()
            except OSError as error:
                skip(f"the file system has no user.* attributes: {error.strerror}")
            after = os.stat(path)
            assert after.st_ctime_ns > before.st_ctime_ns, f"ctime after step {number}, time {turn}"
            assert after.st_mtime_ns == before.st_mtime_ns, f"mtime after step {number}, time {turn}"
