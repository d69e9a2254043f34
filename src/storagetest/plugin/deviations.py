"""``known.toml`` beside a suite: what an implementation is known to break, until when, and who sees to it.

    owner = "storage team"                    # of every entry that names no other
    expires = 2027-03-31                      # as well: the last day on which it is put up with

    [[issue]]
    implementation = "knfsd"
    where = { version = "4.2" }               # may be left out
    cases = ["PSX-SEEK-03"]                   # globs of case ids
    reason = "what it does"
    says = "what the standard says"
    strict = false                            # where it does not always come to that; may be left out
    expires = 2027-01-31                      # where the file's own day, or owner, is not this one's

Rules:

1. Whose it is stands under one key: the ``implementation`` that the targets file says, or what a suite on the
   wire asks the target itself (``vendor`` of INQUIRY, ``controller`` of Identify Controller).
2. ``where`` is about a variant, as in ``expectations.toml``, and goes with ``implementation`` alone.
3. Every entry has an owner and a day, its own or the file's. Known, passed all at once, expired: the rules
   are those of ``known_issues`` in the targets file (:mod:`storagetest.plugin.known`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from storagetest.config import Variant
from storagetest.config.known import KnownIssue
from storagetest.plugin.where import holds, read_table, refuse_unknown_names

__all__ = ["KNOWN", "Deviation", "known_of", "read_known"]

KNOWN = "known.toml"
_WHOSE = ("implementation", "vendor", "controller")
_SHARED = ("owner", "expires")
_WANTED: Mapping[str, type] = {"cases": list, "reason": str, "says": str, "owner": str, "expires": date}
_MORE = {*_WHOSE, "where", "strict"}


@dataclass(frozen=True, slots=True)
class Deviation:
    """One entry. ``whose`` is (key, name); ``issue`` has its words, its owner and its day."""

    whose: tuple[str, str]
    where: Mapping[str, Any]
    cases: tuple[str, ...]
    issue: KnownIssue

    def covers(self, case: str, variant: Variant) -> bool:
        """Whether it is about this case on this variant, by what the targets file says of that."""
        key, name = self.whose
        return self._names(case) and key == "implementation" and holds(variant, {**self.where, key: name})

    def is_of(self, case: str, key: str, name: str) -> bool:
        """Whether it is about this case of what calls itself ``name`` under ``key``."""
        return self._names(case) and self.whose == (key, name)

    def _names(self, case: str) -> bool:
        return any(fnmatchcase(case, glob) for glob in self.cases)


def known_of(path: Path, case: str, *, key: str, name: str) -> Iterator[KnownIssue]:
    """Yield what the table says of a case of the target that calls itself ``name`` under ``key``."""
    return (one.issue for one in read_known(path) if one.is_of(case, key, name))


@cache
def read_known(path: Path) -> tuple[Deviation, ...]:
    """Return a table's entries, none where there is no file; :class:`pytest.UsageError` where it is wrong."""
    said = read_table(path)
    if said is None:
        return ()
    issues = said.get("issue")
    if set(said) - {*_SHARED, "issue"} or not isinstance(issues, list):
        raise pytest.UsageError(f"{path}: it holds [[issue]] tables, an owner, expires, and nothing else")
    shared = {name: said[name] for name in _SHARED if name in said}
    return tuple(_entry(path, number, {**shared, **one}) for number, one in enumerate(issues, start=1))


def _entry(path: Path, number: int, said: Mapping[str, Any]) -> Deviation:
    place = f"{path.parent.name}/{path.name}: entry {number}"
    lacking = [name for name, kind in _WANTED.items() if not _is(said.get(name), kind)]
    strange = sorted(set(said) - set(_WANTED) - _MORE)
    if lacking or strange:
        raise pytest.UsageError(
            f"{path}: entry {number}: it lacks {', '.join(lacking) or 'nothing'}; "
            f"unknown: {', '.join(strange) or 'nothing'}{_day(said, lacking)}"
        )
    whose = [(key, said[key]) for key in _WHOSE if _is(said.get(key), str)]
    where = said.get("where", {})
    if len(whose) != 1 or not isinstance(where, dict) or (where and whose[0][0] != "implementation"):
        raise pytest.UsageError(
            f"{path}: entry {number}: it says whose it is by one of {', '.join(_WHOSE)}; "
            "`where` is a table, and goes with `implementation`"
        )
    refuse_unknown_names(f"{path}: entry {number}", where)
    cases = tuple(said["cases"])
    issue = KnownIssue(
        cases=tuple((glob, place) for glob in cases),
        variants=("*",),
        reason=said["reason"],
        owner=said["owner"],
        expires=said["expires"],
        reference=said["says"],
        strict=bool(said.get("strict", True)),
        place=place,
    )
    return Deviation(whose[0], where, cases, issue)


def _is(value: object, kind: type) -> bool:
    """Whether it is of that kind, and not empty; a moment (TOML's offset date-time) is no day."""
    return isinstance(value, kind) and bool(value) and not isinstance(value, datetime)


def _day(said: Mapping[str, Any], lacking: list[str]) -> str:
    return (
        "; a day is written 2027-03-31, without quotes" if "expires" in lacking and "expires" in said else ""
    )
