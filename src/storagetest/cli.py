"""``storagetest``: all commands except test runs. Tests are run with pytest.

Each sub-command is a module with ``add_parser()``, in :mod:`storagetest.commands` or in the package that
it belongs to. Only the module of the requested command is imported, because all of them take a second.

Exit status: 0 done, 1 failed or incomplete, 2 wrong usage, 4 invalid targets file (as pytest's), 130
interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from storagetest import __version__
from storagetest.commands import completion
from storagetest.errors import ConfigError, StoragetestError

_USAGE_ERROR = 4

COMMANDS = {
    "init": "storagetest.commands.init",
    "check": "storagetest.commands.check",
    "targets": "storagetest.commands.targets",
    "report": "storagetest.report.cli",
    "compare": "storagetest.commands.compare",
    "clean": "storagetest.commands.clean",
    "suites": "storagetest.installed_suites",
    "lab": "storagetest.lab.cli",
    "reference": "storagetest.commands.reference",
    "completion": "storagetest.commands.completion",
}
"""Command -> module, in the order of the help text."""
_RENAMED = ("page", "coverage", "export", "report")
"""Commands of 0.1 that may be spelled in another way."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    try:
        words = list(sys.argv[1:] if argv is None else argv)
        if words and words[0] in _RENAMED:
            from storagetest.report.cli import current_spelling  # noqa: PLC0415  # see above

            words = current_spelling(words)
        parser = _parser(words[0] if words else "")
        completion.complete(parser)
        arguments = parser.parse_args(words)
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
            from storagetest.config.validation import suggest  # noqa: PLC0415  # imports Pydantic

            known = re.findall(r"[\w-]+", wrong[2])
            message = f"invalid choice {wrong[1]!r}{suggest(wrong[1], known)}"
        elif message.endswith("are required: COMMAND"):
            message = "a command is missing; `storagetest --help` lists the commands"
        super().error(message)


def _parser(command: str = "") -> argparse.ArgumentParser:
    """Return the parser of ``command``, or of all commands if it is none of them."""
    parser = _Parser(
        prog="storagetest",
        description="Prepare, check and report tests of storage targets. Run the tests with pytest.",
    )
    parser.add_argument("--version", action="version", version=f"storagetest {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in [COMMANDS[command]] if command in COMMANDS else COMMANDS.values():
        importlib.import_module(module).add_parser(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
