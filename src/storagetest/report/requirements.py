"""Requirements of the standards: which of them a conformance case holds.

A suite has one table for each standard, ``suites/conformance/SUITE/requirements/NAME.toml``:

    standard = "RFC 7143"
    title = "Internet Small Computer System Interface (iSCSI) Protocol (Consolidated)"

    requirements = [
        { section = "4.2.2.1", level = "MUST", text = "the statement in one line", cases = ["ISC-CMD-01"] },
        { section = "4.2.2.1", level = "MUST", text = "…", untestable = "why no test can see it" },
        { section = "4.2.5", level = "SHOULD", text = "…" },
    ]

A requirement with ``cases`` is *held*: a target that breaks it fails one of them at least. One without
``cases`` and without ``untestable`` is *open*: no case checks it yet. The level is MUST, SHOULD or MAY.

The ids of the cases are those that pytest collects (:func:`collect_case_ids`).
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storagetest.errors import ResultError
from storagetest.report.coverage import CaseOutcome, CaseRecord, Level

if TYPE_CHECKING:
    import pytest

DIRECTORY = "requirements"
"""Name of the directory of tables in a suite's directory."""

_TABLE_KEYS = {"standard", "title", "requirements"}
_KEYS = {"section", "level", "text", "cases", "untestable"}
_NOT_CHECKED = {CaseOutcome.SKIPPED, CaseOutcome.INVALID, CaseOutcome.ERROR}
_TARGETS = """\
version: 1
clients: {collection: {transport: local}}
targets: {none: {protocol: local, path: /var/tmp, clients: [collection]}}
"""


class State(Enum):
    """State of a requirement."""

    HELD = "held"
    UNTESTABLE = "untestable"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One normative statement about the target, paraphrased in ``text``."""

    section: str
    level: Level
    text: str
    cases: tuple[str, ...] = ()
    untestable: str = ""

    @property
    def state(self) -> State:
        """Whether a case holds the requirement, none can, or none does yet."""
        if self.cases:
            return State.HELD
        return State.UNTESTABLE if self.untestable else State.OPEN


@dataclass(frozen=True, slots=True)
class Standard:
    """The requirements of one standard that one suite is about, read from the table at ``path``."""

    name: str
    title: str
    requirements: Sequence[Requirement]
    path: Path

    @property
    def suite(self) -> Path:
        """The directory of the suite that the table belongs to."""
        return self.path.parent.parent


@dataclass(frozen=True, slots=True)
class Share:
    """Requirements of one standard and level, by state; ``checked`` counts the held ones with an outcome."""

    standard: str
    level: Level
    counts: Mapping[State, int]
    checked: int

    @property
    def total(self) -> int:
        """The number of requirements."""
        return sum(self.counts.values())


def read_all(suites: Path) -> list[Standard]:
    """Read every table below ``suites``, sorted by path. Raises :class:`ResultError`, also without any."""
    tables = [read(path) for path in sorted(suites.rglob(f"{DIRECTORY}/*.toml"))]
    if not tables:
        raise ResultError(f"{suites}: no {DIRECTORY}/*.toml below it. Name the directory of the suites.")
    return tables


def read(path: Path) -> Standard:
    """Read one table. Raises :class:`ResultError`, which names every invalid entry."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ResultError(f"{path}: {error}") from None
    problems = _unexpected(document, _TABLE_KEYS, _TABLE_KEYS)
    entries = document.get("requirements", [])
    if not isinstance(entries, list) or not entries:
        problems.append("requirements: expected a list of tables")
        entries = []
    requirements = []
    for number, entry in enumerate(entries, start=1):
        wrong = _problems(entry)
        problems += [f"requirement {number}: {problem}" for problem in wrong]
        if not wrong:
            values = {**entry, "level": Level(entry["level"]), "cases": tuple(entry.get("cases", ()))}
            requirements.append(Requirement(**values))
    if problems:
        raise ResultError("\n".join(f"{path}: {problem}" for problem in problems))
    return Standard(document["standard"], document["title"], tuple(requirements), path)


def _problems(entry: object) -> list[str]:
    """Return what is wrong with one entry of the list, one sentence each."""
    if not isinstance(entry, dict):
        return [f"expected a table, not {entry!r}"]
    problems = _unexpected(entry, _KEYS, {"section", "level", "text"})
    if entry.get("level") not in {None, *(level.value for level in Level)}:
        problems.append(f"level: expected MUST, SHOULD or MAY, not {entry['level']!r}")
    cases = entry.get("cases", ["-"])
    if not isinstance(cases, list) or not cases or not all(isinstance(case, str) and case for case in cases):
        problems.append(f"cases: expected a list of case ids, not {cases!r}")
    elif len(set(cases)) < len(cases):
        problems.append(f"cases: an id is listed twice: {', '.join(cases)}")
    if "cases" in entry and "untestable" in entry:
        problems.append("has both cases and untestable; remove one of them")
    return problems


def _unexpected(table: Mapping[str, Any], known: Collection[str], required: Iterable[str]) -> list[str]:
    """Return a sentence for each unknown or missing key, and for each text that is not one."""
    problems = [
        f"unknown key {key!r}; expected {', '.join(sorted(known))}" for key in sorted(set(table) - set(known))
    ]
    problems += [f"has no {key!r}" for key in sorted(set(required) - set(table))]
    texts = set(known) & set(table) - {"cases", "requirements"}
    return problems + [
        f"{key}: expected a text, not {table[key]!r}"
        for key in sorted(texts)
        if not isinstance(table[key], str) or not table[key].strip()
    ]


def unknown_cases(tables: Iterable[Standard], known: Collection[str]) -> list[str]:
    """Return a sentence for each id in ``tables`` that is not in ``known``."""
    return [
        f"{table.path}: {table.name} {requirement.section}: no case has the id {case!r}"
        for table in tables
        for requirement in table.requirements
        for case in requirement.cases
        if case not in known
    ]


def unused_cases(tables: Iterable[Standard], known: Iterable[str]) -> list[str]:
    """Return the ids in ``known`` that hold no requirement of any table."""
    used = {case for table in tables for each in table.requirements for case in each.cases}
    return sorted(set(known) - used)


def shares(tables: Iterable[Standard], records: Iterable[CaseRecord] = ()) -> list[Share]:
    """Count the requirements of each standard by level. ``records`` are the cases that have run."""
    checked = {record.id for record in records if record.outcome not in _NOT_CHECKED}
    result = []
    for table in tables:
        for level in Level:
            own = [each for each in table.requirements if each.level is level]
            counts = {state: sum(each.state is state for each in own) for state in State}
            held = sum(not checked.isdisjoint(each.cases) for each in own)
            result += [Share(table.name, level, counts, held)] if own else []
    return result


class _Ids:
    """A pytest plugin that notes the id of each collected case, also of those that are deselected."""

    def __init__(self) -> None:
        self.ids: set[str] = set()

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Note the id of ``item``: of its parameters, or else of the nearest mark that has one."""
        callspec = getattr(item, "callspec", None)
        marks = [*(callspec.marks if callspec else ()), *item.iter_markers("case")]
        self.ids.update([str(mark.args[0]) for mark in marks if mark.name == "case" and mark.args][:1])


def collect_case_ids(suites: Iterable[Path]) -> set[str]:
    """Return the ids of all cases of the directories ``suites``; nothing is run or contacted.

    Raises :class:`ResultError` with the end of pytest's output if it cannot collect them.
    """
    import pytest  # noqa: PLC0415  # slow to import, and other reports do without

    ids, output = _Ids(), io.StringIO()
    directories = list(map(str, suites))
    argv = ["--collect-only", "-q", "-n0", "-p", "no:cacheprovider", "--import-mode=importlib", "--color=no"]
    with tempfile.TemporaryDirectory(prefix="storagetest-") as work:
        targets, settings = Path(work, "targets.yaml"), Path(work, "pytest.ini")
        targets.write_text(_TARGETS, encoding="utf-8")  # of the project's targets there may be many or none
        settings.write_text("[pytest]\n", encoding="utf-8")
        # Outside of pytest's root directory the fixtures of all suites would override each other.
        argv += ["-W", "ignore", "-c", str(settings), "--rootdir", os.sep, "--st-targets", str(targets)]
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = pytest.main([*argv, *directories], plugins=[ids])
    if status != pytest.ExitCode.OK or not ids.ids:
        tail = "\n".join(output.getvalue().strip().splitlines()[-8:])
        raise ResultError(f"pytest could not collect {', '.join(directories)}:\n{tail}")
    return ids.ids
