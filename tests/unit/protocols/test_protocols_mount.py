from typing import Any

import pytest

from storagetest.errors import AttachError, ClientLacks, OptionRefused, TargetDead
from storagetest.hosts import Completed
from storagetest.protocols import _mount
from storagetest.protocols.base import protocols

MOUNTINFO = """\
22 1 0:20 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/a\\054b,upperdir=/u
23 22 0:21 / /proc rw - proc proc rw
187 86 0:52 / /run/storagetest/storagetest-0a rw,relatime shared:9 master:2 - nfs4 10.77.0.1:/fast \
rw,vers=4.2,rsize=1048576,hard,proto=tcp
188 86 8:0 / /mnt/with\\040space rw - ext4 /dev/sda
garbage
"""


def test_mountinfo() -> None:
    entries = _mount.parse_mountinfo(MOUNTINFO)
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
    assert _mount.parse_sections("== a\n1\n2\n== /proc/x\n== b\n\n3\n") == {
        "a": "1\n2",
        "/proc/x": "",
        "b": "\n3",
    }
    assert _mount.parse_sections("") == {}


def test_mount_argv_ends_options_before_the_source() -> None:
    assert _mount.mount_argv("nfs4", "h:/e", ["a", "b=1"]) == ["-t", "nfs4", "-o", "a,b=1", "--", "h:/e"]
    assert _mount.mount_argv("xfs", "/dev/x", []) == ["-t", "xfs", "--", "/dev/x"]


@pytest.mark.parametrize(
    ("seconds", "limit", "removal"), [(1, 1, 1), (10, 1, 1), (24, 8, 8), (60, 26, 26), (300, 30, 262)]
)
def test_release_shares_its_deadline_among_its_steps(seconds: int, limit: int, removal: int) -> None:
    *_, point, own, secret, step, removing = _mount.release_argv("/p", "own", "", seconds)
    assert (point, own, secret, step, removing) == ("/p", "own", "", str(limit), str(removal))


def refused(stderr: str) -> Exception:
    done = Completed("client1", ("sh", "-c", "…"), 32, "", stderr, 0.1)
    return _mount.mount_error(done, ["-t", "nfs4", "--", "h:/e", "/p"], "nfs h:/e", lambda _: None)


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


OPTIONS = {
    "nfs": {"address": "10.77.0.1", "export": "/fast"},
    "smb": {"address": "10.77.0.1", "share": "fast", "username": "tester", "password": "hunter2,x"},
    "lustre": {"mgs": "10.77.0.1@tcp", "fsname": "lustre"},
}
MANUAL = "Refer to the mount.cifs(8) manual page"
WORDS: dict[tuple[str, type[Exception]], list[tuple[str, str]]] = {
    ("nfs", OptionRefused): [
        ("mount.nfs4: Protocol not supported", "does not support version 4.2"),
        ("mount.nfs: requested NFS version or transport protocol is not supported", "does not support"),
    ],
    ("nfs", AttachError): [
        ("mount.nfs: access denied by server while mounting h:/e", "does not permit c1 to mount /fast"),
        ("mount.nfs4: mounting h:/e failed, reason given by server: No such file or directory", "no export"),
        ("mount.nfs4: an incorrect mount option was specified", "rejects one of the options"),
    ],
    ("nfs", TargetDead): [
        ("mount.nfs4: Connection refused", "does not respond"),
        ("mount.nfs4: Connection timed out", "does not respond"),
    ],
    ("nfs", ClientLacks): [
        ("mount.nfs: rpc.statd is not running but is required for remote locking.", "lock: false")
    ],
    ("smb", AttachError): [
        (f"mount error(13): Words\n{MANUAL}", "refuses user 'tester'"),
        (f"mount error(2): Words\n{MANUAL}", "no share 'fast'"),
        (f"mount error(22): Words\n{MANUAL}", "rejects one of the options"),
    ],
    ("smb", OptionRefused): [(f"mount error(95): Words\n{MANUAL}", "does not support dialect 3.1.1")],
    ("smb", TargetDead): [(f"mount error(113): Words\n{MANUAL}", "does not respond")],
    ("lustre", TargetDead): [
        ("mount.lustre: mount x at y failed: Input/output error\nIs the MGS running?", "")
    ],
    ("lustre", AttachError): [
        ("mount.lustre: x failed: No such file or directory\nIs the MGS specification correct?", "")
    ],
}


@pytest.mark.parametrize(
    ("protocol", "error", "output", "words"), [(*key, *row) for key, rows in WORDS.items() for row in rows]
)
def test_words_of_the_mount_helpers(protocol: str, error: type[Exception], output: str, words: str) -> None:
    kind: Any = protocols.get(protocol)
    found = kind().error_from_output(output, kind.Options(**OPTIONS[protocol]), "c1")
    assert type(found) is error
    assert words in str(found)
    assert "hunter2" not in str(found)
    if protocol == "nfs":
        assert output in str(found)


@pytest.mark.parametrize("protocol", OPTIONS)
def test_unknown_words_are_ignored(protocol: str) -> None:
    kind: Any = protocols.get(protocol)
    assert kind().error_from_output("mount: strange", kind.Options(**OPTIONS[protocol]), "c1") is None
