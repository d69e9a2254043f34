"""The page as a whole: its head, its list of sections, and the sections.

It is whole in itself: no script, nothing from the network, and a policy that forbids both. Colours follow the
reader's scheme; printed it is light, and everything folded is opened.
"""

from __future__ import annotations

from importlib.resources import files

from storagetest.report.chart import COLOURS
from storagetest.report.page import (
    cases,
    conformance,
    heatmap,
    history,
    latency,
    papers,
    regressions,
    scaling,
    summary,
)
from storagetest.report.page.given import Given, escaped

__all__ = ["SECTIONS", "document"]

SECTIONS = (summary, heatmap, scaling, latency, regressions, history, conformance, papers, cases)
"""In their order on the page. Each has ``section(given)``."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"

_DARK = ("#6cb6ff", "#f0883e", "#56d364", "#d2a8ff", "#e3b341", "#39c5cf", "#f778ba", "#adbac7")
"""The lines' colours on a dark ground."""


def document(found: Given, *, title: str) -> str:
    """Return the page."""
    made = [module.section(found) for module in SECTIONS]
    links = "".join(f'<li><a href="#{one.id}">{escaped(one.title)}</a></li>' for one in made)
    body = "".join(
        f'<section id="{one.id}" aria-labelledby="{one.id}-h"><h2 id="{one.id}-h">{escaped(one.title)}</h2>'
        f"{one.body}</section>\n"
        for one in made
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escaped(title)}</title><style>{_style()}</style></head><body>"
        f'<header><h1>{escaped(title)}</h1><nav aria-label="Sections"><ul>{links}</ul></nav></header>'
        f"<main>{body}</main></body></html>\n"
    )


def _style() -> str:
    light, dark = (
        "".join(f"--c{number}:{colour};" for number, colour in enumerate(colours, start=1))
        for colours in (COLOURS, _DARK)
    )
    lines = "".join(f".c{n}{{stroke:var(--c{n});color:var(--c{n})}}" for n in range(1, len(COLOURS) + 1))
    style = files("storagetest.report.page").joinpath("page.css").read_text(encoding="utf-8")
    return style.replace("/*light*/", light).replace("/*dark*/", dark) + lines
