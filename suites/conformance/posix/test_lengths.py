"""Every length: names, link contents, attributes and files of each size up to a few hundred bytes.

A file system stores what is short in one place and what is long in another. The border is its own, so each
length is tried.
"""

from __future__ import annotations

import ctypes
import errno
import os

import pytest

from storagetest.agent.testlib import record_observation, skip
from storagetest.agent.testlib.tmpfiles import (
    NO_VALUE_SPACE,
    longest_name,
    make_file,
    open_fd,
    pattern_bytes,
    symbolic_link,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

BORDERS = [(1 << power) + step for power in range(9, 13) for step in (-1, 0, 1)]
SMALLEST_SPACE = 512
"""Bytes of attributes that each file has space for: half of the smallest block of ext4 (xattr(7); chosen)."""


@pytest.mark.case(
    "PSX-LENGTH-NAME",
    section="POSIX.1-2024 XBD 3.140 Filename; readdir(): DESCRIPTION",
    kills=("listed-name-of-64-cut", "name-of-128-not-found"),
)
def test_name_of_each_length_is_listed_and_found(client_dir):
    """A filename has any length from one byte to {NAME_MAX}: it is listed, found and removed as it is."""
    text = "abcdefghijklmnopqrstuvwxyz0123456789" * 8
    names = [text[number % 26 :][:number] for number in range(1, min(255, longest_name(client_dir)) + 1)]
    for name in names:
        make_file(client_dir / name, name.encode())
    found = set(os.listdir(client_dir))
    wrong = [name for name in names if name not in found] + sorted(found - set(names))
    assert not wrong, (
        f"of names of 1 to {len(names)} bytes, {len(wrong)} are not listed or were not made, the first of "
        f"{len(wrong[0])} bytes: {wrong[0]!r}; required: each entry is returned with its name (readdir())"
    )
    for name in names:
        data = (client_dir / name).read_bytes()
        assert data == name.encode(), f"the file with the name of {len(name)} bytes has {data[:40]!r}"
    for name in names[::2]:
        os.rename(client_dir / name, client_dir / f"{name[:-1]}-")
        assert os.stat(client_dir / f"{name[:-1]}-").st_size == len(name), (
            f"a name of {len(name)} bytes, renamed"
        )
    for name in sorted(os.listdir(client_dir)):
        os.unlink(client_dir / name)
    assert os.listdir(client_dir) == []


@pytest.mark.case(
    "PSX-LENGTH-SYMLINK",
    section="POSIX.1-2024 symlink(), readlink(): DESCRIPTION",
    kills=("symlink-of-60-cut", "symlink-of-borders-cut"),
)
def test_link_contents_of_each_length_are_returned(client_dir):
    """The contents are those of symlink(), with each length, which is st_size; also after a rename."""
    text = "".join(f"{number:04}/" for number in range(900))
    path, other = client_dir / "link", client_dir / "other"
    for length in (*range(1, 261), *(one for one in BORDERS if one < 4096)):
        contents = text[:length]
        try:
            symbolic_link(contents, path)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG or length <= 255:  # _POSIX_SYMLINK_MAX
                raise
            record_observation(f"contents of {length} bytes are refused")
            return
        found, size = os.readlink(path), os.lstat(path).st_size
        assert found == contents, (
            f"a link of {length} bytes is read as one of {len(found)}, with {found[-10:]!r} at the end; "
            "required: the contents that symlink() was given (readlink())"
        )
        assert size == length, f"st_size of a link of {length} bytes is {size}"
        os.rename(path, other)
        found = os.readlink(other)
        assert found == contents, f"a link of {length} bytes that was renamed is read as one of {len(found)}"
        os.unlink(other)


def attribute(path, name, value):
    """Set an attribute; return whether there was space for it. Skips the case if there are none."""
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            skip("this file system has no user.* attributes, or they are disabled (setxattr(2), ENOTSUP)")
        if error.errno not in NO_VALUE_SPACE or len(name) + len(value) <= 100:
            raise
        record_observation(f"{len(value)} bytes for a name of {len(name)} are refused by {error.strerror}")
        return False
    return True


@pytest.mark.case(
    "PSX-LENGTH-XATTR",
    section="setxattr(2), getxattr(2): DESCRIPTION",
    kills=("xattr-of-256-cut", "xattr-of-borders-cut"),
)
def test_attribute_value_of_each_length_is_returned(client_dir):
    """A value has each length, from one byte: in place of another one, and as a new attribute."""
    path = make_file(client_dir / "f")
    for length in (*range(1, 301), *(one for one in BORDERS if one <= 4097)):
        value = pattern_bytes(length)
        for name, what in (("user.one", "in place of another"), ("user.new", "of a new attribute")):
            if not attribute(path, name, value):
                return
            found = os.getxattr(path, name)
            assert found == value, (
                f"a value of {length} bytes {what} is read as one of {len(found)} bytes, with "
                f"{found[-8:]!r} at the end; required: the value that was set (setxattr(2))"
            )
            if name == "user.new":
                os.removexattr(path, name)
        if length % 50 == 0:
            attribute(path, "user.one", pattern_bytes(200))


@pytest.mark.case(
    "PSX-LENGTH-XATTR-NAME",
    section="setxattr(2), listxattr(2): DESCRIPTION",
    kills=("xattr-name-of-128-cut",),
)
def test_attribute_name_of_each_length_is_listed(client_dir):
    """A name has up to 255 bytes with its namespace (XATTR_NAME_MAX): it is listed and found as it is.

    A file system may have a smaller limit (setxattr(2): ERANGE), or no space for many names.
    """
    path = make_file(client_dir / "f")
    for length in range(1, 251):
        name = f"user.{('abcdefghijklmnopqrstuvwxyz' * 10)[:length]}"
        if not attribute(path, name, b"%d" % length):
            return
        found = [one for one in os.listxattr(path) if one.startswith("user.")]
        assert found == [name], (
            f"an attribute with a name of {len(name)} bytes is listed as {[len(one) for one in found]} "
            "bytes; required: the names that were set (listxattr(2))"
        )
        assert os.getxattr(path, name) == b"%d" % length, (
            f"the value of a name of {len(name)} bytes is another"
        )
        os.removexattr(path, name)
    assert not [one for one in os.listxattr(path) if one.startswith("user.")]


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("getxattr", id="get", marks=pytest.mark.case("PSX-XATTR-BUFFER-GET")),
        pytest.param("listxattr", id="list", marks=pytest.mark.case("PSX-XATTR-BUFFER-LIST")),
    ],
)
@pytest.mark.case(section="getxattr(2), listxattr(2): ERRORS [ERANGE]", kills=("xattr-exact-buffer-refused",))
def test_buffer_of_the_exact_size_is_enough(client_dir, call):
    """[ERANGE] The buffer is too small: not one of the size that a call with size 0 returns."""
    path = make_file(client_dir / "f")
    library = ctypes.CDLL(None, use_errno=True)
    name = (b"user.buffer",) if call == "getxattr" else ()

    def ask(size):
        buffer = ctypes.create_string_buffer(max(1, size))
        found = getattr(library, call)(os.fsencode(path), *name, buffer if size else None, size)
        return (found, buffer.raw[: max(0, found)]) if found >= 0 else (-ctypes.get_errno(), b"")

    for length in (1, 2, 7, 8, 12, 64, 255, 300):
        if not attribute(path, "user.buffer", b"v" * length):
            break
        if length == 64 and not attribute(path, "user.second", b"second"):
            break
        size, _ = ask(0)
        assert size > 0, f"{call}() with size 0 of an attribute of {length} bytes returns {size}"
        for given in (size, size + 1, size + 100):
            found, data = ask(given)
            assert found == size, (
                f"{call}() of {size} bytes with a buffer of {given} returns {found} (negative: the error); "
                f"required: the size, and ERANGE only if the buffer is too small ({call}(2))"
            )
            assert call == "listxattr" or data == b"v" * length
        if size > 1:
            found, _ = ask(size - 1)
            assert found == -errno.ERANGE, (
                f"{call}() of {size} bytes with a buffer of {size - 1} returns {found}; required: "
                f"ERANGE ({call}(2))"
            )


@pytest.mark.case(
    "PSX-LENGTH-GROWS",
    section="POSIX.1-2024 write(): DESCRIPTION; open(): O_APPEND",
    kills=("inline-60-lost-when-grown",),
)
def test_file_that_grows_byte_by_byte_keeps_what_it_has(client_dir):
    """Each write adds its bytes at the end and leaves the others: at each size, also by a new open."""
    data = pattern_bytes(5000)
    path = make_file(client_dir / "f")
    for size in (*range(1, 301), *BORDERS):
        before = os.stat(path).st_size
        with open_fd(path, os.O_WRONLY | os.O_APPEND) as descriptor:
            os.write(descriptor, data[before:size])
        _compare(path, data[:size], f"a file of {before} bytes that {size - before} are appended to")


@pytest.mark.case(
    "PSX-LENGTH-SHRINKS",
    section="POSIX.1-2024 truncate(): DESCRIPTION",
    kills=("cut-to-60-loses-more",),
)
def test_file_that_is_cut_byte_by_byte_keeps_the_rest(client_dir):
    """truncate() discards what is beyond the new size and no other byte: at each size, also by a new open."""
    data = pattern_bytes(5000)
    path = make_file(client_dir / "f", data)
    before = len(data)
    for size in (*reversed(BORDERS), *range(300, -1, -1)):
        os.truncate(path, size)
        _compare(path, data[:size], f"a file of {before} bytes that is cut to {size}")
        before = size


@pytest.mark.case(
    "PSX-LENGTH-FILE",
    section="POSIX.1-2024 write(), read(): DESCRIPTION",
    kills=("file-of-63-read-short",),
)
def test_file_of_each_size_is_read(client_dir):
    """A file of each size has its size and bytes, as it was written in one write, and after its rename."""
    data = pattern_bytes(5000)
    for size in (*range(1, 301), *BORDERS):
        path = make_file(client_dir / "f", data[:size])
        _compare(path, data[:size], f"a file that {size} bytes were written to")
        os.rename(path, client_dir / "g")
        _compare(client_dir / "g", data[:size], f"a file of {size} bytes that was renamed")
        os.unlink(client_dir / "g")


def _compare(path, wanted, what):
    found, size = path.read_bytes(), os.stat(path).st_size
    first = next((at for at, (one, two) in enumerate(zip(found, wanted)) if one != two), len(found))
    assert found == wanted, (
        f"{what} is read as {len(found)} bytes, with the first {first} as they were written; required: its "
        f"{len(wanted)} bytes (read())"
    )
    assert size == len(wanted), f"{what} has st_size {size} and {len(wanted)} bytes"
