"""The page as a whole: its head, its list of sections, and the sections.

It is whole in itself: no script, nothing from the network, and a policy that forbids both. Colours follow the
reader's scheme; printed it is light, and everything folded is opened.
"""

from __future__ import annotations

from importlib.resources import files

from markupsafe import Markup

from storagetest.report.chart import COLOURS
from storagetest.report.page import (
    cases,
    conformance,
    findings,
    grid,
    heatmap,
    history,
    latency,
    papers,
    regressions,
    repeats,
    scaling,
    summary,
    verdict,
)
from storagetest.report.page.model import PageData
from storagetest.report.templates import render

SECTIONS = (
    verdict,
    heatmap,
    repeats,
    grid,
    scaling,
    latency,
    findings,
    conformance,
    regressions,
    history,
    papers,
    cases,
    summary,
)
"""In their order on the page. Each has ``section(data)``; those without contents are at the end, folded."""

_DARK = ("#6cb6ff", "#f0883e", "#56d364", "#d2a8ff", "#e3b341", "#39c5cf", "#f778ba", "#adbac7")
"""The lines' colours on a dark ground."""


def document(data: PageData, *, title: str) -> str:
    """Return the page."""
    every = [module.section(data) for module in SECTIONS]
    sections = [each for each in every if not each.empty]
    empty = [each for each in every if each.empty]
    page = render(
        "page.html.j2", title=title, style=style_sheet(), sections=sections, empty=empty, allure=data.allure
    )
    return f"{page}\n"


def style_sheet() -> Markup:
    """Return the style sheet with the colours of the lines, light and dark."""
    light, dark = (
        "".join(f"--c{number}:{colour};" for number, colour in enumerate(colours, start=1))
        for colours in (COLOURS, _DARK)
    )
    lines = "".join(f".c{n}{{stroke:var(--c{n});color:var(--c{n})}}" for n in range(1, len(COLOURS) + 1))
    style = files("storagetest.report.page").joinpath("page.css").read_text(encoding="utf-8")
    # Our own style sheet and constants.
    return Markup(style.replace("/*light*/", light).replace("/*dark*/", dark) + lines)  # noqa: S704
