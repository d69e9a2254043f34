"""Import paramiko without its warnings and log messages.

Users cannot act on its deprecation warnings and those of cryptography, and pytest may turn them into errors.
The errors of storagetest report broken connections. To see paramiko's log, set the level of its logger.
"""

from __future__ import annotations

import logging
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import paramiko

__all__ = ["paramiko"]

_log = logging.getLogger("paramiko")
_log.addHandler(logging.NullHandler())
if _log.level == logging.NOTSET:
    _log.setLevel(logging.CRITICAL + 1)
