"""Attaching, as every protocol does it; a protocol's module states only what differs.

    check the client and the port → journal → acquire → read back and compare → yield → release → verify

:class:`MountedProtocol` is for protocols whose file system a client's kernel mounts, :class:`DeviceProtocol`
for those that give it a block device. Both raise the errors of :mod:`storagetest.protocols.base`.
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
    """A protocol that a client's kernel speaks. ``Options.target_label`` names the target in messages."""

    def server(self, options: O) -> str:
        """Return the address that an attach needs."""
        return self.needs(options).address

    def paths(self, options: O) -> Sequence[O]:
        """Return the options of each path to the target; mostly there is one."""
        return (options,)

    def probe(self, client: Host, options: O) -> None:
        """Check from ``client`` that every path's port answers."""
        self.check(Attaching(client, options.target_label, options.deadline), options)

    def check(self, attaching: Attaching, options: O) -> None:
        """Check that the client has what an attach needs, and that every path's port answers it."""
        with attaching.step("looking for it"):
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
        """Acquire and release, each within its deadline; the client has been checked."""

    def requested(self, options: O) -> Mapping[str, object]:  # noqa: ARG002
        """Return what was asked for, by the names under which the kernel reports it; None: not asked for."""
        return {}

    def option_mismatches(self, options: O, negotiated: Mapping[str, str]) -> tuple[OptionMismatch, ...]:
        """Compare :meth:`requested` with what the kernel reports."""
        return tuple(
            OptionMismatch(name, str(value), negotiated.get(name, "nothing said"))
            for name, value in self.requested(options).items()
            if value is not None and negotiated.get(name) != str(value)
        )


class MountedProtocol(KernelProtocol[O]):
    """A protocol whose file system a client's kernel mounts."""

    attachment_kind = AttachmentKind.FILESYSTEM
    remote: ClassVar[bool] = True
    """Whether the data is on another machine, where other clients see the same names."""

    @abstractmethod
    def mount_request(self, options: O) -> MountRequest:
        """Return what mount(8) is given."""

    def error_from_output(self, stderr: str, options: O, client: str) -> StoragetestError | None:  # noqa: ARG002
        """Return the error that mount's stderr means, or None if the protocol does not know its words."""
        return None

    @abstractmethod
    def negotiated(self, attaching: Attaching, options: O, mount: Mounted) -> Mapping[str, str]:
        """Return what the kernel reports of the mount; what is to be set on it is set here."""

    @contextmanager
    def acquire(self, attaching: Attaching, options: O) -> Iterator[Attachment]:
        """Mount it and make a directory of our own in it."""
        client = attaching.client

        def explain(stderr: str) -> StoragetestError | None:
            return self.error_from_output(stderr, options, client.name)

        with mounted(attaching, self.mount_request(options), explain) as mount:
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
    """How a client is connected to a target, and how it lets go of it.

    ``description`` names it in the journal. The command ``existing`` prints what the client already has of
    it; if there is anything, the attach is refused with the words ``presence`` and ``remedy``. ``connect``
    returns the device under /dev and what was negotiated. ``release`` builds the command that undoes it, from
    the seconds that it may take; see :func:`storagetest.protocols._acquire.acquired`.
    """

    description: str
    existing: Sequence[str]
    presence: str
    remedy: str
    connect: Callable[[Attaching], tuple[str, Mapping[str, str]]]
    release: Callable[[int], Sequence[str]]


def each_path(options: B) -> list[B]:
    """Return the options of each path: the target's own, and those with another portal (``more_paths``)."""
    own: Any = options
    more: Sequence[Portal] = getattr(options, "more_paths", ())
    portals = [{"address": one.address, "port": one.port or own.port, "more_paths": ()} for one in more]
    return [options, *(options.model_copy(update=portal) for portal in portals)]


class DeviceProtocol(KernelProtocol[B]):
    """A protocol that gives a client a block device. Options with ``more_paths`` have several paths."""

    attachment_kind = AttachmentKind.BLOCK

    @abstractmethod
    def connection(self, options: B) -> Connection:
        """Return how the client is connected; nothing is contacted."""

    def paths(self, options: B) -> Sequence[B]:
        """Return the options of each path."""
        return each_path(options)

    @contextmanager
    def acquire(self, attaching: Attaching, options: B) -> Iterator[Attachment]:
        """Connect, find the device, and lend it; a connection of somebody else's is left alone."""
        connection = self.connection(options)
        with attaching.step("looking for connections"):
            found = attaching.run(connection.existing, check=True).stdout.split()
        if found:
            msg = (
                f"{attaching.target}: {attaching.client.name} {connection.presence} already "
                f"({', '.join(found)}), which is left alone. {connection.remedy} there, or run "
                "`storagetest clean` if it is a leftover."
            )
            raise AttachError(msg)
        with attaching.acquire(connection.description, connection.release):
            with attaching.step("connecting"):
                device, negotiated = connection.connect(attaching)
            mismatches = self.option_mismatches(options, negotiated)
            with leased_device(attaching, f"/dev/{device}", options, negotiated, mismatches) as attachment:
                yield attachment
