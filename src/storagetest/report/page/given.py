"""What the page is made of, and what its sections are."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from storagetest.measure.run import Run
from storagetest.report.base import Record, Status
from storagetest.report.baseline import Key, key_of
from storagetest.report.compare import Row
from storagetest.report.coverage import CaseRecord
from storagetest.report.figures import Figure, figures, parameter_text

__all__ = [
    "WORDS",
    "Given",
    "Section",
    "asked",
    "case_of",
    "escaped",
    "given",
    "group",
    "identity",
    "table",
    "wide",
]

WORDS: Mapping[Status, str] = {
    Status.PASSED: "pass",
    Status.FAILED: "fail",
    Status.INVALID: "INVALID",
    Status.ERROR: "error",
    Status.SKIPPED: "skip",
}


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: its anchor, its heading, and its HTML."""

    id: str
    title: str
    body: str


@dataclass(frozen=True, slots=True)
class Given:
    """``records`` are the latest of each case, by target and variant; ``sessions`` all of them, by case.

    ``rows`` are the comparisons with ``baseline`` (its name; empty: none was given). ``sources`` are the
    files that were read.
    """

    records: Sequence[Record]
    sessions: Mapping[Key, Sequence[Record]] = field(default_factory=dict)
    cases: Sequence[CaseRecord] = ()
    rows: Sequence[Row] = ()
    baseline: str = ""
    sources: Sequence[str] = ()
    _shown: dict[int, Mapping[str, Figure]] = field(default_factory=dict)

    def figures(self, record: Record) -> Mapping[str, Figure]:
        """Return the record's figures; several sections show them, and percentiles take their time."""
        if id(record) not in self._shown:
            self._shown[id(record)] = figures(record)
        return self._shown[id(record)]

    @property
    def variants(self) -> list[str]:
        """The variants, those of one target side by side."""
        return list(dict.fromkeys(record.run.variant for record in self.records))


def given(
    records: Iterable[Record],
    *,
    cases: Sequence[CaseRecord] = (),
    rows: Sequence[Row] = (),
    baseline: str = "",
    sources: Sequence[str] = (),
) -> Given:
    """Return the records as the page wants them."""
    sessions: dict[Key, list[Record]] = {}
    for record in sorted(records, key=lambda one: one.run.started):
        sessions.setdefault(key_of(record.run), []).append(record)
    latest = [each[-1] for each in sessions.values()]
    latest.sort(key=lambda one: (one.run.protocol, one.run.target, one.run.variant, one.run.workload))
    return Given(latest, sessions, cases, rows, baseline, sources)


def group(
    records: Iterable[Record], by: Callable[[Record], tuple[str, ...]]
) -> dict[tuple[str, ...], list[Record]]:
    """Return the records by what ``by`` says of them, in their order."""
    found: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        found.setdefault(by(record), []).append(record)
    return found


def identity(record: Record) -> str:
    """Return the anchor of a case: the same in every page of the same case."""
    return "c" + hashlib.sha256(repr(key_of(record.run)).encode()).hexdigest()[:12]


def asked(parameters: Mapping[str, object]) -> str:
    """Return parameters as a person writes them, without those left to their defaults (None)."""
    return ", ".join(
        f"{name}={parameter_text(name, value)}" for name, value in parameters.items() if value is not None
    )


def escaped(text: object) -> str:
    """Return the text for HTML, in an attribute too."""
    return html.escape(str(text))


def wide(inner: str, label: str) -> str:
    """Return a box that scrolls sideways by itself, with the keyboard as well, and says what it holds."""
    return f'<div class="wide" role="region" tabindex="0" aria-label="{escaped(label)}">{inner}</div>'


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str, numbers: Iterable[int] = ()
) -> str:
    """Return a table of ready HTML cells, each row's first its heading; ``numbers``: columns of numbers."""
    right = set(numbers)
    kind = {index: ' class="n"' if index in right else "" for index in range(len(heads))}
    head = "".join(f'<th scope="col"{kind[index]}>{text}</th>' for index, text in enumerate(heads))
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>'
        + "".join(f"<td{kind.get(index, '')}>{text}</td>" for index, text in enumerate(row[1:], start=1))
        + "</tr>"
        for row in rows
    )
    head = f"<caption>{escaped(caption)}</caption><thead><tr>{head}</tr></thead>"
    return wide(f"<table>{head}<tbody>{body}</tbody></table>", caption)


def case_of(run: Run) -> str:
    """Return what was asked in one line; runs of the same on other targets have the same."""
    return run.title or run.workload
