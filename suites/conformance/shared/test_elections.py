"""Elections: exactly one of two concurrent exclusive operations on the same name succeeds.

Sources: POSIX.1-2024 open() O_CREAT and O_EXCL ("the check … and the creation … shall be atomic"), mkdir(),
link(), symlink(), unlink(), rename(); open(2) NOTES on NFS; RFC 1813 3.3.8 (EXCLUSIVE), RFC 7530 16.16 and
16.4; MS-SMB2 3.3.5.9 (FILE_CREATE).

The clients go through the names from opposite ends, so that they collide in every round.
"""

from __future__ import annotations

from errno import ENODATA, EOPNOTSUPP
from os import O_CREAT, O_EXCL, O_WRONLY, XATTR_CREATE

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="POSIX.1-2024 open()", level="MUST"),
]

ROUNDS = 6
NAMES = 12


def _names(turn: int) -> list[str]:
    return [f"{turn}-{number}" for number in range(NAMES)]


def _winners(results, loss: type[OSError]) -> list[bool]:
    """Return for each result whether the call succeeded; raise an error other than the expected ``loss``."""
    for result in results:
        if isinstance(result, OSError) and not isinstance(result, loss):
            raise result
    return [not isinstance(result, OSError) for result in results]


@pytest.fixture
def elect(b, race, crossed_wire):
    """Return a function that runs the calls of both, those of ``b`` reversed, and asserts one winner each."""

    def run(calls_a, calls_b, loss: type[OSError]) -> None:
        # A client that is too late to remove a name needs no more than a lookup.
        with crossed_wire(b, "query" if loss is FileNotFoundError else "change"):
            results_a, results_b = race(calls_a, list(reversed(calls_b)))
        won_a, won_b = _winners(results_a, loss), _winners(results_b[::-1], loss)
        both = [call[1:] for call, x, y in zip(calls_a, won_a, won_b, strict=True) if x and y]
        neither = [call[1:] for call, x, y in zip(calls_a, won_a, won_b, strict=True) if not x and not y]
        assert not both, f"both won {both}"
        assert not neither, f"neither won {neither}"

    return run


@pytest.mark.case("SHR-ELECT-01", kills=("exclusive-not",))
def test_one_client_creates_a_file_with_o_excl(elect):
    """The other gets EEXIST."""
    for turn in range(ROUNDS):
        calls = [("open", name, O_CREAT | O_EXCL | O_WRONLY) for name in _names(turn)]
        elect(calls, calls, FileExistsError)


@pytest.mark.case("SHR-ELECT-02", section="POSIX.1-2024 mkdir() [EEXIST]", kills=("mkdir-exists-accepted",))
def test_one_client_creates_a_directory(elect):
    """The other gets EEXIST."""
    for turn in range(ROUNDS):
        calls = [("mkdir", name) for name in _names(turn)]
        elect(calls, calls, FileExistsError)


@pytest.mark.case("SHR-ELECT-03", section="POSIX.1-2024 link() [EEXIST]", kills=("made-over-what-exists",))
def test_one_client_creates_a_link(a, b, elect):
    """The other gets EEXIST."""
    for session, name in ((a, "of-a"), (b, "of-b")):
        session.write_file(name, name.encode())
    for turn in range(ROUNDS):
        names = _names(turn)
        elect(
            [("link", "of-a", target) for target in names],
            [("link", "of-b", target) for target in names],
            FileExistsError,
        )


@pytest.mark.case("SHR-ELECT-04", section="POSIX.1-2024 symlink() [EEXIST]", kills=("made-over-what-exists",))
def test_one_client_creates_a_symbolic_link(elect):
    """The other gets EEXIST."""
    for turn in range(ROUNDS):
        names = _names(turn)
        elect(
            [("symlink", "of-a", target) for target in names],
            [("symlink", "of-b", target) for target in names],
            FileExistsError,
        )


@pytest.mark.case(
    "SHR-ELECT-05", section="POSIX.1-2024 unlink() [ENOENT]", kills=("removal-always-succeeds",)
)
def test_one_client_removes_a_file(a, elect):
    """The other gets ENOENT."""
    for turn in range(ROUNDS):
        a.each([("write_file", name, b"x") for name in _names(turn)])
        calls = [("unlink", name) for name in _names(turn)]
        elect(calls, calls, FileNotFoundError)


@pytest.mark.case("SHR-ELECT-06", section="POSIX.1-2024 rmdir() [ENOENT]", kills=("removal-always-succeeds",))
def test_one_client_removes_a_directory(a, elect):
    """The other gets ENOENT."""
    for turn in range(ROUNDS):
        a.each([("mkdir", name) for name in _names(turn)])
        calls = [("rmdir", name) for name in _names(turn)]
        elect(calls, calls, FileNotFoundError)


@pytest.mark.case("SHR-ELECT-07", section="POSIX.1-2024 rename() [ENOENT]", kills=("rename-old-stays",))
def test_one_client_renames_a_file(a, b, elect):
    """The other gets ENOENT, and each file has one new name."""
    for turn in range(ROUNDS):
        names = _names(turn)
        a.each([("write_file", name, b"x") for name in names])
        elect(
            [("rename", name, f"{name}-a") for name in names],
            [("rename", name, f"{name}-b") for name in names],
            FileNotFoundError,
        )
        renamed = [name for name in b.listdir() if name.startswith(f"{turn}-")]
        assert sorted(name[:-2] for name in renamed) == sorted(names)


@pytest.mark.case("SHR-ELECT-08", kills=("exclusive-not",))
def test_file_name_cached_as_absent_is_not_created_twice(a, b, crossed_wire):
    """O_EXCL fails with EEXIST, although the client has cached that the name is absent."""
    assert not b.exists("f")
    with crossed_wire(a, "change"):
        a.close(a.open("f", O_CREAT | O_EXCL | O_WRONLY))
    with crossed_wire(b, "change"), pytest.raises(FileExistsError):
        b.open("f", O_CREAT | O_EXCL | O_WRONLY)


@pytest.mark.case("SHR-ELECT-09", section="POSIX.1-2024 mkdir() [EEXIST]", kills=("mkdir-exists-accepted",))
def test_directory_name_cached_as_absent_is_not_created_twice(a, b, crossed_wire):
    """mkdir() fails with EEXIST, although the client has cached that the name is absent."""
    assert not b.exists("d")
    with crossed_wire(a, "change"):
        a.mkdir("d")
    with crossed_wire(b, "change"), pytest.raises(FileExistsError):
        b.mkdir("d")


@pytest.mark.case("SHR-ELECT-10", kills=("names-never-expire",))
def test_name_removed_by_the_other_client_can_be_created(a, b, crossed_wire, at_once):
    """O_EXCL succeeds, although the client has cached the removed file."""
    a.write_file("f", b"x")
    assert b.read_file("f") == b"x"
    with crossed_wire(a, "change"):
        a.unlink("f")
    with crossed_wire(b, "change"):
        at_once(lambda: _created(b, "f"), "the name is free, and can be made")


@pytest.mark.slow
@pytest.mark.case("SHR-ELECT-11", kills=("names-never-expire",), section="RFC 7530 10.8")
def test_removed_name_shows_the_file_that_the_other_client_created(a, b, crossed_wire, at_once):
    a.write_file("f", b"x")
    a.unlink("f")
    assert not a.exists("f")
    with crossed_wire(b, "change"):
        b.write_file("f", b"again")
    at_once(
        lambda: a.exists("f") and a.read_file("f") == b"again",
        "the file that the other client has made again",
    )


def _created(session, name: str) -> bool:
    try:
        session.close(session.open(name, O_CREAT | O_EXCL | O_WRONLY))
    except FileExistsError:
        return False
    return True


@pytest.mark.case(
    "SHR-ELECT-12", section="POSIX.1-2024 symlink() [EEXIST]", kills=("two-symlink-over-unseen",)
)
def test_symbolic_link_name_cached_as_absent_is_not_created_twice(a, b, crossed_wire):
    """symlink() fails with EEXIST, although the client has cached that the name is absent."""
    assert not b.exists("f")
    with crossed_wire(a, "change"):
        a.write_file("f", b"mine")
    with crossed_wire(b, "change"), pytest.raises(FileExistsError):
        b.symlink("elsewhere", "f")
    assert a.read_file("f") == b"mine"


@pytest.mark.case("SHR-ELECT-13", section="POSIX.1-2024 link() [EEXIST]", kills=("two-link-over-unseen",))
def test_link_name_cached_as_absent_is_not_created_twice(a, b, crossed_wire):
    """link() fails with EEXIST, although the client has cached that the name is absent."""
    b.write_file("of-b", b"of b")
    assert not b.exists("f")
    with crossed_wire(a, "change"):
        a.write_file("f", b"mine")
    with crossed_wire(b, "change"), pytest.raises(FileExistsError):
        b.link("of-b", "f")
    assert a.read_file("f") == b"mine"


@pytest.mark.case(
    "SHR-ELECT-14", section="setxattr(2) XATTR_CREATE; RFC 8276 8.4.2", kills=("two-xattr-over-unseen",)
)
def test_attribute_cached_as_absent_is_not_created_twice(a, b, crossed_wire):
    """XATTR_CREATE fails with EEXIST, although the client has cached that there is no such attribute."""
    a.write_file("f", b"data")
    with pytest.raises(OSError, match=r"No data|not supported") as error:
        b.call("getxattr", "f", "user.elected")
    if error.value.errno != ENODATA:
        pytest.skip(f"files have no extended attributes here: {error.value}")
    a.write_file("g", b"data")
    try:
        a.call("setxattr", "g", "user.elected", b"a")
    except OSError as refused:
        if refused.errno != EOPNOTSUPP:
            raise
        pytest.skip(f"files have no extended attributes here: {refused}")
    with crossed_wire(a, "change"):
        a.call("setxattr", "f", "user.elected", b"a", XATTR_CREATE)
    try:
        b.call("setxattr", "f", "user.elected", b"b", XATTR_CREATE)
    except FileExistsError:
        pass
    else:
        raise AssertionError("XATTR_CREATE replaces the attribute that the other client has made")
    assert bytes(a.call("getxattr", "f", "user.elected")) == b"a"


@pytest.mark.case("SHR-ELECT-17", section="POSIX.1-2024 open(): O_CREAT", kills=("two-creat-loses-the-race",))
def test_file_that_both_clients_create_is_opened_by_both(b, race, crossed_wire):
    """O_CREAT without O_EXCL opens the file if the other client is the first to make it: none is refused."""
    for turn in range(ROUNDS):
        calls = [("write_file", name, b"x", O_CREAT) for name in _names(turn)]
        with crossed_wire(b, "write"):  # a client that is too late creates nothing
            results = race(calls, calls)
        refused = [result for side in results for result in side if isinstance(result, OSError)]
        assert not refused, f"O_CREAT without O_EXCL fails for {len(refused)} names: {refused[0]}"
        made = [name for name in b.listdir() if name.startswith(f"{turn}-")]
        assert sorted(made) == sorted(_names(turn)), "not each name is listed once"
