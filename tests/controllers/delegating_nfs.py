"""A small NFSv4.1 and 4.2 server that delegates at every OPEN, and keeps the rules of that, or breaks one.

It is the server of layouts (:mod:`pnfs_nfs`) with delegations: an OPEN of a client with a back channel that
nothing contradicts has one, for writing if it opens for writing. :class:`Fault` names the rule that it
breaks: each rule of ``tests/mutants/nfs4_delegation_mutants.py`` is asked for where it applies. A callback is
sent on the connection that CREATE_SESSION or BIND_CONN_TO_SESSION has made the back channel, and no other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pnfs_layouts import LEASE
from pnfs_nfs import CB_COMPOUND, CHANGE, EXPORT, Link, PnfsNfs
from pnfs_state import Call, Client, Fault, Node, Refused

from storagetest.wire.nfs4.attributes import bitmap, decode_attributes, encode_attributes, numbers_of
from storagetest.wire.nfs4.types import (
    ACE4_ACCESS_ALLOWED_ACE_TYPE,
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
    FATTR4_CHANGE,
    FATTR4_SIZE,
    FATTR4_SUPPORTED_ATTRS,
    FATTR4_TIME_MODIFY,
    NFS_CB,
    OPEN4_SHARE_ACCESS_WANT_DELEG_MASK,
    OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
    OPEN4_SHARE_ACCESS_WRITE,
    SEQ4_STATUS_RECALLABLE_STATE_REVOKED,
    BIND_CONN_TO_SESSION4resok,
    CB_COMPOUND4args,
    CB_COMPOUND4res,
    CB_GETATTR4args,
    CB_RECALL4args,
    CB_SEQUENCE4args,
    LINK4resok,
    RENAME4resok,
    channel_dir_from_client4,
    channel_dir_from_server4,
    limit_by4,
    nfs_cb_argop4,
    nfs_cb_opnum4,
    nfs_ftype4,
    nfs_space_limit4,
    nfsace4,
    nfsstat4,
    open_claim4,
    open_claim_type4,
    open_delegation4,
    open_delegation_type4,
    open_none_delegation4,
    open_read_delegation4,
    open_write_delegation4,
    stateid4,
    why_no_delegation4,
)
from storagetest.wire.rpc.message import encode_call

__all__ = ["EXPORT", "DelegatingNfs"]

BAD = nfsstat4.NFS4ERR_BAD_STATEID
ANSWERED = (FATTR4_SIZE, FATTR4_CHANGE, FATTR4_TIME_MODIFY)
"""Attributes of which the holder of a write delegation is asked (10.4.3); the time follows the change."""
ALL_ONES = b"\xff" * 12
SPECIAL = (bytes(12), ALL_ONES)
LIMIT = 1 << 30
"""Bytes up to which the holder of a write delegation may extend the file."""


@dataclass(eq=False)
class Delegated:
    """A delegation: ``change`` is the attribute when it was granted; ``answer`` is that of a CB_GETATTR."""

    client: Client
    node: Node
    other: bytes
    writes: bool
    change: int
    recalled: float | None = None
    asked: bool = False
    answer: dict[int, Any] | None = None

    @property
    def stateid(self) -> stateid4:
        """The stateid."""
        return stateid4(1, self.other)


class DelegatingNfs(PnfsNfs):
    """The server, on loopback. A context manager."""

    def __init__(self, fault: Fault | None = None) -> None:
        super().__init__(fault)
        self.delegations: dict[bytes, Delegated] = {}
        self.revoked: dict[bytes, Client] = {}
        self.backs: dict[bytes, Link] = {}
        self.recalled_nodes: set[Node] = set()
        self.returned: dict[bytes, Node] = {}
        """Delegations that were returned, and whose stateids are accepted on: a fault."""

    def operation(self, name: str) -> Callable[[Any, Call, Any], Any] | None:
        return _OPERATIONS.get(name) or super().operation(name)

    # Sessions

    def _create_session(self, call: Call, asked: Any) -> Any:
        made = super()._create_session(call, asked)
        if asked.csa_flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN:
            self.backs[made.csr_sessionid] = call.link
        return made

    def _bind(self, call: Call, asked: Any) -> Any:
        if asked.bctsa_sessid not in self._sessions:
            raise Refused(nfsstat4.NFS4ERR_BADSESSION)
        fore_only = asked.bctsa_dir == channel_dir_from_client4.CDFC4_FORE
        if not fore_only and not self.breaks("bind-back-lost"):
            self.backs[asked.bctsa_sessid] = call.link
        given = channel_dir_from_server4(min(int(asked.bctsa_dir), 3))  # where both are possible, both
        return BIND_CONN_TO_SESSION4resok(asked.bctsa_sessid, given, False)

    def _sequence(self, call: Call, asked: Any) -> Any:
        found = super()._sequence(call, asked)
        self._revoke()
        if call.client in self.revoked.values() and not self.breaks("revoked-unsaid"):
            return replace(found, sr_status_flags=SEQ4_STATUS_RECALLABLE_STATE_REVOKED)
        return found

    def _destroy_session(self, call: Call, asked: Any) -> None:
        self.backs.pop(asked.dsa_sessionid, None)
        super()._destroy_session(call, asked)

    def forget(self, client: Client) -> None:
        super().forget(client)
        self.delegations = {name: one for name, one in self.delegations.items() if one.client is not client}
        self.revoked = {name: one for name, one in self.revoked.items() if one is not client}

    def _call_client(
        self, session: bytes, operation: nfs_cb_argop4, answered: Callable[[CB_COMPOUND4res], None]
    ) -> None:
        """Send a callback on the back channel of a session; ``answered`` is called with the reply."""
        found = self._sessions.get(session)
        link = self.backs.get(session)
        if found is None or link is None:
            return
        found.cb_sequence += 1
        sequence = CB_SEQUENCE4args(found.name, found.cb_sequence, 0, 0, False, ())
        first = nfs_cb_argop4(nfs_cb_opnum4.OP_CB_SEQUENCE, sequence)
        xid = 0x6000_0000 + next(self._numbers)
        link.awaited[xid] = answered
        program = replace(NFS_CB, number=found.cb_program)
        argument = CB_COMPOUND4args(b"", found.minor, 0, (first, operation))
        link.send(encode_call(program, CB_COMPOUND, argument, xid=xid).data)

    def _back_of(self, client: Client) -> bytes | None:
        """Return a session of a client that has a back channel."""
        return next((name for name in self.backs if self._sessions[name].client is client), None)

    # Conflicts

    def _settle(self, call: Call, node: Node, *, writes: bool, rule: str) -> None:
        """Recall what other clients hold on ``node``, and refuse the operation until that is returned."""
        others = [
            one
            for one in self.delegations.values()
            if one.node is node and (writes or one.writes) and (one.client is not call.client)
        ]
        if others and self.breaks(f"unrecalled-{rule}"):
            return
        if self.breaks("own-recalled"):
            others = [one for one in self.delegations.values() if one.node is node]
        for one in others:
            self._recall_delegation(call, one)
        self._revoke()
        pending = [one for one in others if one.other in self.delegations]
        if pending and not self.breaks("deleg-early"):
            raise Refused(nfsstat4.NFS4ERR_DELAY)

    def _recall_delegation(self, call: Call, one: Delegated) -> None:
        if one.recalled is not None:
            return
        one.recalled = time.monotonic()
        nodes = self.recalled_nodes
        if one.node in nodes and self.breaks("recall-second-lost"):
            return
        nodes.add(one.node)
        if one.writes and self.breaks("recall-write-lost"):
            return
        session = self._back_of(one.client)
        if session is None:
            return
        other = bytes(12) if self.breaks("recall-write-stateid") else one.other
        handle = self.root.handle if self.breaks("recall-write-handle") else one.node.handle
        recall = CB_RECALL4args(stateid4(1, other), False, handle)
        operation = nfs_cb_argop4(nfs_cb_opnum4.OP_CB_RECALL, recall)
        call.later.append(lambda: self._call_client(session, operation, lambda result: None))

    def _revoke(self) -> None:
        """Revoke what was recalled longer than a lease ago."""
        for name, one in list(self.delegations.items()):
            if one.recalled is not None and time.monotonic() > one.recalled + LEASE:
                del self.delegations[name]
                self.revoked[name] = one.client

    # OPEN

    def _open(self, call: Call, asked: Any) -> Any:
        claim = asked.claim.claim
        if claim in (open_claim_type4.CLAIM_DELEGATE_CUR, open_claim_type4.CLAIM_DELEG_CUR_FH):
            return self._open_delegated(call, asked)
        directory = call.node
        assert claim == open_claim_type4.CLAIM_NULL
        node = directory.entries.get(asked.claim.value)
        writes = bool(asked.share_access & OPEN4_SHARE_ACCESS_WRITE)
        if node is not None:
            self._settle(call, node, writes=writes, rule="write" if writes else "read")
        found = super()._open(call, asked)
        return replace(found, delegation=self._grant(call, asked.share_access))

    def _grant(self, call: Call, access: int) -> open_delegation4:
        node, writes = call.node, bool(access & OPEN4_SHARE_ACCESS_WRITE)
        want = access & OPEN4_SHARE_ACCESS_WANT_DELEG_MASK
        others = [
            opened
            for client, opened, modifies in self.opens.values()
            if opened is node and client is not call.client and (writes or modifies)
        ]
        others += [
            one
            for one in self.delegations.values()
            if one.node is node and one.client is not call.client and writes
        ]
        held = any(one.node is node and one.client is call.client for one in self.delegations.values())
        why = None
        if want == OPEN4_SHARE_ACCESS_WANT_NO_DELEG and not self.breaks("deleg-unwanted"):
            why = open_none_delegation4(why_no_delegation4.WND4_NOT_WANTED)
        elif others and not self.breaks("deleg-shared"):
            why = open_none_delegation4(why_no_delegation4.WND4_CONTENTION, False)
        elif held or (self._back_of(call.client) is None and not self.breaks("deleg-no-back")):
            why = open_none_delegation4(why_no_delegation4.WND4_RESOURCE, False)
        if why is not None:
            if want or self.breaks("none-ext-unasked"):
                return open_delegation4(open_delegation_type4.OPEN_DELEGATE_NONE_EXT, why)
            return open_delegation4(open_delegation_type4.OPEN_DELEGATE_NONE)
        other = b"dele" + next(self._numbers).to_bytes(8, "big")
        self.delegations[other] = Delegated(call.client, node, other, writes, node.modified)
        who = nfsace4(ACE4_ACCESS_ALLOWED_ACE_TYPE, 0, 0, b"EVERYONE@")
        if writes:
            limit = nfs_space_limit4(limit_by4.NFS_LIMIT_SIZE, LIMIT)
            granted = open_write_delegation4(stateid4(1, other), False, limit, who)
            return open_delegation4(open_delegation_type4.OPEN_DELEGATE_WRITE, granted)
        read = open_read_delegation4(stateid4(1, other), False, who)
        return open_delegation4(open_delegation_type4.OPEN_DELEGATE_READ, read)

    def _open_delegated(self, call: Call, asked: Any) -> Any:
        by_name = asked.claim.claim == open_claim_type4.CLAIM_DELEGATE_CUR
        node = self._named(call.node, asked.claim.value.file) if by_name else call.node
        stateid = asked.claim.value.delegate_stateid if by_name else asked.claim.value
        one = self.delegations.get(stateid.other)
        valid = one is not None and one.node is node and one.client is call.client
        if not valid and not self.breaks("cur-any"):
            raise Refused(BAD)
        if one is not None and one.recalled is not None and self.breaks("cur-recalled"):
            raise Refused(nfsstat4.NFS4ERR_DELAY)
        name = next(iter(name for name, other in self._parent(node).entries.items() if other is node))
        call.current = self._parent(node)
        return super()._open(call, replace(asked, claim=open_claim4(open_claim_type4.CLAIM_NULL, name)))

    def _parent(self, node: Node) -> Node:
        return next(one for one in self._nodes.values() if node in one.entries.values())

    def _close(self, call: Call, asked: Any) -> Any:
        opened = self.opens.get(asked.open_stateid.other)
        found = super()._close(call, asked)
        if opened is not None and self.breaks("deleg-closed"):
            self._drop_delegations(call.client, opened[1])
        return found

    def _drop_delegations(self, client: Client, node: Node) -> None:
        kept = self.delegations.items()
        self.delegations = {
            name: one for name, one in kept if one.client is not client or one.node is not node
        }

    def _delegreturn(self, call: Call, asked: Any) -> None:
        other = asked.deleg_stateid.other
        one = self.delegations.get(other)
        if one is None or (one.client is not call.client and not self.breaks("deleg-other-client")):
            raise Refused(BAD)
        if self.breaks("deleg-returned"):
            self.returned[other] = one.node
        del self.delegations[other]

    # I/O and attributes

    def _usable(self, call: Call, stateid: stateid4, *, writes: bool) -> bool:
        """Return whether ``stateid`` is that of a delegation; refuse one that does not suffice."""
        if self.returned.get(stateid.other) is call.node:
            return True
        if stateid.other in self.revoked:
            raise Refused(nfsstat4.NFS4ERR_DELEG_REVOKED)
        one = self.delegations.get(stateid.other)
        if one is None:
            return False
        if one.client is not call.client and not self.breaks("deleg-other-client"):
            raise Refused(BAD)
        if one.node is not call.node and not self.breaks("deleg-other-file"):
            raise Refused(BAD)
        if writes and (not one.writes or self.breaks("deleg-write-refused")):
            raise Refused(nfsstat4.NFS4ERR_OPENMODE)
        if not writes and one.writes and self.breaks("deleg-read-refused"):
            raise Refused(nfsstat4.NFS4ERR_OPENMODE)
        if writes and one.recalled is not None and self.breaks("recalled-write-refused"):
            raise Refused(BAD)
        return True

    def _check(self, call: Call, stateid: stateid4) -> None:
        """Refuse a stateid that is not one of an open or a delegation to write, and not a special one."""
        usable = self._usable(call, stateid, writes=True)
        if not usable and stateid.other not in (*self.opens, *SPECIAL):
            raise Refused(BAD)

    def _read(self, call: Call, asked: Any) -> Any:
        self._settle(call, call.node, writes=False, rule="io-read")
        if self._usable(call, asked.stateid, writes=False):
            asked = replace(asked, stateid=stateid4(0, bytes(12)))
        return super()._read(call, asked)

    def _write(self, call: Call, asked: Any) -> Any:
        self._settle(call, call.node, writes=True, rule="io-write")
        self._check(call, asked.stateid)
        recalled = any(one.recalled for one in self.delegations.values() if one.node is call.node)
        if recalled and self.breaks("recalled-write-lost"):
            return super()._write(Call(None, 1, arranges=True, current=Node(b"", nfs_ftype4.NF4REG)), asked)
        return super()._write(call, asked)

    def _setattr(self, call: Call, asked: Any) -> Any:
        self._settle(call, call.node, writes=True, rule="setattr")
        self._check(call, asked.stateid)
        return super()._setattr(call, asked)

    def _getattr(self, call: Call, asked: Any) -> Any:
        if any(one in ANSWERED for one in numbers_of(asked.attr_request)):
            self._ask_holder(call)
        return super()._getattr(call, asked)

    def _ask_holder(self, call: Call) -> None:
        """Get the size and the change attribute from the holder of a write delegation (10.4.3)."""
        held = [one for one in self.delegations.values() if one.node is call.node and one.writes]
        own = self.breaks("own-recalled")
        others = [one for one in held if own or one.client is not call.client]
        if not others or self.breaks("getattr-unasked"):
            return
        one = others[0]
        if one.answer is None:
            session = self._back_of(one.client)
            if session is not None and not one.asked:
                one.asked = True
                handle = self.root.handle if self.breaks("getattr-handle") else one.node.handle
                wanted = CB_GETATTR4args(handle, bitmap(FATTR4_SIZE, FATTR4_CHANGE))
                operation = nfs_cb_argop4(nfs_cb_opnum4.OP_CB_GETATTR, wanted)
                call.later.append(lambda: self._call_client(session, operation, self._answer(one)))
            raise Refused(nfsstat4.NFS4ERR_DELAY)
        answer, one.asked = one.answer, False
        if not self.breaks("getattr-once"):
            one.answer = None
        self._take_answer(one, answer)

    @staticmethod
    def _answer(one: Delegated) -> Callable[[CB_COMPOUND4res], None]:
        """Return what keeps the answer to a CB_GETATTR; without one, the server has its own values."""

        def keep(result: CB_COMPOUND4res) -> None:
            found: Any = result.resarray[-1].value
            one.answer = {}
            if result.status == nfsstat4.NFS4_OK and hasattr(found.value, "obj_attributes"):
                one.answer = decode_attributes(found.value.obj_attributes)

        return keep

    def _take_answer(self, one: Delegated, answer: dict[int, Any]) -> None:
        """Take over what the holder has stated: the file is modified if its change attribute is another."""
        size, change = answer.get(FATTR4_SIZE), answer.get(FATTR4_CHANGE, one.change)
        if change == one.change and not self.breaks("getattr-unmodified"):
            return
        before = one.node.modified
        if size is not None and not self.breaks("getattr-ignored"):
            one.node.resize(size)
        one.node.modified = max(time.time_ns(), before + 1)
        if self.breaks("getattr-change"):
            one.node.modified = before

    def _attributes(self, node: Node, wanted: tuple[int, ...]) -> Any:
        values = decode_attributes(super()._attributes(node, wanted))
        if FATTR4_SUPPORTED_ATTRS in values:
            supported = numbers_of(values[FATTR4_SUPPORTED_ATTRS])
            values[FATTR4_SUPPORTED_ATTRS] = bitmap(*supported, FATTR4_CHANGE)
        if FATTR4_CHANGE in wanted:
            values[FATTR4_CHANGE] = node.modified
        return encode_attributes(values)

    # Names

    def _savefh(self, call: Call, asked: Any) -> None:
        call.saved = call.node

    def _remove(self, call: Call, asked: Any) -> Any:
        node = call.node.entries.get(asked.target)
        if node is not None:
            self._settle(call, node, writes=True, rule="remove")
        return super()._remove(call, asked)

    def _rename(self, call: Call, asked: Any) -> Any:
        source: Any = call.saved
        node = self._named(source, asked.oldname)
        self._settle(call, node, writes=True, rule="rename")
        replaced = call.node.entries.get(asked.newname)
        if replaced is not None:
            self._settle(call, replaced, writes=True, rule="replace")
        call.node.entries[asked.newname] = source.entries.pop(asked.oldname)
        return RENAME4resok(CHANGE, CHANGE)

    def _link(self, call: Call, asked: Any) -> Any:
        node: Any = call.saved
        self._settle(call, node, writes=True, rule="link")
        call.node.entries[asked.newname] = node
        return LINK4resok(CHANGE)

    def _free_stateid(self, call: Call, asked: Any) -> None:
        if self.revoked.pop(asked.fsa_stateid.other, None) is None:
            raise Refused(BAD)


_OPERATIONS: dict[str, Callable[[DelegatingNfs, Call, Any], Any]] = {
    "BIND_CONN_TO_SESSION": DelegatingNfs._bind,
    "CREATE_SESSION": DelegatingNfs._create_session,
    "SEQUENCE": DelegatingNfs._sequence,
    "DESTROY_SESSION": DelegatingNfs._destroy_session,
    "OPEN": DelegatingNfs._open,
    "CLOSE": DelegatingNfs._close,
    "DELEGRETURN": DelegatingNfs._delegreturn,
    "FREE_STATEID": DelegatingNfs._free_stateid,
    "READ": DelegatingNfs._read,
    "WRITE": DelegatingNfs._write,
    "GETATTR": DelegatingNfs._getattr,
    "SETATTR": DelegatingNfs._setattr,
    "SAVEFH": DelegatingNfs._savefh,
    "REMOVE": DelegatingNfs._remove,
    "RENAME": DelegatingNfs._rename,
    "LINK": DelegatingNfs._link,
}
