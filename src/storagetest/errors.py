"""Everything storagetest raises: one root, few leaves.

Fail is not error. A broken claim about a target is an ``AssertionError`` (pytest: failed); what is raised
from here says that our own line broke, or that the target could not even be asked (pytest: error).
Two leaves become skips in the plugin: :class:`ClientLacks` on a target marked ``optional``, and
:class:`OptionRefused`.
"""

from __future__ import annotations

__all__ = [
    "AttachError",
    "ClientLacks",
    "CommandEnded",
    "ConfigError",
    "DataAtRisk",
    "DeadlineExceeded",
    "HostError",
    "InUse",
    "LabError",
    "LocalProtocolError",
    "NotInstalled",
    "OptionRefused",
    "RemoteProtocolError",
    "ReportError",
    "ResultError",
    "StoragetestError",
    "TargetDead",
    "WorkloadError",
]


class StoragetestError(Exception):
    """The root. Its text is one clear message for a person, never a traceback's substitute."""


class ConfigError(StoragetestError):
    """What the user wrote is wrong.

    ``place`` is ``file:line:col`` where known; it leads the message.
    """

    def __init__(self, message: str, *, place: str | None = None) -> None:
        super().__init__(f"{place}: {message}" if place else message)
        self.place = place


class HostError(StoragetestError):
    """A client or server could not be reached, or a command on it failed."""


class DeadlineExceeded(HostError):
    """A command did not end in the time it was given; it has been killed."""


class NotInstalled(HostError):
    """A command is not installed on a host."""


class CommandEnded(HostError):
    """An interactive command ended while the controller was waiting for its next line."""


class InUse(HostError):
    """Another process holds the lock of a client or server. ``reason`` names the lock and its holder."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"{reason}; {advice}")
        self.reason = reason


class LabError(StoragetestError):
    """The lab's image, machines or network failed."""


class AttachError(StoragetestError):
    """A target could not be attached, verified or released."""


class TargetDead(AttachError):
    """The target does not answer: no route, port closed, or it hangs. Its other cases are skipped."""


class ClientLacks(AttachError):
    """The client has no kernel module or tool for this protocol."""


class OptionRefused(AttachError):
    """The target refused an option that this variant asks for, and said so: a skip with that reason."""


class DataAtRisk(AttachError):
    """A device may hold somebody's data, or the user has not said that it may be overwritten.

    ``facts`` are what the client says of the device (:class:`storagetest.protocols._block_device.Facts`).
    """

    def __init__(self, message: str, *, facts: object = None) -> None:
        super().__init__(message)
        self.facts = facts


class WorkloadError(StoragetestError):
    """The load generator failed or its output cannot be trusted."""


class ResultError(StoragetestError):
    """A stored result cannot be read: not ours, of another schema version, or damaged."""


class LocalProtocolError(StoragetestError):
    """We broke the protocol: a bug or misuse of a codec on our side."""


class RemoteProtocolError(StoragetestError):
    """The target broke the protocol; the message shows the bytes."""


class ReportError(StoragetestError):
    """A report could not be made: no Node.js, npm failed, or there is nothing to report."""
