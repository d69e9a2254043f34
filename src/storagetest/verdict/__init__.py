"""From a measured run and a threshold to PASS, FAIL or INVALID. Pure: nothing is run or printed."""

from __future__ import annotations

from storagetest.verdict.base import Interval, Outcome, Threshold, Verdict
from storagetest.verdict.judge import MINIMUM_REPEATS, judge, wants_more
from storagetest.verdict.sequential import Plan
from storagetest.verdict.threshold import parse_threshold

__all__ = [
    "MINIMUM_REPEATS",
    "Interval",
    "Outcome",
    "Plan",
    "Threshold",
    "Verdict",
    "judge",
    "parse_threshold",
    "wants_more",
]
