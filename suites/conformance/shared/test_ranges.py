"""Ranges that are copied, allocated or made holes: what one client does with them is seen by the other.

The server does this work, or the client does it with data that it has cached. In both cases the data are
those of the file, as after a write.

Sources: RFC 7530 10.3.1 and RFC 8881 10.3.1 (data are revalidated at an open); copy_file_range(2) and RFC
7862 4, 15.2 (COPY); posix_fallocate(), fallocate(2) and RFC 7862 15.1 (ALLOCATE); fallocate(2) and
RFC 7862 15.4 (DEALLOCATE); MS-SMB2 3.3.5.15.6 (server-side copy).
"""

from __future__ import annotations

from errno import EINVAL, ENOSYS, EOPNOTSUPP, EXDEV
from os import O_RDWR, O_WRONLY

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="RFC 7530 10.3.1", level="MUST"),
]

SIZE = 300_000
"""More than one page, and no multiple of a block (chosen)."""
LACKING = (EINVAL, ENOSYS, EOPNOTSUPP, EXDEV)


def _copy(session, source: str, target: str) -> None:
    """Copy ``SIZE`` bytes from one file into another by copy_file_range(2)."""
    from_fd, to_fd = session.open(source), session.open(target, O_WRONLY)
    done = 0
    while done < SIZE:
        try:
            count = session.call("copy_file_range", from_fd, to_fd, SIZE - done, done, done)
        except OSError as error:
            if done or error.errno not in LACKING:
                raise
            pytest.skip(f"there is no copy_file_range(2) here: {error}")
        assert count, f"copy_file_range() copies nothing after {done} of {SIZE} bytes"
        done += count
    session.close(from_fd)
    session.close(to_fd)


@pytest.mark.case(
    "SHR-RANGE-01", section="RFC 7530 10.3.1; copy_file_range(2)", kills=("two-copied-data-unseen",)
)
def test_open_reads_data_that_the_other_client_copied_into_the_file(a, b, crossed_wire):
    """A client that has cached the target reads what was copied there after its next open."""
    a.write_file("f", b"new" * (SIZE // 3))
    a.write_file("g", b"old" * (SIZE // 3))
    assert b.read_file("g") == b"old" * (SIZE // 3)
    _copy(a, "f", "g")
    with crossed_wire(b, "query"):
        assert b.read_file("g") == b"new" * (SIZE // 3)


@pytest.mark.case(
    "SHR-RANGE-02", section="RFC 7530 10.3.1; copy_file_range(2)", kills=("two-copies-cached-source",)
)
def test_copy_is_of_the_data_that_the_other_client_has_written(a, b, crossed_wire):
    """A client that has cached the source, and opens it again, copies what the other wrote meanwhile."""
    a.write_file("f", b"old" * (SIZE // 3))
    b.write_file("g", b"")
    assert b.read_file("f") == b"old" * (SIZE // 3)
    with crossed_wire(a, "write"):
        a.write_file("f", b"new" * (SIZE // 3))
    _copy(b, "f", "g")
    assert a.read_file("g") == b"new" * (SIZE // 3)


@pytest.mark.case(
    "SHR-RANGE-03",
    section="POSIX.1-2024 posix_fallocate(): DESCRIPTION",
    kills=("two-allocated-hole-is-cleared",),
)
def test_allocation_keeps_what_the_other_client_wrote_into_the_hole(a, b, crossed_wire):
    """An allocation of a range that a client has read as a hole leaves the data that are there now."""
    a.write_file("f", b"begin")
    a.truncate("f", SIZE)
    assert b.read_file("f") == b"begin" + bytes(SIZE - 5)
    writer = a.open("f", O_RDWR)
    with crossed_wire(a, "write"):
        a.pwrite(writer, b"in the hole", 100_000)
        a.close(writer)
    fd = b.open("f", O_RDWR)
    try:
        b.call("fallocate", fd, 0, 0, 2 * SIZE)
    except OSError as error:
        if error.errno not in LACKING:
            raise
        pytest.skip(f"there is no fallocate(2) here: {error}")
    b.close(fd)
    found = a.read_file("f")
    assert len(found) == 2 * SIZE
    assert found[100_000:100_011] == b"in the hole", "the allocation cleared what the other client wrote"
    assert not found[5:100_000].strip(b"\0")
    assert not found[100_011:].strip(b"\0")


@pytest.mark.case(
    "SHR-RANGE-04",
    section="POSIX.1-2024 posix_fallocate(): DESCRIPTION",
    kills=("two-allocation-cuts",),
)
def test_allocation_keeps_the_size_that_the_other_client_has_made_larger(a, b, crossed_wire):
    """An allocation of a range that ends before the end of the file leaves its size and its data."""
    a.write_file("f", b"begin")
    fd = b.open("f", O_RDWR)
    assert b.fstat(fd).size == 5
    with crossed_wire(a, "write"):
        a.write_file("f", b"longer " * 20_000)
    try:
        b.call("fallocate", fd, 0, 0, 4096)
    except OSError as error:
        if error.errno not in LACKING:
            raise
        pytest.skip(f"there is no fallocate(2) here: {error}")
    b.close(fd)
    found = a.read_file("f")
    assert len(found) == 140_000, f"{len(found)} bytes after an allocation of the first 4096 of 140000"
    assert found == b"longer " * 20_000, "the allocation has changed data that the other client wrote"
