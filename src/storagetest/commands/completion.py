"""``storagetest completion``: print a shell script that completes commands and options (argcomplete)."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storagetest.commands._console import Subparsers

SHELLS = ("bash", "zsh", "fish")


def add_parser(subparsers: Subparsers) -> None:
    """Add ``completion`` to the commands; it sets ``func(args) -> int``."""
    parser = subparsers.add_parser(
        "completion",
        help="print the shell script that completes storagetest's commands and options",
        description="Print the shell script that completes storagetest's commands and options, and with "
        "--pytest also pytest's (which include --st-…).",
        epilog='bash, in ~/.bashrc: eval "$(storagetest completion bash)"   zsh, in ~/.zshrc after compinit: '
        'eval "$(storagetest completion zsh)"   fish: storagetest completion fish > '
        "~/.config/fish/completions/storagetest.fish",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell that runs the script")
    parser.add_argument("--pytest", action="store_true", help="also complete pytest's options")
    parser.set_defaults(func=_print)


def complete(parser: argparse.ArgumentParser) -> None:
    """Print the completions and exit, if a shell requested them by argcomplete's variable."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete  # noqa: PLC0415  # imported only if a shell requests completions

        argcomplete.autocomplete(parser)


def _print(arguments: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415

    programs = ["storagetest", *(["pytest"] if arguments.pytest else [])]
    sys.stdout.write(shellcode(programs, shell=arguments.shell))
    return 0
