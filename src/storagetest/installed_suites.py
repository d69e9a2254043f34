"""The installed suites: their directory, their list, and a copy to edit.

``pytest --pyargs storagetest.suites`` runs them from any directory. A case has the same name
(:func:`case_name`) in an installation, in a checkout and in a copy, so that all of them share baselines.
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

SUITES = Path(__file__).parent / "suites"
"""Directory of the installed suites; in a checkout a link to its ``suites/``."""


def case_name(nodeid: str, path: Path) -> str:
    """Return the name of the case with pytest's ``nodeid`` in the file ``path``.

    The name of a case of an installed suite is ``suites/performance/test_x.py::test_y[…]``, as in a checkout.
    Any other case's name is its node id.
    """
    if not path.is_relative_to(SUITES):
        return nodeid
    _, colons, rest = nodeid.partition("::")
    return f"suites/{path.relative_to(SUITES).as_posix()}{colons}{rest}"


def pytest_command() -> str:
    """Return the pytest command that runs the working directory's suites, or else the installed ones."""
    return "pytest suites" if Path("suites").is_dir() else "pytest --pyargs storagetest.suites"


def list_suites() -> dict[str, str]:
    """Return module name, as ``--pyargs`` accepts it, → first line of the docstring, for every suite."""
    suites = {}
    for path in sorted(SUITES.rglob("test_*.py")):
        name = ".".join(("storagetest.suites", *path.relative_to(SUITES).with_suffix("").parts))
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        suites[name] = docstring.partition("\n")[0]
    return suites


def check_free(to: Path) -> None:
    """Raise :class:`StoragetestError` if ``to`` is a file or a directory that is not empty."""
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise StoragetestError(f"{to} already exists and is not overwritten. Name a new directory.")


def copy(to: Path) -> None:
    """Copy the suites into the directory ``to``. Raises :class:`StoragetestError` if it is not empty."""
    check_free(to)
    try:
        shutil.copytree(SUITES, to, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    except OSError as error:
        raise StoragetestError(f"{to}: copying the suites failed: {error}") from None


def add_parser(subparsers: Subparsers) -> None:
    """Add the command ``suites``; it sets ``func(args) -> int``."""
    parser = subparsers.add_parser(
        "suites",
        help="list the installed suites, or copy them to edit",
        description="List the suites as `pytest --pyargs` accepts them, or copy them into a directory to "
        "edit. Exit status: 0 success, 1 nothing was copied.",
    )
    parser.add_argument("--copy", type=Path, metavar="DIR", help="copy the suites into this new directory")
    parser.set_defaults(func=_suites)


def _suites(arguments: argparse.Namespace) -> int:
    if arguments.copy is not None:
        copy(arguments.copy)
        sys.stdout.write(f"{arguments.copy}: copied the suites; run: pytest {arguments.copy}\n")
        return 0
    suites = list_suites()
    width = max(map(len, suites))
    for name, summary in suites.items():
        sys.stdout.write(f"{name:{width}}  {summary}\n")
    return 0
