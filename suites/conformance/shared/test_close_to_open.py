"""Close-to-open: a client that opens a file reads what another wrote before it closed the file.

Sources: nfs(5), "DATA AND METADATA COHERENCE"; RFC 7530 10.3.1 (and RFC 8881 10.3.1), whose two rules are
that cached data are revalidated after an OPEN, and that modified data are flushed before a CLOSE; MS-SMB2
3.3.4.7, by which a lease is broken before another's open is answered.
"""

from __future__ import annotations

from errno import EACCES, EBUSY, ENXIO, EPERM, ETXTBSY
from os import O_APPEND, O_CREAT, O_RDWR, O_WRONLY, SEEK_DATA, SEEK_HOLE

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="RFC 7530 10.3.1", level="MUST"),
]

STALE = ("open-finds-old-data",)
LATE = ("close-keeps-data-back",)


@pytest.mark.case("SHR-CTO-01", kills=LATE)
def test_open_reads_data_of_an_earlier_close(a, b, crossed_wire):
    with crossed_wire(a, "write"):
        a.write_file("f", b"written by a")
    with crossed_wire(b, "query"):
        assert b.read_file("f") == b"written by a"


@pytest.mark.case("SHR-CTO-02", kills=("names-appear-late", "close-keeps-data-back"))
def test_open_on_the_first_client_reads_data_of_the_second(a, b, crossed_wire):
    with crossed_wire(b, "write"):
        b.write_file("f", b"written by b")
    with crossed_wire(a, "query"):
        assert a.read_file("f") == b"written by b"


@pytest.mark.case("SHR-CTO-03", kills=STALE)
def test_open_revalidates_cached_data(a, b, crossed_wire):
    """A client that has cached the file reads the new data of the same length after its next open."""
    a.write_file("f", b"first" * 100)
    assert b.read_file("f") == b"first" * 100
    with crossed_wire(a, "write"):
        a.write_file("f", b"other" * 100)
    assert b.read_file("f") == b"other" * 100


@pytest.mark.case("SHR-CTO-04", kills=(*STALE, "two-change-21-unseen"))
def test_open_sees_each_of_many_quick_overwrites(a, b, crossed_wire):
    """Overwrites within one tick of the file times are visible, too."""
    # Faster than a time stamp's resolution may be: the change attribute shows the difference.
    for generation in range(45):
        with crossed_wire(a, "write"):
            a.write_file("f", b"%08d" % generation, O_CREAT)
        assert b.read_file("f") == b"%08d" % generation


@pytest.mark.case("SHR-CTO-05", kills=("open-finds-old-size",))
def test_open_sees_a_truncation(a, b, crossed_wire):
    a.write_file("f", b"x" * 10000)
    assert len(b.read_file("f")) == 10000
    with crossed_wire(a, "change"):
        a.truncate("f", 17)
    assert b.read_file("f") == b"x" * 17


@pytest.mark.case("SHR-CTO-06", kills=("open-finds-old-size",))
def test_open_sees_an_extension_by_truncate(a, b, crossed_wire):
    a.write_file("f", b"x" * 10)
    assert b.read_file("f") == b"x" * 10
    with crossed_wire(a, "change"):
        a.truncate("f", 5000)
    assert b.read_file("f") == b"x" * 10 + bytes(4990)


@pytest.mark.case("SHR-CTO-07", kills=("open-finds-old-size",))
def test_open_sees_that_o_trunc_emptied_the_file(a, b, crossed_wire):
    a.write_file("f", b"x" * 5000)
    assert b.read_file("f") == b"x" * 5000
    with crossed_wire(a, "change"):
        a.write_file("f", b"")
    assert b.read_file("f") == b""


@pytest.mark.case("SHR-CTO-08", kills=("open-finds-old-size",))
def test_open_sees_appended_data(a, b, crossed_wire):
    a.write_file("f", b"one,")
    assert b.read_file("f") == b"one,"
    with crossed_wire(a, "write"):
        a.write_file("f", b"two", O_APPEND)
    assert b.read_file("f") == b"one,two"


@pytest.mark.case("SHR-CTO-09", kills=LATE, section="RFC 7530 16.3; fsync(2)")
def test_open_reads_synced_data_of_a_file_that_is_still_open(a, b, crossed_wire):
    fd = a.open("f", O_CREAT | O_WRONLY)
    with crossed_wire(a, "write"):
        a.write(fd, b"synced")
        a.fsync(fd)
    assert b.read_file("f") == b"synced"


@pytest.mark.case("SHR-CTO-10", section="RFC 7530 10.6", kills=("attributes-never-expire",))
def test_open_refreshes_the_size(a, b, crossed_wire):
    """fstat() after an open returns the new size."""
    a.write_file("f", b"x")
    assert b.stat("f").size == 1
    with crossed_wire(a, "write"):
        a.write_file("f", b"x" * 3000)
    fd = b.open("f")
    assert b.fstat(fd).size == 3000


@pytest.mark.case("SHR-CTO-25", section="RFC 7530 10.6", kills=("two-size-only-grows",))
def test_open_refreshes_a_size_that_is_smaller_now(a, b, crossed_wire):
    """fstat() after an open returns the size to which the other client cut the file, each time."""
    a.write_file("f", b"x" * 9000)
    assert b.stat("f").size == 9000
    for size in (5000, 10):
        with crossed_wire(a, "change"):
            a.truncate("f", size)
        fd = b.open("f")
        assert b.fstat(fd).size == size
        b.close(fd)


@pytest.mark.case("SHR-CTO-11", section="RFC 7530 10.6", kills=("attributes-never-expire", "two-mode-old"))
def test_open_refreshes_the_mode(a, b, crossed_wire, at_once):
    """fstat() after an open returns the new mode."""
    a.write_file("f", b"x")
    a.chmod("f", 0o600)
    was = b.stat("f").mode & 0o777
    with crossed_wire(a, "change"):
        a.chmod("f", 0o444)
    if a.stat("f").mode & 0o777 == was:
        pytest.skip("modes cannot be changed here: the mount gives every file the same one")
    mode = a.stat("f").mode & 0o777
    at_once(lambda: b.fstat(b.open("f")).mode & 0o777 == mode, "the mode that the other client set")


@pytest.mark.case("SHR-CTO-12", kills=("open-finds-the-old-file", "two-old-name"), section="RFC 7530 10.8")
def test_open_finds_the_file_that_was_created_again(a, b, crossed_wire):
    """After an unlink and a creation, an open of the cached name reads the new file."""
    a.write_file("f", b"the old one")
    assert b.read_file("f") == b"the old one"
    with crossed_wire(a, "change"):
        a.unlink("f")
        a.write_file("f", b"the new one")
    assert b.read_file("f") == b"the new one"


@pytest.mark.case("SHR-CTO-13", kills=("open-finds-the-old-file",), section="RFC 7530 10.8")
def test_open_finds_the_file_that_was_renamed_over_the_name(a, b, crossed_wire):
    a.write_file("f", b"the old one")
    assert b.read_file("f") == b"the old one"
    a.write_file("new", b"the new one")
    with crossed_wire(a, "change"):
        a.rename("new", "f")
    assert b.read_file("f") == b"the new one"


@pytest.mark.case(
    "SHR-CTO-26", kills=("two-open-file-keeps-name",), section="RFC 7530 10.8; POSIX.1-2024 rename()"
)
def test_open_finds_the_file_that_replaced_one_that_is_open(a, b, crossed_wire):
    """An open of the name reads the new file, also while the client still has the old one open."""
    a.write_file("f", b"the old one")
    b.pread(b.open("f"), 20)
    a.write_file("new", b"the new one")
    try:
        with crossed_wire(a, "change"):
            a.rename("new", "f")
    except OSError as error:
        if error.errno not in (EACCES, EBUSY, EPERM, ETXTBSY):
            raise
        pytest.skip(f"a file that another client has open is not replaced here: {error}")
    b.mkdir("of-b")  # the reply shows that others have changed the directory, too
    assert b.read_file("f") == b"the new one"


@pytest.mark.case("SHR-CTO-14", kills=LATE, section="RFC 7530 10.7; mmap(2)")
def test_open_reads_data_written_through_a_mapping(a, b, crossed_wire):
    a.write_file("f", bytes(8192))
    fd = a.open("f", O_RDWR)
    number = a.call("map", fd, 8192)
    with crossed_wire(a, "write"):
        a.call("poke", number, 4090, b"across pages")
        a.call("msync", number)
        a.call("unmap", number)
        a.close(fd)
    assert b.read_file("f")[4085:4107] == bytes(5) + b"across pages" + bytes(5)


@pytest.mark.case("SHR-CTO-15", kills=STALE, section="RFC 7530 10.7; mmap(2)")
def test_mapping_after_the_open_shows_current_data(a, b, crossed_wire):
    """A mapping after the open shows the other client's data, not cached pages."""
    a.write_file("f", b"a" * 8192)
    assert b.read_file("f") == b"a" * 8192
    with crossed_wire(a, "write"):
        a.write_file("f", b"b" * 8192)
    fd = b.open("f", O_RDWR)
    assert b.call("peek", b.call("map", fd, 8192), 4000, 200) == b"b" * 200


@pytest.mark.case("SHR-CTO-16", kills=LATE)
def test_open_reads_a_large_file_completely(a, b, crossed_wire):
    data = bytes(range(256)) * 12345
    with crossed_wire(a, "write"):
        a.write_file("f", data)
    with crossed_wire(b, "read"):
        assert b.call("read_file", "f", 1 << 23) == data


@pytest.mark.case("SHR-CTO-17", kills=("writes-are-whole-pages",))
def test_alternate_writes_to_parts_of_one_page_are_all_kept(a, b, crossed_wire):
    """Neither client writes back old bytes of the page around its own."""
    a.write_file("f", b"." * 300)
    for turn, (session, offset) in enumerate([(a, 0), (b, 100), (a, 200), (b, 50)]):
        fd = session.open("f", O_RDWR)
        with crossed_wire(session, "write"):
            session.pwrite(fd, b"%d" % turn * 50, offset)
            session.close(fd)
    expected = b"0" * 50 + b"3" * 50 + b"1" * 50 + b"." * 50 + b"2" * 50 + b"." * 50
    assert a.read_file("f") == b.read_file("f") == expected


@pytest.mark.case("SHR-CTO-18", kills=LATE)
def test_gap_between_the_old_end_and_a_write_reads_as_zeroes(a, b, crossed_wire):
    a.write_file("f", b"begin")
    assert b.read_file("f") == b"begin"
    fd = a.open("f", O_WRONLY)
    with crossed_wire(a, "write"):
        a.pwrite(fd, b"end", 70000)
        a.close(fd)
    found = b.read_file("f")
    assert (len(found), found[:5], found[-3:]) == (70003, b"begin", b"end")
    assert found[5:70000] == bytes(69995)


@pytest.mark.case("SHR-CTO-19", kills=STALE)
def test_second_open_revalidates_data_cached_by_the_first(a, b, crossed_wire):
    """Data cached through an earlier descriptor is not returned after a close and an open."""
    a.write_file("f", b"first")
    fd = b.open("f")
    assert b.pread(fd, 10) == b"first"
    with crossed_wire(a, "write"):
        a.write_file("f", b"later", O_CREAT)
    b.close(fd)
    assert b.read_file("f") == b"later"


@pytest.mark.case(
    "SHR-CTO-20", kills=("two-zeroes-unseen",), section="RFC 7530 10.3.1; POSIX.1-2024 truncate()"
)
def test_open_reads_zeroes_where_data_was_cut_off(a, b, crossed_wire):
    """A file that was cut and extended to its old size has zeroes behind the cut."""
    a.write_file("f", b"x" * 9000)
    assert b.read_file("f") == b"x" * 9000
    with crossed_wire(a, "change"):
        a.truncate("f", 100)
        a.truncate("f", 9000)
    assert b.read_file("f") == b"x" * 100 + bytes(8900)


@pytest.mark.case("SHR-CTO-21", kills=("two-data-by-name",), section="RFC 7530 10.3.1; POSIX.1-2024 link()")
def test_open_of_each_link_reads_data_written_through_the_other(a, b, crossed_wire):
    a.write_file("f", b"first")
    a.link("f", "g")
    assert b.read_file("f") == b.read_file("g") == b"first"
    with crossed_wire(a, "write"):
        a.write_file("g", b"later", O_CREAT)
    assert b.read_file("f") == b"later"
    assert b.read_file("g") == b"later"


@pytest.mark.case("SHR-CTO-22", kills=("two-same-mtime-old",), section="RFC 7530 10.3.1, 5.8.1.4")
def test_open_reads_data_whose_time_of_modification_was_set_back(a, b, crossed_wire):
    """New data of the same size and mtime as the cached data: only the change attribute or ctime differs."""
    a.write_file("f", b"first" * 100)
    a.utime("f", 10**18, 10**18)
    fd = b.open("f")
    assert b.pread(fd, 1000) == b"first" * 100
    a.call("wait", 0.02)  # the file times have a resolution of some ms
    with crossed_wire(a, "change"):
        a.write_file("f", b"other" * 100, O_CREAT)
        a.utime("f", 10**18, 10**18)
    b.close(fd)
    assert b.read_file("f") == b"other" * 100


@pytest.mark.case(
    "SHR-CTO-23", kills=("two-holes-old",), section="RFC 7530 10.3.1; POSIX.1-2024 lseek(): SEEK_DATA"
)
def test_open_finds_data_where_there_was_a_hole(a, b, crossed_wire):
    """SEEK_DATA and SEEK_HOLE of a client that has looked before find what the other has written since."""
    a.write_file("f", b"")
    a.truncate("f", 1 << 22)
    fd = b.open("f")
    before = [_position(b, fd, 0, SEEK_DATA), _position(b, fd, 1 << 21, SEEK_HOLE)]
    b.close(fd)
    writer = a.open("f", O_RDWR)
    with crossed_wire(a, "write"):
        a.pwrite(writer, b"x" * 65_536, 1 << 21)
        a.close(writer)
    fd = b.open("f")
    data, hole = _position(b, fd, 0, SEEK_DATA), _position(b, fd, 1 << 21, SEEK_HOLE)
    assert data is not None, f"no data are found after a write; positions before: {before}"
    assert data <= 1 << 21, f"data at {data} are found, after a write at {1 << 21}"
    assert (hole or 0) >= (1 << 21) + 65_536, (
        f"a hole is found at {hole}, in 65536 bytes that were written at {1 << 21}"
    )


def _position(session, fd: int, offset: int, whence: int) -> int | None:
    """Return where lseek() leads, or None if there are no such data (ENXIO)."""
    try:
        return int(session.call("seek", fd, offset, whence))
    except OSError as error:
        if error.errno != ENXIO:
            raise
        return None


@pytest.mark.case(
    "SHR-CTO-24", section="RFC 7530 10.3.1, 10.7; nfs(5)", kills=("two-mapped-close-keeps-back",)
)
def test_open_reads_data_that_were_mapped_and_not_synchronized(a, b, crossed_wire):
    """The close writes back what was stored through a mapping, without an msync(): far into the file, too."""
    size = 40 * 4096
    a.write_file("f", bytes(size))
    assert b.read_file("f") == bytes(size)
    fd = a.open("f", O_RDWR)
    number = a.call("map", fd, size)
    wanted = bytearray(size)
    with crossed_wire(a, "write"):
        for offset in (10, 4094, 20 * 4096, size - 6):
            a.call("poke", number, offset, b"stored")
            wanted[offset : offset + 6] = b"stored"
        a.call("unmap", number)
        a.close(fd)
    assert b.read_file("f") == bytes(wanted)
