"""What a call leaves alone: bits of the mode, contents of links; and what descriptors and modes permit."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from storagetest.agent.testlib import record_observation, run_as_user, skip
from storagetest.agent.testlib.libc import fallocate
from storagetest.agent.testlib.tmpfiles import make_file, open_fd

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

USER, TEAM = 54321, 54400
SET_ID = stat.S_ISUID | stat.S_ISGID


def mode_of(path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def appended(path) -> None:
    with open_fd(path, os.O_WRONLY | os.O_APPEND) as descriptor:
        os.write(descriptor, b"appended")


def renamed(path) -> None:
    os.rename(path, path.with_name("moved"))
    os.rename(path.with_name("moved"), path)


@pytest.mark.case(
    "PSX-MODE-KEPT",
    section="POSIX.1-2024 utimensat(), chown(), write(), truncate(), rename(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-CHMOD-1777"),
    kills=("utimens-drops-set-id-bits", "chown-drops-sticky-bit", "write-drops-sticky-bit"),
)
def test_calls_but_chmod_leave_the_mode(client_dir):
    """Writes, truncate() and chown() may clear S_ISUID and S_ISGID, and nothing else; the others nothing.

    By root and by the owner, of a file and of a directory.
    """
    client_dir.chmod(0o777)
    may_clear = {"a write": SET_ID, "truncate()": SET_ID, "chown() to the same": SET_ID}
    for user in (0, USER):
        path, directory = client_dir / f"f{user}", client_dir / f"d{user}"
        make_file(path, b"content")
        directory.mkdir()
        for one in (path, directory):
            os.chown(one, user, user)
        calls = {
            "a write": (path, lambda path=path: appended(path)),
            "truncate()": (path, lambda path=path: os.truncate(path, 3)),
            "utimensat()": (path, lambda path=path: os.utime(path, (1_000_000_000, 1_000_000_000))),
            "utimensat() to now": (path, lambda path=path: os.utime(path)),
            "chown() to the same": (path, lambda path=path, user=user: os.chown(path, user, user)),
            "rename()": (path, lambda path=path: renamed(path)),
            "utimensat() of a directory": (directory, lambda one=directory: os.utime(one, (5, 5))),
            "chown() of a directory": (directory, lambda one=directory, u=user: os.chown(one, u, u)),
            "a new entry": (directory, lambda one=directory: os.unlink(make_file(one / "entry"))),
            "rename() of a directory": (directory, lambda one=directory: renamed(one)),
        }
        may_clear["chown() of a directory"] = SET_ID
        for bits in (0o6000, 0o4000, 0o2000, 0o1000, 0o7000, 0):
            for text, (one, call) in calls.items():
                mode = bits | 0o750
                os.chmod(one, mode)
                if mode_of(one) != mode:
                    continue  # PSX-CHMOD-* tests which bits chmod() keeps
                with run_as_user(user, user):
                    call()
                found = mode_of(one)
                assert found | may_clear.get(text, 0) & mode == mode, (
                    f"{text} by user {user} changes the mode from {mode:o} to {found:o}; required: it "
                    f"is kept{', but for S_ISUID and S_ISGID' if text in may_clear else ''}"
                )


@pytest.mark.case(
    "PSX-DESCRIPTOR-READ-ONLY",
    section="POSIX.1-2024 fchmod(), fchown(), futimens(): ERRORS [EBADF]",
    kills=("fchmod-needs-writing", "fchown-needs-writing"),
)
def test_attributes_are_changed_by_a_descriptor_open_for_reading(client_dir):
    """[EBADF] is for what is no open descriptor: fchmod(), fchown() and futimens() need no other access."""
    (client_dir / "d").mkdir()
    for path in (make_file(client_dir / "f"), client_dir / "d"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            for text, call in (
                ("fchmod()", lambda one=descriptor: os.fchmod(one, 0o711)),
                ("fchown()", lambda one=descriptor: os.fchown(one, USER, TEAM)),
                ("futimens()", lambda one=descriptor: os.utime(one, (1_000_000_000, 1_000_000_000))),
            ):
                try:
                    call()
                except OSError as error:
                    raise AssertionError(
                        f"{text} of {path.name}, open for reading: {error.strerror}; required: done"
                    ) from None
        finally:
            os.close(descriptor)
        found = os.stat(path)
        assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, found.st_mtime) == (
            0o711, USER, TEAM, 1_000_000_000,
        ), f"mode, owner and mtime of {path.name} after fchmod(), fchown() and futimens()"  # fmt: skip


@pytest.mark.case(
    "PSX-SYMLINK-BYTES",
    section="POSIX.1-2024 symlink(), readlink(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-SYMLINK-CONTENT"),
    kills=("symlink-target-made-utf-8", "symlink-target-stripped"),
)
def test_contents_of_a_link_are_any_bytes(client_dir):
    """readlink() returns the bytes that symlink() was given; what is no UTF-8 may be refused, not changed."""
    targets = [bytes([byte]) + b"x" + bytes([byte]) for byte in range(1, 256)]
    targets += ["täglich/ünder".encode(), "a\u0308".encode(), "☃\U0001f600".encode(), b"cut \xe2\x98"]
    targets += [b"latin-\xe9\xff", b"\xc0\x80", b"\xed\xa0\x80", b"C:\\x\\y", b"%20%2F", b'a:b*?<>|"']
    refused = 0
    for number, target in enumerate(targets):
        path = os.fsencode(client_dir) + b"/%d" % number
        try:
            os.symlink(target, path)
        except OSError as error:
            if number == 0 and error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                skip(f"the file system has no symbolic links: {error.strerror}")
            try:
                target.decode()
            except UnicodeDecodeError:
                assert error.errno in (errno.EINVAL, errno.EILSEQ), (
                    f"symlink() to {target!r}: {error.strerror}"
                )
                refused += 1
                continue
            raise AssertionError(f"symlink() to {target!r}: {error.strerror}") from None
        found, size = os.readlink(path), os.lstat(path).st_size
        assert found == target, f"a link to {target!r} is read as {found!r}"
        assert size == len(target), f"a link to {target!r} has st_size {size}; required: {len(target)}"
    if refused:
        record_observation(f"{refused} targets that are no UTF-8 are refused")


@pytest.mark.case(
    "PSX-XATTR-RIGHTS",
    section="xattr(7): User extended attributes",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-XATTR-EACCES", "PSX-OPEN-MAY-EXTRA-GROUP"),
    kills=("xattr-set-by-owner", "xattr-removed-by-owner-only", "xattr-read-by-owner"),
)
def test_user_attributes_are_by_the_permission_bits_of_each_class(client_dir):
    """Reading an attribute needs read permission, setting and removing write permission: of the owner too."""
    path = make_file(client_dir / "f")
    try:
        os.setxattr(path, "user.x", b"1")
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            skip("this file system has no user.* attributes, or they are disabled (setxattr(2), ENOTSUP)")
        raise
    os.chown(path, USER, TEAM)
    who = {
        "the owner": (6, USER, USER), "a member of the group": (3, USER + 1, TEAM),
        "another user": (0, USER + 2, USER + 2),
    }  # fmt: skip
    for text, (shift, user, group) in who.items():
        for bits in (0, 2, 4, 6):
            os.chmod(path, 0o666 & ~(7 << shift) | bits << shift)
            os.setxattr(path, "user.x", b"1")
            with run_as_user(user, group):
                for name, needed, call in (
                    ("getxattr()", 4, lambda: os.getxattr(path, "user.x")),
                    ("setxattr()", 2, lambda: os.setxattr(path, "user.x", b"2")),
                    ("removexattr()", 2, lambda: os.removexattr(path, "user.x")),
                ):
                    try:
                        call()
                        granted = True
                    except OSError as error:
                        assert error.errno in (errno.EACCES, errno.EPERM), f"{name}: {error.strerror}"
                        granted = False
                    assert granted is bool(bits & needed), (
                        f"{name} of a user attribute is {'granted to' if granted else 'refused to'} {text} "
                        f"with the mode {mode_of(path):o}; required: the permission bits of the file decide"
                    )


@pytest.mark.case(
    "PSX-OPEN-EXCL-MODE",
    section="POSIX.1-2024 open(): O_CREAT, O_EXCL",
    kills=("excl-needs-mode",),
)
def test_mode_of_a_new_file_does_not_limit_the_descriptor_that_made_it(client_dir):
    """O_CREAT with O_EXCL, O_TRUNC or O_APPEND: the access mode counts for the descriptor, mode for later."""
    client_dir.chmod(0o777)
    with run_as_user(USER, USER):
        for flags, text in (
            (os.O_EXCL, "O_EXCL"),
            (os.O_TRUNC, "O_TRUNC"),
            (os.O_APPEND | os.O_EXCL, "both"),
        ):
            for mode in (0, 0o400, 0o200, 0o444, 0o111):
                path = client_dir / f"{text}-{mode:o}"
                try:
                    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | flags, mode)
                    try:
                        assert os.write(descriptor, b"written") == 7
                        assert os.pread(descriptor, 9, 0) == b"written"
                    finally:
                        os.close(descriptor)
                except OSError as error:
                    raise AssertionError(
                        f"a new file of mode {mode:o}, opened with O_RDWR, O_CREAT and {text}: "
                        f"{error.strerror}; required: mode does not affect this descriptor"
                    ) from None


@pytest.mark.case(
    "PSX-FALLOCATE-APPEND",
    section="fallocate(2): ERRORS [EBADF]",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-FALLOCATE-EXTENDS"),
    kills=("fallocate-of-append-refused",),
)
def test_space_is_allocated_by_each_descriptor_that_is_open_for_writing(client_dir):
    """[EBADF] The descriptor is not open for writing: with O_APPEND and O_SYNC it is."""
    with open_fd(make_file(client_dir / "f"), os.O_RDWR) as descriptor:
        fallocate(descriptor, 0, 0, 4096)
    for flags, text in (
        (os.O_WRONLY, "O_WRONLY"), (os.O_WRONLY | os.O_APPEND, "O_WRONLY and O_APPEND"),
        (os.O_RDWR | os.O_APPEND, "O_RDWR and O_APPEND"), (os.O_WRONLY | os.O_SYNC, "O_WRONLY and O_SYNC"),
    ):  # fmt: skip
        path = make_file(client_dir / text.replace(" ", "-"), b"data")
        with open_fd(path, flags) as descriptor:
            try:
                fallocate(descriptor, 0, 0, 9000)
            except OSError as error:
                raise AssertionError(f"fallocate() with {text}: {error.strerror}; required: done") from None
        assert path.read_bytes() == b"data" + bytes(8996), f"data after fallocate() with {text}"
