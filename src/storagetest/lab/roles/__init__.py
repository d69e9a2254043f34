"""What the appliance is: one module a role, each of them one `ROLE`, a choice of services.

``storagetest lab up --appliance NAME`` takes the module's name. Adding a role is adding a module.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass

from storagetest.errors import LabError
from storagetest.lab.services import Secret, Service

__all__ = ["Role", "load", "names"]


@dataclass(frozen=True, slots=True)
class Role:
    """What an appliance serves, and the memory it needs in MiB."""

    name: str
    about: str
    services: tuple[Service, ...]
    memory: int = 3072

    @property
    def ports(self) -> Mapping[str, int]:
        """Return the ports of all services, by name."""
        return {name: port for service in self.services for name, port in service.ports.items()}

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """Return the secrets of all services."""
        return tuple(secret for service in self.services for secret in service.secrets)


def names() -> list[str]:
    """Return the names of all roles."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(name: str) -> Role:
    """Return the role called ``name``."""
    if name not in names():
        raise LabError(f"no appliance is called {name!r}; there are: {', '.join(names())}")
    role = importlib.import_module(f"{__name__}.{name}").ROLE
    assert isinstance(role, Role)
    return role
