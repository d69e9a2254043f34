"""File names: any bytes but slash and null, compared byte by byte."""

from __future__ import annotations

import errno
import os
import stat
import time
import unicodedata

import pytest

from storagetest.agent.testlib import CannotRun, assert_errno, record_observation
from storagetest.agent.testlib.libc import RENAME_NOREPLACE, renameat2
from storagetest.agent.testlib.tmpfiles import (
    fifo,
    hard_link,
    longest_name,
    make_file,
    node,
    open_fd,
    symbolic_link,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST", builds_on=("PSX-DATA-NEW-FILE",), section="POSIX.1-2024 Base Definitions: Filename"
    ),
]

NAMES = [
    ("SPACE", "a name with spaces"),
    ("LEADING-SPACE", " leading"),
    ("TRAILING-SPACE", "trailing "),
    ("TRAILING-DOT", "trailing."),
    ("DOTS", "..."),
    ("HIDDEN", ".hidden"),
    ("DASH", "-rf"),
    ("BACKSLASH", "back\\slash"),
    ("COLON", "a:b"),
    ("QUESTION", "what?"),
    ("STAR", "st*r"),
    ("PIPE", "a|b"),
    ("ANGLES", "<a>"),
    ("QUOTE", 'a"b'),
    ("APOSTROPHE", "a'b"),
    ("PERCENT", "100%"),
    ("NEWLINE", "new\nline"),
    ("TAB", "a\tb"),
    ("CONTROL", "bell\x07"),
    ("DELETE", "del\x7f"),
    ("RESERVED", "CON"),
    ("RESERVED-EXTENSION", "aux.txt"),
    ("TILDE-ONE", "LONGNA~1"),
    ("LATIN", "Grüße"),
    ("CYRILLIC", "привет"),
    ("HAN", "文件系统"),
    ("HEBREW", "קובץ"),
    ("ASTRAL", "𝄞🎻"),
    ("ZERO-WIDTH", "a\u200db"),
    ("PRIVATE-USE", "\uf022\uf05c"),
]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, id=what.lower(), marks=pytest.mark.case(f"PSX-NAME-{what}")) for what, name in NAMES],
)
def test_name_is_stored_unchanged(client_dir, name):
    """A filename has any characters but slash and null; the file is found, listed and removed by it.

    A name that is no portable filename may be refused by [EILSEQ] (open(), ERRORS).
    """
    make_file(client_dir / name, name.encode())
    assert os.listdir(client_dir) == [name]
    assert (client_dir / name).read_bytes() == name.encode()
    os.rename(client_dir / name, client_dir / "plain")
    os.rename(client_dir / "plain", client_dir / name)
    os.unlink(client_dir / name)
    assert os.listdir(client_dir) == []


@pytest.mark.case(
    "PSX-NAME-ALIAS", section="POSIX.1-2024 XBD 4.16 Pathname Resolution", kills=("short-name-found",)
)
def test_file_is_found_by_no_name_that_was_not_made(client_dir):
    """A filename is found if the directory has that name: not by a short form of a long name."""
    for name in ("longname-with-more.text", "Another name.of-more"):
        make_file(client_dir / name, b"data")
    for alias in ("LONGNA~1", "LONGNA~1.TEX", "longna~1", "longna~1.tex", "ANOTHE~1.OF-"):
        assert_errno(errno.ENOENT, os.lstat, client_dir / alias)
        assert_errno(errno.ENOENT, os.open, client_dir / alias, os.O_RDONLY)
        make_file(client_dir / alias, b"its own")
        os.unlink(client_dir / alias)
    assert sorted(os.listdir(client_dir)) == ["Another name.of-more", "longname-with-more.text"]


@pytest.mark.case("PSX-NAME-LONGEST", kills=("name-cut", "name-max-refused", "statfs-name-max"))
def test_longest_name_is_accepted(client_dir):
    """A filename may be {NAME_MAX} bytes long."""
    name = "n" * os.pathconf(client_dir, "PC_NAME_MAX")
    make_file(client_dir / name, b"x")
    assert os.listdir(client_dir) == [name]
    assert (client_dir / name).read_bytes() == b"x"


@pytest.mark.case("PSX-NAME-LONGEST-UNICODE", level="SHOULD", kills=("name-cut", "name-max-refused"))
def test_name_max_counts_bytes(client_dir):
    """{NAME_MAX} counts bytes: 85 characters of three bytes each are 255."""
    name = "文" * (min(longest_name(client_dir), 255) // 3)
    make_file(client_dir / name)
    assert os.listdir(client_dir) == [name]


@pytest.mark.case("PSX-NAME-MAX", section="POSIX.1-2024 pathconf(): DESCRIPTION")
def test_name_max_is_at_least_the_posix_minimum(client_dir):
    """{NAME_MAX} is at least {_POSIX_NAME_MAX}, 14. The 255 of {_XOPEN_NAME_MAX} are the XSI option's."""
    longest = longest_name(client_dir)
    record_observation(f"NAME_MAX is {longest}" + ("" if longest >= 255 else ": less than XSI's 255"))
    assert longest >= 14, f"NAME_MAX is {longest}; POSIX.1-2024 <limits.h>: at least 14"


@pytest.mark.case("PSX-NAME-CASE", kills=("name-case-folded",))
def test_names_are_case_sensitive(client_dir):
    """Filenames are compared byte by byte: README and readme are two files."""
    make_file(client_dir / "readme", b"small")
    make_file(client_dir / "README", b"capital")
    assert sorted(os.listdir(client_dir)) == ["README", "readme"]
    assert (client_dir / "readme").read_bytes() == b"small"
    assert_errno(errno.ENOENT, os.stat, client_dir / "Readme")


@pytest.mark.case("PSX-NAME-NORMALIZATION", kills=("name-normalised",))
def test_unicode_normal_forms_are_distinct_names(client_dir):
    """Names are bytes: the NFC and NFD forms of a letter are two names, and are stored unchanged."""
    composed, decomposed = (unicodedata.normalize(form, "é") for form in ("NFC", "NFD"))
    make_file(client_dir / composed, b"one")
    make_file(client_dir / decomposed, b"two")
    assert sorted(os.listdir(client_dir)) == sorted([composed, decomposed])
    assert (client_dir / composed).read_bytes() == b"one"


@pytest.mark.case("PSX-NAME-NOT-UTF8")
def test_invalid_utf8_name_is_accepted(client_dir):
    """A filename need not be valid in any encoding; NFSv4 may refuse invalid UTF-8 (RFC 7530 12.7)."""
    name = os.fsencode(client_dir) + b"/latin-\xe9\xff"
    try:
        os.mkdir(name)
    except OSError as error:
        assert error.errno in (errno.EINVAL, errno.EILSEQ)
        record_observation(f"a name that is no UTF-8 is refused by {errno.errorcode[error.errno]}")
        return
    record_observation("a name that is no UTF-8 is kept")
    assert os.listdir(os.fsencode(client_dir)) == [b"latin-\xe9\xff"]


@pytest.mark.case("PSX-NAME-DEEP", section="POSIX.1-2024 Pathname Resolution")
def test_tree_deeper_than_path_max(client_dir):
    """Directories may be nested deeper than {PATH_MAX}; relative paths reach them, absolute ones do not.

    A file system that passes whole paths on may refuse what it cannot name: recorded.
    """
    name = "d" * min(200, longest_name(client_dir))
    path_max = os.pathconf(client_dir, "PC_PATH_MAX")
    depth = path_max // (len(name) + 1) + 1
    os.chdir(client_dir)
    for level in range(depth):
        try:
            os.mkdir(name)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG or level * (len(name) + 1) < path_max // 4:
                raise
            record_observation(f"a directory is refused at {level * (len(name) + 1)} bytes below the first")
            return
        os.chdir(name)
    with open("bottom", "xb") as file:
        file.write(b"x")
    assert os.stat("bottom").st_size == 1
    assert_errno(errno.ENAMETOOLONG, os.stat, str(client_dir) + f"/{name}" * depth + "/bottom")


@pytest.mark.case("PSX-NAME-PATH-LONGEST", section="POSIX.1-2024 Pathname Resolution")
def test_longest_path_is_resolved(client_dir):
    """A path of {PATH_MAX} bytes, its null byte included, is resolved."""
    make_file(client_dir / "f", b"x")
    path = f"{client_dir}/" + "./" * 3000
    path = path[: os.pathconf(client_dir, "PC_PATH_MAX") - 3]
    path += "/f" if not path.endswith("/") else "f"
    assert os.stat(path).st_size == 1


@pytest.mark.case(
    "PSX-NAME-LEVELS", section="POSIX.1-2024 mkdir(), open(): DESCRIPTION", kills=("deep-directory-mode",)
)
def test_what_is_made_at_each_level_is_as_at_the_first(client_dir):
    """Mode and data of directories and files are as given, 60 levels below as at the top."""
    os.umask(0)
    os.chdir(client_dir)
    for level in range(60):
        mode = (0o755, 0o711, 0o770)[level % 3]
        os.mkdir("d", mode)
        os.chdir("d")
        found = os.stat(".").st_mode & 0o777
        assert found == mode, f"a directory at level {level + 1} has mode {found:o} instead of {mode:o}"
        if level % 10 == 9:
            with open("f", "xb") as file:
                file.write(b"level %d" % level)
            with open("f", "rb") as file:
                assert file.read() == b"level %d" % level


DEPTH = 260
"""Levels of directories: more than a byte counts (chosen)."""
PHASE = 4.0
"""Seconds in which they are made, and in which their files are used; chosen: a case may take 20 s in all."""
BORDERS = [level for power in (16, 32, 64, 128, 256) for level in (power - 1, power, power + 1)]
"""Levels at which files are used (chosen)."""


def make_levels(places):
    """Append ``DEPTH`` open directories, each in the one before it, or as many as are made in time."""
    until = time.monotonic() + PHASE
    for level in range(1, DEPTH + 1):
        if time.monotonic() > until:
            record_observation(f"{level - 1} of {DEPTH} levels were made in {PHASE:g} s")
            return
        try:
            os.mkdir("d", dir_fd=places[-1])
            places.append(os.open("d", os.O_RDONLY, dir_fd=places[-1]))
            if level in BORDERS:
                with open(os.open("f", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=places[-1]), "wb") as file:
                    file.write(b"level %d" % level)
        except OSError as error:
            raise AssertionError(f"level {level}: {error}") from error


def names_in(directory: int) -> list[str]:
    """Open an open directory again and list it: an older open need not show later names (readdir())."""
    descriptor = os.open(".", os.O_RDONLY, dir_fd=directory)
    try:
        return os.listdir(descriptor)
    finally:
        os.close(descriptor)


def use_level(places, level):
    """Find the file of a level by its pathname, and move it to the deepest of ``places``."""
    path = "d/" * level
    with open(f"{path}f", "rb") as file:
        assert file.read() == b"level %d" % level, f"the file at level {level}, by its pathname"
    assert sorted(os.listdir(path)) == ["d", "f"], f"the directory at level {level}"
    assert os.path.samestat(os.stat(f"{path}d/.."), os.stat(path)), f"dot-dot of level {level + 1}"
    os.rename("f", f"moved-{level}", src_dir_fd=places[level], dst_dir_fd=places[-1])


@pytest.mark.server_inodes("dot-dot of *")
@pytest.mark.case(
    "PSX-NAME-DEPTH",
    section="POSIX.1-2024 Pathname Resolution",
    builds_on=("PSX-NAME-LEVELS",),
    kills=("level-129-lost",),
)
def test_files_are_used_below_many_levels(client_dir):
    """{PATH_MAX} limits pathnames, nothing limits levels: files are made, found, moved and removed there.

    On a slow target they are fewer: recorded.
    """
    places = [os.open(client_dir, os.O_RDONLY)]
    try:
        make_levels(places)
        os.chdir(client_dir)
        until, used = time.monotonic() + PHASE, []
        borders = [level for level in BORDERS if level < len(places) - 1]
        for level in reversed(borders):
            if time.monotonic() > until:
                record_observation(f"files at {len(used)} of {len(borders)} levels were used in {PHASE:g} s")
                break
            used.append(level)
            use_level(places, level)
        moved = {f"moved-{level}" for level in used}
        assert set(names_in(places[-1])) - {"f"} == moved
        for level in set(borders) - set(used):
            os.unlink("f", dir_fd=places[level])
        for name in names_in(places[-1]):
            os.unlink(name, dir_fd=places[-1])
        for level in reversed(range(len(places) - 1)):
            os.close(places.pop())
            os.rmdir("d", dir_fd=places[level])
        assert os.listdir(client_dir) == []
    finally:
        for place in places:
            os.close(place)


def _moved_new(path):
    renameat2(make_file(path.parent.parent / "moved"), path, RENAME_NOREPLACE)


MAKING = {
    "open()": make_file,
    "mkdir()": os.mkdir,
    "mkfifo()": fifo,
    "mknod() of a file": lambda path: node(path, stat.S_IFREG | 0o644),
    "mknod() of a socket": lambda path: node(path, stat.S_IFSOCK | 0o644),
    "symlink()": lambda path: symbolic_link("target", path),
    "link()": lambda path: hard_link(path.parent.parent / "linked", path),
    "rename()": lambda path: os.rename(make_file(path.parent.parent / "moved"), path),
    "rename() of a directory": lambda path: os.rename(_directory(path.parent.parent / "moved"), path),
    "RENAME_NOREPLACE": _moved_new,
}
"""Call → what it makes of a path."""


def _directory(path):
    path.mkdir()
    return path


@pytest.mark.case(
    "PSX-NAME-LONGEST-CALLS",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-NAME-LONGEST"),
    section="POSIX.1-2024 pathconf(): _PC_NAME_MAX; DESCRIPTION of each call",
    kills=("link-long-name-cut",),
)
def test_longest_names_are_taken_by_each_call(client_dir):
    """Two names of {NAME_MAX} bytes that differ in the last one are made by each call, and removed."""
    directory = _directory(client_dir / "d")
    make_file(client_dir / "linked")
    stem = "n" * (longest_name(client_dir) - 1)
    first, second = directory / f"{stem}a", directory / f"{stem}b"
    for call, make in MAKING.items():
        try:
            make(first)
        except CannotRun:
            if os.path.lexists(client_dir / "moved"):
                os.unlink(client_dir / "moved")
            continue  # the file system has none of these: other cases test whether that is legal
        listed = os.listdir(directory)
        assert listed == [first.name], f"{call} with the longest name makes {[name[-3:] for name in listed]}"
        make(second)
        listed = sorted(os.listdir(directory))
        assert listed == [first.name, second.name], (
            f"{call} with two of the longest names makes {[name[-3:] for name in listed]}"
        )
        for path, rest in ((first, [second.name]), (second, [])):
            (os.rmdir if stat.S_ISDIR(os.lstat(path).st_mode) else os.unlink)(path)
            assert os.listdir(directory) == rest, f"after the removal of one of the names that {call} made"
            assert_errno(errno.ENOENT, os.lstat, path)


SIMILAR = {
    "beginnings": ("n", "na", "nam", "name", "name-", "names", "name2", "name.txt"),
    "endings": ("e", "me", "ame", "name", "a-name", "the-name"),
    "long beginnings": tuple("n" * length for length in (62, 63, 64, 65, 127, 128, 129, 254, 255)),
    "in the last byte": tuple("n" * 200 + last for last in "abcdefgh"),
}
"""Names of which each is a part of another, or as long as another and different at its end."""


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(order, id=order, marks=pytest.mark.case(f"PSX-NAME-SIMILAR-{order.upper()}"))
        for order in ("shortest", "longest", "mixed")
    ],
)
@pytest.mark.case(
    section="POSIX.1-2024 XBD 4.16 Pathname Resolution",
    kills=("unlink-takes-longer-name", "rmdir-takes-longer-name", "rename-takes-longer-name",
           "lookup-finds-longer-name"),
)  # fmt: skip
def test_call_is_about_the_whole_name(client_dir, order):
    """A call that names one of several similar names is about it alone, and finds none that is not there."""
    sizes = os.pathconf(client_dir, "PC_NAME_MAX")
    for family, names in SIMILAR.items():
        ordered = sorted((name for name in names if len(name) <= sizes), key=len, reverse=order == "longest")
        if order == "mixed":
            ordered = ordered[1::2] + ordered[::2]
        place = client_dir / family.replace(" ", "-")
        place.mkdir()
        files, directories = place / "files", place / "directories"
        files.mkdir()
        directories.mkdir()
        left = set()

        def compare(what, left=left, files=files):
            found = {name: (files / name).read_text() for name in os.listdir(files)}
            wanted = {name: name for name in left}
            assert found == wanted, (
                f"{what}: the names and data differ in {sorted(set(found.items()) ^ set(wanted.items()))[:4]}"
            )

        for name in ordered:
            assert_errno(errno.ENOENT, os.lstat, files / name)
            assert_errno(errno.ENOENT, os.unlink, files / name)
            with open_fd(files / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY) as descriptor:
                os.write(descriptor, name.encode())
            left.add(name)
            os.mkdir(directories / name)
        compare(f"after all of {family} were made")
        for name in ordered:
            os.rename(files / name, files / "moved")
            assert_errno(errno.ENOENT, os.rename, files / name, files / "absent")
            assert (files / "moved").read_text() == name, f"rename() of {name[:20]!r} moved another file"
            os.rename(files / "moved", files / name)
            compare(f"after rename() of a name of {len(name)} bytes, there and back")
        for name in ordered[::2] + ordered[1::2]:
            os.unlink(files / name)
            left.remove(name)
            assert_errno(errno.ENOENT, os.lstat, files / name)
            compare(f"after unlink() of a name of {len(name)} bytes")
            os.rmdir(directories / name)
            found = set(os.listdir(directories))
            assert found == left, f"rmdir() of a name of {len(name)} bytes leaves other names: {found ^ left}"
