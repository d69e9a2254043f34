"""RDMA in the lab: its kernel has no soft RDMA device (neither siw nor rdma_rxe), so an attach is refused."""

from __future__ import annotations

import pytest
from attach_helpers import attach, iscsi, nfs, nvme

from storagetest.errors import ClientLacks

pytestmark = pytest.mark.lab

RDMA = {
    "nfs": nfs(proto="rdma"),
    "iscsi": iscsi(transport="iser"),
    "nvme-tcp": nvme(transport="rdma"),
}


@pytest.mark.parametrize("protocol", RDMA)
def test_an_attach_by_rdma_is_refused_with_what_the_client_lacks(client, protocol) -> None:
    devices = client.run(["sh", "-c", "ls /sys/class/infiniband 2>/dev/null || true"], deadline=60)
    assert devices.stdout == "", "the lab has RDMA devices: attach by them"
    message = r"client1 has no RDMA device \(/sys/class/infiniband\).* Use a client with an RDMA card"
    with pytest.raises(ClientLacks, match=message), attach(client, protocol, RDMA[protocol]):
        pytest.fail("it is attached")
