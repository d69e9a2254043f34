"""Broken rules of task management and of unit attentions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import ProxyConnection, mutant, on_request
from iscsi_rules import attention, check, ended_in, good, sets

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, ScsiCommand, ScsiResponse, TaskRequest, TaskResponse

# Tasks


def task(row: str, functions: set[int], response: int) -> None:
    @mutant(row)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        asked = talk.tasks.get(pdu.itt)
        mine = isinstance(pdu, TaskResponse) and asked is not None and asked.function in functions
        return replace(pdu, response=response) if mine else pdu


task("abort-ignored | RFC 7143 11.6.1 | ABORT TASK of a task that is there: LUN does not exist", {1}, 2)


@mutant(
    "abort-of-waiting-unsupported | RFC 7143 11.6.1 | ABORT TASK is not supported for what it could end",
    kind="unsolicited",
)
def abort_of_waiting_unsupported(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    asked = talk.tasks.get(pdu.itt) if isinstance(pdu, TaskResponse) else None
    if asked is None or asked.function != TaskFunction.ABORT_TASK or pdu.response != TaskResult.COMPLETE:
        return pdu
    return replace(pdu, response=TaskResult.NOT_SUPPORTED)


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


def ends_more(row: str, function: TaskFunction, also: Callable[[ScsiCommand, TaskRequest], bool]) -> None:
    """A mutant whose ``function`` ends commands that it does not name, in TASK ABORTED (SAM-5)."""

    def request(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        if isinstance(pdu, TaskRequest) and pdu.function == function:
            talk.memory["ended"] = {one.itt for one in talk.commands.values() if also(one, pdu)}
        return pdu

    @mutant(row, request=request)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Pdu:
        if not isinstance(pdu, ScsiResponse) or pdu.itt not in talk.memory.get("ended", ()):
            return pdu
        talk.memory["ended"].remove(pdu.itt)
        return ended_in(pdu, 0x40)


ends_more(
    "abort-takes-neighbour | RFC 7143 11.5.1 | ABORT TASK ends the other writes of the session, too",
    TaskFunction.ABORT_TASK,
    lambda command, request: command.write and command.itt != request.referenced_itt,
)
ends_more(
    "reset-ends-every-task | RFC 7143 11.5.1 | LOGICAL UNIT RESET ends the tasks of other units, too",
    TaskFunction.LOGICAL_UNIT_RESET,
    lambda command, request: command.lun != request.lun,
)


@mutant("second-function-refused | RFC 7143 11.5.1 | each function after the first of a session is rejected")
def second_function_refused(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, TaskResponse):
        return pdu
    is_first = not talk.memory.get("function")
    talk.memory["function"] = True
    return pdu if is_first else replace(pdu, response=TaskResult.REJECTED)


@mutant("attention-by-name | SAM-5 5.14 | no other session of the initiator gets the attention of its reset")
def attention_by_name(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, TaskResponse):
        talk.shared["resets"] = talk.name
    return good(pdu) if attention(pdu) and talk.shared.get("resets") == talk.name else pdu


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
