"""Calls on one file, and in one directory, that succeed hundreds of times: each time as the first."""

from __future__ import annotations

import os
import stat
import time

import pytest

from storagetest.agent.testlib import record_observation
from storagetest.agent.testlib.libc import FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, fallocate
from storagetest.agent.testlib.tmpfiles import make_file, open_fd, read_at, symbolic_link

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

TIMES = 330
"""How often a call is made: more often than a byte counts (chosen)."""
SECONDS = 6.0
"""Seconds for the repetitions of one case, which are fewer on a slow mount (chosen)."""
PAGE = 4096


def turns():
    """Yield numbers from 1, ``TIMES`` or for ``SECONDS``."""
    until = time.monotonic() + SECONDS
    for turn in range(1, TIMES + 1):
        yield turn
        if time.monotonic() > until:
            record_observation(f"{turn} times in {SECONDS:g} s")
            return


@pytest.mark.case(
    "PSX-MANY-MODES",
    section="POSIX.1-2024 chmod(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-AGAIN-CHMOD"),
    kills=("chmod-130th-ignored",),
)
def test_mode_is_set_each_time(client_dir):
    """chmod() shall change the mode of a file and of a directory: each of hundreds of times."""
    (client_dir / "d").mkdir()
    paths = make_file(client_dir / "f"), client_dir / "d"
    for turn in turns():
        for path in paths:
            mode = 0o700 | turn % 0o100
            os.chmod(path, mode)
            found = stat.S_IMODE(os.stat(path).st_mode)
            assert found == mode, f"chmod() of {path.name} to {mode:o}, time {turn}, gives it {found:o}"


@pytest.mark.case(
    "PSX-MANY-TIMES",
    section="POSIX.1-2024 utimensat(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-AGAIN-UTIMENS"),
    kills=("utimens-130th-ignored",),
)
def test_times_are_set_each_time(client_dir):
    """The times of a file and of a directory shall be set to those given: each of hundreds of times."""
    (client_dir / "d").mkdir()
    paths = make_file(client_dir / "f"), client_dir / "d"
    for turn in turns():
        for path in paths:
            wanted = 1_000_000_000 + 2 * turn
            os.utime(path, (wanted, wanted))
            found = os.stat(path).st_mtime
            assert found == wanted, f"utimensat() of {path.name}, time {turn}: mtime"


@pytest.mark.case(
    "PSX-MANY-RENAMES",
    section="POSIX.1-2024 rename(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-AGAIN-RENAME-BACK"),
    kills=("renamed-40-times-emptied",),
)
def test_file_is_renamed_many_times(client_dir):
    """A file keeps its data, and a directory its entries, however often it was renamed and moved."""
    data = b"renamed" * 100
    for directory in ("one", "two"):
        (client_dir / directory).mkdir()
    file, tree = make_file(client_dir / "one" / "f", data), client_dir / "one" / "d"
    tree.mkdir()
    make_file(tree / "inside", b"inside")
    for turn in turns():
        where = client_dir / ("one", "two", "two")[turn % 3]
        names = where / f"f{turn % 5}", where / f"d{turn % 7}"
        os.rename(file, names[0])
        os.rename(tree, names[1])
        old, (file, tree) = (file, tree), names
        assert not any(os.path.lexists(path) for path in old if path not in names), f"old names, time {turn}"
        assert file.read_bytes() == data, f"the file has other data after {turn} renames"
        assert os.listdir(tree) == ["inside"], f"the directory has other entries after {turn} renames"
    assert (tree / "inside").read_bytes() == b"inside"


@pytest.mark.case(
    "PSX-MANY-RANGES",
    section="fallocate(2): DESCRIPTION, Deallocating file space",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-FALLOCATE-EXTENDS", "PSX-FALLOCATE-KEEPS-DATA"),
    kills=("fallocate-60th-ignored", "allocation-40th-zeroes"),
)
def test_ranges_are_allocated_and_punched_each_time(client_dir):
    """Each allocation extends the file and keeps its data, each hole is zeroes: hundreds of times."""
    with open_fd(make_file(client_dir / "f", b"x" * PAGE)) as descriptor:
        fallocate(descriptor, 0, 0, 2 * PAGE)
        hole = FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE
        fallocate(descriptor, hole, PAGE, PAGE)
        for turn in turns():
            os.ftruncate(descriptor, PAGE)
            os.pwrite(descriptor, b"%04d" % turn * 1024, 0)
            fallocate(descriptor, 0, 0, 2 * PAGE)
            size, found = os.fstat(descriptor).st_size, os.pread(descriptor, 2 * PAGE, 0)
            assert size == 2 * PAGE, f"an allocation past the end, time {turn}, gives the file {size} bytes"
            assert found == b"%04d" % turn * 1024 + bytes(PAGE), f"data after allocation {turn}"
            fallocate(descriptor, hole, 1024, 2048)
            found = read_at(client_dir / "f", PAGE)
            wanted = b"%04d" % turn * 256
            assert found == wanted + bytes(2048) + wanted, f"data around and in hole {turn}"


@pytest.mark.case(
    "PSX-MANY-NAMES",
    section="POSIX.1-2024 symlink(): DESCRIPTION; mkdir(): DESCRIPTION; open(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-COUNTED-NAME", "PSX-AGAIN-SYMLINK"),
    kills=("mkdir-200th-refused", "symlink-200th-refused"),
)
def test_names_are_made_and_removed_in_a_directory_each_time(client_dir):
    """A directory takes a file, a directory and a symbolic link, and gives them up: hundreds of times."""
    path = client_dir / "d"
    path.mkdir()
    symbolic_link("probe", client_dir / "probe")
    for turn in turns():
        try:
            (path / f"d{turn % 3}").mkdir()
            os.symlink(f"t{turn}", path / f"l{turn % 3}")
            make_file(path / f"f{turn % 3}", b"%d" % turn)
        except OSError as error:
            raise AssertionError(f"a name, time {turn}, is refused: {error.strerror}") from None
        if turn % 10 == 0:
            assert sorted(os.listdir(path)) == [f"{kind}{turn % 3}" for kind in "dfl"], f"names, time {turn}"
        assert os.readlink(path / f"l{turn % 3}") == f"t{turn}"
        assert (path / f"f{turn % 3}").read_bytes() == b"%d" % turn
        os.rmdir(path / f"d{turn % 3}")
        os.unlink(path / f"l{turn % 3}")
        os.unlink(path / f"f{turn % 3}")
    os.rmdir(path)


@pytest.mark.case(
    "PSX-MANY-LOOKS",
    section="POSIX.1-2024 opendir(), readlink(), fsync(), fstatvfs(), read(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-FSYNC", "PSX-SYMLINK-CONTENT"),
    kills=("opendir-200th-refused", "readlink-200th-cut", "fsync-200th-refused"),
)
def test_calls_that_change_nothing_succeed_each_time(client_dir):
    """A directory is listed, a link read, a file synchronized and asked for: hundreds of times, alike."""
    directory, link = client_dir / "d", client_dir / "l"
    directory.mkdir()
    make_file(directory / "f", b"data")
    symbolic_link("contents", link)
    with open_fd(directory / "f") as descriptor:
        for turn in turns():
            try:
                assert os.listdir(directory) == ["f"], f"the entries at listing {turn}"
                found = os.readlink(link)
                assert found == "contents", f"readlink(), time {turn}: {found}"
                os.fsync(descriptor)
                os.statvfs(descriptor)
                assert os.pread(descriptor, 10, 0) == b"data", f"read(), time {turn}"
            except OSError as error:
                raise AssertionError(f"a call, time {turn}, is refused: {error.strerror}") from None
