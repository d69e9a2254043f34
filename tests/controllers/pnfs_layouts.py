"""Layout operations of the small pNFS server (RFC 8881 18.40 to 18.44 and 20.3, RFC 5663).

A layout is kept in blocks of 4096 bytes, up to ``LAST``. The rules and the faults stand side by side: where a
rule applies, the server asks whether it is the one to break.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pnfs_state import BLOCK, Call, Client, Fault, Held, Node, Refused

from storagetest.wire.nfs4.attributes import numbers_of
from storagetest.wire.nfs4.block_layout import (
    pnfs_block_deviceaddr4,
    pnfs_block_extent4,
    pnfs_block_extent_state4,
    pnfs_block_layout4,
    pnfs_block_sig_component4,
    pnfs_block_simple_volume_info4,
    pnfs_block_slice_volume_info4,
    pnfs_block_volume4,
    pnfs_block_volume_type4,
)
from storagetest.wire.nfs4.types import (
    CB_LAYOUTRECALL4args,
    GETDEVICEINFO4resok,
    GETDEVICELIST4resok,
    LAYOUTCOMMIT4resok,
    LAYOUTGET4resok,
    device_addr4,
    layout4,
    layout_content4,
    layoutiomode4,
    layoutrecall4,
    layoutrecall_file4,
    layoutrecall_type4,
    layoutreturn_type4,
    layouttype4,
    nfs_cb_argop4,
    nfs_cb_opnum4,
    nfs_ftype4,
    nfsstat4,
    stateid4,
)

ALL = 0xFFFF_FFFF_FFFF_FFFF
LEASE = 5
"""Seconds of a lease, after which a recalled layout is revoked."""
LAST = 1 << 12
"""Blocks of a file that a layout may have."""
CURRENT = stateid4(1, bytes(12))
DEVICE = b"pnfs-device-0001"
KIND = layouttype4.LAYOUT4_BLOCK_VOLUME
READ, RW, ANY = 1, 2, 3
STATE = pnfs_block_extent_state4
E_BAD = nfsstat4.NFS4ERR_BAD_STATEID
OTHER_ERROR = nfsstat4.NFS4ERR_SERVERFAULT
"""The status of a fault that ends an operation with another error."""

Answered = Callable[[nfsstat4], None]
"""Called with the status of a callback's operation."""


class Layouts:
    """What a server keeps of opens and layouts; its subclass has the files and the connections."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.call: Call | None = None
        self.opens: dict[bytes, tuple[Client, Node, bool]] = {}
        self.held: dict[bytes, Held] = {}
        self.recalled: set[Node] = set()
        self._nodes: dict[bytes, Node] = {}
        self._names = itertools.count(1)

    def breaks(self, *names: str) -> bool:
        """Return whether one of these rules is broken here."""
        if self.fault.name and self.fault.name in names and self.call is not None and not self.call.arranges:
            self.fault.acted = True
            return True
        return False

    def refuse(self, status: nfsstat4, *names: str) -> None:
        """End the operation with ``status``, or with another error if the rule ``names[0]`` is broken.

        Another name is that of a fault by which the operation is not refused.
        """
        if self.breaks(*names[1:]):
            return
        raise Refused(OTHER_ERROR if names and self.breaks(names[0]) else status)

    def make_node(self, kind: nfs_ftype4) -> Node:
        """Return a new file or directory."""
        made = Node(next(self._names).to_bytes(8, "big"), kind)
        self._nodes[made.handle] = made
        return made

    def node_of(self, handle: bytes) -> Node:
        """Return the file of a handle."""
        if handle not in self._nodes:
            raise Refused(nfsstat4.NFS4ERR_STALE)
        return self._nodes[handle]

    def call_back(
        self, client: Client, operation: nfs_cb_argop4, answered: Callable[[nfsstat4], None]
    ) -> None:
        """Send a callback."""
        raise NotImplementedError

    def forget(self, client: Client) -> None:
        """Drop all state of a client."""
        self.opens = {name: one for name, one in self.opens.items() if one[0] is not client}
        self.held = {name: one for name, one in self.held.items() if one.client is not client}

    def closed(self, client: Client, node: Node) -> None:
        """A file was closed: its layouts stay."""
        if self.breaks("lg-close"):
            self._drop(lambda one: one.client is client and one.node is node)

    def _drop(self, matches: Callable[[Held], bool]) -> None:
        self.held = {name: one for name, one in self.held.items() if not matches(one)}

    # Stateids

    def _layout(self, call: Call, given: stateid4, *, rule: str) -> Held:
        """Return the layout of a stateid; the faults ``rule-…`` break its rules."""
        found = self.held.get(given.other)
        if found is None or found.node is not call.node:
            if self.held and self.breaks(f"{rule}-stateid"):
                return next(one for one in self.held.values() if one.client is call.client)
            raise Refused(E_BAD)
        if found.client is not call.client and not self.breaks(f"{rule}-other-client"):
            raise Refused(E_BAD)
        if given.seqid == 0 and not self.breaks(f"{rule}-seq-zero"):
            raise Refused(E_BAD)
        if given.seqid > found.seqid and not self.breaks(f"{rule}-seq-future"):
            raise Refused(nfsstat4.NFS4ERR_OLD_STATEID)
        if 0 < given.seqid < found.seqid and self.breaks(f"{rule}-seq-old"):
            raise Refused(nfsstat4.NFS4ERR_OLD_STATEID)
        return found

    def _for_get(self, call: Call, given: stateid4, iomode: int) -> Held:
        opened = self.opens.get(given.other)
        if given.other in self.held:
            return self._layout(call, given, rule="lg")
        valid = opened is not None and opened[0] is call.client and opened[1] is call.node
        if not valid and not self.breaks("lg-stateid"):
            raise Refused(E_BAD)
        if opened is not None and iomode == RW and not opened[2] and not self.breaks("lg-openmode"):
            raise Refused(nfsstat4.NFS4ERR_OPENMODE)
        for one in self.held.values():
            if one.client is call.client and one.node is call.node:
                return one
        name = b"lays" + next(self._names).to_bytes(8, "big")
        return Held(call.client, call.node, name, KIND)

    # LAYOUTGET (18.43)

    def layoutget(self, call: Call, asked: Any) -> Any:
        """LAYOUTGET."""
        self._check_get(call, asked)
        iomode = asked.loga_iomode
        found = self._for_get(call, self._given(call, asked.loga_stateid, "lg-current"), iomode)
        if found.recall is not None and not self.breaks("lrc-granted"):
            self.refuse(nfsstat4.NFS4ERR_RECALLCONFLICT, "lrc-recallconflict")
        length, minimum = min(asked.loga_length, ALL - 1), asked.loga_minlength
        first, end = self._range(call.node, asked.loga_offset, length, minimum, iomode)
        layouts = self._layouts(call.node, first, end, iomode)
        if sum(len(one.lo_content.loc_body) + 28 for one in layouts) > asked.loga_maxcount:
            self.refuse(nfsstat4.NFS4ERR_TOOSMALL, "lg-toosmall")
        found.blocks[iomode if iomode in found.blocks else READ] |= set(range(first, end))
        self._count(found)
        self.held[found.other] = found
        call.stateid = found.stateid
        other = found.seqid > 1 and self.breaks("lg-other")
        return LAYOUTGET4resok(False, stateid4(found.seqid, bytes(12)) if other else found.stateid, layouts)

    def _check_get(self, call: Call, asked: Any) -> None:
        if call.current is None:
            self.refuse(nfsstat4.NFS4ERR_NOFILEHANDLE, "lg-nofh")
        if call.node.kind != nfs_ftype4.NF4REG:
            self.refuse(nfsstat4.NFS4ERR_WRONG_TYPE, "lg-dir")
        if asked.loga_layout_type != KIND:
            self.refuse(nfsstat4.NFS4ERR_UNKNOWN_LAYOUTTYPE, "lg-unknown-type")
        if asked.loga_iomode not in (READ, RW):
            self.refuse(nfsstat4.NFS4ERR_BADIOMODE, "lg-badiomode")
        lengths = (asked.loga_length, asked.loga_minlength)
        past = [one for one in lengths if one != ALL and asked.loga_offset + one > ALL]
        if lengths[0] < lengths[1] or past:
            self.refuse(nfsstat4.NFS4ERR_INVAL, "lg-inval", "lg-inval-granted")
        if self.breaks("layout-refused"):
            raise Refused(nfsstat4.NFS4ERR_LAYOUTUNAVAILABLE)
        if call.node in self.recalled and self.breaks("lrc-never"):
            raise Refused(nfsstat4.NFS4ERR_RECALLCONFLICT)

    def _given(self, call: Call, stateid: stateid4, fault: str) -> stateid4:
        """Return the stateid of a request, which may be the current one."""
        if stateid != CURRENT:
            return stateid
        if call.stateid is None or self.breaks(fault):
            raise Refused(E_BAD)
        return call.stateid

    def _count(self, found: Held) -> None:
        step = 1
        if found.seqid == 0 and self.breaks("lg-seq-first"):
            step = 5
        elif found.seqid and self.breaks("lg-seq-next"):
            step = 2
        found.seqid += step

    def _range(self, node: Node, offset: int, length: int, minimum: int, iomode: int) -> tuple[int, int]:
        """Return the first block of a layout and the one after its last."""
        short = nfsstat4.NFS4ERR_BADLAYOUT if minimum else nfsstat4.NFS4ERR_LAYOUTTRYLATER
        size, writes = len(node.data), iomode == RW
        if writes and minimum == ALL:  # no layout has that length
            raise Refused(OTHER_ERROR if self.breaks("lg-status") else short)
        end = max(size, offset + 1) if minimum == ALL else offset + max(min(length, LAST * BLOCK), minimum, 1)
        first, last = offset // BLOCK, min(-(-end // BLOCK), LAST)
        if last <= first or (minimum and minimum != ALL and last * BLOCK < offset + minimum):
            self.refuse(short, "lg-status")
        if self.breaks("lg-late"):
            first += 1
            last += 1
        if self.breaks("lg-short") and minimum != 1:
            last = first if minimum == 0 else max(first, (offset + min(minimum, size)) // BLOCK - 1)
        return first, last

    def _layouts(self, node: Node, first: int, end: int, iomode: int) -> tuple[layout4, ...]:
        given = {READ: RW if self.breaks("lg-any") else READ, RW: READ if self.breaks("lg-read-only") else RW}
        mode: Any = given.get(iomode, READ)
        if self.fault.name == "lg-any" and iomode == READ:
            mode = ANY
        kind = layouttype4.LAYOUT4_OSD2_OBJECTS if self.breaks("lg-type") else KIND
        pieces = [(first, end)]
        if end - first > 2:  # two elements, which the standard allows
            middle = first + (end - first) // 2
            pieces = [(first, middle), (middle, end)]
        found = []
        for at, (start, stop) in enumerate(pieces):
            body = pnfs_block_layout4(self._extents(node, start, stop, iomode)).encode().data
            begin = start + 1 if at and self.breaks("lg-gap") else start
            one = layoutiomode4(3 - mode if at and mode != ANY and self.breaks("lg-iomodes") else mode)
            found.append(layout4(begin * BLOCK, (stop - start) * BLOCK, one, layout_content4(kind, body)))
        return tuple(found)

    def _extents(self, node: Node, first: int, end: int, iomode: int) -> tuple[pnfs_block_extent4, ...]:
        """Return the extents of blocks: what has data, and holes."""
        found = []
        runs = itertools.groupby(range(first, end), lambda one: one in node.written)
        for has_data, run in runs:
            blocks = list(run)
            if iomode == RW:
                state = STATE.PNFS_BLOCK_READ_WRITE_DATA if has_data else STATE.PNFS_BLOCK_INVALID_DATA
                if self.breaks("bl-rw-states"):
                    state = STATE.PNFS_BLOCK_NONE_DATA
            else:
                state = STATE.PNFS_BLOCK_READ_DATA if has_data else STATE.PNFS_BLOCK_NONE_DATA
                if has_data and self.breaks("bl-read-states"):
                    state = STATE.PNFS_BLOCK_READ_WRITE_DATA
                if not has_data and self.breaks("bl-hole"):
                    state = STATE.PNFS_BLOCK_READ_DATA
            start, count = blocks[0], len(blocks)
            if self.breaks("bl-first"):
                start += 1
            if count > 1 and self.breaks("bl-gap"):
                half = count // 2
                found.append(self._extent(start, half, state))
                start, count = start + half + 1, count - half - 1
            found.append(self._extent(start, count, state))
        return tuple(found)

    @staticmethod
    def _extent(first: int, count: int, state: pnfs_block_extent_state4) -> pnfs_block_extent4:
        return pnfs_block_extent4(DEVICE, first * BLOCK, count * BLOCK, (1 << 20) + first * BLOCK, state)

    # LAYOUTRETURN (18.44)

    def layoutreturn(self, call: Call, asked: Any) -> Any:
        scope, iomode = asked.lora_layoutreturn.lr_returntype, asked.lora_iomode
        bulk = scope != layoutreturn_type4.LAYOUTRETURN4_FILE
        if asked.lora_layout_type != KIND:
            self.refuse(nfsstat4.NFS4ERR_UNKNOWN_LAYOUTTYPE, "lr-unknown-type")
        if bulk and asked.lora_reclaim:
            self.refuse(nfsstat4.NFS4ERR_INVAL, "", "lr-reclaim-bulk")
        elif asked.lora_reclaim:
            self.refuse(nfsstat4.NFS4ERR_NO_GRACE, "", "lr-reclaim")
        if (
            scope == layoutreturn_type4.LAYOUTRETURN4_ALL
            and call.current is None
            and self.breaks("lr-all-nofh")
        ):
            raise Refused(nfsstat4.NFS4ERR_NOFILEHANDLE)
        if scope != layoutreturn_type4.LAYOUTRETURN4_ALL and call.current is None:
            raise Refused(OTHER_ERROR if self.breaks("lr-nofh") else nfsstat4.NFS4ERR_NOFILEHANDLE)
        if bulk:
            mine = [one for one in self.held.values() if one.client is call.client]
            if not mine and self.breaks("lr-empty"):
                raise Refused(nfsstat4.NFS4ERR_NOMATCHING_LAYOUT)
            if not self.breaks("lr-bulk"):
                self._drop(lambda one: one.client is call.client)
            return None
        return self._return_file(call, asked.lora_layoutreturn.value, iomode)

    def _return_file(self, call: Call, asked: Any, iomode: int) -> Any:
        given = self._given(call, asked.lrf_stateid, "")
        if self.breaks("lr-refused"):
            raise Refused(OTHER_ERROR)
        found = self._layout(call, given, rule="lr")
        first = asked.lrf_offset // BLOCK
        end = LAST if asked.lrf_length == ALL else -(-(asked.lrf_offset + asked.lrf_length) // BLOCK)
        both = iomode == ANY or self.breaks("lr-iomode")
        self._give_up(found, first, end, (READ, RW) if both else (iomode,))
        if found.recall is not None and found.is_empty:
            self.recalled.add(found.node)
        found.seqid += 0 if self.breaks("lr-part-seq") else 1
        if found.recall is not None:
            whole = first <= found.recall[0] and end >= found.recall[1]
            if not whole and self.breaks("lrc-part"):
                found.blocks, whole = {READ: set(), RW: set()}, True
            found.recall = None if whole else found.recall
        if not found.is_empty or found.recall is not None:
            lost = not found.is_empty and self.breaks("lr-current-get")
            call.stateid = stateid4(9, b"storagetest!") if lost else found.stateid
            return found.stateid
        if not self.breaks("lr-kept", "lrc-kept", "lr-first"):
            del self.held[found.other]
        call.stateid = stateid4(0, bytes(12)) if self.breaks("lr-current") else None
        return found.stateid if self.breaks("lr-present") else None

    def _give_up(self, found: Held, first: int, end: int, modes: tuple[int, ...]) -> None:
        """Take the blocks of a range from a layout."""
        gone = set(range(first, end))
        if not any(found.blocks[mode] & gone for mode in modes) and self.breaks("lr-not-held"):
            raise Refused(nfsstat4.NFS4ERR_BADLAYOUT)
        for mode in modes:
            found.blocks[mode] = set() if self.breaks("lr-part") else found.blocks[mode] - gone

    # LAYOUTCOMMIT (18.42)

    def layoutcommit(self, call: Call, asked: Any) -> Any:
        """LAYOUTCOMMIT."""
        if call.current is None:
            self.refuse(nfsstat4.NFS4ERR_NOFILEHANDLE, "lc-nofh")
        if asked.loca_reclaim:
            self.refuse(nfsstat4.NFS4ERR_NO_GRACE, "", "lc-reclaim")
        found = self.held.get(asked.loca_stateid.other)
        if found is not None:
            self._check_commit(found, asked)
        elif not self.breaks("lc-open"):
            raise Refused(nfsstat4.NFS4ERR_BADLAYOUT)
        if self.breaks("lc-refused"):
            raise Refused(OTHER_ERROR)
        size = self._commit_size(call.node, asked.loca_last_write_offset)
        if asked.loca_time_modify is not None and self.breaks("lc-time"):
            call.node.modified = asked.loca_time_modify.seconds * 1_000_000_000
        if size is not None and self.breaks("lc-unseen"):
            call.node.data = call.node.data[:10]
        if found is not None and self.breaks("lc-returns"):
            del self.held[found.other]
        return LAYOUTCOMMIT4resok(size)

    def _commit_size(self, node: Node, last: int | None) -> int | None:
        """Set the size of a file by the last write offset; return the new size, None if it stays."""
        if last is None:
            if self.breaks("lc-none-size"):
                node.resize(0)
            return 7 if self.breaks("lc-none-newsize") else None
        if last + 1 > len(node.data):
            if not self.breaks("lc-ignored"):
                node.resize(last + 1)
            return None if self.breaks("lc-newsize") else last + 1
        if self.breaks("lc-truncates"):
            node.resize(last + 1)
        return None

    def _check_commit(self, found: Held, asked: Any) -> None:
        if not found.blocks[RW] and not self.breaks("lc-read"):
            raise Refused(nfsstat4.NFS4ERR_BADIOMODE)
        first, end = (
            asked.loca_offset // BLOCK,
            asked.loca_offset + min(asked.loca_length, ALL - asked.loca_offset),
        )
        overlaps = any(first <= one and one * BLOCK < end for one in found.blocks[RW])
        if found.blocks[RW] and not overlaps and not self.breaks("lc-outside"):
            raise Refused(nfsstat4.NFS4ERR_BADLAYOUT)

    # Devices (18.40, 18.41)

    def getdeviceinfo(self, call: Call, asked: Any) -> Any:
        if asked.gdia_layout_type != KIND:
            self.refuse(nfsstat4.NFS4ERR_UNKNOWN_LAYOUTTYPE, "gdi-unknown-type")
        if asked.gdia_device_id != DEVICE and not self.breaks("gdi-noent"):
            raise Refused(nfsstat4.NFS4ERR_NOENT)
        kinds = pnfs_block_volume_type4
        simple = pnfs_block_simple_volume_info4((pnfs_block_sig_component4(0, b"signature"),))
        part = 1 if self.breaks("gdi-order") else 0
        volumes = (
            pnfs_block_volume4(kinds.PNFS_BLOCK_VOLUME_SIMPLE, simple),
            pnfs_block_volume4(
                kinds.PNFS_BLOCK_VOLUME_SLICE, pnfs_block_slice_volume_info4(0, 1 << 30, part)
            ),
        )
        body = pnfs_block_deviceaddr4(() if self.breaks("gdi-empty") else volumes).encode().data
        needed = len(body) + 16
        if asked.gdia_maxcount == 0:
            if self.breaks("gdi-zero"):
                raise Refused(nfsstat4.NFS4ERR_TOOSMALL, needed)
            body = body if self.breaks("gdi-zero-body") else b""
        elif asked.gdia_maxcount < needed and not self.breaks("gdi-toosmall"):
            minimum = (
                4 if self.breaks("gdi-mincount") else 16 if self.breaks("gdi-mincount-short") else needed
            )
            raise Refused(nfsstat4.NFS4ERR_TOOSMALL, minimum)
        wanted = set(numbers_of(asked.gdia_notify_types)) & {1, 2}
        bits = sum(1 << one for one in wanted)
        if self.breaks("gdi-notify"):
            bits = 0b1110
        kind = layouttype4.LAYOUT4_OSD2_OBJECTS if self.breaks("gdi-type") else KIND
        return GETDEVICEINFO4resok(device_addr4(kind, body), (bits,) if bits else ())

    def getdevicelist(self, call: Call, asked: Any) -> Any:
        if call.minor == 2 and not self.breaks("gdl-42"):
            raise Refused(nfsstat4.NFS4ERR_NOTSUPP)
        if asked.gdla_maxdevices == 0 and not self.breaks("gdl-zero"):
            raise Refused(nfsstat4.NFS4ERR_INVAL)
        listed = bytes(16) if self.breaks("gdl-foreign") else DEVICE
        return GETDEVICELIST4resok(0, bytes(8), (listed,), True)

    # LAYOUTSTATS and LAYOUTERROR (RFC 7862 15.6, 15.7)

    def layoutstats(self, call: Call, asked: Any) -> None:
        self._layout(call, asked.lsa_stateid, rule="stats")
        if self.breaks("ls-refused"):
            raise Refused(nfsstat4.NFS4ERR_INVAL)

    def layouterror(self, call: Call, asked: Any) -> None:
        found = self._layout(call, asked.lea_stateid, rule="error")
        if asked.lea_errors and self.breaks("le-refused"):
            raise Refused(nfsstat4.NFS4ERR_INVAL)
        if self.breaks("le-return"):
            del self.held[found.other]

    # CB_LAYOUTRECALL (20.3)

    def recall(self, call: Call, node: Node, size: int) -> None:
        """Recall layouts of other clients past ``size``. Raises Refused (DELAY) until they are returned."""
        first = size // BLOCK
        others = [
            one
            for one in self.held.values()
            if one.node is node
            and one.client is not call.client
            and any(max(blocks, default=-1) >= first for blocks in one.blocks.values())
        ]
        known = [one for one in others if one.recall is not None]
        for one in others:
            if one.recall is None:
                self._recall(call, one, first)
        if known and self.breaks("lrc-second"):
            return
        revoked = [one for one in known if time.monotonic() > one.recalled + LEASE]
        for one in revoked:
            del self.held[one.other]
        pending = [one for one in others if one.other in self.held]
        if pending and not self.breaks("lrc-early"):
            raise Refused(nfsstat4.NFS4ERR_DELAY)

    def _recall(self, call: Call, one: Held, first: int) -> None:
        one.recall = (first, max(max(blocks, default=0) for blocks in one.blocks.values()) + 1)
        one.seqid += 1
        one.recalled = time.monotonic()
        if self.breaks("lrc-silent"):
            threading.Timer(0.5, one.node.resize, (0,)).start()
        self._send_recall(call, one)

    def _send_recall(self, call: Call, one: Held) -> None:
        assert one.recall is not None
        if self.breaks("lrc-lost"):
            return
        stateid = one.stateid
        if self.breaks("lrc-seq"):
            stateid = replace(stateid, seqid=stateid.seqid - 1)
        if self.breaks("lrc-other"):
            stateid = replace(stateid, other=bytes(12))
        handle = self.root_handle if self.breaks("lrc-handle") else one.node.handle
        offset, length = one.recall[0] * BLOCK, ALL - one.recall[0] * BLOCK
        if self.breaks("lrc-range"):
            offset, length = 0, 16
        kind: Any = layouttype4.LAYOUT4_OSD2_OBJECTS if self.breaks("lrc-type") else one.kind
        iomode = (
            layoutiomode4.LAYOUTIOMODE4_READ if self.breaks("lrc-iomode") else layoutiomode4.LAYOUTIOMODE4_ANY
        )
        what = layoutrecall_file4(handle, offset, length, stateid)
        argument = CB_LAYOUTRECALL4args(
            kind, iomode, False, layoutrecall4(layoutrecall_type4.LAYOUTRECALL4_FILE, what)
        )
        operation = nfs_cb_argop4(nfs_cb_opnum4.OP_CB_LAYOUTRECALL, argument)
        call.later.append(
            lambda: self.call_back(one.client, operation, lambda status: self._answered(one, status))
        )

    def _answered(self, one: Held, status: nfsstat4) -> None:
        """The client has answered a recall: it returns the layout, has none, or wants to be asked again."""
        if status == nfsstat4.NFS4ERR_NOMATCHING_LAYOUT and not self.breaks("lrc-nomatching"):
            one.recall = None
            if not self.breaks("lrc-nomatching-kept"):
                self.held.pop(one.other, None)
            else:
                one.blocks = {READ: set(), RW: set()}
        if status == nfsstat4.NFS4ERR_DELAY:
            if self.breaks("lrc-busy-fenced"):
                self.held.pop(one.other, None)
            elif not self.breaks("lrc-busy"):
                later = Call(None, 1, arranges=False)
                self._send_recall(later, one)
                for send in later.later:
                    send()

    @property
    def root_handle(self) -> bytes:
        """The handle of the first node."""
        return next(iter(self._nodes))


LAYOUT_OPERATIONS: dict[str, Callable[[Any, Call, Any], Any]] = {
    "LAYOUTGET": Layouts.layoutget,
    "LAYOUTRETURN": Layouts.layoutreturn,
    "LAYOUTCOMMIT": Layouts.layoutcommit,
    "GETDEVICEINFO": Layouts.getdeviceinfo,
    "GETDEVICELIST": Layouts.getdevicelist,
    "LAYOUTSTATS": Layouts.layoutstats,
    "LAYOUTERROR": Layouts.layouterror,
}
