"""The plugin's command-line options and markers."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ALLOWED = ("nothing-checked", "unused-thresholds")
"""The values of ``--st-allow``."""

PROGRESS = ("auto", "line", "log", "off")
"""The values of ``--st-progress``."""

MARKERS = (
    "needs(*capabilities): a variant without these (filesystem, block, ...) is skipped",
    "gate(*texts): thresholds this case must meet, such as 'iops >= 20000'; added to those of targets.yaml",
    "scale(*counts): numbers of clients that a case runs on at once, or 'all'; each is a case of its own",
    "clients(*names): the clients that the case runs on at once: names, a number, or 'all'",
    "exclusive: no other case runs at the same time on the server of the case's target",
    "alone: old name of exclusive (deprecated)",
    "server_inodes(*globs): a failure with such a text is skipped if the client numbers files by itself",
    "case(id, *, section, level, kills, builds_on): a conformance case of a MUST, SHOULD or MAY",
    "slow: waits for a timeout that the standard defines",
    "experiment(name): the published experiment of the case: its data are in suites/papers/NAME.toml",
    "external: a test of a foreign suite (set by *.external.toml)",
    "comparison(name): the comparison of the targets file that the case measures (set by the plugin)",
)


def _seconds(text: str) -> float:
    """Parse a number of seconds. Raises :class:`argparse.ArgumentTypeError`."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of seconds, such as 60, not {text!r}")
    return seconds


_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "--st-targets": {
        "metavar": "FILE",
        "help": "the targets file (default: targets.yaml in the root directory)",
    },
    "--st-profile": {
        "metavar": "NAME",
        "default": "standard",
        "help": "how much to measure: smoke, standard, thorough, lab, paper, or one of the targets file",
    },
    "--st-target": {
        "metavar": "GLOB",
        "action": "append",
        "default": [],
        "help": "run only on variants whose id or target matches; may be repeated",
    },
    "--st-client": {"metavar": "NAME", "help": "run on this client instead of each target's first"},
    "--st-scale": {
        "metavar": "COUNTS",
        "help": "numbers of clients that performance cases run on at once, such as 1,2,4,all "
        "(default: the target's scale)",
    },
    "--st-set": {
        "metavar": "PATH=VALUE",
        "action": "append",
        "default": [],
        "help": "override a value of the targets file, such as targets.nas.export=/scratch; may be repeated",
    },
    "--st-sample": {
        "action": "store_true",
        "help": "run a small sample: one case of each suite, distributed over the protocols",
    },
    "--st-results": {
        "metavar": "FILE",
        "default": "results.jsonl",
        "help": "append every run to this file, one JSON object per line (default: results.jsonl)",
    },
    "--st-baseline": {
        "metavar": "PATH",
        "help": "the baseline or results.jsonl that gates such as 'iops >= baseline - 5 %%' compare with",
    },
    "--st-save-baseline": {
        "metavar": "PATH",
        "help": "append this run to a baseline: a .json file, or a directory with one file for each case",
    },
    "--st-benchmark": {
        "action": "store_true",
        "help": "pass every run to pytest-benchmark too; implied by --benchmark-json and similar options",
    },
    "--st-lab": {
        "metavar": "NAME",
        "nargs": "?",
        "const": "default",
        "help": "start this lab if it is not up (default: 'default'), and stop it at the end of the run",
    },
    "--st-progress": {
        "choices": PROGRESS,
        "default": "auto",
        "help": "how to show the progress of a measurement: line (updated in place on a terminal), "
        "log (one line per minute), off; auto chooses by the output",
    },
    "--st-lock-timeout": {
        "metavar": "SECONDS",
        "type": _seconds,
        "default": 1800.0,
        "help": "timeout for locks that another run holds on the same client or server (default: 1800)",
    },
    "--st-allow": {
        "choices": ALLOWED,
        "action": "append",
        "default": [],
        "help": "do not fail the run for this reason: nothing-checked (all cases on the targets were "
        "skipped), unused-thresholds (a threshold of the targets file judged nothing); may be repeated",
    },
    "--st-judge-all": {
        "action": "store_true",
        "help": "judge also the cases that build on a case that failed; without it they are skipped",
    },
    "--st-strict": {
        "action": "store_true",
        "help": "fail cases of level SHOULD too, instead of a warning; a gate that "
        "is LEARNING (its baseline has too few sessions) is INVALID",
    },
    "--st-wire": {
        "metavar": "DIR",
        "help": "write each wire case's ladder diagram and capture to DIR/VARIANT/CASE.txt and CASE.pcap",
    },
    "--st-cases": {
        "metavar": "FILE",
        "default": "cases.jsonl",
        "help": "append the outcome of every conformance case to this file (default: cases.jsonl)",
    },
    "--st-markdown": {
        "metavar": "FILE",
        "help": "write the run as Markdown to FILE; on GitHub the step summary is written without it",
    },
}


def add_options(parser: pytest.Parser) -> None:
    """Declare ``--st-*``."""
    group = parser.getgroup("storagetest", "storage targets (storagetest)")
    for name, attributes in _OPTIONS.items():
        group.addoption(name, **attributes)


_WRITTEN = ("--st-results", "--st-cases", "--st-save-baseline")


def is_any_given(config: pytest.Config) -> bool:
    """Whether an option differs from its default."""
    values = {name: config.getoption(name) for name in _OPTIONS}
    return any(value and value != _OPTIONS[name].get("default") for name, value in values.items())


def targets_path(config: pytest.Config) -> Path:
    """Return the targets file: the given one, or that of the working directory, or of pytest's rootdir.

    pytest's rootdir may be elsewhere: it is derived from all arguments that exist as files, also those of
    options.
    """
    option: str | None = config.option.st_targets
    if option:
        return Path(option)
    places = [directory / "targets.yaml" for directory in (config.invocation_params.dir, config.rootpath)]
    return next((place for place in places if place.exists()), places[0])


def given_files(config: pytest.Config) -> dict[str, Path]:
    """Return the files that the run is to write, by option, without those of default values.

    Of a baseline that is a directory, it is the name of a file in it.
    """
    given = {name: config.getoption(name) for name in _WRITTEN}
    files = {name: Path(value) for name, value in given.items() if value != _OPTIONS[name].get("default")}
    saved = files.get("--st-save-baseline")
    if saved is not None and (saved.is_dir() or saved.suffix != ".json"):
        files["--st-save-baseline"] = saved / "case.json"
    return files
