"""A target that stops accepting connections in a wire case: it is waited for, named, and the run goes on.

After a wire case that did not pass, the plugin connects to the target. Rules:

1. If the target accepts no connection, the plugin waits for it, at most the target's ``deadline``. The case
   fails, whatever its level, with an observation that states how long the target was away.
2. If the target is back, the run goes on. If it is not, its other cases are skipped with a reason that names
   the case after which it accepted no connection; what the end of that case then meets is no further error.
3. A case whose first connection is refused may have found a target that died before: the report names the
   case that ran before it.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from storagetest.config import Variant
from storagetest.errors import DeadlineExceeded, TargetDead
from storagetest.plugin.conformance.cases import fail_at_every_level, record_observation
from storagetest.plugin.items import wire_needs
from storagetest.plugin.outcomes import mark_failed
from storagetest.plugin.run_state import RunState
from storagetest.polling import wait_until
from storagetest.wire.tcp import RecordedConnection

_PREVIOUS = pytest.StashKey[dict[str, str]]()
_CONNECT_TIMEOUT = 5.0
"""Timeout of one attempt to connect, in seconds (chosen)."""


def after_phase(
    item: pytest.Item,
    report: pytest.TestReport,
    error: BaseException | None,
    variant: Variant,
    state: RunState,
) -> None:
    """Find out whether the target of ``item`` died, and record it. ``error`` ended the report's phase."""
    if not wire_needs(item):
        if isinstance(error, TargetDead):
            state.mark_failed(variant, error)
        return
    previous = item.config.stash.setdefault(_PREVIOUS, {})
    if report.failed and state.failure_reason(variant) is None:
        _wait_for_target(item, error, variant, state, previous.get(variant.target, ""))
    elif report.when == "teardown" and report.failed and isinstance(error, TargetDead):
        report.outcome = "passed"  # rule 2
        mark_failed(report)  # no mark any more
        report.sections.append(("target", str(error)))
    if report.when == "teardown":
        previous[variant.target] = item.name


def _wait_for_target(
    item: pytest.Item, error: BaseException | None, variant: Variant, state: RunState, previous: str
) -> None:
    options: Any = variant.options
    address, port = options.wire_endpoint(options.address, options.port)
    if _accepts(address, port):
        return
    fail_at_every_level(item)
    began = time.monotonic()
    before = f"; the case before it was {previous}" if previous and isinstance(error, TargetDead) else ""
    try:
        wait_until(lambda: _accepts(address, port), options.deadline, "a connection", interval=0.2)
    except DeadlineExceeded:
        text = f"{address}:{port} accepts no connection since {item.name}, for {options.deadline:g} s{before}"
        state.mark_failed(variant, TargetDead(text))
    else:
        away = time.monotonic() - began
        text = f"{address}:{port} accepted no connection in or after this case, for {away:.1f} s{before}"
    record_observation(item, text)


def _accepts(address: str, port: int) -> bool:
    try:
        RecordedConnection.connect(address, port, deadline=_CONNECT_TIMEOUT).close()
    except TargetDead:
        return False
    return True
