"""Helpers for the bodies of system-call cases; they are sent to the client with the agent.

A case's module is sent to the client unchanged and imported there. Therefore it imports only the standard
library, ``pytest`` (on the client :mod:`~storagetest.agent.testlib.pytest_stub`) and this package.
docs/system-call-cases.md describes how to write such a case.

Rule: this package and its modules import at module level only what most cases need, because a start takes a
third of a second under emulation.
"""

from storagetest.agent.testlib.outcomes import CannotRun, assert_errno, record_observation, skip
from storagetest.agent.testlib.processes import (
    KilledBySignal,
    SubprocessCall,
    call_in_subprocess,
    run_as_user,
)

__all__ = [
    "CannotRun",
    "KilledBySignal",
    "SubprocessCall",
    "assert_errno",
    "call_in_subprocess",
    "record_observation",
    "run_as_user",
    "skip",
]
