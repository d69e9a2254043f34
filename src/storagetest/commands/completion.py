"""``storagetest completion``: what a shell needs to complete our commands and options (argcomplete)."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storagetest.commands._console import Subparsers

__all__ = ["add_parser", "complete"]

SHELLS = ("bash", "zsh", "fish")


def add_parser(subparsers: Subparsers) -> None:
    """Add ``completion`` to the commands; it sets ``func(args) -> int``."""
    parser = subparsers.add_parser(
        "completion",
        help="print what makes a shell complete storagetest's commands and options",
        description="Print what makes a shell complete storagetest's commands and options, and with --pytest "
        "pytest's as well (--st-… among them).",
        epilog='bash, in ~/.bashrc: eval "$(storagetest completion bash)"   zsh, in ~/.zshrc after compinit: '
        'eval "$(storagetest completion zsh)"   fish: storagetest completion fish > '
        "~/.config/fish/completions/storagetest.fish",
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.add_argument("--pytest", action="store_true", help="complete pytest's options too")
    parser.set_defaults(func=_print)


def complete(parser: argparse.ArgumentParser) -> None:
    """Where a shell asks for completions: answer it and end the process. Else nothing."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete  # noqa: PLC0415  # nobody else pays for it

        argcomplete.autocomplete(parser)


def _print(arguments: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415

    programs = ["storagetest", *(["pytest"] if arguments.pytest else [])]
    sys.stdout.write(shellcode(programs, shell=arguments.shell))
    return 0
