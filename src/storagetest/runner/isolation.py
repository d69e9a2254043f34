"""Run a target's control on a client and undo it however the run ends: isolation, a missing device."""

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
    assert controls.isolate is not None, "needs('isolation')"
    assert controls.reconnect is not None, "needs('isolation')"

    def wait() -> None:
        wait_until(reconnected, _RECONNECTED, f"{client.name} to reach {target} again")

    with _controlled(client, f"isolation from {target}", controls.isolate, controls.reconnect, wait):
        yield


@contextmanager
def without_device(client: Host, controls: Controls, *, target: str) -> Iterator[None]:
    """Take the device of a pNFS layout away from ``client`` during the ``with`` body."""
    assert controls.remove_device is not None, "needs('device_removal')"
    assert controls.return_device is not None, "needs('device_removal')"
    description = f"missing device of {target}"
    with _controlled(client, description, controls.remove_device, controls.return_device, lambda: None):
        yield


@contextmanager
def _controlled(
    client: Host, description: str, do: Sequence[str], undo: Sequence[str], wait: Callable[[], None]
) -> Iterator[None]:
    """Run ``do`` on ``client``, then the body, then ``undo`` and ``wait``.

    The undo journal has the command ``undo`` before ``do`` is run. ``undo`` may fail if ``do`` was not run,
    so the journal's command then runs ``do`` and tries again: only a control that always fails is an error.
    """
    back = shlex.join(undo)
    entry = Journal(client).open(description, [["sh", "-c", f"{back} || {{ {shlex.join(do)} && {back}; }}"]])

    def release() -> None:
        client.run(undo, deadline=_CONTROL)
        wait()
        entry.remove()

    with release_after(release):
        client.run(do, deadline=_CONTROL)
        yield
