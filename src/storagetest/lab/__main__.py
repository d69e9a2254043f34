"""``python -m storagetest.lab``: the same as ``storagetest lab``."""

from __future__ import annotations

import argparse
import sys

from storagetest.lab.cli import add_parser


def main() -> int:
    """Run ``lab`` with the arguments of this process; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m storagetest.lab")
    add_parser(parser.add_subparsers(required=True))
    args = parser.parse_args(["lab", *sys.argv[1:]])
    status: int = args.func(args)
    return status


if __name__ == "__main__":
    sys.exit(main())
