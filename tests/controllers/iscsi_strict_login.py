"""A target that checks each login (RFC 7143 6.3): names, type, version, stage, session, and CHAP (12.1.3).

The small target takes any login. This one refuses what is wrong, ends the connection after it (11.13.5), and
ends the session whose place a login takes (6.3.5).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from iscsi_full_unit import FullConnection, FullServer, FullUnit
from iscsi_target import IQN

from storagetest.errors import RemoteProtocolError
from storagetest.wire.iscsi.chap import hexadecimal, response
from storagetest.wire.iscsi.codes import LoginStatus, Stage, TaskFunction, TaskResult
from storagetest.wire.iscsi.keys import Pairs, binary, format_text, parse_text
from storagetest.wire.iscsi.pdu import LoginRequest, LoginResponse, TaskRequest, TaskResponse

USER, SECRET = "strict-user", "strict-secret-of-16"
"""CHAP_N and the secret of :class:`ChapLogin` (chosen)."""
LONGEST_TURN = 30.0
"""Seconds that a login waits for another one of :class:`OneLogin`."""
MD5 = "5"
"""CHAP_A of MD5 (RFC 7143 12.1.3)."""


class Refused(Exception):
    """A login is refused with a status."""

    def __init__(self, status: LoginStatus) -> None:
        super().__init__(status)
        self.status = status


class StrictLogin(FullConnection):
    """A connection whose login is checked."""

    tsihs = itertools.count(1)
    keys: Mapping[str, str] = {}
    """The keys of all requests of the login."""
    own: int = 0
    """The TSIH of its session, or 0."""

    def login(self, pdu: LoginRequest) -> None:
        try:
            pairs = () if pdu.continues else parse_text(self.cut + pdu.data)
            self.keys = {**self.keys, **dict(pairs)}
            if not pdu.continues:
                self.check(pdu)
                if self.secures(pdu, pairs):
                    return
        except (Refused, RemoteProtocolError) as error:
            status = error.status if isinstance(error, Refused) else LoginStatus.INITIATOR_ERROR
            self.exp_cmd_sn = pdu.cmd_sn
            self.send(LoginResponse(itt=pdu.itt, isid=pdu.isid, csg=pdu.csg, status=status))
            raise ConnectionError from None  # the server closes
        super().login(pdu)

    def check(self, pdu: LoginRequest) -> None:
        """Raise Refused if something is wrong with a whole request (6.3, 11.12)."""
        kind = self.keys.get("SessionType", "Normal")
        if pdu.version_min:
            raise Refused(LoginStatus.UNSUPPORTED_VERSION)
        if pdu.csg not in (0, 1) or (pdu.transit and (pdu.nsg <= pdu.csg or pdu.nsg == 2)):
            raise Refused(LoginStatus.INITIATOR_ERROR)
        if kind not in ("Normal", "Discovery"):
            raise Refused(LoginStatus.SESSION_TYPE)
        if "InitiatorName" not in self.keys or (kind == "Normal" and "TargetName" not in self.keys):
            raise Refused(LoginStatus.MISSING_PARAMETER)
        if kind == "Normal" and self.keys["TargetName"] != IQN:
            raise Refused(LoginStatus.NOT_FOUND)
        if pdu.tsih:
            raise Refused(LoginStatus.NO_SESSION)

    def secures(self, pdu: LoginRequest, pairs: Pairs) -> bool:
        """Answer a request of the security stage, and return True if that is its whole answer."""
        methods = dict(pairs).get("AuthMethod", "None").split(",")
        if "None" not in methods:
            raise Refused(LoginStatus.AUTHENTICATION_FAILED)
        return False

    def send(self, pdu: Any, *, uses: bool = True) -> None:
        if isinstance(pdu, LoginResponse) and pdu.transit and pdu.nsg == Stage.FULL_FEATURE:
            self.own = next(self.tsihs) % 0xFFFF + 1
            pdu = replace(pdu, tsih=self.own)
            self.takes_place()
        super().send(pdu, uses=uses)

    def task(self, pdu: TaskRequest) -> None:
        """Take the CmdSN of a task that is aborted before it comes as received (7.11)."""
        awaited = pdu.function == TaskFunction.ABORT_TASK and pdu.referenced_itt not in self.writes
        if not awaited or pdu.ref_cmd_sn != self.exp_cmd_sn:
            super().task(pdu)
            return
        self.exp_cmd_sn = (self.exp_cmd_sn + 1) % 2**32
        self.respond(TaskResponse(itt=pdu.itt, response=TaskResult.COMPLETE))

    @property
    def is_normal(self) -> bool:
        """Whether it is of a normal session."""
        return self.keys.get("SessionType", "Normal") == "Normal"

    def takes_place(self) -> None:
        """End the session of the same initiator name and ISID (6.3.5)."""
        for other in list(self.every):
            same = isinstance(other, StrictLogin) and other is not self and other.nexus == self.nexus
            if same and other.own and self.is_normal and other.is_normal:
                other.writes.clear()
                with contextlib.suppress(OSError):
                    other.sock.shutdown(socket.SHUT_RDWR)


class OneLogin(StrictLogin):
    """It serves one login at a time, from the connection on: each other one waits for its end."""

    turn = threading.Lock()
    has_turn: bool = False

    def serve(self) -> None:
        self.has_turn = self.turn.acquire(timeout=LONGEST_TURN)
        try:
            super().serve()
        finally:
            self.end_turn()

    def send(self, pdu: Any, *, uses: bool = True) -> None:
        super().send(pdu, uses=uses)
        if isinstance(pdu, LoginResponse) and pdu.transit and pdu.nsg == Stage.FULL_FEATURE:
            self.end_turn()

    def end_turn(self) -> None:
        """Serve the next login."""
        if self.has_turn:
            self.has_turn = False
            self.turn.release()


class ChapLogin(StrictLogin):
    """A connection whose login needs CHAP, in a discovery session as well."""

    proven: bool = False
    identifier: int = 0
    challenge: bytes = b""

    def secures(self, pdu: LoginRequest, pairs: Pairs) -> bool:
        keys = dict(pairs)
        if self.proven:
            return False
        if pdu.csg != Stage.SECURITY:
            raise Refused(LoginStatus.AUTHENTICATION_FAILED)
        if "AuthMethod" in keys and "CHAP" in keys["AuthMethod"].split(","):
            self.step(pdu, ("AuthMethod", "CHAP"), ("TargetPortalGroupTag", "1"))
        elif MD5 in keys.get("CHAP_A", "").split(","):
            self.identifier, self.challenge = os.urandom(1)[0], os.urandom(16)
            shown = hexadecimal(self.challenge)
            self.step(pdu, ("CHAP_A", MD5), ("CHAP_I", str(self.identifier)), ("CHAP_C", shown))
        elif self.challenge and self.is_proof(keys):
            self.proven = True
            self.step(pdu)
        else:
            raise Refused(LoginStatus.AUTHENTICATION_FAILED)
        return True

    def is_proof(self, keys: Mapping[str, str]) -> bool:
        """Whether the keys prove the secret, and ask for no proof of the target, which has no secret."""
        right = response(SECRET.encode(), self.identifier, self.challenge)
        proves = keys.get("CHAP_N") == USER and binary(keys.get("CHAP_R", "")) == right
        return proves and "CHAP_C" not in keys

    def step(self, pdu: LoginRequest, *pairs: tuple[str, str]) -> None:
        """Send a response of the security stage; the stage changes only after the proof."""
        self.exp_cmd_sn, self.cid, transit = pdu.cmd_sn, pdu.cid, pdu.transit and self.proven
        if "InitiatorName" in self.keys:
            self.nexus = (self.keys["InitiatorName"], bytes(pdu.isid))
        self.stage = pdu.nsg if transit else pdu.csg
        nsg = pdu.nsg if transit else 0
        self.send(
            LoginResponse(
                itt=pdu.itt, isid=pdu.isid, transit=transit, csg=pdu.csg, nsg=nsg, data=format_text(pairs)
            )
        )


def strict_server(kind: type[StrictLogin] = StrictLogin) -> FullServer:
    """Return a server whose logins are checked."""
    return FullServer(FullUnit(), kind=kind)
