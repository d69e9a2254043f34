"""Commands of a discovery controller: features, log pages, parts of the discovery log (Base 3.1.3.3)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Cns, Feature, LogPage, StatusCode, status_name
from storagetest.wire.nvme.command import transport_sgl
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import refused

from .test_admin import RESERVED_FEATURE

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 3.1.3.3")]

PIECE = 1024
"""Bytes of the head of the discovery log page, and of each entry (5.2.12.3.3)."""

MOST = 16
"""Entries of which a case reads parts (chosen)."""

OFFSETS_SUPPORTED = 1 << 2
"""LPA: extended data of Get Log Page (5.2.13.2.1)."""

DISCOVERY_NOTICES = 1 << 31
"""Discovery Log Page Change Notices: a bit of OAES, and of the configured events (5.2.26.1.5)."""

UNKNOWN_LOG = 0x60
"""A log page that is reserved (5.2.12)."""

KATO_MORE = 60_000
"""Milliseconds that the Keep Alive Timeout is raised by (chosen)."""

# Features (5.2.11, 5.2.26)


@pytest.fixture
def kept(discovery: ControllerSession) -> Iterator[ControllerSession]:
    """Yield a session of which the features are set to what they were."""
    fids = Feature.ASYNC_EVENT, Feature.KATO
    before = {fid: discovery.admin.run(admin.get_features(fid)) for fid in fids}
    yield discovery
    for fid, done in before.items():
        if done.ok:
            discovery.admin.run(admin.set_features(fid, done.cqe.dw0))


def _read(session: ControllerSession, fid: int) -> int:
    """Return the value of a feature; skip if it is not there, as it may be."""
    done = session.admin.run(admin.get_features(fid))
    if not done.ok:
        pytest.skip(f"Get Features {fid:02x}h of the discovery controller: {status_name(done.status)}")
    return done.cqe.dw0


@pytest.mark.case(
    "NVF-DISCOVERY-FEATURE-AEN", section="Base 5.2.26.1.5", kills=("discovery-feature-forgotten",)
)
def test_the_events_of_a_discovery_controller_are_configured(kept: ControllerSession) -> None:
    _read(kept, Feature.ASYNC_EVENT)
    if not kept.controller["oaes"] & DISCOVERY_NOTICES:
        pytest.skip("OAES bit 31: no Discovery Log Page Change Notices")
    for wanted in (DISCOVERY_NOTICES, 0, DISCOVERY_NOTICES):
        done = kept.admin.run(admin.set_features(Feature.ASYNC_EVENT, wanted))
        assert done.ok, f"5.2.26.1.5: OAES bit 31 is 1; Set Features ends with {status_name(done.status)}"
        found = _read(kept, Feature.ASYNC_EVENT)
        assert found & DISCOVERY_NOTICES == wanted & DISCOVERY_NOTICES, (
            f"5.2.26.1.5: the configuration was set to {wanted:#x}, and is {found:#x}"
        )


@pytest.mark.case(
    "NVF-DISCOVERY-FEATURE-KATO", section="Base 5.2.26.1.8", kills=("discovery-feature-forgotten",)
)
def test_the_keep_alive_timeout_of_a_discovery_controller_is_kept(kept: ControllerSession) -> None:
    """A value may be rounded up to the granularity of KAS."""
    first = _read(kept, Feature.KATO)
    unit = max(kept.controller["kas"], 1) * 100
    for wanted in (first + KATO_MORE, first + 2 * KATO_MORE):
        done = kept.admin.run(admin.set_features(Feature.KATO, wanted))
        if not done.ok:
            pytest.skip(f"Set Features (Keep Alive Timeout) ends with {status_name(done.status)}")
        found = _read(kept, Feature.KATO)
        assert wanted <= found < wanted + unit, (
            f"5.2.26.1.8: the Keep Alive Timeout was set to {wanted} ms, in units of {unit}; it is {found}"
        )


@pytest.mark.parametrize("what", [
    pytest.param("Get", marks=pytest.mark.case("NVF-DISCOVERY-FEATURE-UNKNOWN")),
    pytest.param("Set", marks=pytest.mark.case("NVF-DISCOVERY-FEATURE-UNKNOWN-SET")),
])  # fmt: skip
@pytest.mark.case(section="Base 4.2.3.1", kills=("feature-accepted",))
def test_a_discovery_controller_refuses_a_reserved_feature(discovery: ControllerSession, what: str) -> None:
    command = (
        admin.get_features(RESERVED_FEATURE) if what == "Get" else admin.set_features(RESERVED_FEATURE, 0)
    )
    refused(discovery.admin.run(command), StatusCode.INVALID_FIELD, StatusCode.INVALID_OPCODE)


# Log pages, and Identify


@pytest.mark.case("NVF-DISCOVERY-LOG-UNKNOWN", section="Base 5.2.12", kills=("log-page-accepted",))
def test_a_discovery_controller_refuses_an_unknown_log_page(discovery: ControllerSession) -> None:
    done = discovery.admin.run(admin.get_log_page(UNKNOWN_LOG, 64), reads=64)
    assert not done.ok, f"5.2.12: the reserved log page {UNKNOWN_LOG:02x}h of a discovery controller is read"


@pytest.mark.parametrize("page", [
    pytest.param(page, marks=pytest.mark.case(
        f"NVF-DISCOVERY-LOG-{page:02X}H", kills=("log-page-accepted",)))
    for page in (LogPage.CHANGED_NAMESPACES, LogPage.ANA, LogPage.RESERVATION_NOTIFICATION)
])  # fmt: skip
@pytest.mark.case(section="Base 3.1.3.5", level="SHOULD")
def test_a_discovery_controller_has_no_log_page_of_namespaces(
    discovery: ControllerSession, page: int
) -> None:
    done = discovery.admin.run(admin.get_log_page(page, 64), reads=64)
    assert not done.ok, f"3.1.3.5: log page {page:02x}h, of namespaces, is read of a discovery controller"


@pytest.mark.case("NVA-LOG-DISCOVERY", section="Base 5.2.12", level="SHOULD", kills=("log-page-accepted",))
def test_an_io_controller_has_no_discovery_log(session: ControllerSession) -> None:
    done = session.admin.run(admin.get_log_page(LogPage.DISCOVERY, PIECE), reads=PIECE)
    assert not done.ok, "5.2.12.3.3: the discovery log page, of discovery controllers, is read of an I/O one"


@pytest.mark.parametrize("cns", [
    pytest.param(cns, marks=pytest.mark.case(
        f"NVF-DISCOVERY-CNS-{cns:02X}H", kills=("discovery-identifies-namespaces",)))
    for cns in (Cns.NAMESPACE, Cns.DESCRIPTORS, Cns.CSI_NAMESPACE)
])  # fmt: skip
def test_a_discovery_controller_identifies_no_namespace(discovery: ControllerSession, cns: int) -> None:
    """It has no namespaces: NSID 1 is not valid."""
    done = discovery.admin.run(admin.identify(cns, nsid=1), reads=4096)
    assert not done.ok, f"3.1.3.3: Identify of CNS {cns:02x}h and NSID 1 of a discovery controller succeeds"


# Parts of the discovery log (5.2.12)


def _length(discovery: ControllerSession) -> int:
    """Return the bytes of the discovery log page."""
    if not discovery.controller["lpa"] & OFFSETS_SUPPORTED:
        pytest.skip("LPA bit 2: the log page offset is not supported")
    head = discovery.log_page(LogPage.DISCOVERY, PIECE)
    return PIECE * (1 + int.from_bytes(head[8:16], "little"))


@pytest.mark.case(
    "NVF-DISCOVERY-ODD",
    section="Base 5.2.12",
    kills=("discovery-odd-part",),
    builds_on=("NVF-DISCOVERY-04",),
)
def test_the_discovery_log_is_read_from_any_offset_in_any_length(discovery: ControllerSession) -> None:
    """Parts of a few dwords, and those across the borders of entries, up to the last dword."""
    length = min(_length(discovery), PIECE * (MOST + 1))
    whole = discovery.log_page(LogPage.DISCOVERY, length)
    parts = [(0, 4), (0, 12), (4, 4), (4, PIECE), (12, 20), (PIECE - 4, 8), (length - 4, 4)]
    parts += [(at - 12, 24) for at in range(PIECE, length, PIECE)]
    parts += [(PIECE + 36, length - PIECE - 36), (length // 2 // 4 * 4 + 4, 32), (8, length - 8)]
    for at, size in parts:
        command = admin.get_log_page(LogPage.DISCOVERY, size, offset=at, rae=1)
        done = discovery.admin.run(command, reads=size)
        assert done.ok, f"5.2.12: {size} bytes from LPO {at} of {length} end with {status_name(done.status)}"
        assert done.data == whole[at : at + size], (
            f"5.2.12: {size} bytes from LPO {at} of {length} are not those of the whole log: they begin with "
            f"{done.data[:16].hex()}, and the log has {whole[at : at + 16].hex()} there"
        )


@pytest.mark.case(
    "NVF-DISCOVERY-BEYOND",
    section="Base 5.2.12",
    kills=("log-offset-unchecked",),
    builds_on=("NVF-DISCOVERY-04",),
)
def test_an_offset_behind_the_discovery_log_is_refused(discovery: ControllerSession) -> None:
    """The offset is one dword behind the end, and the log has not changed."""
    length = _length(discovery)
    for size in (4, 64):
        command = admin.get_log_page(LogPage.DISCOVERY, size, offset=length + 4, rae=1)
        done = discovery.admin.run(command, reads=size)
        if _length(discovery) != length:
            pytest.skip("the discovery log changes")
        assert done.status == StatusCode.INVALID_FIELD, (
            f"5.2.12: {size} bytes from LPO {length + 4} of a discovery log of {length} end with "
            f"{status_name(done.status)}; required: INVALID_FIELD (0h/02h)"
        )


@pytest.mark.case(
    "NVF-DISCOVERY-SGL-SHORT",
    section="Base 4.3.2",
    kills=("discovery-short",),
    builds_on=("NVT-SGL-04",),
)
def test_a_discovery_log_whose_sgl_is_too_short_fails(discovery: ControllerSession) -> None:
    """NUMD has the bytes of the head, and the SGL half of them."""
    command = admin.get_log_page(LogPage.DISCOVERY, PIECE, rae=1)
    cid = discovery.admin.submit(command, reads=PIECE, dptr=transport_sgl(PIECE // 2))
    done = discovery.admin.wait(cid)
    assert not done.ok, (
        f"4.3.2: NUMD of {PIECE} bytes succeeds; the SGL has {PIECE // 2}: Data SGL Length Invalid"
    )
