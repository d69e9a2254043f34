"""Which test files a change can reach, by imports; for ``pytest --changed REF``.

A module is reached if it changed, or if it imports a module that is reached. An import is an import statement
anywhere in the module, or a string that is a module's name (``pytest_plugins``, tables of commands). A module
that no other imports is loaded by its package (registries), so its package is reached. A test file is reached
if it changed, or if it imports or names what is reached: a module of the package, a helper of the tests, or a
file that is not Python. A reached conftest.py reaches the tests of its directory.

No module imports the suites (src/storagetest/suites is a link to suites/): pytest loads them by their paths.
A reached module of a suite is therefore like a changed file of it, and does not reach the package. It also
reaches the tests of the lab and of mutants, and those whose helpers run suites.
"""

import ast
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
PACKAGE = "storagetest"
PLUGIN = f"{PACKAGE}.plugin.hooks"
SUITES = f"{PACKAGE}.suites"
SUITE_NAMES = {SUITES.rpartition(".")[2], SUITES, f"{PACKAGE}.installed_suites"}
"""Names in files that run suites; not as literals, because this file would be one of them."""
RUN_SUITES = ("tests/lab/", "tests/mutants/")
"""Their tests run suites on servers, without naming each module."""
AFFECT_ALL = {"pyproject.toml", "requirements.lock", "tox.ini", "conftest.py"}
"""Files that every test depends on."""
RUNS_PYTEST = ("tests/plugin/", "tests/lab/", "tests/mutants/")
"""Their tests run a pytest with the plugin, without an import of it."""


def git(*arguments: str) -> list[str]:
    """Return the lines that a git command prints. Raises OSError or subprocess.SubprocessError."""
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


def changed_files(since: str) -> list[str]:
    """Return the paths that differ from the commit ``since``, with those that git does not track yet."""
    untracked = git("ls-files", "--others", "--exclude-standard")
    return sorted({*git("diff", "--name-only", since, "--"), *untracked})


def module_of(path: str) -> str | None:
    """Return the module of a path below src/; of a file that is not Python, the package that contains it."""
    if not path.startswith("src/"):
        return None
    parts = Path(path).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if not path.endswith(".py") or parts[-1] == "__init__" else parts)


def import_graph() -> grimp.ImportGraph:
    """Return the package's imports, with those by a string."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    modules = set(graph.modules)
    for module in modules:
        path = ROOT / "src" / Path(*module.split("."))
        file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
        for name in names_in(file) & modules - {module}:
            graph.add_import(importer=module, imported=name)
    return graph


def names_in(file: Path) -> set[str]:
    """Return the modules that a file imports, and its strings that may be a module's name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return names


def existing(graph: grimp.ImportGraph, module: str) -> str:
    """Return ``module`` or the nearest package above it: it may be deleted, or be a data directory."""
    while module and module not in graph.modules:
        module = module.rpartition(".")[0]
    return module or PACKAGE


def reached_modules(graph: grimp.ImportGraph, changed: Iterable[str]) -> set[str]:
    """Return the changed modules and all that depend on them."""
    reached: set[str] = set()
    waiting = [existing(graph, module) for module in changed]
    while waiting:
        module = waiting.pop()
        if module in reached:
            continue
        reached.add(module)
        importers = graph.find_modules_that_directly_import(module)
        package = module.rpartition(".")[0]
        waiting.extend(importers)
        if not importers and package not in {"", PACKAGE} and not is_suite(module):
            waiting.append(package)
    return reached


def is_suite(module: str) -> bool:
    """Whether a module is one of the suites."""
    return module.startswith(f"{SUITES}.")


def suite_files(modules: Iterable[str]) -> set[str]:
    """Return the paths of those ``modules`` that belong to suites."""
    return {
        f"suites/{module.removeprefix(f'{SUITES}.').replace('.', '/')}.py"
        for module in modules
        if is_suite(module)
    }


def reached_tests(changed: Iterable[str], tests: Mapping[str, set[str]], modules: set[str]) -> set[str]:
    """Return the test files that are reached.

    ``tests`` has the names in each file below tests/ (see :func:`names_in`) by its path; ``modules`` is the
    result of :func:`reached_modules`.
    """
    runs_suites = suite_files(modules)
    changed = {*changed, *runs_suites}
    if changed & AFFECT_ALL:
        return set(tests)
    wanted = modules | {
        name
        for path in changed
        if not path.startswith(("src/", "tests/"))
        for name in (path, Path(path).name, path.split("/")[0])
    }
    # A deleted helper is not in `tests`.
    helpers = [path for path in changed if path.startswith("tests/") and "/test_" not in path]
    if runs_suites:  # a test may run them by a helper
        helpers += [path for path, names in tests.items() if "/test_" not in path and names & SUITE_NAMES]
    directories: set[Path] = set()
    while helpers:
        helper = Path(helpers.pop())
        if helper.name == "conftest.py":
            directories.add(helper.parent)
        elif helper.stem not in wanted:
            wanted.add(helper.stem)
            helpers += [p for p, names in tests.items() if helper.stem in names and "/test_" not in p]
    return {
        path
        for path, names in tests.items()
        if path in changed
        or names & wanted
        or (path.startswith(RUNS_PYTEST) and PLUGIN in modules)
        or (path.startswith(RUN_SUITES) and runs_suites)
        or directories & {*Path(path).parents}
    }


def reached_by(since: str) -> set[Path]:
    """Return the test files that the changes since a commit reach."""
    changed = changed_files(since)
    tests = {
        file.relative_to(ROOT).as_posix(): names_in(file) for file in sorted((ROOT / "tests").rglob("*.py"))
    }
    modules = reached_modules(import_graph(), filter(None, map(module_of, changed)))
    return {ROOT / path for path in reached_tests(changed, tests, modules)}
