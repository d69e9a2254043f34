"""Fixtures of the SMB2 cases: connections, a session, a tree, a path of the case's own.

All that the cases create is in one directory of the run, which is removed at the end.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from storagetest.config import Variant
from storagetest.errors import AttachError, RemoteProtocolError
from storagetest.hosts.owner import Owner, is_running
from storagetest.plugin.conformance.cases import WireLog, case_of
from storagetest.plugin.conformance.first_look import Look
from storagetest.plugin.conformance.repeated_faults import fail_on_faults
from storagetest.polling import wait_until
from storagetest.wire.smb2.client import Account, SmbSession, Tree
from storagetest.wire.smb2.codes import Access, Disposition
from storagetest.wire.smb2.connection import (
    DialectNotOffered,
    DialectRefused,
    EncryptionRequired,
    GuestSession,
)
from storagetest.wire.smb2.harness import SmbEndpoint, SmbHarness, entries, make_directory, remove_directory
from storagetest.wire.smb2.ladder import PORT, make_decoder
from storagetest.wire.tcp import PeerClosed, RecordedConnection, ResponseTimeout

PREFIX = "storagetest-wire-"
"""How the names of the runs' directories begin."""

DEADLINE = 10.0
"""Timeout of one response in seconds, or the target's `deadline` if that is less (chosen)."""

BRIEF = 2.0
"""That of a case that is expected to fail (chosen)."""


@pytest.fixture(scope="session")
def endpoint(variant: Variant) -> SmbEndpoint:
    """Return the target's endpoint, as this machine connects to it."""
    options = variant.options
    address, port = options.wire_endpoint(options.address, options.port)
    account = Account(options.username, options.password.reveal(), options.domain, options.kerberos)
    return SmbEndpoint(address, port, options.share, account, min(DEADLINE, options.deadline))


@pytest.fixture(scope="session")
def run_directory(endpoint: SmbEndpoint, connects: Look[bool]) -> Iterator[Look[str]]:
    """Create the run's directory, and remove it at the end, as those that killed runs left behind."""
    name = f"{_owned_prefix()}_{os.getpid()}_{Owner.current().start_time}_{secrets.token_hex(6)}"

    def make() -> str:
        with SmbHarness(endpoint) as harness:
            tree = harness.tree()
            _remove_left_behind(tree)
            make_directory(tree, name)
        return name

    look = Look("the directory of the run", make, after=connects)
    yield look
    if look.result is not None:
        wait_until(lambda: _is_removed(endpoint, name), 20, f"the removal of {name}, whose files may be open")


def _owned_prefix() -> str:
    """Return how the names of this machine's runs begin: host and PID namespace (:mod:`hosts.owner`)."""
    me = Owner.current()
    return f"{PREFIX}{re.sub('[^0-9A-Za-z]', '-', me.host)[:40]}_{me.pid_namespace}"


def _remove_left_behind(tree: Tree) -> None:
    """Remove the directories of runs on this machine whose process has ended."""
    me = Owner.current()
    root = tree.open("", access=Access.GENERIC_READ, disposition=Disposition.OPEN, options=1)
    for entry in entries(root, f"{PREFIX}*"):
        found = re.fullmatch(rf"{_owned_prefix()}_(\d+)_(\d+)_[0-9a-f]{{12}}", entry.name)
        if found is None or not entry.is_directory or entry.is_reparse_point:
            continue
        owner = replace(me, pid=int(found[1]), start_time=int(found[2]))
        if not is_running(owner, me):
            with suppress(AttachError, AssertionError):
                remove_directory(tree, entry.name)
    root.close()


def _is_removed(endpoint: SmbEndpoint, name: str) -> bool:
    """Remove the directory; return False if a file in it is still open, as after a lost connection."""
    with SmbHarness(endpoint) as harness, suppress(AttachError, AssertionError):
        remove_directory(harness.tree(), name)
        return True
    return False


@contextmanager
def _one_cause(fixtures: Mapping[str, object]) -> Iterator[None]:
    """Make a refusal or silence that the look ``connects`` met the failure of one case; skip the others."""
    try:
        yield
    except (AttachError, PeerClosed, ResponseTimeout):
        connects = fixtures.get("connects")
        if isinstance(connects, Look):
            connects.get()
        raise


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Generator[None, object, object]:
    """Skip a case whose fixtures need a dialect or key that it lacks, or that the share refuses."""
    try:
        with _one_cause(getattr(request.node, "funcargs", {})):
            return (yield)
    except (DialectRefused, EncryptionRequired, GuestSession) as refusal:
        pytest.skip(str(refusal))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Skip a case of a dialect that the server lacks, or of a key; fail one whose responses break a rule."""
    try:
        with _one_cause(pyfuncitem.funcargs):
            result = yield
    except (DialectRefused, EncryptionRequired, GuestSession) as refusal:
        pytest.skip(str(refusal))
    except DialectNotOffered as fault:
        fail_on_faults(pyfuncitem, ["MS-SMB2 3.3.5.4: the server chose a dialect that was not offered"])
        pytest.skip(str(fault))
    bench = pyfuncitem.funcargs.get("bench")
    if isinstance(bench, SmbHarness):
        fail_on_faults(pyfuncitem, bench.faults)
    return result


_numbers = itertools.count()


@pytest.fixture(scope="session")
def answers(endpoint: SmbEndpoint) -> Look[bool]:
    """Find out whether the target answers NEGOTIATE at all; what the answer is, the cases judge."""

    def look() -> bool:
        with SmbHarness(endpoint) as harness:
            try:
                harness.connect().negotiate()
            except (ResponseTimeout, PeerClosed, DialectRefused):
                raise
            except (AssertionError, RemoteProtocolError):
                pass
        return True

    return Look("the first NEGOTIATE", look)


@pytest.fixture(scope="session")
def connects(endpoint: SmbEndpoint, answers: Look[bool]) -> Look[bool]:
    """Find out whether user and share are refused, or not answered; how else it answers, the cases judge."""

    def look() -> bool:
        with SmbHarness(endpoint) as harness:
            try:
                harness.tree()
            except (ResponseTimeout, PeerClosed):
                raise
            except (AssertionError, RemoteProtocolError):
                pass
        return True

    return Look("the connection to the share", look, after=answers)


@pytest.fixture
def bench(
    endpoint: SmbEndpoint,
    wire_log: WireLog,
    answers: Look[bool],
    connects: Look[bool],
    request: pytest.FixtureRequest,
) -> Iterator[SmbHarness]:
    """Yield a harness whose connections are in the case's log, and are closed at its end."""
    answers.get()
    if request.node.get_closest_marker("xfail"):  # what is known not to come needs no long timeout
        endpoint = replace(endpoint, deadline=min(endpoint.deadline, BRIEF))

    def note(link: RecordedConnection, name: str) -> None:
        wire_log.add(link, name=name, decoder=make_decoder, port=PORT)

    with SmbHarness(endpoint, note, connects.get) as made:
        yield made


@pytest.fixture
def path(run_directory: Look[str], request: pytest.FixtureRequest) -> str:
    """Return a name for a file of this case, which does not exist."""
    case = case_of(request.node)
    return f"{run_directory.get()}\\{case.id if case else 'case'}-{next(_numbers)}"


@pytest.fixture
def session(bench: SmbHarness) -> SmbSession:
    """Return a session of the highest dialect."""
    return bench.session()


@pytest.fixture
def tree(session: SmbSession, endpoint: SmbEndpoint, connects: Look[bool]) -> Tree:
    """Return a tree of ``session``."""
    connects.get()
    return session.tree(endpoint.share)


@pytest.fixture
def written(tree: Tree, path: str) -> Callable[..., str]:
    """Return a function that writes a file, closes it, and returns its path."""

    def write(data: bytes = b"0123456789") -> str:
        file = tree.open(path, disposition=Disposition.CREATE)
        assert file.write(data).status == 0
        assert file.close().status == 0
        return path

    return write


@pytest.fixture
def other(bench: SmbHarness) -> Tree:
    """Return a tree of a second client, on a connection of its own."""
    return bench.tree()


@pytest.fixture
def directory(tree: Tree, path: str) -> str:
    """Return the name of an empty directory of this case."""
    make_directory(tree, path)
    return path
