"""``storagetest clean``: end the processes and undo the attachments that killed runs left on the clients.

On servers it undoes the controls of targets.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from storagetest import config
from storagetest.commands._console import add_targets_file, get_console
from storagetest.errors import HostError
from storagetest.hosts import UndoResult, UndoStatus, clean, end_left_commands
from storagetest.hosts.connect import connect

if TYPE_CHECKING:
    from storagetest.commands._console import Subparsers

_SUCCESS = {UndoStatus.ENDED, UndoStatus.UNDONE}


def add_parser(subparsers: Subparsers) -> None:
    """Add ``clean`` to the commands; it sets ``func(args) -> int``."""
    parser = subparsers.add_parser(
        "clean", help="end the processes and undo the attachments that killed runs left on the clients"
    )
    add_targets_file(parser)
    parser.add_argument(
        "--force",
        action="store_true",
        help="also undo the attachments of running processes, and end the processes of other machines' runs",
    )
    parser.set_defaults(func=_clean)


def _clean(arguments: argparse.Namespace) -> int:
    loaded = config.load(arguments.targets, arguments.overrides)
    failed = 0
    for name, machine in loaded.clients.items():
        try:
            with connect(machine) as host:
                ended, alive = end_left_commands(host, force=arguments.force)
                failed += _report(name, ended)
                failed += _report(name, clean(host, force=arguments.force, alive=alive))
        except HostError as error:
            get_console().print(f"{name}: not cleaned: {error}", soft_wrap=True)
            failed += 1
    return 1 if failed + _clean_servers(loaded, force=arguments.force) else 0


def _clean_servers(loaded: config.Config, *, force: bool) -> int:
    """Undo the controls that killed runs left on servers; return how many could not be undone."""
    controlled = [one for one in loaded.variants if one.controls.on_the_server and one.server is not None]
    failed = 0
    for name, machine in {one.server.name: one.server for one in controlled if one.server}.items():
        try:
            with connect(machine) as host:
                failed += _report(name, clean(host, force=force))
        except HostError as error:
            get_console().print(f"{name}: not cleaned: {error}", soft_wrap=True)
            failed += 1
    return failed


def _report(name: str, outcomes: Sequence[UndoResult]) -> int:
    """Print the results of the client ``name``; return how many are no success."""
    out = get_console()
    for outcome in outcomes:
        parts = filter(None, (name, outcome.description, outcome.result.value, outcome.detail))
        out.print(": ".join(parts), soft_wrap=True)
    return sum(outcome.result not in _SUCCESS for outcome in outcomes)
