"""State that two files have alike and do not share, and state that a later step must not lose or keep."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import struct
from pathlib import Path

import pytest

from storagetest.agent.testlib import SubprocessCall, record_observation, skip
from storagetest.agent.testlib.byte_model import first_difference
from storagetest.agent.testlib.libc import (
    FALLOC_KEEP_SIZE,
    FALLOC_PUNCH_HOLE,
    RENAME_EXCHANGE,
    fallocate,
    renameat2,
)
from storagetest.agent.testlib.tmpfiles import (
    NO_VALUE_SPACE,
    make_file,
    open_fd,
    pattern_bytes,
    wait_clock_tick,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]
PAGE = 4096
COPIED = 32 * PAGE


def supported(what, call, *arguments, lacking=(errno.EOPNOTSUPP,)):
    """Make a call; skip the case if its error is one by which a file system states that it lacks it."""
    try:
        return call(*arguments)
    except OSError as error:
        if error.errno in lacking:
            skip(f"this file system has no {what}: {error.strerror}")
        raise


@pytest.mark.case(
    "PSX-XATTR-ALIKE",
    section="setxattr(2), removexattr(2): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-XATTR-1"),
    kills=("xattr-shared-by-equal-files",),
)
def test_equal_attributes_of_two_files_are_changed_in_one(client_dir):
    """Files with the same names and values are changed one at a time, also those that may share a block."""
    paths = [make_file(client_dir / f"f{number}") for number in range(3)]
    for size in (3, 100, 700):
        first, second = b"v" * size, b"w" * size
        try:
            for path in paths:
                for name in ("user.a", "user.b"):
                    supported("user.* attributes", os.setxattr, path, name, first)
        except OSError as error:
            if error.errno not in NO_VALUE_SPACE or size <= 256:
                raise
            record_observation(f"a file has no space for two values of {size} bytes (setxattr(2))")
            break
        wanted = [{"user.a": first, "user.b": first} for _ in paths]
        steps = (
            (0, "user.a", second),
            (1, "user.a", second),
            (0, "user.a", first),
            (1, "user.b", None),
            (2, "user.a", second[:1]),
            (0, "user.b", second),
        )
        for number, name, value in steps:
            if value is None:
                os.removexattr(paths[number], name)
                del wanted[number][name]
            else:
                os.setxattr(paths[number], name, value)
                wanted[number][name] = value
            for other, path in enumerate(paths):
                found = {one: os.getxattr(path, one) for one in os.listxattr(path) if one in wanted[other]}
                assert found == wanted[other], (
                    f"file {other} has other values after {name} of file {number} was "
                    f"{'removed' if value is None else 'set'}, values of {size} bytes"
                )


def copy_all(source, target, length=COPIED):
    """Copy ``length`` bytes of a file to another one from their beginning on."""
    if not hasattr(os, "copy_file_range"):
        skip("the client's Python has no copy_file_range()")
    done = 0
    while done < length:
        step = os.copy_file_range(source, target, length - done, done, done)
        assert step > 0, f"copy_file_range() copies nothing at {done} of {length} bytes"
        done += step


@pytest.mark.case(
    "PSX-COPY-INDEPENDENT",
    section="copy_file_range(2): DESCRIPTION, NOTES",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-COPY-FILE-RANGE"),
    kills=("copied-range-follows-source",),
)
def test_copy_and_source_are_changed_one_at_a_time(client_dir):
    """A copy may share storage with its source: a write, a hole or a cut of either leaves the other."""
    data = pattern_bytes(COPIED)
    contents = [bytearray(data), bytearray(data)]
    paths = [make_file(client_dir / "source", data), client_dir / "copy"]
    with open_fd(paths[0]) as source, open_fd(paths[1], os.O_CREAT | os.O_RDWR) as copy:
        copy_all(source, copy)
        files = (source, copy)

        def compare(what):
            for number, path in enumerate(paths):
                wrong = first_difference(path.read_bytes(), bytes(contents[number]))
                assert not wrong, f"the {path.name} has {wrong}, after {what}"

        compare("the copy")
        for number, offset, length in (
            (0, 0, 100),
            (1, PAGE, PAGE),
            (0, PAGE, PAGE),
            (0, 5 * PAGE - 1, 2),
            (1, 0, 1),
            (1, COPIED - 10, 500),
            (0, 7 * PAGE + 5, 3 * PAGE),
        ):
            changed = bytes([number + 1]) * length
            os.pwrite(files[number], changed, offset)
            contents[number][offset : offset + length] = changed
            compare(f"a write of {length} bytes at {offset} of the {paths[number].name}")
        for number in (0, 1):
            os.ftruncate(files[number], 20 * PAGE + number)
            del contents[number][20 * PAGE + number :]
            compare(f"a cut of the {paths[number].name}")


@pytest.mark.case(
    "PSX-COPY-HOLES",
    section="copy_file_range(2): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-COPY-FILE-RANGE"),
    kills=("copied-hole-keeps-data",),
)
def test_copied_hole_replaces_the_data_of_the_target(client_dir):
    """A hole is a range of zeroes: where it is copied to, the target's data are zeroes, too."""
    wanted = bytearray(COPIED)
    with open_fd(client_dir / "source", os.O_CREAT | os.O_RDWR) as source:
        os.ftruncate(source, COPIED)
        for offset, length in ((2 * PAGE, PAGE), (9 * PAGE + 7, 100), (20 * PAGE, 2 * PAGE)):
            wanted[offset : offset + length] = pattern_bytes(length)
            os.pwrite(source, wanted[offset : offset + length], offset)
        os.fsync(source)
        for turn in ("written", "written and punched"):
            path = make_file(client_dir / turn.replace(" ", "-"), b"\xee" * (COPIED + 100))
            with open_fd(path) as target:
                os.fsync(target)
                copy_all(source, target)
            wrong = first_difference(path.read_bytes(), bytes(wanted) + b"\xee" * 100)
            assert not wrong, f"the target has {wrong}, after a copy of a file {turn}"
            wanted[20 * PAGE : 22 * PAGE] = bytes(2 * PAGE)
            fallocate(source, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 20 * PAGE, 2 * PAGE)


@pytest.mark.case(
    "PSX-COPY-HOLE-LAST",
    section="copy_file_range(2): DESCRIPTION, RETURN VALUE",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-COPY-FILE-RANGE"),
    kills=("copy-ends-with-last-data",),
)
def test_hole_at_the_end_of_a_copied_range_is_copied(client_dir):
    """The bytes that are reported are copied, those of a hole at the end too: the target reaches as far."""
    wanted = pattern_bytes(PAGE) + bytes(5 * PAGE) + pattern_bytes(PAGE) + bytes(4 * PAGE + 7)
    with open_fd(client_dir / "source", os.O_CREAT | os.O_RDWR) as source:
        os.ftruncate(source, len(wanted))
        for offset in (0, 6 * PAGE):
            os.pwrite(source, pattern_bytes(PAGE), offset)
        os.fsync(source)
        for length in (len(wanted), 3 * PAGE, 5 * PAGE + 9):
            for before in (b"", b"\xee" * 100, b"\xee" * (2 * PAGE)):
                path = make_file(client_dir / f"{length}-{len(before)}", before)
                with open_fd(path) as target:
                    copy_all(source, target, length)
                wrong = first_difference(path.read_bytes(), wanted[:length])
                assert not wrong, f"{length} bytes copied to a file of {len(before)}: it has {wrong}"


@pytest.mark.server_inodes("st_ino of *")
@pytest.mark.case(
    "PSX-TMPFILE-ATTRIBUTES",
    section="open(2): O_TMPFILE; linkat(2)",
    builds_on=("PSX-TMPFILE-LINKED",),
    kills=("tmpfile-linked-loses-xattrs",),
)
def test_file_that_gets_its_first_name_has_its_attributes(client_dir):
    """Mode, owner, times and extended attributes that a file got without a name are those of the name."""
    descriptor = supported(
        "O_TMPFILE", os.open, client_dir, os.O_TMPFILE | os.O_RDWR, 0o600,
        lacking=(errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL),
    )  # fmt: skip
    try:
        values = {f"user.{name}": name.encode() * 50 for name in "ab"}
        for name, value in values.items():
            supported("user.* attributes", os.setxattr, descriptor, name, value)
        os.fchmod(descriptor, 0o751)
        os.write(descriptor, b"data")
        os.utime(descriptor, ns=(10**18, 10**18 + 10**9))
        before = os.fstat(descriptor)
        try:
            os.link(f"/proc/self/fd/{descriptor}", client_dir / "f", src_dir_fd=descriptor)
        except OSError as error:
            skip(f"the file cannot be linked: {error.strerror} (PSX-OPEN-TMPFILE: is that legal)")
    finally:
        os.close(descriptor)
    one = os.stat(client_dir / "f")
    for name in ("st_mode", "st_uid", "st_gid", "st_size", "st_ino", "st_mtime_ns"):
        found, wanted = getattr(one, name), getattr(before, name)
        assert found == wanted, f"{name} of a file that got a name is {found}, it was {wanted}"
    assert one.st_nlink == 1
    found = {name: os.getxattr(client_dir / "f", name) for name in os.listxattr(client_dir / "f")}
    assert {name: value for name, value in found.items() if name in values} == values


@pytest.mark.case(
    "PSX-TMPFILE-PARENT",
    section="open(2): O_TMPFILE; POSIX.1-2024 link(): DESCRIPTION",
    builds_on=("PSX-TMPFILE-LINKED",),
    kills=("tmpfile-linked-leaves-parent-times",),
)
def test_first_name_of_a_file_marks_its_directory(client_dir):
    """link() marks mtime and ctime of the directory that gets the entry: of a first name, too, each time."""
    for number in range(3):
        descriptor = supported(
            "O_TMPFILE", os.open, client_dir, os.O_TMPFILE | os.O_RDWR, 0o600,
            lacking=(errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL),
        )  # fmt: skip
        (client_dir / f"d{number}").mkdir()
        tick = wait_clock_tick(client_dir)
        try:
            os.link(f"/proc/self/fd/{descriptor}", client_dir / f"d{number}" / "f", src_dir_fd=descriptor)
        except OSError as error:
            skip(f"the file cannot be linked: {error.strerror} (PSX-OPEN-TMPFILE: is that legal)")
        finally:
            os.close(descriptor)
        one = os.stat(client_dir / f"d{number}")
        for name in ("st_mtime_ns", "st_ctime_ns"):
            assert getattr(one, name) > tick, f"{name} of the directory of a first name, time {number + 1}"


@pytest.mark.case(
    "PSX-EXCHANGE-TIMES",
    section="POSIX.1-2024 rename(): DESCRIPTION; rename(2): RENAME_EXCHANGE",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-RENAME-EXCHANGE"),
    kills=("exchange-marks-one-directory",),
)
def test_exchange_marks_both_directories(client_dir):
    """Each exchange marks mtime and ctime of both parents, and leaves that of the files."""
    for name in ("one", "other"):
        (client_dir / name).mkdir()
        make_file(client_dir / name / "f", name.encode())
    (client_dir / "one" / "d").mkdir()
    for names in (("one/f", "other/f"), ("other/f", "one/f"), ("one/d", "other/f"), ("one/d", "other/f")):
        paths = [client_dir / name for name in names]
        files = [
            path for path in paths if path.is_file()
        ]  # a directory gets another parent: it may be marked
        kept = sorted(os.stat(path).st_mtime_ns for path in files)
        tick = wait_clock_tick(client_dir)
        renameat2(paths[0], paths[1], RENAME_EXCHANGE)
        for path in paths:
            one = os.stat(path.parent)
            for what in ("st_mtime_ns", "st_ctime_ns"):
                assert getattr(one, what) > tick, (
                    f"{what} of the parent {path.parent.name} is not marked by an exchange of "
                    f"{names[0]} and {names[1]}"
                )
        found = sorted(os.stat(path).st_mtime_ns for path in paths if path.is_file())
        assert found == kept, f"mtime of a file changes with its name, {names[0]} or {names[1]}"


class Interrupted(Exception):
    """The handler of the signal: it ends the wait."""


def wait_until_interrupted(path):
    """Wait for the lock until a signal comes; return whether that ended the wait. The file stays open."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    signal.signal(signal.SIGALRM, interrupt)
    descriptor = os.open(path, os.O_RDWR)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
    except Interrupted:
        Path(f"{path}-interrupted").touch()
    signal.pause()


@pytest.mark.needs("locks")
@pytest.mark.case(
    "PSX-LOCK-INTERRUPTED",
    section="POSIX.1-2024 fcntl(): F_SETLKW; ERRORS [EINTR]",
    builds_on=("PSX-LOCK-WAIT",),
    kills=("lock-wait-interrupted-granted",),
)
def test_interrupted_wait_leaves_no_lock(client_dir):
    """[EINTR] The lock was not granted: another process can have it after the release."""
    path = make_file(client_dir / "f", b"data")
    with open_fd(path) as descriptor:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        waiting = SubprocessCall(wait_until_interrupted, (str(path),))
        try:
            ended = Path(f"{path}-interrupted")
            for _ in range(200):
                if ended.exists() or waiting.ended(within=0.02):
                    break
            assert ended.exists(), "a signal does not end the wait for a lock within 4 s"
            fcntl.lockf(descriptor, fcntl.LOCK_UN)
            found = fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
            kind = struct.unpack("hhqqi4x", found)[0]
        finally:
            waiting.kill()
        assert kind == fcntl.F_UNLCK, "a process whose wait was interrupted has the lock after the release"


@pytest.mark.needs("locks")
@pytest.mark.case(
    "PSX-LOCK-HELD-260",
    section="POSIX.1-2024 fcntl(): DESCRIPTION",
    builds_on=("PSX-LOCK-WRITE-WRITE",),
    kills=("lock-past-128-drops-first",),
)
def test_process_holds_many_separate_locks(client_dir):
    """260 locks of single bytes are held together: another process can have the bytes between alone."""
    path = make_file(client_dir / "f", bytes(1000))
    asked = [*range(0, 520, 26), 1, 517, 518, 519]
    with open_fd(path) as descriptor:
        for number in range(260):
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2 * number)
            except OSError as error:
                if error.errno == errno.ENOLCK:
                    skip(f"the system has {number} locks for a process ([ENOLCK])")
                raise

        def free():
            with open_fd(path) as other:
                found = []
                for at in asked:
                    query = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, at, 1, 0)
                    kind = struct.unpack("hhqqi4x", fcntl.fcntl(other, fcntl.F_GETLK, query))[0]
                    found.append(kind == fcntl.F_UNLCK)
                return found

        found = SubprocessCall(free, ()).result(within=20)
    wrong = [at for at, can in zip(asked, found, strict=True) if can == (at % 2 == 0)]
    assert not wrong, f"260 locks of the even bytes are held, but of these bytes the opposite: {wrong}"


@pytest.mark.case(
    "PSX-OPEN-300",
    section="POSIX.1-2024 open(), read(), write(): DESCRIPTION",
    kills=("read-of-257th-open-is-of-first",),
)
def test_each_of_many_descriptors_is_of_its_file(client_dir):
    """300 descriptors of 20 files are open together: each reads and writes its own file."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 400:
        skip(f"a process of this client may have {soft} open files (RLIMIT_NOFILE)")
    paths = [make_file(client_dir / f"f{number}", b"file %02d" % number) for number in range(20)]
    descriptors = []
    try:
        for number in range(300):
            descriptor, wanted = os.open(paths[number % 20], os.O_RDWR), b"file %02d" % (number % 20)
            descriptors.append(descriptor)
            found = os.pread(descriptor, 7, 0)
            assert found == wanted, f"descriptor {number + 1} of 300 reads {found!r} instead of {wanted!r}"
        for number in range(280, 300):
            os.pwrite(descriptors[number], b"by %03d" % number, 7)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    for number, path in enumerate(paths):
        assert path.read_bytes() == b"file %02dby %03d" % (number, 280 + number), (
            f"file {number} after a write through descriptor {281 + number} of 300"
        )


@pytest.mark.case(
    "PSX-REFUSED-ATTRIBUTES",
    section="POSIX.1-2024 rmdir(), rename(): DESCRIPTION; ERRORS [EEXIST] or [ENOTEMPTY]",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-XATTR-DIRECTORY"),
    kills=("rmdir-refused-loses-xattrs",),
)
def test_refused_removal_leaves_the_attributes_of_a_directory(client_dir):
    """A directory that is not removed or replaced, because it has an entry, keeps its attributes."""
    directory, empty = client_dir / "d", client_dir / "e"
    for path in (directory, empty):
        path.mkdir()
    make_file(directory / "entry")
    values = {f"user.{name}": name.encode() * 40 for name in "ab"}
    for name, value in values.items():
        supported("user.* attributes", os.setxattr, directory, name, value)
    os.chmod(directory, 0o710)
    os.utime(directory, ns=(10**18, 10**18))
    refused = (errno.EEXIST, errno.ENOTEMPTY)
    calls = (
        ("rmdir()", directory.rmdir, refused),
        ("rename() of a directory over it", lambda: os.rename(empty, directory), refused),
        ("mkdir()", directory.mkdir, (errno.EEXIST,)),
        ("rmdir()", directory.rmdir, refused),
    )
    for what, call, errors in calls:
        try:
            call()
        except OSError as error:
            assert error.errno in errors, f"{what}: {error.strerror}"
        else:
            raise AssertionError(f"{what} of a directory with an entry succeeds")
        one = os.stat(directory)
        assert (one.st_mode & 0o777, one.st_mtime_ns) == (0o710, 10**18), (
            f"mode and mtime after a refused {what}"
        )
        found = {name: os.getxattr(directory, name) for name in os.listxattr(directory) if name in values}
        assert found == values, f"a refused {what} leaves the attributes {sorted(found)} of {sorted(values)}"


@pytest.mark.case(
    "PSX-XATTR-100",
    section="listxattr(2): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-XATTR-1"),
    kills=("xattr-list-of-64",),
)
def test_many_attributes_are_listed_and_removed_one_by_one(client_dir):
    """Each of 100 attributes is listed and has its value, also after every third was removed."""
    path = make_file(client_dir / "f")
    wanted = {}
    for number in range(100):
        name, value = f"user.n{number:02}", b"%02d" % number
        try:
            supported("user.* attributes", os.setxattr, path, name, value)
        except OSError as error:
            if error.errno not in NO_VALUE_SPACE:
                raise
            break  # a file system may have less space for them
        wanted[name] = value
    for turn in ("set", "removed"):
        listed = sorted(name for name in os.listxattr(path) if name.startswith("user.n"))
        assert listed == sorted(wanted), (
            f"{len(listed)} names of {len(wanted)} are listed after attributes were {turn}"
        )
        assert {name: os.getxattr(path, name) for name in listed} == wanted, f"values after some were {turn}"
        for name in sorted(wanted)[::3]:
            if turn == "set":
                os.removexattr(path, name)
                del wanted[name]


@pytest.mark.case(
    "PSX-RENAME-CASE",
    section="POSIX.1-2024 rename(): DESCRIPTION; XBD 3 Filename",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-NAME-CASE"),
    kills=("rename-of-case-ignored",),
)
def test_rename_changes_upper_and_lower_case(client_dir):
    """Names that differ in one byte are different: rename() of name to NAME leaves NAME alone, and back."""
    for kind in ("file", "directory"):
        path = client_dir / kind
        make_file(path) if kind == "file" else path.mkdir()
        for new in (kind.upper(), kind.title(), kind):
            os.rename(path, client_dir / new)
            path = client_dir / new
            assert os.listdir(client_dir) == [new], f"the {kind} is to be {new}"
            path.stat()
        path.unlink() if kind == "file" else path.rmdir()
