"""Sessions whose Kerberos ticket has expired (MS-SMB2 3.3.5.2.9, 3.3.5.5).

The cases wait for the end of a ticket, so they need a target with `kerberos` and tickets of at most a minute
(`ticket_lifetime` in krb5.conf).
"""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until
from storagetest.suites.conformance.smb2.handles import second_channel
from storagetest.wire.smb2 import kerberos
from storagetest.wire.smb2.client import SmbFile, SmbSession
from storagetest.wire.smb2.codes import SESSION_BINDING, Capability, Dialect, Lock, SmbStatus
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.message import SmbMessage

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.2.9", level="MUST")]

LONGEST = 60.0
"""Seconds that a case waits for the end of a ticket at most (chosen)."""

LATE = 5.0
"""Seconds after the end of its ticket in which a server has to notice it (chosen)."""

CLIENT = b"a client of smb2"


@pytest.fixture(scope="session")
def lifetime(endpoint) -> float:
    """Return the seconds of a ticket of the account."""
    account = endpoint.account
    return kerberos.ticket_lifetime(account.principal, account.password) if account.kerberos else 0.0


@pytest.fixture
def file(bench, endpoint, path, lifetime) -> SmbFile:
    """Return a locked file in a session whose ticket has ended."""
    if not lifetime:
        pytest.skip("a session by NTLM does not expire: the target has no `kerberos`")
    if lifetime > LONGEST:
        pytest.skip(f"tickets are valid for {lifetime:g} s: the cases wait for {LONGEST:g} s at most")
    opened = bench.session([Dialect.SMB_3_0_2], guid=CLIENT).tree(endpoint.share).open(path)
    expect(opened.lock((0, 1, Lock.EXCLUSIVE | Lock.FAIL_IMMEDIATELY)))
    time.sleep(lifetime)
    return opened


def last_read(opened: SmbFile) -> SmbMessage:
    """Read until the session ends, for `LATE` seconds at most; return the last response."""
    with suppress(DeadlineExceeded):
        wait_until(lambda: opened.read(1).status != SmbStatus.END_OF_FILE, LATE, "the end of the session")
    return opened.read(1)


@pytest.fixture
def ended(file) -> SmbFile:
    """Return a locked file in an expired session; skip if the server expires none (a SHOULD)."""
    if last_read(file).status == SmbStatus.END_OF_FILE:
        pytest.skip("the server does not end a session with its ticket")
    return file


@pytest.mark.case("SMB-EXPIRE-READ", level="SHOULD", kills=("expired-executed", "expired-status-other"))
def test_a_request_of_an_expired_session_is_not_executed(file):
    expect(last_read(file), SmbStatus.NETWORK_SESSION_EXPIRED)


@pytest.mark.case("SMB-EXPIRE-CLOSE", kills=("expired-refuses-all",))
def test_an_expired_session_closes_its_files(ended):
    expect(ended.close())


@pytest.mark.case("SMB-EXPIRE-UNLOCK", kills=("expired-refuses-all",))
def test_an_expired_session_unlocks(ended):
    expect(ended.lock((0, 1, Lock.UNLOCK)))


@pytest.mark.case("SMB-EXPIRE-LOCK", no_mutant_reason="smbd breaks this rule itself")
def test_an_expired_session_locks(ended):
    expect(ended.lock((1, 1, Lock.EXCLUSIVE | Lock.FAIL_IMMEDIATELY)))


@pytest.mark.case("SMB-EXPIRE-LOGOFF", kills=("expired-refuses-all",))
def test_an_expired_session_logs_off(ended):
    expect(ended.tree.session.logoff())


@pytest.mark.case("SMB-EXPIRE-REAUTH", section="MS-SMB2 3.3.5.5, 3.3.5.5.2", kills=("expired-stays",))
def test_an_expired_session_is_authenticated_again(ended):
    session = ended.tree.session
    number = session.channel.session_id
    expect(session.attempt())
    assert session.channel.session_id == number
    expect(ended.write(b"data"))
    expect(ended.lock((0, 1, Lock.UNLOCK)))


@pytest.mark.case(
    "SMB-EXPIRE-BIND", section="MS-SMB2 3.3.5.5", no_mutant_reason="smbd breaks this rule itself"
)
def test_an_expired_session_is_not_bound(bench, ended):
    session: SmbSession = ended.tree.session
    if not session.connection.settled.capabilities & Capability.MULTI_CHANNEL:
        pytest.skip("the server has no multichannel")
    second = second_channel(bench, session, CLIENT, Dialect.SMB_3_0_2)
    expect(second.attempt(flags=SESSION_BINDING, sign=True), SmbStatus.NETWORK_SESSION_EXPIRED)
