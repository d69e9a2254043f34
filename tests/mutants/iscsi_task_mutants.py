"""Broken rules of task management and of unit attentions."""

from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import ProxyConnection, mutant, on_request
from iscsi_rules import attention, check, good, sets

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, ScsiResponse, TaskRequest, TaskResponse

# Tasks


def task(row: str, functions: set[int], response: int) -> None:
    @mutant(row)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        asked = talk.tasks.get(pdu.itt)
        mine = isinstance(pdu, TaskResponse) and asked is not None and asked.function in functions
        return replace(pdu, response=response) if mine else pdu


task("abort-ignored | RFC 7143 11.5.1 | ABORT TASK is not supported", {1}, 5)
task("lu-reset-refused | RFC 7143 11.5.1 | LOGICAL UNIT RESET is not supported", {5}, 5)
task("task-response-undefined | RFC 7143 11.6.1 | the response code is undefined", {2, 3, 4, 6}, 99)
task("reassign-complete | RFC 7143 7.2.2 | TASK REASSIGN is executed at level 0", {8}, 0)
sets(
    "task-itt | RFC 7143 11.6 | a task management response has a wrong tag",
    TaskResponse,
    itt=lambda pdu: pdu.itt ^ 0x100,
)


def does(row: str, functions: set[int]) -> None:
    """A mutant that reports functions as done which the target does not even know."""

    @on_request(row)
    def request(talk: ProxyConnection, pdu: Pdu) -> Pdu | None:
        if not isinstance(pdu, TaskRequest) or pdu.function not in functions:
            return pdu
        talk.answer(pdu, TaskResponse, stat_sn=pdu.exp_stat_sn)
        return None


does(
    "function-unknown-complete | RFC 7143 11.5.1 | an undefined function is reported as complete",
    {0, 13, 127},
)
does("query-without-level | RFC 7144 6.3 | QUERY TASK is executed without protocol level 2", {9, 10, 12})
does("nexus-reset-without-level | RFC 7144 6.3 | I_T NEXUS RESET is executed without protocol level 2", {11})
does("task-in-discovery | RFC 7143 4.3 | task management is executed in a discovery session", {5})


@mutant(
    "abort-not-done | RFC 7143 4.2.3.3, 11.5.1 | "
    "the function is reported as complete, and the task still ends with GOOD"
)
def abort_not_done(talk: ProxyConnection, pdu: Pdu) -> Any:
    asked = talk.tasks.get(pdu.itt)
    if not isinstance(pdu, TaskResponse) or asked is None or asked.function != 1:
        return pdu
    numbers = {"stat_sn": pdu.stat_sn + 1, "exp_cmd_sn": pdu.exp_cmd_sn, "max_cmd_sn": pdu.max_cmd_sn}
    writes = [one for one in talk.commands.values() if one.write]
    return [pdu, *(ScsiResponse(itt=one.itt, **numbers) for one in writes[-1:])]


@mutant("unit-attention-lost | SAM-5 5.14 | a unit attention is never reported")
def attention_lost(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    return good(pdu) if attention(pdu) else pdu


@mutant("unit-attention-twice | SAM-5 5.14 | a unit attention is reported twice")
def attention_twice(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if attention(pdu):
        talk.memory["again"] = pdu
        return pdu
    if isinstance(pdu, ScsiResponse) and "again" in talk.memory and not pdu.status:
        old = talk.memory.pop("again")
        return replace(pdu, status=2, data=old.data)
    return pdu


@mutant("attention-on-inquiry | SAM-5 5.14 | INQUIRY reports a unit attention")
def attention_on_inquiry(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    pending = isinstance(pdu, DataIn) and pdu.has_status and talk.cdb(pdu)[0] == 0x12
    return check(pdu, 6, 0x2900) if pending else pdu
