"""The navigation of the documentation: every page is in it, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def pages(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, list):
        for entry in nav:
            yield from pages(entry)
    elif isinstance(nav, dict):
        for entry in nav.values():
            yield from pages(entry)


def test_every_page_is_listed_once():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    docs = ROOT / "docs"
    assert sorted(pages(nav)) == sorted(str(path.relative_to(docs)) for path in docs.rglob("*.md"))
