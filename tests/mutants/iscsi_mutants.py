"""The rules that are broken, one at a time: iSCSI. Each mutant says which section it breaks, and how.

Grouped as the suite is: login and keys, numbering, data, digests and PDUs, tasks, text, logout, SCSI,
reservations.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace
from typing import Any

from iscsi_talk import MUTANTS, Talk, mutant, on_request

from storagetest.wire.iscsi.codes import NO_TAG, LoginStatus
from storagetest.wire.iscsi.keys import KEYS, Negotiation, format_text, parse_text
from storagetest.wire.iscsi.parts import Pdu
from storagetest.wire.iscsi.pdu import (
    R2T,
    DataIn,
    DataOut,
    LoginResponse,
    LogoutResponse,
    NopIn,
    NopOut,
    Reject,
    ScsiCommand,
    ScsiResponse,
    SnackRequest,
    TaskRequest,
    TaskResponse,
    TextResponse,
    reserved_bits,
)
from storagetest.wire.iscsi.session import before, plus
from storagetest.wire.scsi.sense import decode_sense, fixed_sense

__all__ = ["MUTANTS"]

_S = "RFC 7143 "


def accepted(talk: Talk, pdu: LoginResponse) -> LoginResponse:
    """A refusal made into what an acceptance would be."""
    request = talk.login
    assert request is not None
    tsih = 1 if request.transit and request.nsg == 3 else 0
    return replace(
        pdu, status=0, transit=request.transit, csg=request.csg, nsg=request.nsg, isid=request.isid, tsih=tsih,
        itt=request.itt,
    )  # fmt: skip


def accepts(name: str, section: str, description: str, *statuses: int, **more: Any) -> None:
    """A mutant that accepts the logins that are refused with one of ``statuses`` (none: any)."""

    @mutant(name, _S + section, description, **more)
    def change(talk: Talk, pdu: Pdu) -> Pdu:
        if isinstance(pdu, LoginResponse) and pdu.status and (not statuses or pdu.status in statuses):
            return accepted(talk, pdu)
        return pdu


def sets(name: str, section: str, description: str, kind: type[Pdu], **values: Any) -> None:
    """A mutant that sets fields of every PDU of a kind; a callable is given the PDU."""

    @mutant(name, section if section[0] == "S" else _S + section, description)
    def change(talk: Talk, pdu: Pdu) -> Pdu:
        if not isinstance(pdu, kind):
            return pdu
        return replace(
            pdu, **{key: value(pdu) if callable(value) else value for key, value in values.items()}
        )


def text(name: str, section: str, description: str, rewrite: Any, kind: type[Pdu] = LoginResponse) -> None:
    """A mutant that rewrites the keys of a response: ``rewrite(pairs, talk)``."""

    @mutant(name, _S + section, description)
    def change(talk: Talk, pdu: Pdu) -> Pdu:
        if not isinstance(pdu, kind) or (isinstance(pdu, LoginResponse) and pdu.status):
            return pdu
        pairs = list(parse_text(pdu.data))
        return replace(pdu, data=format_text(rewrite(pairs, talk)))


# Login

accepts(
    "login-version-accepted",
    "11.12.4",
    "a version that is not there is accepted",
    LoginStatus.UNSUPPORTED_VERSION,
)
accepts("login-tsih-accepted", "11.12.6", "a TSIH of no session is accepted", LoginStatus.NO_SESSION)
accepts("login-name-missing-accepted", "13.5", "no InitiatorName is needed", LoginStatus.MISSING_PARAMETER)
accepts("login-target-missing-accepted", "13.4", "no TargetName is needed", LoginStatus.MISSING_PARAMETER)
accepts("login-stage-accepted", "11.12.3", "a reserved stage is accepted", keeps_open=True)
accepts("login-session-type", "13.21", "any SessionType is accepted")
accepts("login-garbage-accepted", "6.1", "text without an equals sign is accepted", keeps_open=True)
accepts("key-range", "6.2", "a value out of its range is accepted")
accepts("chap-not-checked", "12.1.3", "a wrong CHAP response is accepted", target="chap")
accepts("chap-skipped", "6.3.2", "a login without authentication is accepted", target="chap")

sets("tsih-zero", "11.13.3", "a new session has TSIH 0", LoginResponse, tsih=0)
sets(
    "login-itt-lost",
    "11.13",
    "the Login Response has another task tag",
    LoginResponse,
    itt=lambda pdu: pdu.itt ^ 1,
)
sets("login-isid-changed", "11.13", "the Login Response has another ISID", LoginResponse, isid=b"\x80other")
sets(
    "login-version-active",
    "11.13.2",
    "Version-active is one that the initiator has not",
    LoginResponse,
    version_active=1,
)


@mutant("chap-refused", _S + "12.1.3", "the right secret is refused", target="chap")
def chap_refused(talk: Talk, pdu: Pdu) -> Pdu:
    refused = isinstance(pdu, LoginResponse) and pdu.csg == 0 and pdu.transit
    return replace(pdu, status=LoginStatus.AUTHENTICATION_FAILED, transit=False) if refused else pdu


@mutant("chap-same-challenge", _S + "12.1.3", "every login gets the same challenge", target="chap")
def chap_same_challenge(talk: Talk, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, LoginResponse) or b"CHAP_C" not in pdu.data:
        return pdu
    pairs = [(name, "0x" + "5a" * 16 if name == "CHAP_C" else value) for name, value in parse_text(pdu.data)]
    return replace(pdu, data=format_text(pairs))


@mutant("login-transit-unasked", _S + "6.3.1", "the target goes to full feature phase unasked")
def transit_unasked(talk: Talk, pdu: Pdu) -> Pdu:
    stays = isinstance(pdu, LoginResponse) and talk.login is not None and not talk.login.transit
    return replace(pdu, transit=True, nsg=3) if stays else pdu


@mutant("login-reinstatement", _S + "6.3.5", "the old session lives on", keeps_open=True)
def keeps_the_old(talk: Talk, pdu: Pdu) -> Pdu:
    return pdu


@mutant("login-in-ffp", _S + "6.3", "a login in full feature phase is passed over", keeps_open=True)
def login_in_ffp(talk: Talk, pdu: Pdu) -> Pdu | None:
    return (
        None if isinstance(pdu, (Reject, LoginResponse)) and talk.last is not None and talk.last.itt else pdu
    )


@on_request("login-reserved-checked", _S + "11", "reserved bits of a login are an error")
def login_reserved(talk: Talk, pdu: Pdu) -> Pdu | None:
    frame = talk.memory["frame"]
    if talk.login is not None and any(reserved_bits(frame.bhs)):
        talk.say(LoginResponse(itt=pdu.itt, status=LoginStatus.INITIATOR_ERROR))
        return None
    return pdu


def without(*names: str) -> Any:
    return lambda pairs, talk: [pair for pair in pairs if pair[0] not in names]


text("portal-group-tag", "13.9", "TargetPortalGroupTag is not declared", without("TargetPortalGroupTag"))
text("answer-twice", "6.2", "a key is answered twice", lambda pairs, talk: [*pairs, *pairs[:1]])
text("max-recv-declared", "13.12", "MaxRecvDataSegmentLength is declared as 0",
     lambda pairs, talk: [*without("MaxRecvDataSegmentLength")(pairs, talk), ("MaxRecvDataSegmentLength", "0")])  # fmt: skip
text("not-understood", "6.2", "an unknown key is answered with a value",
     lambda pairs, talk: [(name, "1" if value == "NotUnderstood" else value) for name, value in pairs])  # fmt: skip
text("key-case", "6.1", "key names are compared without regard to case",
     lambda pairs, talk: [(name, "65536" if name == "maxburstlength" else value) for name, value in pairs])  # fmt: skip
text("key-hexadecimal", "6.1", "a hexadecimal number is taken for its first digit",
     lambda pairs, talk: [(name, "0" if name == "MaxBurstLength" else value) for name, value in pairs])  # fmt: skip
text("first-burst-over-max", "13.14", "FirstBurstLength ends up over MaxBurstLength",
     lambda pairs, talk: [(name, "65536" if name == "FirstBurstLength" else value) for name, value in pairs])  # fmt: skip


text("auth-method-unknown", "6.3.2", "an unknown AuthMethod is accepted",
     lambda pairs, talk: [(name, "X-org.storagetest.none" if name == "AuthMethod" else value) for name, value in pairs])  # fmt: skip


MUTANTS["auth-method-unknown"].keeps_open = True  # where the target says nothing, it is to close


def illegal(key: str, proposed: str) -> str:
    """What no responder may answer."""
    match KEYS[key].negotiation:
        case Negotiation.MINIMUM:
            return str(int(proposed) + 1)
        case Negotiation.MAXIMUM:
            return str(int(proposed) - 1)
        case Negotiation.AND:
            return "Yes"
        case Negotiation.OR:
            return "No"
    return "X-none"


def answers_wrongly(key: str) -> None:
    def rewrite(pairs: list[tuple[str, str]], talk: Talk) -> list[tuple[str, str]]:
        offered = dict(talk.offered)
        if key not in offered:
            return pairs
        return [*without(key)(pairs, talk), (key, illegal(key, offered[key]))]

    text(f"key-{key}", f"6.2, {KEYS[key].section}", f"{key} is answered as no responder may", rewrite)


for _key in ("HeaderDigest", "DataDigest", "MaxBurstLength", "FirstBurstLength", "MaxOutstandingR2T",
             "DefaultTime2Wait", "DefaultTime2Retain", "MaxConnections", "ErrorRecoveryLevel", "InitialR2T",
             "ImmediateData", "DataPDUInOrder", "DataSequenceInOrder", "iSCSIProtocolLevel"):  # fmt: skip
    answers_wrongly(_key)

# Numbering

sets("stat-sn-skips", "4.2.2.2", "StatSN jumps", ScsiResponse, stat_sn=lambda pdu: plus(pdu.stat_sn, 5))
sets("stat-sn-task", "4.2.2.2", "a task management response does not count in StatSN", TaskResponse,
     stat_sn=lambda pdu: plus(pdu.stat_sn, -1))  # fmt: skip
sets(
    "stat-sn-nop",
    "11.19.2",
    "the answer to a ping does not count in StatSN",
    NopIn,
    stat_sn=lambda pdu: plus(pdu.stat_sn, -1),
)
sets(
    "stat-sn-logout",
    "4.2.2.2",
    "the Logout Response has an old StatSN",
    LogoutResponse,
    stat_sn=lambda pdu: plus(pdu.stat_sn, -1),
)
sets("stat-sn-r2t", "11.8.3", "an R2T uses up a StatSN", R2T, stat_sn=lambda pdu: plus(pdu.stat_sn, 1))
sets(
    "exp-cmd-sn-gap",
    "4.2.2.1",
    "ExpCmdSN passes a gap",
    NopIn,
    exp_cmd_sn=lambda pdu: plus(pdu.exp_cmd_sn, 1),
)
sets(
    "max-cmd-sn-low",
    "4.2.2.1",
    "MaxCmdSN is below ExpCmdSN - 1",
    ScsiResponse,
    max_cmd_sn=lambda pdu: plus(pdu.exp_cmd_sn, -5),
)
sets(
    "max-cmd-sn-closed",
    "4.2.2.1",
    "an idle session's window is closed",
    NopIn,
    max_cmd_sn=lambda pdu: plus(pdu.exp_cmd_sn, -1),
)


@mutant("exp-cmd-sn-stuck", _S + "4.2.2.1", "ExpCmdSN does not move")
def exp_cmd_sn_stuck(talk: Talk, pdu: Pdu) -> Pdu:
    number = getattr(pdu, "exp_cmd_sn", None)
    return pdu if number is None else replace(pdu, exp_cmd_sn=talk.memory.setdefault("first", number))


@mutant("immediate-counts", _S + "4.2.2.1", "an immediate request moves ExpCmdSN")
def immediate_counts(talk: Talk, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, NopIn):
        return pdu
    talk.memory["pings"] = talk.memory.get("pings", 0) + 1
    return replace(pdu, exp_cmd_sn=plus(pdu.exp_cmd_sn, talk.memory["pings"]))


@mutant("exp-cmd-sn-back", _S + "4.2.2.1", "ExpCmdSN goes back")
def exp_cmd_sn_back(talk: Talk, pdu: Pdu) -> Pdu:
    return replace(pdu, exp_cmd_sn=plus(pdu.exp_cmd_sn, -3)) if isinstance(pdu, NopIn) else pdu


@mutant("cmd-sn-wrap", _S + "4.2.2.1", "ExpCmdSN does not wrap round")
def cmd_sn_wrap(talk: Talk, pdu: Pdu) -> Pdu:
    number = getattr(pdu, "exp_cmd_sn", 0xFFFF)
    wraps = number < 16 and talk.login is not None and talk.login.cmd_sn > 0xFFFFFFF0
    return replace(pdu, exp_cmd_sn=0xFFFFFFFF) if wraps else pdu


def answers_early(name: str, description: str, when: Any) -> None:
    @on_request(name, _S + "4.2.2.1", description)
    def change(talk: Talk, pdu: Pdu) -> Pdu:
        if isinstance(pdu, ScsiCommand) and not pdu.immediate and talk.last is not None:
            last: Any = talk.last
            if when(pdu, last):
                talk.say(
                    ScsiResponse(
                        itt=pdu.itt,
                        stat_sn=pdu.exp_stat_sn,
                        exp_cmd_sn=last.exp_cmd_sn,
                        max_cmd_sn=last.max_cmd_sn,
                    )
                )
        return pdu


answers_early(
    "cmd-sn-window-open",
    "a command beyond MaxCmdSN is answered",
    lambda pdu, last: before(last.max_cmd_sn, pdu.cmd_sn),
)
answers_early(
    "cmd-sn-old-answered",
    "a command below ExpCmdSN is answered",
    lambda pdu, last: before(pdu.cmd_sn, last.exp_cmd_sn),
)
answers_early(
    "cmd-sn-order", "a command after a gap is answered", lambda pdu, last: before(last.exp_cmd_sn, pdu.cmd_sn)
)


@mutant("reserved-set", _S + "11", "a reserved bit is set in a SCSI Response")
def reserved_set(talk: Talk, pdu: Pdu) -> Any:
    return pdu.parts().poke(8, b"\x01") if isinstance(pdu, ScsiResponse) else pdu


@mutant("itt-unknown", _S + "11.2.1.8", "a response to a task that nobody has started")
def itt_unknown(talk: Talk, pdu: Pdu) -> Any:
    return [pdu, replace(pdu, itt=0x0BAD)] if isinstance(pdu, ScsiResponse) else pdu


# Data


def data_in(name: str, section: str, description: str, change: Any) -> None:
    @mutant(name, _S + section, description)
    def reply(talk: Talk, pdu: Pdu) -> Any:
        return change(pdu, talk) if isinstance(pdu, DataIn) else pdu


data_in("data-in-order", "13.18", "the second Data-In is at a wrong offset",
        lambda pdu, talk: replace(pdu, buffer_offset=pdu.buffer_offset + 512) if pdu.data_sn else pdu)  # fmt: skip
data_in(
    "data-sn", "4.2.2.4", "DataSN counts from one", lambda pdu, talk: replace(pdu, data_sn=pdu.data_sn + 1)
)
data_in(
    "data-in-burst",
    "13.13",
    "a sequence is not ended at MaxBurstLength",
    lambda pdu, talk: replace(pdu, final=pdu.has_status),
)
data_in(
    "status-without-final", "11.7.3", "S is set and F is not", lambda pdu, talk: replace(pdu, final=False)
)
data_in("residual-underflow", "11.4.5", "an underflow is not reported",
        lambda pdu, talk: replace(pdu, underflow=False, residual=0) if pdu.underflow else pdu)  # fmt: skip
data_in("residual-overflow", "11.4.5", "an overflow is not reported",
        lambda pdu, talk: replace(pdu, overflow=False, residual=0) if pdu.overflow else pdu)  # fmt: skip
data_in("residual-spurious", "11.4.5", "a residual where there is none",
        lambda pdu, talk: replace(pdu, underflow=True, residual=1) if pdu.has_status else pdu)  # fmt: skip
data_in(
    "data-in-ttt",
    "11.7.4",
    "a Data-In has a tag though it asks for nothing",
    lambda pdu, talk: replace(pdu, ttt=5),
)
data_in("data-in-acknowledge", "11.7.2", "an acknowledgement is asked for at level 0",
        lambda pdu, talk: replace(pdu, acknowledge=True, ttt=5))  # fmt: skip


@mutant("data-in-long", _S + "13.12", "Data-In are longer than MaxRecvDataSegmentLength")
def data_in_long(talk: Talk, pdu: Pdu) -> Any:
    if not isinstance(pdu, DataIn):
        return pdu
    held = talk.memory.pop("held", b"") + pdu.data
    if not pdu.final and not pdu.has_status:
        talk.memory["held"] = held
        return None
    return replace(pdu, data=held, buffer_offset=pdu.buffer_offset + len(pdu.data) - len(held))


@mutant("exp-data-sn", _S + "11.4.8", "ExpDataSN does not count")
def exp_data_sn(talk: Talk, pdu: Pdu) -> Pdu:
    return replace(pdu, exp_data_sn=pdu.exp_data_sn + 1) if isinstance(pdu, ScsiResponse) else pdu


@mutant("data-in-beyond", _S + "11.3.4", "data are sent where none are expected")
def data_in_beyond(talk: Talk, pdu: Pdu) -> Any:
    command = talk.commands.get(pdu.itt)
    if isinstance(pdu, ScsiResponse) and command is not None and command.read and not command.expected_length:
        return [
            DataIn(itt=pdu.itt, data=bytes(512), exp_cmd_sn=pdu.exp_cmd_sn, max_cmd_sn=pdu.max_cmd_sn),
            pdu,
        ]
    return pdu


@mutant("residual-write-underflow", _S + "11.4.5", "a write of less than expected has no residual")
def residual_write(talk: Talk, pdu: Pdu) -> Pdu:
    command = talk.commands.get(pdu.itt)
    return good(pdu) if isinstance(pdu, ScsiResponse) and command is not None and command.write else pdu


sets("r2t-sn", "4.2.2.4", "R2TSN counts from one", R2T, r2t_sn=lambda pdu: pdu.r2t_sn + 1)
sets(
    "r2t-beyond",
    "11.8.4",
    "an R2T asks beyond the expected length",
    R2T,
    desired_length=lambda pdu: pdu.desired_length + 512,
)


@mutant("r2t-outstanding", _S + "13.17", "a second R2T while the first is outstanding")
def r2t_outstanding(talk: Talk, pdu: Pdu) -> Any:
    return [pdu, replace(pdu, r2t_sn=pdu.r2t_sn + 1, ttt=pdu.ttt ^ 0x8000)] if isinstance(pdu, R2T) else pdu


@mutant("r2t-no-tag", _S + "11.8.5", "an R2T has the reserved tag")
def r2t_no_tag(talk: Talk, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, R2T):
        return pdu
    talk.memory["tag"] = pdu.ttt
    return replace(pdu, ttt=NO_TAG)


def restores_tag(talk: Talk, pdu: Pdu) -> Pdu:
    return replace(pdu, ttt=talk.memory["tag"]) if isinstance(pdu, DataOut) and "tag" in talk.memory else pdu


MUTANTS["r2t-no-tag"].request = restores_tag


@mutant("r2t-order", _S + "13.19", "an R2T asks again for what has been sent")
def r2t_order(talk: Talk, pdu: Pdu) -> Pdu:
    return replace(pdu, buffer_offset=pdu.buffer_offset - 512) if isinstance(pdu, R2T) and pdu.r2t_sn else pdu


def restores_offset(talk: Talk, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, DataOut) or not isinstance(talk.last, R2T) or not talk.last.r2t_sn:
        return pdu
    return replace(pdu, buffer_offset=pdu.buffer_offset + 512)


MUTANTS["r2t-order"].request = restores_offset


@mutant("r2t-over-burst", _S + "13.13", "two R2Ts are put together into one over MaxBurstLength")
def r2t_over_burst(talk: Talk, pdu: Pdu) -> Any:
    if not isinstance(pdu, R2T):
        return pdu
    if "rest" in talk.memory:
        talk.tell(*talk.data_out(pdu, talk.memory.pop("rest")))
        return None
    left = talk.commands[pdu.itt].expected_length - pdu.buffer_offset
    asked = min(2 * pdu.desired_length, left)
    talk.memory.update(true=pdu, asked=asked, got=b"", start=pdu.buffer_offset)
    return replace(pdu, desired_length=asked)


def splits_data(talk: Talk, pdu: Pdu) -> Any:
    if not isinstance(pdu, DataOut) or "true" not in talk.memory:
        return pdu
    talk.memory["got"] += pdu.data
    if not pdu.final:
        return None
    true, got, start = talk.memory.pop("true"), talk.memory["got"], talk.memory["start"]
    if len(got) > true.desired_length:
        talk.memory["rest"] = bytes(start) + got
    return list(talk.data_out(true, bytes(start) + got))


MUTANTS["r2t-over-burst"].request = splits_data


def feeds(talk: Talk, pdu: Pdu) -> Pdu | None:
    """Answer an R2T from what the initiator sent too early."""
    if isinstance(pdu, R2T) and pdu.itt in talk.memory.get("early", {}):
        talk.tell(*talk.data_out(pdu, talk.memory["early"][pdu.itt]))
        return None
    return pdu


def takes_early(name: str, section: str, description: str, keep: Any) -> None:
    """A mutant that takes immediate data that it must refuse; ``keep`` says how much may stay."""

    @on_request(name, _S + section, description)
    def change(talk: Talk, pdu: Pdu) -> Pdu:
        if isinstance(pdu, ScsiCommand) and len(pdu.data) > keep(talk):
            talk.memory.setdefault("early", {})[pdu.itt] = pdu.data
            return replace(pdu, data=pdu.data[: keep(talk)], final=True)
        return pdu

    MUTANTS[name].reply = feeds


takes_early(
    "first-burst-ignored", "13.14", "immediate data over FirstBurstLength are taken", lambda talk: 1024
)
takes_early(
    "immediate-data-taken", "13.11", "immediate data are taken where ImmediateData is No", lambda talk: 0
)


@on_request("unsolicited-taken", _S + "13.10", "unsolicited Data-Out are taken where InitialR2T is Yes")
def unsolicited_taken(talk: Talk, pdu: Pdu) -> Pdu | None:
    if isinstance(pdu, ScsiCommand) and pdu.write and not pdu.final:
        talk.memory["early"] = {pdu.itt: b""}
        talk.memory["command"] = pdu
        return None
    if isinstance(pdu, DataOut) and pdu.ttt == NO_TAG and pdu.itt in talk.memory.get("early", {}):
        talk.memory["early"][pdu.itt] += pdu.data
        return replace(talk.memory["command"], final=True) if pdu.final else None
    return pdu


MUTANTS["unsolicited-taken"].reply = feeds


def data_out(name: str, section: str, description: str, change: Any) -> None:
    @on_request(name, _S + section, description)
    def request(talk: Talk, pdu: Pdu) -> Pdu:
        return change(pdu, talk.last) if isinstance(pdu, DataOut) and isinstance(talk.last, R2T) else pdu


data_out("offset-not-checked", "11.7.6", "data at another offset are taken",
         lambda pdu, r2t: replace(pdu, buffer_offset=r2t.buffer_offset, data=pdu.data.ljust(r2t.desired_length, b"\0")))  # fmt: skip
data_out(
    "overrun-taken",
    "11.8.4",
    "data beyond the R2T are cut off and taken",
    lambda pdu, r2t: replace(pdu, data=pdu.data[: r2t.desired_length]),
)
data_out(
    "final-not-checked",
    "11.7.1",
    "a sequence ends without its F bit",
    lambda pdu, r2t: replace(pdu, final=True),
)
data_out("data-sn-not-checked", "7.9", "any DataSN is taken", lambda pdu, r2t: replace(pdu, data_sn=0))


@on_request("data-out-unknown-task", _S + "11.7", "data for no task are answered")
def data_out_unknown(talk: Talk, pdu: Pdu) -> Pdu:
    if isinstance(pdu, DataOut) and pdu.itt not in talk.commands:
        last: Any = talk.last
        talk.say(
            ScsiResponse(
                itt=pdu.itt, stat_sn=pdu.exp_stat_sn, exp_cmd_sn=last.exp_cmd_sn, max_cmd_sn=last.max_cmd_sn
            )
        )
    return pdu


# Digests and PDUs


@on_request("header-digest-not-checked", _S + "7.8", "a wrong header digest is not noticed")
def header_digest_not_checked(talk: Talk, pdu: Pdu) -> Any:
    return talk.wire(pdu) if talk.memory["frame"].header_digest_wrong else pdu


@on_request("data-digest-not-checked", _S + "7.8", "a wrong data digest is not noticed")
def data_digest_not_checked(talk: Talk, pdu: Pdu) -> Any:
    return talk.wire(pdu) if talk.memory["frame"].data_digest_wrong else pdu


@mutant(
    "header-digest-of-target",
    _S + "11.2.3",
    "the target's header digest is wrong",
    spoil={"spoil_header_digest": 1},
)
def header_digest_of_target(talk: Talk, pdu: Pdu) -> Pdu:
    return pdu


@mutant(
    "data-digest-of-target",
    _S + "11.2.3",
    "the target's data digest is wrong",
    spoil={"spoil_data_digest": 1},
)
def data_digest_of_target(talk: Talk, pdu: Pdu) -> Pdu:
    return pdu


@mutant(
    "data-digest-reject-missing", _S + "7.8", "a wrong data digest is passed over in silence", keeps_open=True
)
def reject_missing(talk: Talk, pdu: Pdu) -> Pdu | None:
    return None if isinstance(pdu, Reject) else pdu


sets("reject-header-lost", "11.17.4", "a Reject does not carry the header", Reject, data=b"")


@mutant("digest-on-empty-data", _S + "11.2.3", "a PDU without data has a data digest")
def digest_on_empty(talk: Talk, pdu: Pdu) -> Any:
    return [pdu, bytes(4)] if talk.digests[1] and not pdu.data and not isinstance(pdu, LoginResponse) else pdu


@mutant("padding-not-zero", _S + "11.1", "the padding is not zero", padding=b"\xee")
def padding_not_zero(talk: Talk, pdu: Pdu) -> Pdu:
    return pdu


@on_request("reserved-checked", _S + "11", "reserved bits of a request are an error")
def reserved_checked(talk: Talk, pdu: Pdu) -> Pdu | None:
    frame, last = talk.memory["frame"], talk.last
    if isinstance(pdu, ScsiCommand) and any(reserved_bits(frame.bhs)) and last is not None:
        talk.say(Reject(reason=9, stat_sn=pdu.exp_stat_sn, data=frame.bhs))
        return None
    return pdu


@mutant("opcode-ignored", _S + "11.2.1.2", "an unknown opcode is passed over", keeps_open=True)
def opcode_ignored(talk: Talk, pdu: Pdu) -> Pdu | None:
    return None if isinstance(pdu, Reject) else pdu


@mutant("coalesced-lost", _S + "11.1", "of several PDUs in one segment one is lost")
def coalesced_lost(talk: Talk, pdu: Pdu) -> Pdu | None:
    talk.memory["count"] = talk.memory.get("count", 0) + isinstance(pdu, NopIn)
    return None if isinstance(pdu, NopIn) and talk.memory["count"] == 3 else pdu


@mutant("reject-then-deaf", _S + "7.3", "after a Reject nothing is answered", keeps_open=True)
def reject_then_deaf(talk: Talk, pdu: Pdu) -> Pdu | None:
    if talk.memory.get("deaf"):
        return None
    talk.memory["deaf"] = isinstance(pdu, Reject)
    return pdu


# NOP


def nop(name: str, section: str, description: str, change: Any) -> None:
    @mutant(name, _S + section, description)
    def reply(talk: Talk, pdu: Pdu) -> Any:
        return change(pdu) if isinstance(pdu, NopIn) else pdu


nop("nop-echo", "11.19", "the last byte of a ping is lost", lambda pdu: replace(pdu, data=pdu.data[:-1]))
nop("nop-itt", "11.19", "a ping's answer has another tag", lambda pdu: replace(pdu, itt=pdu.itt ^ 1))
nop("nop-ttt", "11.19.1", "a ping's answer has a target transfer tag", lambda pdu: replace(pdu, ttt=1))
nop("nop-final", "11.19", "a NOP-In has not its fixed bit", lambda pdu: replace(pdu, final=False))


@on_request("nop-unasked", _S + "11.18.1", "a NOP-Out that wants no answer gets one")
def nop_unasked(talk: Talk, pdu: Pdu) -> Pdu:
    if isinstance(pdu, NopOut) and pdu.itt == NO_TAG:
        last: Any = talk.last
        talk.say(
            NopIn(itt=1, stat_sn=pdu.exp_stat_sn, exp_cmd_sn=last.exp_cmd_sn, max_cmd_sn=last.max_cmd_sn)
        )
    return pdu


@mutant("nop-order", _S + "4.2.2.1", "pings are answered out of their order")
def nop_order(talk: Talk, pdu: Pdu) -> Any:
    if not isinstance(pdu, NopIn):
        return pdu
    held = talk.memory.pop("held", None)
    if held is not None:
        return [pdu, held]
    talk.memory["held"] = pdu
    return None


# Tasks


def task(name: str, section: str, description: str, functions: set[int], response: int) -> None:
    @mutant(name, section, description)
    def reply(talk: Talk, pdu: Pdu) -> Pdu:
        asked = talk.tasks.get(pdu.itt)
        mine = isinstance(pdu, TaskResponse) and asked is not None and asked.function in functions
        return replace(pdu, response=response) if mine else pdu


task("abort-ignored", _S + "11.5.1", "ABORT TASK is not supported", {1}, 5)
task("lu-reset-refused", _S + "11.5.1", "LOGICAL UNIT RESET is not supported", {5}, 5)
task("reassign-complete", _S + "7.2.2", "TASK REASSIGN is done at level 0", {8}, 0)
sets(
    "task-itt",
    "11.6",
    "a task management response has another tag",
    TaskResponse,
    itt=lambda pdu: pdu.itt ^ 0x100,
)


def does(name: str, section: str, description: str, functions: set[int]) -> None:
    """A mutant that reports functions as done which the target does not even know."""

    @on_request(name, section, description)
    def request(talk: Talk, pdu: Pdu) -> Pdu | None:
        if not isinstance(pdu, TaskRequest) or pdu.function not in functions:
            return pdu
        last: Any = talk.last
        talk.say(
            TaskResponse(
                itt=pdu.itt, stat_sn=pdu.exp_stat_sn, exp_cmd_sn=last.exp_cmd_sn, max_cmd_sn=last.max_cmd_sn
            )
        )
        return None


does("function-unknown-complete", _S + "11.5.1", "an undefined function is done", {0, 13, 127})
does("query-without-level", "RFC 7144 6.3", "QUERY TASK is done without protocol level 2", {9, 10, 12})
does("nexus-reset-without-level", "RFC 7144 6.3", "I_T NEXUS RESET is done without protocol level 2", {11})
does("task-in-discovery", _S + "4.3", "task management is done in a discovery session", {5})


def not_done(name: str, function: int) -> None:
    @mutant(
        name, _S + "4.2.3.3, 11.5.1", "the function is reported as done, and the task ends well all the same"
    )
    def reply(talk: Talk, pdu: Pdu) -> Any:
        asked = talk.tasks.get(pdu.itt)
        if isinstance(pdu, TaskResponse) and asked is not None and asked.function == function:
            writes = [one for one in talk.commands.values() if one.write]
            after = [
                ScsiResponse(
                    itt=one.itt, stat_sn=pdu.stat_sn + 1, exp_cmd_sn=pdu.exp_cmd_sn, max_cmd_sn=pdu.max_cmd_sn
                )
                for one in writes[-1:]
            ]
            return [pdu, *after]
        return pdu


not_done("abort-not-done", 1)
not_done("lu-reset-not-done", 5)


def attention(pdu: Pdu) -> bool:
    return isinstance(pdu, ScsiResponse) and bool(pdu.sense) and decode_sense(pdu.sense).key == 6


def good(pdu: Any) -> Any:
    return replace(pdu, status=0, data=b"", underflow=False, overflow=False, residual=0)


def check(pdu: Any, key: int, asc: int) -> ScsiResponse:
    sense = fixed_sense(key, asc)
    return ScsiResponse(
        itt=pdu.itt, status=2, stat_sn=pdu.stat_sn, exp_cmd_sn=pdu.exp_cmd_sn, max_cmd_sn=pdu.max_cmd_sn,
        data=len(sense).to_bytes(2, "big") + sense,
    )  # fmt: skip


@mutant("unit-attention-lost", "SAM-5 5.14", "a unit attention is never reported")
def attention_lost(talk: Talk, pdu: Pdu) -> Pdu:
    return good(pdu) if attention(pdu) else pdu


@mutant("unit-attention-twice", "SAM-5 5.14", "a unit attention is reported twice")
def attention_twice(talk: Talk, pdu: Pdu) -> Pdu:
    if attention(pdu):
        talk.memory["again"] = pdu
        return pdu
    if isinstance(pdu, ScsiResponse) and "again" in talk.memory and not pdu.status:
        old = talk.memory.pop("again")
        return replace(pdu, status=2, data=old.data)
    return pdu


@mutant("attention-on-inquiry", "SAM-5 5.14", "INQUIRY reports a unit attention")
def attention_on_inquiry(talk: Talk, pdu: Pdu) -> Pdu:
    pending = isinstance(pdu, DataIn) and pdu.has_status and talk.cdb(pdu)[0] == 0x12
    return check(pdu, 6, 0x2900) if pending else pdu


# Text, logout, SNACK


def listing(name: str, description: str, rewrite: Any) -> None:
    text(name, "C", description, rewrite, TextResponse)


listing(
    "send-targets-name",
    "a target is left out of the list",
    lambda pairs, talk: [pair for pair in pairs if pair[0] != "TargetName"] or pairs,
)
listing("send-targets-address", "an address has no portal group tag",
        lambda pairs, talk: [(name, value.partition(",")[0] if name == "TargetAddress" else value) for name, value in pairs])  # fmt: skip
listing("send-targets-first", "an address stands before its target", lambda pairs, talk: pairs[::-1])
listing("send-targets-other", "other targets than the one asked for are listed",
        lambda pairs, talk: [*pairs, ("TargetName", "iqn.2024-01.org.example:another")])  # fmt: skip
sets("text-itt", "11.11.2", "a Text Response has another tag", TextResponse, itt=lambda pdu: pdu.itt ^ 0x100)
sets("text-not-final", "11.11.1", "a whole answer is not final", TextResponse, final=False, ttt=7)


def speaks(name: str, section: str, description: str, kind: type[Pdu], answer: Any) -> None:
    """A mutant that answers a request itself, besides whatever the target does."""

    @on_request(name, _S + section, description)
    def request(talk: Talk, pdu: Pdu) -> Pdu:
        if isinstance(pdu, kind) and talk.last is not None:
            last: Any = talk.last
            talk.say(
                replace(answer(pdu), itt=pdu.itt, exp_cmd_sn=last.exp_cmd_sn, max_cmd_sn=last.max_cmd_sn)
            )
        return pdu


speaks(
    "scsi-in-discovery",
    "4.3",
    "a SCSI command is executed in a discovery session",
    ScsiCommand,
    lambda pdu: ScsiResponse(stat_sn=pdu.exp_stat_sn),
)
speaks(
    "snack-answered",
    "11.16",
    "a SNACK is served at level 0",
    SnackRequest,
    lambda pdu: DataIn(data=bytes(36)),
)
sets("logout-failed", "11.15.1", "a logout fails", LogoutResponse, response=3)
sets(
    "logout-cid", "11.15.1", "a logout of a connection that is not there succeeds", LogoutResponse, response=0
)
sets(
    "logout-itt",
    "11.15",
    "a Logout Response has another tag",
    LogoutResponse,
    itt=lambda pdu: pdu.itt ^ 0x100,
)
sets("time2wait", "11.15.3", "Time2Wait is over its range", LogoutResponse, time2wait=9999)


@on_request("logout-recovery", _S + "11.15.1", "removal for recovery succeeds at level 0")
def logout_recovery(talk: Talk, pdu: Pdu) -> Pdu | None:
    if type(pdu).__name__ == "LogoutRequest" and pdu.reason == 2:  # type: ignore[attr-defined]
        last: Any = talk.last
        talk.say(
            LogoutResponse(
                itt=pdu.itt, stat_sn=last.stat_sn + 1, exp_cmd_sn=last.exp_cmd_sn, max_cmd_sn=last.max_cmd_sn
            )
        )
        return None
    return pdu


@mutant("logout-open", _S + "11.14.1", "the connection stays open after the logout", keeps_open=True)
def logout_open(talk: Talk, pdu: Pdu) -> Pdu:
    return pdu


# SCSI


def scsi(
    name: str, section: str, description: str, opcode: int, change: Any, *, evpd: int | None = None
) -> None:
    """A mutant that changes the data of a command; ``change(bytearray, cdb)`` in place, or returns new data."""

    @mutant(name, section, description)
    def reply(talk: Talk, pdu: Pdu) -> Pdu:
        block = talk.cdb(pdu)
        if (
            not isinstance(pdu, DataIn)
            or block[0] != opcode
            or (evpd is not None and (not block[1] & 1 or block[2] != evpd))
        ):
            return pdu
        data = bytearray(pdu.data)
        changed = change(data, block)
        return replace(pdu, data=bytes(data if changed is None else changed))


def put(at: int, value: int) -> Any:
    def change(data: bytearray, block: bytes) -> None:
        if len(data) > at:
            data[at] = value

    return change


def add(at: int, value: int) -> Any:
    def change(data: bytearray, block: bytes) -> None:
        if len(data) > at:
            data[at] = (data[at] + value) & 0xFF

    return change


def standard(change: Any) -> Any:
    return lambda data, block: None if block[1] & 1 else change(data, block)


def cut(change: Any, under: int = 64) -> Any:
    """Only where the allocation length is short (the last byte of a 6-byte CDB's)."""
    return lambda data, block: change(data, block) if block[4] < under else None


_INQ, _VPD = "SPC-4 INQUIRY", "SPC-4 VPD"
scsi("inquiry-type", _INQ, "the peripheral device type is another", 0x12, standard(put(0, 0x05)))
scsi("inquiry-length", _INQ, "ADDITIONAL LENGTH is one too many", 0x12, standard(add(4, 1)))
scsi(
    "inquiry-truncation",
    _INQ,
    "ADDITIONAL LENGTH follows the allocation length",
    0x12,
    cut(standard(put(4, 0))),
)
scsi("inquiry-ascii", _INQ, "the vendor is not ASCII", 0x12, standard(put(9, 0x01)))
scsi(
    "vpd-order",
    _VPD,
    "the pages are not in order",
    0x12,
    lambda data, block: data[:4] + data[4:][::-1],
    evpd=0,
)
scsi("vpd-code", _VPD, "a page carries another code", 0x12, put(1, 0x81), evpd=0x80)
scsi(
    "designators-missing",
    _VPD,
    "the unit has no designator of its own",
    0x12,
    lambda data, block: bytes((data[0], 0x83, 0, 0)),
    evpd=0x83,
)
scsi("naa-length", _VPD, "an NAA designator is cut", 0x12,
     lambda data, block: bytes(data[:2]) + b"\0\x0e" + bytes(data[4:7]) + b"\x0a" + bytes(data[8:18]), evpd=0x83)  # fmt: skip
scsi("vpd-truncation", _VPD, "PAGE LENGTH follows the allocation length", 0x12, cut(put(3, 4)), evpd=0x83)
scsi("block-limits-length", "SBC-3 Block Limits", "the page has another length", 0x12,
     lambda data, block: bytes(data[:2]) + b"\0\x10" + bytes(data[4:20]), evpd=0xB0)  # fmt: skip
scsi("capacity-mismatch", "SBC-3 READ CAPACITY", "the two READ CAPACITY differ", 0x25, add(3, 1))
scsi("lun-not-reported", "SPC-4 REPORT LUNS", "the unit is not listed", 0xA0, lambda data, block: bytes(8))
scsi("lun-list-length", "SPC-4 REPORT LUNS", "LUN LIST LENGTH is 8 too many", 0xA0, add(3, 8))
scsi(
    "report-luns-long",
    "SPC-4 REPORT LUNS",
    "the allocation length is not kept",
    0xA0,
    lambda data, block: bytes(data).ljust(16, b"\0"),
)
scsi("mode-length", "SPC-4 MODE SENSE(6)", "MODE DATA LENGTH is one too many", 0x1A, add(0, 1))
scsi("request-sense", "SPC-4 REQUEST SENSE", "old sense data are returned", 0x03, put(2, 0x05))
scsi("read-corrupt", "SBC-3 READ", "a byte of what is read is another", 0x88, add(300, 1))


@mutant("tur-busy", "SPC-4 TEST UNIT READY", "the unit is BUSY for ever")
def tur_busy(talk: Talk, pdu: Pdu) -> Pdu:
    return replace(pdu, status=8) if isinstance(pdu, ScsiResponse) and talk.cdb(pdu)[0] == 0 else pdu


@mutant("sense-lost", "SAM-5 5.13", "CHECK CONDITION comes without sense data")
def sense_lost(talk: Talk, pdu: Pdu) -> Pdu:
    return (
        replace(pdu, data=b"")
        if isinstance(pdu, ScsiResponse) and pdu.status == 2 and talk.cdb(pdu)[0] == 0xFF
        else pdu
    )


@mutant("sense-length", _S + "11.4.7.2", "SenseLength is more than there is")
def sense_length(talk: Talk, pdu: Pdu) -> Pdu:
    bad = isinstance(pdu, ScsiResponse) and pdu.status == 2 and talk.cdb(pdu)[0] == 0xFF
    return replace(pdu, data=b"\x01\x00" + pdu.data[2:]) if bad else pdu


def forgives(
    name: str, section: str, description: str, opcodes: set[int], key: int, asc: int | None = None
) -> None:
    """A mutant that answers GOOD where the sense data say otherwise."""

    @mutant(name, section, description)
    def reply(talk: Talk, pdu: Pdu) -> Pdu:
        if not isinstance(pdu, ScsiResponse) or not pdu.sense or talk.cdb(pdu)[0] not in opcodes:
            return pdu
        sense = decode_sense(pdu.sense)
        return good(pdu) if sense.key == key and asc in (None, sense.asc) else pdu


forgives("inquiry-page-accepted", _INQ, "a page code without EVPD is accepted", {0x12}, 5)
forgives("vpd-page-accepted", _VPD, "a page that is not there is accepted", {0x12}, 5)
forgives("mode-page-accepted", "SPC-4 MODE SENSE", "a mode page that is not there is accepted", {0x1A}, 5)
forgives("lba-range-good", "SBC-3", "blocks past the end are no error", {0x28, 0x88, 0x93}, 5, 0x2100)
forgives("lba-range-wrap", "SBC-3", "an LBA at the top wraps", {0x88}, 5, 0x2100)
forgives("miscompare-good", "SBC-3 COMPARE AND WRITE", "a miscompare is no error", {0x89}, 0xE)
forgives("wrong-lun-answered", "SAM-5 4.7", "a unit that is not there answers", {0x00}, 5, 0x2500)
forgives(
    "out-length-accepted", "SPC-4 PERSISTENT RESERVE OUT", "a short parameter list is accepted", {0x5F}, 5
)
forgives(
    "out-action-accepted",
    "SPC-4 PERSISTENT RESERVE OUT",
    "an undefined service action is accepted",
    {0x5F},
    5,
)
forgives("preempt-zero-accepted", "SPC-4 preempting", "PREEMPT of key 0 is accepted", {0x5F}, 5, 0x2600)


@mutant("miscompare-offset", "SBC-3 COMPARE AND WRITE", "INFORMATION is not the offset of the miscompare")
def miscompare_offset(talk: Talk, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiResponse) or talk.cdb(pdu)[0] != 0x89 or not pdu.sense:
        return pdu
    sense = fixed_sense(0xE, 0x1D00, information=1)
    return replace(pdu, data=len(sense).to_bytes(2, "big") + sense)


# Reservations

_WRITES, _READS = {0x0A, 0x2A, 0x8A, 0xAA}, {0x08, 0x28, 0x88, 0xA8}
_PR = "SPC-4 reservations"


def enforces(
    name: str,
    description: str,
    opcodes: set[int],
    *,
    conflict: bool,
    who: str = "",
    actions: set[int] | None = None,
) -> None:
    """A mutant that turns a RESERVATION CONFLICT into GOOD, or GOOD into a conflict."""

    @mutant(name, _PR, description)
    def reply(talk: Talk, pdu: Pdu) -> Pdu:
        block = talk.cdb(pdu)
        ends = isinstance(pdu, ScsiResponse) or (isinstance(pdu, DataIn) and pdu.has_status)
        if not ends or block[0] not in opcodes or not talk.name.endswith(who):
            return pdu
        if actions is not None and block[1] & 0x1F not in actions:
            return pdu
        status: int = pdu.status  # type: ignore[attr-defined]
        if conflict and status == 0:
            return ScsiResponse(
                itt=pdu.itt,
                status=0x18,
                stat_sn=pdu.stat_sn,
                exp_cmd_sn=pdu.exp_cmd_sn,
                max_cmd_sn=pdu.max_cmd_sn,
            )  # type: ignore[attr-defined]
        return good(pdu) if not conflict and status == 0x18 else pdu


enforces("reservation-write", "others may write", _WRITES, conflict=False)
enforces("reservation-read", "others may read under exclusive access", _READS, conflict=False)
enforces("registrant-write", "a registrant may not write", _WRITES, conflict=True, who="-b")
enforces("registrant-read", "a registrant may not read", _READS, conflict=True, who="-b")
enforces("release-ignored", "nobody may write after a release", _WRITES, conflict=True, who="-b")
enforces("register-any-key", "REGISTER with a wrong key succeeds", {0x5F}, conflict=False, actions={0})
enforces(
    "reserve-any-key",
    "RESERVE succeeds with any key and over any reservation",
    {0x5F},
    conflict=False,
    actions={1},
)
enforces("preempt-no-such-key", "PREEMPT of nobody succeeds", {0x5F}, conflict=False, actions={4})
enforces("reservation-inquiry", "INQUIRY conflicts with a reservation", {0x12}, conflict=True, who="-b")
enforces("reserve6-ignored", "RESERVE(6) keeps nobody out", _WRITES | {0x16}, conflict=False)


def told(name: str, asc: int, description: str) -> None:
    @mutant(name, _PR + ", unit attention", description)
    def reply(talk: Talk, pdu: Pdu) -> Pdu:
        return good(pdu) if attention(pdu) and decode_sense(pdu.sense).asc == asc else pdu


told("release-attention", 0x2A04, "nobody is told of a release")
told("clear-attention", 0x2A03, "nobody is told of a clear")
told("preempt-attention", 0x2A05, "nobody is told of a preemption")


def pr_in(name: str, action: int, description: str, change: Any) -> None:
    @mutant(name, "SPC-4 PERSISTENT RESERVE IN", description)
    def reply(talk: Talk, pdu: Pdu) -> Pdu:
        block = talk.cdb(pdu)
        if not isinstance(pdu, DataIn) or block[0] != 0x5E or block[1] & 0x1F != action:
            return pdu
        return replace(pdu, data=bytes(change(bytearray(pdu.data), talk)))


def forget_last(data: bytearray, talk: Talk) -> bytes:
    body = bytes(data[8:])[:-8]
    return bytes(data[:4]) + len(body).to_bytes(4, "big") + body


def other_type(data: bytearray, talk: Talk) -> bytes:
    if len(data) > 21:
        data[21] = data[21] % 8 + 1
    return data


def stuck(data: bytearray, talk: Talk) -> bytes:
    return talk.shared.setdefault("generation", bytes(data[:4])) + bytes(data[4:])


def ghost(data: bytearray, talk: Talk) -> bytes:
    return bytes(data[:4]) + b"\0\0\0\x08" + bytes.fromhex("a1a2a3a4a5a6a7a8")


def old_holder(data: bytearray, talk: Talk) -> bytes:
    if len(data) >= 24:
        data[8:16] = bytes.fromhex("a1a2a3a4a5a6a7a8")
    return data


def nobody(data: bytearray, talk: Talk) -> bytes:
    return bytes(data[:4]) + bytes(4)


def no_holder(data: bytearray, talk: Talk) -> bytes:
    if len(data) > 20:
        data[20] &= 0xFE
    if len(data) > 8 + 24 + 12:
        at = 8 + 24 + int.from_bytes(data[28:32], "big") + 12
        if at < len(data):
            data[at] &= 0xFE
    return data


pr_in("registration-lost", 0, "a registration is not listed", forget_last)
pr_in("generation-stuck", 0, "PRGENERATION does not count", stuck)
pr_in("clear-ignored", 0, "a registration is left after CLEAR", ghost)
pr_in("keys-truncation", 0, "ADDITIONAL LENGTH follows the allocation length",
      lambda data, talk: bytes(data[:4]) + (len(data) - 8).to_bytes(4, "big") + bytes(data[8:]))  # fmt: skip
pr_in("reservation-type", 1, "another type is reported", other_type)
pr_in("preempt-ignored", 1, "the old holder is reported after PREEMPT", old_holder)
pr_in("release-foreign", 1, "a release by another ends the reservation", nobody)
pr_in("capabilities-length", 2, "LENGTH is not 8", lambda data, talk: b"\0\x07" + bytes(data[2:]))
pr_in("full-status-holder", 3, "the holder is not marked", no_holder)
