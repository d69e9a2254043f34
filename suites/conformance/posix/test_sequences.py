"""Sequences of operations, seeded and random, that are compared with a model after each of them.

Each of the other modules tests a rule with a few calls. Here the rules hold together: what one call leaves is
what the next finds, at sizes and offsets around those at which file systems change their ways.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import struct
import time

import pytest

from storagetest.agent.testlib import SubprocessCall, run_as_user, skip
from storagetest.agent.testlib.file_sequence import FileSequence
from storagetest.agent.testlib.large_files import put, resize
from storagetest.agent.testlib.lock_sequence import LockSequence
from storagetest.agent.testlib.name_sequence import NameSequence
from storagetest.agent.testlib.tmpfiles import make_file, open_fd
from storagetest.agent.testlib.tree_sequence import run_tree

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.server_inodes("*serial number*"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

GIB = 1 << 30
GROUP = 4242
WAKE = 8.0
"""Seconds for the grant of a lock that is free (chosen): an NFS client may ask again after 1 s and more."""
SECONDS = 1.5
"""Seconds of one sequence (chosen); it has LEAST operations at least, on a slow target, too."""
LEAST = 150

DATA = "POSIX.1-2024 write(), ftruncate(), read(): DESCRIPTION"
DATA_KILLS = (
    "append-after-rename", "mapped-after-truncate-lost", "write-of-65537-cut", "last-byte-of-page-plus-one",
    "allocation-inside-cuts", "copy-again-stale", "rewrite-same-start-skipped",
    "equal-start-equal-data", "punch-across-end-grows", "second-extension-stale",
)  # fmt: skip
"""Mutants that each sequence detects. Others are detected by those whose order of operations meets them."""
MORE_KILLS = {
    1: (
        "third-write-of-page-lost",
        "append-after-extension",
        "zero-range-not-extended",
        "punch-third-ignored",
    ),
    2: (
        "third-write-of-page-lost",
        "punch-edge-of-page",
        "crlf-as-lf",
        "seek-data-in-last-hole-is-end",
        "append-at-page-zeroes",
    ),
    3: ("append-after-extension", "gap-has-cut-data", "zero-range-not-extended", "append-at-page-zeroes"),
}


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            seed,
            marks=pytest.mark.case(
                f"PSX-SEQUENCE-DATA-{seed}", section=DATA, kills=(*DATA_KILLS, *MORE_KILLS[seed])
            ),
        )
        for seed in (1, 2, 3)
    ],
)
def test_file_has_the_data_that_the_operations_left(client_dir, seed):
    """After each write, cut, append, hole, copy and mapping, size and data are those of the model."""
    with FileSequence(client_dir, seed) as sequence:
        sequence.run(SECONDS, LEAST)


@pytest.mark.parametrize(
    "edge",
    [
        pytest.param(
            2 * GIB,
            marks=pytest.mark.case(
                "PSX-SEQUENCE-2-GIB",
                section=DATA,
                kills=(
                    "write-across-2-gib-cut",
                    "write-of-65537-cut",
                    "seek-data-in-last-hole-is-end",
                ),
            ),
        ),
        pytest.param(
            4 * GIB,
            marks=pytest.mark.case("PSX-SEQUENCE-4-GIB", section=DATA, kills=("write-across-4-gib-wraps",)),
        ),
    ],
)
def test_file_has_the_data_of_operations_around_a_large_offset(client_dir, edge):
    """The same around 2 and 4 GiB: a range that begins before the edge and ends beyond it is as others."""
    with FileSequence(client_dir, 4, base=edge - 12_288) as sequence:
        with open_fd(sequence.path) as descriptor:
            put(descriptor, b"x", edge + (1 << 20))
            resize(descriptor, 0)
        sequence.run(SECONDS, LEAST)


NAMES = "POSIX.1-2024 rename(), link(), unlink(), mkdir(), symlink(): DESCRIPTION"
NAME_KILLS = {
    1: (
        "long-names-alike",
        "rename-not-listed",
        "link-moved-loses-target",
        "exchange-second-ignored",
        "stray-nfs-name",
    ),
    2: ("long-names-alike", "rename-not-listed", "stray-nfs-name"),
}


def names(client_dir, seed, *, held):
    """Run one sequence on names."""
    sequence = NameSequence(client_dir, seed, held=held)
    try:
        sequence.run(SECONDS, LEAST)
    finally:
        sequence.close()


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            seed,
            marks=pytest.mark.case(
                f"PSX-SEQUENCE-NAMES-{seed}",
                section=NAMES,
                builds_on=(
                    "PSX-DATA-NEW-FILE",
                    "PSX-KEPT-RENAME-INODE",
                    "PSX-LINK-SAME-FILE",
                    "PSX-LINK-NLINK",
                ),
                kills=NAME_KILLS[seed],
            ),
        )
        for seed in (1, 2)
    ],
)
def test_names_are_those_that_the_operations_left(client_dir, seed):
    """After each call, listings, kinds, link counts, contents and attributes are those of the model."""
    names(client_dir, seed, held=False)


@pytest.mark.case(
    "PSX-SEQUENCE-HELD",
    section="POSIX.1-2024 unlink(), rename(): DESCRIPTION",
    kills=(
        "unlinked-writes-into-successor",
        "unlinked-open-stale",
        "write-after-replaced-lost",
        "silly-names-miscount",
    ),
)
def test_open_files_are_kept_whatever_happens_to_their_names(client_dir):
    """The same with files that stay open: they have their own data, also after the last name is gone."""
    names(client_dir, 3, held=True)


TREE_KILLS = (
    "rename-refused-loses-an-entry", "unlinked-truncate-cuts-successor", "copy-range-leaves-mtime",
    "symlink-ignores-setgid", "utimens-given-after-now-lost", "xattr-create-after-removal-replaces",
    "exchange-counts-no-directories", "unlinked-far-data-zero", "xattr-value-above-2048-cut",
    "renamed-directory-makes-private",
    "truncated-linked-file-keeps-a-byte", "silly-names-miscount", "stray-nfs-name",
)  # fmt: skip
TREE_1_KILLS = ("chown-of-directory-is-deep", "mode-of-link-time-comes-back")


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            seed,
            marks=pytest.mark.case(
                f"PSX-SEQUENCE-TREE-{seed}",
                section="POSIX.1-2024 XBD 4.12 File Times Update; DESCRIPTION of each call",
                builds_on=(
                    "PSX-DATA-NEW-FILE",
                    "PSX-CHMOD-CTIME",
                    "PSX-RENAME-REPLACE",
                    "PSX-KEPT-RENAME-INODE",
                    "PSX-LINK-SAME-FILE",
                    "PSX-LINK-NLINK",
                    "PSX-UTIMENS-OMIT-ATIME",
                    "PSX-UTIMENS-OMIT-MTIME",
                ),
                kills=TREE_KILLS if seed == 2 else (*TREE_KILLS, *TREE_1_KILLS),
            ),
        )
        for seed in (1, 2)
    ],
)
def test_calls_on_files_in_each_state_leave_what_the_model_has(client_dir, seed):
    """Names, attributes, data and time stamps of all files are those of the model, whatever was done before.

    The calls are made on files that are open, removed, replaced, renamed, made again, have two names, are
    large or have holes, on directories, symbolic links and FIFOs.
    """
    run_tree(client_dir, seed)


LOCK_KILLS = (
    "lock-lost-on-unlink", "lock-lost-on-rename", "lock-lost-on-truncate", "lock-of-64-only",
    "unlock-middle-frees-tail", "lock-neighbours-grow",
)  # fmt: skip


@pytest.mark.needs("locks")
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            seed,
            marks=pytest.mark.case(
                f"PSX-SEQUENCE-LOCKS-{seed}",
                section="POSIX.1-2024 fcntl(): DESCRIPTION",
                level="MUST",
                builds_on=("PSX-LOCK-WRITE-WRITE",),
                kills=LOCK_KILLS,
            ),
        )
        for seed in (1, 2)
    ],
)
def test_locks_are_those_that_the_requests_left(client_dir, seed):
    """After each request, and each change of the file's name, size and mode, the same bytes are locked."""
    with LockSequence(client_dir, seed) as sequence:
        sequence.run(SECONDS, LEAST)


def waits_for_shared(path, sign):
    """Make ``sign``-asks, wait for a shared lock of the file, make ``sign``, and keep the lock."""
    with open_fd(path) as descriptor:
        os.mknod(f"{sign}-asks")
        fcntl.lockf(descriptor, fcntl.LOCK_SH)
        os.mknod(sign)
        signal.pause()


def wait_until_exist(paths):
    """Wait until all files exist, at most for WAKE."""
    until = time.monotonic() + WAKE
    while not all(os.path.exists(path) for path in paths) and time.monotonic() < until:
        time.sleep(0.02)


@pytest.mark.needs("locks")
@pytest.mark.case(
    "PSX-LOCK-TWO-WAIT",
    section="POSIX.1-2024 fcntl(): F_SETLKW",
    builds_on=("PSX-LOCK-WRITE-READ",),
    kills=("lock-wakes-one", "waiters-shared-one-woken"),
)
def test_all_processes_that_wait_for_a_shared_lock_get_it(client_dir):
    """The process waits until the request can be satisfied: each of several is woken by the release."""
    path = make_file(client_dir / "f", b"data")
    with open_fd(path) as descriptor:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        signs = [client_dir / f"locked-{number}" for number in range(3)]
        waiting = [SubprocessCall(waits_for_shared, (str(path), str(sign))) for sign in signs]
        wait_until_exist([f"{sign}-asks" for sign in signs])
        time.sleep(0.2)  # they ask meanwhile; one that asks later gets the lock at once
        early = [sign.name for sign in signs if sign.exists()]
        assert not early, (
            f"{len(early)} shared locks are granted while another process holds an exclusive one"
        )
        fcntl.lockf(descriptor, fcntl.LOCK_UN)
        wait_until_exist(signs)
        late = [sign.name for sign in signs if not sign.exists()]
        for one in waiting:
            one.kill()
        assert not late, (
            f"{len(late)} of 3 processes that wait for a shared lock do not get it within {WAKE:g} s of the "
            "release of the exclusive one, although all three can have it"
        )


@pytest.mark.case(
    "PSX-SETGID-DEEP",
    section="POSIX.1-2024 mkdir(), open(): DESCRIPTION",
    kills=("setgid-second-level-lost",),
)
def test_group_is_inherited_at_each_depth(client_dir):
    """A directory in a set-group-ID directory has its group and the bit, so what is made below has both."""
    path = client_dir / "top"
    path.mkdir()
    os.chown(path, -1, GROUP)
    os.chmod(path, 0o2777)
    if not os.stat(path).st_mode & stat.S_ISGID:
        skip("directories keep no set-group-ID bit: PSX-CHMOD-2755 tests whether that is legal")
    with run_as_user(1001, 1001):
        os.umask(0)
        for depth in range(1, 5):
            path = path / f"level{depth}"
            path.mkdir(0o777)
            one = os.stat(path)
            assert one.st_gid == GROUP, f"a directory {depth} levels below has group {one.st_gid}"
            assert one.st_mode & stat.S_ISGID, f"a directory {depth} levels below lacks the set-group-ID bit"
            group = os.stat(make_file(path / "file")).st_gid
            assert group == GROUP, f"a file {depth} levels below has group {group}, not {GROUP}"


def entries_of_acl(descriptor):
    """Return the access ACL of an open file, b"" if it has none beyond its mode."""
    try:
        return os.getxattr(descriptor, "system.posix_acl_access")
    except OSError as error:
        if error.errno != errno.ENODATA:
            raise
        return b""


@pytest.mark.case(
    "PSX-ACL-DEFAULT-REMOVED", section="acl(5): OBJECT CREATION", kills=("acl-removed-inherited",)
)
def test_removed_default_acl_is_not_inherited(client_dir):
    """A file gets the ACL that the directory's default ACL is now: the first, another one, and none."""

    def acl(permissions):
        named = ((0x01, 7, -1), (0x02, permissions, 54321), (0x04, 5, -1), (0x10, 7, -1), (0x20, 5, -1))
        return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *one) for one in named)

    found = []
    for number, permissions in enumerate((7, 4, None, 5, None)):
        if permissions is not None:
            try:
                os.setxattr(client_dir, "system.posix_acl_default", acl(permissions))
            except OSError as error:
                if error.errno in (errno.EOPNOTSUPP, errno.EINVAL) and not number:
                    skip(f"the file system has no default ACLs: {error.strerror}")
                raise
        else:
            os.removexattr(client_dir, "system.posix_acl_default")
        with open_fd(client_dir / f"f{number}", os.O_CREAT | os.O_RDWR, 0o666) as descriptor:
            named = [
                one for one in struct.iter_unpack("<HHi", entries_of_acl(descriptor)[4:]) if one[0] == 0x02
            ]
        found.append([permission for _, permission, _ in named])
    assert found == [[7], [4], [], [5], []], (
        f"files made under default ACLs that give a user rwx, r, nothing, rx, nothing have {found}"
    )
