"""Measurements from targets.yaml to results in the lab: pytest in a child process, on real targets."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pytest_run import PytestRun, select_targets

from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until

pytestmark = pytest.mark.lab

ONE_OF_EACH = ["nfs-v4.2-nconnect1", "smb-v3.1.1", "iscsi-hdgstcrc32c", "nvme-tcp-hdgst-ddgst"]


@pytest.fixture
def pytest_run(lab, tmp_path: Path) -> PytestRun:
    return PytestRun(tmp_path, lab.targets_yaml.read_text())


def test_one_variant_of_each_protocol_is_measured(pytest_run: PytestRun, client, tmp_path: Path) -> None:
    status, output = pytest_run.run(*select_targets(*ONE_OF_EACH), "-k", "writes", "--alluredir", "allure")
    assert status == 0, output
    assert "4 passed" in output
    runs = [json.loads(text)["run"] for text in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert sorted({run["variant"] for run in runs}) == sorted(ONE_OF_EACH)
    assert all(run["negotiated"] and run["versions"]["fio"] for run in runs)
    assert len(list((tmp_path / "allure").glob("*-result.json"))) == 4


@pytest.mark.slow
def test_two_workers_run_different_targets(pytest_run: PytestRun, client) -> None:
    status, output = pytest_run.run("-n", "2", *select_targets("nfs-v4.2-nconnect1", "nvme-tcp-hdgst-ddgst"))
    assert status == 0, output
    assert "4 passed" in output
    by_worker = {(text.split()[0], "nfs" in text) for text in output.splitlines() if "PASSED" in text}
    assert len(by_worker) == 2, f"a target was split over workers: {by_worker}"


COMPARISON = """
comparisons:
  nvme-tcp-against-iscsi:
    workload: small-random-write
    metric: iops
    gate: nvme-tcp-hdgst-ddgst >= 0.02 x iscsi-hdgstcrc32c
"""


@pytest.mark.slow
def test_two_protocols_are_compared_in_turns_on_one_client(
    pytest_run: PytestRun, client, tmp_path: Path
) -> None:
    targets = tmp_path / "targets.yaml"
    targets.write_text(targets.read_text().replace("max_repeats: 3}", "max_repeats: 12}") + COMPARISON)
    (tmp_path / "test_suite.py").write_text("def test_comparison(comparison):\n    comparison()\n")
    status, output = pytest_run.run(*select_targets("nvme-tcp-hdgst-ddgst", "iscsi-hdgstcrc32c"))
    assert status == 0, output
    records = [json.loads(text) for text in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert {record["run"]["variant"] for record in records} == {"nvme-tcp-hdgst-ddgst", "iscsi-hdgstcrc32c"}
    (verdict,) = [verdict for record in records for verdict in record["verdicts"]]
    assert verdict["outcome"] == "PASS"
    assert "nvme-tcp-hdgst-ddgst" in output


def test_lustre_is_skipped_without_an_overlay_that_contains_it(pytest_run: PytestRun, client) -> None:
    if client.has("lfs"):
        pytest.skip("this lab has an overlay with Lustre")
    status, output = pytest_run.run(*select_targets("lustre"), "--st-allow", "nothing-checked")
    assert status == 0, output
    assert "skipped" in output
    assert "client1 has no" in output


def wait_for_attach(host) -> None:
    try:
        wait_until(lambda: host.left() != [], 60, "the run to attach")
    except DeadlineExceeded as error:
        pytest.fail(str(error))


def test_ctrl_c_during_a_run_leaves_nothing(pytest_run: PytestRun, client) -> None:
    process = pytest_run.start(*select_targets("nfs-v4.2-nconnect1"), profile="long")
    wait_for_attach(client)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "KeyboardInterrupt" in output
    assert client.left() == []
    assert client.run(["pgrep", "-x", "fio"], deadline=15, check=False).stdout == ""


def test_clean_undoes_a_killed_run(pytest_run: PytestRun, client) -> None:
    process = pytest_run.start(*select_targets("iscsi-hdgstcrc32c"), profile="long")
    wait_for_attach(client)
    process.kill()
    process.communicate(timeout=300)
    assert client.left() != []
    wait_until(lambda: "undone" in pytest_run.clean(), 60, "clean to undo the attach")
    assert client.left() == []


@contextmanager
def replaced(client, path: str, text: str | None) -> Iterator[None]:
    """Replace a program of the client by ``text``, or remove it."""
    client.run(["mv", path, f"{path}.real"], deadline=15)
    try:
        if text is not None:
            client.push(text.encode(), path, mode=0o755)
        yield
    finally:
        client.run(["mv", f"{path}.real", path], deadline=15)


def test_fio_missing_on_the_client(pytest_run: PytestRun, client) -> None:
    with replaced(client, "/usr/bin/fio", None):
        status, output = pytest_run.run(*select_targets("nfs-v4.2-nconnect1"), "-k", "writes")
    assert status == 1
    assert "ERROR" in output
    assert "Traceback" not in output
    assert [text for text in output.splitlines() if "client1" in text and "fio" in text], output


OLD_FIO = """#!/bin/sh
cat <<'END'
{
  "fio version" : "fio-2.1.11",
  "jobs" : []
}
END
"""


@pytest.mark.slow
def test_fio_too_old_on_the_client(pytest_run: PytestRun, client) -> None:
    with replaced(client, "/usr/bin/fio", OLD_FIO):
        status, output = pytest_run.run(*select_targets("nfs-v4.2-nconnect1"), "-k", "writes")
    assert status == 1
    assert "Traceback" not in output
    assert [text for text in output.splitlines() if "client1" in text and "2.1.11" in text], output


def replace_client1(pytest_run: PytestRun, entry: str) -> None:
    """Replace the entry of client1 in the targets file."""
    path = pytest_run.directory / "targets.yaml"
    rows = path.read_text().splitlines()
    path.write_text("\n".join(f"  client1: {entry}" if "  client1:" in row else row for row in rows) + "\n")


def assert_one_error(pytest_run: PytestRun, *words: str) -> None:
    """Assert one error, whose line contains the client's name and ``words``, and one skipped case."""
    status, output = pytest_run.run(*select_targets("nfs-v4.2-nconnect1"))
    assert status == 1
    assert "1 skipped, 1 error" in output, output
    assert "Traceback" not in output
    expected = ("client1", *words)
    assert [text for text in output.splitlines() if all(word in text.lower() for word in expected)], output


def test_a_client_whose_host_key_has_changed(pytest_run: PytestRun, lab, tmp_path: Path, client) -> None:
    config = tmp_path / "ssh_config"
    known = tmp_path / "known_hosts"
    text = lab.ssh_config.read_text()
    original = next(row.split()[1] for row in text.splitlines() if "UserKnownHostsFile" in row)
    entries = [entry.split() for entry in Path(original).expanduser().read_text().splitlines()]
    keys = [entry[2] for entry in entries]
    shifted = [[entry[0], entry[1], keys[index - 1]] for index, entry in enumerate(entries)]
    known.write_text("".join(" ".join(entry) + "\n" for entry in shifted))
    config.write_text(text.replace(original, str(known)))
    replace_client1(pytest_run, f"{{transport: ssh, address: client1, ssh_config: {config}}}")
    assert_one_error(pytest_run, "host key")


def test_a_wrong_login_key(pytest_run: PytestRun, lab, tmp_path: Path, client) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "wrong"], check=True, timeout=30
    )
    entry = f"{{transport: ssh, address: client1, ssh_config: {lab.ssh_config}, key: {tmp_path / 'wrong'}}}"
    replace_client1(pytest_run, entry)
    assert_one_error(pytest_run, "key")


def test_a_client_that_does_not_exist(pytest_run: PytestRun) -> None:
    replace_client1(pytest_run, "{transport: ssh, address: no-such-host.invalid}")
    assert_one_error(pytest_run, "no-such-host.invalid")


@pytest.mark.slow
def test_a_target_that_hangs_during_a_run_is_reported_dead_once(pytest_run: PytestRun, lab, client) -> None:
    machine = lab.vm("appliance")
    process = pytest_run.start(*select_targets("nfs-v4.2-nconnect1"), profile="long")
    wait_for_attach(client)
    load = ["pgrep", "-f", "^fio --name=small-random-write .*libaio"]  # not the ceiling measurement
    wait_until(lambda: client.run(load, deadline=15, check=False).ok, 60, "the load")
    machine.pause()
    resume = threading.Timer(310, machine.resume)
    resume.start()
    try:
        # The load's timeout, the target's deadline, and a forced release.
        output, _ = process.communicate(timeout=300)
    finally:
        resume.cancel()
        machine.resume()
    assert "nfs is dead" in output, output
    assert "TargetDead" in output, output
    assert "1 skipped" in output
