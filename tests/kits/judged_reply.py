"""One call and its reply before the rules that every reply has to keep."""

from __future__ import annotations

import itertools
from typing import Any

from storagetest.wire.rpc.message import decode_reply, encode_call, encode_reply

_xids = itertools.count(1)


def judged(rules: Any, program: Any, name: str, argument: Any, result: Any) -> list[str]:
    """Return the faults of one call and its reply."""
    procedure, xid = program.procedure(name), next(_xids)
    call = encode_call(program, procedure, argument, xid=xid).data
    rules.sent(call)
    reply = decode_reply(encode_reply(xid, procedure, result).data, procedure)
    found: list[str] = rules.faults("connection", call, reply)
    return found
