"""What happens in time: the order of a case's steps, and who may use which machine when."""

from __future__ import annotations

from storagetest.runner.dataset_cache import FillCache
from storagetest.runner.interleaved import run_pair
from storagetest.runner.locks import exclusive, shared
from storagetest.runner.measurement import Bench, Case, Phase, Progress, run_bench, run_case
from storagetest.runner.multi_client import Crowd
from storagetest.runner.versions import Versions

__all__ = [
    "Bench",
    "Case",
    "Crowd",
    "FillCache",
    "Phase",
    "Progress",
    "Versions",
    "exclusive",
    "run_bench",
    "run_case",
    "run_pair",
    "shared",
]
