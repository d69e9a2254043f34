"""The wheel, as a user has it: built, installed in an environment of its own, run from an empty directory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from blocks import ROOT

TARGETS = """\
version: 1
targets: {{disk: {{protocol: local, path: {path}}}}}
profiles: {{tiny: {{size: 8MiB, ramp: 0, runtime: 200ms, repeats: 1, max_repeats: 1}}}}
"""


def run(*argv: str | Path, cwd: Path, env: Mapping[str, str] | None = None, ok: bool = True) -> str:
    """Run a command with no Python environment around it, and return its stdout."""
    clean = {
        key: text
        for key, text in os.environ.items()
        if not key.startswith(("PYTEST", "PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        [str(one) for one in argv], cwd=cwd, env=clean | (env or {}), capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert not ok or done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of wheel and sdist; the wheel is made from the sdist."""
    where = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "uv", "build", "--out-dir", where, ROOT, cwd=where)
    return where


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a virtual environment that has the wheel, and what it asks for, and nothing else."""
    where = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "uv", "venv", "--python", sys.executable, where / "venv", cwd=where)
    run(sys.executable, "-m", "uv", "pip", "install", "--python", where / "venv/bin/python", wheel, cwd=where)
    return where / "venv" / "bin"


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    """A directory with a targets file and nothing else.

    The target is in memory: a busy disk may serve no I/O within the profile's runtime, which is an error.
    """
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as disk:
        (tmp_path / "here").mkdir()
        (tmp_path / "here/targets.yaml").write_text(TARGETS.format(path=disk))
        yield tmp_path / "here"


def tracked(directory: str) -> set[str]:
    """The files of ours below a directory of the checkout."""
    found = (
        path for path in (ROOT / directory).rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    return {str(path.relative_to(ROOT / directory)) for path in found}


def test_the_wheel_holds_package_and_suites_once_and_nothing_else(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert len(names) == len(set(names))
    parts = {name for name in names if ".dist-info/" not in name}
    suites = {
        name.removeprefix("storagetest/suites/") for name in parts if name.startswith("storagetest/suites/")
    }
    assert suites == tracked("suites")
    package = {
        name.removeprefix("storagetest/") for name in parts if not name.startswith("storagetest/suites/")
    }
    assert package == tracked("src/storagetest")


def test_the_sdist_can_be_built_and_tested(built: Path):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "suites/performance/test_copy.py",
        "tests/unit/test_import_rules.py",
        "tox.ini",
        "docs/index.md",
    } <= names
    assert not any(name.startswith("src/storagetest/suites/") for name in names), "the suites are there twice"


def cases(pytest_program: Path, *arguments: str, cwd: Path) -> list[str]:
    """The cases that are collected, without the place of the suites."""
    output = run(pytest_program, "--collect-only", "-q", "-p", "no:cacheprovider", *arguments, cwd=cwd)
    found = [re.sub(r"^.*?((performance|conformance|durability|external|papers)/)", r"\1", line)
             for line in output.splitlines() if "::" in line]  # fmt: skip
    assert len(found) > 500
    return found


LAB = f"--st-targets={ROOT / 'targets.yaml'}"
"""Targets that every suite runs on. Nothing of them is contacted."""


def test_a_wheel_a_checkout_and_an_editable_install_have_the_same_cases(programs: Path, empty: Path):
    installed = cases(programs / "pytest", "--pyargs", "storagetest.suites", LAB, cwd=empty)
    here = Path(sys.executable).with_name("pytest")
    assert installed == cases(here, "suites", LAB, cwd=ROOT)
    assert installed == cases(here, "--pyargs", "storagetest.suites", LAB, cwd=empty)


def test_the_suites_run_from_an_empty_directory(programs: Path, empty: Path):
    options = ["--st-profile", "tiny", "--st-sample", "-q", "-rfE", "-p", "no:cacheprovider"]
    output = run(programs / "pytest", "--pyargs", "storagetest.suites", *options, cwd=empty, ok=False)
    # On a busy machine a reader may miss its rate, which is INVALID: that is no fault of the package.
    summary = output.splitlines()[-1]
    assert re.search(r"\d+ passed", summary), output
    assert not re.search(r"\d+ (failed|error)", summary), output
    cases_seen = {
        json.loads(line)["run"]["case"] for line in (empty / "results.jsonl").read_text().splitlines()
    }
    assert cases_seen
    assert all(case.startswith("suites/performance/test_") for case in cases_seen), cases_seen


def test_a_copy_to_edit_has_the_same_cases(programs: Path, empty: Path):
    installed = cases(programs / "pytest", "--pyargs", "storagetest.suites", LAB, cwd=empty)
    run(programs / "storagetest", "suites", "--copy", "mine", cwd=empty)
    assert cases(programs / "pytest", "mine", LAB, cwd=empty) == installed
    refused = subprocess.run(
        [programs / "storagetest", "suites", "--copy", "mine"],
        cwd=empty,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert refused.stderr.startswith("storagetest: mine already exists")


def test_the_installed_program_describes_itself(programs: Path, empty: Path):
    assert run(programs / "storagetest", "--version", cwd=empty).startswith("storagetest ")
    listed = run(programs / "storagetest", "suites", cwd=empty).splitlines()
    assert len(listed) == len(
        [name for name in tracked("suites") if re.search(r"(^|/)test_[^/]*\.py$", name)]
    )
    assert all(len(line.split()) > 2 for line in listed), "a suite has no description"
