"""What happens in time: the order of a case's steps, and who may use which machine when."""

from __future__ import annotations

from storagetest.runner.dataset_cache import PrefillCache
from storagetest.runner.interleaved import run_interleaved
from storagetest.runner.locks import exclusive, shared
from storagetest.runner.measurement import (
    CaseInfo,
    Measurement,
    MeasurementPhase,
    ProgressEvent,
    run_bench,
    run_case,
)
from storagetest.runner.multi_client import MultiClientMeasurement
from storagetest.runner.versions import Versions

__all__ = [
    "CaseInfo",
    "Measurement",
    "MeasurementPhase",
    "MultiClientMeasurement",
    "PrefillCache",
    "ProgressEvent",
    "Versions",
    "exclusive",
    "run_bench",
    "run_case",
    "run_interleaved",
    "shared",
]
