"""Kerberos contexts of GSS-API, by the library ``gssapi``.

It needs the extra ``kerberos`` (``pip install 'storagetest[kerberos]'``) and the MIT Kerberos libraries. The
credentials are those of the environment (``KRB5_CONFIG``, ``KRB5CCNAME``, ``KRB5_CLIENT_KTNAME``), as a user
gets them with kinit(1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storagetest.errors import ClientLacks, RemoteProtocolError, StoragetestError

if TYPE_CHECKING:
    import gssapi


def library() -> None:
    """Raise ClientLacks unless the library can be imported."""
    try:
        import gssapi  # noqa: F401, PLC0415  # an extra
    except ImportError as error:
        raise ClientLacks(
            f"RPCSEC_GSS needs the Python library gssapi: {error}. Install it with "
            "`pip install 'storagetest[kerberos]'`; it needs the Kerberos libraries (libkrb5-dev)"
        ) from None


class KerberosMechanism:
    """One side of a Kerberos context; :meth:`initiate` and :meth:`accept` make one."""

    def __init__(self, context: gssapi.SecurityContext) -> None:
        self._context = context

    @classmethod
    def initiate(cls, service: str, *, lifetime: int | None = None) -> KerberosMechanism:
        """Return the client's side of a context with ``service``, such as ``nfs@server.example.net``.

        Raises StoragetestError if the environment has no credentials.
        """
        library()
        import gssapi  # noqa: PLC0415

        try:
            creds = gssapi.Credentials(usage="initiate")
            name = gssapi.Name(service, gssapi.NameType.hostbased_service)
            flags = gssapi.RequirementFlag.mutual_authentication
            context = gssapi.SecurityContext(
                name=name, creds=creds, usage="initiate", mech=gssapi.MechType.kerberos, flags=flags,
                lifetime=lifetime,
            )  # fmt: skip
        except gssapi.raw.misc.GSSError as error:
            raise StoragetestError(
                f"no Kerberos credentials for {service}: {_line(error)}. Run kinit, or set KRB5CCNAME"
            ) from None
        return cls(context)

    @classmethod
    def accept(cls) -> KerberosMechanism:
        """Return the server's side of a context, with any key of the keytab KRB5_KTNAME."""
        library()
        import gssapi  # noqa: PLC0415

        return cls(gssapi.SecurityContext(creds=gssapi.Credentials(usage="accept"), usage="accept"))

    @property
    def is_complete(self) -> bool:
        """Whether all tokens were exchanged."""
        return bool(self._context.complete)

    @property
    def lifetime(self) -> float:
        """Seconds for which the context is valid; 0 if it has expired."""
        import gssapi  # noqa: PLC0415

        try:
            return float(self._context.lifetime)
        except gssapi.exceptions.ExpiredContextError:
            return 0.0

    def step(self, token: bytes) -> bytes:
        """Take a token of the peer, and return the next one, or b"".

        Raises StoragetestError if this side's credentials are the reason, RemoteProtocolError otherwise.
        """
        import gssapi  # noqa: PLC0415

        try:
            return bytes(self._context.step(token or None) or b"")
        except gssapi.raw.misc.GSSError as error:
            if token:
                raise RemoteProtocolError(f"a token of GSS-API is refused: {_line(error)}") from None
            raise StoragetestError(f"no Kerberos ticket for the server: {_line(error)}") from None

    def mic(self, data: bytes) -> bytes:
        """Return the checksum of ``data``."""
        return bytes(self._context.get_signature(data))

    def verify(self, data: bytes, mic: bytes) -> None:
        """Check a checksum of the peer. Raises RemoteProtocolError."""
        import gssapi  # noqa: PLC0415

        try:
            self._context.verify_signature(data, mic)
        except gssapi.raw.misc.GSSError as error:
            raise RemoteProtocolError(f"a checksum of {len(data)} bytes is wrong: {_line(error)}") from None

    def wrap(self, data: bytes) -> bytes:
        """Return ``data``, encrypted."""
        return bytes(self._context.wrap(data, True).message)  # positional in the library

    def unwrap(self, data: bytes) -> bytes:
        """Return what the peer encrypted. Raises RemoteProtocolError, also if it is not encrypted."""
        import gssapi  # noqa: PLC0415

        try:
            found = self._context.unwrap(data)
        except gssapi.raw.misc.GSSError as error:
            raise RemoteProtocolError(f"{len(data)} wrapped bytes are refused: {_line(error)}") from None
        if not found.encrypted:
            raise RemoteProtocolError("RFC 2203 5.3.2.3: a body with privacy is not encrypted")
        return bytes(found.message)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
