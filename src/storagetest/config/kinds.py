"""Interfaces of the registered protocols and workloads that config uses.

Config imports neither package, because both import :mod:`storagetest.config.base`. It gets their classes from
the registries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from storagetest.config.base import TargetOptions, WorkloadOptions
from storagetest.registry import get_registry

if TYPE_CHECKING:
    from storagetest.measure.run import Metric


class ProtocolKind(Protocol):
    """A class that :mod:`storagetest.protocols` registers."""

    name: str
    Options: type[TargetOptions]


class WorkloadKind(Protocol):
    """A class that :mod:`storagetest.workloads` registers, or that a targets file defines."""

    name: str
    Options: type[WorkloadOptions]
    metrics: Mapping[str, Metric]
    tools: Mapping[str, tuple[str, ...]]
    synchronized: bool


def protocol_kinds() -> Mapping[str, ProtocolKind]:
    """Return every registered protocol by name."""
    found: Mapping[str, Any] = get_registry("storagetest.protocols").all()
    return found


def workload_kinds() -> Mapping[str, WorkloadKind]:
    """Return every registered workload by name."""
    found: Mapping[str, Any] = get_registry("storagetest.workloads").all()
    return found
