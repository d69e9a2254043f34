"""File handles, by which servers and backups open a file: each is of its file, as long as that exists."""

from __future__ import annotations

import errno
import os
import time

import pytest

from storagetest.agent.testlib import assert_errno, skip
from storagetest.agent.testlib.libc import file_handle, open_by_handle
from storagetest.agent.testlib.tmpfiles import hard_link, make_file, open_fd

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST", builds_on=("PSX-DATA-NEW-FILE",), section="open_by_handle_at(2): DESCRIPTION"
    ),
]

FILES = 40
"""Files whose handles are kept (chosen)."""
ROUNDS = 12
"""Files of one name, one after the other (chosen)."""
TRIES, PAUSE = 20, 0.05
"""How often a handle is tried if the client has no memory, and the seconds between two tries (chosen)."""


def open_kept(directory, handle, flags):
    """Open the file of a handle; skip the case if the handle of a file that exists is of none now.

    A file system may know a file by its handle only as long as it has it in memory (FUSE without
    FUSE_EXPORT_SUPPORT).
    """
    try:
        return open_by_handle(directory, handle, flags)
    except OSError as error:
        if error.errno == errno.ESTALE:
            skip("the handle of a file that exists is stale: the file system does not keep handles")
        raise


def content_by_handle(place, handle):
    """Return number and content of the file of a handle."""
    with open_fd(place, os.O_RDONLY | os.O_DIRECTORY) as directory:
        descriptor = open_kept(directory, handle, os.O_RDONLY)
        try:
            return os.fstat(descriptor).st_ino, os.read(descriptor, 1000)
        finally:
            os.close(descriptor)


def assert_stale(place, handle, what):
    """Assert that the handle of a file that is gone opens none.

    Linux has ENOMEM while another process makes a file of the same number (ext4: iget_locked() has found one
    that is being created), so that is tried again.
    """
    with open_fd(place, os.O_RDONLY | os.O_DIRECTORY) as directory:
        for _ in range(TRIES):
            try:
                descriptor = open_by_handle(directory, handle, os.O_RDONLY)
            except OSError as error:
                if error.errno == errno.ENOMEM:
                    time.sleep(PAUSE)
                    continue
                assert error.errno == errno.ESTALE, f"{what}: {error.strerror}, and it has to be ESTALE"
                return
            try:
                found = os.fstat(descriptor)
            finally:
                os.close(descriptor)
            raise AssertionError(f"{what}: it opens inode {found.st_ino} of {found.st_nlink} links")
    skip(f"{what}: the client has no memory for it in {TRIES} tries")


@pytest.mark.server_inodes
@pytest.mark.case("PSX-HANDLE-NAMES", kills=("linked-name-is-a-copy",))
def test_handle_by_each_name_is_of_the_file(client_dir):
    """The handle refers to the file: whichever of its names it was asked for."""
    path = make_file(client_dir / "f", b"the file")
    hard_link(path, client_dir / "other")
    make_file(client_dir / "stranger", b"another file")
    number = os.stat(path).st_ino
    for name in ("f", "other"):
        found = content_by_handle(client_dir, file_handle(client_dir / name))
        assert found == (number, b"the file"), f"the handle of {name!r} opens {found}"
    assert content_by_handle(client_dir, file_handle(client_dir / "stranger"))[1] == b"another file"


@pytest.mark.server_inodes
@pytest.mark.case("PSX-HANDLE-RENAMED", kills=("moved-file-has-another-number",))
def test_handle_is_of_the_file_whatever_it_is_called(client_dir):
    """The handle is of the file after a rename, a move, a write, and when its old name is another file's."""
    (client_dir / "d").mkdir()
    path = make_file(client_dir / "f", b"first")
    handle, number = file_handle(path), os.stat(path).st_ino
    assert content_by_handle(client_dir, handle) == (number, b"first"), "before any change"
    os.rename(path, client_dir / "renamed")
    assert content_by_handle(client_dir, handle) == (number, b"first"), "after a rename"
    os.rename(client_dir / "renamed", client_dir / "d" / "moved")
    assert content_by_handle(client_dir, handle) == (number, b"first"), "after a move"
    make_file(path, b"other")
    assert content_by_handle(client_dir, handle) == (number, b"first"), "with another file of its old name"
    (client_dir / "d" / "moved").write_bytes(b"second")
    assert content_by_handle(client_dir, handle) == (number, b"second"), "after a write"
    os.rename(client_dir / "d", client_dir / "e")
    assert content_by_handle(client_dir, handle) == (number, b"second"), "after a rename of its directory"


@pytest.mark.case(section="open_by_handle_at(2): ERRORS", builds_on=("PSX-DATA-NEW-FILE", "PSX-HANDLE-NAMES"))
@pytest.mark.parametrize(
    "way",
    [
        pytest.param(
            way,
            id=way.lower(),
            marks=pytest.mark.case(f"PSX-HANDLE-{way}", kills=("node-number-used-again",)),
        )
        for way in ("REMOVED", "REPLACED", "DIRECTORY")
    ],
)
def test_handle_of_a_file_that_is_gone_is_stale(client_dir, way):
    """[ESTALE] The file has been deleted: its handle is of no other one, whatever is made in its place."""
    path = client_dir / "f"
    handles = []
    for number in range(ROUNDS):
        if way == "DIRECTORY":
            path.mkdir()
        else:
            make_file(path, b"%d" % number)
        handles.append(file_handle(path))
        if way == "REPLACED":
            os.rename(make_file(client_dir / "new", b"new %d" % number), path)
        for age, handle in enumerate(handles[:-1]):
            assert_stale(client_dir, handle, f"handle {age + 1} of {number + 1}, of a file that is gone")
        (os.rmdir if way == "DIRECTORY" else os.unlink)(path)
        assert_stale(client_dir, handles[-1], f"handle {number + 1}, after the file was {way.lower()}")


@pytest.mark.server_inodes
@pytest.mark.case(
    "PSX-HANDLE-MANY", builds_on=("PSX-DATA-NEW-FILE", "PSX-HANDLE-NAMES"), kills=("node-number-used-again",)
)
def test_each_of_many_handles_is_of_its_file(client_dir):
    """Each handle is of its file when half of the files are gone and as many new ones are there."""
    paths = [make_file(client_dir / f"f{number}", b"first %d" % number) for number in range(FILES)]
    handles = [file_handle(path) for path in paths]
    for number in range(0, FILES, 2):
        os.unlink(paths[number])
    for number in range(0, FILES, 2):
        make_file(client_dir / f"new{number}", b"second %d" % number)
    for number in reversed(range(FILES)):
        if number % 2:
            found = content_by_handle(client_dir, handles[number])
            assert found == (os.stat(paths[number]).st_ino, b"first %d" % number), f"handle {number}: {found}"
        else:
            assert_stale(client_dir, handles[number], f"handle {number}, of a file that is gone")


@pytest.mark.case("PSX-HANDLE-OPEN-DIRECTORY", kills=("renamed-directory-refuses",))
def test_handle_of_a_directory_is_of_the_directory(client_dir):
    """A directory is opened by its handle, wherever it was moved: it has its entries, and takes new ones."""
    place = client_dir / "d"
    place.mkdir()
    (client_dir / "other").mkdir()
    make_file(place / "first")
    handle = file_handle(place)
    for name, entries in (("moved", ["first"]), ("again", ["first", "in-moved"])):
        os.rename(place, client_dir / "other" / name)
        place = client_dir / "other" / name
        with open_fd(client_dir, os.O_RDONLY | os.O_DIRECTORY) as directory:
            descriptor = open_kept(directory, handle, os.O_RDONLY | os.O_DIRECTORY)
        try:
            assert sorted(os.listdir(descriptor)) == entries, f"the entries of the directory as {name!r}"
            os.close(os.open(f"in-{name}", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=descriptor))
        finally:
            os.close(descriptor)
        assert (place / f"in-{name}").exists(), (
            f"what was made in the directory of the handle is not in {name!r}"
        )


@pytest.mark.case("PSX-HANDLE-FLAGS", kills=("write-not-done",))
def test_file_that_was_opened_by_handle_is_read_and_written(client_dir):
    """The descriptor is as one of open(): read, written and truncated as its flags have it."""
    path = make_file(client_dir / "f", b"0123456789")
    handle = file_handle(path)
    assert content_by_handle(client_dir, handle)[1] == b"0123456789"
    with open_fd(client_dir, os.O_RDONLY | os.O_DIRECTORY) as directory:
        descriptor = open_by_handle(directory, handle, os.O_RDWR)
        try:
            os.pwrite(descriptor, b"xy", 4)
            assert os.pread(descriptor, 100, 0) == b"0123xy6789"
            os.ftruncate(descriptor, 6)
        finally:
            os.close(descriptor)
        assert path.read_bytes() == b"0123xy"
        descriptor = open_by_handle(directory, handle, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, b"end")
            assert_errno(errno.EBADF, os.pread, descriptor, 1, 0)
        finally:
            os.close(descriptor)
    assert path.read_bytes() == b"0123xyend"
