"""Unlink of an open file: the name is removed, descriptors stay valid, the last close frees the file.

Sources: POSIX.1-2024 unlink() ("If one or more references to the file are open when the last link is
removed, the link shall be removed before unlink() returns, but the removal of the file contents shall be
postponed until all references are closed"); RFC 1813 3.3.12, IMPLEMENTATION, and RFC 7530 16.26 (clients
rename such a file, to ``.nfs…``, and remove it at the last close); RFC 8881 18.16.3
(OPEN4_RESULT_PRESERVE_UNLINKED); MS-FSA 2.1.5.5 (delete on close).
"""

from __future__ import annotations

from errno import EOPNOTSUPP, EPERM
from os import O_CREAT, O_EXCL, O_RDWR

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="POSIX.1-2024 unlink(); RFC 1813 3.3.12", level="MUST"),
]

DATA = b"still here" * 1000


@pytest.mark.case("SHR-UNLINK-01", kills=("unlinked-open-stale", "unlinked-writes-lost"))
def test_unlinked_open_file_can_be_read_and_written(a, b, crossed_wire):
    a.write_file("f", DATA)
    fd = a.open("f", O_RDWR)
    with crossed_wire(a, "change"):
        a.unlink("f")
    a.evict(fd)
    with crossed_wire(a, "read"):
        assert a.pread(fd, len(DATA)) == DATA
    a.pwrite(fd, b"written")
    a.fsync(fd)
    a.evict(fd)
    assert a.pread(fd, 7) == b"written"
    with pytest.raises(FileNotFoundError):
        b.open("f")


@pytest.mark.case("SHR-UNLINK-02", kills=("unlink-not-done",))
def test_directory_is_empty_after_the_last_close(a, b, crossed_wire, eventually):
    a.write_file("f", DATA)
    fd = a.open("f", O_RDWR)
    with crossed_wire(a, "change"):
        a.unlink("f")
    with crossed_wire(a, "query"):
        a.close(fd)
        assert a.listdir() == []
    eventually(lambda: b.listdir() == [], "the directory is empty after the last close")


@pytest.mark.case("SHR-UNLINK-03", kills=("unlink-not-done",))
def test_directory_is_empty_after_the_exit_of_the_process(a, b, crossed_wire, eventually):
    a.write_file("f", DATA)
    a.open("f", O_RDWR)
    with crossed_wire(a, "change"):
        a.unlink("f")
    a.kill_worker()
    with crossed_wire(b, "list"):
        eventually(lambda: b.listdir() == [], "the directory is empty after the exit of its only user")


@pytest.mark.case("SHR-UNLINK-04", kills=("unlinked-open-stale", "two-handle-by-path"))
def test_new_file_of_the_name_is_a_different_file(a, b, crossed_wire):
    """The open descriptor reads the old data, an open of the name the new data."""
    a.write_file("f", DATA)
    fd = a.open("f", O_RDWR)
    with crossed_wire(a, "change"):
        a.unlink("f")
        a.close(a.open("f", O_CREAT | O_EXCL | O_RDWR))
    with crossed_wire(b, "write"):
        b.write_file("f", b"the new one")
    a.evict(fd)
    assert a.pread(fd, len(DATA)) == DATA
    assert a.read_file("f") == b"the new one"


@pytest.mark.case("SHR-UNLINK-05", section="POSIX.1-2024 rename()", kills=("rename-copies-into-place",))
def test_replaced_open_file_can_be_read(a, b, crossed_wire):
    a.write_file("f", DATA)
    a.write_file("new", b"the new one")
    fd = a.open("f", O_RDWR)
    with crossed_wire(a, "change"):
        a.rename("new", "f")
    a.evict(fd)
    assert a.pread(fd, len(DATA)) == DATA
    with crossed_wire(b, "query"):
        assert b.read_file("f") == b"the new one"


@pytest.mark.case(
    "SHR-UNLINK-06", level="MAY", section="RFC 8881 18.16.3; RFC 1813 4.10; MS-FSA 2.1.5.5", kills=()
)
def test_open_file_unlinked_by_the_other_client_may_be_lost(a, b, crossed_wire, observe):
    a.write_file("f", DATA)
    fd = a.open("f", O_RDWR)
    try:
        with crossed_wire(b, "change"):
            b.unlink("f")
    except OSError:
        observe("a file that another client has open cannot be unlinked")
        assert a.read_file("f") == DATA
        return
    a.evict(fd)
    try:
        data = a.pread(fd, len(DATA))
    except OSError:
        observe("an open file that another client unlinked is lost (ESTALE)")
    else:
        assert data == DATA
        observe("an open file that another client unlinked can still be read")


@pytest.mark.case("SHR-UNLINK-07", level="MAY", section="RFC 1813 3.3.12, IMPLEMENTATION", kills=())
def test_directory_of_an_open_unlinked_file_may_be_nonempty(a, b, crossed_wire, observe):
    a.mkdir("d")
    a.write_file("d/f", DATA)
    a.open("d/f", O_RDWR)
    with crossed_wire(a, "change"):
        a.unlink("d/f")
    try:
        b.rmdir("d")
    except OSError:
        observe("the directory of an open unlinked file cannot be removed")
    else:
        observe("the directory of an open unlinked file can be removed")


@pytest.mark.case("SHR-UNLINK-08", kills=("unlink-not-done",))
def test_name_of_an_unlinked_open_file_is_not_listed(a, b, crossed_wire):
    a.write_file("f", DATA)
    a.open("f", O_RDWR)
    with crossed_wire(a, "change"):
        a.unlink("f")
    with crossed_wire(b, "list"):
        assert "f" not in b.listdir(), "a name that was unlinked is listed"


@pytest.mark.case("SHR-UNLINK-09", kills=("two-unlink-frees-linked",))
def test_file_that_the_other_client_has_linked_stays(a, b, crossed_wire):
    """unlink() removes one name: a file that another client has given a second one keeps its data."""
    a.write_file("f", DATA)
    assert b.stat("f").size == len(DATA)
    try:
        with crossed_wire(a, "change"):
            a.link("f", "g")
    except OSError as error:
        if error.errno not in (EOPNOTSUPP, EPERM):
            raise
        pytest.skip(f"there are no hard links here: {error}")
    with crossed_wire(b, "change"):
        b.unlink("f")
    for session in (a, b):
        assert session.read_file("g") == DATA, "the data of a file that has one of two names left"
