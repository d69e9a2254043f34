"""What the bodies of system-call cases are written with; it travels to the client with the agent.

A case's module is sent to the client as it stands and imported there, so it imports the standard library,
``pytest`` (on the client :mod:`~storagetest.agent.testlib.pytest_stub`) and this package, and no more. See
docs/system-call-cases.md for how such a case is written.

Rule: this package and its modules import at their top only what a case mostly needs; a start costs a third of
a second under emulation.
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
