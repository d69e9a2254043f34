"""Recalls: a delegation or lease is returned before a conflicting request of another client completes.

Sources: RFC 7530 10.4.4 and RFC 8881 10.4.4 (a delegation is recalled for an OPEN that conflicts, and for
SETATTR, REMOVE and RENAME by another client); MS-SMB2 3.3.4.7 and 3.3.5.9.8 (a lease is broken before
another's open is answered).

The server decides whether it grants a delegation or a lease. A case first reads the file as a server expects
before it grants one; its assertions hold with and without a grant.
"""

from __future__ import annotations

from os import O_CREAT, O_RDWR, O_WRONLY

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="RFC 7530 10.4.4; MS-SMB2 3.3.4.7", level="MUST"),
]


@pytest.fixture
def cached(a):
    """Return a file that only ``a`` has read, several times, and closed."""
    a.write_file("f", b"first")
    for _ in range(3):
        assert a.read_file("f") == b"first"
    return "f"


@pytest.mark.case("SHR-RECALL-01", kills=("open-finds-old-data",))
def test_write_by_the_other_client_invalidates_the_cache(a, b, cached, crossed_wire):
    """The next open reads the new data."""
    with crossed_wire(b, "write"):
        b.write_file(cached, b"later")
    assert a.read_file(cached) == b"later"


@pytest.mark.case("SHR-RECALL-02", kills=("open-finds-the-old-file",))
def test_rename_over_the_file_invalidates_the_cache(a, b, cached, crossed_wire, at_once):
    """The next open reads the file renamed over the name."""
    b.write_file("new", b"later")
    with crossed_wire(b, "change"):
        b.rename("new", cached)
    at_once(lambda: a.read_file(cached) == b"later", "the file that the other client put in its place")


@pytest.mark.case("SHR-RECALL-03", kills=("open-finds-the-old-file",))
def test_removal_invalidates_the_cache(a, b, cached, crossed_wire, at_once):
    """The next open fails with ENOENT."""
    with crossed_wire(b, "change"):
        b.unlink(cached)
    at_once(lambda: not a.can_open(cached), "that the other client removed it")


@pytest.mark.case("SHR-RECALL-04", kills=("open-finds-old-size",))
def test_truncation_invalidates_the_cache(a, b, cached, crossed_wire):
    with crossed_wire(b, "change"):
        b.truncate(cached, 2)
    assert a.read_file(cached) == b"fi"


@pytest.mark.case("SHR-RECALL-05", kills=("attributes-never-expire",))
def test_change_of_times_invalidates_the_cache(a, b, cached, crossed_wire, at_once):
    with crossed_wire(b, "change"):
        b.utime(cached, 10**18, 10**18)
    at_once(lambda: a.fstat(a.open(cached)).mtime_ns == 10**18, "the time that the other client set")


@pytest.mark.case("SHR-RECALL-06", kills=("open-finds-old-data",))
def test_write_invalidates_the_cache_of_an_open_file(a, b, cached, crossed_wire):
    """A second open reads the new data while the first descriptor is open."""
    fd = a.open(cached)
    assert a.pread(fd, 10) == b"first"
    with crossed_wire(b, "write"):
        b.write_file(cached, b"later", O_CREAT)
    assert a.read_file(cached) == b"later"


@pytest.mark.case("SHR-RECALL-07", kills=("close-keeps-data-back",))
def test_data_written_under_a_delegation_are_read_after_the_close(a, b, cached, crossed_wire):
    """A client without a delegation writes at once, and one with it at the close."""
    fd = a.open(cached, O_RDWR)
    with crossed_wire(a, "write"):
        for number in range(5):
            a.pwrite(fd, b"%05d" % number)
        a.close(fd)
        assert b.read_file(cached) == b"00004"


@pytest.mark.case("SHR-RECALL-08", level="MAY", section="RFC 7530 10.4.1; MS-SMB2 3.3.4.7", kills=())
def test_dirty_data_may_be_read_before_the_close(a, b, cached, observe):
    """An open by the other client reads the old or the new data, not a mix."""
    fd = a.open(cached, O_WRONLY)
    a.pwrite(fd, b"dirty")
    data = b.read_file(cached)
    assert data in (b"first", b"dirty")
    observe(
        "an open by another flushes what is dirty" if data == b"dirty" else "dirty data wait for the close"
    )


@pytest.mark.case("SHR-RECALL-09", kills=("open-finds-old-data",))
def test_alternate_writers_invalidate_each_others_cache(a, b, crossed_wire):
    a.write_file("f", b"%04d" % 0)
    for turn in range(1, 13):
        reader, writer = ((a, b), (b, a))[turn % 2]
        assert reader.read_file("f") == b"%04d" % (turn - 1)
        with crossed_wire(writer, "write"):
            writer.write_file("f", b"%04d" % turn, O_CREAT)
    assert a.read_file("f") == b.read_file("f") == b"0012"
