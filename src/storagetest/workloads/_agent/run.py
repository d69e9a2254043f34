"""Run the agent on a client: the zip and the request are sent, a result is received, nothing stays there.

On a client with an expensive start (:attr:`Host.expensive_exec`) agents are forked by the client's
:class:`~storagetest.workloads._agent.fork_server.ForkServer`; elsewhere an agent is a command like any other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

from storagetest.agent.bundle import ARGV, message
from storagetest.agent.command_context import CLEANUP_LIMIT, CLEANUP_MESSAGE, CLEANUP_STALL
from storagetest.errors import DeadlineExceeded, HostError, NotInstalled, WorkloadError
from storagetest.hosts.base import Completed, Host
from storagetest.hosts.interactive import ChannelLost, ChannelTimeout, InteractiveProcess
from storagetest.workloads._agent.fork_server import AgentChannel, ForkServer
from storagetest.workloads._agent.result import AgentResult, read_result

NO_PYTHON = (
    "python3 is missing: install python3-minimal and libpython3-stdlib (Debian), or python3; 3.9 or newer"
)
"""The end of a message for a client without Python."""

_LATER = 15.0
"""Seconds after the agent's own deadline at which it is ended, unless it still removes its files."""
_EXIT_TIMEOUT = 4.0
"""Seconds that an agent takes to end at most, from end of stdin over SIGTERM to SIGKILL."""
_OUTPUT_LIMIT = 64 << 20
"""Bytes of output that an agent may send."""


def has_fork_server(client: Host) -> bool:
    """Return whether agents are forked there by a fork server. Raises :class:`HostError`."""
    return client.expensive_exec and client.resource(ForkServer).available()


def run_agent(
    client: Host, request: Mapping[str, Any], *, deadline: float, on_line: Callable[[str], None] | None = None
) -> AgentResult:
    """Run the command that ``request`` names on ``client``, within ``deadline`` seconds.

    ``on_line`` is called with each line of the agent's output.

    Raises :class:`WorkloadError`, whose message states what to do next, and :class:`HostError` if the client
    is lost.
    """
    name = (
        f"{client.name}: {request['command'].removeprefix('loads.').replace('_', '-')} on {request['path']}"
    )
    whole = {"deadline": deadline, **request}
    try:
        done = _run(client, whole, deadline, on_line)
    except DeadlineExceeded as error:
        raise WorkloadError(
            f"{name}: the agent did not end within {deadline:g} s and was ended. The target may hang: look "
            "at the client's dmesg"
        ) from error
    except NotInstalled as error:
        raise WorkloadError(f"{name}: {NO_PYTHON}") from error
    try:
        result = read_result(done.stdout, done.stderr)
    except WorkloadError as error:
        raise WorkloadError(f"{name}: {error}") from None
    if not done.ok:
        raise WorkloadError(
            f"{name}: the agent exited {done.status} after its result\n{done.stderr.strip()[-1000:]}"
        )
    return result


@contextmanager
def open_agent_session(
    client: Host, request: Mapping[str, Any], *, deadline: float
) -> Iterator[InteractiveProcess]:
    """Start the command that ``request`` names on ``client``, and yield the interactive process.

    It ends with the block, and at ``deadline`` seconds from now. Raises :class:`HostError`, also without
    python3.
    """
    whole = {"deadline": deadline, **request}
    channel = _fork(client, whole, deadline)
    name = f"the agent's {request['command']}"
    if channel is None:
        with client.interactive_exec(
            ARGV, deadline=deadline, first=message(whole) + b"\n", name=name
        ) as process:
            yield process
        return
    with closing(channel):
        try:
            yield InteractiveProcess(client.name, name, channel)
        except BaseException:
            _part(channel)
            raise
        if not _part(channel):
            raise HostError(
                f"{client.name}: {name} cannot be killed: it hangs in the kernel (is its target dead?)"
            )


def terminate_agent(client: Host, pid: int, *, deadline: float) -> None:
    """Send SIGTERM to the agent with that process id on ``client``; return when it was sent.

    Raises :class:`HostError`.
    """
    if has_fork_server(client):
        client.resource(ForkServer).terminate(pid, deadline)
    else:
        client.run(["kill", "-TERM", str(pid)], deadline=deadline, check=False)


def _fork(client: Host, request: Mapping[str, Any], deadline: float) -> AgentChannel | None:
    """Fork an agent by the client's fork server; None if it has none."""
    if not client.expensive_exec:
        return None
    return client.resource(ForkServer).start_program(request, deadline=deadline)


def _run(
    client: Host, request: Mapping[str, Any], deadline: float, on_line: Callable[[str], None] | None
) -> Completed:
    channel = _fork(client, request, deadline + _LATER)
    if channel is None:
        late = deadline + CLEANUP_LIMIT + _LATER
        return client.run(ARGV, deadline=late, check=False, stdin=message(request), on_line=on_line)
    limit = deadline + _LATER + _EXIT_TIMEOUT
    began = time.monotonic()
    with closing(channel):
        try:
            output = "".join(_read_output(channel, limit, on_line or (lambda _: None)))
            status = channel.status(_EXIT_TIMEOUT)
        except ChannelTimeout:  # the fork server itself would have ended it by now
            client.resource(ForkServer).is_silent()
            raise DeadlineExceeded(f"{client.name}: the agent did not end within {deadline:g} s") from None
        except ChannelLost as lost:
            raise HostError(f"{client.name}: the agent was lost: {lost}") from None
        except BaseException:
            _part(channel)
            raise
    return Completed(client.name, ARGV, status, output, channel.stderr_text(), time.monotonic() - began)


def _read_output(channel: AgentChannel, limit: float, on_line: Callable[[str], None]) -> Iterator[str]:
    """Yield an agent's output until it ends. Raises errors of a :class:`Channel`, and :class:`HostError`."""
    until, size = time.monotonic() + limit, 0
    last = until + CLEANUP_LIMIT
    while data := channel.receive(max(0.0, until - time.monotonic())):
        size += len(data)
        if size > _OUTPUT_LIMIT:
            raise HostError(f"the agent printed more than {_OUTPUT_LIMIT >> 20} MiB")
        text = data.decode(errors="replace")
        for line in text.splitlines():
            if line.startswith(CLEANUP_MESSAGE):
                until = max(until, min(last, time.monotonic() + CLEANUP_STALL + _LATER))
            on_line(line)
        yield text


def _part(channel: AgentChannel) -> bool:
    """End an agent; whether it is gone, or goes as soon as its client is back."""
    channel.close_stdin()
    with suppress(ChannelLost):
        try:
            channel.status(_EXIT_TIMEOUT)
        except ChannelTimeout:
            return False
    return True
