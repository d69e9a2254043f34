"""The page docs/design.md: each path that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "storagetest"
TEXT = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
PATHS = sorted({path for path in re.findall(r"\b[\w/]+\.py\b", TEXT) if "NAME" not in path})
PACKAGES = re.findall(r"^\| `([\w/]+)/` \|", TEXT, re.MULTILINE)


@pytest.mark.parametrize("path", PATHS)
def test_each_module_on_the_page_exists(path: str):
    base = ROOT if path.startswith(("suites/", "tests/")) else PACKAGE
    assert (base / path).is_file(), f"docs/design.md: no file {path} in {base}. Correct the path."


def test_each_package_is_on_the_page():
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"suites"}
    assert packages == {name for name in PACKAGES if "/" not in name}
    assert all((PACKAGE / name / "__init__.py").is_file() for name in PACKAGES)
