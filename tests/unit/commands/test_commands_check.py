"""`storagetest check`: the checks of facts, which are pure, and checks of this machine and local targets."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from storagetest.cli import main
from storagetest.commands import _host_facts
from storagetest.commands._console import Severity
from storagetest.commands._host_facts import HostFacts, RequiredTool, RouteInfo, check_facts, parse
from storagetest.hosts import LocalHost

FIO = RequiredTool("fio", ("fio", "--version"), "9 workloads require it, for example bonnie")
PYTHON = RequiredTool("python3", ("python3", "--version"), "sampling of counters requires it")
GOOD = HostFacts(
    root=True,
    user="root",
    kernel="6.1.0",
    system="Debian GNU/Linux 12 (bookworm)",
    cpus=2,
    memory=2 << 30,
    governors=("performance",),
    tools={"fio": "fio-3.33", "python3": "Python 3.11.2"},
    routes=(RouteInfo("nas", "eth0", 10000, 9000, True),),
)

LOST_PACKETS = RouteInfo("nas", "eth0", 10000, 9000, False)


def messages_of(
    facts: HostFacts, clock: tuple[float, float] | None = (0.01, 0.002)
) -> dict[Severity, list[str]]:
    messages: dict[Severity, list[str]] = {}
    for message in check_facts(facts, [FIO, PYTHON], [clock] if clock else []):
        messages.setdefault(message.severity, []).append(f"{message.text} | {message.advice}")
    return messages


def test_a_good_machine_gets_no_advice() -> None:
    messages = messages_of(GOOD)
    assert set(messages) == {Severity.OK}
    assert all(message.endswith("| ") for message in messages[Severity.OK])


@pytest.mark.parametrize(
    ("change", "severity", "text"),
    [
        ({"root": False, "user": "me"}, Severity.FAIL, "the user me is not root"),
        ({"tools": {"python3": "Python 3.11.2"}}, Severity.FAIL, "fio is missing"),
        ({"tools": GOOD.tools | {"python3": "Python 3.7.1"}}, Severity.FAIL, "install Python 3.9 or newer"),
        ({"governors": ("powersave", "schedutil")}, Severity.WARN, "governor powersave, schedutil"),
        ({"routes": (RouteInfo("nas", "eth0", 100, 1500, True),)}, Severity.WARN, "100 Mbit/s"),
        ({"routes": (RouteInfo("nas", "eth0", 25000, 1500, None),)}, Severity.NOTE, "mtu 9000"),
        ({"routes": (LOST_PACKETS,)}, Severity.FAIL, "packets of 9000 bytes do not"),
    ],
)
def test_a_problem_has_a_message_with_advice(change: dict, severity: Severity, text: str) -> None:
    (message,) = messages_of(replace(GOOD, **change))[severity]
    assert text in message
    assert not message.endswith("| ")


@pytest.mark.parametrize(
    ("clock", "severity"),
    [
        ((0.9, 0.001), Severity.OK),
        ((-3.0, 0.001), Severity.WARN),
        ((3.0, 4.0), Severity.OK),
        ((90.0, 0.1), Severity.WARN),
    ],
)
def test_a_large_clock_offset_is_a_warning_unless_latency_can_explain_it(clock, severity) -> None:
    assert any("clock" in message for message in messages_of(GOOD, clock)[severity])


def test_a_clock_that_jumps_is_a_failure_even_if_its_offset_is_small() -> None:
    jumped = check_facts(GOOD, [], [(-0.9, 0.01), (0.9, 0.01)])
    (message,) = [message for message in jumped if message.severity is Severity.FAIL]
    assert "jumped by 1.80 s" in message.text
    slow = check_facts(GOOD, [], [(0.0, 0.5), (1.9, 0.5)])  # latency can explain it
    assert all(message.severity is not Severity.FAIL for message in slow)


def test_facts_of_this_machine() -> None:
    with LocalHost() as host:
        facts = _host_facts.collect_facts(
            host, [PYTHON, RequiredTool("no-such-tool", ("no-such-tool",), "x")], ["127.0.0.1"]
        )
        offset, uncertainty = _host_facts.clock_offset(host)
    assert facts.kernel
    assert facts.cpus >= 1
    assert facts.memory > 1 << 20
    assert list(facts.tools) == ["python3"]
    assert facts.tools["python3"].startswith("Python 3.")
    assert abs(offset) <= uncertainty + 0.5
    for route in facts.routes:  # a machine without iproute2 has none
        assert route.card == "lo"


def test_incomplete_output_is_parsed() -> None:
    assert parse("") == HostFacts()
    text = "user 0 root\nnoise\nmemory x\ntool fio\nmissing y\nroute nas eth0 -1 1500 unknown\nroute z\n"
    facts = parse(text)
    assert facts.root
    assert facts.memory == 0
    assert facts.tools == {"fio": ""}
    assert facts.routes == (RouteInfo("nas", "eth0", None, 1500, None),)


@pytest.fixture
def closed() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture(autouse=True)
def own_locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch) -> None:
    """Locks that no other run on this machine holds."""
    locks = tmp_path_factory.mktemp("locks")
    monkeypatch.setattr("storagetest.runner.locks.lock_directory", lambda: locks)


def write(tmp_path: Path, target: str, client: str = "{transport: local}") -> str:
    path = tmp_path / "targets.yaml"
    path.write_text(f"version: 1\nclients: {{c: {client}}}\ntargets:\n  t: {target}\n")
    return str(path)


def output_of(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.replace("->", "").split())


def test_a_local_directory_is_attached_and_left_empty(tmp_path, capsys) -> None:
    directory = tmp_path / "disk"
    directory.mkdir()
    assert main(["check", "--targets", write(tmp_path, f"{{protocol: local, path: {directory}}}")]) in {0, 1}
    text = output_of(capsys)
    assert "t: Local on c ok attached and released" in text
    assert list(directory.iterdir()) == []


def test_a_closed_port_fails_and_nothing_is_attached(tmp_path, capsys, closed) -> None:
    target = f"{{protocol: nfs, address: 127.0.0.1, port: {closed}, export: /x}}"
    assert main(["check", "--targets", write(tmp_path, target)]) == 1
    text = output_of(capsys)
    assert f"c cannot connect to 127.0.0.1 port {closed}: the connection is refused: nothing listens" in text
    assert "attached" not in text


def test_an_open_port_is_reported_without_attaching(tmp_path, capsys, listening) -> None:
    target = f"{{protocol: smb, address: 127.0.0.1, port: {listening}, share: s, username: u, password: p}}"
    main(["check", "--no-attach", "--targets", write(tmp_path, target)])
    assert f"ok 127.0.0.1 port {listening} accepts connections" in output_of(capsys)


def test_an_unreachable_client_fails_and_its_targets_are_not_checked(tmp_path, capsys, closed) -> None:
    client = f"{{transport: ssh, address: 127.0.0.1, port: {closed}, host_key_check: false}}"
    path = write(tmp_path, "{protocol: local, path: /tmp}", client)
    assert main(["check", "--targets", path]) == 1
    text = output_of(capsys)
    assert "FAIL c:" in text
    assert "Local on c" not in text


@pytest.mark.parametrize("argv", [["--client", "c9"], ["--target", "nsf*"]])
def test_an_unknown_client_or_target_is_an_error(tmp_path, capsys, argv) -> None:
    assert main(["check", "--targets", write(tmp_path, "{protocol: local, path: /tmp}"), *argv]) == 4
    assert argv[1] in capsys.readouterr().err
