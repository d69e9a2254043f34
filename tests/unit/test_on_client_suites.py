"""What is sent to a client, held before it is sent: old Python, few imports, a source for each case."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from storagetest.agent.pack import OLDEST_PYTHON

SUITES = Path(__file__).parents[2] / "suites" / "conformance"
MODULES = sorted(path for folder in ("posix", "block") for path in (SUITES / folder).glob("test_*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SUITES)))
def test_a_module_can_be_sent(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=OLDEST_PYTHON)
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            standard = name.partition(".")[0] in sys.stdlib_module_names
            assert standard or name == "pytest" or name.startswith("storagetest.agent"), (
                f"{path.name}: {name}"
            )


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SUITES)))
def test_each_case_says_in_a_sentence_what_it_checks(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    cases = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    assert cases
    for node in cases:
        said = ast.get_docstring(node) or ""
        assert said.endswith((".", "?")), f"{path.name}: {node.name} says {said!r}"
