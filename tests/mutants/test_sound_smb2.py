"""Sound servers: the SMB2 suite accuses no share for requiring encryption (MS-SMB2 3.3.5.7).

And what no case can go on without is one red line: a share that is not there, a server that is silent.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from proxy import Proxy, Rewrite
from smbd import SEALED, SHARE, is_installed, smbd, version
from suite_runs import run_suite

pytestmark = pytest.mark.skipif(not is_installed(), reason="smbd is not installed")


class Silent(Rewrite):
    """A server that answers NEGOTIATE, and nothing after it."""

    answered = False

    def to_host(self, pdu: bytes) -> Iterable[bytes]:
        out, self.answered = () if self.answered else (pdu,), True
        return out


def run(where: Path, *what: str, share: str, silent: bool = False, more: str = "") -> list[dict[str, Any]]:
    with (
        smbd(more=more) as server,
        Proxy(server.address, server.port, lambda _: lambda data: [data], Silent) as proxy,
    ):
        target = server.target(share=share, implementation={"name": "samba", "version": version()})
        if silent:
            target |= {"port": proxy.port, "deadline": "1s"}
        return run_suite({"sound": target}, where, *what, options=("-m", "not slow"))


def red_lines(records: list[dict[str, Any]]) -> dict[str, str]:
    return {record["id"]: record["message"] for record in records if record["outcome"] in ("failed", "error")}


def test_a_share_that_requires_encryption_is_accused_by_no_case(tmp_path: Path) -> None:
    records = run(tmp_path, "smb2", share=SEALED)
    assert sum(record["outcome"] == "passed" for record in records) > 500
    outcomes = {record["id"]: record["outcome"] for record in records}
    for old in ("SMB-VAL-01", "SMB-SIGN-05", "SMB-LEASE-V1-ALL"):  # of dialect 2.1
        assert outcomes[old] == "skipped"
    assert not red_lines(records)


SMALL = {
    "64-kib": "smb2 max read = 65536\nsmb2 max write = 65536\nsmb2 max trans = 65536",
    "one-credit": "smb2 max credits = 1",
}
"""Lines of smb.conf by what is small: sizes of requests (MS-SMB2 2.2.4), credits (3.3.1.2)."""
MODULES = (
    "again",
    "credits",
    "directories",
    "durable",
    "files",
    "messages",
    "requests",
    "sequences",
    "several",
    "stated",
)
"""Modules whose cases transfer much, or send several requests in one message."""


@pytest.mark.parametrize("name", SMALL)
def test_a_server_of_small_limits_is_accused_by_no_case(name: str, tmp_path: Path) -> None:
    modules = (f"smb2/test_{module}.py" for module in MODULES)
    records = run(tmp_path, *modules, share=SHARE, more=SMALL[name])
    assert sum(record["outcome"] == "passed" for record in records) > 200
    assert not red_lines(records)


def test_a_share_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    (refused,) = red_lines(run(tmp_path, "smb2", share="absent")).values()
    assert "refuses the share 'absent'" in refused


NAMES = "credits", "leases", "negotiation", "posix", "sessions"
CONNECTING = tuple(f"smb2/test_{name}.py" for name in NAMES)
"""Modules whose cases and fixtures connect by themselves."""


def test_a_server_that_is_silent_after_negotiate_is_one_failure(tmp_path: Path) -> None:
    (silent,) = red_lines(run(tmp_path, *CONNECTING, share=SHARE, silent=True)).values()
    assert "neither responded nor closed" in silent
