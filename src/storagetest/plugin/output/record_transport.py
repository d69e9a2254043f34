"""Records on their way to the reporters.

A record is made where the case runs, which under xdist is a worker; it travels on pytest's own report as
plain JSON values and is written by the controller alone. So one process writes results.jsonl.
"""

from __future__ import annotations

from typing import Any

import pytest

from storagetest.plugin.run_state import RECORDS
from storagetest.report.base import Record
from storagetest.report.jsonl import from_json, to_json

__all__ = ["attach_records", "read_records", "records_of"]

_ATTRIBUTE = "storagetest_records"


def records_of(item: pytest.Item) -> list[Record]:
    """Return the records that ``item`` has made so far (the list itself)."""
    return item.stash.setdefault(RECORDS, [])


def attach_records(report: pytest.TestReport, records: list[Record]) -> None:
    """Put ``records`` on ``report``."""
    setattr(report, _ATTRIBUTE, [to_json(record) for record in records])


def read_records(report: pytest.TestReport) -> list[Record]:
    """Take the records off ``report``."""
    packed: list[dict[str, Any]] = getattr(report, _ATTRIBUTE, [])
    return [from_json(document) for document in packed]
