"""Data of the page: the records and cases that its sections show."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from markupsafe import Markup

from storagetest.measure.run import Run
from storagetest.report.base import Record, Status
from storagetest.report.baseline import CaseKey, key_of
from storagetest.report.compare import Row
from storagetest.report.coverage import CaseRecord
from storagetest.report.metric_values import MetricValue, case_text, metric_values, parameter_text

_Item = TypeVar("_Item")
_Key = TypeVar("_Key")

STATUS_WORDS: Mapping[Status, str] = {
    Status.PASSED: "pass",
    Status.LEARNING: "LEARNING",
    Status.FAILED: "fail",
    Status.INVALID: "INVALID",
    Status.ERROR: "error",
    Status.SKIPPED: "skip",
}


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: its anchor, its heading, and its HTML.

    ``empty``: the results have nothing for it; its text states what would fill it.
    """

    id: str
    title: str
    body: Markup
    empty: bool = False


@dataclass(frozen=True, slots=True)
class PageData:
    """``records`` are the latest of each case, by target and variant; ``sessions`` all of them, by case.

    ``rows`` are the comparisons with ``baseline`` (its name; empty: none was given). ``sources`` are the
    files that were read. ``allure`` is the address of Allure's report of the same run ("": none).
    """

    records: Sequence[Record]
    sessions: Mapping[CaseKey, Sequence[Record]] = field(default_factory=dict)
    cases: Sequence[CaseRecord] = ()
    rows: Sequence[Row] = ()
    baseline: str = ""
    sources: Sequence[str] = ()
    allure: str = ""
    _values: dict[int, Mapping[str, MetricValue]] = field(default_factory=dict)

    def values(self, record: Record) -> Mapping[str, MetricValue]:
        """Return the record's metric values; they are cached, because several sections show them."""
        if id(record) not in self._values:
            self._values[id(record)] = metric_values(record)
        return self._values[id(record)]


def build_page_data(
    records: Iterable[Record],
    *,
    cases: Sequence[CaseRecord] = (),
    rows: Sequence[Row] = (),
    baseline: str = "",
    sources: Sequence[str] = (),
    allure: str = "",
) -> PageData:
    """Return the records sorted for the page, the latest of each case apart."""
    ordered = sorted(records, key=lambda record: record.run.started)
    sessions = group(ordered, lambda record: key_of(record.run))
    latest = [records[-1] for records in sessions.values()]
    latest.sort(key=lambda each: (each.run.protocol, each.run.target, each.run.variant, each.run.workload))
    return PageData(latest, sessions, cases, rows, baseline, sources, allure)


def group(items: Iterable[_Item], by: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """Return the items by the key that ``by`` returns of each, in their order."""
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(by(item), []).append(item)
    return groups


def case_anchor(record: Record) -> str:
    """Return the anchor of a case: the same in every page of the same case."""
    fields = repr(key_of(record.run)).partition("(")[2]  # without the class's name, which may change
    return "c" + hashlib.sha256(fields.encode()).hexdigest()[:12]


def has_no_gate(record: Record) -> bool:
    """Whether the case was measured, and nothing was required of it: that is no pass."""
    return record.status is Status.PASSED and not record.verdicts


def status_word(record: Record) -> str:
    """Return the word for the outcome of a measured case."""
    return "no gate" if has_no_gate(record) else STATUS_WORDS[record.status]


def case_title(run: Run) -> str:
    """Return the case with its client and profile."""
    return f"{case_text(run)}, {run.client}, {run.profile}"


def format_parameters(parameters: Mapping[str, object]) -> str:
    """Return parameters as ``name=value, …``, without those left to their defaults (None)."""
    return ", ".join(
        f"{name}={parameter_text(name, value)}" for name, value in parameters.items() if value is not None
    )


def plural(count: int, word: str) -> str:
    """Return ``1 case`` or ``1,200 cases``."""
    return f"{count:,} {word}{'s' * (count != 1)}"
