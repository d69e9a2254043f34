"""The pages of ``storagetest report coverage --requirements``: the requirements of each standard by state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from storagetest.report.coverage import CaseRecord, Level
from storagetest.report.formats.base import markdown_row
from storagetest.report.requirements import Requirement, Share, Standard, State, shares
from storagetest.report.templates import render


def markdown(
    tables: Sequence[Standard],
    unused: Sequence[str],
    *,
    title: str,
    records: Sequence[CaseRecord] | None = None,
    complete: bool = False,
) -> str:
    """Return the shares of each standard, then the open requirements.

    ``unused`` are the ids of the cases that hold no requirement, ``records`` the cases that have run, None if
    there are none. ``complete`` lists also the untestable requirements and the unused ids.
    """
    lines = [f"# {title}", "", *_shares(tables, records), ""]
    lines += _listed(tables, State.OPEN, "Open requirements")
    if complete:
        lines += _listed(tables, State.UNTESTABLE, "Untestable requirements")
    lines += ["## Cases that hold no requirement", "", f"{len(unused)} cases of these suites", ""]
    if complete and unused:
        lines += [f"- {identifier}" for identifier in unused] + [""]
    return "\n".join(lines)


def html_page(
    tables: Sequence[Standard],
    unused: Sequence[str],
    *,
    title: str,
    records: Sequence[CaseRecord] | None = None,
) -> str:
    """Return the shares as one HTML file: each standard opens to show its requirements."""
    page = render(
        "requirements.html.j2",
        title=title,
        heads=_heads(records),
        rows=list(_rows(tables, records)),
        tables=tables,
        unused=unused,
    )
    return f"{page}\n"


def _shares(tables: Sequence[Standard], records: Sequence[CaseRecord] | None) -> list[str]:
    heads = _heads(records)
    rows = [markdown_row(row) for row in _rows(tables, records)]
    return [markdown_row(heads), markdown_row(["---", "---", *(["---:"] * (len(heads) - 2))]), *rows]


def _heads(records: Sequence[CaseRecord] | None) -> list[str]:
    checked = ["checked by a run"] if records is not None else []
    return ["standard", "level", "requirements", *(state.value for state in State), *checked]


def _rows(tables: Sequence[Standard], records: Sequence[CaseRecord] | None) -> Iterator[list[str]]:
    """Return the cells of each share, and of all of a level if there are several standards."""
    counted = shares(tables, records or ())
    for share in counted:
        yield _cells(share.standard, share.level.value, [share], with_checked=records is not None)
    for level in Level:
        own = [share for share in counted if share.level is level]
        if own and len(tables) > 1:
            yield _cells("all", level.value, own, with_checked=records is not None)


def _cells(name: str, level: str, added: Sequence[Share], *, with_checked: bool) -> list[str]:
    total = sum(share.total for share in added)
    counts = [sum(share.counts[state] for share in added) for state in State]
    shown = [f"{count} ({100 * count / total:.0f} %)" if count else "" for count in counts]
    checked = [f"{sum(share.checked for share in added)} of {counts[0]}"] if with_checked else []
    return [name, level, str(total), *shown, *checked]


def _listed(tables: Sequence[Standard], state: State, heading: str) -> list[str]:
    rows = [
        markdown_row([table.name, each.section, each.level.value, _text(each)])
        for table in tables
        for each in table.requirements
        if each.state is state
    ]
    if not rows:
        return [f"## {heading}", "", "none", ""]
    heads = [markdown_row(["standard", "section", "level", "requirement"]), markdown_row(["---"] * 4)]
    return [f"## {heading}", "", *heads, *rows, ""]


def _text(requirement: Requirement) -> str:
    return f"{requirement.text} ({requirement.untestable})" if requirement.untestable else requirement.text
