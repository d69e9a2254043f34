"""A target that lets no case in any more: one failure, and the cases after it are skipped because of it.

Each wire case begins with a step such as a login. A target that refuses or drops every one of them would fail
every case for the same cause. Rules:

1. After a case whose failure makes the run red, the suite enters the target once more, as its first look
   did. If that fails too, the case gets an observation, and the target is *closed*.
2. A later case on a closed target enters it first. If that fails, the case is skipped because of the case
   that closed it. If it succeeds, the target is closed no more, and the case is judged.
3. A violation closes a target, and so does an :class:`AttachError`: it lacks what the targets file names. A
   target that accepts no connection is that of :mod:`storagetest.plugin.conformance.crash_watch`.
4. Entries into a closed target that fail take at most :data:`GIVE_UP` seconds together: a target that
   answers nothing would hold up each skipped case. After that, the later cases are skipped at once.
5. Each process has its own state. ``--st-judge-all`` judges every case, and enters no target twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from storagetest.errors import AttachError, RemoteProtocolError, TargetDead
from storagetest.plugin.conformance.cases import case_of, record_observation
from storagetest.plugin.items import item_variant
from storagetest.report.coverage import Level

Enter = Callable[[], None]
"""Enters the target and leaves it. Raises :class:`RemoteProtocolError` for a violation by the target, and
:class:`AttachError` if it lacks what the targets file names."""

GIVE_UP = 30.0
"""Seconds that failed entries into one closed target take together (chosen)."""


@dataclass
class _Closed:
    """A closed target: the case that closed it, and how; seconds that failed entries took since then."""

    reason: str
    waited: float = 0.0


_CLOSED = pytest.StashKey[dict[str, _Closed]]()
"""The closed targets, by variant."""


def note_failure(item: pytest.Item, report: pytest.TestReport, subject: str, enter: Enter) -> None:
    """Enter the target after a failure of ``item``; note whether that fails. ``subject`` names the step."""
    closed = item.config.stash.setdefault(_CLOSED, {})
    variant = item_variant(item) or ""
    case = case_of(item)
    if not report.failed or report.when == "teardown" or case is None:
        return
    if report.when == "call" and case.level is not Level.MUST:
        return
    if item.config.option.st_judge_all or variant in closed:
        return
    reason = _failure(enter)
    if reason is not None:
        closed[variant] = _Closed(f"{subject} failed after {item.name}: {reason}")
        record_observation(item, f"{subject} failed after this case, too: {reason}")


def skip_if_closed(item: pytest.Item, enter: Enter) -> None:
    """Skip ``item`` if the target was closed by another case and still cannot be entered."""
    closed = item.config.stash.setdefault(_CLOSED, {})
    variant = item_variant(item) or ""
    target = closed.get(variant)
    if target is None:
        return
    if target.waited < GIVE_UP:
        began = time.monotonic()
        if _failure(enter) is None:
            del closed[variant]
            return
        target.waited += time.monotonic() - began
    pytest.skip(target.reason)


def _failure(enter: Enter) -> str | None:
    """Return why the target cannot be entered, or None."""
    try:
        enter()
    except TargetDead:
        return None  # rule 3
    except (RemoteProtocolError, AttachError) as error:
        return str(error).partition("\n")[0] or type(error).__name__
    return None
