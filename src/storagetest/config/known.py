"""``known_issues``: what a target is known to do wrong, until when that is put up with, and by whom.

    known_issues:
      - cases: [PSX-UTIME-ROUND, "PSX-ACL-*"]
        variants: ["nas-v3*"]
        reason: times are kept to the second
        owner: storage team
        expires: 2027-03-31
        reference: https://bugs.example.com/1234

or ``known_issues: FILE``, a YAML file that holds such a list. Rules:

1. Cases and variants are globs (fnmatch(3)); a variant is named by its id or by its target's name. A glob
   that matches no variant is an error here; one that matches no case is found when cases are collected.
2. An entry holds through the day on which it expires, by the calendar of the machine that runs pytest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from storagetest.config.base import Items, Model, Origin, Text
from storagetest.config.models import Variant
from storagetest.config.validation import ValidationErrors, suggest
from storagetest.config.yaml_source import Node, read
from storagetest.errors import ConfigError

__all__ = ["KnownIssue", "KnownIssueEntry", "read_known_issues"]

SECTION = "known_issues"
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def _day(value: object) -> object:
    if isinstance(value, str) and _DAY.fullmatch(value):
        try:
            return date.fromisoformat(value)
        except ValueError as error:
            raise ValueError(f"{value} is no day: {error}") from None
    raise ValueError("a day is wanted, such as 2027-03-31")


Day = Annotated[date, BeforeValidator(_day), WithJsonSchema({"type": "string", "format": "date"})]
Glob = Annotated[str, Field(min_length=1)]


class KnownIssueEntry(Model):
    """A deviation that is expected for a while: its cases are to fail, and one that passes is a failure."""

    cases: Annotated[Items[Glob], Field(min_length=1)]
    """Ids of the cases that fail, or globs of them."""

    variants: Annotated[Items[Glob], Field(min_length=1)] = ("*",)
    """The variants on which they do, by id or by target, or globs of them; all where it is left out."""

    reason: str = Field(min_length=1)
    """What is wrong, in a sentence."""

    owner: str = Field(min_length=1)
    """Who sees to it that it is mended, or that the entry goes."""

    expires: Day
    """The last day on which it is put up with."""

    reference: Annotated[str | None, Field(min_length=1)] = None
    """Where more is said: a bug's number or address."""

    strict: bool = True
    """Whether a case that passes is a failure; false is for one that does not always fail."""


@dataclass(frozen=True, slots=True)
class KnownIssue:
    """An entry. ``cases`` are (glob, its place); ``place`` is the entry's own."""

    cases: tuple[tuple[str, str], ...]
    variants: tuple[str, ...]
    reason: str
    owner: str
    expires: date
    reference: str | None
    strict: bool
    place: str

    def covers(self, case: str, variant: Variant) -> bool:
        """Whether it is about this case on this variant."""
        return _matches_variant(variant, self.variants) and any(
            fnmatchcase(case, glob) for glob, _ in self.cases
        )

    def __str__(self) -> str:
        said = ", ".join(filter(None, (self.owner, self.reference)))
        return f"{self.reason} ({said}; {self.place})"


def read_known_issues(
    section: Node, directory: Path, variants: Sequence[Variant], problems: ValidationErrors
) -> tuple[KnownIssue, ...]:
    """Return what ``known_issues`` says; what is wrong is noted. A file's path starts from ``directory``."""
    if isinstance(section.value, str):
        file = directory / section.value
        if not file.is_file():
            problems.add(section.place, f"{SECTION}: there is no file {file}")
            return ()
        try:
            section = read(file).root
        except ConfigError as error:
            problems.add_error(error, section.place)
            return ()
    found = []
    for index, node in enumerate(problems.items(section, SECTION)):
        where = f"{SECTION}.{index}"
        entry = problems.validate(KnownIssueEntry, _with_day(node, directory), where)
        if entry is None:
            continue
        places = [child.place for child in (node.child("cases") or node).items or ()]
        _check_variants(node, variants, where, problems)
        found.append(
            KnownIssue(
                tuple(zip(entry.cases, places, strict=True)),
                entry.variants,
                entry.reason,
                entry.owner,
                entry.expires,
                entry.reference,
                entry.strict,
                node.place,
            )
        )
    return tuple(found)


def _with_day(node: Node, directory: Path) -> Node:
    """Return an entry whose day is text: YAML reads a plain one as a date, and a quoted one as text."""
    day = node.child("expires")
    if day is None or day.kind != "a date" or node.mapping is None:
        return node
    text = replace(day, value=Text(day.raw, Origin(day.place, directory)), kind="text")
    return replace(node, mapping={**node.mapping, "expires": text})


def _check_variants(node: Node, variants: Sequence[Variant], where: str, problems: ValidationErrors) -> None:
    globs = node.child("variants")
    for child in (globs.items if globs is not None else None) or ():
        if not any(_matches_variant(variant, (child.raw,)) for variant in variants):
            names = {name for variant in variants for name in (variant.id, variant.target)}
            problems.add(
                child.place,
                f"{where}.variants: {child.raw!r} matches no variant{suggest(child.raw, names)}",
            )


def _matches_variant(variant: Variant, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs for name in (variant.id, variant.target))
