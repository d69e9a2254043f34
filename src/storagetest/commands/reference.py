"""``storagetest workloads`` and ``schema``: the reference of workloads, and the JSON Schema for editors."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from storagetest.config.schema import schema_text
from storagetest.workloads._reference import page
from storagetest.workloads.base import workloads

if TYPE_CHECKING:
    from storagetest.commands._console import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add both commands; each sets ``func(args) -> int``."""
    reference = subparsers.add_parser("workloads", help="print the reference of the workloads, for the docs")
    reference.set_defaults(func=_workloads)
    schema = subparsers.add_parser("schema", help="print the JSON Schema of the targets file, for editors")
    schema.set_defaults(func=_schema)


def _workloads(_: argparse.Namespace) -> int:
    sys.stdout.write(page(workloads.all()))
    return 0


def _schema(_: argparse.Namespace) -> int:
    sys.stdout.write(schema_text())
    return 0
