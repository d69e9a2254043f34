"""What a refused call leaves: names, data, attributes and times of every file around it are as before."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from storagetest.agent.testlib import CannotRun, assert_errno, run_as_user, skip
from storagetest.agent.testlib.libc import RENAME_EXCHANGE, RENAME_NOREPLACE, fallocate, renameat2
from storagetest.agent.testlib.tmpfiles import (
    fifo,
    make_file,
    open_fd,
    pattern_bytes,
    symbolic_link,
    wait_clock_tick,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.server_inodes("*changes st_ino of *"),
    pytest.mark.case(
        level="MUST",
        builds_on=("PSX-DATA-NEW-FILE",),
        section="POSIX.1-2024 XSH 2.3 Error Numbers; XBD 4.12 File Times Update",
    ),
]

OWNER, OTHER = 1001, 1002
FIELDS = ("st_ino", "st_mode", "st_uid", "st_gid", "st_mtime_ns", "st_ctime_ns")
EXISTS = (errno.EEXIST, errno.ENOTEMPTY)
REFUSED = (errno.EACCES, errno.EPERM)
NO_LINKS = (errno.EOPNOTSUPP, errno.ENOSYS)


class Tree:
    """Files of several kinds below ``root``, which are compared after each call that is refused."""

    def __init__(self, root):
        self.root = root
        for name in ("full/deeper", "other", "empty", "hidden", "only-link", "only-directory/below"):
            (root / name).mkdir(parents=True)
        for name in ("f", "full/a", "other/z", "hidden/.h"):
            make_file(root / name, pattern_bytes(600) + name.encode(), 0o640)
        for name, target in (("link", "f"), ("dangling", "nowhere"), ("only-link/l", "nowhere")):
            try:
                symbolic_link(target, root / name)
            except OSError:
                make_file(root / name)  # PSX-SYMLINK-* test whether that is legal
        try:
            fifo(root / "fifo")
        except OSError:
            make_file(root / "fifo")  # PSX-MKFIFO-* test whether that is legal
        try:
            os.setxattr(root / "f", "user.kept", b"value")
        except OSError:
            self.attributes = False
        else:
            self.attributes = True

    def found(self):
        """Return what is below the root, by path: attributes, contents, extended attributes."""
        state = {"f's extended attributes": self._values()}
        for place, directories, files in os.walk(self.root):
            for name in [*directories, *files, "."]:
                path = os.path.join(place, name)
                one = os.lstat(path)
                fields = FIELDS if stat.S_ISDIR(one.st_mode) else (*FIELDS, "st_size", "st_nlink")
                state[os.path.relpath(path, self.root)] = {
                    **{field: getattr(one, field) for field in fields},
                    "the contents": _contents(path, one.st_mode),
                }
        return state

    def _values(self):
        if not self.attributes:
            return {}
        path = self.root / "f"
        return {name: os.getxattr(path, name) for name in os.listxattr(path) if name.startswith("user.")}

    def check(self, calls, *, at_once=4):
        """Make each of ``calls`` (text, errors, call) and compare the tree after each ``at_once`` of them."""
        before, made = self.found(), []
        wait_clock_tick(self.root.parent)
        for number, (text, errors, call) in enumerate(calls, 1):
            try:
                call()
            except CannotRun:
                continue
            except OSError as error:
                named = " or ".join(errno.errorcode[one] for one in errors)
                assert error.errno in errors, (
                    f"{text} has to be refused by {named}; it was refused by {error}"
                )
            else:
                raise AssertionError(f"{text} has to be refused; it succeeded")
            made.append(text)
            if number % at_once and number < len(calls):
                continue
            changes = _changes(before, self.found())
            assert not changes, f"{', '.join(made)}: refused, and changes {changes[0]}"
            made = []


def _changes(before, after):
    """Return what differs between two states of the tree, in words."""
    found = [
        f"{name}, which is {'new' if name in after else 'gone'}" for name in before.keys() ^ after.keys()
    ]
    for name in sorted(before.keys() & after.keys()):
        old, new = before[name], after[name]
        found += [
            f"{field} of {name} from {str(old.get(field))[:60]} to {str(new.get(field))[:60]}"
            for field in sorted(old.keys() | new.keys())
            if old.get(field) != new.get(field)
        ]
    return found


def _contents(path, mode):
    if stat.S_ISREG(mode):
        with open_fd(path, os.O_RDONLY) as descriptor:
            return os.pread(descriptor, 1000, 0)
    return os.readlink(path) if stat.S_ISLNK(mode) else None


def tree_below(client_dir):
    """Return a tree in a directory of its own, next to which the clock is read."""
    root = client_dir / "tree"
    root.mkdir()
    return Tree(root)


@pytest.mark.case(
    "PSX-REFUSED-RENAME",
    kills=("rename-refused-empties", "rename-over-hidden-names", "rename-over-directory-of-directories"),
)
def test_refused_rename_changes_nothing(client_dir):
    """If rename() fails, neither name, nor anything in a directory that they name, is changed."""
    tree = tree_below(client_dir)
    at = tree.root
    tree.check([
        ("rename() of a directory onto one with entries", EXISTS,
         lambda: os.rename(at / "full", at / "other")),
        ("rename() of an empty directory onto one with entries", EXISTS,
         lambda: os.rename(at / "empty", at / "full")),
        ("rename() onto a directory with a hidden file", EXISTS,
         lambda: os.rename(at / "empty", at / "hidden")),
        ("rename() of a directory onto a file", (errno.ENOTDIR,), lambda: os.rename(at / "full", at / "f")),
        ("rename() of a directory onto a symbolic link", (errno.ENOTDIR,),
         lambda: os.rename(at / "full", at / "link")),
        ("rename() of a file onto an empty directory", (errno.EISDIR, *EXISTS),
         lambda: os.rename(at / "f", at / "empty")),
        ("rename() of a file onto a directory with entries", (errno.EISDIR, *EXISTS),
         lambda: os.rename(at / "f", at / "full")),
        ("rename() of a directory below itself", (errno.EINVAL,),
         lambda: os.rename(at / "full", at / "full" / "deeper" / "x")),
        ("rename() onto an ancestor", EXISTS, lambda: os.rename(at / "full" / "deeper", at / "full")),
        ("rename() of an absent file onto a file", (errno.ENOENT,),
         lambda: os.rename(at / "absent", at / "f")),
        ("rename() to an absent directory", (errno.ENOENT,),
         lambda: os.rename(at / "f", at / "absent" / "f")),
        ("rename() below a file", (errno.ENOTDIR,), lambda: os.rename(at / "full" / "a", at / "f" / "x")),
        *((f"RENAME_NOREPLACE onto {name}", (errno.EEXIST,),
           lambda name=name: renameat2(at / "full" / "a", at / name, RENAME_NOREPLACE))
          for name in ("f", "empty", "link", "dangling", "fifo")),
        ("RENAME_EXCHANGE with an absent name", (errno.ENOENT,),
         lambda: renameat2(at / "f", at / "absent", RENAME_EXCHANGE)),
    ])  # fmt: skip


@pytest.mark.case(
    "PSX-REFUSED-REMOVE",
    section="POSIX.1-2024 rmdir(), unlink(): ERRORS",
    kills=("rmdir-refused-empties",),
)
def test_refused_removal_changes_nothing(client_dir):
    """A directory with any entry but dot and dot-dot is not removed, nor is a file of the wrong kind."""
    tree = tree_below(client_dir)
    at = tree.root
    kinds = ("full", "hidden", "only-link", "only-directory")
    tree.check([
        *((f"rmdir() of {name}", EXISTS, lambda name=name: os.rmdir(at / name)) for name in kinds),
        *((f"rmdir() of {name}", (errno.ENOTDIR,), lambda name=name: os.rmdir(at / name))
          for name in ("f", "link", "fifo")),
        *((f"unlink() of {name}", (errno.EISDIR, errno.EPERM), lambda name=name: os.unlink(at / name))
          for name in ("full", "empty")),
        ("unlink() of an absent name", (errno.ENOENT,), lambda: os.unlink(at / "full" / "absent")),
    ])  # fmt: skip


@pytest.mark.case(
    "PSX-REFUSED-CREATE",
    section="POSIX.1-2024 open(), mkdir(), mknod(), symlink(), link(): ERRORS",
    no_mutant_reason="the client's kernel refuses it by itself: the file system is not asked",
)
def test_refused_creation_changes_nothing(client_dir):
    """[EEXIST] The named file exists, of whatever kind it is: it stays as it is."""
    tree = tree_below(client_dir)
    at = tree.root
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_TRUNC
    calls = []
    for name in ("f", "full", "empty", "link", "dangling", "fifo"):
        calls += [
            (f"open(O_EXCL | O_TRUNC) of {name}", (errno.EEXIST,),
             lambda name=name: os.open(at / name, flags)),
            (f"mkdir() of {name}", (errno.EEXIST,), lambda name=name: os.mkdir(at / name)),
            (f"mkfifo() of {name}", (errno.EEXIST,), lambda name=name: fifo(at / name)),
            (f"symlink() of {name}", (errno.EEXIST,), lambda name=name: symbolic_link("x", at / name)),
            (f"link() of {name}", (errno.EEXIST,),
             lambda name=name: os.link(at / "full" / "a", at / name)),
        ]  # fmt: skip
    tree.check(calls, at_once=5)


@pytest.mark.case(
    "PSX-REFUSED-DATA",
    section="POSIX.1-2024 open(), write(), truncate(), ftruncate(): ERRORS",
    kills=("open-refused-truncates",),
)
def test_refused_change_of_data_changes_nothing(client_dir):
    """A user without write permission, and a descriptor that may only read, change no data and no time."""
    tree = tree_below(client_dir)
    at = tree.root
    os.chmod(at, 0o755)
    os.chmod(at / "f", 0o644)

    def as_other(call):
        def call_as_other():
            with run_as_user(OTHER, OTHER):
                call()

        return call_as_other

    with open_fd(at / "f", os.O_RDONLY) as reader:
        tree.check([
            *((f"open({text}) without write permission", (errno.EACCES,),
               as_other(lambda flags=flags: os.open(at / "f", flags)))
              for text, flags in (("O_WRONLY", os.O_WRONLY), ("O_RDWR | O_TRUNC", os.O_RDWR | os.O_TRUNC),
                                  ("O_WRONLY | O_TRUNC", os.O_WRONLY | os.O_TRUNC),
                                  ("O_WRONLY | O_CREAT | O_TRUNC", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))),
            ("truncate() without write permission", (errno.EACCES,),
             as_other(lambda: os.truncate(at / "f", 10))),
            ("truncate() of a directory", (errno.EISDIR,), lambda: os.truncate(at / "full", 0)),
            ("write() with O_RDONLY", (errno.EBADF,), lambda: os.write(reader, b"x")),
            ("pwrite() with O_RDONLY", (errno.EBADF,), lambda: os.pwrite(reader, b"x", 10_000)),
            ("ftruncate() with O_RDONLY", (errno.EINVAL, errno.EBADF), lambda: os.ftruncate(reader, 10)),
            ("fallocate() with O_RDONLY", (errno.EBADF,), lambda: fallocate(reader, 0, 0, 20_000)),
        ])  # fmt: skip


@pytest.mark.case(
    "PSX-REFUSED-STATUS",
    section="POSIX.1-2024 chmod(), chown(), utimensat(), link(), rename(), unlink(), mkdir(): ERRORS",
    kills=("chmod-refused-marks",),
)
def test_refused_change_by_another_user_changes_nothing(client_dir):
    """A user who does not own a file changes neither its status nor, without permission, its directory."""
    tree = tree_below(client_dir)
    at = tree.root
    with run_as_user(OTHER, OTHER):
        pass  # skips the case before the first change that needs root
    os.chmod(at, 0o755)
    for name in ("f", "full", "full/a", "empty"):
        os.chown(at / name, OWNER, OWNER)
        os.chmod(at / name, 0o755)
    calls = [
        ("chmod()", (errno.EPERM,), lambda: os.chmod(at / "f", 0o777)),
        ("chmod() of a directory", (errno.EPERM,), lambda: os.chmod(at / "full", 0o777)),
        ("chown()", (errno.EPERM,), lambda: os.chown(at / "f", OTHER, OTHER)),
        ("chown() of the group", (errno.EPERM,), lambda: os.chown(at / "f", -1, OTHER)),
        ("utimensat() to a time", (errno.EPERM,), lambda: os.utime(at / "f", (1, 1))),
        ("utimensat() to now", (errno.EACCES,), lambda: os.utime(at / "f")),
        ("unlink()", REFUSED, lambda: os.unlink(at / "full" / "a")),
        ("rename()", REFUSED, lambda: os.rename(at / "full" / "a", at / "full" / "x")),
        ("rename() over a directory", REFUSED, lambda: os.rename(at / "empty", at / "full" / "deeper")),
        ("rename() of a directory", REFUSED, lambda: os.rename(at / "empty", at / "x")),
        ("rmdir()", REFUSED, lambda: os.rmdir(at / "empty")),
        ("mkdir()", REFUSED, lambda: os.mkdir(at / "full" / "x")),
        ("mkfifo()", REFUSED, lambda: fifo(at / "full" / "x")),
        ("symlink()", REFUSED, lambda: symbolic_link("x", at / "full" / "x")),
        ("open(O_CREAT)", REFUSED, lambda: os.open(at / "full" / "x", os.O_CREAT | os.O_WRONLY)),
        ("link()", (*REFUSED, *NO_LINKS), lambda: os.link(at / "full" / "a", at / "full" / "x")),
    ]
    if tree.attributes:
        calls += [
            ("setxattr()", REFUSED, lambda: os.setxattr(at / "f", "user.kept", b"x")),
            ("removexattr()", REFUSED, lambda: os.removexattr(at / "f", "user.kept")),
        ]

    def as_other(call):
        with run_as_user(OTHER, OTHER):
            call()

    tree.check(
        [
            (f"{text} of another user's file", errors, lambda call=call: as_other(call))
            for text, errors, call in calls
        ]
    )


@pytest.mark.case(
    "PSX-REFUSED-SETUID",
    section="POSIX.1-2024 chown(), chmod(): ERRORS [EPERM]",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-CHMOD-4755", "PSX-CHOWN-EPERM-GIVE"),
    kills=("chown-refused-drops-suid",),
)
def test_refused_change_keeps_the_set_id_bits(client_dir):
    """A chown() or chmod() of another user's file that is refused clears no bit of its mode."""
    path = make_file(client_dir / "f", b"data")
    with run_as_user(OTHER, OTHER):
        pass  # skips the case before the first change that needs root
    os.chmod(client_dir, 0o755)
    os.chown(path, OWNER, OWNER)
    os.chmod(path, 0o6755)
    if os.stat(path).st_mode & 0o7777 != 0o6755:
        skip("the file system keeps no set-user-ID bit: PSX-CHMOD-4755 tests whether that is legal")
    calls = {
        "chown()": lambda: os.chown(path, OTHER, OTHER),
        "chown() of the group": lambda: os.chown(path, -1, OTHER),
        "chown() to the ids that it has": lambda: os.chown(path, OWNER, OWNER),
        "chmod()": lambda: os.chmod(path, 0o777),
        "truncate()": lambda: os.truncate(path, 0),
    }
    for what, call in calls.items():
        with run_as_user(OTHER, OTHER):
            assert_errno(REFUSED, call)
        mode = os.stat(path).st_mode & 0o7777
        assert mode == 0o6755, f"{what} by another user is refused, and leaves the mode {mode:o}, not 6755"


@pytest.mark.case(
    "PSX-REFUSED-XATTR",
    section="setxattr(2), removexattr(2): ERRORS",
    kills=("xattr-create-over-empty", "xattr-replace-ignored"),
)
def test_refused_change_of_an_attribute_changes_nothing(client_dir):
    """XATTR_CREATE of an attribute that exists, empty or not, and XATTR_REPLACE of another are refused."""
    tree = tree_below(client_dir)
    if not tree.attributes:
        skip("the file system has no user.* attributes")
    at = tree.root
    os.setxattr(at / "f", "user.empty", b"")
    absent = (errno.ENODATA,)
    calls = [
        (f"setxattr(XATTR_CREATE) of {name}", (errno.EEXIST,),
         lambda name=name, value=value: os.setxattr(at / "f", name, value, os.XATTR_CREATE))
        for name in ("user.kept", "user.empty") for value in (b"", b"new", b"longer " * 20)
    ]  # fmt: skip
    calls += [
        ("setxattr(XATTR_REPLACE) of an absent attribute", absent,
         lambda: os.setxattr(at / "f", "user.absent", b"x", os.XATTR_REPLACE)),
        ("setxattr(XATTR_REPLACE) of the start of a name", absent,
         lambda: os.setxattr(at / "f", "user.kep", b"x", os.XATTR_REPLACE)),
        ("removexattr() of an absent attribute", absent, lambda: os.removexattr(at / "f", "user.absent")),
        ("removexattr() of the start of a name", absent, lambda: os.removexattr(at / "f", "user.kep")),
        ("removexattr() of a longer name", absent, lambda: os.removexattr(at / "f", "user.kept1")),
    ]  # fmt: skip
    tree.check(calls)
