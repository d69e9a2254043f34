"""Who limited a measurement."""

from __future__ import annotations

import pytest

from storagetest.measure.bottleneck import Headroom, Limit, bottleneck


@pytest.mark.parametrize(
    ("known", "who", "said"),
    [
        (Headroom(1000), Limit.UNKNOWN, "nothing is known of the client"),
        (Headroom(1000, network=0.2), Limit.UNKNOWN, "the card at 20.0%"),
        (Headroom(1000, ceiling=100_000), Limit.TARGET, "1.00% of the 100k/s"),
        (Headroom(1000, busiest_core=0.3), Limit.TARGET, "busiest core 30.0% busy"),
        (Headroom(79_000, ceiling=100_000, busiest_core=0.94, network=0.89, resent=0.009), Limit.TARGET, ""),
        (Headroom(80_000, ceiling=100_000, busiest_core=0.5), Limit.CLIENT, "80.0% of the 100k/s"),
        (Headroom(1000, ceiling=100_000, busiest_core=0.95), Limit.CLIENT, "no time left"),
        (Headroom(1000, busiest_core=0.2, network=0.9), Limit.NETWORK, "card was full"),
        (Headroom(99_000, ceiling=100_000, busiest_core=1.0, network=0.95), Limit.NETWORK, "card was full"),
        (Headroom(1000, ceiling=100_000, busiest_core=0.2, resent=0.02), Limit.NETWORK, "send 2.00% again"),
        (Headroom(1000, ceiling=100_000, busiest_core=0.99, resent=0.02), Limit.CLIENT, ""),
        (Headroom(0, ceiling=0.0, busiest_core=0.1), Limit.TARGET, ""),
    ],
)
def test_the_rules_in_their_order(known: Headroom, who: Limit, said: str):
    found = bottleneck([known])
    assert found is not None
    assert found.who is who
    assert said in found.why


def test_the_median_of_the_repeats_decides_not_one_of_them():
    quiet, busy = Headroom(1000, busiest_core=0.2), Headroom(1000, busiest_core=1.0)
    for repeats, who in (((quiet, busy, quiet), Limit.TARGET), ((busy, quiet, busy), Limit.CLIENT)):
        found = bottleneck(repeats)
        assert found is not None
        assert found.who is who


def test_what_one_repeat_does_not_know_the_others_say():
    found = bottleneck([Headroom(1000), Headroom(1000, busiest_core=0.99)])
    assert found is not None
    assert found.who is Limit.CLIENT


def test_without_a_repeat_there_is_nobody():
    assert bottleneck([]) is None


def test_where_client_and_target_are_one_machine_it_is_the_target():
    found = bottleneck([Headroom(1000, busiest_core=1.0)], remote=False)
    assert found is not None
    assert found.who is Limit.TARGET
    assert "one machine" in found.why
