"""``expectations.toml`` beside a suite: what a protocol, an option or a client cannot promise, and why.

    [[expect]]
    cases = ["PSX-CHOWN-*"]                   # globs of case ids
    where = { protocol = "smb", posix = false }
    skip = true                               # it is not tried; or
    allow = ["*refused by EOPNOTSUPP*"]       # a failure whose first line says so is recorded, and no failure
    reason = "what it is that is not promised"
    reference = "where that is said"

``where`` is read as :mod:`storagetest.plugin.where` says. A case that is allowed to fail passes where the
promise is kept all the same. What is expected of an implementation (``known.toml``,
:mod:`storagetest.plugin.deviations`) is marked here, too.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from storagetest.config import Variant
from storagetest.plugin.conformance.cases import case_of, downgrade_to_may
from storagetest.plugin.deviations import KNOWN, read_known
from storagetest.plugin.known import CLAIMS, expect_known
from storagetest.plugin.parametrize import item_variant
from storagetest.plugin.run_state import KEY
from storagetest.plugin.where import holds, read_table, refuse_unknown_names

__all__ = ["Entry", "read"]

EXPECTED = "expectations.toml"
_ALLOWED = pytest.StashKey[list["Entry"]]()


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. ``reference`` is where the reason is said."""

    cases: tuple[str, ...]
    where: Mapping[str, Any]
    reason: str
    reference: str
    skip: bool = False
    allow: tuple[str, ...] = ()

    def covers(self, case: str, variant: Variant) -> bool:
        """Whether it is about this case on this variant."""
        return any(fnmatchcase(case, glob) for glob in self.cases) and holds(variant, self.where)

    def __str__(self) -> str:
        return f"{self.reason} ({self.reference})"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is not tried and what is known to fail; remember what is allowed to."""
    state = config.stash[KEY]
    for item in items:
        identifier, case = item_variant(item), case_of(item)
        if identifier is None or case is None:
            continue
        variant = state.variants[identifier]
        for entry in read(item.path.parent / EXPECTED):
            if not entry.covers(case.id, variant):
                continue
            if entry.skip:
                item.add_marker(pytest.mark.skip(reason=f"{identifier}: {entry}"))
            else:
                item.stash.setdefault(_ALLOWED, []).append(entry)
        for known in read_known(item.path.parent / KNOWN):
            if known.covers(case.id, variant):
                expect_known(item, known.issue)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Take a case that fails as it is allowed to for a MAY, which is recorded."""
    __tracebackhide__ = True
    try:
        return (yield)
    except CLAIMS as error:
        why = _allowed(item, str(error).partition("\n")[0])
        if not why:
            raise
        downgrade_to_may(item)
        seen = str(error)
    pytest.fail(f"{why}\nseen: {seen}", pytrace=False)


def _allowed(item: pytest.Item, message: str) -> str:
    """Return why ``item`` may fail with ``message``, or nothing where it may not."""
    entries = item.stash.get(_ALLOWED, [])
    return next((str(one) for one in entries if any(fnmatchcase(message, glob) for glob in one.allow)), "")


@cache
def read(path: Path) -> tuple[Entry, ...]:
    """Return a table's entries, none where there is no file; :class:`pytest.UsageError` where it is wrong."""
    said = read_table(path)
    if said is None:
        return ()
    if set(said) != {"expect"} or not isinstance(said["expect"], list):
        raise pytest.UsageError(f"{path}: it holds [[expect]] tables and nothing else")
    return tuple(_entry(path, number, one) for number, one in enumerate(said["expect"], start=1))


def _entry(path: Path, number: int, said: Mapping[str, Any]) -> Entry:
    place = f"{path}: entry {number}"
    fields = {"cases": list, "where": dict, "reason": str, "reference": str}
    lacking = [
        name for name, kind in fields.items() if not isinstance(said.get(name), kind) or not said[name]
    ]
    strange = sorted(set(said) - set(fields) - {"skip", "allow"})
    if lacking or strange:
        raise pytest.UsageError(
            f"{place}: it lacks {', '.join(lacking) or 'nothing'}; unknown: {', '.join(strange) or 'nothing'}"
        )
    refuse_unknown_names(place, said["where"])
    skip, allow = bool(said.get("skip")), tuple(said.get("allow", ()))
    if skip is bool(allow):
        raise pytest.UsageError(f"{place}: it says either skip = true or allow = [globs of what is seen]")
    return Entry(tuple(said["cases"]), said["where"], said["reason"], said["reference"], skip, allow)
