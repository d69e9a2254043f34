"""The admin commands (NVM Express Base 2.3, section 5.2). Each function returns a command without its CID."""

from __future__ import annotations

from storagetest.wire.nvme.codes import Admin
from storagetest.wire.nvme.command import NO_SGL, Command


def identify(cns: int, *, nsid: int = 0, cntid: int = 0, csi: int = 0) -> Command:
    """Identify (5.2.13): returns 4096 bytes."""
    return Command(Admin.IDENTIFY, nsid=nsid, cdw10=cns | cntid << 16, cdw11=csi << 24)


def get_log_page(
    page: int, length: int, *, nsid: int = 0, offset: int = 0, lsp: int = 0, rae: int = 0
) -> Command:
    """Get Log Page (5.2.12): ``length`` bytes (a multiple of 4) from ``offset``."""
    dwords = length // 4 - 1
    return Command(
        Admin.GET_LOG_PAGE,
        nsid=nsid,
        cdw10=page | lsp << 8 | rae << 15 | (dwords & 0xFFFF) << 16,
        cdw11=dwords >> 16,
        cdw12=offset & 0xFFFFFFFF,
        cdw13=offset >> 32,
    )


def get_features(fid: int, *, select: int = 0, nsid: int = 0, cdw11: int = 0) -> Command:
    """Get Features (5.2.11); ``select`` 0 is the current value."""
    return Command(Admin.GET_FEATURES, nsid=nsid, dptr=NO_SGL, cdw10=fid | select << 8, cdw11=cdw11)


def set_features(fid: int, cdw11: int, *, save: bool = False, nsid: int = 0) -> Command:
    """Set Features (5.2.26)."""
    return Command(Admin.SET_FEATURES, nsid=nsid, dptr=NO_SGL, cdw10=fid | save << 31, cdw11=cdw11)


def async_event() -> Command:
    """Asynchronous Event Request (5.2.2): completed when there is an event."""
    return Command(Admin.ASYNCHRONOUS_EVENT_REQUEST, dptr=NO_SGL)


def abort(*, sqid: int, cid: int) -> Command:
    """Abort (5.2.1) the command ``cid`` of queue ``sqid``; result bit 0 is set if it was not aborted."""
    return Command(Admin.ABORT, dptr=NO_SGL, cdw10=sqid | cid << 16)


def keep_alive() -> Command:
    """Keep Alive (5.2.14)."""
    return Command(Admin.KEEP_ALIVE, dptr=NO_SGL)
