"""A sound server: the suites of NFS accuse no export that maps root to a user without privileges."""

from pathlib import Path

import pytest
from ganesha import SQUASHED, is_installed
from ganesha_front import serve
from suite_runs import run_suite

pytestmark = pytest.mark.skipif(not is_installed(), reason="nfs-ganesha is not installed")

NFS3 = ("nfs3",)
NFS4 = tuple(f"nfs4/test_{name}.py" for name in ("attributes", "made", "namespace", "open", "owners"))
"""Modules whose cases make files, set owners and modes, and ask for rights."""


@pytest.mark.parametrize(("version", "what", "least"), [("3", NFS3, 350), ("4.1", NFS4, 400)])
def test_an_export_without_a_superuser_is_accused_by_no_case(
    version: str, what: tuple[str, ...], least: int, tmp_path: Path
) -> None:
    with serve() as (address, port):
        target = {"protocol": "nfs", "version": version, "export": SQUASHED, "address": address, "port": port}
        target["implementation"] = {"name": "nfs-ganesha", "version": "4.3"}
        if version == "3":
            target |= {"mount_port": port, "lock_port": port}
        records = run_suite({"squashed": target}, tmp_path, *what, options=("-m", "not slow"))
    assert sum(record["outcome"] == "passed" for record in records) > least
    red = {record["id"]: record["message"] for record in records if record["outcome"] in ("failed", "error")}
    assert not red
