"""Isolate a client from a target by the target's controls, and reconnect it however the run ends."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
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
    """Isolate ``client`` during the ``with`` body; return when ``reconnected()`` is true.

    The undo journal has the step to reconnect before the client is isolated. The reconnect control may fail
    if the client is not isolated, so the step then isolates the client and tries again: only a control that
    always fails is an error.
    """
    assert controls.isolate is not None, "needs('isolation')"
    assert controls.reconnect is not None, "needs('isolation')"
    isolate, reconnect = controls.isolate, controls.reconnect
    back = shlex.join(reconnect)
    undo = ["sh", "-c", f"{back} || {{ {shlex.join(isolate)} && {back}; }}"]
    entry = Journal(client).open(f"isolation from {target}", [undo])

    def release() -> None:
        client.run(reconnect, deadline=_CONTROL)
        wait_until(reconnected, _RECONNECTED, f"{client.name} to reach {target} again")
        entry.remove()

    with release_after(release):
        client.run(isolate, deadline=_CONTROL)
        yield
