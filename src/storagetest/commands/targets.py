"""``storagetest targets``: what a targets file expands to, and what running the suites on it takes.

The cases are those that pytest collects; nothing is contacted. Their time is the profile's: ramp and runtime,
times the repeats. Filling, attaching and what a gate takes beyond the least repeats come on top of it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import storagetest
from storagetest import config
from storagetest.commands._console import add_targets_file, get_console
from storagetest.errors import StoragetestError
from storagetest.protocols.base import protocols
from storagetest.report.terminal import shortened
from storagetest.units import format_size
from storagetest.workloads.base import workloads

if TYPE_CHECKING:
    from storagetest.commands._console import Subparsers
    from storagetest.config import Config, Profile

__all__ = ["add_parser"]

_COLLECTED = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}


def add_parser(subparsers: Subparsers) -> None:
    """Add ``targets`` to the commands; it sets ``func(args) -> int``."""
    parser = subparsers.add_parser(
        "targets",
        help="list the variants that the targets file expands to, with what running them takes",
        description="List the variants that the targets file expands to, the cases that run on each, and how "
        "long these take in a profile. Nothing is contacted.",
    )
    add_targets_file(parser)
    parser.add_argument("suites", nargs="*", metavar="SUITE",
                        help="cases: files or directories (default: ./suites, or the installed)")  # fmt: skip
    parser.add_argument("--profile", default="standard", metavar="NAME",
                        help="how much: smoke, standard, thorough, or one of your own")  # fmt: skip
    parser.add_argument("--no-cost", action="store_true", help="list the variants only; collect no cases")
    parser.add_argument("--kinds", action="store_true", help="list protocols and workloads instead")
    parser.set_defaults(func=_targets)


@dataclass
class Cases:
    """How many cases run on a variant: ``measured`` repeats' worth of load, and ``others`` without."""

    measured: Counter[str]
    others: Counter[str]
    skipped: Counter[str]


def _targets(arguments: argparse.Namespace) -> int:
    if arguments.kinds:
        return _kinds()
    loaded = config.load(arguments.targets, arguments.overrides)
    profile = loaded.profile(arguments.profile)
    suites = [] if arguments.no_cost else [Path(one) for one in arguments.suites] or _suites()
    cases = _collect(suites, arguments) if suites else None
    out = get_console()
    for line in table(loaded, cases, profile, width=out.width if out.is_terminal else WIDEST):
        out.print(line, soft_wrap=True)
    return 0


def _kinds() -> int:
    out = get_console()
    for title, registry in (("protocols", protocols), ("workloads", workloads)):
        out.print(f"{title}:")
        for name, kind in registry.all().items():
            summary = (kind.__doc__ or "").strip().partition("\n")[0]
            out.print(f"  {name:20} {summary}", soft_wrap=True)
    return 0


def _suites() -> list[Path]:
    """Return where the cases are: a directory here, or what was installed with us; nothing: neither is."""
    places = [Path("suites"), Path(storagetest.__file__).parent / "suites"]
    return [place for place in places if place.is_dir()][:1]


class _Counts:
    """A plugin of pytest's that counts what was collected."""

    def __init__(self) -> None:
        self.cases = Cases(Counter(), Counter(), Counter())

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count each case under its variant; a comparison measures two."""
        for item in session.items:
            callspec = getattr(item, "callspec", None)
            variant = callspec.params.get("variant") if callspec else None
            names = set(getattr(item, "fixturenames", ()))
            if not isinstance(variant, str):
                continue
            if item.get_closest_marker("skip"):
                self.cases.skipped[variant] += 1
            elif "comparison" in names:
                self.cases.measured[variant] += 2
            elif "measure" in names:
                self.cases.measured[variant] += 1
            else:
                self.cases.others[variant] += 1


def _collect(suites: Sequence[Path], arguments: argparse.Namespace) -> Cases:
    missing = [str(place) for place in suites if not Path(str(place).partition("::")[0]).exists()]
    if missing:
        raise StoragetestError(f"no such suite: {', '.join(missing)}")
    counts, said = _Counts(), io.StringIO()
    argv = ["--collect-only", "-q", "-n0", "-p", "no:cacheprovider", "--import-mode=importlib", "--color=no"]
    argv += ["-W", "ignore"]  # what is said last is why it could not
    argv += ["--st-targets", str(arguments.targets), "--st-profile", arguments.profile]
    argv += [word for one in arguments.overrides for word in ("--st-set", one)]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = pytest.main([*argv, *map(str, suites)], plugins=[counts])
    if status not in _COLLECTED:
        tail = "\n".join(said.getvalue().strip().splitlines()[-8:])
        raise StoragetestError(f"pytest could not collect {', '.join(map(str, suites))}:\n{tail}")
    return counts.cases


WIDEST = 100
"""Columns of the table in a file."""


def table(loaded: Config, cases: Cases | None, profile: Profile, *, width: int = WIDEST) -> list[str]:
    """Return the lines: one a variant, and what all of them take together."""
    rows = [["variant", "protocol", "clients", *(_HEADS if cases else ("can",))]]
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
        rows.append([f"{len(ids)} variants", "", "", *_cost(cases, profile, ids)])
        filled = sum(1 for one in ids if cases.measured[one])
        totals = [
            "",
            (
                f"Profile {profile.name}: {span(profile.ramp + profile.runtime)} a repeat, "
                f"{profile.repeats} repeats, up to {profile.max_repeats} while a gate is undecided."
            ),
            (
                f"Besides: attaching, and writing {format_size(profile.size)} of data on each of {filled} "
                "variants first."
            ),
        ]
    return [*_aligned(rows, width, numbers=cases is not None), *totals]


def _aligned(rows: list[list[str]], width: int, *, numbers: bool) -> list[str]:
    """Return the rows in columns, as wide as they are allowed to be: names are shortened, numbers never."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for column, least in ((2, 8), (0, 16), (1, 3), (2, 1)):
        widths[column] -= max(0, min(widths[column] - least, sum(widths) + 2 * len(widths) - 2 - width))
    lines = []
    for row in rows:
        words = [
            cell.rjust(wide)
            if index >= 3 and numbers
            else shortened(cell, wide).ljust(wide)
            if index < 3
            else cell
            for index, (cell, wide) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(words).rstrip())
    return lines


_HEADS = ("measured", "others", "skipped", "at least", "at most")


def _cost(cases: Cases, profile: Profile, ids: Sequence[str]) -> list[str]:
    measured = sum(cases.measured[one] for one in ids)
    each = profile.ramp + profile.runtime
    others, skipped = (sum(count[one] for one in ids) for count in (cases.others, cases.skipped))
    least, most = (measured * each * repeats for repeats in (profile.repeats, profile.max_repeats))
    return [f"{measured}", f"{others}", f"{skipped}", span(least), span(max(least, most))]


def span(seconds: float) -> str:
    """Return ``35 s``, ``12 min`` or ``3 h 5 min``."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
