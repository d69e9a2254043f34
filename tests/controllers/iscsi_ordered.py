"""A target that holds requests back until those before them have come, and sends again what a SNACK asks for.

The small target serves each request at once. This one keeps to the order of CmdSN (RFC 7143 4.2.2.1). It
refuses a key that stands twice in a login (6.3), serves in a discovery session what it has to (4.3), and has
ErrorRecoveryLevel 1 (11.16).
"""

from __future__ import annotations

from typing import Any

from iscsi_choices import Choices
from iscsi_full_unit import FullServer, FullUnit
from iscsi_strict_login import Refused, StrictLogin

from storagetest.wire.iscsi.codes import LoginStatus, RejectReason, SnackType, TaskFunction, TaskResult
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import parse_text
from storagetest.wire.iscsi.pdu import (
    DataIn,
    LoginRequest,
    LogoutRequest,
    Reject,
    Request,
    SnackRequest,
    TaskRequest,
    TaskResponse,
    TextRequest,
)


class Ordered(StrictLogin):
    """A connection that delivers requests in their order."""

    def serve(self) -> None:
        self.held: dict[int, Pdu | None] = {}
        self.named: set[str] = set()
        self.kept: dict[int, Any] = {}
        self.sent_data: dict[tuple[int, int], DataIn] = {}
        super().serve()

    def check(self, pdu: LoginRequest) -> None:
        names = [name for name, _ in parse_text(self.cut + pdu.data)]
        if len(set(names)) < len(names) or self.named & set(names):
            raise Refused(LoginStatus.INITIATOR_ERROR)
        self.named |= set(names)
        super().check(pdu)

    def handle(self, pdu: Pdu) -> bool:
        if isinstance(pdu, Request) and not pdu.immediate:
            ahead = (pdu.cmd_sn - self.exp_cmd_sn) % 2**32
            if 0 < ahead < self.free:
                self.held.setdefault(pdu.cmd_sn, pdu)
                return True
        goes_on = self.serves(pdu)
        while goes_on and self.exp_cmd_sn in self.held:
            waited = self.held.pop(self.exp_cmd_sn)
            if waited is None:
                self.exp_cmd_sn = (self.exp_cmd_sn + 1) % 2**32
            else:
                goes_on = self.serves(waited)
        return goes_on

    def task(self, pdu: TaskRequest) -> None:
        """Abort a command that is held: its turn passes."""
        for number, waits in self.held.items():
            if (
                waits is not None
                and pdu.function == TaskFunction.ABORT_TASK
                and waits.itt == pdu.referenced_itt
            ):
                self.held[number] = None
                self.respond(TaskResponse(itt=pdu.itt, response=TaskResult.COMPLETE))
                return
        super().task(pdu)

    def serves(self, pdu: Pdu) -> bool:
        """Handle a request whose turn it is."""
        if self.own and not self.is_normal and not isinstance(pdu, (TextRequest, LogoutRequest)):
            self.respond(Reject(reason=RejectReason.PROTOCOL_ERROR, data=pdu.encode()[:48]))
            return True
        if isinstance(pdu, SnackRequest) and self.taken.get("ErrorRecoveryLevel", "0") != "0":
            self.again(pdu)
            return True
        return super().handle(pdu)

    def again(self, pdu: SnackRequest) -> None:
        """Send again what a SNACK names (11.16)."""
        if pdu.kind == SnackType.STATUS:
            number, self.stat_sn = self.stat_sn, pdu.beg_run
            super().send(self.kept[pdu.beg_run], uses=False)
            self.stat_sn = number
        else:
            super().send(self.sent_data[pdu.itt, pdu.beg_run], uses=False)

    def send(self, pdu: Any, *, uses: bool = True) -> None:
        if uses:
            self.kept[self.stat_sn] = pdu
        if isinstance(pdu, DataIn):
            self.sent_data[pdu.itt, pdu.data_sn] = pdu
        super().send(pdu, uses=uses)


def ordered_server() -> FullServer:
    """Return a server of such connections, with unsolicited data and ErrorRecoveryLevel 1."""
    return FullServer(FullUnit(), Choices(unsolicited=True, recovery=1), kind=Ordered)
