"""What the mutant tests share is imported by its bare name: the proxy here, the controllers next door.

``--mutants changed`` tries only a part of the mutants (see :mod:`selection`); by default all are tried.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storagetest.lab import Lab

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "controllers"))

from reach import git
from selection import Selection, changed_files, last_proof, mutant_of

_REPORT = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-mutants", action="store_true", help="rewrite the tables of mutants in docs/")
    parser.addoption(
        "--mutants",
        choices=("all", "changed"),
        default="all",
        help="changed: those that a change since the last proof reaches, and a seeded tenth of the others",
    )
    parser.addoption("--mutants-seed", metavar="SEED", help="selects the tenth (default: the commit)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the mutants that ``--mutants changed`` does not select, in modules with ``DEPENDS_ON``."""
    if config.option.mutants == "all":
        return
    if config.option.write_mutants:
        raise pytest.UsageError("--write-mutants needs all mutants: leave out --mutants changed")
    base = last_proof()
    changed = changed_files(base)
    seed = config.option.mutants_seed or ("" if changed is None else git("rev-parse", "HEAD")[0])
    selection = Selection(changed, seed)
    selected: dict[object, set[str]] = {}
    left_out = set()
    for item in items:
        module, mutant = getattr(item, "module", None), mutant_of(item)
        if mutant is None or not hasattr(module, "DEPENDS_ON"):
            continue
        if module not in selected:
            selected[module] = selection.select(module.MUTANTS, module.DEPENDS_ON)
        if mutant not in selected[module]:
            left_out.add(item)
    tried = sum(mutant_of(item) is not None for item in items) - len(left_out)
    since = f"changed since {base[:12]}" if selection.changed is not None else "all: no last proof is known"
    config.stash[_REPORT] = f"mutants: {tried} tried, {len(left_out)} left out ({since}; seed {seed[:12]})"
    if hasattr(config, "workeroutput"):
        config.workeroutput["mutants"] = config.stash[_REPORT]
    config.hook.pytest_deselected(items=sorted(left_out, key=lambda item: item.nodeid))
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Keep the report of a worker: xdist's controller collects nothing."""
    if report := getattr(node, "workeroutput", {}).get("mutants"):
        node.config.stash[_REPORT] = report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if report := config.stash.get(_REPORT, None):
        terminalreporter.write_line(report)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """The lab with LIO: that of ``STORAGETEST_LAB``, or one for this run, next to that of other tests."""
    if name := os.environ.get("STORAGETEST_LAB"):
        running = Lab.find(name)
        assert running is not None, f"lab {name} is not up"
        yield running
        return
    started = Lab.up(f"mutants-{os.getpid()}", clients=0, owner=os.getpid(), progress=lambda _: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGETEST_LAB", started.name)
        yield started
    started.down()
