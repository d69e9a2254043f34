"""Foreign suites as pytest items: one a test, in the same report as everything else.

A file ``NAME.external.toml`` names a suite and which of its tests are wanted::

    suite = "iscsi-test-cu"
    include = ["Inquiry.*", "Read10.*"]     # globs; all when it is left out
    exclude = ["Sanitize.*"]

Each test runs on the first variant of every target that has what the suite needs, on the machine that runs
pytest. The program's own list is asked for at collection; no target is contacted then.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from storagetest.config import Variant
from storagetest.errors import WorkloadError
from storagetest.external.base import Ended, Suite, Verdict, suites
from storagetest.hosts import LocalHost
from storagetest.plugin.state import KEY, State

__all__ = ["ExternalFile", "ExternalItem"]

SUFFIX = ".external.toml"
_ERASE = pytest.StashKey[dict[str, bool]]()
_KEYS = {"suite", "include", "exclude"}


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect ``*.external.toml``."""
    if not file_path.name.endswith(SUFFIX):
        return None
    file: ExternalFile = ExternalFile.from_parent(parent, path=file_path)
    return file


class ExternalFile(pytest.File):
    """The tests of one foreign suite."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield an item for every test and target."""
        wanted = _read(self.path)
        suite = suites.get(wanted["suite"])()
        state = self.config.stash[KEY]
        if state.loaded is None:
            return
        tests = _listed(suite) if shutil.which(suite.program) else ()
        chosen = [test for test in tests if _chosen(test, wanted)]
        for variant in _targets(state, suite):
            for test in chosen or [""]:
                item: ExternalItem = ExternalItem.from_parent(
                    self, name=f"{test or suite.name}[{variant.id}]", suite=suite, test=test, variant=variant
                )
                yield item


class ExternalItem(pytest.Item):
    """One test of a foreign suite on one target."""

    def __init__(self, *, suite: Suite, test: str, variant: Variant, **more: Any) -> None:  # noqa: ANN401  # pytest's
        super().__init__(**more)
        self.suite, self.test, self.variant = suite, test, variant
        # Locks, known breakage and the scheduling of targets find the variant where a function has it; its
        # scope is none of pytest's, so that pytest does not group these items by it.
        self.callspec = SimpleNamespace(
            params={"variant": variant.id}, indices={}, marks=[], id=variant.id, _arg2scope={"variant": None}
        )
        self.cls = None

    def runtest(self) -> None:
        """Run the test, and pass on what it says."""
        suite, options = self.suite, self.variant.options
        if not self.test:
            pytest.skip(f"{suite.program} is not installed here: {suite.package}")
        known = self.config.stash.setdefault(_ERASE, {})
        if self.variant.target not in known:
            known[self.variant.target] = suite.may_erase(options)
        run = suite.invocation(self.test, options, may_erase=known[self.variant.target])
        with LocalHost() as host:
            done = host.run(run.argv, deadline=run.deadline, check=False, env=run.env)
        verdict = suite.verdict(self.test, status=done.status, stdout=done.stdout, stderr=done.stderr)
        _conclude(verdict)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Say where the item is from."""
        return self.path, None, f"{self.suite.name}: {self.name}"


def _conclude(verdict: Verdict) -> None:
    match verdict.ended:
        case Ended.SKIPPED:
            pytest.skip(verdict.reason)
        case Ended.FAILED:
            pytest.fail(f"{verdict.reason}\n{verdict.details}", pytrace=False)
        case Ended.BROKEN:
            raise WorkloadError(f"{verdict.reason}\n{verdict.details}")


def _read(path: Path) -> dict[str, Any]:
    try:
        wanted = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise pytest.UsageError(f"{path}: {error}") from None
    if set(wanted) - _KEYS or not isinstance(wanted.get("suite"), str):
        raise pytest.UsageError(
            f"{path}: suite = NAME is wanted, and include and exclude may stand there: {wanted}"
        )
    return wanted


def _chosen(test: str, wanted: dict[str, Any]) -> bool:
    return any(fnmatchcase(test, glob) for glob in wanted.get("include", ["*"])) and not any(
        fnmatchcase(test, glob) for glob in wanted.get("exclude", [])
    )


def _listed(suite: Suite) -> tuple[str, ...]:
    listing = suite.listing()
    with LocalHost() as host:
        return suite.tests(host.run(listing.argv, deadline=listing.deadline, check=False).stdout)


def _targets(state: State, suite: Suite) -> list[Variant]:
    """Return the first variant of each target that has what the suite needs."""
    first: dict[str, Variant] = {}
    for variant in state.variants.values():
        if suite.needs <= state.protocol(variant).capabilities(variant.options):
            first.setdefault(variant.target, variant)
    return list(first.values())
