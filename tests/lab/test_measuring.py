"""Measurement on real kernels: counters during the load, the bottleneck, and a lost client."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from attach_helpers import RecordingHost, attach, connect, iscsi, nfs, nvme, smb

from storagetest.errors import HostError, StoragetestError
from storagetest.lab import Lab
from storagetest.protocols.base import Attachment
from storagetest.runner import CaseInfo, PrefillCache, run_case
from storagetest.workloads.base import LoadSize
from storagetest.workloads.open_loop import OpenLoop
from storagetest.workloads.random_mixed import RandomMixed
from storagetest.workloads.small_random_read import SmallRandomRead

pytestmark = pytest.mark.lab
CASE = CaseInfo("c", "random-mixed", "t", "v", "p", "client1")
SCALE = LoadSize(size=4 << 20, ramp=3.0, runtime=4.0, interval=0.5)


def run_on(attachment: Attachment, *extra_hosts: RecordingHost, scale: LoadSize = SCALE):
    load = RandomMixed()
    return run_case(
        load,
        load.Options(),
        attachment,
        scale,
        repeats=1,
        max_repeats=1,
        gates=[],
        case=CASE,
        fills=PrefillCache(),
        extra_hosts=extra_hosts,
    )[0]


EVERY_PROTOCOL = {
    "nfs": ("client1", "mountstats", {"READ RTT", "READ execute", "WRITE RTT", "read from the server"}),
    "smb": ("client1", "cifs", {"Reads", "Writes", "read", "written"}),
    "iscsi": ("client1", "iscsi", {"session{} logged in", "{}:0:0:2 requests"}),
    "nvme": ("client1", "nvme", {"nvme0 live"}),
}


@pytest.mark.parametrize(
    "protocol",
    ["nvme", *(pytest.param(one, marks=pytest.mark.slow) for one in EVERY_PROTOCOL if one != "nvme")],
)
def test_client_and_server_are_sampled_during_the_load(client, appliance, secrets, protocol):
    kind, options = {
        "nfs": lambda: ("nfs", nfs()),
        "smb": lambda: ("smb", smb(secrets)),
        "iscsi": lambda: ("iscsi", iscsi()),
        "nvme": lambda: ("nvme-tcp", nvme()),
    }[protocol]()
    with attach(client, kind, options) as attachment:
        (sample,) = run_on(attachment, appliance).samples
    host, source, names = EVERY_PROTOCOL[protocol]
    seen = {one.name for one in sample.series if (one.host, one.source) == (host, source)}
    for name in names:
        assert any(fits(one, name) for one in seen), f"{name} is not in {sorted(seen)}"
    for machine in ("client1", "appliance"):
        of_machine = [one for one in sample.series if one.host == machine]
        assert {"cpu", "nic"} <= {one.source for one in of_machine}
        assert all(-0.6 <= at <= SCALE.runtime + 1.5 for one in of_machine for at in one.times)
    load = {one.name for one in sample.series if one.source == "load"}
    assert {"read IOPS", "write IOPS", "read bandwidth", "read latency"} <= load


def fits(name: str, pattern: str) -> bool:
    start, gap, end = pattern.partition("{}")
    return name == pattern if not gap else name.startswith(start) and name.endswith(end)


def test_counted_bytes_match_the_load(client, appliance):
    with attach(client, "nfs", nfs()) as attachment:
        run = run_on(attachment, appliance)
    (sample,) = run.samples
    read = next(one for one in sample.series if one.name == "read from the server")
    load = next(one for one in sample.series if one.name == "read bandwidth")
    middle = [value for at, value in zip(read.times, read.values, strict=True) if 0.5 < at < SCALE.runtime]
    mean = sum(load.values) / len(load.values)
    assert sum(middle) / len(middle) == pytest.approx(mean, rel=0.5)
    assert run.limited_by is not None
    assert sample.utilisation is not None
    assert sample.utilisation.busy_cores is not None
    ceiling = sample.utilisation.ceiling  # an emulated client may be the limit, or not
    assert ceiling is None or ceiling > sample.utilisation.rate
    assert sample.utilisation.network is None  # a virtual card has no speed


@pytest.mark.slow
def test_power_loss_of_a_client_during_a_run_is_an_error(lab: Lab, client: RecordingHost):
    victim = connect(lab, "client1")  # a connection of its own: an error on it does not affect the shared one
    caught: list[StoragetestError] = []
    began = threading.Event()

    def measure() -> None:
        try:
            with attach(victim, "nfs", nfs()) as attachment:
                began.set()
                run_on(attachment, scale=LoadSize(4 << 20, 0.0, 60.0, interval=1.0))
        except StoragetestError as error:
            caught.append(error)

    thread = threading.Thread(target=measure)
    thread.start()
    assert began.wait(60)
    time.sleep(8)
    vm = lab.vm("client1")
    vm.kill()
    lost = time.monotonic()
    thread.join(120)
    took = time.monotonic() - lost
    assert not thread.is_alive()
    vm.power_on()
    (error,) = caught
    assert isinstance(error, HostError)
    assert "client1" in str(error)
    assert took < 90, f"it took {took:.0f} s to see that the client was gone: {error}"
    victim.close()


BUFFERED = {"direct": False, "engine": "psync", "queue_depth": 1}
READ = LoadSize(size=4 << 20, ramp=0.5, runtime=2.0, cold_size=48 << 20)


def read_on(attachment: Attachment, *extra_hosts: RecordingHost, scale: LoadSize = READ, **options: object):
    load = SmallRandomRead()
    return run_case(
        load,
        load.Options.model_validate({**BUFFERED, **options}),
        attachment,
        scale,
        repeats=1,
        max_repeats=1,
        gates=[],
        case=CASE,
        fills=PrefillCache(),
        extra_hosts=extra_hosts,
    )[0]


@pytest.mark.parametrize(
    "kind", ["nfs", pytest.param("smb", marks=pytest.mark.slow), pytest.param("nvme", marks=pytest.mark.slow)]
)
def test_cold_warm_and_direct_are_proven_by_counters(client, appliance, secrets, kind):
    protocol, options = {
        "nfs": lambda: ("nfs", nfs()),
        "smb": lambda: ("smb", smb(secrets)),
        "nvme": lambda: ("nvme-tcp", nvme()),
    }[kind]()
    with attach(client, protocol, options) as attachment:
        warm = read_on(attachment, cache="warm")
        assert warm.invalid == ()
        assert warm.samples[0].evidence["size"].startswith("4MiB")
        cold = read_on(attachment, appliance, cache="cold")
        assert cold.invalid == ()
        assert cold.samples[0].evidence["caches"] == "dropped on client1, dropped on appliance"
        direct = read_on(attachment, direct=True)
        assert direct.invalid == ()
        # All of a small file is read many times over: soon none of it crosses the wire any more.
        small = read_on(attachment, cache="cold", scale=replace(READ, cold_size=1 << 20, runtime=4.0))
        (why,) = small.invalid
        assert why.startswith("cache cold: not proven: ")
    for run in (warm, cold, direct, small):
        assert "counters" in run.samples[0].evidence["crossed the wire"]


def test_an_open_loop_reaches_its_rate_over_the_network(client):
    load = OpenLoop()
    options = load.Options.model_validate({"rate": 20, "workers": 8})
    with attach(client, "nfs", nfs()) as attachment:
        run, _ = run_case(
            load,
            options,
            attachment,
            LoadSize(size=4 << 20, ramp=0.0, runtime=5.0),
            repeats=1,
            max_repeats=1,
            gates=[],
            case=CASE,
            fills=PrefillCache(),
        )
    (sample,) = run.samples
    assert run.invalid == ()
    assert sample.operations["response"].count == 100
    assert sample.values["response_mean"] >= sample.values["service_mean"] > 0
