"""RDMA as a transport of NFS, iSCSI and NVMe: requirements on the client, and the transport read back."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from storagetest.errors import ClientLacks
from storagetest.hosts import LocalHost
from storagetest.protocols import iscsi, nfs, nvme_tcp
from storagetest.protocols._mount import parse_mountinfo
from storagetest.protocols._preflight import check_client, preflight_argv
from storagetest.protocols.base import protocols

RDMA = {"nfs": {"proto": "rdma"}, "iscsi": {"transport": "iser"}, "nvme-tcp": {"transport": "rdma"}}
MODULE = {"nfs": "rpcrdma", "iscsi": "ib_iser", "nvme-tcp": "nvme_rdma"}


def options(protocol: str, **more: object) -> Any:
    found = protocols.get(protocol)
    return found.Options.model_validate({**found.example, **more})


@pytest.mark.parametrize("protocol", RDMA)
def test_rdma_needs_a_device_and_its_module_and_has_no_wire_cases(protocol):
    found = protocols.get(protocol)()
    plain, rdma = options(protocol), options(protocol, **RDMA[protocol])
    needs = found.needs(rdma)
    assert needs.rdma
    assert MODULE[protocol] in needs.modules
    assert found.server(rdma) == found.server(plain), "one server, whatever the transport"
    assert preflight_argv(needs)[4] == "", "RDMA listens on no TCP port"
    assert not found.needs(plain).rdma
    assert preflight_argv(found.needs(plain))[4] == found.server(plain)
    (lost,) = found.capabilities(plain) - found.capabilities(rdma)
    assert lost.endswith("-wire")
    assert found.capabilities(rdma) <= found.capabilities(plain)


@pytest.mark.parametrize("protocol", RDMA)
def test_each_is_a_value_of_the_matrix(protocol):
    (option, value), *_ = RDMA[protocol].items()
    assert value in protocols.get(protocol).Options.model_json_schema()["properties"][option]["enum"]


@pytest.mark.skipif(any(Path("/sys/class/infiniband").glob("*")), reason="this machine has an RDMA device")
@pytest.mark.parametrize("protocol", RDMA)
def test_a_client_without_a_device_is_refused_in_one_sentence(protocol):
    rdma = options(protocol, **RDMA[protocol])
    needs = protocols.get(protocol)().needs(rdma)
    tools = type(needs)(modules=needs.modules, rdma=True)  # this machine may have no iscsiadm
    with pytest.raises(ClientLacks, match=r"^a target: \S+ has no RDMA device") as refused:
        check_client(LocalHost(), tools, target="a target", deadline=60)
    assert "\n" not in str(refused.value)


def test_nfs_is_mounted_over_rdma_on_its_port_and_a_fall_back_is_found():
    rdma = options("nfs", proto="rdma")
    assert {"proto=rdma", "port=20049"} <= set(nfs.mount_options(rdma))
    assert {"proto=rdma6", "port=7"} <= set(
        nfs.mount_options(options("nfs", proto="rdma", address="fd00::1", port=7))
    )
    line = "1 1 0:5 / /m rw - nfs4 nas:/e rw,vers=4.2,proto={},sec=sys\n"
    for proto, different in (("rdma", []), ("tcp", ["proto: requested rdma, got tcp"])):
        (entry,) = parse_mountinfo(line.format(proto))
        found = nfs.Nfs().option_mismatches(rdma, nfs.parse_negotiated(entry, ""))
        assert [str(one) for one in found] == different


def test_iscsi_reads_the_transport_of_the_session():
    for driver, name in (("iscsi_iser", "iser"), ("iscsi_tcp", "tcp")):
        attributes = iscsi.parse_query(f"session:session1\ntransport:{driver}\n")
        assert iscsi.parse_negotiated(attributes)["transport"] == name
    assert iscsi.Iscsi().requested(options("iscsi", transport="iser"))["transport"] == "iser"
    assert iscsi.Iscsi().requested(options("iscsi"))["transport"] is None


def test_nvme_connects_over_rdma_and_reads_the_transport_of_the_controller():
    rdma = options("nvme-tcp", transport="rdma")
    assert "--transport=rdma" in nvme_tcp.connect_argv(rdma, "nqn.h", "id")
    assert "--transport=tcp" in nvme_tcp.connect_argv(options("nvme-tcp"), "nqn.h", "id")
    seen = nvme_tcp.parse_negotiated(nvme_tcp.parse_query("controller:nvme0\ntransport:tcp\n"), rdma)
    assert "transport: requested rdma, got tcp" in map(str, nvme_tcp.NvmeTcp().option_mismatches(rdma, seen))
    unseen = {name: value for name, value in seen.items() if name != "transport"}
    found = map(str, nvme_tcp.NvmeTcp().option_mismatches(rdma, unseen))
    assert "transport: requested rdma, got no value" in found, "what is not shown is not what was asked for"


def test_digests_are_of_tcp():
    with pytest.raises(ValidationError, match="of NVMe/TCP, not of RDMA"):
        options("nvme-tcp", transport="rdma", data_digest=True)
