"""``python -m storagetest.lab``: the ``lab`` subcommand by itself."""

from __future__ import annotations

import argparse
import sys

from storagetest.lab.cli import add_parser


def main() -> int:
    """Run ``lab`` with this process's arguments."""
    parser = argparse.ArgumentParser(prog="python -m storagetest.lab")
    add_parser(parser.add_subparsers(required=True))
    args = parser.parse_args(["lab", *sys.argv[1:]])
    status: int = args.func(args)
    return status


if __name__ == "__main__":
    sys.exit(main())
