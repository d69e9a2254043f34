"""Fixtures of cases with two clients: ``a`` and ``b`` are syscall sessions in one directory of the target.

Lustre's clients hold locks of the servers on what they cache, so a change of one client is seen by the next
call of the other: no case waits for a cache to expire.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.agent.testlib.lfs import Part, parse_parts
from storagetest.runner.syscall_session import SyscallSession

LFS_SECONDS = 30.0
"""Timeout in seconds of one lfs command on a client; an emulated client is slow."""


@pytest.fixture
def a(client_sessions: tuple[SyscallSession, SyscallSession]) -> SyscallSession:
    """Return the syscall session on the first client."""
    return client_sessions[0]


@pytest.fixture
def b(client_sessions: tuple[SyscallSession, SyscallSession]) -> SyscallSession:
    """Return the syscall session on the second client."""
    return client_sessions[1]


@pytest.fixture
def lfs() -> Callable[..., str]:
    """Return a function that runs lfs on a session's client, in the case's directory; it has to succeed."""

    def run(session: SyscallSession, *words: object) -> str:
        argv = ["lfs", *map(str, words)]
        status, output, errors = session.call("run_program", argv, LFS_SECONDS, deadline=LFS_SECONDS + 10)
        assert status == 0, f"{session.name}: {' '.join(argv)} exited {status}: {(errors or output).strip()}"
        return str(output)

    return run


@pytest.fixture
def parts_of(lfs: Callable[..., str]) -> Callable[[SyscallSession, str], list[Part]]:
    """Return a function that reads the components of a file's layout on a session's client."""
    return lambda session, name: parse_parts(lfs(session, "getstripe", "--yaml", name))
