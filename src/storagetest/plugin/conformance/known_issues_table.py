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

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from storagetest.config import toml_source
from storagetest.config.known_issues import (
    SECTION,
    KnownIssue,
    KnownIssueFields,
    SuiteIssueEntry,
    read_known_issue,
)
from storagetest.config.validation import ValidationErrors, suggest
from storagetest.config.yaml_source import YamlNode
from storagetest.errors import ConfigError

TABLE = "known_issues.toml"
SHARED = ("owner", "expires")
"""Keys of a file that apply to all its entries."""

_OLD_FILES = ("known.toml", "expectations.toml")


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
    problems = ValidationErrors()
    try:
        root = toml_source.read(path)
        issues = read_table_issues(root, SuiteIssueEntry, problems)
        known = (SECTION, *SHARED)
        for name, node in (root.mapping or {}).items():
            if name not in known:
                problems.add(node.key_place, f"{name}: no such key{suggest(name, known)}")
        problems.raise_any()
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from None
    return issues


def read_table_issues(
    root: YamlNode, model: type[KnownIssueFields], problems: ValidationErrors, *, alias: str = ""
) -> tuple[KnownIssue, ...]:
    """Return the known issues of a file; problems are added. ``alias`` is another name of ``cases``."""
    document = root.mapping or {}
    shared = {name: document[name] for name in SHARED if name in document}
    section = document.get(SECTION)
    if section is None:
        return ()
    if section.items is None or any(node.mapping is None for node in section.items):
        problems.add(section.key_place, f"{SECTION}: expected [[{SECTION}]], a table for each entry")
        return ()
    issues = []
    for node in section.items:
        entry = {**shared, **(node.mapping or {})}
        if alias in entry:
            if "cases" in entry:
                problems.add(
                    entry[alias].key_place,
                    f"{alias} is another name of cases, which is also set. Remove {alias}.",
                )
            entry["cases"] = entry.pop(alias)
        issue = read_known_issue(model, replace(node, mapping=entry), SECTION, problems)
        issues += [issue] if issue else []
    return tuple(issues)
