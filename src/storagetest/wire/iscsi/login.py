"""The initiator's half of the login phase, without I/O: requests out, responses in (RFC 7143 6.3, 12.1.3).

:meth:`LoginNegotiation.first` returns the first request, :meth:`LoginNegotiation.next` the one after each
response, until there is none. Rules:

1. With credentials it begins in the security stage and authenticates by CHAP; with a target's secret it also
   authenticates the target. Without credentials it begins in the operational stage, which 6.3.1 allows.
2. A key that the target proposes and the initiator did not offer gets a reply by the table of keys (6.2.2).
3. A response with the C bit gets an empty request until the text is whole (6.2, 11.12.2).
4. A response that breaks the login (wrong stage, T without a request, no challenge) raises
   :class:`~storagetest.errors.RemoteProtocolError`. A refusal raises nothing; it is in
   :attr:`LoginNegotiation.status`, and the address of a redirection (11.13.5) in
   :attr:`LoginNegotiation.moved_to`.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from storagetest.errors import RemoteProtocolError
from storagetest.wire.iscsi.chap import challenge_of, hexadecimal, response
from storagetest.wire.iscsi.codes import LoginStatus, Stage
from storagetest.wire.iscsi.keys import (
    KEYS,
    NOT_UNDERSTOOD,
    RESERVED_WORDS,
    Negotiation,
    Pairs,
    binary,
    format_text,
    negotiated_reply,
    numeric,
    outcome,
    parse_text,
)
from storagetest.wire.iscsi.pdu import LoginRequest, LoginResponse

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
"""Keys that a plain session offers; a case overrides some of them."""

_ROUNDS = 32


def random_isid() -> bytes:
    """Return an ISID of the random format (RFC 7143 11.12.5: T is 10b)."""
    return b"\x80" + os.urandom(5)


@dataclass(frozen=True, slots=True)
class Credentials:
    """CHAP names and secrets; with a ``target_secret`` the target has to authenticate too."""

    name: str
    secret: bytes
    target_name: str = ""
    target_secret: bytes = b""
    algorithms: str = "5"

    def __repr__(self) -> str:
        return f"Credentials({self.name!r})"


def whole_text(
    request: LoginRequest, response: LoginResponse, send: Callable[[LoginRequest], LoginResponse]
) -> LoginResponse:
    """Return ``response`` to ``request`` with its whole text: empty requests ask for what follows (C).

    RFC 7143 6.2, 11.13.7. After 32 pieces the text is returned as it is.
    """
    for _ in range(_ROUNDS):
        if not response.continues or response.status:
            break
        more = send(replace(request, data=b"", continues=False))
        response = replace(more, data=response.data + more.data)
    return response


class LoginNegotiation:
    """One login. ``identity`` has the keys declared first: InitiatorName, SessionType, TargetName."""

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
        self._own_challenge = b""
        self._own_identifier = os.urandom(1)[0]
        self._replied: list[tuple[str, str]] = []
        self._rounds = 0
        self.status: int | None = None
        self.moved_to = ""
        self.tsih = 0
        self.request = self._template

    @property
    def isid(self) -> bytes:
        """The session identifier's initiator half."""
        return self._template.isid

    @property
    def negotiated(self) -> dict[str, str]:
        """The negotiated keys (:func:`~storagetest.wire.iscsi.keys.outcome`)."""
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
        """Return the request after ``reply``, or None if the login has ended with :attr:`status`."""
        self._rounds += 1
        if reply.status:
            self.status = reply.status
            if reply.status in (LoginStatus.MOVED_TEMPORARILY, LoginStatus.MOVED_PERMANENTLY):
                self.moved_to = dict(parse_text(reply.data)).get("TargetAddress", "")
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
                raise RemoteProtocolError(f"iSCSI: a transit that was not requested: {reply.summary()}")
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
        replies = []
        for name, value in pairs:
            key = KEYS.get(name)
            if name in self._offer or value in RESERVED_WORDS - {"None"}:
                continue
            if key is None:
                replies.append((name, NOT_UNDERSTOOD))
            elif key.negotiation is not Negotiation.DECLARE:
                replies.append((name, negotiated_reply(key, value, key.default or "None")))
        return self._make(replies, transit=True)

    def _security(self, pairs: Pairs) -> LoginRequest:
        keys, own = dict(pairs), self._credentials
        if own is None:
            raise RemoteProtocolError(f"iSCSI: the target authenticates, but the initiator did not: {keys}")
        if "CHAP_C" in keys:
            received = challenge_of(pairs)
            digest = response(own.secret, received.identifier, received.challenge, received.algorithm)
            replies = [("CHAP_N", own.name), ("CHAP_R", hexadecimal(digest))]
            if own.target_secret:
                self._own_challenge = os.urandom(16)
                replies += [
                    ("CHAP_I", str(self._own_identifier)),
                    ("CHAP_C", hexadecimal(self._own_challenge)),
                ]
            return self._make(replies, transit=True)
        if keys.get("AuthMethod") == "CHAP":
            return self._make([("CHAP_A", own.algorithms)], transit=False)
        if keys.get("AuthMethod") == "None" or not keys:
            return self._make([], transit=True)
        raise RemoteProtocolError(f"iSCSI: authentication cannot continue from {sorted(keys)}")

    def _check_target(self, pairs: Pairs) -> None:
        own = self._credentials
        if own is None or not own.target_secret:
            return
        received = binary(dict(pairs).get("CHAP_R", "")) or b""
        algorithm = numeric(next((value for name, value in self._replied if name == "CHAP_A"), "5")) or 5
        expected = response(own.target_secret, self._own_identifier, self._own_challenge, algorithm)
        if not hmac.compare_digest(received, expected):
            raise RemoteProtocolError("iSCSI: the target's CHAP response does not match its secret")
