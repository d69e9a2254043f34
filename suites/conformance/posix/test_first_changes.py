"""The first change of a file after it was made or opened: it stays the same file, with all that it has."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from storagetest.agent.testlib import record_observation
from storagetest.agent.testlib.byte_model import first_difference
from storagetest.agent.testlib.tmpfiles import (
    fifo,
    hard_link,
    make_file,
    open_fd,
    pattern_bytes,
    symbolic_link,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

USER, TEAM = 54321, 54400
PAGE = 4096


def appended(path) -> None:
    with open_fd(path, os.O_WRONLY | os.O_APPEND) as descriptor:
        os.write(descriptor, b"appended")


def with_an_attribute(path) -> None:
    try:
        os.setxattr(path, "user.x", b"1")
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise


def given_away(path, call) -> None:
    """Change owner and group; a file system may store none, or none of a symbolic link."""
    try:
        call(path, USER, TEAM)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EPERM):
            raise


def opened_and_closed(path) -> None:
    with open_fd(path, os.O_RDWR):
        pass


FIRST = {
    "a first write": appended,
    "truncate() to more": lambda path: os.truncate(path, 10_000),
    "O_TRUNC": lambda path: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)),
    "an open for writing": opened_and_closed,
    "chmod()": lambda path: os.chmod(path, 0o640),
    "chown()": lambda path: given_away(path, os.chown),
    "utimensat()": lambda path: os.utime(path, (1_000_000_000, 1_000_000_000)),
    "setxattr()": with_an_attribute,
    "link()": lambda path: hard_link(path, path.with_name("another")),
    "rename() to and fro": lambda path: (
        os.rename(path, path.with_name("moved")),
        os.rename(path.with_name("moved"), path),
    ),
}
OF_FILES = ("a first write", "truncate() to more", "O_TRUNC", "an open for writing", "setxattr()")
"""What is not done to directories, links and FIFOs."""


@pytest.mark.server_inodes("*has the number *")
@pytest.mark.case(
    "PSX-INODE-FIRST-CHANGE",
    section="POSIX.1-2024 <sys/stat.h>: st_ino",
    kills=("inode-changes-with-first-write", "inode-of-directory-changes-with-chmod"),
)
def test_first_change_of_a_file_leaves_its_number(client_dir):
    """st_dev and st_ino identify the file: they are the same before its first change, during and after it.

    Of a file, a directory, a symbolic link and a FIFO; by name and by an open descriptor.
    """
    makers = {
        "file": make_file,
        "directory": os.mkdir,
        "link": lambda path: symbolic_link("target", path),
        "fifo": fifo,
    }
    for kind in ("file", "directory"):
        for number, (text, change) in enumerate(FIRST.items()):
            if kind == "directory" and text in (*OF_FILES, "link()"):
                continue
            _compare_numbers(client_dir / f"{kind}{number}", makers[kind], text, change)
    _compare_numbers(client_dir / "filled", os.mkdir, "a first entry", lambda path: make_file(path / "entry"))
    for kind in ("fifo", "link"):
        _compare_numbers(
            client_dir / kind, makers[kind], "lchown()", lambda path: given_away(path, os.lchown), opens=False
        )


def _compare_numbers(parent, make, text, change, *, opens=True) -> None:
    """Make a file in a new directory and change it; compare its number with that before."""
    parent.mkdir()
    path = parent / "f"
    make(path)
    before = os.lstat(path)
    descriptor = os.open(path, os.O_RDONLY) if opens else None
    try:
        change(path)
        found = {"lstat()": os.lstat(path)}
        if descriptor is not None:
            found["fstat() of a descriptor from before"] = os.fstat(descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)
    kind = stat.S_IFMT(before.st_mode)
    for call, after in found.items():
        assert stat.S_IFMT(after.st_mode) == kind
        assert (after.st_dev, after.st_ino) == (before.st_dev, before.st_ino), (
            f"after {text} {parent.name} has the number {after.st_ino} on {after.st_dev:#x} by {call}; "
            f"required: {before.st_ino} on {before.st_dev:#x}, as when it was made"
        )


@pytest.mark.case(
    "PSX-WRITE-BEHIND-END-FIRST",
    section="POSIX.1-2024 write(), lseek(): DESCRIPTION",
    kills=("first-write-behind-end-clears-page", "write-behind-end-keeps-gap"),
)
def test_first_write_behind_the_end_leaves_the_data_before_it(client_dir):
    """A closed file is opened, and its first write is behind its end: its data stay, the gap reads as zeroes.

    In the same page or block as the end, in the next one, and farther away.
    """
    for flags, access in ((os.O_WRONLY, "O_WRONLY"), (os.O_RDWR, "O_RDWR")):
        for size in (1, 60, 700, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 500, 20 * PAGE + 9):
            for gap in (1, 9, 500, PAGE - 3, PAGE, 2 * PAGE + 1, 33 * PAGE):
                path = make_file(client_dir / "f", pattern_bytes(size))
                with open_fd(path, flags) as descriptor:
                    os.pwrite(descriptor, b"behind", size + gap)
                wanted = pattern_bytes(size) + bytes(gap) + b"behind"
                wrong = first_difference(path.read_bytes(), wanted)
                assert not wrong, (
                    f"a file of {size} bytes, opened with {access} and first written {gap} bytes behind its "
                    f"end, has {wrong}"
                )
                os.unlink(path)


@pytest.mark.server_inodes("*st_ino*")
@pytest.mark.case(
    "PSX-OPEN-CREAT-EXISTING",
    section="POSIX.1-2024 open(): O_CREAT, O_TRUNC",
    kills=("creat-sets-mode-of-existing", "creat-sets-owner-of-existing"),
)
def test_o_creat_of_an_existing_file_leaves_its_attributes(client_dir):
    """If the file exists, O_CREAT has no effect: mode and owner stay, with O_TRUNC too, whatever the mode."""
    os.umask(0)
    path = make_file(client_dir / "f", b"content")
    os.chown(path, USER, TEAM)
    for mode in (0o600, 0o640, 0o755, 0o4711, 0o400):
        os.chmod(path, mode)
        before = os.stat(path)
        for flags, text in (
            (os.O_CREAT | os.O_RDWR, "O_CREAT"),
            (os.O_CREAT | os.O_WRONLY | os.O_APPEND, "O_CREAT and O_APPEND"),
            (os.O_CREAT | os.O_WRONLY | os.O_TRUNC, "O_CREAT and O_TRUNC"),
        ):
            for asked in (0, 0o644, 0o777, 0o7777):
                os.close(os.open(path, flags, asked))
                after = os.stat(path)
                for name in ("st_ino", "st_uid", "st_gid", "st_nlink", "st_mode"):
                    found, wanted = getattr(after, name), getattr(before, name)
                    if name == "st_mode" and flags & os.O_TRUNC:
                        found, wanted = found & ~0o6000, wanted & ~0o6000  # O_TRUNC may clear these bits
                    shown = "{:#o}" if name == "st_mode" else "{}"
                    assert found == wanted, (
                        f"open() with {text} and mode {asked:o} of an existing file changes {name} from "
                        f"{shown.format(wanted)} to {shown.format(found)}; required: O_CREAT has no effect"
                    )


@pytest.mark.case(
    "PSX-RESIZE-REFUSED",
    section="POSIX.1-2024 truncate(), write(): ERRORS [EFBIG]",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-TRUNCATE-EFBIG"),
    kills=("refused-truncate-empties", "refused-write-extends"),
)
def test_size_that_is_refused_leaves_the_file(client_dir):
    """[EFBIG] A size or an offset that no file can have: size and data are as before the call.

    A file system with files that large may take it; the file is then cut again.
    """
    content = pattern_bytes(2 * PAGE + 100)
    path = make_file(client_dir / "f", content)
    taken = 0
    with open_fd(path) as descriptor:
        calls = {
            "truncate()": lambda size: os.truncate(path, size),
            "ftruncate()": lambda size: os.ftruncate(descriptor, size),
            "pwrite()": lambda size: os.pwrite(descriptor, b"x", size - 1),
        }
        for size in ((1 << 63) - 1, (1 << 63) - PAGE, 1 << 62, (1 << 60) + 1):
            for text, call in calls.items():
                try:
                    call(size)
                except OSError as error:
                    assert error.errno in (errno.EFBIG, errno.EINVAL, errno.ENOSPC, errno.EDQUOT), (
                        f"{text} of {size} bytes: {error.strerror}; required: EFBIG or EINVAL"
                    )
                else:
                    taken += 1
                    os.ftruncate(descriptor, len(content))
                    continue
                left = os.stat(path).st_size
                assert left == len(content), (
                    f"{text} of {size} bytes is refused, and the file has {left} bytes; required: "
                    f"{len(content)}, as before"
                )
                wrong = first_difference(path.read_bytes(), content)
                assert not wrong, f"{text} of {size} bytes is refused, and the file has {wrong}"
    if taken:
        record_observation(f"{taken} of 12 sizes from 2^60 bytes on are taken")
