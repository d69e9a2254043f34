"""The second time: names, settings and locks that are used again behave as the first time.

A file system that keeps something of an earlier use (a cached entry, a remembered size, a flag that was set
once) passes cases that do each thing once.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

import pytest

from storagetest.agent.testlib import assert_errno, call_in_subprocess, skip
from storagetest.agent.testlib.tmpfiles import (
    fifo,
    hard_link,
    make_file,
    open_fd,
    pattern_bytes,
    read_at,
    set_id_mode,
    symbolic_link,
    wait_clock_tick,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

TIMES = 4


@pytest.mark.case(
    "PSX-AGAIN-RENAME", section="POSIX.1-2024 rename(): DESCRIPTION", kills=("rename-replaces-once",)
)
def test_each_of_several_renames_replaces_the_name(client_dir):
    """If new names an existing file, it shall be removed and old renamed to new: each time."""
    make_file(client_dir / "new", b"was there")
    for number in range(TIMES):
        make_file(client_dir / "old", b"generation %d" % number)
        os.rename(client_dir / "old", client_dir / "new")
        assert (client_dir / "new").read_bytes() == b"generation %d" % number, f"rename {number + 1}"
        assert os.listdir(client_dir) == ["new"]


@pytest.mark.case(
    "PSX-AGAIN-RENAME-BACK",
    section="POSIX.1-2024 rename(): DESCRIPTION",
    kills=("rename-back-empties", "rename-second-keeps-old"),
)
def test_file_can_be_renamed_back(client_dir):
    """A file that gets back an earlier name is the same file with the same data."""
    made = os.stat(make_file(client_dir / "a", b"the data"))
    for _ in range(2):
        for old, new in (("a", "b"), ("b", "a")):
            os.rename(client_dir / old, client_dir / new)
            assert (client_dir / new).read_bytes() == b"the data"
            assert os.listdir(client_dir) == [new]
            assert os.path.samestat(os.stat(client_dir / new), made)


@pytest.mark.case(
    "PSX-AGAIN-RENAME-DIRECTORY",
    section="POSIX.1-2024 rename(): DESCRIPTION",
    kills=("rename-directory-once",),
)
def test_directory_can_be_renamed_back_and_over(client_dir):
    """A directory keeps its entries over several renames, and replaces an empty directory each time."""
    (client_dir / "a").mkdir()
    for number in range(TIMES):
        make_file(client_dir / "a" / str(number), b"%d" % number)
        (client_dir / "b").mkdir()
        os.rename(client_dir / "a", client_dir / "b")
        assert_errno(errno.ENOENT, os.stat, client_dir / "a" / str(number))
        os.rename(client_dir / "b", client_dir / "a")
        assert sorted(os.listdir(client_dir / "a")) == [str(each) for each in range(number + 1)]
        assert (client_dir / "a" / str(number)).read_bytes() == b"%d" % number


@pytest.mark.case(
    "PSX-AGAIN-NAME", section="POSIX.1-2024 unlink(): DESCRIPTION", kills=("name-again-has-old-data",)
)
def test_each_new_file_of_a_name_is_empty(client_dir):
    """A file that open() creates has a length of 0, its own mode and its own data: each time."""
    for number in range(TIMES):
        mode = (0o600, 0o644, 0o640, 0o666)[number]
        data = pattern_bytes(5000 - 1000 * number)
        with open_fd(client_dir / "f", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600) as descriptor:
            assert os.fstat(descriptor).st_size == 0
            assert os.pread(descriptor, 10_000, 0) == b"", f"creation {number + 1}: not empty"
            os.fchmod(descriptor, mode)
            os.write(descriptor, data)
        assert (client_dir / "f").read_bytes() == data
        assert os.stat(client_dir / "f").st_mode & 0o777 == mode
        os.unlink(client_dir / "f")
        assert_errno(errno.ENOENT, os.open, client_dir / "f", os.O_RDONLY)


@pytest.mark.case(
    "PSX-AGAIN-ATTRIBUTES",
    section="POSIX.1-2024 open(): O_CREAT; xattr(7): DESCRIPTION",
    kills=("name-again-has-old-mode", "name-again-has-old-attributes", "name-again-has-old-times"),
)
def test_new_file_has_no_attributes_of_the_last_one_of_its_name(client_dir):
    """Mode, times and extended attributes are those of the creation, after a removal and after a rename."""
    os.umask(0)
    path = client_dir / "f"
    removals = {
        "unlink()": lambda: os.unlink(path),
        "rename()": lambda: os.rename(path, client_dir / "moved"),
        "rename() and unlink()": lambda: (os.rename(path, client_dir / "g"), os.unlink(client_dir / "g")),
    }
    for what, remove in removals.items():
        make_file(path, b"old", 0o604)
        has_attributes = set_user_attribute(path)
        os.utime(path, ns=(10**18, 10**18))
        remove()
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o640))
        found = os.stat(path)
        assert found.st_mode & 0o7777 == 0o640, f"mode {found.st_mode & 0o7777:o} of a new file after {what}"
        assert found.st_mtime_ns != 10**18, f"mtime of a new file after {what} is that of the old file"
        if has_attributes:
            names = [name for name in os.listxattr(path) if name.startswith("user.")]
            assert not names, f"attributes of a new file after {what}: {names}"
        os.unlink(path)


def set_user_attribute(path):
    """Set one; return whether the file system has any."""
    try:
        os.setxattr(path, "user.old", b"old")
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return False
    return True


@pytest.mark.case(
    "PSX-AGAIN-DIRECTORY",
    section="POSIX.1-2024 mkdir(): DESCRIPTION",
    kills=("directory-again-has-old-mode",),
)
def test_each_new_directory_of_a_name_is_empty(client_dir):
    """The newly created directory is empty and has the mode of its creation: each time."""
    os.umask(0)
    for number in range(TIMES):
        mode = (0o700, 0o755, 0o750, 0o711)[number]
        os.mkdir(client_dir / "d", mode)
        assert os.listdir(client_dir / "d") == []
        assert os.stat(client_dir / "d").st_mode & 0o777 == mode, f"creation {number + 1}"
        make_file(client_dir / "d" / "f", b"%d" % number)
        assert os.listdir(client_dir / "d") == ["f"]
        assert (client_dir / "d" / "f").read_bytes() == b"%d" % number
        os.unlink(client_dir / "d" / "f")
        os.rmdir(client_dir / "d")
        assert_errno(errno.ENOENT, os.stat, client_dir / "d")


@pytest.mark.case(
    "PSX-AGAIN-SYMLINK",
    section="POSIX.1-2024 symlink(): DESCRIPTION",
    kills=("symlink-again-has-old-target",),
)
def test_each_new_link_of_a_name_has_its_contents(client_dir):
    """readlink() returns the contents of the existing link, not of one that was removed or replaced."""
    for number in range(TIMES):
        make_file(client_dir / f"target-{number}", b"%d" % number)
        symbolic_link(f"target-{number}", client_dir / "link")
        assert os.readlink(client_dir / "link") == f"target-{number}"
        assert (client_dir / "link").read_bytes() == b"%d" % number
        symbolic_link("target-0", client_dir / "next")
        os.rename(client_dir / "next", client_dir / "link")
        assert os.readlink(client_dir / "link") == "target-0"
        os.unlink(client_dir / "link")


@pytest.mark.case("PSX-AGAIN-KINDS", section="POSIX.1-2024 <sys/stat.h>", kills=("fifo-is-a-file",))
def test_name_can_be_of_one_kind_after_the_other(client_dir):
    """The file mode describes the file that has the name now."""
    path = client_dir / "x"
    kinds = (
        (make_file, stat.S_ISREG, os.unlink),
        (os.mkdir, stat.S_ISDIR, os.rmdir),
        (lambda path: symbolic_link("y", path), stat.S_ISLNK, os.unlink),
        (fifo, stat.S_ISFIFO, os.unlink),
    )
    for make, is_kind, remove in (*kinds, *reversed(kinds)):
        make(path)
        assert is_kind(os.lstat(path).st_mode)
        assert os.listdir(client_dir) == ["x"]
        remove(path)
        assert_errno(errno.ENOENT, os.lstat, path)


@pytest.mark.case("PSX-AGAIN-EXCL", section="POSIX.1-2024 open(): ERRORS", kills=("exclusive-once",))
def test_exclusive_creation_is_refused_each_time(client_dir):
    """[EEXIST] O_CREAT and O_EXCL are set, and the named file exists: each time, also by mkdir()."""
    make_file(client_dir / "f", b"kept")
    for _ in range(TIMES):
        assert_errno(errno.EEXIST, os.open, client_dir / "f", os.O_CREAT | os.O_EXCL | os.O_RDWR)
        assert_errno(errno.EEXIST, os.mkdir, client_dir / "f")
        assert (client_dir / "f").read_bytes() == b"kept"


@pytest.mark.case("PSX-AGAIN-TRUNC", section="POSIX.1-2024 open(): O_TRUNC", kills=("open-trunc-once",))
def test_o_trunc_empties_the_file_each_time(client_dir):
    """O_TRUNC truncates to length 0 at each open, and what is written then is all of the file."""
    make_file(client_dir / "f", pattern_bytes(9000))
    for size in (7000, 5000, 100, 3000):
        with open_fd(client_dir / "f", os.O_RDWR | os.O_TRUNC) as descriptor:
            assert os.fstat(descriptor).st_size == 0
            os.write(descriptor, pattern_bytes(size)[::-1])
        assert (client_dir / "f").read_bytes() == pattern_bytes(size)[::-1]


@pytest.mark.case(
    "PSX-AGAIN-TRUNCATE", section="POSIX.1-2024 ftruncate(): DESCRIPTION", kills=("truncate-once",)
)
def test_each_of_several_truncations_sets_the_size(client_dir):
    """The extra data are discarded and added bytes are zeroes: after each change of the size."""
    wanted = pattern_bytes(20_000)
    with open_fd(make_file(client_dir / "f", wanted)) as descriptor:
        for size in (15_000, 18_000, 9_000, 8_191, 70_000, 8_193, 1, 0, 5_000):
            os.ftruncate(descriptor, size)
            wanted = wanted[:size] + bytes(max(0, size - len(wanted)))
            assert os.fstat(descriptor).st_size == size
            assert (client_dir / "f").read_bytes() == wanted, f"after ftruncate() to {size}"


@pytest.mark.case(
    "PSX-AGAIN-REWRITE",
    section="POSIX.1-2024 ftruncate(): DESCRIPTION",
    kills=("truncated-range-not-rewritten",),
)
def test_truncated_range_can_be_written_again(client_dir):
    """Data written after a truncation are read, at and past the former end, by the next open."""
    data = pattern_bytes(12_000)
    make_file(client_dir / "f", data)
    for cut in (6_000, 4_096, 1):
        with open_fd(client_dir / "f") as descriptor:
            os.ftruncate(descriptor, cut)
            assert os.pwrite(descriptor, data[cut:][::-1], cut) == 12_000 - cut
        data = data[:cut] + data[cut:][::-1]
        assert (client_dir / "f").read_bytes() == data, f"written again from {cut} on"


@pytest.mark.case("PSX-AGAIN-CHMOD", section="POSIX.1-2024 chmod(): DESCRIPTION", kills=("chmod-once",))
def test_each_of_several_chmods_sets_the_mode(client_dir):
    """chmod() shall change the mode: each time, of files and directories."""
    (client_dir / "d").mkdir()
    for path in (make_file(client_dir / "f"), client_dir / "d"):
        for mode in (0o600, 0o755, 0o640, 0o4711, 0o700, 0o644):
            os.chmod(path, mode)
            expected = mode if path.is_dir() else set_id_mode(path, mode)
            assert stat.S_IMODE(os.stat(path).st_mode) == expected


@pytest.mark.case("PSX-AGAIN-CHOWN", section="POSIX.1-2024 chown(): DESCRIPTION", kills=("chown-once",))
def test_each_of_several_chowns_sets_the_owner(client_dir):
    """chown() shall set the user and group ID: each time."""
    make_file(client_dir / "f")
    for user, group in ((1001, 1001), (1002, 1003), (1001, 1001), (70_000, 80_000), (0, 0)):
        os.chown(client_dir / "f", user, group)
        found = os.stat(client_dir / "f")
        assert (found.st_uid, found.st_gid) == (user, group)


@pytest.mark.case(
    "PSX-AGAIN-UTIMENS", section="POSIX.1-2024 utimensat(): DESCRIPTION", kills=("utimens-once",)
)
def test_each_of_several_utimensats_sets_the_times(client_dir):
    """The times shall be set to those given: each time, forwards and backwards."""
    make_file(client_dir / "f")
    for second in (1_000_000_000, 1_500_000_000, 500_000_000, 1_500_000_000, 1_600_000_000):
        os.utime(client_dir / "f", (second, second + 2))
        found = os.stat(client_dir / "f")
        assert (found.st_atime, found.st_mtime) == (second, second + 2)


@pytest.mark.case("PSX-AGAIN-XATTR", section="setxattr(2): DESCRIPTION", kills=("xattr-again-lost",))
def test_attribute_can_be_removed_and_set_again(client_dir):
    """An attribute has the value of its last setxattr(), also after it was removed."""
    make_file(client_dir / "f")
    for number in range(TIMES):
        value = b"%d" % number * (40 - 10 * number)
        try:
            os.setxattr(client_dir / "f", "user.x", value)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP and not number:
                skip("this file system has no user.* attributes, or they are disabled (setxattr(2), ENOTSUP)")
            raise
        assert os.getxattr(client_dir / "f", "user.x") == value
        os.setxattr(client_dir / "f", "user.x", value[:3], os.XATTR_REPLACE)
        assert os.getxattr(client_dir / "f", "user.x") == value[:3]
        os.removexattr(client_dir / "f", "user.x")
        assert_errno(errno.ENODATA, os.getxattr, client_dir / "f", "user.x")


@pytest.mark.case(
    "PSX-AGAIN-LINK",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-NLINK"),
    section="POSIX.1-2024 link(): DESCRIPTION",
    kills=("link-again-not-counted",),
)
def test_link_that_is_made_again_is_counted(client_dir):
    """link() increments the link count and unlink() decrements it: each time."""
    make_file(client_dir / "a", b"data")
    for _ in range(TIMES):
        hard_link(client_dir / "a", client_dir / "b")
        assert os.stat(client_dir / "b").st_nlink == 2
        os.unlink(client_dir / "a")
        assert os.stat(client_dir / "b").st_nlink == 1
        hard_link(client_dir / "b", client_dir / "a")
        assert os.stat(client_dir / "a").st_nlink == 2
        os.unlink(client_dir / "b")
        assert os.stat(client_dir / "a").st_nlink == 1
        assert (client_dir / "a").read_bytes() == b"data"


@pytest.mark.case(
    "PSX-AGAIN-FSYNC", section="POSIX.1-2024 fsync(): DESCRIPTION", kills=("write-after-fsync-lost",)
)
def test_file_can_be_written_after_each_fsync(client_dir):
    """Data that are written after an fsync() are read as those before it."""
    data = b""
    with open_fd(client_dir / "f", os.O_CREAT | os.O_WRONLY) as descriptor:
        for number in range(TIMES):
            record = b"%d" % number * 1500
            os.write(descriptor, record)
            os.fsync(descriptor)
            data += record
            assert (client_dir / "f").read_bytes() == data, f"after fsync {number + 1}"


@pytest.mark.case(
    "PSX-AGAIN-MTIME", section="POSIX.1-2024 write(): DESCRIPTION", kills=("write-mtime-moved-once",)
)
def test_each_of_several_writes_updates_mtime(client_dir):
    """Upon successful completion mtime and ctime are marked for update: by each write of an open file."""
    with open_fd(make_file(client_dir / "f")) as descriptor:
        for number in range(3):
            before = os.stat(client_dir / "f")
            wait_clock_tick(client_dir)
            os.pwrite(descriptor, b"%d" % number, 0)
            after = os.stat(client_dir / "f")
            assert after.st_mtime_ns > before.st_mtime_ns, f"write {number + 1}"
            assert after.st_ctime_ns > before.st_ctime_ns, f"write {number + 1}"


@pytest.mark.case(
    "PSX-AGAIN-UNLINKED", section="POSIX.1-2024 unlink(): DESCRIPTION", kills=("unlinked-open-stale",)
)
def test_removed_open_files_of_one_name_are_kept_apart(client_dir):
    """The contents of each removed file stay until its own references are closed."""
    descriptors = []
    for number in range(TIMES):
        make_file(client_dir / "f", b"generation %d" % number)
        descriptors.append(os.open(client_dir / "f", os.O_RDWR))
        os.unlink(client_dir / "f")
        assert_errno(errno.ENOENT, os.open, client_dir / "f", os.O_RDONLY)
    for number, descriptor in enumerate(descriptors):
        assert os.pread(descriptor, 100, 0) == b"generation %d" % number
        os.pwrite(descriptor, b"G", 0)
    for number, descriptor in enumerate(descriptors):
        assert os.pread(descriptor, 100, 0) == b"Generation %d" % number
        os.close(descriptor)


@pytest.mark.case("PSX-AGAIN-LISTED", section="POSIX.1-2024 readdir(): DESCRIPTION", kills=("readdir-stale",))
def test_name_that_comes_and_goes_is_listed_while_it_exists(client_dir):
    """A directory that is opened returns the entries that it has then."""
    make_file(client_dir / "always")
    for _ in range(TIMES):
        make_file(client_dir / "sometimes")
        assert sorted(os.listdir(client_dir)) == ["always", "sometimes"]
        os.unlink(client_dir / "sometimes")
        assert os.listdir(client_dir) == ["always"]


@pytest.mark.case("PSX-AGAIN-APPEND", section="POSIX.1-2024 open(): O_APPEND", kills=("append-ignored",))
def test_appends_of_several_opens_are_all_kept(client_dir):
    """The file offset shall be set to the end of the file prior to each write, in each open."""
    wanted = b""
    for size in (10, 5000, 1, 4096, 70_000):
        with open_fd(client_dir / "f", os.O_CREAT | os.O_WRONLY | os.O_APPEND) as descriptor:
            for byte in (b"a", b"b"):
                assert os.write(descriptor, byte * size) == size
                wanted += byte * size
        assert (client_dir / "f").read_bytes() == wanted


@pytest.mark.case("PSX-AGAIN-READ", section="POSIX.1-2024 read(): DESCRIPTION", kills=("read-stale",))
def test_each_open_reads_the_last_data(client_dir):
    """After a write() has returned, any read() returns the data written: also of a file read before."""
    make_file(client_dir / "f", bytes(9000))
    with open_fd(client_dir / "f") as writer, open_fd(client_dir / "f", os.O_RDONLY) as reader:
        for number in range(1, 2 * TIMES):
            data = bytes([number]) * 9000
            os.pwrite(writer, data, 0)
            assert os.pread(reader, 9000, 0) == data
            assert read_at(client_dir / "f", 9000) == data


def _refused(path, lock) -> bool:
    def attempt():
        with open_fd(path) as mine:
            lock(mine)

    try:
        call_in_subprocess(attempt)
    except OSError as error:
        assert error.errno in (errno.EAGAIN, errno.EACCES), error
        return True
    return False


@pytest.mark.needs("locks")
@pytest.mark.case("PSX-AGAIN-LOCK", section="POSIX.1-2024 fcntl(): F_SETLK", kills=("lock-again-ignored",))
def test_range_can_be_locked_again(client_dir):
    """A range that was unlocked is locked by the next F_SETLK, and free after the next F_UNLCK."""

    def lock(descriptor):
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)

    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        for number in range(TIMES):
            lock(descriptor)
            assert _refused(client_dir / "f", lock), f"lock {number + 1} admits another process"
            fcntl.lockf(descriptor, fcntl.LOCK_UN, 10, 5)
            assert not _refused(client_dir / "f", lock), f"unlock {number + 1} keeps the lock"


@pytest.mark.needs("locks")
@pytest.mark.case("PSX-AGAIN-FLOCK", section="flock(2): DESCRIPTION", kills=("flock-ignored",))
def test_file_can_be_locked_again(client_dir):
    """A lock that was released is taken by the next flock(), by any process."""

    def lock(descriptor):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    with open_fd(make_file(client_dir / "f", bytes(100))) as descriptor:
        for number in range(TIMES):
            lock(descriptor)
            assert _refused(client_dir / "f", lock), f"lock {number + 1} admits another process"
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            assert not _refused(client_dir / "f", lock), f"unlock {number + 1} keeps the lock"
