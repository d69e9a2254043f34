"""``storagetest clean``: end the processes and undo the attachments that killed runs left on the clients.

On servers it undoes the controls of targets.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from storagetest import config
from storagetest.commands._console import add_targets_file, get_console
from storagetest.config.controls import PAIRS
from storagetest.errors import HostError
from storagetest.hosts import Host, UndoResult, UndoStatus, clean, end_left_commands
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
    force: bool = arguments.force

    def on_client(host: Host) -> Sequence[UndoResult]:
        ended, alive = end_left_commands(host, force=force)
        return [*ended, *clean(host, force=force, alive=alive)]

    def on_server(host: Host) -> Sequence[UndoResult]:
        return clean(host, force=force)

    steps = [(machine, on_client) for machine in loaded.clients.values()]
    steps += [(machine, on_server) for machine in _controlled_servers(loaded)]
    return 1 if sum(_clean_machine(machine, step) for machine, step in steps) else 0


def _controlled_servers(loaded: config.Config) -> Sequence[config.HostConfig]:
    """Return the servers on which a killed run can have left a control: those of pairs, not `restart`."""
    servers = [one.server for one in loaded.variants if one.controls.on_the_server & PAIRS.keys()]
    return list({server.name: server for server in servers if server is not None}.values())


def _clean_machine(machine: config.HostConfig, step: Callable[[Host], Sequence[UndoResult]]) -> int:
    """Run ``step`` on a machine and print its results; return how many are no success."""
    try:
        with connect(machine) as host:
            return _report(machine.name, step(host))
    except HostError as error:
        get_console().print(f"{machine.name}: not cleaned: {error}", soft_wrap=True)
        return 1


def _report(name: str, outcomes: Sequence[UndoResult]) -> int:
    """Print the results of the machine ``name``; return how many are no success."""
    out = get_console()
    for outcome in outcomes:
        parts = filter(None, (name, outcome.description, outcome.result.value, outcome.detail))
        out.print(": ".join(parts), soft_wrap=True)
    return sum(outcome.result not in _SUCCESS for outcome in outcomes)
