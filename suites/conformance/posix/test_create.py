"""mkdir(), mkfifo(), mknod(), symlink(), link(): type, mode and owner of the new file, and the errors."""

from __future__ import annotations

import errno
import os
import socket
import stat

import pytest

from storagetest.agent.testlib import assert_errno, record_observation, run_as_user
from storagetest.agent.testlib.tmpfiles import (
    bind_socket,
    fifo,
    hard_link,
    make_file,
    node,
    symbolic_link,
    wait_clock_tick,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

USER = 54321

MAKERS = {
    "mkdir": lambda path: os.mkdir(path, 0o755),
    "mkfifo": lambda path: fifo(path, 0o644),
    "mknod": lambda path: os.mknod(path, stat.S_IFREG | 0o644),
    "symlink": lambda path: symbolic_link("target", path),
    "link": lambda path: hard_link(make_file(path.parent / "linked"), path),
}
KINDS = {
    "mkdir": stat.S_ISDIR,
    "mkfifo": stat.S_ISFIFO,
    "mknod": stat.S_ISREG,
    "symlink": stat.S_ISLNK,
    "link": stat.S_ISREG,
}


def for_each_call(suffix: str, section: str, names=tuple(MAKERS)):
    """Make a case ``PSX-CALL-SUFFIX`` of each call."""
    return pytest.mark.parametrize(
        "call",
        [
            pytest.param(
                name,
                id=name,
                marks=pytest.mark.case(
                    f"PSX-{name.upper()}-{suffix}", section=f"POSIX.1-2024 {name}(): {section}"
                ),
            )
            for name in names
        ],
    )


@for_each_call("MAKES", "DESCRIPTION")
def test_call_creates_a_file_of_its_type(client_dir, call):
    """The call shall create a file of its type with the given name."""
    MAKERS[call](client_dir / "new")
    assert KINDS[call](os.lstat(client_dir / "new").st_mode)
    assert "new" in os.listdir(client_dir)


@for_each_call("EEXIST-FILE", "ERRORS")
@pytest.mark.case(kills=("made-over-what-exists",))
def test_existing_file_is_not_replaced(client_dir, call):
    """[EEXIST] The named file exists."""
    make_file(client_dir / "new", b"kept")
    assert_errno(errno.EEXIST, MAKERS[call], client_dir / "new")
    assert (client_dir / "new").read_bytes() == b"kept"


@for_each_call("EEXIST-DIRECTORY", "ERRORS")
def test_existing_directory_is_not_replaced(client_dir, call):
    """[EEXIST] The named file exists: here a directory."""
    (client_dir / "new").mkdir()
    assert_errno(errno.EEXIST, MAKERS[call], client_dir / "new")


@for_each_call("EEXIST-LINK", "ERRORS")
@pytest.mark.case(kills=("made-over-what-exists",))
def test_dangling_link_is_not_followed(client_dir, call):
    """[EEXIST] If path names a symbolic link, the call shall fail: the link is not followed."""
    symbolic_link("absent", client_dir / "new")
    assert_errno(errno.EEXIST, MAKERS[call], client_dir / "new")
    assert not os.path.lexists(client_dir / "absent")


@for_each_call("MODE", "DESCRIPTION", ("mkdir", "mkfifo", "mknod"))
@pytest.mark.case(kills=("mask-ignored",))
def test_mode_is_limited_by_the_umask(client_dir, call):
    """The permission bits shall be those of mode, without the bits of the file mode creation mask."""
    os.umask(0o026)
    make = {
        "mkdir": os.mkdir,
        "mkfifo": fifo,
        "mknod": lambda path, mode: os.mknod(path, stat.S_IFREG | mode),
    }
    make[call](client_dir / "new", 0o757)
    assert stat.S_IMODE(os.lstat(client_dir / "new").st_mode) & 0o777 == 0o751


@for_each_call("OWNER", "DESCRIPTION")
def test_new_file_belongs_to_its_creator(client_dir, call):
    """The user ID shall be the process's effective one; the group ID the process's or the directory's."""
    client_dir.chmod(0o777)
    with run_as_user(USER, USER + 1):
        MAKERS[call](client_dir / "new")
    made = os.lstat(client_dir / "new")
    assert made.st_uid == USER
    assert made.st_gid in {USER + 1, os.stat(client_dir).st_gid}


@for_each_call("TIMES", "DESCRIPTION")
@pytest.mark.case(kills=("directory-mtime-not-moved",))
def test_creation_updates_the_directorys_times(client_dir, call):
    """The directory's mtime and ctime are marked for update."""
    directory = client_dir / "d"
    directory.mkdir()
    if call == "link":
        make_file(directory / "linked")
    before = os.stat(directory)
    wait_clock_tick(client_dir)
    if call == "link":
        hard_link(directory / "linked", directory / "new")
    else:
        MAKERS[call](directory / "new")
    after = os.stat(directory)
    assert after.st_mtime_ns > before.st_mtime_ns
    assert after.st_ctime_ns > before.st_ctime_ns


@pytest.mark.case(
    "PSX-BIND-TIMES",
    section="POSIX.1-2024 bind(): DESCRIPTION; XBD 4.12 File Times Update",
    kills=("socket-leaves-parent-times",),
)
def test_sockets_update_the_directorys_times(client_dir):
    """The directory's mtime and ctime are marked when a socket gets its name, and when that is removed."""
    directory = client_dir / "d"
    directory.mkdir()
    os.chdir(directory)  # a socket's path is short

    def bind():
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
            bind_socket(one, "s")

    for turn in (1, 2):
        for text, call in (("bind()", bind), ("unlink() of a socket", lambda: os.unlink("s"))):
            before = os.stat(directory)
            wait_clock_tick(client_dir)
            call()
            after = os.stat(directory)
            for name in ("st_mtime_ns", "st_ctime_ns"):
                assert getattr(after, name) > getattr(before, name), (
                    f"{text} does not mark {name} of the directory, time {turn}"
                )


@pytest.mark.case(
    "PSX-MKDIR-NLINK",
    section="POSIX.1-2024 mkdir(): DESCRIPTION",
    level="MAY",
    kills=("directory-links-not-counted",),
)
def test_new_directory_increments_the_link_count_of_its_parent(client_dir):
    """If directories hold dot-dot, a new directory increments the link count of its parent by one."""
    before = os.stat(client_dir).st_nlink
    (client_dir / "new").mkdir()
    assert os.stat(client_dir).st_nlink == before + 1
    assert os.stat(client_dir / "new").st_nlink == 2


@pytest.mark.case("PSX-MKDIR-EMPTY", section="POSIX.1-2024 mkdir(): DESCRIPTION")
def test_a_new_directory_is_empty(client_dir):
    """The newly created directory shall be an empty directory."""
    (client_dir / "new").mkdir()
    assert os.listdir(client_dir / "new") == []
    assert os.path.samestat(os.stat(client_dir / "new" / ".."), os.stat(client_dir))


@pytest.mark.case("PSX-MKDIR-SLASH", section="POSIX.1-2024 mkdir(): DESCRIPTION")
def test_mkdir_accepts_a_trailing_slash(client_dir):
    """mkdir() accepts a name that ends in a slash (Base Definitions, Pathname Resolution)."""
    os.mkdir(f"{client_dir}/new/")
    assert stat.S_ISDIR(os.stat(client_dir / "new").st_mode)


@pytest.mark.case("PSX-MKDIR-DOT", section="POSIX.1-2024 mkdir(): ERRORS")
def test_mkdir_of_dot_and_dot_dot_is_refused(client_dir):
    """[EEXIST] The named file exists: dot and dot-dot always exist."""
    (client_dir / "d").mkdir()
    assert_errno(errno.EEXIST, os.mkdir, f"{client_dir}/d/.")
    assert_errno(errno.EEXIST, os.mkdir, f"{client_dir}/d/..")


@pytest.mark.case(
    "PSX-MKDIR-SETGID",
    section="mkdir(2): NOTES",
    level="MAY",
    kills=("setgid-bit-not-inherited", "setgid-group-not-inherited"),
)
def test_set_group_id_is_inherited_by_directories(client_dir):
    """If the parent has the set-group-ID bit, the new directory has its group and the bit."""
    parent = client_dir / "d"
    parent.mkdir()
    os.chown(parent, 0, USER)
    os.chmod(parent, 0o2775)
    (parent / "new").mkdir()
    make_file(parent / "file")
    assert os.stat(parent / "file").st_gid == USER
    assert os.stat(parent / "new").st_gid == USER
    assert os.stat(parent / "new").st_mode & stat.S_ISGID == stat.S_ISGID


@pytest.mark.case(
    "PSX-SYMLINK-CONTENT",
    section="POSIX.1-2024 symlink(): DESCRIPTION",
    kills=("symlink-target-cut", "symlink-target-tidied"),
)
def test_readlink_returns_the_text_of_the_link(client_dir):
    """The string is the content of the link and need not name an existing file; readlink() returns it.

    [ENAMETOOLONG] is for more than {SYMLINK_MAX} bytes, which is at least 255 (_POSIX_SYMLINK_MAX).
    """
    for text in ("x", "../a//b/./c/", "n" * 255, "/" + "d/" * 500 + "f", "ü ☃ \\ :"):
        try:
            symbolic_link(text, client_dir / "link")
        except OSError as error:
            limit = os.pathconf(client_dir, "PC_SYMLINK_MAX")  # Linux's C library does not know it: -1
            if error.errno != errno.ENAMETOOLONG or len(os.fsencode(text)) <= max(limit, 255):
                raise
            record_observation(f"a symbolic link cannot have {len(os.fsencode(text))} bytes (ENAMETOOLONG)")
            continue
        assert os.readlink(client_dir / "link") == text
        os.unlink(client_dir / "link")


@pytest.mark.case(
    "PSX-SYMLINK-SIZE", section="POSIX.1-2024 lstat(): DESCRIPTION", kills=("symlink-size-zero",)
)
def test_size_of_a_link_is_the_length_of_its_text(client_dir):
    """For symbolic links st_size shall be the length of the path name in the link, without a null byte."""
    symbolic_link("twelve bytes", client_dir / "link")
    assert os.lstat(client_dir / "link").st_size == 12


@pytest.mark.case("PSX-SYMLINK-EMPTY", section="POSIX.1-2024 symlink(): ERRORS")
def test_empty_link_text_is_refused(client_dir):
    """[ENOENT] The text is an empty string (symlink(2)); other systems may accept it."""
    assert_errno(errno.ENOENT, os.symlink, "", client_dir / "link")


@pytest.mark.case("PSX-SYMLINK-ENAMETOOLONG", section="POSIX.1-2024 symlink(): ERRORS")
def test_link_text_longer_than_path_max_is_refused(client_dir):
    """[ENAMETOOLONG] The length of the text exceeds {PATH_MAX} (or {SYMLINK_MAX})."""
    assert_errno(
        errno.ENAMETOOLONG, os.symlink, "x" * os.pathconf(client_dir, "PC_PATH_MAX"), client_dir / "link"
    )


@pytest.mark.case("PSX-READLINK-EINVAL", section="POSIX.1-2024 readlink(): ERRORS")
def test_readlink_of_a_file_is_refused(client_dir):
    """[EINVAL] The path names a file that is not a symbolic link."""
    (client_dir / "d").mkdir()
    for path in (make_file(client_dir / "f"), client_dir / "d"):
        assert_errno(errno.EINVAL, os.readlink, path)


@pytest.mark.case("PSX-SYMLINK-FOLLOW", section="POSIX.1-2024 Pathname Resolution")
def test_relative_link_is_resolved_from_its_directory(client_dir):
    """A link with relative content is resolved from the directory that contains the link."""
    (client_dir / "a").mkdir()
    (client_dir / "b").mkdir()
    make_file(client_dir / "b" / "f", b"found")
    symbolic_link("../b", client_dir / "a" / "to-b")
    symbolic_link("to-b/f", client_dir / "a" / "to-f")
    assert (client_dir / "a" / "to-f").read_bytes() == b"found"


@pytest.mark.case("PSX-SYMLINK-CHAIN", section="POSIX.1-2024 Pathname Resolution")
def test_eight_nested_links_are_followed(client_dir):
    """At least {_POSIX_SYMLOOP_MAX}, eight, links are followed in one resolution."""
    make_file(client_dir / "0", b"end")
    for number in range(1, 9):
        symbolic_link(str(number - 1), client_dir / str(number))
    assert (client_dir / "8").read_bytes() == b"end"


@pytest.mark.case("PSX-MKNOD-EPERM", section="POSIX.1-2024 mknod(): ERRORS")
def test_device_nodes_require_privilege(client_dir):
    """[EPERM] The process does not have appropriate privileges, and the file type is not FIFO."""
    client_dir.chmod(0o777)
    with run_as_user(USER, USER):
        assert_errno(errno.EPERM, os.mknod, client_dir / "c", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        assert_errno(errno.EPERM, os.mknod, client_dir / "b", stat.S_IFBLK | 0o600, os.makedev(7, 200))


@pytest.mark.case(
    "PSX-MKNOD-DEVICE", section="POSIX.1-2024 mknod(): DESCRIPTION", kills=("device-number-lost",)
)
def test_device_node_has_its_type_and_numbers(client_dir):
    """The file type is S_IFCHR or S_IFBLK, and st_rdev is the device of the call."""
    for kind, numbers in ((stat.S_IFCHR, (1, 3)), (stat.S_IFBLK, (259, 65537))):
        node(client_dir / "node", kind | 0o600, os.makedev(*numbers))
        made = os.lstat(client_dir / "node")
        assert stat.S_IFMT(made.st_mode) == kind
        assert (os.major(made.st_rdev), os.minor(made.st_rdev)) == numbers
        os.unlink(client_dir / "node")


@pytest.mark.case("PSX-CREATE-NAMES-ONLY", section="POSIX.1-2024 open(): DESCRIPTION")
def test_refused_creation_leaves_no_file(client_dir):
    """A creation that is refused creates no file."""
    make_file(client_dir / "f")
    for make in MAKERS.values():
        assert_errno((errno.ENOTDIR,), make, client_dir / "f" / "x")
    assert os.listdir(client_dir) == ["f"]


@pytest.mark.case("PSX-CREATE-INODE", section="POSIX.1-2024 <sys/stat.h>")
def test_existing_files_have_distinct_serial_numbers(client_dir):
    """st_ino and st_dev taken together uniquely identify the file within the system."""
    made = [os.stat(make_file(client_dir / str(number))) for number in range(20)]
    assert len({(file.st_dev, file.st_ino) for file in made}) == 20
    record_observation(
        "serial numbers are " + ("below" if max(file.st_ino for file in made) < 1 << 32 else "over") + " 2^32"
    )
