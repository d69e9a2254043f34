"""The navigation of the documentation: every page is in it, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


class _Loader(yaml.SafeLoader):
    """A safe loader that reads ``!!python/name:…``, by which mkdocs.yml names functions, as null."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda loader, suffix, node: None)


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
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)["nav"]
    docs = ROOT / "docs"
    assert sorted(pages(nav)) == sorted(str(path.relative_to(docs)) for path in docs.rglob("*.md"))
