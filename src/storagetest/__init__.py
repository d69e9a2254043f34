"""storagetest: conformance and performance of storage targets, as pytest suites with a hermetic lab.

docs/design.md describes the architecture.
"""

from __future__ import annotations

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    """Return ``__version__``. To find it takes 70 ms, so that only those wait who ask for it."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        return version("storagetest")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0+unknown"
