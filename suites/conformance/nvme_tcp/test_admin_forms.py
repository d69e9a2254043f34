"""Forms of commands of an admin queue: a short Connect, FUSE, ready timeouts (Base 3.1.4, 6.3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, fabrics
from storagetest.wire.nvme.codes import Cns, Feature, Property, StatusCode, status_name
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import Harness, refused
from storagetest.wire.nvme_tcp.session import KATO

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 6.3")]

FUSED = {"FIRST": 0x41, "SECOND": 0x42}
"""FUSE 01b and 10b, with PSDT 01b (4.1.1)."""


@pytest.mark.parametrize("size", [
    pytest.param(size, marks=pytest.mark.case(f"NVF-CONNECT-SHORT-{size}", kills=("connect-short",)))
    for size in (512, 1020)
])  # fmt: skip
@pytest.mark.case(section="Base 4.3.2", builds_on=("NVT-SGL-04",))
def test_a_connect_with_a_part_of_its_data_is_refused(bench: Harness, size: int) -> None:
    """Its data structure has 1024 bytes. Another connection is let in after that."""
    identity = bench.any_host()
    endpoint = bench.endpoint
    names = fabrics.ConnectData(identity.hostid, endpoint.any_controller, endpoint.subnqn, identity.nqn)
    queue = bench.queue(name="short connect")
    try:
        done = queue.run(
            fabrics.connect(qid=0, sqsize=31, kato=KATO), data=names.encode()[:size], inside=True
        )
    except RemoteProtocolError:  # the connection was ended
        pass
    else:
        assert not done.ok, f"4.3.2: a Connect of 1024 bytes succeeds; its SGL has {size}"
    session = bench.session(identity=identity, name="the same host's admin queue")
    assert session.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES)).ok, "6.3: the host is let in"


@pytest.mark.parametrize("half", [
    pytest.param(half, marks=pytest.mark.case(f"NVA-FUSE-{half}", kills=("fuse-on-admin",)))
    for half in FUSED
])  # fmt: skip
@pytest.mark.case(section="Base 3.4.2", level="SHOULD")
def test_no_admin_command_is_half_of_a_fused_operation(session: ControllerSession, half: str) -> None:
    for command, reads in (
        (admin.get_features(Feature.NUMBER_OF_QUEUES), 0),
        (admin.identify(Cns.CONTROLLER), 4096),
        (admin.keep_alive(), 0),
    ):
        done = session.admin.run(replace(command, flags=FUSED[half]), reads=reads)
        refused(done, StatusCode.INVALID_FIELD)


CRMS, TIMEOUT = 59, 24
"""Places in CAP of Controller Ready Modes Supported, two bits, and of Timeout (3.1.4.1)."""

MOST_TIMEOUT = 0xFF
WITH_MEDIA = 1
"""CRMS: the controller is ready with its media alone."""


@pytest.fixture
def ready_timeouts(session: ControllerSession) -> tuple[int, int]:
    """Return CAP and CRTO; skip if CAP does not announce CRTO."""
    cap = session.get_property(Property.CAP)
    if not cap >> CRMS & 3:
        pytest.skip("CAP.CRMS is 00b: no CRTO")
    done = session.admin.run(fabrics.property_get(Property.CRTO))
    assert done.ok, (
        f"3.1.4.21: CAP.CRMS is {cap >> CRMS & 3:02b}b, and CRTO is not {status_name(done.status)}"
    )
    return cap, done.cqe.result


@pytest.mark.case("NVF-PROP-CRTO", section="Base 3.1.4.21", kills=("crto-refused",))
def test_a_controller_with_ready_modes_has_their_timeouts(
    session: ControllerSession, ready_timeouts: tuple[int, int]
) -> None:
    """The value has 32 bits, and is the same each time."""
    _, value = ready_timeouts
    assert value <= 0xFFFF_FFFF, f"3.1.4.21: CRTO has four bytes, and is read as {value:#x}"
    assert session.get_property(Property.CRTO) == value, "3.1.4.21: CRTO is another one in the next read"


@pytest.mark.case("NVF-PROP-CRTO-TO", section="Base 3.1.4.1", level="SHOULD", kills=("crto-zero",))
def test_the_timeout_of_cap_is_that_of_the_only_ready_mode(ready_timeouts: tuple[int, int]) -> None:
    """CAP.TO is CRWMT, or FFh if that is more, where a controller is ready with its media alone."""
    cap, value = ready_timeouts
    if cap >> CRMS & 3 != WITH_MEDIA:
        pytest.skip("CAP.CRMS: the controller has another ready mode")
    found, least = cap >> TIMEOUT & 0xFF, min(value & 0xFFFF, MOST_TIMEOUT)
    assert found == least, (
        f"3.1.4.1: CRWMT is {value & 0xFFFF}, in units of 500 ms; CAP.TO is {found}, not {least}"
    )
