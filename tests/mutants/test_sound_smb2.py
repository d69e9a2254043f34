"""Sound servers: the SMB2 suite accuses no share for requiring encryption (MS-SMB2 3.3.5.7).

And a share that is not there has few red lines.
"""

from pathlib import Path
from typing import Any

import pytest
from smbd import SEALED, is_installed, smbd, version
from suite_runs import run_suite

pytestmark = pytest.mark.skipif(not is_installed(), reason="smbd is not installed")


def run(share: str, where: Path) -> list[dict[str, Any]]:
    with smbd() as server:
        target = server.target(share=share, implementation={"name": "samba", "version": version()})
        return run_suite({"sound": target}, where, "smb2", options=("-m", "not slow"))


def red_lines(records: list[dict[str, Any]]) -> dict[str, str]:
    return {record["id"]: record["message"] for record in records if record["outcome"] in ("failed", "error")}


def test_a_share_that_requires_encryption_is_accused_by_no_case(tmp_path: Path) -> None:
    records = run(SEALED, tmp_path)
    assert sum(record["outcome"] == "passed" for record in records) > 500
    outcomes = {record["id"]: record["outcome"] for record in records}
    for old in ("SMB-VAL-01", "SMB-SIGN-05", "SMB-LEASE-V1-ALL"):  # of dialect 2.1
        assert outcomes[old] == "skipped"
    assert not red_lines(records)


def test_a_share_that_is_not_there_is_one_error_and_what_lists_the_shares(tmp_path: Path) -> None:
    found = red_lines(run("absent", tmp_path))
    refused = [message for message in found.values() if "refuses the share 'absent'" in message]
    assert refused
    assert len(refused) <= 3, "one, and one for each fixture that connects by itself"
    assert len(found) - len(refused) <= 2, found
