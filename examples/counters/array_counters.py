"""Counters of an array, read by a command: an example to adapt.

Save it next to your tests, and import it in their conftest.py:

    import array_counters  # registers the source

The command runs on the controller while a case is measured. It prints the array's counters; ``parse`` returns
them as readings. For SNMP, replace the command, for example by
``("snmpget", "-v3", "-Oqv", "array", "IF-MIB::ifHCInOctets.1")`` with the credentials in snmp.conf(5).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import ClassVar

from storagetest.counters.base import CounterSource, HostCommand, Kind, Reading, register
from storagetest.measure.unit import Unit

# The array's REST interface. curl reads user and password from ~/.netrc: they must not be arguments.
_URL = os.environ.get("ARRAY_STATISTICS_URL", "https://array.example/api/statistics")


@register
class ArrayCounters(CounterSource):
    """Operations, bytes and cache hits of the array."""

    name = "array"
    paths = ()
    on_controller = True
    commands: ClassVar[Mapping[str, HostCommand]] = {
        "command:array": HostCommand(
            ("curl", "--silent", "--fail", "--netrc-optional", "--max-time", "5", _URL), every=1.0
        )
    }
    example: ClassVar[Mapping[str, str]] = {
        "command:array": '{"operations": 120, "bytes_read": 4096, "cache_hit_ratio": 0.8}'
    }

    def parse(self, texts: Mapping[str, str]) -> Mapping[str, Reading]:
        """Return the readings in the output of the command; none if it cannot be read."""
        try:
            document = json.loads(texts.get("command:array", ""))
            return {
                "operations": Reading(float(document["operations"]), Unit.PER_SECOND),
                "read": Reading(float(document["bytes_read"]), Unit.BYTES_PER_SECOND),
                "cache hits": Reading(float(document["cache_hit_ratio"]), Unit.RATIO, Kind.GAUGE),
            }
        except (ValueError, KeyError, TypeError):
            return {}
