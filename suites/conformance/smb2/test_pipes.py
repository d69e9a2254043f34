"""Named pipes of the share IPC$, with the server service's list of shares (MS-SMB2 3.3.5.15.3, MS-SRVS)."""

from __future__ import annotations

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.polling import wait_until
from storagetest.suites.conformance.smb2.support import READ, WRITE
from storagetest.wire.smb2 import pipes
from storagetest.wire.smb2.codes import Dialect, Disposition, Fsctl, SmbStatus
from storagetest.wire.smb2.harness import expect

pytestmark = [
    pytest.mark.needs("smb-wire"),
    pytest.mark.case(section="MS-SMB2 3.3.5.15.3", level="MUST"),
]

IPC, PIPE_SHARE = "IPC$", 2
"""The share of named pipes, and its type (2.2.10)."""


SLOW = 60.0
"""Timeout of a response in seconds: smbd starts a process for the first pipe (chosen)."""


@pytest.fixture
def pipes_tree(bench):
    """Return a tree of the pipes."""
    tree = bench.session().tree(IPC)
    tree.session.connection.deadline = SLOW
    return tree


@pytest.fixture
def pipe(pipes_tree):
    """Return the open pipe of the server service.

    A service may start at its first use and be late: a pipe that is disconnected then is opened again.
    """

    def answers() -> bool:
        opened = open_pipe(pipes_tree)
        tried = opened.ioctl(Fsctl.PIPE_TRANSCEIVE, pipes.bind(), max_output=pipes.FRAGMENT)
        opened.close()
        return tried.status != SmbStatus.PIPE_DISCONNECTED

    wait_until(answers, SLOW, "the service of a pipe", interval=1.0, error=RemoteProtocolError)
    return open_pipe(pipes_tree)


def open_pipe(tree):
    return tree.open("srvsvc", access=READ | WRITE, disposition=Disposition.OPEN, options=0)


@pytest.fixture
def bound(pipe):
    """Return the pipe, on which the interface is bound."""
    transceive(pipe, pipes.bind())
    return pipe


def transceive(pipe, data, *statuses, most=pipes.FRAGMENT):
    message = pipe.ioctl(Fsctl.PIPE_TRANSCEIVE, data, max_output=most)
    return expect(message, *statuses or (SmbStatus.SUCCESS,)).buffer


@pytest.mark.case("SMB-PIPE-SHARE", section="MS-SMB2 3.3.5.7", kills=("share-type-disk",))
def test_the_share_of_pipes_has_their_type(bench):
    message = bench.session([Dialect.SMB_3_0_2]).connect_tree(IPC)
    assert expect(message)["share_type"] == PIPE_SHARE


@pytest.mark.case("SMB-PIPE-OPEN", section="MS-SMB2 3.3.5.9", kills=("status-success-lost",))
def test_a_pipe_is_opened_and_closed(pipe):
    expect(pipe.close())


@pytest.mark.case("SMB-PIPE-ABSENT", section="MS-SMB2 3.3.5.9", kills=("accepts-create",))
def test_a_pipe_that_is_not_there_is_not_opened(pipes_tree):
    message = pipes_tree.create("storagetest-absent", disposition=Disposition.OPEN, options=0)
    assert message.status, "a pipe that no service has is opened"


@pytest.mark.case("SMB-PIPE-TRANSCEIVE", kills=("pipe-data-other", "status-success-lost"))
def test_a_transceive_returns_what_the_pipe_answers(pipe):
    assert pipes.kind_of(transceive(pipe, pipes.bind())) == pipes.BIND_ACK


@pytest.mark.case("SMB-PIPE-READ", section="MS-SMB2 3.3.5.12, 3.3.5.13", kills=("pipe-read-other",))
def test_a_read_returns_what_the_pipe_answers_to_a_write(pipe):
    expect(pipe.write(pipes.bind()))
    assert pipes.kind_of(expect(pipe.read(pipes.FRAGMENT)).buffer) == pipes.BIND_ACK


@pytest.mark.case("SMB-PIPE-LIST", kills=("pipe-data-other",))
def test_the_shares_are_listed(bound, endpoint):
    found = {name.lower() for name in pipes.shares(transceive(bound, pipes.share_enum()))}
    assert {endpoint.share.lower(), IPC.lower()} <= found


@pytest.mark.case("SMB-PIPE-OVERFLOW", section="MS-SMB2 3.3.5.15", kills=("pipe-overflow-hidden",))
def test_an_answer_that_is_too_long_is_an_overflow(bound):
    part = transceive(bound, pipes.share_enum(), SmbStatus.BUFFER_OVERFLOW, most=64)
    assert len(part) == 64


@pytest.mark.case("SMB-PIPE-REST", section="MS-SMB2 3.3.5.12", kills=("pipe-read-other",))
def test_the_rest_of_a_long_answer_is_read(bound, endpoint):
    part = transceive(bound, pipes.share_enum(), SmbStatus.BUFFER_OVERFLOW, most=64)
    rest = expect(bound.read(pipes.FRAGMENT)).buffer
    assert endpoint.share.lower() in {name.lower() for name in pipes.shares(part + rest)}
