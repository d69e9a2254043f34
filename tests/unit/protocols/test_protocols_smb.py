from typing import Any

import pytest

from storagetest.errors import AttachError
from storagetest.protocols import smb
from storagetest.protocols._mount import parse_mountinfo
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
