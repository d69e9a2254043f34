"""Fixtures of the NFSv3 cases: a harness, a client, a directory of the case's own, and files in it.

All that a run creates is in one directory in the export, which is removed at the end of the run.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace

import pytest

from storagetest.config import Variant
from storagetest.config.implementations import Implementation
from storagetest.errors import TargetDead
from storagetest.hosts.run_directories import is_left, new_name
from storagetest.plugin.conformance.cases import WireLog, case_of
from storagetest.plugin.conformance.first_look import Look
from storagetest.plugin.conformance.known_issues import apply_identified
from storagetest.plugin.conformance.repeated_faults import fail_on_faults
from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok
from storagetest.wire.nfs3.harness import OTHER_UID, Nfs3Endpoint, Nfs3Export, Nfs3Harness, clean_up, look
from storagetest.wire.nfs3.locks import LockOwner
from storagetest.wire.nfs3.nlm import NLM4_VERS, nlm4_stats
from storagetest.wire.nfs3.types import FSF3_CANSETTIME, FSINFO3resok, createmode3, nfs_fh3, nfsstat3, sattr3
from storagetest.wire.rpc import RpcConnection, RpcError
from storagetest.wire.rpc.busy import GRACE, while_busy
from storagetest.wire.rpc.describe import make_decoder
from storagetest.wire.rpc.types import accept_stat, auth_flavor
from storagetest.wire.tcp import PeerClosed, RecordedConnection

ANSWER = 10.0
"""Timeout of a reply in seconds, or the target's `deadline` if that is less (chosen)."""

_numbers = itertools.count()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail the case after its own claims if padding was not zero in any reply that it received."""
    result = yield
    bench = pyfuncitem.funcargs.get("bench")
    if isinstance(bench, Nfs3Harness):
        fail_on_faults(pyfuncitem, bench.faults)
    return result


@pytest.fixture(scope="session")
def endpoint(variant: Variant) -> Nfs3Endpoint:
    """Return where the target's programs are."""
    options = variant.options
    address, port = options.wire_endpoint(options.address, options.port)
    within = min(ANSWER, options.deadline)
    mount = options.wire_program_port(options.wire_mount, options.mount_port)
    lock = options.wire_program_port(options.wire_lock, options.lock_port)
    status = options.wire_program_port(options.wire_status, options.status_port)
    return Nfs3Endpoint(address, port, options.export, within, mount, lock, status)


@pytest.fixture(scope="session")
def about(endpoint: Nfs3Endpoint) -> Iterator[Look[Nfs3Export]]:
    """Mount the export once and make the run's directory; remove it at the end."""
    found = Look("the look at the export", lambda: look(endpoint, new_name(), is_left=is_left))
    yield found
    if found.result is not None:
        clean_up(found.result)


@pytest.fixture(autouse=True)
def known_issue(request: pytest.FixtureRequest, about: Look[Nfs3Export]) -> bool:
    """Apply the known issues of the target's server; return whether the case is expected to fail."""
    facts = about.result
    return apply_identified(request.node, Implementation("" if facts is None else facts.implementation))


@pytest.fixture
def bench(about: Look[Nfs3Export], wire_log: WireLog, known_issue: bool) -> Iterator[Nfs3Harness]:
    """Yield a harness whose connections are in the case's log, and are closed at its end."""
    endpoint = about.get().endpoint
    if known_issue:  # a reply that is known to be missing needs no long timeout
        endpoint = replace(endpoint, deadline=min(endpoint.deadline, 1.5))

    def note(link: RecordedConnection, name: str, port: int) -> None:
        wire_log.add(link, name=name, decoder=make_decoder, port=port)

    with Nfs3Harness(endpoint, note) as made:
        yield made


@pytest.fixture
def nfs(bench: Nfs3Harness) -> Nfs3Client:
    """Return the procedures of version 3, called as root."""
    return bench.client()


@pytest.fixture
def manager(bench: Nfs3Harness) -> RpcConnection:
    """Return a connection to the server's lock manager; skip if it has none."""
    try:
        rpc = bench.rpc(NLM4_VERS)
        rpc.call("NULL")
    except TargetDead as error:
        pytest.skip(f"no lock manager was found: {error}")
    except RpcError as error:
        if error.reply.accepted in (accept_stat.PROG_UNAVAIL, accept_stat.PROG_MISMATCH):
            pytest.skip(f"the server has no lock manager of version 4: {error.reply.status}")
        raise
    return rpc


@pytest.fixture
def root(about: Look[Nfs3Export]) -> nfs_fh3:
    """Return the handle of the export's root, which is not changed."""
    return about.get().root


@pytest.fixture
def limits(about: Look[Nfs3Export]) -> FSINFO3resok:
    """Return the result of FSINFO of the root."""
    return about.get().limits


@pytest.fixture
def sets_times(limits: FSINFO3resok) -> None:
    """Skip unless the server states that SETATTR sets times (RFC 1813 3.3.19)."""
    if not limits.properties & FSF3_CANSETTIME:
        pytest.skip("the server sets no times (FSINFO, FSF3_CANSETTIME)")


@pytest.fixture
def users(about: Look[Nfs3Export]) -> None:
    """Skip unless root and uid 4001 are two users for the server."""
    facts = about.get()
    if facts.user_is != OTHER_UID or facts.root_is == OTHER_UID:
        mapped = f"uid {OTHER_UID} is uid {facts.user_is}, and uid 0 is uid {facts.root_is}"
        pytest.skip(f"the export maps callers: {mapped}")


@pytest.fixture
def authenticated(about: Look[Nfs3Export]) -> None:
    """Skip unless the server states that it uses the credentials of AUTH_SYS."""
    if auth_flavor.AUTH_SYS not in about.get().flavors:
        pytest.skip(f"MNT states the flavors {about.get().flavors}: credentials of AUTH_SYS are not used")


@pytest.fixture
def superuser(about: Look[Nfs3Export]) -> None:
    """Skip unless the caller with uid 0 has the rights of root."""
    if about.get().root_is:
        pytest.skip(f"the export maps root to uid {about.get().root_is} (root_squash)")


@dataclass(frozen=True, slots=True)
class Arranged:
    """A directory of the case's own, and what is put into it before the claims, on another connection."""

    nfs: Nfs3Client
    handle: nfs_fh3

    def file(self, name: bytes = b"file", data: bytes = b"", *, new: sattr3 | None = None) -> nfs_fh3:
        """Make a file with ``data``, and return its handle."""
        ok(self.nfs.create(self.handle, name, mode=createmode3.UNCHECKED, new=new or attributes(mode=0o644)))
        file = self.nfs.find(self.handle, name)
        self.nfs.write_all(file, 0, data)
        return file

    def mode(self, bits: int) -> sattr3:
        """Return attributes that set the mode."""
        return attributes(mode=bits)

    def directory(self, name: bytes = b"directory", *, mode: int = 0o755) -> nfs_fh3:
        """Make a directory, and return its handle."""
        ok(self.nfs.mkdir(self.handle, name, new=attributes(mode=mode)))
        return self.nfs.find(self.handle, name)

    def symlink(self, name: bytes = b"symlink", text: bytes = b"target") -> nfs_fh3:
        """Make a symbolic link, and return its handle; skip if the server has none (RFC 1813 3.3.10)."""
        done = self.nfs.symlink(self.handle, name, text)
        if done.status == nfsstat3.NFS3ERR_NOTSUPP:
            pytest.skip("the server does not support SYMLINK (NFS3ERR_NOTSUPP)")
        ok(done)
        return self.nfs.find(self.handle, name)

    def link(self, file: nfs_fh3, name: bytes = b"second") -> None:
        """Give ``file`` another name; skip if the server has no hard links (RFC 1813 3.3.15)."""
        done = self.nfs.link(file, self.handle, name)
        if done.status == nfsstat3.NFS3ERR_NOTSUPP:
            pytest.skip("the server does not support LINK (NFS3ERR_NOTSUPP)")
        ok(done)


@pytest.fixture
def here(request: pytest.FixtureRequest, about: Look[Nfs3Export], bench: Nfs3Harness) -> Arranged:
    """Return an empty directory of this case."""
    nfs, case = bench.arranger(), case_of(request.node)
    name = f"{case.id if case else 'case'}-{next(_numbers)}".encode()
    ok(nfs.mkdir(about.get().directory, name, new=attributes(mode=0o777)))
    made = nfs.find(about.get().directory, name)
    ok(nfs.setattr(made, attributes(mode=0o777)))
    return Arranged(nfs, made)


@pytest.fixture
def owners(manager: RpcConnection, here) -> Iterator[Callable[..., LockOwner]]:
    """Return a factory of owners, each another process. What they have is released at the end."""
    made: list[LockOwner] = []
    caller = b"storagetest-" + secrets.token_hex(4).encode()

    def make(*, host: bytes = caller) -> LockOwner:
        made.append(LockOwner(manager, host, 1000 + len(made)))
        return made[-1]

    look_at, first = here.file(b"look"), make()
    found = while_busy(
        lambda: first.lock(look_at), lambda status: status == nlm4_stats.NLM4_DENIED_GRACE_PERIOD, GRACE
    )
    if found == nlm4_stats.NLM4_DENIED_NOLOCKS:
        pytest.skip("the server's lock manager has no resources for a lock (NLM4_DENIED_NOLOCKS)")
    yield make
    with contextlib.suppress(PeerClosed):  # the case has failed already
        for owner in made:
            owner.release()
