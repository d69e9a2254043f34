"""Old names of :mod:`storagetest.agent.testlib`, accepted for one release."""

import warnings

from storagetest.agent.testlib import assert_errno as refused
from storagetest.agent.testlib import call_in_subprocess as elsewhere
from storagetest.agent.testlib import record_observation as observe
from storagetest.agent.testlib import run_as_user as as_user
from storagetest.agent.testlib import skip as lacks

__all__ = ["as_user", "elsewhere", "lacks", "observe", "refused"]

# Python shows this category only in pytest and in __main__: nothing is written to a client's stderr.
warnings.warn(
    "storagetest.agent.casekit is deprecated. Use storagetest.agent.testlib (docs/how-to/upgrade.md).",
    DeprecationWarning,
    stacklevel=2,
)
