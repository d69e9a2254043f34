"""Attributes that belong to a file, and calls on the file: links, file capabilities, special names."""

from __future__ import annotations

import errno
import os
import stat
import struct

import pytest

from storagetest.agent.testlib import run_as_user, skip
from storagetest.agent.testlib.tmpfiles import make_file, symbolic_link

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

USER, TEAM = 54321, 54400
CAPABILITY = "security.capability"
CAP_NET_BIND = struct.pack("<5I", 0x0200_0001, 1 << 10, 0, 0, 0)
"""struct vfs_cap_data of <linux/capability.h>: VFS_CAP_REVISION_2, effective; CAP_NET_BIND_SERVICE."""
_LACKING = (errno.EOPNOTSUPP, errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSYS)


def set_or_skip(path, name, value, *, follow_symlinks=True) -> None:
    """Set an attribute; skip the case if the file system or the process may not."""
    try:
        os.setxattr(path, name, value, follow_symlinks=follow_symlinks)
    except OSError as error:
        if error.errno in _LACKING:
            skip(f"{name} cannot be set here: {error.strerror}")
        raise


@pytest.mark.case(
    "PSX-CHOWN-CAPABILITIES",
    section="chown(2): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-CHOWN-BOTH"),
    kills=("chown-keeps-capabilities", "chgrp-keeps-capabilities"),
)
def test_change_of_the_owner_clears_file_capabilities(client_dir):
    """If owner or group of an executable file is changed, by any user, its capability sets are cleared."""
    calls = {
        "chown() of both": lambda path, number: os.chown(path, USER + number, TEAM + number),
        "chown() of the owner": lambda path, number: os.chown(path, USER + number, -1),
        "chown() of the group": lambda path, number: os.chown(path, -1, TEAM + number),
        "lchown()": lambda path, number: os.lchown(path, USER + number, TEAM + number),
        "fchown()": _fchown,
    }
    number = 0
    for mode in (0o755, 0o700, 0o711):
        for text, call in calls.items():
            number += 1
            path = make_file(client_dir / f"{number}", b"#!/bin/true\n", mode)
            set_or_skip(path, CAPABILITY, CAP_NET_BIND)
            if CAPABILITY not in os.listxattr(path):
                skip("file capabilities are not listed here")
            call(path, number)
            try:
                found = os.getxattr(path, CAPABILITY)
            except OSError as error:
                assert error.errno == errno.ENODATA, f"getxattr() of {CAPABILITY}: {error.strerror}"
                continue
            raise AssertionError(
                f"{text} of a file of mode {mode:o} leaves its capabilities, {found.hex()}; required: all "
                "capability sets are cleared"
            )


def _fchown(path, number) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fchown(descriptor, USER + number, TEAM + number)
    finally:
        os.close(descriptor)


@pytest.mark.case(
    "PSX-LINK-ATTRIBUTES",
    section="POSIX.1-2024 readlink(): DESCRIPTION; xattr(7): Trusted extended attributes",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-SYMLINK-CONTENT"),
    kills=(
        "link-with-attribute-unreadable",
        "link-contents-gone-with-attribute",
        "link-size-zero-with-attribute",
    ),
)
def test_symbolic_link_with_attributes_keeps_its_contents(client_dir):
    """Attributes of a link are its own: as they are set and removed, its contents and size stay.

    Links of each length; the file that a link names has none of its attributes.
    """
    set_or_skip(make_file(client_dir / "probe"), "trusted.storagetest", b"1")
    for length in (1, 30, 59, 60, 61, 100, 156, 200, 255):
        target = ("target/" * 40)[: length - 1] + "t"
        path = client_dir / f"link{length}"
        symbolic_link(target, path)

        def check(text, path=path, target=target):
            try:
                found = os.readlink(path)
            except OSError as error:
                raise AssertionError(
                    f"{text}, readlink() of a link of {len(target)} bytes: {error.strerror}"
                ) from None
            assert found == target, f"{text}, a link of {len(target)} bytes has the contents {found!r}"
            size = os.lstat(path).st_size
            assert size == len(target), f"{text}, a link of {len(target)} bytes has st_size {size}"

        has: dict[str, bytes] = {}
        all_names = ("trusted.one", "trusted.two", "trusted.three")
        for name, value in (("one", b"1"), ("two", b"v" * 100), ("one", b"another"), ("three", b"w" * 60)):
            set_or_skip(path, f"trusted.{name}", value, follow_symlinks=False)
            has[f"trusted.{name}"] = value
            check(f"with {len(has)} attributes")
            found = {one: os.getxattr(path, one, follow_symlinks=False) for one in has}
            assert found == has, f"attributes of a link of {length} bytes: {found}"
        for name in list(has):
            os.removexattr(path, name, follow_symlinks=False)
            del has[name]
            check(f"after {name} was removed")
            listed = set(os.listxattr(path, follow_symlinks=False)) & set(all_names)
            assert listed == set(has), f"after {name} was removed, a link has {sorted(listed)}"
    symbolic_link("probe", client_dir / "named")
    set_or_skip(client_dir / "named", "trusted.of-link", b"1", follow_symlinks=False)
    listed = os.listxattr(client_dir / "probe")
    assert "trusted.of-link" not in listed, "the file that a link names has the attribute of the link"
    assert "trusted.storagetest" not in os.listxattr(client_dir / "named", follow_symlinks=False)


NAMES = (
    "user.with/slash", "user./", "user.a//b", "user.back\\slash", "user.new\nline", "user.a=b", "user.*",
    "user..", "user.user.x", "user.trusted.x", "user.%2f", "user.#", 'user."', "user.\x7f",
)  # fmt: skip


@pytest.mark.case(
    "PSX-XATTR-NAME-BYTES",
    level="SHOULD",
    section="xattr(7): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-XATTR-1"),
    kills=("xattr-name-with-slash-refused", "xattr-name-with-newline-cut"),
)
def test_attribute_name_has_any_bytes(client_dir):
    """A name is a string that ends with a null byte: a slash and a newline are bytes as any other."""
    path = make_file(client_dir / "f")
    set_or_skip(path, "user.plain", b"1")
    os.removexattr(path, "user.plain")
    for number, name in enumerate(NAMES):
        value = b"%d" % number
        try:
            os.setxattr(path, name, value)
        except OSError as error:
            raise AssertionError(f"setxattr() of the name {name!r}: {error.strerror}") from None
        listed = [one for one in os.listxattr(path) if one.startswith("user.")]
        assert listed == [name], f"the attribute {name!r} is listed as {listed}"
        found = os.getxattr(path, name)
        assert found == value, f"the attribute {name!r} has the value {found!r}, not {value!r}"
        os.removexattr(path, name)


def made_in(directory, name):
    """Make a file of each kind in turn under one name in ``directory``; yield a text after each."""
    path = directory / name
    for text, make, remove in (
        ("a file", make_file, os.unlink),
        ("a directory", os.mkdir, os.rmdir),
        ("a file again", make_file, os.unlink),
        ("a directory again", os.mkdir, os.rmdir),
        ("a file that is moved", make_file, lambda one: os.rename(one, directory / "moved")),
        ("a file at last", make_file, os.unlink),
    ):
        make(path)
        yield text, os.stat(path)
        remove(path)


@pytest.mark.case(
    "PSX-SETGID-AGAIN",
    section="inode(7): S_ISGID",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-SETGID-DEEP"),
    kills=("name-again-ignores-setgid", "name-again-is-roots"),
)
def test_group_is_inherited_under_a_name_that_was_removed(client_dir):
    """What is made where a file was removed is as new: the user's, with the directory's group and S_ISGID."""
    directory = client_dir / "d"
    directory.mkdir()
    os.chown(directory, -1, TEAM)
    os.chmod(directory, 0o2777)
    if not os.stat(directory).st_mode & stat.S_ISGID:
        skip("directories keep no set-group-ID bit: PSX-CHMOD-2755 tests whether that is legal")
    with run_as_user(USER, USER):
        for text, found in made_in(directory, "name"):
            assert (found.st_uid, found.st_gid) == (USER, TEAM), (
                f"{text}, made under a name that was used before, belongs to user {found.st_uid} and group "
                f"{found.st_gid}; required: user {USER}, and group {TEAM} of the directory with S_ISGID"
            )
            if stat.S_ISDIR(found.st_mode):
                assert found.st_mode & stat.S_ISGID, (
                    f"{text}, made under a name that was used before, has the mode "
                    f"{stat.S_IMODE(found.st_mode):#o}; required: S_ISGID, as its parent has"
                )
