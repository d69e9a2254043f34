"""Reserved fields of what a controller returns that are not 0 (Base 1.4.1.6)."""

from __future__ import annotations

from collections.abc import Callable

from nvme_tcp_rules import identify, log, on_io, patch, put, target

from storagetest.wire.nvme.codes import Cns, Io, LogPage

FLAGS = (
    ("identify-rsvd-ctrl", "a reserved byte of Identify Controller is set", identify(Cns.CONTROLLER), 1900),
    ("identify-rsvd-ns", "a reserved byte of Identify Namespace is set", identify(Cns.NAMESPACE), 98),
    ("identify-rsvd-nvm", "a reserved byte of Identify CNS 06h is set", identify(Cns.CSI_CONTROLLER), 4095),
    ("identify-rsvd-independent", "a reserved byte of CNS 08h is set", identify(Cns.CSI_INDEPENDENT), 24),
    ("log-rsvd-smart", "a reserved byte of the SMART log page is set", log(LogPage.SMART), 31),
    ("log-rsvd-firmware", "reserved bits of AFI are set", log(LogPage.FIRMWARE_SLOT), 0),
    ("log-rsvd-effects", "a reserved byte of the effects page is set", log(LogPage.EFFECTS), 4095),
    ("log-rsvd-error", "a reserved byte of an entry of the error log is set", log(LogPage.ERROR), 62),
    ("log-rsvd-ana", "a reserved byte of a descriptor of the ANA page is set", log(LogPage.ANA), 16 + 31),
    ("discovery-rsvd-head", "a reserved byte of the discovery log is set", log(LogPage.DISCOVERY), 24),
    ("notice-rsvd", "a reserved byte of a notification is set", log(LogPage.RESERVATION_NOTIFICATION), 63),
    ("report-rsvd-head", "a reserved byte of the report is set", on_io(Io.RESERVATION_REPORT), 63),
    ("report-rsvd-registrant", "a reserved byte of a registrant is set", on_io(Io.RESERVATION_REPORT), 127),
)
"""Name, what is broken, the command, and the offset of a byte that is reserved, or has reserved bits."""


def _set(at: int) -> Callable[[bytes], bytes]:
    return lambda raw: put(at, bytes([raw[at] | 0x80]))(raw) if len(raw) > at else raw


for name, text, when, at in FLAGS:
    target(f"{name} | Base 1.4.1.6 | {text}", patch(_set(at), when=when))
