"""``storagetest``: all commands except test runs. Tests are run with pytest.

Each sub-command is a module with ``add_parser()``, in :mod:`storagetest.commands` or in the package that
it belongs to. Exit status: 0 done, 1 failed or incomplete, 2 wrong usage, 4 invalid targets file (as
pytest's), 130 interrupted.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from storagetest import __version__, installed_suites
from storagetest.commands import check, clean, compare, completion, init, reference, targets
from storagetest.config.validation import suggest
from storagetest.errors import ConfigError, StoragetestError
from storagetest.lab import cli as lab_cli
from storagetest.report import cli as report_cli

__all__ = ["main"]

_USAGE_ERROR = 4

COMMANDS = (
    init,
    check,
    targets,
    report_cli,
    compare,
    clean,
    installed_suites,
    lab_cli,
    reference,
    completion,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    try:
        parser = _parser()
        completion.complete(parser)
        arguments = parser.parse_args(report_cli.current_spelling(sys.argv[1:] if argv is None else argv))
        status: int = arguments.func(arguments)
    except ConfigError as error:
        # pytest's option --st-set is --set here.
        print(f"storagetest: {str(error).replace('--st-set ', '--set ')}", file=sys.stderr)
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


class _Parser(argparse.ArgumentParser):
    """A parser whose errors suggest the nearest choice."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and ``message``, and exit with status 2."""
        wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if wrong:
            known = re.findall(r"[\w-]+", wrong[2])
            message = f"invalid choice {wrong[1]!r}{suggest(wrong[1], known)}"
        elif message.endswith("are required: COMMAND"):
            message = "a command is missing; `storagetest --help` lists the commands"
        super().error(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="storagetest",
        description="Prepare, check and report tests of storage targets. Run the tests with pytest.",
    )
    parser.add_argument("--version", action="version", version=f"storagetest {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
