"""Samba's own counters: what ``smbstatus --profile`` prints (smbstatus(1)).

Samba counts only with ``smbd profiling level = count`` or ``on`` (smb.conf(5)); without, all values stay 0.
With ``on`` it also measures times, in microseconds. ksmbd of Linux before 7.0 counts no requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from storagetest.counters.base import CounterSource, HostCommand, Kind, Reading, register
from storagetest.measure.unit import Unit

_OUTPUT = "command:smbstatus"
_VALUE = re.compile(r"^(\w+):\s+(\d+)\s*$", re.MULTILINE)
_REQUEST = re.compile(r"smb2_([a-z]+)_count")


@register
class Samba(CounterSource):
    """Requests of each kind, bytes and times of Samba (smbd) on the host."""

    name = "samba"
    paths = ()
    commands: ClassVar[Mapping[str, HostCommand]] = {
        _OUTPUT: HostCommand(("smbstatus", "--profile"), every=5.0, if_exists="/run/samba/smbd.pid")
    }
    example: ClassVar[Mapping[str, str]] = {
        _OUTPUT: (
            "**** SMBD loop ******\nconnect_count:          1\nrequest_count:         29\n"
            "**** SMB2 Calls ******\nsmb2_read_count:       10\nsmb2_read_time:       500\n"
            "smb2_read_outbytes: 41120\nsmb2_write_count:       2\n"
            "smb2_write_time:        0\nsmb2_write_inbytes:  8416\n"
        )
    }

    def parse(self, texts: Mapping[str, str]) -> Mapping[str, Reading]:
        """Return the readings: ``read``, ``read time``, …, and the bytes of all reads and writes."""
        values = {name: int(value) for name, value in _VALUE.findall(texts.get(_OUTPUT, ""))}
        readings = {
            name: Reading(values[field], unit)
            for name, field, unit in (
                ("requests", "request_count", Unit.PER_SECOND),
                ("connects", "connect_count", Unit.PER_SECOND),
                ("sent by reads", "smb2_read_outbytes", Unit.BYTES_PER_SECOND),
                ("received by writes", "smb2_write_inbytes", Unit.BYTES_PER_SECOND),
            )
            if field in values
        }
        for field, count in values.items():
            if match := _REQUEST.fullmatch(field):
                readings[match[1]] = Reading(count, Unit.PER_SECOND)
                if spent := values.get(f"smb2_{match[1]}_time"):
                    readings[f"{match[1]} time"] = Reading(
                        spent * 1e-6, Unit.SECONDS, Kind.QUOTIENT, per=count
                    )
        return readings
