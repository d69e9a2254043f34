"""The plugin's command-line options and markers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

__all__ = ["MARKERS", "PROGRESS", "add_options", "is_any_given"]

PROGRESS = ("auto", "line", "log", "off")
"""What ``--st-progress`` takes."""

MARKERS = (
    "needs(*capabilities): a variant without these (filesystem, block, ...) is skipped",
    "gate(*texts): thresholds this case must meet, such as 'iops >= 20000'; added to those of targets.yaml",
    "scale(*counts): on how many clients at once a case is run: numbers, or 'all'; each is a case of its own",
    "clients(*names): which clients the case runs on at once: their names, a number of them, or 'all'",
    "exclusive: no other case runs at the same time on the server of the case's target",
    "alone: old name of exclusive (deprecated)",
    "case(id, *, section, level, kills): a conformance case: standard and section; MUST, SHOULD or MAY",
    "slow: waits for a time-out that the standard sets",
    "external: a test of a foreign suite (set by *.external.toml)",
    "comparison(name): set by the plugin: the comparison of the targets file that the case makes",
)


_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "--st-targets": {
        "metavar": "FILE",
        "help": "the targets file (default: targets.yaml in the root directory)",
    },
    "--st-profile": {
        "metavar": "NAME",
        "default": "standard",
        "help": "how much to measure: smoke, standard, thorough, or one of the targets file's own",
    },
    "--st-target": {
        "metavar": "GLOB",
        "action": "append",
        "default": [],
        "help": "run only variants whose id, or whose target, matches; may be repeated",
    },
    "--st-client": {"metavar": "NAME", "help": "run on this client rather than on each target's first"},
    "--st-scale": {
        "metavar": "COUNTS",
        "help": "run measuring cases on so many clients at once, such as 1,2,4,all; "
        "instead of the file's scale",
    },
    "--st-set": {
        "metavar": "PATH=VALUE",
        "action": "append",
        "default": [],
        "help": "override a value of the targets file, such as targets.nas.export=/scratch; may be repeated",
    },
    "--st-sample": {
        "action": "store_true",
        "help": "run a little of everything: each suite once, the protocols taking turns",
    },
    "--st-results": {
        "metavar": "FILE",
        "default": "results.jsonl",
        "help": "append every run to this file, one JSON object a line (default: results.jsonl)",
    },
    "--st-baseline": {
        "metavar": "PATH",
        "help": "what gates such as 'iops >= baseline - 5 %%' are against: a baseline, or a results.jsonl",
    },
    "--st-save-baseline": {
        "metavar": "PATH",
        "help": "append this run to a baseline: a .json, or a directory with a file for each case",
    },
    "--st-benchmark": {
        "action": "store_true",
        "help": "give every run to pytest-benchmark as well; implied by --benchmark-json and the like",
    },
    "--st-lab": {
        "metavar": "NAME",
        "nargs": "?",
        "const": "default",
        "help": "make sure that this lab is up (default: 'default'); one that this run starts ends with it",
    },
    "--st-progress": {
        "choices": PROGRESS,
        "default": "auto",
        "help": "what is shown of a measurement under way: line (renewed, on a terminal), "
        "log (now and then), off; auto chooses",
    },
    "--st-lock-timeout": {
        "metavar": "SECONDS",
        "type": float,
        "default": 1800.0,
        "help": "how long to wait for another run that measures on the same client or server",
    },
    "--st-strict": {"action": "store_true", "help": "a SHOULD that is not kept fails"},
    "--st-wire": {
        "metavar": "DIR",
        "help": "write every wire case's ladder and capture to DIR/VARIANT/CASE.pcap",
    },
    "--st-cases": {
        "metavar": "FILE",
        "default": "cases.jsonl",
        "help": "append the outcome of every conformance case to this file (default: cases.jsonl)",
    },
    "--st-markdown": {
        "metavar": "FILE",
        "help": "write the run as Markdown to FILE; on GitHub the step's summary needs no option",
    },
}


def add_options(parser: pytest.Parser) -> None:
    """Declare ``--st-*``."""
    group = parser.getgroup("storagetest", "storage targets (storagetest)")
    for name, attributes in _OPTIONS.items():
        group.addoption(name, **attributes)


def is_any_given(config: pytest.Config) -> bool:
    """Whether an option has another value than its default."""
    values = {name: config.getoption(name) for name in _OPTIONS}
    return any(value and value != _OPTIONS[name].get("default") for name, value in values.items())
