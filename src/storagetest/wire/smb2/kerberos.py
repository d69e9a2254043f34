"""Kerberos for SMB sessions, by pyspnego, ``gssapi`` and ``krb5`` (MS-SMB2 3.2.4.2.3, RFC 4121).

It needs the extra ``kerberos`` (``pip install 'storagetest[kerberos]'``) and the MIT Kerberos libraries. The
realm is that of the environment (``KRB5_CONFIG``). Each context gets tickets of its own with the account's
password, so a session that is set up again has a new lifetime.
"""

from __future__ import annotations

import spnego

from storagetest.errors import AttachError, ClientLacks


def _library() -> None:
    """Raise ClientLacks unless the libraries can be imported."""
    try:
        import gssapi  # noqa: F401, PLC0415  # an extra
        import krb5  # noqa: F401, PLC0415  # pyspnego needs it
    except ImportError as error:
        raise ClientLacks(
            f"Kerberos needs the Python libraries gssapi and krb5: {error}. Install them with "
            "`pip install 'storagetest[kerberos]'`; it needs the Kerberos libraries (libkrb5-dev)"
        ) from None


def context(principal: str, password: str, host: str) -> spnego.ContextProxy:
    """Return the client's side of a context with ``cifs/HOST``.

    Raises AttachError if the KDC gives no tickets.
    """
    _library()
    try:
        return spnego.client(principal, password, hostname=host, service="cifs", protocol="kerberos")
    except spnego.exceptions.SpnegoError as error:
        raise _no_tickets(principal, error) from None


def ticket_lifetime(principal: str, password: str) -> float:
    """Return for how many seconds the tickets of the account are valid.

    Raises AttachError if the KDC gives no tickets.
    """
    _library()
    import gssapi  # noqa: PLC0415

    name = gssapi.Name(principal, gssapi.NameType.user)
    try:
        got = gssapi.raw.acquire_cred_with_password(
            name, password.encode(), usage="initiate", mechs=[gssapi.MechType.kerberos]
        )
        return float(gssapi.Credentials(got.creds).lifetime)
    except gssapi.raw.misc.GSSError as error:
        raise _no_tickets(principal, error) from None


def _no_tickets(principal: str, error: Exception) -> AttachError:
    text = " ".join(str(error).split())
    return AttachError(f"no Kerberos tickets for {principal}: {text}. Check KRB5_CONFIG and the password")
