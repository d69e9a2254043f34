"""RPCSEC_GSS with Kerberos (RFC 2203, RFC 7530 3.2.1): contexts, checksums, the sequence window.

They need a variant with ``security: krb5``, ``krb5i`` or ``krb5p``, and Kerberos credentials in pytest's
environment. They make nothing on the server.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs4.security import (
    COMPOUND,
    LOOK,
    NULL,
    call,
    denied,
    discarded,
    executed,
    protected,
    services,
)
from storagetest.wire.rpc.gss import (
    GSS_S_COMPLETE,
    GSS_S_CONTINUE_NEEDED,
    INTEGRITY,
    NONE,
    PRIVACY,
    create_context,
    credential,
    send_token,
)
from storagetest.wire.rpc.gss_types import MAXSEQ, rpc_gss_proc_t
from storagetest.wire.rpc.types import accept_stat, accepted_reply
from storagetest.wire.xdr import Procedure
from storagetest.wire.xdr.codecs import VOID

pytestmark = [pytest.mark.needs("gss-wire"), pytest.mark.case(level="MUST", section="RFC 2203 5.3.3.1")]


# Creation of a context


@services("GSS-INIT")
@pytest.mark.case(
    section="RFC 2203 5.2.3.1", kills=("gss-init-refused", "gss-init-verifier", "gss-init-verifier-none")
)
def test_a_context_is_created_and_calls_are_executed_in_it(gss, service):
    """The verifier of the last reply is the checksum of the window; each service works in a context."""
    rpc, context = gss.connect(service)
    executed(call(rpc, context))


@pytest.mark.case("GSS-INIT-WINDOW", section="RFC 2203 5.2.3.1", kills=("gss-init-window",))
def test_the_window_of_a_context_is_not_empty(gss, observe):
    window = gss.context().window
    observe(f"a window of {window} sequence numbers")
    assert window > 0


@pytest.mark.case("GSS-INIT-HANDLES", section="RFC 2203 5.2.3.1", kills=("gss-init-same-handle",))
def test_two_contexts_have_two_handles(gss):
    assert gss.context().handle != gss.context().handle


@pytest.mark.case("GSS-INIT-GARBAGE", section="RFC 2203 5.2.3.2", kills=("gss-init-garbage",))
def test_a_token_that_is_none_makes_no_context(gss, observe):
    """The creation ends with an error, and the connection goes on."""
    rpc = gss.bench.rpc()
    reply = send_token(rpc, b"this is no token of GSS-API")
    observe(f"{reply.status}" if reply.result is None else f"gss_major {reply.result.gss_major:#x}")
    if reply.result is not None:
        assert reply.result.gss_major not in (GSS_S_COMPLETE, GSS_S_CONTINUE_NEEDED)
    rpc.security = context = create_context(rpc, gss.mechanism())
    executed(call(rpc, context))


@pytest.mark.case("GSS-INIT-CONTINUE", section="RFC 2203 5.2.2", kills=("gss-continue-accepted",))
def test_a_creation_that_was_not_begun_is_not_continued(gss, observe):
    rpc = gss.bench.rpc()
    proc = rpc_gss_proc_t.RPCSEC_GSS_CONTINUE_INIT
    reply = send_token(rpc, gss.mechanism().step(b""), handle=b"no context", proc=proc)
    observe(reply.status)
    assert reply.result is None or reply.result.gss_major not in (GSS_S_COMPLETE, GSS_S_CONTINUE_NEEDED)


@pytest.mark.case("GSS-INIT-PROCEDURE", section="RFC 2203 5.2.2", kills=("gss-init-procedure",))
def test_a_context_is_created_by_the_null_procedure_only(gss, observe):
    reply = send_token(gss.bench.rpc(), gss.mechanism().step(b""), procedure="COMPOUND")
    observe(reply.status)
    assert reply.result is None or reply.result.gss_major != GSS_S_COMPLETE, "a COMPOUND made a context"


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(number, id=name.lower(), marks=pytest.mark.case(f"GSS-VERSION-{name}"))
        for name, number in (("0", 0), ("99", 99), ("MAX", 0xFFFFFFFF))
    ],
)
@pytest.mark.case(section="RFC 2203 5.1", kills=("gss-version-accepted", "gss-version-status"))
def test_another_version_is_rejected(gss, version):
    reply = send_token(gss.bench.rpc(), gss.mechanism().step(b""), version=version)
    denied(reply, "AUTH_REJECTEDCRED")


# Credentials and verifiers of calls


@pytest.mark.case(
    "GSS-HANDLE", section="RFC 2203 5.3.3.3", kills=("gss-handle-accepted", "gss-handle-status")
)
def test_an_unknown_handle_is_denied(gss):
    rpc, context = gss.connect()
    denied(call(rpc, context, handle=b"\xff" * len(context.handle)), "RPCSEC_GSS_CREDPROBLEM")
    executed(call(rpc, context))


@pytest.mark.case("GSS-HANDLE-SHORT", section="RFC 2203 5.3.3.3", kills=("gss-handle-status",))
def test_a_handle_of_another_size_is_denied(gss):
    rpc, context = gss.connect()
    denied(call(rpc, context, handle=context.handle[:-1]), "RPCSEC_GSS_CREDPROBLEM", "AUTH_BADCRED")
    executed(call(rpc, context))


@services("GSS-HEADER-CHECKSUM")
@pytest.mark.case(section="RFC 2203 5.3.3.4.2", kills=("gss-header-unchecked", "gss-header-status"))
def test_a_wrong_checksum_of_the_header_is_denied(gss, service):
    rpc, context = gss.connect(service)
    made = context.encode_call(rpc.program, COMPOUND, LOOK)
    start, end = made.spans["body.value.verf.body"]
    mic = bytearray(made.data[start:end])
    mic[-8] ^= 1
    reply = rpc.receive(rpc.send(COMPOUND, made.override("body.value.verf.body", bytes(mic))))
    denied(reply, "RPCSEC_GSS_CREDPROBLEM")
    executed(call(rpc, context))


@pytest.mark.case("GSS-HEADER-CHANGED", section="RFC 2203 5.3.1", kills=("gss-header-unchecked",))
def test_a_header_that_was_changed_after_its_checksum_is_denied(gss):
    """The checksum is of the header from the xid to the credential; here the procedure was another."""
    rpc, context = gss.connect()
    made = context.encode_call(rpc.program, NULL).override("body.value.proc", COMPOUND.number)
    denied(rpc.receive(rpc.send(NULL, made)), "RPCSEC_GSS_CREDPROBLEM")
    executed(call(rpc, context))


@pytest.mark.case("GSS-HEADER-NONE", section="RFC 2203 5.3.1", kills=("gss-header-unchecked",))
def test_a_call_without_a_checksum_is_denied(gss, observe):
    rpc, context = gss.connect()
    cred = credential(rpc_gss_proc_t.RPCSEC_GSS_DATA, next(context.sequence), NONE, context.handle)
    reply = rpc.ask("COMPOUND", LOOK, cred=cred)
    observe(reply.status)
    assert not isinstance(reply.body.value, accepted_reply), f"{reply.status}: the verifier is AUTH_NONE"
    executed(call(rpc, context))


@pytest.mark.case("GSS-HEADER-OTHER", section="RFC 2203 5.3.3.4.2", kills=("gss-header-unchecked",))
def test_a_checksum_of_another_context_is_denied(gss):
    rpc, context = gss.connect()
    other = gss.context()
    reply = call(rpc, other, handle=context.handle, seq=next(context.sequence))
    denied(reply, "RPCSEC_GSS_CREDPROBLEM")
    executed(call(rpc, context))


@pytest.mark.case("GSS-CRED-CUT", section="RFC 2203 5", kills=("gss-cred-cut",))
def test_a_credential_that_is_cut_is_denied(gss, observe):
    rpc, context = gss.connect()
    whole = credential(rpc_gss_proc_t.RPCSEC_GSS_DATA, next(context.sequence), NONE, context.handle)
    cut = type(whole)(whole.flavor, whole.body[:12])
    reply = rpc.ask("COMPOUND", LOOK, cred=cut)
    observe(reply.status)
    assert not isinstance(reply.body.value, accepted_reply), f"{reply.status}: the credential is cut"
    executed(call(rpc, context))


@pytest.mark.parametrize(
    "proc",
    [
        pytest.param(4, marks=pytest.mark.case("GSS-PROC-4")),
        pytest.param(99, marks=pytest.mark.case("GSS-PROC-99")),
    ],
)
@pytest.mark.case(section="RFC 2203 5", kills=("gss-proc-accepted",))
def test_an_undefined_gss_proc_is_denied(gss, proc, observe):
    rpc, context = gss.connect()
    reply = call(rpc, context, proc=proc)
    observe(reply.status)
    assert not isinstance(reply.body.value, accepted_reply), f"{reply.status}: gss_proc {proc} is not defined"


@pytest.mark.parametrize(
    "service",
    [
        pytest.param(0, marks=pytest.mark.case("GSS-SERVICE-0")),
        pytest.param(4, marks=pytest.mark.case("GSS-SERVICE-4")),
    ],
)
@pytest.mark.case(section="RFC 2203 5.3.3.1", kills=("gss-service-accepted",))
def test_an_undefined_service_is_not_executed(gss, service, observe):
    rpc, context = gss.connect()
    reply = call(rpc, context, service=service)
    observe(reply.status)
    assert reply.accepted != accept_stat.SUCCESS, f"{reply.status}: service {service} is not defined"


@pytest.mark.case("GSS-SERVICE-EACH", section="RFC 2203 5.3.1", kills=("gss-service-fixed",))
def test_each_call_of_a_context_has_its_own_service(gss):
    rpc, context = gss.connect(INTEGRITY)
    for service in (INTEGRITY, PRIVACY, NONE, INTEGRITY):
        executed(call(rpc, context, service=service))


@pytest.mark.case("GSS-CONNECTION", section="RFC 2203 5.3", kills=("gss-connection",))
def test_a_context_is_used_on_another_connection(gss):
    context = gss.context()
    rpc = gss.bench.rpc(security=context)
    executed(call(rpc, context))


# Sequence numbers


@services("GSS-REPLAY")
@pytest.mark.case(kills=("gss-replay-executed", "gss-replay-denied"))
def test_a_sequence_number_that_was_used_is_discarded(gss, service):
    """Another call with the sequence number of an earlier one has no reply; the context goes on."""
    rpc, context = gss.connect(service)
    used = next(context.sequence)
    executed(call(rpc, context, seq=used))
    discarded(rpc, context, context.encode_call(rpc.program, COMPOUND, LOOK, seq=used))


@pytest.mark.case("GSS-REPLAY-BYTES", kills=("gss-replay-executed", "gss-replay-denied"))
def test_a_call_that_is_sent_again_byte_by_byte_is_discarded(gss):
    rpc, context = gss.connect()
    made = context.encode_call(rpc.program, COMPOUND, LOOK)
    executed(rpc.receive(rpc.send(COMPOUND, made)))
    discarded(rpc, context, made)


@pytest.mark.case("GSS-REPLAY-CONNECTION", kills=("gss-replay-executed", "gss-replay-denied"))
def test_a_call_that_is_sent_again_on_another_connection_is_discarded(gss):
    rpc, context = gss.connect()
    made = context.encode_call(rpc.program, COMPOUND, LOOK)
    executed(rpc.receive(rpc.send(COMPOUND, made)))
    discarded(gss.bench.rpc(security=context), context, made)


@pytest.mark.case("GSS-WINDOW-BELOW", kills=("gss-old-executed",))
def test_a_sequence_number_below_the_window_is_discarded(gss):
    rpc, context = gss.connect()
    old = next(context.sequence)
    far = old + context.window + 100
    executed(call(rpc, context, seq=far))
    for _ in range(far - old):
        next(context.sequence)
    discarded(rpc, context, context.encode_call(rpc.program, COMPOUND, LOOK, seq=old))


@pytest.mark.case("GSS-WINDOW-ORDER", kills=("gss-window-in-order",))
def test_sequence_numbers_in_the_window_are_executed_in_any_order(gss):
    rpc, context = gss.connect()
    first = next(context.sequence)
    count = min(context.window, 8)
    for seq in reversed(range(first, first + count)):
        executed(call(rpc, context, seq=seq))


@pytest.mark.case("GSS-WINDOW-EDGE", kills=("gss-window-in-order",))
def test_the_lowest_sequence_number_of_the_window_is_executed(gss):
    """The window has the highest number that was seen, and the numbers below it."""
    rpc, context = gss.connect()
    lowest = next(context.sequence)
    executed(call(rpc, context, seq=lowest + context.window - 1))
    executed(call(rpc, context, seq=lowest))


@pytest.mark.case("GSS-WINDOW-JUMP", kills=("gss-window-jump",))
def test_a_sequence_number_far_above_the_window_is_executed(gss):
    rpc, context = gss.connect()
    executed(call(rpc, context))
    executed(call(rpc, context, seq=MAXSEQ - 1))


@pytest.mark.parametrize(
    "seq",
    [
        pytest.param(MAXSEQ + 1, id="over", marks=pytest.mark.case("GSS-MAXSEQ")),
        pytest.param(0xFFFFFFFF, id="max", marks=pytest.mark.case("GSS-MAXSEQ-MAX")),
    ],
)
@pytest.mark.case(section="RFC 2203 5.3.3.3", kills=("gss-maxseq-accepted",))
def test_a_sequence_number_over_maxseq_is_denied(gss, seq):
    rpc, context = gss.connect()
    denied(call(rpc, context, seq=seq), "RPCSEC_GSS_CTXPROBLEM")


@pytest.mark.case("GSS-FORGED", section="RFC 2203 7.2.2", kills=("gss-forged-counts",))
def test_a_call_with_a_wrong_checksum_uses_no_sequence_number_up(gss):
    """A third party that has no key cannot have the calls of the client discarded."""
    rpc, context = gss.connect()
    seq = next(context.sequence)
    denied(call(rpc, gss.context(), handle=context.handle, seq=seq), "RPCSEC_GSS_CREDPROBLEM")
    executed(call(rpc, context, seq=seq))


@pytest.mark.case("GSS-FORGED-ABOVE", section="RFC 2203 7.2.1", kills=("gss-forged-counts",))
def test_a_call_with_a_wrong_checksum_does_not_move_the_window(gss):
    rpc, context = gss.connect()
    above = context.window + 1000
    denied(call(rpc, gss.context(), handle=context.handle, seq=above), "RPCSEC_GSS_CREDPROBLEM")
    executed(call(rpc, context))


# Replies


@services("GSS-REPLY")
@pytest.mark.case(section="RFC 2203 5.3.3.2", kills=("gss-verifier-xid", "gss-verifier-none"))
def test_the_verifier_of_a_reply_is_the_checksum_of_the_sequence_number(gss, service):
    rpc, context = gss.connect(service)
    for _ in range(3):
        executed(call(rpc, context))


@pytest.mark.case("GSS-REPLY-ERROR", section="RFC 2203 5.3.3.2", kills=("gss-error-verifier",))
def test_the_reply_to_an_unknown_procedure_has_a_verifier(gss):
    rpc, context = gss.connect()
    unknown = Procedure(99, "unknown", VOID, VOID)
    xid = rpc.send(unknown, context.encode_call(rpc.program, unknown))
    reply = rpc.receive(xid)
    assert reply.status == "PROC_UNAVAIL", reply.status


@pytest.mark.case(
    "GSS-REPLY-BODY-INTEGRITY",
    section="RFC 2203 5.3.3.2",
    kills=("gss-integ-reply-plain", "gss-integ-reply-checksum", "gss-reply-seq"),
)
def test_the_reply_to_a_call_with_integrity_has_integrity(gss):
    """Its body has the sequence number of the call, and a checksum over both."""
    rpc, context = gss.connect(INTEGRITY)
    executed(call(rpc, context))
    executed(call(rpc, context, None))


@pytest.mark.case(
    "GSS-REPLY-BODY-PRIVACY",
    section="RFC 2203 5.3.3.2",
    kills=("gss-priv-reply-clear", "gss-priv-reply-integrity", "gss-reply-seq"),
)
def test_the_reply_to_a_call_with_privacy_is_encrypted(gss):
    rpc, context = gss.connect(PRIVACY)
    executed(call(rpc, context))
    executed(call(rpc, context, None))


# Bodies


@pytest.mark.case(
    "GSS-BODY-CHECKSUM", section="RFC 2203 5.3.3.4.2", kills=("gss-integ-unchecked", "gss-body-status")
)
def test_a_wrong_checksum_of_the_body_is_garbage(gss):
    rpc, context = gss.connect(INTEGRITY)
    made = context.encode_call(rpc.program, COMPOUND, LOOK)
    start, end = made.spans["checksum"]
    mic = bytearray(made.data[start:end])
    mic[-8] ^= 1
    reply = rpc.receive(rpc.send(COMPOUND, made.override("checksum", bytes(mic))))
    assert reply.accepted == accept_stat.GARBAGE_ARGS, f"{reply.status}, not GARBAGE_ARGS"
    executed(call(rpc, context))


@pytest.mark.case(
    "GSS-BODY-CHANGED", section="RFC 2203 5.3.3.4.2", kills=("gss-integ-unchecked", "gss-body-status")
)
def test_an_argument_that_was_changed_after_its_checksum_is_garbage(gss):
    rpc, context = gss.connect(INTEGRITY)
    made = context.encode_call(rpc.program, COMPOUND, LOOK)
    start, end = made.spans["databody_integ"]
    body = made.data[start:end].replace(b"gss", b"GSS")
    reply = rpc.receive(rpc.send(COMPOUND, made.override("databody_integ", body)))
    assert reply.accepted == accept_stat.GARBAGE_ARGS, f"{reply.status}, not GARBAGE_ARGS"
    executed(call(rpc, context))


@protected("GSS-BODY-SEQ")
@pytest.mark.case(section="RFC 2203 5.3.2.2", kills=("gss-body-seq", "gss-body-status"))
def test_another_sequence_number_in_the_body_is_garbage(gss, service):
    rpc, context = gss.connect(service)
    reply = call(rpc, context, inner=0x7FFFFFF0)
    assert reply.accepted == accept_stat.GARBAGE_ARGS, f"{reply.status}, not GARBAGE_ARGS"
    executed(call(rpc, context))


@pytest.mark.case(
    "GSS-BODY-PRIVACY", section="RFC 2203 5.3.3.4.3", kills=("gss-priv-unchecked", "gss-body-status")
)
def test_a_body_that_cannot_be_decrypted_is_garbage(gss):
    rpc, context = gss.connect(PRIVACY)
    made = context.encode_call(rpc.program, COMPOUND, LOOK)
    start, end = made.spans["databody_priv"]
    body = bytearray(made.data[start:end])
    body[-10] ^= 1
    reply = rpc.receive(rpc.send(COMPOUND, made.override("databody_priv", bytes(body))))
    assert reply.accepted == accept_stat.GARBAGE_ARGS, f"{reply.status}, not GARBAGE_ARGS"
    executed(call(rpc, context))


@protected("GSS-BODY-CLEAR")
@pytest.mark.case(section="RFC 2203 5.3.2", kills=("gss-body-status",))
def test_a_body_without_protection_is_garbage(gss, service):
    """The credential names a service, and the body is the argument as it is."""
    rpc, context = gss.connect()
    made = context.encode_call(rpc.program, COMPOUND, LOOK, service=service)
    body = made.cut("databody_integ" if service == INTEGRITY else "databody_priv")
    plain = context.encode_call(rpc.program, COMPOUND, LOOK, seq=MAXSEQ - 2, service=NONE)
    argument = plain.data[plain.spans["tag"][0] :]
    reply = rpc.receive(rpc.send(COMPOUND, body + argument))
    assert reply.accepted == accept_stat.GARBAGE_ARGS, f"{reply.status}, not GARBAGE_ARGS"
    executed(call(rpc, context))


# The end of a context


@services("GSS-DESTROY")
@pytest.mark.case(
    section="RFC 2203 5.4", kills=("gss-destroy-kept", "gss-destroy-silent", "gss-destroy-verifier")
)
def test_a_context_that_was_destroyed_is_unknown(gss, service):
    rpc, context = gss.connect(service)
    executed(call(rpc, context))
    executed(call(rpc, context, None, proc=rpc_gss_proc_t.RPCSEC_GSS_DESTROY))
    denied(call(rpc, context), "RPCSEC_GSS_CREDPROBLEM")


@pytest.mark.case("GSS-DESTROY-OTHER", section="RFC 2203 5.4", kills=("gss-handle-status",))
def test_the_end_of_a_context_leaves_the_others(gss):
    rpc, context = gss.connect()
    other_rpc, other = gss.connect()
    call(rpc, context, None, proc=rpc_gss_proc_t.RPCSEC_GSS_DESTROY)
    executed(call(other_rpc, other))
    denied(call(other_rpc, context), "RPCSEC_GSS_CREDPROBLEM")
