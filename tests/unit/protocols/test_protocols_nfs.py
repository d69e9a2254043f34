from typing import Any

import pytest
from pydantic import ValidationError

from storagetest.errors import ConfigError
from storagetest.protocols import nfs
from storagetest.protocols._mount import parse_mountinfo
from storagetest.protocols.base import protocols

Nfs: Any = protocols.get("nfs")


def options(**more: object) -> Any:
    return Nfs.Options(**{"address": "10.77.0.1", "export": "/fast", **more})


POINT = "/run/storagetest/storagetest-0a"
MOUNTINFO = (
    f"187 86 0:52 / {POINT} rw,relatime - nfs4 10.77.0.1:/fast rw,vers=4.2,rsize=1048576,wsize=262144,"
    "hard,proto=tcp,nconnect=4,timeo=600,retrans=2,sec=sys,clientaddr=10.77.0.2,local_lock=none,addr=10.77.0.1\n"
)
XPRT = "\txprt:\ttcp 842 0 1 0 0 14 14 0 14 0 2 0 0\n"
MOUNTSTATS = f"""\
device proc mounted on /proc with fstype proc
device 10.77.0.1:/other mounted on {POINT}b with fstype nfs4 statvers=1.1
{XPRT}device 10.77.0.1:/fast mounted on {POINT} with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
{XPRT * 4}\tper-op statistics
"""


def test_mount_options_say_what_was_asked() -> None:
    arguments = nfs.mount_options(options(version="4.1", nconnect=4, rsize="64KiB", port=20049, hard=False))
    assert arguments == [
        "vers=4.1",
        "proto=tcp",
        "sec=sys",
        "retry=0",
        "port=20049",
        "nconnect=4",
        "rsize=65536",
        "soft",
    ]
    assert {"hard", "nolock"} <= set(nfs.mount_options(options(version="3", lock=False)))


def test_ipv6_is_bracketed_and_asks_for_tcp6() -> None:
    six = options(address="fd00::1")
    assert nfs.source(six) == "[fd00::1]:/fast"
    assert "proto=tcp6" in nfs.mount_options(six)


def test_read_back() -> None:
    (entry,) = parse_mountinfo(MOUNTINFO)
    seen = nfs.parse_negotiated(entry, MOUNTSTATS)
    assert seen == {
        "vers": "4.2",
        "rsize": "1048576",
        "wsize": "262144",
        "nconnect": "4",
        "proto": "tcp",
        "sec": "sys",
        "hard": "yes",
        "timeo": "600",
        "retrans": "2",
        "transports": "4",
    }


def test_one_connection_is_not_spelled_out_by_the_kernel() -> None:
    (entry,) = parse_mountinfo(MOUNTINFO.replace("nconnect=4,", ""))
    assert nfs.parse_negotiated(entry, "")["nconnect"] == "1"


@pytest.mark.parametrize(
    ("asked", "different"),
    [
        ({}, []),
        ({"nconnect": 4, "wsize": "256KiB"}, []),
        ({"wsize": "1MiB"}, ["wsize: requested 1048576, got 262144"]),
        ({"nconnect": 8}, ["nconnect: requested 8, got 4"]),
        ({"version": "4.1"}, ["vers: requested 4.1, got 4.2"]),
    ],
)
def test_silent_changes_are_found(asked: dict[str, object], different: list[str]) -> None:
    (entry,) = parse_mountinfo(MOUNTINFO)
    found = Nfs().option_mismatches(options(**asked), nfs.parse_negotiated(entry, MOUNTSTATS))
    assert [str(one) for one in found] == different


def test_locks_are_a_matter_of_version_and_option() -> None:
    assert "locks" in Nfs().capabilities(options(lock=False))
    assert "locks" not in Nfs().capabilities(options(version="3", lock=False))


WIRE = {"wire": "127.0.0.1:2049", "wire_mount": "127.0.0.1:20048", "wire_lock": "127.0.0.1:32768"}


def test_wire_cases_of_version_3_have_a_port_of_each_program() -> None:
    found = options(version="3", **WIRE)
    assert found.wire_endpoint(found.address, found.port) == ("127.0.0.1", 2049)
    assert found.wire_program_port(found.wire_mount, found.mount_port) == 20048
    assert options(version="3", mount_port=7).wire_program_port(None, 7) == 7


@pytest.mark.parametrize(
    ("left_out", "lock", "named"),
    [
        ({"wire_mount"}, True, "wire_mount: host"),
        ({"wire_lock"}, True, "wire_lock: host"),
        ({"wire_mount", "wire_lock"}, True, "wire_mount and wire_lock: host"),
        ({"wire_mount", "wire_lock"}, False, "wire_mount: host"),
    ],
)
def test_wire_of_version_3_names_every_program(left_out: set[str], lock: bool, named: str) -> None:
    with pytest.raises(ValidationError, match=f"NFS version 3 needs {named}"):
        options(version="3", lock=lock, **{key: value for key, value in WIRE.items() if key not in left_out})
    assert options(version="4.1", wire=WIRE["wire"])


def test_the_programs_of_version_3_are_on_one_host() -> None:
    found = options(version="3", **{**WIRE, "wire_mount": "127.0.0.2:20048"})
    with pytest.raises(ConfigError, match="expected the host of `wire`"):
        found.wire_program_port(found.wire_mount, None)
