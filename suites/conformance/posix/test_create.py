"""mkdir(), mkfifo(), mknod(), symlink(): what is made, of which mode, whose it is, and what is refused."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from storagetest.agent.testlib import assert_errno, record_observation, run_as_user
from storagetest.agent.testlib.tmpfiles import make_file, wait_clock_tick

pytestmark = [pytest.mark.needs("filesystem"), pytest.mark.case(level="MUST")]

NOBODY = 54321

MAKERS = {
    "mkdir": lambda path: os.mkdir(path, 0o755),
    "mkfifo": lambda path: os.mkfifo(path, 0o644),
    "mknod": lambda path: os.mknod(path, stat.S_IFREG | 0o644),
    "symlink": lambda path: os.symlink("target", path),
    "link": lambda path: os.link(make_file(path.parent / "linked"), path),
}
KINDS = {
    "mkdir": stat.S_ISDIR,
    "mkfifo": stat.S_ISFIFO,
    "mknod": stat.S_ISREG,
    "symlink": stat.S_ISLNK,
    "link": stat.S_ISREG,
}


def each(what: str, of: str, names=tuple(MAKERS)):
    """Make a case ``PSX-CALL-WHAT`` of each call."""
    return pytest.mark.parametrize(
        "call",
        [
            pytest.param(
                name,
                id=name,
                marks=pytest.mark.case(f"PSX-{name.upper()}-{what}", section=f"POSIX.1-2024 {name}(): {of}"),
            )
            for name in names
        ],
    )


@each("MAKES", "DESCRIPTION")
def test_it_makes_what_its_name_says(client_dir, call):
    """It shall create a file of that type with the name given."""
    MAKERS[call](client_dir / "new")
    assert KINDS[call](os.lstat(client_dir / "new").st_mode)
    assert "new" in os.listdir(client_dir)


@each("EEXIST-FILE", "ERRORS")
@pytest.mark.case(kills=("made-over-what-exists",))
def test_a_file_of_the_name_exists(client_dir, call):
    """[EEXIST] The named file exists."""
    make_file(client_dir / "new", b"kept")
    assert_errno(errno.EEXIST, MAKERS[call], client_dir / "new")
    assert (client_dir / "new").read_bytes() == b"kept"


@each("EEXIST-DIRECTORY", "ERRORS")
def test_a_directory_of_the_name_exists(client_dir, call):
    """[EEXIST] The named file exists, and be it a directory."""
    (client_dir / "new").mkdir()
    assert_errno(errno.EEXIST, MAKERS[call], client_dir / "new")


@each("EEXIST-LINK", "ERRORS")
@pytest.mark.case(kills=("made-over-what-exists",))
def test_a_dangling_link_of_the_name_exists(client_dir, call):
    """[EEXIST] If path names a symbolic link, it shall fail: the link is not followed."""
    os.symlink("absent", client_dir / "new")
    assert_errno(errno.EEXIST, MAKERS[call], client_dir / "new")
    assert not os.path.lexists(client_dir / "absent")


@each("MODE", "DESCRIPTION", ("mkdir", "mkfifo", "mknod"))
@pytest.mark.case(kills=("mask-ignored",))
def test_the_mode_is_what_was_asked_less_the_umask(client_dir, call):
    """The permission bits shall be initialised from mode, less those that the file mode mask has."""
    os.umask(0o026)
    make = {
        "mkdir": os.mkdir,
        "mkfifo": os.mkfifo,
        "mknod": lambda path, mode: os.mknod(path, stat.S_IFREG | mode),
    }
    make[call](client_dir / "new", 0o757)
    assert stat.S_IMODE(os.lstat(client_dir / "new").st_mode) & 0o777 == 0o751


@each("OWNER", "DESCRIPTION")
def test_it_belongs_to_who_makes_it(client_dir, call):
    """The user ID shall be the process's effective one; the group ID the process's or the directory's."""
    client_dir.chmod(0o777)
    with run_as_user(NOBODY, NOBODY + 1):
        MAKERS[call](client_dir / "new")
    made = os.lstat(client_dir / "new")
    assert made.st_uid == NOBODY
    assert made.st_gid in {NOBODY + 1, os.stat(client_dir).st_gid}


@each("TIMES", "DESCRIPTION")
@pytest.mark.case(kills=("directory-mtime-not-moved",))
def test_it_stamps_the_directory(client_dir, call):
    """Last data modification and last file status change of the directory with the new entry are marked."""
    directory = client_dir / "d"
    directory.mkdir()
    if call == "link":
        make_file(directory / "linked")
    before = os.stat(directory)
    wait_clock_tick(client_dir)
    if call == "link":
        os.link(directory / "linked", directory / "new")
    else:
        MAKERS[call](directory / "new")
    after = os.stat(directory)
    assert after.st_mtime_ns > before.st_mtime_ns
    assert after.st_ctime_ns > before.st_ctime_ns


@pytest.mark.case(
    "PSX-MKDIR-NLINK",
    section="POSIX.1-2024 mkdir(): DESCRIPTION",
    level="MAY",
    kills=("directory-links-not-counted",),
)
def test_a_new_directory_is_one_more_link_to_its_parent(client_dir):
    """A file system whose directories hold dot-dot counts it: the parent's link count is one more."""
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
def test_mkdir_takes_a_slash_after_the_name(client_dir):
    """A directory can be made under a name that ends in a slash (Base Definitions, Pathname Resolution)."""
    os.mkdir(f"{client_dir}/new/")
    assert stat.S_ISDIR(os.stat(client_dir / "new").st_mode)


@pytest.mark.case("PSX-MKDIR-DOT", section="POSIX.1-2024 mkdir(): ERRORS")
def test_dot_and_dot_dot_exist(client_dir):
    """[EEXIST] The named file exists: dot and dot-dot always do."""
    (client_dir / "d").mkdir()
    assert_errno(errno.EEXIST, os.mkdir, f"{client_dir}/d/.")
    assert_errno(errno.EEXIST, os.mkdir, f"{client_dir}/d/..")


@pytest.mark.case(
    "PSX-MKDIR-SETGID",
    section="mkdir(2): NOTES",
    level="MAY",
    kills=("setgid-bit-not-inherited", "setgid-group-not-inherited"),
)
def test_a_directory_in_a_set_group_id_directory_takes_its_group_and_the_bit(client_dir):
    """Where the parent has the set-group-ID bit, the new directory belongs to its group and has the bit."""
    parent = client_dir / "d"
    parent.mkdir()
    os.chown(parent, 0, NOBODY)
    os.chmod(parent, 0o2775)
    (parent / "new").mkdir()
    make_file(parent / "file")
    assert os.stat(parent / "file").st_gid == NOBODY
    assert os.stat(parent / "new").st_gid == NOBODY
    assert os.stat(parent / "new").st_mode & stat.S_ISGID == stat.S_ISGID


@pytest.mark.case(
    "PSX-SYMLINK-CONTENT",
    section="POSIX.1-2024 symlink(): DESCRIPTION",
    kills=("symlink-target-cut", "symlink-target-tidied"),
)
def test_a_link_holds_what_it_was_given(client_dir):
    """The string is what the link holds, and need not name an existing file; readlink() returns it."""
    for text in ("x", "../a//b/./c/", "n" * 255, "/" + "d/" * 500 + "f", "ü ☃ \\ :"):
        os.symlink(text, client_dir / "link")
        assert os.readlink(client_dir / "link") == text
        os.unlink(client_dir / "link")


@pytest.mark.case(
    "PSX-SYMLINK-SIZE", section="POSIX.1-2024 lstat(): DESCRIPTION", kills=("symlink-size-zero",)
)
def test_the_size_of_a_link_is_the_length_of_what_it_holds(client_dir):
    """For symbolic links st_size shall be the length of the path name in the link, without a null byte."""
    os.symlink("twelve bytes", client_dir / "link")
    assert os.lstat(client_dir / "link").st_size == 12


@pytest.mark.case("PSX-SYMLINK-EMPTY", section="POSIX.1-2024 symlink(): ERRORS")
def test_a_link_cannot_hold_nothing(client_dir):
    """[ENOENT] The text is an empty string (Linux refuses it: symlink(2)); elsewhere it may be taken."""
    assert_errno(errno.ENOENT, os.symlink, "", client_dir / "link")


@pytest.mark.case("PSX-SYMLINK-ENAMETOOLONG", section="POSIX.1-2024 symlink(): ERRORS")
def test_a_link_cannot_hold_more_than_a_path_may_be_long(client_dir):
    """[ENAMETOOLONG] The length of the text exceeds {PATH_MAX} (or {SYMLINK_MAX})."""
    assert_errno(
        errno.ENAMETOOLONG, os.symlink, "x" * os.pathconf(client_dir, "PC_PATH_MAX"), client_dir / "link"
    )


@pytest.mark.case("PSX-READLINK-EINVAL", section="POSIX.1-2024 readlink(): ERRORS")
def test_what_is_no_link_cannot_be_read_as_one(client_dir):
    """[EINVAL] The path names a file that is not a symbolic link."""
    (client_dir / "d").mkdir()
    for path in (make_file(client_dir / "f"), client_dir / "d"):
        assert_errno(errno.EINVAL, os.readlink, path)


@pytest.mark.case("PSX-SYMLINK-FOLLOW", section="POSIX.1-2024 Pathname Resolution")
def test_links_are_followed_relative_to_where_they_stand(client_dir):
    """A link whose content is relative is resolved from the directory that contains it."""
    (client_dir / "a").mkdir()
    (client_dir / "b").mkdir()
    make_file(client_dir / "b" / "f", b"found")
    os.symlink("../b", client_dir / "a" / "to-b")
    os.symlink("to-b/f", client_dir / "a" / "to-f")
    assert (client_dir / "a" / "to-f").read_bytes() == b"found"


@pytest.mark.case("PSX-SYMLINK-CHAIN", section="POSIX.1-2024 Pathname Resolution")
def test_eight_links_in_a_row_are_followed(client_dir):
    """At least {_POSIX_SYMLOOP_MAX}, eight, links are followed in one resolution."""
    make_file(client_dir / "0", b"end")
    for number in range(1, 9):
        os.symlink(str(number - 1), client_dir / str(number))
    assert (client_dir / "8").read_bytes() == b"end"


@pytest.mark.case("PSX-MKNOD-EPERM", section="POSIX.1-2024 mknod(): ERRORS")
def test_devices_are_made_by_the_privileged_only(client_dir):
    """[EPERM] The process does not have appropriate privileges, and the file type is not FIFO."""
    client_dir.chmod(0o777)
    with run_as_user(NOBODY, NOBODY):
        assert_errno(errno.EPERM, os.mknod, client_dir / "c", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        assert_errno(errno.EPERM, os.mknod, client_dir / "b", stat.S_IFBLK | 0o600, os.makedev(7, 200))


@pytest.mark.case(
    "PSX-MKNOD-DEVICE", section="POSIX.1-2024 mknod(): DESCRIPTION", kills=("device-number-lost",)
)
def test_a_device_node_keeps_its_type_and_numbers(client_dir):
    """The file type is S_IFCHR or S_IFBLK, and dev is the device: st_rdev says it."""
    for kind, numbers in ((stat.S_IFCHR, (1, 3)), (stat.S_IFBLK, (259, 65537))):
        os.mknod(client_dir / "node", kind | 0o600, os.makedev(*numbers))
        made = os.lstat(client_dir / "node")
        assert stat.S_IFMT(made.st_mode) == kind
        assert (os.major(made.st_rdev), os.minor(made.st_rdev)) == numbers
        os.unlink(client_dir / "node")


@pytest.mark.case("PSX-CREATE-NAMES-ONLY", section="POSIX.1-2024 open(): DESCRIPTION")
def test_what_is_refused_leaves_nothing(client_dir):
    """A creation that is refused has made nothing."""
    make_file(client_dir / "f")
    for make in MAKERS.values():
        assert_errno((errno.ENOTDIR,), make, client_dir / "f" / "x")
    assert os.listdir(client_dir) == ["f"]


@pytest.mark.case("PSX-CREATE-INODE", section="POSIX.1-2024 <sys/stat.h>")
def test_files_that_exist_at_once_have_serial_numbers_of_their_own(client_dir):
    """st_ino and st_dev taken together uniquely identify the file within the system."""
    made = [os.stat(make_file(client_dir / str(number))) for number in range(20)]
    assert len({(each.st_dev, each.st_ino) for each in made}) == 20
    record_observation(
        "serial numbers are " + ("below" if max(each.st_ino for each in made) < 1 << 32 else "over") + " 2^32"
    )
