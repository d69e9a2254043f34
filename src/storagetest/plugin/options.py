"""The plugin's command-line options and markers."""

from __future__ import annotations

import pytest

from storagetest.plugin.progress.render import MODES

__all__ = ["MARKERS", "add_options"]

MARKERS = (
    "needs(*capabilities): a variant without these (filesystem, block, ...) is skipped",
    "gate(*texts): thresholds this case must meet, such as 'iops >= 20000'; added to those of targets.yaml",
    "scale(*counts): on how many clients at once a case is run: numbers, or 'all'; each is a case of its own",
    "clients(*names): which clients the case runs on at once: their names, a number of them, or 'all'",
    "alone: of a case's body on a client: no other case runs beside it",
    "compares(name): set by the plugin: which of the targets file's comparisons the case makes",
)


def add_options(parser: pytest.Parser) -> None:
    """Declare ``--st-*``."""
    group = parser.getgroup("storagetest", "storage targets (storagetest)")
    add = group.addoption
    add("--st-targets", metavar="FILE", help="the targets file (default: targets.yaml in the root directory)")
    add(
        "--st-profile",
        metavar="NAME",
        default="standard",
        help="how much to measure: smoke, standard, thorough, or one of the targets file's own",
    )
    add(
        "--st-target",
        metavar="GLOB",
        action="append",
        default=[],
        help="run only variants whose id, or whose target, matches; may be repeated",
    )
    add("--st-client", metavar="NAME", help="run on this client rather than on each target's first")
    add(
        "--st-scale",
        metavar="COUNTS",
        help="run measuring cases on so many clients at once, such as 1,2,4,all; instead of the file's scale",
    )
    add(
        "--st-set",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="override a value of the targets file, such as targets.nas.export=/scratch; may be repeated",
    )
    add(
        "--st-sample",
        action="store_true",
        help="run a little of everything: each suite once, the protocols taking turns",
    )
    add(
        "--st-results",
        metavar="FILE",
        default="results.jsonl",
        help="append every run to this file, one JSON object a line (default: results.jsonl)",
    )
    add(
        "--st-baseline",
        metavar="PATH",
        help="what gates such as 'iops >= baseline - 5 %%' are against: a baseline, or a results.jsonl",
    )
    add(
        "--st-save-baseline",
        metavar="PATH",
        help="append this run to a baseline: a .json, or a directory with a file for each case",
    )
    add(
        "--st-benchmark",
        action="store_true",
        help="give every run to pytest-benchmark as well; implied by --benchmark-json and the like",
    )
    add(
        "--st-lab",
        metavar="NAME",
        nargs="?",
        const="default",
        help="make sure that this lab is up (default: 'default'); one that this run starts ends with it",
    )
    add(
        "--st-progress",
        choices=MODES,
        default="auto",
        help="what is shown of a measurement under way: line (renewed, on a terminal), log (now and then), "
        "off; auto chooses",
    )
    add(
        "--st-lock-timeout",
        metavar="SECONDS",
        type=float,
        default=1800.0,
        help="how long to wait for another run that measures on the same client or server",
    )
