"""Second implementations, in user space: NFS-Ganesha and tgt. What fails on one role only has met a bug.

There is no second SMB server here, for this Debian's ksmbd crashes: it is in the role ``smb``.
"""

from __future__ import annotations

from storagetest.lab.roles import Role
from storagetest.lab.services import ganesha, tgt

__all__ = ["ROLE"]

ROLE = Role(name="alternate", about="NFS-Ganesha and tgt", services=(ganesha.SERVICE, tgt.SERVICE))
