"""What happens in time: the order of a case's steps, and who may use which machine when."""

from __future__ import annotations

from storagetest.runner.case import Case, Phase, Progress, run_case
from storagetest.runner.fills import FillCache
from storagetest.runner.locks import exclusive, shared
from storagetest.runner.versions import Versions

__all__ = ["Case", "FillCache", "Phase", "Progress", "Versions", "exclusive", "run_case", "shared"]
