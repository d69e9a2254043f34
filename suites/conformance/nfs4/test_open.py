"""OPEN: how a file is made and found, share reservations, errors (RFC 7530 16.16, RFC 8881 18.16)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.opens import (
    CLAIM_FH,
    OTHER_VERIFIER,
    VERIFIER,
    again,
    exclusive4_1,
    may_be_exclusive,
    open_new,
    served,
)
from storagetest.suites.conformance.nfs4.slots import OTHER_USER
from storagetest.wire.nfs4.attributes import numbers_of
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.operations import (
    GETFH,
    exclusive,
    guarded,
    lookup,
    putfh,
    setattr_,
    unchecked,
    write,
)
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import (
    EXCHGID4_FLAG_USE_PNFS_MDS,
    FATTR4_CHANGE,
    FATTR4_MODE,
    FATTR4_SIZE,
    FATTR4_SUPPATTR_EXCLCREAT,
    FATTR4_TIME_ACCESS_SET,
    FATTR4_TIME_MODIFY_SET,
    OPEN4_RESULT_CONFIRM,
    OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_ACCESS_READ,
    OPEN4_SHARE_ACCESS_WANT_ANY_DELEG,
    OPEN4_SHARE_ACCESS_WANT_READ_DELEG,
    OPEN4_SHARE_ACCESS_WRITE,
    OPEN4_SHARE_DENY_BOTH,
    OPEN4_SHARE_DENY_READ,
    OPEN4_SHARE_DENY_WRITE,
    nfs_ftype4,
    nfsstat4,
    open_delegation_type4,
    settime4,
    time_how4,
)

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

READ, WRITE, BOTH = OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WRITE, OPEN4_SHARE_ACCESS_BOTH
PAIRS = [(access, deny) for access in (1, 2, 3) for deny in (0, 1, 2, 3)]
SHARED = {f"A{access}D{deny}": (access, deny) for access, deny in PAIRS if deny != OPEN4_SHARE_DENY_BOTH}
DEVIATES = "NFS-Ganesha, the target of the mutants, breaks this rule itself"
DATA = b"0123456789"
MODE = 0o640


# Creation


@rule("OPEN-UNCHECKED", "16.16", "18.16.3", kills=("open-refused",))
def test_unchecked_makes_a_file(nfs, here):
    file = open_new(nfs, here.handle)
    assert here.find(b"file") == file.handle
    file.close()


@rule("OPEN-UNCHECKED-EXISTS", "16.16", "18.16.3", kills=("open-exists",))
def test_unchecked_opens_a_file_that_exists(nfs, here):
    handle = here.file(data=DATA)
    file = open_new(nfs, here.handle)
    assert file.handle == handle
    assert here.read(handle, FATTR4_SIZE)[FATTR4_SIZE] == len(DATA)
    file.close()


@rule("OPEN-TRUNCATE", "16.16", "18.16.3", kills=("open-keeps-size",))
def test_unchecked_with_size_zero_truncates_a_file_that_exists(nfs, here):
    handle = here.file(data=DATA)
    file = StateOwner(nfs).open(here.handle, b"file", how=unchecked({FATTR4_SIZE: 0}))
    assert here.read(handle, FATTR4_SIZE)[FATTR4_SIZE] == 0
    file.close()


@rule("OPEN-UNCHECKED-MODE", "16.16", "18.16.3", kills=("open-sets-mode",))
def test_unchecked_leaves_the_mode_of_a_file_that_exists(nfs, here):
    handle = here.file(mode=0o600)
    file = StateOwner(nfs).open(here.handle, b"file", how=unchecked({FATTR4_MODE: MODE}))
    assert here.read(handle, FATTR4_MODE)[FATTR4_MODE] == 0o600
    file.close()


@rule("OPEN-UNCHECKED-SIZE", "16.16", "18.16.3", kills=("open-truncates",))
def test_unchecked_with_another_size_leaves_a_file_that_exists(nfs, here):
    handle = here.file(data=DATA)
    file = StateOwner(nfs).open(here.handle, b"file", how=unchecked({FATTR4_SIZE: 5}))
    assert here.read(handle, FATTR4_SIZE)[FATTR4_SIZE] == len(DATA)
    file.close()


@rule("OPEN-GUARDED", "16.16", "18.16.3", kills=("open-refused",))
def test_guarded_makes_a_file(nfs, here):
    file = StateOwner(nfs).open(here.handle, b"file", how=guarded())
    assert here.find(b"file") == file.handle
    file.close()


@rule("OPEN-GUARDED-EXISTS", "16.16", "18.16.3", kills=("open-exist", "open-guarded-opens"))
def test_guarded_refuses_a_file_that_exists(here, owner):
    handle = here.file(data=DATA)
    done = owner.try_open(here.handle, b"file", how=guarded({FATTR4_SIZE: 0}))
    refused(done, nfsstat4.NFS4ERR_EXIST)
    assert here.read(handle, FATTR4_SIZE)[FATTR4_SIZE] == len(DATA)


@rule("OPEN-ATTRSET", "16.16", "18.16.3", kills=("open-attrset",), over={"U": unchecked, "G": guarded})
def test_the_mask_of_a_new_file_has_the_attributes_that_are_set(nfs, here, what):
    file = StateOwner(nfs).open(here.handle, b"file", how=what({FATTR4_MODE: MODE}))
    assert numbers_of(file.done["OPEN"].attrset) == (FATTR4_MODE,)
    assert here.read(file.handle, FATTR4_MODE)[FATTR4_MODE] == MODE
    file.close()


@rule("OPEN-EXCLUSIVE", "16.16", kills=("open-exclusive-refused",))
def test_exclusive_makes_a_file(here, owner):
    done = ok(served(owner.try_open(here.handle, b"file", how=exclusive(VERIFIER))))
    assert here.find(b"file") == done["GETFH"].object


@rule("OPEN-EXCLUSIVE-AGAIN", "16.16", kills=("open-exclusive-again",))
def test_exclusive_with_the_same_verifier_opens_the_file(nfs, here):
    first = ok(served(StateOwner(nfs).try_open(here.handle, b"file", how=exclusive(VERIFIER))))
    second = StateOwner(nfs).open(here.handle, b"file", how=exclusive(VERIFIER))
    assert second.handle == first["GETFH"].object


@rule("OPEN-EXCLUSIVE-OTHER", "16.16", kills=("open-exist",))
def test_exclusive_with_another_verifier_is_refused(nfs, here):
    served(StateOwner(nfs).try_open(here.handle, b"file", how=exclusive(VERIFIER)))
    done = StateOwner(nfs).try_open(here.handle, b"file", how=exclusive(OTHER_VERIFIER))
    refused(done, nfsstat4.NFS4ERR_EXIST)


LATER = {
    "WRITE": lambda stateid: write(stateid, 0, DATA),
    "MODE": lambda _: setattr_({FATTR4_MODE: 0o600}),
    "SIZE": lambda stateid: setattr_({FATTR4_SIZE: 4}, stateid),
}
"""What becomes of a file that an exclusive OPEN has made."""


def exclusive_later(nfs, here, change, first, second):
    """Check that an exclusive OPEN with another verifier is refused after a change, and changes nothing."""
    owner = StateOwner(nfs)
    file = owner.opened(ok(served(owner.try_open(here.handle, b"file", how=first))))
    ok(file.on(change(file.stateid)))
    before = here.read(file.handle, FATTR4_SIZE)
    done = StateOwner(nfs).try_open(here.handle, b"file", how=second)
    refused(done, nfsstat4.NFS4ERR_EXIST)
    assert here.read(file.handle, FATTR4_SIZE) == before, "an exclusive OPEN that is refused changes the size"


@rule("OPEN-EXCLUSIVE-LATER", "16.16", kills=("open-exclusive-later",), over=LATER)
def test_exclusive_with_another_verifier_is_refused_after_a_change(nfs, here, what):
    exclusive_later(nfs, here, what, exclusive(VERIFIER), exclusive(OTHER_VERIFIER))


@rule("OPEN-EXCL41-LATER", "", "18.16.4", kills=("open-exclusive-later",), over=LATER)
def test_exclusive4_1_with_another_verifier_is_refused_after_a_change(nfs, here, what):
    may_be_exclusive(nfs)
    exclusive_later(nfs, here, what, exclusive4_1(VERIFIER), exclusive4_1(OTHER_VERIFIER))


@rule("OPEN-EXCLUSIVE-EXISTS", "16.16", kills=("open-exist",))
def test_exclusive_refuses_a_file_that_was_not_made_so(here, owner):
    here.file(data=DATA)
    refused(served(owner.try_open(here.handle, b"file", how=exclusive(VERIFIER))), nfsstat4.NFS4ERR_EXIST)


@rule("OPEN-EXCLUSIVE-PNFS", "", "18.16.3", no_mutant_reason=DEVIATES)
def test_exclusive_is_invalid_for_a_client_of_pnfs(nfs, here, owner):
    if not nfs.exchanged.eir_flags & EXCHGID4_FLAG_USE_PNFS_MDS:
        pytest.skip("the client id is not one of pNFS: EXCHGID4_FLAG_USE_PNFS_MDS is not set")
    refused(owner.try_open(here.handle, b"file", how=exclusive(VERIFIER)), nfsstat4.NFS4ERR_INVAL)


@rule("OPEN-EXCL41", "", "18.16.3", kills=("open-excl41-mode",))
def test_exclusive4_1_makes_a_file_with_attributes(nfs, here, owner):
    may_be_exclusive(nfs)
    how = exclusive4_1(VERIFIER, {FATTR4_MODE: MODE})
    done = ok(served(owner.try_open(here.handle, b"file", how=how)))
    assert FATTR4_MODE in numbers_of(done["OPEN"].attrset)
    assert here.read(done["GETFH"].object, FATTR4_MODE)[FATTR4_MODE] == MODE


@rule("OPEN-EXCL41-AGAIN", "", "18.16.4", kills=("open-exclusive-again",))
def test_exclusive4_1_with_the_same_verifier_opens_the_file(nfs, here):
    may_be_exclusive(nfs)
    first = ok(served(StateOwner(nfs).try_open(here.handle, b"file", how=exclusive4_1(VERIFIER))))
    second = StateOwner(nfs).open(here.handle, b"file", how=exclusive4_1(VERIFIER))
    assert second.handle == first["GETFH"].object


@rule("OPEN-EXCL41-OTHER", "", "18.16.4", kills=("open-exist",))
def test_exclusive4_1_with_another_verifier_is_refused(nfs, here):
    may_be_exclusive(nfs)
    served(StateOwner(nfs).try_open(here.handle, b"file", how=exclusive4_1(VERIFIER)))
    done = StateOwner(nfs).try_open(here.handle, b"file", how=exclusive4_1(OTHER_VERIFIER))
    refused(done, nfsstat4.NFS4ERR_EXIST)


@rule(
    "OPEN-EXCL41-ATTR",
    "",
    "18.16.3",
    no_mutant_reason=DEVIATES,
    over={"ACCESS": FATTR4_TIME_ACCESS_SET, "MODIFY": FATTR4_TIME_MODIFY_SET},
)
def test_exclusive4_1_refuses_an_attribute_that_is_not_in_its_list(nfs, here, owner, what):
    may_be_exclusive(nfs)
    listed = here.read(here.handle, FATTR4_SUPPATTR_EXCLCREAT)[FATTR4_SUPPATTR_EXCLCREAT]
    if what in numbers_of(listed):
        pytest.skip(f"suppattr_exclcreat has the attribute {what}")
    how = exclusive4_1(VERIFIER, {what: settime4(time_how4.SET_TO_SERVER_TIME4)})
    refused(served(owner.try_open(here.handle, b"file", how=how)), nfsstat4.NFS4ERR_INVAL)


@rule("OPEN-CINFO", "16.16", "18.16.3", kills=("open-cinfo",))
def test_the_change_of_the_directory_is_that_of_the_attribute(here, owner, observe):
    before = here.read(here.handle, FATTR4_CHANGE)[FATTR4_CHANGE]
    file = owner.open(here.handle, b"file", how=guarded())
    found = file.done["OPEN"].cinfo
    after = here.read(here.handle, FATTR4_CHANGE)[FATTR4_CHANGE]
    observe(f"atomic is {found.atomic}")
    assert not found.atomic or (found.before, found.after) == (before, after)
    file.close()


# Names and types


@rule("OPEN-NOENT", "16.16", "18.16.3", kills=("open-noent",))
def test_an_absent_file_is_not_opened(here, owner):
    refused(owner.try_open(here.handle, b"absent"), nfsstat4.NFS4ERR_NOENT)


@rule("OPEN-EMPTY", "16.16", "18.16.3", kills=("open-inval",))
def test_a_name_of_zero_length_is_not_opened(here, owner):
    refused(owner.try_open(here.handle, b"", how=unchecked()), nfsstat4.NFS4ERR_INVAL)


@rule("OPEN-NOTDIR", "16.16", "18.16.4", kills=("open-notdir",))
def test_a_file_in_a_file_is_not_opened(here, owner):
    refused(owner.try_open(here.file(), b"file"), nfsstat4.NFS4ERR_NOTDIR)


@rule("OPEN-NOFH", "16.16", "18.16.3", kills=("open-nofh",))
def test_open_needs_a_filehandle(nfs, owner):
    refused(nfs.compound(owner.open_op(b"file")), nfsstat4.NFS4ERR_NOFILEHANDLE)


@rule("OPEN-DIR", "16.16", "18.16.4", kills=("open-type",), over={"N": None, "U": unchecked()})
def test_a_directory_is_not_opened(here, owner, what):
    here.directory(b"name")
    how = {} if what is None else {"how": what}
    expected = (nfsstat4.NFS4ERR_ISDIR, *([nfsstat4.NFS4ERR_EXIST] if how else []))
    refused(owner.try_open(here.handle, b"name", **how), *expected)


@rule("OPEN-SYMLINK", "16.16", "18.16.4", kills=("open-type",))
def test_a_symbolic_link_is_not_opened(here, owner):
    here.symlink(b"name")
    refused(owner.try_open(here.handle, b"name"), nfsstat4.NFS4ERR_SYMLINK)


@rule("OPEN-FIFO", "16.16", kills=("open-type",), after=("CREATE-TYPE-FIFO",))
def test_a_fifo_is_refused_as_a_symbolic_link(here, owner):
    here.other(b"name", nfs_ftype4.NF4FIFO)
    refused(owner.try_open(here.handle, b"name"), nfsstat4.NFS4ERR_SYMLINK)  # 4.0 has no NFS4ERR_WRONG_TYPE


@rule("OPEN-FIFO", "", "18.16.4", no_mutant_reason=DEVIATES, after=("CREATE-TYPE-FIFO",))
def test_a_fifo_has_the_wrong_type(here, owner):
    here.other(b"name", nfs_ftype4.NF4FIFO)
    refused(owner.try_open(here.handle, b"name"), nfsstat4.NFS4ERR_WRONG_TYPE)


@rule("OPEN-FH", "16.16", "18.16.3", kills=("open-filehandle",))
def test_the_current_filehandle_is_that_of_the_file(nfs, here, owner):
    file = owner.open(here.handle, b"file", how=unchecked())
    found = ok(nfs.compound(putfh(here.handle), lookup(b"file"), GETFH))["GETFH"].object
    assert file.handle == found
    file.close()


@rule("OPEN-PERM", "16.16", "18.16.4", kills=("open-access",), over={"R": (0o222, READ), "W": (0o444, WRITE)})
def test_a_user_without_permission_does_not_open_a_file(bench, here, version, what):
    mode, access = what
    here.file(mode=mode)
    other = StateOwner(bench.client(version, cred=OTHER_USER))
    refused(other.try_open(here.handle, b"file", access=access), nfsstat4.NFS4ERR_ACCESS)
    other.open(here.handle, b"file", access=BOTH & ~access).close()


@rule("OPEN-PERM-CREATE", "16.16", "18.16.4", kills=("open-access",))
def test_a_user_without_permission_makes_no_file(bench, here, version):
    directory = here.directory(mode=0o755)
    other = StateOwner(bench.client(version, cred=OTHER_USER))
    refused(other.try_open(directory, b"file", how=unchecked()), nfsstat4.NFS4ERR_ACCESS)


@rule("OPEN-ACCESS-INVAL", "16.16", "18.16.4", kills=("open-inval",), over={"0": (0, 0), "D4": (1, 4)})
def test_a_share_with_other_bits_is_invalid(here, owner, what):
    here.file()
    done = owner.try_open(here.handle, b"file", access=what[0], deny=what[1])
    refused(done, nfsstat4.NFS4ERR_INVAL)


@rule("OPEN-NO-CONFIRM", "", "18.16.3", kills=("open-confirm",))
def test_no_open_is_to_be_confirmed(here, owner):
    done = ok(owner.try_open(here.handle, b"file", how=unchecked()))
    assert not done["OPEN"].rflags & OPEN4_RESULT_CONFIRM


@rule("OPEN-NO-DELEG", "", "18.16.3", level="SHOULD", kills=("open-delegates",))
def test_no_delegation_is_returned_if_none_is_wanted(here, owner):
    found = ok(owner.try_open(here.handle, b"file", how=unchecked()))["OPEN"].delegation.delegation_type
    none = (open_delegation_type4.OPEN_DELEGATE_NONE, open_delegation_type4.OPEN_DELEGATE_NONE_EXT)
    assert found in none


@rule("CLAIM-FH", "", "18.16.3", kills=("open-fh-refused",))
def test_a_file_is_opened_by_its_handle(here, owner):
    handle = here.file(data=DATA)
    file = owner.open(handle, b"", claim=CLAIM_FH)
    assert file.handle == handle
    file.close()


@rule(
    "CLAIM-FH-UPGRADE",
    "",
    "18.16.3",
    kills=(
        "open-upgrade-seqid",
        "open-fh-refused",
    ),
)
def test_an_open_by_handle_upgrades_one_by_name(here, owner):
    here.file()
    file = owner.open(here.handle, b"file", access=READ)
    found = owner.open(file.handle, b"", access=WRITE, claim=CLAIM_FH).stateid
    assert (found.other, found.seqid) == (file.stateid.other, file.stateid.seqid + 1)


@rule("CLAIM-FH-DIR", "", "18.16.4", level="SHOULD", kills=("open-type",))
def test_a_directory_is_not_opened_by_its_handle(here, owner):
    done = owner.try_open(here.handle, b"", claim=CLAIM_FH)
    refused(done, nfsstat4.NFS4ERR_ISDIR, nfsstat4.NFS4ERR_WRONG_TYPE)


@rule("CLAIM-FH-CREATE", "", "18.16.3", level="SHOULD", kills=("open-inval",))
def test_nothing_is_made_by_handle(here, owner):
    done = owner.try_open(here.file(), b"", how=unchecked(), claim=CLAIM_FH)
    refused(done, nfsstat4.NFS4ERR_INVAL)


# Share reservations


def conflict(held: tuple[int, int], wanted: tuple[int, int]) -> bool:
    """Whether two opens conflict: what one has access to is denied by the other (RFC 8881 9.7)."""
    return bool(held[0] & wanted[1] or held[1] & wanted[0])


@rule("SHARE", "9.9", "9.7", kills=("share-ignored", "share-strict", "share-error"), over=SHARED)
def test_an_open_that_conflicts_is_denied_and_no_other(nfs, here, what):
    held = open_new(nfs, here.handle, access=what[0], deny=what[1])
    for pair in PAIRS:
        other = StateOwner(nfs)
        if conflict(what, pair):
            done = other.try_open(here.handle, b"file", access=pair[0], deny=pair[1])
            refused(done, nfsstat4.NFS4ERR_SHARE_DENIED)
        else:
            other.open(here.handle, b"file", access=pair[0], deny=pair[1]).close()
    held.close()


@rule(
    "SHARE-ALL",
    "9.9",
    "9.7",
    kills=("share-ignored", "share-error", "deny-write-lost"),
    over={"R": READ, "W": WRITE, "B": BOTH},
)
def test_an_open_that_denies_all_has_no_other(nfs, here, what):
    held = open_new(nfs, here.handle, access=what, deny=OPEN4_SHARE_DENY_BOTH)
    for access, deny in PAIRS:
        done = StateOwner(nfs).try_open(here.handle, b"file", access=access, deny=deny)
        refused(done, nfsstat4.NFS4ERR_SHARE_DENIED)
    held.close()


@rule("SHARE-CLIENT", "9.9", "9.7", kills=("share-ignored", "share-error"))
def test_an_open_denies_those_of_another_client(bench, nfs, here, version):
    held = open_new(nfs, here.handle, access=READ, deny=OPEN4_SHARE_DENY_BOTH)
    other = StateOwner(bench.client(version))
    refused(other.try_open(here.handle, b"file", access=READ), nfsstat4.NFS4ERR_SHARE_DENIED)
    held.close()
    StateOwner(bench.client(version)).open(here.handle, b"file", access=READ).close()


DENIED = {"READ": (OPEN4_SHARE_DENY_READ, READ, WRITE), "WRITE": (OPEN4_SHARE_DENY_WRITE, WRITE, READ)}
"""What is denied, an access that conflicts, and one that does not."""


@rule("CLAIM-FH-DENY", "", "9.7", kills=("claim-fh-denies-nothing",), over=DENIED, after=("CLAIM-FH",))
def test_what_an_open_by_handle_denies_is_denied(nfs, here, owner, what):
    """A share reservation is that of an OPEN, whether it names the file or has its handle."""
    deny, conflicting, free = what
    handle = here.file()
    held = owner.open(handle, b"", access=BOTH, deny=deny, claim=CLAIM_FH)
    for where, name, claim in ((here.handle, b"file", None), (handle, b"", CLAIM_FH)):
        done = StateOwner(nfs).try_open(where, name, access=conflicting, claim=claim)
        refused(done, nfsstat4.NFS4ERR_SHARE_DENIED)
    StateOwner(nfs).open(here.handle, b"file", access=free).close()
    held.close()
    StateOwner(nfs).open(here.handle, b"file", access=conflicting).close()


WANTED = {"READ": OPEN4_SHARE_ACCESS_WANT_READ_DELEG, "ANY": OPEN4_SHARE_ACCESS_WANT_ANY_DELEG}


@rule("OPEN-WANT", "", "18.16.3", kills=("want-counts-as-access",), over=WANTED)
def test_what_an_open_wants_is_no_part_of_its_access(nfs, here, owner, what):
    """The flags of a wanted delegation are a hint: the access is what is left without them."""
    here.file()
    opening = owner.open_op(b"file", access=READ)
    wanting = replace(opening, value=replace(opening.value, share_access=READ | what))
    file = owner.opened(ok(nfs.compound(putfh(here.handle), wanting, GETFH)))
    other = StateOwner(nfs)
    other.open(here.handle, b"file", access=READ, deny=OPEN4_SHARE_DENY_WRITE).close()
    refused(
        other.try_open(here.handle, b"file", access=READ, deny=OPEN4_SHARE_DENY_READ),
        nfsstat4.NFS4ERR_SHARE_DENIED,
    )
    file.close()


@rule("SHARE-SELF", "16.16", "18.16.3", kills=("share-ignored", "share-error"))
def test_an_open_denies_a_second_one_of_its_owner(nfs, here):
    held = open_new(nfs, here.handle, access=WRITE, deny=OPEN4_SHARE_DENY_READ)
    done = held.owner.try_open(here.handle, b"file", access=READ)
    refused(done, nfsstat4.NFS4ERR_SHARE_DENIED)
    held.close()


@rule("SHARE-TRUNCATE", "16.16", "18.16.3", kills=("share-ignored", "share-error"))
def test_an_open_that_is_denied_does_not_truncate(nfs, here):
    here.file(data=DATA)
    held = open_new(nfs, here.handle, access=READ, deny=OPEN4_SHARE_DENY_BOTH)
    done = StateOwner(nfs).try_open(here.handle, b"file", how=unchecked({FATTR4_SIZE: 0}))
    refused(done, nfsstat4.NFS4ERR_SHARE_DENIED)
    assert here.read(held.handle, FATTR4_SIZE)[FATTR4_SIZE] == len(DATA)
    held.close()


@rule("UPGRADE", "16.16", "18.16.3", kills=("upgrade-other", "upgrade-seqid"))
def test_a_second_open_of_an_owner_has_the_next_stateid(nfs, here):
    file = open_new(nfs, here.handle, access=READ)
    before = file.stateid
    again(file, here.handle, access=WRITE)
    assert (file.stateid.other, file.stateid.seqid) == (before.other, before.seqid + 1)
    file.close()


@rule("UPGRADE-SHARE", "16.16", "18.16.3", kills=("share-ignored", "share-error"))
def test_the_shares_of_two_opens_are_united(nfs, here):
    file = open_new(nfs, here.handle, access=READ)
    again(file, here.handle, access=WRITE)
    for deny in (1, 2):
        done = StateOwner(nfs).try_open(here.handle, b"file", access=READ, deny=deny)
        refused(done, nfsstat4.NFS4ERR_SHARE_DENIED)
    file.close()


@rule("UPGRADE-CLOSE", "16.16", "18.16.3", kills=("close-keeps",))
def test_one_close_ends_all_opens_of_an_owner(nfs, here):
    file = open_new(nfs, here.handle, access=READ)
    again(file, here.handle, access=BOTH)
    file.close()
    StateOwner(nfs).open(here.handle, b"file", access=READ, deny=OPEN4_SHARE_DENY_BOTH).close()


@rule("OPEN-OWNERS", "9.1.4", "8.2.1", kills=("open-same-other",))
def test_two_owners_have_two_stateids(nfs, here):
    first, second = open_new(nfs, here.handle), open_new(nfs, here.handle)
    assert first.stateid.other != second.stateid.other
    first.close()
    second.close()
