"""Counters of the SMB client: /proc/fs/cifs/Stats (admin-guide/cifs/usage.rst of the kernel's documents).

Its operations are the commands of MS-SMB2 2.2.1. A share of SMB1 has other lines, without failures:
``Reads:  5 Bytes: 262144``, ``Posix Opens: 2 Posix Mkdirs: 0``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

from storagetest.counters.base import CounterSource, Reading, RequestKind, register
from storagetest.measure.unit import Unit

_PATH = "/proc/fs/cifs/Stats"
_OPERATION = re.compile(r"(\w+): (\d+) total (\d+) failed")
_BYTES = re.compile(r"Bytes read: (\d+)\s+Bytes written: (\d+)")
_OLD_BYTES = re.compile(r"Reads: +\d+ Bytes: (\d+)\nWrites: +\d+ Bytes: (\d+)")
_OLD_OPERATION = re.compile(
    r"\b(?:Posix )?(Reads|Writes|Locks|Opens|Deletes|Mkdirs|Rmdirs|Renames|FindFirst): +(\d+)\b(?! total)"
)
_RECONNECTS = re.compile(r"(\d+) session (\d+) share reconnects")
_REQUESTS = re.compile(r"SMBs: (\d+)")


@register
class Cifs(CounterSource):
    """Bytes, requests, operations and reconnects, summed over all SMB shares."""

    name = "cifs"
    paths = (_PATH,)
    counts_for = frozenset({"cifs", "smb3"})
    counter = "the SMB client's"
    transfers = ("read", "written")
    requests: ClassVar[Mapping[RequestKind, frozenset[str]]] = {
        RequestKind.QUERY: frozenset({"Creates", "QueryInfos", "Opens"}),
        RequestKind.READ: frozenset({"Reads"}),
        RequestKind.WRITE: frozenset({"Writes"}),
        RequestKind.CHANGE: frozenset(
            {"Creates", "SetInfos", "Opens", "Deletes", "Mkdirs", "Rmdirs", "Renames"}
        ),
        RequestKind.LIST: frozenset({"QueryDirectories", "FindFirst"}),
        RequestKind.LOCK: frozenset({"Locks"}),
    }
    example: ClassVar[Mapping[str, str]] = {
        _PATH: (
            "Resources in use\nCIFS Session: 1\n\n0 session 0 share reconnects\n"
            "Total vfs operations: 16 maximum at one time: 2\n\n"
            "1) \\\\nas\\scratch\nSMBs: 29\nBytes read: 8192  Bytes written: 40960\n"
            "Creates: 3 total 1 failed\nReads: 2 total 0 failed\nWrites: 10 total 0 failed\n"
        )
    }

    def parse(self, texts: Mapping[str, str]) -> Mapping[str, Reading]:
        """Return the readings; operations have the kernel's names (``Reads``, ``Creates`` …)."""
        text = texts.get(_PATH, "")
        if not text.strip():
            return {}
        calls: Counter[str] = Counter()
        failed = 0
        for name, total, failures in _OPERATION.findall(text):
            calls[name] += int(total)
            failed += int(failures)
        for name, total in _OLD_OPERATION.findall(text):
            calls[name] += int(total)
        found = _BYTES.findall(text) + _OLD_BYTES.findall(text)
        shares = [(int(read), int(written)) for read, written in found]
        readings = {
            "read": Reading(sum(read for read, _ in shares), Unit.BYTES_PER_SECOND),
            "written": Reading(sum(written for _, written in shares), Unit.BYTES_PER_SECOND),
            "requests": Reading(sum(map(int, _REQUESTS.findall(text))), Unit.PER_SECOND),
            "failed": Reading(failed, Unit.PER_SECOND),
        }
        if match := _RECONNECTS.search(text):
            readings["reconnects"] = Reading(int(match[1]) + int(match[2]), Unit.PER_SECOND, keep=True)
        return readings | {name: Reading(total, Unit.PER_SECOND) for name, total in calls.items()}
