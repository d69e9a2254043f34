"""Two SMB servers with the POSIX extensions of SMB 3.1.1, Samba and ksmbd, on Debian 13.

Debian 12 is too old: its ksmbd crashes at the first CREATE, its Samba has no POSIX extensions, and its client
cannot mount a share with them. See docs/findings/posix.md.
"""

from __future__ import annotations

from storagetest.lab.roles import Role, SmokeTest
from storagetest.lab.services import ksmbd, samba

_PATHS = tuple(f"conformance/posix/test_{module}.py" for module in ("create", "mode_owner", "remove"))
_CHMOD = ("PSX-CHMOD-0640",)

ROLE = Role(
    summary="Samba and ksmbd with POSIX extensions",
    services=(samba.WITH_POSIX, ksmbd.SERVICE),
    debian="trixie",
    smoke_tests=(
        SmokeTest(("smb-posix",), _PATHS, min_passed=30, passed=_CHMOD),
        SmokeTest(("ksmbd-posix",), _PATHS, min_passed=30, passed=_CHMOD),
        SmokeTest(("ksmbd",), _PATHS, min_passed=30, not_passed=_CHMOD),
    ),
)
