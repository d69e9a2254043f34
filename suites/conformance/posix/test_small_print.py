"""Single sentences of the pages: unnamed files, long attributes, statvfs(), SEEK_DATA, contents of links."""

from __future__ import annotations

import errno
import fcntl
import os

import pytest

from storagetest.agent.testlib import assert_errno, record_observation, run_as_user, skip
from storagetest.agent.testlib.libc import FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, fallocate
from storagetest.agent.testlib.outcomes import CannotRun
from storagetest.agent.testlib.tmpfiles import (
    fifo,
    hard_link,
    make_file,
    open_fd,
    symbolic_link,
    wait_clock_tick,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

USER = 1001
BLOCK = 1 << 16


def unnamed(directory, mode=0o600):
    """Open a new file without a name; skip the case if the file system has none."""
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR, mode)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            skip(f"the file system has no O_TMPFILE: {error.strerror}")
        raise


@pytest.mark.case(
    "PSX-TMPFILE-NLINK",
    section="open(2): O_TMPFILE; POSIX.1-2024 <sys/stat.h>",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-TMPFILE-LINKED"),
    kills=("tmpfile-counts-a-link",),
)
def test_unnamed_file_has_no_link_until_it_is_linked(client_dir):
    """st_nlink is the number of links: 0 of an unnamed file, 1 once linkat() has given it a name, then 2."""
    descriptor = unnamed(client_dir)
    try:
        assert os.fstat(descriptor).st_nlink == 0, "a new file without a name"
        os.write(descriptor, b"data")
        assert os.fstat(descriptor).st_nlink == 0, "a written file without a name"
        path = client_dir / "first"
        try:
            os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
        except OSError as error:
            skip(f"the file cannot be linked: {error.strerror} (PSX-OPEN-TMPFILE: is that legal)")
        assert os.fstat(descriptor).st_nlink == 1, "after the first name"
        hard_link(client_dir / "first", client_dir / "second")
        assert os.fstat(descriptor).st_nlink == 2, "after the second name"
    finally:
        os.close(descriptor)


@pytest.mark.case(
    "PSX-TMPFILE-EACCES",
    section="open(2): ERRORS, EACCES; O_TMPFILE",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-TMPFILE-LINKED"),
    kills=("tmpfile-by-any-user",),
)
def test_unnamed_file_needs_write_permission_for_the_directory(client_dir):
    """[EACCES] Who may not write in a directory cannot make an unnamed file in it, as none with a name."""
    os.close(unnamed(client_dir))
    for name, mode in (("readable", 0o755), ("unsearchable", 0o766), ("open", 0o777)):
        (client_dir / name).mkdir()
        os.chmod(client_dir / name, mode)
    with run_as_user(USER, USER):
        os.close(unnamed(client_dir / "open"))
        for name in ("readable", "unsearchable"):
            assert_errno(errno.EACCES, os.open, client_dir / name, os.O_TMPFILE | os.O_RDWR, 0o600)


def set_while_there_is_space(path, name, value):
    """Set an attribute; return whether the file system has space for it (xattr(7))."""
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            skip("the file system has no user.* attributes")
        record_observation(f"an attribute of {len(value)} bytes is refused: {error.strerror}")
        return False
    return True


@pytest.mark.case(
    "PSX-XATTR-LONG-APART",
    section="setxattr(2): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-XATTR-REPLACE-VALUE"),
    kills=("xattr-long-values-share-a-block",),
)
def test_long_values_of_a_file_are_apart(client_dir):
    """Each of several attributes has its value, of 1 KiB and more: as it was set, replaced and left."""
    for length in (1200, 1800, 2700, 5000, 17_000):
        path = make_file(client_dir / str(length))
        values = {}
        for turn in range(2):
            for name in ("user.a", "user.b", "user.c"):
                value = (name[-1:] + str(turn)).encode() * (length // 2)
                if set_while_there_is_space(path, name, value):
                    values[name] = value
                for other, wanted in values.items():
                    found = os.getxattr(path, other)
                    assert found == wanted, (
                        f"{other} has {len(found)} other bytes after {name} was set, values of {length} bytes"
                    )


@pytest.mark.case(
    "PSX-XATTR-REFUSED-KEPT",
    section="setxattr(2): ERRORS, ENOSPC",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-XATTR-REPLACE-VALUE"),
    kills=("xattr-without-space-lost",),
)
def test_value_that_is_refused_leaves_the_former_one(client_dir):
    """[ENOSPC] There is not enough space for the attribute: the one that it would replace keeps its value."""
    path = make_file(client_dir / "f", b"data")
    kept = {"user.kept": b"kept" * 10, "user.other": b"other" * 10}
    for name, value in kept.items():
        if not set_while_there_is_space(path, name, value):
            skip("the file system has no space for two short attributes")
    for length in (3800, 4040, 9000, 33_000, 65_536):
        for name, value in kept.items():
            if set_while_there_is_space(path, name, b"n" * length):
                os.setxattr(path, name, value)
            found = {each: os.getxattr(path, each) for each in kept if each in os.listxattr(path)}
            assert found == kept, f"the attributes after a value of {length} bytes was refused for {name}"
    assert path.read_bytes() == b"data"


@pytest.mark.exclusive
@pytest.mark.case(
    "PSX-STATVFS-KINDS",
    section="POSIX.1-2024 fstatvfs(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-STATVFS-SANE"),
    kills=("statfs-of-files-none-free",),
)
def test_statvfs_is_of_the_file_system_whatever_the_path_names(client_dir):
    """The information is of the file system that contains the file: by a file, a directory or a FIFO."""
    paths = {"a file": make_file(client_dir / "f", b"data"), "a directory": client_dir / "d"}
    paths["a directory"].mkdir()
    try:
        fifo(client_dir / "p")
        paths["a FIFO"] = client_dir / "p"
    except (CannotRun, OSError):
        pass  # PSX-MKFIFO-MAKES tests whether that is legal
    wanted = os.statvfs(client_dir)
    for kind, path in paths.items():
        found = os.statvfs(path)
        for name in ("f_frsize", "f_namemax"):
            assert getattr(found, name) == getattr(wanted, name), f"{name} by {kind}"
        for name, all_of in (
            ("f_blocks", "f_blocks"),
            ("f_bfree", "f_blocks"),
            ("f_bavail", "f_blocks"),
            ("f_ffree", "f_files"),
        ):
            apart = abs(getattr(found, name) - getattr(wanted, name))
            assert apart <= getattr(wanted, all_of) // 50, (
                f"{name} by {kind} is {apart} apart from that by a directory"
            )


@pytest.mark.case(
    "PSX-SEEK-NO-NAME",
    section="lseek(2): SEEK_HOLE, SEEK_DATA; POSIX.1-2024 unlink(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-SEEK-HOLE-END", "PSX-SEEK-DATA-DATA"),
    kills=("seek-without-name-refused", "seek-marks-mtime"),
)
def test_holes_of_a_file_without_a_name_are_found(client_dir):
    """SEEK_DATA and SEEK_HOLE are of the open file, also when it has no name, and change no time of it."""
    path = make_file(client_dir / "f", b"x" * BLOCK)
    with open_fd(path) as descriptor:
        os.pwrite(descriptor, b"y" * BLOCK, 15 * BLOCK)
        fallocate_hole(descriptor)
        found = [look_for_data_and_hole(descriptor)]
        os.fsync(descriptor)
        before = os.fstat(descriptor)
        wait_clock_tick(client_dir)
        found.append(look_for_data_and_hole(descriptor))
        after = os.fstat(descriptor)
        for name in ("st_mtime_ns", "st_ctime_ns"):
            assert getattr(after, name) == getattr(before, name), f"{name} after SEEK_DATA and SEEK_HOLE"
        os.unlink(path)
        try:
            found.append(look_for_data_and_hole(descriptor))
        except OSError as error:
            raise AssertionError(f"a look for data in a file without a name: {error.strerror}") from None
        assert found[1] == found[0], "data and holes at the second look"
        assert found[2] == found[0], "data and holes of the file without a name"


def fallocate_hole(descriptor):
    """Punch what was never written; a file system need not have the call."""
    try:
        fallocate(descriptor, FALLOC_KEEP_SIZE | FALLOC_PUNCH_HOLE, 2 * BLOCK, 8 * BLOCK)
    except CannotRun:
        return


def look_for_data_and_hole(descriptor):
    """Return the offsets that SEEK_DATA and SEEK_HOLE find from the begin, a hole and the end."""
    return [os.lseek(descriptor, at, how) for at in (0, 15 * BLOCK) for how in (os.SEEK_DATA, os.SEEK_HOLE)]


@pytest.mark.case(
    "PSX-SYMLINK-AS-GIVEN",
    section="POSIX.1-2024 symlink(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-SYMLINK-CONTENT"),
    kills=("symlink-dot-slash-stripped", "symlink-percent-decoded"),
)
def test_contents_of_a_link_are_what_it_was_given(client_dir):
    """The string is not validated as a pathname: it is returned byte by byte, and followed as it is."""
    make_file(client_dir / "f", b"data")
    texts = (
        "./f", "././f", "f/.", "f/..", ".", "..", "...", "/", "//", "//f", "///x", "./", "../", "x/../f",
        "x//", " f", "f ", "\tf", "f\n", "F", "%66", "f%20", "f;1", "f:s", "f?", "*", "\\f", "C:\\f", "~/f",
        "$HOME", "-f", "'f'", "\u00e4", "a\u0308", "\x01\x7f",
    )  # fmt: skip
    for number, text in enumerate(texts):
        path = client_dir / f"l{number}"
        symbolic_link(text, path)
        found = os.readlink(path)
        assert found == text, f"a link that was given {text!r} has {found!r}"
        assert os.lstat(path).st_size == len(os.fsencode(text)), f"st_size of a link to {text!r}"
    for number in (0, 1):
        assert (client_dir / f"l{number}").read_bytes() == b"data", f"by the link to {texts[number]!r}"


TEXTS = (
    b"\xef\xbb\xbftext\n", b"\xff\xfet\0e\0x\0t\0", b"\xfe\xff\0t\0e", b"text\n\n\n", b"text\r\n\r\n",
    b"text\r", b"\n", b"text  \n\t\n", b"\ttext", b"one\x1atwo\x1a\x1a", b"\x04", b"\x1b[0m", b"one\0two",
    b"\0\0one", b"one\0\0", b"\x7f\x80\xff", b"\xc3\xa4 a\xcc\x88 \xe4", b"\xff" * 600, b" " * 600,
    b"\n" * 600, b"%s%n%00", b"#!/bin/sh\n", b"\x7fELF", b"PK\x03\x04", b"\x1f\x8b\x08", b"MZ",
    b"x" * 511 + b"\n", b"x" * 4095 + b"\0",
)  # fmt: skip
"""Contents of which some programs take parts for something else than data (chosen)."""


@pytest.mark.case(
    "PSX-DATA-TEXTS",
    section="POSIX.1-2024 read(): DESCRIPTION; write(): DESCRIPTION",
    kills=("byte-order-mark-zeroed", "second-newline-is-a-space"),
)
def test_bytes_of_a_file_have_no_meaning(client_dir):
    """Data are returned as they were written, whatever the bytes are: marks, ends of lines and of texts."""
    for number, text in enumerate(TEXTS):
        path = make_file(client_dir / f"f{number}", text)
        assert path.read_bytes() == text, f"{text[:20]!r} that was written to a new file"
        assert os.stat(path).st_size == len(text), f"the size of a file with {text[:20]!r}"
        with open_fd(path) as descriptor:
            os.pwrite(descriptor, text, len(text))
            os.pwrite(descriptor, text, 3 * len(text))
        wanted = text * 2 + bytes(len(text)) + text
        assert path.read_bytes() == wanted, f"{text[:20]!r} that was added to a file, twice"


@pytest.mark.case(
    "PSX-OWNER-STATUS",
    section="POSIX.1-2024 chmod(), chown(), utimensat(), link(): ERRORS, EPERM",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-CHOWN-EPERM-GROUP", "PSX-CHMOD-OWNER"),
    kills=(
        "user-sets-no-sticky-bit", "user-sets-no-directory-times", "user-gives-directory-no-group",
        "user-links-no-read-only-file",
    ),
)  # fmt: skip
def test_unprivileged_owner_changes_the_status_of_his_files(client_dir):
    """Ownership is enough for mode, times, links and a group of one's own: of files and of directories."""
    os.chmod(client_dir, 0o777)
    team = USER + 1
    with run_as_user(USER, USER, team):
        path, tree = make_file(client_dir / "f", b"data", 0o444), client_dir / "d"
        tree.mkdir()
        calls = {
            "utimensat() of a file": lambda: os.utime(path, (1000, 2000)),
            "utimensat() of a directory": lambda: os.utime(tree, (1000, 2000)),
            "chown() of a file to a group of the process": lambda: os.chown(path, -1, team),
            "chown() of a directory to a group of the process": lambda: os.chown(tree, -1, team),
            "chmod() of a directory to 1770": lambda: os.chmod(tree, 0o1770),
            "link() of a file of mode 0444": lambda: hard_link(path, client_dir / "second"),
        }
        for what, call in calls.items():
            try:
                call()
            except OSError as error:
                raise AssertionError(f"{what} is refused to its owner: {error.strerror}") from None
    file, directory = os.stat(path), os.stat(tree)
    assert (file.st_gid, directory.st_gid) == (team, team), "the group that the owner gave them"
    assert directory.st_mode & 0o7777 == 0o1770, "the mode that the owner gave a directory"
    assert (file.st_mtime, directory.st_mtime) == (2000, 2000), "mtime that the owner set"
    assert file.st_nlink == os.stat(client_dir / "second").st_nlink


@pytest.mark.case(
    "PSX-READLINK-OTHERS",
    section="symlink(7): Symbolic link ownership, permissions, and timestamps",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-SYMLINK-CONTENT"),
    kills=("readlink-by-owner-only",),
)
def test_link_of_another_user_is_read(client_dir):
    """The permissions of a symbolic link are not used in any operation: who finds it reads its contents."""
    symbolic_link("contents", client_dir / "l")
    with run_as_user(USER, USER):
        try:
            found = os.readlink(client_dir / "l")
        except OSError as error:
            raise AssertionError(f"readlink() of another user's link: {error.strerror}") from None
    assert found == "contents"


@pytest.mark.needs("locks")
@pytest.mark.case(
    "PSX-LOCK-USER",
    section="POSIX.1-2024 fcntl(): DESCRIPTION, F_SETLK; flock(2): DESCRIPTION",
    kills=("lock-by-root-only",),
)
def test_user_without_privilege_locks_files(client_dir):
    """A lock needs an open descriptor and no privilege: of one's own file, and of another user's."""
    os.chmod(client_dir, 0o777)
    make_file(client_dir / "others", b"data")
    os.chmod(client_dir / "others", 0o666)
    with run_as_user(USER, USER):
        for path in (make_file(client_dir / "own", b"data"), client_dir / "others"):
            with open_fd(path) as descriptor:
                try:
                    for kind in (fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN):
                        fcntl.lockf(descriptor, kind | (fcntl.LOCK_NB if kind != fcntl.LOCK_UN else 0))
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
                except OSError as error:
                    raise AssertionError(f"a user cannot lock {path.name}: {error.strerror}") from None
