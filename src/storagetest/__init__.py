"""storagetest: conformance and performance of storage targets, as pytest suites with a hermetic lab.

docs/design.md describes the architecture.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["__version__"]

try:
    __version__ = version("storagetest")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0+unknown"
