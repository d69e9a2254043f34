from __future__ import annotations

import pytest
from attach_helpers import NO_NETWORK, UNUSED_ADDRESS, attach, check_data, nfs

from storagetest.errors import AttachError, TargetDead

pytestmark = pytest.mark.lab


@pytest.mark.parametrize(
    "version",
    ["3", pytest.param("4.0", marks=pytest.mark.slow), pytest.param("4.1", marks=pytest.mark.slow), "4.2"],
)
def test_version(client, appliance, version) -> None:
    with attach(client, "nfs", nfs(version=version)) as attachment:
        assert attachment.mismatches == ()
        assert attachment.negotiated["vers"] == version
        assert attachment.negotiated["proto"] == "tcp"
        check_data(attachment)
        own = attachment.path.rpartition("/")[2]
        assert own in appliance.run(["ls", "/srv/nfs/a"], deadline=30).stdout
    assert own not in appliance.run(["ls", "/srv/nfs/a"], deadline=30).stdout


def test_connections_and_sizes(client) -> None:
    asked = nfs(version="4.1", nconnect=2, rsize="64KiB", wsize="128KiB")
    with attach(client, "nfs", asked) as attachment:
        assert attachment.mismatches == ()
        seen = {key: attachment.negotiated[key] for key in ("nconnect", "rsize", "wsize", "transports")}
        assert seen == {"nconnect": "2", "rsize": "65536", "wsize": "131072", "transports": "2"}


def test_silently_lowered_size_is_a_difference(client) -> None:
    with attach(client, "nfs", nfs(wsize="4MiB")) as attachment:
        (difference,) = attachment.mismatches
        assert (difference.option, difference.requested) == ("wsize", "4194304")
        assert int(difference.actual) <= 1 << 20, "knfsd's largest"


def test_two_mounts_at_once(client) -> None:
    with attach(client, "nfs", nfs()) as one, attach(client, "nfs", nfs(export="/x")) as two:
        check_data(one)
        check_data(two)


@pytest.mark.parametrize("version", ["3", "4.2"])
def test_no_such_export(client, version) -> None:
    with (
        pytest.raises(AttachError, match=r"has no export /nowhere|does not permit client1 to mount /nowhere"),
        attach(client, "nfs", nfs(version=version, export="/nowhere")),
    ):
        pytest.fail("attached")


@pytest.mark.parametrize(
    ("address", "port", "words"),
    [
        ("no-such-host.invalid", None, "the name 'no-such-host.invalid' "),
        (NO_NETWORK, None, "no route to that network"),
        (UNUSED_ADDRESS, None, "no route to that host|no response within"),
        ("10.77.0.1", 2050, "port 2050: the connection is refused"),
    ],
)
def test_unreachable(client, address, port, words) -> None:
    with (
        pytest.raises(TargetDead, match=f"nfs 4.2 {address}:/a: client1 cannot connect to .*({words})"),
        attach(client, "nfs", nfs(address=address, port=port)),
    ):
        pytest.fail("attached")
