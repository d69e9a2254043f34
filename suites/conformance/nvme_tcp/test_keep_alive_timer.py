"""The Keep Alive Timer: when it runs, and what starts it again (Base 3.9)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import Feature, Property, status_name
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import Harness
from storagetest.wire.nvme_tcp.session import CSTS_FATAL, KATO

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 3.9.2")]

TBKAS = 1 << 6
"""CTRATT: the controller uses traffic based Keep Alive (5.2.13.2.1)."""

INACTIVE_SINCE = 0x00020100
"""The first version (VER) whose text was read for when the timer is active (3.9.2)."""

SHORT = 1000
"""Keep Alive Timeout in ms of a host that is silent for longer (chosen)."""

LONG = 3000
"""Keep Alive Timeout in ms of a host that sends a command every quarter of it (chosen)."""


LONGEST = 15_000
"""Keep Alive Timeout in ms over which no case waits for one to pass (chosen)."""


def timeout_in_use(bench: Harness, asked: int) -> int:
    """Return the Keep Alive Timeout in ms of a host that asks for ``asked``.

    A controller sets a timeout below the least that it supports to that one, and rounds it up to units of KAS
    (3.9.1); the least one is not over the default one (5.2.26.1.8). The case is skipped if it would have to
    wait for too long.
    """
    with bench.session(name="a look", kato=asked) as session:
        done = session.admin.run(admin.get_features(Feature.KATO))
        unit = session.controller["kas"] * 100
        found = max(asked, unit, done.cqe.dw0 if done.ok else 0)
    assert found < KATO + max(unit, 1), (
        f"5.2.26.1.8: a Keep Alive Timeout of {asked} ms is set to {found} ms: over the default one"
    )
    if found > LONGEST:
        pytest.skip(f"a Keep Alive Timeout of {asked} ms is set to {found} ms: too long to wait for")
    return found


def _silence(bench: Harness, kato: int) -> float:
    """Return the seconds in which a timer of ``kato`` ms expires, and the controller cleans up (3.9.4.1)."""
    return (2 * kato + bench.session(name="a look").controller["cqt"]) / 1000 + 0.5


@pytest.mark.slow
@pytest.mark.case("NVA-KA-DISABLED", kills=("timer-while-disabled",), builds_on=("NVA-KA-02",))
def test_the_timer_does_not_run_before_the_controller_is_enabled(bench: Harness) -> None:
    """The host is silent for longer than KATO between Connect and CC.EN."""
    if bench.session(name="a look").controller["ver"] < INACTIVE_SINCE:
        pytest.skip("VER: when the timer is active is that of 2.1 and later")
    kato = timeout_in_use(bench, SHORT)
    within = _silence(bench, kato)
    session = bench.session(kato=kato, enable=False)
    ending = session.admin.wait_for_close(deadline=within)
    assert not ending.ended, (
        f"3.9.2: CC.EN is 0, so the timer is inactive, but after {kato} ms without a command: {ending}"
    )
    session.enable()
    done = session.admin.run(admin.keep_alive())
    assert done.ok, f"5.2.14: Keep Alive of a controller that was enabled late is {status_name(done.status)}"


@pytest.mark.slow
@pytest.mark.case(
    "NVA-KA-SHUTDOWN",
    level="SHOULD",
    section="Base 3.6.2",
    kills=("timer-after-shutdown",),
    builds_on=("NVA-KA-02",),
)
def test_the_timer_does_not_run_after_a_shutdown(bench: Harness) -> None:
    """A shutdown disables the timer, and the controller should not end the connection (3.6.2)."""
    if bench.session(name="a look").controller["ver"] < INACTIVE_SINCE:
        pytest.skip("VER: when the timer is active is that of 2.1 and later")
    kato = timeout_in_use(bench, SHORT)
    within = _silence(bench, kato)
    session = bench.session(kato=kato)
    session.shut_down()
    ending = session.admin.wait_for_close(deadline=within)
    assert not ending.ended, (
        f"3.6.2: a shutdown disables the timer, but after {kato} ms without a command: {ending}"
    )
    csts = session.get_property(Property.CSTS)
    assert not csts & CSTS_FATAL, f"3.9.5: CSTS after {kato} ms without a command is {csts:#x}: CFS is set"


@pytest.mark.case("NVA-KA-IO-CONNECT", section="Base 6.3", kills=("kato-of-io-connect",))
def test_the_timeout_in_the_connect_of_an_io_queue_is_no_timeout(
    session: ControllerSession, bench: Harness
) -> None:
    """KATO is reserved there; a controller may check that (1.4.1.6)."""

    def read() -> int:
        done = session.admin.run(admin.get_features(Feature.KATO))
        assert done.ok, f"5.2.26.1.8: KATO is not {status_name(done.status)}"
        return done.cqe.dw0

    before = read()
    identity, queue = session.identity, bench.queue(name="I/O queue")
    data = fabrics.ConnectData(identity.hostid, session.cntlid, session.endpoint.subnqn, identity.nqn)
    command = fabrics.connect(qid=1, sqsize=min(15, session.cap.mqes), kato=before // 4 or 1)
    done = queue.run(command, data=data.encode(), inside=True)
    if not done.ok:
        pytest.skip(f"a Connect whose KATO is reserved, and not 0, ends with {status_name(done.status)}")
    found = read()
    assert found == before, (
        f"6.3: the Keep Alive Timeout was {before} ms; it is {found} ms after a Connect of an I/O queue"
    )


@pytest.mark.slow
@pytest.mark.case(
    "NVA-KA-IO", section="Base 3.9.5", kills=("timeout-leaves-io-queue",), builds_on=("NVA-KA-02",)
)
def test_the_io_queues_end_with_the_association(bench: Harness) -> None:
    """The host falls silent on all queues; afterwards no I/O queue carries out a command."""
    kato = timeout_in_use(bench, SHORT)
    within = _silence(bench, kato)
    session = bench.session(kato=kato)
    nsid, queue = session.own_namespace(), session.io_queue()
    if queue.wait_for_close(deadline=within).ended:
        return
    try:
        done = queue.run(io.flush(nsid))
    except RemoteProtocolError:  # no response: the queue is not in use any more
        return
    assert not done.ok, (
        f"3.9.5: {within:.1f} s without a command end an association whose Keep Alive Timeout is {kato} ms, "
        "but its I/O queue carries out a Flush"
    )


def _set_again(session: ControllerSession, kato: int) -> None:
    done = session.admin.run(admin.set_features(Feature.KATO, kato))
    assert done.ok, f"5.2.26.1.8: KATO of {kato} ms is not {status_name(done.status)}"


def _read_feature(session: ControllerSession, _: int) -> None:
    done = session.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES))
    assert done.ok, f"5.2.11: Get Features is not {status_name(done.status)}"


def _claim_kept(
    session: ControllerSession, kato: int, send: Callable[[ControllerSession, int], None]
) -> None:
    """Send a command every quarter of ``kato`` ms, and no Keep Alive; claim that the association stays."""
    began = time.monotonic()
    while time.monotonic() < began + 2.5 * kato / 1000:
        time.sleep(kato / 4000)
        try:
            send(session, kato)
        except RemoteProtocolError as error:
            pytest.fail(
                f"3.9: the association has ended {time.monotonic() - began:.1f} s after its start, with a "
                f"command every {kato / 4:g} ms; its Keep Alive Timeout is {kato} ms: {error}"
            )


@pytest.mark.slow
@pytest.mark.case(
    "NVA-KA-SET", section="Base 3.9.3.1", kills=("timer-not-set-again",), builds_on=("NVA-KA-03",)
)
def test_set_features_of_the_timeout_starts_the_timer_again(bench: Harness) -> None:
    kato = timeout_in_use(bench, LONG)
    _claim_kept(bench.session(kato=kato), kato, _set_again)


@pytest.mark.slow
@pytest.mark.case(
    "NVA-KA-TRAFFIC", section="Base 3.9.4.1", kills=("traffic-not-counted",), builds_on=("NVA-KA-03",)
)
def test_traffic_keeps_an_association_alive(bench: Harness) -> None:
    """The controller announces traffic based Keep Alive (TBKAS)."""
    kato = timeout_in_use(bench, LONG)
    session = bench.session(kato=kato)
    if not session.controller["ctratt"] & TBKAS:
        pytest.skip("CTRATT: no traffic based Keep Alive")
    _claim_kept(session, kato, _read_feature)


@pytest.mark.case("NVA-KA-LEAST", section="Base 3.9.1", kills=("kato-least-refused",))
def test_a_timeout_below_the_least_one_is_rounded_up(session: ControllerSession) -> None:
    """A timeout that is too short is no error: the controller uses the least one that it supports."""
    done = session.admin.run(admin.set_features(Feature.KATO, 1))
    assert done.ok, f"3.9.1: a timeout of 1 ms is set to the least one, not {status_name(done.status)}"


@pytest.mark.case("NVA-KA-DISCOVERY", section="Base 3.1.3.4", kills=("discovery-keep-alive-refused",))
def test_a_discovery_controller_with_a_timeout_answers_keep_alive(discovery: ControllerSession) -> None:
    """A controller that accepts a Connect with a timeout supports persistent connections by Keep Alive."""
    for number in (1, 2):
        done = discovery.admin.run(admin.keep_alive())
        assert done.ok, (
            f"3.1.3.4: Keep Alive {number} of a discovery controller that has taken a timeout of {KATO} ms "
            f"ended with {status_name(done.status)}"
        )
