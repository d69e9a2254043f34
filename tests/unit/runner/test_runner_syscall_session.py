"""Hands on this machine: what they do, how they die, and that a broken line is never taken for an answer."""

import errno
import fcntl
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import children, wait_until_gone

from storagetest.errors import ClientLacks, DeadlineExceeded, HostError
from storagetest.hosts import LocalHost
from storagetest.polling import wait_until
from storagetest.runner.syscall_session import SyscallSession, open_syscall_session, restart_workers

READY = {"t": "progress", "phase": "ready", "boot": "b", "pid": 1}

Pair = tuple[SyscallSession, SyscallSession]


@pytest.fixture
def hands(tmp_path: Path) -> Iterator[Pair]:
    with open_syscall_session(LocalHost("a")) as a, open_syscall_session(LocalHost("b")) as b:
        for each in (a, b):
            each.chdir(str(tmp_path))
        yield a, b


@pytest.fixture
def hand(hands: Pair) -> SyscallSession:
    return hands[0]


@pytest.fixture
def fds(hands: Pair) -> list[int]:
    """The descriptors of a new file, of each hand."""
    return [hand.open("l", os.O_CREAT | os.O_RDWR) for hand in hands]


@contextmanager
def scripted(script: str, *messages: dict[str, object]) -> Iterator[SyscallSession]:
    """A hand whose other side sends ``messages`` and runs a few lines of shell."""
    sent = "".join(f"echo '{json.dumps(message)}'; " for message in messages)
    with LocalHost("c").interactive_exec(["sh", "-c", sent + script], deadline=60) as talk:
        yield SyscallSession("c", talk)


def test_calls_are_the_systems(hand: SyscallSession, tmp_path: Path) -> None:
    fd = hand.open("f", os.O_CREAT | os.O_RDWR)
    assert hand.write(fd, b"0123456789") == 10
    assert hand.pwrite(fd, b"X", 3) == 1
    assert hand.pread(fd, 4, 2) == b"2X45"
    hand.ftruncate(fd, 6)
    hand.fsync(fd)
    assert hand.fstat(fd).size == 6
    hand.close(fd)
    assert (tmp_path / "f").read_bytes() == b"012X45"
    hand.rename("f", "g")
    hand.mkdir("d")
    hand.link("g", "d/h")
    hand.symlink("g", "s")
    hand.chmod("g", 0o640)
    hand.utime("g", 10**9, 2 * 10**9)
    seen = hand.stat("g")
    assert (seen.nlink, seen.mode & 0o777, seen.mtime_ns) == (2, 0o640, 2 * 10**9)
    assert hand.readlink("s") == "g"
    assert hand.listdir() == ["d", "g", "s"]
    assert hand.exists("g")
    assert not hand.exists("f")
    hand.truncate("g", 0)
    hand.unlink("d/h")
    hand.rmdir("d")
    hand.write_file("g", bytes(range(256)) * 500)
    assert hand.read_file("g") == bytes(range(256)) * 500
    hand.remove("g")
    assert hand.listdir() == ["s"]


def test_refused_call_raises_the_systems_error_with_the_client(hand: SyscallSession) -> None:
    with pytest.raises(FileNotFoundError, match=r"No such file or directory \(a: open\).*/none") as caught:
        hand.open("none")
    assert caught.value.errno == errno.ENOENT


def test_many_calls_in_one_round_trip_give_each_its_answer(hand: SyscallSession) -> None:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    found = hand.each([("open", "x", flags), ("open", "x", flags), ("listdir", ".")])
    assert isinstance(found[0], int)
    assert isinstance(found[1], FileExistsError)
    assert found[2] == ["x"]


def test_unknown_call_is_an_error(hand: SyscallSession) -> None:
    for name in ("system", "_at", "perform"):
        with pytest.raises(OSError, match="unknown system call"):
            hand.call(name, "x")
    with pytest.raises(HostError, match="TypeError"):
        hand.call("open")
    assert hand.usable


def test_a_map_shows_the_file(hand: SyscallSession) -> None:
    fd = hand.open("m", os.O_CREAT | os.O_RDWR)
    hand.ftruncate(fd, 4096)
    number = hand.call("map", fd, 4096)
    hand.call("poke", number, 10, b"mapped")
    hand.call("msync", number)
    assert hand.pread(fd, 6, 10) == b"mapped"
    hand.pwrite(fd, b"M", 10)
    assert hand.call("peek", number, 10, 6) == b"Mapped"
    hand.call("unmap", number)


def test_locks_exclude_each_other_and_name_the_holder(hands: Pair, fds: list[int]) -> None:
    a, b = hands
    a.lock(fds[0], fcntl.F_WRLCK, 5, 10)
    with pytest.raises(BlockingIOError):
        b.lock(fds[1], fcntl.F_RDLCK, 14, 1)
    assert b.get_conflicting_lock(fds[1], fcntl.F_RDLCK, 0, 0) == (fcntl.F_WRLCK, 5, 10)
    assert b.get_conflicting_lock(fds[1], fcntl.F_RDLCK, 15, 0) is None
    waiting = b.wait_for_lock(fds[1], fcntl.F_WRLCK, 5, 1, deadline=30)
    assert not waiting.done(within=0.2)
    a.lock(fds[0], fcntl.F_UNLCK, 5, 10)
    assert waiting.result() is None


def test_a_hand_that_dies_lets_go_of_its_locks_and_can_be_renewed(hands: Pair, fds: list[int]) -> None:
    a, b = hands
    a.lock(fds[0], fcntl.F_WRLCK)
    a.kill_worker()
    b.lock(fds[1], fcntl.F_WRLCK)
    with pytest.raises(HostError, match="a: the worker of the syscall session died during listdir"):
        a.listdir()
    a.restart_worker()
    a.chdir("/")
    assert "tmp" in a.listdir()


def test_a_worker_is_kept_only_if_it_can_hold_nothing(
    hands: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _ = hands
    restarts: list[int] = []
    wait = session._wait_killed
    monkeypatch.setattr(session, "_wait_killed", lambda number: (restarts.append(number), wait(number)))

    def restarted() -> int:
        session.restart_worker()
        found = len(restarts)
        restarts.clear()
        return found

    session.restart_worker()
    restarts.clear()
    session.chdir("")
    session.mkdir(str(tmp_path / "made"))
    session.remove(str(tmp_path / "made"))
    assert restarted() == 0
    session.listdir(str(tmp_path))
    assert [restarted(), restarted()] == [1, 0]
    with pytest.raises(DeadlineExceeded):
        session.call("wait", 60, deadline=0.3)
    assert restarted() == 1
    session.kill_worker()
    restarts.clear()
    assert restarted() == 1
    session.chdir(str(tmp_path))
    assert session.listdir() == []


def test_workers_of_all_sessions_are_restarted(hands: Pair, fds: list[int]) -> None:
    a, b = hands
    a.lock(fds[0], fcntl.F_WRLCK)
    restart_workers(a, b)
    for session, fd in zip(hands, fds, strict=True):
        with pytest.raises(OSError, match="Bad file descriptor"):
            session.fstat(fd)


def test_calls_of_one_round_trip_return_values_or_raise_the_first_error(
    hand: SyscallSession, tmp_path: Path
) -> None:
    calls = ("chdir", str(tmp_path)), ("mkdir", "d"), ("listdir", ".")
    assert hand.call_all(*calls) == [None, None, ["d"]]
    with pytest.raises(FileExistsError, match="mkdir"):
        hand.call_all(*calls, ("rmdir", "e"))


def test_a_waiting_hand_can_be_killed(hands: Pair, fds: list[int]) -> None:
    a, b = hands
    a.lock(fds[0], fcntl.F_WRLCK)
    waiting = b.wait_for_lock(fds[1], fcntl.F_WRLCK, deadline=30)
    assert not waiting.done(within=0.1)
    b.kill_worker()
    with pytest.raises(HostError, match="died during lock"):
        waiting.results()


def test_hanging_call_times_out_alone(hands: Pair, fds: list[int]) -> None:
    a, b = hands
    a.lock(fds[0], fcntl.F_WRLCK)
    with pytest.raises(DeadlineExceeded, match=r"a: wait did not end within 0\.3 s; its process was killed"):
        a.call("wait", 60, deadline=0.3)
    b.lock(fds[1], fcntl.F_WRLCK)  # what the hung one held is free
    assert a.usable
    a.restart_worker()
    a.chdir("/")
    assert a.listdir()


def test_a_second_order_while_it_is_busy_is_refused(hand: SyscallSession) -> None:
    first = hand.start(("wait", 0.3), deadline=20)
    with pytest.raises(HostError, match="busy"):
        hand.listdir()
    assert first.result() is None


def test_counters_are_read_while_a_call_hangs(hand: SyscallSession) -> None:
    waiting = hand.start(("wait", 0.3), deadline=20)
    assert "processor" in hand.read_files(["/proc/cpuinfo", "/no/such/*"])["/proc/cpuinfo"]
    assert waiting.result() is None


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("garbage", "sent an invalid message: 'garbage'"),
        ("[1, 2]", "sent an invalid message"),
        ('{"n": 7, "results": []}', "unexpected message"),
        ('{"t": "progress", "phase": "more"}', "unexpected message"),
        ('{"n": 1, "results": []}', "invalid response"),
        ('{"n": 1}', "invalid response"),
        ('{"n": 1, "results": [{"value": {"bytes": "!"}}]}', "sent an invalid message"),
        ('{"t": "error", "kind": "bug", "message": "oh"}', "the syscall session ended: oh"),
    ],
)
def test_garbage_is_never_an_answer(answer: str, words: str) -> None:
    script = f"read x; printf '%s\\n' '{answer}'; cat"
    with scripted(script, READY) as hand, pytest.raises(HostError, match=words):
        hand.listdir()


def test_a_line_that_breaks_makes_the_hand_useless() -> None:
    with scripted("read x; exit 9", READY) as hand:
        with pytest.raises(HostError, match="ended unexpectedly with status 9"):
            hand.listdir()
        assert not hand.usable


def test_an_agent_that_is_killed_is_an_error_and_leaves_no_worker(tmp_path: Path) -> None:
    with open_syscall_session(LocalHost("a")) as hand:
        workers = children(hand.pid)
        os.kill(hand.pid, signal.SIGKILL)
        with pytest.raises(HostError, match="ended unexpectedly"):
            hand.listdir()
        assert not hand.usable
        assert workers
        wait_until_gone(*workers)


def test_a_banner_before_the_first_word_is_passed_over() -> None:
    with scripted("cat", {"t": "progress", "phase": "sampling"}, READY) as hand:
        assert hand.boot == "b"


def test_a_python_that_is_too_old_is_something_the_client_lacks() -> None:
    message = {"t": "error", "kind": "python", "message": "3.8"}
    with pytest.raises(ClientLacks, match=r"python3 is 3\.8, too old"), scripted("", message):
        pass


def test_nothing_is_left_when_a_case_is_interrupted() -> None:
    with pytest.raises(KeyboardInterrupt), open_syscall_session(LocalHost("a")) as hand:
        family = {hand.pid, *children(hand.pid)}
        hand.start(("wait", 600), deadline=900)
        raise KeyboardInterrupt
    assert len(family) == 2
    wait_until_gone(*family)


def test_a_program_runs_to_its_end_in_the_directory(hand: SyscallSession, tmp_path: Path) -> None:
    script = "echo out; echo err >&2; pwd > here; exit 3"
    assert hand.call("run_program", ["sh", "-c", script], 60.0) == [3, "out\n", "err\n"]
    assert (tmp_path / "here").read_text().strip() == str(tmp_path)


def test_a_program_that_does_not_end_is_killed(hand: SyscallSession) -> None:
    with pytest.raises(OSError, match="sleep did not end within") as late:
        hand.call("run_program", ["sleep", "600"], 0.1)
    assert late.value.errno == errno.ETIMEDOUT


def test_a_program_that_is_missing_is_an_error_of_the_call(hand: SyscallSession) -> None:
    with pytest.raises(FileNotFoundError):
        hand.call("run_program", ["no-such-program"], 60.0)


def test_an_executed_file_ends_with_its_stdin(hands: Pair, tmp_path: Path) -> None:
    a, b = hands
    (tmp_path / "prog").write_bytes(Path("/bin/cat").read_bytes())
    (tmp_path / "prog").chmod(0o755)
    running = a.call("start_program", "prog")
    with pytest.raises(OSError) as busy:
        b.open("prog", os.O_WRONLY)
    assert busy.value.errno == errno.ETXTBSY
    assert a.call("end_program", running) == 0
    b.close(b.open("prog", os.O_WRONLY))


def test_an_executed_file_ends_with_its_worker(hands: Pair, tmp_path: Path) -> None:
    a, b = hands
    (tmp_path / "prog").write_bytes(Path("/bin/cat").read_bytes())
    (tmp_path / "prog").chmod(0o755)
    a.call("start_program", "prog")
    a.kill_worker()

    def free() -> bool:
        try:
            b.close(b.open("prog", os.O_WRONLY))
        except OSError:
            return False
        return True

    wait_until(free, 60, "the program to end")


def test_close_all_ends_programs(hand: SyscallSession, tmp_path: Path) -> None:
    (tmp_path / "prog").write_bytes(Path("/bin/cat").read_bytes())
    (tmp_path / "prog").chmod(0o755)
    first, second = hand.call("start_program", "prog"), hand.call("start_program", "prog")
    assert first != second
    hand.close_all()
    hand.close(hand.open("prog", os.O_WRONLY))


WAITS = [("lock", fcntl.F_WRLCK, 0, 0, True)]


def test_a_locker_that_waits_is_interrupted(hands: Pair, fds: list[int]) -> None:
    a, b = hands
    a.lock(fds[0], fcntl.F_WRLCK)
    locker = b.call("start_locker", "l", WAITS)
    b.call("wait", 0.2)
    assert b.call("interrupt_locker", locker) == errno.EINTR
    a.lock(fds[0], fcntl.F_UNLCK)
    assert a.try_lock(fds[0], fcntl.F_WRLCK)
    assert b.call("end_locker", locker)


def test_a_locker_holds_its_lock_until_it_ends(hands: Pair, fds: list[int]) -> None:
    a, b = hands
    locker = a.call("start_locker", "l", WAITS)
    assert a.call("has_locked", locker, 60.0)
    assert not a.try_lock(fds[0], fcntl.F_WRLCK)  # another process than the session's worker
    assert a.call("end_locker", locker)
    assert b.try_lock(fds[1], fcntl.F_WRLCK)


def test_a_locker_ends_with_its_worker(hands: Pair, fds: list[int]) -> None:
    a, b = hands
    assert a.call("has_locked", a.call("start_locker", "l", WAITS), 60.0)
    a.kill_worker()
    wait_until(lambda: b.try_lock(fds[1], fcntl.F_WRLCK), 60, "the locker to end")


def test_close_all_ends_lockers(hand: SyscallSession, fds: list[int]) -> None:
    lockers = [hand.call("start_locker", "l", [("flock", fcntl.LOCK_SH)]) for _ in range(2)]
    assert all(hand.call("has_locked", locker, 60.0) for locker in lockers)
    hand.close_all()
    assert hand.try_flock(hand.open("l"), fcntl.LOCK_EX)


def test_an_ioctl_with_a_number(hand: SyscallSession) -> None:
    fd = hand.open("f", os.O_CREAT | os.O_RDWR)
    with pytest.raises(OSError) as refused:
        hand.call("ioctl_number", fd, 0x4008669E, 1)
    assert refused.value.errno == errno.ENOTTY
