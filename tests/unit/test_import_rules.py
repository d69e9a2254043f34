"""Rules of the architecture: permitted imports between packages, and the maximum length of a file."""

import ast
from pathlib import Path

import pytest

from storagetest.protocols.base import protocols

SOURCE = Path(__file__).parents[2] / "src" / "storagetest"
LEAF_MODULES = {"concurrency", "deprecation", "errors", "files", "polling", "units"}

# Package → packages of storagetest that it may import, in addition to itself and the leaf modules. A package
# that is not listed may import every package except the top ones.
ALLOWED = {
    "wire": set(),
    "search": set(),
    "agent": set(),
    "measure": set(),
    "verdict": {"measure"},
    # config gets the protocols and workloads from their registries, not by an import.
    "config": {"registry", "measure", "verdict"},
    "hosts": {"config"},
    "protocols": {"hosts", "measure", "config", "registry"},
    "workloads": {"agent", "hosts", "measure", "config", "registry", "protocols", "counters"},
    "counters": {"hosts", "measure", "config", "registry"},
    "runner": {
        "agent",
        "hosts",
        "measure",
        "config",
        "registry",
        "protocols",
        "workloads",
        "counters",
        "verdict",
    },
    "lab": set(),
    "report": {"measure", "verdict", "registry", "installed_suites"},
}
TOP = {"plugin", "cli", "commands", "report"}
MAY_USE_REPORT = {"plugin", "cli", "commands", "__main__"}
MAX_LINES = 600


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_packages(path: Path) -> set[str]:
    """Return the packages of storagetest that the module at ``path`` imports, anywhere in it."""
    packages = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            names = [node.module or ""]
            if node.module == "storagetest":
                names = [f"storagetest.{alias.name}" for alias in node.names]
        packages |= {name.split(".")[1] for name in names if name.startswith("storagetest.")}
    return packages - {"__version__"}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_module_imports_only_permitted_packages(path: Path) -> None:
    package = package_of(path)
    imported = imported_packages(path) - {package}
    if package in ALLOWED:
        allowed = ALLOWED[package] | (LEAF_MODULES if package != "agent" else set())
        assert imported <= allowed, f"{package} may not import {sorted(imported - allowed)}"
    elif package not in MAY_USE_REPORT:
        assert not imported & TOP, f"{package} may not import the top packages {sorted(imported & TOP)}"


SUITES = SOURCE.parents[1] / "suites"
MAY_NAME_PROTOCOLS = {"protocols", "wire", "lab", "suites"}


@pytest.mark.parametrize(
    "path",
    [
        *(path for path in modules() if package_of(path) not in MAY_NAME_PROTOCOLS),
        *sorted(SUITES.rglob("*.py")),
    ],
    ids=lambda path: str(path.relative_to(SOURCE.parents[1])),
)
def test_no_code_compares_with_a_protocol_name(path: Path) -> None:
    """Code uses capabilities or class attributes instead. ``local`` is excluded: it is also a transport."""
    names = set(protocols.all()) - {"local"}
    for node in ast.walk(ast.parse(path.read_text())):
        compared = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        for part in (inner for operand in compared for inner in ast.walk(operand)):
            assert not isinstance(part, ast.Constant) or part.value not in names, f"{path}:{node.lineno}"


def test_only_one_module_imports_allure() -> None:
    importers = [path for path in modules() if "allure_commons" in path.read_text()]
    assert [str(path.relative_to(SOURCE)) for path in importers] == ["report/allure/reporter.py"]


def test_lab_does_not_import_pytest() -> None:
    for path in (SOURCE / "lab").rglob("*.py"):
        assert "import pytest" not in path.read_text(), path


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_file_length_is_limited(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES
