"""Where the entries of a directory stand in a listing of many pages, for mutants of NFSv3 and NFSv4."""

from __future__ import annotations

from collections.abc import Hashable, MutableMapping, Sequence
from typing import Any

LISTED = 200
"""Entries of a directory that the mutants list."""


def of_the_first(
    shared: MutableMapping[Any, Any], directory: Hashable, cookie: int, entries: Sequence[Any]
) -> Sequence[Any] | None:
    """Return those of a page's ``entries`` that are among the first LISTED; None if all of them are.

    ``cookie`` is the one that the page was asked for with; ``shared`` keeps where the pages have ended.
    """
    places: dict[int, int] = shared.setdefault(directory, {})
    start = places.get(cookie, 0) if cookie else 0
    places.update({one.cookie: at for at, one in enumerate(entries, start + 1)})
    return None if start + len(entries) <= LISTED else entries[: max(0, LISTED - start)]
