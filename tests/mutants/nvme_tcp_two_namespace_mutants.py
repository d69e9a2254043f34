"""Broken rules of commands that name one of two namespaces, and are carried out on the other (Base 3.2.1).

- A Write, Write Zeroes, Dataset Management, Copy, Verify or Write Uncorrectable is of the namespace that it
  names (MUST), also while a command of the other one is in flight.
- A mark of Write Uncorrectable is of one namespace (MUST).
"""

from __future__ import annotations

from dataclasses import replace

from nvme_tcp_proxy_connection import ProxyConnection
from nvme_tcp_rules import When, commands, host, on_io, response, shared

from storagetest.wire.nvme.codes import Io, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, DecodedPdu


def _of_first(row: str, opcode: Io, *, when: When = lambda t, c: True) -> None:
    """A mutant that carries ``opcode`` out on namespace 1, whichever it names."""
    host(
        row,
        commands(
            lambda capsule, asked: CapsuleCmd(replace(asked, nsid=1).encode(), capsule.data),
            when=lambda t, c: on_io(opcode)(t, c) and c.nsid != 1 and when(t, c),
        ),
    )


_of_first("write-of-first-namespace | Base 3.2.1 | each Write is of namespace 1", Io.WRITE)
_of_first("zeroes-of-first-namespace | Base 3.2.1 | each Write Zeroes is of namespace 1", Io.WRITE_ZEROES)
_of_first("dsm-of-first-namespace | Base 3.2.1 | each deallocation is of namespace 1", Io.DATASET_MANAGEMENT)
_of_first("copy-of-first-namespace | Base 3.2.1 | each Copy is of namespace 1", Io.COPY)
_of_first("verify-of-first-namespace | Base 3.2.1 | each Verify is of namespace 1", Io.VERIFY)
_of_first(
    "mark-of-first-namespace | Base 3.2.1 | each Write Uncorrectable is of namespace 1",
    Io.WRITE_UNCORRECTABLE,
)
_of_first(
    "write-of-busy-queue | Base 3.2.1 | a Write is of namespace 1 if another command is in flight",
    Io.WRITE,
    when=lambda t, c: len(t.commands) > 1,
)


def _marks_all(notes: set[object]) -> ProxyConnection:
    """``notes``: the LBAs that were marked, in any namespace, and not written since."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        if not isinstance(got.pdu, CapsuleCmd):
            return
        asked = Command.decode(got.pdu.sqe)
        if on_io(Io.WRITE_UNCORRECTABLE)(through, asked):
            notes.add(asked.cdw10)
        elif on_io(Io.WRITE)(through, asked):
            notes.discard(asked.cdw10)

    def change(through: ProxyConnection, asked: Command | None, cqe: Cqe) -> Cqe | None:
        if asked is None or not cqe.ok or not on_io(Io.READ)(through, asked) or asked.cdw10 not in notes:
            return None
        return replace(cqe, status=StatusCode.UNRECOVERED_READ_ERROR)

    return ProxyConnection(of_host=of_host, of_target=response(change))


shared("mark-of-all-namespaces | Base 3.2.1 | a mark of one namespace is in each of them", _marks_all)
