"""The types of NFSv3, MOUNT, NLM and NSM on the wire are those of RFC 1813 and XNFS, field by field.

The rows do not use script/xdr, so that a mistake there is seen here: ``i`` and ``u`` are an int and an
unsigned int, ``h`` and ``U`` a hyper and an unsigned hyper, ``b`` a bool, ``e`` an enum, ``o8`` eight opaque
bytes, ``v64`` up to 64, ``?(…)`` an optional value, ``*(…)`` a list, ``|…`` the arms of a union.
"""

from __future__ import annotations

from typing import Any

import pytest

from storagetest.wire.nfs3 import mount, nlm, nsm, types
from storagetest.wire.xdr import codecs

DIROP, SATTR = "v64 v", "?(u) ?(u) ?(u) ?(U) |e 2:u u * |e 2:u u *"
FATTR = "e u u u u U U u u U U u u u u u u"
POST, WCC = f"?({FATTR})", f"?(U u u u u) ?({FATTR})"
LOCK = "v1024 v1024 v1024 i U U"
ARGUMENTS = {
    types.GETATTR3args: "v64",
    types.SETATTR3args: f"v64 {SATTR} ?(u u)",
    types.LOOKUP3args: DIROP,
    types.ACCESS3args: "v64 u",
    types.READLINK3args: "v64",
    types.READ3args: "v64 U u",
    types.WRITE3args: "v64 U u e v",
    types.MKDIR3args: f"{DIROP} {SATTR}",
    types.CREATE3args: f"{DIROP} |e 0:{SATTR} 1:{SATTR} 2:o8",
    types.SYMLINK3args: f"{DIROP} {SATTR} v",
    types.MKNOD3args: f"{DIROP} |e 4:{SATTR} u u 3:{SATTR} u u 6:{SATTR} 7:{SATTR} *",
    types.REMOVE3args: DIROP,
    types.RMDIR3args: DIROP,
    types.RENAME3args: f"{DIROP} {DIROP}",
    types.LINK3args: f"v64 {DIROP}",
    types.READDIR3args: "v64 U o8 u",
    types.READDIRPLUS3args: "v64 U o8 u u",
    types.FSSTAT3args: "v64",
    types.FSINFO3args: "v64",
    types.PATHCONF3args: "v64",
    types.COMMIT3args: "v64 U u",
}
RESULTS = {
    types.GETATTR3resok: FATTR,
    types.SETATTR3resok: WCC,
    types.LOOKUP3resok: f"v64 {POST} {POST}",
    types.LOOKUP3resfail: POST,
    types.ACCESS3resok: f"{POST} u",
    types.READLINK3resok: f"{POST} v",
    types.READ3resok: f"{POST} u b v",
    types.READ3resfail: POST,
    types.WRITE3resok: f"{WCC} u e o8",
    types.WRITE3resfail: WCC,
    types.CREATE3resok: f"?(v64) {POST} {WCC}",
    types.CREATE3resfail: WCC,
    types.MKDIR3resok: f"?(v64) {POST} {WCC}",
    types.SYMLINK3resok: f"?(v64) {POST} {WCC}",
    types.MKNOD3resok: f"?(v64) {POST} {WCC}",
    types.REMOVE3resok: WCC,
    types.RMDIR3resok: WCC,
    types.RENAME3resok: f"{WCC} {WCC}",
    types.RENAME3resfail: f"{WCC} {WCC}",
    types.LINK3resok: f"{POST} {WCC}",
    types.LINK3resfail: f"{POST} {WCC}",
    types.READDIR3resok: f"{POST} o8 *(U v U) b",
    types.READDIRPLUS3resok: f"{POST} o8 *(U v U {POST} ?(v64)) b",
    types.READDIRPLUS3resfail: POST,
    types.FSSTAT3resok: f"{POST} U U U U U U u",
    types.FSINFO3resok: f"{POST} u u u u u u u U u u u",
    types.PATHCONF3resok: f"{POST} u u b b b b",
    types.COMMIT3resok: f"{WCC} o8",
    mount.mountres3: "|e 0:v64 [i] *",
    mount.mountlist: "*(v255 v1024)",
    mount.exports: "*(v1024 *(v255))",
}
LOCKS = {
    nlm.nlm4_testargs: f"v1024 b {LOCK}",
    nlm.nlm4_testres: "v1024 |e 1:b i v1024 U U *",
    nlm.nlm4_lockargs: f"v1024 b b {LOCK} b i",
    nlm.nlm4_cancargs: f"v1024 b b {LOCK}",
    nlm.nlm4_unlockargs: f"v1024 {LOCK}",
    nlm.nlm4_res: "v1024 e",
    nlm.nlm4_shareargs: "v1024 v1024 v1024 v1024 e e b",
    nlm.nlm4_shareres: "v1024 e i",
    nlm.nlm4_notify: "v1025 i",
    nsm.sm_name: "v1024",
    nsm.mon: "v1024 v1024 i i i o16",
    nsm.sm_stat_res: "e i",
    nsm.stat_chge: "v1024 i",
    nsm.sm_status: "v1024 i o16",
}
NAMES = {
    types.NFS_V3: "NULL GETATTR SETATTR LOOKUP ACCESS READLINK READ WRITE CREATE MKDIR SYMLINK MKNOD REMOVE "
    "RMDIR RENAME LINK READDIR READDIRPLUS FSSTAT FSINFO PATHCONF COMMIT",
    mount.MOUNT_V3: "NULL MNT DUMP UMNT UMNTALL EXPORT",
    nsm.SM_VERS: "NULL STAT MON UNMON UNMON_ALL SIMU_CRASH NOTIFY",
    nlm.NLM4_VERS: "NULL TEST LOCK CANCEL UNLOCK GRANTED TEST_MSG LOCK_MSG CANCEL_MSG UNLOCK_MSG GRANTED_MSG "
    "TEST_RES LOCK_RES CANCEL_RES UNLOCK_RES GRANTED_RES - - - - SHARE UNSHARE NM_LOCK FREE_ALL",
}


def layout(codec: Any) -> str:  # noqa: C901  # one case for each codec
    """Return the fields of a codec, as in the rows."""
    match codec:
        case codecs.Integer():
            return {codecs.INT: "i", codecs.UINT: "u", codecs.HYPER: "h", codecs.UHYPER: "U"}[codec]
        case codecs.Enumeration():
            return "e"
        case codecs.Opaque(size):
            return f"o{size}"
        case codecs.VarOpaque(limit):
            return f"v{limit or ''}"
        case codecs.Optional(element):
            return f"?({layout(element)})"
        case codecs.LinkedList(element):
            return f"*({layout(element)})"
        case codecs.VarArray(element):
            return f"[{layout(element)}]"
    if codec is codecs.BOOL:
        return "b"
    if codec is codecs.VOID:
        return ""
    if issubclass(codec, codecs.Union):
        arms = [f"{int(value)}:{layout(arm)}" for value, arm in codec.ARMS.items()]
        return " ".join(["|e", *arms, *(["*"] if codec.DEFAULT is not None else [])])
    return " ".join(layout(one) for _, one in codec.FIELDS)


@pytest.mark.parametrize(("codec", "expected"), list((ARGUMENTS | RESULTS | LOCKS).items()))
def test_a_type_has_the_fields_of_the_standard(codec: Any, expected: str):
    assert layout(codec) == expected


@pytest.mark.parametrize(("program", "expected"), list(NAMES.items()))
def test_a_program_has_the_procedures_of_the_standard(program: codecs.Program, expected: str):
    named = {number: name for number, name in enumerate(expected.split()) if name != "-"}
    assert {number: one.name for number, one in program.procedures.items()} == named


def test_programs_have_the_numbers_of_the_standard():
    assert [(one.number, one.version) for one in NAMES] == [
        (100003, 3),
        (100005, 3),
        (100024, 1),
        (100021, 4),
    ]
