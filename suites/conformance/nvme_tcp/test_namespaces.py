"""Namespaces (Base 3.2.1): Identify of each, and commands of others than the one that is overwritten."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import ONCS_BITS, Cns, Io, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, is_within_reach, refused, wwids

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 3.2.1")]

CNTRLTYPE_SINCE = 0x00010400
MOST = 8
"""Namespaces that a case looks at (chosen)."""

TRIES = 3
"""Compares of a block that another host may change between its read and its Compare (chosen)."""

INVALID = 0xFFFFFFFE
"""An NSID beyond any NN."""


@pytest.mark.case("NVA-ID-NN", section="Base 5.2.13.2.1", kills=("identify-nn",))
def test_nn_is_no_less_than_an_active_nsid(session: ControllerSession) -> None:
    active = session.namespaces()
    nn = session.controller["nn"]
    assert max(active) <= nn, f"5.2.13.2.1: NN is {nn}, the largest valid NSID, but {max(active)} is active"


@pytest.mark.case("NVA-ID-CNTRLTYPE", section="Base 5.2.13.2.1", kills=("identify-cntrltype",))
def test_cntrltype_is_io_controller(session: ControllerSession) -> None:
    if session.controller["ver"] < CNTRLTYPE_SINCE:
        pytest.skip("CNTRLTYPE is reserved before revision 1.4")
    kind = session.controller["cntrltype"]
    assert kind == 1, f"5.2.13.2.1: CNTRLTYPE of an I/O controller is 1h, not {kind:x}h"


@pytest.mark.case("NVA-ID-CNTLID", section="Base 5.2.13.2.1", kills=("identify-other-cntlid",))
def test_cntlid_is_the_same_in_each_identify(session: ControllerSession) -> None:
    seen = [int.from_bytes(session.identify(1)[78:80], "little") for _ in range(3)]
    assert set(seen) == {session.cntlid}, f"5.2.13.2.1: CNTLID is {session.cntlid}, but Identify has {seen}"


@pytest.mark.case("NVA-ID-NS-04", section="Base 4.7.1.4", kills=("identify-nguid-same",))
def test_nguid_and_eui64_of_namespaces_differ(session: ControllerSession) -> None:
    names = [
        name
        for nsid in session.namespaces()[:MOST]
        for name in (session.namespace(nsid).nguid, session.namespace(nsid).eui64)
        if any(name)
    ]
    assert len(set(names)) == len(names), f"4.7.1.4: two namespaces have one identifier: {names}"


@pytest.mark.case("NVA-ID-NS-05", section="NVM 4.1.5.1", kills=("identify-ns-sizes", "identify-flbas"))
def test_every_active_namespace_has_sizes_and_a_format(session: ControllerSession) -> None:
    for nsid in session.namespaces()[:MOST]:
        data = session.namespace(nsid)
        assert data["nsze"] >= data["ncap"] >= data["nuse"], f"4.1.5.1: NSZE >= NCAP >= NUSE of NSID {nsid}"
        assert data["nsze"] > 0, f"4.1.5.1: NSID {nsid} is active, but has no blocks"
        assert data["flbas"] & 0xF <= data["nlbaf"], (
            f"4.1.5.1: FLBAS of NSID {nsid} names a format of the list"
        )


@pytest.mark.case("NVA-ID-NS-06", section="NVM 4.1.5.1", kills=("identify-nguid-changes",))
def test_identifiers_are_the_same_for_each_controller(session: ControllerSession, bench: Harness) -> None:
    other = bench.session()
    for nsid in session.namespaces()[:MOST]:
        names = [wwids(one, nsid) for one in (session, other, session)]
        assert names[0] == names[1] == names[2], f"4.1.5.1: the identifiers of NSID {nsid} change: {names}"


@pytest.mark.case(
    "NVA-ID-NS-IN-TURN", section="NVM 4.1.5.1", kills=("identify-stale",), builds_on=("NVA-ID-NS-03",)
)
def test_identify_returns_the_namespace_that_it_names_in_any_order(session: ControllerSession) -> None:
    """Active and inactive namespaces in turn, on one queue: each has its own data, an inactive one zeroes."""
    nn, active = session.controller["nn"], session.namespaces()
    inactive = next((one for one in range(1, min(nn, 4096) + 1) if one not in active), None)
    names = {nsid: (session.namespace(nsid).nguid, session.namespace(nsid).eui64) for nsid in active[:2]}
    for nsid in (active[0], *active[:2][::-1], active[0]):
        data = session.namespace(nsid)
        assert (data.nguid, data.eui64) == names[nsid], f"4.1.5.1: Identify of NSID {nsid} is another's"
        if inactive is not None:
            found = session.namespace(inactive).raw
            assert not any(found), (
                f"4.1.5.1: NSID {inactive} is inactive; after {nsid} it is {found[:32].hex()}"
            )


def need_invalid(session: ControllerSession, nsid: int) -> None:
    """Skip if ``nsid`` is valid: from 1 to NN they are, active or not (3.2.1)."""
    if 1 <= nsid <= session.controller["nn"]:
        pytest.skip(f"NN: NSID {nsid:#x} is valid")


@pytest.mark.case("NVA-ID-DESC-03", section="Base 3.2.1.5", kills=("nsid-not-checked",))
def test_descriptors_of_an_invalid_nsid_are_refused(session: ControllerSession) -> None:
    need_invalid(session, INVALID)
    done = session.admin.run(admin.identify(Cns.DESCRIPTORS, nsid=INVALID), reads=4096)
    refused(done, StatusCode.INVALID_NAMESPACE)


@pytest.mark.parametrize(("cns", "nsid"), [
    pytest.param(cns, nsid, marks=pytest.mark.case(f"NVA-ID-CNS-{cns:02X}H-{name}", kills=(kill,)))
    for cns, kill in (
        (Cns.CSI_NAMESPACE, "identify-05h-any-nsid"),
        (Cns.CSI_INDEPENDENT, "identify-08h-any-nsid"),
    )
    for name, nsid in (("NSID-0", 0), ("NSID-FFFFFFFE", INVALID))
])  # fmt: skip
@pytest.mark.case(section="Base 3.2.1.5")
def test_each_structure_of_an_invalid_nsid_is_refused(
    session: ControllerSession, cns: Cns, nsid: int
) -> None:
    """CNS 05h and 08h, if the controller has them."""
    need_invalid(session, nsid)
    if not session.admin.run(admin.identify(cns, nsid=session.namespaces()[0]), reads=4096).ok:
        pytest.skip(f"Identify CNS {cns:02x}h is not supported")
    refused(session.admin.run(admin.identify(cns, nsid=nsid), reads=4096), StatusCode.INVALID_NAMESPACE)


@pytest.mark.case("NVB-NS-READ", kills=("namespace-other-refused",))
def test_every_active_namespace_is_read(session: ControllerSession, queue: Queue) -> None:
    """A namespace that the user has not named is left out if it is out of reach."""
    own = session.own_namespace()
    for nsid in session.namespaces()[:MOST]:
        data = session.namespace(nsid)
        for lba in (0, data["nsze"] - 1):
            if nsid != own and not is_within_reach(session, queue, nsid, lba):
                continue
            done = queue.run(io.read(nsid, lba, 1), reads=data.block_size)
            assert done.ok, (
                f"3.2.1: a read of block {lba} of NSID {nsid} ended with {status_name(done.status)}"
            )


@pytest.mark.case("NVB-NS-OWN", kills=("namespace-alias",))
def test_a_write_reaches_its_own_namespace_alone(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    others = [nsid for nsid in session.namespaces()[:MOST] if nsid != scratch.nsid]
    if not others:
        pytest.skip("the subsystem has one namespace")
    written = block_data(scratch.block_size, 1)
    assert queue.run(io.write(scratch.nsid, scratch.lba, 1), data=written).ok
    for nsid in others:
        data = session.namespace(nsid)
        lba = scratch.lba * scratch.block_size // data.block_size
        if lba >= data["nsze"]:
            continue
        done = queue.run(io.read(nsid, lba, 1), reads=data.block_size)
        common = min(len(written), len(done.data))
        assert not done.ok or done.data[:common] != written[:common], (
            f"3.2.1: what was written to NSID {scratch.nsid} is read from NSID {nsid}"
        )


def _compared(queue: Queue, nsid: int, lba: int, size: int) -> bool:
    """Whether Compare of a block with what was read there succeeds; skip if it is not read."""
    there = queue.run(io.read(nsid, lba, 1), reads=size)
    if not there.ok:
        pytest.skip(f"a read of NSID {nsid} ends with {status_name(there.status)}")
    return queue.run(io.compare(nsid, lba, 1), data=there.data).ok


@pytest.mark.case("NVB-NS-COMPARE", kills=("compare-of-first-namespace",))
def test_compare_is_of_its_own_namespace(session: ControllerSession, queue: Queue, scratch: Scratch) -> None:
    """Nothing is written to the other namespaces: what is read there is compared."""
    if not session.controller["oncs"] >> ONCS_BITS[Io.COMPARE] & 1:
        pytest.skip("ONCS: COMPARE is not supported")
    others = [nsid for nsid in session.namespaces()[:MOST] if nsid != scratch.nsid]
    if not others:
        pytest.skip("the subsystem has one namespace")
    written = block_data(scratch.block_size, 2)
    assert queue.run(io.write(scratch.nsid, scratch.lba, 1), data=written).ok
    for nsid in others:
        data = session.namespace(nsid)
        lba = min(scratch.lba, data["nsze"] - 1)
        found = [_compared(queue, nsid, lba, data.block_size) for _ in range(TRIES)]
        assert any(found), f"3.2.1: Compare of block {lba} of NSID {nsid} with what is read there fails"


@pytest.mark.case("NVB-NS-INACTIVE", section="Base 3.2.1.5", kills=("namespace-inactive-used",))
def test_commands_of_an_inactive_namespace_are_refused(session: ControllerSession, queue: Queue) -> None:
    """Invalid Field, or Invalid Namespace, which refuses the command as well."""
    active = session.namespaces()
    inactive = next(
        (one for one in range(1, min(session.controller["nn"], 4096) + 1) if one not in active), None
    )
    if inactive is None:
        pytest.skip("every NSID up to NN is active")
    for command, reads in ((io.read(inactive, 0, 1), 512), (io.flush(inactive), 0)):
        refused(queue.run(command, reads=reads), StatusCode.INVALID_FIELD, StatusCode.INVALID_NAMESPACE)


WITH_NSID: dict[str, tuple[Callable[[], Command], bytes, int | None]] = {
    "WRITE": (lambda: io.write(INVALID, 0, 1), bytes(512), None),
    "COMPARE": (lambda: io.compare(INVALID, 0, 1), bytes(512), 0),
    "ZEROES": (lambda: io.write_zeroes(INVALID, 0, 1), b"", 3),
    "DSM": (lambda: io.dataset_management(INVALID, 1), io.dsm_ranges([(0, 1)]), 2),
    "VERIFY": (lambda: io.verify(INVALID, 0, 1), b"", 7),
}
"""Commands of an invalid NSID: the command, its data, and the bit of ONCS for its support."""


@pytest.mark.case(section="Base 3.2.1.5")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.case(
                f"NVB-NSID-{name}",
                kills=("nsid-not-checked",) if name in ("WRITE", "VERIFY") else ("optional-nsid",),
            ),
        )
        for name in WITH_NSID
    ],
)
def test_a_command_of_an_invalid_nsid_is_refused(session: ControllerSession, queue: Queue, name: str) -> None:
    need_invalid(session, INVALID)
    make, data, bit = WITH_NSID[name]
    if bit is not None and not session.controller["oncs"] >> bit & 1:
        pytest.skip(f"ONCS bit {bit}: {name} is not supported")
    refused(queue.run(make(), data=data), StatusCode.INVALID_NAMESPACE)
