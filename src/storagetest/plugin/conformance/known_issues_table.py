"""Known issues in TOML: ``known_issues.toml`` next to a suite, and the entries of ``*.external.toml``.

    owner = "storage team"                    # of each entry without an own one
    expires = 2027-03-31                      # likewise; the last day on which it holds

    [[known_issues]]
    implementation = "knfsd"                  # as the targets file names it, or as the suite identifies it
    versions = ">=6.1,<6.6"
    where = { version = "4.2" }               # optional
    cases = ["PSX-SEEK-03"]
    message = ["* is not *"]                  # globs of the failure's first line
    reason = "the deviation"
    reference = "the section of the standard, and what it requires"
    strict = false                            # optional: it does not always fail
    expires = 2027-01-31                      # instead of the file's

    [[known_issues]]
    cases = ["PSX-CHOWN-*"]
    where = { protocol = "smb", posix = false }
    outcome = "skip"                          # the case is not run; or
    # outcome = "allow"                       # a failure with one of these messages is recorded
    # message = ["*refused by EOPNOTSUPP*"]
    reason = "why the protocol does not promise this"
    reference = "the section that states this"

The keys are those of :mod:`storagetest.config.known_issues`. Rules:

1. The file's ``owner`` and ``expires`` apply to every entry that has none.
2. An invalid file ends the run before it starts, with the line and column of each error.
3. Files, tables and keys of earlier releases are such an error: their entries have no versions.
"""

from __future__ import annotations

import re
import tomllib
from datetime import date
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from storagetest.config.known_issues import (
    SECTION,
    KnownIssue,
    KnownIssueFields,
    SuiteIssueEntry,
    read_known_issue,
)
from storagetest.config.validation import ValidationErrors
from storagetest.config.yaml_source import YamlNode
from storagetest.errors import ConfigError

TABLE = "known_issues.toml"
_SHARED = ("owner", "expires")
_OLD_FILES = ("known.toml", "expectations.toml")
_HEADER = re.compile(rf"^[ \t]*\[\[[ \t]*{SECTION}[ \t]*\]\]", re.MULTILINE)


@cache
def read_suite_table(directory: Path) -> tuple[KnownIssue, ...]:
    """Return the known issues of a suite's directory; :class:`pytest.UsageError` if a file is invalid."""
    for name in _OLD_FILES:
        if (directory / name).is_file():
            raise pytest.UsageError(
                f"{directory / name}: this file is not read any more. Write its entries to {TABLE}, each "
                "with `implementation`, `versions` and `message`: docs/how-to/upgrade.md."
            )
    path = directory / TABLE
    if not path.is_file():
        return ()
    document = read_toml(path)
    issues = take_known_issues(document, path, SuiteIssueEntry)
    if document:
        raise pytest.UsageError(
            f"{path}: unknown: {', '.join(document)}. Expected [[{SECTION}]] tables, owner and expires."
        )
    return issues


def read_toml(path: Path) -> dict[str, Any]:
    """Return a file's document; :class:`pytest.UsageError` if it is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise pytest.UsageError(f"{path}: {error}") from None


def take_known_issues(
    document: dict[str, Any], path: Path, model: type[KnownIssueFields], *, alias: str = ""
) -> tuple[KnownIssue, ...]:
    """Remove the known issues from ``document`` and return them. Raises :class:`pytest.UsageError`.

    ``alias`` is another name of the key ``cases``.
    """
    shared = {name: document.pop(name) for name in _SHARED if name in document}
    entries = document.pop(SECTION, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise pytest.UsageError(f"{path}: {SECTION}: expected [[{SECTION}]], a table for each entry")
    problems, issues = ValidationErrors(), []
    for entry, places in zip(entries, _places(path, len(entries)), strict=True):
        current = {**shared, **entry}
        if alias and alias in entry:
            if "cases" in entry:
                problems.add(
                    places[alias], f"{alias} is another name of cases, which is also set. Remove {alias}."
                )
            current["cases"] = current.pop(alias)
            places["cases"] = places.get(alias, places[""])
        issue = read_known_issue(model, _node(current, places), SECTION, problems)
        issues += [issue] if issue else []
    try:
        problems.raise_any()
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None
    return tuple(issues)


def _places(path: Path, count: int) -> list[dict[str, str]]:
    """Return the position of each entry, under "", and of its keys: tomllib reports none.

    Only the file is named if its tables are written in another form than ``[[known_issues]]``.
    """
    text = path.read_text(encoding="utf-8")
    headers = [match.start() for match in _HEADER.finditer(text)]
    if len(headers) != count:
        return [{"": str(path)} for _ in range(count)]
    places = []
    for start, end in pairwise([*headers, len(text)]):
        keys = re.finditer(r"^[ \t]*([\w-]+)[ \t]*=", text[start:end], re.MULTILINE)
        places.append({"": _position(path, text, start)})
        for match in keys:
            places[-1].setdefault(match[1], _position(path, text, start + match.start(1)))
    return places


def _position(path: Path, text: str, offset: int) -> str:
    line_start = text.rfind("\n", 0, offset) + 1
    return f"{path}:{text.count(chr(10), 0, offset) + 1}:{offset - line_start + 1}"


def _node(entry: dict[str, Any], places: dict[str, str]) -> YamlNode:
    """Return an entry as a node of the YAML reader."""
    place = places[""]
    mapping = {name: _value(value, places.get(name, place)) for name, value in entry.items()}
    return YamlNode(place, place, kind="a mapping", mapping=mapping)


def _value(value: object, place: str) -> YamlNode:
    """Return a value of TOML as a node; every node within it has the position of its key."""
    if isinstance(value, dict):
        mapping = {name: _value(child, place) for name, child in value.items()}
        return YamlNode(place, place, kind="a mapping", mapping=mapping)
    if isinstance(value, list):
        return YamlNode(place, place, kind="a list", items=tuple(_value(child, place) for child in value))
    if isinstance(value, date):  # also a date with a time, whose text is then refused
        return YamlNode(place, place, value, raw=value.isoformat(), kind="a date")
    kind = "a boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "a number"
    return YamlNode(place, place, value, raw=str(value), kind=kind)
