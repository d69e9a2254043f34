"""Samba with SMB1, the dialect of old published figures.

SMB1 is insecure; the lab's network has no other machine.
Samba 4.17 and Linux 6.1 of Debian 12 still speak it.
"""

from __future__ import annotations

from storagetest.lab.roles import Role, SmokeTest
from storagetest.lab.services import samba

ROLE = Role(
    summary="Samba with SMB1 (insecure), for comparisons with old figures",
    services=(samba.WITH_SMB1,),
    smoke_tests=(SmokeTest(("smb-old-v1.0",), min_passed=2),),
)
