"""The whole line in the lab, as a user runs it: pytest in a process of its own, on real targets."""

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
def line(lab, tmp_path: Path) -> PytestRun:
    return PytestRun(tmp_path, lab.targets_yaml.read_text())


def test_one_variant_of_each_protocol_from_yaml_to_results(line: PytestRun, client, tmp_path: Path) -> None:
    status, output = line.run(*select_targets(*ONE_OF_EACH), "--alluredir", "allure")
    assert status == 0, output
    assert "8 passed" in output
    runs = [json.loads(text)["run"] for text in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert sorted({run["variant"] for run in runs}) == sorted(ONE_OF_EACH)
    assert all(run["negotiated"] and run["versions"]["fio"] for run in runs)
    assert len(list((tmp_path / "allure").glob("*-result.json"))) == 8


def test_two_workers_run_different_targets(line: PytestRun, client) -> None:
    status, output = line.run("-n", "2", *select_targets("nfs-v4.2-nconnect1", "nvme-tcp-hdgst-ddgst"))
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


def test_two_protocols_are_compared_in_turns_on_one_client(line: PytestRun, client, tmp_path: Path) -> None:
    targets = tmp_path / "targets.yaml"
    targets.write_text(targets.read_text().replace("max_repeats: 3}", "max_repeats: 12}") + COMPARISON)
    (tmp_path / "test_suite.py").write_text("def test_comparison(comparison):\n    comparison()\n")
    status, output = line.run(*select_targets("nvme-tcp-hdgst-ddgst", "iscsi-hdgstcrc32c"))
    assert status == 0, output
    records = [json.loads(text) for text in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert {record["run"]["variant"] for record in records} == {"nvme-tcp-hdgst-ddgst", "iscsi-hdgstcrc32c"}
    (verdict,) = [verdict for record in records for verdict in record["verdicts"]]
    assert verdict["outcome"] == "PASS"
    assert "nvme-tcp-hdgst-ddgst" in output


def test_lustre_is_skipped_with_its_reason_where_no_overlay_brings_it(line: PytestRun, client) -> None:
    if client.has("lfs"):
        pytest.skip("this lab has an overlay with Lustre")
    status, output = line.run(*select_targets("lustre"))
    assert status == 0, output
    assert "skipped" in output
    assert "client1 has no" in output


def wait_for_attach(host) -> None:
    try:
        wait_until(lambda: host.left() != [], 60, "the run to attach")
    except DeadlineExceeded as error:
        pytest.fail(str(error))


def test_ctrl_c_in_mid_run_leaves_nothing(line: PytestRun, client) -> None:
    process = line.start(*select_targets("nfs-v4.2-nconnect1"), profile="long")
    wait_for_attach(client)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "KeyboardInterrupt" in output
    assert client.left() == []
    assert client.run(["pgrep", "-x", "fio"], deadline=15, check=False).stdout == ""


def test_clean_undoes_a_killed_run(line: PytestRun, client) -> None:
    process = line.start(*select_targets("iscsi-hdgstcrc32c"), profile="long")
    wait_for_attach(client)
    process.kill()
    process.communicate(timeout=60)
    assert client.left() != []
    wait_until(lambda: "undone" in line.clean(), 60, "clean to undo the attach")
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


def test_fio_missing_on_the_client(line: PytestRun, client) -> None:
    with replaced(client, "/usr/bin/fio", None):
        status, output = line.run(*select_targets("nfs-v4.2-nconnect1"), "-k", "writes")
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


def test_fio_too_old_on_the_client(line: PytestRun, client) -> None:
    with replaced(client, "/usr/bin/fio", OLD_FIO):
        status, output = line.run(*select_targets("nfs-v4.2-nconnect1"), "-k", "writes")
    assert status == 1
    assert "Traceback" not in output
    assert [text for text in output.splitlines() if "client1" in text and "2.1.11" in text], output


def client1_by(line: PytestRun, entry: str) -> None:
    """Have the targets file reach client1 in another way."""
    path = line.directory / "targets.yaml"
    rows = path.read_text().splitlines()
    path.write_text("\n".join(f"  client1: {entry}" if "  client1:" in row else row for row in rows) + "\n")


def errs_once(line: PytestRun, *wanted: str) -> None:
    """One case is an error with one line that has the client's name and ``wanted``; the other is skipped."""
    status, output = line.run(*select_targets("nfs-v4.2-nconnect1"))
    assert status == 1
    assert "1 skipped, 1 error" in output, output
    assert "Traceback" not in output
    words = ("client1", *wanted)
    assert [text for text in output.splitlines() if all(word in text.lower() for word in words)], output


def test_a_client_whose_host_key_has_changed(line: PytestRun, lab, tmp_path: Path, client) -> None:
    config = tmp_path / "ssh_config"
    known = tmp_path / "known_hosts"
    text = lab.ssh_config.read_text()
    original = next(row.split()[1] for row in text.splitlines() if "UserKnownHostsFile" in row)
    entries = [entry.split() for entry in Path(original).expanduser().read_text().splitlines()]
    keys = [entry[2] for entry in entries]
    shifted = [[entry[0], entry[1], keys[index - 1]] for index, entry in enumerate(entries)]
    known.write_text("".join(" ".join(entry) + "\n" for entry in shifted))
    config.write_text(text.replace(original, str(known)))
    client1_by(line, f"{{transport: ssh, address: client1, ssh_config: {config}}}")
    errs_once(line, "host key")


def test_a_wrong_key_to_log_in_with(line: PytestRun, lab, tmp_path: Path, client) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "wrong"], check=True, timeout=30
    )
    entry = f"{{transport: ssh, address: client1, ssh_config: {lab.ssh_config}, key: {tmp_path / 'wrong'}}}"
    client1_by(line, entry)
    errs_once(line, "key")


def test_a_client_that_does_not_exist(line: PytestRun) -> None:
    client1_by(line, "{transport: ssh, address: no-such-host.invalid}")
    errs_once(line, "no-such-host.invalid")


@pytest.mark.slow
def test_a_target_that_hangs_in_mid_run_is_found_dead_once(line: PytestRun, lab, client) -> None:
    machine = lab.vm("appliance")
    process = line.start(*select_targets("nfs-v4.2-nconnect1"), profile="long")
    wait_for_attach(client)
    load = ["pgrep", "-f", "^fio --name=small-random-write .*libaio"]  # its ceiling needs no target
    wait_until(lambda: client.run(load, deadline=15, check=False).ok, 60, "the load")
    machine.pause()
    resume = threading.Timer(190, machine.resume)
    resume.start()
    try:
        output, _ = process.communicate(timeout=180)  # found dead twice it would take twice the time
    finally:
        resume.cancel()
        machine.resume()
    assert "nfs is dead" in output, output
    assert "TargetDead" in output, output
    assert "1 skipped" in output
