"""Attach of Lustre in a lab whose overlay contains it; without it, the error names the missing commands."""

from __future__ import annotations

import pytest
from attach_helpers import APPLIANCE, UNUSED_ADDRESS, attach, check_data, connect, lustre

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


def test_all_osts(lustre_client) -> None:
    with attach(lustre_client, "lustre", lustre(stripe_count=-1)) as attachment:
        assert attachment.mismatches == ()
        assert attachment.negotiated["stripe_count"] == attachment.negotiated["osts"] == "2"


def test_progressive_layout(lustre_client) -> None:
    layout = "-E 1M -c 1 -S 1M -E 4M -c 1 -S 2M -E eof -c -1 -S 1M"
    with attach(lustre_client, "lustre", lustre(layout=layout)) as attachment:
        assert attachment.mismatches == ()
        assert attachment.negotiated["component3.stripe_count"] == "2"
        check_data(attachment)


def test_failover_partner_that_does_not_respond(lustre_client) -> None:
    mgs = f"{UNUSED_ADDRESS}@tcp:{APPLIANCE}@tcp"
    with attach(lustre_client, "lustre", lustre(mgs=mgs, deadline=180)) as attachment:
        check_data(attachment)


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"pool": "flash"}, OptionRefused, "rejects this layout"),
        ({"fsname": "nosuch"}, AttachError, "the MGS has no file system 'nosuch'"),
        ({"mgs": f"{UNUSED_ADDRESS}@tcp"}, TargetDead, "client1 cannot connect to"),
    ],
)
def test_refusals(lustre_client, asked, error, words) -> None:
    with pytest.raises(error, match=words), attach(lustre_client, "lustre", lustre(**asked)):
        pytest.fail("attached")


def test_networks_are_read_back(lustre_client) -> None:
    with attach(lustre_client, "lustre", lustre(lnet="tcp(eth0)")) as attachment:
        assert attachment.mismatches == ()
        assert attachment.negotiated["lnet"] == "tcp(eth0)"
        check_data(attachment)


@pytest.fixture
def pool(lustre_client, lab):
    """Return the name of a pool of one OST."""
    server = connect(lab, "appliance")
    try:
        server.run(["lctl", "pool_new", "lustre.attach"], deadline=60)
        server.run(["lctl", "pool_add", "lustre.attach", "lustre-OST0001"], deadline=60)
        yield "attach"
    finally:
        server.run(["lctl", "pool_remove", "lustre.attach", "lustre-OST0001"], deadline=60)
        server.run(["lctl", "pool_destroy", "lustre.attach"], deadline=60)
        server.close()


def test_all_osts_of_a_pool(lustre_client, pool) -> None:
    with attach(lustre_client, "lustre", lustre(pool=pool, stripe_count=-1)) as attachment:
        assert attachment.mismatches == ()
        assert (attachment.negotiated["pool"], attachment.negotiated["stripe_count"]) == (pool, "1")
        check_data(attachment)
