"""Rules that compare a reply with others, with its request or with its share."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from judged_reply import judged

from storagetest.wire.nfs3.replies import Nfs3Rules
from storagetest.wire.nfs3.types import (
    NFS_V3,
    GETATTR3args,
    GETATTR3res,
    GETATTR3resok,
    LOOKUP3args,
    LOOKUP3res,
    LOOKUP3resok,
    diropargs3,
    fattr3,
    ftype3,
    nfs_fh3,
    nfsstat3,
    nfstime3,
    specdata3,
)
from storagetest.wire.nfs4 import types as v4
from storagetest.wire.nfs4.attributes import bitmap, encode_attributes
from storagetest.wire.nfs4.operations import getattr_, op, putfh, remove, setattr_
from storagetest.wire.nfs4.replies import Nfs4Rules
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.codes import Action, Disposition, FileInfo, InfoType, SmbCommand
from storagetest.wire.smb2.message import SmbEncoded, decode, request, response
from storagetest.wire.smb2.replies import DISK, PIPE, SmbRules

FILE, DIRECTORY = nfs_fh3(b"file"), nfs_fh3(b"directory")
TIME = nfstime3(1, 0)
STATED = fattr3(ftype3.NF3REG, 0o644, 1, 0, 0, 10, 4096, specdata3(0, 0), 1, 2, TIME, TIME, TIME)
OK = v4.nfsstat4.NFS4_OK
_xids = iter(range(1, 1000))


# NFSv3


def looked_up(rules: Nfs3Rules, attributes: fattr3) -> list[str]:
    result = LOOKUP3res(nfsstat3.NFS3_OK, LOOKUP3resok(FILE, attributes, None))
    return judged(rules, NFS_V3, "LOOKUP", LOOKUP3args(diropargs3(DIRECTORY, b"name")), result)


def got(rules: Nfs3Rules, attributes: fattr3) -> list[str]:
    result = GETATTR3res(nfsstat3.NFS3_OK, GETATTR3resok(attributes))
    return judged(rules, NFS_V3, "GETATTR", GETATTR3args(FILE), result)


def test_attributes_are_those_of_the_reply_before() -> None:
    rules = Nfs3Rules()
    assert looked_up(rules, STATED) == got(rules, STATED) == []
    assert got(rules, replace(STATED, atime=nfstime3(2, 0), used=0)) == []
    assert "nothing was changed" in got(rules, replace(STATED, size=11))[0]


def test_attributes_of_a_file_that_was_not_looked_up_may_change() -> None:
    rules = Nfs3Rules()
    assert got(rules, STATED) == got(rules, replace(STATED, size=11)) == []


# NFSv4


def compound(rules: Nfs4Rules, *pairs: tuple[Any, Any]) -> list[str]:
    """Return the faults of a COMPOUND of operations with their results."""
    given = tuple(one for one, _ in pairs)
    results = tuple(v4.nfs_resop4(one.argop, result) for one, result in pairs)
    result = v4.COMPOUND4res(OK, b"", results)
    return judged(rules, v4.NFS_V4, "COMPOUND", v4.COMPOUND4args(b"", 0, given), result)


def stateid(other: int, seqid: int = 1) -> v4.stateid4:
    return v4.stateid4(seqid, bytes([other]) * 12)


@pytest.mark.parametrize(("other", "faults"), [(7, 0), (8, 1)])
def test_a_stateid_keeps_what_identifies_it(other: int, faults: int) -> None:
    asked = v4.LOCKU4args(v4.nfs_lock_type4.WRITE_LT, 0, stateid(7), 0, 1)
    found = compound(Nfs4Rules(), (op("LOCKU", asked), v4.LOCKU4res(OK, stateid(other, 2))))
    assert len(found) == faults


@pytest.mark.parametrize(("mask", "faults"), [((33,), 0), ((), 1), ((33, 54), 1)])
def test_attrsset_is_what_was_to_be_set(mask: tuple[int, ...], faults: int) -> None:
    done = v4.SETATTR4res(OK, bitmap(*mask))
    assert len(compound(Nfs4Rules(), (setattr_({v4.FATTR4_MODE: 0o600}), done))) == faults


def test_an_attribute_that_every_server_has_is_returned() -> None:
    done = v4.GETATTR4res(OK, v4.GETATTR4resok(encode_attributes({v4.FATTR4_SIZE: 1})))
    assert compound(Nfs4Rules(), (getattr_(v4.FATTR4_SIZE, v4.FATTR4_MODE), done)) == []
    assert "every server" in compound(Nfs4Rules(), (getattr_(v4.FATTR4_SIZE, v4.FATTR4_TYPE), done))[0]


@pytest.mark.parametrize(
    ("atomic", "before", "faults"),
    [(True, 5, 0), (True, 4, 1), (False, 4, 0)],
    ids=["same", "other", "loose"],
)
def test_a_change_begins_where_the_last_one_ended(atomic: bool, before: int, faults: int) -> None:
    rules = Nfs4Rules()
    here = (putfh(b"directory"), v4.PUTFH4res(OK))

    def removed(name: bytes, info: v4.change_info4) -> list[str]:
        return compound(rules, here, (remove(name), v4.REMOVE4res(OK, v4.REMOVE4resok(info))))

    first = v4.change_info4(atomic=True, before=1, after=5)
    assert removed(b"first", first) == []
    assert removed(b"first", first) == [], "sent again, it may have the reply of before"
    assert removed(b"second", first) == [], "what the reply before it states may be old"
    assert removed(b"third", first) != []
    rules = Nfs4Rules()
    assert removed(b"first", first) == []
    assert len(removed(b"second", v4.change_info4(atomic=atomic, before=before, after=9))) == faults


# SMB


def smb(rules: SmbRules, asked: SmbEncoded, answer: SmbEncoded, *, tree: int = 3) -> list[str]:
    over = {"message_id": next(_xids), "session_id": 9}
    rules.sent(asked.override(**over, tree_id=tree).data, related=False)
    over |= {"tree_id": 3}
    return rules.faults(decode(answer.override(**over).data), None)


def of_share(kind: int, most: int = 0x1F01FF) -> SmbRules:
    """Return rules that have seen the connection of tree 3."""
    rules = SmbRules()
    connected = response(SmbCommand.TREE_CONNECT, share_type=kind, maximal_access=most)
    assert smb(rules, request(SmbCommand.TREE_CONNECT, b"\\\0"), connected, tree=0) == []
    return rules


def test_a_response_names_the_tree_of_its_request() -> None:
    asked, answer = request(SmbCommand.CLOSE), response(SmbCommand.CLOSE)
    assert smb(SmbRules(), asked, answer) == []
    assert "TreeId" in smb(SmbRules(), asked, answer, tree=4)[0]


@pytest.mark.parametrize(("kind", "faults"), [(DISK, 1), (PIPE, 0)])
def test_the_action_of_an_open_is_judged_on_disks(kind: int, faults: int) -> None:
    asked = request(SmbCommand.CREATE, b"p\0", disposition=Disposition.CREATE, access=1)
    assert len(smb(of_share(kind), asked, response(SmbCommand.CREATE, action=Action.OPENED))) == faults


def test_access_is_granted_within_that_of_the_tree() -> None:
    asked = request(SmbCommand.CREATE, b"p\0", disposition=Disposition.OPEN, access=2)
    answer = response(SmbCommand.CREATE, action=Action.OPENED)
    assert smb(of_share(DISK), asked, answer) == []
    assert "MaximalAccess" in smb(of_share(DISK, 1), asked, answer)[0]


@pytest.mark.parametrize(
    ("data", "text"),
    [(bytes(8), ""), (bytes(7), "another size"), (b"\xff" * 3, "malformed")],
    ids=["whole", "short", "malformed"],
)
def test_create_contexts_of_a_response_have_their_form(data: bytes, text: str) -> None:
    wanted = c.encode_create([(c.MAXIMAL_ACCESS, b"")])
    asked = request(SmbCommand.CREATE, wanted, context_offset=120, context_length=len(wanted))
    made = c.encode_create([(c.MAXIMAL_ACCESS, data)]) if text != "malformed" else data
    answer = response(SmbCommand.CREATE, made, context_offset=152, context_length=len(made))
    found = smb(SmbRules(), asked, answer)
    assert text in found[0] if text else not found


def test_a_context_that_was_not_asked_for_is_a_fault() -> None:
    made = c.encode_create([(c.ON_DISK_ID, bytes(32))])
    answer = response(SmbCommand.CREATE, made, context_offset=152, context_length=len(made))
    assert "not asked for" in smb(SmbRules(), request(SmbCommand.CREATE, b"p\0"), answer)[0]


@pytest.mark.parametrize(("additional", "faults"), [(1, 0), (4, 1)])
def test_a_security_descriptor_has_the_parts_that_were_asked_for(additional: int, faults: int) -> None:
    asked = request(
        SmbCommand.QUERY_INFO, info_type=InfoType.SECURITY, additional=additional, output_length=4096
    )
    data = struct.pack("<BBHIIII", 1, 0, 0x8000, 20, 0, 0, 0) + bytes(12)
    assert len(smb(SmbRules(), asked, response(SmbCommand.QUERY_INFO, data, buffer_offset=72))) == faults


def test_an_entry_comes_once_in_a_scan() -> None:
    rules = SmbRules()

    def listed(flags: int) -> list[str]:
        asked = request(
            SmbCommand.QUERY_DIRECTORY, b"*\0", info_class=FileInfo.NAMES, output_length=4096, flags=flags
        )
        entry = struct.pack("<III", 0, 0, 2) + b"a\0"
        return smb(rules, asked, response(SmbCommand.QUERY_DIRECTORY, entry, buffer_offset=72))

    assert listed(0) == listed(1) == []
    assert "comes again" in listed(0)[0]
