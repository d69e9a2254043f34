"""Recalls: who has a file to itself gives it back before another's request is answered.

Sources: RFC 7530 10.4.4 and RFC 8881 10.4.4 (a delegation is recalled for an OPEN that conflicts, and for
SETATTR, REMOVE and RENAME by another client); MS-SMB2 3.3.4.7 and 3.3.5.9.8 (a lease is broken before
another's open is answered).

Whether there is a delegation or a lease is the server's to choose. So a case first does what makes a server
give one, says with ``observe`` whether it was taken back, and claims what has to be true with and without.
"""

from __future__ import annotations

from os import O_CREAT, O_RDWR, O_WRONLY

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="RFC 7530 10.4.4; MS-SMB2 3.3.4.7", level="MUST"),
]


@pytest.fixture
def trusted(a):
    """Return a file that ``a`` has read again and again, with nobody else about, and closed."""
    a.write_file("f", b"first")
    for _ in range(3):
        assert a.read_file("f") == b"first"
    return "f"


@pytest.mark.case("SHR-RECALL-01", kills=("open-finds-old-data",))
def test_a_write_by_another_is_seen_by_who_trusted_its_cache(a, b, trusted, crossed_wire):
    with crossed_wire(b, "write"):
        b.write_file(trusted, b"later")
    assert a.read_file(trusted) == b"later"


@pytest.mark.case("SHR-RECALL-02", kills=("open-finds-the-old-file",))
def test_so_is_a_rename_over_it(a, b, trusted, crossed_wire, at_once):
    b.write_file("new", b"later")
    with crossed_wire(b, "change"):
        b.rename("new", trusted)
    at_once(lambda: a.read_file(trusted) == b"later", "the file that the other client put in its place")


@pytest.mark.case("SHR-RECALL-03", kills=("open-finds-the-old-file",))
def test_so_is_its_removal(a, b, trusted, crossed_wire, at_once):
    with crossed_wire(b, "change"):
        b.unlink(trusted)
    at_once(lambda: not a.can_open(trusted), "that the other client removed it")


@pytest.mark.case("SHR-RECALL-04", kills=("open-finds-old-size",))
def test_so_is_a_truncation(a, b, trusted, crossed_wire):
    with crossed_wire(b, "change"):
        b.truncate(trusted, 2)
    assert a.read_file(trusted) == b"fi"


@pytest.mark.case("SHR-RECALL-05", kills=("attributes-never-expire",))
def test_so_is_a_change_of_its_times(a, b, trusted, crossed_wire, at_once):
    with crossed_wire(b, "change"):
        b.utime(trusted, 10**18, 10**18)
    at_once(lambda: a.fstat(a.open(trusted)).mtime_ns == 10**18, "the time that the other client set")


@pytest.mark.case("SHR-RECALL-06", kills=("open-finds-old-data",))
def test_who_still_has_it_open_gives_it_back_too(a, b, trusted, crossed_wire):
    fd = a.open(trusted)
    assert a.pread(fd, 10) == b"first"
    with crossed_wire(b, "write"):
        b.write_file(trusted, b"later", O_CREAT)
    assert a.read_file(trusted) == b"later"


@pytest.mark.case("SHR-RECALL-07", kills=("close-keeps-data-back",))
def test_what_was_written_and_closed_is_there_whoever_had_it_to_itself(a, b, trusted, crossed_wire):
    fd = a.open(trusted, O_RDWR)
    for number in range(5):
        a.pwrite(fd, b"%05d" % number)
    with crossed_wire(a, "write"):
        a.close(fd)
        assert b.read_file(trusted) == b"00004"


@pytest.mark.case("SHR-RECALL-08", level="MAY", section="RFC 7530 10.4.1; MS-SMB2 3.3.4.7", kills=())
def test_what_was_written_and_not_closed_may_be_there(a, b, trusted, observe):
    fd = a.open(trusted, O_WRONLY)
    a.pwrite(fd, b"dirty")
    found = b.read_file(trusted)
    assert found in (b"first", b"dirty")
    observe(
        "an open by another flushes what is dirty" if found == b"dirty" else "dirty data wait for the close"
    )


@pytest.mark.case("SHR-RECALL-09", kills=("open-finds-old-data",))
def test_it_goes_back_and_forth(a, b, crossed_wire):
    a.write_file("f", b"%04d" % 0)
    for turn in range(1, 13):
        reader, writer = ((a, b), (b, a))[turn % 2]
        assert reader.read_file("f") == b"%04d" % (turn - 1)
        with crossed_wire(writer, "write"):
            writer.write_file("f", b"%04d" % turn, O_CREAT)
    assert a.read_file("f") == b.read_file("f") == b"0012"
