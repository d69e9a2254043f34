"""Progressive layouts: components, when they get objects, and data over their borders."""

from __future__ import annotations

import mmap
import os

import pytest

from storagetest.agent.testlib import assert_errno, record_observation, skip
from storagetest.agent.testlib.lfs import MIB, lfs, parts_of, refused, several_osts, try_lfs
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, pattern_bytes, read_at

NO_MUTANT = "no file system in user space has layouts, quota or a changelog"

pytestmark = [
    pytest.mark.needs("filesystem", "layouts"),
    pytest.mark.case(
        level="MUST",
        section="Lustre Operations Manual: Progressive File Layout (PFL)",
        no_mutant_reason=NO_MUTANT,
    ),
]
components = "lfs-setstripe(1): COMPONENT OPTIONS"
TWO = ("-E", "1M", "-c", 1, "-E", "-1", "-c", -1)
THREE = ("-E", "1M", "-c", 1, "-E", "4M", "-c", 1, "-E", "-1", "-c", -1)
BOUNDED = ("-E", "1M", "-c", 1, "-E", "2M", "-c", 1)


def with_objects(path):
    """Return for each component whether it has objects."""
    return [part.has_objects for part in parts_of(path)]


@pytest.mark.case("LUS-PFL-01", section=components)
def test_components_have_the_requested_ranges(client_dir):
    """Each component begins where the one before ends, and ends where requested."""
    lfs("setstripe", *THREE, client_dir / "f")
    ranges = [(part.start, part.end) for part in parts_of(client_dir / "f")]
    assert ranges == [(0, MIB), (MIB, 4 * MIB), (4 * MIB, None)]


@pytest.mark.case("LUS-PFL-02", builds_on=("LUS-PFL-01",))
def test_new_file_has_objects_in_its_first_component_only(client_dir):
    """The objects of a component are allocated when something is written in its range."""
    lfs("setstripe", *THREE, client_dir / "f")
    assert with_objects(client_dir / "f") == [True, False, False]


@pytest.mark.case("LUS-PFL-03", builds_on=("LUS-PFL-02",))
def test_write_gives_its_component_objects(client_dir):
    """A write in the second component gives it objects, and the third none."""
    lfs("setstripe", *THREE, client_dir / "f")
    with open_fd(client_dir / "f", os.O_WRONLY) as descriptor:
        os.pwrite(descriptor, b"x", MIB)
    assert with_objects(client_dir / "f") == [True, True, False]


@pytest.mark.case("LUS-PFL-04", builds_on=("LUS-PFL-02",))
def test_read_gives_no_component_objects(client_dir):
    """A read in a component without objects returns nothing, or zeros, and allocates none."""
    lfs("setstripe", *THREE, client_dir / "f")
    with open_fd(client_dir / "f", os.O_RDWR) as descriptor:
        assert os.pread(descriptor, 100, 2 * MIB) == b""
    assert with_objects(client_dir / "f") == [True, False, False]


@pytest.mark.case("LUS-PFL-05", section=components, builds_on=("LUS-PFL-01",))
def test_each_component_has_its_own_stripe_count_and_size(client_dir):
    """A component's stripe count and size are its own."""
    osts = len(several_osts(client_dir))
    path = client_dir / "f"
    lfs("setstripe", "-E", "1M", "-c", 1, "-S", "1M", "-E", "-1", "-c", -1, "-S", "2M", path)
    with open_fd(path, os.O_WRONLY) as descriptor:
        os.pwrite(descriptor, b"x", MIB)
    assert [(part.count, part.size) for part in parts_of(path)] == [(1, MIB), (osts, 2 * MIB)]


@pytest.mark.case("LUS-PFL-06", builds_on=("LUS-PFL-01",))
def test_data_over_all_components_are_read_as_written(client_dir):
    """A file's bytes are in order over all of its components."""
    path = client_dir / "f"
    lfs("setstripe", "-E", "128K", "-c", 1, "-S", "64K", "-E", "512K", "-c", 1, "-E", "-1", "-c", -1, path)
    data = pattern_bytes(MIB + 77)
    with open_fd(path, os.O_WRONLY) as descriptor:
        done = 0
        while done < len(data):
            done += os.write(descriptor, data[done:])
    assert path.stat().st_size == len(data)
    assert read_at(path, len(data)) == data


@pytest.mark.case("LUS-PFL-07", builds_on=("LUS-PFL-01",))
def test_write_across_a_border_of_components(client_dir):
    """A write that crosses a border of two components is one write."""
    path = client_dir / "f"
    lfs("setstripe", *TWO, path)
    with open_fd(path, os.O_RDWR) as descriptor:
        assert os.pwrite(descriptor, b"across", MIB - 3) == 6
        assert os.fstat(descriptor).st_size == MIB + 3
    assert read_at(path, 12, MIB - 6) == bytes(3) + b"across"
    assert with_objects(path) == [True, True]


@pytest.mark.case("LUS-PFL-08", builds_on=("LUS-PFL-01",), section="POSIX.1-2024 truncate(): DESCRIPTION")
def test_truncate_up_into_another_component(client_dir):
    """A file that grows into another component reads as zeros there."""
    path = client_dir / "f"
    lfs("setstripe", *TWO, path)
    with open_fd(path, os.O_RDWR) as descriptor:
        os.write(descriptor, b"start")
        os.ftruncate(descriptor, 2 * MIB)
        assert os.fstat(descriptor).st_size == 2 * MIB
        assert os.pread(descriptor, 4096, 2 * MIB - 4096) == bytes(4096)
        assert os.pread(descriptor, 8, 0) == b"start" + bytes(3)


@pytest.mark.case("LUS-PFL-09", builds_on=("LUS-PFL-01",), section="POSIX.1-2024 truncate(): DESCRIPTION")
def test_truncate_down_into_the_first_component(client_dir):
    """What was cut off in another component does not come back when the file grows again."""
    path = client_dir / "f"
    lfs("setstripe", *TWO, path)
    with open_fd(path, os.O_RDWR) as descriptor:
        os.pwrite(descriptor, b"a" * 4096, 0)
        os.pwrite(descriptor, b"b" * 4096, MIB)
        os.ftruncate(descriptor, 100)
        assert os.fstat(descriptor).st_size == 100
        os.ftruncate(descriptor, MIB + 4096)
        assert os.pread(descriptor, 4096, MIB) == bytes(4096)
        assert os.pread(descriptor, 200, 0) == b"a" * 100 + bytes(100)


@pytest.mark.case(
    "LUS-PFL-10", builds_on=("LUS-PFL-01",), section="Lustre Operations Manual: lfs setstripe, Inheritance"
)
def test_directory_default_with_components_is_inherited(client_dir):
    """A new file has the components of its directory's default."""
    lfs("setstripe", *THREE, client_dir)
    make_file(client_dir / "f")
    assert [part.end for part in parts_of(client_dir / "f")] == [MIB, 4 * MIB, None]


@pytest.mark.case("LUS-PFL-11", builds_on=("LUS-PFL-01",))
def test_write_beyond_the_last_component_is_refused(client_dir):
    """A write beyond the end of the last component has no place, and fails; the data before stay."""
    path = client_dir / "f"
    lfs("setstripe", *BOUNDED, path)
    with open_fd(path, os.O_RDWR) as descriptor:
        os.pwrite(descriptor, b"kept", 0)
        try:
            os.pwrite(descriptor, b"lost", 3 * MIB)
        except OSError as error:
            record_observation(f"pwrite is refused by errno {error.errno}: {error.strerror}")
        else:
            raise AssertionError("a write beyond the last component succeeded")
        assert os.pread(descriptor, 10, 0) == b"kept"
        assert os.fstat(descriptor).st_size == 4


@pytest.mark.case(
    "LUS-PFL-12", section="lfs-setstripe(1): COMPONENT OPTIONS, --component-add", builds_on=("LUS-PFL-01",)
)
def test_added_component_extends_the_layout(client_dir):
    """--component-add appends a component, in which a file can then be written."""
    path = client_dir / "f"
    lfs("setstripe", *BOUNDED, path)
    lfs("setstripe", "--component-add", "-E", "-1", "-c", 1, path)
    assert [part.end for part in parts_of(path)] == [MIB, 2 * MIB, None]
    with open_fd(path, os.O_RDWR) as descriptor:
        assert os.pwrite(descriptor, b"there", 3 * MIB) == 5
        assert os.pread(descriptor, 10, 3 * MIB) == b"there"


@pytest.mark.case(
    "LUS-PFL-13", section="lfs-setstripe(1): COMPONENT OPTIONS, --component-del", builds_on=("LUS-PFL-01",)
)
def test_last_component_can_be_deleted(client_dir):
    """--component-del removes the last component; the others stay."""
    path = client_dir / "f"
    lfs("setstripe", *THREE, path)
    lfs("setstripe", "--component-del", "-I", parts_of(path)[-1].id, path)
    assert [part.end for part in parts_of(path)] == [MIB, 4 * MIB]


@pytest.mark.case(
    "LUS-PFL-14", section="lfs-setstripe(1): COMPONENT OPTIONS, --component-del", builds_on=("LUS-PFL-13",)
)
def test_component_in_the_middle_cannot_be_deleted(client_dir):
    """A deletion that would leave a hole in the layout is refused, and the layout stays."""
    path = client_dir / "f"
    lfs("setstripe", *THREE, path)
    refused("setstripe", "--component-del", "-I", parts_of(path)[1].id, path)
    assert [part.end for part in parts_of(path)] == [MIB, 4 * MIB, None]


@pytest.mark.case("LUS-PFL-15", builds_on=("LUS-PFL-01",), section="POSIX.1-2024 mmap(): DESCRIPTION")
def test_mapped_write_gives_its_component_objects(client_dir):
    """What is written through a shared mapping in a component without objects is in the file."""
    path = client_dir / "f"
    lfs("setstripe", *TWO, path)
    with open_fd(path, os.O_RDWR) as descriptor:
        os.ftruncate(descriptor, 2 * MIB)
        with mmap.mmap(descriptor, 2 * MIB) as mapped:
            mapped[MIB + 10 : MIB + 16] = b"mapped"
            mapped.flush()
    assert read_at(path, 8, MIB + 9) == b"\0mapped\0"


@pytest.mark.case("LUS-PFL-16", builds_on=("LUS-PFL-01",), section="POSIX.1-2024 write(): O_APPEND")
def test_append_crosses_a_border(client_dir):
    """Records that are appended over the border of two components are all in the file, in order."""
    path = client_dir / "f"
    lfs("setstripe", *TWO, path)
    record = pattern_bytes(4096 * 3)
    with open_fd(path, os.O_WRONLY) as descriptor:
        os.ftruncate(descriptor, MIB - 4096)
    with open_fd(path, os.O_WRONLY | os.O_APPEND) as descriptor:
        for _ in range(3):
            assert os.write(descriptor, record) == len(record)
    assert read_at(path, len(record) * 3 + 1, MIB - 4096) == record * 3


@pytest.mark.case("LUS-PFL-17", section="lfs-find(1): OPTIONS, --component-count", builds_on=("LUS-PFL-01",))
def test_find_by_component_count(client_dir):
    """The search by --component-count lists the files with so many components, and no others."""
    lfs("setstripe", *TWO, client_dir / "two")
    lfs("setstripe", *THREE, client_dir / "three")
    lfs("setstripe", "-c", 1, client_dir / "plain")
    found = lfs("find", client_dir, "--type", "f", "--component-count", 3).split()
    assert [os.path.basename(path) for path in found] == ["three"]


def data_on_mdt(path):
    """Create a file whose first 64 KiB are on the MDT; skip the case if the file system refuses that."""
    done = try_lfs("setstripe", "-E", "64K", "-L", "mdt", "-E", "-1", "-c", 1, path)
    if done.status:
        skip(f"this file system has no data on the MDT: {done}")


@pytest.mark.case("LUS-DOM-01", section="Lustre Operations Manual: Data on MDT (DoM)")
def test_first_component_is_on_the_mdt(client_dir):
    """A component on the MDT has no OST objects, and the next ends the file."""
    data_on_mdt(client_dir / "f")
    first, second = parts_of(client_dir / "f")
    assert (first.pattern, first.end, first.osts) == ("mdt", 64 * 1024, [])
    assert (second.pattern, second.end) == ("raid0", None)


@pytest.mark.case(
    "LUS-DOM-02", section="Lustre Operations Manual: Data on MDT (DoM)", builds_on=("LUS-DOM-01",)
)
def test_data_over_the_border_of_the_mdt_are_read_as_written(client_dir):
    """A file's bytes are in order over the MDT and the OSTs."""
    path = client_dir / "f"
    data_on_mdt(path)
    data = pattern_bytes(3 * 64 * 1024 + 5)
    with open_fd(path, os.O_RDWR) as descriptor:
        assert os.write(descriptor, data) == len(data)
    assert path.stat().st_size == len(data)
    assert read_at(path, len(data)) == data


@pytest.mark.case(
    "LUS-DOM-03", section="Lustre Operations Manual: Data on MDT (DoM)", builds_on=("LUS-DOM-01",)
)
def test_file_on_the_mdt_is_truncated_and_grows(client_dir):
    """Size and data of a file on the MDT follow truncate and write as those of any other file."""
    path = client_dir / "f"
    data_on_mdt(path)
    with open_fd(path, os.O_RDWR) as descriptor:
        os.write(descriptor, b"a" * 1000)
        os.ftruncate(descriptor, 10)
        os.ftruncate(descriptor, 20)
        assert os.pread(descriptor, 100, 0) == b"a" * 10 + bytes(10)
        assert os.fstat(descriptor).st_size == 20


@pytest.mark.case("LUS-PFL-18", section="POSIX.1-2024 lseek(): SEEK_END", builds_on=("LUS-PFL-01",))
def test_seek_end_finds_the_end_in_any_component(client_dir):
    """SEEK_END is the file's size, whichever components have objects."""
    path = client_dir / "f"
    lfs("setstripe", *THREE, path)
    with open_fd(path, os.O_RDWR) as descriptor:
        for offset in (5, MIB + 5, 4 * MIB + 5):
            os.pwrite(descriptor, b"x", offset)
            assert os.lseek(descriptor, 0, os.SEEK_END) == offset + 1


@pytest.mark.case("LUS-PFL-19", section="POSIX.1-2024 open(): ERRORS, EISDIR", builds_on=("LUS-PFL-10",))
def test_directory_with_components_is_a_directory(client_dir):
    """A directory with a default of components has no data of its own."""
    lfs("setstripe", *THREE, client_dir)
    assert_errno(21, os.open, client_dir, os.O_WRONLY)
