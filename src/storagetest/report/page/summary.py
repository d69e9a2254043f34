"""How the run ended, at a glance: cases by target and outcome, what did not pass, and where it ran."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from storagetest.report.base import Status
from storagetest.report.coverage import CaseOutcome
from storagetest.report.page.given import WORDS, Given, Section, case_of, escaped, group, identity, table

__all__ = ["section"]

_MOST = 100
_BAD = (Status.FAILED, Status.ERROR, Status.INVALID)


def section(found: Given) -> Section:
    """Return the section."""
    parts = [f"<p>{_when(found)}</p>", _outcomes(found), _bad(found), _machines(found)]
    return Section("summary", "Summary", "".join(filter(None, parts)))


def _when(found: Given) -> str:
    sources = ", ".join(f"<code>{escaped(name)}</code>" for name in found.sources)
    moments = [record.run.started for record in found.records if record.run.started > 0]
    if not moments:
        return f"From {sources}."
    first, last = (
        datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M") for at in (min(moments), max(moments))
    )
    again = sum(len(each) > 1 for each in found.sessions.values())
    more = (
        f" {again:,} case{'s' * (again != 1)} ran more than once: the last counts, History has the others."
        if again
        else ""
    )
    return f"From {sources}. Measured {first} to {last} UTC.{more}"


def _outcomes(found: Given) -> str:
    if not found.records and not found.cases:
        return "<p>There is nothing in these files.</p>"
    parts = []
    if found.records:
        seen = [status for status in Status if any(record.status is status for record in found.records)]
        rows = []
        for (target,), records in group(found.records, lambda record: (record.run.target,)).items():
            counts = Counter(record.status for record in records)
            no_gate = sum(record.status is Status.PASSED and not record.verdicts for record in records)
            rows.append(
                [
                    escaped(target),
                    escaped(records[0].run.protocol),
                    *(f"{counts[status]:,}" if counts[status] else "" for status in seen),
                    f"{no_gate:,}" if no_gate else "",
                ]
            )
        heads = ["target", "protocol", *(WORDS[status] for status in seen), "of the passes, without a gate"]
        parts.append(table(heads, rows, caption="Measured cases", numbers=range(2, len(heads))))
    if found.cases:
        seen_outcomes = [each for each in CaseOutcome if any(case.outcome is each for case in found.cases)]
        rows = []
        for target in sorted({case.target for case in found.cases}):
            tally = Counter(case.outcome for case in found.cases if case.target == target)
            counted = (f"{tally[each]:,}" if tally[each] else "" for each in seen_outcomes)
            rows.append([escaped(target or "-"), *counted])
        heads = ["target", *(each.value for each in seen_outcomes)]
        parts.append(table(heads, rows, caption="Conformance cases", numbers=range(1, len(heads))))
    return "".join(parts)


def _bad(found: Given) -> str:
    bad = [record for record in found.records if record.status in _BAD]
    if not bad:
        return ""
    bad.sort(key=lambda record: _BAD.index(record.status))
    items = "".join(
        f'<li><b class="{record.status.value}">{WORDS[record.status]}</b> '
        f'<a href="#{identity(record)}">{escaped(case_of(record.run))} on {escaped(record.run.variant)}</a>: '
        f"{escaped(_first_line(record.reasons))}</li>"
        for record in bad[:_MOST]
    )
    left = len(bad) - _MOST
    more = f"<p>And {left:,} more, in the list of all cases.</p>" if left > 0 else ""
    return f'<h3>What did not pass</h3><ul class="bad">{items}</ul>{more}'


def _first_line(reasons: tuple[str, ...]) -> str:
    return reasons[0].partition("\n")[0] if reasons else ""


def _machines(found: Given) -> str:
    versions: dict[str, dict[str, str]] = {}
    for record in found.records:
        versions.setdefault(record.run.client, {}).update(record.run.versions)
    rows = [
        [escaped(client), escaped(", ".join(f"{name} {text}" for name, text in said.items()))]
        for client, said in sorted(versions.items())
    ]
    return table(["client", "versions"], rows, caption="Where the load came from") if rows else ""
