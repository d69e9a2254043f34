from __future__ import annotations

import pytest

from storagetest.errors import AttachError, ClientLacks
from storagetest.hosts import Completed
from storagetest.protocols._mount import (
    mount_argv,
    mount_error,
    parse_mountinfo,
    parse_sections,
    release_argv,
)

MOUNTINFO = """\
22 1 0:20 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/a\\054b,upperdir=/u
23 22 0:21 / /proc rw - proc proc rw
187 86 0:52 / /run/storagetest/storagetest-0a rw,relatime shared:9 master:2 - nfs4 10.77.0.1:/fast \
rw,vers=4.2,rsize=1048576,hard,proto=tcp
188 86 8:0 / /mnt/with\\040space rw - ext4 /dev/sda
garbage
"""


def test_mountinfo() -> None:
    entries = parse_mountinfo(MOUNTINFO)
    assert [entry.point for entry in entries] == [
        "/",
        "/proc",
        "/run/storagetest/storagetest-0a",
        "/mnt/with space",
    ]
    nfs = entries[2]
    assert (nfs.device, nfs.fstype, nfs.source) == ("0:52", "nfs4", "10.77.0.1:/fast")
    assert nfs.options == {"rw": "", "vers": "4.2", "rsize": "1048576", "hard": "", "proto": "tcp"}
    assert entries[0].options["lowerdir"] == "/a,b"
    assert entries[3].options == {}


def test_sections() -> None:
    assert parse_sections("== a\n1\n2\n== /proc/x\n== b\n\n3\n") == {"a": "1\n2", "/proc/x": "", "b": "\n3"}
    assert parse_sections("") == {}


def test_mount_argv_ends_options_before_the_source() -> None:
    assert mount_argv("nfs4", "h:/e", ["a", "b=1"]) == ["-t", "nfs4", "-o", "a,b=1", "--", "h:/e"]
    assert mount_argv("xfs", "/dev/x", []) == ["-t", "xfs", "--", "/dev/x"]


@pytest.mark.parametrize(("seconds", "limit"), [(1, 1), (10, 1), (24, 8), (60, 26)])
def test_release_shares_its_deadline_among_its_steps(seconds: int, limit: int) -> None:
    *_, point, own, secret, timeout = release_argv("/p", "own", "", seconds)
    assert (point, own, secret, timeout) == ("/p", "own", "", str(limit))


def refused(stderr: str) -> Exception:
    done = Completed("client1", ("sh", "-c", "…"), 32, "", stderr, 0.1)
    return mount_error(done, ["-t", "nfs4", "--", "h:/e", "/p"], "nfs h:/e", lambda _: None)


def test_unknown_refusal_shows_the_command_and_its_words() -> None:
    error = refused("mount.nfs: strange\n")
    assert type(error) is AttachError
    assert str(error) == "nfs h:/e: client1: `mount -t nfs4 -- h:/e /p` exited 32: mount.nfs: strange"


@pytest.mark.parametrize(
    "output",
    [
        "mount: /p: unknown filesystem type 'nfs4'.",
        "bad option; for several filesystems (e.g. nfs) you might need a /sbin/mount.<type> helper program.",
    ],
)
def test_a_missing_helper_is_missing_on_the_client(output: str) -> None:
    assert isinstance(refused(output), ClientLacks)
