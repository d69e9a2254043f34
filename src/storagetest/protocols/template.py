"""Base classes with the common steps of an attach; a protocol's module defines only the differences.

    check the client and the port → journal → acquire → read back and compare → yield → release → verify

:class:`MountedProtocol` is for protocols whose file system a client's kernel mounts, :class:`DeviceProtocol`
for protocols that provide a block device. Both raise the errors of :mod:`storagetest.protocols.base`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from storagetest.config.base import BlockOptions, Portal, TargetOptions
from storagetest.errors import AttachError, StoragetestError
from storagetest.hosts import Host
from storagetest.protocols._acquire import Attaching
from storagetest.protocols._block_device import leased_device
from storagetest.protocols._mount import Mounted, MountRequest, mounted
from storagetest.protocols._preflight import check_client
from storagetest.protocols.base import Attachment, AttachmentKind, OptionMismatch, Protocol

__all__ = [
    "Attaching",
    "Connection",
    "DeviceProtocol",
    "KernelProtocol",
    "MountRequest",
    "Mounted",
    "MountedProtocol",
    "each_path",
]

O = TypeVar("O", bound=TargetOptions)  # noqa: E741  # options
B = TypeVar("B", bound=BlockOptions)


class KernelProtocol(Protocol[O]):
    """A protocol of the client's kernel. ``Options.target_label`` names the target in messages."""

    def server(self, options: O) -> str:
        """Return the address that an attach connects to."""
        return self.needs(options).address

    def paths(self, options: O) -> Sequence[O]:
        """Return the options of each path to the target; by default one path."""
        return (options,)

    def probe(self, client: Host, options: O) -> None:
        """Check from ``client`` that every path's port accepts connections."""
        self.check(Attaching(client, options.target_label, options.deadline), options)

    def check(self, attaching: Attaching, options: O) -> None:
        """Check the client's requirements, and that every path's port accepts connections."""
        with attaching.step("checking the client and the port"):
            for path in self.paths(options):
                needs, seconds = self.needs(path), attaching.deadline.remaining()
                check_client(attaching.client, needs, target=attaching.target, deadline=seconds)

    @contextmanager
    def attach(self, client: Host, options: O) -> Iterator[Attachment]:
        """Check, acquire, yield the attachment, release, and verify that nothing is left."""
        attaching = Attaching(client, options.target_label, options.deadline)
        self.check(attaching, options)
        with self.acquire(attaching, options) as attachment:
            yield attachment

    @abstractmethod
    def acquire(self, attaching: Attaching, options: O) -> AbstractContextManager[Attachment]:
        """Acquire and release, each within its deadline. The client is already checked."""

    def requested(self, options: O) -> Mapping[str, object]:  # noqa: ARG002
        """Return the requested values by the kernel's option names; None: not requested."""
        return {}

    def option_mismatches(self, options: O, negotiated: Mapping[str, str]) -> tuple[OptionMismatch, ...]:
        """Compare :meth:`requested` with the kernel's values."""
        return tuple(
            OptionMismatch(name, str(value), negotiated.get(name, "no value"))
            for name, value in self.requested(options).items()
            if value is not None and negotiated.get(name) != str(value)
        )


class MountedProtocol(KernelProtocol[O]):
    """A protocol whose file system a client's kernel mounts."""

    attachment_kind = AttachmentKind.FILESYSTEM
    remote: ClassVar[bool] = True
    """Whether the data is on another machine and other clients see the same names."""

    @abstractmethod
    def mount_request(self, options: O) -> MountRequest:
        """Return the arguments of mount(8)."""

    def error_from_output(self, stderr: str, options: O, client: str) -> StoragetestError | None:  # noqa: ARG002
        """Return the error for mount's stderr, or None if the text is unknown."""
        return None

    @abstractmethod
    def negotiated(self, attaching: Attaching, options: O, mount: Mounted) -> Mapping[str, str]:
        """Configure the mount if necessary, and return the values that the kernel reports for it."""

    @contextmanager
    def acquire(self, attaching: Attaching, options: O) -> Iterator[Attachment]:
        """Mount the target and make a directory in it."""
        client = attaching.client

        def error_from_output(stderr: str) -> StoragetestError | None:
            return self.error_from_output(stderr, options, client.name)

        with mounted(attaching, self.mount_request(options), error_from_output) as mount:
            negotiated = self.negotiated(attaching, options, mount)
            yield Attachment(
                client,
                mount.directory,
                AttachmentKind.FILESYSTEM,
                mount.size,
                negotiated,
                self.option_mismatches(options, negotiated),
                self.remote,
                mount.entry.point if self.remote else "",
            )


@dataclass(frozen=True, slots=True)
class Connection:
    """How a client connects to a target, and how it disconnects.

    ``description`` is the text of the journal's entry. The command ``existing`` prints existing connections
    to the target; if there are any, the attach fails with a message made of ``presence`` and ``remedy``.
    ``connect`` returns the device's name under /dev and the negotiated values. ``release`` builds the
    disconnect command from its time limit in seconds; see :func:`storagetest.protocols._acquire.acquired`.
    """

    description: str
    existing: Sequence[str]
    presence: str
    remedy: str
    connect: Callable[[Attaching], tuple[str, Mapping[str, str]]]
    release: Callable[[int], Sequence[str]]


def each_path(options: B) -> list[B]:
    """Return the options of each path: the target's options, and a copy for each portal of ``more_paths``."""
    untyped: Any = options
    more: Sequence[Portal] = getattr(options, "more_paths", ())
    updates = [
        {"address": portal.address, "port": portal.port or untyped.port, "more_paths": ()} for portal in more
    ]
    return [options, *(options.model_copy(update=update) for update in updates)]


class DeviceProtocol(KernelProtocol[B]):
    """A protocol that provides a block device. Options with ``more_paths`` have several paths."""

    attachment_kind = AttachmentKind.BLOCK

    @abstractmethod
    def connection(self, options: B) -> Connection:
        """Return how to connect the client; does not contact the target."""

    def paths(self, options: B) -> Sequence[B]:
        """Return the options of each path."""
        return each_path(options)

    @contextmanager
    def acquire(self, attaching: Attaching, options: B) -> Iterator[Attachment]:
        """Connect, find the device, and lease it. Raises :class:`AttachError` for an existing connection."""
        connection = self.connection(options)
        with attaching.step("checking for existing connections"):
            existing = attaching.run(connection.existing, check=True).stdout.split()
        if existing:
            raise AttachError(
                f"{attaching.target}: {attaching.client.name} already {connection.presence} "
                f"({', '.join(existing)}), which storagetest does not touch. {connection.remedy} there, or "
                "run `storagetest clean` if it is a leftover."
            )
        with attaching.acquire(connection.description, connection.release):
            with attaching.step("connecting"):
                device, negotiated = connection.connect(attaching)
            mismatches = self.option_mismatches(options, negotiated)
            with leased_device(attaching, f"/dev/{device}", options, negotiated, mismatches) as attachment:
                yield attachment
