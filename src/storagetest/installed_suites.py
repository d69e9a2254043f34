"""The suites as they are installed: where they are, which there are, and a copy to edit.

``pytest --pyargs storagetest.suites`` runs them from anywhere. Their place in a virtual environment is
nobody's business, so a case is known by the same name (:func:`case_name`) there, in a checkout and in a copy:
baselines made with the one serve the others.
"""

from __future__ import annotations

import argparse
import ast
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from storagetest.errors import StoragetestError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001  # it has no public name

__all__ = ["SUITES", "add_parser", "case_name", "check_free", "pytest_command", "copy", "list_suites"]

SUITES = Path(__file__).parent / "suites"
"""The directory of the installed suites; in a checkout a link to its ``suites/``."""


def case_name(nodeid: str, path: Path) -> str:
    """Return pytest's ``nodeid`` of a case in the file ``path``, the same wherever the suites are installed.

    A case of an installed suite is ``suites/performance/test_x.py::test_y[…]``, as in a checkout; any other
    is its node id.
    """
    if not path.is_relative_to(SUITES):
        return nodeid
    _, colons, rest = nodeid.partition("::")
    return f"suites/{path.relative_to(SUITES).as_posix()}{colons}{rest}"


def pytest_command() -> str:
    """Return how pytest is told to run the suites: those of the working directory, or else the installed."""
    return "pytest suites" if Path("suites").is_dir() else "pytest --pyargs storagetest.suites"


def list_suites() -> dict[str, str]:
    """Return the module of every suite, as ``--pyargs`` takes it, and the first line of what it says."""
    found = {}
    for path in sorted(SUITES.rglob("test_*.py")):
        name = ".".join(("storagetest.suites", *path.relative_to(SUITES).with_suffix("").parts))
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        found[name] = said.partition("\n")[0]
    return found


def check_free(to: Path) -> None:
    """Raise :class:`StoragetestError` if there is something at ``to``."""
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise StoragetestError(f"{to} is there already: nothing is overwritten; name a directory that is not")


def copy(to: Path) -> None:
    """Copy the suites into the directory ``to``; :class:`StoragetestError` if something is there."""
    check_free(to)
    try:
        shutil.copytree(SUITES, to, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    except OSError as error:
        raise StoragetestError(f"the suites could not be copied to {to}: {error}") from None


def add_parser(subparsers: Subparsers) -> None:
    """Add ``suites`` to the commands; it sets ``func(args) -> int``."""
    parser = subparsers.add_parser(
        "suites",
        help="list the installed suites, or copy them to edit",
        description="List the suites as `pytest --pyargs` takes them, or copy them into a directory to edit. "
        "Exit status: 0 done, 1 nothing was copied.",
    )
    parser.add_argument("--copy", type=Path, metavar="DIR", help="copy the suites into this new directory")
    parser.set_defaults(func=_suites)


def _suites(arguments: argparse.Namespace) -> int:
    if arguments.copy is not None:
        copy(arguments.copy)
        sys.stdout.write(f"{arguments.copy}: the suites, yours to edit; run: pytest {arguments.copy}\n")
        return 0
    found = list_suites()
    width = max(map(len, found))
    for name, said in found.items():
        sys.stdout.write(f"{name:{width}}  {said}\n")
    return 0
