"""Registries of protocols, workloads, counters and external suites.

Each registry has a package of storagetest (``storagetest.protocols``) and an entry-point group of the same
name. At its first use a :class:`Registry` imports every public module of the package and loads every entry
point of the group. Each ``@register`` in them adds its class under its ``name``. To add a class, add a
module; no other file changes.

Rules:

1. ``@register`` is the outermost decorator (a slotted dataclass decorator creates a new class).
2. A name is registered once. A second class of the same name is an error that names both modules.
3. A third party's entry point that fails to load is an error that names it; it is not ignored.
4. Only ``@register`` changes a registry. The classes that a targets file defines belong to the configuration
   that was read from it.
5. This module imports no package of storagetest except ``errors``. A package that may not import a registry's
   package (``config``) gets the registry here, by name: :func:`get_registry`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from storagetest.errors import ConfigError

T = TypeVar("T")


class Registry(Generic[T]):
    """The registered classes of one package, by name.

    ``package`` is the name of both the package whose modules are imported and the entry-point group.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._entries: dict[str, type[T]] = {}
        self._loaded = False

    def register(self, cls: type[T]) -> type[T]:
        """Register ``cls`` under ``cls.name`` (in lower case and dashes); usable as a decorator."""
        name: str = cls.name  # type: ignore[attr-defined]  # T's bound would have to be repeated everywhere
        known = self._entries.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ConfigError(
                f"{self._package}: {name!r} is registered by {known.__module__} and by {cls.__module__}"
            )
        self._entries[name] = cls
        return cls

    def all(self) -> Mapping[str, type[T]]:
        """Return every registered class, sorted by name."""
        self._load()
        return dict(sorted(self._entries.items()))

    def get(self, name: str) -> type[T]:
        """Return the class called ``name``. Raises :class:`ConfigError`, which lists the registered names."""
        self._load()
        if name not in self._entries:
            kind = self._package.rpartition(".")[2]
            raise ConfigError(f"no such entry in {kind}: {name!r}; available: {', '.join(self.all())}")
        return self._entries[name]

    def __iter__(self) -> Iterator[type[T]]:
        return iter(self.all().values())

    def _load(self) -> None:
        if self._loaded:
            return
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith("_"):
                importlib.import_module(f"{self._package}.{module.name}")
        for entry in entry_points(group=self._package):
            try:
                entry.load()
            except Exception as error:
                where = f"entry point {entry.name} = {entry.value} of group {self._package}"
                raise ConfigError(f"{where} failed to load: {error}") from error
        self._loaded = True


@cache
def get_registry(package: str) -> Registry[Any]:
    """Return the registry of ``package``: one per process."""
    return Registry(package)
