"""Broken rules of delegations and of the back channel (RFC 8881 10.4, 18.6, 18.16, 18.34, 20.1, 20.2).

NFS-Ganesha's VFS delegates nothing, and knfsd of Linux 6.1 delegates to readers only, so a server of our own
breaks them: ``tests/controllers/delegating_nfs.py``.
"""

# a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from delegating_nfs import DelegatingNfs
from mutant_row import cells
from nfs4_layout_mutants import Knows
from pnfs_state import Fault
from proxy import Rewrite

ROWS = """
deleg-shared | 10.4 | a delegation to write is granted of a file that another client has open
deleg-no-back | 10.4 | a client without a back channel has a delegation
deleg-unwanted | 18.16.3 | a client that wants no delegation has one
none-ext-unasked | 18.16.3 | a client that stated no want has OPEN_DELEGATE_NONE_EXT
deleg-write-refused | 10.4 | the stateid of a delegation to write does not write
deleg-read-refused | 10.4 | the stateid of a delegation to write does not read
deleg-closed | 10.4 | a delegation ends with the open that it came with
deleg-returned | 18.6.3 | the stateid of a delegation that was returned remains valid
deleg-other-file | 8.2.4 | the stateid of a delegation is valid for another file
deleg-other-client | 8.2.4 | the stateid of a delegation is valid for another client
deleg-early | 10.4.4 | a conflicting operation succeeds before the delegation to write is returned
unrecalled-read | 10.4 | OPEN to read does not conflict with a delegation to write
unrecalled-write | 10.4 | OPEN to write does not conflict with a delegation to write
unrecalled-io-read | 10.4.1 | READ without an open does not conflict with a delegation to write
unrecalled-io-write | 10.4.1 | WRITE without an open does not conflict with a delegation to write
unrecalled-setattr | 10.4 | SETATTR does not conflict with a delegation to write
unrecalled-remove | 10.4.4 | REMOVE does not conflict with a delegation to write
unrecalled-rename | 10.4.4 | RENAME does not conflict with a delegation to write
unrecalled-replace | 10.4.4 | RENAME onto a file does not conflict with a delegation of it
unrecalled-link | 10.4.4 | LINK does not conflict with a delegation to write
recall-write-lost | 10.4.4 | no delegation to write is recalled
recall-second-lost | 10.4.4 | the second delegation of a file is not recalled
recall-write-stateid | 20.2.3 | CB_RECALL has another stateid
recall-write-handle | 20.2.3 | CB_RECALL has another filehandle
own-recalled | 10.4.1 | the holder's own operations recall its delegation
recalled-write-refused | 10.4.4 | the stateid of a delegation does not write once it is recalled
recalled-write-lost | 10.4.4 | what is written while a delegation is recalled is lost
cur-recalled | 18.16.3 | CLAIM_DELEGATE_CUR waits for the return of the delegation that it names
cur-any | 18.16.3 | CLAIM_DELEGATE_CUR accepts any stateid
getattr-unasked | 10.4.3 | the holder of a delegation to write is not asked for the size
getattr-ignored | 10.4.3 | the size that the holder states is ignored
getattr-change | 10.4.3 | the change attribute remains although the holder has modified the file
getattr-once | 10.4.3 | the holder is asked for the size once only
getattr-unmodified | 10.4.3 | the change attribute changes although the holder has modified nothing
getattr-handle | 20.1.3 | CB_GETATTR has another filehandle
bind-back-lost | 18.34.3 | callbacks are not sent on the connection that was bound to the back channel
"""

SERVERS: list[DelegatingNfs] = []
"""The servers of this process: the last one has the mutants, the one before it has none."""


@contextmanager
def serve() -> Iterator[tuple[str, int]]:
    """Start a server; yield host and port."""
    with DelegatingNfs() as server:
        SERVERS.append(server)
        yield "127.0.0.1", server.port


@dataclass
class DelegationMutant:
    """A rule that the server breaks."""

    name: str
    section: str
    description: str
    kind: str | None = None

    def rewrites(self) -> Callable[[], Rewrite]:
        """Have the server break the rule; return a rewrite that changes nothing, and knows of it."""
        fault = SERVERS[-1].fault = Fault(self.name)
        return lambda: Knows(fault)


MUTANTS = {made.name: made for made in (DelegationMutant(*cells(line)) for line in ROWS.strip().splitlines())}
