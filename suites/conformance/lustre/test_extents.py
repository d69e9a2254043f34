"""FIEMAP: the extents of a file, by OST."""

from __future__ import annotations

import os

import pytest

from storagetest.agent.testlib.lfs import (
    EXTENT_LAST,
    FIEMAP_DEVICE_ORDER,
    FIEMAP_SYNC,
    STRIPE_UNIT,
    fiemap,
    layout_of,
    lfs,
    several_osts,
)
from storagetest.agent.testlib.tmpfiles import open_fd, pattern_bytes

NO_MUTANT = "no file system in user space has layouts, quota or a changelog"

pytestmark = [
    pytest.mark.needs("filesystem", "layouts"),
    pytest.mark.case(
        level="MUST", section="Linux, Documentation/filesystems/fiemap.rst", no_mutant_reason=NO_MUTANT
    ),
]
ONE = ("-c", 1, "-S", "1M")


def filled(path, *words, size=4 * STRIPE_UNIT):
    """Create a file with a layout and write ``size`` bytes."""
    lfs("setstripe", *words, path)
    with open_fd(path, os.O_WRONLY) as descriptor:
        assert os.write(descriptor, pattern_bytes(size)) == size
        os.fsync(descriptor)
    return size


@pytest.mark.case("LUS-FIEMAP-01")
def test_extents_cover_what_was_written(client_dir):
    """The extents of a file without holes cover all its bytes, in ascending order."""
    size = filled(client_dir / "f", *ONE)
    with open_fd(client_dir / "f", os.O_RDONLY) as descriptor:
        _, extents = fiemap(descriptor)
    at = 0
    for extent in extents:
        assert extent.start <= at
        at = extent.start + extent.length
    assert at >= size


@pytest.mark.case("LUS-FIEMAP-02", builds_on=("LUS-FIEMAP-01",))
def test_last_extent_is_marked(client_dir):
    """FIEMAP_EXTENT_LAST is set in the last extent, and in no other."""
    filled(client_dir / "f", *ONE)
    with open_fd(client_dir / "f", os.O_RDONLY) as descriptor:
        _, extents = fiemap(descriptor)
    assert [bool(extent.flags & EXTENT_LAST) for extent in extents] == [False] * (len(extents) - 1) + [True]


@pytest.mark.case("LUS-FIEMAP-03", builds_on=("LUS-FIEMAP-01",))
def test_count_without_room_returns_no_extent(client_dir):
    """With fm_extent_count 0 only the number of extents is returned."""
    filled(client_dir / "f", *ONE)
    with open_fd(client_dir / "f", os.O_RDONLY) as descriptor:
        mapped, extents = fiemap(descriptor)
        counted, none = fiemap(descriptor, most=0)
    assert (len(extents), none) == (mapped, [])
    assert counted == mapped


@pytest.mark.case("LUS-FIEMAP-04", builds_on=("LUS-FIEMAP-01",))
def test_hole_is_in_no_extent(client_dir):
    """A range that was never written is in no extent, if the file system keeps holes."""
    lfs("setstripe", *ONE, client_dir / "f")
    with open_fd(client_dir / "f", os.O_RDWR) as descriptor:
        os.pwrite(descriptor, b"x" * STRIPE_UNIT, 0)
        os.pwrite(descriptor, b"x" * STRIPE_UNIT, 512 * 1024)
        os.fsync(descriptor)
        _, extents = fiemap(descriptor)
    middle = 256 * 1024
    assert not any(extent.start <= middle < extent.start + extent.length for extent in extents)


@pytest.mark.case(
    "LUS-FIEMAP-05", section="Lustre Operations Manual: lfs, filefrag", builds_on=("LUS-FIEMAP-01",)
)
def test_extents_name_the_osts_of_the_layout(client_dir):
    """In device order each extent names its OST, and each OST of the layout that has data is named."""
    several_osts(client_dir)
    filled(client_dir / "f", "-c", -1, "-S", STRIPE_UNIT)
    with open_fd(client_dir / "f", os.O_RDONLY) as descriptor:
        _, extents = fiemap(descriptor, flags=FIEMAP_SYNC | FIEMAP_DEVICE_ORDER)
    osts = layout_of(client_dir / "f").osts
    assert {extent.device for extent in extents} == set(osts[: min(4, len(osts))])
