"""Generated pages agree with the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from storagetest import config
from storagetest.config.schema import schema_text
from storagetest.lab import roles
from storagetest.lab.paths import lab_dir
from storagetest.lab.status import LabSpec
from storagetest.lab.targets import targets_yaml
from storagetest.workloads._reference import page
from storagetest.workloads.base import workloads

ROOT = Path(__file__).parents[2]


def test_the_json_schema_is_the_models():
    published = (ROOT / "docs/reference/targets.schema.json").read_text()
    assert published == schema_text(), "run: storagetest schema > docs/reference/targets.schema.json"


def test_the_reference_of_the_workloads_is_theirs():
    published = (ROOT / "docs/reference/workloads.md").read_text()
    wanted = page(workloads.all())
    assert published == wanted, "run: storagetest workloads > docs/reference/workloads.md"


def test_the_reference_agrees_with_the_code():
    argv = [sys.executable, ROOT / "script/reference.py", "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


EXAMPLES = sorted(
    [*(ROOT / "examples/targets").glob("*.yaml"), ROOT / "examples/custom-workloads/targets.yaml"]
)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_load(path: Path):
    assert config.load(path).variants


def test_the_targets_file_at_the_root_is_the_labs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert (ROOT / "targets.yaml").read_text() == default_targets(), (
        "the lab's targets have changed: run `storagetest lab up` and copy the targets.yaml that it writes"
    )


def default_targets() -> str:
    spec = LabSpec(2, "kernel", None)
    clients = ["client1", "client2"]
    targets = roles.load("kernel").targets
    return targets_yaml("default", spec.describe(), lab_dir("default"), clients, targets)
