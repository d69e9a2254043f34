"""What the server's devices write during a load, by counters as a kernel prints them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from storagetest.errors import HostError
from storagetest.runner.server_writes import ServerWrites
from storagetest.workloads.base import LoadSize
from storagetest.workloads.postmark import Postmark

STAT = "/sys/block/{}/stat\0  10 0 80 5 {} 0 800 9 0 12 14\n"


class Server:
    """Answers with one reading after another."""

    name = "server"

    def __init__(self, *readings):
        self._readings = list(readings)

    def run(self, argv, **_):
        reading = self._readings.pop(0)
        if reading is None:
            raise HostError("server: lost")
        text = "".join(STAT.format(device, writes) for device, writes in reading.items())
        return SimpleNamespace(stdout=text)


def test_the_device_with_the_most_writes_counts():
    watched = ServerWrites([Server({"vda": 100, "dm-0": 50}, {"vda": 140, "dm-0": 60})])
    assert watched.count() == (40, "vda on server")


@pytest.mark.parametrize("readings", [(None, {"vda": 3}), ({"vda": 3}, None), ({}, {}), ({"a": 1}, {"b": 2})])
def test_what_cannot_be_read_is_not_counted(readings):
    assert ServerWrites([Server(*readings)]).count() is None


def test_counters_that_began_anew_are_no_writes():
    assert ServerWrites([Server({"vda": 100}, {"vda": 1})]).count() == (0, "vda on server")


def test_postmark_reports_server_writes_per_transaction(measure):
    server = Server({"vda": 100}, {"vda": 175})
    options, scale = {"files": 20, "transactions": 50}, LoadSize(1 << 20, ramp=0.0, runtime=1.0)
    run, _ = measure(Postmark(), scale, options=options, repeats=1, extra_hosts=(server,))
    assert run.samples[0].values["server_writes_per_transaction"] == 75 / 50
    assert run.samples[0].evidence["server writes"] == "75 write operations, vda on server"
