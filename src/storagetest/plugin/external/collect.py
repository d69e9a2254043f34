"""Collect foreign suites: one pytest item per test, in the same report as all cases.

A file ``NAME.external.toml`` names a suite, which of its tests are selected, and their known issues::

    suite = "iscsi-test-cu"
    program = "/opt/bin/iscsi-test-cu"      # path, if it is not in the PATH
    include = ["Inquiry.*", "Read10.*"]     # globs; default: all
    exclude = ["Sanitize.*"]

    owner = "storage team"                  # of each expected failure without an own one
    expires = 2027-03-31                    # likewise; the last day on which it holds

    [[known_issues]]
    implementation = "lio"                  # as the target reports it, or as the targets file names it
    versions = ">=6.1,<7"
    tests = ["Verify10.Mismatch*"]          # another name of `cases`
    message = ["*VERIFY10 successful*"]     # globs of the failure's first line
    reason = "BYTCHK is ignored"
    reference = "SBC-3 5.30"                # optional
    strict = false                          # it does not always fail
    # outcome = "skip"                      # it does damage, and is not run

The keys of an entry are those of :mod:`storagetest.config.known_issues`. A
:class:`~storagetest.external.base.ControllerSuite` runs on the controller, on the first variant of each
target with the required capabilities; its program lists its tests at collection. A
:class:`~storagetest.external.base.ClientSuite` runs on the client, on every variant
(:mod:`storagetest.plugin.external.mount_item`). No target and no client is contacted at collection.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from storagetest.config import Variant
from storagetest.config.known_issues import TableIssueEntry
from storagetest.external.base import ClientSuite, ControllerSuite, Suite, suites
from storagetest.plugin.conformance.known_issues import apply_known_issues
from storagetest.plugin.conformance.known_issues_table import read_toml, take_known_issues
from storagetest.plugin.external.absence import skip_absent
from storagetest.plugin.external.host_item import ControllerItem, controller
from storagetest.plugin.external.item import ExternalItem, SuiteSelection
from storagetest.plugin.external.mount_item import MountItem
from storagetest.plugin.run_state import KEY


class ExternalFile(pytest.File):
    """The tests of one foreign suite."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield an item for each test and variant, or one skipped item with the reason if there are none."""
        selection = _read(self.path)
        suite = suites.get(selection.suite)()
        state = self.config.stash[KEY]
        state.targets_needed = True
        if state.loaded is None:
            return
        variants = [each for each in state.variants.values() if not state.lacking(each, suite.needs)]
        if isinstance(suite, ControllerSuite):
            program = selection.program or suite.program
            if shutil.which(program) is None:
                yield self._missing(suite, f"{program} is not installed on the controller: {suite.package}")
                return
            variants = list({variant.target: variant for variant in reversed(variants)}.values())[::-1]
        if not variants:
            yield self._missing(suite, f"no target has {', '.join(sorted(suite.needs))}")
            return
        for test in _select(suite, selection, self.path):
            for variant in variants:
                yield self._item(suite, test, variant, selection)

    def _item(self, suite: Suite, test: str, variant: Variant, selection: SuiteSelection) -> pytest.Item:
        kind = MountItem if isinstance(suite, ClientSuite) else ControllerItem
        item: ExternalItem = kind.from_parent(
            self, name=f"{test}[{variant.id}]", suite=suite, test=test, variant=variant, selection=selection
        )
        apply_known_issues(item, selection.known_issues, test, variant)
        return item

    def _missing(self, suite: Suite, reason: str) -> pytest.Item:
        item: _MissingSuiteItem = _MissingSuiteItem.from_parent(self, name=suite.name, reason=reason)
        return item


class _MissingSuiteItem(pytest.Item):
    """A foreign suite that cannot run: one skip."""

    def __init__(self, *, reason: str, **more: Any) -> None:  # noqa: ANN401  # pytest's
        super().__init__(**more)
        self._reason = reason

    def runtest(self) -> None:
        """Skip."""
        skip_absent(self, self._reason)


def _read(path: Path) -> SuiteSelection:
    """Return the contents of a file; :class:`pytest.UsageError` if it is invalid."""
    document = read_toml(path)
    name = document.get("suite")
    if not isinstance(name, str) or name not in suites.all():
        raise pytest.UsageError(f"{path}: suite: expected one of {', '.join(sorted(suites.all()))}")
    issues = take_known_issues(document, path, TableIssueEntry, alias="tests")
    return SuiteSelection(**_checked(path, document), known_issues=issues)


_GLOBS = "a list of globs"
_FILE = {"suite": "a name", "program": "a path", "include": _GLOBS, "exclude": _GLOBS}


def _checked(path: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document after a check of its keys and types."""
    unknown = sorted(set(document) - set(_FILE))
    if unknown:
        raise pytest.UsageError(
            f"{path}: unknown: {', '.join(unknown)}. Expected {', '.join(_FILE)} and known_issues."
        )
    checked: dict[str, Any] = {}
    for name, value in document.items():
        globs = isinstance(value, list) and all(isinstance(glob, str) for glob in value)
        if not (globs if _FILE[name] == _GLOBS else isinstance(value, str)):
            raise pytest.UsageError(f"{path}: {name}: expected {_FILE[name]}, not {value!r}")
        checked[name] = tuple(value) if isinstance(value, list) else value
    return checked


def _select(suite: Suite, selection: SuiteSelection, path: Path) -> list[str]:
    """Return the selected tests; :class:`pytest.UsageError` if the file selects no test of the suite."""
    if isinstance(suite, ControllerSuite):
        listing = suite.listing()
        argv = (selection.program, *listing.argv[1:]) if selection.program else listing.argv
        with controller(suite, argv[0], listing.env) as host:
            done = host.run(argv, deadline=listing.deadline, check=False)
        tests, output = suite.tests(done.stdout), f"\n{done.describe()}"
    else:
        tests, output = suite.tests if isinstance(suite, ClientSuite) else (), ""
    selected = [test for test in tests if selection.has(test)]
    if not selected:
        raise pytest.UsageError(f"{path}: include and exclude select no test of {suite.name}{output}")
    return selected
