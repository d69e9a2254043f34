"""Base class of items: one test of a foreign suite on one variant."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from storagetest.config import Variant
from storagetest.config.known_issues import KnownIssue
from storagetest.errors import WorkloadError
from storagetest.external.base import ItemOutcome, ItemResult


@dataclass(frozen=True, slots=True)
class SuiteSelection:
    """The contents of one ``*.external.toml``."""

    suite: str
    program: str = ""
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    known_issues: tuple[KnownIssue, ...] = ()

    def has(self, test: str) -> bool:
        """Whether ``test`` is selected."""
        return _any(test, self.include) and not _any(test, self.exclude)


def _any(test: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(test, glob) for glob in globs)


class ExternalItem(pytest.Item):
    """One test of a foreign suite on one target."""

    def __init__(
        self,
        *,
        suite: Any,  # noqa: ANN401  # a ControllerSuite or a ClientSuite
        test: str,
        variant: Variant,
        selection: SuiteSelection,
        **more: Any,  # noqa: ANN401  # pytest's
    ) -> None:
        super().__init__(**more)
        self.suite, self.test, self.variant, self.selection = suite, test, variant, selection
        self.program: str = selection.program or suite.program
        # Locks, known issues and the scheduler read the variant from a callspec, as a function has one. Its
        # scope is not one of pytest's, so that pytest does not group these items by it.
        self.callspec = SimpleNamespace(
            params={"variant": variant.id}, indices={}, marks=[], id=variant.id, _arg2scope={"variant": None}
        )
        self.cls = None
        self.add_marker("external")

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the file, its first line (pytest reports a skip at a line) and the title of the item."""
        return self.path, 0, f"{self.suite.name}: {self.name}"


def report_result(item: pytest.Item, result: ItemResult) -> None:
    """Skip, fail or raise :class:`WorkloadError` according to the result of the test.

    A warning is a section and a property of the test's report.
    """
    text = f"{result.reason}\n{result.details}".strip()
    match result.ended:
        case ItemOutcome.WARNED:
            item.add_report_section("call", "warning", text)
            item.user_properties.append(("warning", result.reason))
        case ItemOutcome.SKIPPED:
            pytest.skip(result.reason)
        case ItemOutcome.FAILED:
            pytest.fail(text, pytrace=False)
        case ItemOutcome.BROKEN:
            raise WorkloadError(text)
