"""Restart the service of a target by its control."""

from __future__ import annotations

from collections.abc import Callable

from storagetest.config.controls import Controls
from storagetest.errors import TargetDead
from storagetest.hosts import Host
from storagetest.polling import wait_until

CONTROL_TIMEOUT = 600.0
"""Timeout in seconds of the control command, which may reboot a machine (chosen)."""
ANSWER_TIMEOUT = 300.0
"""Seconds within which the service answers after the command (chosen)."""


def restart(server: Host, controls: Controls, *, target: str, answers: Callable[[], bool]) -> None:
    """Run the control ``restart`` on ``server``; return when ``answers()`` is true.

    Raises TargetDead if that is not the case within ``ANSWER_TIMEOUT`` seconds, and HostError if the command
    fails.
    """
    assert controls.restart is not None, "needs('restart')"
    server.run(controls.restart, deadline=CONTROL_TIMEOUT)
    wait_until(answers, ANSWER_TIMEOUT, f"{target} to answer after its restart", error=TargetDead)
