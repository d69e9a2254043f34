"""What stat(), readdir() and readlink() report of a file, after each way to make, move and remove it."""

from __future__ import annotations

import errno
import os
import socket
import stat

import pytest

from storagetest.agent.testlib import CannotRun, run_as_user, skip
from storagetest.agent.testlib.libc import RENAME_EXCHANGE, renameat2
from storagetest.agent.testlib.tmpfiles import bind_socket, fifo, hard_link, make_file, open_fd, symbolic_link

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

USER, OTHER = 1001, 1002


def _unlink(at, name):
    os.unlink(at / name)


def _rename_over(at, name):
    os.rename(make_file(at / "new", b"new"), at / name)


def _rename_over_from_elsewhere(at, name):
    (at / "elsewhere").mkdir()
    os.rename(make_file(at / "elsewhere" / "new", b"new"), at / name)


def _rename_and_unlink(at, name):
    os.rename(at / name, at / "moved")
    os.unlink(at / "moved")


def _exchange_and_unlink(at, name):
    make_file(at / "new", b"new")
    renameat2(at / "new", at / name, RENAME_EXCHANGE)
    os.unlink(at / "new")


REMOVALS = {
    "UNLINK": _unlink,
    "REPLACED": _rename_over,
    "REPLACED-ELSEWHERE": _rename_over_from_elsewhere,
    "RENAMED": _rename_and_unlink,
    "EXCHANGED": _exchange_and_unlink,
}


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(
            how,
            id=how.lower(),
            marks=pytest.mark.case(
                f"PSX-NO-NAME-{how}",
                kills=("replaced-open-still-counted" if "REPLACED" in how else "unlinked-still-counted",),
            ),
        )
        for how in REMOVALS
    ],
)
@pytest.mark.case(section="POSIX.1-2024 unlink(), rename(): DESCRIPTION; <sys/stat.h>: st_nlink")
def test_link_count_of_an_open_file_follows_its_names(client_dir, how):
    """Each link that is removed decrements the count, by whatever call: to 0 while the file is open."""
    with open_fd(make_file(client_dir / "f", b"data")) as descriptor:
        REMOVALS[how](client_dir, "f")
        found = os.fstat(descriptor)
        assert found.st_nlink == 0, f"{found.st_nlink} links of an open file without a name"
        os.pwrite(descriptor, b"more", 4)
        found = os.fstat(descriptor)
        assert (found.st_nlink, found.st_size) == (0, 8)


@pytest.mark.server_inodes("d_ino of *")
@pytest.mark.case(
    "PSX-DIR-INODES-CHANGED",
    section="POSIX.1-2024 <dirent.h>: d_ino; readdir(): DESCRIPTION",
    level="SHOULD",
    kills=("replaced-dirent-number",),
)
def test_entries_have_number_and_type_of_their_files(client_dir):
    """d_ino is the serial number, d_type the type or unknown: of what has the name after each change."""
    at = client_dir / "d"
    at.mkdir()
    for name in ("a", "b", "c", "e"):
        make_file(at / name, name.encode())
    (at / "x").mkdir()
    (at / "y").mkdir()

    def exchange():
        renameat2(at / "x", at / "a", RENAME_EXCHANGE)
        renameat2(at / "e", at / "b", RENAME_EXCHANGE)

    def recreate():
        os.unlink(at / "c")
        make_file(at / "c")

    def replace_by_another_kind():
        os.unlink(at / "e")
        os.mkdir(at / "e")

    steps = {
        "creation": lambda: None,
        "rename()": lambda: os.rename(at / "a", at / "z"),
        "rename() over a file": lambda: os.rename(at / "z", at / "b"),
        "rename() over a directory": lambda: os.rename(at / "y", at / "x"),
        "link()": lambda: os.link(at / "b", at / "a"),
        "rename() over one of two links": lambda: os.rename(at / "c", at / "a"),
        "another file of the name": lambda: make_file(at / "c"),
        "unlink() and creation": recreate,
        "RENAME_EXCHANGE": exchange,
        "unlink() and mkdir()": replace_by_another_kind,
    }
    for text, step in steps.items():
        try:
            step()
        except (CannotRun, OSError) as error:
            if text not in ("link()", "RENAME_EXCHANGE", "rename() over one of two links"):
                raise
            if isinstance(error, OSError) and error.errno not in (
                errno.EPERM,
                errno.EOPNOTSUPP,
                errno.ENOENT,
            ):
                raise
        with os.scandir(at) as entries:
            for entry in entries:
                one = os.lstat(entry.path)
                assert entry.inode() == one.st_ino, f"d_ino of {entry.name} after {text}"
                kind = (entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False))
                assert kind == (stat.S_ISDIR(one.st_mode), stat.S_ISREG(one.st_mode)), (
                    f"d_type of {entry.name} after {text}"
                )


@pytest.mark.case(
    "PSX-SYMLINK-SIZE-BYTES",
    section="POSIX.1-2024 lstat(), readlink(): DESCRIPTION",
    kills=("symlink-size-characters",),
)
def test_size_of_a_link_counts_bytes(client_dir):
    """st_size is the length of the contents in bytes, and readlink() returns them: short, long, and UTF-8."""
    contents = ["x", "é", "naïve/文件", "𝄞" * 15, "a" * 59, "a" * 60, "文" * 80, "../" * 80, "b" * 1000]
    for number, content in enumerate(contents):
        path = client_dir / str(number)
        symbolic_link(content, path)
        for text in ("symlink()", "rename()"):
            size, found = os.lstat(path).st_size, os.readlink(path)
            assert found == content, f"the contents of a link after {text}"
            assert size == len(content.encode()), f"the size of a link after {text}"
            os.rename(path, client_dir / "moved")
            path = client_dir / "moved"
        os.unlink(path)


def _bind(path, mode):  # noqa: ARG001  # bind() has no mode argument
    """Make a socket: its mode is 0777 without the mask's bits (unix(7))."""
    with socket.socket(socket.AF_UNIX) as one:
        directory = os.open(path.parent, os.O_PATH)
        try:
            bind_socket(one, f"/proc/self/fd/{directory}/{path.name}")
        finally:
            os.close(directory)


def _open(path, mode):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))


MAKERS = {"OPEN": _open, "MKDIR": os.mkdir, "MKFIFO": fifo, "MKNOD": os.mknod, "SOCKET": _bind}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind,
            id=kind.lower(),
            marks=pytest.mark.case(
                f"PSX-UMASK-{kind}", kills=("umask-one-bit-ignored",) if kind != "SOCKET" else ()
            ),
        )
        for kind in MAKERS
    ],
)
@pytest.mark.case(section="POSIX.1-2024 umask(): DESCRIPTION")
def test_each_bit_of_the_mask_is_cleared_in_the_mode(client_dir, kind):
    """The bits that are set in the mask are cleared in the mode of a new file: each of the nine alone."""
    for mask in (0, *(1 << bit for bit in range(9)), 0o022, 0o027, 0o077, 0o777):
        path = client_dir / f"{mask:o}"
        os.umask(mask)
        try:
            MAKERS[kind](path, 0o777)
        finally:
            os.umask(0)
        found = stat.S_IMODE(os.lstat(path).st_mode)
        assert found == 0o777 & ~mask, f"mode 777 under a mask of {mask:o} is {found:o}"


@pytest.mark.case(
    "PSX-MKDIR-STICKY",
    section="mkdir(2): DESCRIPTION; open(2): O_CREAT",
    level="SHOULD",
    kills=("mkdir-sticky-lost",),
)
def test_special_bits_of_the_mode_of_a_new_file(client_dir):
    """mkdir() honors S_ISVTX; open() S_ISUID, S_ISGID and S_ISVTX: Linux, where POSIX leaves it open."""
    os.umask(0)
    make_file(client_dir / "probe")
    (client_dir / "probed").mkdir()
    os.chmod(client_dir / "probe", 0o7755)
    os.chmod(client_dir / "probed", 0o1777)
    modes = [stat.S_IMODE(os.stat(client_dir / name).st_mode) for name in ("probe", "probed")]
    if modes != [0o7755, 0o1777]:
        skip("the file system does not keep all bits of a mode: PSX-CHMOD-* test whether that is legal")
    for mode in (0o1777, 0o1700, 0o1755):
        os.mkdir(client_dir / f"d{mode:o}", mode)
        found = stat.S_IMODE(os.stat(client_dir / f"d{mode:o}").st_mode)
        assert found == mode, f"mkdir() with {mode:o} makes {found:o}"
    for mode in (0o4755, 0o2755, 0o1755, 0o6711):
        _open(client_dir / f"f{mode:o}", mode)
        found = stat.S_IMODE(os.stat(client_dir / f"f{mode:o}").st_mode)
        assert found == mode, f"open() with {mode:o} makes {found:o}"


@pytest.mark.case(
    "PSX-RIGHTS-STICKY-MAKES",
    section="POSIX.1-2024 XBD 4.5 Directory Protection",
    kills=("sticky-refuses-links",),
)
def test_sticky_directory_restricts_removal_only(client_dir):
    """S_ISVTX restricts the removal and renaming of others' entries; every user makes, and moves, his own."""
    shared, own = client_dir / "shared", client_dir / "own"
    for path in (shared, own):
        path.mkdir()
    os.chmod(shared, 0o1777)
    os.chown(own, USER, USER)
    os.chown(make_file(own / "probe"), USER, USER)
    make_file(client_dir / "free", b"free")
    os.chown(client_dir / "free", USER, USER)
    with run_as_user(USER, USER):
        make_file(shared / "made", b"made")
        os.mkdir(shared / "directory")
        symbolic_link("made", shared / "symlink")
        fifo(shared / "fifo")
        hard_link(own / "probe", own / "linked")  # the case is skipped if there are no links at all
        os.link(shared / "made", shared / "link")
        os.link(client_dir / "free", shared / "linked")
        os.rename(make_file(own / "f", b"moved"), shared / "moved")
        os.mkdir(own / "d")
        os.rename(own / "d", shared / "moved-directory")
        os.rename(shared / "made", shared / "renamed")
        os.rename(shared / "renamed", own / "back")
        os.rename(make_file(own / "over", b"over"), shared / "moved")
        assert (shared / "moved").read_bytes() == b"over"
        os.unlink(shared / "link")
        os.rmdir(shared / "directory")
    with run_as_user(OTHER, OTHER), open_fd(make_file(shared / "others")) as descriptor:
        os.write(descriptor, b"x")
    names = ["fifo", "linked", "moved", "moved-directory", "others", "symlink"]
    assert sorted(os.listdir(shared)) == names
