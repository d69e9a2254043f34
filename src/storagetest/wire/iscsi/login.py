"""The login phase from the initiator's side, without I/O: requests out, responses in (RFC 7143 6.3, 12.1.3).

A :class:`Dialogue` is asked for the first request and then, response by response, for the next one until
there is none. Rules:

1. With credentials it begins in the security stage and proves itself by CHAP (and asks the target to, where a
   target's secret is given); without, it begins in the operational stage, which 6.3.1 allows.
2. What the target proposes and we had not offered is answered by the table of keys (6.2.2).
3. A response with the C bit gets an empty request until the text is whole (6.2, 11.12.2).
4. A response that cannot be followed (wrong stage, T unasked, no challenge) is a
   :class:`~storagetest.errors.RemoteProtocolError`; a refusal is no error: :attr:`Dialogue.status` says it.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from storagetest.errors import RemoteProtocolError
from storagetest.wire.iscsi.chap import challenge_of, hexadecimal, response
from storagetest.wire.iscsi.codes import Stage
from storagetest.wire.iscsi.keys import (
    KEYS,
    NOT_UNDERSTOOD,
    RESERVED_WORDS,
    Negotiation,
    Pairs,
    answer,
    binary,
    format_text,
    outcome,
    parse_text,
)
from storagetest.wire.iscsi.pdu import LoginRequest, LoginResponse

__all__ = ["DEFAULT_OFFER", "Credentials", "LoginNegotiation", "random_isid"]

DEFAULT_OFFER: Mapping[str, str] = {
    "HeaderDigest": "None",
    "DataDigest": "None",
    "InitialR2T": "No",
    "ImmediateData": "Yes",
    "MaxRecvDataSegmentLength": "262144",
    "MaxBurstLength": "262144",
    "FirstBurstLength": "65536",
    "DefaultTime2Wait": "0",
    "DefaultTime2Retain": "0",
    "MaxOutstandingR2T": "1",
    "MaxConnections": "1",
    "ErrorRecoveryLevel": "0",
}
"""What a plain session offers; a case overrides what it is about."""

_ROUNDS = 32


def random_isid() -> bytes:
    """Return an ISID of the random format (RFC 7143 11.12.5: T is 10b)."""
    return b"\x80" + os.urandom(5)


@dataclass(frozen=True, slots=True)
class Credentials:
    """CHAP names and secrets; the ``target_…`` ones ask the target to prove itself too."""

    name: str
    secret: bytes
    target_name: str = ""
    target_secret: bytes = b""
    algorithms: str = "5"

    def __repr__(self) -> str:
        return f"Credentials({self.name!r})"


class LoginNegotiation:
    """One login. ``identity`` is what is declared first: InitiatorName, SessionType, TargetName."""

    def __init__(
        self,
        identity: Mapping[str, str],
        *,
        offer: Mapping[str, str] = DEFAULT_OFFER,
        credentials: Credentials | None = None,
        isid: bytes | None = None,
        tsih: int = 0,
        cid: int = 0,
    ) -> None:
        self._identity = dict(identity)
        self._offer = dict(offer)
        self._credentials = credentials
        self._template = LoginRequest(isid=isid or random_isid(), tsih=tsih, cid=cid, itt=0)
        self._stage = Stage.SECURITY if credentials else Stage.OPERATIONAL
        self._text = b""
        self._offered = False
        self._chap_step = 0
        self._our_challenge = b""
        self._our_identifier = os.urandom(1)[0]
        self._replied: list[tuple[str, str]] = []
        self._rounds = 0
        self.status: int | None = None
        self.tsih = 0
        self.request = self._template

    @property
    def isid(self) -> bytes:
        """The session identifier's initiator half."""
        return self._template.isid

    @property
    def held(self) -> dict[str, str]:
        """What was negotiated (:func:`~storagetest.wire.iscsi.keys.outcome`)."""
        return outcome(self._offer.items(), self._replied)

    @property
    def replied(self) -> Pairs:
        """Every key that the target sent."""
        return tuple(self._replied)

    def first(self) -> LoginRequest:
        """Return the leading request."""
        pairs = list(self._identity.items())
        if self._stage is Stage.SECURITY:
            pairs.append(("AuthMethod", "CHAP"))
            return self._make(pairs, transit=False)
        self._offered = True
        return self._make([*pairs, *self._offer.items()], transit=True)

    def next(self, reply: LoginResponse) -> LoginRequest | None:
        """Return the next request, or None when the login has ended; :attr:`status` says how."""
        self._rounds += 1
        if reply.status:
            self.status = reply.status
            return None
        if self._rounds > _ROUNDS:
            raise RemoteProtocolError(f"iSCSI: a login of more than {_ROUNDS} exchanges: {reply.summary()}")
        self._text += reply.data
        if reply.continues:
            return self._make([], transit=self.request.transit)
        pairs, self._text = parse_text(self._text), b""
        self._replied += pairs
        if reply.csg != self._stage:
            raise RemoteProtocolError(f"iSCSI: a login response for stage {reply.csg}: {reply.summary()}")
        if reply.transit:
            if not self.request.transit or reply.nsg != self.request.nsg:
                raise RemoteProtocolError(f"iSCSI: a transit that was not asked for: {reply.summary()}")
            if self._stage is Stage.SECURITY:
                self._check_target(pairs)
            if reply.nsg == Stage.FULL_FEATURE:
                self.status, self.tsih = 0, reply.tsih
                return None
            self._stage, self._offered = Stage.OPERATIONAL, True
            return self._make(list(self._offer.items()), transit=True)
        return self._security(pairs) if self._stage is Stage.SECURITY else self._operational(pairs)

    def _make(self, pairs: list[tuple[str, str]], *, transit: bool) -> LoginRequest:
        following = Stage.OPERATIONAL if self._stage is Stage.SECURITY else Stage.FULL_FEATURE
        self.request = replace(
            self._template,
            transit=transit,
            csg=self._stage,
            nsg=following if transit else 0,
            data=format_text(pairs),
        )
        return self.request

    def _operational(self, pairs: Pairs) -> LoginRequest:
        answers = []
        for name, value in pairs:
            key = KEYS.get(name)
            if name in self._offer or value in RESERVED_WORDS - {"None"}:
                continue
            if key is None:
                answers.append((name, NOT_UNDERSTOOD))
            elif key.negotiation is not Negotiation.DECLARE:
                answers.append((name, answer(key, value, key.default or "None")))
        return self._make(answers, transit=True)

    def _security(self, pairs: Pairs) -> LoginRequest:
        said, known = dict(pairs), self._credentials
        if known is None:
            raise RemoteProtocolError(f"iSCSI: authentication goes on where none was asked for: {said}")
        if "CHAP_C" in said:
            asked = challenge_of(pairs)
            digest = response(known.secret, asked.identifier, asked.challenge, asked.algorithm)
            answers = [("CHAP_N", known.name), ("CHAP_R", hexadecimal(digest))]
            if known.target_secret:
                self._our_challenge = os.urandom(16)
                answers += [
                    ("CHAP_I", str(self._our_identifier)),
                    ("CHAP_C", hexadecimal(self._our_challenge)),
                ]
            return self._make(answers, transit=True)
        if said.get("AuthMethod") == "CHAP":
            return self._make([("CHAP_A", known.algorithms)], transit=False)
        if said.get("AuthMethod") == "None" or not said:
            return self._make([], transit=True)
        raise RemoteProtocolError(f"iSCSI: no way to go on with authentication from {sorted(said)}")

    def _check_target(self, pairs: Pairs) -> None:
        known = self._credentials
        if known is None or not known.target_secret:
            return
        got = binary(dict(pairs).get("CHAP_R", "")) or b""
        algorithm = int(next((value for name, value in self._replied if name == "CHAP_A"), "5"))
        want = response(known.target_secret, self._our_identifier, self._our_challenge, algorithm)
        if not hmac.compare_digest(got, want):
            raise RemoteProtocolError("iSCSI: the target's CHAP response is not that of its secret")
