"""Faults that nearly every case of a run would see are the failure of the first case that sees them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

_SEEN = pytest.StashKey[set[str]]()


def unseen(config: pytest.Config, kinds: Iterable[str]) -> list[str]:
    """Return those of ``kinds`` that no earlier case of this process has seen; from now on they are seen."""
    seen = config.stash.setdefault(_SEEN, set())
    new = [kind for kind in dict.fromkeys(kinds) if kind not in seen]
    seen.update(new)
    return new


def forget_seen(config: pytest.Config) -> None:
    """Start again: the next case is of another target."""
    config.stash[_SEEN] = set()
