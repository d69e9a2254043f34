"""Base class of the protocols: how a client attaches a target and releases it.

``attach()`` is a context manager with five steps, the same for every protocol:

1. *journal*: write the undo command of the next step on the client (:mod:`storagetest.hosts.undo_journal`);
2. *acquire*: mount, or log in and find the device;
3. *verify*: read the negotiated options from the kernel and compare them with the variant's options;
4. yield the :class:`Attachment`;
5. *release*: undo, verify that nothing is left, then remove the journal's entry.

Errors:

- :class:`~storagetest.errors.TargetDead`: no route, port closed, no response before the deadline;
- :class:`~storagetest.errors.ClientLacks`: no kernel module or tool on the client;
- :class:`~storagetest.errors.OptionRefused`: the target rejects an option of the variant (a skip);
- :class:`~storagetest.errors.DataAtRisk`: the device may not be overwritten;
- :class:`~storagetest.errors.AttachError`: anything else (mount refused, wrong secret …).

An option that the target changes without an error becomes an :class:`OptionMismatch` of the attachment. A
case that measures this option fails with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

from storagetest.config.base import TargetOptions
from storagetest.hosts.base import Host
from storagetest.registry import Registry, get_registry

Capability = str
"""A name that a suite can require with ``@pytest.mark.needs``: ``filesystem``, ``block``, ``locks`` …"""


class AttachmentKind(Enum):
    """Whether an attach provides a directory or a block device."""

    FILESYSTEM = "filesystem"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class OptionMismatch:
    """A requested option whose actual value differs, without an error from the target."""

    option: str
    requested: str
    actual: str

    def __str__(self) -> str:
        return f"{self.option}: requested {self.requested}, got {self.actual}"


@dataclass(frozen=True, slots=True)
class ClientRequirements:
    """Requirements of an attach: commands and kernel modules on the client, and an open TCP port.

    ``modules`` may also be file system types, for kernels that have them built in. ``packages`` names the
    packages to install, for messages. With an empty ``address``, or with ``port`` 0, no port is checked. With
    ``rdma`` the client needs an RDMA device.
    """

    tools: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    packages: str = ""
    address: str = ""
    port: int = 0
    rdma: bool = False


@dataclass(frozen=True, slots=True)
class Attachment:
    """A target attached on one client.

    ``path`` is a new, empty directory on the target that is removed on release
    (``AttachmentKind.FILESYSTEM``), or a device that may be overwritten (``AttachmentKind.BLOCK``). ``size``
    is the usable size in bytes. ``negotiated`` maps the kernel's option names to its values (``vers``,
    ``rsize``, ``nconnect``, ``HeaderDigest``, ``queue_count`` …). ``remote`` is false if client and target
    are one machine. ``root`` is the directory under which all clients of the target see the same names
    (empty: none). The usable part of a device starts at byte ``offset``. ``allocated`` returns the bytes that
    the target's data take on the server, if the targets file has a control for that.
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
    allocated: Callable[[], int] | None = None


O = TypeVar("O", bound=TargetOptions)  # noqa: E741  # options


class Protocol(ABC, Generic[O]):
    """A storage protocol. Subclasses are stateless: all settings are in the options."""

    name: ClassVar[str]
    title: ClassVar[str]
    """The display name, for reports."""

    attachment_kind: ClassVar[AttachmentKind]
    Options: ClassVar[type[TargetOptions]]
    """The YAML keys of a target of this protocol. Every field is also allowed in the target's ``matrix``."""

    example: ClassVar[Mapping[str, Any]]
    """Valid options, for the reference page and the registry's contract test."""

    searched: ClassVar[Mapping[str, tuple[object, ...]]] = {}
    """Options on which bandwidth may depend, such as the number of connections, with the values to try in
    ascending order."""

    ports: ClassVar[tuple[int, ...]] = ()
    """The usual TCP ports of a server of this protocol, the most significant first."""

    capability_names: ClassVar[frozenset[Capability]] = frozenset({"filesystem", "block"})
    """Every name that :meth:`capabilities` can return. Other names in ``needs`` are errors."""

    def capabilities(self, options: O) -> frozenset[Capability]:
        """Return the capabilities of a variant with these options; does not contact the target."""
        if self.attachment_kind is AttachmentKind.BLOCK and getattr(options, "filesystem", None) is None:
            return frozenset({"block"})
        return frozenset({"filesystem"})

    def has_server_inodes(self, mount_options: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Return whether a client reports the server's inode numbers, by the present options of its mount."""
        return True

    def needs(self, options: O) -> ClientRequirements:  # noqa: ARG002
        """Return the requirements of an attach with these options; does not contact the target."""
        return ClientRequirements()

    def discover(self, client: Host, address: str, *, deadline: float) -> Sequence[Mapping[str, Any]]:  # noqa: ARG002
        """Query the server at ``address`` from ``client`` for its targets, without authentication.

        Returns the known options of each target (``[{"export": "/srv"}]``), or an empty list if the query is
        not possible or fails. Attaches nothing. Raises no exception of its own.
        """
        return ()

    @abstractmethod
    def server(self, options: O) -> str:
        """Return the server's identity (its address): two cases do not load one server at the same time."""

    @abstractmethod
    def attach(self, client: Host, options: O) -> AbstractContextManager[Attachment]:
        """Attach on ``client``; the module's docstring lists the five steps and the errors."""

    def probe(self, client: Host, options: O) -> None:  # a local target cannot die
        """Check from ``client`` that the target responds. Raises :class:`TargetDead` if it does not."""

    def collect_diagnostics(self, client: Host, options: O) -> Mapping[str, str]:  # noqa: ARG002
        """Collect diagnostics after a failure, as {name: text}. Raises no exception of its own."""
        return {}


protocols: Registry[Protocol[Any]] = get_registry("storagetest.protocols")
register = protocols.register
