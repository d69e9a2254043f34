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
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from storagetest.config import Variant, toml_source
from storagetest.config.base import Items, Model
from storagetest.config.known_issues import SECTION, ExternalIssueEntry, Glob
from storagetest.config.validation import ValidationErrors, suggest
from storagetest.errors import ConfigError
from storagetest.external.base import ClientSuite, ControllerSuite, Suite, suites
from storagetest.plugin.conformance.known_issues import apply_known_issues
from storagetest.plugin.conformance.known_issues_table import SHARED, read_table_issues
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
        tests = _tests(suite, selection, self.path)
        self._check_known_issues(suite, selection, tests)
        for test in filter(selection.has, tests):
            for variant in variants:
                yield self._item(suite, test, variant, selection)

    def _check_known_issues(self, suite: Suite, selection: SuiteSelection, tests: Sequence[str]) -> None:
        """Refuse globs that match no test; warn if the tests are those of the installed program's version."""
        unknown = [
            f"{place}: {SECTION}: {glob!r} matches no test of {suite.name}"
            for issue in selection.known_issues
            for glob, place in issue.cases
            if not any(fnmatchcase(test, glob) for test in tests)
        ]
        if unknown and not isinstance(suite, ControllerSuite):
            raise pytest.Collector.CollectError("\n".join(unknown))
        for text in unknown:
            self.warn(pytest.PytestCollectionWarning(f"{text} as it is installed here"))

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


class ExternalEntry(Model):
    """The keys of a file, without its known issues."""

    suite: str
    """The suite's name."""

    program: Annotated[str | None, Field(min_length=1)] = None
    """The program's path; default: the suite's own, from the PATH."""

    include: Items[Glob] = ("*",)
    """Globs of the tests to run."""

    exclude: Items[Glob] = ()
    """Globs of tests not to run."""


def _read(path: Path) -> SuiteSelection:
    """Return the contents of a file; CollectError if it is invalid."""
    problems = ValidationErrors()
    try:
        root = toml_source.read(path)
        issues = read_table_issues(root, ExternalIssueEntry, problems, alias="tests")
        shared = (SECTION, *SHARED)
        keys = {name: node for name, node in (root.mapping or {}).items() if name not in shared}
        entry = problems.validate(ExternalEntry, replace(root, mapping=keys), "", also_known=shared)
        if entry is not None and entry.suite not in suites.all():
            problems.add(
                keys["suite"].place, f"suite: unknown {entry.suite!r}{suggest(entry.suite, suites.all())}"
            )
        problems.raise_any()
    except ConfigError as error:
        raise pytest.Collector.CollectError(str(error)) from None
    assert entry is not None
    program = entry.program or ""
    return SuiteSelection(entry.suite, program, entry.include, entry.exclude, known_issues=issues)


def _tests(suite: Suite, selection: SuiteSelection, path: Path) -> Sequence[str]:
    """Return all tests of the suite; CollectError if the file selects none of them."""
    if isinstance(suite, ControllerSuite):
        listing = suite.listing()
        argv = (selection.program, *listing.argv[1:]) if selection.program else listing.argv
        with controller(suite, argv[0], listing.env) as host:
            done = host.run(argv, deadline=listing.deadline, check=False)
        tests, output = suite.tests(done.stdout), f"\n{done.describe()}"
    else:
        tests, output = suite.tests if isinstance(suite, ClientSuite) else (), ""
    if not any(map(selection.has, tests)):
        raise pytest.Collector.CollectError(
            f"{path}: include and exclude select no test of {suite.name}{output}"
        )
    return tests
