"""What do 1,000 clients cost the controller: time to start, time to merge and report, memory?

The clients are simulated by a second process: each has connections of its own over loopback, takes the
agent's zip and request as a client would, and answers in the agent's words, gate and common start included.
The controller's side is the real one, from the gates to results.jsonl and the terminal's table. *Start-up* is
from the first connection to the instant at which all loads begin (gates opened, versions asked, data sets
filled, clocks compared); *merge and report* from the end of the last load to the table. Counters are not
sampled. Exit status 0: start-up at most 15 s, merge and report at most 5 s, at most 1 GiB resident; 1: more;
2: it could not run.

    python benchmarks/thousand_clients.py
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from storagetest.agent import latency_bins
from storagetest.errors import DeadlineExceeded, HostError, StoragetestError
from storagetest.hosts.base import Completed, Host
from storagetest.hosts.interactive import Channel, ChannelLost, ChannelTimeout, InteractiveProcess
from storagetest.protocols.base import Attachment, AttachmentKind
from storagetest.report.base import Record
from storagetest.report.jsonl import JsonlReporter
from storagetest.report.terminal import summary_lines
from storagetest.runner import CaseInfo, MultiClientMeasurement, PrefillCache, run_measurement
from storagetest.workloads.base import LoadSize
from storagetest.workloads.open_loop import OpenLoop

START_LIMIT, REPORT_LIMIT, MEMORY_LIMIT = 15.0, 5.0, 1 << 30
RUNTIME = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one case on all simulated clients, print what it cost, and return the exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--simulate", type=int, metavar="DESCRIPTOR", help=argparse.SUPPRESS)
    wanted = parser.parse_args(arguments)
    _many_files()
    if wanted.simulate is not None:
        asyncio.run(_simulate(wanted.simulate))
        return 0
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(4096)
        command = [sys.executable, __file__, "--simulate", str(listening.fileno())]
        simulator = subprocess.Popen(command, pass_fds=[listening.fileno()])
        try:
            return _measure(wanted.clients, listening.getsockname()[1])
        except StoragetestError as error:
            print(error, file=sys.stderr)
            return 2
        finally:
            simulator.terminate()
            simulator.wait()


def _many_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _measure(count: int, port: int) -> int:
    hosts = [Simulated(f"sim{number + 1:04}", port) for number in range(count)]
    places = [Attachment(host, "/simulated", AttachmentKind.FILESYSTEM, 1 << 50) for host in hosts]
    load = OpenLoop()
    case = CaseInfo("thousand", load.name, "simulated", "simulated", "simulated", "many")
    scale = LoadSize(size=1 << 20, ramp=0.0, runtime=RUNTIME)
    options = load.Options.model_validate({"rate": 1000})
    began = time.monotonic()
    measurement = MultiClientMeasurement(
        load, options, places, scale, case=case, fills=PrefillCache(), limit=60.0
    )
    run, verdicts = run_measurement(measurement, repeats=1, max_repeats=1, gates=[])
    if run.invalid:
        raise StoragetestError("; ".join(run.invalid)[:2000])
    record = Record(run=run, verdicts=verdicts, nodeid="thousand")
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "results.jsonl"
        JsonlReporter(path).on_record(record)
        lines = summary_lines([record])
        written = path.stat().st_size
    ended = time.monotonic()
    story = run.samples[0].concurrency
    assert story is not None
    client_runs = measurement.last_client_runs
    start_up = min(client_run.instant for client_run in client_runs) - began
    report = ended - (client_runs[0].instant + story.last_done)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print("\n".join(lines))
    print(f"clients            {count}, {sum(host.connections for host in hosts)} connections in all")
    print(f"start-up           {start_up:.2f} s, of {START_LIMIT:g} s")
    print(
        f"merge and report   {report:.2f} s, of {REPORT_LIMIT:g} s; {written / 1e6:.1f} MB of results.jsonl"
    )
    print(f"resident memory    {memory / (1 << 20):.0f} MiB at most, of {MEMORY_LIMIT >> 20}")
    return 0 if start_up <= START_LIMIT and report <= REPORT_LIMIT and memory <= MEMORY_LIMIT else 1


class Simulated(Host):
    """A client over loopback: a connection for each command, as a channel is for SSH."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.connections = 0
        self._port = port

    def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float,
        check: bool = True,  # noqa: ARG002  # a host takes it
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,  # noqa: ARG002  # a host takes it
        on_line: Callable[[str], None] | None = None,  # noqa: ARG002  # a host takes it
    ) -> Completed:
        """Run the agent; a shell command for versions prints nothing."""
        began = time.monotonic()
        if not stdin:
            return Completed(self.name, tuple(argv), 0, "", "", 0.0)
        chunks = []
        with self._connected(deadline) as line:
            line.sendall(stdin.rstrip(b"\n") + b"\n")
            try:
                while data := line.recv(1 << 16):
                    chunks.append(data)
            except TimeoutError:
                raise DeadlineExceeded(f"{self.name}: no response within {deadline:g} s") from None
        return Completed(self.name, tuple(argv), 0, b"".join(chunks).decode(), "", time.monotonic() - began)

    @contextmanager
    def interactive_exec(
        self, argv: Sequence[str], *, deadline: float, first: bytes = b"", name: str = ""
    ) -> Iterator[InteractiveProcess]:
        """Connect to the start barrier."""
        with self._connected(deadline) as line:
            line.sendall(first)
            yield InteractiveProcess(self.name, name or argv[0], _Socket(line))

    def push(self, data: bytes, path: str, *, mode: int = 0o600, deadline: float = 30.0) -> None:  # noqa: ARG002  # a host takes it
        """Raise HostError: the client is simulated."""
        raise HostError(f"{self.name}: it is simulated")

    def pull(self, path: str, *, deadline: float = 30.0) -> bytes:  # noqa: ARG002  # a host takes it
        """Raise HostError: the client is simulated."""
        raise HostError(f"{self.name}: it is simulated")

    def close(self) -> None:
        """Nothing is kept."""

    @contextmanager
    def _connected(self, deadline: float) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self._port), timeout=60) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line.settimeout(deadline)
            line.sendall(self.name.encode() + b"\n")
            self.connections += 1
            yield line


class _Socket(Channel):
    """The controller's end of an interactive process."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    def send(self, data: bytes, limit: float) -> None:
        self._line.settimeout(limit)
        try:
            self._line.sendall(data)
        except OSError as error:
            raise ChannelLost(str(error)) from None

    def receive(self, limit: float) -> bytes:
        if limit <= 0:
            raise ChannelTimeout
        self._line.settimeout(limit)
        try:
            return self._line.recv(1 << 16)
        except TimeoutError:
            raise ChannelTimeout from None
        except OSError as error:
            raise ChannelLost(str(error)) from None

    def stderr_text(self) -> str:
        return ""

    def close_stdin(self) -> None:
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_WR)

    def status(self, limit: float) -> int:  # noqa: ARG002  # a host takes it
        return 0

    def close(self) -> None:
        self._line.close()


# The clients' side: one process, no controller's code but the agent's bins.


class _Client:
    """One simulated client: its gate, if it is open, and the load that waits there."""

    def __init__(self) -> None:
        self.gate: asyncio.StreamWriter | None = None
        self.instant: asyncio.Future[int] | None = None


async def _simulate(descriptor: int) -> None:
    clients: dict[str, _Client] = {}
    latencies = [_latencies(seed) for seed in range(16)]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            name = (await reader.readline()).decode().strip()
            client = clients.setdefault(name, _Client())
            await reader.readexactly(int(await reader.readline()))
            request = json.loads(await reader.readline())
            if request["command"] == "start_barrier":
                await _gate(client, reader, writer)
            else:
                value = await _load(client, request, latencies[hash(name) % len(latencies)])
                _send(writer, t="result", value=value)
                await writer.drain()
        writer.close()

    listening = socket.socket(fileno=descriptor)
    server = await asyncio.start_server(serve, sock=listening, limit=1 << 20, backlog=4096)
    await server.serve_forever()


async def _gate(client: _Client, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    client.gate = writer
    _send(writer, t="progress", directory="/simulated")
    while line := await reader.readline():
        word, _, rest = line.partition(b" ")
        if word.strip() == b"clock":
            _send(writer, t="progress", clock=time.monotonic_ns())
        elif word == b"go" and client.instant is not None:
            client.instant.set_result(int(rest))


async def _load(client: _Client, request: dict[str, Any], latency: dict[int, int]) -> dict[str, Any]:
    if request["command"] == "loads.fill":
        return {"size": request["size"]}
    instant = time.monotonic_ns()
    if request.get("barrier") and client.gate is not None:
        client.instant = asyncio.get_running_loop().create_future()
        _send(client.gate, t="progress", ready=1)
        instant = await client.instant
    end = instant + round(request["seconds"] * 1e9)
    await asyncio.sleep(max(0, end - time.monotonic_ns()) * 1e-9)
    count = sum(latency.values())
    moved = count * request["block"]
    operations = {"ops": count, "total": count, "bins": latency, "bytes": moved, "total_bytes": moved}
    phase = {
        "seconds": request["seconds"],
        "span": request["seconds"],
        "spread": 0.0,
        "tail": 0.0,
        "cpu": 0.1,
        "overlap": True,
        "times": [instant, instant, end, end],
        "operations": {"service": operations, "response": operations},
    }
    workers = [{"made": count, "last": request["seconds"]}]
    return {"phases": {"requests": phase}, "cpu": ["", ""], "planned": count, "workers": workers}


def _latencies(seed: int) -> dict[int, int]:
    drawn = random.Random(seed)
    return latency_bins.count([round(drawn.lognormvariate(13.0, 0.8)) for _ in range(2000)])


def _send(writer: asyncio.StreamWriter, **line: object) -> None:
    writer.write(json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
