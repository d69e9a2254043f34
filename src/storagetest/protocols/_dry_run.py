"""Attaching for the sake of finding out whether it would do: nothing is written on a device.

A block target is attached without the user's permission to overwrite it. So attach itself, by its own rules,
examines the device and lets go of it; what it saw is then held against the permission that was really given.
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

__all__ = ["DryRunResult", "dry_run"]


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """What an attach found. ``at_risk`` says why the device may not be overwritten (empty: it may).

    ``negotiated`` and ``differences`` are the attachment's; a device is let go before they are known.
    """

    negotiated: Mapping[str, str] = field(default_factory=dict)
    mismatches: tuple[OptionMismatch, ...] = ()
    device: DeviceFacts | None = None
    at_risk: str = ""


def dry_run(protocol: Protocol[Any], client: Host, options: TargetOptions) -> DryRunResult:
    """Attach on ``client`` and let go; raises what attach raises, but for :class:`DataAtRisk`."""
    asked: TargetOptions = options
    erase: str | None = None
    if isinstance(options, BlockOptions):
        erase = options.erase
        asked = options.model_copy(update={"erase": None, "filesystem": None})
    try:
        with protocol.attach(client, asked) as attachment:
            return DryRunResult(attachment.negotiated, attachment.mismatches)
    except DataAtRisk as risk:
        if not isinstance(risk.facts, DeviceFacts):
            raise
        return DryRunResult(device=risk.facts, at_risk=refusal_reason(risk.facts, erase) or "")
