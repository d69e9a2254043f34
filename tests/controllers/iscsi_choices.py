"""What the small iSCSI target of :mod:`iscsi_target` may choose."""

from __future__ import annotations

from dataclasses import dataclass

from storagetest.wire.iscsi.codes import AsyncEvent

OWN = {
    "HeaderDigest": "None",
    "DataDigest": "None",
    "InitialR2T": "Yes",
    "ImmediateData": "No",
    "MaxRecvDataSegmentLength": "262144",
    "MaxBurstLength": "262144",
    "FirstBurstLength": "65536",
    "DefaultTime2Wait": "2",
    "DefaultTime2Retain": "0",
    "MaxOutstandingR2T": "1",
    "MaxConnections": "1",
    "ErrorRecoveryLevel": "0",
    "DataPDUInOrder": "Yes",
    "DataSequenceInOrder": "Yes",
}
"""What it answers to the keys of a login, unless one of its choices differs."""


@dataclass(frozen=True)
class Choices:
    """What the target may choose."""

    event: AsyncEvent | None = None  # an Asynchronous Message before every response of a SCSI command
    nops: bool = False  # a NOP-In of its own before every PDU of the full feature phase
    one_write: bool = False  # the data of the next write are asked for when the last one is complete
    serial: bool = False  # while a write waits for its data, nothing else is served
    burst: int = 262144  # bytes of one R2T
    closes_last: bool = False  # after a logout, when the initiator has closed
    digests: bool = False  # CRC32C is taken for HeaderDigest and DataDigest
    mirrors: bool = False  # a segment length that is declared later is its own, too, and a larger PDU ends it
    unsolicited: bool = False  # InitialR2T is No, and ImmediateData Yes
    answers_aborted: bool = False  # not legal: an aborted write ends with GOOD after the task's response
    block_size: int = 512
    window: int = 33  # commands that the target takes
    segment: int = 262144  # its MaxRecvDataSegmentLength; a longer PDU of the full feature phase ends it
    thin: bool = False  # thin provisioned, and with a Control mode page that can be changed
    busy: bool = False  # every second command ends in BUSY, and is not executed
    moved: bool = False  # a login is redirected to another port (11.13.5)
    stat_sn: int = 1  # the StatSN of the first Login Response
    disordered: bool = False  # data and R2Ts of a command come last part first, where that was agreed on
    r2ts: int = 1  # MaxOutstandingR2T
    lun: int = 0
    portals: int = 1  # portal groups that SendTargets lists; only the first is there
    recovery: int = 0  # its ErrorRecoveryLevel; what a level above 0 needs is in iscsi_ordered.py
