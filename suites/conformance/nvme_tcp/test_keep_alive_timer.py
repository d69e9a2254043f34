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
@pytest.mark.parametrize("lost", [
    pytest.param(False, marks=pytest.mark.case("NVA-KA-IO")),
    pytest.param(True, marks=pytest.mark.case("NVA-KA-IO-LOST")),
])  # fmt: skip
@pytest.mark.case(section="Base 3.9.5", kills=("timeout-leaves-io-queue",), builds_on=("NVA-KA-02",))
def test_the_io_queues_end_with_the_association(bench: Harness, *, lost: bool) -> None:
    """The host falls silent on all queues; afterwards no I/O queue carries out a command.

    Or it closes the connection of its admin queue, on which alone it could keep the association alive.
    """
    kato = timeout_in_use(bench, SHORT)
    within = _silence(bench, kato)
    session = bench.session(kato=kato)
    nsid, queue = session.own_namespace(), session.io_queue()
    if lost:
        session.admin.link.close()
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


SHARE = 0.7
"""Part of a Keep Alive Timeout for which a host is silent without being given up (chosen)."""

LATE = 0.95
"""Part of a Keep Alive Timeout after which it proves nothing that a host was given up (chosen)."""

ATTEMPTS = 3


def _claim_silence_kept(make: Callable[[], tuple[ControllerSession, int]], what: str) -> None:
    """Be silent for :data:`SHARE` of a timeout; claim that the association stays.

    A host that was held up for too long tries again. ``make`` returns a session, and its timeout in ms.
    """
    for _ in range(ATTEMPTS):
        began = time.monotonic()
        session, kato = make()
        ended: object = session.admin.wait_for_close(deadline=SHARE * kato / 1000)
        late = time.monotonic() - began > LATE * kato / 1000
        try:
            done = session.admin.run(admin.keep_alive())
            if done.ok:
                return
            ended = status_name(done.status)
        except RemoteProtocolError as error:
            ended = f"{ended}; {error}"
        if not late:
            pytest.fail(f"3.9: a host was silent for {SHARE:.0%} of {what} of {kato} ms, and then: {ended}")
        session.close()
    pytest.skip(f"the host could not send in time in {ATTEMPTS} attempts")


@pytest.mark.slow
@pytest.mark.case(
    "NVA-KA-WHOLE", section="Base 3.9.5", kills=("timer-of-a-third",), builds_on=("NVA-KA-02", "NVA-KA-03")
)
def test_a_host_is_not_given_up_before_its_timeout(bench: Harness) -> None:
    """It is silent for most of the timeout that Connect has set, and then sends Keep Alive."""
    kato = timeout_in_use(bench, LONG)
    _claim_silence_kept(lambda: (bench.session(kato=kato), kato), "the Keep Alive Timeout")


@pytest.mark.slow
@pytest.mark.case(
    "NVA-KA-LONGER",
    section="Base 5.2.26.1.8",
    kills=("kato-set-ignored",),
    builds_on=("NVA-KA-02", "NVA-KA-WHOLE"),
)
def test_a_longer_timeout_that_was_set_later_counts(bench: Harness) -> None:
    """Connect has a short timeout, Set Features a longer one, within which the host is silent."""
    short = timeout_in_use(bench, SHORT)
    longer = 4 * short
    if longer > LONGEST:
        pytest.skip(f"four times a Keep Alive Timeout of {short} ms are too long to wait for")

    def make() -> tuple[ControllerSession, int]:
        session = bench.session(kato=short)
        _set_again(session, longer)
        return session, longer

    _claim_silence_kept(make, "the Keep Alive Timeout that Set Features has set,")


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
