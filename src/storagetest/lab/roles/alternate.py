"""Second implementations, in user space: NFS-Ganesha and tgt. What fails on one role only has met a bug.

There is no second SMB server. ksmbd is in the kernel, but that of Debian 12 (6.1.192) crashes in its first
CREATE, so that no mount comes to its end: see docs/findings/posix.md.
"""

from __future__ import annotations

from storagetest.lab.roles import Role
from storagetest.lab.services import ganesha, tgt

__all__ = ["ROLE"]

ROLE = Role(name="alternate", about="NFS-Ganesha and tgt", services=(ganesha.SERVICE, tgt.SERVICE))
