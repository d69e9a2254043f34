"""External suites: the list of tests, the command line of each test, and the parser of its output.

A suite builds command lines and parses output; :mod:`storagetest.plugin.external` runs the commands. Each
test is one pytest item: it has its own outcome and message, and a crash loses one result only. Rules:

1. A test whose output reports a skip is skipped, with the reason, for any exit status.
2. The program's output about a failure (for example sense data) is kept in :attr:`ItemResult.details`.
3. Destructive tests run only if :attr:`TargetInfo.may_erase` is true: the unit has reported the identity
   that the targets file names under ``erase``.
4. Arguments contain no secret. A program of a :class:`ControllerSuite` reads secrets from its environment; a
   :class:`ClientSuite` has none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from storagetest.registry import Registry, get_registry


class ItemOutcome(Enum):
    """Outcome of one test.

    WARNED: it passed, and the program doubts what the target chose. BROKEN: the program failed, or its output
    cannot be parsed.
    """

    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"
    SKIPPED = "skipped"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Invocation:
    """Command line and environment of one program. ``deadline`` is in seconds.

    On the controller ``env`` may contain secrets. On a client it is part of a command line.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    deadline: float = 120.0


@dataclass(frozen=True, slots=True)
class ItemResult:
    """Parsed output of one test: ``reason`` is one line, ``details`` the relevant part of the output."""

    ended: ItemOutcome
    reason: str = ""
    details: str = ""


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """Identity of a target, read before its first test.

    ``implementation`` is its name in known issues, and ``version`` its version; "" if they are not known.
    ``may_erase`` is true if the targets file allows this device to be overwritten. ``at_risk`` is the reason
    if no test may run, because the suite would endanger data. ``made`` is what :meth:`ControllerSuite.look`
    made on the target, in the suite's own form.
    """

    implementation: str = ""
    version: str = ""
    may_erase: bool = False
    at_risk: str = ""
    made: object = None


class Suite(ABC):
    """One external suite: a :class:`ControllerSuite` or a :class:`ClientSuite`. Subclasses are stateless."""

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]]
    """The capabilities that a target must have."""
    program: ClassVar[str]
    package: ClassVar[str]
    """Source of the program, for the message if it is not installed."""

    @abstractmethod
    def verdict(self, test: str, *, status: int, stdout: str, stderr: str) -> ItemResult:
        """Return the result of one test. Never raises: output that cannot be parsed is BROKEN."""


class ControllerSuite(Suite):
    """Suite whose program runs on the machine that runs pytest and connects to the target itself."""

    beside_program: ClassVar[bool] = False
    """Whether the program runs in the directory that it is in, because it finds its modules there."""

    @abstractmethod
    def listing(self) -> Invocation:
        """Return the command that lists the tests. It opens no connection."""

    @abstractmethod
    def tests(self, stdout: str) -> tuple[str, ...]:
        """Return the names of the tests in the listing's output."""

    @abstractmethod
    def invocation(self, test: str, options: Any, info: TargetInfo) -> Invocation:  # noqa: ANN401  # its protocol's
        """Return the command that runs one test against a target; ``info`` is the result of :meth:`look`."""

    def reader(self) -> Callable[[str], tuple[str, ItemResult] | None]:
        """Return a parser of one run's output: it gets each line as it arrives, and returns a result it ends.

        What it returned is kept if the program then hangs or crashes. By default it returns none.
        """
        return lambda _line: None

    def look(self, options: Any) -> TargetInfo:  # noqa: ANN401, ARG002  # its protocol's
        """Query the target's identity before its first test. By default: empty.

        Raises :class:`~storagetest.errors.TargetDead` if the target does not respond: its remaining tests
        are then skipped.
        """
        return TargetInfo()

    def look_again(self, options: Any) -> None:  # noqa: ANN401  # its protocol's
        """Raise :class:`~storagetest.errors.TargetDead` if the target is dead, after a BROKEN test."""
        self.look(options)

    def release(self, options: Any, info: TargetInfo) -> None:  # noqa: ANN401  # its protocol's; optional
        """Undo what :meth:`look` made, after the last test. Raises a StoragetestError if that fails."""


class ClientSuite(Suite):
    """Suite whose program is installed on the client and runs in an empty directory of the mount.

    Its tests are constant, because collection connects to no client.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"filesystem"})
    tests: ClassVar[tuple[str, ...]]

    def presence(self, program: str) -> tuple[str, ...]:
        """Return a command that succeeds if the program is installed on the client."""
        return ("sh", "-c", 'command -v "$1"', "sh", program)

    def files(self, test: str) -> Mapping[str, str]:  # noqa: ARG002  # a subclass's
        """Return the configuration files of the test: name → text. They are on a local disk of the client."""
        return {}

    @abstractmethod
    def invocation(self, test: str, *, program: str, place: str, scratch: str) -> Invocation:
        """Return the command that runs one test in ``place``; :meth:`files` are in ``scratch``."""


suites: Registry[Suite] = get_registry("storagetest.external")
register = suites.register
