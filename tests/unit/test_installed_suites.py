"""The suites: as installed, and their cases on a client."""

import ast
import inspect
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from storagetest import installed_suites
from storagetest.agent.bundle import OLDEST_PYTHON
from storagetest.agent.testlib.block_range import BlockRange
from storagetest.errors import StoragetestError
from storagetest.plugin.conformance.known_issues_table import TABLE, read_suite_table
from storagetest.runner.syscall_session import SyscallSession

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
        and path.parent.name not in {"requirements", "standards"}  # without cases
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
    assert all(
        entry.implementation and entry.versions and (entry.message or entry.faults) for entry in failing
    )
