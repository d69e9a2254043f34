"""Nothing: for tests of the lab itself, and for a server that is being tried out by hand."""

from __future__ import annotations

from storagetest.lab.roles import Role

__all__ = ["ROLE"]

ROLE = Role(name="bare", about="nothing", services=(), memory=1024)
