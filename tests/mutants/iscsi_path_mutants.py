"""Broken paths of the data of a command that is no plain write.

The rule, from the text: data come as immediate data, unsolicited, or after R2Ts (RFC 7143 4.2.5.2, MUST).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from iscsi_proxy_connection import Out, ProxyConnection, on_request

from storagetest.wire.iscsi.codes import NO_TAG
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataOut, ScsiCommand

WRITES = (0x0A, 0x2A, 0x8A, 0xAA)


def loses(row: str, when: Callable[[DataOut, ScsiCommand], bool]) -> None:
    """A mutant that takes zeroes for the data of Data-Out that belong to no plain write."""

    @on_request(row, kind="mixed")
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        command = talk.commands.get(pdu.itt)
        if (
            not isinstance(pdu, DataOut)
            or command is None
            or command.cdb[0] in WRITES
            or not when(pdu, command)
        ):
            return pdu
        return replace(pdu, data=bytes(len(pdu.data)))


loses("path-solicited | RFC 7143 4.2.5.2 | solicited data are zeroes, of all commands but writes",
      lambda pdu, command: pdu.ttt != NO_TAG and not command.data)  # fmt: skip
loses("path-pieces | RFC 7143 11.7 | data of Data-Out after the first are zeroes, of all commands but writes",
      lambda pdu, command: pdu.buffer_offset > 0 and not command.data)  # fmt: skip
loses("path-split | RFC 7143 4.2.5.2 | data after immediate data are zeroes, of all commands but writes",
      lambda _pdu, command: bool(command.data))  # fmt: skip
loses("path-unsolicited | RFC 7143 4.2.5.2 | unsolicited Data-Out are zeroes, of all commands but writes",
      lambda pdu, _command: pdu.ttt == NO_TAG)  # fmt: skip
