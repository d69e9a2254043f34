"""SMB by two servers that have the POSIX extensions of SMB 3.1.1: Samba and ksmbd, on a newer Debian.

Debian 12's ksmbd crashes in its first CREATE, its Samba has no such extensions, and its client cannot mount
what another server grants: see docs/findings/posix.md.
"""

from __future__ import annotations

from storagetest.lab.roles import Role
from storagetest.lab.services import ksmbd, samba

__all__ = ["ROLE"]

ROLE = Role(
    name="smb",
    about="Samba and ksmbd with POSIX extensions",
    services=(samba.WITH_POSIX, ksmbd.SERVICE),
    release="trixie",
)
