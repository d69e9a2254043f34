"""Allure's categories of cases that did not pass: by status, verdict and message.

One table for both formats: ``categories.json`` next to the results (any Allure, matches messages) and
our own generator's configuration (matches the verdict's label, which no wording can break). A case that
missed an absolute gate is too slow, regardless of its baseline; a regression has missed nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storagetest.report.base import Record, Status
from storagetest.verdict.base import BASELINE, Outcome

VERDICT_LABEL = "verdict"
"""The label with the worst outcome of a case's gates: the result of :func:`verdict_word`."""

FIXED = "FIXED"
"""The label's value if a case with a known issue passes; Allure has no message for such a case."""

_REGRESSION = "REGRESSION"


@dataclass(frozen=True, slots=True)
class Category:
    """A category: Allure's ``status``, and the verdict or message that distinguishes it within that status.

    ``message`` is a regular expression in the common subset of Java's and JavaScript's, over the whole
    message.
    """

    name: str
    status: str
    verdict: str | None = None
    message: str | None = None


_INVALID = r"(?:[\w.]+: )?INVALID:"  # the exception's name may come first
_ABSOLUTE = r": required [<>]= (?!baseline )"
_FIXED = r"(?:[\w.]+: )?(?:\[XPASS\(strict\)\]|the case passes: remove )"

CATEGORIES: Sequence[Category] = (
    Category("Inconclusive", "failed", "INVALID", rf"^{_INVALID}[\s\S]*$"),
    Category("Too slow", "failed", "FAIL", rf"^(?!{_INVALID})[\s\S]*{_ABSOLUTE}[\s\S]*$"),
    Category(
        "Regression",
        "failed",
        _REGRESSION,
        rf"^(?!{_INVALID})(?![\s\S]*{_ABSOLUTE})[\s\S]*: required [<>]= baseline [\s\S]*$",
    ),
    Category("Known issue that passes", "failed", FIXED, rf"^{_FIXED}[\s\S]*$"),
    Category("Broken promise", "failed"),
    Category("Infrastructure", "broken"),
    Category("Known issue", "skipped", message=r"^XFAIL[\s\S]*$"),
)
"""In matching order: a case belongs to the first category that matches."""


def verdict_word(records: Iterable[Record]) -> str:
    """Return the worst outcome of the gates (REGRESSION is FAIL against a baseline); "" without a gate."""
    judged = [record for record in records if record.verdicts or record.status is Status.INVALID]
    verdicts = [verdict for record in judged for verdict in record.verdicts]
    missed = [verdict for verdict in verdicts if verdict.outcome is Outcome.FAIL]
    if any(verdict.threshold.against != BASELINE for verdict in missed):
        return Outcome.FAIL.value
    if missed:
        return _REGRESSION
    if any(record.status is Status.INVALID for record in judged):
        return Outcome.INVALID.value
    if any(verdict.outcome is Outcome.LEARNING for verdict in verdicts):
        return Outcome.LEARNING.value
    return Outcome.PASS.value if judged else ""


def categories_json() -> list[Mapping[str, Any]]:
    """Return the content of ``categories.json``; Allure 2 files a case under each one that matches."""
    return [_compatible(category) for category in CATEGORIES]


def _compatible(category: Category) -> Mapping[str, Any]:
    entry: dict[str, Any] = {"name": category.name, "matchedStatuses": [category.status]}
    if category.message is not None:
        entry["messageRegex"] = category.message
    elif category.status == "failed":
        others = "|".join(
            str(other.message).removeprefix("^").removesuffix("$")
            for other in CATEGORIES
            if other.message and other.status == category.status
        )
        entry["messageRegex"] = rf"^(?!(?:{others})$)[\s\S]*$"
    return entry
