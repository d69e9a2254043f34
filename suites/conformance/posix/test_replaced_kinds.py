"""rename() of a file of each kind over a file of each kind: what is replaced, and what is refused."""

from __future__ import annotations

import errno
import os
import socket
import stat

import pytest

from storagetest.agent.testlib import CannotRun, record_observation
from storagetest.agent.testlib.tmpfiles import bind_socket, fifo, make_file, symbolic_link

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.server_inodes,
    pytest.mark.case(
        level="MUST",
        builds_on=("PSX-DATA-NEW-FILE", "PSX-RENAME-REPLACE"),
        section="POSIX.1-2024 rename(): DESCRIPTION",
    ),
]

DIRECTORY, FULL = "an empty directory", "a directory with an entry"
DIRECTORIES = (DIRECTORY, FULL)


def make_full(path):
    path.mkdir()
    make_file(path / "entry")


def make_socket(path):
    """Bind a socket, by a path that is short enough."""
    place = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as one:
            bind_socket(one, f"/proc/self/fd/{place}/{path.name}")
    finally:
        os.close(place)


MAKERS = {
    "a file": lambda path: make_file(path, b"data"),
    "an empty file": make_file,
    DIRECTORY: lambda path: path.mkdir(),
    FULL: make_full,
    "a link to a file": lambda path: symbolic_link("../kept", path),
    "a link to a directory": lambda path: symbolic_link("../kept-directory", path),
    "a dangling link": lambda path: symbolic_link("absent", path),
    "a FIFO": fifo,
    "a socket": make_socket,
}


def make(kind, path):
    """Make a file of a kind. CannotRun if the file system has none: also by EINVAL, as FAT refuses FIFOs."""
    try:
        MAKERS[kind](path)
    except OSError as error:
        if error.errno == errno.EINVAL and kind in ("a FIFO", "a socket"):
            raise CannotRun(f"the file system has no file that is {kind}") from None
        raise


def status(path):
    one = os.lstat(path)
    return one.st_ino, stat.S_IFMT(one.st_mode), one.st_size if stat.S_ISREG(one.st_mode) else 0


def kind_listed(path):
    """Return the type that the directory lists of a name (d_type), as stat's constants; 0 if unknown."""
    with os.scandir(path.parent) as entries:
        for entry in entries:
            if entry.name == path.name:
                known = (
                    (entry.is_symlink(), stat.S_IFLNK),
                    (entry.is_dir(follow_symlinks=False), stat.S_IFDIR),
                    (entry.is_file(follow_symlinks=False), stat.S_IFREG),
                )
                return next((kind for found, kind in known if found), 0)
    raise AssertionError(f"{path.name} is not listed after rename(); required: the new name exists")


def can_replace(old, new):
    """Return None if rename() has to succeed, and otherwise the errors that it may have."""
    if old in DIRECTORIES and new in DIRECTORIES:
        return None if new == DIRECTORY else (errno.EEXIST, errno.ENOTEMPTY)
    if old in DIRECTORIES:
        return (errno.ENOTDIR,)
    if new in DIRECTORIES:
        return (errno.EISDIR,) if new == DIRECTORY else (errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY)
    return None


@pytest.mark.parametrize(
    "old",
    [
        pytest.param(
            kind, id=kind.replace(" ", "-"), marks=pytest.mark.case(f"PSX-REPLACES-{name}", kills=kills)
        )
        for name, kind, kills in (
            ("FILE", "a file", ("rename-over-fifo-refused", "rename-over-link-to-directory-refused")),
            ("EMPTY-FILE", "an empty file", ("rename-over-fifo-refused",)),
            ("DIRECTORY", DIRECTORY, ("rename-over-full-directory",)),
            ("FULL-DIRECTORY", FULL, ("rename-over-full-directory",)),
            ("LINK", "a link to a file", ("rename-over-fifo-refused", "rename-of-link-follows")),
            ("LINK-TO-DIRECTORY", "a link to a directory", ("rename-over-link-to-directory-refused",)),
            ("DANGLING-LINK", "a dangling link", ("rename-over-fifo-refused",)),
            ("FIFO", "a FIFO", ("rename-special-over-file-ignored",)),
            ("SOCKET", "a socket", ("rename-special-over-file-ignored",)),
        )
    ],
)
def test_each_kind_replaces_each_other_kind_that_it_may(client_dir, old):
    """What is no directory replaces what is none, whatever both are; a directory an empty directory alone.

    A link is replaced itself, and neither what it leads to nor another name of the replaced file changes.
    """
    (client_dir / "kept-directory").mkdir()
    make_file(client_dir / "kept", b"kept")
    kept = [status(client_dir / name) for name in ("kept", "kept-directory")]
    lacking = set()
    for number, new in enumerate(MAKERS):
        for place in ("same", "other"):
            source = client_dir / f"{number}-{place}"
            sink = source if place == "same" else client_dir / f"{number}-sink"
            for one in {source, sink}:
                one.mkdir()
            make(old, source / "old")
            try:
                make(new, sink / "new")
            except CannotRun as error:
                lacking.add(str(error))
                continue
            _replace(
                source / "old",
                sink / "new",
                f"rename() of {old} over {new} in the {place} directory",
                old,
                new,
            )
            for name, before in zip(("kept", "kept-directory"), kept, strict=True):
                assert status(client_dir / name) == before, (
                    f"rename() of {old} over {new} changes what a link leads to"
                )
    for text in sorted(lacking):
        record_observation(text)


def _replace(source, sink, what, old, new):
    """Rename and assert the result."""
    before, replaced = status(source), status(sink)
    second = sink.with_name("second")
    linked = new not in DIRECTORIES and _linked(sink, second)
    errors = can_replace(old, new)
    try:
        os.rename(source, sink)
    except OSError as error:
        assert errors is not None, (
            f"{what} is refused by {error.strerror}; required: the new name is replaced"
        )
        names = " or ".join(errno.errorcode[one] for one in errors)
        assert error.errno in errors, f"{what} is refused by {error.strerror}; required: {names}"
        assert (status(source), status(sink)) == (before, replaced), (
            f"{what} is refused, and yet changes a file"
        )
        return
    assert errors is None, f"{what} succeeds; required: it is refused (rename(): ERRORS)"
    assert not os.path.lexists(source), f"{what}: the old name still exists"
    found = status(sink)
    assert found == before, (
        f"{what}: the new name is of a file with number, type and size {found}; required: {before}, "
        "the old one"
    )
    listed = kind_listed(sink)
    assert listed in (0, before[1]), (
        f"{what}: the name is listed with the type {listed:#o}, and is {before[1]:#o}"
    )
    if linked:
        one = os.lstat(second)
        assert (one.st_ino, one.st_nlink) == (replaced[0], 1), (
            f"{what}: another name of the replaced file has number {one.st_ino} and {one.st_nlink} "
            f"links; required: {replaced[0]} and 1 link"
        )


def _linked(path, second):
    """Give a file a second name; return whether it has one."""
    try:
        os.link(path, second, follow_symlinks=False)
    except OSError:
        return False  # PSX-LINK-* test whether that is legal
    return True
