"""Faults of a target for the iSCSI cases: it closes, hangs, floods, or sends noise, zeros or a huge length.

Each fault occurs either at the first Login Response of a connection or at the first PDU after the login.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import iscsi_mutation_run
from iscsi_proxy_connection import IscsiMutant, ProxyConnection, honest
from mutation_run import MutationRun
from proxy import Hangup

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, LoginResponse, NopIn, ReadyToTransfer

CASES = ("ISC-LOGIN-02", "ISC-DATAIN-01", "ISC-R2T-01", "ISC-TMF-02", "ISC-DISC-01", "SCS-PR-WRITE-1")
"""One case of every kind; all pass on an honest target."""

NOTHING = "nothing"
"""No fault: run last for each case, which then has to pass."""

_NOISE = random.Random(7143).randbytes(4096)  # the same noise each time


def _closes(talk: ProxyConnection, pdu: Pdu) -> Any:
    raise Hangup


def _hangs(talk: ProxyConnection, pdu: Pdu) -> Any:
    return None


def _floods(talk: ProxyConnection, pdu: Pdu) -> Any:
    nop = NopIn(**{name: getattr(pdu, name, 0) for name in ("stat_sn", "exp_cmd_sn", "max_cmd_sn")})
    many = nop.encode() * 4096
    while True:  # until the host closes
        talk.send_to_host(many)


def _noise(talk: ProxyConnection, pdu: Pdu) -> Any:
    return _NOISE


def _zeros(talk: ProxyConnection, pdu: Pdu) -> Any:
    return bytes(4096)


def _announces(talk: ProxyConnection, pdu: Pdu) -> Any:
    return pdu.parts().override_fields(data_length=0xFFFFFF).wire(header_digest=False, data_digest=False)[:48]


def _far(talk: ProxyConnection, pdu: Pdu) -> Any:
    """Return a Data-In or R2T with an offset or length of 4 GiB."""
    if isinstance(pdu, DataIn):
        return replace(pdu, buffer_offset=0xFFFFFE00)
    return replace(pdu, desired_length=0xFFFFFFFF) if isinstance(pdu, ReadyToTransfer) else pdu


def _fault(name: str, change: Callable[[ProxyConnection, Pdu], Any], *, login: bool) -> IscsiMutant:
    def reply(talk: ProxyConnection, pdu: Pdu) -> Any:
        return change(talk, pdu) if login or not isinstance(pdu, LoginResponse) else pdu

    return IscsiMutant(name, "fault", change.__name__.strip("_"), reply=reply, keeps_open=True)


SORTS = (_closes, _hangs, _floods, _noise, _zeros, _announces)
MUTANTS = {
    one.name: one
    for one in (
        *(_fault(f"{sort.__name__.strip('_')}-in-login", sort, login=True) for sort in SORTS),
        *(_fault(f"{sort.__name__.strip('_')}-after-login", sort, login=False) for sort in SORTS),
        _fault("far-after-login", _far, login=False),
        IscsiMutant(NOTHING, "", "nothing", reply=honest),
    )
}


def _chosen(case: str) -> Sequence[str]:
    return tuple(MUTANTS) if case in CASES else ()


def mutation_run() -> MutationRun:
    """Return the mutation run with faults instead of mutants, and without the honest cases."""
    known = iscsi_mutation_run.mutation_run()
    plain = {"plain": known.kinds["plain"]}
    nowhere = {"plain": "no_such_module.py"}
    return replace(known, mutants=MUTANTS, kinds=plain, modules=nowhere, timeout=0.7, chosen=_chosen)
