"""RENAME_EXCHANGE of files of each type: each name has all of the other file (rename(2))."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from storagetest.agent.testlib import skip
from storagetest.agent.testlib.libc import RENAME_EXCHANGE, renameat2
from storagetest.agent.testlib.outcomes import CannotRun
from storagetest.agent.testlib.tmpfiles import fifo, make_file, symbolic_link

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST",
        builds_on=("PSX-DATA-NEW-FILE", "PSX-RENAME-EXCHANGE"),
        section="rename(2): RENAME_EXCHANGE",
    ),
]


def make_directory(path):
    path.mkdir()
    make_file(path / "inside", b"inside")


MAKERS = {
    "file": lambda path: make_file(path, b"content"),
    "directory": make_directory,
    "link": lambda path: symbolic_link("absent", path),
    "fifo": fifo,
}


@pytest.mark.server_inodes
@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(*pair, id="-".join(pair), marks=pytest.mark.case(f"PSX-EXCHANGE-{name}", kills=kills))
        for name, pair, kills in (
            ("FILE-DIRECTORY", ("file", "directory"), ("exchange-types-by-name",)),
            ("FILE-LINK", ("file", "link"), ("exchange-of-link-refused", "exchange-types-by-name")),
            ("DIRECTORY-LINK", ("directory", "link"), ("exchange-of-link-refused",)),
            ("DIRECTORY-FIFO", ("directory", "fifo"), ("exchange-types-by-name",)),
        )
    ],
)
def test_names_of_files_of_two_types_are_exchanged(client_dir, first, second):
    """Both paths may be of different types. In one directory and in two, each name has the other file."""
    for directory in ("probes", "one", "two"):
        (client_dir / directory).mkdir()
    renameat2(make_file(client_dir / "x"), make_file(client_dir / "y"), RENAME_EXCHANGE)
    if is_lacking(second, client_dir / "probes"):
        skip(f"the file system has no {second}")
    for old, new in (("one/a", "one/b"), ("one/c", "two/c")):
        paths = client_dir / old, client_dir / new
        MAKERS[first](paths[0])
        MAKERS[second](paths[1])
        before = [os.lstat(path) for path in paths]
        for path in paths:
            assert path.name in os.listdir(path.parent)
        exchange(*paths)
        compare(paths[0], before[1], second)
        compare(paths[1], before[0], first)


def is_lacking(kind, directory):
    """Whether the file system has no files of this type."""
    try:
        MAKERS[kind](directory / "probe")
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM):
            return True
        raise
    return False


def exchange(old, new):
    """Exchange two names. EINVAL is a fault of the target, because two files were exchanged before."""
    try:
        renameat2(old, new, RENAME_EXCHANGE)
    except CannotRun:
        raise AssertionError(f"two files are exchanged, and {old.name} with {new.name} is EINVAL") from None


def compare(path, was, kind):
    """Compare what has the name with the file that it has to be: stat(), readdir() and content."""
    found = os.lstat(path)
    assert (found.st_ino, stat.S_IFMT(found.st_mode)) == (was.st_ino, stat.S_IFMT(was.st_mode))
    with os.scandir(path.parent) as entries:
        (entry,) = (entry for entry in entries if entry.name == path.name)
    listed = entry.is_symlink(), entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False)
    assert listed == (kind == "link", kind == "directory", kind == "file"), f"d_type of {path.name}, a {kind}"
    if kind == "file":
        assert path.read_bytes() == b"content"
    elif kind == "link":
        assert os.readlink(path) == "absent"
    elif kind == "directory":
        assert os.listdir(path) == ["inside"]


@pytest.mark.case(
    "PSX-EXCHANGE-ATTRIBUTES",
    section="rename(2): RENAME_EXCHANGE; xattr(7): DESCRIPTION",
    kills=("exchange-attributes-stay",),
)
def test_attributes_are_exchanged_with_the_names(client_dir):
    """Mode and extended attributes are of the file: each name has those of the other file."""
    paths = make_file(client_dir / "a", b"a", 0o640), make_file(client_dir / "b", b"b", 0o604)
    try:
        for path in paths:
            os.setxattr(path, f"user.of-{path.name}", path.name.encode())
            os.setxattr(path, "user.both", path.name.encode())
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            skip("this file system has no user.* attributes, or they are disabled (setxattr(2), ENOTSUP)")
        raise
    renameat2(*paths, RENAME_EXCHANGE)
    for path, other in (paths, paths[::-1]):
        assert path.read_bytes() == other.name.encode()
        names = sorted(name for name in os.listxattr(path) if name.startswith("user."))
        assert names == ["user.both", f"user.of-{other.name}"], f"attributes of {path.name}: {names}"
        assert os.getxattr(path, "user.both") == other.name.encode()
