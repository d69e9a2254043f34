"""Judge a measured run against a threshold: PASS, FAIL, LEARNING or INVALID.

Pure: nothing is run or printed.
"""

from __future__ import annotations

from storagetest.measure.stats import Interval
from storagetest.verdict.base import BASELINE, Outcome, Threshold, Verdict
from storagetest.verdict.baseline import Reference
from storagetest.verdict.baseline_gates import describe_gate
from storagetest.verdict.client_bottleneck import mark_client_limited
from storagetest.verdict.formatting import MINIMUM_REPEATS
from storagetest.verdict.judge import judge, longer_repeats, wants_more
from storagetest.verdict.pair_gates import judge_pair
from storagetest.verdict.sequential import ErrorPlan
from storagetest.verdict.threshold import VariantComparison, parse_comparison, parse_threshold

__all__ = [
    "BASELINE",
    "MINIMUM_REPEATS",
    "ErrorPlan",
    "Interval",
    "Outcome",
    "Reference",
    "Threshold",
    "VariantComparison",
    "Verdict",
    "describe_gate",
    "judge",
    "judge_pair",
    "longer_repeats",
    "mark_client_limited",
    "parse_comparison",
    "parse_threshold",
    "wants_more",
]
