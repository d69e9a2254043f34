"""Locks between real processes. No test measures time: a waiting process is observed."""

import fcntl
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from storagetest.errors import HostError
from storagetest.polling import wait_until
from storagetest.runner import locks
from storagetest.runner.locks import acquire, exclusive, lock_directory, shared

HOLD = """
import sys
from storagetest.runner.locks import exclusive, shared
take = {"exclusive": exclusive, "shared": shared}[sys.argv[1]]
with take(sys.argv[2:], timeout=60, purpose="the case of " + sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
print("free", flush=True)
"""


@pytest.fixture
def name() -> str:
    return f"client:{uuid.uuid4().hex}"


@pytest.fixture
def other(request):
    """Start a process that takes locks; it holds them until its stdin is closed."""
    started: list[subprocess.Popen[str]] = []

    def start(mode: str, *names: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", HOLD, mode, *names]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(30)
        process.stdin.close()
        process.stdout.close()


@pytest.fixture(autouse=True)
def _tidy(name):
    yield
    for path in lock_directory().glob(f"*{name.removeprefix('client:')}*"):
        path.unlink()


def held(process) -> bool:
    return process.stdout.readline() == "held\n"


@pytest.fixture
def holding(other):
    """Start a process that takes a lock, and wait until it holds the lock."""

    def start(mode: str, name: str) -> subprocess.Popen[str]:
        process = other(mode, name)
        assert held(process)
        return process

    return start


def let_go(process) -> None:
    process.stdin.close()
    assert process.stdout.readline() == "free\n"


def turnstile(name: str) -> Path:
    return lock_directory() / f"{locks._file_name(name)}.turn"


def assert_free(take, *names: str) -> None:
    with take(names, timeout=10, purpose="mine"):
        pass


def assert_in_use(take, *names: str) -> str:
    """Return the message of the error."""
    with pytest.raises(HostError) as caught, take(names, timeout=0.2, purpose="mine"):
        pytest.fail("two hold it")
    return str(caught.value)


def is_locked(path: Path) -> bool:
    if not path.exists():
        return False
    with path.open("rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_an_exclusive_holder_keeps_everybody_out_and_is_named(holding, name):
    holder = holding("exclusive", name)
    for take in (exclusive, shared):
        message = assert_in_use(take, name)
        assert f"{name} is in use by process {holder.pid} (the case of {name})" in message
        assert "mine waited 0.2 s" in message
    let_go(holder)
    assert_free(exclusive, name)


def test_shared_holders_keep_only_exclusive_ones_out(holding, name):
    first, second = holding("shared", name), holding("shared", name)
    assert_free(shared, name)
    assert_in_use(exclusive, name)
    let_go(first)
    let_go(second)
    assert_free(exclusive, name)


def test_some_alone_and_others_together_are_taken_in_one_call(name):
    server = f"server:{name.removeprefix('client:')}"
    with acquire(exclusive=[name], shared=[server], timeout=10, purpose="mine"):
        assert_in_use(shared, name)
        assert_free(shared, server)
        assert_in_use(exclusive, server)


def test_an_exclusive_one_that_waits_is_not_overtaken(holding, other, name):
    """Without a turnstile, shared holders that come and go could keep it waiting for ever."""
    first = holding("shared", name)
    waiting = other("exclusive", name)
    wait_until(lambda: is_locked(turnstile(name)), 30, "the exclusive one at the turnstile")
    assert_in_use(shared, name)
    let_go(first)
    assert held(waiting)


def test_the_kernel_frees_what_a_killed_process_held(holding, name):
    holder = holding("exclusive", name)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(30)
    assert_free(exclusive, name)


def test_other_names_are_free(holding, name):
    holding("exclusive", name)
    assert_free(exclusive, f"{name}-2")


def test_many_names_in_any_order_cannot_deadlock(other, name):
    """Three processes take the same three names, each in another order, one after the other."""
    names = [f"{name}-{letter}" for letter in "abc"]
    processes = [other("exclusive", *names[shift:], *names[:shift]) for shift in range(3)]
    for process in processes:
        process.stdin.close()
    for process in processes:
        assert process.stdout.read() == "held\nfree\n"


def test_when_one_name_is_taken_none_is_kept(holding, name):
    taken, free = f"{name}-b", f"{name}-a"
    holding("exclusive", taken)
    assert_in_use(exclusive, taken, free)
    assert_free(exclusive, free)


def test_a_name_that_is_given_twice_is_taken_once(name):
    assert_free(exclusive, name, name)


def test_an_error_inside_frees_it(name):
    with pytest.raises(KeyError), exclusive([name], timeout=1, purpose="mine"):
        raise KeyError
    assert_free(exclusive, name)


def test_a_removed_lock_file_does_not_let_two_in(holding, other, name):
    """As a cleaner of /tmp would leave it: who waits on a file without a name must not hold the lock."""
    path = lock_directory() / locks._file_name(name)
    first = holding("exclusive", name)
    waiting = other("exclusive", name)
    wait_until(lambda: is_locked(turnstile(name)), 30, "the second at the turnstile")
    let_go(first)
    assert held(waiting)
    with path.open("rb+") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # what the name leads to is what is held


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """The lock directory as another path, so that it can be tampered with."""
    place = tmp_path / "locks"
    real = locks.Path
    monkeypatch.setattr(
        locks, "Path", lambda text: place if text.startswith("/tmp/storagetest-") else real(text)
    )
    return place


def test_the_directory_is_made_for_its_user_alone(elsewhere):
    assert lock_directory() == elsewhere
    assert elsewhere.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["symlink", "open", "file"])
def test_a_directory_that_is_not_ours_alone_is_refused(elsewhere, tmp_path, kind):
    if kind == "symlink":
        (tmp_path / "theirs").mkdir(mode=0o700)
        elsewhere.symlink_to(tmp_path / "theirs")
    elif kind == "open":
        elsewhere.mkdir()
        elsewhere.chmod(0o777)
    else:
        elsewhere.touch()
    with (
        pytest.raises(HostError, match="not a directory that only you can access"),
        exclusive(["x"], timeout=1, purpose="m"),
    ):
        pytest.fail("locked in a place that others control")


def test_a_symbolic_link_in_place_of_a_lock_is_not_followed(elsewhere, tmp_path, name):
    lock_directory()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (elsewhere / locks._file_name(name)).symlink_to(victim)
    with pytest.raises(OSError), exclusive([name], timeout=1, purpose="m"):
        pytest.fail("followed")
    assert victim.read_text() == "precious"


def test_names_that_look_alike_as_files_are_not_confused():
    assert len({locks._file_name(name) for name in ("a/b", "a_b", "a:b", "a b", "a" * 100, "a" * 101)}) == 6
    assert all("/" not in locks._file_name(name) for name in ("../../etc/passwd", "/", ".."))
