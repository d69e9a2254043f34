"""Restart the service of a target by its control, and prove that it was restarted."""

from __future__ import annotations

from collections.abc import Callable

from storagetest.config.controls import Controls
from storagetest.errors import ControlError, DeadlineExceeded, TargetDead
from storagetest.hosts import Host
from storagetest.polling import wait_until

CONTROL_TIMEOUT = 600.0
"""Timeout in seconds of the control command, which may reboot a machine (chosen)."""
END_TIMEOUT = 120.0
"""Seconds after the command within which a connection from before the restart ends (chosen)."""
ANSWER_TIMEOUT = 300.0
"""Seconds within which the service answers after that (chosen)."""


Predicate = Callable[[], bool]


def restart(
    server: Host,
    controls: Controls,
    *,
    target: str,
    is_connected: Predicate,
    answers: Predicate,
) -> None:
    """Run the control ``restart`` on ``server``; return when ``answers()`` is true.

    ``is_connected()`` is whether a connection that was made before still exists. Raises ControlError if it
    does after ``END_TIMEOUT`` seconds, TargetDead if the service does not answer within ``ANSWER_TIMEOUT``
    seconds after its end, and HostError if the command fails.
    """
    assert controls.restart is not None, "needs('restart')"
    server.run(controls.restart, deadline=CONTROL_TIMEOUT)
    try:
        wait_until(lambda: not is_connected(), END_TIMEOUT, "")
    except DeadlineExceeded:
        raise ControlError(
            f"{target}: the control `restart` did not restart the server: a connection from before it has "
            f"not ended within {END_TIMEOUT:g} s. Correct `controls: restart` in the targets file."
        ) from None
    wait_until(answers, ANSWER_TIMEOUT, f"{target} to answer after its restart", error=TargetDead)
