"""How the sub-commands speak: lines with a level, on whatever stands behind stdout.

rich finds out what that is: no colour in a file, with NO_COLOR or with TERM=dumb; 80 columns where nobody
knows better.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    # Written so by argparse itself: the class has no public name.
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

__all__ = ["Message", "Severity", "add_targets_file", "get_console", "print_messages"]


class Severity(Enum):
    """How much a line matters."""

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    FAIL = "FAIL"


_STYLES = {Severity.OK: "green", Severity.NOTE: "cyan", Severity.WARN: "yellow", Severity.FAIL: "bold red"}


@dataclass(frozen=True, slots=True)
class Message:
    """What was found, and what to do about it (empty: nothing)."""

    level: Severity
    what: str
    advice: str = ""


def get_console(*, error: bool = False) -> Console:
    """Return the console of stdout, or of stderr."""
    return Console(file=sys.stderr if error else sys.stdout, highlight=False, markup=False, emoji=False)


def print_messages(out: Console, lines: Iterable[Message]) -> None:
    """Print ``lines``, what to do beneath each."""
    for line in lines:
        first, *rest = _wrapped(line.what, out.width - 7)
        out.print(Text.assemble("  ", (f"{line.level.value:5}", _STYLES[line.level]), first), soft_wrap=True)
        for more in rest:
            out.print(f"{'':7}{more}", soft_wrap=True)
        for paragraph in line.advice.splitlines():
            arrow = "" if paragraph.startswith(" ") else "-> "
            for number, more in enumerate(_wrapped(paragraph, out.width - 12)):
                out.print(f"{'':9}{'   ' if number else arrow}{more}", soft_wrap=True)


def _wrapped(text: str, width: int) -> list[str]:
    """Return ``text`` in lines; what is indented is meant to be copied, and stays as it is."""
    lines: list[str] = []
    for paragraph in text.splitlines():
        if paragraph.startswith(" "):
            lines.append(paragraph)
        else:
            words = textwrap.wrap(paragraph, max(20, width), break_long_words=False, break_on_hyphens=False)
            lines += words
    return lines or [""]


def add_targets_file(parser: argparse.ArgumentParser) -> None:
    """Add ``--targets FILE`` and ``--set PATH=VALUE``."""
    parser.add_argument("--targets", type=Path, default=Path("targets.yaml"), metavar="FILE",
                        help="the targets file (default: ./targets.yaml)")  # fmt: skip
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE",
                        help="override a value of it, as pytest's --st-set; may be repeated")  # fmt: skip
