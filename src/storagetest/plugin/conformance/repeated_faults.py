"""Faults that nearly every case on a target would see are the failure of one: the first that is red by them.

A fault is a sentence of a rule that is judged on every reply, whatever the case is about. A case that ends
otherwise (a known issue, a warning, an observation) reports a fault, and so does the next. A fault that an
entry of known issues names for the target's implementation fails no case
(:func:`~storagetest.plugin.conformance.known_issues.excuse_faults`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from storagetest.plugin.conformance.known_issues import excuse_faults
from storagetest.plugin.items import item_variant

_NAME = "storagetest-repeated-faults"

ONCE = "Later cases of this run do not report it again"


def register(config: pytest.Config) -> None:
    """Register the hook that notes which faults were reported."""
    config.pluginmanager.register(_Reported(), _NAME)


def fail_on_faults(item: pytest.Item, kinds: Iterable[str] | Mapping[str, str]) -> None:
    """Raise AssertionError with the new ones of ``kinds`` (:func:`new_faults`), and what each maps to."""
    new = new_faults(item, kinds)
    found = [f"found: {kinds[kind]}" for kind in new] if isinstance(kinds, Mapping) else []
    assert not new, "\n".join([f"{'; '.join(new)}. {ONCE}", *found])


def new_faults(item: pytest.Item, kinds: Iterable[str]) -> list[str]:
    """Return those of ``kinds`` that no red case on the item's variant has reported: the case fails by them.

    Those that are known of the target's implementation are noted and left out.
    """
    kinds = excuse_faults(item, kinds)
    reported: _Reported | None = item.config.pluginmanager.get_plugin(_NAME)
    return kinds if reported is None else reported.note(item, kinds)


class _Reported:
    def __init__(self) -> None:
        self._red: dict[str, set[str]] = {}
        self._raised: dict[str, tuple[str, list[str]]] = {}

    def note(self, item: pytest.Item, kinds: Iterable[str]) -> list[str]:
        """Return the new ones of ``kinds``; they count as reported if the case is red."""
        variant = item_variant(item) or ""
        new = [kind for kind in dict.fromkeys(kinds) if kind not in self._red.get(variant, ())]
        self._raised[item.nodeid] = variant, new
        return new

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the faults of a case that is red."""
        if report.when != "call":
            return
        variant, kinds = self._raised.pop(report.nodeid, ("", []))
        if report.failed:
            self._red.setdefault(variant, set()).update(kinds)
