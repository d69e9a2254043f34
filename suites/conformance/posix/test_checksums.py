"""Names of files and of attributes that have the same checksum: each is a name of its own.

File systems find names by a checksum of 32 bits. Two names with the same one are rare and legal.
"""

from __future__ import annotations

import errno
import os

import pytest

from storagetest.agent.testlib import skip
from storagetest.agent.testlib.tmpfiles import NO_VALUE_SPACE, make_file

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

ALIKE = {
    "CRC-32C": ("wx46sqia", "5leohz3a", "ochapx1j", "indb33tm"),
    "CRC-32": ("53i68spm", "25s3g9m4", "8wtm8uhp", "t1mdsra7"),
    "Adler-32": ("ldzt5amh", "hhhmhn4z", "nkntgx2h", "fqxkve1n"),
    "DJB2": ("gs9ahe8g", "mx6264w2", "udgcoaks", "yj0wix4r"),
    "FNV-1": ("tu4ml1ef", "32birhn4", "j1kokxom", "i1ju5she"),
    "FNV-1a": ("wg52hhqx", "jrdk53q4", "vn48ibwz", "9cl03d4w"),
    "SDBM": ("5dmwwq4l", "pjytmbv7", "4o60slly", "y97f66dp"),
    "Java's hashCode()": ("t48xezp6", "63opqq0m", "nzgrakoe", "g5vkaus3"),
    "XFS's da_hashname": ("iqxya0ww", "33pyddg7", "ctcu8dxa", "x5xu98q9"),
    "R5": ("ixu498ni", "kbozag97", "732hj7zy", "ii54u1w0"),
}
"""Checksum of 32 bits → two first halves and two second halves of a name: the four names have the same one.

Found by a search; tests/unit/test_alike_checksums.py computes them. All but FNV's also with equal text in
front.
"""


def names_of(checksum) -> list[str]:
    """Return four names of 16 bytes that have the same checksum."""
    first, second = ALIKE[checksum][:2], ALIKE[checksum][2:]
    return [one + other for one in first for other in second]


def attempt(call, text):
    """Return the call's result; an OSError fails the case with ``text``."""
    try:
        return call()
    except OSError as error:
        raise AssertionError(f"{text}: {error.strerror}") from None


@pytest.mark.case(
    "PSX-NAME-CHECKSUM",
    section="POSIX.1-2024 Pathname Resolution; open(), rename(), unlink(): DESCRIPTION",
    kills=(
        "rename-to-like-checksum-refused",
        "lookup-by-checksum",
        "like-checksum-not-listed",
        "unlink-by-checksum",
    ),
)
def test_files_whose_names_have_one_checksum_are_apart(client_dir):
    """Each of four names is made, found, listed, renamed, replaced and removed while others are there."""
    for number, checksum in enumerate(ALIKE):
        directory = client_dir / f"d{number}"
        directory.mkdir()
        has: dict[str, str] = {}

        def check(text, directory=directory, checksum=checksum, has=has):
            listed = os.listdir(directory)
            assert sorted(listed) == sorted(has), (
                f"{text}, a directory of names with one {checksum} lists {sorted(listed)}; required: "
                f"{sorted(has)}"
            )
            for name in [*names_of(checksum), "other"]:
                exists = os.path.lexists(directory / name)
                assert exists is (name in has), (
                    f"{text}, {name} {'is found' if exists else 'is not found'}, with {sorted(has)} in the "
                    f"directory, all of one {checksum}"
                )
                if exists:
                    found = (directory / name).read_bytes().decode()
                    assert found == has[name], f"{text}, {name} has the data of {found}, not of {has[name]}"

        names = names_of(checksum)
        for name in names:
            attempt(lambda d=directory, n=name: make_file(d / n, n.encode()), f"open() of {name}, {checksum}")
            has[name] = name
            check(f"after {name} was made")
        for old, new in (
            (names[0], "other"), ("other", names[0]), (names[1], names[2]), (names[0], names[1]),
            (names[3], names[0]),
        ):  # fmt: skip
            attempt(
                lambda d=directory, o=old, n=new: os.rename(d / o, d / n),
                f"rename() of {old} to {new}, with {sorted(has)} in the directory, all of one {checksum}",
            )
            has[new] = has.pop(old)
            check(f"after {old} was renamed to {new}")
        os.mkdir(directory / names[3])
        os.rmdir(directory / names[3])
        for name in (names[1], names[0], names[2]):
            attempt(lambda d=directory, n=name: os.unlink(d / n), f"unlink() of {name} ({checksum})")
            del has[name]
            check(f"after {name} was removed")


@pytest.mark.case(
    "PSX-XATTR-CHECKSUM",
    section="xattr(7): DESCRIPTION; listxattr(2): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-XATTR-1"),
    kills=("xattr-like-checksum-not-listed", "xattr-by-checksum"),
)
def test_attributes_whose_names_have_one_checksum_are_apart(client_dir):
    """Each of four attributes is set, listed, replaced and removed while others of its checksum are there."""
    for number, checksum in enumerate(ALIKE):
        path = make_file(client_dir / f"f{number}")
        names = [f"user.{name}" for name in names_of(checksum)]
        has: dict[str, bytes] = {}

        def check(text, path=path, checksum=checksum, has=has, names=names):
            listed = sorted(one for one in os.listxattr(path) if one in names)
            assert listed == sorted(has), (
                f"{text}, listxattr() returns {listed} of names with one {checksum}; required: {sorted(has)}"
            )
            for name in has:
                found = attempt(lambda n=name: os.getxattr(path, n), f"{text}, getxattr() of {name}")
                assert found == has[name], f"{text}, {name} has the value {found!r}, not {has[name]!r}"

        for turn, name in enumerate([*names, names[1], names[3]]):
            value = f"{name[-4:]}{turn}".encode()
            try:
                os.setxattr(path, name, value, os.XATTR_REPLACE if name in has else os.XATTR_CREATE)
            except OSError as error:
                if error.errno == errno.EOPNOTSUPP:
                    skip(f"this file system has no user.* attributes (setxattr(2)): {error.strerror}")
                if error.errno in NO_VALUE_SPACE:
                    skip(f"a file has no space for {len(names)} short attributes: {error.strerror}")
                raise AssertionError(
                    f"setxattr() of {name}, with {sorted(has)} of the same {checksum}: {error.strerror}"
                ) from None
            has[name] = value
            check(f"after {name} was {'replaced' if turn >= len(names) else 'set'}")
        for name in (names[2], names[0], names[3], names[1]):
            attempt(lambda p=path, n=name: os.removexattr(p, n), f"removexattr() of {name} ({checksum})")
            del has[name]
            check(f"after {name} was removed")
