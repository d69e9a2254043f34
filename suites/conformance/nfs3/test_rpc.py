"""RPC version 2 (RFC 5531), with the calls of NFS: messages, records, credentials, undecodable arguments."""

from __future__ import annotations

import contextlib

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nfs3.client import Nfs3Client, ok
from storagetest.wire.nfs3.harness import Nfs3Harness
from storagetest.wire.nfs3.types import (
    NFS_V3,
    GETATTR3args,
    LOOKUP3args,
    READDIR3args,
    REMOVE3args,
    WRITE3args,
    diropargs3,
    nfsstat3,
    stable_how,
)
from storagetest.wire.rpc import AUTH_NONE, LAST, auth_sys, fragment, frame
from storagetest.wire.rpc.types import accept_stat, auth_flavor, authsys_parms, opaque_auth, reject_stat
from storagetest.wire.tcp import ResponseTimeout
from storagetest.wire.xdr import Procedure, Program
from storagetest.wire.xdr.codecs import VOID

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 5531 9")]

NULL = NFS_V3.procedure("NULL")
GETATTR = NFS_V3.procedure("GETATTR")
FRAGMENTS = ("RPC-REC-TWO",)
"""The case of a call in two fragments: without it, no other call in fragments is judged."""


def after(base: str, name: str) -> tuple[str, ...]:
    """Return what the case ``name`` of a group builds on: ``base``, unless it is that case itself."""
    return () if base.endswith(f"-{name}") else (base,)


# Messages


@pytest.mark.case("RPC-NULL-01", section="RFC 5531 12.1", kills=("rpc-null-fails",))
def test_null_does_nothing_and_succeeds(bench: Nfs3Harness) -> None:
    assert bench.rpc().ask("NULL").status == "SUCCESS"


@pytest.mark.case("RPC-NULL-02", section="RFC 5531 12.1", kills=("rpc-null-fails",))
def test_null_needs_no_credential(bench: Nfs3Harness) -> None:
    assert bench.rpc(cred=AUTH_NONE).ask("NULL").status == "SUCCESS"


@pytest.mark.case("RPC-XID-01", kills=("rpc-xid",))
def test_a_reply_has_the_xid_of_its_call(bench: Nfs3Harness) -> None:
    rpc = bench.rpc()
    for xid in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF):
        rpc.send(NULL, rpc.encode("NULL", xid=xid))
        assert rpc.receive().xid == xid


@pytest.mark.case("RPC-XID-02", kills=("rpc-one-outstanding",))
def test_each_of_many_outstanding_calls_is_answered(bench: Nfs3Harness, root) -> None:
    rpc = bench.rpc()
    sent = [rpc.send(GETATTR, rpc.encode("GETATTR", GETATTR3args(root))) for _ in range(16)]
    replies = [rpc.receive() for _ in sent]
    assert sorted(one.xid for one in replies) == sorted(sent)
    assert {one.result.status for one in replies} <= {nfsstat3.NFS3_OK, nfsstat3.NFS3ERR_JUKEBOX}


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(
            number,
            id=str(number),
            marks=pytest.mark.case(f"RPC-VERS-{name}", builds_on=after("RPC-VERS-3", name)),
        )
        for number, name in ((0, "0"), (1, "1"), (3, "3"), (0xFFFFFFFF, "MAX"))
    ],
)
@pytest.mark.case(kills=("rpc-version-accepted", "rpc-version-range"))
def test_another_rpc_version_is_denied(bench: Nfs3Harness, version: int) -> None:
    rpc = bench.rpc()
    reply = rpc.receive(rpc.send(NULL, rpc.encode("NULL").override("body.value.rpcvers", version)))
    assert reply.status == "RPC_MISMATCH"
    assert reply.mismatch is not None
    assert (reply.mismatch.low, reply.mismatch.high) == (2, 2), "9: the versions that the server supports"


@pytest.mark.case("RPC-PROG-01", kills=("rpc-program-accepted",))
def test_an_unknown_program_is_unavailable(bench: Nfs3Harness) -> None:
    rpc = bench.rpc(
        Program(0x2FFFFFF1, 1, "unknown", {0: Procedure(0, "NULL", VOID, VOID)}), port=bench.endpoint.port
    )
    assert rpc.ask("NULL").accepted == accept_stat.PROG_UNAVAIL


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(
            number,
            id=str(number),
            marks=pytest.mark.case(f"RPC-PROGVERS-{name}", builds_on=after("RPC-PROGVERS-99", name)),
        )
        for number, name in ((0, "0"), (99, "99"), (0xFFFFFFFF, "MAX"))
    ],
)
@pytest.mark.case(kills=("rpc-program-version-accepted", "rpc-program-version-range"))
def test_an_unknown_version_of_the_program_is_a_mismatch(bench: Nfs3Harness, version: int) -> None:
    reply = bench.rpc(
        Program(NFS_V3.number, version, f"NFS {version}", NFS_V3.procedures), port=bench.endpoint.port
    ).ask("NULL")
    assert reply.accepted == accept_stat.PROG_MISMATCH
    assert reply.mismatch is not None
    assert reply.mismatch.low <= 3 <= reply.mismatch.high, (
        f"9: the server has version 3, and states {reply.mismatch}"
    )


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(
            number,
            id=str(number),
            marks=pytest.mark.case(f"RPC-PROC-{name}", builds_on=after("RPC-PROC-22", name)),
        )
        for number, name in ((22, "22"), (1000, "1000"), (0xFFFFFFFF, "MAX"))
    ],
)
@pytest.mark.case(kills=("rpc-procedure-accepted",))
def test_an_unknown_procedure_is_unavailable(bench: Nfs3Harness, number: int) -> None:
    rpc = bench.rpc()
    reply = rpc.receive(rpc.send(NULL, rpc.encode("NULL").override("body.value.proc", number)))
    assert reply.accepted == accept_stat.PROC_UNAVAIL


@pytest.mark.case("RPC-REPLY-01", section="RFC 5531 9", kills=("rpc-reply-is-call",))
def test_a_reply_is_of_type_reply(nfs: Nfs3Client, root) -> None:
    ok(nfs.getattr(root))


@pytest.mark.case("RPC-REPLY-02", section="RFC 5531 9", kills=("rpc-reply-longer", "rpc-reply-shorter"))
def test_a_reply_is_as_long_as_its_result(nfs: Nfs3Client, root) -> None:
    ok(nfs.getattr(root))


@pytest.mark.case("RPC-REPLY-03", section="RFC 4506 4.10", kills=("xdr-padding",))
def test_padding_is_zero(nfs: Nfs3Client, here) -> None:
    link = here.symlink(text=b"12345")
    assert ok(nfs.readlink(link)).data == b"12345"
    assert not nfs.rpc.faults, "; ".join(nfs.rpc.faults)


@pytest.mark.case("RPC-REPLY-04", section="RFC 4506 4.4", kills=("xdr-boolean",))
def test_a_boolean_is_zero_or_one(nfs: Nfs3Client, here) -> None:
    assert ok(nfs.read(here.file(data=b"x"), 0, 10)).eof is True


# Arguments


ARGUMENTS = {
    "HANDLE-CUT": ("GETATTR", "object.data", 8),
    "HANDLE-MAX": ("GETATTR", "object.data.length", 0xFFFFFFFF),
    "HANDLE-65": ("GETATTR", "object.data.length", 65),
    "NAME-CUT": ("LOOKUP", "what.name", None),
    "NAME-MAX": ("LOOKUP", "what.name.length", 0xFFFFFFFF),
    "NAME-PAST": ("LOOKUP", "what.name.length", 400),
    "COOKIE-CUT": ("READDIR", "cookieverf", None),
    "DATA-CUT": ("WRITE", "data", None),
    "DATA-MAX": ("WRITE", "data.length", 0xFFFFFFFF),
    "DATA-PAST": ("WRITE", "data.length", 64),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.case(f"RPC-ARGS-{name}", builds_on=after("RPC-ARGS-HANDLE-CUT", name))
        )
        for name in ARGUMENTS
    ],
)
@pytest.mark.case(kills=("rpc-garbage-accepted", "rpc-garbage-ends"))
def test_arguments_that_cannot_be_decoded_are_garbage_and_the_next_call_works(
    bench: Nfs3Harness, here, root, name: str
) -> None:
    rpc, file = bench.rpc(), here.file()
    procedure, path, value = ARGUMENTS[name]
    argument = {
        "GETATTR": lambda: GETATTR3args(root),
        "LOOKUP": lambda: LOOKUP3args(diropargs3(here.handle, b"file")),
        "READDIR": lambda: READDIR3args(here.handle, 0, bytes(8), 4096),
        "WRITE": lambda: WRITE3args(file, 0, 4, stable_how.FILE_SYNC, b"data"),
    }[procedure]()
    call = rpc.encode(procedure, argument)
    if value is None:
        call = call.cut(path)
    elif value == 8:
        call = call.override(path, call.data[slice(*call.spans[path])][:8])
    else:
        call = call.override(path, value)
    reply = rpc.receive(rpc.send(rpc.procedure(procedure), call))
    assert reply.accepted == accept_stat.GARBAGE_ARGS, f"{reply.status}: the argument cannot be decoded"
    assert rpc.ask("NULL").status == "SUCCESS"
    assert not here.nfs.attributes(file).size, "nothing of an argument that is garbage is written"


# Records


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param((4,), id="after-xid", marks=pytest.mark.case("RPC-REC-TWO")),
        pytest.param((3, 5, 7), id="odd", marks=pytest.mark.case("RPC-REC-ODD", builds_on=FRAGMENTS)),
        pytest.param((1,) * 20, id="bytes", marks=pytest.mark.case("RPC-REC-BYTES", builds_on=FRAGMENTS)),
        pytest.param(
            (0, 24), id="empty-first", marks=pytest.mark.case("RPC-REC-EMPTY-FIRST", builds_on=FRAGMENTS)
        ),
    ],
)
@pytest.mark.case(section="RFC 5531 11", kills=("rpc-fragments",))
def test_a_call_in_several_fragments_is_executed(bench: Nfs3Harness, root, sizes) -> None:
    ok(Nfs3Client(bench.rpc()).call("GETATTR", GETATTR3args(root), fragments=sizes))


@pytest.mark.case("RPC-REC-EMPTY-LAST", section="RFC 5531 11", kills=("rpc-fragments",), builds_on=FRAGMENTS)
def test_the_last_fragment_of_a_call_may_be_empty(bench: Nfs3Harness, root) -> None:
    nfs, argument = Nfs3Client(bench.rpc()), GETATTR3args(root)
    whole = len(nfs.rpc.encode("GETATTR", argument).data)
    ok(nfs.call("GETATTR", argument, fragments=(whole,)))


@pytest.mark.case(
    "RPC-REC-SEGMENTS", section="RFC 5531 11", no_mutant_reason="a proxy has no segments of its own to break"
)
def test_a_header_in_several_segments_is_one(bench: Nfs3Harness) -> None:
    rpc = bench.rpc()
    data = frame(rpc.encode("NULL", xid=77).data)
    rpc.expect(NULL, 77)
    for at in (0, 1, 3, 4, 10):
        rpc.link.send(data[at : {0: 1, 1: 3, 3: 4, 4: 10}.get(at)])
    assert rpc.receive(77).status == "SUCCESS"


@pytest.mark.case("RPC-REC-JOINED", section="RFC 5531 11", kills=("rpc-one-outstanding",))
def test_calls_in_one_segment_are_all_answered(bench: Nfs3Harness) -> None:
    rpc = bench.rpc()
    xids = list(range(1000, 1010))
    rpc.expect(NULL, *xids)
    rpc.link.send(b"".join(frame(rpc.encode("NULL", xid=xid).data) for xid in xids))
    assert sorted(rpc.receive().xid for _ in xids) == xids


@pytest.mark.case("RPC-REC-REPLY", section="RFC 5531 11", kills=("rpc-reply-unmarked", "rpc-reply-length"))
def test_a_reply_is_a_record(bench: Nfs3Harness, root) -> None:
    nfs = Nfs3Client(bench.rpc())
    ok(nfs.getattr(root))
    ok(nfs.getattr(root))


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(
            fragment(bytes(64), length=0x7FFFFFFF), id="huge", marks=pytest.mark.case("RPC-REC-HUGE")
        ),
        pytest.param((LAST | 0).to_bytes(4, "big") * 8, id="empty", marks=pytest.mark.case("RPC-REC-EMPTY")),
        pytest.param(fragment(bytes(3)), id="short", marks=pytest.mark.case("RPC-REC-SHORT")),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="http", marks=pytest.mark.case("RPC-REC-HTTP")),
    ],
)
@pytest.mark.case(
    section="RFC 5531 11",
    no_mutant_reason="the claim is that another connection lives: the proxy is not the server",
)
def test_what_is_no_record_ends_no_other_connection(bench: Nfs3Harness, start: bytes, observe) -> None:
    other, rpc = bench.rpc(), bench.rpc()
    other.call("NULL")
    rpc.link.send(start)
    rpc.link.shutdown_write()
    try:
        while rpc.link.receive(deadline=1.0):
            pass
        observe("the connection is closed")
    except RemoteProtocolError:
        observe("the connection stays open")
    other.call("NULL")
    bench.rpc().call("NULL")


# Credentials


def system(gids: int = 0, machine: bytes = b"m") -> opaque_auth:
    return opaque_auth(
        auth_flavor.AUTH_SYS, authsys_parms(0, machine, 0, 0, tuple(range(gids))).encode().data
    )


@pytest.mark.case("RPC-AUTH-01", section="RFC 5531 A", kills=("rpc-auth-16",))
def test_16_groups_are_accepted(bench: Nfs3Harness, root) -> None:
    ok(bench.client(cred=system(16)).getattr(root))


@pytest.mark.case("RPC-AUTH-02", section="RFC 5531 A", kills=("rpc-auth-16",))
def test_a_machine_name_of_255_bytes_is_accepted(bench: Nfs3Harness, root) -> None:
    ok(bench.client(cred=system(0, b"m" * 255)).getattr(root))


BAD = {
    "17-GIDS": system(17),
    "NAME-256": system(0, b"m" * 256),
    "CUT": opaque_auth(auth_flavor.AUTH_SYS, system(2).body[:-4]),
    "EMPTY": opaque_auth(auth_flavor.AUTH_SYS, b""),
    "FLAVOR-99": opaque_auth(99, b""),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.case(f"RPC-AUTH-{name}")) for name in BAD]
)
@pytest.mark.case(section="RFC 5531 8.2", kills=("rpc-auth-accepted",))
@pytest.mark.usefixtures("authenticated")
def test_a_credential_that_is_none_is_denied_and_the_next_call_works(
    bench: Nfs3Harness, root, name: str, observe
) -> None:
    rpc = bench.rpc()
    reply = rpc.ask("GETATTR", GETATTR3args(root), cred=BAD[name])
    observe(reply.status)
    assert reply.accepted is None, f"{reply.status}: the credential is not valid"
    assert reply.body.value.stat == reject_stat.AUTH_ERROR, reply.status
    ok(Nfs3Client(rpc).getattr(root))


@pytest.mark.case("RPC-AUTH-VERF", section="RFC 5531 A", kills=("rpc-auth-verifier",))
def test_the_verifier_of_a_reply_to_system_authentication_is_none_or_short(bench: Nfs3Harness, root) -> None:
    flavor = bench.rpc().ask("GETATTR", GETATTR3args(root)).body.value.verf.flavor
    assert flavor in (auth_flavor.AUTH_NONE, auth_flavor.AUTH_SHORT)


@pytest.mark.case("RPC-AUTH-EACH", section="RFC 5531 8.2", kills=("rpc-auth-remembered",))
@pytest.mark.usefixtures("users")
def test_each_call_has_its_own_credential(bench: Nfs3Harness, here) -> None:
    file, nfs = here.file(data=b"x"), bench.client()
    here.nfs.setattr(file, here.mode(0o600))
    ok(nfs.read(file, 0, 1))
    nfs.rpc.cred = auth_sys(4001, 4001)
    assert nfs.read(file, 0, 1).status == nfsstat3.NFS3ERR_ACCES
    nfs.rpc.cred = auth_sys()
    ok(nfs.read(file, 0, 1))


# Requests that are sent again


@pytest.mark.case("RPC-AGAIN-REMOVE", section="RFC 1813 4.5", level="SHOULD", kills=("rpc-no-reply-cache",))
def test_a_remove_that_is_sent_again_is_not_executed_again(bench: Nfs3Harness, here) -> None:
    here.file()
    rpc = bench.rpc()
    call = rpc.encode("REMOVE", REMOVE3args(diropargs3(here.handle, b"file")))
    done = rpc.result(rpc.send(rpc.procedure("REMOVE"), call))
    if done.status == nfsstat3.NFS3ERR_JUKEBOX:
        pytest.skip("the server is busy (NFS3ERR_JUKEBOX): a call that it has executed is sent again")
    ok(done)
    rpc.deadline = min(rpc.deadline, 1.0)
    for _ in range(3):  # a copy may be dropped while the server still completes the first
        with contextlib.suppress(ResponseTimeout):
            done = rpc.result(rpc.send(rpc.procedure("REMOVE"), call))
            break
    else:
        pytest.fail("none of three copies of an answered request is answered")
    assert done.status == nfsstat3.NFS3_OK, (
        f"{done.status.name}: the reply to a repeated request is that of the first"
    )
