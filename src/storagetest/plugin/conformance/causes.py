"""One cause, one red line: a case is not judged if a case that it builds on failed on the same variant.

``@pytest.mark.case("SCS-PR-12", …, builds_on=("SCS-PR-36",))`` names the cases whose claims are premises of
this case. Rules:

1. A case is skipped only because of a case that is red: it failed, or ended in an error, earlier in this run
   and on this variant. So the run is red (exit status 1) by the cause. A case that was not selected, was
   skipped, is INVALID, warned or a known issue is no cause; nor is one that an entry expects to fail and that
   passes. A cause that passes when it runs again is a cause no more.
2. The reason names the first cause: if the base itself was not judged, the case because of which it was not.
3. Each process has its own causes. xdist runs the cases of one target on one worker, unless ``--dist`` is
   given; a case whose base ran on another worker is judged.
4. A case runs after the cases that it builds on, if they are selected.
5. ``--st-judge-all`` judges every case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pytest

from storagetest.report.coverage import CaseOutcome, CaseRecord

_RED = {CaseOutcome.FAILED, CaseOutcome.ERROR}


class NoClaim(pytest.fail.Exception):  # type: ignore[misc,name-defined]  # made by a decorator
    """A failure that is not of the target: the case passes, and an entry of known issues is outdated."""

    __module__, __qualname__ = "builtins", "Failed"  # how pytest shows its own


@dataclass(frozen=True, slots=True)
class Cause:
    """A red case: its id, and the first line of its message."""

    id: str
    message: str

    def reason(self, variant: str) -> str:
        """Return why a case that builds on it was not judged."""
        where = f" on {variant}" if variant else ""
        return f"not judged because of {self.id}, which failed{where} before: {self.message}"


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A test item with its variant ("" without one), its case id ("" if it is no case), and its bases."""

    item: pytest.Item
    variant: str
    id: str = ""
    builds_on: tuple[str, ...] = ()


class Causes:
    """The causes of one process, by variant and by the id of the case that has or is one."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Cause] = {}

    def find(self, variant: str, builds_on: Iterable[str]) -> Cause | None:
        """Return the cause of the first of ``builds_on`` that has one."""
        found = (self._found.get((variant, base)) for base in builds_on)
        return next((cause for cause in found if cause is not None), None)

    def note(self, variant: str, record: CaseRecord, because: Cause | None, *, is_claim: bool) -> None:
        """Note the outcome of a case, and the cause that it was skipped for.

        ``is_claim``: whether a failure is one of the target.
        """
        key = variant, record.id
        if because is not None:
            self._found[key] = because
        elif record.outcome in _RED and is_claim:
            self._found[key] = Cause(record.id, record.message.partition("\n")[0])
        else:
            self._found.pop(key, None)


def bases_first(items: Sequence[Built]) -> list[Built]:
    """Return ``items`` in their order, but each after those that it builds on."""
    by_id = {(item.variant, item.id): item for item in items if item.id}
    ordered: dict[Built, None] = {}
    visited: set[Built] = set()

    def add(item: Built) -> None:
        if item in visited:  # also in a circle
            return
        visited.add(item)
        for base in item.builds_on:
            if (item.variant, base) in by_id:
                add(by_id[item.variant, base])
        ordered[item] = None

    for item in items:
        add(item)
    return list(ordered)
