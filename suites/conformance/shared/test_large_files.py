"""Large files and many locks: what holds of one page and one lock holds of all.

Sources: RFC 7530 10.3.1 and 10.3.2, nfs(5), Using file locks with NFS (a lock revalidates the file's data);
POSIX.1-2024 write() (O_APPEND), close() and fcntl() (a close releases all locks of the process on the file),
stat() (st_size).
"""

from __future__ import annotations

from errno import EFBIG, EINVAL, ENOSPC
from fcntl import F_RDLCK, F_UNLCK, F_WRLCK
from os import O_APPEND, O_CREAT, O_RDWR, O_WRONLY

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="RFC 7530 10.3.2", level="MUST"),
]

LARGE = 700_000
RECORD = 300_000
"""More than one request of a client with small ones, and no multiple of a page."""
FOUR_GIB = 1 << 32
LOCKS = 100


@pytest.mark.parametrize("size", [
    pytest.param(FOUR_GIB, id="4-gib", marks=pytest.mark.case("SHR-CTO-35")),
    pytest.param(FOUR_GIB + 4097, id="above", marks=pytest.mark.case("SHR-CTO-36")),
])  # fmt: skip
@pytest.mark.case(section="RFC 7530 10.3.1; POSIX.1-2024 stat()", kills=("two-size-modulo-4-gib",))
def test_size_above_32_bits_is_seen_by_the_other_client(a, b, crossed_wire, size):
    """An open sees the size that the other client has set: by stat(), fstat() and at the end of the data."""
    a.write_file("f", b"small")
    assert b.read_file("f") == b"small"
    fd = a.open("f", O_RDWR)
    try:
        a.ftruncate(fd, size)
        a.pwrite(fd, b"end", size - 3)
    except OSError as error:
        if error.errno not in (EFBIG, EINVAL, ENOSPC):
            raise
        pytest.skip(f"the file system has no files of this size: {error}")
    with crossed_wire(a, "write"):
        a.close(fd)
    reader = b.open("f")
    sizes = b.fstat(reader).size, b.stat("f").size
    assert sizes == (size, size), f"sizes {sizes}; the other client has set {size}"
    assert b.pread(reader, 10, size - 5) == b"\0\0end"


@pytest.mark.case(
    "SHR-LOCK-54",
    section="RFC 7530 10.3.2; nfs(5), Using file locks with NFS",
    kills=("two-lock-reads-old-far",),
)
def test_lock_makes_all_data_of_a_large_file_visible(a, b, crossed_wire):
    """Data of an open file that the client has read are those of the last holder, from begin to end."""
    a.write_file("f", b"0" * LARGE)
    fds = a.open("f", O_RDWR), b.open("f", O_RDWR)
    for turn in (b"0", b"1", b"2"):
        if turn != b"0":
            with crossed_wire(a, "lock"):
                a.lock(fds[0], F_WRLCK)
            a.pwrite(fds[0], turn * LARGE)
            a.lock(fds[0], F_UNLCK)
        with crossed_wire(b, "lock"):
            b.lock(fds[1], F_RDLCK)
        found = b.pread(fds[1], LARGE)
        b.lock(fds[1], F_UNLCK)
        wrong = [at for at in range(0, LARGE, 4096) if found[at : at + 1] != turn]
        assert not wrong, (
            f"{found[wrong[0] : wrong[0] + 1]!r} at {wrong[0]}, {turn!r} was written under the lock"
        )
        assert len(found) == LARGE


@pytest.mark.case(
    "SHR-APPEND-07", section="RFC 7530 10.3.2; POSIX.1-2024 write()", kills=("two-append-in-two-places",)
)
def test_large_appends_under_a_lock_are_kept_whole(a, b, crossed_wire):
    """Records of many pages, appended in turn through files that stay open, follow each other."""
    files = [(a, a.open("f", O_CREAT | O_WRONLY | O_APPEND)), (b, b.open("f", O_WRONLY | O_APPEND))]
    for turn in range(6):
        session, fd = files[turn % 2]
        with crossed_wire(session, "lock"):
            session.lock(fd, F_WRLCK)
        session.write(fd, b"%d" % turn * RECORD)
        session.lock(fd, F_UNLCK)
    for session, fd in files:
        session.close(fd)
    reader = a.open("f")
    for turn in range(6):
        found = a.pread(reader, RECORD, turn * RECORD)
        assert found == b"%d" % turn * RECORD, f"record {turn} is not whole: {found[:2]!r} to {found[-2:]!r}"
    assert a.fstat(reader).size == 6 * RECORD


@pytest.mark.case(
    "SHR-LOCK-55", section="RFC 7530 16.12; POSIX.1-2024 close()", kills=("close-frees-16-locks",)
)
def test_close_releases_many_locks(a, b, fds, crossed_wire):
    """All locks of the process on the file end with the close, however many they are."""
    for number in range(LOCKS):
        with crossed_wire(a, "lock"):
            a.lock(fds[0], F_WRLCK, 2 * number, 1)
    a.close(fds[0])
    with crossed_wire(b, "lock"):
        granted = b.try_lock(fds[1], F_WRLCK)
    assert granted, (
        f"a lock is refused after the close of {LOCKS} locks: {b.get_conflicting_lock(fds[1], F_WRLCK)}"
    )
