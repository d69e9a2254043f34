"""Terminal output of the sub-commands: messages with a severity, each with advice, and shared options.

rich detects the terminal: no colour in a file, with NO_COLOR or with TERM=dumb; 80 columns if the width is
unknown.
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
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001  # it has no public name


class Severity(Enum):
    """Severity of a message, as it is printed."""

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    FAIL = "FAIL"


_STYLES = {Severity.OK: "green", Severity.NOTE: "cyan", Severity.WARN: "yellow", Severity.FAIL: "bold red"}


@dataclass(frozen=True, slots=True)
class Message:
    """Result of one check, and what to do about it (empty: nothing)."""

    severity: Severity
    text: str
    advice: str = ""


def get_console(*, error: bool = False) -> Console:
    """Return the console of stdout, or of stderr."""
    return Console(file=sys.stderr if error else sys.stdout, highlight=False, markup=False, emoji=False)


def print_messages(out: Console, messages: Iterable[Message]) -> None:
    """Print ``messages``, the advice of each below it."""
    for message in messages:
        severity = (f"{message.severity.value:5}", _STYLES[message.severity])
        first, *rest = _wrapped(message.text, out.width - 7)
        out.print(Text.assemble("  ", severity, first), soft_wrap=True)
        for line in rest:
            out.print(f"{'':7}{line}", soft_wrap=True)
        for paragraph in message.advice.splitlines():
            arrow = "" if paragraph.startswith(" ") else "-> "
            for number, line in enumerate(_wrapped(paragraph, out.width - 12)):
                out.print(f"{'':9}{'   ' if number else arrow}{line}", soft_wrap=True)


def _wrapped(text: str, width: int) -> list[str]:
    """Return ``text`` in lines of ``width``; an indented line is for copying and is not wrapped."""
    lines: list[str] = []
    for paragraph in text.splitlines():
        if paragraph.startswith(" "):
            lines.append(paragraph)
        else:
            lines += textwrap.wrap(paragraph, max(20, width), break_long_words=False, break_on_hyphens=False)
    return lines or [""]


def add_targets_file(parser: argparse.ArgumentParser) -> None:
    """Add ``--targets FILE`` and ``--set PATH=VALUE``."""
    parser.add_argument("--targets", type=Path, default=Path("targets.yaml"), metavar="FILE",
                        help="the targets file (default: ./targets.yaml)")  # fmt: skip
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE",
                        help="override a value of the targets file, as pytest's --st-set does; "
                        "may be repeated")  # fmt: skip
