"""pNFS: LAYOUTGET, GETDEVICEINFO and GETDEVICELIST (RFC 8881 12 and 18.40 to 18.43, RFC 5663 for blocks).

The sections were compared with the text of RFC 5661, which RFC 8881 replaces with the same numbers.
"""

from __future__ import annotations

import itertools

import pytest

from storagetest.suites.conformance.nfs4.layouts import (
    ALL,
    ANY,
    READ,
    RW,
    UNAVAILABLE,
    device_of,
    extents,
    getdeviceinfo,
    layoutget,
    layoutreturn,
    length,
    pnfs_client,
    start,
    with_seqid,
)
from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.opens import open_new
from storagetest.suites.conformance.nfs4.sparse import served
from storagetest.wire.nfs4.attributes import numbers_of
from storagetest.wire.nfs4.block_layout import (
    pnfs_block_deviceaddr4,
    pnfs_block_extent_state4,
    pnfs_block_volume_type4,
)
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.operations import (
    ANONYMOUS,
    CURRENT,
    INVALID,
    READ_BYPASS,
    op,
    putfh,
    unchecked,
    write,
)
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import (
    EXCHGID4_FLAG_USE_PNFS_MDS,
    FATTR4_FS_LAYOUT_TYPES,
    OPEN4_SHARE_ACCESS_READ,
    GETDEVICELIST4args,
    layouttype4,
    nfsstat4,
    notify_deviceid_type4,
)
from storagetest.wire.xdr import decode

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

BLOCK = 4096
SIZE = 16 * BLOCK
"""Bytes of the file of the fixture ``laid``."""
BAD_STATEID = nfsstat4.NFS4ERR_BAD_STATEID


# A server without layouts (FS_LAYOUT_TYPES is empty)


@pytest.fixture
def no_layouts(here) -> None:
    """Skip if the server announces pNFS for the file system."""
    found = here.read(here.handle, FATTR4_FS_LAYOUT_TYPES).get(FATTR4_FS_LAYOUT_TYPES, ())
    if found:
        pytest.skip(f"the server announces layouts of the types {found}; this case is of one without")


NO_PNFS = (nfsstat4.NFS4ERR_NOTSUPP, nfsstat4.NFS4ERR_UNKNOWN_LAYOUTTYPE)
"""How a server without pNFS refuses its operations (RFC 8881 12.6)."""
FILES = layouttype4.LAYOUT4_NFSV4_1_FILES


@pytest.mark.usefixtures("no_layouts")
@rule("LAYOUTGET-NONE", "", "18.43.3", kills=("layoutget",))
def test_a_file_system_without_layouts_has_none(nfs, here):
    file = open_new(nfs, here.handle)
    done = served("LAYOUTGET", file.on(layoutget(FILES, file.stateid, minlength=0)))
    refused(done, nfsstat4.NFS4ERR_LAYOUTUNAVAILABLE, nfsstat4.NFS4ERR_UNKNOWN_LAYOUTTYPE)
    file.close()


@pytest.mark.usefixtures("no_layouts")
@rule(
    "GETDEVICEINFO-NONE",
    "",
    "18.40.3",
    no_mutant_reason="NFS-Ganesha breaks this rule itself, and the other server of mutants has devices",
)
def test_a_server_without_layouts_has_no_device(nfs, observe):
    done = nfs.compound(getdeviceinfo(FILES, bytes(16)))
    observe(done.status.name)
    refused(done, nfsstat4.NFS4ERR_NOENT, *NO_PNFS)


@pytest.mark.usefixtures("no_layouts")
@rule("LAYOUTRETURN-NONE", "", "18.44.3", kills=("layoutreturn-none",))
def test_a_client_without_layouts_returns_all_of_them(nfs, here, observe):
    done = nfs.compound(putfh(here.handle), layoutreturn(FILES, None, ANY, scope=3))
    observe(done.status.name)
    assert done.status in (nfsstat4.NFS4_OK, *NO_PNFS), f"{done.line}: an empty set is no error"


# What is announced and granted


@rule("LAYOUT-MDS", "", "12.6", kills=("layout-mds",))
def test_a_server_that_announces_layouts_is_a_metadata_server(laid):
    if not laid.nfs.exchanged.eir_flags & EXCHGID4_FLAG_USE_PNFS_MDS:
        refused(laid.try_get(), nfsstat4.NFS4ERR_NOTSUPP)


@rule("LAYOUT-GRANTED", "", "12.6", level="SHOULD", kills=("layout-refused",))
def test_a_layout_of_an_announced_type_is_granted_for_a_file_with_data(laid):
    ok(laid.try_get(READ, 0, SIZE, BLOCK))


RANGES = {
    "BLOCK": (0, BLOCK, BLOCK),
    "MIDDLE": (5 * BLOCK, 3 * BLOCK, 2 * BLOCK),
    "SHORT": (BLOCK, 4 * BLOCK, BLOCK),
    "ZERO": (2 * BLOCK, BLOCK, 0),
    "ZERO-ZERO": (2 * BLOCK, 0, 0),
    "WHOLE": (0, ALL, BLOCK),
    "REST": (3 * BLOCK, ALL, BLOCK),
    "UNALIGNED": (BLOCK + 100, 1000, 50),
    "END": (SIZE - BLOCK, 4 * BLOCK, 4 * BLOCK),
    "ALL": (0, ALL, ALL),
}
"""loga_offset, loga_length and loga_minlength."""
BOUNDED = {name: what for name, what in RANGES.items() if name != "ALL"}


def is_enough(layouts, iomode, offset, minlength) -> None:
    """Check a layout against Table 13 of RFC 8881 18.43.3."""
    given = {one.lo_iomode for one in layouts}
    assert given == {RW} or (given == {READ} and iomode == READ), f"the iomode is {given}, not {iomode}"
    assert start(layouts) <= offset, "the layout begins after the offset"
    size, writable = length(layouts), given == {RW}
    if minlength == 0:
        assert size > 0
    elif minlength == ALL and writable:
        assert size == ALL, f"the length is {size}, not NFS4_UINT64_MAX"
    elif size != ALL:
        end = SIZE if minlength == ALL else offset + minlength
        wanted = end if writable else min(SIZE, end)
        assert size >= wanted - start(layouts), f"{start(layouts)} and {size} bytes do not reach {wanted}"


def judged(laid, iomode, what) -> None:
    """LAYOUTGET of a range; check what is granted, or the status if it is not."""
    offset, size, minlength = what
    done = laid.try_get(iomode, offset, size, minlength)
    if done.status == nfsstat4.NFS4_OK:
        is_enough(done["LAYOUTGET"].logr_layout, iomode, offset, minlength)
    elif done.status == nfsstat4.NFS4ERR_LAYOUTUNAVAILABLE:
        pytest.skip("the server grants no such layout: NFS4ERR_LAYOUTUNAVAILABLE")
    else:
        refused(done, nfsstat4.NFS4ERR_BADLAYOUT if minlength else nfsstat4.NFS4ERR_LAYOUTTRYLATER)


@rule("LG-READ", "", "18.43.3", kills=("lg-late", "lg-any"), over=RANGES)
def test_a_layout_to_read_is_as_long_as_required(laid, what):
    judged(laid, READ, what)


@rule("LG-RW", "", "18.43.3", kills=("lg-short", "lg-read-only"), over=BOUNDED)
def test_a_layout_to_write_is_as_long_as_required(laid, what):
    judged(laid, RW, what)


@rule("LG-RW-ALL", "", "18.43.3", kills=("lg-status",))
def test_a_layout_to_write_without_an_end_is_granted_or_a_bad_layout(laid):
    judged(laid, RW, RANGES["ALL"])


@rule("LG-TYPE", "", "18.43.3", kills=("lg-type",))
def test_a_layout_has_the_type_that_was_requested(laid):
    assert {one.lo_content.loc_type for one in laid.get()} == {laid.kind}


@rule("LG-ORDER", "", "18.43.3", kills=("lg-gap", "lg-iomodes"))
def test_the_elements_of_a_layout_follow_each_other_and_have_one_iomode(laid):
    found = laid.get(READ, 0, SIZE, SIZE)
    for one, following in itertools.pairwise(found):
        assert one.lo_length != ALL
        assert following.lo_offset == one.lo_offset + one.lo_length
    assert len({one.lo_iomode for one in found}) == 1


INVALID_RANGES = {
    "MINIMUM": (0, BLOCK, 2 * BLOCK),
    "MINIMUM-END": (ALL - 100, ALL, 4096),
    "LENGTH-END": (ALL - 100, 4096, 10),
}


@rule("LG-INVAL", "", "18.43.3", kills=("lg-inval", "lg-inval-granted"), over=INVALID_RANGES)
def test_a_range_that_contradicts_itself_is_invalid(laid, what):
    refused(laid.try_get(READ, *what), nfsstat4.NFS4ERR_INVAL)


@rule("LG-IOMODE", "", "18.43.3", kills=("lg-badiomode",), over={"ANY": ANY, "0": 0, "4": 4})
def test_a_layout_is_to_read_or_to_write(laid, what):
    refused(laid.try_get(what), nfsstat4.NFS4ERR_BADIOMODE)


TYPES: dict[str, int] = {
    one.name.removeprefix("LAYOUT4_"): one for one in layouttype4 if one != layouttype4.LAYOUT4_BLOCK_VOLUME
}
TYPES["UNKNOWN"] = 0x7FFF_FFFF


@rule("LG-KIND", "", "18.43.3", kills=("lg-unknown-type",), over=TYPES)
def test_a_type_that_is_not_supported_is_unknown(laid, here, what):
    if what in here.read(here.handle, FATTR4_FS_LAYOUT_TYPES)[FATTR4_FS_LAYOUT_TYPES]:
        pytest.skip("the server announces this type")
    done = laid.file.on(layoutget(what, laid.file.stateid))
    refused(done, nfsstat4.NFS4ERR_UNKNOWN_LAYOUTTYPE)


@rule("LG-TOOSMALL", "", "18.43.3", kills=("lg-toosmall",))
def test_a_layout_that_exceeds_maxcount_is_too_small(laid):
    laid.get()
    refused(laid.try_get(READ, 0, SIZE, BLOCK, maxcount=8), nfsstat4.NFS4ERR_TOOSMALL)


@rule("LG-NOFH", "", "18.43.3", kills=("lg-nofh",))
def test_layoutget_needs_a_filehandle(laid):
    done = laid.nfs.compound(layoutget(laid.kind, laid.file.stateid))
    refused(done, nfsstat4.NFS4ERR_NOFILEHANDLE)


@rule("LG-DIR", "", "15.2", kills=("lg-dir",))
def test_a_directory_has_no_layout(laid, here):
    done = laid.nfs.compound(putfh(here.handle), layoutget(laid.kind, laid.file.stateid))
    refused(done, nfsstat4.NFS4ERR_WRONG_TYPE, BAD_STATEID, *UNAVAILABLE, nfsstat4.NFS4ERR_BADLAYOUT)


@rule("LG-OPENMODE", "", "12.5.1", level="SHOULD", kills=("lg-openmode",))
def test_a_file_that_is_open_to_read_has_no_layout_to_write(laid, here):
    reader = StateOwner(laid.nfs).open(here.handle, b"file", access=OPEN4_SHARE_ACCESS_READ)
    ok(laid.file.try_close())
    laid.file = reader
    done = laid.try_get(RW, 0, BLOCK, BLOCK)
    refused(done, nfsstat4.NFS4ERR_OPENMODE, nfsstat4.NFS4ERR_ACCESS, *UNAVAILABLE)


# Stateids


SPECIAL = {"ANONYMOUS": ANONYMOUS, "BYPASS": READ_BYPASS, "INVALID": INVALID}


@rule("LG-SID", "", "8.2.3", kills=("lg-stateid",), over=SPECIAL)
def test_a_special_stateid_gets_no_layout(laid, what):
    refused(laid.try_get(stateid=what), BAD_STATEID)


@rule("LG-SID-FILE", "", "8.2.4", kills=("lg-stateid",))
def test_the_stateid_of_another_file_gets_no_layout(laid, here):
    other = open_new(laid.nfs, here.handle, b"other")
    refused(laid.try_get(stateid=other.stateid), BAD_STATEID)
    other.close()


@rule("LG-SID-CLOSED", "", "8.2.4", kills=("lg-stateid",))
def test_the_stateid_of_a_closed_file_gets_no_layout(laid):
    known = laid.file.stateid
    laid.file.close()
    refused(laid.try_get(stateid=known), BAD_STATEID)


@rule("LG-SID-CLIENT", "", "8.2.4", kills=("lg-other-client",))
def test_the_layout_stateid_of_another_client_gets_no_layout(bench, laid, here, version):
    laid.get()
    other = pnfs_client(bench, version)
    file = StateOwner(other).open(here.handle, b"file", access=OPEN4_SHARE_ACCESS_READ)
    refused(file.on(layoutget(laid.kind, laid.held)), BAD_STATEID)
    file.close()


@rule("LG-SEQ-FIRST", "", "12.5.2", kills=("lg-seq-first",))
def test_the_first_layout_stateid_has_the_sequence_id_1(laid):
    laid.get()
    assert laid.held.seqid == 1
    assert laid.held.other != laid.file.stateid.other


@rule("LG-SEQ-NEXT", "", "12.5.3", kills=("lg-seq-next", "lg-other"))
def test_each_layoutget_increments_the_sequence_id_by_one(laid):
    laid.get(READ, 0, BLOCK, BLOCK)
    first = laid.held
    for count in (1, 2, 3):
        laid.get(READ, count * BLOCK, BLOCK, BLOCK)
        assert laid.held == with_seqid(first, 1 + count)


@rule("LG-SEQ-ZERO", "", "12.5.5.2.1.4", kills=("lg-seq-zero",))
def test_a_layout_stateid_with_the_sequence_id_0_is_bad(laid):
    laid.get()
    refused(laid.try_get(stateid=with_seqid(laid.held, 0)), BAD_STATEID)


@rule("LG-SEQ-FUTURE", "", "12.5.5.2.1.4", kills=("lg-seq-future",))
def test_a_layout_stateid_of_the_future_is_refused(laid):
    laid.get()
    done = laid.try_get(stateid=with_seqid(laid.held, 7000))
    refused(done, nfsstat4.NFS4ERR_OLD_STATEID, BAD_STATEID)


@rule("LG-SEQ-PARALLEL", "", "12.5.5.2.1.4", kills=("lg-seq-old",))
def test_requests_with_the_sequence_id_of_parallel_requests_succeed(laid):
    laid.get(READ, 0, BLOCK, BLOCK)
    first = laid.held
    assert laid.nfs.session is not None
    parallel = min(3, laid.nfs.session.fore.ca_maxoperations - 1)
    for count in range(1, parallel + 1):
        ok(laid.try_get(READ, count * BLOCK, BLOCK, BLOCK, stateid=first))
        assert laid.held == with_seqid(first, 1 + count)


@rule("LG-CURRENT", "", "18.43.3", kills=("lg-current",))
def test_the_current_stateid_is_that_of_open_and_then_that_of_the_layout(laid, here):
    owner = StateOwner(laid.nfs)
    opening = owner.open_op(b"file", how=unchecked())
    get, give = layoutget(laid.kind, CURRENT), layoutreturn(laid.kind, CURRENT)
    done = laid.nfs.compound(putfh(here.handle), opening, get, give)
    if done.status in UNAVAILABLE:
        pytest.skip(f"the server grants no such layout now: {done.status.name}")
    ok(done)


@rule("LG-CLOSE", "", "12.5.2", kills=("lg-close",))
def test_a_layout_outlives_close_unless_it_is_returned_on_close(laid, observe):
    laid.get()
    laid.file.close()
    done = laid.try_return()
    if laid.granted.logr_return_on_close:
        observe(f"logr_return_on_close; LAYOUTRETURN after CLOSE: {done.status.name}")
        assert done.status in (nfsstat4.NFS4_OK, BAD_STATEID), done.line
    else:
        ok(done)


# Extents of blocks (RFC 5663 2.3)


STATE = pnfs_block_extent_state4
MAPPED = (0, SIZE, SIZE)


@rule("BL-READ", "", "2.3.1", of="RFC 5663", kills=("bl-read-states",))
def test_a_layout_to_read_has_extents_to_read(laid):
    found = laid.get(READ, *MAPPED)
    if found[0].lo_iomode == READ:
        states = {one.bex_state for one in extents(found)}
        assert states <= {STATE.PNFS_BLOCK_READ_DATA, STATE.PNFS_BLOCK_NONE_DATA}, f"states {states}"


@rule("BL-RW", "", "2.3.1", of="RFC 5663", kills=("bl-rw-states",))
def test_a_layout_to_write_has_no_hole(laid):
    """PNFS_BLOCK_NONE_DATA is never returned, and READ_DATA only under INVALID_DATA."""
    found = extents(laid.get(RW, *MAPPED))
    assert STATE.PNFS_BLOCK_NONE_DATA not in {one.bex_state for one in found}
    for one in found:
        if one.bex_state == STATE.PNFS_BLOCK_READ_DATA:
            covers = [other for other in found if other.bex_state == STATE.PNFS_BLOCK_INVALID_DATA]
            assert any(each.bex_file_offset <= one.bex_file_offset for each in covers)


@rule("BL-FIRST", "", "2.3.1", of="RFC 5663", kills=("bl-first",), over={"READ": READ, "RW": RW})
def test_the_first_extent_has_the_requested_offset(laid, what):
    first = extents(laid.get(what, 2 * BLOCK, BLOCK, BLOCK))[0]
    assert first.bex_file_offset <= 2 * BLOCK < first.bex_file_offset + first.bex_length


@rule("BL-ORDER", "", "2.3.1", of="RFC 5663", kills=("bl-gap",), over={"READ": READ, "RW": RW})
def test_extents_are_contiguous_and_cover_the_minimum(laid, what):
    found = [
        one
        for one in extents(laid.get(what, *MAPPED))
        if what == READ or one.bex_state != STATE.PNFS_BLOCK_READ_DATA
    ]
    for one, following in itertools.pairwise(found):
        assert following.bex_file_offset == one.bex_file_offset + one.bex_length
    end = found[-1].bex_file_offset + found[-1].bex_length
    assert end >= SIZE, f"the extents end at {end}, before the minimum of {SIZE}"


@rule("BL-HOLE", "", "2.3", of="RFC 5663", kills=("bl-hole",))
def test_a_hole_is_not_to_be_read_from_the_device(laid, here):
    """Blocks that were never written are NONE_DATA or INVALID_DATA, which read as zero."""
    writer = open_new(laid.nfs, here.handle, b"sparse")
    from_block = 64 * BLOCK
    ok(here.nfs.compound(putfh(writer.handle), write(ANONYMOUS, from_block, b"a" * BLOCK)))
    laid.file = writer
    found = extents(laid.get(READ, 0, BLOCK, BLOCK))
    states = [one.bex_state for one in found if one.bex_file_offset == 0]
    assert states[0] in (STATE.PNFS_BLOCK_NONE_DATA, STATE.PNFS_BLOCK_INVALID_DATA), f"state {states[0].name}"


# Devices


@pytest.fixture
def device(laid) -> bytes:
    """Return the id of the device of a layout that the client holds."""
    return device_of(laid.get())


@rule("GDI-TYPE", "", "18.40.3", kills=("gdi-type",))
def test_a_device_address_has_the_type_that_was_requested(laid, device):
    done = ok(laid.nfs.compound(getdeviceinfo(laid.kind, device)))
    assert done["GETDEVICEINFO"].gdir_device_addr.da_layout_type == laid.kind


@rule("GDI-BLOCK", "", "2.2.2", of="RFC 5663", kills=("gdi-order", "gdi-empty"))
def test_a_volume_is_made_of_those_before_it(laid, device):
    found = ok(laid.nfs.compound(getdeviceinfo(laid.kind, device)))["GETDEVICEINFO"].gdir_device_addr
    volumes = decode(pnfs_block_deviceaddr4, found.da_addr_body).bda_volumes
    assert volumes, "the device has no volume"
    for at, one in enumerate(volumes):
        if one.type == pnfs_block_volume_type4.PNFS_BLOCK_VOLUME_SIMPLE:
            assert one.value.bsv_ds, "a simple volume without a signature"
            continue
        parts = getattr(one.value, "bcv_volumes", None) or getattr(one.value, "bsv_volumes", None)
        assert all(part < at for part in parts or (one.value.bsv_volume,)), f"volume {at} refers to {parts}"


@rule("GDI-NOENT", "", "18.40.3", kills=("gdi-noent",))
def test_an_unknown_device_does_not_exist(laid):
    done = laid.nfs.compound(getdeviceinfo(laid.kind, b"\xa5" * 16))
    refused(done, nfsstat4.NFS4ERR_NOENT)


@rule("GDI-KIND", "", "15.2", kills=("gdi-unknown-type",))
def test_a_device_of_an_unknown_type_is_not_known(laid, device):
    done = laid.nfs.compound(getdeviceinfo(0x7FFF_FFFF, device))
    refused(done, nfsstat4.NFS4ERR_UNKNOWN_LAYOUTTYPE, nfsstat4.NFS4ERR_NOENT)


@rule("GDI-TOOSMALL", "", "18.40.3", kills=("gdi-toosmall", "gdi-mincount", "gdi-mincount-short"))
def test_too_small_a_maxcount_ends_with_the_minimum_which_is_enough(laid, device):
    done = laid.nfs.compound(getdeviceinfo(laid.kind, device, maxcount=8))
    needed = refused(done, nfsstat4.NFS4ERR_TOOSMALL)["GETDEVICEINFO"]
    assert needed > 8, f"gdir_mincount is {needed}"
    ok(laid.nfs.compound(getdeviceinfo(laid.kind, device, maxcount=needed)))


@rule("GDI-ZERO", "", "18.40.3", kills=("gdi-zero", "gdi-zero-body"))
def test_a_maxcount_of_0_is_not_too_small_and_has_no_address(laid, device):
    done = ok(laid.nfs.compound(getdeviceinfo(laid.kind, device, maxcount=0)))
    assert done["GETDEVICEINFO"].gdir_device_addr.da_addr_body == b""


@rule("GDI-ZERO-NOENT", "", "18.40.3", kills=("gdi-noent",))
def test_a_maxcount_of_0_validates_the_device(laid):
    done = laid.nfs.compound(getdeviceinfo(laid.kind, b"\xa5" * 16, maxcount=0))
    refused(done, nfsstat4.NFS4ERR_NOENT)


NOTIFY = {"NONE": (), "BOTH": (6,), "UNKNOWN": (0xFFFF_FFFF, 0xFFFF_FFFF)}


@rule("GDI-NOTIFY", "", "18.40.3", kills=("gdi-notify",), over=NOTIFY)
def test_the_notifications_of_a_device_are_those_that_were_requested_and_exist(laid, device, what):
    done = ok(laid.nfs.compound(getdeviceinfo(laid.kind, device, notify=what)))
    given = set(numbers_of(done["GETDEVICEINFO"].gdir_notification))
    assert given <= set(numbers_of(what)) & set(notify_deviceid_type4)


@rule("GDI-RETURNED", "", "18.44.3", level="MAY")
def test_a_device_stays_known_after_its_layouts_were_returned(laid, device, observe):
    ok(laid.try_return())
    observe(laid.nfs.compound(getdeviceinfo(laid.kind, device)).status.name)


def getdevicelist(laid, count=16):
    """GETDEVICELIST from the beginning."""
    asked = GETDEVICELIST4args(laid.kind, count, 0, bytes(8))
    return laid.nfs.compound(putfh(laid.file.handle), op("GETDEVICELIST", asked))


@pytest.mark.case("NFS41-GDL", section="RFC 8881 18.41.3", kills=("gdl-foreign",))
@pytest.mark.parametrize("minor", [1])
def test_the_list_of_devices_has_those_of_layouts(laid, device):
    done = served("GETDEVICELIST", getdevicelist(laid))
    listed = ok(done)["GETDEVICELIST"]
    assert listed.gdlr_eof is False or not listed.gdlr_deviceid_list or device in listed.gdlr_deviceid_list


@pytest.mark.case("NFS41-GDL-ZERO", section="RFC 8881 18.41.3", kills=("gdl-zero",))
@pytest.mark.parametrize("minor", [1])
def test_a_list_of_no_devices_is_invalid(laid):
    refused(served("GETDEVICELIST", getdevicelist(laid, 0)), nfsstat4.NFS4ERR_INVAL)


@pytest.mark.case("NFS42-GDL", section="RFC 7862 14.2", kills=("gdl-42",))
@pytest.mark.parametrize("minor", [2])
def test_minor_version_2_has_no_list_of_devices(laid):
    refused(getdevicelist(laid), nfsstat4.NFS4ERR_NOTSUPP)
