"""Loads that a test measures without the runner."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from storagetest.measure.run import Sample
from storagetest.protocols.base import Attachment
from storagetest.workloads.base import LoadSize, Workload

needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed here")


def measured(
    load: Workload[Any], attachment: Attachment, options: Mapping[str, Any], scale: LoadSize
) -> Sample:
    """Fill the data set of ``load`` and measure it."""
    read = load.Options.model_validate(options)
    load.fill(attachment, read, scale)
    return load.measure(attachment, read, scale)


def phases(sample: Sample) -> dict[str, dict[str, Any]]:
    """Return the agent's phases by name."""
    return {line["phase"]: line for line in map(json.loads, sample.evidence["phases"].splitlines())}


def measured_operations(
    load: Workload[Any], attachment: Attachment, options: Mapping[str, Any], scale: LoadSize
) -> tuple[Sample, dict[str, Any]]:
    """Measure ``load``, which has to leave no file; return the sample, and the operations of each phase."""
    sample = measured(load, attachment, options, scale)
    assert not list(Path(attachment.path).iterdir())
    return sample, {name: phase["operations"] for name, phase in phases(sample).items()}


def assert_rate(sample: Sample, name: str, value: float) -> None:
    """Assert that operation ``name`` has a rate, or that the sample is invalid for want of overlap.

    On a busy machine one worker may end before another starts.
    """
    assert value > 0 or any(reason.startswith(f"{name}: n") for reason in sample.invalid)


def assert_filled(file: Path, size: int) -> None:
    """Assert that ``file`` has ``size`` bytes, no hole, and no two equal blocks."""
    data = file.read_bytes()
    assert len(data) == size
    assert len({data[start : start + 4096] for start in range(0, size, 4096)}) == size // 4096
