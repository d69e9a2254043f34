"""Two SMB servers with POSIX extensions, Samba and ksmbd: cases of the posix suite through their mounts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from line_kit import posix_cases

from storagetest.lab import Lab

pytestmark = pytest.mark.lab

MODULES = ("create", "mode_owner", "remove")


@pytest.fixture(scope="module")
def smb() -> Iterator[Lab]:
    started = Lab.up(f"smb-{os.getpid()}", clients=1, appliance="smb", owner=os.getpid())
    yield started
    started.down()


@pytest.mark.parametrize(("target", "modes"), [("smb-posix", True), ("ksmbd-posix", True), ("ksmbd", False)])
def test_files_with_and_without_posix_extensions(smb: Lab, tmp_path: Path, target: str, modes: bool) -> None:
    cases = posix_cases(tmp_path, smb.targets_yaml.read_text(), target, *MODULES)
    outcomes = Counter(case["outcome"] for case in cases.values())
    assert outcomes["passed"] >= 30, outcomes
    assert not outcomes["failed"] + outcomes["error"], outcomes
    assert (cases["PSX-CHMOD-0640"]["outcome"] == "passed") == modes
