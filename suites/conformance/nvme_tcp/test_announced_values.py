"""Announced values agree with each other; offsets and errors of log pages have their form (Base 5.2.12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import LogPage, Property, status_name
from storagetest.wire.nvme.structures import NSIDS_OF_LIST, ControllerData, NamespaceData, ana_groups
from storagetest.wire.nvme_tcp import ControllerSession

from .test_reserved_fields import LATEST

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 5.2.13.2.1")]

ALL_NAMESPACES = 0xFFFFFFFF
ANA_REPORTED = 1 << 3
"""CMIC: asymmetric namespace access is reported (5.2.13.2.1)."""

SETS_SUPPORTED = 1 << 2
"""CTRATT: there are NVM Sets (5.2.13.2.1)."""

FUSED_SUPPORTED = 1 << 0
"""FUSES: Compare and Write is a fused operation (5.2.13.2.1)."""

FRMW, NSETIDMAX, FUSES, ACWU = 260, 338, 522, 532
"""Offsets in Identify Controller (5.2.13.2.1)."""

MC, DPC, DPS, NVMSETID = 27, 28, 29, 100
"""Offsets in Identify Namespace (NVM 4.1.5.1)."""

NAMESPACES = 16
"""Namespaces that are looked at, at most (chosen)."""

READS = 3
"""Reads of the groups, of which a namespace may leave one meanwhile (chosen)."""


def _number(raw: bytes, at: int) -> int:
    return int.from_bytes(raw[at : at + 2], "little")


def _looked_at(session: ControllerSession) -> ControllerData:
    """Return Identify Controller; skip a controller of a revision whose values are not known here."""
    data = session.controller
    if data["ver"] > LATEST:
        pytest.skip(f"VER is {data['ver']:#x}: a later revision may define the values")
    return data


# Identify Controller (5.2.13.2.1)


def _allowed_namespaces(data: ControllerData) -> Iterator[str]:
    if data["cmic"] & ANA_REPORTED and not 1 <= data["mnan"] <= data["nn"]:
        yield f"MNAN is {data['mnan']}; with asymmetric namespace access it is from 1 to NN ({data['nn']})"


def _groups(data: ControllerData) -> Iterator[str]:
    if data["cmic"] & ANA_REPORTED and not 1 <= data["nanagrpid"] <= data["anagrpmax"]:
        yield f"NANAGRPID is {data['nanagrpid']}; it is from 1 to ANAGRPMAX ({data['anagrpmax']})"


def _slots(data: ControllerData) -> Iterator[str]:
    if not data.raw[FRMW] >> 1 & 7:
        yield f"FRMW is {data.raw[FRMW]:#04x}: no firmware slot; there are 1 to 7"


def _compare_and_write(data: ControllerData) -> Iterator[str]:
    if not data.raw[FUSES] & FUSED_SUPPORTED and _number(data.raw, ACWU):
        yield f"ACWU is {_number(data.raw, ACWU)}; without a fused Compare and Write (FUSES) it is 0h"


def _sets(data: ControllerData) -> Iterator[str]:
    if not data["ctratt"] & SETS_SUPPORTED and _number(data.raw, NSETIDMAX):
        yield f"NSETIDMAX is {_number(data.raw, NSETIDMAX)}; without NVM Sets (CTRATT bit 2) it is 0h"


def _flush(data: ControllerData) -> Iterator[str]:
    if data["vwc"] >> 1 & 3 == 1:
        yield f"VWC is {data['vwc']:#04x}: bits 2:1 are 01b, which is reserved"


def _alignment(data: ControllerData) -> Iterator[str]:
    if data["sgls"] & 3 == 3:
        yield f"SGLS is {data['sgls']:#x}: bits 1:0 are 11b, which is reserved"


CONTROLLER: dict[str, Callable[[ControllerData], Iterator[str]]] = {
    "MNAN": _allowed_namespaces,
    "NANAGRPID": _groups,
    "FRMW": _slots,
    "ACWU": _compare_and_write,
    "NSETIDMAX": _sets,
    "VWC": _flush,
    "SGLS": _alignment,
}
"""By field of Identify Controller: what yields its faults."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"NVA-ID-VALUE-{name}", kills=(f"value-{name.lower()}",)))
    for name in CONTROLLER
])  # fmt: skip
def test_a_value_of_a_controller_is_defined_and_agrees_with_others(
    session: ControllerSession, name: str
) -> None:
    data = _looked_at(session)
    faults = list(CONTROLLER[name](data))
    assert not faults, f"5.2.13.2.1: {'; '.join(faults)}"


# Identify Namespace (NVM 4.1.5.1)


def _deallocated(_: ControllerData, data: NamespaceData) -> Iterator[str]:
    if data["dlfeat"] & 7 > 2:
        yield f"DLFEAT is {data['dlfeat']:#04x}: bits 2:0 are a reserved value"


def _protection(_: ControllerData, data: NamespaceData) -> Iterator[str]:
    kind = data.raw[DPS] & 7
    if kind > 3:
        yield f"DPS is {data.raw[DPS]:#04x}: bits 2:0 are a reserved value"
    elif kind and not data.raw[DPC] >> (kind - 1) & 1:
        yield f"DPS is {data.raw[DPS]:#04x}, of type {kind}, which DPC ({data.raw[DPC]:#04x}) lacks"


def _metadata(_: ControllerData, data: NamespaceData) -> Iterator[str]:
    if data.metadata and not data.raw[MC] & (1 if data.is_extended else 2):
        where = "at the end of the data" if data.is_extended else "in a buffer of their own"
        yield f"FLBAS is {data['flbas']:#04x}, so metadata are {where}, which MC ({data.raw[MC]:#04x}) lacks"


def _set_of(controller: ControllerData, data: NamespaceData) -> Iterator[str]:
    if not controller["ctratt"] & SETS_SUPPORTED and _number(data.raw, NVMSETID):
        yield f"NVMSETID is {_number(data.raw, NVMSETID)}; without NVM Sets (CTRATT bit 2) it is 0h"


NAMESPACE: dict[str, Callable[[ControllerData, NamespaceData], Iterator[str]]] = {
    "DLFEAT": _deallocated,
    "DPS": _protection,
    "MC": _metadata,
    "NVMSETID": _set_of,
}
"""By field of Identify Namespace: what yields its faults."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"NVA-ID-NS-VALUE-{name}", section="NVM 4.1.5.1", kills=(f"value-{name.lower()}",)))
    for name in NAMESPACE
])  # fmt: skip
def test_a_value_of_a_namespace_is_defined_and_agrees_with_others(
    session: ControllerSession, name: str
) -> None:
    controller = _looked_at(session)
    for nsid in session.namespaces()[:NAMESPACES]:
        faults = list(NAMESPACE[name](controller, session.namespace(nsid)))
        assert not faults, f"NVM 4.1.5.1: namespace {nsid:#x}: {'; '.join(faults)}"


# CAP (3.1.4.1), ANA (8.1.1), log pages (5.2.12)


@pytest.mark.case("NVF-PROP-CAP-PAGES", section="Base 3.1.4.1", kills=("cap-pages",))
def test_the_largest_page_is_no_smaller_than_the_least(session: ControllerSession) -> None:
    cap = session.get_property(Property.CAP)
    least, most = cap >> 48 & 0xF, cap >> 52 & 0xF
    assert least <= most, f"3.1.4.1: MPSMIN of CAP {cap:#x} is {least}, and MPSMAX {most}"


@pytest.mark.case(
    "NVA-LOG-ANA-MEMBERS", section="Base 8.1.1.2", kills=("ana-other-member",), builds_on=("NVA-LOG-ANA",)
)
def test_a_namespace_is_in_the_group_that_identify_states(session: ControllerSession) -> None:
    """ANAGRPID is the ANA group that lists the namespace; it may have moved between two reads."""
    if not session.controller["cmic"] & ANA_REPORTED:
        pytest.skip("CMIC bit 3: no asymmetric namespace access reporting")
    every = session.namespaces()
    length = 16 + 32 * session.controller["nanagrpid"] + 4 * max(len(every), NSIDS_OF_LIST)
    for _ in range(READS):
        _, groups = ana_groups(session.log_page(LogPage.ANA, length))
        listed = {nsid: group.number for group in groups for nsid in group.namespaces}
        stated = {nsid: session.namespace(nsid)["anagrpid"] for nsid in every[:NAMESPACES]}
        wrong = [nsid for nsid, group in stated.items() if listed.get(nsid) != group]
        if not wrong:
            return
    nsid = wrong[0]
    pytest.fail(
        f"8.1.1.2: the ANA log page lists namespace {nsid:#x} in group {listed.get(nsid)}; ANAGRPID of it is "
        f"{stated[nsid]}"
    )


@pytest.mark.parametrize("low", [
    pytest.param(low, marks=pytest.mark.case(f"NVA-LOG-UNALIGNED-{low}")) for low in (1, 2, 3)
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.12", kills=("log-offset-rounded-up",), builds_on=("NVA-LOG-OFFSET",))
def test_an_offset_of_no_dword_is_refused_or_that_of_its_dword(session: ControllerSession, low: int) -> None:
    """A controller need not look at bits 1:0 of LPO; then they are taken for 00b."""
    if not session.controller["lpa"] & 4:
        pytest.skip("LPA bit 2: the log page offset is not supported")
    size = 32
    whole = session.log_page(LogPage.FIRMWARE_SLOT, 64, nsid=ALL_NAMESPACES)
    for at in (4, 8, 12):
        command = admin.get_log_page(LogPage.FIRMWARE_SLOT, size, nsid=ALL_NAMESPACES, offset=at + low)
        done = session.admin.run(command, reads=size)
        assert not done.ok or done.data == whole[at : at + size], (
            f"5.2.12: {size} bytes from LPO {at + low} are {done.data[:8].hex()}…; the dword at {at} is "
            f"{whole[at : at + 4].hex()}: bits 1:0 are an error, or count as 00b"
        )


UNKNOWN_LOG = 0x6F
"""A log page that is reserved (5.2.12)."""

LOCATION, TRANSPORT = 14, 29
"""Offsets of Parameter Error Location and of TRTYPE in an entry of the error log (5.2.12.1.2)."""

NO_LOCATION = 0xFFFF
COMMAND_BYTES = 64
ENTRIES = 16
"""Entries of the error log that are read at most (chosen)."""


def _entry(session: ControllerSession) -> bytes:
    """Let an admin command fail, and return its entry of the error log; skip if there is none."""
    cid = session.admin.submit(admin.get_log_page(UNKNOWN_LOG, 64), reads=64)
    status = session.admin.wait(cid).status
    count = min(session.controller["elpe"] + 1, ENTRIES)
    raw = session.log_page(LogPage.ERROR, 64 * count, nsid=ALL_NAMESPACES)
    for at in range(0, len(raw), 64):
        one = raw[at : at + 64]
        if any(one[:8]) and _number(one, 8) == 0 and _number(one, 10) == cid:
            return one
    pytest.skip(f"the error log has no entry of a command that ended with {status_name(status)}")


@pytest.mark.case("NVA-LOG-ERROR-LOCATION", section="Base 5.2.12.1.2", kills=("error-log-location",))
def test_an_error_is_located_within_its_command(session: ControllerSession) -> None:
    """Parameter Error Location is a bit of one of 64 bytes, or FFFFh."""
    found = _number(_entry(session), LOCATION)
    inside = found >> 11 == 0 and found & 0xFF < COMMAND_BYTES
    assert inside or found == NO_LOCATION, (
        f"5.2.12.1.2: Parameter Error Location is {found:#06x}; required: byte 0 to 63 in bits 7:0, a bit in "
        "10:8 and 0 above, or FFFFh"
    )


@pytest.mark.case("NVA-LOG-ERROR-TRANSPORT", section="Base 5.2.12.1.2", kills=("error-log-transport",))
def test_an_error_of_a_log_page_is_none_of_the_transport(session: ControllerSession) -> None:
    """TRTYPE is 0h in the entry of an error that is not of the transport."""
    found = _entry(session)[TRANSPORT]
    assert found == 0, f"5.2.12.1.2: TRTYPE of an unknown log page's error is {found:#x}; required: 0h"
