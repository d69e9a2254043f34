"""Paramiko, imported so that it keeps quiet.

Its own deprecations and those of cryptography are not our user's business (pytest may well turn warnings
into errors), and what it logs when a connection breaks is said by our messages. Whoever wants its log sets
the level of the logger ``paramiko``.
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
