"""The cases of suites/conformance/posix through mounts of the lab: most of them over NFS, some over SMB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pytest_run import posix_cases

pytestmark = pytest.mark.lab


@pytest.fixture
def through(lab, tmp_path: Path, client):
    """Return a function that runs modules of the suite on a variant and returns the record of each case."""

    def run(variant: str, *modules: str) -> dict[str, dict[str, Any]]:
        return posix_cases(tmp_path, lab.targets_yaml.read_text(), variant, *modules)

    return run


def those(cases: dict[str, dict[str, Any]], outcome: str) -> set[str]:
    return {name for name, case in cases.items() if case["outcome"] == outcome}


def test_files_over_nfs(through) -> None:
    modules = "create data link locks mode_owner names open remove rename statfs times"
    cases = through("nfs-v4.2-nconnect1", *modules.split())
    assert len(cases) >= 340
    assert {case["outcome"] for case in cases.values()} == {"passed", "observed", "skipped"}
    assert those(cases, "skipped") == {"PSX-RENAME-NOREPLACE", "PSX-RENAME-EXCHANGE", "PSX-STATVFS-UNITS"}
    replaced = {"PSX-UNLINK-OPEN-NLINK", "PSX-UNLINK-OPEN-EMPTY"}
    assert replaced < those(cases, "observed")
    assert all("until it is closed" in cases[name]["message"] for name in replaced)


@pytest.mark.slow
def test_requirements_that_smb_does_not_guarantee_are_recorded(through) -> None:
    cases = through("smb-v3.1.1", "remove", "link")
    assert those(cases, "failed") == those(cases, "error") == set()
    assert "PSX-UNLINK-AGAIN" in those(cases, "observed")
    assert those(cases, "known") == {"PSX-LINK-CTIME", "PSX-UNLINK-TIMES"}
    assert len(those(cases, "passed")) >= 15
