"""Credits, message id windows, charges and the largest sizes (MS-SMB2 3.3.1, 3.3.5.2.3, 3.3.5.2.5)."""

from __future__ import annotations

import random

import pytest

from storagetest.suites.conformance.smb2.handles import with_credits
from storagetest.suites.conformance.smb2.support import READ, case, expect_refused, open_directory
from storagetest.wire.smb2.codes import (
    Capability,
    Dialect,
    FileInfo,
    Fsctl,
    Lock,
    SmbCommand,
    SmbNotify,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.message import request

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.1.2", level="MUST")]

ECHO = request(SmbCommand.ECHO)


@pytest.fixture
def multi(tree):
    """Return a tree on a connection with multi-credit requests."""
    if not tree.session.connection.settled.capabilities & Capability.LARGE_MTU:
        pytest.skip("the server has no multi-credit requests")
    return tree


@pytest.fixture
def poor(bench, endpoint):
    """Return a tree on a connection with one credit; skip if the server grants more than was asked for."""
    connection = bench.connect()
    connection.asks = 1
    connection.negotiate()
    tree = bench.unauthenticated(connection).setup().tree(endpoint.share)
    if connection.granted != 1:
        pytest.skip("the server grants credits that are not asked for")
    return tree


@pytest.mark.case("SMB-CRED-NEGOTIATE", kills=("credits-zero-negotiate",))
def test_the_response_to_negotiate_grants_a_credit(bench):
    assert bench.connect().negotiate().message["credits"] >= 1


@pytest.mark.case("SMB-CRED-LAST", kills=("credits-zero",))
def test_the_last_credit_is_replaced(poor):
    for _ in range(3):
        expect(poor.call(ECHO, over={"credits": 0}))
        assert poor.session.connection.granted >= 1, "no credit is left"


@pytest.mark.case("SMB-CRED-REFUSED", kills=("error-no-credits",))
def test_the_last_credit_is_replaced_by_a_request_that_fails(poor):
    """The credits of a client must not fall to zero, whatever its requests end with."""
    for _ in range(3):
        expect(
            poor.call(request(SmbCommand.CLOSE, file_id=b"\x77" * 16), over={"credits": 0}),
            SmbStatus.FILE_CLOSED,
        )
        assert poor.session.connection.granted >= 1, "no credit is left"


@pytest.mark.case("SMB-CRED-ASKED", level="SHOULD", kills=("credits-zero",))
def test_a_credit_that_is_asked_for_is_granted(tree, path):
    assert expect(tree.create(path))["credits"] >= 1
    assert expect(tree.call(ECHO, over={"credits": 1}))["credits"] >= 1


WINDOW = pytest.mark.case(section="MS-SMB2 3.3.5.2.3", level="SHOULD")


@WINDOW
@pytest.mark.case("SMB-CRED-OVER", kills=("close-hidden",))
def test_a_charge_over_the_granted_credits_ends_the_connection(poor, path):
    connection = poor.session.connection
    if not connection.settled.capabilities & Capability.LARGE_MTU:
        pytest.skip("the server has no multi-credit requests")
    encoded = request(SmbCommand.READ, length=262144, file_id=poor.open(path).file_id, padding=80)
    poor.send(encoded, over={"credit_charge": 4})
    assert connection.closed(), "the connection is still open"


@WINDOW
@pytest.mark.case("SMB-CRED-RANGE", kills=("close-hidden",))
def test_a_message_id_within_a_range_that_was_used_ends_the_connection(multi, path):
    connection, file = multi.session.connection, multi.open(path)
    if connection.settled.message["max_read"] < 131072:
        pytest.skip("the server has no reads of two credits")
    with_credits(multi, 4)
    first = connection.next_id
    expect(file.read(131072), SmbStatus.END_OF_FILE)
    multi.send(ECHO, over={"message_id": first + 1})
    assert connection.closed(), "the connection is still open"


@WINDOW
@pytest.mark.case("SMB-CRED-NEXT", level="MUST", section="MS-SMB2 3.3.1.1", kills=("message-id-other",))
def test_the_message_id_behind_a_range_is_the_next_one(multi, path):
    connection, file = multi.session.connection, multi.open(path)
    if connection.settled.message["max_read"] < 131072:
        pytest.skip("the server has no reads of two credits")
    with_credits(multi, 4)
    first = connection.next_id
    expect(file.read(131072), SmbStatus.END_OF_FILE)
    assert connection.next_id == first + 2
    expect(multi.call(ECHO))


@WINDOW
@pytest.mark.case("SMB-CRED-202", level="MUST", section="MS-SMB2 3.3.5.2.3", kills=("message-id-other",))
def test_dialect_2_0_2_has_no_credit_charge(bench):
    tree = bench.tree([Dialect.SMB_2_0_2])
    connection = tree.session.connection
    first = connection.next_id
    expect(tree.call(ECHO, over={"credit_charge": 9}))
    connection.next_id = first + 1
    expect(tree.call(ECHO))


ASYNC = pytest.mark.case(section="MS-SMB2 3.3.4.2, 3.3.4.3")


@ASYNC
@pytest.mark.case("SMB-CRED-ASYNC", kills=("credits-of-final",))
def test_the_final_response_of_an_asynchronous_request_grants_no_credit(tree, other, written):
    name = written()
    first, second = tree.open(name), other.open(name)
    now = Lock.EXCLUSIVE | Lock.FAIL_IMMEDIATELY
    expect(first.lock((0, 5, now)))
    mid = other.send(second.lock_request((0, 5, Lock.EXCLUSIVE)))[0]
    if other.session.connection.receive_interim(mid) is None:
        pytest.skip("the server answers a lock that waits synchronously")
    expect(first.lock((0, 5, Lock.UNLOCK)))
    assert expect(other.receive(mid))["credits"] == 0


@pytest.mark.case("SMB-CANCEL-UNKNOWN", section="MS-SMB2 3.3.5.16", kills=("cancel-answered",))
def test_a_cancel_of_no_request_is_not_answered(tree):
    tree.session.connection.cancel(0x7FFF0000, channel=tree.session.channel, tree=tree.tree_id)
    expect(tree.call(ECHO))


# Charges and sizes

CHARGE = pytest.mark.case(section="MS-SMB2 3.3.5.2.5, 3.1.5.2")


@CHARGE
@pytest.mark.case("SMB-CHARGE-EDGE", kills=("read-data-changed",))
def test_64_kib_are_charged_one_credit(multi, path):
    file = multi.open(path)
    expect(file.write(b"\x5a" * 65536, over={"credit_charge": 1}))
    assert expect(file.read(65536, over={"credit_charge": 1})).buffer == b"\x5a" * 65536


@CHARGE
@pytest.mark.case("SMB-CHARGE-EDGE-OVER", kills=("charge-too-low-served", "accepts-read", "status-read"))
def test_a_byte_more_than_64_kib_is_charged_two_credits(multi, written):
    message = multi.open(written()).read(65537, over={"credit_charge": 1})
    expect(message, SmbStatus.INVALID_PARAMETER)


@CHARGE
@pytest.mark.case("SMB-CHARGE-LIST", kills=("accepts-query-directory", "status-query-directory"))
def test_a_listing_over_64_kib_is_charged_several_credits(multi, directory):
    message = open_directory(multi, directory).list(length=131072, over={"credit_charge": 1})
    expect(message, SmbStatus.INVALID_PARAMETER)


LIMITS = pytest.mark.case(section="MS-SMB2 3.3.5.12, 3.3.5.13")
OVER = pytest.mark.case(level="SHOULD")


def largest(tree, name):
    """Return a largest size that was negotiated, and get the credits for a byte more; skip for over 8 MiB."""
    size = int(tree.session.connection.settled.message[name])
    if size > 1 << 23:
        pytest.skip(f"the server's {name} is {size} bytes, which the case does not send")
    with_credits(tree, size // 65536 + 4)
    return size


@LIMITS
@pytest.mark.case("SMB-LIMIT-WRITE", kills=("write-count-other", "write-mib-lost"))
def test_a_write_of_the_largest_size_is_executed(multi, path):
    file = multi.open(path)
    size = largest(multi, "max_write")
    data = random.Random(size).randbytes(size)  # noqa: S311  # data, no secret
    assert expect(file.write(data))["count"] == size
    step = min(1 << 20, largest(multi, "max_read"))
    for at in range(0, size, step):
        assert expect(file.read(step, at)).buffer == data[at : at + step], f"the data from {at} on are others"


@LIMITS
@pytest.mark.case("SMB-LIMIT-READ", kills=("read-short", "read-data-changed"))
def test_a_read_of_the_largest_size_is_executed(multi, path):
    file = multi.open(path)
    expect(file.set_size(largest(multi, "max_read")))
    size = largest(multi, "max_read")
    data = expect(file.read(size)).buffer
    assert (len(data), data.count(0)) == (size, size)


@LIMITS
@OVER
@pytest.mark.case("SMB-LIMIT-WRITE-OVER", kills=("accepts-write", "status-write"))
def test_a_write_over_the_largest_size_is_an_invalid_parameter(multi, path):
    file = multi.open(path)
    expect(file.write(bytes(largest(multi, "max_write") + 1)), SmbStatus.INVALID_PARAMETER)


@OVER
@pytest.mark.parametrize(
    "call",
    [
        case("SMB-LIMIT-QUERY-OVER", "query", section="MS-SMB2 3.3.5.20", kills=("accepts-query-info",)),
        case(
            "SMB-LIMIT-IOCTL-OVER",
            "ioctl",
            section="MS-SMB2 3.3.5.15",
            no_mutant_reason="smbd breaks this rule itself",
        ),
        case("SMB-LIMIT-NOTIFY-OVER", "notify", section="MS-SMB2 3.3.5.19", kills=("accepts-change-notify",)),
    ],
)  # fmt: skip
def test_a_buffer_over_the_largest_transaction_is_an_invalid_parameter(multi, directory, path, call):
    opened = open_directory(multi, directory, access=READ)
    size = largest(multi, "max_transact") + 1
    if call == "query":
        expect(opened.query(FileInfo.ALL, length=size), SmbStatus.INVALID_PARAMETER)
    elif call == "ioctl":
        file = multi.open(f"{path}-file")
        expect(file.ioctl(Fsctl.SRV_REQUEST_RESUME_KEY, max_output=size), SmbStatus.INVALID_PARAMETER)
    else:
        encoded = request(
            SmbCommand.CHANGE_NOTIFY,
            file_id=opened.file_id,
            filter=int(SmbNotify.FILE_NAME),
            output_length=size,
        )
        mid = multi.send(encoded)[0]
        if multi.session.connection.receive_interim(mid) is not None:  # it was accepted, and waits
            multi.session.connection.cancel(mid, channel=multi.session.channel, tree=multi.tree_id)
        expect_refused(multi.receive(mid), SmbStatus.INVALID_PARAMETER)
