"""open(): flags, errors and permissions."""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
from pathlib import Path

import pytest

from storagetest.agent.testlib import assert_errno, call_in_subprocess, record_observation, run_as_user, skip
from storagetest.agent.testlib.tmpfiles import (
    bind_socket,
    fifo,
    make_file,
    open_fd,
    symbolic_link,
    wait_clock_tick,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST", builds_on=("PSX-DATA-NEW-FILE",), section="POSIX.1-2024 open(): DESCRIPTION"
    ),
]
errors = "POSIX.1-2024 open(): ERRORS"

USER = 54321


@pytest.mark.case("PSX-OPEN-EXCL", section=errors, kills=("exclusive-not",))
def test_exclusive_creation_of_an_existing_file_is_refused(client_dir):
    """[EEXIST] O_CREAT and O_EXCL are set, and the named file exists."""
    make_file(client_dir / "f", b"kept")
    assert_errno(errno.EEXIST, os.open, client_dir / "f", os.O_CREAT | os.O_EXCL | os.O_RDWR)
    assert (client_dir / "f").read_bytes() == b"kept"


@pytest.mark.case("PSX-OPEN-EXCL-LINK", kills=("exclusive-not",))
def test_exclusive_creation_does_not_follow_a_link(client_dir):
    """If O_EXCL and O_CREAT are set, and path names a symbolic link, open() shall fail with [EEXIST]."""
    symbolic_link("absent", client_dir / "link")
    assert_errno(errno.EEXIST, os.open, client_dir / "link", os.O_CREAT | os.O_EXCL | os.O_RDWR)
    assert not os.path.lexists(client_dir / "absent")


@pytest.mark.case("PSX-OPEN-CREAT-LINK")
def test_creation_through_a_dangling_link(client_dir):
    """O_CREAT without O_EXCL follows a symbolic link and creates the file that it names."""
    symbolic_link("made", client_dir / "link")
    with open_fd(client_dir / "link", os.O_CREAT | os.O_WRONLY) as descriptor:
        assert os.write(descriptor, b"x") == 1
    assert stat.S_ISREG(os.lstat(client_dir / "made").st_mode)
    assert os.stat(client_dir / "made").st_size == 1


@pytest.mark.case("PSX-OPEN-CREAT-EXISTS")
def test_creation_of_an_existing_file_only_opens_it(client_dir):
    """If the file exists, O_CREAT without O_EXCL has no effect: mode and content stay."""
    make_file(client_dir / "f", b"kept", 0o604)
    with open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR, 0o777) as descriptor:
        assert os.read(descriptor, 10) == b"kept"
        assert os.fstat(descriptor).st_mode & 0o777 == 0o604


@pytest.mark.case("PSX-OPEN-CREAT-MODE", kills=("create-mode-ignored", "mask-ignored"))
def test_mode_of_a_new_file_is_limited_by_the_umask(client_dir):
    """The permission bits shall be those of mode, without the bits of the file mode creation mask."""
    os.umask(0o027)
    with open_fd(client_dir / "f", os.O_CREAT | os.O_WRONLY, 0o666) as descriptor:
        assert os.fstat(descriptor).st_mode & 0o7777 == 0o640


@pytest.mark.case("PSX-OPEN-CREAT-READONLY")
def test_mode_of_a_new_file_does_not_limit_its_creating_open(client_dir):
    """The mode argument does not affect whether the file is open for reading, writing or both."""
    client_dir.chmod(0o777)
    with run_as_user(USER, USER), open_fd(client_dir / "f", os.O_CREAT | os.O_RDWR, 0o000) as descriptor:
        assert os.write(descriptor, b"written") == 7
        assert os.pread(descriptor, 7, 0) == b"written"


@pytest.mark.case("PSX-OPEN-CREAT-OWNER", kills=("owner-not-caller",))
def test_new_file_belongs_to_its_creator(client_dir):
    """The file's user ID is the process's effective one; its group the process's or the directory's."""
    client_dir.chmod(0o777)
    with run_as_user(USER, USER + 1):
        make_file(client_dir / "f")
    status = os.stat(client_dir / "f")
    assert status.st_uid == USER
    assert status.st_gid in {USER + 1, os.stat(client_dir).st_gid}
    record_observation(
        "a new file has " + ("its creator's group" if status.st_gid == USER + 1 else "its directory's group")
    )


@pytest.mark.case("PSX-OPEN-TRUNC", kills=("open-trunc-ignored",))
def test_o_trunc_empties_a_regular_file(client_dir):
    """If the file is a regular file and opened O_RDWR or O_WRONLY, its length shall be truncated to 0."""
    make_file(client_dir / "f", b"content", 0o604)
    with open_fd(client_dir / "f", os.O_WRONLY | os.O_TRUNC) as descriptor:
        assert os.fstat(descriptor).st_size == 0
    assert (client_dir / "f").read_bytes() == b""


@pytest.mark.server_inodes
@pytest.mark.case("PSX-OPEN-TRUNC-KEEPS", kills=("trunc-sets-mode",))
def test_o_trunc_keeps_mode_and_owner(client_dir):
    """O_TRUNC: the mode and owner shall be unchanged."""
    make_file(client_dir / "f", b"content", 0o604)
    before = os.stat(client_dir / "f")
    os.close(os.open(client_dir / "f", os.O_WRONLY | os.O_TRUNC))
    after = os.stat(client_dir / "f")
    assert (after.st_mode, after.st_uid, after.st_gid, after.st_ino) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
        before.st_ino,
    )


@pytest.mark.case("PSX-OPEN-TRUNC-TIMES", kills=("open-trunc-ignored", "write-ctime-not-moved"))
def test_o_trunc_updates_the_times(client_dir):
    """O_TRUNC: the last data modification and last file status change time stamps are marked for update."""
    make_file(client_dir / "f", b"content")
    before = os.stat(client_dir / "f")
    wait_clock_tick(client_dir)
    os.close(os.open(client_dir / "f", os.O_WRONLY | os.O_TRUNC))
    after = os.stat(client_dir / "f")
    assert after.st_mtime_ns > before.st_mtime_ns
    assert after.st_ctime_ns > before.st_ctime_ns


@pytest.mark.case("PSX-OPEN-TRUNC-EMPTY", kills=("open-trunc-of-empty-unmarked",))
def test_o_trunc_of_an_empty_file_updates_the_times(client_dir):
    """O_TRUNC marks mtime and ctime of a file that existed before, whatever its length was: each time."""
    make_file(client_dir / "f")
    for _ in range(2):
        before = os.stat(client_dir / "f")
        wait_clock_tick(client_dir)
        os.close(os.open(client_dir / "f", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        after = os.stat(client_dir / "f")
        assert after.st_mtime_ns > before.st_mtime_ns, "O_TRUNC does not mark mtime of an empty file"
        assert after.st_ctime_ns > before.st_ctime_ns, "O_TRUNC does not mark ctime of an empty file"


@pytest.mark.case("PSX-OPEN-CREAT-TIMES", kills=("directory-mtime-not-moved",))
def test_creation_updates_the_times_of_file_and_directory(client_dir):
    """On creation the file's three time stamps, and its directory's mtime and ctime, are marked."""
    directory = client_dir / "d"
    directory.mkdir()
    before = os.stat(directory)
    wait_clock_tick(client_dir)
    made = os.stat(make_file(directory / "f"))
    after = os.stat(directory)
    assert after.st_mtime_ns > before.st_mtime_ns
    assert after.st_ctime_ns > before.st_ctime_ns
    assert min(made.st_atime_ns, made.st_mtime_ns, made.st_ctime_ns) > before.st_mtime_ns


@pytest.mark.case("PSX-OPEN-CREAT-EXISTS-TIMES")
def test_o_creat_of_an_existing_file_keeps_the_directorys_times(client_dir):
    """The directory's times are marked for update only if the file did not previously exist."""
    make_file(client_dir / "f")
    before = os.stat(client_dir)
    wait_clock_tick(client_dir / "..")
    os.close(os.open(client_dir / "f", os.O_CREAT | os.O_RDWR))
    assert os.stat(client_dir).st_mtime_ns == before.st_mtime_ns


@pytest.mark.case("PSX-OPEN-APPEND", kills=("append-ignored",))
def test_o_append_writes_at_the_end(client_dir):
    """If O_APPEND is set, the file offset shall be set to the end of the file prior to each write."""
    make_file(client_dir / "f", b"first")
    with open_fd(client_dir / "f", os.O_RDWR | os.O_APPEND) as descriptor:
        os.lseek(descriptor, 0, os.SEEK_SET)
        assert os.write(descriptor, b" second") == 7
        assert os.lseek(descriptor, 0, os.SEEK_CUR) == 12
    assert (client_dir / "f").read_bytes() == b"first second"


@pytest.mark.case("PSX-OPEN-APPEND-TWO", kills=("append-ignored", "append-lost"))
def test_appends_by_two_descriptors_keep_all_data(client_dir):
    """With O_APPEND no intervening modification occurs between setting the offset and the write."""
    make_file(client_dir / "f")
    with (
        open_fd(client_dir / "f", os.O_WRONLY | os.O_APPEND) as one,
        open_fd(client_dir / "f", os.O_WRONLY | os.O_APPEND) as two,
    ):
        for number in range(8):
            os.write(one if number % 2 else two, b"%d" % number)
    assert (client_dir / "f").read_bytes() == b"01234567"


@pytest.mark.case("PSX-OPEN-DIRECTORY", section=errors)
def test_o_directory_of_a_file_is_refused(client_dir):
    """[ENOTDIR] O_DIRECTORY was specified and the path names an existing file that is no directory."""
    make_file(client_dir / "f")
    assert_errno(errno.ENOTDIR, os.open, client_dir / "f", os.O_RDONLY | os.O_DIRECTORY)


@pytest.mark.case("PSX-OPEN-NOFOLLOW", section=errors)
def test_o_nofollow_of_a_link_is_refused(client_dir):
    """[ELOOP] O_NOFOLLOW was specified and the path names a symbolic link."""
    make_file(client_dir / "f")
    symbolic_link("f", client_dir / "link")
    assert_errno(errno.ELOOP, os.open, client_dir / "link", os.O_RDONLY | os.O_NOFOLLOW)


@pytest.mark.case("PSX-OPEN-NOFOLLOW-PREFIX")
def test_o_nofollow_follows_links_in_the_prefix(client_dir):
    """O_NOFOLLOW applies to the last component only."""
    (client_dir / "d").mkdir()
    make_file(client_dir / "d" / "f", b"x")
    symbolic_link("d", client_dir / "link")
    with open_fd(client_dir / "link" / "f", os.O_RDONLY | os.O_NOFOLLOW) as descriptor:
        assert os.read(descriptor, 2) == b"x"


@pytest.mark.case("PSX-OPEN-EISDIR", section=errors)
def test_a_directory_cannot_be_opened_for_writing(client_dir):
    """[EISDIR] The named file is a directory and oflag includes O_WRONLY or O_RDWR."""
    (client_dir / "d").mkdir()
    assert_errno(errno.EISDIR, os.open, client_dir / "d", os.O_WRONLY)
    assert_errno(errno.EISDIR, os.open, client_dir / "d", os.O_RDWR)


@pytest.mark.case("PSX-OPEN-ELOOP", section=errors)
def test_open_of_a_link_loop_is_refused(client_dir):
    """[ELOOP] A loop exists in symbolic links encountered during resolution of the path."""
    symbolic_link("self", client_dir / "self")
    assert_errno(errno.ELOOP, os.open, client_dir / "self", os.O_RDONLY)


@pytest.mark.case("PSX-OPEN-SLASH", section=errors)
def test_open_of_a_file_with_a_trailing_slash_is_refused(client_dir):
    """[ENOTDIR] The path ends in a slash, and the last component names a file that is no directory."""
    make_file(client_dir / "f")
    assert_errno(errno.ENOTDIR, os.open, f"{client_dir}/f/", os.O_RDONLY)


@pytest.mark.case("PSX-OPEN-FIFO-ENXIO", section=errors, kills=("fifo-is-a-file",))
def test_fifo_without_a_reader_is_not_opened_for_writing(client_dir):
    """[ENXIO] O_NONBLOCK and O_WRONLY are set, and no process has the FIFO open for reading."""
    fifo(client_dir / "fifo")
    assert_errno(errno.ENXIO, os.open, client_dir / "fifo", os.O_WRONLY | os.O_NONBLOCK)


@pytest.mark.case("PSX-OPEN-FIFO-TALK", kills=("fifo-is-a-file",))
def test_fifo_transfers_data_between_processes(client_dir):
    """The reader of a FIFO gets the data that its writer wrote."""
    fifo(client_dir / "fifo")
    reader = os.open(client_dir / "fifo", os.O_RDONLY | os.O_NONBLOCK)

    def write() -> int:
        with open_fd(client_dir / "fifo", os.O_WRONLY) as descriptor:
            return os.write(descriptor, b"hello")

    assert call_in_subprocess(write) == 5
    assert os.read(reader, 10) == b"hello"
    os.close(reader)


def _is_unchecked_fuse(path) -> bool:
    """Whether the kernel checks no permission here: FUSE without ``default_permissions`` (mount.fuse(8))."""
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == number:
            return rest.startswith("fuse") and "default_permissions" not in rest
    return False


@pytest.mark.case(
    "PSX-OPEN-FIFO-EACCES", section=errors, no_mutant_reason="the kernel of the client checks the permission"
)
def test_fifo_is_opened_with_permission_only(client_dir):
    """[EACCES] The FIFO exists, and the permissions specified by the flags are denied."""
    if _is_unchecked_fuse(client_dir):
        skip("the kernel leaves permissions to this FUSE file system, and asks it for none of a FIFO")
    client_dir.chmod(0o777)
    for mode, flags in ((0o600, os.O_RDONLY), (0o622, os.O_RDONLY), (0o644, os.O_WRONLY)):
        fifo(client_dir / "fifo")
        os.chmod(client_dir / "fifo", mode)
        with run_as_user(USER, USER):
            assert_errno(errno.EACCES, os.open, client_dir / "fifo", flags | os.O_NONBLOCK)
        os.unlink(client_dir / "fifo")
    fifo(client_dir / "fifo")
    os.chmod(client_dir / "fifo", 0o604)
    with run_as_user(USER, USER):
        os.close(os.open(client_dir / "fifo", os.O_RDONLY | os.O_NONBLOCK))


@pytest.mark.case("PSX-OPEN-SOCKET", section=errors)
def test_a_socket_cannot_be_opened(client_dir):
    """[EOPNOTSUPP] The path names a socket; Linux returns ENXIO (open(2))."""
    os.chdir(client_dir)
    with socket.socket(socket.AF_UNIX) as server:
        bind_socket(server, "s")
    assert_errno((errno.EOPNOTSUPP, errno.ENXIO), os.open, client_dir / "s", os.O_RDWR)


PERMITTED = [
    # mode of the file, class of the process, flags, whether the open succeeds
    ("OTHER-R-R", 0o604, "other", os.O_RDONLY, True),
    ("OTHER-R-W", 0o604, "other", os.O_WRONLY, False),
    ("OTHER-W-W", 0o602, "other", os.O_WRONLY, True),
    ("OTHER-W-R", 0o602, "other", os.O_RDONLY, False),
    ("OTHER-R-RW", 0o604, "other", os.O_RDWR, False),
    ("GROUP-R-R", 0o640, "group", os.O_RDONLY, True),
    ("GROUP-R-W", 0o640, "group", os.O_WRONLY, False),
    ("GROUP-FIRST", 0o606, "group", os.O_RDONLY, False),
    ("EXTRA-GROUP", 0o640, "extra", os.O_RDONLY, True),
    ("OWNER-R-R", 0o400, "owner", os.O_RDONLY, True),
    ("OWNER-R-W", 0o400, "owner", os.O_WRONLY, False),
    ("OWNER-FIRST", 0o066, "owner", os.O_RDONLY, False),
    ("TRUNC", 0o604, "other", os.O_WRONLY | os.O_TRUNC, False),
    ("TRUNC-R-RW", 0o604, "other", os.O_RDWR | os.O_TRUNC, False),
    ("TRUNC-W-RW", 0o602, "other", os.O_RDWR | os.O_TRUNC, False),
    ("TRUNC-OWNER-R-W", 0o400, "owner", os.O_WRONLY | os.O_TRUNC, False),
    ("TRUNC-OWNER-W-RW", 0o200, "owner", os.O_RDWR | os.O_TRUNC, False),
    ("TRUNC-GROUP-W-RW", 0o620, "group", os.O_RDWR | os.O_TRUNC, False),
]


@pytest.mark.parametrize(
    ("mode", "user_class", "flags", "permitted"),
    [
        pytest.param(*rest, marks=pytest.mark.case(f"PSX-OPEN-MAY-{name}"), id=name.lower())
        for name, *rest in PERMITTED
    ],
)
@pytest.mark.case(section="POSIX.1-2024 File Access Permissions")
def test_open_follows_the_mode(client_dir, mode, user_class, flags, permitted):
    """The class of the process (owner, group, others) is determined first, and only its bits decide."""
    client_dir.chmod(0o777)
    make_file(client_dir / "f", b"data")
    os.chown(client_dir / "f", USER, USER + 1)
    os.chmod(client_dir / "f", mode)
    user, group, *extra = {
        "owner": (USER, USER),
        "group": (USER + 2, USER + 1),
        "extra": (USER + 2, USER, USER + 1),
        "other": (USER + 2, USER + 2),
    }[user_class]
    with run_as_user(user, group, *extra):
        if permitted:
            os.close(os.open(client_dir / "f", flags))
        else:
            assert_errno(errno.EACCES, os.open, client_dir / "f", flags)
    assert (client_dir / "f").read_bytes() == b"data", "an open has changed the data"


@pytest.mark.case("PSX-OPEN-ETXTBSY", section="open(2): ERRORS", level="SHOULD")
def test_running_program_is_not_opened_for_writing(client_dir):
    """[ETXTBSY] The path names an executable that is being executed, and write access was requested."""
    program = make_file(client_dir / "program", Path("/bin/sleep").read_bytes(), 0o755)
    running = os.posix_spawn(program, ["sleep", "30"], {})
    try:
        assert_errno(errno.ETXTBSY, os.open, program, os.O_WRONLY)
    finally:
        os.kill(running, signal.SIGKILL)
        os.waitpid(running, 0)


@pytest.mark.case("PSX-OPEN-READ-ON-WRITE-ONLY", section="POSIX.1-2024 read(): ERRORS")
def test_write_only_descriptor_does_not_read(client_dir):
    """[EBADF] The descriptor is not open for reading."""
    with open_fd(make_file(client_dir / "f", b"x"), os.O_WRONLY) as descriptor:
        assert_errno(errno.EBADF, os.read, descriptor, 1)


@pytest.mark.case(
    "PSX-OPEN-WRITE-ON-READ-ONLY", section="POSIX.1-2024 write(): ERRORS", kills=("write-not-done",)
)
def test_read_only_descriptor_does_not_write(client_dir):
    """[EBADF] The descriptor is not open for writing."""
    with open_fd(make_file(client_dir / "f", b"x"), os.O_RDONLY) as descriptor:
        assert_errno(errno.EBADF, os.write, descriptor, b"y")
    assert (client_dir / "f").read_bytes() == b"x"


@pytest.mark.case("PSX-OPEN-UNLINKED", kills=("unlink-not-done", "unlinked-open-stale"))
def test_removed_open_file_can_be_used(client_dir):
    """unlink(): when processes have the file open, its contents stay until all references are closed."""
    with open_fd(make_file(client_dir / "f", b"before")) as descriptor:
        os.unlink(client_dir / "f")
        assert not os.path.lexists(client_dir / "f")
        assert os.pwrite(descriptor, b"after.", 0) == 6
        assert os.pread(descriptor, 6, 0) == b"after."


@pytest.mark.case(
    "PSX-OPEN-TMPFILE", section="open(2): O_TMPFILE", level="MAY", kills=("tmpfile-not-linkable",)
)
def test_linkat_names_an_unnamed_file(client_dir):
    """O_TMPFILE creates an unnamed file; linkat() can give it a name."""
    try:
        descriptor = os.open(client_dir, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError as error:
        assert error.errno in {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}
        raise AssertionError("O_TMPFILE is not supported") from None
    os.write(descriptor, b"nameless")
    assert os.listdir(client_dir) == []
    os.link(f"/proc/self/fd/{descriptor}", client_dir / "named", src_dir_fd=descriptor, follow_symlinks=True)
    os.close(descriptor)
    assert (client_dir / "named").read_bytes() == b"nameless"


@pytest.mark.case(
    "PSX-OPEN-MANY",
    section="POSIX.1-2024 open(): DESCRIPTION",
    kills=("descriptor-65-reads-nothing",),
)
def test_each_of_many_descriptors_of_a_file_reads_it(client_dir):
    """Each open() of a file makes a descriptor that reads and writes it, however many there are."""
    make_file(client_dir / "f", b"content")
    descriptors = []
    try:
        for number in range(130):
            descriptors.append(os.open(client_dir / "f", os.O_RDWR if number % 2 else os.O_RDONLY))
            found = os.pread(descriptors[-1], 10, 0)
            assert found == b"content", f"descriptor {number + 1} reads {found!r}"
        os.pwrite(descriptors[-1], b"C", 0)
        assert os.pread(descriptors[0], 10, 0) == b"Content"
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
