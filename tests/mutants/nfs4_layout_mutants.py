"""Broken rules of layouts (RFC 8881 12, 18.40 to 18.44, 20.3; RFC 5663; RFC 7862).

NFS-Ganesha's VFS has no layouts, so a server of our own breaks them: ``tests/controllers/pnfs_nfs.py``. The
list was written from the standards, together with the cases.
"""

# a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mutant_row import cells
from pnfs_nfs import PnfsNfs
from pnfs_state import Fault
from proxy import Rewrite

ROWS = """
layout-mds | 12.6 | a server that announces layouts is no metadata server, and grants them
layout-refused | 12.6 | no layout is granted
lg-late | 18.43.3 | a layout begins after the offset
lg-short | 18.43.3 | a layout is shorter than loga_minlength
lg-status | 18.43.3 | a range for which there is no layout ends with another error
lg-any | 18.43.3 | a layout to read has the iomode LAYOUTIOMODE4_ANY
lg-read-only | 18.43.3 | a layout to write has the iomode LAYOUTIOMODE4_READ
lg-type | 18.43.3 | a layout has another type
lg-gap | 18.43.3 | there is a gap between two elements of a layout
lg-iomodes | 18.43.3 | the elements of a layout have different iomodes
lg-inval | 18.43.3 | a range that contradicts itself ends with another error
lg-inval-granted | 18.43.3 | a range that contradicts itself is granted
lg-badiomode | 18.43.3 | an invalid iomode ends with another error
lg-unknown-type | 18.43.3 | a type that is not supported ends with another error
lg-toosmall | 18.43.3 | a layout that exceeds maxcount ends with another error
lg-nofh | 18.43.3 | LAYOUTGET without a filehandle ends with another error
lg-dir | 15.2 | LAYOUTGET of a directory ends with another error
lg-openmode | 12.5.1 | a file that is open to read has a layout to write
lg-stateid | 8.2.4 | LAYOUTGET accepts any stateid
lg-other-client | 8.2.4 | LAYOUTGET accepts the layout stateid of another client
lg-seq-first | 12.5.2 | the first layout stateid has the sequence id 5
lg-seq-next | 12.5.3 | LAYOUTGET increments the sequence id by two
lg-other | 12.5.3 | the layout stateid changes with each LAYOUTGET
lg-seq-zero | 12.5.5.2.1.4 | LAYOUTGET accepts the sequence id 0
lg-seq-future | 12.5.5.2.1.4 | LAYOUTGET accepts a sequence id of the future
lg-seq-old | 12.5.5.2.1.4 | LAYOUTGET accepts the last sequence id only
lg-current | 18.43.4 | LAYOUTGET does not accept the current stateid
lg-close | 12.5.2 | CLOSE ends the layout of the file
bl-read-states | RFC 5663 2.3.1 | a layout to read has extents to write
bl-rw-states | RFC 5663 2.3.1 | a layout to write has holes
bl-first | RFC 5663 2.3.1 | the first extent begins after the offset
bl-gap | RFC 5663 2.3.1 | there is a gap between two extents
bl-hole | RFC 5663 2.3 | a hole is to be read from the device
gdi-type | 18.40.3 | a device address has another type
gdi-order | RFC 5663 2.2.2 | a volume is a slice of itself
gdi-empty | RFC 5663 2.2.2 | a device has no volume
gdi-noent | 18.40.3 | an unknown device has an address
gdi-unknown-type | 15.2 | GETDEVICEINFO of an unknown type ends with another error
gdi-toosmall | 18.40.3 | a device address is larger than maxcount
gdi-mincount | 18.40.3 | gdir_mincount is less than maxcount
gdi-mincount-short | 18.40.3 | gdir_mincount is too small
gdi-zero | 18.40.3 | a maxcount of 0 is too small
gdi-zero-body | 18.40.3 | a maxcount of 0 has an address
gdi-notify | 18.40.3 | notifications are those that the server has, and more
gdl-foreign | 18.41.3 | GETDEVICELIST has another device
gdl-zero | 18.41.3 | GETDEVICELIST of no devices succeeds
gdl-42 | RFC 7862 14.2 | minor version 2 has GETDEVICELIST
lr-refused | 18.44.3 | LAYOUTRETURN fails
lr-present | 18.44.3 | there is a stateid after the last byte was returned
lr-kept | 12.5.3 | the stateid of a returned layout is valid
lr-first | 12.5.2 | the sequence id after a return goes on
lr-part | 18.44.3 | the return of a part returns the whole
lr-part-seq | 12.5.3 | LAYOUTRETURN does not increment the sequence id
lr-not-held | 18.44.3 | a return of bytes that are not held is an error
lr-iomode | 18.44.3 | LAYOUTRETURN ignores the iomode
lr-bulk | 12.5.5.2.1.5 | a bulk return keeps the stateids
lr-empty | 18.44.3 | a bulk return of nothing is an error
lr-all-nofh | 18.44.3 | a return of all layouts needs a filehandle
lr-nofh | 18.44.3 | LAYOUTRETURN without a filehandle ends with another error
lr-seq-zero | 18.44.3 | LAYOUTRETURN accepts the sequence id 0
lr-seq-future | 12.5.5.2.1.4 | LAYOUTRETURN accepts a sequence id of the future
lr-seq-old | 12.5.5.2.1.4 | LAYOUTRETURN accepts the last sequence id only
lr-stateid | 18.44.3 | LAYOUTRETURN accepts any stateid
lr-other-client | 8.2.4 | LAYOUTRETURN accepts the layout stateid of another client
lr-reclaim | 18.44.3 | a reclaimed return succeeds without a grace period
lr-reclaim-bulk | 18.44.3 | a bulk return may be reclaimed
lr-unknown-type | 15.2 | LAYOUTRETURN of an unknown type ends with another error
lr-current | 18.44.3 | the current stateid after the last return is the anonymous one
lr-current-get | 12.5.5.2.1.1 | the current stateid after a partial return is bad
lc-refused | 18.42.3 | LAYOUTCOMMIT fails
lc-ignored | 18.42.3 | LAYOUTCOMMIT returns a new size, and sets none
lc-newsize | 18.42.3 | LAYOUTCOMMIT sets a size, and returns none
lc-truncates | 12.5.4.2 | a last write offset inside the file truncates it
lc-none-size | 12.5.4.2 | LAYOUTCOMMIT without a last write offset truncates the file
lc-none-newsize | 12.5.4.2 | LAYOUTCOMMIT without a last write offset returns a new size
lc-returns | 18.42.3 | LAYOUTCOMMIT returns the layout
lc-reclaim | 18.42.3 | a reclaimed commit succeeds without a grace period
lc-read | 18.42.3 | a layout to read is committed
lc-outside | 18.42.3 | a range without a layout is committed
lc-open | 12.5.4 | LAYOUTCOMMIT accepts any stateid
lc-nofh | 18.42.3 | LAYOUTCOMMIT without a filehandle ends with another error
lc-time | 12.5.4.1 | LAYOUTCOMMIT turns the time back
lc-unseen | 12.5.4 | the new size is not seen
ls-refused | RFC 7862 15.7.3 | LAYOUTSTATS fails
le-refused | RFC 7862 15.6.3 | LAYOUTERROR fails
le-return | RFC 7862 15.6.3 | LAYOUTERROR ends the layout
lrc-lost | RFC 5663 2.3.6 | no layout is recalled
lrc-early | RFC 5663 2.3.6 | a file is truncated before its layout is returned
lrc-second | RFC 5663 2.3.6 | a second truncation does not wait
lrc-silent | 12.5.5 | a recalled layout is revoked within a second
lrc-handle | 20.3.3 | a recall has another filehandle
lrc-type | 20.3.3 | a recall has another type
lrc-range | 20.3.3 | a recall has another range
lrc-iomode | 20.3.3 | a recall has the iomode of no layout
lrc-seq | 12.5.3 | a recall does not increment the sequence id
lrc-other | 12.5.3 | a recall has another stateid
lrc-kept | 12.5.3 | a layout that was recalled and returned is valid
lrc-recallconflict | 18.43.3 | LAYOUTGET during a recall ends with another error
lrc-granted | 18.43.3 | LAYOUTGET during a recall succeeds
lrc-never | 12.5.5 | no layout is granted after a recall
lrc-nomatching | 20.3.3 | a recall is not complete if the client has no layout
lrc-nomatching-kept | 12.5.3 | a layout that the client has not is kept
lrc-busy | 12.5.5.2.1.2 | a client that answers NFS4ERR_DELAY is not asked again
lrc-busy-fenced | 12.5.5.2.1.2 | a client that answers NFS4ERR_DELAY has no layout
lrc-part | 18.44.3 | a recall is complete when a part was returned
"""

SERVERS: list[PnfsNfs] = []
"""The servers of this process: the last one has the mutants, the one before it has none."""


@contextmanager
def serve() -> Iterator[tuple[str, int]]:
    """Start a server; yield host and port."""
    with PnfsNfs() as server:
        SERVERS.append(server)
        yield "127.0.0.1", server.port


@dataclass
class LayoutMutant:
    """A rule that the server breaks."""

    name: str
    section: str
    description: str
    kind: str | None = None

    def rewrites(self) -> Callable[[], Rewrite]:
        """Have the server break the rule; return a rewrite that changes nothing, and knows of it."""
        fault = SERVERS[-1].fault = Fault(self.name)
        return lambda: Knows(fault)


class Knows(Rewrite):
    """Passes everything on; ``acted`` is what the server did."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    @property
    def acted(self) -> bool:  # type: ignore[override]
        return self._fault.acted

    @acted.setter
    def acted(self, value: bool) -> None:
        """The proxy itself changes nothing."""


MUTANTS = {made.name: made for made in (LayoutMutant(*cells(line)) for line in ROWS.strip().splitlines())}
