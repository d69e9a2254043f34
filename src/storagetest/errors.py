"""Errors that storagetest raises: one root class and its subclasses.

A false claim about a target is an ``AssertionError`` (pytest: failed). The errors here mean that the
measurement or test itself failed, or that the target could not be reached (pytest: error). The plugin turns
three of them into skips: :class:`ClientLacks` on a target marked ``optional``, :class:`OptionRefused`, and
:class:`NotOffered` in a conformance case.
"""

from __future__ import annotations


class StoragetestError(Exception):
    """Root of all errors. Its text is a complete message for the user, without a traceback."""


class ConfigError(StoragetestError):
    """The user's configuration is invalid.

    ``place`` is its location, ``file:line:col`` if known; it leads the message.
    """

    def __init__(self, message: str, *, place: str | None = None) -> None:
        super().__init__(f"{place}: {message}" if place else message)
        self.place = place


class HostError(StoragetestError):
    """A client or server cannot be reached, or a command on it failed."""


class DeadlineExceeded(HostError):
    """A command did not end before its deadline and was killed."""


class ControlError(HostError):
    """A control of the targets file did not do what it is for. It is no statement about the target."""


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
    """The target does not respond: no route, port closed, or it hangs. Its other cases are skipped."""


class ClientLacks(AttachError):
    """The client has no kernel module or tool for this protocol."""


class OptionRefused(AttachError):
    """The target rejected an option of this variant with an error; the case is skipped with that reason."""


class DataAtRisk(AttachError):
    """A device may hold data, or the user has not allowed to overwrite it.

    ``facts`` is the client's description of the device
    (:class:`storagetest.protocols._block_device.DeviceFacts`).
    """

    def __init__(self, message: str, *, facts: object = None) -> None:
        super().__init__(message)
        self.facts = facts


class WorkloadError(StoragetestError):
    """The load generator failed, or its output is implausible."""


class ResultError(StoragetestError):
    """A stored result cannot be read: another format, another schema version, or damaged."""


class LocalProtocolError(StoragetestError):
    """The local side broke the protocol: a bug or misuse of a codec."""


class RemoteProtocolError(StoragetestError):
    """The target broke the protocol; the message shows the bytes."""


class NotOffered(StoragetestError):
    """The target lacks what a conformance case needs, and may: the case is skipped with this reason."""


class ReportError(StoragetestError):
    """A report could not be made: no Node.js, npm failed, or there are no results."""
