"""Write entries of the client's undo journal (:mod:`storagetest.hosts`) for a case's changes on the client.

An entry is written before the change and removed after the change is undone, so ``storagetest clean`` undoes
the changes of a killed run. The request's ``journal`` has ``write`` and ``remove``, argvs to which an entry's
id (and its size) is appended, and ``head``, the fields that all entries share.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

_TIMEOUT = 20.0
"""Seconds that writing or removing an entry may take (chosen)."""

_journal: dict[str, Any] = {}


def configure(journal: Mapping[str, Any]) -> None:
    """Set the request's journal, for this process and those that are forked from it later."""
    _journal.update(journal)


class UndoEntry:
    """One entry in the journal. Without a journal (a case that is called directly) nothing is written."""

    def __init__(self, description: str, step: Mapping[str, Sequence[str]]) -> None:
        """``step`` has ``argv``, which undoes the change, and ``unless``, which succeeds if that is done."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
        self._id = f"{now[:19].replace(':', '')}-{os.urandom(4).hex()}"
        entry = {"id": self._id, "what": description, "undo": [step], "created": now}
        if _journal:
            data = json.dumps({**_journal["head"], **entry}).encode()
            _run([*_journal["write"], self._id, str(len(data))], data)

    def remove(self) -> None:
        """Remove the entry, because the change is undone."""
        if _journal:
            _run([*_journal["remove"], self._id], b"")


def _run(argv: Sequence[str], data: bytes) -> None:
    import subprocess  # noqa: PLC0415  # few cases need it

    completed = subprocess.run(argv, input=data, capture_output=True, timeout=_TIMEOUT, check=False)
    if completed.returncode:
        raise RuntimeError(
            f"the undo journal cannot be used: {completed.stderr.decode(errors='replace').strip()}"
        )
