"""What the appliance is: one module a role, each of them one `ROLE`, a choice of services.

``storagetest lab up --appliance NAME`` takes the module's name. Adding a role is adding a module.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass

from storagetest.errors import LabError
from storagetest.lab.image import RECIPES, Recipe
from storagetest.lab.services import Service, Target

__all__ = ["Role", "load", "names"]


@dataclass(frozen=True, slots=True)
class Role:
    """What an appliance serves, and the memory it needs in MiB."""

    name: str
    about: str
    services: tuple[Service, ...]
    memory: int = 3072
    release: str = "bookworm"
    """The Debian that the appliance and its clients run."""

    @property
    def recipe(self) -> Recipe:
        """Return how the image of its machines is made."""
        return RECIPES[self.release]

    @property
    def targets(self) -> tuple[Target, ...]:
        """Return the targets of all services."""
        return tuple(target for service in self.services for target in service.targets)


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
