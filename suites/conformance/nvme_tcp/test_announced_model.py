"""What Identify states of the subsystem, and what belongs to the admin queue alone (Base 5.2.13.2.1)."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Admin, Cns, Feature, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme.fabrics import ANY_CONTROLLER
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, wwids

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 5.2.13.2.1")]

CMIC, FCATT = 76, 1802
"""Offsets in Identify Controller (5.2.13.2.1)."""
MANY_CONTROLLERS = 1 << 1
"""CMIC: the subsystem may have two controllers or more."""
SHARED = 1 << 0
"""NMIC: the namespace may be attached to two controllers or more at the same time (NVM 4.1.5.1)."""
STATIC = 1 << 0
"""FCATT: the static controller model is used."""
LIST = 4096


@pytest.mark.case("NVA-PAIR-CMIC", kills=("identify-cmic",), builds_on=("NVF-CONNECT-02",))
def test_a_subsystem_of_two_controllers_states_that_it_may_have_them(bench: Harness) -> None:
    first, second = bench.session(), bench.session()
    for session in (first, second):
        found = session.controller.raw[CMIC]
        assert found & MANY_CONTROLLERS, (
            f"5.2.13.2.1: CMIC is {found:#04x}, which states one controller; {first.cntlid:#x} and "
            f"{second.cntlid:#x} are there at the same time"
        )


@pytest.mark.case(
    "NVA-PAIR-NMIC", section="NVM 4.1.5.1", kills=("identify-nmic",), builds_on=("NVF-CONNECT-02",)
)
def test_a_namespace_of_two_controllers_states_that_it_may_be_shared(bench: Harness) -> None:
    """With NMIC bit 0 cleared it is a private namespace, which one controller alone has at a time."""
    sessions = (bench.session(), bench.session())
    names = [{nsid: wwids(session, nsid) for nsid in session.namespaces()[:16]} for session in sessions]
    for nsid, own in names[0].items():
        if not own or names[1].get(nsid) != own:
            continue
        for session in sessions:
            found = session.namespace(nsid)["nmic"]
            assert found & SHARED, (
                f"4.1.5.1: NMIC of NSID {nsid:#x} is {found:#04x}, which states a private namespace; the "
                f"controllers {sessions[0].cntlid:#x} and {sessions[1].cntlid:#x} have it at the same time "
                f"({', '.join(sorted(own))})"
            )


CONTROLLER_UNITS = {"AWUN": 526, "AWUPF": 528, "ACWU": 532}
"""Offsets in Identify Controller; the units are zero's based (NVM 4.1.5.2)."""
NAMESPACE_UNITS = {"NAWUN": 34, "NAWUPF": 36, "NACWU": 38, "NABSN": 40, "NABO": 42, "NABSPF": 44}
"""Offsets in Identify Namespace; 0h is the controller's unit, or no boundary (NVM 4.1.5.1)."""
UNITS_DEFINED = 1 << 1
"""NSFEAT: NAWUN, NAWUPF and NACWU are defined for the namespace (NVM 4.1.5.1)."""
AT_MOST = (
    ("AWUPF", "AWUN"),
    ("AWUN", "NAWUN"),
    ("AWUPF", "NAWUPF"),
    ("NAWUPF", "NAWUN"),
    ("ACWU", "NACWU"),
    ("AWUN", "NABSN"),
    ("AWUPF", "NABSPF"),
    ("NABO", "NABSN"),
    ("NABO", "NABSPF"),
)
"""The first one is no more than the second one, if that one is defined (NVM 2.1.4, Atomicity Parameters)."""


@pytest.mark.case(
    "NVA-ID-ATOMIC",
    section="NVM 2.1.4",
    kills=("identify-awupf-larger", "identify-nawupf-larger", "identify-nabo-larger"),
)
def test_the_atomic_units_agree(session: ControllerSession) -> None:
    """A unit at power fail is no larger than the normal one, nor one of the controller than a namespace's."""

    def words(raw: bytes, places: dict[str, int]) -> dict[str, int]:
        return {name: int.from_bytes(raw[at : at + 2], "little") for name, at in places.items()}

    own = words(session.controller.raw, CONTROLLER_UNITS)
    assert own["AWUPF"] <= own["AWUN"], f"2.1.4: AWUPF is no more than AWUN; the controller has {own}"
    for nsid in session.namespaces()[:16]:
        data = session.namespace(nsid)
        if not data["nsfeat"] & UNITS_DEFINED:
            continue
        units = own | {name: value for name, value in words(data.raw, NAMESPACE_UNITS).items() if value}
        for less, more in AT_MOST:
            if less in units and more in units:
                assert units[less] <= units[more], (
                    f"2.1.4: {less} of NSID {nsid:#x} is {units[less]} and {more} {units[more]}: no more"
                )


@pytest.mark.case("NVA-ID-MODEL", kills=("identify-model",))
def test_the_controller_model_is_the_one_that_connect_has_found(session: ControllerSession) -> None:
    """CNTLID FFFFh in the Connect is of the dynamic model, and FFFEh of the static one."""
    static = session.endpoint.any_controller != ANY_CONTROLLER
    found = session.controller.raw[FCATT]
    assert bool(found & STATIC) == static, (
        f"5.2.13.2.1: FCATT is {found:#04x}; a Connect with CNTLID {session.endpoint.any_controller:#x} has "
        f"succeeded: the {'static' if static else 'dynamic'} controller model"
    )


@pytest.mark.case("NVA-ID-DESC-RESERVED", section="Base 5.2.13.2.3", kills=("descriptor-reserved",))
def test_reserved_bytes_of_the_descriptors_of_a_namespace_are_zero(session: ControllerSession) -> None:
    for nsid in session.namespaces()[:16]:
        done = session.admin.run(admin.identify(Cns.DESCRIPTORS, nsid=nsid), reads=LIST)
        if not done.ok:
            pytest.skip(f"Identify of CNS 03h: {status_name(done.status)}")
        at = 0
        while at + 4 <= LIST and done.data[at + 1]:
            assert not any(done.data[at + 2 : at + 4]), (
                f"5.2.13.2.3: bytes 2 and 3 of the descriptor at {at} of namespace {nsid:#x} are "
                f"{done.data[at + 2 : at + 4].hex()}: reserved"
            )
            at += 4 + done.data[at + 1]


@pytest.mark.parametrize("opcode", [
    pytest.param(Admin.IDENTIFY, marks=pytest.mark.case("NVB-OPCODE-06H")),
    pytest.param(Admin.GET_FEATURES, marks=pytest.mark.case("NVB-OPCODE-0AH")),
])  # fmt: skip
@pytest.mark.case(section="Base 4.2.3.1", kills=("admin-on-io-queue",), builds_on=("NVB-OPCODE-30H",))
def test_an_admin_command_is_none_of_an_io_queue(queue: Queue, opcode: Admin) -> None:
    """Identify of the controller, and Get Features of Number of Queues; no I/O command has these opcodes."""
    word = Cns.CONTROLLER if opcode == Admin.IDENTIFY else Feature.NUMBER_OF_QUEUES
    done = queue.run(Command(opcode, cdw10=word), reads=4096)
    assert not done.ok, f"4.2.3.1: {opcode.name} succeeds on an I/O queue: Invalid Command Opcode"
