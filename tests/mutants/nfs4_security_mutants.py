"""Broken rules of RPCSEC_GSS, SECINFO and RPC-with-TLS (RFC 2203, RFC 7530, RFC 9289).

A proxy has no keys, so the server itself breaks them: ``tests/controllers/secure_nfs.py``. The list was written
from the standards before the cases.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mutant_row import cells
from proxy import Rewrite
from secure_nfs import Fault

GSS = """
gss-init-refused | RFC 2203 5.2.3.1 | no context is created
gss-init-verifier | RFC 2203 5.2.3.1 | the verifier of a context's creation is the checksum of another number
gss-init-verifier-none | RFC 2203 5.2.3.1 | the verifier of a context's creation is of AUTH_NONE
gss-init-window | RFC 2203 5.2.3.1 | the sequence window is 0
gss-init-same-handle | RFC 2203 5.2.3.1 | all contexts have one handle
gss-init-garbage | RFC 2203 5.2.3.2 | a token that is none makes a context
gss-init-procedure | RFC 2203 5.2.2 | a context is created by COMPOUND
gss-continue-accepted | RFC 2203 5.2.2 | a creation that was not begun is continued
gss-version-accepted | RFC 2203 5.1 | another version is accepted
gss-version-status | RFC 2203 5.1 | another version ends with AUTH_FAILED
gss-handle-accepted | RFC 2203 5.3.3.1 | an unknown handle stands for the last context
gss-handle-status | RFC 2203 5.3.3.3 | an unknown handle ends with AUTH_TOOWEAK
gss-header-unchecked | RFC 2203 5.3.1 | the checksum of the header is not verified
gss-header-status | RFC 2203 5.3.3.4.2 | a wrong checksum of the header ends with AUTH_TOOWEAK
gss-cred-cut | RFC 2203 5 | a credential that is cut is one of AUTH_NONE
gss-proc-accepted | RFC 2203 5 | an undefined gss_proc is RPCSEC_GSS_DATA
gss-service-accepted | RFC 2203 5.3.3.1 | an undefined service is rpc_gss_svc_none
gss-service-fixed | RFC 2203 5.3.1 | a context has the service of its first call
gss-connection | RFC 2203 5.3 | a context is valid on the connection of its creation only
gss-replay-executed | RFC 2203 5.3.3.1 | a sequence number that was used is executed again
gss-replay-denied | RFC 2203 5.3.3.1 | a sequence number that was used is denied, not discarded
gss-old-executed | RFC 2203 5.3.3.1 | a sequence number below the window is executed
gss-window-in-order | RFC 2203 5.3.3.1 | a sequence number lower than the last one is discarded
gss-window-jump | RFC 2203 5.3.3.1 | a sequence number far above the window is denied
gss-forged-counts | RFC 2203 7.2.1 | a call with a wrong checksum uses its sequence number up
gss-maxseq-accepted | RFC 2203 5.3.3.3 | a sequence number over MAXSEQ is executed
gss-verifier-xid | RFC 2203 5.3.3.2 | the verifier of a reply is the checksum of the xid
gss-verifier-none | RFC 2203 5.3.3.2 | the verifier of a reply is of AUTH_NONE
gss-error-verifier | RFC 2203 5.3.3.2 | an accepted call that fails has a verifier of AUTH_NONE
gss-reply-seq | RFC 2203 5.3.3.2 | the body of a reply has the sequence number 0
gss-integ-reply-plain | RFC 2203 5.3.3.2 | the reply to a call with integrity has none
gss-integ-reply-checksum | RFC 2203 5.3.3.2 | the checksum of a reply's body is wrong
gss-priv-reply-clear | RFC 2203 5.3.3.2 | the reply to a call with privacy is wrapped, and not encrypted
gss-priv-reply-integrity | RFC 2203 5.3.3.2 | the reply to a call with privacy has integrity
gss-integ-unchecked | RFC 2203 5.3.3.4.2 | the checksum of a call's body is not verified
gss-body-status | RFC 2203 5.3.3.4.2 | a body that is not what it should be ends with SYSTEM_ERR
gss-body-seq | RFC 2203 5.3.2.2 | the sequence number in a body is not compared
gss-priv-unchecked | RFC 2203 5.3.3.4.3 | a body that cannot be decrypted is an empty COMPOUND
gss-destroy-kept | RFC 2203 5.4 | a context that was destroyed is valid
gss-destroy-silent | RFC 2203 5.4 | the destruction of a context has no reply
gss-destroy-verifier | RFC 2203 5.4 | the reply to a destruction has a verifier of AUTH_NONE
secinfo-no-gss | RFC 7530 16.31 | SECINFO lists no flavor of an export that accepts Kerberos
secinfo-mechanism | RFC 7530 16.31 | SECINFO lists another mechanism than Kerberos
secinfo-sys | RFC 7530 16.31 | SECINFO lists AUTH_SYS, which is refused
secinfo-none | RFC 7530 16.31 | SECINFO lists a service that is refused
secinfo-wrongsec | RFC 7530 3.3.1 | SECINFO needs a flavor of the export
wrongsec-flavor | RFC 7530 16.13.5 | AUTH_SYS is accepted, and SECINFO does not list it
wrongsec-service | RFC 7530 16.13.5 | a service is accepted that SECINFO does not list
wrongsec-listed | RFC 7530 16.31 | a service that SECINFO lists is refused
wrongsec-status | RFC 7530 16.13.5 | a flavor that is not accepted ends with NFS4ERR_ACCESS
"""
TLS = """
tls-token | RFC 9289 4.1 | the verifier of a reply to a probe is not STARTTLS
tls-token-longer | RFC 9289 4.1 | the verifier of a reply to a probe is longer than STARTTLS
tls-verifier-flavor | RFC 9289 4.1 | the verifier of a reply to a probe is of AUTH_TLS
tls-probe-result | RFC 9289 4.1 | the reply to a probe has a result
tls-other-procedure | RFC 9289 4.1 | a COMPOUND with AUTH_TLS is executed
tls-silent | RFC 9289 5 | no call in a session has a reply
tls-clear-goes-on | RFC 9289 4.1 | the server waits for a call in clear after STARTTLS
tls-alpn-none | RFC 9289 5 | the server selects no protocol by ALPN
tls-alpn-other | RFC 9289 5 | the server knows another protocol than sunrpc
tls-other-protocol | RFC 7301 3.2 | a client that offers another protocol has replies
tls-version | RFC 9289 5 | TLS 1.2 is accepted
tls-ends-others | RFC 9289 4.1 | a handshake ends the other connections of the client
"""
CLEAR = """
tls-probe-silent | RFC 9289 4.1 | a server without TLS has no reply to a probe
tls-probe-ends | RFC 9289 4.1 | a server without TLS closes the connection at a probe
"""


@dataclass
class SecurityMutant:
    """A rule that the server breaks."""

    name: str
    section: str
    description: str
    kind: str | None

    def rewrites(self) -> Callable[[], Rewrite]:
        """Have the next server break the rule; return a rewrite that changes nothing, and knows of it."""
        fault = Fault(self.name)
        PENDING.append(fault)
        return lambda: Knows(fault)


class Knows(Rewrite):
    """Passes everything on; ``acted`` is what the server did."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    @property
    def acted(self) -> bool:  # type: ignore[override]
        return self._fault.acted

    @acted.setter
    def acted(self, value: bool) -> None:
        """The proxy itself changes nothing."""


PENDING: list[Fault] = []
"""The fault of the next server."""


def _rows(text: str, kind: str) -> dict[str, SecurityMutant]:
    rows = (cells(line) for line in text.strip().splitlines())
    return {name: SecurityMutant(name, section, words, kind) for name, section, words in rows}


MUTANTS = {**_rows(GSS, "gss"), **_rows(TLS, "tls"), **_rows(CLEAR, "clear")}
