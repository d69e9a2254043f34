"""Who limited a measurement."""

from __future__ import annotations

import pytest

from storagetest.measure.bottleneck import Limiter, Utilisation, bottleneck


@pytest.mark.parametrize(
    ("known", "limiter", "reason"),
    [
        (Utilisation(1000), Limiter.UNKNOWN, "no utilisation of the client is known"),
        (Utilisation(1000, network=0.2), Limiter.UNKNOWN, "the card at 20.0%"),
        (Utilisation(1000, ceiling=100_000), Limiter.TARGET, "1.00% of the 100k/s"),
        (Utilisation(1000, busiest_core=0.3), Limiter.TARGET, "busiest core 30.0% busy"),
        (
            Utilisation(79_000, ceiling=100_000, busiest_core=0.94, network=0.89, resent=0.009),
            Limiter.TARGET,
            "",
        ),
        (Utilisation(80_000, ceiling=100_000, busiest_core=0.5), Limiter.CLIENT, "80.0% of the 100k/s"),
        (Utilisation(1000, ceiling=100_000, busiest_core=0.95), Limiter.CLIENT, "was fully busy"),
        (Utilisation(1000, busiest_core=0.2, network=0.9), Limiter.NETWORK, "card was full"),
        (
            Utilisation(99_000, ceiling=100_000, busiest_core=1.0, network=0.95),
            Limiter.NETWORK,
            "card was full",
        ),
        (
            Utilisation(1000, ceiling=100_000, busiest_core=0.2, resent=0.02),
            Limiter.NETWORK,
            "send 2.00% again",
        ),
        (Utilisation(1000, ceiling=100_000, busiest_core=0.99, resent=0.02), Limiter.CLIENT, ""),
        (Utilisation(0, ceiling=0.0, busiest_core=0.1), Limiter.TARGET, ""),
    ],
)
def test_rules_apply_in_their_order(known: Utilisation, limiter: Limiter, reason: str):
    found = bottleneck([known])
    assert found.limiter is limiter
    assert reason in found.reason


QUIET, BUSY = Utilisation(1000, busiest_core=0.2), Utilisation(1000, busiest_core=1.0)


@pytest.mark.parametrize(
    ("repeats", "limiter"),
    [
        ((QUIET, BUSY, QUIET), Limiter.TARGET),
        ((BUSY, QUIET, BUSY), Limiter.CLIENT),
        ((Utilisation(1000), BUSY), Limiter.CLIENT),
    ],
    ids=["median quiet", "median busy", "missing values come from the others"],
)
def test_the_median_of_the_repeats_decides(repeats: tuple[Utilisation, ...], limiter: Limiter):
    assert bottleneck(repeats).limiter is limiter


def test_no_repeats_give_no_limiter():
    assert bottleneck([]) is None


def test_where_client_and_target_are_one_machine_it_is_the_target():
    found = bottleneck([BUSY], remote=False)
    assert found.limiter is Limiter.TARGET
    assert "the same host" in found.reason
