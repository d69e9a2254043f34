from __future__ import annotations

import pytest
from attach_helpers import APPLIANCE, NQN, attach, check_data, nvme

from storagetest.errors import AttachError, DataAtRisk, TargetDead
from storagetest.lab.services import nvmet
from storagetest.protocols.base import AttachmentKind

pytestmark = pytest.mark.lab
DISK = "/dev/mapper/nvme-lab2-1"
"""The appliance's end of the namespace that is used here."""


@pytest.mark.parametrize(
    ("header", "data"),
    [
        pytest.param(False, False, marks=pytest.mark.slow),
        pytest.param(True, False, marks=pytest.mark.slow),
        (True, True),
    ],
)
def test_digests(client, header, data) -> None:
    with attach(client, "nvme-tcp", nvme(header_digest=header, data_digest=data)) as attachment:
        assert attachment.mismatches == ()
        assert attachment.kind is AttachmentKind.BLOCK
        assert attachment.size == 64 << 20
        check_data(attachment)


@pytest.mark.slow
def test_second_namespace(client) -> None:
    with attach(client, "nvme-tcp", nvme("lab1", 2, 2)) as attachment:
        check_data(attachment)


@pytest.mark.parametrize("filesystem", ["ext4", pytest.param("xfs", marks=pytest.mark.slow)])
def test_file_system(client, filesystem) -> None:
    with attach(client, "nvme-tcp", nvme("lab1", 1, 1, filesystem=filesystem)) as attachment:
        assert attachment.kind is AttachmentKind.FILESYSTEM
        check_data(attachment)


def test_queues_and_depth(client) -> None:
    with attach(client, "nvme-tcp", nvme(queues=1, queue_depth=32, keep_alive=9)) as attachment:
        assert attachment.mismatches == ()
        assert attachment.negotiated["queue_count"] == "2"
        assert attachment.negotiated["sqsize"] == "31"
        assert attachment.negotiated["kato"] == "9"


@pytest.mark.slow
def test_more_queues_than_processors_is_a_difference(client) -> None:
    with attach(client, "nvme-tcp", nvme(queues=64)) as attachment:
        (difference,) = attachment.mismatches
        assert difference.option == "queues"


def test_no_such_subsystem(client) -> None:
    with (
        pytest.raises(AttachError, match="refuses the connection"),
        attach(client, "nvme-tcp", nvme("nowhere")),
    ):
        pytest.fail("attached")


def test_no_such_namespace(client) -> None:
    with (
        pytest.raises(AttachError, match="has no namespace 9; it has 1"),
        attach(client, "nvme-tcp", nvme(namespace=9)),
    ):
        pytest.fail("attached")


def test_port_closed(client) -> None:
    with (
        pytest.raises(
            TargetDead, match=r"client1 cannot connect to 10\.77\.0\.1 port 4421: the connection is refused"
        ),
        attach(client, "nvme-tcp", nvme(port=4421)),
    ):
        pytest.fail("attached")


def test_unnamed_disk_is_left_alone(client) -> None:
    with (
        pytest.raises(DataAtRisk, match=rf'erase: "{nvmet.wwid(3)}"'),
        attach(client, "nvme-tcp", nvme(erase=None)),
    ):
        pytest.fail("attached")


def test_disk_with_data_is_left_alone(client, appliance) -> None:
    appliance.run(["mkfs.xfs", "-q", "-K", "-f", "-L", "precious", "/dev/mapper/nvme-lab1-1"], deadline=60)
    try:
        with (
            pytest.raises(DataAtRisk, match=r"it has a signature: xfs \(label 'precious'\)"),
            attach(client, "nvme-tcp", nvme("lab1", 1, 1)),
        ):
            pytest.fail("attached")
    finally:
        appliance.run(["wipefs", "-a", "/dev/mapper/nvme-lab1-1"], deadline=30)


def test_controller_of_another_user_is_left_alone(client) -> None:
    client.run(["modprobe", "nvme-tcp"], deadline=30)
    client.run(
        ["nvme", "connect", "-t", "tcp", "-a", APPLIANCE, "-s", "4420", "-n", f"{NQN}:lab2"], deadline=30
    )
    try:
        before = client.left()
        with (
            pytest.raises(AttachError, match="is connected to this subsystem"),
            attach(client, "nvme-tcp", nvme()),
        ):
            pytest.fail("attached")
        assert client.left() == before
    finally:
        client.run(["nvme", "disconnect", "-n", f"{NQN}:lab2"], deadline=30)
