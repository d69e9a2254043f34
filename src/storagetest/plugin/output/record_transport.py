"""Send records from the process that runs a case to the controller, in pytest's report as JSON values.

Under xdist a worker runs the case. Only the controller writes results.jsonl.
"""

from __future__ import annotations

from typing import Any

import pytest

from storagetest.report.base import Record
from storagetest.report.jsonl import from_json, to_json

_ATTRIBUTE = "storagetest_records"
_RECORDS = pytest.StashKey[list[Record]]()
_SENT = pytest.StashKey[int]()


def records_of(item: pytest.Item) -> list[Record]:
    """Return the list of the records of ``item`` so far, not a copy."""
    return item.stash.setdefault(_RECORDS, [])


def attach_records(report: pytest.TestReport, item: pytest.Item) -> None:
    """Store in ``report`` the records of ``item`` that no earlier report has: a fixture may measure last."""
    records, sent = records_of(item), item.stash.get(_SENT, 0)
    setattr(report, _ATTRIBUTE, [to_json(record) for record in records[sent:]])
    item.stash[_SENT] = len(records)


def read_records(report: pytest.TestReport) -> list[Record]:
    """Return the records in ``report``."""
    packed: list[dict[str, Any]] = getattr(report, _ATTRIBUTE, [])
    return [from_json(document) for document in packed]
