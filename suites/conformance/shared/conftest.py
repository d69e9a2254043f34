"""Fixtures of cases with two clients: ``a`` and ``b`` are syscall sessions in one directory of the target.

``with crossed_wire(a, "lock"):`` requires that client ``a`` sends a lock request; if it does not, the case is
INVALID. Calls that the client may answer without the target are outside of such a block.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from os import O_CREAT, O_RDWR

import pytest

from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until
from storagetest.runner.syscall_session import SyscallSession

INTERVAL, GROWTH = 0.45, 2.0
"""The first pause between two looks at what the other client changed, in seconds, and what each pause is
multiplied by for the next: Linux's SMB client keeps a handle, and what it knows of the file, for as long as
the file is opened again within ``closetimeo`` (mount.cifs(8): one second). The fourth look is made soon after
an attribute cache of three seconds has expired (nfs(5), acregmin)."""


@pytest.fixture
def a(client_sessions: tuple[SyscallSession, SyscallSession]) -> SyscallSession:
    """Return the syscall session on the first client."""
    return client_sessions[0]


@pytest.fixture
def b(client_sessions: tuple[SyscallSession, SyscallSession]) -> SyscallSession:
    """Return the syscall session on the second client."""
    return client_sessions[1]


@pytest.fixture
def fds(a: SyscallSession, b: SyscallSession) -> tuple[int, int]:
    """Return descriptors of a file of 100 bytes, open for reading and writing on both clients."""
    a.write_file("f", bytes(100))
    return a.open("f", O_RDWR | O_CREAT), b.open("f", O_RDWR)


@pytest.fixture
def at_once(visibility_timeout: float) -> Callable[[Callable[[], bool], str], None]:
    """Return a function that asserts that a change is seen at once, and otherwise whether it is seen later.

    A protocol whose clients may use cached attributes for a while is allowed the second of the two failures
    (known_issues.toml), and never the first.
    """

    def claim(seen: Callable[[], bool], description: str) -> None:
        if seen():
            return
        try:
            wait_until(seen, visibility_timeout, description, interval=INTERVAL, growth=GROWTH)
        except DeadlineExceeded:
            raise AssertionError(f"not seen within {visibility_timeout:g} s: {description}") from None
        raise AssertionError(f"seen later, and not at once: {description}")

    return claim


@pytest.fixture
def eventually(
    observe: Callable[[str], None], visibility_timeout: float
) -> Callable[[Callable[[], bool], str], None]:
    """Return a function that waits until a change is seen, at most as long as attributes may be cached."""

    def wait(seen: Callable[[], bool], description: str) -> None:
        start = time.monotonic()
        try:
            wait_until(seen, visibility_timeout, description, interval=INTERVAL, growth=GROWTH)
        except DeadlineExceeded:
            raise AssertionError(f"not seen within {visibility_timeout:g} s: {description}") from None
        elapsed = time.monotonic() - start
        observe("seen at once" if elapsed < 0.5 else "seen when the attribute cache had expired")

    return wait
