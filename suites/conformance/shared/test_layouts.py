"""pNFS layouts: a client does its I/O on the storage device, and another client sees the data.

``layout_io(a)`` counts the client's I/O through a layout, and its READ and WRITE requests to the server. The
cases use O_DIRECT or fsync, because a layout does not cover data in a client's cache.

Sources: RFC 8881 12.5.1 (a layout grants access to the storage device), 12.5.4 (LAYOUTCOMMIT
makes written data and the size visible), 12.5.5 (recall and return of a layout), 12.6 (without
access to the device the client uses the metadata server); RFC 5663 2.3.2 (extents that are not yet
initialized read as zeros until LAYOUTCOMMIT). Section numbers are from memory of the tables of contents.
"""

from __future__ import annotations

from os import O_CREAT, O_DIRECT, O_RDWR

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients", "pnfs"),
    pytest.mark.case(
        section="RFC 8881 12.5",
        level="MUST",
        no_mutant_reason="the file systems of the mutation run have no layouts",
    ),
]

BLOCK = 64 << 10
COUNT = 8
SIZE = BLOCK * COUNT


def pattern(letter: str, size: int = SIZE) -> bytes:
    """Return ``size`` bytes in which each line has its own number."""
    return b"".join(b"%s%014d\n" % (letter.encode(), number) for number in range(size // 16))


def write_direct(session, fd: int, data: bytes) -> None:
    """Write ``data`` in blocks past the page cache."""
    for start in range(0, len(data), BLOCK):
        part = data[start : start + BLOCK]
        assert session.call("write_direct", fd, part, start) == len(part)


def read_direct(session, fd: int, size: int = SIZE) -> bytes:
    """Read ``size`` bytes in blocks past the page cache."""
    return b"".join(bytes(session.call("read_direct", fd, BLOCK, start)) for start in range(0, size, BLOCK))


@pytest.mark.case("SHR-LAYOUT-01", section="RFC 8881 12.5.1")
def test_writes_go_round_the_server_and_are_read_by_the_other_client(a, b, layout_io):
    """No WRITE request is sent, and the other client reads what was written."""
    fd = a.open("f", O_RDWR | O_CREAT | O_DIRECT)
    with layout_io(a) as io:
        write_direct(a, fd, pattern("a"))
        a.fsync(fd)
    assert io.writes > 0, f"nothing was written through a layout: {io}"
    assert io.server_writes == 0, f"data went through the server: {io}"
    assert b.read_file("f") == pattern("a")


@pytest.mark.case("SHR-LAYOUT-02", section="RFC 8881 12.5.1")
def test_reads_go_round_the_server(a, b, layout_io):
    """No READ request is sent, and the data are those that the other client wrote."""
    a.write_file("f", pattern("a"))
    fd = b.open("f", O_RDWR | O_DIRECT)
    with layout_io(b) as io:
        data = read_direct(b, fd)
    assert data == pattern("a")
    assert io.reads > 0, f"nothing was read through a layout: {io}"
    assert io.server_reads == 0, f"data went through the server: {io}"


@pytest.mark.case("SHR-LAYOUT-03", section="RFC 8881 12.5.5, 12.5.4; RFC 5663 2.3.2")
def test_recall_commits_what_was_written_before_another_client_reads(a, b, layout_io):
    """Blocks that were never written before are read as data, not as zeros: the recall commits them.

    The writer keeps the file open and does not commit on its own account.
    """
    fd = a.open("f", O_RDWR | O_CREAT | O_DIRECT)
    a.ftruncate(fd, SIZE)
    other = b.open("f", O_RDWR | O_DIRECT)
    with layout_io(a) as io:
        write_direct(a, fd, pattern("a"))
        data = read_direct(b, other)
    assert data == pattern("a"), f"the other client reads other bytes; the writer: {io}"
    assert io.server_writes == 0, f"data went through the server: {io}"


@pytest.mark.case("SHR-LAYOUT-04", section="RFC 8881 12.5.5")
def test_rewritten_blocks_are_read_by_a_client_that_has_read_them(a, b, layout_io):
    """Both clients hold a layout in turn; each reads what the other wrote last."""
    a.write_file("f", pattern("0"))
    fds = a.open("f", O_RDWR | O_DIRECT), b.open("f", O_RDWR | O_DIRECT)
    for turn in range(3):
        for writer, reader, letter in ((0, 1, "a"), (1, 0, "b")):
            sessions = (a, b)
            data = pattern(letter, SIZE)[turn:] + bytes(turn)
            with layout_io(sessions[writer]) as io:
                write_direct(sessions[writer], fds[writer], data)
            assert io.server_writes == 0, f"data went through the server: {io}"
            assert read_direct(sessions[reader], fds[reader]) == data


@pytest.mark.case("SHR-LAYOUT-05", section="RFC 8881 12.5.5; RFC 5663 2.3.5")
def test_blocks_that_another_client_freed_are_not_written_through_an_old_layout(a, b, layout_io):
    """A file that gets the freed blocks keeps its own data."""
    fd = a.open("f", O_RDWR | O_CREAT | O_DIRECT)
    with layout_io(a) as io:
        write_direct(a, fd, pattern("a"))
    assert io.server_writes == 0, f"data went through the server: {io}"
    b.truncate("f", 0)
    for number in range(4):
        b.write_file(f"g{number}", pattern("b"))
    write_direct(a, fd, pattern("c"))
    a.fsync(fd)
    for number in range(4):
        assert b.read_file(f"g{number}") == pattern("b")
    assert b.read_file("f") == pattern("c")


@pytest.mark.case("SHR-LAYOUT-06", section="RFC 8881 12.5.4; RFC 5663 2.3.2")
def test_holes_read_as_zeros_round_the_server(a, b, layout_io):
    """Blocks that were never written read as zeros, whatever the device has there."""
    fd = a.open("f", O_RDWR | O_CREAT | O_DIRECT)
    a.ftruncate(fd, 3 * BLOCK)
    assert a.call("write_direct", fd, pattern("a", BLOCK), BLOCK) == BLOCK
    a.fsync(fd)
    other = b.open("f", O_RDWR | O_DIRECT)
    with layout_io(b) as io:
        data = read_direct(b, other, 3 * BLOCK)
    assert data == bytes(BLOCK) + pattern("a", BLOCK) + bytes(BLOCK)
    assert io.server_reads == 0, f"data went through the server: {io}"


@pytest.mark.case("SHR-LAYOUT-07", section="RFC 8881 12.6")
@pytest.mark.needs("device_removal")
def test_without_the_device_writes_go_through_the_server_and_nothing_is_lost(a, b, layout_io, device_removed):
    """Data in the client's cache and new data reach the file when the device has failed."""
    fd = a.open("f", O_RDWR | O_CREAT)
    half = SIZE // 2
    a.pwrite(fd, pattern("a")[:half], 0)
    a.fsync(fd)
    a.pwrite(fd, pattern("a")[half:], half)
    with device_removed(a):
        with layout_io(a) as io:
            a.fsync(fd)
            a.write_file("g", pattern("b"))
            assert a.read_file("g") == pattern("b")
        assert io.server_writes > 0, f"the device had not failed: {io}"
        assert b.read_file("f") == pattern("a")
        assert b.read_file("g") == pattern("b")


@pytest.mark.case("SHR-LAYOUT-08", section="RFC 8881 12.6")
@pytest.mark.needs("device_removal")
def test_without_the_device_reads_go_through_the_server(a, b, layout_io, device_removed):
    """A client whose device has failed reads what the other client wrote, before and after the failure."""
    b.write_file("f", pattern("b"))
    with device_removed(a):
        with layout_io(a) as io:
            assert a.read_file("f") == pattern("b")
        assert io.server_reads > 0, f"the device had not failed: {io}"
        b.write_file("g", pattern("c"))
        assert a.read_file("g") == pattern("c")


@pytest.mark.case("SHR-LAYOUT-09", level="MAY", section="RFC 8881 12.6")
@pytest.mark.needs("device_removal")
def test_when_the_device_is_back_new_files_go_round_the_server_again(a, layout_io, device_removed, observe):
    """A client may use the server for a while; the data are right in either case."""
    with device_removed(a):
        a.write_file("f", pattern("a"))
    with layout_io(a) as io:
        a.write_file("g", pattern("b"))
    assert a.read_file("f") == pattern("a")
    assert a.read_file("g") == pattern("b")
    observe("round the server at once" if io.server_writes == 0 else "through the server for a while")
