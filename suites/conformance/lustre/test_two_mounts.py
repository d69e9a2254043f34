"""One file through two mounts: random operations against a model, direct, mapped and striped I/O."""

from __future__ import annotations

import mmap
import random
from os import O_CREAT, O_DIRECT, O_RDWR

import pytest

from storagetest.agent.testlib.byte_model import ByteModel, first_difference

pytestmark = [
    pytest.mark.needs("filesystem", "layouts", "shared", "two_clients"),
    pytest.mark.case(
        level="MUST", section="Lustre Operations Manual: Lustre Features, POSIX standard compliance"
    ),
]
PAGE = mmap.PAGESIZE
LARGEST = 512 * 1024
STEPS = 120


@pytest.fixture
def striped(a, lfs):
    """Create a file whose stripes are as small as possible."""
    lfs(a, "setstripe", "-c", -1, "-S", "64K", "f")
    return "f"


def operations(seed: int, *, unit: int = 1):
    """Yield random operations (name, offset, size) whose offsets and sizes are multiples of ``unit``."""
    choose = random.Random(seed)
    for _ in range(STEPS):
        offset = choose.randrange(0, LARGEST // unit) * unit
        size = max(1, choose.choice((1, 7, 4096, 65536, 70000)) // unit) * unit
        yield choose.choice(("write", "write", "read", "read", "truncate")), offset, size


def run_model(sides, seed, *, unit=1, read=None, write=None):
    """Do each operation by the next side in turn, and compare every read with the model."""
    model, choose = ByteModel(), random.Random(seed + 1)
    for number, (name, offset, size) in enumerate(operations(seed, unit=unit)):
        session, fd = sides[number % 2] if number % 5 else sides[choose.randrange(2)]
        if name == "write":
            data = choose.randbytes(size)
            done = write(session, fd, data, offset) if write else session.pwrite(fd, data, offset)
            assert done == size
            model.write(offset, data)
        elif name == "truncate":
            session.ftruncate(fd, offset)
            model.truncate(offset)
        else:
            found = read(session, fd, size, offset) if read else session.pread(fd, size, offset)
            difference = first_difference(found, model.read(offset, size))
            assert not difference, f"step {number}, {session.name} reads at {offset}: {difference}"
        assert session.fstat(fd).size == model.size, f"step {number}, {name} at {offset} by {session.name}"


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1, marks=pytest.mark.case("LUS-FSX-01")),
        pytest.param(2, marks=pytest.mark.case("LUS-FSX-02")),
    ],
)
@pytest.mark.case(kills=("truncate-does-not-shrink",))
def test_random_operations_through_two_mounts(a, b, seed):
    """Reads, writes and truncations of two clients in turn are those of one file."""
    sides = [(a, a.open("f", O_CREAT | O_RDWR)), (b, b.open("f", O_RDWR))]
    run_model(sides, seed)


@pytest.mark.case("LUS-FSX-03", kills=("stripe-end-lost", "stripes-exchanged"))
def test_random_operations_over_stripes(a, b, striped):
    """Operations of two clients in turn on a file over all OSTs are those of one file."""
    run_model([(a, a.open(striped, O_RDWR)), (b, b.open(striped, O_RDWR))], 3)


@pytest.mark.case("LUS-FSX-04", kills=("stripe-end-lost", "stripes-exchanged"))
def test_random_operations_over_components(a, b, lfs):
    """Operations of two clients in turn on a file with a progressive layout are those of one file."""
    lfs(a, "setstripe", "-E", "128K", "-c", 1, "-S", "64K", "-E", "-1", "-c", -1, "-S", "64K", "f")
    run_model([(a, a.open("f", O_RDWR)), (b, b.open("f", O_RDWR))], 4)


@pytest.mark.case("LUS-FSX-05", section="open(2): NOTES, O_DIRECT", kills=("truncate-does-not-shrink",))
def test_direct_against_buffered(a, b):
    """Direct writes of one client and buffered ones of the other are those of one file."""
    a.write_file("f", b"")
    buffered, direct = a.open("f", O_RDWR), b.open("f", O_RDWR | O_DIRECT)

    def write(session, fd, data, offset):
        return (
            session.call("write_direct", fd, data, offset)
            if fd == direct and session is b
            else session.pwrite(fd, data, offset)
        )

    def read(session, fd, size, offset):
        if fd == direct and session is b:
            return bytes(session.call("read_direct", fd, size, offset))
        return session.pread(fd, size, offset)

    run_model([(a, buffered), (b, direct)], 5, unit=PAGE, read=read, write=write)


@pytest.mark.case("LUS-MMAP-01", section="POSIX.1-2024 mmap(): MAP_SHARED", kills=("maps-not-coherent",))
def test_mapped_read_sees_the_others_write(a, b):
    """A mapping of one client shows what the other writes after the mapping was read."""
    a.write_file("f", b"0" * PAGE)
    mapped = a.call("map", a.open("f", O_RDWR), PAGE)
    fd = b.open("f", O_RDWR)
    for number in range(1, 6):
        assert bytes(a.call("peek", mapped, 0, 4)) != b"%04d" % number
        b.pwrite(fd, b"%04d" % number)
        assert bytes(a.call("peek", mapped, 0, 4)) == b"%04d" % number


@pytest.mark.case("LUS-MMAP-02", section="POSIX.1-2024 mmap(): MAP_SHARED", kills=("maps-not-coherent",))
def test_read_sees_the_others_mapped_write(a, b):
    """read() on one client returns what the other has stored through a mapping."""
    a.write_file("f", b"0" * PAGE)
    mapped = a.call("map", a.open("f", O_RDWR), PAGE)
    fd = b.open("f", O_RDWR)
    for number in range(1, 6):
        a.call("poke", mapped, 8, b"%04d" % number)
        assert b.pread(fd, 4, 8) == b"%04d" % number


@pytest.mark.case("LUS-MMAP-03", section="POSIX.1-2024 mmap(): MAP_SHARED", kills=("maps-not-coherent",))
def test_two_mappings_write_one_page_in_turn(a, b):
    """What two clients store in one page, in turn, is all there."""
    a.write_file("f", bytes(PAGE))
    maps = [(session, session.call("map", session.open("f", O_RDWR), PAGE)) for session in (a, b)]
    for number in range(16):
        session, mapped = maps[number % 2]
        session.call("poke", mapped, number, bytes([65 + number]))
    for session, mapped in maps:
        assert bytes(session.call("peek", mapped, 0, 16)) == bytes(range(65, 81))


@pytest.mark.case(
    "LUS-MMAP-04", section="POSIX.1-2024 ftruncate(): DESCRIPTION", kills=("maps-not-coherent",)
)
def test_mapping_after_a_truncation_by_the_other(a, b):
    """What the other client cuts off and extends again reads as zeros through a mapping."""
    a.write_file("f", b"x" * 2 * PAGE)
    mapped = a.call("map", a.open("f", O_RDWR), 2 * PAGE)
    assert bytes(a.call("peek", mapped, PAGE, 4)) == b"xxxx"
    b.truncate("f", 100)
    b.truncate("f", 2 * PAGE)
    assert bytes(a.call("peek", mapped, PAGE, 4)) == bytes(4)
    assert bytes(a.call("peek", mapped, 98, 4)) == b"xx" + bytes(2)


@pytest.mark.case(
    "LUS-MMAP-05", section="POSIX.1-2024 ftruncate(): DESCRIPTION", kills=("maps-not-coherent",)
)
def test_stored_bytes_survive_the_others_truncation_behind_them(a, b):
    """Bytes that one client has stored through a mapping stay when the other cuts off what follows."""
    a.write_file("f", bytes(2 * PAGE))
    mapped = a.call("map", a.open("f", O_RDWR), 2 * PAGE)
    a.call("poke", mapped, 10, b"kept")
    a.call("poke", mapped, PAGE + 10, b"lost")
    b.truncate("f", PAGE)
    assert b.read_file("f") == bytes(10) + b"kept" + bytes(PAGE - 14)


@pytest.mark.case("LUS-DIRECT-01", section="open(2): NOTES, O_DIRECT", kills=("open-finds-old-data",))
def test_direct_read_sees_the_others_buffered_write(a, b):
    """A direct read returns what the other client has written to its page cache."""
    a.write_file("f", bytes(PAGE))
    writer, reader = a.open("f", O_RDWR), b.open("f", O_RDWR | O_DIRECT)
    for number in range(1, 6):
        a.pwrite(writer, b"%04d" % number * (PAGE // 4))
        assert bytes(b.call("read_direct", reader, PAGE, 0)) == b"%04d" % number * (PAGE // 4)


@pytest.mark.case("LUS-DIRECT-02", section="open(2): NOTES, O_DIRECT", kills=("open-finds-old-data",))
def test_buffered_read_sees_the_others_direct_write(a, b):
    """A read from the page cache returns what the other client has written directly."""
    a.write_file("f", bytes(PAGE))
    reader, writer = a.open("f", O_RDWR), b.open("f", O_RDWR | O_DIRECT)
    for number in range(1, 6):
        b.call("write_direct", writer, b"%04d" % number * (PAGE // 4), 0)
        assert a.pread(reader, PAGE) == b"%04d" % number * (PAGE // 4)


@pytest.mark.case(
    "LUS-DIRECT-03",
    section="POSIX.1-2024 write(): DESCRIPTION",
    kills=("stripes-exchanged",),
)
def test_neighbouring_stripes_are_written_at_the_same_time(a, b, striped, race):
    """What two clients write at the same time, in alternate stripes, is all in the file."""
    size = 64 * 1024
    fds = [session.open(striped, O_RDWR) for session in (a, b)]
    race(
        *(
            [("pwrite", fd, name * size, (2 * number + place) * size) for number in range(6)]
            for place, (fd, name) in enumerate(zip(fds, (b"a", b"b"), strict=True))
        )
    )
    for session, fd in zip((a, b), fds, strict=True):
        found = [session.pread(fd, size, number * size) for number in range(12)]
        assert found == [b"a" * size, b"b" * size] * 6


@pytest.mark.case(
    "LUS-TORN-01",
    section="Lustre Operations Manual: Lustre Features, POSIX standard compliance",
    kills=("open-finds-old-data",),
)
def test_read_is_never_torn(a, b, race):
    """While one client overwrites a record, a read of the other returns one version of it."""
    size = 8192
    a.write_file("f", b"0" * size)
    writer, reader = a.open("f", O_RDWR), b.open("f")
    assert b.pread(reader, size) == b"0" * size  # what a client may cache
    versions = [b"%d" % (number % 10) * size for number in range(40)]
    _, found = race(
        [("pwrite", writer, version, 0) for version in versions], [("pread", reader, size, 0)] * 40
    )
    torn = [set(data) for data in found if len(set(data)) != 1]
    assert not torn, f"{len(torn)} of 40 reads have bytes of several versions"
    assert b.pread(reader, size) == versions[-1]
