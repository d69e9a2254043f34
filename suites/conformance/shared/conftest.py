"""What a case of two clients starts from: ``a`` and ``b``, a hand on each, in one directory that both see.

A case says with ``wire(a, "lock")`` what has to leave which client; where it does not, the case is INVALID.
What the target might answer by silence is claimed outside of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from os import O_CREAT, O_RDWR
from typing import Any

import pytest

from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until
from storagetest.runner.syscall_session import Call, SyscallSession


@pytest.fixture
def a(client_sessions: tuple[SyscallSession, SyscallSession]) -> SyscallSession:
    """Return the hand on the first client."""
    return client_sessions[0]


@pytest.fixture
def b(client_sessions: tuple[SyscallSession, SyscallSession]) -> SyscallSession:
    """Return the hand on the second client."""
    return client_sessions[1]


@pytest.fixture
def fds(a: SyscallSession, b: SyscallSession) -> tuple[int, int]:
    """Return a file of 100 bytes, open for reading and writing on both: nobody has it to itself."""
    a.write_file("f", bytes(100))
    return a.open("f", O_RDWR | O_CREAT), b.open("f", O_RDWR)


@pytest.fixture
def race(
    a: SyscallSession, b: SyscallSession
) -> Callable[[Iterable[Call], Iterable[Call]], tuple[list[Any], list[Any]]]:
    """Return what has both hands make their calls at the same time; it returns what each call came to."""

    def run(mine: Iterable[Call], yours: Iterable[Call]) -> tuple[list[Any], list[Any]]:
        one, two = a.start(*mine, deadline=60), b.start(*yours, deadline=60)
        return one.results(), two.results()

    return run


@pytest.fixture
def at_once(visibility_timeout: float) -> Callable[[Callable[[], bool], str], None]:
    """Return what claims that something is seen at once; where it is seen later, it says so.

    A protocol whose clients may believe for a while what they have seen is allowed the second of the two
    failures (known_issues.toml), and never the first.
    """

    def claim(seen: Callable[[], bool], what: str) -> None:
        if seen():
            return
        try:
            wait_until(seen, visibility_timeout, what, interval=0.5)
        except DeadlineExceeded:
            raise AssertionError(f"not seen within {visibility_timeout:g} s: {what}") from None
        raise AssertionError(f"seen later, and not at once: {what}")

    return claim


@pytest.fixture
def eventually(
    observe: Callable[[str], None], visibility_timeout: float
) -> Callable[[Callable[[], bool], str], None]:
    """Return what waits until something is seen, for as long as a client may believe its attribute cache."""

    def wait(seen: Callable[[], bool], what: str) -> None:
        began = time.monotonic()
        try:
            wait_until(seen, visibility_timeout, what, interval=0.5)
        except DeadlineExceeded:
            raise AssertionError(f"not seen within {visibility_timeout:g} s: {what}") from None
        waited = time.monotonic() - began
        observe("seen at once" if waited < 0.5 else "seen when the attribute cache had run out")

    return wait
