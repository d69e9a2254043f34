"""The base models that protocols and workloads build their YAML on."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["BlockOptions", "Model", "TargetOptions", "WorkloadOptions"]


class Model(BaseModel):
    """Frozen and strict: an unknown key is an error, and so is a number where text belongs."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class TargetOptions(Model):
    """What a target of any protocol may say; each protocol adds its own."""

    deadline: Annotated[float, Field(gt=0)] = 60.0
    """Seconds within which an attach, and likewise a detach, must have ended."""


class BlockOptions(TargetOptions):
    """What a target that gives a block device may say."""

    erase: str | None = None
    """The identity (WWID) of the device that may be overwritten. Without it nothing is ever written."""

    filesystem: Annotated[str | None, Field(pattern=r"^(ext4|xfs)$")] = None
    """Make and mount this file system on the device; without it the raw device is used."""


class WorkloadOptions(Model):
    """What a workload of any kind may say; each workload adds its own parameters."""
