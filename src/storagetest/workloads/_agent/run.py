"""Running the agent on a client: the zip and the request go in, an answer comes out, nothing stays there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from storagetest.agent.pack import START, message
from storagetest.errors import DeadlineExceeded, HostError, WorkloadError
from storagetest.hosts.base import Completed, Host
from storagetest.workloads._agent.answer import Answer, read_answer

__all__ = ["ARGV", "run_agent"]

# -I and -S: neither the user's environment nor installed packages matter, and it starts in half the time.
ARGV = ("python3", "-I", "-S", "-c", START)
_LATER = 15.0
"""Seconds after the agent's own deadline at which the host ends it: it should have said why before."""


def run_agent(
    client: Host,
    request: Mapping[str, Any],
    *,
    deadline: float,
    on_line: Callable[[str], None] | None = None,
) -> Answer:
    """Run the command that ``request`` names on ``client``, within ``deadline`` seconds.

    ``on_line`` is called with each line that the agent says, as it comes.

    Raises :class:`WorkloadError`, whose message says what to do next, and :class:`HostError` where the client
    itself is lost.
    """
    name = f"{client.name}: {request['command'].replace('_', '-')} on {request['path']}"
    whole = {"deadline": deadline, **request}
    try:
        done = client.run(
            ARGV, deadline=deadline + _LATER, check=False, stdin=message(whole), on_line=on_line
        )
    except DeadlineExceeded as error:
        raise WorkloadError(
            f"{name}: the agent did not end within {deadline:g} s and was ended. The target may hang: look "
            "at the client's dmesg"
        ) from error
    except HostError as error:
        if "`python3` is not installed" in str(error):
            raise WorkloadError(
                f"{name}: python3 is missing: install python3-minimal and libpython3-stdlib (Debian), or "
                "python3, there; 3.9 or newer"
            ) from error
        raise
    return _read(name, done)


def _read(name: str, done: Completed) -> Answer:
    try:
        answer = read_answer(done.stdout, done.stderr)
    except WorkloadError as error:
        raise WorkloadError(f"{name}: {error}") from None
    if not done.ok:
        raise WorkloadError(
            f"{name}: the agent exited {done.status} after its result\n{done.stderr.strip()[-1000:]}"
        )
    return answer
