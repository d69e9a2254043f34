"""The plan of the house, held: who may import whom, and that no file grows past what a person reads."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from storagetest.protocols.base import protocols

SOURCE = Path(__file__).parents[2] / "src" / "storagetest"
EVERYBODY = {"concurrency", "deprecation", "errors", "polling", "units"}

# What a room may import of ours, besides itself and these leaf modules. A room that is not named may
# import any room but those on top.
ALLOWED = {
    "wire": set(),
    "search": set(),
    "agent": set(),
    "measure": set(),
    "verdict": {"measure"},
    # What config knows of protocols and workloads it gets from their registries, never by an import.
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
    "report": {"measure", "verdict", "registry"},
}
ON_TOP = {"plugin", "cli", "commands", "report"}
MAY_USE_REPORT = {"plugin", "cli", "commands", "__main__"}
LONGEST = 600


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """The rooms of ours that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            names = [node.module or ""]
            if node.module == "storagetest":
                names = [f"storagetest.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("storagetest.")}
    return found - {"__version__"}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_what_its_room_may(path: Path) -> None:
    mine = room(path)
    others = imported_rooms(path) - {mine}
    if mine in ALLOWED:
        allowed = ALLOWED[mine] | (EVERYBODY if mine != "agent" else set())
        assert others <= allowed, f"{mine} may not import {sorted(others - allowed)}"
    elif mine not in MAY_USE_REPORT:
        assert not others & ON_TOP, f"{mine} may not import {sorted(others & ON_TOP)}, which sit on top"


SUITES = SOURCE.parents[1] / "suites"
NAMES_PROTOCOLS = {"protocols", "wire", "lab", "suites"}


@pytest.mark.parametrize(
    "path",
    [*(path for path in modules() if room(path) not in NAMES_PROTOCOLS), *sorted(SUITES.rglob("*.py"))],
    ids=lambda path: str(path.relative_to(SOURCE.parents[1])),
)
def test_no_code_depends_on_a_protocols_name(path: Path) -> None:
    """What a protocol can do is a capability or an attribute of its class. ``local`` is a transport too."""
    names = set(protocols.all()) - {"local"}
    for node in ast.walk(ast.parse(path.read_text())):
        compared = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        for part in (inner for each in compared for inner in ast.walk(each)):
            assert not isinstance(part, ast.Constant) or part.value not in names, f"{path}:{node.lineno}"


def test_only_one_module_imports_allure() -> None:
    importers = [path for path in modules() if "allure_commons" in path.read_text()]
    assert [str(path.relative_to(SOURCE)) for path in importers] == ["report/allure/reporter.py"]


def test_the_lab_knows_nothing_of_pytest() -> None:
    for path in (SOURCE / "lab").rglob("*.py"):
        assert "import pytest" not in path.read_text(), path


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_stays_readable(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST
