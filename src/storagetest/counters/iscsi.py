"""iSCSI counters in sysfs: an initiator's SCSI devices and sessions, and LIO's logical units on a server.

The transport's own statistics (PDUs, digest errors) are available only by netlink, for iscsiadm(8). sysfs has
the SCSI layer's counters: requests started, completed, failed and timed out, in hexadecimal. LIO, the
kernel's target, has the counters of the SCSI MIB (RFC 4455) in configfs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import ClassVar

from storagetest.counters.base import CounterSource, Kind, Reading, leading_integers, register
from storagetest.measure.unit import Unit

_INITIATOR = {
    "iorequest_cnt": "requests",
    "iodone_cnt": "done",
    "ioerr_cnt": "errors",
    "iotmo_cnt": "timeouts",
}
_FAILURES = {"ioerr_cnt", "iotmo_cnt"}
_LIO = "/sys/kernel/config/target/iscsi/*/tpgt_*/lun/lun_*/statistics/scsi_tgt_port"
_LIO_COUNTERS = {
    "in_cmds": ("target commands", 1, Unit.PER_SECOND),
    "read_mbytes": ("target read", 1 << 20, Unit.BYTES_PER_SECOND),
    "write_mbytes": ("target written", 1 << 20, Unit.BYTES_PER_SECOND),
}
"""File → name, factor and unit of the reading. LIO shifts bytes right by 20 (target_core_stat.c)."""


@register
class IscsiSource(CounterSource):
    """Requests, errors and timeouts of each SCSI device of a session; commands and bytes of a LIO target."""

    name = "iscsi"
    paths = (
        "/sys/class/iscsi_session/*/state",
        "/sys/class/iscsi_session/*/device/target*/*:*/io*_cnt",
        *(f"{_LIO}/{name}" for name in _LIO_COUNTERS),
    )
    example: ClassVar[Mapping[str, str]] = {
        "/sys/class/iscsi_session/session1/state": "LOGGED_IN\n",
        "/sys/class/iscsi_session/session1/device/target2:0:0/2:0:0:0/iorequest_cnt": "0x1c4\n",
        "/sys/class/iscsi_session/session1/device/target2:0:0/2:0:0:0/ioerr_cnt": "0x0\n",
        "/sys/kernel/config/target/iscsi/iqn.2026-11.org.example:a/tpgt_1/lun/lun_0/statistics/scsi_tgt_port"
        "/in_cmds": "452\n",
    }

    def parse(self, texts: Mapping[str, str]) -> Mapping[str, Reading]:
        """Return the readings; LIO's are summed over all logical units."""
        readings: dict[str, Reading] = {}
        for path, text in texts.items():
            file = PurePosixPath(path)
            if file.name == "state":
                up = float(text.strip() == "LOGGED_IN")
                readings[f"{file.parent.name} logged in"] = Reading(up, Unit.COUNT, Kind.GAUGE, keep=True)
                continue
            value = leading_integers(text.split())
            if not value:
                continue
            if file.name in _INITIATOR:
                name = f"{file.parent.name} {_INITIATOR[file.name]}"
                readings[name] = Reading(value[0], Unit.PER_SECOND, keep=file.name in _FAILURES)
            else:
                name, factor, unit = _LIO_COUNTERS[file.name]
                known = readings[name].value if name in readings else 0
                readings[name] = Reading(known + value[0] * factor, unit)
        return readings
