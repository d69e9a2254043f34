"""``storagetest clean``: undo the attachments that killed runs left on the clients."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from storagetest import config
from storagetest.commands._console import add_targets_file, get_console
from storagetest.hosts import UndoStatus, clean
from storagetest.hosts.connect import connect

if TYPE_CHECKING:
    from storagetest.commands._console import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add ``clean`` to the commands; it sets ``func(args) -> int``."""
    parser = subparsers.add_parser("clean", help="undo the attachments that killed runs left on the clients")
    add_targets_file(parser)
    parser.add_argument("--force", action="store_true", help="also undo the attachments of running processes")
    parser.set_defaults(func=_clean)


def _clean(arguments: argparse.Namespace) -> int:
    loaded = config.load(arguments.targets, arguments.overrides)
    out, failed = get_console(), 0
    for name, machine in loaded.clients.items():
        with connect(machine) as host:
            for outcome in clean(host, force=arguments.force):
                parts = filter(None, (name, outcome.description, outcome.result.value, outcome.detail))
                out.print(": ".join(parts), soft_wrap=True)
                failed += outcome.result is not UndoStatus.UNDONE
    return 1 if failed else 0
