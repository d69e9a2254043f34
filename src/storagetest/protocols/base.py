"""What a protocol is: how a client's kernel attaches a target, and how it lets go of it.

``attach()`` is a context manager with five steps, the same for every protocol:

1. *journal*: write on the client how to undo what comes next (:mod:`storagetest.hosts.undo_journal`);
2. *acquire*: mount, or log in and find the device;
3. *verify*: read back from the kernel what was negotiated and compare it with what the variant asked for;
4. yield the :class:`Attachment`;
5. *release*, prove that nothing is left, and only then strike the journal's entry out.

Which error means what:

- :class:`~storagetest.errors.TargetDead`: no route, port closed, no answer before the deadline;
- :class:`~storagetest.errors.ClientLacks`: no kernel module or tool on the client;
- :class:`~storagetest.errors.OptionRefused`: the target said no to an option of the variant (a skip);
- :class:`~storagetest.errors.DataAtRisk`: the device is not ours to overwrite;
- :class:`~storagetest.errors.AttachError`: anything else (mount refused, wrong secret …).

An option that the target changed in silence is no error: it becomes a :class:`OptionMismatch` on the
attachment, and the case that was to measure it fails with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

from storagetest.config.base import TargetOptions
from storagetest.hosts.base import Host
from storagetest.registry import Registry, get_registry

__all__ = [
    "Attachment",
    "AttachmentKind",
    "Capability",
    "ClientRequirements",
    "OptionMismatch",
    "Protocol",
    "protocols",
    "register",
]

Capability = str
"""What a suite may ask for with ``@pytest.mark.needs``: ``filesystem``, ``block``, ``multi_session`` …"""


class AttachmentKind(Enum):
    """What a client gets from an attach."""

    FILESYSTEM = "filesystem"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class OptionMismatch:
    """An option that was asked for and silently came out otherwise."""

    option: str
    requested: str
    actual: str

    def __str__(self) -> str:
        return f"{self.option}: asked for {self.requested}, got {self.actual}"


@dataclass(frozen=True, slots=True)
class ClientRequirements:
    """What an attach takes: commands and kernel modules on the client, and a TCP port that answers it.

    ``modules`` may be file system types as well, for kernels that have them built in. ``packages`` says in
    words what to install. Without ``address`` nothing has to answer.
    """

    tools: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    packages: str = ""
    address: str = ""
    port: int = 0


@dataclass(frozen=True, slots=True)
class Attachment:
    """A target as one client has it.

    ``path`` is a directory of our own on the target (``AttachmentKind.FILESYSTEM``; empty when yielded,
    emptied on release) or the path of a device that may be overwritten (``AttachmentKind.BLOCK``). ``size``
    is the bytes that may be used there. ``negotiated`` is what the kernel reports of the connection, by the
    kernel's own names (``vers``, ``rsize``, ``nconnect``, ``HeaderDigest``, ``queue_count`` …). ``remote`` is
    false if client and target are one machine. ``root`` is the directory under which other clients of the
    target see the same names as this one (empty: there is none). What may be used of a device begins at byte
    ``offset``.
    """

    client: Host
    path: str
    kind: AttachmentKind
    size: int
    negotiated: Mapping[str, str] = field(default_factory=dict)
    mismatches: tuple[OptionMismatch, ...] = ()
    remote: bool = True
    root: str = ""
    offset: int = 0


O = TypeVar("O", bound=TargetOptions)  # noqa: E741  # options


class Protocol(ABC, Generic[O]):
    """One way to reach storage. Subclasses are stateless; everything is in their options."""

    name: ClassVar[str]
    title: ClassVar[str]
    """The name as people write it, for reports."""

    attachment_kind: ClassVar[AttachmentKind]
    Options: ClassVar[type[TargetOptions]]
    """The YAML of a target of this protocol. Every field may also stand in the target's ``matrix``."""

    example: ClassVar[Mapping[str, Any]]
    """Options that load, for the reference page and the registry's contract test."""

    searched: ClassVar[Mapping[str, tuple[object, ...]]] = {}
    """Options on which bandwidth may depend, such as how many connections a client has: values worth trying,
    in their order."""

    ports: ClassVar[tuple[int, ...]] = ()
    """TCP ports at which a machine that serves this protocol usually answers, the surest first."""

    def capabilities(self, options: O) -> frozenset[Capability]:
        """Return what a variant with these options can do; no target is contacted."""
        if self.attachment_kind is AttachmentKind.BLOCK and getattr(options, "filesystem", None) is None:
            return frozenset({"block"})
        return frozenset({"filesystem"})

    def needs(self, options: O) -> ClientRequirements:  # noqa: ARG002
        """Return what an attach with these options takes; nothing is contacted."""
        return ClientRequirements()

    def discover(self, client: Host, address: str, *, deadline: float) -> Sequence[Mapping[str, Any]]:  # noqa: ARG002
        """Ask the machine at ``address``, from ``client``, what it serves to anybody who asks.

        Returns options of targets, as far as it says (``[{"export": "/srv"}]``); nothing where it cannot be
        asked. Nothing is attached, and no name or password is sent. Never raises for its own.
        """
        return ()

    @abstractmethod
    def server(self, options: O) -> str:
        """Return what identifies the serving machine (an address), so that no two cases load it at once."""

    @abstractmethod
    def attach(self, client: Host, options: O) -> AbstractContextManager[Attachment]:
        """Attach on ``client``; see the module's five steps and errors."""

    def probe(self, client: Host, options: O) -> None:  # a local target cannot die
        """Ask from ``client`` whether the target still answers; :class:`TargetDead` if not."""

    def collect_diagnostics(self, client: Host, options: O) -> Mapping[str, str]:  # noqa: ARG002
        """Collect what a person would ask for after a failure, as {name: text}; never raises for its own."""
        return {}


protocols: Registry[Protocol[Any]] = get_registry("storagetest.protocols")
register = protocols.register
