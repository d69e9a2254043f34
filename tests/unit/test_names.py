"""Each public class of the package has a name of its own."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "storagetest"


def public_classes(source: str) -> list[str]:
    """Return the names of the public top-level classes of a module."""
    body = ast.parse(source).body
    return [node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def test_nested_and_private_classes_are_not_public() -> None:
    assert public_classes("class A:\n    class B: ...\nclass _C: ...\ndef f():\n    class D: ...\n") == ["A"]


def test_no_public_class_name_is_defined_in_two_modules() -> None:
    modules = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in public_classes(path.read_text(encoding="utf-8")):
            modules[name].append(path.relative_to(PACKAGE).as_posix())
    assert len(modules) > 300, f"{PACKAGE}: too few classes were found"
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}
