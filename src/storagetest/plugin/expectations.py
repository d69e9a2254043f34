"""What a protocol does not promise, and what an implementation is known to break: two tables beside a suite.

``expectations.toml``: what a protocol, an option or a client's kernel cannot promise, and why::

    [[expect]]
    cases = ["PSX-CHOWN-*"]                   # globs of case ids
    where = { protocol = "smb", posix = false }
    skip = true                               # it is not tried; or
    allow = ["*refused by EOPNOTSUPP*"]       # a failure whose first line says so is recorded, and no failure
    reason = "what it is that is not promised"
    reference = "where that is said"

``known.toml``: what an implementation (the target's ``implementation``) breaks all the same::

    [[issue]]
    implementation = "knfsd"
    where = { version = "4.2" }               # may be left out
    cases = ["PSX-SEEK-03"]
    reason = "what it does"
    says = "what the standard says"
    strict = false                            # where it does not always come to that; may be left out

Rules:

1. ``where`` is about a variant's ``protocol``, its ``target``, its ``implementation`` and its protocol's
   options; a value or a list of values; all of it has to hold. A name that no protocol has is an error.
2. A case that is allowed to fail passes where the promise is kept all the same. A known issue is strict: when
   its case passes, that is a failure until the entry goes; ``strict = false`` is for what a race decides.
"""

from __future__ import annotations

import tomllib
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from storagetest.config import Variant
from storagetest.plugin.conformance import case_of, lower
from storagetest.plugin.known import CLAIMS, expect_failure
from storagetest.plugin.matrix import item_variant
from storagetest.plugin.state import KEY
from storagetest.protocols.base import protocols

__all__ = ["Entry", "read"]

EXPECTED, KNOWN = "expectations.toml", "known.toml"
_ALLOWED = pytest.StashKey[list["Entry"]]()
_OF_VARIANT = ("protocol", "target", "implementation")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of either table. ``reference`` is where the reason is said; ``says`` in a known issue."""

    cases: tuple[str, ...]
    where: Mapping[str, Any]
    reason: str
    reference: str
    skip: bool = False
    allow: tuple[str, ...] = ()
    strict: bool = True

    def covers(self, case: str, variant: Variant) -> bool:
        """Whether it is about this case on this variant."""
        return any(fnmatchcase(case, glob) for glob in self.cases) and all(
            _holds(variant, name, value) for name, value in self.where.items()
        )

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
        for entry in read(item.path.parent / KNOWN):
            if entry.covers(case.id, variant):
                expect_failure(item, str(entry), strict=entry.strict)


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
        lower(item)
        seen = str(error)
    pytest.fail(f"{why}\nseen: {seen}", pytrace=False)


def _allowed(item: pytest.Item, message: str) -> str:
    """Return why ``item`` may fail with ``message``, or nothing where it may not."""
    entries = item.stash.get(_ALLOWED, [])
    return next((str(one) for one in entries if any(fnmatchcase(message, glob) for glob in one.allow)), "")


@cache
def read(path: Path) -> tuple[Entry, ...]:
    """Return a table's entries, none where there is no file; :class:`pytest.UsageError` where it is wrong."""
    if not path.is_file():
        return ()
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise pytest.UsageError(f"{path}: {error}") from None
    if path.name == KNOWN and not any("implementation" in one for one in said.get("issue", ())):
        return ()  # a wire suite's, which its conftest.py reads: it asks the target what it is
    kind = "issue" if path.name == KNOWN else "expect"
    if set(said) != {kind} or not isinstance(said[kind], list):
        raise pytest.UsageError(f"{path}: it holds [[{kind}]] tables and nothing else")
    return tuple(_entry(path, number, one) for number, one in enumerate(said[kind], start=1))


def _entry(path: Path, number: int, said: Mapping[str, Any]) -> Entry:
    place = f"{path}: entry {number}"
    if path.name == KNOWN:
        fields = {"implementation": str, "cases": list, "reason": str, "says": str}
        where = {**said.get("where", {}), "implementation": said.get("implementation")}
    else:
        fields = {"cases": list, "where": dict, "reason": str, "reference": str}
        where = dict(said.get("where", {}))
    lacking = [
        name for name, kind in fields.items() if not isinstance(said.get(name), kind) or not said[name]
    ]
    more = {"where", "strict"} if path.name == KNOWN else {"where", "skip", "allow"}
    strange = sorted(set(said) - set(fields) - more)
    if lacking or strange:
        raise pytest.UsageError(
            f"{place}: it lacks {', '.join(lacking) or 'nothing'}; unknown: {', '.join(strange) or 'nothing'}"
        )
    odd = sorted(set(where) - _names())
    if odd:
        raise pytest.UsageError(f"{place}: where: no protocol has an option {', '.join(odd)}")
    skip, allow = bool(said.get("skip")), tuple(said.get("allow", ()))
    if path.name != KNOWN and skip is bool(allow):
        raise pytest.UsageError(f"{place}: it says either skip = true or allow = [globs of what is seen]")
    reference = said["says"] if path.name == KNOWN else said["reference"]
    strict = bool(said.get("strict", True))
    return Entry(tuple(said["cases"]), where, said["reason"], reference, skip, allow, strict)


def _names() -> set[str]:
    """Return what ``where`` may ask for."""
    return {name for each in protocols.all().values() for name in each.Options.model_fields} | {*_OF_VARIANT}


def _holds(variant: Variant, name: str, wanted: object) -> bool:
    got = getattr(variant if name in _OF_VARIANT else variant.options, name, None)
    return any(got == each for each in (wanted if isinstance(wanted, list) else [wanted]))
