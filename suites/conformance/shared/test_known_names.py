"""Names and files that a client knows, and the other client changes: each call is on what is there now.

Sources: RFC 7530 10.8 and nfs(5) (names are looked up again when what is known of them has expired), 10.3.1
(data are revalidated at each open); POSIX.1-2024 mkdir(), link(), symlink(), rename(), unlink(), rmdir().
A client may believe a name for as long as attributes are cached, and not for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from errno import EOPNOTSUPP, EPERM
from os import O_CREAT, O_EXCL, O_TRUNC

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="RFC 7530 10.8; nfs(5)", level="MUST"),
]

MANY = 130
"""Files that a client knows: more than a small table has (chosen)."""


def _done(call: Callable[[], object], refused: type[OSError]) -> bool:
    """Make the call; return False if it raises ``refused``."""
    try:
        call()
    except refused:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "free"),
    [
        pytest.param(
            make,
            free,
            id=make[0],
            marks=pytest.mark.case(number, section=f"RFC 7530 10.8; POSIX.1-2024 {call}(): ERRORS [EEXIST]"),
        )
        for number, call, make, free in (
            ("SHR-KNOWN-01", "mkdir", ("mkdir", "new"), "rmdir"),
            ("SHR-KNOWN-02", "symlink", ("symlink", "elsewhere", "new"), "unlink"),
            ("SHR-KNOWN-03", "link", ("link", "file", "new"), "unlink"),
            ("SHR-KNOWN-07", "open", ("write_file", "new", b"data", O_CREAT | O_EXCL), "unlink"),
        )
    ],
)
@pytest.mark.case(kills=("two-made-known-refused",))
def test_name_that_the_other_client_freed_is_made_again(a, b, crossed_wire, eventually, make, free):
    """The client that made the name makes it again, after the other has removed it."""
    a.write_file("file", b"data")
    try:
        a.call(*make)
    except OSError as error:
        if error.errno not in (EOPNOTSUPP, EPERM):
            raise
        pytest.skip(f"there are no such files here: {error}")
    with crossed_wire(b, "change"):
        b.call(free, "new")
    with crossed_wire(b, "query"):
        eventually(lambda: b.listdir() == ["file"], "the name that is gone")
    with crossed_wire(a, "change"):
        eventually(lambda: _done(lambda: a.call(*make), FileExistsError), "that the name is free again")
    with crossed_wire(b, "query"):
        eventually(
            lambda: sorted(b.listdir()) == ["file", "new"], "the name that the other client made again"
        )


@pytest.mark.slow
@pytest.mark.case(
    "SHR-KNOWN-04",
    section="RFC 7530 10.8; POSIX.1-2024 unlink(), rmdir(), rename(): ERRORS [ENOENT]",
    kills=("names-never-expire", "two-unlink-known-absent"),
)
def test_name_that_was_absent_is_removed_and_renamed(a, b, crossed_wire, eventually):
    """What the other client has made at names that a client knew as absent is renamed and removed by it."""
    for name in ("f", "d", "r"):
        assert not a.exists(name)
    with crossed_wire(b, "change"):
        b.write_file("f", b"made by the other")
        b.mkdir("d")
        b.write_file("r", b"made by the other")
    with crossed_wire(a, "change"):
        eventually(lambda: _done(lambda: a.unlink("f"), FileNotFoundError), "the file, to be removed")
        eventually(lambda: _done(lambda: a.rmdir("d"), FileNotFoundError), "the directory, to be removed")
        eventually(lambda: _done(lambda: a.rename("r", "n"), FileNotFoundError), "the file, to be renamed")
    with crossed_wire(b, "query"):
        eventually(lambda: b.listdir() == ["n"], "the names that the other client has left")


@pytest.mark.slow
@pytest.mark.case("SHR-KNOWN-05", kills=("two-absent-in-replaced-directory", "two-old-directory"))
def test_names_are_those_of_the_directory_that_took_the_place(a, b, crossed_wire, eventually):
    """After another directory took a name, a name in it is absent or there as in that directory."""
    for directory, name in (("d", "only-before"), ("new", "only-now")):
        b.mkdir(directory)
        b.write_file(f"{directory}/{name}", directory.encode())
    assert a.exists("d/only-before")
    assert not a.exists("d/only-now")
    with crossed_wire(b, "change"):
        b.rename("d", "old")
        b.rename("new", "d")
    with crossed_wire(a, "query"):
        eventually(lambda: a.can_open("d/only-now"), "the name of the directory that took the place")
        eventually(lambda: not a.exists("d/only-before"), "that a name was of the directory before")
    assert a.read_file("d/only-now") == b"new"


@pytest.mark.slow
@pytest.mark.case("SHR-KNOWN-08", kills=("two-listing-over-64-stays",))
def test_large_directory_is_listed_as_the_other_client_left_it(a, b, crossed_wire, eventually):
    """A listing that a client knows is read again after each change, of a directory of many names, too."""
    names = {f"{number:03}" for number in range(MANY)}
    a.mkdir("d")
    calls = [("write_file", f"d/{name}", b"") for name in sorted(names)]
    assert not [one for one in a.each(calls, deadline=120) if isinstance(one, OSError)]
    with crossed_wire(a, "query"):
        eventually(lambda: set(a.listdir("d")) == names, "all names")
    for turn in ("first", "second"):
        with crossed_wire(b, "change"):
            b.write_file(f"d/{turn}", b"")
            b.rename(f"d/{min(names)}", f"d/renamed-{turn}")
            b.unlink(f"d/{max(names)}")
        names = names - {min(names), max(names)} | {turn, f"renamed-{turn}"}
        with crossed_wire(a, "query"):
            eventually(lambda: set(a.listdir("d")) == names, f"the names after the {turn} changes")  # noqa: B023


@pytest.mark.slow
@pytest.mark.case(
    "SHR-KNOWN-09",
    section="RFC 7530 10.8; POSIX.1-2024 rename()",
    kills=("two-second-replacement-unseen", "two-third-file-is-second"),
)
def test_each_file_that_takes_a_name_is_read(a, b, crossed_wire, eventually):
    """The client reads the file that has the name now, each time that the other has replaced it."""
    b.write_file("f", b"file 0")
    assert a.read_file("f") == b"file 0"
    for number in range(1, 6):
        data = b"file %d" % number
        with crossed_wire(b, "change"):
            b.write_file("new", data)
            b.rename("new", "f")
        eventually(lambda: a.read_file("f") == data, f"the data of file {number}")  # noqa: B023


@pytest.mark.slow
@pytest.mark.case("SHR-KNOWN-10", kills=("two-absent-parent-stays",))
def test_files_of_a_directory_that_was_absent_are_found(a, b, crossed_wire, eventually):
    """The client uses the directory that the other makes at an absent name, each time that it is made."""
    for turn in ("first", "second"):
        with crossed_wire(a, "query"):
            eventually(lambda: not a.exists("d/f"), f"that the directory is absent, the {turn} time")
        with crossed_wire(b, "change"):
            b.mkdir("d")
            b.write_file("d/f", turn.encode())
        with crossed_wire(a, "query"):
            eventually(lambda: a.can_open("d/f"), f"a file of the {turn} directory")
        assert a.read_file("d/f") == turn.encode()
        with crossed_wire(a, "change"):
            a.write_file("d/of-a", b"made by a")
        with crossed_wire(b, "query"):
            eventually(lambda: sorted(b.listdir("d")) == ["f", "of-a"], f"both files of the {turn} directory")
        for name in ("d/f", "d/of-a"):
            b.unlink(name)
        # Over SMB, a file that the other client still has open is there until it is closed.
        eventually(lambda: _done(lambda: b.rmdir("d"), OSError), "the directory, to be removed")


@pytest.mark.case(
    "SHR-KNOWN-06", section="RFC 7530 10.3.1; nfs(5)", kills=("open-finds-old-data", "two-stale-past-100")
)
def test_each_of_many_files_is_read_as_the_other_client_left_it(a, b, crossed_wire):
    """An open revalidates what is cached of the file, of however many files something is cached."""
    names = [f"{number:03}" for number in range(MANY)]
    data = {"first": b"first data of %s", "second": b"other data of %s"}

    def write(turn: str) -> None:
        calls = [("write_file", name, data[turn] % name.encode(), O_CREAT | O_TRUNC) for name in names]
        assert not [one for one in b.each(calls, deadline=120) if isinstance(one, OSError)]

    write("first")
    for turn in ("first", "second"):
        if turn == "second":
            with crossed_wire(b, "write"):
                write(turn)
        found = a.each([("read_file", name, 1 << 16) for name in names], deadline=120)
        old = [name for name, one in zip(names, found, strict=True) if one != data[turn] % name.encode()]
        assert not old, f"{len(old)} of {MANY} files do not have the {turn} data, the first is {old[0]}"
