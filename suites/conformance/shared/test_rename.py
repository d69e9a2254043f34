"""Rename: for every client the name refers to the old or to the new file at every moment.

Sources: POSIX.1-2024 rename() ("a directory entry named new shall remain visible to other threads
throughout the renaming operation and refer either to the file referred to by new or old before the
operation began"); RFC 1813 3.3.14, RFC 7530 16.27 ("the operation must be atomic to the client").
"""

from __future__ import annotations

from os import O_CREAT, O_EXCL, O_WRONLY

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="POSIX.1-2024 rename()", level="MUST"),
]

TIMES = 60
SIZE = 8000


def _generation(number: int, size: int = SIZE) -> bytes:
    return b"%07d\n" % number * (size // 8)


def _replacements(first: int, times: int = TIMES, size: int = SIZE) -> list[tuple]:
    """Return calls that rename one new generation after the other to ``f``."""
    return [
        call
        for number in range(first, first + times)
        for call in (("write_file", "new", _generation(number, size)), ("rename", "new", "f"))
    ]


@pytest.mark.parametrize(
    ("races", "times", "size"),  # a large file has few renames in a race, which may miss the lookups
    [
        pytest.param(
            1, TIMES, SIZE, id="small", marks=pytest.mark.case("SHR-RENAME-01", kills=("rename-not-atomic",))
        ),
        pytest.param(
            3,
            20,
            200_000,
            id="large",
            marks=pytest.mark.case("SHR-RENAME-09", kills=("rename-not-atomic", "two-rename-gap-large")),
        ),
    ],
)
def test_name_exists_throughout_the_rename(a, b, race, crossed_wire, races, times, size):
    """No open() or stat() fails with ENOENT while files are renamed over the name."""
    a.write_file("f", _generation(0, size))
    lookups_of_b = [("open", "f", 0), ("stat", "f")] * (TIMES if races == 1 else 2 * TIMES)
    for turn in range(races):
        with crossed_wire(b, "query"):
            replaced, lookups = race(_replacements(1 + turn * times, times, size), lookups_of_b)
        assert not [result for result in replaced if isinstance(result, OSError)]
        absent = [result for result in lookups if isinstance(result, FileNotFoundError)]
        assert not absent, f"{len(absent)} of {len(lookups)} lookups found no such name"


@pytest.mark.case("SHR-RENAME-02", kills=("rename-not-atomic",))
def test_read_returns_the_old_or_the_new_file_completely(a, b, race, crossed_wire, observe):
    a.write_file("f", _generation(0))
    with crossed_wire(b, "read"):
        _, results = race(_replacements(1), [("read_file", "f")] * TIMES)
    absent = [result for result in results if isinstance(result, FileNotFoundError)]
    assert not absent, f"{len(absent)} of {len(results)} reads found no such name"
    expected = {_generation(number) for number in range(TIMES + 1)}
    torn = [data for data in results if not isinstance(data, OSError) and data not in expected]
    assert not torn, (
        f"{len(torn)} of {len(results)} reads found neither: {torn[0][:40]!r}, {len(torn[0])} bytes"
    )
    if any(isinstance(result, OSError) for result in results):
        observe("a file replaced while it was read is lost to its reader (ESTALE)")
    assert len(expected.intersection(data for data in results if not isinstance(data, OSError))) > 0


@pytest.mark.case("SHR-RENAME-03", kills=("rename-copies", "rename-old-stays"))
def test_rename_moves_the_file_for_the_other_client(a, b, crossed_wire, server_inodes):
    a.write_file("old", b"the file")
    ino = a.stat("old").ino
    with crossed_wire(a, "change"):
        a.rename("old", "new")
    with crossed_wire(b, "query"):
        assert b.read_file("new") == b"the file"
    found = b.stat("new").ino
    assert found == ino or not server_inodes(), f"inode {ino} is {found} for the other client"
    with pytest.raises(FileNotFoundError):
        b.open("old")


@pytest.mark.slow
@pytest.mark.case(
    "SHR-RENAME-04", kills=("open-finds-the-old-file", "rename-old-stays", "two-other-link-gone")
)
def test_cached_old_name_is_not_found_after_the_rename(a, b, crossed_wire, at_once):
    a.write_file("old", b"the file")
    assert b.read_file("old") == b"the file"
    with crossed_wire(a, "change"):
        a.rename("old", "new")
    with crossed_wire(b, "query"):
        assert b.read_file("new") == b"the file"
        at_once(lambda: not b.can_open("old"), "that the other client renamed the file")


@pytest.mark.slow
@pytest.mark.case("SHR-RENAME-05", kills=("open-finds-the-old-file",))
def test_exchange_of_two_names_by_a_third_is_seen(a, b, crossed_wire, at_once):
    """Both names refer to the exchanged files."""
    a.write_file("f", b"one")
    a.write_file("g", b"two")
    assert (b.read_file("f"), b.read_file("g")) == (b"one", b"two")
    with crossed_wire(a, "change"):
        a.rename("f", "h")
        a.rename("g", "f")
        a.rename("h", "g")
    with crossed_wire(b, "query"):
        at_once(
            lambda: (b.read_file("f"), b.read_file("g")) == (b"two", b"one"),
            "both names as the other client has them",
        )


@pytest.mark.case("SHR-RENAME-06", kills=("rename-empties-directories",))
def test_renamed_directory_keeps_its_entries(a, b, crossed_wire):
    a.mkdir("d")
    a.write_file("d/f", b"inside")
    with crossed_wire(a, "change"):
        a.rename("d", "e")
    with crossed_wire(b, "query"):
        assert b.read_file("e/f") == b"inside"
    with pytest.raises(FileNotFoundError):
        b.open("d/f")


@pytest.mark.case(
    "SHR-RENAME-07", section="POSIX.1-2024 rename() [ENOTEMPTY]", kills=("rename-full-directory",)
)
def test_directory_filled_by_the_other_client_is_not_replaced(a, b, crossed_wire):
    """rename() over the directory fails, although the client has cached an empty listing."""
    a.mkdir("d")
    a.mkdir("e")
    assert a.listdir("e") == []
    with crossed_wire(b, "change"):
        b.write_file("e/f", b"mine")
    with crossed_wire(a, "change"), pytest.raises(OSError, match=r"not empty|exists") as error:
        a.rename("d", "e")
    assert not isinstance(error.value, FileNotFoundError)
    assert b.read_file("e/f") == b"mine"


@pytest.mark.case("SHR-RENAME-08", kills=("writes-follow-the-name",))
def test_open_descriptor_writes_to_the_renamed_file(a, b, crossed_wire):
    """The data goes to the renamed file, not to a new file of the old name."""
    a.write_file("f", b"....")
    fd = b.open("f", O_WRONLY)
    with crossed_wire(a, "change"):
        a.rename("f", "g")
        a.close(a.open("f", O_CREAT | O_EXCL | O_WRONLY))
    with crossed_wire(b, "write"):
        b.write(fd, b"into")
        b.close(fd)
    assert (a.read_file("f"), a.read_file("g")) == (b"", b"into")
