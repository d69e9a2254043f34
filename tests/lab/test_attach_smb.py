from __future__ import annotations

import pytest
from attach_helpers import attach, check_data, smb

from storagetest.errors import AttachError, TargetDead

pytestmark = pytest.mark.lab


@pytest.mark.parametrize(
    "dialect",
    [pytest.param("2.1", marks=pytest.mark.slow), pytest.param("3.0", marks=pytest.mark.slow), "3.1.1"],
)
def test_dialect(client, secrets, dialect) -> None:
    with attach(client, "smb", smb(secrets, dialect=dialect)) as attachment:
        assert attachment.mismatches == ()
        assert attachment.negotiated["dialect"] == dialect
        check_data(attachment)


@pytest.mark.slow
def test_signing(client, secrets) -> None:
    with attach(client, "smb", smb(secrets, signing=True)) as attachment:
        assert attachment.mismatches == ()
        assert attachment.negotiated["signed"] == "yes"
        check_data(attachment)


@pytest.mark.parametrize("dialect", [pytest.param("3.0", marks=pytest.mark.slow), "3.1.1"])
def test_encryption(client, secrets, dialect) -> None:
    asked = smb(secrets, dialect=dialect, share="encrypted", encryption=True)
    with attach(client, "smb", asked) as attachment:
        assert attachment.mismatches == ()
        assert attachment.negotiated["encrypted"] == "yes"
        check_data(attachment)


def test_cache_none(client, secrets) -> None:
    with attach(client, "smb", smb(secrets, cache="none")) as attachment:
        assert attachment.mismatches == ()


@pytest.mark.parametrize("wrong", [{"password": "wrong-secret"}, {"username": "unknown-user"}])
def test_wrong_account(client, secrets, wrong) -> None:
    with (
        pytest.raises(AttachError, match=r"the server refuses user '.*': wrong name or password") as caught,
        attach(client, "smb", smb(secrets, **wrong)),
    ):
        pytest.fail("attached")
    assert "wrong-secret" not in str(caught.value)


@pytest.mark.slow
def test_no_such_share(client, secrets) -> None:
    with (
        pytest.raises(AttachError, match="the server has no share 'nowhere'"),
        attach(client, "smb", smb(secrets, share="nowhere")),
    ):
        pytest.fail("attached")


def test_unencrypted_where_the_server_wants_encryption(client, secrets) -> None:
    with (
        pytest.raises(AttachError, match=r"smb 2.1 //10\.77\.0\.1/encrypted: the server"),
        attach(client, "smb", smb(secrets, dialect="2.1", share="encrypted")),
    ):
        pytest.fail("attached")


def test_port_closed(client, secrets) -> None:
    with (
        pytest.raises(
            TargetDead, match=r"client1 cannot connect to 10\.77\.0\.1 port 446: the connection is refused"
        ),
        attach(client, "smb", smb(secrets, port=446)),
    ):
        pytest.fail("attached")
