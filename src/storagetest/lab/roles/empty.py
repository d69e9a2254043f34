"""No services: for tests of the lab itself, and for servers that are installed by hand."""

from __future__ import annotations

from storagetest.lab.roles import Role

ROLE = Role(summary="no services", memory=1024)
