"""Known issues: deviations of targets, protocols and clients that a run expects, skips or allows.

One entry has the same keys wherever it is written: under ``known_issues`` in targets.yaml, in
``known_issues.toml`` of a suite, and in ``*.external.toml`` of an external suite::

    known_issues:
      - cases: [PSX-UTIME-ROUND, "PSX-ACL-*"]
        implementation: acme-nas
        versions: ">=9.1,<9.3"
        message: ["* == 1234567890000000000"]
        variants: ["nas-v3*"]
        reason: times are kept to the second
        owner: storage team
        expires: 2027-03-31
        reference: https://bugs.example.com/1234

An entry with ``faults`` in place of ``cases`` is about a rule that is judged on every reply that a case
receives (``storagetest.plugin.conformance.repeated_faults``); it names the sentences of such rules::

      - faults: ["MS-SMB2 3.3.5.12: READ: it returns more than was asked for"]
        implementation: acme-nas
        versions: ">=9.1,<9.3"
        reason: a READ returns whole blocks
        owner: storage team
        expires: 2027-03-31

In targets.yaml the section may also be the path of a YAML file with such a list. Rules:

1. Cases, variants and messages are globs (fnmatch(3)). A variant is named by its id or by its target's name.
   In targets.yaml a glob that matches no variant is an error here, and one that matches no case is an error
   when cases are collected.
2. An entry is about a case if all that it names fits: variants, ``where``, implementation and version. The
   implementation is the target's ``implementation`` in targets.yaml, or what a suite reads from the target.
   If the version is not known, an entry with ``versions`` is not about the case.
3. An expected failure names implementation, versions and message. Any other entry has ``versions`` or a last
   day; one about all cases has a last day.
4. An entry has either cases or faults. One with faults names implementation and versions, and has no
   outcome: what it names is no fault of any case, and all else about each case is as without the entry. A
   sentence is no glob, so that an entry covers no other rule.
5. An entry holds through its last day, in the local time of the machine that runs pytest. Its last day is
   at most a year ahead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from storagetest.config.base import Items, Model
from storagetest.config.implementations import Implementation, VersionRange
from storagetest.config.models import Variant
from storagetest.config.validation import ValidationErrors, suggest
from storagetest.config.variant_filter import matches, matches_name, unknown_names
from storagetest.config.yaml_source import YamlNode, read
from storagetest.errors import ConfigError

SECTION = "known_issues"
_REMOVED = ("vendor", "controller")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def _day(value: object) -> object:
    if isinstance(value, str) and _DAY.fullmatch(value):
        try:
            return date.fromisoformat(value)
        except ValueError as error:
            raise ValueError(f"{value} is not a date: {error}") from None
    raise ValueError("expected a date, such as 2027-03-31")


def _today() -> date:
    return datetime.now().astimezone().date()


def _range(value: object) -> object:
    if isinstance(value, str):
        return VersionRange.parse(value)
    raise ValueError('expected a range of versions in quotes, such as ">=6.1,<7"')


Day = Annotated[date, BeforeValidator(_day), WithJsonSchema({"type": "string", "format": "date"})]
Glob = Annotated[str, Field(min_length=1)]
Versions = Annotated[VersionRange, BeforeValidator(_range), WithJsonSchema({"type": "string"})]

Outcome: TypeAlias = Literal["fail", "skip", "allow"]
"""The case is expected to fail, is not run, or may fail, which is recorded."""


_LONGEST = timedelta(days=366)
"""The furthest end of an entry from today (chosen): each entry is reviewed once a year."""

_MEANING: dict[Outcome, str] = {"fail": "an expected failure", "allow": "`outcome: allow`", "skip": ""}
_REQUIRED: dict[Outcome, tuple[str, ...]] = {
    "fail": ("implementation", "versions", "message"),
    "allow": ("message",),
    "skip": (),
}
_EXAMPLE = {
    "implementation": "`implementation`, its name at the target",
    "versions": '`versions`, such as ">=6.1,<7"',
    "message": "`message`, globs of the failure's first line",
}


_OF_CASES = ("cases", "outcome", "message", "strict")
"""Keys that are about cases, which an entry with ``faults`` does not have."""


class KnownIssueFields(Model):
    """Fields of an entry in any of the files."""

    cases: Annotated[Items[Glob], Field(min_length=1)] = ()
    """Ids of cases, or globs of them."""

    faults: Annotated[Items[Glob], Field(min_length=1)] = ()
    """In place of `cases`: sentences of rules that are judged on every reply, as a failure has them."""

    variants: Annotated[Items[Glob], Field(min_length=1)] = ("*",)
    """The variants that the entry applies to, by id or by target, or globs of them; default: all."""

    implementation: Glob | None = None
    """The implementation that the entry applies to, as targets.yaml names it or the suite identifies it."""

    versions: Versions | None = None
    """The versions of the implementation that the entry applies to, such as `>=6.1,<7`."""

    where: dict[str, Any] = Field(default_factory=dict)
    """The protocol, target and options of the variants that the entry applies to."""

    outcome: Outcome = "fail"
    """The effect: fail (expected to fail), skip (not run) or allow (a failure is recorded)."""

    message: Items[str] = ()
    """Globs of the failure's first line; required unless the case is not run. Another failure fails."""

    reason: str = Field(min_length=1)
    """The deviation, in one sentence."""

    owner: Glob | None = None
    """The person or team that removes the cause or the entry."""

    expires: Day | None = None
    """The last day on which the entry holds."""

    reference: Glob | None = None
    """A section of a standard, or a bug's number or address."""

    strict: bool = True
    """Whether a case that is expected to fail and passes is a failure; false if it does not always fail."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        unknown = unknown_names(self.where)
        if unknown:
            raise ValueError(f"where: no protocol has an option {', '.join(unknown)}")
        if self.versions and not self.implementation:
            raise ValueError("`versions` requires `implementation`, whose versions they are")
        if self.faults:
            self._check_faults()
        elif not self.cases:
            raise ValueError("`cases` is missing, or `faults`: an entry names the ids of cases or sentences")
        elif self.outcome == "skip" and self.message:
            raise ValueError("`outcome: skip` does not allow `message`: the case is not run")
        missing = [name for name in _REQUIRED[self.outcome] if not getattr(self, name)]
        if missing and not self.faults:
            raise ValueError(
                f"{_MEANING[self.outcome]} requires {' and '.join(map(_EXAMPLE.__getitem__, missing))}"
            )
        if self.implementation and not self.versions:
            raise ValueError(f"`implementation` requires {_EXAMPLE['versions']}")
        if self.outcome == "fail" and any(not glob.strip("*? ") for glob in self.message):
            raise ValueError("`message` matches every failure: name the text of the one that is expected")
        self._check_end()
        return self

    def _check_faults(self) -> None:
        surplus = [f"`{name}`" for name in _OF_CASES if name in self.model_fields_set]
        if surplus:
            raise ValueError(f"`faults` does not allow {', '.join(surplus)}: the entry is not about a case")
        if not self.implementation:
            raise ValueError(f"`faults` requires {_EXAMPLE['implementation']}")

    def _check_end(self) -> None:
        if self.expires is None and not self.versions:
            raise ValueError(
                "an entry without an end: `expires` or `implementation` with `versions` is missing"
            )
        if self.expires is None and any(not glob.strip("*?") for glob in self.cases):
            raise ValueError("an entry about all cases requires `expires`")
        if self.expires is not None and self.expires > _today() + _LONGEST:
            raise ValueError(f"`expires` is {self.expires}, which is more than a year ahead")


class KnownIssueEntry(KnownIssueFields):
    """An entry of targets.yaml: `owner` and `expires` are required."""

    owner: Glob
    """The person or team that removes the cause or the entry."""

    expires: Day
    """The last day on which the entry holds."""


class TableIssueEntry(KnownIssueFields):
    """An entry of a TOML file: it has a scope, and an expected failure has a last day."""

    @model_validator(mode="after")
    def _limited(self) -> Self:
        if not self.implementation and not self.where:
            raise ValueError("one of `where` and `implementation` is missing")
        if self.outcome == "fail" and not (self.owner and self.expires):
            raise ValueError(
                "an expected failure requires `owner` and `expires`, in the entry or for the file"
            )
        return self


class ExternalIssueEntry(TableIssueEntry):
    """An entry of ``*.external.toml``: it is about tests, whose replies storagetest does not see."""

    @model_validator(mode="after")
    def _about_tests(self) -> Self:
        if self.faults:
            raise ValueError("`faults` is not possible here: no reply of an external suite is judged")
        return self


class SuiteIssueEntry(TableIssueEntry):
    """An entry of ``known_issues.toml``: it cites the standard, too."""

    reference: Glob
    """The section of the standard, and what it requires."""


@dataclass(frozen=True, slots=True)
class KnownIssue:
    """An entry of any file, with its location.

    ``cases`` are (glob, its location); ``place`` is the location of the entry. ``in_targets_file`` is true
    for entries of targets.yaml and false for entries of a suite.
    """

    entry: KnownIssueFields
    cases: tuple[tuple[str, str], ...]
    place: str
    in_targets_file: bool = False

    @property
    def last_day(self) -> date:
        """The last day on which the entry holds; that of the calendar if the entry does not expire."""
        return self.entry.expires or date.max

    def covers(self, case: str, variant: Variant, implementation: Implementation) -> bool | None:
        """Whether the entry applies to this case on this variant of this implementation.

        None: it would apply to some versions, and the version is not known.
        """
        return self.covers_case(case) and self.covers_target(variant, implementation)

    def covers_case(self, case: str) -> bool:
        """Whether the entry applies to this case on some targets."""
        return any(fnmatchcase(case, glob) for glob in self.entry.cases)

    def covers_target(self, variant: Variant, implementation: Implementation) -> bool | None:
        """Whether the entry applies to some cases on this variant; None as for :meth:`covers`."""
        entry = self.entry
        if not (
            entry.implementation in (None, implementation.name)  # first, because it is cheap
            and matches_name(variant, entry.variants)
            and matches(variant, entry.where)
        ):
            return False
        return True if entry.versions is None else entry.versions.contains(implementation.version)

    def expects(self, message: str) -> bool:
        """Whether a failure with this message is the one that the entry describes."""
        first, globs = message.partition("\n")[0], self.entry.message
        return not globs or any(fnmatchcase(first, glob) for glob in globs)

    def is_over(self) -> bool:
        """Whether the last day is over."""
        return self.last_day < _today()

    def __str__(self) -> str:
        source = ", ".join(filter(None, (self.entry.owner, self.entry.reference)))
        return f"{self.entry.reason} ({source}{'; ' if source else ''}{self.place})"


def read_known_issues(
    section: YamlNode, directory: Path, variants: Sequence[Variant], problems: ValidationErrors
) -> tuple[KnownIssue, ...]:
    """Return the entries of targets.yaml; problems are added. A file's path starts from ``directory``."""
    if isinstance(section.value, str):
        file = directory / section.value
        if not file.is_file():
            problems.add(section.place, f"{SECTION}: no such file: {file}")
            return ()
        try:
            section = read(file).root
        except ConfigError as error:
            problems.add_error(error, section.place)
            return ()
    found = []
    for index, node in enumerate(problems.items(section, SECTION)):
        where = f"{SECTION}.{index}"
        issue = read_known_issue(KnownIssueEntry, node, where, problems)
        if issue is not None:
            _check_variants(node, variants, where, problems)
            found.append(replace(issue, in_targets_file=True))
    return tuple(found)


def read_known_issue(
    model: type[KnownIssueFields], node: YamlNode, where: str, problems: ValidationErrors
) -> KnownIssue | None:
    """Return one entry, or add the problems and return None. ``where`` leads the problems' sentences."""
    for old in _REMOVED:
        if (child := node.child(old)) is not None:
            problems.add(
                child.key_place,
                f"{where}.{old}: this key was removed. Write `implementation`, such as lio, tgt or nvmet, "
                'and `versions`, such as ">=6.1,<7".',
            )
            return None
    entry = problems.validate(model, _with_day(node), where)
    if entry is None:
        return None
    places = [child.place for child in (node.child("cases") or node).items or ()]
    return KnownIssue(entry, tuple(zip(entry.cases, places, strict=True)), node.place)


def _with_day(node: YamlNode) -> YamlNode:
    """Return an entry whose day is text: a plain day is a date in YAML and TOML, and a quoted one is text."""
    day = node.child("expires")
    if day is None or day.kind != "a date" or node.mapping is None:
        return node
    return replace(node, mapping={**node.mapping, "expires": replace(day, value=day.raw, kind="text")})


def _check_variants(
    node: YamlNode, variants: Sequence[Variant], where: str, problems: ValidationErrors
) -> None:
    globs = node.child("variants")
    for child in (globs.items if globs is not None else None) or ():
        if not any(matches_name(variant, [child.raw]) for variant in variants):
            names = {name for variant in variants for name in (variant.id, variant.target)}
            problems.add(
                child.place,
                f"{where}.variants: {child.raw!r} matches no variant{suggest(child.raw, names)}",
            )
