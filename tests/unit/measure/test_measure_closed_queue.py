"""The model of many clients: a closed queue."""

import pytest

from storagetest.measure.closed_queue import extrapolate, throughput


def test_without_a_shared_server_clients_add_up():
    assert throughput(0.1, 0.0, 3) == pytest.approx([10.0, 20.0, 30.0])


def test_a_shared_server_alone_serves_its_rate_to_any_number():
    assert throughput(0.0, 0.1, 3) == pytest.approx([10.0, 10.0, 10.0])


def test_two_clients_by_hand():
    """Own 1 s, server 1 s: one client 1/2; two wait half a request: 2 / (1 + 1.5)."""
    assert throughput(1.0, 1.0, 2) == pytest.approx([0.5, 0.8])


def test_the_model_is_found_again_from_its_rates():
    true = throughput(0.08, 0.02, 74)
    rates = extrapolate({1: true[0], 2: true[1], 4: true[3]}, 74)
    assert rates == pytest.approx(true, rel=0.01)
    assert rates[-1] == pytest.approx(50.0, rel=0.02)


@pytest.mark.parametrize("measured", [{}, {1: 10.0}, {2: 10.0, 4: 20.0}, {1: 10.0, 2: 0.0}])
def test_too_few_rates_have_no_model(measured):
    with pytest.raises(ValueError, match="rate of one client"):
        extrapolate(measured, 74)
