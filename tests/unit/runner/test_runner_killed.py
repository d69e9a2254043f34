"""What a run that is killed (SIGKILL) has changed on a client: `storagetest clean` undoes it."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from storagetest import hosts
from storagetest.agent.testlib import multipath
from storagetest.cli import main
from storagetest.commands import clean as clean_command
from storagetest.config.controls import Controls
from storagetest.errors import HostError
from storagetest.hosts import Journal, LocalHost
from storagetest.polling import wait_until
from storagetest.runner.isolation import isolated

TARGETS = "version: 1\ntargets: {scratch: {protocol: local, path: /tmp}}\n"

# A client is isolated while {flag} exists. As with tc(8), reconnecting fails if it is not isolated.
ISOLATED = """
import sys, time
from storagetest.config.controls import Controls
from storagetest.hosts import LocalHost, undo_journal
from storagetest.runner.isolation import isolated
undo_journal.Journal.__init__.__defaults__ = (sys.argv[1],)
controls = Controls.model_validate({"isolate": ["touch", sys.argv[2]], "reconnect": ["rm", sys.argv[2]]})
with isolated(LocalHost(), controls, target="nas", reconnected=lambda: True):
    print("changed", flush=True)
    time.sleep(300)
"""

# A server's metadata service is stopped while {flag} exists.
STOPPED = ISOLATED.replace("import isolated", "import controlled").replace('"isolate"', '"stop_mds"')
STOPPED = STOPPED.replace('"reconnect"', '"start_mds"').replace(
    'isolated(LocalHost(), controls, target="nas", reconnected=lambda: True)',
    'controlled(LocalHost(), controls, "mds_restart", target="nas")',
)
WITH_SERVER = """\
version: 1
servers: {mds: {transport: local}}
targets:
  scratch: {protocol: local, path: /tmp, server: mds, controls: {stop_mds: [a], start_mds: [b]}}
"""
WITH_RESTART = WITH_SERVER.replace("stop_mds: [a], start_mds: [b]", "restart: [a]")

# A path is lost while {flag} exists.
LOST_PATH = """
import sys
from pathlib import Path
from storagetest.hosts import LocalHost, undo_journal
from storagetest.runner import client_cases
client_cases.agent_journal = lambda: undo_journal.agent_journal(sys.argv[1])
call = client_cases.ClientCase("lost", Path(sys.argv[3]), "loses", {"flag": sys.argv[2]})
client_cases.run_cases(LocalHost(), [call], path=sys.argv[4])
"""

LOSES = """
import time
from storagetest.agent.testlib.multipath import DevicePath

class FlagPath(DevicePath):
    def _undo(self):
        return {"argv": ("rm", self.address), "unless": ("test", "!", "-e", self.address)}

    def _remove(self):
        open(self.address, "w").close()

def loses(flag, **_):
    FlagPath("p0", flag).remove()
    time.sleep(300)
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the journal: not that of this machine, which other runs use, like its processes."""
    monkeypatch.setattr(clean_command, "clean", partial(hosts.clean, directory=str(tmp_path / "journal")))
    monkeypatch.setattr(clean_command, "end_left_commands", lambda _host, **_: ([], set()))
    return tmp_path / "journal"


@pytest.fixture
def default(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same directory, for this process."""
    monkeypatch.setattr(Journal.__init__, "__defaults__", (str(directory),))
    return directory


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    return tmp_path / "flag"


def killed_while_changed(script: str, flag: Path, *arguments: str) -> None:
    """Run a controller until it has made ``flag``, and kill it."""
    with subprocess.Popen([sys.executable, "-c", script, *arguments]) as controller:
        try:
            wait_until(lambda: flag.exists() or controller.poll() is not None, 60, "the change")
            assert flag.exists()
        finally:
            controller.send_signal(signal.SIGKILL)


@pytest.fixture
def clean(tmp_path: Path) -> Iterator[list[str]]:
    (tmp_path / "targets.yaml").write_text(TARGETS)
    return ["clean", "--targets", str(tmp_path / "targets.yaml")]


def test_an_isolated_client_is_reconnected(directory: Path, flag: Path, clean: list[str], capsys) -> None:
    killed_while_changed(ISOLATED, flag, str(directory), str(flag))
    assert main(clean) == 0
    assert not flag.exists()
    assert "isolation from nas: undone" in " ".join(capsys.readouterr().out.split())
    assert list(directory.glob("*.json")) == []


@pytest.mark.parametrize(("text", "there"), [(WITH_SERVER, False), (WITH_RESTART, True), (TARGETS, True)])
def test_a_control_of_a_server_is_undone(
    directory: Path, flag: Path, clean: list[str], tmp_path: Path, monkeypatch, capsys, text: str, there: bool
) -> None:
    killed_while_changed(STOPPED, flag, str(directory), str(flag))
    (tmp_path / "targets.yaml").write_text(text)
    on_clients = clean_command.clean
    only_servers = [(), on_clients] if text == WITH_SERVER else [()]

    def cleaned(host, **options):
        step = only_servers.pop(0)
        return step(host, **options) if callable(step) else step

    monkeypatch.setattr(clean_command, "clean", cleaned)
    assert main(clean) == 0
    assert flag.exists() is there
    assert ("mds: mds_restart of nas: undone" in " ".join(capsys.readouterr().out.split())) is not there


def test_lost_path_is_restored(directory: Path, flag: Path, clean: list[str], tmp_path: Path, capsys) -> None:
    (tmp_path / "loses.py").write_text(LOSES)
    (tmp_path / "place").mkdir()
    arguments = (str(directory), str(flag), str(tmp_path / "loses.py"), str(tmp_path / "place"))
    killed_while_changed(LOST_PATH, flag, *arguments)
    assert main(clean) == 0
    assert not flag.exists()
    assert f"path p0 ({flag}): undone" in " ".join(capsys.readouterr().out.split())


def test_a_client_that_is_reconnected_by_the_run_has_no_entry(default: Path, flag: Path) -> None:
    controls = Controls.model_validate({"isolate": ["touch", str(flag)], "reconnect": ["rm", str(flag)]})
    with isolated(LocalHost(), controls, target="nas", reconnected=lambda: True):
        assert flag.exists()
        [entry] = Journal(LocalHost()).entries()
    assert not flag.exists()
    assert Journal(LocalHost()).entries() == []
    # Killed before it was isolated, or after it was reconnected: the step succeeds all the same.
    Journal(LocalHost()).write(entry)
    assert Journal(LocalHost()).undo(entry).result is hosts.UndoStatus.UNDONE
    assert not flag.exists()


@pytest.mark.usefixtures("default")
def test_a_client_that_cannot_be_reconnected_keeps_its_entry() -> None:
    controls = Controls.model_validate({"isolate": ["true"], "reconnect": ["false"]})
    with (
        pytest.raises(HostError, match="`false` exited 1"),
        isolated(LocalHost(), controls, target="nas", reconnected=lambda: True),
    ):
        pass
    [entry] = Journal(LocalHost()).entries()
    assert Journal(LocalHost()).undo(entry).result is hosts.UndoStatus.FAILED


@pytest.mark.parametrize(
    ("addresses", "done"),
    [
        ({}, True),  # the device was disconnected: nothing is to be connected
        ({"nvme0": "traddr=192.0.2.1,trsvcid=4420"}, False),
        ({"nvme0": "traddr=192.0.2.1,trsvcid=4420", "nvme3": "traddr=192.0.2.2,trsvcid=4420"}, True),
    ],
)
def test_the_step_for_an_nvme_path_is_done_unless_its_subsystem_lacks_it(
    tmp_path: Path, addresses: dict[str, str], done: bool
) -> None:
    for name, address in addresses.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "subsysnqn").write_text("nqn.x\n")
        (tmp_path / name / "address").write_text(f"{address}\n")
    step = ["sh", "-c", multipath._NVME_DONE, "restored", tmp_path, "nqn.x", "traddr=192.0.2.2,trsvcid=4420"]
    assert (subprocess.run(step, check=False).returncode == 0) is done


def test_the_step_for_a_scsi_path_sets_its_disk_running(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("offline\n")
    subprocess.run(["sh", "-c", multipath._SCSI_RESTORE, "restore", state, "", "8:0"], check=True)
    assert state.read_text() == "running\n"
