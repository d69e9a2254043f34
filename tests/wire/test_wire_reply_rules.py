"""What every reply has to keep: a sound reply has no fault, and each broken rule is one sentence."""

from __future__ import annotations

import struct

import pytest
from judged_reply import judged

from storagetest.wire.nfs3.replies import Nfs3Rules
from storagetest.wire.nfs3.types import (
    NFS_V3,
    ACCESS3args,
    ACCESS3res,
    ACCESS3resok,
    COMMIT3args,
    COMMIT3res,
    COMMIT3resok,
    READ3args,
    READ3res,
    READ3resok,
    REMOVE3args,
    REMOVE3res,
    REMOVE3resok,
    diropargs3,
    fattr3,
    ftype3,
    nfs_fh3,
    nfsstat3,
    nfstime3,
    specdata3,
    wcc_attr,
    wcc_data,
)
from storagetest.wire.nfs4.replies import Nfs4Rules
from storagetest.wire.nfs4.types import (
    NFS_V4,
    ACCESS4args,
    ACCESS4res,
    ACCESS4resok,
    COMPOUND4args,
    COMPOUND4res,
    nfs_argop4,
    nfs_opnum4,
    nfs_resop4,
    nfsstat4,
)
from storagetest.wire.rpc.message import decode_reply, encode_call, encode_reply
from storagetest.wire.smb2.codes import Flags, NotifyAction, SmbCommand, SmbStatus
from storagetest.wire.smb2.message import SmbEncoded, decode, request, response
from storagetest.wire.smb2.replies import SmbRules

FILE = nfs_fh3(b"handle")
_xids = iter(range(1, 100))


def read(count: int, data: bytes, *, eof: bool) -> list[str]:
    result = READ3res(nfsstat3.NFS3_OK, READ3resok(None, len(data), eof, data))
    return judged(Nfs3Rules(), NFS_V3, "READ", READ3args(FILE, 0, count), result)


def test_a_sound_read_has_no_fault() -> None:
    assert read(4, b"data", eof=False) == []
    assert read(4, b"", eof=True) == []


def test_a_read_of_too_much_or_of_nothing_has_one() -> None:
    assert "more than was asked for" in read(3, b"data", eof=False)[0]
    assert "returns nothing, and no eof" in read(3, b"", eof=False)[0]


def test_bits_of_access_that_were_not_asked_for_are_a_fault() -> None:
    def access(bits: int) -> list[str]:
        result = ACCESS3res(nfsstat3.NFS3_OK, ACCESS3resok(None, bits))
        return judged(Nfs3Rules(), NFS_V3, "ACCESS", ACCESS3args(FILE, 1), result)

    assert access(1) == []
    assert "not asked for" in access(3)[0]


def test_a_verifier_that_changes_on_a_connection_is_a_fault() -> None:
    rules = Nfs3Rules()

    def commit(verifier: bytes) -> list[str]:
        result = COMMIT3res(nfsstat3.NFS3_OK, COMMIT3resok(wcc_data(None, None), verifier))
        return judged(rules, NFS_V3, "COMMIT", COMMIT3args(FILE, 0, 0), result)

    assert commit(b"verifier") == commit(b"verifier") == []
    assert "verifier" in commit(b"another!")[0]


def remove(name: bytes, before: int, after: int) -> tuple[REMOVE3args, REMOVE3res]:
    """Return a REMOVE whose directory had one size before it, and has another after it."""
    time = nfstime3(1, 0)
    stated = fattr3(ftype3.NF3DIR, 0o755, 2, 0, 0, after, after, specdata3(0, 0), 1, 2, time, time, time)
    wcc = wcc_data(wcc_attr(before, time, time), stated)
    return REMOVE3args(diropargs3(FILE, name)), REMOVE3res(nfsstat3.NFS3_OK, REMOVE3resok(wcc))


def test_attributes_before_an_operation_are_those_after_the_last_one() -> None:
    rules = Nfs3Rules()
    assert judged(rules, NFS_V3, "REMOVE", *remove(b"one", 4096, 512)) == []
    assert judged(rules, NFS_V3, "REMOVE", *remove(b".", 1024, 1024)) == []
    assert judged(rules, NFS_V3, "REMOVE", *remove(b"two", 512, 512)) == []
    assert "before the operation" in judged(rules, NFS_V3, "REMOVE", *remove(b"three", 4096, 512))[0]


def test_calls_that_overlap_have_no_order() -> None:
    rules, procedure = Nfs3Rules(), NFS_V3.procedure("REMOVE")
    pairs = [remove(name, before, before - 1) for name, before in ((b"one", 9), (b"two", 10))]
    calls = [encode_call(NFS_V3, procedure, argument, xid=next(_xids)).data for argument, _ in pairs]
    for call in calls:
        rules.sent(call)
    for call, (_, result) in zip(calls, pairs, strict=True):
        reply = decode_reply(encode_reply(int.from_bytes(call[:4], "big"), procedure, result).data, procedure)
        assert rules.faults("connection", call, reply) == []
    assert judged(rules, NFS_V3, "REMOVE", *remove(b"three", 7, 6)) == []


def compound(asked: int, granted: int, *, results: int = 1) -> list[str]:
    given = nfs_argop4(nfs_opnum4.OP_ACCESS, ACCESS4args(asked))
    value = ACCESS4res(nfsstat4.NFS4_OK, ACCESS4resok(granted, granted))
    one = nfs_resop4(nfs_opnum4.OP_ACCESS, value)
    result = COMPOUND4res(nfsstat4.NFS4_OK, b"", (one,) * results)
    return judged(Nfs4Rules(), NFS_V4, "COMPOUND", COMPOUND4args(b"", 0, (given,)), result)


def test_a_compound_is_judged_by_operation_and_as_a_whole() -> None:
    assert compound(1, 1) == []
    assert any("not asked for" in fault for fault in compound(1, 3))
    assert any("more results than operations" in fault for fault in compound(1, 1, results=2))


def smb(asked: SmbEncoded, answer: SmbEncoded, interim: SmbEncoded | None = None) -> list[str]:
    rules = SmbRules()
    rules.sent(asked.override(message_id=5).data, related=False)
    before = None if interim is None else decode(interim.override(message_id=5).data)
    return rules.faults(decode(answer.override(message_id=5).data), before)


@pytest.mark.parametrize(
    ("async_id", "faults"),
    [
        (7, []),
        (8, ["MS-SMB2 3.3.4.3, 3.3.4.4: a response has another AsyncId than the interim one before it"]),
        (None, ["MS-SMB2 3.3.4.3, 3.3.4.4: a response after an interim one is not asynchronous"]),
    ],
)
def test_a_final_response_after_an_interim_one_is_asynchronous(
    async_id: int | None, faults: list[str]
) -> None:
    def answer(status: int, number: int) -> SmbEncoded:
        flags = Flags.RESPONSE | Flags.ASYNC
        return response(SmbCommand.LOCK, status=status).override(header_flags=flags, async_id=number)

    final = response(SmbCommand.LOCK) if async_id is None else answer(0, async_id)
    assert smb(request(SmbCommand.LOCK), final, answer(SmbStatus.PENDING, 7)) == faults


def test_what_else_a_synchronous_final_response_breaks_is_judged() -> None:
    interim = response(SmbCommand.READ, status=SmbStatus.PENDING)
    final = response(SmbCommand.READ, b"more", buffer_offset=80)
    assert len(smb(request(SmbCommand.READ, length=3), final, interim)) == 2


@pytest.mark.parametrize(("size", "text"), [(4, ""), (5, "more than was asked for")])
def test_a_response_to_read_has_what_was_asked_for(size: int, text: str) -> None:
    asked = request(SmbCommand.READ, length=4)
    found = smb(asked, response(SmbCommand.READ, b"d" * size, buffer_offset=80))
    assert [text in fault for fault in found] == ([True] if text else [])


def test_the_attributes_of_a_close_that_did_not_ask_are_zero() -> None:
    asked = request(SmbCommand.CLOSE)
    assert smb(asked, response(SmbCommand.CLOSE)) == []
    assert smb(asked, response(SmbCommand.CLOSE, creation_time=5)) == []  # a SHOULD (MS-SMB2 2.2.16)
    assert "not asked for" in smb(asked, response(SmbCommand.CLOSE, end_of_file=5))[0]


def test_the_two_names_of_a_rename_may_come_in_two_responses() -> None:
    name = "old".encode("utf-16-le")
    notified = struct.pack("<III", 0, NotifyAction.RENAMED_OLD_NAME, len(name)) + name
    asked = request(SmbCommand.CHANGE_NOTIFY, output_length=4096)
    assert smb(asked, response(SmbCommand.CHANGE_NOTIFY, notified, buffer_offset=72)) == []
