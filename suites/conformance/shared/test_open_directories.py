"""Open directories: a descriptor is of the directory, wherever another client has moved it.

Sources: POSIX.1-2024 open(): DESCRIPTION (openat(): a relative path is looked up in the directory of the
descriptor), rename(), rmdir(); RFC 8881 4.2.3 and RFC 7530 4.2.3 (persistent filehandles), RFC 1813 2.6.
SMB has no handles of directories to look names up in: its clients send paths (known_issues.toml).
"""

from __future__ import annotations

from os import O_CREAT, O_DIRECTORY, O_EXCL, O_WRONLY

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="POSIX.1-2024 open(), rename(): DESCRIPTION", level="MUST"),
]

MAKE = O_CREAT | O_EXCL | O_WRONLY


@pytest.mark.case("SHR-OPENDIR-01", kills=("two-open-directory-by-path",))
def test_names_are_found_through_a_directory_that_the_other_client_moved(a, b, crossed_wire):
    """Files are opened and made in it; a new directory of its former name is another one."""
    a.mkdir("d")
    a.write_file("d/f", b"of the first")
    directory = b.open("d", O_DIRECTORY)
    b.close(b.open_at(directory, "f"))
    with crossed_wire(a, "change"):
        a.rename("d", "moved")
        a.mkdir("d")
        a.write_file("d/f", b"of the second")
    assert b.read(b.open_at(directory, "f"), 20) == b"of the first"
    with crossed_wire(b, "change"):
        b.close(b.open_at(directory, "made", MAKE))
    assert a.listdir("moved") == ["f", "made"]
    assert a.listdir("d") == ["f"]


@pytest.mark.case(
    "SHR-OPENDIR-02", section="POSIX.1-2024 open(): ERRORS", kills=("two-open-directory-made-again",)
)
def test_nothing_is_made_in_a_directory_that_has_taken_the_name(a, b, crossed_wire):
    """A directory that the other client removed takes no file: not even if there is a new one of its name."""
    a.mkdir("d")
    directory = b.open("d", O_DIRECTORY)
    with crossed_wire(a, "change"):
        a.rmdir("d")
        a.mkdir("d")
    with pytest.raises(OSError, match=r"No such file|[Ss]tale"):
        b.open_at(directory, "f", MAKE)
    assert a.listdir("d") == [], "a file of a removed directory is in the new one"
