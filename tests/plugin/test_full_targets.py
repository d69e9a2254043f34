"""A target without space is accused of nothing: what fails there is an error that names the space."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from output_files import read_cases

SUITE = """\
import os
import pytest

pytestmark = [pytest.mark.needs("filesystem"), pytest.mark.case(section="X 1", level="MUST")]

@pytest.mark.case("LARGE")
def test_large(client_dir):
    with open(client_dir / "f", "wb", buffering=0) as file:
        data = bytes(1 << 20)
        assert file.write(data) == len(data)

@pytest.mark.case("SMALL")
def test_small(client_dir):
    (client_dir / "f").write_text("data")

@pytest.mark.case("WRONG")
def test_wrong(client_dir):
    assert os.listdir(client_dir) == ["absent"]
"""
TARGETS = """\
version: 1
clients:
  here: {transport: local}
targets:
  disk: {protocol: local, path: PLACE, clients: [here]}
"""


@pytest.fixture
def cases_on(run_pytest, pytester, tmp_path: Path) -> Iterator:
    """Return a function that runs the cases on a tmpfs(5) with options, and returns their records."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = []

    def run(options: str) -> dict:
        argv = ["mount", "-t", "tmpfs", "-o", options, "storagetest", str(place)]
        if subprocess.run(argv, check=False, capture_output=True).returncode:
            pytest.skip("only root can mount a small file system here")
        mounted.append(place)
        run_pytest(suite=SUITE, targets=TARGETS.replace("PLACE", str(place)))
        assert not list(place.iterdir())
        return read_cases(pytester.path, "disk")

    yield run
    for one in mounted:
        subprocess.run(["umount", str(one)], check=True)


def test_a_case_that_fails_with_too_little_space_is_an_error(cases_on):
    records = cases_on("size=256k")
    assert {name: one["outcome"] for name, one in records.items()} == {
        "LARGE": "error", "SMALL": "passed", "WRONG": "error",
    }  # fmt: skip
    assert "has 256 KiB free, and the cases need 64.0 MiB" in records["LARGE"]["message"]


def test_a_case_that_fails_with_enough_space_is_a_failure(cases_on):
    records = cases_on("size=80m")
    assert {name: one["outcome"] for name, one in records.items()} == {
        "LARGE": "passed", "SMALL": "passed", "WRONG": "failed",
    }  # fmt: skip


def test_a_target_without_space_for_a_directory_is_one_error(cases_on):
    records = cases_on("size=1m,nr_inodes=2")
    assert sorted(one["outcome"] for one in records.values()) == ["error", "skipped", "skipped"]
    (error,) = [one for one in records.values() if one["outcome"] == "error"]
    assert "the target has no space for the directory of a case" in error["message"]
