"""The packed agent: reproducible bytes, imports of the standard library only, and an old Python."""

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
MODULES = sorted(path for path in FOLDER.rglob("*.py") if path.name != "bundle.py")
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
"""Bodies of cases use paths and may start programs, so their helpers may import these modules."""
EXCEPTIONS = {("subprocess", "run_program.py"), ("subprocess", "undo.py")}
"""run_program starts a program; undo imports it only when an entry is written."""


def test_the_zip_is_reproducible():
    first = bundle.packed()
    bundle.packed.cache_clear()
    assert bundle.packed() == first
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        names = archive.namelist()
    assert names == [
        "storagetest/__init__.py",
        *sorted(f"storagetest/agent/{path.relative_to(FOLDER)}" for path in MODULES),
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_module_parses_on_the_oldest_python_and_imports_no_slow_module(path):
    for node in ast.walk(ast.parse(path.read_text(), feature_version=bundle.OLDEST_PYTHON)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            top = name.partition(".")[0]
            assert top in sys.stdlib_module_names or name.startswith("storagetest.agent"), name
            assert top not in SLOW or (top, path.parts[-2]) in BODIES or (top, path.name) in EXCEPTIONS, name


def test_a_python_that_is_too_old_is_reported(capsys, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 8, 1))
    with pytest.raises(SystemExit) as ended:
        exec(bundle.START, {})
    assert ended.value.code == 1
    assert capsys.readouterr().out == '{"t":"error","kind":"python","message":"3.8"}\n'
