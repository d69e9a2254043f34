"""Rules that hold after a shutdown, for each Queue Identifier and for each model of controllers too.

Neighbours of other cases: the same rule in another state, of another field, or of another controller.
"""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, fabrics
from storagetest.wire.nvme.codes import Cns, Feature, LogPage, Property, StatusCode, status_name
from storagetest.wire.nvme.fabrics import ANY_CONTROLLER, ANY_STATIC_CONTROLLER, DISCOVERY_NQN, ConnectData
from storagetest.wire.nvme_tcp import ControllerSession, Queue, encode, override_field
from storagetest.wire.nvme_tcp.harness import Harness, refused
from storagetest.wire.nvme_tcp.pdu import Fes, H2CTermReq, ICReq
from storagetest.wire.nvme_tcp.session import connect_queue

from .test_digests import needs_digests
from .test_discovery_entries import PIECE, TRTYPE_TCP
from .test_not_ready import COMMANDS

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 6.3")]

EVERY = 0xFFFFFFFF
EXTENDED = 1 << 2
"""LPA: NUMDU and the offset of Get Log Page are supported (5.2.13.2.1)."""

DISCOVERY_NOTICES = 1 << 31
"""Discovery Log Page Change Notices, of OAES and of the configured events (5.2.13.2.1, 5.2.26.1.5)."""

FAMILIES = {1: 4, 2: 6}
"""By ADRFAM of TCP: the version of IP (5.2.12.3.3)."""

# After a shutdown (3.6.2)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"NVF-SHUTDOWN-{name}", kills=("shutdown-serves-others",), builds_on=("NVF-SHUTDOWN-COMMANDS",)))
    for name in ("GET-LOG-PAGE", "GET-FEATURES", "SET-FEATURES", "KEEP-ALIVE")
])  # fmt: skip
@pytest.mark.case(section="Base 3.6.2")
def test_no_other_admin_command_is_processed_after_a_shutdown(session: ControllerSession, name: str) -> None:
    command, reads = COMMANDS[name]
    done = session.admin.run(command, reads=reads)
    assert done.ok, f"5.2: {name} ends with {status_name(done.status)} before the shutdown"
    session.shut_down()
    try:
        again = session.admin.wait(session.admin.submit(command, reads=reads), deadline=1.0)
    except RemoteProtocolError:
        return  # no response, or the end of the connection
    assert not again.ok, f"3.6.2: {name} is carried out after a shutdown"


# Connect of an I/O queue (6.3)


def _wrong(raw: bytes) -> bytes:
    return override_field(raw, "DDGST", 0xDEADBEEF)


@pytest.mark.parametrize("fields", [
    pytest.param({"qid": 0xFFFF}, marks=pytest.mark.case("NVF-CONNECT-QID-FFFF")),
    pytest.param({"cntlid": ANY_STATIC_CONTROLLER}, marks=pytest.mark.case("NVF-CONNECT-IO-FFFEH")),
])  # fmt: skip
@pytest.mark.case(kills=("connect-io-last-values",), builds_on=("NVF-CONNECT-12",))
def test_an_io_queue_with_a_value_that_names_none_is_refused(
    session: ControllerSession, bench: Harness, fields: dict[str, int]
) -> None:
    """A Queue Identifier is 65,534 at most, and CNTLID FFFEh requests any controller of an admin queue."""
    given = {"qid": 1, "cntlid": session.cntlid, **fields}
    done = connect_queue(
        bench.queue(name="I/O queue"),
        subnqn=session.endpoint.subnqn,
        identity=session.identity,
        sqsize=min(15, session.cap.mqes),
        **given,
    )
    assert not done.ok, f"6.3: a Connect of an I/O queue succeeds with {fields}"


@pytest.mark.case(
    "NVT-DGST-CONNECT-IO",
    section="NVMe/TCP 3.5",
    kills=("ddgst-io-connect-unchecked",),
    builds_on=("NVT-DGST-CONNECT",),
)
def test_damaged_data_of_the_connect_of_an_io_queue_connect_none(
    session: ControllerSession, bench: Harness
) -> None:
    """The queue is free afterwards."""
    queue = bench.queue(ICReq(data_digest=True), name="I/O queue")
    needs_digests(queue)
    identity, endpoint = session.identity, session.endpoint
    data = ConnectData(identity.hostid, session.cntlid, endpoint.subnqn, identity.nqn).encode()
    command = fabrics.connect(qid=1, sqsize=min(15, session.cap.mqes))
    done = queue.wait(queue.submit(command, data=data, inside=True, override=_wrong))
    assert done.status == StatusCode.TRANSIENT_TRANSPORT_ERROR, (
        f"3.5: a Connect of an I/O queue whose data were damaged ended with {status_name(done.status)}"
    )
    queue.close()
    assert session.io_queue(qid=1).qid == 1, "6.3: the queue is connected"


# Log pages and PSDT (5.2.12, 4.1.1)


@pytest.mark.case(
    "NVA-LOG-WRAP", section="Base 5.2.12", kills=("log-offset-wraps",), builds_on=("NVA-LOG-BEYOND",)
)
def test_an_offset_whose_end_is_over_64_bits_is_refused(session: ControllerSession) -> None:
    """The offset and the length are together 2^64, or more: a sum of 64 bits is within the log page."""
    if not session.controller["lpa"] & EXTENDED:
        pytest.skip("LPA bit 2: the log page offset is not supported")
    for before in (4, 512):
        command = admin.get_log_page(LogPage.FIRMWARE_SLOT, 512, nsid=EVERY, offset=(1 << 64) - before)
        refused(session.admin.run(command, reads=512), StatusCode.INVALID_FIELD)


@pytest.mark.case(
    "NVT-PSDT-ADMIN",
    section="Base 1.4.1.6",
    kills=("psdt-of-admin-ignored",),
    builds_on=("NVT-PSDT-RESERVED",),
)
def test_a_reserved_psdt_of_an_admin_command_is_an_error(session: ControllerSession) -> None:
    done = session.admin.run(replace(admin.identify(Cns.CONTROLLER), flags=0xC0), reads=4096)
    assert not done.ok, "1.4.1.6: a reserved value is reported as an error; Identify with PSDT 11b succeeds"


@pytest.mark.case(
    "NVT-H2CTERM-ISOLATED",
    section="NVMe/TCP 3.5",
    kills=("h2cterm-takes-all",),
    builds_on=("NVT-H2CTERM-01", "NVT-FATAL-ISOLATED"),
)
def test_an_h2ctermreq_ends_no_other_connection(bench: Harness, session: ControllerSession) -> None:
    queue = bench.session(name="a host that ends its connection").admin
    queue.send(H2CTermReq(Fes.SEQUENCE_ERROR, 0, encode(ICReq())))
    queue.wait_for_close()
    assert session.admin.run(fabrics.property_get(Property.CSTS)).ok, "3.5: another host's queue still works"


# Discovery controllers (3.1.3.3), their log (5.2.12.3.3)


def _entries(discovery: ControllerSession) -> list[bytes]:
    """Return the entries of TCP."""
    records = int.from_bytes(discovery.log_page(LogPage.DISCOVERY, PIECE)[8:16], "little")
    raw = discovery.log_page(LogPage.DISCOVERY, PIECE * (min(records, 64) + 1))
    found = [raw[at : at + PIECE] for at in range(PIECE, len(raw), PIECE)]
    return [entry for entry in found if entry[0] == TRTYPE_TCP]


@pytest.mark.case(
    "NVF-DISCOVERY-MODEL",
    section="Base 5.2.12.3.3",
    kills=("discovery-other-model",),
    builds_on=("NVF-DISCOVERY-05", "NVF-CONNECT-05"),
)
def test_the_cntlid_of_an_entry_is_that_of_the_controller_model(
    session: ControllerSession, discovery: ControllerSession
) -> None:
    """It is FFFFh if, and only if, the subsystem has the dynamic controller model."""
    wanted = session.endpoint.subnqn.encode()
    dynamic = session.endpoint.any_controller == ANY_CONTROLLER
    for entry in _entries(discovery):
        if entry[256:512].partition(b"\0")[0] != wanted:
            continue
        cntlid = int.from_bytes(entry[6:8], "little")
        assert (cntlid == ANY_CONTROLLER) == dynamic, (
            f"5.2.12.3.3: CNTLID of the entry of the subsystem is {cntlid:#x}; its controller model is the "
            f"{'dynamic' if dynamic else 'static'} one"
        )


@pytest.mark.case(
    "NVF-DISCOVERY-FAMILY",
    section="Base 5.2.12.3.3",
    kills=("discovery-other-family",),
    builds_on=("NVF-DISCOVERY-05", "NVF-DISCOVERY-ADDRESS"),
)
def test_the_address_of_an_entry_is_of_its_address_family(discovery: ControllerSession) -> None:
    """A name is of each family."""
    for number, entry in enumerate(_entries(discovery), start=1):
        text = entry[512:768].partition(b"\0")[0].decode("ascii", "replace").strip()
        try:
            version = ipaddress.ip_address(text.partition("%")[0]).version
        except ValueError:
            continue
        assert FAMILIES.get(entry[1], version) == version, (
            f"5.2.12.3.3: ADRFAM of entry {number} is {entry[1]}, and TRADDR {text}, an IPv{version} address"
        )


@pytest.mark.case(
    "NVF-DISCOVERY-FEATURE-OWN",
    section="Base 5.2.26",
    kills=("discovery-features-shared",),
    builds_on=("NVF-DISCOVERY-FEATURE-KATO",),
)
def test_a_feature_of_a_discovery_controller_is_its_own(bench: Harness, discovery: ControllerSession) -> None:
    """The Keep Alive Timeout of one is set, and that of another one stays."""
    other = bench.session(subnqn=DISCOVERY_NQN, name="another discovery controller")

    def read(queue: Queue) -> int:
        done = queue.run(admin.get_features(Feature.KATO))
        if not done.ok:
            pytest.skip(f"Get Features of KATO: {status_name(done.status)}")
        return done.cqe.dw0

    before = read(other.admin)
    done = discovery.admin.run(admin.set_features(Feature.KATO, 2 * before))
    if not done.ok:
        pytest.skip(f"Set Features of KATO: {status_name(done.status)}")
    assert read(other.admin) == before, (
        f"5.2.26: the Keep Alive Timeout of another discovery controller was {before} ms, and is "
        f"{read(other.admin)} ms"
    )
