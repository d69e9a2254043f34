"""Mutants of what comes later: the second time, behind large sizes, two commands together, state left behind."""

from __future__ import annotations

# ruff: noqa: E501  # a mutant is a row of a table
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import MUTANTS, IscsiMutant, Out, ProxyConnection, mutant, on_request
from iscsi_rules import attention, check, good
from mutant_row import cells
from proxy import Hangup

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import (
    DataIn,
    DataOut,
    LoginRequest,
    LoginResponse,
    LogoutRequest,
    NopIn,
    ReadyToTransfer,
    Request,
    Response,
    ScsiCommand,
    ScsiResponse,
)
from storagetest.wire.scsi.sense import decode_sense

KIB64 = 64 << 10
WRITES = (0x2A, 0x8A)
UNMAP, WRITE_SAME_16, SYNC_10, SYNC_16 = 0x42, 0x93, 0x35, 0x91
VERIFY_10, VERIFY_16, REPORT_LUNS, PR_IN, PR_OUT = 0x2F, 0x8F, 0xA0, 0x5E, 0x5F
COMPARE_AND_WRITE = 0x89


def both(row: str, reply: Any, request: Any, **more: Any) -> None:
    """A mutant that changes PDUs of both directions."""
    name, *words = cells(row)
    assert name not in MUTANTS, name
    MUTANTS[name] = IscsiMutant(name, *words, reply=reply, request=request, **more)


# Large sizes


@mutant("read-64k-repeats | SBC READ | a read of more than 64 KiB repeats the first 64 KiB")
def read_64k_repeats(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, DataIn) or talk.cdb(pdu)[0] not in (0x28, 0x88):
        return pdu
    first = talk.memory.setdefault(("first", pdu.itt), bytearray(KIB64))
    if pdu.buffer_offset == 0:
        first[:] = bytes(KIB64)
    end = pdu.buffer_offset + len(pdu.data)
    if end <= KIB64:
        first[pdu.buffer_offset : end] = pdu.data
        return pdu
    kept = pdu.data[: max(0, KIB64 - pdu.buffer_offset)]
    first[pdu.buffer_offset : pdu.buffer_offset + len(kept)] = kept
    start = (pdu.buffer_offset + len(kept)) % KIB64
    rest = len(pdu.data) - len(kept)
    return replace(pdu, data=kept + (bytes(first) * (rest // KIB64 + 2))[start : start + rest])


@on_request("write-same-64 | SBC WRITE SAME | WRITE SAME(16) writes at most 64 blocks")
def write_same_64(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] == WRITE_SAME_16:
        (blocks,) = struct.unpack_from(">I", pdu.cdb, 10)
        if blocks > 64:
            return replace(pdu, cdb=pdu.cdb[:10] + struct.pack(">I", 64) + pdu.cdb[14:])
    return pdu


@mutant(
    "verify-any-later-block | SBC VERIFY | VERIFY with BYTCHK is GOOD if the command has more than one block"
)
def verify_any_later_block(talk: ProxyConnection, pdu: Pdu) -> Out:
    cdb = talk.cdb(pdu)
    if isinstance(pdu, ScsiResponse) and pdu.sense and decode_sense(pdu.sense).key == 0xE:
        many = {VERIFY_10: cdb[7:9], VERIFY_16: cdb[10:14], COMPARE_AND_WRITE: cdb[13:14]}.get(cdb[0], b"\0")
        if int.from_bytes(many, "big") > 1:
            return good(pdu)
    return pdu


def _one_more(data: bytes) -> bytes:
    head, body = data[:8], data[8:]
    ranges = struct.iter_unpack(">QII", body[: len(body) // 16 * 16])
    return head + b"".join(struct.pack(">QII", lba, blocks + 1, 0) for lba, blocks, _ in ranges)


@on_request("unmap-behind | SBC UNMAP | UNMAP unmaps the block behind each range, too")
def unmap_behind(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, (ScsiCommand, DataOut)) and talk.cdb(pdu)[0] == UNMAP and len(pdu.data) >= 24:
        return replace(pdu, data=_one_more(pdu.data))
    return pdu


@on_request(
    "last-burst-rotated | RFC 7143 11.7 | of a write of more than 128 KiB, the last Data-Out is stored rotated"
)
def last_burst_rotated(talk: ProxyConnection, pdu: Pdu) -> Out:
    command = talk.commands.get(pdu.itt) if isinstance(pdu, DataOut) else None
    if not isinstance(pdu, DataOut) or command is None or command.expected_length <= KIB64 * 2:
        return pdu
    if pdu.buffer_offset + len(pdu.data) == command.expected_length and len(pdu.data) > 512:
        return replace(pdu, data=pdu.data[512:] + pdu.data[:512])
    return pdu


@on_request("upper-lba-ignored | SBC READ(16) | READ(16) and WRITE(16) ignore the upper 32 bits of the LBA")
def upper_lba_ignored(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] in (0x88, 0x8A):
        return replace(pdu, cdb=pdu.cdb[:2] + bytes(4) + pdu.cdb[6:])
    return pdu


@mutant("ping-cut-4096 | RFC 7143 11.19 | ping data of more than 4,096 bytes is returned cut")
def ping_cut_4096(talk: ProxyConnection, pdu: Pdu) -> Out:
    return replace(pdu, data=pdu.data[:4096]) if isinstance(pdu, NopIn) else pdu


@mutant("luns-length-returned | SPC REPORT LUNS | LUN LIST LENGTH is what was returned, not what there is")
def luns_length_returned(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, DataIn) and talk.cdb(pdu)[0] == REPORT_LUNS and len(pdu.data) >= 8:
        return replace(pdu, data=struct.pack(">I", len(pdu.data) - 8) + pdu.data[4:])
    return pdu


@mutant("sync-past-end | SBC SYNCHRONIZE CACHE | SYNCHRONIZE CACHE past the end is GOOD")
def sync_past_end(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ScsiResponse) and talk.cdb(pdu)[0] in (SYNC_10, SYNC_16) and pdu.status == 2:
        return good(pdu) if decode_sense(pdu.sense).asc == 0x2100 else pdu
    return pdu


# The second time


@mutant("generation-stops | SPC PERSISTENT RESERVE IN | PRGENERATION grows once and never again")
def generation_stops(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, DataIn) and talk.cdb(pdu)[0] == PR_IN and talk.cdb(pdu)[1] & 0x1F in (0, 1, 3):
        (now,) = struct.unpack_from(">I", pdu.data)
        first = talk.shared.setdefault("generation", now)
        return replace(pdu, data=struct.pack(">I", min(now, first + 1)) + pdu.data[4:])
    return pdu


@mutant(
    "reset-attention-twice | SAM unit attention | the unit attention of a reset is reported twice on one nexus"
)
def reset_attention_twice(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiResponse):
        return pdu
    if attention(pdu) and decode_sense(pdu.sense).asc >> 8 == 0x29 and "again" not in talk.memory:
        talk.memory["again"] = decode_sense(pdu.sense).asc
    elif pdu.status == 0 and talk.cdb(pdu)[0] == 0 and talk.memory.get("again"):
        asc, talk.memory["again"] = talk.memory["again"], 0
        return check(pdu, 6, asc)
    return pdu


@mutant(
    "data-sn-goes-on | RFC 7143 11.7.5 | DataSN of a read begins with 1 after the first read of a connection"
)
def data_sn_goes_on(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, DataIn):
        return pdu
    first = talk.memory.setdefault("read", pdu.itt)
    return pdu if first == pdu.itt else replace(pdu, data_sn=pdu.data_sn + 1)


@mutant(
    "r2t-sn-goes-on | RFC 7143 11.8.2 | R2TSN of a write begins with 1 after the first write of a connection"
)
def r2t_sn_goes_on(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ReadyToTransfer):
        return pdu
    first = talk.memory.setdefault("write", pdu.itt)
    return pdu if first == pdu.itt else replace(pdu, r2t_sn=pdu.r2t_sn + 1)


def _skipping(talk: ProxyConnection, pdu: Pdu) -> Out:
    skipped = talk.memory.get("skipped", 0)
    if isinstance(pdu, NopIn):
        talk.memory["skipped"] = skipped + 1
    if isinstance(pdu, Response) and skipped:
        return replace(pdu, stat_sn=pdu.stat_sn + skipped)
    return pdu


def _unskipping(talk: ProxyConnection, pdu: Pdu) -> Out:
    skipped = talk.memory.get("skipped", 0)
    if skipped and isinstance(pdu, Request):
        return replace(pdu, exp_stat_sn=max(0, pdu.exp_stat_sn - skipped))
    return pdu


both(
    "stat-sn-skips-after-ping | RFC 7143 4.2.2.2 | StatSN skips a number after a NOP-In",
    _skipping,
    _unskipping,
)


def _counting(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, Request) and not isinstance(pdu, LoginRequest) and pdu.immediate:
        talk.memory["immediate"] = talk.memory.get("immediate", 0) + 1
    return pdu


def _counted(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, Response) and talk.memory.get("immediate", 0) >= 2:
        return replace(pdu, exp_cmd_sn=pdu.exp_cmd_sn + 1)
    return pdu


both(
    "second-immediate-counted | RFC 7143 4.2.2.1 | ExpCmdSN counts the second immediate command",
    _counted,
    _counting,
)


@mutant(
    "second-preempt-unreported | SPC PREEMPT | the second registration that is preempted gets no unit attention"
)
def second_preempt_unreported(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not attention(pdu) or talk.cdb(pdu)[0] != 0:
        return pdu
    assert isinstance(pdu, ScsiResponse)
    if decode_sense(pdu.sense).asc not in (0x2A03, 0x2A04, 0x2A05):
        return pdu
    talk.shared["reported"] = talk.shared.get("reported", 0) + 1
    return good(pdu) if talk.shared["reported"] > 1 else pdu


# Two commands together


def _elsewhere(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] not in WRITES:
        return pdu
    waiting = talk.memory.setdefault("writes", {})
    same = [cdb for cdb in waiting.values() if cdb[0] == pdu.cdb[0]]
    waiting[pdu.itt] = pdu.cdb
    if not same:
        return pdu
    end = 6 if pdu.cdb[0] == 0x2A else 10
    return replace(pdu, cdb=pdu.cdb[:2] + same[0][2:end] + pdu.cdb[end:])


def _ended(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ScsiResponse):
        talk.memory.get("writes", {}).pop(pdu.itt, None)
    return pdu


both(
    "second-write-at-first-lba | SBC WRITE | a write during another is stored at the other's LBA",
    _ended,
    _elsewhere,
)


# State left behind


def _unregistering(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Unregister the nexus before the logout that ends its session."""
    if not isinstance(pdu, LogoutRequest) or pdu.reason != 0 or not talk.commands:
        return pdu
    some = list(talk.commands.values())[-1]
    talk.memory["tag"] = 0x7E57
    unregister = ScsiCommand(
        itt=0x7E57, final=True, write=True, lun=some.lun, cmd_sn=pdu.cmd_sn, exp_stat_sn=pdu.exp_stat_sn,
        expected_length=24, cdb=bytes([PR_OUT, 6, 0, 0, 0, 0, 0, 0, 24]).ljust(16, b"\0"), data=bytes(24),
    )  # fmt: skip
    return [unregister, replace(pdu, cmd_sn=pdu.cmd_sn + 1)]


def _without_own(talk: ProxyConnection, pdu: Pdu) -> Out:
    tag = talk.memory.get("tag")
    if tag is None or not isinstance(pdu, Response):
        return pdu
    if pdu.itt == tag:
        return None
    return replace(pdu, stat_sn=pdu.stat_sn - 1)


both(
    "registration-ends-at-logout | SPC registrations | a registration ends with the session",
    _without_own,
    _unregistering,
)


def _other_isid(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginRequest) or pdu.tsih:
        return pdu
    if "isid" not in talk.memory:
        talk.memory["isid"] = pdu.isid
        open_ones = talk.shared.setdefault("sessions", [])
        talk.memory["twin"] = any(
            one.name == talk.name and one.memory["isid"] == pdu.isid and not one.over for one in open_ones
        )
        open_ones.append(talk)
    return replace(pdu, isid=_turned(pdu.isid)) if talk.memory["twin"] else pdu


def _own_isid(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, LoginResponse) and talk.memory.get("twin"):
        return replace(pdu, isid=_turned(pdu.isid))
    return pdu


def _turned(isid: bytes) -> bytes:
    return isid[:-1] + bytes([isid[-1] ^ 0x80])


both(
    "session-not-reinstated | RFC 7143 6.3.5 | a login with the ISID of a session leaves that session open",
    _own_isid,
    _other_isid,
)


@mutant("login-after-failed-one | RFC 7143 6.3 | the login after one to an unknown target is refused")
def login_after_failed_one(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginResponse):
        return pdu
    if pdu.status >> 8 == 2:
        talk.shared["failed"] = True
    elif pdu.status == 0 and talk.shared.pop("failed", False):
        return replace(pdu, status=0x0300, transit=False, data=b"")
    return pdu


# Reinstatement


def _once_only(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Let the first reinstatement pass."""
    if isinstance(pdu, LoginRequest) and not pdu.tsih and "isid" not in talk.memory:
        talk.memory["isid"] = pdu.isid
        key = ("logins", talk.name, pdu.isid)
        talk.shared[key] = talk.shared.get(key, 0) + 1
        talk.memory["twin"] = talk.shared[key] > 2
    if isinstance(pdu, LoginRequest) and talk.memory.get("twin"):
        return replace(pdu, isid=_turned(pdu.isid))
    return pdu


both(
    "session-reinstated-once | RFC 7143 6.3.5 | the second reinstatement leaves the old session open",
    _own_isid,
    _once_only,
)


def hangs_up(row: str, when: Callable[[ProxyConnection, ProxyConnection, LoginResponse], bool]) -> None:
    """A mutant that ends the connections of others at a login response: ``when(other, own, response)``."""

    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        known = talk.shared.setdefault("connections", [])
        if isinstance(pdu, LoginResponse):
            for other in known:
                if other is not talk and when(other, talk, pdu):
                    other.memory["ends"] = True
            if talk not in known:
                known.append(talk)
        return pdu

    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if talk.memory.get("ends"):
            raise Hangup
        return pdu

    both(row, reply, request)


def _isid(talk: ProxyConnection) -> bytes:
    return talk.login.isid if talk.login is not None else b""


hangs_up(
    "isid-of-another-reinstates | RFC 7143 6.3.5 | a login ends the session of another initiator with its ISID",
    lambda other, own, response: other.name != own.name and _isid(other) == _isid(own),
)
hangs_up(
    "failed-login-reinstates | RFC 7143 6.3.5 | a login that is refused ends the session with its ISID",
    lambda other, own, response: response.status >> 8 != 0 and _isid(other) == _isid(own),
)
hangs_up(
    "refused-connection-ends-old | RFC 7143 6.3.4 | a refused connection reinstatement ends the connection",
    lambda other, own, response: (
        response.status >> 8 != 0
        and own.login is not None
        and bool(own.login.tsih)
        and _isid(other) == _isid(own)
    ),
)


def _as_other_session(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Log in a session of its own in place of a connection that is to be reinstated."""
    if isinstance(pdu, LoginRequest) and (pdu.tsih or "tsih" in talk.memory):
        talk.memory.setdefault("tsih", pdu.tsih)
        return replace(pdu, tsih=0, isid=_turned(pdu.isid))
    return pdu


def _as_same_session(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, LoginResponse) and "tsih" in talk.memory:
        return replace(pdu, tsih=talk.memory["tsih"], isid=_turned(pdu.isid))
    return pdu


both(
    "connection-not-reinstated | RFC 7143 6.3.4 | a connection that is reinstated goes on together with the new one",
    _as_same_session,
    _as_other_session,
)


@mutant(
    "registration-ends-with-session | SPC-4 registrations | the reinstatement of a session ends its registration"
)
def registration_ends_with_session(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, LoginResponse) and not pdu.status and talk.login is not None:
        key = ("logins", talk.name, talk.login.isid)
        if "counted" not in talk.memory:
            talk.memory["counted"] = talk.shared[key] = talk.shared.get(key, 0) + 1
    read_keys = isinstance(pdu, DataIn) and talk.cdb(pdu)[0] == PR_IN and not talk.cdb(pdu)[1] & 0x1F
    if read_keys and talk.memory.get("counted", 1) > 1 and len(pdu.data) >= 8:
        return replace(pdu, data=pdu.data[:4] + bytes(len(pdu.data) - 4))
    return pdu
