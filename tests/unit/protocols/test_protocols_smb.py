from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from storagetest.config import load
from storagetest.errors import AttachError, OptionRefused
from storagetest.protocols import smb
from storagetest.protocols._mount import find_mount, parse_mountinfo
from storagetest.protocols.base import protocols

Smb: Any = protocols.get("smb")


def options(**more: object) -> Any:
    account = {"address": "10.77.0.1", "share": "fast", "username": "tester", "password": "hunter2,x"}
    return Smb.Options(**{**account, **more})


def test_secret_is_in_the_credentials_and_nowhere_else() -> None:
    arguments = smb.mount_options(options(domain="LAB"), "/run/x.secret")
    assert "credentials=/run/x.secret" in arguments
    assert "hunter2" not in " ".join(arguments)
    assert smb.credentials(options(domain="LAB")) == b"username=tester\npassword=hunter2,x\ndomain=LAB\n"


def test_mount_options_say_what_was_asked() -> None:
    arguments = smb.mount_options(
        options(dialect="3.0", signing=True, encryption=True, max_channels=4, cache="none"), "/s"
    )
    assert {"vers=3.0", "sign", "seal", "multichannel", "max_channels=4", "cache=none", "port=445"} <= set(
        arguments
    )
    assert {"sign", "seal", "posix", "multichannel"}.isdisjoint(smb.mount_options(options(), "/s"))


@pytest.mark.parametrize(("flags", "seen"), [("posix,posixpaths", ""), ("nounix", "no value")])
def test_posix_extensions_that_were_asked_for_are_compared(flags: str, seen: str) -> None:
    # Of Linux 6.12 with Samba 4.22, and of Linux 6.1 without the extensions.
    line = f"36 30 0:32 / /mnt rw - cifs //10.77.0.1/fast rw,vers=3.1.1,cache=strict,soft,{flags},mapposix"
    (entry,) = parse_mountinfo(line)
    negotiated = smb.parse_negotiated(entry, "", "//10.77.0.1/fast")
    found = {one.option: one.actual for one in Smb().option_mismatches(options(posix=True), negotiated)}
    assert found == ({"posix": seen} if seen else {})
    assert Smb().option_mismatches(options(), negotiated) == ()


def test_a_secret_with_a_line_break_cannot_add_settings() -> None:
    with pytest.raises(AttachError, match="line break"):
        smb.credentials(options(password="x\ndomain=EVIL"))


# Of Linux 6.1 with Samba 4.17 and vers=1.0.
SMB1_MOUNT = (
    "36 26 0:31 / /mnt/old rw,relatime - cifs //10.77.0.1/fast rw,vers=1.0,cache=strict,username=storagetest,"
    "uid=0,noforceuid,gid=0,noforcegid,addr=10.77.0.1,soft,unix,posixpaths,serverino,mapposix,acl,"
    "rsize=1048576,wsize=65536,bsize=1048576,echo_interval=10,actimeo=1,closetimeo=1\n"
)
SMB1_DEBUG = r"""
Servers:
1) ConnectionId: 0x1 Hostname: 10.77.0.1
Number of credits: 50 Dialect 0x0 nosharesock
TCP status: 1 Instance: 1
	Shares:
	1) \\10.77.0.1\fast Mounts: 1 Type: NTFS DevInfo: 0x20 Attributes: 0x1006f
"""


def test_smb1_must_be_permitted_and_is_a_warning() -> None:
    with pytest.raises(ValidationError, match=r"SMB1\) is INSECURE.*set `insecure_dialect: true`"):
        options(dialect="1.0")
    old = options(dialect="1.0", insecure_dialect=True)
    assert "INSECURE" in old.insecure
    assert options(insecure_dialect=True).insecure == "", "permitted, and not used"
    assert "vers=1.0" in smb.mount_options(old, "/s")
    assert Smb().capabilities(old) == {"filesystem", "shared", "locks"}


@pytest.mark.parametrize("more", [{"encryption": True}, {"max_channels": 2}, {"posix": True}])
def test_smb1_has_none_of_what_came_later(more: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="dialect"):
        options(dialect="1.0", insecure_dialect=True, **more)


def test_smb1_is_read_back() -> None:
    (entry,) = parse_mountinfo(SMB1_MOUNT)
    negotiated = smb.parse_negotiated(entry, SMB1_DEBUG, "//10.77.0.1/fast")
    assert (negotiated["vers"], negotiated["dialect"], negotiated["signed"]) == ("1.0", "1.0", "no")
    assert Smb().option_mismatches(options(dialect="1.0", insecure_dialect=True), negotiated) == ()


def test_a_server_without_smb1_refuses_an_option_and_is_not_dead() -> None:
    old = options(dialect="1.0", insecure_dialect=True)
    error = Smb().error_from_output("mount error(112): Host is down", old, "client1")
    assert isinstance(error, OptionRefused)
    assert "does not answer dialect 1.0" in str(error)


OLD = """\
version: 1
targets:
  old:
    {{protocol: smb, address: h, share: s, username: u, password: "${{env:P}}", insecure_dialect: true,
      matrix: {{dialect: [{}]}}}}
"""


def test_smb1_is_warned_of_once_for_each_target(tmp_path: Path) -> None:
    path = tmp_path / "targets.yaml"
    path.write_text(OLD.format('"1.0", "3.1.1"'))
    (found,) = load(path).warnings()
    assert found.endswith(f":3:3: old: {options(dialect='1.0', insecure_dialect=True).insecure}")
    path.write_text(OLD.format('"3.1.1"'))
    assert load(path).warnings() == []


# Of Linux 6.1 with Samba 4.17: two mounts of one share, the newer one first.
TWO_SESSIONS = r"""
Servers:
1) ConnectionId: 0x1f Hostname: 10.77.0.1
Number of credits: 389 Dialect 0x311 signed nosharesock
	Sessions:
	1) Address: 10.77.0.1 Uses: 1 Capability: 0x300047	Session Status: 1
	Security type: RawNTLMSSP  SessionId: 0xef41b9c9 signed
	User: 0 Cred User: SIGNED

	Shares:
	1) \\10.77.0.1\fast Mounts: 1 DevInfo: 0x20 Attributes: 0x1006f
--
2) ConnectionId: 0x9 Hostname: 10.77.0.1
Number of credits: 389 Dialect 0x300 nosharesock
	Sessions:
	1) Address: 10.77.0.1 Uses: 1 Capability: 0x300047	Session Status: 1
	Security type: RawNTLMSSP  SessionId: 0xaf79a602
	User: 0 Cred User: PLAIN

	Shares:
	1) \\10.77.0.1\fast Mounts: 1 DevInfo: 0x20 Attributes: 0x1006f
"""


def test_a_mounts_session_is_not_that_of_another_mount_of_its_share() -> None:
    points = {"SIGNED": "/run/storagetest/a", "PLAIN": "/run/storagetest/b"}
    debug = TWO_SESSIONS
    for name, point in points.items():
        debug = debug.replace(name, str(smb.session_mark(point)))
        assert f"cruid={smb.session_mark(point)}" in smb.mount_options(options(), f"{point}.secret")
    found = {}
    for name, point in points.items():
        line = f"36 30 0:32 / {point} rw - cifs //10.77.0.1/fast rw,vers=3.1.1,soft"
        (entry,) = parse_mountinfo(line)
        seen = smb.parse_negotiated(entry, debug, "//10.77.0.1/fast")
        found[name] = (seen["dialect"], seen["signed"])
    assert found == {"SIGNED": ("3.1.1", "yes"), "PLAIN": ("3.0", "no")}


def test_the_session_of_another_mount_is_not_read() -> None:
    others = TWO_SESSIONS.replace("SIGNED", "1").replace("PLAIN", "2")
    assert smb.parse_debug_data(others, "//10.77.0.1/fast", 7) == {}


def test_a_kernel_that_shows_no_mark_has_the_newest_session_read() -> None:
    bare = TWO_SESSIONS.replace(" Cred User: SIGNED", "").replace(" Cred User: PLAIN", "")
    assert smb.parse_debug_data(bare, "//10.77.0.1/fast", 7)["signed"] == "yes"


def test_a_client_that_dropped_serverino_has_inode_numbers_of_its_own() -> None:
    # Of Linux 6.1 after "Autodisabling the use of server inode numbers": serverino is no longer listed.
    table = (
        "33 27 0:29 / /run/storagetest/a rw - cifs //10.77.0.1/fast rw,vers=3.1.1,soft,nounix,mapposix\n"
        "34 27 0:30 / /run/storagetest/ab rw - cifs //10.77.0.1/fast rw,vers=3.1.1,soft,serverino,mapposix\n"
    )
    own, servers = (find_mount(parse_mountinfo(table), f"/run/storagetest/{name}/f") for name in ("a", "ab"))
    assert not Smb().has_server_inodes(own.options)
    assert Smb().has_server_inodes(servers.options)
    with pytest.raises(LookupError, match="no mount"):
        find_mount(parse_mountinfo(table), "/run/storagetest/abc")
