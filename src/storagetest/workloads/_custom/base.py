"""The base of custom workloads: each kind makes classes from entries of a targets file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from storagetest.config.base import WorkloadOptions
from storagetest.config.custom_workloads import CUSTOM_WORKLOADS, CustomWorkloadEntry
from storagetest.registry import Registry, get_registry
from storagetest.workloads.base import Workload


class CustomWorkload(Workload[WorkloadOptions]):
    """One kind of custom workload. ``name`` is the entry's key that selects it (``fio``, ``python`` …)."""

    Options = WorkloadOptions
    example: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    @abstractmethod
    def define(
        cls, name: str, entry: CustomWorkloadEntry, directory: Path, place: str
    ) -> type[Workload[Any]]:
        """Return the workload ``name`` that ``entry`` describes.

        ``directory`` is the targets file's. Raises :class:`~storagetest.errors.ConfigError` with ``place``,
        or with the place in the file that the entry names.
        """

    @classmethod
    def _subclass(cls, name: str, doc: str, **members: object) -> type[Self]:
        """Return the workload ``name`` with the docstring ``doc`` and these class attributes."""
        return type(name, (cls,), {"__doc__": doc, "__module__": cls.__module__, "name": name, **members})


custom_workloads: Registry[CustomWorkload] = get_registry(CUSTOM_WORKLOADS)
register = custom_workloads.register
