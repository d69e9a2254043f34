"""Attributes (RFC 7530 5, RFC 8881 5): GETATTR, SETATTR, VERIFY, NVERIFY, ACCESS."""

from __future__ import annotations

import itertools
import time

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.wire.nfs4.attributes import (
    ATTRIBUTES,
    REQUIRED,
    REQUIRED_41,
    bitmap,
    encode_attributes,
    numbers_of,
)
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.harness import values
from storagetest.wire.nfs4.operations import (
    ANONYMOUS,
    PUTROOTFH,
    SAVEFH,
    access,
    create,
    getattr_,
    link,
    op,
    putfh,
    read,
    setattr_,
    write,
)
from storagetest.wire.nfs4.types import (
    FATTR4_ARCHIVE,
    FATTR4_CHANGE,
    FATTR4_FILEID,
    FATTR4_FS_CHARSET_CAP,
    FATTR4_FSID,
    FATTR4_HIDDEN,
    FATTR4_LEASE_TIME,
    FATTR4_LINK_SUPPORT,
    FATTR4_MIMETYPE,
    FATTR4_MODE,
    FATTR4_NUMLINKS,
    FATTR4_OWNER,
    FATTR4_RDATTR_ERROR,
    FATTR4_SIZE,
    FATTR4_SUPPATTR_EXCLCREAT,
    FATTR4_SUPPORTED_ATTRS,
    FATTR4_SYSTEM,
    FATTR4_TIME_ACCESS,
    FATTR4_TIME_ACCESS_SET,
    FATTR4_TIME_METADATA,
    FATTR4_TIME_MODIFY,
    FATTR4_TIME_MODIFY_SET,
    FATTR4_TYPE,
    NVERIFY4args,
    VERIFY4args,
    fattr4,
    nfs_ftype4,
    nfs_opnum4,
    nfsstat4,
    nfstime4,
    settime4,
    time_how4,
)
from storagetest.wire.rpc import auth_sys

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

TICK = 2.5
"""Seconds in which the clock of every file system has a new value: some count seconds (chosen)."""

FIXED = nfstime4(1_000_000_000, 0)


def get(nfs, handle, *numbers):
    """Return attributes by number."""
    return values(ok(nfs.compound(putfh(handle), getattr_(*numbers))))


def shows(nfs, handle, change):
    """Return whether change differs after ``change(number)``, which is repeated for a tick of the clock."""
    before, until = get(nfs, handle, FATTR4_CHANGE), time.monotonic() + TICK
    for number in itertools.count():
        change(number)
        if get(nfs, handle, FATTR4_CHANGE) != before:
            return True
        if time.monotonic() > until:
            return False
    return False


@rule("ATTR-SUPPORTED", "5.6", "5.6", kills=("attr-supported",))
def test_every_required_attribute_is_supported(version, nfs, here):
    required = REQUIRED_41 if version else REQUIRED
    found = numbers_of(get(nfs, here.handle, FATTR4_SUPPORTED_ATTRS)[FATTR4_SUPPORTED_ATTRS])
    assert not [ATTRIBUTES[number].name for number in required if number not in found]


@rule(
    "ATTR-READ",
    "5.6",
    "5.6",
    kills=("attr-missing",),
    over={"FILE": "file", "DIR": "directory", "LINK": "symlink"},
)
def test_every_required_attribute_is_returned(nfs, here, version, what):
    handle = getattr(here, what)()
    wanted = [one for one in (REQUIRED_41 if version else REQUIRED) if one != FATTR4_RDATTR_ERROR]
    assert sorted(get(nfs, handle, *wanted)) == wanted


@rule("ATTR-EACH", "16.7.4", "18.7.3", kills=("attr-more",))
def test_an_attribute_that_is_requested_alone_is_returned_alone(nfs, here, facts, version):
    handle = here.file()
    for number in facts.supported[version]:
        if number in ATTRIBUTES and ATTRIBUTES[number].access != "W":
            done = nfs.compound(putfh(handle), getattr_(number))
            assert set(values(ok(done))) <= {number}, ATTRIBUTES[number].name


DEVIATES = "NFS-Ganesha, the target of the mutants, breaks this rule itself"


def left_out(nfs, here, numbers):
    """Check that GETATTR of attributes that the server does not support returns none."""
    found = ok(nfs.compound(putfh(here.handle), getattr_(*numbers)))["GETATTR"].obj_attributes
    assert numbers_of(found.attrmask) == ()


def readable(numbers):
    """Return those of ``numbers`` that are no write-only attributes."""
    return [one for one in numbers if one not in ATTRIBUTES or ATTRIBUTES[one].access != "W"]


@rule("ATTR-UNSUPPORTED", "16.7.4", "18.7.3", kills=("attr-unsupported",))
def test_attributes_that_are_not_supported_are_left_out(nfs, here, facts, version):
    left_out(nfs, here, readable(set(range(FATTR4_FS_CHARSET_CAP + 1)) - set(facts.supported[version])))


@rule("ATTR-UNKNOWN", "16.7.4", "18.7.3", no_mutant_reason=DEVIATES)
def test_attributes_of_later_standards_are_left_out(nfs, here, facts, version):
    left_out(nfs, here, readable(set(range(FATTR4_FS_CHARSET_CAP + 1, 128)) - set(facts.supported[version])))


@rule("ATTR-NONE", "16.7.4", "18.7.3", kills=("attr-more",))
def test_an_empty_bitmap_returns_no_attribute(nfs, here):
    assert get(nfs, here.handle) == {}


@rule("ATTR-WORDS", "16.7.4", "18.7.3", kills=("attr-more",))
def test_a_bitmap_with_words_of_zeroes_at_its_end_is_the_same(nfs, here):
    call = op("GETATTR", type(getattr_(1).value)((1 << FATTR4_TYPE, 0, 0, 0, 0, 0)))
    assert values(ok(nfs.compound(putfh(here.handle), call))) == {FATTR4_TYPE: nfs_ftype4.NF4DIR}


@rule(
    "ATTR-WRITE-ONLY",
    "16.7.4",
    "18.7.3",
    kills=("getattr-inval",),
    over={"ACCESS": FATTR4_TIME_ACCESS_SET, "MODIFY": FATTR4_TIME_MODIFY_SET},
)
def test_getattr_of_a_write_only_attribute_is_refused(nfs, here, what):
    refused(nfs.compound(putfh(here.handle), getattr_(what)), nfsstat4.NFS4ERR_INVAL)


@rule(
    "ATTR-TYPE",
    "5.8.1.2",
    "5.8.1.2",
    kills=("attr-type",),
    over={
        "DIR": nfs_ftype4.NF4DIR,
        "LNK": nfs_ftype4.NF4LNK,
        "FIFO": nfs_ftype4.NF4FIFO,
        "SOCK": nfs_ftype4.NF4SOCK,
    },
    after=("CREATE-TYPE-{}",),
)
def test_the_type_is_that_of_create(nfs, here, what):
    assert get(nfs, here.other(b"made", what), FATTR4_TYPE) == {FATTR4_TYPE: what}


@rule("ATTR-CHANGE", "5.8.1.4", "5.8.1.4", kills=("attr-change",))
def test_change_differs_after_a_change(nfs, here):
    handle = here.file()
    modes = (0o600, 0o640)
    changed = shows(
        nfs,
        handle,
        lambda number: ok(nfs.compound(putfh(handle), setattr_({FATTR4_MODE: modes[number % 2]}))),
    )
    assert changed, "SETATTR changed the file"
    changed = shows(
        nfs, here.handle, lambda number: ok(nfs.compound(putfh(here.handle), create(b"new-%d" % number)))
    )
    assert changed, "an entry was made in the directory"


@rule("ATTR-CHANGE-EACH", "5.8.1.4", "5.8.1.4", no_mutant_reason="NFS-Ganesha breaks this rule itself")
def test_change_differs_after_each_of_many_changes(nfs, here):
    handle, seen = here.file(), []
    for number in range(8):
        modes = [setattr_({FATTR4_MODE: 0o600 + bit}) for bit in (number % 2, 2, 4)]
        calls = [one for mode in modes for one in (mode, getattr_(FATTR4_CHANGE))]
        done = ok(nfs.compound(putfh(handle), *calls))
        seen += [
            one.value.value.obj_attributes.attr_vals
            for one in done.results
            if one.resop == nfs_opnum4.OP_GETATTR
        ]
    assert len(set(seen)) == len(seen) == 24, f"{len(seen)} changes of the file have {len(set(seen))} values"


@rule("ATTR-CHANGE-DATA", "5.8.1.4", "5.8.1.4", kills=("attr-change",))
def test_change_differs_after_a_write(nfs, here):
    handle = here.file()
    data = (b"data", b"text")
    changed = shows(
        nfs, handle, lambda number: ok(nfs.compound(putfh(handle), write(ANONYMOUS, 0, data[number % 2])))
    )
    assert changed, "the WRITE changed the file"


@rule("ATTR-SIZE", "5.8.1.5", "5.8.1.5", kills=("attr-size",), over={"0": 0, "1": 1, "4097": 4097})
def test_size_is_the_number_of_bytes(nfs, here, what):
    assert get(nfs, here.file(data=bytes(what)), FATTR4_SIZE) == {FATTR4_SIZE: what}


@rule("ATTR-FILEID", "5.8.2.6", "5.8.2.8", kills=("attr-fileid",))
def test_files_have_fileids_of_their_own(nfs, here):
    handles = [here.file(b"file-%d" % number) for number in range(4)]
    assert len({get(nfs, one, FATTR4_FILEID)[FATTR4_FILEID] for one in handles}) == 4


@rule("ATTR-FSID", "5.8.1.9", "5.8.1.9", kills=("attr-fsid",))
def test_files_of_a_directory_have_its_fsid(nfs, here):
    assert get(nfs, here.file(), FATTR4_FSID) == get(nfs, here.handle, FATTR4_FSID)


@rule(
    "ATTR-NUMLINKS",
    "5.8.2.21",
    "5.8.2.30",
    kills=(
        "numlinks-sticks",
        "attr-numlinks",
    ),
    after=("LINK-01",),
)
def test_numlinks_counts_the_names(nfs, here):
    handle = here.file()
    seen = [get(nfs, handle, FATTR4_NUMLINKS)[FATTR4_NUMLINKS]]
    done = nfs.compound(putfh(handle), SAVEFH, putfh(here.handle), link(b"second"))
    ok(here.optional(done, FATTR4_LINK_SUPPORT))
    seen.append(get(nfs, handle, FATTR4_NUMLINKS)[FATTR4_NUMLINKS])
    assert seen == [1, 2]


@rule("ATTR-LEASE", "5.8.1.11", "5.8.1.11", kills=("attr-lease",))
def test_the_lease_time_is_not_zero_and_the_same_everywhere(nfs, here):
    lease = get(nfs, here.handle, FATTR4_LEASE_TIME)[FATTR4_LEASE_TIME]
    assert lease > 0
    assert values(ok(nfs.compound(PUTROOTFH, getattr_(FATTR4_LEASE_TIME))))[FATTR4_LEASE_TIME] == lease


@rule("ATTR-EXCLCREAT", "", "5.8.1.14", no_mutant_reason=DEVIATES)
def test_suppattr_exclcreat_is_a_subset_of_supported_attrs(nfs, here, facts, version):
    found = get(nfs, here.handle, FATTR4_SUPPATTR_EXCLCREAT)[FATTR4_SUPPATTR_EXCLCREAT]
    assert set(numbers_of(found)) <= set(facts.supported[version])


@rule(
    "SETATTR-MODE",
    "16.32.4",
    "18.30.3",
    kills=("setattr-mode",),
    over={"0": 0, "600": 0o600, "755": 0o755, "4711": 0o4711},
)
def test_the_mode_is_set(nfs, here, what):
    handle = here.file()
    done = ok(nfs.compound(putfh(handle), setattr_({FATTR4_MODE: what})))
    assert numbers_of(done["SETATTR"].attrsset) == (FATTR4_MODE,)
    assert get(nfs, handle, FATTR4_MODE) == {FATTR4_MODE: what}


@rule("SETATTR-MASK", "16.32.4", "18.30.3", kills=("setattr-mask",))
def test_setattr_reports_what_it_set(nfs, here):
    new = {FATTR4_MODE: 0o600, FATTR4_TIME_MODIFY_SET: settime4(time_how4.SET_TO_CLIENT_TIME4, FIXED)}
    done = ok(nfs.compound(putfh(here.file()), setattr_(new)))
    assert numbers_of(done["SETATTR"].attrsset) == tuple(sorted(new))


@rule(
    "SETATTR-SIZE",
    "16.32.4",
    "18.30.3",
    kills=("setattr-size",),
    over={"TRUNCATE": 3, "EXTEND": 10000, "ZERO": 0},
)
def test_the_size_is_set_and_new_bytes_are_zero(nfs, here, what):
    handle = here.file(data=b"0123456789")
    ok(nfs.compound(putfh(handle), setattr_({FATTR4_SIZE: what})))
    assert get(nfs, handle, FATTR4_SIZE) == {FATTR4_SIZE: what}
    data, ended = b"", False
    while not ended:  # a READ may return fewer bytes than asked
        done = ok(nfs.compound(putfh(handle), read(ANONYMOUS, len(data), 20000)))["READ"]
        data, ended = data + done.data, done.eof or not done.data
    assert data == b"0123456789"[:what] + bytes(max(0, what - 10))


@rule(
    "SETATTR-TIME",
    "5.8.2.34",
    "5.8.2.38",
    kills=("setattr-time",),
    over={
        "MODIFY": (FATTR4_TIME_MODIFY_SET, FATTR4_TIME_MODIFY),
        "ACCESS": (FATTR4_TIME_ACCESS_SET, FATTR4_TIME_ACCESS),
    },
)
def test_a_time_of_the_client_is_set(nfs, here, what):
    handle, (setting, reading) = here.file(), what
    ok(nfs.compound(putfh(handle), setattr_({setting: settime4(time_how4.SET_TO_CLIENT_TIME4, FIXED)})))
    assert get(nfs, handle, reading)[reading].seconds == FIXED.seconds


@rule("SETATTR-TIME-SERVER", "5.8.2.34", "5.8.2.46", kills=("setattr-server-time",))
def test_the_time_of_the_server_is_set(nfs, here):
    handle = here.file()
    client = settime4(time_how4.SET_TO_CLIENT_TIME4, FIXED)
    ok(nfs.compound(putfh(handle), setattr_({FATTR4_TIME_MODIFY_SET: client})))
    ok(
        nfs.compound(
            putfh(handle), setattr_({FATTR4_TIME_MODIFY_SET: settime4(time_how4.SET_TO_SERVER_TIME4)})
        )
    )
    found = get(nfs, handle, FATTR4_TIME_MODIFY, FATTR4_TIME_METADATA)
    assert abs(found[FATTR4_TIME_MODIFY].seconds - found[FATTR4_TIME_METADATA].seconds) <= 1


LAST_SIGNED = 0x7FFFFFFF
"""The last second of file systems that keep signed numbers of 32 bits, in 2038; they may keep it instead."""


@rule(
    "SETATTR-LATE",
    "5.8.2.34",
    "5.8.2.46",
    kills=("set-times-31-bits",),
    over={"2038": LAST_SIGNED + 1, "2050": 2_524_608_000, "2105": 4_260_211_200, "2242": 8_589_974_400},
)
def test_a_late_time_is_set_as_far_as_the_file_system_goes(nfs, here, what):
    """The seconds of a time are a number of 64 bits."""
    handle, late = here.file(), settime4(time_how4.SET_TO_CLIENT_TIME4, nfstime4(what, 0))
    done = nfs.compound(putfh(handle), setattr_({FATTR4_TIME_MODIFY_SET: late}))
    if done.status == nfsstat4.NFS4ERR_INVAL:
        pytest.skip("the server refuses the time (NFS4ERR_INVAL)")
    ok(done)
    found = get(nfs, handle, FATTR4_TIME_MODIFY)[FATTR4_TIME_MODIFY].seconds
    assert LAST_SIGNED <= found <= what, f"time_modify is {found} s, and {what} s was set"


@rule("SETATTR-NSECONDS", "16.32.4", "18.30.3", kills=("setattr-inval",))
def test_a_time_of_a_second_of_nanoseconds_is_refused(nfs, here):
    wrong = settime4(time_how4.SET_TO_CLIENT_TIME4, nfstime4(1, 1_000_000_000))
    refused(
        nfs.compound(putfh(here.file()), setattr_({FATTR4_TIME_MODIFY_SET: wrong})), nfsstat4.NFS4ERR_INVAL
    )


@rule("SETATTR-OWNER", "5.9", "5.9", kills=("setattr-owner",))
def test_the_owner_is_set_to_itself(nfs, here):
    handle = here.file()
    name = get(nfs, handle, FATTR4_OWNER)[FATTR4_OWNER]
    ok(nfs.compound(putfh(handle), setattr_({FATTR4_OWNER: name})))
    assert get(nfs, handle, FATTR4_OWNER) == {FATTR4_OWNER: name}


READ_ONLY = {
    "TYPE": {FATTR4_TYPE: nfs_ftype4.NF4REG}, "LEASE": {FATTR4_LEASE_TIME: 1}, "FILEID": {FATTR4_FILEID: 1},
    "CHANGE": {FATTR4_CHANGE: 1}, "NUMLINKS": {FATTR4_NUMLINKS: 7}, "MODIFY": {FATTR4_TIME_MODIFY: FIXED},
}  # fmt: skip


@rule("SETATTR-READ-ONLY", "16.32.4", "18.30.3", kills=("setattr-inval",), over=READ_ONLY)
def test_a_read_only_attribute_is_not_set(nfs, here, what):
    refused(nfs.compound(putfh(here.file()), setattr_(what)), nfsstat4.NFS4ERR_INVAL)


@rule("SETATTR-UNSUPPORTED", "16.32.4", "18.30.3", kills=("setattr-attrnotsupp",))
def test_an_attribute_that_is_not_supported_is_not_set(nfs, here, facts, version):
    new = {FATTR4_HIDDEN: True, FATTR4_ARCHIVE: True, FATTR4_SYSTEM: True, FATTR4_MIMETYPE: b"text/plain"}
    missing = [one for one in new if one not in facts.supported[version]]
    if not missing:
        pytest.skip("the server supports every attribute that the case sets")
    done = nfs.compound(putfh(here.file()), setattr_({missing[0]: new[missing[0]]}))
    refused(done, nfsstat4.NFS4ERR_ATTRNOTSUPP)


@rule("SETATTR-FAILED", "16.32.4", "18.30.3", kills=("setattr-failed-mask",))
def test_a_setattr_that_fails_reports_nothing_as_set(nfs, here):
    done = refused(nfs.compound(putfh(here.file()), setattr_({FATTR4_LEASE_TIME: 1})), nfsstat4.NFS4ERR_INVAL)
    assert numbers_of(done.of("SETATTR").attrsset) == ()


@rule("SETATTR-BADXDR", "16.32.4", "18.30.3", kills=("setattr-badxdr",))
def test_values_that_are_too_short_are_refused(nfs, here):
    done = nfs.compound(putfh(here.file()), setattr_(fattr4(bitmap(FATTR4_SIZE), bytes(4))))
    refused(done, nfsstat4.NFS4ERR_BADXDR)


@rule("VERIFY-01", "16.35.4", "18.31.3", kills=("verify-same",))
def test_verify_of_what_is_succeeds(nfs, here):
    same = encode_attributes({FATTR4_SIZE: 4, FATTR4_TYPE: nfs_ftype4.NF4REG})
    ok(nfs.compound(putfh(here.file(data=b"data")), op("VERIFY", VERIFY4args(same)), getattr_(FATTR4_SIZE)))


@rule("VERIFY-02", "16.35.4", "18.31.3", kills=("verify-not-same",))
def test_verify_of_what_is_not_fails(nfs, here):
    other = op("VERIFY", VERIFY4args(encode_attributes({FATTR4_SIZE: 5})))
    refused(nfs.compound(putfh(here.file(data=b"data")), other), nfsstat4.NFS4ERR_NOT_SAME)


@rule("NVERIFY-01", "16.15.4", "18.15.3", kills=("nverify-same",))
def test_nverify_of_what_is_fails(nfs, here):
    same = op("NVERIFY", NVERIFY4args(encode_attributes({FATTR4_SIZE: 4})))
    refused(nfs.compound(putfh(here.file(data=b"data")), same), nfsstat4.NFS4ERR_SAME)


@rule("NVERIFY-02", "16.15.4", "18.15.3", kills=("nverify-not-same",))
def test_nverify_of_what_is_not_succeeds(nfs, here):
    other = op("NVERIFY", NVERIFY4args(encode_attributes({FATTR4_SIZE: 5})))
    ok(nfs.compound(putfh(here.file(data=b"data")), other, getattr_(FATTR4_SIZE)))


@rule(
    "VERIFY-INVAL",
    "16.35.4",
    "18.31.3",
    kills=("verify-inval",),
    over={
        "RDATTR": {FATTR4_RDATTR_ERROR: nfsstat4.NFS4_OK},
        "WRITE-ONLY": {FATTR4_TIME_MODIFY_SET: settime4(time_how4.SET_TO_SERVER_TIME4)},
    },
)
def test_verify_of_an_attribute_that_cannot_be_compared_is_refused(nfs, here, what):
    for name, argument in (("VERIFY", VERIFY4args), ("NVERIFY", NVERIFY4args)):
        done = nfs.compound(putfh(here.file()), op(name, argument(encode_attributes(what))))
        refused(done, nfsstat4.NFS4ERR_INVAL)


@rule("ACCESS-01", "16.1.4", "18.1.3", kills=("access-more",))
def test_access_answers_for_the_bits_that_were_sent(nfs, here):
    handle = here.file()
    for bits in (0x01, 0x04, 0x05, 0x3F):
        found = ok(nfs.compound(putfh(handle), access(bits)))["ACCESS"]
        assert found.supported & ~bits == 0, "supported has bits that were not sent"
        assert found.access & ~found.supported == 0, "access has bits that are not supported"


@rule("ACCESS-02", "16.1.4", "18.1.3", kills=("access-all",))
def test_access_of_a_user_without_permission_is_none(bench, version, here):
    handle = here.file(mode=0)
    nfs = bench.client(version, cred=auth_sys(4242, 4242))
    assert ok(nfs.compound(putfh(handle), access(0x0D)))["ACCESS"].access == 0


@rule("ACCESS-03", "16.1.4", "18.1.3", kills=("access-none",))
def test_access_of_a_user_with_permission_is_granted(bench, version, here):
    handle = here.file(mode=0o666)
    nfs = bench.client(version, cred=auth_sys(4242, 4242))
    assert ok(nfs.compound(putfh(handle), access(0x0D)))["ACCESS"].access == 0x0D
