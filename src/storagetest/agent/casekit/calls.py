"""Old name of :mod:`storagetest.agent.testlib.libc`, accepted for one release."""

from storagetest.agent.testlib.libc import fallocate, renameat2

__all__ = ["fallocate", "renameat2"]
