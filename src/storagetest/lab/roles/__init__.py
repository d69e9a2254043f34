"""Appliance roles: one module per role, each with one ``ROLE`` that lists the services of the appliance.

``storagetest lab up --appliance NAME`` takes the module's name. A new role is one new module here, plus one
module in :mod:`storagetest.lab.services` per new server. Everything else is derived from these modules: the
choices of the command line, the image, targets.yaml, the reference page of the docs, and the test of the
role.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass

from storagetest.deprecation import warn_renamed
from storagetest.errors import LabError
from storagetest.lab.image import Recipe
from storagetest.lab.services import Service, Target, client

__all__ = ["RENAMED", "Role", "SmokeTest", "current_name", "load", "names"]

RENAMED = {"alternate": "userspace", "bare": "empty"}
"""Former names of roles; accepted with a warning for one release."""


@dataclass(frozen=True, slots=True)
class SmokeTest:
    """One run of a suite on a lab with this role. No case may fail; tests/lab/test_roles.py runs it."""

    variants: tuple[str, ...]
    """Variants to select, as ``--st-target`` takes them."""
    paths: tuple[str, ...] = ()
    """Paths below suites/; empty for a random-write and a sequential-read measurement."""
    options: tuple[str, ...] = ()
    """Further pytest options."""
    min_passed: int = 1
    """How many cases pass at least."""
    passed: tuple[str, ...] = ()
    """Ids of cases that pass."""
    not_passed: tuple[str, ...] = ()
    """Ids of cases that run with another outcome than ``passed``."""


@dataclass(frozen=True, slots=True)
class Role:
    """The services of an appliance, and the virtual machines that the lab needs for them."""

    summary: str
    """What the appliance serves, in a few words; for the command line's help and the docs."""
    services: tuple[Service, ...] = ()
    client_services: tuple[Service, ...] = ()
    """What every client runs in addition to :mod:`storagetest.lab.services.client`."""
    shared_disk: int = 0
    """Size in MiB of a raw disk that all machines have; 0: none."""
    memory: int = 3072
    """Memory of the appliance in MiB."""
    debian: str = "bookworm"
    """The Debian release of the appliance and of its clients."""
    smoke_tests: tuple[SmokeTest, ...] = ()

    @property
    def recipe(self) -> Recipe:
        """Return the recipe of the image. All roles on one Debian release share one image."""
        roles = [role for role in (self, *map(load, names())) if role.debian == self.debian]
        services = [
            client.SERVICE,
            *(service for role in roles for service in (*role.services, *role.client_services)),
        ]
        return Recipe.of(
            self.debian,
            packages={package for service in services for package in service.packages},
            unpacked={package for service in services for package in service.unpacked},
        )

    @property
    def targets(self) -> tuple[Target, ...]:
        """Return the targets of all services."""
        return tuple(target for service in self.services for target in service.all_targets)


def names() -> list[str]:
    """Return the names of all roles, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def current_name(name: str) -> str:
    """Return the present name of a role; warn if ``name`` is a former one."""
    if name in RENAMED:
        warn_renamed("role", name, RENAMED[name], "--appliance")
    return RENAMED.get(name, name)


def load(name: str) -> Role:
    """Return the role called ``name``. Raises :class:`LabError` with the known names if there is none."""
    if name not in names():
        raise LabError(f"--appliance {name}: unknown role. Known roles: {', '.join(names())}.")
    role = importlib.import_module(f"{__name__}.{name}").ROLE
    assert isinstance(role, Role)
    return role
