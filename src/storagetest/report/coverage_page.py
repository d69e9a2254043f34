"""``storagetest coverage``: sections of the standards against cases and outcomes, as Markdown or HTML.

The HTML file is whole in itself: no script, nothing from the network, light and dark by the reader's
settings, and readable when printed.
"""

from __future__ import annotations

import argparse
import html
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from storagetest.errors import StoragetestError
from storagetest.report.coverage import CaseOutcome, CaseRecord, coverage, latest, load

if TYPE_CHECKING:
    # Written so by argparse itself: the class has no public name.
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

__all__ = ["add_parser", "html_page", "markdown", "sections_html", "words"]

_HTML = {".html", ".htm"}


def add_parser(subparsers: SubParsers) -> None:
    """Add ``coverage`` to the commands; it sets ``func(args) -> int``."""
    parser = subparsers.add_parser(
        "coverage",
        help="show sections of the standards against conformance cases and outcomes",
        description="Show sections of the standards against conformance cases and outcomes. Of a case that "
        "ran more than once on a target the last outcome counts.",
    )
    parser.add_argument("cases", metavar="CASES", nargs="?", type=Path, default=Path("cases.jsonl"),
                        help="what pytest --st-cases wrote (default: cases.jsonl)")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="PAGE", type=Path,
                        help="write PAGE: HTML if named so, else Markdown (default: print it)")  # fmt: skip
    parser.add_argument("--title", default="Conformance coverage", help="the page's title")
    parser.set_defaults(func=_coverage)


def _coverage(args: argparse.Namespace) -> int:
    try:
        records = latest(load(args.cases))
    except (StoragetestError, OSError) as error:
        sys.stderr.write(f"storagetest coverage: {error}\n")
        return 1
    wants_html = args.output is not None and args.output.suffix.lower() in _HTML
    page = (html_page if wants_html else markdown)(records, title=args.title)
    if args.output is None:
        sys.stdout.write(page)
        return 0
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(page, encoding="utf-8")
    sys.stdout.write(f"{args.output}\n")
    return 0


def markdown(records: Sequence[CaseRecord], *, title: str = "Coverage") -> str:
    """Write the coverage page: sections against outcomes for each target, then what is worth reading."""
    lines = [f"# {title}", ""]
    for target, own in _by_target(records).items():
        counted = coverage(own)
        seen = _seen(counted.totals)
        lines += [f"## {target}", "", _row(["section", "cases", *(outcome.value for outcome in seen)])]
        lines.append(_row(["---", *("---:" for _ in range(len(seen) + 1))]))
        for section, counts in counted.by_section.items():
            lines.append(
                _row([section, str(sum(counts.values())), *(str(counts.get(o, "") or "") for o in seen)])
            )
        totals = counted.totals
        lines.append(_row(["**all**", str(sum(totals.values())), *(str(totals[o]) for o in seen)]))
        lines.append("")
        if counted.worth_reading:
            lines += [_row(["case", "section", "level", "outcome", "what was seen"]), _row(["---"] * 5)]
            lines += [
                _row([record.id, record.section, record.level.value, record.outcome.value, _said(record)])
                for record in counted.worth_reading
            ]
            lines.append("")
    return "\n".join(lines) + "\n"


def html_page(records: Sequence[CaseRecord], *, title: str = "Conformance coverage") -> str:
    """Write the same as one HTML file: each section opens to show its cases."""
    parts = [_HEAD.format(title=html.escape(title)), f"<h1>{html.escape(title)}</h1>"]
    if not records:
        parts.append("<p>No conformance case has run.</p>")
    for target, own in _by_target(records).items():
        counted = coverage(own)
        parts.append(f"<h2>{html.escape(target)}</h2><p>{len(own)} cases: {words(counted.totals)}</p>")
        parts.append(sections_html(own))
    return "\n".join(parts) + "\n</main></body></html>\n"


def sections_html(own: Sequence[CaseRecord]) -> str:
    """Return one target's cases: a table of sections against outcomes, and each section's cases, folded."""
    counted = coverage(own)
    seen = _seen(counted.totals)
    heads = "".join(f'<th scope="col" class="n">{outcome.value}</th>' for outcome in seen)
    parts = [
        '<div class="wide" role="region" tabindex="0" aria-label="Sections"><table><thead>',
        f'<tr><th scope="col">section</th><th scope="col" class="n">cases</th>{heads}<td></td></tr>',
        "</thead><tbody>",
    ]
    for section, counts in counted.by_section.items():
        cells = "".join(f'<td class="n">{counts.get(outcome) or ""}</td>' for outcome in seen)
        total = sum(counts.values())
        parts.append(
            f'<tr><th scope="row">{html.escape(section)}</th><td class="n">{total}</td>{cells}'
            f"<td>{_bar(counts, total)}</td></tr>"
        )
    parts.append("</tbody></table></div>")
    parts += [_section(section, own) for section in counted.by_section]
    return "\n".join(parts)


def _section(section: str, records: Sequence[CaseRecord]) -> str:
    """A section's cases, folded; open where one is worth a look."""
    own = [record for record in records if record.section == section]
    loud = any(record.outcome in (CaseOutcome.FAILED, CaseOutcome.ERROR) for record in own)
    rows = "".join(
        f'<tr><th scope="row">{html.escape(record.id)}</th><td>{record.level.value}</td>'
        f'<td class="{record.outcome.value}">{record.outcome.value}</td>'
        f"<td>{html.escape(_said(record))}</td></tr>"
        for record in sorted(own, key=lambda record: record.id)
    )
    return (
        f"<details{' open' if loud else ''}><summary>{html.escape(section)}: {len(own)}</summary>"
        f'<div class="wide"><table><tbody>{rows}</tbody></table></div></details>'
    )


def _bar(counts: Mapping[CaseOutcome, int], total: int) -> str:
    """A bar in the outcomes' colours; the figures stand beside it, so it says nothing of its own."""
    parts = "".join(
        f'<i class="{outcome.value}" style="width:{100 * counts[outcome] / total:.1f}%"></i>'
        for outcome in CaseOutcome
        if counts.get(outcome)
    )
    return f'<span class="bar" aria-hidden="true">{parts}</span>'


def _by_target(records: Sequence[CaseRecord]) -> dict[str, list[CaseRecord]]:
    found: dict[str, list[CaseRecord]] = {}
    for record in sorted(records, key=lambda record: record.target):
        found.setdefault(record.target or "cases", []).append(record)
    return found


def _seen(totals: Mapping[CaseOutcome, int]) -> list[CaseOutcome]:
    return [outcome for outcome in CaseOutcome if totals.get(outcome)]


def words(totals: Mapping[CaseOutcome, int]) -> str:
    """Return cases by outcome in words."""
    return ", ".join(f"{totals[outcome]} {outcome.value}" for outcome in _seen(totals))


def _said(record: CaseRecord) -> str:
    return "; ".join((*record.observed, record.message)).strip("; ").partition("\n")[0]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
:root {{ color-scheme: light dark; --line: #8884; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 0; }}
main {{ max-width: 76rem; margin: auto; padding: 1rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; padding: .2rem .6rem; border-bottom: 1px solid var(--line); }}
th, td {{ vertical-align: top; }}
th {{ font-weight: 600; white-space: nowrap; }}
td {{ overflow-wrap: anywhere; }}
.n {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
details {{ margin: .3rem 0; }}
summary {{ cursor: pointer; padding: .2rem 0; }}
.bar {{ display: flex; width: 8rem; height: .8rem; margin-top: .35rem; }}
.bar i {{ display: block; }}
i.passed {{ background: #2e9e5b; }} i.failed {{ background: #d6336c; }} i.warned {{ background: #e8a317; }}
i.observed {{ background: #4a90d9; }} i.known {{ background: #8e6bbf; }} i.skipped {{ background: #8888; }}
i.error {{ background: #b5651d; }}
td.failed, td.error {{ font-weight: 700; }}
@media print {{ details > * {{ display: block; }} }}
</style></head><body><main>"""
