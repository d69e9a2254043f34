"""``storagetest targets``: list the variants of a targets file, with the number and duration of their cases.

The variants are read from the targets file only. With ``--cost`` pytest collects the suites, which takes some
seconds. Nothing is contacted. The duration of a measured case is ramp and runtime of the profile, times its
repeats. Preconditioning, attaching and repeats for undecided gates come in addition.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storagetest import config, installed_suites
from storagetest.commands._console import add_targets_file, get_console
from storagetest.deprecation import warn_renamed
from storagetest.errors import StoragetestError
from storagetest.plugin.items import fixtures_of, item_variant
from storagetest.protocols.base import protocols
from storagetest.units import format_size
from storagetest.workloads.base import workloads

if TYPE_CHECKING:
    from storagetest.commands._console import Subparsers
    from storagetest.config import Config, Profile

_PROFILE = "standard"
_COLLECTED = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}


def add_parser(subparsers: Subparsers) -> None:
    """Add ``targets`` to the commands; it sets ``func(args) -> int``."""
    parser = subparsers.add_parser(
        "targets",
        help="list the variants of the targets file, and what their cases cost",
        description="List the variants that the targets file expands to, with their capabilities. With "
        "--cost, list the number of cases on each and their duration in a profile. Nothing is contacted.",
    )
    add_targets_file(parser)
    parser.add_argument("suites", nargs="*", metavar="SUITE",
                        help="file or directory of cases; implies --cost "
                        "(default: ./suites, or installed)")  # fmt: skip
    parser.add_argument("--profile", metavar="NAME",
                        help="a built-in profile, or one of the targets file; implies --cost "
                        f"(default: {_PROFILE})")  # fmt: skip
    parser.add_argument("--cost", action="store_true",
                        help="collect the suites and list the number and duration of the cases")  # fmt: skip
    parser.add_argument("--no-cost", action="store_true", help=argparse.SUPPRESS)  # of earlier releases
    parser.add_argument("--kinds", action="store_true", help="list the known protocols and workloads instead")
    parser.set_defaults(func=_targets)


@dataclass
class Cases:
    """Cases by variant. ``measured`` counts the workloads of a case, ``others`` cases without a workload."""

    measured: Counter[str]
    others: Counter[str]
    skipped: Counter[str]


def _targets(arguments: argparse.Namespace) -> int:
    if arguments.kinds:
        return _kinds()
    loaded = config.load(arguments.targets, arguments.overrides)
    if arguments.no_cost:
        warn_renamed("option", "--no-cost", "no option: cases are collected with --cost only", "targets")
    profile = loaded.profile(arguments.profile or _PROFILE)
    asked = arguments.cost or arguments.profile or arguments.suites
    cases = _collect(_suites(arguments), arguments, profile) if asked else None
    out = get_console()
    for line in table(loaded, cases, profile, width=out.width if out.is_terminal else WIDEST):
        out.print(line, soft_wrap=True)
    for text in loaded.warnings():
        sys.stderr.write(f"storagetest: warning: {text}\n")
    return 0


def _suites(arguments: argparse.Namespace) -> list[Path]:
    """Return the suites that are named, or ./suites, or those that are installed."""
    if arguments.suites:
        return [Path(suite) for suite in arguments.suites]
    for path in (Path("suites"), installed_suites.SUITES):
        if path.is_dir():
            return [path]
    raise StoragetestError("no suites: ./suites does not exist, and none are installed")


def _kinds() -> int:
    out = get_console()
    for title, registry in (("protocols", protocols), ("workloads", workloads)):
        out.print(f"{title}:")
        for name, kind in registry.all().items():
            summary = (kind.__doc__ or "").strip().partition("\n")[0]
            out.print(f"  {name:20} {summary}", soft_wrap=True)
    return 0


class _Counts:
    """A pytest plugin that counts the collected cases."""

    def __init__(self) -> None:
        self.cases = Cases(Counter(), Counter(), Counter())

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count each case of a variant; a comparison has two workloads."""
        for item in session.items:
            variant, names = item_variant(item), fixtures_of(item)
            if variant is None:
                continue
            if item.get_closest_marker("skip"):
                self.cases.skipped[variant] += 1
            elif "comparison" in names:
                self.cases.measured[variant] += 2
            elif "measure" in names:
                self.cases.measured[variant] += 1
            else:
                self.cases.others[variant] += 1


def _collect(suites: Sequence[Path], arguments: argparse.Namespace, profile: Profile) -> Cases:
    missing = [str(suite) for suite in suites if not Path(str(suite).partition("::")[0]).exists()]
    if missing:
        raise StoragetestError(f"no such suite: {', '.join(missing)}")
    counts, output = _Counts(), io.StringIO()
    argv = ["--collect-only", "-q", "-n0", "-p", "no:cacheprovider", "--import-mode=importlib", "--color=no"]
    argv += ["-W", "ignore"]  # a warning must not follow the error in the output
    argv += ["--st-targets", str(arguments.targets), "--st-profile", profile.name]
    argv += [word for override in arguments.overrides for word in ("--st-set", override)]
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = pytest.main([*argv, *map(str, suites)], plugins=[counts])
    if status not in _COLLECTED:
        tail = "\n".join(output.getvalue().strip().splitlines()[-8:])
        raise StoragetestError(f"pytest could not collect {', '.join(map(str, suites))}:\n{tail}")
    return counts.cases


WIDEST = 10_000
"""Width of the table in columns if stdout is not a terminal: a line for each variant."""


def table(loaded: Config, cases: Cases | None, profile: Profile, *, width: int = WIDEST) -> list[str]:
    """Return the lines of the table: one row per variant, and the totals."""
    rows = [["variant", "protocol", "clients", *(_COLUMNS if cases else ("capabilities",))]]
    for variant in loaded.variants:
        clients = ",".join(client.name for client in variant.clients)
        rows.append([variant.id, variant.protocol, clients])
        if cases is None:
            rows[-1].append(" ".join(sorted(protocols.get(variant.protocol)().capabilities(variant.options))))
        else:
            rows[-1] += _cost(cases, profile, [variant.id])
    totals: list[str] = []
    if cases is not None:
        ids = [variant.id for variant in loaded.variants]
        rows.append([_variants(len(ids)), "", "", *_cost(cases, profile, ids)])
        preconditioned = sum(cases.measured[variant_id] > 0 for variant_id in ids)
        totals = [
            "",
            (
                f"Profile {profile.name}: {span(profile.ramp + profile.runtime)} per repeat, "
                f"{profile.repeats} repeats, up to {profile.max_repeats} while a gate is undecided."
            ),
            (
                f"Not included: attaching, and writing {format_size(profile.size)} of data on each of "
                f"{_variants(preconditioned)} first."
            ),
        ]
    return [*_aligned(rows, width), *totals]


def _variants(count: int) -> str:
    return f"{count} variant{'s' * (count != 1)}"


def _aligned(rows: list[list[str]], width: int) -> list[str]:
    """Return the rows as aligned lines of at most ``width``.

    No cell is cut. If a row is longer, each row has two: the variant's id, and below it the other cells,
    which continue on further lines if they are still longer.
    """
    lines = _columns(rows, texts=_TEXTS)
    if max(map(len, lines)) <= width:
        return lines
    below = _columns([row[1:] for row in rows], texts=_TEXTS - 1)
    return [
        line
        for row, cells in zip(rows, below, strict=True)
        for line in (row[0], *_continued(f"{_INDENT}{cells}", width))
    ]


def _continued(line: str, width: int) -> list[str]:
    """Return a line, or the lines that it takes."""
    if len(line) <= width:
        return [line]
    return textwrap.wrap(
        line, width, subsequent_indent=2 * _INDENT, break_long_words=False, break_on_hyphens=False
    )


def _columns(rows: list[list[str]], *, texts: int) -> list[str]:
    """Return the rows with their columns aligned; those after the first ``texts`` are numbers."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    texts = len(widths) if len(widths) == texts + 1 else texts  # the capabilities
    lines = []
    for row in rows:
        cells = [
            cell.ljust(size) if column < texts else cell.rjust(size)
            for column, (cell, size) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


_TEXTS = 3
"""Columns before the numbers, or before the capabilities: variant, protocol, clients."""

_INDENT = "    "
_COLUMNS = ("measured", "others", "skipped", "at least", "at most")


def _cost(cases: Cases, profile: Profile, ids: Sequence[str]) -> list[str]:
    measured, others, skipped = (
        sum(count[variant_id] for variant_id in ids)
        for count in (cases.measured, cases.others, cases.skipped)
    )
    seconds = measured * (profile.ramp + profile.runtime)
    least, most = seconds * profile.repeats, seconds * profile.max_repeats
    return [f"{measured}", f"{others}", f"{skipped}", span(least), span(max(least, most))]


def span(seconds: float) -> str:
    """Return ``35 s``, ``12 min`` or ``3 h 5 min``."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
