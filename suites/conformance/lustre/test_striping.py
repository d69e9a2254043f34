"""Plain layouts: stripe count, size and offset, their inheritance, and data over stripes."""

from __future__ import annotations

import os

import pytest

from storagetest.agent.testlib import record_observation, skip
from storagetest.agent.testlib.lfs import (
    MIB,
    STRIPE_UNIT,
    layout_of,
    lfs,
    ost_indices,
    pools_of,
    refused,
    several_osts,
)
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, pattern_bytes, read_at

NO_MUTANT = "no file system in user space has layouts, quota or a changelog"

pytestmark = [
    pytest.mark.needs("filesystem", "layouts"),
    pytest.mark.case(level="MUST", section="lfs-setstripe(1): DESCRIPTION", no_mutant_reason=NO_MUTANT),
]
options = "lfs-setstripe(1): OPTIONS"
inheritance = "Lustre Operations Manual: Setting the Striping Layout for a Directory"


def striped(path, *words):
    """Create a file with a layout and return the layout."""
    lfs("setstripe", *words, path)
    return layout_of(path)


@pytest.mark.case("LUS-STRIPE-01")
def test_setstripe_creates_an_empty_file(client_dir):
    """A new, empty regular file with the specified layout is created."""
    path = client_dir / "f"
    striped(path, "-c", 1)
    assert path.is_file()
    assert path.stat().st_size == 0


@pytest.mark.case("LUS-STRIPE-02", section=options, builds_on=("LUS-STRIPE-01",))
def test_one_stripe_is_one_object(client_dir):
    """A stripe count of 1 uses one OST."""
    layout = striped(client_dir / "f", "-c", 1)
    assert (layout.count, len(layout.osts)) == (1, 1)


@pytest.mark.case("LUS-STRIPE-03", section=options, builds_on=("LUS-STRIPE-01",))
def test_two_stripes_are_on_two_osts(client_dir):
    """Each stripe of a file without overstriping is on an OST of its own."""
    several_osts(client_dir)
    layout = striped(client_dir / "f", "-c", 2)
    assert layout.count == 2
    assert len(set(layout.osts)) == 2


@pytest.mark.case("LUS-STRIPE-04", section=options, builds_on=("LUS-STRIPE-01",))
def test_minus_one_stripes_over_all_osts(client_dir):
    """A stripe count of -1 uses every available OST once."""
    layout = striped(client_dir / "f", "-c", -1)
    assert sorted(layout.osts) == ost_indices(client_dir)
    assert layout.count == len(layout.osts)


@pytest.mark.case("LUS-STRIPE-05", section=options, builds_on=("LUS-STRIPE-01",))
def test_zero_is_the_default_count(client_dir):
    """A stripe count of 0 uses the file system's default, which is at least one stripe."""
    layout = striped(client_dir / "f", "-c", 0)
    assert 1 <= layout.count <= len(ost_indices(client_dir))
    assert len(layout.osts) == layout.count


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(STRIPE_UNIT, marks=pytest.mark.case("LUS-STRIPE-06")),
        pytest.param(MIB, marks=pytest.mark.case("LUS-STRIPE-07")),
        pytest.param(5 * STRIPE_UNIT, marks=pytest.mark.case("LUS-STRIPE-08")),
    ],
)
@pytest.mark.case(section=options, builds_on=("LUS-STRIPE-01",))
def test_stripe_size_is_as_requested(client_dir, size):
    """The stripe size is the number of bytes requested, any multiple of 64 KiB."""
    assert striped(client_dir / "f", "-S", size).size == size


@pytest.mark.case("LUS-STRIPE-09", section=options, builds_on=("LUS-STRIPE-01",))
def test_suffix_m_is_mebibytes(client_dir):
    """The suffix M of a stripe size means 1,048,576 bytes."""
    assert striped(client_dir / "f", "-S", "2M").size == 2 * MIB


@pytest.mark.case("LUS-STRIPE-10", section=options, builds_on=("LUS-STRIPE-01",))
def test_index_is_the_ost_of_the_first_stripe(client_dir):
    """--stripe-index is the OST of a file's first stripe, for each OST."""
    for index in ost_indices(client_dir):
        layout = striped(client_dir / f"f{index}", "-i", index, "-c", 1)
        assert (layout.offset, layout.osts) == (index, [index])


@pytest.mark.case("LUS-STRIPE-11", section=options, builds_on=("LUS-STRIPE-01",))
def test_index_minus_one_lets_the_mds_choose(client_dir):
    """With a stripe index of -1 the MDS chooses an OST, and a layout names which."""
    layout = striped(client_dir / "f", "-i", -1, "-c", 1)
    assert layout.osts[0] in ost_indices(client_dir)
    assert layout.offset == layout.osts[0]


@pytest.mark.case("LUS-STRIPE-12", section=options, builds_on=("LUS-STRIPE-01",))
def test_list_of_osts_is_used_in_its_order(client_dir):
    """--ost-list places the stripes on the listed OSTs, in that order."""
    first, second = several_osts(client_dir)[:2]
    for number, order in enumerate(([first, second], [second, first])):
        assert striped(client_dir / f"f{number}", "-o", ",".join(map(str, order))).osts == order


@pytest.mark.case("LUS-POOL-01", section=options, builds_on=("LUS-STRIPE-01",))
def test_objects_are_on_osts_of_the_pool(client_dir):
    """--pool places the stripes on OSTs of that pool only, for each pool of the file system."""
    pools = pools_of(client_dir)
    if not pools:
        skip("this file system has no OST pool")
    for number, (pool, osts) in enumerate(pools.items()):
        layout = striped(client_dir / f"f{number}", "-p", pool.partition(".")[2], "-c", -1)
        assert layout.pool == pool.partition(".")[2]
        assert sorted(layout.osts) == sorted(osts)


@pytest.mark.case("LUS-STRIPE-13", section=options, level="MUST", builds_on=("LUS-STRIPE-01",))
def test_more_stripes_than_osts_are_at_most_all_osts(client_dir):
    """A file without overstriping has at most one stripe on an OST, however many were requested."""
    osts = ost_indices(client_dir)
    layout = striped(client_dir / "f", "-c", len(osts) + 3)
    assert 1 <= layout.count <= len(osts)
    assert len(set(layout.osts)) == len(layout.osts) == layout.count
    record_observation(f"{layout.count} of {len(osts)} OSTs are used if {len(osts) + 3} are requested")


@pytest.mark.case("LUS-STRIPE-14", section="Lustre Operations Manual: Lustre File System and Striping")
def test_data_over_several_stripes_are_read_as_written(client_dir):
    """A file's bytes are in the order in which they were written, over all its stripes."""
    path = client_dir / "f"
    lfs("setstripe", "-c", -1, "-S", STRIPE_UNIT, path)
    data = pattern_bytes(5 * STRIPE_UNIT + 4321)
    with open_fd(path, os.O_RDWR) as descriptor:
        assert os.write(descriptor, data) == len(data)
        os.fsync(descriptor)
    assert path.stat().st_size == len(data)
    assert read_at(path, len(data)) == data


@pytest.mark.case("LUS-STRIPE-15", section="Lustre Operations Manual: Lustre File System and Striping")
def test_write_across_a_stripe_boundary(client_dir):
    """A write that crosses from one stripe to the next changes its own bytes only."""
    path = client_dir / "f"
    lfs("setstripe", "-c", -1, "-S", STRIPE_UNIT, path)
    data = bytearray(pattern_bytes(3 * STRIPE_UNIT))
    with open_fd(path, os.O_RDWR) as descriptor:
        assert os.write(descriptor, bytes(data)) == len(data)
        for boundary in (STRIPE_UNIT, 2 * STRIPE_UNIT):
            assert os.pwrite(descriptor, b"across", boundary - 3) == 6
            data[boundary - 3 : boundary + 3] = b"across"
    assert read_at(path, len(data)) == bytes(data)


@pytest.mark.case("LUS-STRIPE-16", section="Lustre Operations Manual: Lustre File System and Striping")
def test_size_of_a_file_with_holes_is_that_of_its_last_stripe(client_dir):
    """The size is the highest written offset, on whichever stripe it is; the rest reads as zeros."""
    path = client_dir / "f"
    lfs("setstripe", "-c", -1, "-S", STRIPE_UNIT, path)
    with open_fd(path, os.O_RDWR) as descriptor:
        for number in (5, 2, 3):
            os.pwrite(descriptor, b"x", number * STRIPE_UNIT + number)
            assert os.fstat(descriptor).st_size == 5 * STRIPE_UNIT + 6 if number == 5 else True
    assert path.stat().st_size == 5 * STRIPE_UNIT + 6
    assert read_at(path, STRIPE_UNIT) == bytes(STRIPE_UNIT)


@pytest.mark.case("LUS-STRIPE-17", section="POSIX.1-2024 truncate(): DESCRIPTION")
def test_truncate_within_each_stripe(client_dir):
    """A truncated file has the new size, and what is beyond it is gone on all stripes."""
    path = client_dir / "f"
    lfs("setstripe", "-c", -1, "-S", STRIPE_UNIT, path)
    data = pattern_bytes(4 * STRIPE_UNIT)
    with open_fd(path, os.O_RDWR) as descriptor:
        os.write(descriptor, data)
        for size in (3 * STRIPE_UNIT + 7, 2 * STRIPE_UNIT, STRIPE_UNIT - 1):
            os.ftruncate(descriptor, size)
            assert os.fstat(descriptor).st_size == size
        os.ftruncate(descriptor, 4 * STRIPE_UNIT)
    kept = STRIPE_UNIT - 1
    assert read_at(path, 4 * STRIPE_UNIT) == data[:kept] + bytes(4 * STRIPE_UNIT - kept)


@pytest.mark.case("LUS-INHERIT-01", section=inheritance)
def test_file_inherits_the_layout_of_its_directory(client_dir):
    """A new file has the default layout of its directory."""
    lfs("setstripe", "-c", 1, "-S", "2M", client_dir)
    layout = layout_of(make_file(client_dir / "f"))
    assert (layout.count, layout.size) == (1, 2 * MIB)


@pytest.mark.case("LUS-INHERIT-02", section=inheritance, builds_on=("LUS-INHERIT-01",))
def test_subdirectory_inherits_the_default(client_dir):
    """A new subdirectory, and the files in it, have the default layout of the directory above."""
    lfs("setstripe", "-c", 1, "-S", "4M", client_dir)
    (client_dir / "one" / "two").mkdir(parents=True)
    assert layout_of(make_file(client_dir / "one" / "two" / "f")).size == 4 * MIB


@pytest.mark.case("LUS-INHERIT-03", section=inheritance, builds_on=("LUS-INHERIT-01",))
def test_existing_files_keep_their_layout(client_dir):
    """A changed default of a directory is for new files only."""
    lfs("setstripe", "-S", "1M", client_dir)
    before = make_file(client_dir / "before")
    lfs("setstripe", "-S", "2M", client_dir)
    after = make_file(client_dir / "after")
    assert (layout_of(before).size, layout_of(after).size) == (MIB, 2 * MIB)


@pytest.mark.case("LUS-INHERIT-04", section=inheritance, builds_on=("LUS-INHERIT-01",))
def test_file_of_its_own_layout_ignores_the_default(client_dir):
    """A file that lfs setstripe creates has the specified values, whatever its directory has."""
    lfs("setstripe", "-c", 1, "-S", "4M", client_dir)
    assert striped(client_dir / "f", "-S", "1M", "-c", 1).size == MIB


@pytest.mark.case(
    "LUS-INHERIT-05", section="lfs-setstripe(1): OPTIONS, --delete", builds_on=("LUS-INHERIT-01",)
)
def test_deleted_default_is_no_longer_inherited(client_dir):
    """The option -d removes a directory's own default, and new files do not have it."""
    (client_dir / "d").mkdir()
    lfs("setstripe", "-S", "1M", client_dir)
    lfs("setstripe", "-S", 3 * STRIPE_UNIT, client_dir / "d")
    assert layout_of(make_file(client_dir / "d" / "with")).size == 3 * STRIPE_UNIT
    lfs("setstripe", "-d", client_dir / "d")
    assert layout_of(make_file(client_dir / "d" / "without")).size != 3 * STRIPE_UNIT


@pytest.mark.case("LUS-INHERIT-06", section="lfs-getstripe(1): OPTIONS, --directory")
def test_getstripe_shows_a_directorys_default(client_dir):
    """The option -d of lfs getstripe shows the directory's default, and not the layouts of its files."""
    lfs("setstripe", "-c", 1, "-S", "2M", client_dir)
    make_file(client_dir / "f")
    assert lfs("getstripe", "-d", "-S", client_dir).split() == [str(2 * MIB)]
    assert lfs("getstripe", "-d", "-c", client_dir).split() == ["1"]


@pytest.mark.case("LUS-LAYOUT-01", section="POSIX.1-2024 rename(): DESCRIPTION")
def test_rename_keeps_the_layout(client_dir):
    """A renamed file is the same file with its layout, also in a directory with another default."""
    (client_dir / "d").mkdir()
    lfs("setstripe", "-S", "4M", client_dir / "d")
    before = striped(client_dir / "f", "-S", "1M", "-c", 1)
    os.rename(client_dir / "f", client_dir / "d" / "f")
    after = layout_of(client_dir / "d" / "f")
    assert (after.size, after.osts) == (before.size, before.osts)


@pytest.mark.case("LUS-LAYOUT-02", section="POSIX.1-2024 link(): DESCRIPTION")
def test_hard_link_shows_the_same_layout(client_dir):
    """Both names of a file show the layout of the one file."""
    before = striped(client_dir / "f", "-S", "2M", "-c", 1)
    os.link(client_dir / "f", client_dir / "g")
    after = layout_of(client_dir / "g")
    assert (after.size, after.osts, after.fields) == (before.size, before.osts, before.fields)


@pytest.mark.case("LUS-LAYOUT-03", section="POSIX.1-2024 open(): O_TRUNC")
def test_truncated_file_keeps_its_layout(client_dir):
    """O_TRUNC removes a file's data, and leaves the layout as it is."""
    before = striped(client_dir / "f", "-S", "2M", "-c", 1)
    with open_fd(client_dir / "f", os.O_WRONLY) as descriptor:
        os.write(descriptor, b"data")
    with open_fd(client_dir / "f", os.O_WRONLY | os.O_TRUNC):
        pass
    after = layout_of(client_dir / "f")
    assert (after.size, after.osts) == (before.size, before.osts)


@pytest.mark.case("LUS-LAYOUT-04", section="lfs-setstripe(1): DESCRIPTION")
def test_layout_of_a_file_with_objects_is_not_replaced(client_dir):
    """The layout of a file that has one is not changed by lfs setstripe; it is refused."""
    before = striped(client_dir / "f", "-S", "1M", "-c", 1)
    refused("setstripe", "-S", "2M", "-c", 1, client_dir / "f")
    after = layout_of(client_dir / "f")
    assert (after.size, after.osts) == (before.size, before.osts)


@pytest.mark.case("LUS-LAYOUT-05", section="lfs-find(1): OPTIONS, --stripe-size")
def test_find_by_stripe_size(client_dir):
    """The search by --stripe-size lists the files that have this stripe size, and no others."""
    for name, size in (("a", "1M"), ("b", "2M"), ("c", "2M")):
        lfs("setstripe", "-c", 1, "-S", size, client_dir / name)
    found = lfs("find", client_dir, "--type", "f", "--stripe-size", "2M").split()
    assert sorted(os.path.basename(path) for path in found) == ["b", "c"]


@pytest.mark.case("LUS-LAYOUT-06", section="lfs-find(1): OPTIONS, --ost")
def test_find_by_ost(client_dir):
    """The search by --ost lists the files that have an object on that OST, and no others."""
    first, second = several_osts(client_dir)[:2]
    lfs("setstripe", "-c", 1, "-i", first, client_dir / "a")
    lfs("setstripe", "-c", 1, "-i", second, client_dir / "b")
    lfs("setstripe", "-o", f"{first},{second}", client_dir / "c")
    found = lfs("find", client_dir, "--type", "f", "--ost", second).split()
    assert sorted(os.path.basename(path) for path in found) == ["b", "c"]
