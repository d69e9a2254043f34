"""Layouts of pNFS (RFC 8881 12): a client gets, returns and commits them, and answers their recalls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until
from storagetest.wire.nfs4.block_layout import (
    pnfs_block_extent4,
    pnfs_block_layout4,
    pnfs_block_layoutupdate4,
)
from storagetest.wire.nfs4.callbacks import Callbacks
from storagetest.wire.nfs4.client import BACK, Done, Nfs4Client, ok
from storagetest.wire.nfs4.harness import Nfs4Harness
from storagetest.wire.nfs4.operations import op
from storagetest.wire.nfs4.state import OpenFile
from storagetest.wire.nfs4.types import (
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
    EXCHGID4_FLAG_USE_PNFS_MDS,
    CB_LAYOUTRECALL4args,
    GETDEVICEINFO4args,
    LAYOUTCOMMIT4args,
    LAYOUTGET4args,
    LAYOUTRETURN4args,
    RECLAIM_COMPLETE4args,
    layout4,
    layoutiomode4,
    layoutreturn4,
    layoutreturn_file4,
    layoutreturn_type4,
    layouttype4,
    layoutupdate4,
    nfs_argop4,
    nfs_cb_opnum4,
    nfsstat4,
    nfstime4,
    stateid4,
)
from storagetest.wire.xdr import decode

READ, RW, ANY = (
    layoutiomode4.LAYOUTIOMODE4_READ,
    layoutiomode4.LAYOUTIOMODE4_RW,
    layoutiomode4.LAYOUTIOMODE4_ANY,
)
ALL = 0xFFFF_FFFF_FFFF_FFFF
"""NFS4_UINT64_MAX as a length: up to the end of the file (RFC 8881 18.43.3)."""
LENGTH = 65536
"""The length of a layout if a case asks for no other: that of the file of the fixture ``laid``."""
MAXCOUNT = 65536
"""Bytes of a layout or a device's address that the client takes (chosen)."""
RECALL = nfs_cb_opnum4.OP_CB_LAYOUTRECALL
UNAVAILABLE = (nfsstat4.NFS4ERR_LAYOUTUNAVAILABLE, nfsstat4.NFS4ERR_LAYOUTTRYLATER)
"""With these a server grants no layout now, for whatever reason (RFC 8881 18.43.3, RFC 5663 2.6)."""


def layoutget(
    kind: int,
    stateid: stateid4,
    iomode: int = READ,
    offset: int = 0,
    length: int = LENGTH,
    minlength: int = 4096,
    *,
    maxcount: int = MAXCOUNT,
) -> nfs_argop4:
    """Return LAYOUTGET; ``kind`` and ``iomode`` may be numbers that no standard defines."""
    asked: Any = (False, kind, iomode, offset, length, minlength, stateid, maxcount)
    return op("LAYOUTGET", LAYOUTGET4args(*asked))


def layoutreturn(
    kind: int,
    stateid: stateid4 | None,
    iomode: int = ANY,
    offset: int = 0,
    length: int = ALL,
    *,
    scope: layoutreturn_type4 = layoutreturn_type4.LAYOUTRETURN4_FILE,
    reclaim: bool = False,
) -> nfs_argop4:
    """Return LAYOUTRETURN of a range of a file, or of a whole file system or client without a stateid."""
    what = None if stateid is None else layoutreturn_file4(offset, length, stateid, b"")
    asked: Any = (reclaim, kind, iomode, layoutreturn4(scope, what))
    return op("LAYOUTRETURN", LAYOUTRETURN4args(*asked))


def layoutcommit(
    kind: int,
    stateid: stateid4,
    offset: int = 0,
    length: int = ALL,
    *,
    last: int | None = None,
    time: nfstime4 | None = None,
    reclaim: bool = False,
    written: tuple[pnfs_block_extent4, ...] = (),
) -> nfs_argop4:
    """Return LAYOUTCOMMIT; ``written`` are the extents of a block layout that have valid data now."""
    blocks = kind in (layouttype4.LAYOUT4_BLOCK_VOLUME, layouttype4.LAYOUT4_SCSI)
    body = pnfs_block_layoutupdate4(written).encode().data if blocks else b""
    asked: Any = (offset, length, reclaim, stateid, last, time, layoutupdate4(kind, body))  # type: ignore[arg-type]
    return op("LAYOUTCOMMIT", LAYOUTCOMMIT4args(*asked))


def getdeviceinfo(
    kind: int, device: bytes, maxcount: int = MAXCOUNT, notify: tuple[int, ...] = ()
) -> nfs_argop4:
    """Return GETDEVICEINFO."""
    asked: Any = (device, kind, maxcount, notify)
    return op("GETDEVICEINFO", GETDEVICEINFO4args(*asked))


def pnfs_client(bench: Nfs4Harness, minor: int, callbacks: Callbacks | None = None) -> Nfs4Client:
    """Return a client that uses pNFS, with a back channel."""
    nfs = bench.new(minor)
    made = ok(nfs.raw(nfs.exchange_id(EXCHGID4_FLAG_USE_PNFS_MDS)))["EXCHANGE_ID"]
    nfs.exchanged, nfs.clientid = made, made.eir_clientid
    nfs.rpc.on_call = callbacks or Callbacks()
    nfs.create_session(flags=CREATE_SESSION4_FLAG_CONN_BACK_CHAN, back=BACK)
    ok(nfs.compound(op("RECLAIM_COMPLETE", RECLAIM_COMPLETE4args(False))))
    return nfs


@dataclass
class LayoutFile:
    """An open file, and the layout that its client holds on it: ``stateid`` is None without one."""

    file: OpenFile
    kind: layouttype4
    callbacks: Callbacks = field(default_factory=Callbacks)
    stateid: stateid4 | None = None
    granted: Any = None

    @property
    def nfs(self) -> Nfs4Client:
        """The client."""
        return self.file.client

    @property
    def current(self) -> stateid4:
        """The stateid that the next LAYOUTGET has (RFC 8881 12.5.2)."""
        return self.file.stateid if self.stateid is None else self.stateid

    @property
    def held(self) -> stateid4:
        """The layout stateid. Raises AssertionError if the client has none."""
        assert self.stateid is not None, "the client holds no layout"
        return self.stateid

    def try_get(self, *arguments: Any, stateid: stateid4 | None = None, **options: Any) -> Done:
        """LAYOUTGET with the arguments that follow the stateid, whatever the outcome; the stateid is kept."""
        asked = layoutget(self.kind, stateid or self.current, *arguments, **options)
        done = self.file.on(asked)
        if done.status == nfsstat4.NFS4_OK:
            self.granted = done["LAYOUTGET"]
            self.stateid = self.granted.logr_stateid
        return done

    def get(self, *arguments: Any, **options: Any) -> Sequence[layout4]:
        """LAYOUTGET; skip if no layout is available. Raises AssertionError if it ends with another error."""
        done = self.try_get(*arguments, **options)
        if done.status in UNAVAILABLE:
            pytest.skip(f"the server grants no such layout now: {done.status.name}")
        found: Sequence[layout4] = ok(done)["LAYOUTGET"].logr_layout
        return found

    def try_return(self, *arguments: Any, stateid: stateid4 | None = None, **options: Any) -> Done:
        """LAYOUTRETURN of a range of the file, whatever the outcome; the new stateid is kept, or None."""
        asked = layoutreturn(self.kind, stateid or self.held, *arguments, **options)
        done = self.file.on(asked)
        if done.status == nfsstat4.NFS4_OK:
            self.stateid = done["LAYOUTRETURN"]
        return done

    def return_all(self, scope: layoutreturn_type4) -> Done:
        """LAYOUTRETURN of all layouts of the file system or of the client."""
        return self.file.on(layoutreturn(self.kind, None, scope=scope))

    def commit(self, *arguments: Any, stateid: stateid4 | None = None, **options: Any) -> Done:
        """LAYOUTCOMMIT, whatever the outcome."""
        return self.file.on(layoutcommit(self.kind, stateid or self.held, *arguments, **options))

    # Recalls

    @property
    def recalls(self) -> list[CB_LAYOUTRECALL4args]:
        """The CB_LAYOUTRECALLs that were received."""
        found = [one.value for call in self.callbacks.seen for one in call.argarray]
        return [one for one in found if isinstance(one, CB_LAYOUTRECALL4args)]

    def wait_for_recalls(self, count: int = 1) -> CB_LAYOUTRECALL4args:
        """Return the recall number ``count``. Raises AssertionError if it does not arrive in time."""

        def arrived() -> bool:
            self.nfs.renew()  # callbacks are read while a reply is expected
            return len(self.recalls) >= count

        try:
            wait_until(arrived, self.nfs.rpc.deadline / 2, f"CB_LAYOUTRECALL number {count}")
        except DeadlineExceeded as error:
            raise AssertionError(f"12.5.5: {error}") from None
        return self.recalls[count - 1]

    def return_recalled(self, recall: CB_LAYOUTRECALL4args) -> Done:
        """LAYOUTRETURN of what a recall names, with the stateid of the recall (RFC 8881 18.44.3)."""
        what: Any = recall.clora_recall.value
        if recall.clora_recall.lor_recalltype != layoutreturn_type4.LAYOUTRETURN4_FILE:
            return self.return_all(layoutreturn_type4(recall.clora_recall.lor_recalltype))
        return self.try_return(
            recall.clora_iomode, what.lor_offset, what.lor_length, stateid=what.lor_stateid
        )


def start(layouts: Sequence[layout4]) -> int:
    """Return the offset of a layout: that of its first element."""
    return layouts[0].lo_offset


def length(layouts: Sequence[layout4]) -> int:
    """Return the length of a layout: the sum of its elements, or ALL if the last one has no end."""
    if layouts[-1].lo_length == ALL:
        return ALL
    return sum(one.lo_length for one in layouts)


def extents(layouts: Sequence[layout4]) -> tuple[pnfs_block_extent4, ...]:
    """Return the extents of a block layout in their order; skip if it is one of another type."""
    for one in layouts:
        if one.lo_content.loc_type != layouttype4.LAYOUT4_BLOCK_VOLUME:
            pytest.skip(f"the layout is of the type {one.lo_content.loc_type.name}, not of blocks")
    bodies = [decode(pnfs_block_layout4, one.lo_content.loc_body) for one in layouts]
    found = tuple(extent for body in bodies for extent in body.blo_extents)
    assert found, "RFC 5663 2.3.1: the layout has no extent"
    return found


def device_of(layouts: Sequence[layout4]) -> bytes:
    """Return the device id of the first extent of a block layout."""
    found: bytes = extents(layouts)[0].bex_vol_id
    return found


def with_seqid(stateid: stateid4, seqid: int) -> stateid4:
    """Return a layout stateid with another sequence id; after the last one follows 1 (12.5.5.2.1.4)."""
    return replace(stateid, seqid=seqid)
