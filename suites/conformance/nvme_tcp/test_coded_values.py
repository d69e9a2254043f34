"""Coded values that a controller returns are defined ones, and commands that name no one namespace.

The values are those of the discovery log's entries, of ANA groups and of CAP (Base 1.4.1.6: reserved ones are
of no use to a host).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import Feature, LogPage, Property, Rtype, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme.structures import NSIDS_OF_LIST, ana_groups
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import refused
from storagetest.wire.nvme_tcp.reservation_harness import ReservingHost

from .test_discovery_entries import PIECE, entries
from .test_reserved_fields import LATEST

__all__ = ["entries"]  # the fixture

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 5.2.12.3.3")]

# The discovery log (Base 5.2.12.3.3)

TRTYPE, ADRFAM, TREQ, CNTLID, TSAS = 0, 1, 3, 6, 768
"""Offsets in an entry."""
IP_FAMILIES = (1, 2)
"""ADRFAM of IPv4 and IPv6."""
RESERVED_TREQ = 3
"""A secure channel is not specified (0), required (1), not required (2)."""
LARGEST_CNTLID, ANY_OF_STATIC = 0xFFEF, 0xFFFE
SECURITY = (0, 1, 2)
"""SECTYPE of TCP: none, TLS 1.2, TLS 1.3 (NVMe/TCP 3.6.1)."""


def _family(entry: bytes) -> tuple[int, bool]:
    return entry[ADRFAM], entry[ADRFAM] in IP_FAMILIES


def _channel(entry: bytes) -> tuple[int, bool]:
    return entry[TREQ], entry[TREQ] & 3 != RESERVED_TREQ


def _controller(entry: bytes) -> tuple[int, bool]:
    cntlid = int.from_bytes(entry[CNTLID : CNTLID + 2], "little")
    return cntlid, cntlid <= LARGEST_CNTLID or cntlid >= ANY_OF_STATIC


def _security(entry: bytes) -> tuple[int, bool]:
    return entry[TSAS], entry[TSAS] in SECURITY


CODED: dict[str, tuple[Callable[[bytes], tuple[int, bool]], str]] = {
    "ADRFAM": (_family, "1h (IPv4) and 2h (IPv6)"),
    "TREQ": (_channel, "bits 1:0 from 00b to 10b"),
    "CNTLID": (_controller, "0h to FFEFh, FFFEh and FFFFh"),
    "SECTYPE": (_security, "0h (none), 1h (TLS 1.2) and 2h (TLS 1.3)"),
}
"""By field: its value and whether that is defined, and which values are."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"NVF-DISCOVERY-FORM-{name}", kills=(f"discovery-coded-{name.lower()}",)))
    for name in CODED
])  # fmt: skip
def test_coded_values_of_each_entry_are_defined(entries: list[bytes], name: str) -> None:
    """Of the entries of TCP."""
    look, defined = CODED[name]
    for number, entry in enumerate(entries, start=1):
        found, right = look(entry)
        assert right, (
            f"5.2.12.3.3: {name} of entry {number} of {len(entries)} is {found:#x}; defined are {defined}"
        )


@pytest.mark.case("NVF-DISCOVERY-RECFMT", kills=("discovery-record-format",), builds_on=("NVF-DISCOVERY-02",))
def test_the_record_format_of_the_discovery_log_is_zero(discovery: ControllerSession) -> None:
    found = int.from_bytes(discovery.log_page(LogPage.DISCOVERY, PIECE)[16:18], "little")
    assert found == 0, f"5.2.12.3.3: RECFMT of the discovery log page is {found:#x}; of this format it is 0h"


# ANA (Base 5.2.12.1.13)

ANA_STATES = (0x1, 0x2, 0x3, 0x4, 0xF)
"""Optimized, Non-Optimized, Inaccessible, Persistent Loss, Change."""


@pytest.mark.case(
    "NVA-LOG-ANA-FIELDS",
    section="Base 5.2.12.1.13",
    kills=("ana-state-reserved", "ana-groups-more"),
    builds_on=("NVA-LOG-ANA",),
)
def test_ana_groups_have_states_and_identifiers_that_are_defined(session: ControllerSession) -> None:
    """Each identifier is there once, and there are no more of them than ANAGRPMAX."""
    data = session.controller
    if not data["cmic"] & 8:
        pytest.skip("CMIC bit 3: no asymmetric namespace access reporting")
    most, number = data["anagrpmax"], data["nanagrpid"]
    assert number <= most, f"5.2.13.2.1: NANAGRPID is {number}, but there are {most} identifiers (ANAGRPMAX)"
    length = 16 + 32 * number + 4 * max(len(session.namespaces()), NSIDS_OF_LIST)
    _, groups = ana_groups(session.log_page(LogPage.ANA, length))
    found = [group.number for group in groups]
    assert len(found) == len(set(found)), f"5.2.12.1.13: an ANA group is there twice: {found}"
    assert all(1 <= one <= most for one in found), f"8.1.1.2: ANA groups are {found}; ANAGRPMAX is {most}"
    for group in groups:
        assert group.state in ANA_STATES, (
            f"5.2.12.1.13: the state of ANA group {group.number} is {group.state:#x}, which is reserved"
        )


# CAP (Base 3.1.4.1), CTRATT (5.2.13.2.1)

CAP_RESERVED = 0x1F << 19 | 0x1F << 38 | 3 << 62
"""Bits 23:19, 42:38 and 63:62."""
NSSRS = 1 << 36
HOST_ID_128 = 1 << 0


@pytest.mark.case("NVF-PROP-CAP-RSVD", section="Base 3.1.4.1", kills=("cap-reserved",))
def test_reserved_bits_of_cap_are_zero(session: ControllerSession) -> None:
    if session.controller["ver"] > LATEST:
        pytest.skip(f"VER is {session.controller['ver']:#x}: a later revision may define the bits")
    found = session.get_property(Property.CAP)
    assert not found & CAP_RESERVED, (
        f"1.4.1.6: CAP is {found:#x}: bits {found & CAP_RESERVED:#x} are reserved"
    )


@pytest.mark.case("NVF-PROP-CAP-NSSRS", section="Base 3.1.4.1", kills=("cap-nssrs",))
def test_the_subsystem_reset_that_cap_announces_is_a_property(session: ControllerSession) -> None:
    """NSSR is read, not written."""
    done = session.admin.run(fabrics.property_get(Property.NSSR))
    announced = session.get_property(Property.CAP) & NSSRS
    assert done.ok or not announced, (
        f"3.1.4.1: CAP.NSSRS is 1, but Property Get of NSSR ends with {status_name(done.status)}"
    )


@pytest.mark.case("NVA-ID-HIDS", section="Base 5.2.13.2.1", kills=("identify-hids",))
def test_a_controller_states_that_it_has_host_identifiers_of_128_bits(session: ControllerSession) -> None:
    """Connect has set one, and Get Features returns it."""
    done = session.admin.run(admin.get_features(Feature.HOST_IDENTIFIER, cdw11=1), reads=16)
    if not done.ok:
        pytest.skip(f"Get Features of the Host Identifier ends with {status_name(done.status)}")
    found = session.controller["ctratt"]
    assert found & HOST_ID_128, (
        f"5.2.13.2.1: CTRATT is {found:#x}: no Host Identifiers of 128 bits, but Get Features returns one"
    )


# NSID FFFFFFFFh of reservation commands (Base 3.2.1.5)

EVERY = 0xFFFFFFFF
KEY = 0xE7E7

OF_EVERY: dict[str, tuple[Command, bytes, int]] = {
    "REPORT": (io.report(EVERY, 64), b"", 64),
    "UNREGISTER": (io.register(EVERY, 1), KEY.to_bytes(16, "little"), 0),
    "ACQUIRE": (io.acquire(EVERY, 0, Rtype.WRITE_EXCLUSIVE), KEY.to_bytes(16, "little"), 0),
    "RELEASE": (io.release(EVERY, 0, Rtype.WRITE_EXCLUSIVE), KEY.to_bytes(8, "little"), 0),
}
"""By name: a command of all namespaces, its data, and the bytes that it reads. The host is no registrant."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVR-EVERY-{name}", kills=("reservation-of-every",)))
    for name in OF_EVERY
])  # fmt: skip
@pytest.mark.case(section="Base 3.2.1.5")
def test_a_reservation_command_is_of_one_namespace(
    hosts: tuple[ReservingHost, ReservingHost], name: str
) -> None:
    command, data, reads = OF_EVERY[name]
    done = hosts[0].queue.run(command, data=data, reads=reads)
    refused(done, StatusCode.INVALID_NAMESPACE, StatusCode.INVALID_FIELD)


# Data of an admin command by R2T (NVMe/TCP 3.3.2)

BEHAVIOR = 512


@pytest.mark.case(
    "NVT-ASKED-FEATURE",
    section="NVMe/TCP 3.3.2",
    kills=("asked-admin-lost",),
    builds_on=("NVT-R2T-04",),
)
def test_a_feature_whose_data_are_asked_for_is_set(session: ControllerSession) -> None:
    """ACRE of Host Behavior Support, each way; the last value is the first one."""
    got = session.admin.run(admin.get_features(Feature.HOST_BEHAVIOR), reads=BEHAVIOR)
    if not got.ok:
        pytest.skip(f"no Host Behavior Support: {status_name(got.status)}")
    first = got.data[:BEHAVIOR]
    for value in (bytes([first[0] ^ 1]) + first[1:], first):
        done = session.admin.run(admin.set_features(Feature.HOST_BEHAVIOR, 0), data=value, inside=False)
        if not done.ok:
            pytest.skip(f"Host Behavior Support by a Transport SGL is not set: {status_name(done.status)}")
        found = session.admin.run(admin.get_features(Feature.HOST_BEHAVIOR), reads=BEHAVIOR).data
        assert found[:1] == value[:1], (
            f"3.3.2: ACRE was set to {value[0]} by data that an R2T asked for; it is {found[0]}"
        )
