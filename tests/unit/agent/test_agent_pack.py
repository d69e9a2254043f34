"""The agent as it travels: the same bytes every time, only the standard library, and an old Python."""

from __future__ import annotations

import ast
import io
import sys
import zipfile
from pathlib import Path

import pytest

from storagetest import agent
from storagetest.agent import bundle

FOLDER = Path(agent.__file__).parent
TRAVELLING = sorted(path for path in FOLDER.rglob("*.py") if path.name != "bundle.py")
SLOW = {
    "dataclasses",
    "inspect",
    "pathlib",
    "shutil",
    "subprocess",
    "tempfile",
    "logging",
    "argparse",
    "enum",
}

BODIES = {("pathlib", "testlib"), ("pathlib", "fixtures"), ("subprocess", "testlib")}
"""A body is given a path, and may start a program: its kit may import what that takes. No workload does."""
STAYS = {("subprocess", "run_program.py"), ("subprocess", "undo.py")}
"""An attendant starts once a session, and starting programs is what it is for."""


def test_the_zip_is_the_same_every_time():
    first = bundle.packed()
    bundle.packed.cache_clear()
    assert bundle.packed() == first
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        names = archive.namelist()
    assert names == [
        "storagetest/__init__.py",
        *sorted(f"storagetest/agent/{path.relative_to(FOLDER)}" for path in TRAVELLING),
    ]


@pytest.mark.parametrize("path", TRAVELLING, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_module_is_one_that_the_oldest_python_takes_and_imports_little(path):
    tree = ast.parse(path.read_text(), feature_version=bundle.OLDEST_PYTHON)
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            top = name.partition(".")[0]
            assert top in sys.stdlib_module_names or name.startswith("storagetest.agent"), name
            assert top not in SLOW or (top, path.parts[-2]) in BODIES or (top, path.name) in STAYS, name


def test_a_python_that_is_too_old_says_so(capsys, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 8, 1))
    with pytest.raises(SystemExit) as ended:
        exec(bundle.START, {})
    assert ended.value.code == 1
    assert capsys.readouterr().out == '{"t":"error","kind":"python","message":"3.8"}\n'
