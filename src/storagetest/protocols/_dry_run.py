"""Dry run of an attach, which writes nothing on a device.

A block target is attached without ``erase``. The attach therefore examines the device, refuses it, and
releases it. The dry run then compares the device's facts with the configured ``erase``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from storagetest.config.base import BlockOptions, TargetOptions
from storagetest.errors import DataAtRisk
from storagetest.hosts import Host
from storagetest.protocols._block_device import DeviceFacts, refusal_reason
from storagetest.protocols.base import OptionMismatch, Protocol


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """Result of a dry run. ``at_risk`` is why the device may not be overwritten (empty: it may).

    ``negotiated`` and ``mismatches`` are the attachment's; both are empty for a block device, which is
    released before they are known.
    """

    negotiated: Mapping[str, str] = field(default_factory=dict)
    mismatches: tuple[OptionMismatch, ...] = ()
    device: DeviceFacts | None = None
    at_risk: str = ""


def dry_run(protocol: Protocol[Any], client: Host, options: TargetOptions) -> DryRunResult:
    """Attach on ``client`` and release. Raises the errors of attach, except :class:`DataAtRisk`."""
    without_erase: TargetOptions = options
    erase: str | None = None
    if isinstance(options, BlockOptions):
        erase = options.erase
        without_erase = options.model_copy(update={"erase": None, "filesystem": None})
    try:
        with protocol.attach(client, without_erase) as attachment:
            return DryRunResult(attachment.negotiated, attachment.mismatches)
    except DataAtRisk as risk:
        if not isinstance(risk.facts, DeviceFacts):
            raise
        return DryRunResult(device=risk.facts, at_risk=refusal_reason(risk.facts, erase) or "")
