"""Attach of Lustre in a lab whose overlay contains it; without it, the error names the missing commands."""

from __future__ import annotations

import pytest
from attach_helpers import UNUSED_ADDRESS, attach, check_data, lustre

from storagetest.errors import AttachError, ClientLacks, OptionRefused, TargetDead

pytestmark = pytest.mark.lab


@pytest.fixture
def lustre_client(client):
    if not client.has("mount.lustre"):
        pytest.skip("this lab has no overlay with Lustre")
    return client


def test_client_without_lustre(client) -> None:
    if client.has("mount.lustre"):
        pytest.skip("this lab has an overlay with Lustre")
    with (
        pytest.raises(ClientLacks, match=r"lustre .*: client1 has no mount\.lustre, lfs\. Install"),
        attach(client, "lustre", lustre()),
    ):
        pytest.fail("attached")


@pytest.mark.parametrize("count", [1, 2])
def test_layout(lustre_client, count) -> None:
    with attach(lustre_client, "lustre", lustre(stripe_count=count, stripe_size="2MiB")) as attachment:
        assert attachment.mismatches == ()
        assert attachment.negotiated["stripe_count"] == str(count)
        assert attachment.negotiated["stripe_size"] == str(2 << 20)
        check_data(attachment)


def test_more_stripes_than_targets_is_a_difference(lustre_client) -> None:
    with attach(lustre_client, "lustre", lustre(stripe_count=4)) as attachment:
        assert [str(one) for one in attachment.mismatches] == ["stripe_count: requested 4, got 2"]


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"pool": "flash"}, OptionRefused, "does not take this layout"),
        ({"fsname": "nosuch"}, AttachError, "the MGS knows no file system 'nosuch'"),
        ({"mgs": f"{UNUSED_ADDRESS}@tcp"}, TargetDead, "client1 cannot connect to"),
    ],
)
def test_refusals(lustre_client, asked, error, words) -> None:
    with pytest.raises(error, match=words), attach(lustre_client, "lustre", lustre(**asked)):
        pytest.fail("attached")
