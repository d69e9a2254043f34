"""Counters that a command prints: on the hosts, on the controller, from a real Samba, from an array."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import util
from pathlib import Path
from typing import ClassVar

import pytest
from smbd import is_installed, smbd

from storagetest.counters.base import (
    CounterSource,
    HostCommand,
    Reading,
    Snapshot,
    all_sources,
    register,
    sources,
    to_series,
)
from storagetest.counters.samba import Samba
from storagetest.hosts.local import LocalHost
from storagetest.measure.unit import Unit
from storagetest.polling import wait_until
from storagetest.runner.sampling import CounterSampling, SampleResult

EXAMPLE = Path(__file__).parents[3] / "examples" / "counters" / "array_counters.py"
COUNT = 'echo x >> "$1"; wc -l < "$1"'


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    sources.all()
    monkeypatch.setattr(sources, "_entries", dict(sources._entries))


def make_source(commands: Mapping[str, HostCommand], *, on_controller: bool = False) -> type[CounterSource]:
    """Register a source whose readings are the numbers that its commands print."""

    class Counting(CounterSource):
        """Runs of a command."""

        name = "counting"
        paths = ()
        example: ClassVar[Mapping[str, str]] = {}

        def parse(self, texts: Mapping[str, str]) -> Mapping[str, Reading]:
            return {name: Reading(float(text), Unit.COUNT) for name, text in texts.items()}

    Counting.commands = commands
    Counting.on_controller = on_controller
    return register(Counting)


def sampled(*hosts: LocalHost, until) -> list[SampleResult]:
    sampling = CounterSampling(hosts, 0.05)
    sampling.start()
    try:
        wait_until(until, 30, "the commands to run")
        time.sleep(0.3)  # the sampler reads the output of the last run at its next sample
    finally:
        results = sampling.stop()
    return list(results)


def outputs(result: SampleResult, name: str) -> list[str]:
    return [moment.texts[name].strip() for moment in result.moments if name in moment.texts]


def test_commands_are_sampled_and_one_that_fails_or_is_missing_gives_nothing(tmp_path):
    file = tmp_path / "count"
    make_source(
        {
            "good": HostCommand(("sh", "-c", COUNT, "sh", str(file)), every=0.1),
            "bad": HostCommand(("sh", "-c", "echo 7; exit 1"), every=0.1),
            "missing": HostCommand(("/no/such/command",)),
            "unwanted": HostCommand(("echo", "8"), if_exists=str(tmp_path / "no")),
        }
    )
    with LocalHost("here") as host:
        (result,) = sampled(host, until=lambda: file.exists() and len(file.read_text().split()) > 3)
    assert result.note == ""
    found = outputs(result, "good")
    assert found == sorted(found, key=int)
    assert int(found[-1]) >= 3
    assert not any(outputs(result, name) for name in ("bad", "missing", "unwanted"))


def test_a_command_that_hangs_delays_no_sample_and_is_ended(tmp_path):
    pid = tmp_path / "pid"
    make_source({"slow": HostCommand(("sh", "-c", 'echo $$ > "$1"; exec sleep 600', "sh", str(pid)))})
    with LocalHost("here") as host:
        (result,) = sampled(host, until=lambda: pid.exists() and pid.read_text().strip())
    assert len(result.moments) >= 3
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_commands_of_a_device_run_once_on_the_controller(tmp_path):
    file = tmp_path / "count"
    commands = {"good": HostCommand(("sh", "-c", COUNT, "sh", str(file)), every=0.1)}
    make_source(commands, on_controller=True)
    with LocalHost("client") as client, LocalHost("server") as server:
        results = sampled(client, server, until=lambda: file.exists() and len(file.read_text().split()) > 1)
    assert [result.host for result in results] == ["client", "server", "controller"]
    assert [bool(outputs(result, "good")) for result in results] == [False, False, True]
    assert any("/proc/stat" in moment.texts for moment in results[0].moments)
    assert not any("/proc/stat" in moment.texts for moment in results[2].moments)


@pytest.mark.skipif(not is_installed() or os.getuid() != 0, reason="smbd is not installed, or no root")
def test_a_real_samba_has_the_readings():
    with smbd() as server:
        command = ["smbstatus", "-s", str(server.path.parent / "smb.conf"), "--profile"]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    readings = Samba().parse({"command:smbstatus": done.stdout})
    assert readings["connects"].value >= 1
    assert {"create", "read", "write", "find", "close"} <= set(readings)
    assert {"requests", "sent by reads", "received by writes"} <= set(readings)


def test_sambas_times_are_those_of_an_operation():
    text = "smb2_read_count: {}\nsmb2_read_time: {}\n"
    moments = [
        Snapshot(float(at), {"command:smbstatus": text.format(10 * at, 5000 * at)}) for at in range(1, 4)
    ]
    series = {one.name: one for one in to_series(Samba(), "server", moments)}
    assert series["read"].values == (10.0, 10.0)
    assert series["read time"].values == pytest.approx((500e-6, 500e-6))


class _Array(BaseHTTPRequestHandler):
    served: ClassVar[int] = 0

    def do_GET(self) -> None:
        type(self).served += 1
        body = json.dumps({"operations": 100 * self.served, "bytes_read": 0, "cache_hit_ratio": 0.5}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def array() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Array)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/statistics"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_example_of_an_array_is_one_module(array, monkeypatch):
    monkeypatch.setenv("ARRAY_STATISTICS_URL", array)
    spec = util.spec_from_file_location("array_counters", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "array_counters", module)
    spec.loader.exec_module(module)
    source = next(source for source in all_sources() if source.name == "array")
    assert source.parse(source.example)
    with LocalHost("client") as client:
        *_, controller = sampled(client, until=lambda: _Array.served >= 3)
    series = {one.name: one for one in to_series(source, "array", controller.moments)}
    assert max(series["operations"].values) > 0
    assert set(series["cache hits"].values) == {0.5}
