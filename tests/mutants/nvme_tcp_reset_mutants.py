"""Broken rules of what a controller keeps and forgets: resets, shutdowns, events, Abort, Keep Alive.

The rules, from the text (NVM Express Base 2.3), before any case:

- 6.6: Property Set sets a property; one that cannot be set is no success (SHOULD: no status is named).
- 3.7.2: a controller reset deletes the I/O queues, and no command of theirs succeeds after it (MUST).
- 3.7.2: what a command of a deleted queue would have written is not written later (MUST).
- 3.6.2: each shutdown, normal or abrupt, completes: CSTS.SHST becomes 10b, also after an earlier one (MUST).
- 5.2.2: the limit of AERL is of outstanding requests: a reset, and an Abort, free their places (MUST).
- 5.2.1: up to ACL + 1 Abort commands are outstanding without Abort Command Limit Exceeded (MUST).
- 5.2.1: Abort concerns the command that has SQID and CID, not another with that CID (MUST).
- 5.2.26.1.8: Set Features (Keep Alive Timer) changes the timeout that ends an association (MUST).
- 5.2.13: fields that occur in two structures of Identify have one value (MUST).
"""

import struct
from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import (
    accepts,
    add,
    commands,
    drops_command,
    fabrics,
    feature,
    host,
    identify,
    on_admin,
    patch,
    put,
    results,
    shared,
    target,
)

from storagetest.wire.nvme.codes import Admin, Cns, Fctype, Feature, Property, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, DecodedPdu, H2CData

SHN, SHN_ABRUPT = 0xC000, 0x8000
SHST, SHST_BUSY, SHST_DONE = 0xC, 0x4, 0x8
CC_SET = fabrics(Fctype.PROPERTY_SET, cdw11=Property.CC)
CSTS_GET = fabrics(Fctype.PROPERTY_GET, cdw11=Property.CSTS)

target(
    "cap-set-succeeds | Base 6.6 | Property Set of CAP is a success, and sets nothing",
    accepts(StatusCode.INVALID_FIELD, when=fabrics(Fctype.PROPERTY_SET, cdw11=Property.CAP)),
)

# Controller resets (3.7.2)


class Orphan(ProxyConnection):
    """An I/O queue whose connection outlives its controller's reset: it takes data and completes."""

    def passes_close(self, *, from_target: bool) -> bool:
        if from_target and self.qid:
            self.memory["orphan"] = True
            return False
        return True


def _completes_orphans(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not through.memory.get("orphan"):
        return None
    if isinstance(got.pdu, H2CData) and got.pdu.last:
        through.reply(Cqe(got.pdu.cccid))
    return []


add(
    "reset-io-outlives | Base 3.7.2 | a write whose data come after the reset succeeds",
    lambda: Orphan(of_host=_completes_orphans),
)


class Finisher(Orphan):
    """An I/O queue that completes its commands as its controller is reset."""

    def passes_close(self, *, from_target: bool) -> bool:
        passed = super().passes_close(from_target=from_target)
        if not passed:
            for cid in list(self.commands):
                self.reply(Cqe(cid))
        return passed


add("reset-io-completes | Base 3.7.2 | a reset completes a write without data as a success", Finisher)

# Shutdowns (3.6.2)


def _counts_shutdowns(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if isinstance(got.pdu, CapsuleCmd):
        command = Command.decode(got.pdu.sqe)
        if CC_SET(through, command):
            through.memory["enabled"] = bool(command.cdw12 & 1)
            through.memory["abrupt"] = command.cdw12 & SHN == SHN_ABRUPT
            through.memory["shutdowns"] = through.memory.get("shutdowns", 0) + bool(command.cdw12 & SHN)
    return None


def _busy(through: ProxyConnection, c: Command, old: int) -> int:
    return (old & ~SHST) | SHST_BUSY if old & SHST else old


add(
    "shutdown-second-hangs | Base 3.6.2 | of a controller's shutdowns, only the first completes",
    lambda: ProxyConnection(
        of_host=_counts_shutdowns,
        of_target=results(_busy, when=lambda t, c: CSTS_GET(t, c) and t.memory.get("shutdowns", 0) > 1),
    ),
)
add(
    "shutdown-abrupt-hangs | Base 3.6.2 | an abrupt shutdown does not complete",
    lambda: ProxyConnection(
        of_host=_counts_shutdowns,
        of_target=results(_busy, when=lambda t, c: CSTS_GET(t, c) and bool(t.memory.get("abrupt"))),
    ),
)


def _shuts_all(seen: set[object]) -> ProxyConnection:
    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        _counts_shutdowns(through, got)
        if through.memory.get("shutdowns"):
            seen.add("shut down")
        return None

    return ProxyConnection(
        of_host=rule,
        of_target=results(lambda t, c, old: old | SHST_DONE, when=lambda t, c: CSTS_GET(t, c) and bool(seen)),
    )


shared("shutdown-of-all | Base 3.1.4.6 | a shutdown shows in CSTS of every controller", _shuts_all)

# Asynchronous Event Request and Abort (5.2.1, 5.2.2)

EVENT = on_admin(Admin.ASYNCHRONOUS_EVENT_REQUEST)


def _was_reset(through: ProxyConnection, command: Command) -> bool:
    if CC_SET(through, command) and not command.cdw12 & 1:
        through.memory["reset"] = True
    return EVENT(through, command) and bool(through.memory.get("reset"))


host(
    "aer-reset-limit | Base 5.2.2 | requests from before a reset count against AERL",
    drops_command(_was_reset, status=StatusCode.AER_LIMIT_EXCEEDED),
)


def _was_aborted(through: ProxyConnection, command: Command) -> bool:
    if on_admin(Admin.ABORT)(through, command):
        through.memory["aborted"] = True
    return EVENT(through, command) and bool(through.memory.get("aborted"))


host(
    "aer-abort-limit | Base 5.2.2 | requests that were aborted count against AERL",
    drops_command(_was_aborted, status=StatusCode.AER_LIMIT_EXCEEDED),
)
host(
    "abort-any-queue | Base 5.2.1 | Abort ignores SQID",
    commands(
        lambda capsule, c: CapsuleCmd(replace(c, cdw10=c.cdw10 & 0xFFFF0000).encode()),
        when=lambda t, c: on_admin(Admin.ABORT)(t, c) and bool(c.cdw10 & 0xFFFF),
    ),
)


def _one_abort(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Refuse each Abort after the first of those that came together."""
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    command = Command.decode(got.pdu.sqe)
    if not on_admin(Admin.ABORT)(through, command):
        return None
    through.memory["aborts"] = through.memory.get("aborts", 0) + 1
    if through.memory["aborts"] == 1:
        return None
    through.reply(Cqe(command.cid, StatusCode.ABORT_LIMIT_EXCEEDED))
    return []


host("abort-limit-one | Base 5.2.1 | a second Abort is over the limit, whatever ACL is", _one_abort)

# Keep Alive (3.9, 5.2.26.1.8)

host(
    "kato-set-ignored | Base 5.2.26.1.8 | Set Features (Keep Alive Timer) changes nothing",
    drops_command(feature(Admin.SET_FEATURES, Feature.KATO)),
)

# Identify (5.2.13)

target(
    "identify-independent-other | Base 5.2.13.2.8 | RESCAP differs in CNS 08h",
    patch(put(2, b"\0"), when=identify(Cns.CSI_INDEPENDENT)),
)
target(
    "identify-copy-limits | NVM 4.1.5.1 | MCL is less than MSSRL",
    patch(put(74, struct.pack("<HI", 64, 8)), when=identify(Cns.NAMESPACE)),
)
target(
    "identify-ana-group | Base 8.1.1.2 | ANAGRPID is over ANAGRPMAX",
    patch(put(92, struct.pack("<I", 77)), when=identify(Cns.NAMESPACE)),
)
