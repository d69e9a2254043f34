"""Fixtures of the NFSv4 cases: a harness, a client of the case's minor version, a directory of its own.

All that a run creates is in one directory in the export, which is removed at the end of the run.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from storagetest.config import Variant
from storagetest.config.implementations import Implementation
from storagetest.errors import TargetDead
from storagetest.hosts.run_directories import is_left, new_name
from storagetest.plugin.conformance.cases import WireLog, case_of
from storagetest.plugin.conformance.first_look import Look
from storagetest.plugin.conformance.known_issues import apply_identified
from storagetest.plugin.conformance.repeated_faults import fail_on_faults
from storagetest.suites.conformance.nfs4.kinds import supported
from storagetest.suites.conformance.nfs4.layouts import LayoutFile, pnfs_client
from storagetest.suites.conformance.nfs4.security import Secured
from storagetest.wire.nfs4.attributes import decode_attributes
from storagetest.wire.nfs4.callbacks import Callbacks
from storagetest.wire.nfs4.client import Done, Nfs4Client, TooManyOperations, ok
from storagetest.wire.nfs4.harness import (
    Nfs4Endpoint,
    Nfs4Facts,
    Nfs4Harness,
    SharedArranger,
    clean_up,
    look,
    most_operations,
    values,
)
from storagetest.wire.nfs4.operations import (
    GETFH,
    create,
    getattr_,
    lookup,
    putfh,
    setattr_,
    unchecked,
)
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_FS_LAYOUT_TYPES,
    FATTR4_MODE,
    FATTR4_SYMLINK_SUPPORT,
    layouttype4,
    nfs_argop4,
    nfs_ftype4,
    nfsstat4,
)
from storagetest.wire.rpc.describe import make_decoder
from storagetest.wire.tcp import PeerClosed, RecordedConnection, ResponseTimeout

ANSWER = 10.0
"""Timeout of a reply in seconds, or the target's `deadline` if that is less (chosen)."""

SILENT = (TargetDead, PeerClosed, ResponseTimeout)
"""Errors of a port or server that does not answer."""

_numbers = itertools.count()


@contextmanager
def _one_cause(fixtures: Mapping[str, object]) -> Iterator[None]:
    """Make a port or server that does not answer, as the look met it, the failure of one case.

    A case with a COMPOUND of more operations than the session accepts is skipped.
    """
    try:
        yield
    except TooManyOperations as error:
        pytest.skip(str(error))
    except SILENT:
        about = fixtures.get("about")
        if isinstance(about, Look) and isinstance(about.error, SILENT):
            about.get()
        raise


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Generator[None, object, object]:
    """Skip a case whose fixtures, which need no look, are not answered either."""
    with _one_cause(getattr(request.node, "funcargs", {})):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail the case after its own claims if padding was not zero in any reply that it received."""
    with _one_cause(pyfuncitem.funcargs):
        result = yield
    for name in ("bench", "unlooked"):
        bench = pyfuncitem.funcargs.get(name)
        if isinstance(bench, Nfs4Harness):
            fail_on_faults(pyfuncitem, bench.faults)
    return result


@pytest.fixture(scope="session")
def endpoint(variant: Variant) -> Nfs4Endpoint:
    """Return where the target's server is."""
    options = variant.options
    address, port = options.wire_endpoint(options.address, options.port)
    return Nfs4Endpoint(address, port, options.export, min(ANSWER, options.deadline))


@pytest.fixture(scope="session")
def about(endpoint: Nfs4Endpoint) -> Iterator[Look[Nfs4Facts]]:
    """Look at the export once and make the run's directory; remove it at the end."""
    found = Look("the look at the export", lambda: look(endpoint, new_name(), is_left=is_left))
    yield found
    if found.result is not None:
        clean_up(found.result)


@pytest.fixture(autouse=True)
def known_issue(request: pytest.FixtureRequest, about: Look[Nfs4Facts]) -> bool:
    """Apply the known issues of the target's implementation; return whether the case is expected to fail."""
    facts = about.result
    return apply_identified(request.node, Implementation("" if facts is None else facts.implementation))


@pytest.fixture
def facts(about: Look[Nfs4Facts]) -> Nfs4Facts:
    """Return what the look found."""
    return about.get()


@pytest.fixture(scope="session")
def arranger(endpoint: Nfs4Endpoint) -> Iterator[SharedArranger]:  # noqa: ARG001  # one for each target
    """Yield the holder of the client that arranges for all cases on a target."""
    with SharedArranger() as shared:
        yield shared


@pytest.fixture
def bench(facts: Nfs4Facts, wire_log: WireLog, known_issue: bool) -> Iterator[Nfs4Harness]:
    """Yield a harness whose connections are in the case's log, and are closed at its end."""
    endpoint = facts.endpoint
    if known_issue:  # a reply that is known to be missing needs no long timeout
        endpoint = replace(endpoint, deadline=min(endpoint.deadline, 1.5))

    def note(link: RecordedConnection, name: str, port: int) -> None:
        wire_log.add(link, name=name, decoder=make_decoder, port=port)

    with Nfs4Harness(endpoint, note) as made:
        yield made


@pytest.fixture
def unlooked(endpoint: Nfs4Endpoint, wire_log: WireLog) -> Iterator[Nfs4Harness]:
    """Yield a harness that needs no look at the export, which may refuse AUTH_SYS."""

    def note(link: RecordedConnection, name: str, port: int) -> None:
        wire_log.add(link, name=name, decoder=make_decoder, port=port)

    with Nfs4Harness(endpoint, note) as made:
        yield made


@pytest.fixture
def gss(variant: Variant, endpoint: Nfs4Endpoint, unlooked: Nfs4Harness) -> Secured:
    """Return what makes contexts of RPCSEC_GSS with the server's service."""
    return Secured(unlooked, variant.options.service_principal or f"nfs@{endpoint.address}")


@pytest.fixture
def minor() -> int:
    """Return the minor version of a case that is not about one."""
    raise AssertionError("the case has no mark of minors.rule")


@pytest.fixture
def version(facts: Nfs4Facts, minor: int) -> int:
    """Return the minor version of the case; skip if the server does not have it."""
    if minor not in facts.minors:
        pytest.skip(f"the server has no NFSv4.{minor}: its minor versions are {facts.minors}")
    return minor


@pytest.fixture
def nfs(bench: Nfs4Harness, version: int) -> Nfs4Client:
    """Return a client of the case's minor version with a client id, as root."""
    return bench.client(version)


@pytest.fixture
def owner(nfs: Nfs4Client) -> StateOwner:
    """Return an open owner of ``nfs``."""
    return StateOwner(nfs)


@dataclass(frozen=True, slots=True)
class Arranged:
    """A directory of the case's own, and what is put into it before the claims, on another connection."""

    nfs: Nfs4Client
    handle: bytes

    def find(self, name: bytes, directory: bytes | None = None) -> bytes:
        """Return the handle of ``name``."""
        where = putfh(self.handle if directory is None else directory)
        found: bytes = ok(self.nfs.compound(where, lookup(name), GETFH))["GETFH"].object
        return found

    def file(self, name: bytes = b"file", data: bytes = b"", *, mode: int = 0o644) -> bytes:
        """Make a file with ``data``, and return its handle."""
        file = StateOwner(self.nfs).open(self.handle, name, how=unchecked({FATTR4_MODE: mode}))
        file.write_all(0, data)
        file.close()
        return file.handle

    def directory(self, name: bytes = b"directory", *, mode: int = 0o755) -> bytes:
        """Make a directory, and return its handle."""
        return self.other(name, nfs_ftype4.NF4DIR, {FATTR4_MODE: mode})

    def directories(self, names: Sequence[bytes]) -> dict[bytes, bytes]:
        """Make directories, many by one COMPOUND, and return their handles by name."""
        handles, most = dict[bytes, bytes](), max(1, most_operations(self.nfs) // 3)
        for at in range(0, len(names), most):
            some = names[at : at + most]
            each = [
                (putfh(self.handle), create(one, nfs_ftype4.NF4DIR, {FATTR4_MODE: 0o755}), GETFH)
                for one in some
            ]
            done = ok(self.nfs.compound(*itertools.chain(*each)))
            handles |= {
                name: one.value.value.object for name, one in zip(some, done.results[2::3], strict=True)
            }
        return handles

    def symlink(self, name: bytes = b"symlink", text: bytes = b"target") -> bytes:
        """Make a symbolic link, and return its handle."""
        made = create(name, nfs_ftype4.NF4LNK, text=text)
        done = self.nfs.compound(putfh(self.handle), made, GETFH)
        return self._made(ok(self.optional(done, FATTR4_SYMLINK_SUPPORT)))

    def optional(self, done: Done, stated: int) -> Done:
        """Return the reply to a LINK, or a CREATE of a symbolic link.

        Skip if it is not supported, and the attribute ``stated`` (link_support, symlink_support) is FALSE
        (RFC 7530 and RFC 8881 5.8.1.6, 5.8.1.7).
        """
        is_refused = done.status in (nfsstat4.NFS4ERR_NOTSUPP, nfsstat4.NFS4ERR_BADTYPE)
        if is_refused and not self.read(self.handle, stated).get(stated):
            pytest.skip(f"the file system has no such links ({done.status.name}), as it states")
        return done

    def other(self, name: bytes, kind: nfs_ftype4, new: Mapping[int, Any] | None = None) -> bytes:
        """Make a file that is no regular one, and return its handle."""
        done = self.nfs.compound(putfh(self.handle), create(name, kind, new), GETFH)
        return self._made(ok(supported(done, kind)))

    def read(self, handle: bytes, *numbers: int) -> dict[int, Any]:
        """Return attributes by number."""
        return values(ok(self.nfs.compound(putfh(handle), getattr_(*numbers))))

    def read_each(self, handles: Iterable[bytes], number: int) -> Iterator[Any]:
        """Yield one attribute of each file; many are read by one COMPOUND."""
        left = list(handles)
        most = max(1, most_operations(self.nfs) // 2)
        for at in range(0, len(left), most):
            pairs = [(putfh(handle), getattr_(number)) for handle in left[at : at + most]]
            for one in ok(self.nfs.compound(*itertools.chain(*pairs))).results[1::2]:
                yield decode_attributes(one.value.value.obj_attributes)[number]

    @staticmethod
    def _made(done: Done) -> bytes:
        handle: bytes = done["GETFH"].object
        return handle


@pytest.fixture
def here(
    request: pytest.FixtureRequest, facts: Nfs4Facts, bench: Nfs4Harness, arranger: SharedArranger
) -> Arranged:
    """Return an empty directory of this case."""
    case, mode = case_of(request.node), {FATTR4_MODE: 0o777}

    def made() -> tuple[nfs_argop4, ...]:
        name = f"{case.id if case else 'case'}-{next(_numbers)}".encode()
        return putfh(facts.directory), create(name, values=mode), GETFH, setattr_(mode)

    nfs, done = arranger.execute(bench, facts.minors[-1], made)
    return Arranged(nfs, done["GETFH"].object)


# pNFS

LAYOUT_DATA = b"".join(bytes([97 + at]) * 4096 for at in range(16))
"""The bytes of the file whose layouts the cases get: each 4096 of them have another letter."""


@pytest.fixture
def layout_kind(here: Arranged) -> layouttype4:
    """Return a layout type that the server announces for the file system; skip if there is none."""
    found: tuple[layouttype4, ...] = here.read(here.handle, FATTR4_FS_LAYOUT_TYPES).get(
        FATTR4_FS_LAYOUT_TYPES, ()
    )
    if not found:
        pytest.skip("the server announces no layout type (fs_layout_type): it has no pNFS here")
    blocks = layouttype4.LAYOUT4_BLOCK_VOLUME
    return blocks if blocks in found else found[0]


@pytest.fixture
def laid(bench: Nfs4Harness, here: Arranged, layout_kind: layouttype4, version: int) -> LayoutFile:
    """Return the file ``file`` with :data:`LAYOUT_DATA`, open for both by a client that uses pNFS."""
    here.file(b"file", LAYOUT_DATA)
    callbacks = Callbacks()
    nfs = pnfs_client(bench, version, callbacks)
    return LayoutFile(StateOwner(nfs).open(here.handle, b"file"), layout_kind, callbacks)
