from __future__ import annotations

import pytest
from attach_helpers import APPLIANCE, IQN, attach, check_data, iscsi

from storagetest.errors import AttachError, DataAtRisk, TargetDead
from storagetest.lab.services import lio
from storagetest.protocols.base import AttachmentKind

pytestmark = pytest.mark.lab
DISK = "/dev/mapper/iscsi-plain-2"
"""The appliance's end of the LUN that is used here."""


def content(appliance) -> str:
    head = 'dd if="$1" bs=1M count=4 iflag=direct status=none | sha256sum'
    return appliance.run(["sh", "-c", head, "content", DISK], deadline=60).stdout


@pytest.mark.parametrize(
    ("header", "data"),
    [
        pytest.param("none", "none", marks=pytest.mark.slow),
        pytest.param("crc32c", "none", marks=pytest.mark.slow),
        ("crc32c", "crc32c"),
    ],
)
def test_digests(client, header, data) -> None:
    with attach(client, "iscsi", iscsi(header_digest=header, data_digest=data)) as attachment:
        assert attachment.mismatches == ()
        assert attachment.kind is AttachmentKind.BLOCK
        assert attachment.size == 64 << 20
        seen = [attachment.negotiated[key].lower() for key in ("HeaderDigest", "DataDigest")]
        assert seen == [header, data]
        assert int(attachment.negotiated["MaxRecvDataSegmentLength"]) > 0
        check_data(attachment)


def test_nothing_stays_on_the_disk(client, appliance) -> None:
    with attach(client, "iscsi", iscsi()) as attachment:
        client.run(["mkfs.ext4", "-q", "-F", attachment.path], deadline=60)
    assert appliance.run(["blkid", "-p", DISK], deadline=30, check=False).stdout == ""


@pytest.mark.parametrize("filesystem", ["ext4", pytest.param("xfs", marks=pytest.mark.slow)])
def test_file_system(client, filesystem) -> None:
    # xfs wants 300 MiB: LUN 0 has 512.
    with attach(client, "iscsi", iscsi(lun=0, disk=0, filesystem=filesystem)) as attachment:
        assert attachment.kind is AttachmentKind.FILESYSTEM
        assert attachment.negotiated["filesystem"] == filesystem
        check_data(attachment)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [64, 1024])
def test_queue_depth(client, depth) -> None:
    with attach(client, "iscsi", iscsi(queue_depth=depth)) as attachment:
        assert attachment.mismatches == ()
        assert attachment.negotiated["queue_depth"] == str(depth)


def test_lengths_are_offered_and_read_back(client) -> None:
    lengths = {"max_recv_data_segment_length": 8192, "max_burst_length": 65536, "first_burst_length": 16384}
    options = iscsi(**lengths, immediate_data=False)  # LIO requires InitialR2T
    with attach(client, "iscsi", options) as attachment:
        check_data(attachment)
        assert attachment.mismatches == ()
        negotiated = attachment.negotiated
    assert [negotiated[key] for key in ("MaxBurstLength", "FirstBurstLength", "ImmediateData")] == [
        "65536", "16384", "No",
    ]  # fmt: skip


def chap(secrets, *, mutual: bool = False) -> dict[str, object]:
    account: dict[str, object] = {"username": "storagetest", "password": secrets["chap-password"]}
    if mutual:
        account["mutual"] = {"username": "storagetest-target", "password": secrets["chap-mutual-password"]}
    return account


@pytest.mark.slow
def test_chap(client, secrets) -> None:
    with attach(client, "iscsi", iscsi("lab-chap", 0, 3, chap=chap(secrets))) as attachment:
        check_data(attachment)
        record = client.run(["sh", "-c", "ls -lR /etc/iscsi/nodes | grep ^-"], deadline=30).stdout
        assert record.startswith("-rw------- ")


def test_mutual_chap(client, secrets) -> None:
    with attach(client, "iscsi", iscsi("lab-mutual", 0, 4, chap=chap(secrets, mutual=True))) as attachment:
        check_data(attachment)


def test_wrong_chap_secret(client, secrets) -> None:
    wrong = {**chap(secrets), "password": "not-this-secret"}
    with (
        pytest.raises(
            AttachError, match="refuses the login as 'storagetest': wrong CHAP name or secret"
        ) as caught,
        attach(client, "iscsi", iscsi("lab-chap", 0, 3, chap=wrong)),
    ):
        pytest.fail("attached")
    assert "not-this-secret" not in str(caught.value)


@pytest.mark.slow
def test_wrong_secret_of_the_target(client, secrets) -> None:
    wrong = {
        **chap(secrets, mutual=True),
        "mutual": {"username": "storagetest-target", "password": "liar-liar-li"},
    }
    with (
        pytest.raises(AttachError, match=r"the target refuses the login|wrong CHAP"),
        attach(client, "iscsi", iscsi("lab-mutual", 0, 4, chap=wrong)),
    ):
        pytest.fail("attached")


def test_chap_is_wanted_and_not_given(client) -> None:
    with (
        pytest.raises(AttachError, match="refuses the login"),
        attach(client, "iscsi", iscsi("lab-chap", 0, 3)),
    ):
        pytest.fail("attached")


@pytest.mark.slow
def test_no_such_target(client) -> None:
    with (
        pytest.raises(AttachError, match=r"does not offer this target; it offers .*:lab-plain"),
        attach(client, "iscsi", iscsi("nowhere")),
    ):
        pytest.fail("attached")


def test_no_such_lun(client) -> None:
    with pytest.raises(AttachError, match="has no LUN 9 for client1"), attach(client, "iscsi", iscsi(lun=9)):
        pytest.fail("attached")


def test_port_closed(client) -> None:
    with (
        pytest.raises(
            TargetDead, match=r"client1 cannot connect to 10\.77\.0\.1 port 3261: the connection is refused"
        ),
        attach(client, "iscsi", iscsi(port=3261)),
    ):
        pytest.fail("attached")


@pytest.mark.parametrize(
    "erase", [pytest.param(None, marks=pytest.mark.slow), "naa.60014050000000000000000000000000"]
)
def test_unnamed_disk_is_left_alone(client, appliance, erase) -> None:
    before = content(appliance)
    with (
        pytest.raises(DataAtRisk, match=rf'erase: "{lio.wwid(2)}"'),
        attach(client, "iscsi", iscsi(erase=erase)),
    ):
        pytest.fail("attached")
    assert content(appliance) == before


FILE_SYSTEM = r"""
truncate -s 4M /tmp/precious
mkfs.ext4 -q -F -L precious /tmp/precious
dd if=/tmp/precious of="$1" bs=1M oflag=direct conv=notrunc status=none
rm /tmp/precious
"""

# One Linux partition from sector 2048 on, 4096 sectors long.
MASTER_BOOT_RECORD = r"""
{
    head -c 446 /dev/zero
    printf '\0\0\0\0\203\0\0\0\0\010\0\0\0\020\0\0'
    head -c 48 /dev/zero
    printf '\125\252'
} >/tmp/precious
dd if=/tmp/precious of="$1" bs=512 oflag=direct conv=notrunc status=none
rm /tmp/precious
"""

ZERO = 'dd if=/dev/zero of="$1" bs=1M count=4 oflag=direct conv=notrunc status=none'


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (FILE_SYSTEM, r"it has a signature: ext4 \(label 'precious'\)"),
        pytest.param(MASTER_BOOT_RECORD, "it has partitions: sd[a-z]1", marks=pytest.mark.slow),
    ],
    ids=["file system", "partition"],
)
def test_disk_with_data_is_left_alone(client, appliance, script, message) -> None:
    appliance.run(["sh", "-e", "-c", script, "script", DISK], deadline=60)
    before = content(appliance)
    try:
        with pytest.raises(DataAtRisk, match=message), attach(client, "iscsi", iscsi()):
            pytest.fail("attached")
        assert content(appliance) == before
    finally:
        appliance.run(["sh", "-c", ZERO, "zero", DISK], deadline=60)


def test_session_of_another_program_is_kept(client) -> None:
    portal = ["-T", f"{IQN}:lab-plain", "-p", APPLIANCE]
    client.run(["iscsiadm", "-m", "node", "-o", "new", *portal], deadline=30)
    client.run(["iscsiadm", "-m", "node", *portal, "--login"], deadline=30)
    try:
        before = client.left()
        with (
            pytest.raises(AttachError, match="has a session or node record"),
            attach(client, "iscsi", iscsi()),
        ):
            pytest.fail("attached")
        assert client.left() == before
    finally:
        client.run(["iscsiadm", "-m", "node", *portal, "--logout"], deadline=60)
        client.run(["iscsiadm", "-m", "node", "-o", "delete", *portal], deadline=30)
