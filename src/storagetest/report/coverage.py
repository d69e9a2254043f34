"""Coverage of a standard: checked sections, with the number of cases and their outcomes.

A :class:`CaseRecord` is one conformance case on one target; a file of them has one JSON object a line. From
those, and nothing else, :func:`coverage` counts. :mod:`storagetest.report.formats.coverage` writes the pages.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from storagetest.errors import ResultError


class Level(Enum):
    """Level of a requirement (RFC 2119; NVMe and SCSI use *shall* for MUST)."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"


class CaseOutcome(Enum):
    """The outcome of a case.

    WARNED is a violated SHOULD; OBSERVED a recorded MAY; KNOWN a known issue of this implementation; INVALID
    means that there is no result; ERROR that the test infrastructure failed.
    """

    PASSED = "passed"
    FAILED = "failed"
    WARNED = "warned"
    OBSERVED = "observed"
    KNOWN = "known"
    SKIPPED = "skipped"
    INVALID = "invalid"
    ERROR = "error"


_RENAMED_MEMBERS = {"spares": "no_mutant_reason"}
"""Members of files of an earlier release."""


@dataclass(frozen=True, slots=True)
class KnownFault:
    """A rule that is judged on every reply, and that this target is known to break.

    ``fault`` is the rule's sentence, ``reason`` the deviation, ``reference`` the text of the standard.
    """

    fault: str
    reason: str
    reference: str = ""


@dataclass(frozen=True, slots=True)
class CaseRecord:
    """One conformance case on one target.

    ``observed`` holds the legal alternatives that the target was seen to choose. ``kills`` names the mutants
    that this case claims to catch, ``no_mutant_reason`` explains why it can catch none.
    ``message`` is why it did not pass; ``seconds`` how long it took. ``because`` is the id of the failed case
    because of which this case was skipped, "" if it was not. ``required`` is what the case requires, in one
    sentence. Of a known issue, ``reason`` is the deviation and ``reference`` the text of the standard.
    ``known_faults`` are those that the replies of this case have; they do not affect its outcome.
    """

    id: str
    section: str
    level: Level
    outcome: CaseOutcome
    target: str = ""
    observed: tuple[str, ...] = ()
    message: str = ""
    seconds: float = 0.0
    nodeid: str = ""
    kills: tuple[str, ...] = ()
    no_mutant_reason: str = ""
    because: str = ""
    required: str = ""
    reason: str = ""
    reference: str = ""
    known_faults: tuple[KnownFault, ...] = ()

    @property
    def remark(self) -> str:
        """What was observed, and why the case did not pass: the first line."""
        return "; ".join((*self.observed, self.message)).strip("; ").partition("\n")[0]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "level": self.level.value, "outcome": self.outcome.value}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> CaseRecord:
        """Parse the result of :meth:`to_json`. Raises :class:`ResultError` for any other document."""
        try:
            members = {_RENAMED_MEMBERS.get(name, name): value for name, value in document.items()}
            return cls(
                **{
                    **members,
                    "level": Level(document["level"]),
                    "outcome": CaseOutcome(document["outcome"]),
                    "observed": tuple(document.get("observed", ())),
                    "kills": tuple(document.get("kills", ())),
                    "known_faults": tuple(KnownFault(**known) for known in document.get("known_faults", ())),
                }
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ResultError(f"not the record of a conformance case: {error}") from None


@dataclass(frozen=True, slots=True)
class Coverage:
    """Counts by section: section → outcome → cases; and the cases that did not simply pass."""

    by_section: Mapping[str, Mapping[CaseOutcome, int]]
    worth_reading: Sequence[CaseRecord] = field(default_factory=tuple)

    @property
    def totals(self) -> Mapping[CaseOutcome, int]:
        """Cases by outcome, over all sections."""
        total: Counter[CaseOutcome] = Counter()
        for counts in self.by_section.values():
            total.update(counts)
        return total


@dataclass(frozen=True, slots=True)
class SectionRow:
    """One section: its cases, their number by outcome, and the shares of the outcomes in percent."""

    name: str
    cases: Sequence[CaseRecord]
    counts: Sequence[int]
    bar: Sequence[tuple[str, float]]
    failed: bool


@dataclass(frozen=True, slots=True)
class SectionTable:
    """Sections against the ``outcomes`` that occur, for one target."""

    outcomes: Sequence[str]
    sections: Sequence[SectionRow]


def sections(records: Sequence[CaseRecord]) -> SectionTable:
    """Return one target's cases by section, for the pages that show them."""
    counted = coverage(records)
    outcomes = [outcome for outcome in CaseOutcome if counted.totals.get(outcome)]
    rows = []
    for name, counts in counted.by_section.items():
        cases = sorted((record for record in records if record.section == name), key=lambda case: case.id)
        bar = [(each.value, 100 * counts[each] / len(cases)) for each in outcomes if counts.get(each)]
        failed = any(counts.get(each) for each in (CaseOutcome.FAILED, CaseOutcome.ERROR))
        rows.append(SectionRow(name, cases, [counts.get(each, 0) for each in outcomes], bar, failed))
    return SectionTable([outcome.value for outcome in outcomes], rows)


def count_text(totals: Mapping[CaseOutcome, int]) -> str:
    """Return ``3 passed, 1 failed``."""
    return ", ".join(f"{totals[each]} {each.value}" for each in CaseOutcome if totals.get(each))


def load(path: Path) -> list[CaseRecord]:
    """Read a file of one JSON object a line. Raises :class:`ResultError`."""
    records = []
    if not path.is_file():
        raise ResultError(f"{path}: no such file; pytest writes it if conformance cases ran")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            records.append(CaseRecord.from_json(json.loads(line)))
        except (ValueError, ResultError) as error:
            raise ResultError(f"{path}:{number}: {error}") from None
    return records


def latest(records: Iterable[CaseRecord]) -> list[CaseRecord]:
    """Return the last record of each case on each target: runs append to one file."""
    return list({(record.target, record.id): record for record in records}.values())


def coverage(records: Iterable[CaseRecord]) -> Coverage:
    """Count ``records`` by section."""
    sections: dict[str, Counter[CaseOutcome]] = {}
    reading = []
    for record in records:
        sections.setdefault(record.section, Counter())[record.outcome] += 1
        if record.outcome is not CaseOutcome.PASSED or record.observed:
            reading.append(record)
    ordered = dict(sorted(sections.items(), key=lambda entry: _natural(entry[0])))
    return Coverage(ordered, tuple(sorted(reading, key=lambda record: (record.outcome.value, record.id))))


def causes(records: Iterable[CaseRecord]) -> Mapping[tuple[str, str], int]:
    """Return how many cases were not judged because of a failed case, by target and the id of that case."""
    counted = Counter((record.target, record.because) for record in records if record.because)
    return dict(sorted(counted.items()))


def cause_lines(records: Sequence[CaseRecord]) -> list[str]:
    """Return a line for each failed case that others build on, and the totals; [] if all were judged."""
    counted = causes(records)
    if not counted:
        return []
    red = sum(record.outcome in (CaseOutcome.FAILED, CaseOutcome.ERROR) for record in records)
    return [
        *(
            f"{cause}{f' on {target}' if target else ''} failed: {number} that build on it were not judged"
            for (target, cause), number in counted.items()
        ),
        f"failed: {red}; not judged because of {len(counted)} of these: {sum(counted.values())}",
    ]


def known_faults(records: Iterable[CaseRecord]) -> Mapping[tuple[str, KnownFault], list[CaseRecord]]:
    """Return the known faults of each target, with the cases whose replies have them."""
    found: dict[tuple[str, KnownFault], list[CaseRecord]] = {}
    for record in records:
        for known in record.known_faults:
            found.setdefault((record.target, known), []).append(record)
    return found


def known_fault_lines(records: Iterable[CaseRecord]) -> list[str]:
    """Return a line for each known fault of each target."""
    return [
        f"known deviation{f' of {target}' if target else ''}, in the replies of {_count(len(cases))}: "
        f"{known.fault}: {known.reason}"
        for (target, known), cases in known_faults(records).items()
    ]


def _count(cases: int) -> str:
    return f"{cases} case{'s' * (cases != 1)}"


def standard(section: str) -> str:
    """Return the standard that a section is of: ``RFC 7143`` of ``RFC 7143 11.2``, ``NVM`` of ``NVM 3.2``."""
    words = section.split()
    return " ".join(words[: 2 if words[:1] == ["RFC"] else 1])


def _natural(text: str) -> list[tuple[int, int | str]]:
    """Order 3.10 after 3.9."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", text) if part]
