"""A sound server: the SMB2 suite accuses no share for requiring encryption (MS-SMB2 3.3.5.7)."""

from pathlib import Path

import pytest
from smbd import SEALED, is_installed, smbd, version
from suite_runs import run_suite

pytestmark = pytest.mark.skipif(not is_installed(), reason="smbd is not installed")


def test_a_share_that_requires_encryption_is_accused_by_no_case(tmp_path: Path) -> None:
    with smbd() as server:
        target = server.target(share=SEALED, implementation={"name": "samba", "version": version()})
        records = run_suite({"sealed": target}, tmp_path, "smb2", options=("-m", "not slow"))
    outcomes = {record["id"]: record for record in records}
    assert sum(record["outcome"] == "passed" for record in records) > 500
    for old in ("SMB-VAL-01", "SMB-SIGN-05", "SMB-LEASE-V1-ALL"):  # of dialect 2.1
        assert outcomes[old]["outcome"] == "skipped"
    accused = {
        record["id"]: record["message"] for record in records if record["outcome"] in ("failed", "error")
    }
    assert not accused
