"""What the bodies of system-call cases are written with; it travels to the client with the agent.

A case's module is sent to the client as it stands and imported there, so it imports the standard library,
``pytest`` (on the client :mod:`~storagetest.agent.testlib.pytest_stub`) and this package, and no more. See
docs/system-call-cases.md for how such a case is written.

Rule: this package and its modules import at their top only what a case mostly needs; a start costs a third of
a second under emulation.
"""

from storagetest.agent.testlib.outcomes import Lacks, lacks, observe, refused
from storagetest.agent.testlib.processes import Elsewhere, Signalled, as_user, elsewhere

__all__ = ["Elsewhere", "Lacks", "Signalled", "as_user", "elsewhere", "lacks", "observe", "refused"]
