"""Why a case did not pass, as Allure groups it: four sorts, told apart by status, verdict and message.

One table for both of Allure's ways: ``categories.json`` beside the results (any Allure, matches messages) and
our own generator's configuration (matches the verdict's label, which no wording can break).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["CATEGORIES", "VERDICT_LABEL", "Category", "categories_json"]

VERDICT_LABEL = "verdict"
"""The label that carries the worst outcome of a case's gates."""


@dataclass(frozen=True, slots=True)
class Category:
    """One sort: Allure's ``status``, and the verdict or the message that tells it from others of that status.

    ``message`` is a regular expression in the common subset of Java's and JavaScript's, over the whole
    message.
    """

    name: str
    status: str
    verdict: str | None = None
    message: str | None = None


_INVALID = r"(?:[\w.]+: )?INVALID:"  # the exception's name may stand before it

CATEGORIES: Sequence[Category] = (
    Category("Inconclusive", "failed", "INVALID", rf"^{_INVALID}[\s\S]*$"),
    Category("Too slow", "failed", "FAIL", rf"^(?!{_INVALID})[\s\S]*: asked [<>]=[\s\S]*$"),
    Category("Broken promise", "failed"),
    Category("Infrastructure", "broken"),
)
"""In the order in which they are tried: the first that matches a case has it."""


def categories_json() -> list[Mapping[str, Any]]:
    """Return the content of ``categories.json``; Allure 2 files a case under each one that matches."""
    return [_compatible(category) for category in CATEGORIES]


def _compatible(category: Category) -> Mapping[str, Any]:
    entry: dict[str, Any] = {"name": category.name, "matchedStatuses": [category.status]}
    if category.message is not None:
        entry["messageRegex"] = category.message
    elif category.status == "failed":
        others = "|".join(
            str(other.message).removeprefix("^").removesuffix("$") for other in CATEGORIES if other.message
        )
        entry["messageRegex"] = rf"^(?!(?:{others})$)[\s\S]*$"
    return entry
