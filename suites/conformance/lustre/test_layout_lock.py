"""Layouts that change while both clients have the file open: the layout lock keeps them coherent."""

from __future__ import annotations

from os import O_CREAT, O_RDWR

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "layouts", "shared", "two_clients"),
    pytest.mark.case(
        level="MUST",
        section="Lustre Operations Manual: Progressive File Layout (PFL)",
    ),
]
MIB = 1 << 20
NO_LAYOUTS = "no file system in user space has layouts that lfs shows"
THREE = ("-E", "1M", "-c", 1, "-E", "2M", "-c", 1, "-E", "-1", "-c", -1)


@pytest.fixture
def fds(a, b, lfs):
    """Return descriptors, on both clients, of a file with objects in the first of three components."""
    lfs(a, "setstripe", *THREE, "f")
    return a.open("f", O_RDWR), b.open("f", O_RDWR)


@pytest.mark.case("LUS-LLOCK-01", kills=("component-not-read", "component-not-written"))
def test_component_of_the_others_write_is_read(a, b, fds):
    """Data that the other client writes in a component without objects are read by an open descriptor."""
    assert b.pread(fds[1], 10, MIB) == b""
    a.pwrite(fds[0], b"second", MIB)
    assert b.pread(fds[1], 10, MIB) == b"second"


@pytest.mark.case("LUS-LLOCK-02", no_mutant_reason=NO_LAYOUTS)
def test_layout_that_the_other_changed_is_shown(a, b, fds, parts_of):
    """A client shows the objects that the other's write has allocated.

    Whether a component before the written one has objects too is left to the file system.
    """
    assert [part.has_objects for part in parts_of(b, "f")] == [True, False, False]
    a.pwrite(fds[0], b"third", 2 * MIB)
    shown = [parts_of(session, "f") for session in (a, b)]
    assert shown[1][2].has_objects
    assert [part.osts for part in shown[0]] == [part.osts for part in shown[1]]


@pytest.mark.case("LUS-LLOCK-03", kills=("component-not-read", "component-not-written"))
def test_both_clients_allocate_components_in_turn(a, b, fds):
    """Writes of both clients, each in another component, are all in the file."""
    a.pwrite(fds[0], b"one", 0)
    b.pwrite(fds[1], b"two", MIB)
    a.pwrite(fds[0], b"three", 2 * MIB)
    for session, fd in zip((a, b), fds, strict=True):
        assert [session.pread(fd, 5, place * MIB).rstrip(b"\0") for place in range(3)] == [
            b"one",
            b"two",
            b"three",
        ]
        assert session.fstat(fd).size == 2 * MIB + 5


@pytest.mark.case("LUS-LLOCK-04", no_mutant_reason=NO_LAYOUTS)
def test_both_clients_allocate_one_component_at_the_same_time(a, b, fds, race, parts_of):
    """Two first writes in one component, at the same time, use the same objects."""
    for number in range(4):
        race(
            [("pwrite", fds[0], b"a", 2 * MIB + 2 * number)],
            [("pwrite", fds[1], b"b", 2 * MIB + 2 * number + 1)],
        )
    assert a.pread(fds[0], 8, 2 * MIB) == b.pread(fds[1], 8, 2 * MIB) == b"abababab"
    assert parts_of(a, "f")[2].osts == parts_of(b, "f")[2].osts


@pytest.mark.case(
    "LUS-LLOCK-05",
    section="lfs-setstripe(1): COMPONENT OPTIONS, --component-add",
    kills=("component-not-written",),
)
def test_component_that_the_other_adds_is_used_by_an_open_descriptor(a, b, lfs):
    """A component that one client adds is written by a descriptor of the other that was open before."""
    lfs(a, "setstripe", "-E", "1M", "-c", 1, "f")
    fd = a.open("f", O_RDWR)
    a.pwrite(fd, b"first", 0)
    lfs(b, "setstripe", "--component-add", "-E", "-1", "-c", 1, "f")
    a.pwrite(fd, b"added", MIB)
    assert b.pread(b.open("f"), 10, MIB) == b"added"


@pytest.mark.case(
    "LUS-LLOCK-06",
    section="Lustre Operations Manual: Setting the Striping Layout for a Directory",
    no_mutant_reason=NO_LAYOUTS,
)
def test_default_that_the_other_sets_is_used(a, b, lfs, parts_of):
    """A directory's default that one client sets is used for the next file of the other."""
    a.mkdir("d")
    for number, size in enumerate(("1M", "2M", "4M")):
        lfs(a, "setstripe", "-c", 1, "-S", size, "d")
        b.write_file(f"d/f{number}", b"")
        assert parts_of(a, f"d/f{number}")[0].size == int(size[:-1]) * MIB


@pytest.mark.case("LUS-LLOCK-07", section="lfs-migrate(1): DESCRIPTION", no_mutant_reason=NO_LAYOUTS)
def test_file_migrates_under_the_others_descriptor(a, b, lfs, parts_of):
    """A descriptor of one client reads and writes a file that the other has migrated."""
    lfs(a, "setstripe", "-c", 1, "-S", "1M", "f")
    fd = a.open("f", O_RDWR)
    a.pwrite(fd, b"before migration", 0)
    argv = ["lfs", "migrate", "-c", "1", "-S", "256K", "f"]
    status, output, errors = b.call("run_program", argv, 30.0, deadline=40)
    if status and "upported" in errors:
        pytest.skip(f"this file system has no migration of files: {errors.strip()}")
    assert status == 0, output + errors
    assert a.pread(fd, 16) == b"before migration"
    a.pwrite(fd, b"after ", 0)
    assert b.read_file("f") == b"after  migration"
    assert parts_of(a, "f")[0].size == parts_of(b, "f")[0].size == 256 * 1024


@pytest.mark.case("LUS-LLOCK-08", section="lfs-setstripe(1): DESCRIPTION", no_mutant_reason=NO_LAYOUTS)
def test_layout_that_the_other_creates_is_shown(a, b, lfs, parts_of):
    """A file that one client creates with a layout has that layout on the other."""
    lfs(a, "setstripe", "-c", 1, "-S", "2M", "f")
    fd = b.open("f", O_RDWR | O_CREAT)
    b.pwrite(fd, b"x")
    mine, theirs = parts_of(a, "f")[0], parts_of(b, "f")[0]
    assert (theirs.size, theirs.osts) == (mine.size, mine.osts) == (2 * MIB, mine.osts)
