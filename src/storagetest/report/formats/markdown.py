"""A run as Markdown, for the job summary of GitHub or GitLab: failed cases, then measured values.

GitHub cuts a step's summary off at 1 MiB (https://docs.github.com/actions, "Workflow commands"), so the lists
are limited, and the omitted entries are counted.
"""

from __future__ import annotations

import argparse
import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from storagetest.report.base import Record, Status
from storagetest.report.coverage import (
    CaseOutcome,
    CaseRecord,
    cause_lines,
    count_text,
    coverage,
    known_fault_lines,
)
from storagetest.report.formats.base import ResultsFormat, register
from storagetest.report.metric_values import MetricValue, case_text, metric_values

MOST_BYTES = 1_000_000
"""Maximum size of the text in bytes (UTF-8)."""

_MOST_PROBLEMS, _MOST_ROWS, _MOST_LETTERS = 100, 400, 1500
_MARKS = {
    "failed": "❌",
    "error": "💥",
    "invalid": "❔",
    "learning": "🌱",
    "warned": "⚠️",
    "passed": "✅",
    "observed": "👁️",
    "xfailed": "📌",
    "skipped": "⏭️",
}
_WORDS = {
    "invalid": "INVALID",
    "learning": "LEARNING",
    "xfailed": "known issue",
    "xpassed": "known issue that passes",
}
_ORDER = list(_MARKS)
_ESCAPED = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]|~#"})
_ESCAPED_IN_CODE = str.maketrans({letter: f"&#{ord(letter)};" for letter in "|_*"})


@dataclass(frozen=True, slots=True)
class FailedCase:
    """A case that did not pass: ``outcome`` as pytest counts it, its node id, and why."""

    outcome: str
    name: str
    message: str


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """Results that only pytest has: cases by outcome, wall ``seconds``, exit status, failed cases."""

    counts: Mapping[str, int]
    seconds: float
    exit_status: int
    problems: Sequence[FailedCase] = field(default_factory=tuple)


@register
class MarkdownFormat(ResultsFormat):
    """Write results as Markdown. A run of pytest writes the same, with every case in it, by --st-markdown
    FILE, and on GitHub by itself.
    """

    name = "markdown"
    summary = "Markdown, for GitHub's and GitLab's pages of a job"

    def render(self, records: Sequence[Record], args: argparse.Namespace) -> str:  # noqa: ARG002  # no options
        """Return the text."""
        return markdown(records)


def markdown(
    records: Sequence[Record], *, session: SessionSummary | None = None, cases: Sequence[CaseRecord] = ()
) -> str:
    """Return the text: outcome, cases that did not pass, measured values, sections of the standards."""
    session = _session(records) if session is None else session
    lines = [f"## storagetest: {_headline(session)}", ""]
    lines += _problems(session.problems)
    lines += _measured(records)
    lines += _conformance(cases)
    return _bounded(lines)


def _session(records: Sequence[Record]) -> SessionSummary:
    """Return the summary of the records."""
    problems = [
        FailedCase(record.status.value, record.nodeid or record.run.case, "\n".join(record.reasons))
        for record in records
        if record.reasons
    ]
    return SessionSummary(Counter(record.status.value for record in records), 0.0, 0, problems)


def _headline(session: SessionSummary) -> str:
    names = sorted(session.counts, key=lambda name: (_rank(name), name))
    counts = ", ".join(
        f"{_MARKS.get(name, '')} {session.counts[name]} {_WORDS.get(name, name)}".strip() for name in names
    )
    lasted = f" in {session.seconds:.0f} s" if session.seconds else ""
    status = f" (exit status {session.exit_status})" if session.exit_status else ""
    return f"{counts or 'no case ran'}{lasted}{status}"


def _rank(outcome: str) -> int:
    return _ORDER.index(outcome) if outcome in _ORDER else len(_ORDER)


def _problems(problems: Sequence[FailedCase]) -> list[str]:
    if not problems:
        return []
    lines = ["### What did not pass", ""]
    ordered = sorted(problems, key=lambda one: _rank(one.outcome))
    for one in ordered[:_MOST_PROBLEMS]:
        word = _WORDS.get(one.outcome, one.outcome)
        first, _, rest = one.message.strip().partition("\n")
        lines.append(
            f"- {_MARKS.get(one.outcome, '')} **{word}** {_code(one.name)}: {_text(first[:_MOST_LETTERS])}"
        )
        if rest.strip():
            cut = rest[:_MOST_LETTERS] + ("\n…" if len(rest) > _MOST_LETTERS else "")
            shown = html.escape(cut).replace("\n", "&#10;")
            lines.append(f"  <details><summary>more</summary><pre>{shown}</pre></details>")
    lines += _left_out(len(ordered) - _MOST_PROBLEMS, "case")
    return [*lines, ""]


def _measured(records: Sequence[Record]) -> list[str]:
    lines: list[str] = []
    rows = sorted(records, key=lambda record: (record.run.target, record.run.variant, case_text(record.run)))
    for headline in dict.fromkeys(record.run.headline for record in rows):
        alike = [record for record in rows if record.run.headline == headline]
        lines += ["", _row(["variant", "case", *headline, "verdict"])]
        lines.append(_row(["---", "---", *("---:" for _ in headline), "---"]))
        for record in alike[:_MOST_ROWS]:
            found = metric_values(record)
            cells = [_value(found.get(name)) for name in headline]
            lines.append(
                _row([_text(record.run.variant), _text(case_text(record.run)), *cells, _verdict(record)])
            )
        lines += _left_out(len(alike) - _MOST_ROWS, "row")
    return ["### What was measured", *lines, ""] if lines else []


def _value(value: MetricValue | None) -> str:
    if value is None:
        return ""
    if value.range_text == "-":
        return _text(value.text)
    return f"{_text(value.text)}<br><sub>{_text(value.range_text)}</sub>"


def _verdict(record: Record) -> str:
    if record.status is Status.PASSED and not record.verdicts:
        return "no gate"
    word = _WORDS.get(record.status.value, record.status.value)
    return f"{_MARKS.get(record.status.value, '')} {word}".strip()


def _conformance(cases: Sequence[CaseRecord]) -> list[str]:
    if not cases:
        return []
    lines = ["### Sections of the standards", ""]
    for target in sorted({case.target for case in cases}):
        own = [case for case in cases if case.target == target]
        counted = coverage(own)
        seen = [outcome for outcome in CaseOutcome if counted.totals.get(outcome)]
        title = f"{html.escape(target or 'cases')}: {count_text(counted.totals)}"
        lines += [f"<details><summary>{title}</summary>", ""]
        lines.append(_row(["section", *(outcome.value for outcome in seen)]))
        lines.append(_row(["---", *("---:" for _ in seen)]))
        for section, counts in list(counted.by_section.items())[:_MOST_ROWS]:
            lines.append(_row([_text(section), *(str(counts.get(outcome) or "") for outcome in seen)]))
        remarks = [*cause_lines(own), *known_fault_lines(own)]
        lines += ["", *(f"- {_text(line)}" for line in remarks), "", "</details>", ""]
    return lines


def _left_out(count: int, what: str) -> list[str]:
    return [f"\n…and {count} more {what}{'s' * (count != 1)}, which results.jsonl has."] if count > 0 else []


def _bounded(lines: Sequence[str]) -> str:
    size, kept = 0, []
    for line in lines:
        size += len(line.encode()) + 1
        if size > MOST_BYTES - 200:
            kept.append("\n…the rest is left out, because it is too long.")
            break
        kept.append(line)
    return "\n".join(kept).rstrip() + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Return Markdown that shows ``text`` literally, also in a table: no mark-up, no link, no line break."""
    return html.escape(" ".join(text.split()), quote=False).translate(_ESCAPED)


def _code(text: str) -> str:
    return f"<code>{html.escape(text).translate(_ESCAPED_IN_CODE)}</code>"
