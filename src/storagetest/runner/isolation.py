"""Run a target's control on a client or the server, and undo it however the run ends."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from storagetest.config.controls import Controls
from storagetest.hosts import Host, Journal
from storagetest.polling import wait_until
from storagetest.protocols._acquire import release_after

_CONTROL = 30.0
"""Timeout in seconds of a control command."""
_RECONNECTED = 180.0
"""Seconds that a client may take to reach its target again: TCP retransmits at growing intervals."""


@contextmanager
def isolated(
    client: Host, controls: Controls, *, target: str, reconnected: Callable[[], bool]
) -> Iterator[None]:
    """Isolate ``client`` during the ``with`` body; return when ``reconnected()`` is true."""

    def wait() -> None:
        wait_until(reconnected, _RECONNECTED, f"{client.name} to reach {target} again")

    do, undo = controls.pair("isolation")
    with _controlled(client, f"isolation from {target}", do, undo, wait):
        yield


@contextmanager
def controlled(host: Host, controls: Controls, capability: str, *, target: str) -> Iterator[None]:
    """Run the controls of ``capability`` on ``host``: the first before the ``with`` body, the other after."""
    do, undo = controls.pair(capability)
    with _controlled(host, f"{capability} of {target}", do, undo, lambda: None):
        yield


@contextmanager
def _controlled(
    host: Host, description: str, do: Sequence[str], undo: Sequence[str], wait: Callable[[], None]
) -> Iterator[None]:
    """Run ``do`` on ``host``, then the body, then ``undo`` and ``wait``.

    The undo journal has the command ``undo`` before ``do`` is run. ``undo`` may fail if ``do`` was not run,
    so the journal's command then runs ``do`` and tries again: only a control that always fails is an error.
    """
    back = shlex.join(undo)
    entry = Journal(host).open(description, [["sh", "-c", f"{back} || {{ {shlex.join(do)} && {back}; }}"]])

    def release() -> None:
        host.run(undo, deadline=_CONTROL)
        wait()
        entry.remove()

    with release_after(release):
        host.run(do, deadline=_CONTROL)
        yield
