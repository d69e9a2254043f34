"""Known issues in TOML: ``known_issues.toml`` next to a suite, and the entries of ``*.external.toml``.

    owner = "storage team"                    # of each expected failure without an own one
    expires = 2027-03-31                      # likewise; the last day on which it holds

    [[known_issues]]
    implementation = "knfsd"
    where = { version = "4.2" }               # optional
    cases = ["PSX-SEEK-03"]
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

1. The file's ``owner`` and ``expires`` apply to expected failures only; other entries do not expire.
2. An invalid file ends the run before it starts, with its path and the number of the entry.
3. The files, tables and keys of earlier releases are read for one more release, with a warning.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import date
from functools import cache
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
from storagetest.deprecation import warn_renamed
from storagetest.errors import ConfigError

TABLE = "known_issues.toml"
_SHARED = ("owner", "expires")
_OLD_FILES = {"known.toml": "issue", "expectations.toml": "expect"}
_OLD_KEYS = {"says": "reference", "skip": "outcome", "allow": "message"}
_SKIPS = {"skip": True, "run": False}
"""Old keys that are now ``outcome = "skip"``, and the value that means it."""


@cache
def read_suite_table(directory: Path) -> tuple[KnownIssue, ...]:
    """Return the known issues of a suite's directory; :class:`pytest.UsageError` if a file is invalid."""
    issues: list[KnownIssue] = []
    for name, old in {TABLE: "", **_OLD_FILES}.items():
        path = directory / name
        if not path.is_file():
            continue
        if old:
            warn_renamed("file", name, TABLE, str(directory))
        document = read_toml(path)
        issues += take_known_issues(document, path, SuiteIssueEntry, old=old, other_keys=_OLD_KEYS)
        if document:
            raise pytest.UsageError(
                f"{path}: unknown: {', '.join(document)}. "
                f"Expected [[{old or SECTION}]] tables, owner and expires."
            )
    return tuple(issues)


def read_toml(path: Path) -> dict[str, Any]:
    """Return a file's document; :class:`pytest.UsageError` if it is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise pytest.UsageError(f"{path}: {error}") from None


def take_known_issues(
    document: dict[str, Any],
    path: Path,
    model: type[KnownIssueFields],
    *,
    old: str,
    other_keys: Mapping[str, str],
    old_shared: Mapping[str, Any] | None = None,
) -> tuple[KnownIssue, ...]:
    """Remove the known issues from ``document`` and return them. Raises :class:`pytest.UsageError`.

    ``old`` is an earlier name of the table, with ``old_shared`` for its optional keys;
    ``other_keys`` maps earlier names of keys, and ``tests``, to current names.
    """
    shared = {name: document.pop(name) for name in _SHARED if name in document}
    if old in document:
        warn_renamed("table", f"[[{old}]]", f"[[{SECTION}]]", str(path))
    problems, used, issues = ValidationErrors(), set[str](), []
    for section, defaults in ((SECTION, shared), (old, {**(old_shared or {}), **shared})):
        entries = document.pop(section, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise pytest.UsageError(f"{path}: {section}: expected [[{section}]], a table for each entry")
        for number, entry in enumerate(entries, start=1):
            place = f"{path.parent.name}/{path.name}: entry {number}"
            current = _with_new_keys(entry, other_keys, place, problems)
            used |= set(entry) & set(other_keys) - {"tests"}
            if current.get("outcome", "fail") == "fail":
                current = {**defaults, **current}
            issue = read_known_issue(model, _node(current, place), SECTION, problems)
            issues += [issue] if issue else []
    for name in sorted(used):
        warn_renamed("key", name, _replacement(name, other_keys[name]), str(path))
    try:
        problems.raise_any()
    except ConfigError as error:
        raise pytest.UsageError(f"{path} is invalid:\n{error}") from None
    return tuple(issues)


def _with_new_keys(
    entry: Mapping[str, Any], other_keys: Mapping[str, str], place: str, problems: ValidationErrors
) -> dict[str, Any]:
    """Return the entry with keys of earlier releases, and ``tests``, replaced by current names."""
    current = dict(entry)
    for old, new in other_keys.items():
        if old not in entry:
            continue
        value = current.pop(old)
        if old in _SKIPS:
            if not isinstance(value, bool):
                problems.add(place, f"{old}: expected true or false")
            elif value is _SKIPS[old]:
                current["outcome"] = "skip"
            continue
        if new in current:
            problems.add(place, f"{old} is another name of {new}, which is also set. Remove {old}.")
        current[new] = value
        if old == "allow":
            current.setdefault("outcome", "allow")
    return current


def _replacement(old: str, new: str) -> str:
    if old in _SKIPS:
        return 'outcome = "skip"'
    return 'outcome = "allow" with message' if old == "allow" else new


def _node(value: object, place: str) -> YamlNode:
    """Return a value of TOML as a node of the YAML reader; every node has the entry's position."""
    if isinstance(value, dict):
        mapping = {name: _node(child, place) for name, child in value.items()}
        return YamlNode(place, place, kind="a mapping", mapping=mapping)
    if isinstance(value, list):
        return YamlNode(place, place, kind="a list", items=tuple(_node(child, place) for child in value))
    if isinstance(value, date):  # also a date with a time, whose text is then refused
        return YamlNode(place, place, value, raw=value.isoformat(), kind="a date")
    kind = "a boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "a number"
    return YamlNode(place, place, value, raw=str(value), kind=kind)
