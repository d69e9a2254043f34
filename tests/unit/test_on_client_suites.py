"""Conformance modules that run on a client: old Python, few imports, a docstring and a source per case."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from storagetest.agent.bundle import OLDEST_PYTHON
from storagetest.agent.testlib.block_range import BlockRange
from storagetest.plugin.conformance.known_issues_table import TABLE, read_suite_table
from storagetest.runner.syscall_session import SyscallSession

SUITES = Path(__file__).parents[2] / "suites" / "conformance"
MODULES = sorted(path for folder in ("posix", "block") for path in (SUITES / folder).glob("test_*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SUITES)))
def test_module_imports_only_what_the_client_has(path: Path) -> None:
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
def test_each_case_has_a_sentence_as_docstring(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    cases = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    assert cases
    for node in cases:
        docstring = ast.get_docstring(node) or ""
        assert docstring.endswith((".", "?")), f"{path.name}: {node.name}: {docstring!r}"


@pytest.mark.parametrize(
    ("path", "names", "helper"),
    [
        *((path, {"block_range"}, BlockRange) for path in MODULES if path.parent.name == "block"),
        *((path, {"a", "b", "session"}, SyscallSession) for path in (SUITES / "shared").glob("test_*.py")),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else "",
)
def test_untyped_cases_use_existing_attributes(path: Path, names: set[str], helper: type) -> None:
    existing = dir(helper) + re.findall(r"self\.(\w+)", inspect.getsource(helper.__init__))  # type: ignore[misc]
    used = {
        node.attr
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names
    }
    assert used <= set(existing), f"{path.name}: {helper.__name__} has no {sorted(used - set(existing))}"


TARGETS = """\
version: 1
clients: {here: {transport: local}}
targets: {disk: {protocol: local, path: /var/tmp, clients: [here]}}
"""

LIST = """\
from storagetest.plugin.conformance.cases import case_of

def pytest_collection_finish(session):
    print(*(f"case {case_of(item).id} {case_of(item).section}" for item in session.items), sep="\\n")
"""


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The cases of posix as pytest collects them: id and section."""
    here = tmp_path_factory.mktemp("collected")
    (here / "targets.yaml").write_text(TARGETS)
    (here / "pytest.ini").write_text("[pytest]\n")
    (here / "listing.py").write_text(LIST)
    argv = [sys.executable, "-m", "pytest", "-p", "listing", "-p", "no:cacheprovider", "--co", "-q"]
    options = ["--import-mode=importlib", "-c", str(here / "pytest.ini"), str(SUITES / "posix")]
    done = subprocess.run(
        [*argv, *options], cwd=here, capture_output=True, text=True, check=True, timeout=120
    )
    found = [line.split(" ", 2)[1:] for line in done.stdout.splitlines() if line.startswith("case ")]
    return dict(found)


def test_there_are_cases_over_the_whole_ground(cases: dict[str, str]) -> None:
    assert len(cases) >= 250
    assert all(section.startswith(("POSIX.1-2024 ", "RFC ")) or "(" in section for section in cases.values())


def test_every_entry_of_a_table_is_about_a_case(cases: dict[str, str]) -> None:
    globs = [glob for issue in read_suite_table(SUITES / "posix") for glob, _ in issue.cases]
    assert [glob for glob in globs if not any(fnmatchcase(name, glob) for name in cases)] == []


@pytest.mark.parametrize("path", sorted(SUITES.glob(f"*/{TABLE}")), ids=lambda path: path.parent.name)
def test_every_suites_table_can_be_read(path: Path) -> None:
    failing = [issue.entry for issue in read_suite_table(path.parent) if issue.entry.outcome == "fail"]
    assert failing
    keys = {
        key for key in ("implementation", "vendor", "controller") for issue in failing if getattr(issue, key)
    }
    assert len(keys) == 1, "a suite identifies what serves a target in one way"
