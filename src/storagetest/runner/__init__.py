"""Measure and run cases: the order of a case's steps, start barriers, locks and system call sessions."""

from __future__ import annotations

from storagetest.runner.dataset_cache import PrefillCache
from storagetest.runner.interleaved import run_interleaved
from storagetest.runner.locks import exclusive, shared
from storagetest.runner.measurement import (
    CaseInfo,
    Measurement,
    MeasurementPhase,
    ProgressEvent,
    run_case,
    run_measurement,
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
    "run_case",
    "run_interleaved",
    "run_measurement",
    "shared",
]
