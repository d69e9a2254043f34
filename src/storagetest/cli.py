"""``storagetest``: what is not a test run. Tests are run with pytest.

Each room that has commands of its own adds them (``lab``, ``report``); the rest is here.
Exit status: 0 done, 1 something is left or failed, 2 misuse, 4 a mistake in the targets file (as pytest's).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from storagetest import __version__, config
from storagetest.config.schema import schema_text
from storagetest.errors import ConfigError, StoragetestError
from storagetest.hosts import Outcomes, clean
from storagetest.hosts.connect import connect
from storagetest.lab import cli as lab_cli
from storagetest.protocols.base import protocols
from storagetest.report import cli as report_cli
from storagetest.report import coverage_page
from storagetest.report.exports import cli as export_cli
from storagetest.report.page import cli as page_cli
from storagetest.workloads._reference import page
from storagetest.workloads.base import workloads

__all__ = ["main"]

_USAGE_ERROR = 4


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        status: int = arguments.func(arguments)
    except ConfigError as error:
        print(f"storagetest: {error}", file=sys.stderr)
        return _USAGE_ERROR
    except StoragetestError as error:
        print(f"storagetest: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("storagetest: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `storagetest targets | head`
        sys.stderr.close()
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="storagetest", description="Storage targets tested with pytest.")
    parser.add_argument("--version", action="version", version=f"storagetest {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    targets = commands.add_parser("targets", help="list the variants that the targets file expands to")
    _add_targets_file(targets)
    targets.add_argument("--kinds", action="store_true", help="list protocols and workloads instead")
    targets.set_defaults(func=_targets)

    leftovers = commands.add_parser("clean", help="undo what killed runs have left on the clients")
    _add_targets_file(leftovers)
    leftovers.add_argument(
        "--force", action="store_true", help="also what a run that still lives has attached"
    )
    leftovers.set_defaults(func=_clean)

    reference = commands.add_parser("workloads", help="print the reference of the workloads, for the docs")
    reference.set_defaults(func=_workloads)

    schema = commands.add_parser("schema", help="print the JSON Schema of the targets file, for editors")
    schema.set_defaults(func=_schema)

    report_cli.add_parser(commands)
    coverage_page.add_parser(commands)
    export_cli.add_parser(commands)
    page_cli.add_parser(commands)
    lab_cli.add_parser(commands)
    return parser


def _add_targets_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--targets",
        type=Path,
        default=Path("targets.yaml"),
        metavar="FILE",
        help="the targets file (default: ./targets.yaml)",
    )


def _targets(arguments: argparse.Namespace) -> int:
    if arguments.kinds:
        for title, registry in (("protocols", protocols), ("workloads", workloads)):
            print(f"{title}:")
            for name, kind in registry.all().items():
                summary = (kind.__doc__ or "").strip().partition("\n")[0]
                print(f"  {name:20} {summary}")
        return 0
    loaded = config.load(arguments.targets)
    width = max(len(variant.id) for variant in loaded.variants)
    for variant in loaded.variants:
        can = " ".join(sorted(protocols.get(variant.protocol)().capabilities(variant.options)))
        clients = ", ".join(client.name for client in variant.clients)
        print(f"{variant.id:{width}}  {variant.protocol:8}  {clients}  {can}")
    return 0


def _clean(arguments: argparse.Namespace) -> int:
    loaded = config.load(arguments.targets)
    left = 0
    for name, machine in loaded.clients.items():
        with connect(machine) as host:
            for outcome in clean(host, force=arguments.force):
                print(": ".join(filter(None, (name, outcome.what, outcome.result.value, outcome.detail))))
                left += outcome.result is not Outcomes.UNDONE
    return 1 if left else 0


def _workloads(_: argparse.Namespace) -> int:
    print(page(workloads.registered()), end="")
    return 0


def _schema(_: argparse.Namespace) -> int:
    print(schema_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
