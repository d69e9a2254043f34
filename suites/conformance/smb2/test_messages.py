"""Sessions, trees, message ids, credits, signatures and compounds (MS-SMB2 3.3.5.2, 3.3.5.5 to 3.3.5.8)."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import replace

import pytest

from storagetest.suites.conformance.smb2.handles import with_credits
from storagetest.suites.conformance.smb2.support import (
    expect_refused,
    skip_if_encrypted,
    skip_if_guest,
    watch,
)
from storagetest.wire.smb2.client import create_request
from storagetest.wire.smb2.codes import (
    NO_FILE,
    SIGNING_REQUIRED,
    Dialect,
    Disposition,
    Signing,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.connection import DIALECTS, DialectRefused, default_contexts
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.message import request
from storagetest.wire.tcp import PeerClosed

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.2", level="MUST")]

ECHO = request(SmbCommand.ECHO)


def case(identifier, value, *kills, **more):
    return pytest.param(value, marks=pytest.mark.case(identifier, kills=kills, **more))


@pytest.mark.case("SMB-SES-01", section="MS-SMB2 3.3.5.5.3", kills=("setup-signature-spoiled",))
def test_the_last_setup_response_of_3_1_1_is_signed(bench):
    skip_if_guest(bench.session([Dialect.SMB_3_1_1]))


@pytest.mark.case("SMB-SES-GUEST", section="MS-SMB2 3.3.5.5.3", level="MAY")
def test_the_account_is_not_logged_on_as_a_guest(session):
    """A server decides who is a guest. A guest has no key: the cases of signing are skipped."""
    assert not session.channel.is_guest, "the server logs the account of the target on as a guest"


@pytest.mark.case("SMB-SES-GUEST-PASSWORD", section="MS-SMB2 3.3.5.5.3", kills=("guest-flag-always",))
def test_an_account_whose_password_is_checked_is_no_guest(bench, session):
    """A guest is logged on without a password, so with a wrong one, too; "guest" itself may have one.

    Without this case a server could be free of every check of signatures by one flag.
    """
    account = bench.endpoint.account
    if not session.channel.is_guest:
        return
    if account.username.lower() == "guest":
        pytest.skip("the account of the target is the one of guests")
    connection = bench.connect()
    connection.negotiate()
    wrong = replace(account, password=f"{account.password}-wrong")
    status = bench.unauthenticated(connection, account=wrong).attempt().status
    assert status == SmbStatus.SUCCESS, (
        f"the account is logged on as a guest, and a wrong password is refused: {SmbStatus.name_of(status)}"
    )


@pytest.mark.case("SMB-SES-02", section="MS-SMB2 3.3.5.5.3", kills=("status-session-setup",))
def test_an_account_that_does_not_exist_is_a_logon_failure(bench):
    # Not a wrong password of the target's account: a server may lock an account after a few of them.
    connection = bench.connect()
    connection.negotiate()
    unknown = replace(bench.endpoint.account, username=f"storagetest-{secrets.token_hex(4)}")
    session = bench.unauthenticated(connection, account=unknown)
    message = session.attempt()
    skip_if_guest(session)
    expect(message, SmbStatus.LOGON_FAILURE)


@pytest.mark.case("SMB-SES-08", section="MS-SMB2 3.3.5.5.3", kills=("status-session-setup",))
def test_a_wrong_password_is_a_logon_failure(bench):
    # Once a run: a server may lock an account after a few of them.
    connection = bench.connect()
    connection.negotiate()
    account = bench.endpoint.account
    wrong = replace(account, password=f"{account.password}-wrong")
    session = bench.unauthenticated(connection, account=wrong)
    message = session.attempt()
    skip_if_guest(session)
    expect(message, SmbStatus.LOGON_FAILURE)


@pytest.mark.case(
    "SMB-SES-03", section="MS-SMB2 3.3.5.2.9", kills=("status-tree-connect", "accepts-tree-connect")
)
def test_a_session_id_of_no_session_is_a_deleted_session(session, endpoint):
    unknown = session.channel.session_id ^ 0x5A5A
    message = session.connect_tree(endpoint.share, sign=False, over={"session_id": unknown})
    expect(message, SmbStatus.USER_SESSION_DELETED)


@pytest.mark.case("SMB-SES-04", section="MS-SMB2 3.3.5.6", kills=("accepts-tree-connect",))
def test_a_session_that_logged_off_is_deleted(session, endpoint):
    expect(session.logoff())
    expect(session.connect_tree(endpoint.share, sign=False), SmbStatus.USER_SESSION_DELETED)


@pytest.mark.case("SMB-SES-05", section="MS-SMB2 3.3.5.5.2", kills=("read-data-changed",))
def test_files_stay_open_over_a_re_authentication(tree, path):
    file = tree.open(path)
    expect(file.write(b"kept"))
    expect(tree.session.attempt())
    assert expect(file.read(4)).buffer == b"kept"


@pytest.mark.case("SMB-SES-06", section="MS-SMB2 3.3.5.5.3", kills=("accepts-write",))
def test_a_previous_session_is_ended(bench, tree, path):
    skip_if_encrypted(tree)
    skip_if_guest(tree.session)  # two guests need not be the same user
    file = tree.open(path)
    bench.session(previous=tree.session.channel.session_id)
    expect(file.write(b"x"), SmbStatus.USER_SESSION_DELETED, SmbStatus.NETWORK_NAME_DELETED)


@pytest.mark.case("SMB-SES-07", section="MS-SMB2 3.3.5.2.9", kills=("accepts-tree-connect",))
def test_a_session_is_not_used_on_a_connection_that_is_not_bound(bench, session, endpoint):
    other = bench.session()
    over = {"session_id": session.channel.session_id}
    message = other.connect_tree(endpoint.share, sign=False, over=over)
    expect(message, SmbStatus.USER_SESSION_DELETED)


@pytest.mark.case("SMB-TREE-01", section="MS-SMB2 3.3.5.7", kills=("status-tree-connect",))
def test_a_share_that_is_not_there_is_a_bad_network_name(bench):
    session = bench.session([Dialect.SMB_3_0_2])  # in 3.1.1 it is signed, so that no mutant changes it
    expect(
        session.connect_tree("no-such-share-3f1"),
        SmbStatus.BAD_NETWORK_NAME,
        SmbStatus.ACCESS_DENIED,
    )


@pytest.mark.case("SMB-TREE-02", section="MS-SMB2 3.3.5.2.11", kills=("accepts-create", "status-create"))
def test_a_tree_id_of_no_tree_is_a_deleted_network_name(tree, path):
    expect(tree.create(path, over={"tree_id": tree.tree_id ^ 0x7000}), SmbStatus.NETWORK_NAME_DELETED)


@pytest.mark.case(
    "SMB-TREE-03",
    section="MS-SMB2 3.3.5.8",
    kills=(
        "tree-disconnect-ignored",
        "accepts-create",
    ),
)
def test_a_tree_that_was_disconnected_is_deleted(tree, path):
    expect(tree.disconnect())
    expect(tree.create(path), SmbStatus.NETWORK_NAME_DELETED)


@pytest.mark.parametrize(
    "signing",
    [
        case("SMB-SIGN-01", Signing.HMAC_SHA256, "signature-spoiled", "signature-lost"),
        case("SMB-SIGN-02", Signing.AES_CMAC, "signature-spoiled", "signature-lost"),
        case("SMB-SIGN-03", Signing.AES_GMAC, "signature-spoiled", "signature-lost"),
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.1.8, 3.1.4.1")
def test_responses_are_signed_in_a_session_that_requires_it(bench, endpoint, signing):
    connection = bench.connect()
    connection.negotiate(
        [Dialect.SMB_3_1_1], contexts=default_contexts(signings=[signing]), mode=SIGNING_REQUIRED
    )
    session = bench.unauthenticated(connection).setup(mode=SIGNING_REQUIRED, signs=True)
    expect(session.tree(endpoint.share).call(ECHO))


@pytest.mark.case(
    "SMB-SIGN-10",
    section="MS-SMB2 3.3.4.1.1",
    level="SHOULD",
    kills=("signature-spoiled", "signature-lost"),
)
def test_responses_to_signed_requests_are_signed(bench, endpoint):
    connection = bench.connect()
    connection.negotiate()
    tree = bench.unauthenticated(connection).setup(signs=True).tree(endpoint.share)
    expect(tree.call(ECHO))


@pytest.mark.parametrize(
    "dialect",
    [
        case("SMB-SIGN-04", Dialect.SMB_2_0_2, "signature-spoiled", "signature-lost"),
        case("SMB-SIGN-05", Dialect.SMB_2_1, "signature-spoiled", "signature-lost"),
        case("SMB-SIGN-06", Dialect.SMB_3_0, "signature-spoiled", "signature-lost"),
        case("SMB-SIGN-07", Dialect.SMB_3_0_2, "signature-spoiled", "signature-lost"),
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.1.8, 3.1.4.1")
def test_responses_are_signed_in_every_dialect(bench, dialect):
    expect(bench.tree([dialect], signs=True).call(ECHO))


@pytest.mark.case("SMB-SIGN-08", section="MS-SMB2 3.3.5.2.4", kills=("accepts-create",))
def test_a_wrong_signature_is_denied(tree, path):
    skip_if_encrypted(tree)
    message = tree.call(create_request(path), sign=True, over={"signature": b"\x5a" * 16})
    expect(message, SmbStatus.ACCESS_DENIED)


@pytest.mark.case("SMB-SIGN-09", section="MS-SMB2 3.3.5.2.4", kills=("accepts-create",))
def test_a_request_without_a_signature_is_denied_if_the_session_requires_one(bench, endpoint, path):
    connection = bench.connect()
    connection.negotiate(mode=SIGNING_REQUIRED)
    tree = bench.unauthenticated(connection).setup(mode=SIGNING_REQUIRED, signs=True).tree(endpoint.share)
    skip_if_encrypted(tree)
    expect(tree.call(create_request(path), sign=False), SmbStatus.ACCESS_DENIED)


@pytest.mark.parametrize(
    "dialect",
    [
        case("SMB-ENC-01", Dialect.SMB_3_0, "encryption-spoiled"),
        case("SMB-ENC-02", Dialect.SMB_3_0_2, "encryption-spoiled"),
        case("SMB-ENC-03", Dialect.SMB_3_1_1, "encryption-spoiled"),
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.4.1.4, 3.1.4.3")
def test_responses_to_encrypted_requests_are_encrypted(bench, path, dialect):
    file = bench.tree([dialect], encrypts=True).open(path)
    expect(file.write(b"sealed"))
    assert expect(file.read(6)).buffer == b"sealed"


@pytest.mark.case("SMB-CRED-01", section="MS-SMB2 3.3.1.2", kills=("credits-zero",))
def test_credits_never_fall_to_zero(bench, endpoint):
    connection = bench.connect()
    connection.asks = 1
    connection.negotiate()
    tree = bench.unauthenticated(connection).setup().tree(endpoint.share)
    for _ in range(min(connection.granted, 512) + 1):
        expect(tree.call(ECHO, over={"credits": 0}))
        assert connection.granted > 0, "no credit is left"


@pytest.mark.parametrize(
    "mid",
    [case("SMB-MID-01", 0, "close-hidden"), case("SMB-MID-02", 0x7FFFFFFF, "close-hidden")],
)
@pytest.mark.case(section="MS-SMB2 3.3.5.2.3", level="SHOULD")
def test_a_message_id_outside_the_window_ends_the_connection(tree, mid):
    tree.send(ECHO, over={"message_id": mid})
    assert tree.session.connection.closed(), "the connection is still open"


@pytest.mark.case("SMB-MID-03", section="MS-SMB2 3.3.4.1", kills=("message-id-other",))
def test_a_response_has_the_message_id_of_its_request(tree):
    expect(tree.call(ECHO))


@pytest.mark.case("SMB-MID-04", section="MS-SMB2 3.3.4.1", kills=("command-other",))
def test_a_response_has_the_command_of_its_request(tree):
    expect(tree.call(ECHO))


SIZED = [
    SmbCommand.CREATE, SmbCommand.CLOSE, SmbCommand.FLUSH, SmbCommand.READ, SmbCommand.WRITE,
    SmbCommand.IOCTL,
    SmbCommand.QUERY_DIRECTORY, SmbCommand.CHANGE_NOTIFY, SmbCommand.QUERY_INFO, SmbCommand.SET_INFO,
]  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        case(f"SMB-SIZE-{number + 1:02}", command, f"accepts-{command.name.lower().replace('_', '-')}")
        for number, command in enumerate(SIZED)
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.5.2.6")
def test_a_wrong_structure_size_is_an_invalid_parameter(tree, command):
    with suppress(PeerClosed):  # a server may disconnect for a message that it cannot read (3.3.5.2)
        message = tree.call(request(command, bytes(8)), over={"structure_size": 3})
        refused = expect_refused if command == SmbCommand.CHANGE_NOTIFY else expect
        refused(message, SmbStatus.INVALID_PARAMETER)


def charged(tree):
    """Return the tree; skip if its dialect has no charges of several credits (3.3.5.2.5)."""
    if tree.session.connection.settled.dialect == Dialect.SMB_2_0_2:
        pytest.skip("dialect 2.0.2 has no credit charge")
    return tree


@pytest.mark.case("SMB-CRED-02", section="MS-SMB2 3.3.5.2.5", kills=("accepts-read", "status-read"))
def test_a_credit_charge_below_the_size_is_an_invalid_parameter(tree, path):
    file = charged(tree).open(path)
    expect(file.read(131072, over={"credit_charge": 1}), SmbStatus.INVALID_PARAMETER)


@pytest.mark.case("SMB-CRED-03", section="MS-SMB2 3.3.5.2.5", kills=("accepts-read", "status-read"))
def test_a_credit_charge_of_zero_is_for_64_kib(tree, path):
    file = charged(tree).open(path)
    expect(file.read(131072, over={"credit_charge": 0}), SmbStatus.INVALID_PARAMETER)


@pytest.mark.case("SMB-CRED-LATER", section="MS-SMB2 3.3.5.2.5", kills=("charge-of-later-ignored",))
def test_the_credit_charge_of_each_request_of_a_compound_counts(tree, path):
    """A later request with a charge below its size is an invalid parameter; the first one is executed."""
    with_credits(charged(tree), 8)
    ids = tree.send(
        create_request(path),
        request(SmbCommand.READ, length=131072, file_id=NO_FILE, padding=80),
        related=True,
        over=[{}, {"credit_charge": 1}],
    )
    expect(tree.receive(ids[0]))
    expect(tree.receive(ids[1]), SmbStatus.INVALID_PARAMETER)


COMPOUND = pytest.mark.case(section="MS-SMB2 3.3.5.2.7.2")


@COMPOUND
@pytest.mark.case(
    "SMB-COMP-01",
    kills=(
        "compound-unaligned",
        "status-success-lost",
    ),
)
def test_related_requests_use_the_file_of_the_first(tree, path):
    with_credits(tree, 3)
    ids = tree.send(
        create_request(path), request(SmbCommand.WRITE, b"abc", file_id=NO_FILE),
        request(SmbCommand.CLOSE, file_id=NO_FILE), related=True,
    )  # fmt: skip
    for mid in ids:
        expect(tree.receive(mid))
    assert expect(tree.open(path).read(3)).buffer == b"abc"


@COMPOUND
@pytest.mark.case(
    "SMB-COMP-02",
    section="MS-SMB2 3.3.5.2.7.2",
    level="SHOULD",
    kills=("compound-failed-file-closed", "accepts-close", "status-close"),
)
def test_what_follows_a_failed_create_fails_with_its_status(tree, path):
    with_credits(tree, 2)
    ids = tree.send(
        create_request(path, disposition=Disposition.OPEN),
        request(SmbCommand.CLOSE, file_id=NO_FILE),
        related=True,
    )
    for mid in ids:
        expect(tree.receive(mid), SmbStatus.OBJECT_NAME_NOT_FOUND)


@COMPOUND
@pytest.mark.case("SMB-COMP-03", section="MS-SMB2 3.3.5.2.7.2", level="SHOULD", kills=("accepts-close",))
def test_a_first_request_that_is_related_is_an_invalid_parameter(tree):
    message = tree.call(request(SmbCommand.CLOSE, file_id=NO_FILE), over={"header_flags": 4})
    expect(message, SmbStatus.INVALID_PARAMETER)


@pytest.mark.case("SMB-COMP-04", section="MS-SMB2 3.3.5.2.7.1", kills=("message-id-other",))
def test_unrelated_requests_are_answered_each(tree):
    with_credits(tree, 3)
    for mid in tree.send(ECHO, ECHO, ECHO):
        expect(tree.receive(mid))


@pytest.mark.case("SMB-CANCEL-01", section="MS-SMB2 3.3.5.16", kills=("accepts-change-notify",))
def test_a_cancelled_notification_ends_in_cancelled(tree, run_directory):
    directory = tree.open(run_directory.get(), disposition=Disposition.OPEN, options=1)
    mid = watch(directory)
    tree.session.connection.cancel(mid, channel=tree.session.channel, tree=tree.tree_id)
    expect(tree.receive(mid), SmbStatus.CANCELLED)


@pytest.mark.case("SMB-HDR-01", section="MS-SMB2 3.3.4.1.2", kills=("credits-zero",))
def test_a_response_grants_a_credit_for_the_one_that_was_used(bench):
    granted = {}
    for dialect in DIALECTS:
        with suppress(DialectRefused):
            granted[dialect] = bench.session([dialect]).call(ECHO)["credits"]
    assert granted, "no dialect is there"
    assert min(granted.values()) >= 1, f"credits that ECHO grants, by dialect: {granted}"
