"""The suites as a package: named the same everywhere, listed, and copied without harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from storagetest import installed_suites
from storagetest.errors import StoragetestError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("nodeid", "path", "named"),
    [
        ("../venv/x/storagetest/suites/a/test_b.py::test_c[d::e]", installed_suites.SUITES / "a/test_b.py",
         "suites/a/test_b.py::test_c[d::e]"),
        ("test_b.py::test_c", installed_suites.SUITES / "test_b.py", "suites/test_b.py::test_c"),
        ("suites/a/test_b.py::test_c", Path("/home/me/suites/a/test_b.py"), "suites/a/test_b.py::test_c"),
        ("mine/test_b.py::test_c", Path("/home/me/mine/test_b.py"), "mine/test_b.py::test_c"),
    ],
)  # fmt: skip
def test_a_case_has_one_name(nodeid: str, path: Path, named: str):
    assert installed_suites.case_name(nodeid, path) == named


def test_the_suites_of_a_checkout_are_its_own():
    assert installed_suites.SUITES.resolve() == ROOT / "suites"


def test_every_directory_of_the_suites_is_a_package():
    """`--pyargs` finds packages only, and packages give files of one name different modules."""
    directories = {
        path.parent
        for path in installed_suites.SUITES.resolve().rglob("*")
        if path.suffix in {".py", ".toml"}
    }
    assert [
        str(one.relative_to(ROOT)) for one in sorted(directories) if not (one / "__init__.py").exists()
    ] == []


def test_every_suite_has_a_description():
    listed = installed_suites.list_suites()
    assert "storagetest.suites.performance.test_copy" in listed
    assert [name for name, description in listed.items() if not description] == []


def test_a_copy_overwrites_nothing(tmp_path: Path):
    installed_suites.copy(tmp_path / "mine")
    assert (tmp_path / "mine/conformance/iscsi/known_issues.toml").exists()
    (tmp_path / "mine/performance/test_copy.py").write_text("changed")
    with pytest.raises(StoragetestError, match="already exists"):
        installed_suites.copy(tmp_path / "mine")
    assert (tmp_path / "mine/performance/test_copy.py").read_text() == "changed"


def test_a_copy_that_cannot_be_made_is_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoragetestError, match="copying the suites failed"):
        installed_suites.copy(tmp_path / "file/below")
