"""What a foreign suite is: which tests it has, how one is run, and what its output says.

A suite decides and parses; it never runs anything itself (:mod:`storagetest.plugin.external` does). Each of
its tests becomes one pytest item, so that a skip is a skip, a failure has its own text, and a crash loses one
result only. Rules:

1. A test that says it was skipped is skipped, with its reason, whatever its exit status.
2. What the program printed of the failure (sense data above all) is kept in :attr:`ItemResult.details`.
3. Destructive tests are run only where :attr:`TargetInfo.may_erase` is true: the unit has shown the identity
   that the targets file names under ``erase``.
4. No secret stands in an argument; programs take it from the environment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from storagetest.registry import Registry, get_registry

__all__ = [
    "ClientSuite",
    "ControllerSuite",
    "Invocation",
    "ItemOutcome",
    "ItemResult",
    "Suite",
    "TargetInfo",
    "register",
    "suites",
]


class ItemOutcome(Enum):
    """How one test ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command line and its environment; ``deadline`` in seconds."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    deadline: float = 120.0


@dataclass(frozen=True, slots=True)
class ItemResult:
    """What a test's output says: ``reason`` is one line, ``details`` what a person would want to read."""

    ended: ItemOutcome
    reason: str = ""
    details: str = ""


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """What a target says of itself before its first test.

    ``implementation`` is what known issues name it by (a vendor, a product); ``may_erase`` whether it is what
    the targets file allows to overwrite.
    """

    implementation: str = ""
    may_erase: bool = False


class Suite(ABC):
    """One foreign suite: a :class:`ControllerSuite` or a :class:`ClientSuite`. Subclasses are stateless."""

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]]
    """The capabilities that a target must have."""
    program: ClassVar[str]
    package: ClassVar[str]
    """Where the program comes from, as it is said to a person who lacks it."""

    @abstractmethod
    def verdict(self, test: str, *, status: int, stdout: str, stderr: str) -> ItemResult:
        """Read the output of one test. Total: what cannot be read is BROKEN."""


class ControllerSuite(Suite):
    """Runs on the machine that runs pytest, and reaches the target by itself."""

    reports: ClassVar[str] = "vendor"
    """The key of known issues that names :attr:`TargetInfo.implementation`: `vendor` or `controller`."""

    @abstractmethod
    def listing(self) -> Invocation:
        """Return how to list the tests; nothing is contacted by it."""

    @abstractmethod
    def tests(self, stdout: str) -> tuple[str, ...]:
        """Return the tests' names from the listing's output."""

    @abstractmethod
    def invocation(self, test: str, options: Any, *, may_erase: bool) -> Invocation:  # noqa: ANN401  # its protocol's
        """Return how to run one test against a target with these options."""

    def look(self, options: Any) -> TargetInfo:  # noqa: ANN401, ARG002  # its protocol's
        """Look at the target, once before its tests and again when a test broke; by default nothing is seen.

        :class:`~storagetest.errors.TargetDead` where it does not answer: its other tests are skipped then.
        """
        return TargetInfo()


class ClientSuite(Suite):
    """Runs on the client, in an empty directory of the mount; ``program`` is looked for there.

    Its tests are known beforehand, since no client is asked when tests are collected.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"filesystem"})
    tests: ClassVar[tuple[str, ...]]

    def presence(self, program: str) -> tuple[str, ...]:
        """Return a command that succeeds on a client that has the program."""
        return ("sh", "-c", 'command -v "$1"', "sh", program)

    def files(self, test: str) -> Mapping[str, str]:  # noqa: ARG002  # a subclass's
        """Return what the test reads besides: name → text, in a directory of the client's own."""
        return {}

    @abstractmethod
    def invocation(self, test: str, *, program: str, place: str, scratch: str) -> Invocation:
        """Return how to run one test in ``place``; :meth:`files` are in ``scratch``."""


suites: Registry[Suite] = get_registry("storagetest.external")
register = suites.register
